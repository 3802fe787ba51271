"""Experiments of the paper on non-greedy trees.

    python -m benchmarks.papers.nongreedy GROUP [--data FOLDER] [--quick] [--sets NAME ...]

The group ``as-printed`` repeats the procedure of the paper: Norouzi et al. 2015, "Efficient
Non-greedy Optimization of Decision Trees", algorithm 1 and section 7.
"""

import itertools
import statistics
import time
import warnings
from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from benchmarks.lib import cells, data, figures, groups, scores
from benchmarks.lib.models import with_changes
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.timing import mean_sd
from skforest import CO2ForestClassifier, CO2Procedure, NonGreedyProcedure, NonGreedyTreeClassifier

# All features compete for the first cut of a node, without bootstrap and held-out rows.
GROWN = {"max_features": None, "bootstrap": False, "holdout": 0.0}
# The procedure as the paper prints it: a CO2 tree as printed, then joint training at a constant
# rate, without scaling of rows and splits, and without early stopping. The paper prints neither
# the number of epochs nor learning rates.
PRINTED_CO2 = GROWN | {"objective": "co2", "procedure": CO2Procedure.as_printed()}
PRINTED = {"n_epochs": 30, "procedure": NonGreedyProcedure.as_printed()}
# Settings that the paper chooses on held-out training rows, for each depth.
NUS = (0.1, 1.0, 4.0, 10.0, 43.0, 100.0)
RATES = (0.03, 0.01)
GRID = {"scaling": ("minmax", "standard"), "nu": NUS, "learning_rate": RATES}
JOINT_GRID = {"joint_nu": NUS, "joint_rate": RATES}
SINGLE_GRID = {"joint_nu": NUS, "joint_rate": (0.003, 0.001, 0.0003)}  # steps of single rows
CHOICE_ROWS = 10_000
# The CO2 trees of figures 3 and 4. `as-printed` chooses them for Connect4 up to depth 10; for
# MNIST from depth 10 on, it chose them when an iteration of CO2 trees was one epoch.
START = {"scaling": "standard", "nu": 1.0, "learning_rate": 0.03}
PRINTED_DEPTHS = (6, 10, 14, 18)


def _printed(joint_nu, joint_rate, joint, **kw):
    """Return a CO2 tree as printed, refined by joint training with the parameters `joint`."""
    own = with_changes(PRINTED, {"nu": joint_nu, "learning_rate": joint_rate} | joint)
    return _co2(**kw, refine=NonGreedyTreeClassifier(**own))


def _co2(**kw):
    """Return a CO2 tree as printed, with the given parameters."""
    return CO2ForestClassifier(1, **with_changes(PRINTED_CO2, kw))


PRINTED_MODELS = {
    "axis": lambda **kw: CO2ForestClassifier(
        1, objective=None, procedure=CO2Procedure(splitter="exact"), **GROWN, **kw
    ),
    "random": lambda **kw: CO2ForestClassifier(1, objective="random", **GROWN, **kw),
    "OC1": lambda **kw: CO2ForestClassifier(1, objective="oc1", **GROWN, **kw),
    "CO2": _co2,
    "non-greedy": partial(_printed, joint={"leaves": "counts"}),
    "non-greedy, trained leaves": partial(_printed, joint={}),
    "non-greedy, stable": partial(_printed, joint={"stable": True}),
    "non-greedy, algorithm 1": partial(
        _printed, joint={"inference": "full", "batch_size": 1, "momentum": 0.0}
    ),
}
FURTHER = ("sensit", "protein")  # --sets has to name them: their data must be obtained first
LARGE = ("mnist", "connect4", *FURTHER)  # too large for the coordinate search of OC1
LEAF_NUS = (0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1000.0)
LEAF_DEPTHS = (10, 13, 16)
LEAF_VALUES = ("counts", "trained")
INFERENCE_DEPTHS = (6, 10, 14, 18)
SETS = ("mnist", "connect4", "letter_libsvm", "usps")
MEASURES = {
    f"as-printed/{name}-{model}-{depth}{suffix}": Measure(
        f"{what} of one tree, {name}, depth {depth}, {model} as printed", "%", more=False
    )
    for name in (*SETS, *FURTHER)
    for model in PRINTED_MODELS
    for depth in PRINTED_DEPTHS
    for suffix, what in (("", "error"), ("-training", "training error"))
}
MEASURES |= {
    f"leaves/{nu}-{depth}": Measure(f"leaves in use, MNIST, depth {depth}, {what}", "ratio")
    for depth in LEAF_DEPTHS
    for nu, what in {
        "axis": "grown with single features",
        "CO2": "CO2 tree as printed",
        **{nu: f"non-greedy as printed, nu {nu}" for nu in LEAF_NUS},
        **{f"defaults-{nu}": f"non-greedy with default parameters, nu {nu}" for nu in LEAF_NUS},
    }.items()
}
MEASURES |= {
    f"leaf-values/{name}-{kind}-{what}": Measure(
        f"{text}, one tree, {name}, depth 10, leaves of {kind}", unit, more=False
    )
    for name in SETS
    for kind in LEAF_VALUES
    for what, text, unit in (("error", "error", "%"), ("loss", "log loss", "ratio"))
}
MEASURES |= {
    f"inference/{kind}-{depth}": Measure(
        f"processor seconds of an epoch, connect4, depth {depth}, {kind} inference",
        "s",
        more=False,
    )
    for kind in ("fast", "full")
    for depth in INFERENCE_DEPTHS
}


def as_printed(options):
    """Test and training error of one tree, with settings chosen for each depth: figure 2."""
    for name in options.sets or SETS:
        split = groups.load(name, options)
        for depth in options.depths or groups.pick(options, PRINTED_DEPTHS, PRINTED_DEPTHS[:1]):
            start = {}  # settings of the CO2 tree, also as the start of joint training
            for model, make in PRINTED_MODELS.items():
                if model == "OC1" and name in LARGE or model not in options.models:
                    continue
                settings = {"max_depth": depth}
                if model == "CO2" or model.startswith("non-greedy"):
                    start = start or _chosen(split, "CO2", settings, GRID, options)
                    settings = start
                if model.startswith("non-greedy"):
                    grid = SINGLE_GRID if model.endswith("algorithm 1") else JOINT_GRID
                    settings = _chosen(split, model, start, grid, options)
                found = {"": [], "-training": []}
                seeds = groups.seeds(options)
                for seed in seeds[:1] if model == "OC1" else seeds:  # OC1 takes long
                    tree = _fit(make(**settings, random_state=seed), split)
                    for suffix, X, y in (
                        ("", split.X_test, split.y_test),
                        ("-training", split.X_train, split.y_train),
                    ):
                        found[suffix].append(100 * (1 - tree.score(X, y)))
                note = "".join(f", {key}={value}" for key, value in settings.items())
                for suffix, errors in found.items():
                    row = f"as-printed/{name}-{model}-{depth}{suffix}"
                    yield Row(row, errors, f"{mean_sd(errors)} %{note}")


def _chosen(split, model, fixed, grid, options):
    """Choose settings in addition to `fixed` on a fifth of at most `CHOICE_ROWS` training rows."""
    n = min(CHOICE_ROWS, len(split.X_train))
    X, _, y, _ = train_test_split(split.X_train, split.y_train, train_size=n - 1, random_state=0)
    X, X_held, y, y_held = train_test_split(X, y, test_size=0.2, random_state=0)
    inner = data.Split(X, y, X_held, y_held)
    grid = groups.pick(options, grid, {name: values[-1:] for name, values in grid.items()})
    errors = {}
    for values in itertools.product(*grid.values()):
        settings = dict(zip(grid, values, strict=True))
        tree = PRINTED_MODELS[model](**fixed | settings, random_state=0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", ConvergenceWarning)
                errors[values] = 1 - tree.fit(inner.X_train, inner.y_train).score(X_held, y_held)
        except ConvergenceWarning:  # joint training has lost the tree that it started from
            errors[values] = 1
    return fixed | dict(zip(grid, min(errors, key=errors.get), strict=True))


def _fit(tree, split):
    """Fit; with a small nu, joint training may lose the tree, and the grown one is returned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return tree.fit(split.X_train, split.y_train)


def leaves(options):
    """Leaves that training rows reach after joint training, against nu: figure 3.

    Splits of trees with default parameters start with squared norm `nu`.
    """
    split = groups.load("mnist", options)
    for depth in groups.pick(options, LEAF_DEPTHS, LEAF_DEPTHS[:1]):
        own = START | {"max_depth": depth}
        models = {
            "axis": PRINTED_MODELS["axis"](max_depth=depth),
            "CO2": PRINTED_MODELS["CO2"](**own),
        }
        for nu in groups.pick(options, LEAF_NUS, LEAF_NUS[-1:]):
            models[nu] = PRINTED_MODELS["non-greedy"](joint_nu=nu, joint_rate=0.01, **own)
            models[f"defaults-{nu}"] = NonGreedyTreeClassifier(max_depth=depth, nu=nu)
        for name, tree in models.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", ConvergenceWarning)
                    tree.set_params(random_state=0).fit(split.X_train, split.y_train)
            except ConvergenceWarning:  # joint training has lost the tree
                continue
            error = 100 * (1 - tree.score(split.X_test, split.y_test))
            n_leaves = int(tree.forest_.n_leaves[0])
            yield Row(f"leaves/{name}-{depth}", [n_leaves], f"error {error:.2f} %")


def leaf_values(options):
    """Error and log loss of trees that predict class frequencies, or their trained leaves."""
    for name in options.sets or SETS:
        split = groups.load(name, options)
        for kind in LEAF_VALUES:
            found = {"error": [], "loss": []}
            for seed in groups.seeds(options):
                tree = NonGreedyTreeClassifier(
                    max_depth=10, random_state=seed, procedure=NonGreedyProcedure(leaves=kind)
                )
                chances = tree.fit(split.X_train, split.y_train).predict_proba(split.X_test)
                codes = np.searchsorted(tree.classes_, split.y_test)
                found["error"].append(100 * np.mean(chances.argmax(axis=1) != codes))
                found["loss"].append(scores.log_loss(codes, chances))
            for what, values in found.items():
                row = f"leaf-values/{name}-{kind}-{what}"
                yield Row(row, values, mean_sd(values), value=statistics.fmean(values))


def inference(options):
    """Processor seconds of an epoch with both kinds of inference: figure 4."""
    split = groups.load("connect4", options)
    few, many = 1, 21
    for depth in groups.pick(options, INFERENCE_DEPTHS, INFERENCE_DEPTHS[:1]):
        for kind in ("fast", "full"):
            found = []
            for seed in groups.seeds(options):
                spent = []
                for n_epochs in (few, many):
                    joint = {"n_epochs": n_epochs, "inference": kind, "leaves": "counts"}
                    tree = _printed(10.0, 0.01, joint, **START, max_depth=depth, random_state=seed)
                    start = time.process_time()
                    _fit(tree, split)
                    spent.append(time.process_time() - start)
                found.append((spent[1] - spent[0]) / (many - few))
            yield Row(f"inference/{kind}-{depth}", found)


def tree_table(stored):
    """Return the table of single trees as printed, training errors in brackets."""
    rows = []
    for name in SETS:
        for depth in PRINTED_DEPTHS:
            shown, used = [], []
            for model in PRINTED_MODELS:
                key = f"papers.nongreedy:as-printed/{name}-{model}-{depth}"
                pair = [stored.get(key), stored.get(f"{key}-training")]
                text = f"{cells.cell(pair[0])} ({pair[1]['value']:.2f})" if all(pair) else ""
                shown.append(text)
                used += pair
            for model in ("non-greedy", "non-greedy + alternating"):
                row = stored.get(f"measure.nongreedy:depths/{name}-{model}-{depth}")
                shown.append(cells.cell(row) if row else "")
                used.append(row)
            rows.append((f"{cells.TITLES[name]}, {depth}", *shown, cells.commands(used)))
    head = ("Depth", *PRINTED_MODELS, "non-greedy, defaults", "the same, refined")
    return (*head, "Command"), rows


def leaf_values_table(stored):
    """Return the table of trees that predict class frequencies, or their trained leaves."""
    rows = []
    for name in SETS:
        found = [
            stored[f"papers.nongreedy:leaf-values/{name}-{kind}-{what}"]
            for what in ("error", "loss")
            for kind in LEAF_VALUES
        ]
        shown = (row["note"].replace("+-", "±") for row in found)
        rows.append((cells.TITLES[name], *shown, cells.commands(found)))
    head = (f"{what}, {kind}" for what in ("Error", "Log loss") for kind in LEAF_VALUES)
    return ("Depth 10", *head, "Command"), rows


def depths_figure(stored):
    """Draw test and training errors against depth: figure 2 of the paper."""
    panels = {}
    for suffix, part in (("", "test"), ("-training", "training")):
        for name in SETS:
            form = f"papers.nongreedy:as-printed/{name}-{{}}-{{}}{suffix}"
            lines = panels[f"{cells.TITLES[name]}, {part}"] = {}
            for model in PRINTED_MODELS:
                curve = cells.curve(stored, {d: form.format(model, d) for d in PRINTED_DEPTHS})
                lines |= {model: curve} if curve else {}
    return figures.curves(panels, "largest depth", "error in %", n_rows=2)


def leaves_figure(stored):
    """Draw leaves in use against nu: figure 3 of the paper."""
    panels = {}
    for depth in LEAF_DEPTHS:
        lines = panels[f"depth {depth}"] = {}
        for label, prefix in (("as printed", ""), ("defaults", "defaults-")):
            names = {nu: f"papers.nongreedy:leaves/{prefix}{nu}-{depth}" for nu in LEAF_NUS}
            lines[f"non-greedy, {label}"] = cells.curve(stored, names)
        for kind, label in (("axis", "single features"), ("CO2", "CO2, as printed")):
            start = stored[f"papers.nongreedy:leaves/{kind}-{depth}"]
            lines[label] = dict.fromkeys(LEAF_NUS, start["value"])
    return figures.curves(panels, r"$\nu$", "leaves in use", "log")


def inference_figure(stored):
    """Draw seconds of an epoch against depth: figure 4 of the paper."""
    lines = {}
    for kind in ("fast", "full"):
        names = {d: f"papers.nongreedy:inference/{kind}-{d}" for d in INFERENCE_DEPTHS}
        lines[f'inference="{kind}"'] = cells.curve(stored, names)
    return figures.curves({"Connect4": lines}, "largest depth", "seconds of an epoch")


GROUPS = (as_printed, leaves, leaf_values, inference)
OPTIONS = groups.SETS | groups.SEEDS
OPTIONS |= {
    "--depths": {"nargs": "*", "type": int, "choices": PRINTED_DEPTHS, "help": "some depths only"},
    "--models": {
        "nargs": "*",
        "choices": PRINTED_MODELS,
        "default": list(PRINTED_MODELS),
        "help": "some models of as-printed only",
    },
}
TABLES = {"paper_nongreedy": tree_table, "paper_nongreedy_leaf_values": leaf_values_table}
FIGURES = {
    "paper_nongreedy_depths": depths_figure,
    "paper_nongreedy_leaves": leaves_figure,
    "paper_nongreedy_inference": inference_figure,
}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
