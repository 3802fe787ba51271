"""Measurements of CO2 forests.

    python benchmarks/co2.py GROUP [--data FOLDER] [--quick] [--sets NAME ...]

A group merges its rows into ``benchmarks/results/co2.json``. Unless a group says otherwise, the
forests have their default settings on all data sets. The group ``as-printed`` repeats the
procedure of the paper: Norouzi et al. 2015, "CO2 Forest", sections 4.2, 5 and 6.
"""

import itertools
import math
import resource
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import data
import groups
import numpy as np
import psutil
from results import Measure, Row
from sklearn.metrics import jaccard_score
from sklearn.model_selection import train_test_split
from timing import mean_sd

from skforest import CO2ForestClassifier, Forest, ManifoldForestClassifier

RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes
TREES = (10, 30, 100)
# Errors that the paper reports for 10, 30 and 1000 trees.
SETS = {
    "letter_libsvm": (3.2, 2.3, 1.8),
    "usps": (5.8, 5.9, 5.5),
    "pendigits": (1.8, 1.7, 1.7),
    "satimage": (9.6, 9.1, 8.9),
    "mnist": (2.5, 2.0, 1.9),
}
# Data of another kind: parameters, and the errors that the paper reports.
NOISY = {"objective": "co2", "max_features": None, "bootstrap": True, "holdout": 0.3}
SPECIAL = {
    "connect4": ({}, (17.1, 15.7, 14.7)),
    "madelon": (NOISY, (None, None, None)),
}
# Hyperplanes of the CO2 objective only, without bootstrap and held out rows.
PLAIN = {"objective": "co2", "max_features": "sqrt", "bootstrap": False, "holdout": 0.0}
VARIANTS = {
    "mixed": PLAIN | {"objective": "mixed"},
    "alternating": PLAIN | {"refine": "alternating"},
}
VARIANT_SETS = ("letter_libsvm", "usps", "mnist")
# The procedure as the paper prints it.
LITERAL = PLAIN | {
    "bootstrap": True,
    "signs": "old",
    "leaves": "gradient",
    "row_norm": None,
    "keep": "last",
}
# What is the same on all data: an exact first cut, and a learning rate that is halved where the
# objective oscillates ("in practice", section 4.2). The paper does not print a number of epochs.
PRINTED = LITERAL | {"splitter": "exact", "n_epochs": 30}
# Algorithm 1: steps of single rows that are drawn at random, without momentum, at a constant rate.
ALGORITHM_1 = PRINTED | {"batch_size": 1, "momentum": 0.0, "schedule": "constant"}
ALGORITHM_1_SETS = ("pendigits", "satimage", "letter_libsvm", "usps", "connect4", "mnist")
# What the paper chooses on held-out training rows (sections 5 and 6.1).
GRID = {
    "scaling": ("minmax", "standard"),
    "nu": (0.1, 1.0, 4.0, 10.0, 43.0, 100.0),
    "learning_rate": (0.03, 0.01, 0.003),
}
POWERS = (0.5, 0.6, 0.7, 0.8, 0.9)  # the candidates of the first cut are a power of all features
CHOICE_TREES = 10  # the paper: 30, and 1000 for the number of candidates
# Training rows that make the choice.
CHOICE_ROWS = dict.fromkeys(("mnist", "connect4", "protein", "sensit", "covertype"), 10_000)
# Errors that the paper reports, and the largest number of trees of the procedure as printed.
FURTHER = {
    "protein": (33.8, 31.2, 30.3),
    "sensit": (14.1, 13.0, 12.5),
    "covertype": (3.1, 2.7, 2.6),
}  # sets that --sets has to name, since their data must be obtained first
PRINTED_SETS = SETS | {"connect4": SPECIAL["connect4"][1]} | FURTHER
PRINTED_TREES = {
    "pendigits": 100, "satimage": 100, "letter_libsvm": 30, "usps": 30, "mnist": 30,
    "connect4": 30, "protein": 30, "sensit": 30, "covertype": 30,
}  # fmt: skip
# Other forests of the paper, for numbers of trees; the two-probe forest stands in its section 6.2.
FOREST = {"bootstrap": True, "max_features": "sqrt"}
RIVALS = {
    "random forest": lambda **kw: CO2ForestClassifier(
        objective=None, splitter="exact", **FOREST, **kw
    ),
    "OC1": lambda **kw: CO2ForestClassifier(objective="oc1", **FOREST, **kw),
    "two-probe": lambda **kw: ManifoldForestClassifier(
        projection="sparse", nonzeros="fixed", n_nonzeros=2, criterion="entropy", bootstrap=True,
        **kw,
    ),
    "CO2, defaults": lambda **kw: CO2ForestClassifier(**kw),
}  # fmt: skip
# OC1 is too slow for the other sets, as the paper says.
OC1_SETS = ("pendigits", "satimage", "letter_libsvm", "usps", "protein")
RIVAL_SETS = {
    name: tuple(rival for rival in RIVALS if rival != "OC1" or name in OC1_SETS)
    for name in PRINTED_SETS
}
CURVE = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 500, 1000)
PAPER_TREES = (10, 30, 1000)
# Errors that the paper reports for 10, 30 and 1000 trees of random forests and OC1 forests.
RIVAL_PAPERS = {
    "random forest": {
        "letter_libsvm": (6.6, 4.7, 3.7), "usps": (9.0, 7.2, 6.4), "pendigits": (3.9, 3.3, 3.5),
        "satimage": (10.1, 9.4, 8.9), "mnist": (4.5, 3.5, 2.8), "connect4": (18.9, 17.4, 16.2),
        "protein": (39.9, 35.5, 30.9), "sensit": (15.5, 14.0, 13.4), "covertype": (3.2, 2.8, 2.6),
    },
    "OC1": {
        "letter_libsvm": (7.6, 5.0, 3.8), "usps": (7.1, 7.1, 6.8), "pendigits": (3.2, 2.2, 2.3),
        "satimage": (10.1, 9.9, 9.5), "protein": (39.1, 34.6, 30.8),
    },
}  # fmt: skip
NUS = (0.1, 1.0, 10.0, 100.0)
NU_DEPTHS = tuple(range(2, 21, 2))
PRIORS = ("sample as it is", "equal classes", "equal classes, prior corrected")
# Other objectives; and from the paper's procedure to the defaults, one change after another.
BASELINES = {
    "axis": {"objective": None, "bootstrap": True, "max_features": "sqrt"},
    "random": {"objective": "random", "bootstrap": True, "max_features": "sqrt"},
    "oc1": {"objective": "oc1", "bootstrap": True, "max_features": "sqrt"},
    "literal": LITERAL,
    "centred": LITERAL | {"row_norm": 8.0},
    "best plane": LITERAL | {"row_norm": 8.0, "keep": "best"},
    "own leaves and signs": PLAIN | {"bootstrap": True},
    "no bootstrap": PLAIN,
    "default": {},
}
BASELINE_SETS = ("pendigits", "satimage", "letter_libsvm", "usps")
# How the single feature is found with which a hyperplane begins.
FIRST_CUTS = ("hist", "exact")
FIRST_CUT_SETS = ("pendigits", "satimage", "letter_libsvm")
DTYPES = ("float32", "float16")
MEASURES = {
    f"errors/{name}-{n}": Measure(
        f"error, {name}, {n} trees, defaults", "%", more=False, paper=paper
    )
    for name, papers in (SETS | FURTHER).items()
    for n, paper in zip(TREES, (*papers[:2], None), strict=True)
}
MEASURES |= {
    f"errors/{name}-1000": Measure(
        f"error, {name}, 1000 trees, defaults", "%", more=False, paper=papers[-1]
    )
    for name, papers in (SETS | FURTHER).items()
}
MEASURES |= {
    f"special/{name}-{n}": Measure(
        f"error, {name}, {n} trees" + (", settings for noise" if params else ""),
        "%",
        more=False,
        paper=paper,
    )
    for name, (params, papers) in SPECIAL.items()
    for n, paper in zip(TREES, (*papers[:2], None), strict=True)
}
MEASURES |= {
    f"variants/{name}-{variant}-{n}": Measure(
        f"error, {name}, {n} trees, {variant}", "%", more=False
    )
    for name in VARIANT_SETS
    for variant in VARIANTS
    for n in TREES
}
MEASURES |= {
    f"seconds/{name}": Measure(f"processor seconds of a tree, {name}", "s", more=False)
    for name in VARIANT_SETS
}
MEASURES |= {
    "scaling/time": Measure(
        "fit time of a tree on 524288 rows over that on 4096, divided by the ratio of n log n",
        "ratio",
        more=False,
    ),
    "scaling/memory": Measure(
        "memory to fit a tree on 524288 rows, without X and the model, over the size of X",
        "x",
        more=False,
    ),
}
MEASURES |= {
    f"size/{what}-{dtype}": Measure(
        f"{text}, 100 trees on MNIST, weights in {dtype}", unit, more=False
    )
    for dtype in DTYPES
    for what, text, unit in (
        ("model", "size of the model", "MiB"),
        ("file", "size of its file", "MiB"),
        ("peak", "memory that fitting adds to the process, X and the model included", "MiB"),
        ("error", "error", "%"),
        ("predict", "processor time to predict a row of 10000", "us"),
    )
}
MEASURES |= {
    f"first-cut/{name}-{splitter}": Measure(
        f"error on held-out training rows, {name}, 10 trees, first cut {splitter}", "%", more=False
    )
    for name in FIRST_CUT_SETS
    for splitter in FIRST_CUTS
}
MEASURES |= {
    f"flops/{where}": Measure(f"products of 784 features, rows in {where}", "GFLOP/s")
    for where in ("cache", "memory")
}
MEASURES |= {
    f"flops/read-{where}": Measure(f"speed of reading rows from {where}, by NumPy", "GB/s")
    for where in ("cache", "memory")
}
MEASURES |= {
    f"baselines/{name}-{baseline}-{n}": Measure(
        f"error, {name}, {n} trees, {baseline}",
        "%",
        more=False,
        paper=RIVAL_PAPERS["OC1"][name][TREES.index(n)] if baseline == "oc1" else None,
    )
    for name in BASELINE_SETS
    for baseline in BASELINES
    for n in TREES[:2]
}
MEASURES |= {
    f"as-printed/{name}-choice": Measure(
        f"error on held-out training rows, {name}, {CHOICE_TREES} trees as printed, least of all "
        "settings",
        "%",
        more=False,
    )
    for name in PRINTED_SETS
}
MEASURES |= {
    f"as-printed/{name}-{n}": Measure(
        f"error, {name}, {n} trees, as printed",
        "%",
        more=False,
        paper=papers[PAPER_TREES.index(n)] if n in PAPER_TREES else None,
    )
    for name, papers in PRINTED_SETS.items()
    for n in CURVE
}
MEASURES |= {
    f"algorithm-1/{name}-{n}": Measure(
        f"error, {name}, {n} trees, algorithm 1",
        "%",
        more=False,
        paper=papers[PAPER_TREES.index(n)] if n in PAPER_TREES else None,
    )
    for name, papers in PRINTED_SETS.items()
    for n in CURVE
} | {
    f"algorithm-1/{name}-choice": Measure(
        f"error on held-out training rows, {name}, algorithm 1, least of all settings",
        "%",
        more=False,
    )
    for name in PRINTED_SETS
}
MEASURES |= {
    f"trees/{name}-{rival}-{n}": Measure(
        f"error, {name}, {n} trees, {rival}",
        "%",
        more=False,
        paper=RIVAL_PAPERS[rival][name][PAPER_TREES.index(n)]
        if n in PAPER_TREES and rival in RIVAL_PAPERS
        else None,
    )
    for name, rivals in RIVAL_SETS.items()
    for rival in rivals
    for n in CURVE
}
MEASURES |= {
    f"nu/{part}-{nu}-{depth}": Measure(
        f"error on {part} rows, MNIST, one tree, depth {depth}, "
        + ("single features" if nu == "axis" else f"nu {nu}"),
        "%",
        more=False,
    )
    for part in ("training", "held-out")
    for nu in (*NUS, "axis")
    for depth in NU_DEPTHS
}
MEASURES |= {
    f"prior/{what}-{prior}": Measure(f"{text}, connect4, 10 trees, {prior}", "%", more=more)
    for what, text, more in (("error", "error", False), ("jaccard", "mean Jaccard score", True))
    for prior in PRIORS
}


def as_printed(options):
    """Test error of the procedure as printed, with settings chosen on training rows."""
    for name in options.sets or (*SETS, "connect4"):
        yield from _printed("as-printed", name, PRINTED, GRID, options)


def algorithm_1(options):
    """As `as_printed`, with steps of single rows instead of batches; with z-scores."""
    for name in options.sets or ALGORITHM_1_SETS:
        grid = GRID | {"scaling": ("standard",)}
        if name == "letter_libsvm":  # trees take several times as long
            grid |= {"nu": (10.0, 100.0), "learning_rate": (0.03, 0.01)}
        yield from _printed("algorithm-1", name, ALGORITHM_1, grid, options)


def _printed(group, name, params, grid, options):
    """Rows of a procedure with settings from a grid."""
    split = groups.load(name, options)
    settings, error = _chosen(split.head(CHOICE_ROWS.get(name)), params, grid, options)
    note = ", ".join(f"{key}={value}" for key, value in settings.items())
    yield Row(f"{group}/{name}-choice", [error], note)
    most = groups.pick(options, options.trees or PRINTED_TREES[name], 10)
    make = partial(CO2ForestClassifier, **params | settings)
    yield from _curve(f"{group}/{name}", make, split, most, options)


def trees(options):
    """Test error of other forests against the number of trees."""
    for name in options.sets or [name for name in RIVAL_SETS if name not in FURTHER]:
        split = groups.load(name, options)
        for rival in RIVAL_SETS[name]:
            if rival not in options.models:
                continue
            most = 30 if rival == "OC1" else PRINTED_TREES[name]
            most = groups.pick(options, options.trees or most, 10)
            yield from _curve(f"trees/{name}-{rival}", RIVALS[rival], split, most, options)


def _chosen(split, fixed, grid, options):
    """Settings of least error on a fifth of the training rows, and that error in percent."""
    X, X_held, y, y_held = train_test_split(
        split.X_train, split.y_train, test_size=0.2, random_state=0
    )
    n_features = X.shape[1]

    def error(n_trees, **params):
        model = CO2ForestClassifier(
            n_trees, random_state=0, n_jobs=options.n_jobs, **fixed | params
        )
        return 100 * (1 - model.fit(X, y).score(X_held, y_held))

    # The number of candidates is that of the best random forest.
    candidates = [math.ceil(n_features**power) for power in POWERS]
    best = min(candidates, key=lambda q: error(100, objective=None, max_features=q))
    grid = groups.pick(options, grid, {name: values[:2] for name, values in grid.items()})
    found = {}
    for values in itertools.product(*grid.values()):
        settings = dict(zip(grid, values, strict=True))
        found[values] = error(groups.pick(options, CHOICE_TREES, 2), max_features=best, **settings)
    least = min(found, key=found.get)
    return {"max_features": best} | dict(zip(grid, least, strict=True)), found[least]


def _curve(prefix, make, split, most, options):
    """Rows of test errors of the first trees of one forest for each seed."""
    sizes = [n for n in CURVE if n <= most]
    found, votes = {n: [] for n in sizes}, {n: [] for n in sizes}
    times = []
    for seed in groups.seeds(options):
        model = make(n_estimators=most, random_state=seed, n_jobs=options.n_jobs)
        start = time.process_time()
        model.fit(split.X_train, split.y_train)
        times.append((time.process_time() - start) / most)
        response = counted = 0
        for n, tree in enumerate(model.forest_, start=1):
            own = tree.response(split.X_test)
            response = response + own
            counted = counted + np.eye(own.shape[1])[own.argmax(axis=1)]
            if n in found:
                for errors, sums in ((found, response), (votes, counted)):
                    labels = model.classes_[sums.argmax(axis=1)]
                    errors[n].append(100 * np.mean(labels != split.y_test))
    leaves = model.forest_.n_leaves.mean()
    for n in sizes:
        if n < options.least:
            continue
        note = f"{mean_sd(found[n])} %, by majority vote {mean_sd(votes[n])} %, "
        note += f"{statistics.median(times):.3f} s and {leaves:.0f} leaves a tree"
        yield Row(f"{prefix}-{n}", found[n], note)


def nu(options):
    """Error of one tree against its depth, for several nu: figure 1 of the paper.

    A tree of limited depth is the upper part of a full one, because nodes are split one by one.
    """
    split = groups.load("mnist", options)
    X, X_held, y, y_held = train_test_split(
        split.X_train, split.y_train, test_size=1 / 6, random_state=0
    )
    models = {
        value: {"nu": value, **PRINTED, "bootstrap": False, "learning_rate": 0.03}
        for value in groups.pick(options, NUS, NUS[:1])
    }
    models["axis"] = {"objective": None, "max_features": None, "bootstrap": False}
    for value, params in models.items():
        found = {}
        for seed in groups.seeds(options, 1):
            model = CO2ForestClassifier(1, random_state=seed, **params).fit(X, y)
            for part, rows, labels in (("training", X, y), ("held-out", X_held, y_held)):
                for depth, error in _errors_by_depth(model, X, y, rows, labels).items():
                    found.setdefault((part, depth), []).append(error)
        for (part, depth), errors in found.items():
            yield Row(f"nu/{part}-{value}-{depth}", errors, f"{mean_sd(errors)} %")


def _errors_by_depth(model, X, y, rows, labels):
    """Errors in percent of the upper parts of one tree."""
    forest = model.forest_
    parent = forest.parents()
    depth = np.zeros(forest.n_nodes, dtype=int)
    for node in range(1, forest.n_nodes):  # a child comes after its parent
        depth[node] = depth[parent[node]] + 1
    codes = np.searchsorted(model.classes_, y)
    found = {}
    for limit in NU_DEPTHS:
        above = np.arange(forest.n_nodes)
        for node in range(1, forest.n_nodes):
            if depth[node] > limit:
                above[node] = above[parent[node]]
        counts = np.zeros((forest.n_nodes, len(model.classes_)))
        np.add.at(counts, (above[model.apply(X)[:, 0]], codes), 1)
        predicted = model.classes_[counts.argmax(axis=1)][above[model.apply(rows)[:, 0]]]
        found[limit] = 100 * np.mean(predicted != labels)
    return found


def prior(options):
    """Equal classes in training and corrected probabilities, as on faces in section 6.2."""
    split = groups.load("connect4", options)
    classes, codes, counts = np.unique(split.y_train, return_inverse=True, return_counts=True)
    share = counts / counts.sum()
    found = {}
    for seed in groups.seeds(options, 1):
        rng = np.random.default_rng(seed)
        drawn = {"sample as it is": 0.0, "equal classes": 0.0}
        for tree in range(10):
            rows = {
                "sample as it is": np.arange(len(codes)),
                "equal classes": np.concatenate(
                    [
                        rng.choice(np.flatnonzero(codes == k), counts.min(), replace=False)
                        for k in range(len(classes))
                    ]
                ),
            }
            for kind, own in rows.items():
                params = PRINTED | {"n_epochs": "auto", "random_state": 10 * seed + tree}
                model = CO2ForestClassifier(1, **params)
                model.fit(split.X_train[own], split.y_train[own])
                drawn[kind] = drawn[kind] + model.predict_proba(split.X_test)
        drawn["equal classes, prior corrected"] = drawn["equal classes"] * share
        for kind, scores in drawn.items():
            labels = classes[scores.argmax(axis=1)]
            jaccard = jaccard_score(split.y_test, labels, average="macro")
            found.setdefault(("error", kind), []).append(100 * np.mean(labels != split.y_test))
            found.setdefault(("jaccard", kind), []).append(100 * jaccard)
    for (what, kind), values in found.items():
        yield Row(f"prior/{what}-{kind}", values, f"{mean_sd(values)} %")


def errors(options):
    """Test error with the default settings; a forest grows from 10 to 30 and 100 trees."""
    for name in options.sets or SETS:
        yield from _errors("errors", name, groups.load(name, options), {}, options)


def special(options):
    """Test error on Connect4, and on Madelon with settings for noise features."""
    for name, (params, *_) in SPECIAL.items():
        if name in (options.sets or SPECIAL):
            yield from _errors("special", name, groups.load(name, options), params, options)


def variants(options):
    """Test error with the mixed objective, and with alternating refinement."""
    for name in options.sets or VARIANT_SETS:
        for variant, params in VARIANTS.items():
            split = groups.load(name, options)
            yield from _errors("variants", name, split, params, options, f"-{variant}")


def _errors(group, name, split, params, options, suffix=""):
    """Rows of test errors for growing numbers of trees."""
    row = f"{group}/{name}{suffix}"
    trees = [n for n in (*TREES, 1000) if n <= _trees(options) and f"{row}-{n}" in MEASURES]
    found = {n: [] for n in trees}
    for seed in groups.seeds(options):
        model = CO2ForestClassifier(trees[0], random_state=seed, n_jobs=options.n_jobs, **params)
        model.set_params(warm_start=True)
        for n in trees:
            model.set_params(n_estimators=n).fit(split.X_train, split.y_train)
            found[n].append(100 * (1 - model.score(split.X_test, split.y_test)))
    for n in trees:
        size = model.forest_[:n].nbytes / 2**20 if n == trees[-1] else None
        note = f"{mean_sd(found[n])} %" + (f", {size:.0f} MiB" if size else "")
        yield Row(f"{row}-{n}", found[n], note)


def seconds(options):
    """Processor seconds of one thread for a tree."""
    for name in options.sets or VARIANT_SETS:
        split = groups.load(name, options)
        times = []
        for seed in groups.seeds(options):
            n_trees = 2 if name == "mnist" else 10
            model = CO2ForestClassifier(n_trees, random_state=seed, **PLAIN)
            start = time.process_time()
            model.fit(split.X_train, split.y_train)
            times.append((time.process_time() - start) / n_trees)
        yield Row(f"seconds/{name}", times, f"median {statistics.median(times):.3f} s")


def scaling(options):
    """Seconds and memory to fit a tree, on 4096 to 524288 rows of 50 features."""
    sizes = (256, 512) if options.quick else [2**k for k in range(12, 20)]
    split = data.synthetic(sizes[-1], p=50, n_test=1)
    times = {n: [] for n in sizes}
    memory = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        for n in sizes:
            np.savez(path, X=split.X_train[:n], y=split.y_train[:n])
            for seed in groups.seeds(options):
                # A new process each time, because the peak of memory never falls.
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                    took, peak = pool.submit(_one_tree, path, seed).result()
                times[n].append(took)
                if n == sizes[-1]:
                    memory.append(peak / split.X_train.nbytes)
    middle = [statistics.median(times[n]) for n in sizes]
    note = ", ".join(f"{n}: {took:.2f} s" for n, took in zip(sizes, middle, strict=True))
    growth = [n * math.log(n) for n in (sizes[0], sizes[-1])]
    ratios = [last / middle[0] * growth[0] / growth[1] for last in times[sizes[-1]]]
    yield Row("scaling/time", ratios, note)
    yield Row("scaling/memory", memory, f"{sizes[-1]} rows, all copies of them included")


def _one_tree(path, seed):
    """Processor seconds of a tree, and the bytes by which fitting it enlarges the process."""
    with np.load(path) as file:
        X, y = file["X"], file["y"]
    # A first fit imports modules and loads compiled code, which are not to be counted.
    CO2ForestClassifier(1, **PLAIN).fit(X[:200], y[:200])
    before = psutil.Process().memory_info().rss
    start = time.process_time()
    model = CO2ForestClassifier(1, random_state=seed, **PLAIN).fit(X, y)
    took = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT
    return took, max(0, peak - before - model.forest_.nbytes)


def size(options):
    """Size, peak memory, error and speed of a forest on MNIST, for each precision of weights."""
    for dtype in DTYPES:
        # A new process each time, because the peak of memory never falls.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found = pool.submit(_size_of, dtype, options).result()
        for what, value in found.items():
            yield Row(f"size/{what}-{dtype}", [value], f"{_trees(options)} trees, seed 0")


def _size_of(dtype, options):
    """Measure one precision, in a process of its own."""
    split = groups.load("mnist", options)
    model = CO2ForestClassifier(
        _trees(options), weight_dtype=dtype, random_state=0, n_jobs=options.n_jobs, **PLAIN
    )
    before = psutil.Process().memory_info().rss - split.X_train.nbytes
    model.fit(split.X_train, split.y_train)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT - before
    model.predict(split.X_test[:10])
    start = time.process_time()
    error = 100 * (1 - model.score(split.X_test, split.y_test))
    took = (time.process_time() - start) / len(split.X_test)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "forest"
        model.forest_.save(path)
        length = path.stat().st_size
    return {
        "model": model.forest_.nbytes / 2**20,
        "file": length / 2**20,
        "peak": peak / 2**20,
        "error": error,
        "predict": 1e6 * took,
    }


def flops(options):
    """Speed of the products of rows and hyperplanes, which dominate training and prediction."""
    p, n_splits = 784, 200
    rng = np.random.default_rng(0)
    # Each split is the child of the one before it, so that every row passes all of them.
    child = np.array([[-1, 2 * split + 3] for split in range(n_splits)]).ravel()
    child[-1] = -2
    chain = Forest(
        {
            "tree_start": [0, 2 * n_splits + 1],
            "child": np.concatenate([[1], child]),
            "threshold": np.full(n_splits, -1.0),
            "direction": p + np.arange(n_splits),
            "value": [0.0, 1.0],
            "dense": rng.random((n_splits, p)) / p,
        },
        n_features=p,
        n_outputs=1,
        task="regression",
    )
    for where, n in (("cache", 64), ("memory", 2000 if options.quick else 60000)):
        X = rng.random((n, p), dtype=np.float32)
        speeds, reads = [], []
        n_times = max(1, 12000 // n)
        for _ in range(options.rounds or 5):
            start = time.process_time()
            for _ in range(n_times):
                chain.apply(X)
            middle = time.process_time()
            for _ in range(5 * n_times):
                X.max()
            end = time.process_time()
            speeds.append(2e-9 * n_times * n * n_splits * p / (middle - start))
            reads.append(5e-9 * n_times * X.nbytes / (end - middle))
        yield Row(f"flops/read-{where}", reads, "maximum of the rows, by NumPy")
        yield Row(f"flops/{where}", speeds, f"{n} rows, {n_splits} hyperplanes in sequence")


def baselines(options):
    """Test error of 10 and 30 trees with other objectives and procedures."""
    for name in options.sets or BASELINE_SETS:
        split = groups.load(name, options)
        for baseline, params in BASELINES.items():
            trees = [n for n in TREES[:2] if n <= _trees(options)]
            found = {n: [] for n in trees}
            times = []
            for seed in groups.seeds(options):
                model = CO2ForestClassifier(trees[-1], random_state=seed, n_jobs=options.n_jobs)
                start = time.process_time()
                model.set_params(**params).fit(split.X_train, split.y_train)
                times.append((time.process_time() - start) / trees[-1])
                for n in trees:
                    labels = model.classes_[
                        model.forest_[:n].response(split.X_test).argmax(axis=1)
                    ]
                    found[n].append(100 * np.mean(labels != split.y_test))
            leaves = model.forest_.n_leaves.mean()
            for n in trees:
                note = f"{mean_sd(found[n])} %, {statistics.median(times):.3f} s and {leaves:.0f} "
                yield Row(f"baselines/{name}-{baseline}-{n}", found[n], note + "leaves a tree")


def first_cut(options):
    """Error on held-out training rows with the first cut by histogram, and exact."""
    for name in options.sets or FIRST_CUT_SETS:
        train = groups.load(name, options)
        found = {splitter: [] for splitter in FIRST_CUTS}
        times = {splitter: [] for splitter in FIRST_CUTS}
        for seed in groups.seeds(options):
            # The test rows take no part: this comparison chooses a default.
            X, X_held, y, y_held = train_test_split(
                train.X_train, train.y_train, test_size=0.2, random_state=seed
            )
            for splitter in FIRST_CUTS:
                model = CO2ForestClassifier(10, random_state=seed, **PLAIN, splitter=splitter)
                start = time.process_time()
                model.fit(X, y)
                times[splitter].append((time.process_time() - start) / 10)
                found[splitter].append(100 * (1 - model.score(X_held, y_held)))
        for splitter in FIRST_CUTS:
            note = f"{statistics.median(times[splitter]):.3f} s a tree"
            yield Row(f"first-cut/{name}-{splitter}", found[splitter], note)


def _trees(options):
    """Largest number of trees."""
    return 10 if options.quick else options.trees or 100


if __name__ == "__main__":
    groups.main(
        __doc__,
        (
            *(as_printed, algorithm_1, trees, nu, prior),
            *(errors, special, variants, seconds, scaling, size, flops, baselines, first_cut),
        ),
        MEASURES,
        groups.SETS
        | groups.SEEDS
        | {
            "--trees": {"type": int, "help": "largest number of trees; the paper has 1000"},
            "--least": {
                "type": int,
                "default": 0,
                "help": "keep the stored errors of fewer trees, which may be of more seeds",
            },
            "--models": {
                "nargs": "*",
                "choices": RIVALS,
                "default": list(RIVALS),
                "help": "some forests of trees only",
            },
        },
    )
