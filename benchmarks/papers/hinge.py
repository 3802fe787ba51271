"""Experiments of the paper on random hinge forests: Lay et al. 2018.

    python -m benchmarks.papers.hinge GROUP [--data FOLDER] [--quick] [--sets NAME ...]

``as-printed`` has the settings of the paper; ``--sets`` takes patterns of its rows there, such as
``published/madelon-100x*``. Errors are measured on the final model of training, not the smallest
test error during training. ``networks``, which needs PyTorch, trains forests on top of several
layers; there, ``--sets`` names networks.
"""

import statistics
import time
from fnmatch import fnmatch
from functools import partial

import numpy as np
from sklearn.datasets import load_iris, make_moons
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from benchmarks.lib import cells, data, figures, groups, results
from benchmarks.lib.models import with_changes
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.timing import interleave, mean_sd
from skforest import HingeProcedure, RandomHingeForestClassifier, RandomHingeForestRegressor

DEEP = {"n_estimators": 100, "max_depth": 10}
# The settings of the paper: constant learning rate, features in one unit and initial weights of
# variance 1, batches of 53 rows, no dropout.
PUBLISHED = {
    "n_bags": 1,
    "features": "linear",
    "n_directions": 100,
    "dropout": 0.0,
    "procedure": HingeProcedure.as_printed(),
}
ADAM = PUBLISHED | DEEP | {"learning_rate": 0.005, "max_iter": 40_000}
# Learning rate of AdaGrad, fraction of the rows that select the iteration, and what the paper
# reports: mean test errors or R2 of 10 runs, in the order of SIZES.
SIZES = [(trees, depth) for trees in (1, 10, 50, 100) for depth in (1, 3, 5, 7, 10)]
GRID = {
    "abalone": (0.05, 1 / 3, """
        43.18 41.99 41.44 40.72 40.92 35.66 34.93 35.20 35.42 35.69
        34.37 34.47 35.11 35.39 35.62 34.47 35.05 35.81 36.04 36.52"""),
    "abalone_r2": (0.05, 1 / 3, """
        .310 .442 .415 .405 .313 .522 .540 .546 .547 .543
        .563 .561 .551 .547 .536 .566 .553 .544 .539 .529"""),
    "madelon": (0.01, 0.25, """
        48.22 46.40 44.13 45.98 45.52 42.95 40.80 42.32 41.63 43.02
        42.28 40.97 41.62 40.97 42.03 42.43 41.02 41.13 41.28 41.07"""),
    "poker": (0.3, 0.25, """
        49.39 45.67 45.79 45.36 45.67 44.65 40.67 41.18 42.94 44.34
        38.88 32.64 37.81 42.95 44.24 37.80 35.87 41.09 43.32 44.20"""),
}  # fmt: skip
# Table 3: parameters, and mean test errors of forests and of ferns.
CONVOLUTIONS = {"features": "conv", "feature_shape": (28, 28), "n_directions": 80}
PRINTED_IMAGES = {
    "letter": (ADAM, 2.56, 2.78),
    "usps": (with_changes(ADAM, {"batch_size": 29}), 5.53, 5.64),
    "mnist": (ADAM | CONVOLUTIONS, 2.79, 2.85),
    "mnist-1000": (ADAM | CONVOLUTIONS | {"n_estimators": 1000}, 1.81, 1.90),
}
# Means of ten runs of ferns in the authors' logs, in the order of SIZES.
FERNS = {
    "abalone": """
        43.18 42.39 41.32 40.74 41.63 35.66 35.26 35.61 35.11 35.46
        34.37 34.52 34.70 34.89 35.36 34.47 34.45 35.51 35.61 36.03""",
    "abalone_r2": """
        .310 .435 .428 .417 .372 .522 .548 .546 .541 .545
        .563 .560 .553 .546 .538 .566 .554 .546 .540 .534""",
    "madelon": """
        48.22 45.45 46.52 45.83 45.67 42.95 41.68 43.08 42.33 42.83
        42.28 41.58 41.32 40.75 41.50 42.43 41.32 41.07 40.73 41.20""",
    "poker": """
        49.39 46.11 45.75 45.52 45.51 44.65 40.61 40.19 41.84 43.58
        38.88 35.13 37.56 41.94 44.25 37.80 33.88 40.48 43.92 44.06""",
}
# Table 2: a random forest of 100 trees of depth 10.
RANDOM_FORESTS = {
    "iris": 4.13, "abalone": 34.8, "abalone_r2": 0.54, "madelon": 29.3, "poker": 40.4,
}  # fmt: skip
FOREST = {"n_estimators": 100, "max_depth": 10, "max_features": "sqrt"}
# Tables 2 and 3 as printed, and 1000 trees of section 6: trees, ferns and random forests.
SUMMARY = {
    "iris-10x5": ("2.13 ± 2.66", "2.27 ± 2.25", "4.13 ± 2.33"),
    "abalone-50x1": ("34.4 ± 0.56", "34.4 ± 0.56", "34.8 ± 0.40"),
    "abalone_r2-100x1": ("0.57 ± 0.07", "0.57 ± 0.07", "0.54 ± 0.01"),
    "madelon-10x3": ("40.8 ± 1.60", "40.8 ± 1.41", "29.3 ± 1.13"),
    "poker-50x3": ("32.6 ± 4.80", "33.9 ± 4.70", "40.4 ± 0.18"),
    "letter": ("2.56 ± 0.11", "2.78 ± 0.12", None),
    "usps": ("5.53 ± 0.15", "5.64 ± 0.24", None),
    "mnist": ("2.79 ± 0.11", "2.85 ± 0.13", None),
    "mnist-1000": ("1.81 ± 0.10", "1.90 ± 0.06", None),
}
# What figure 3 shows: training of these rows of ``as-printed`` by the size that the paper prints.
CURVES = {
    ("madelon", "trees"): {
        f"100 / {depth}": f"published/madelon-100x{depth}" for depth in (1, 5, 10)
    },
    ("madelon", "ferns"): {f"100 / {depth}": f"ferns/madelon-100x{depth}" for depth in (1, 5, 10)},
    ("mnist", "trees"): {"100 / 10": "published/mnist", "1000 / 10": "published/mnist-1000"},
    ("mnist", "ferns"): {"100 / 10": "ferns/mnist", "1000 / 10": "ferns/mnist-1000"},
}
# Models of the picture of what trees and ferns learn on a plane.
PLANE = {
    "one tree": {"n_estimators": 1},
    "one fern": {"n_estimators": 1, "structure": "fern"},
    "20 trees": {"n_estimators": 20},
    "20 ferns": {"n_estimators": 20, "structure": "fern"},
}
# Depths at which a training step and a prediction are timed.
DEPTHS = (4, 6, 8, 10, 12, 14)
TIMES = {"step": "a training step", "row": "prediction of a row"}
# What stands on two convolutions with pooling.
NETWORKS = {
    "forest": "a hinge forest",
    "stacked": "two stacked hinge forests",
    "linear": "batch normalisation and a linear layer",
}


def _printed():
    """Data set, parameters and printed value of each row of ``as-printed``."""
    cells = {}
    for kind, structure in (("published", "tree"), ("ferns", "fern")):
        for name, (parameters, *papers) in PRINTED_IMAGES.items():
            paper = papers[structure == "fern"]
            cells[f"{kind}/{name}"] = name, parameters | {"structure": structure}, paper
        for name, (rate, held_out, means) in GRID.items():
            own = {"early_stopping": True, "validation_fraction": held_out, "n_iter_no_change": 80}
            own |= {"optimizer": "adagrad", "head": "leaves" if name == "abalone_r2" else "linear"}
            own |= {"learning_rate": rate, "max_iter": 40_000, "structure": structure}
            own = with_changes(PUBLISHED, own)
            means = means if structure == "tree" else FERNS[name]
            for (trees, depth), mean in zip(SIZES, means.split(), strict=True):
                parameters = own | {"n_estimators": trees, "max_depth": depth}
                cells[f"{kind}/{name}-{trees}x{depth}"] = name, parameters, float(mean)
        # Of the 100 rows that are not tested, half select the iteration.
        own = with_changes(cells[f"{kind}/abalone-10x5"][1], {"validation_fraction": 0.5})
        cells[f"{kind}/iris-10x5"] = "iris", own, 2.13 if structure == "tree" else 2.27
    return cells


PRINTED = _printed()
# Classifier and regressor of a row.
HINGE = RandomHingeForestClassifier, RandomHingeForestRegressor
FORESTS = RandomForestClassifier, RandomForestRegressor
# A small model, for runs that only show that a group works.
QUICK = {"n_estimators": 10, "max_iter": 20, "max_depth": 3, "n_bags": 1}
MEASURES = {
    f"as-printed/{row}": Measure(
        f"{'R2' if 'r2' in row else 'error'}, {row.partition('/')[2]}, "
        f"{'ferns' if row.startswith('ferns') else 'trees'}, settings of the paper",
        "ratio" if "r2" in row else "%",
        more="r2" in row,
        paper=paper,
    )
    for row, (_, _, paper) in PRINTED.items()
}
MEASURES |= {
    f"as-printed/random-forest/{name}": Measure(
        f"{'R2' if 'r2' in name else 'error'}, {name}, random forest of 100 trees of depth 10",
        "ratio" if "r2" in name else "%",
        more="r2" in name,
        paper=paper,
    )
    for name, paper in RANDOM_FORESTS.items()
}
MEASURES |= {
    f"curves/{row}": Measure(
        f"least loss of held-out rows, {name}, {structure}, {size}", "ratio", more=False
    )
    for (name, structure), rows in CURVES.items()
    for size, row in rows.items()
}
MEASURES |= {
    f"plane/{name.replace(' ', '-')}": Measure(
        f"error on the training rows of the plane, {name}", "%", more=False
    )
    for name in PLANE
}
MEASURES |= {
    f"depths/{what}-{structure}-{depth}": Measure(
        f"{text}, Letter, 100 {structure}s of depth {depth}", "us", more=False
    )
    for what, text in TIMES.items()
    for structure in ("tree", "fern")
    for depth in DEPTHS
}
MEASURES |= {
    f"networks/{name}": Measure(
        f"error, MNIST, two convolutions with pooling, then {text}", "%", more=False
    )
    for name, text in NETWORKS.items()
}


def as_printed(options):
    """Settings of the paper: constant rate; on tables AdaGrad, the iteration of smallest loss."""
    for row, (name, parameters, _) in PRINTED.items():
        is_wanted = not options.quick or "x" not in row or row.endswith("10x5")
        if is_wanted and any(fnmatch(row, pattern) for pattern in options.sets or ["*"]):
            yield scores_of(f"as-printed/{row}", name, parameters, options, one_hot=False)
    for name in RANDOM_FORESTS:
        row = f"random-forest/{name}"
        if any(fnmatch(row, pattern) for pattern in options.sets or ["*"]):
            yield scores_of(f"as-printed/{row}", name, FOREST, options, False, FORESTS)


def curves(options):
    """Figure 3 of the paper: loss of the training rows and of those held out, against steps."""
    stored = {}
    for (name, structure), rows in CURVES.items():
        split = groups.load(name, options)
        own = {"early_stopping": True, "n_iter_no_change": 1000}  # never
        if name == "mnist":
            own["validation_fraction"] = 1 / 6
        lines = stored[f"{name}, {structure}"] = {}
        for size, row in rows.items():
            parameters = with_changes(PRINTED[row][1], own)
            parameters = groups.pick(options, parameters, parameters | QUICK)
            model = RandomHingeForestClassifier(random_state=0, **parameters)
            model.fit(as_floats(split.X_train), split.y_train)
            lines[size] = {
                "steps": parameters["max_iter"],
                "training": np.round(model.loss_curve_[0], 5).tolist(),
                "held out": np.round(-model.validation_scores_[0], 5).tolist(),
            }
            yield Row(f"curves/{row}", [float(-model.validation_scores_[0].max())])
    results.write(options.results / "hinge_curves.json", stored)


def plane(options):
    """What trees and ferns learn on a plane: probability of a class, at the points of a grid."""
    X, y = make_moons(300, noise=0.2, random_state=0)
    grid = [np.linspace(-1.75, 2.75, 61), np.linspace(-1.25, 1.75, 61)]
    points = np.stack([part.ravel() for part in np.meshgrid(*grid)], axis=1)
    stored = {"X": results.to_text(1000 * X), "y": " ".join(map(str, y)), "models": {}}
    stored["extent"] = [grid[0][0], grid[0][-1], grid[1][0], grid[1][-1]]
    own = {"max_depth": 4, "n_bags": 1, "n_directions": 10, "dropout": 0.0, "features": "linear"}
    own |= {"learning_rate": 0.2, "random_state": 2, "max_iter": groups.pick(options, 4000, 20)}
    own["procedure"] = HingeProcedure(optimizer="adam", weight_decay=0.0)
    for name, parameters in PLANE.items():
        model = RandomHingeForestClassifier(**own | parameters).fit(X, y)
        surface = model.predict_proba(points)[:, 1].reshape(61, 61)
        stored["models"][name] = results.to_text(100 * surface)
        yield Row(f"plane/{name.replace(' ', '-')}", [100 * (1 - model.score(X, y))])
    results.write(options.results / "hinge_plane.json", stored)


def depths(options):
    """Processor time of a training step and of a prediction, against the depth of the trees."""
    split = groups.load("letter", options)
    X = as_floats(split.X_train)
    few, many = groups.pick(options, (500, 2500), (10, 30))

    def timed(structure, depth, seed):
        """Microseconds of a training step, and of the prediction of a row."""
        own = ADAM | {"structure": structure, "max_depth": depth, "random_state": seed}
        spent = []
        for n_steps in (few, many):
            start = time.process_time()
            model = RandomHingeForestClassifier(**own | {"max_iter": n_steps}).fit(
                X, split.y_train
            )
            spent.append(time.process_time() - start)
        start = time.process_time()
        for _ in range(5):
            model.predict(X[:4000])
        per_row = (time.process_time() - start) / (5 * len(X[:4000]))
        return 1e6 * (spent[1] - spent[0]) / (many - few), 1e6 * per_row

    sizes = [(structure, depth) for structure in ("tree", "fern") for depth in DEPTHS]
    found = interleave({size: partial(timed, *size) for size in sizes}, options.rounds or 5)
    for (structure, depth), rounds in found.items():
        for what, times in zip(TIMES, zip(*rounds, strict=True), strict=True):
            yield Row(f"depths/{what}-{structure}-{depth}", list(times))


def networks(options):
    """Test error on MNIST of a forest on top of two convolutions with pooling (section 6)."""
    import torch

    torch.set_num_threads(1)
    split = groups.load("mnist", options)
    X, X_test = (
        torch.from_numpy(as_floats(part)).reshape(-1, 1, 28, 28) / 255
        for part in (split.X_train, split.X_test)
    )
    y = torch.from_numpy(split.y_train.astype(np.int64))
    for name in options.sets or NETWORKS:
        errors, times = [], []
        for seed in groups.seeds(options):
            torch.manual_seed(seed)
            network = _network(name)
            start = time.process_time()
            _train(network, X, y, groups.pick(options, 10, 1))
            times.append(time.process_time() - start)
            network.eval()
            with torch.no_grad():
                parts = [network(part).argmax(dim=1) for part in X_test.split(500)]
            errors.append(100 * float(np.mean(torch.cat(parts).numpy() != split.y_test)))
        note = f"{mean_sd(errors)}, fit {statistics.median(times):.1f} s"
        yield Row(f"networks/{name}", errors, note, value=statistics.fmean(errors))


def _network(name):
    """Return two convolutions with maximum pooling, and a part of ``NETWORKS`` on top.

    Forests have the default size of the layer: 100 trees of depth 5.
    """
    from torch import nn

    from skforest.torch import HingeForest

    tops = {
        "forest": lambda: [HingeForest(512, 10)],
        "stacked": lambda: [
            *(HingeForest(512, 4, aggregate="none"), nn.Flatten(), HingeForest(400, 10)),
        ],
        "linear": lambda: [nn.BatchNorm1d(512, affine=False), nn.Linear(512, 10)],
    }
    return nn.Sequential(
        *(nn.Conv2d(1, 16, kernel_size=5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(16, 32, kernel_size=5), nn.MaxPool2d(2), nn.Flatten()),
        *tops[name](),
    )


def _train(network, X, y, n_epochs):
    """Train by Adam with batches of 128 rows and the rate of the paper, which falls to 0."""
    import torch

    optimizer = torch.optim.Adam(network.parameters(), lr=0.005, fused=True)
    n_steps = n_epochs * -(-len(X) // 128)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_steps)
    for _ in range(n_epochs):
        for rows in torch.randperm(len(X)).split(128):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(X[rows]), y[rows]).backward()
            optimizer.step()
            schedule.step()


def scores_of(row, name, parameters, options, one_hot, kinds=HINGE):
    """Return the row of test errors, or of R2, on one of the sets of the paper."""
    small = {key: value for key, value in QUICK.items() if kinds is HINGE or key in parameters}
    parameters = groups.pick(options, parameters, parameters | small)
    found, times = [], []
    for seed in groups.seeds(options, 15 if name == "iris" else 3):
        kind = kinds[name == "abalone_r2"]
        split = _split(name, seed, options, one_hot)
        model = kind(random_state=seed, **parameters)
        start = time.process_time()
        model.fit(as_floats(split.X_train), split.y_train)
        times.append(time.process_time() - start)
        score = model.score(as_floats(split.X_test), split.y_test)
        found.append(score if name == "abalone_r2" else 100 * (1 - score))
    note = f"{mean_sd(found)}, fit {statistics.median(times):.1f} s"
    return Row(row, found, note, value=statistics.fmean(found))


def _split(name, seed, options, one_hot):
    """Return the rows of one of the sets of the paper; only poker and iris depend on the seed."""
    if name == "poker":
        return _poker(options, seed, one_hot)
    if name == "iris":
        return _iris(seed)
    if name.startswith("abalone"):
        return _abalone(options, name == "abalone_r2", one_hot)
    return groups.load(name.partition("-")[0], options)


def as_floats(X):
    return np.asarray(X, dtype=np.float32)


def _abalone(options, regression, one_hot):
    """Return the rows of abalone: 3133 train, 1044 test; sex is one code, or three indicators.

    The target is the number of rings, or its class: at most 8, 9 or 10, more.
    """
    split = data.in_order("abalone", options.data, n_train=3133, n_test=1044)
    X = np.concatenate([split.X_train, split.X_test])
    y = np.concatenate([split.y_train, split.y_test])
    if one_hot:
        X = np.hstack([X[:, :1] == code for code in (0, 1, 2)] + [X[:, 1:]])
    if not regression:
        y = np.digitize(y, [8.5, 10.5])
    return data.Split(X[:3133], y[:3133], X[3133:], y[3133:])


def _iris(seed):
    """Return two of three folds to train, one to test: five shuffles of the rows, in turn."""
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(seed // 3).permutation(len(X))
    test = order[seed % 3 :: 3]
    train = np.setdiff1d(order, test)
    return data.Split(X[train], y[train], X[test], y[test])


def _poker(options, seed, one_hot):
    """Return 18757 poker hands to train and all others to test."""
    arrays = data.in_order("poker_train", options.data, n_train=18_757)
    X = np.concatenate([arrays.X_train, arrays.X_test])
    if one_hot:
        X = np.hstack([X[:, [j]] == np.unique(X[:, j]) for j in range(X.shape[1])])
    y = np.concatenate([arrays.y_train, arrays.y_test])
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[:18_757], order[18_757:]
    return data.Split(X[train], y[train], X[test], y[test])


def grid_table(stored, kind):
    """Return the table of the grid of trees and depths, for those sets that are complete."""
    trees, depths = ({size[k]: None for size in SIZES} for k in (0, 1))
    rows = []
    for name in GRID:
        form = f"papers.hinge:as-printed/{kind}/{name}-{{}}x{{}}"
        if not stored.get(form.format(1, 1)):
            continue
        title = "abalone, R2" if name == "abalone_r2" else f"{name}, error in %"
        for n in trees:
            names = [form.format(n, depth) for depth in depths]
            label = f"{title}, {n} tree{'s' * (n > 1)}"
            rows.append((label, *cells.cells(stored, names)))
    return ("", *(f"depth {depth}" for depth in depths), "Command"), rows


def summary_table(stored):
    """Return tables 2 and 3 of the paper."""
    settings = [
        *("special/iris", "special/abalone", "special/abalone_r2", "special/madelon"),
        *("special/poker", "images/letter-defaults", "images/usps-5", "images/mnist"),
        "images/mnist-1000",
    ]
    ferns = {"madelon-10x3": "madelon-50x7", "poker-50x3": "poker-100x3"}
    rows = []
    for (name, (*papers, of_forest)), ours in zip(SUMMARY.items(), settings, strict=True):
        printed = [f"published/{name}", f"ferns/{ferns.get(name, name)}"]
        used = [stored[f"papers.hinge:as-printed/{row}"] for row in printed]
        used.append(stored[f"measure.hinge:{ours}"])
        if of_forest:
            forest = name.partition("-")[0]
            used.append(stored[f"papers.hinge:as-printed/random-forest/{forest}"])
        shown = [cells.cell(row, with_paper=False) for row in used]
        of_forest = f"{shown[3]} [{of_forest}]" if of_forest else ""
        row = name, papers[0], shown[0], papers[1], *shown[1:3], of_forest
        rows.append((*row, cells.commands(used)))
    head = ("Set and size", "Trees, printed", "Trees", "Ferns, printed", "Ferns", "Our setting")
    return (*head, "Random forest [paper]", "Command"), rows


def curves_figure(stored):
    """Draw losses against steps: figure 3 of the paper."""
    return figures.loss_curves(cells.titled(stored.file("papers.hinge_curves", "curves")))


def plane_figure(stored):
    """Draw what trees and ferns learn on a plane."""
    return figures.surfaces(stored.file("papers.hinge_plane", "plane"))


def networks_table(stored):
    """Return the table of forests on top of two convolutions."""
    rows = []
    for name, text in NETWORKS.items():
        row = stored[f"papers.hinge:networks/{name}"]
        seconds = row["note"].partition("fit ")[2]
        rows.append((text, cells.cell(row), seconds, cells.commands([row])))
    return ("On two convolutions with pooling", "Test error in %", "Fit", "Command"), rows


def depths_figure(stored):
    """Draw the time of a training step and of a prediction against depth."""
    panels = {}
    for what, text in TIMES.items():
        lines = panels[text] = {}
        for structure in ("tree", "fern"):
            names = {d: f"papers.hinge:depths/{what}-{structure}-{d}" for d in DEPTHS}
            lines[f"{structure}s"] = cells.curve(stored, names)
    return figures.curves(panels, "depth", "microseconds")


GROUPS = (as_printed, curves, plane, depths, networks)
OPTIONS = groups.SETS | groups.SEEDS
TABLES = {
    "hinge_published": partial(grid_table, kind="published"),
    "hinge_ferns": partial(grid_table, kind="ferns"),
    "hinge_summary": summary_table,
    "hinge_networks": networks_table,
}
FIGURES = {
    "hinge_curves": curves_figure,
    "hinge_plane": plane_figure,
    "hinge_depths": depths_figure,
}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
