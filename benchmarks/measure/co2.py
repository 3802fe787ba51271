"""Measurements of CO2 forests with default settings: errors, times, memory, sizes.

    python -m benchmarks.measure.co2 GROUP [--data FOLDER] [--quick] [--sets NAME ...]

Unless a group says otherwise, the forests are fitted to all data sets of the paper.
"""

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

import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split

from benchmarks.lib import cells, comparison, data, groups, results
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.timing import interleave, mean_sd, ratios
from benchmarks.lib.timing import seconds as seconds_of
from benchmarks.papers.co2 import CONNECT4, FURTHER, PLAIN, SETS, TREES, largest
from skforest import (
    CO2ForestClassifier,
    CO2ForestRegressor,
    CO2Procedure,
    Forest,
    Loss,
    NonGreedyTreeRegressor,
)

RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes
# Data of another kind: parameters, and the errors that the paper reports.
NOISY = {"objective": "co2", "max_features": None, "bootstrap": True, "holdout": 0.3}
SPECIAL = {
    "connect4": ({}, CONNECT4),
    "madelon": (NOISY, (None, None, None)),
}
VARIANTS = {
    "mixed": PLAIN | {"objective": "mixed"},
    "alternating": PLAIN | {"refine": "alternating"},
}
VARIANT_SETS = ("letter_libsvm", "usps", "mnist")
# Searches of the single feature with which a hyperplane starts.
FIRST_CUTS = ("hist", "exact")
FIRST_CUT_SETS = ("pendigits", "satimage", "letter_libsvm")
DTYPES = ("float32", "float16")
STEPS = (1, 3, 10, 30)  # least number of steps of an epoch
WEIGHTS = (3, 5, 8, 10)  # largest numbers of weights of a split
SPARSE_SETS = ("letter_libsvm", "usps")
OWN_LOSS = {  # estimators whose loss is that of the package, or the same as a user writes it
    "CO2": (CO2ForestRegressor, {"n_estimators": 10, "min_samples_leaf": 10} | PLAIN),
    "non-greedy": (NonGreedyTreeRegressor, {"max_depth": 5}),
}
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
    f"steps/letter_libsvm-{n}": Measure(
        f"error on held-out training rows, letter_libsvm, 10 trees, {n} steps or more an epoch",
        "%",
        more=False,
    )
    for n in STEPS
}
MEASURES |= {
    f"own-loss/{name}": Measure(f"time of fit, {name}, own over built-in loss", "ratio", False)
    for name in OWN_LOSS
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
    f"sparse/{task}-{n}": Measure(
        f"error of CO2 forests with at most {n} weights a split over that without a limit, "
        f"geometric mean of the {task} tables with more columns",
        "x",
        more=False,
    )
    for task in comparison.TASKS
    for n in WEIGHTS
}
MEASURES |= {
    f"sparse/{name}-{n}": Measure(
        f"error, {name}, 30 trees, " + (f"at most {n} weights a split" if n else "no limit"),
        "%",
        more=False,
    )
    for name in SPARSE_SETS
    for n in (0, *WEIGHTS)
}


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
    trees = [n for n in (*TREES, 1000) if n <= largest(options) and f"{row}-{n}" in MEASURES]
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


def _resident():
    """Bytes of memory of this process."""
    import psutil

    return psutil.Process().memory_info().rss


def _one_tree(path, seed):
    """Processor seconds of a tree, and the bytes by which fitting it enlarges the process."""
    with np.load(path) as file:
        X, y = file["X"], file["y"]
    # A first fit imports modules and loads compiled code, which must not count.
    CO2ForestClassifier(1, **PLAIN).fit(X[:200], y[:200])
    before = _resident()
    start = time.process_time()
    model = CO2ForestClassifier(1, random_state=seed, **PLAIN).fit(X, y)
    took = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT
    return took, max(0, peak - before - model.forest_.nbytes)


def size(options):
    """Size, peak memory, error and speed of a forest on MNIST, for each precision of weights."""
    for dtype in DTYPES:
        # A new process each time, because the peak of memory never decreases.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found = pool.submit(_size_of, dtype, options).result()
        for what, value in found.items():
            yield Row(f"size/{what}-{dtype}", [value], f"{largest(options)} trees, seed 0")


def _size_of(dtype, options):
    """Measure one precision, in a process of its own."""
    split = groups.load("mnist", options)
    model = CO2ForestClassifier(
        largest(options), weight_dtype=dtype, random_state=0, n_jobs=options.n_jobs, **PLAIN
    )
    before = _resident() - split.X_train.nbytes
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


def first_cut(options):
    """Error on held-out training rows with the first cut by histogram, and exact."""
    for name in options.sets or FIRST_CUT_SETS:
        train = groups.load(name, options)
        found = {splitter: [] for splitter in FIRST_CUTS}
        times = {splitter: [] for splitter in FIRST_CUTS}
        for seed in groups.seeds(options):
            # Test rows are not used, because this comparison chooses a default.
            X, X_held, y, y_held = train_test_split(
                train.X_train, train.y_train, test_size=0.2, random_state=seed
            )
            for splitter in FIRST_CUTS:
                model = CO2ForestClassifier(
                    10, random_state=seed, procedure=CO2Procedure(splitter=splitter), **PLAIN
                )
                start = time.process_time()
                model.fit(X, y)
                times[splitter].append((time.process_time() - start) / 10)
                found[splitter].append(100 * (1 - model.score(X_held, y_held)))
        for splitter in FIRST_CUTS:
            note = f"{statistics.median(times[splitter]):.3f} s a tree"
            yield Row(f"first-cut/{name}-{splitter}", found[splitter], note)


def steps(options):
    """Error of the defaults by the least number of steps of an epoch; test rows take no part."""
    train = groups.load("letter_libsvm", options)
    for n in STEPS:
        found, times = [], []
        for seed in groups.seeds(options):
            X, X_held, y, y_held = train_test_split(
                train.X_train, train.y_train, test_size=0.2, random_state=seed
            )
            procedure = CO2Procedure(min_batches=n)
            model = CO2ForestClassifier(10, random_state=seed, procedure=procedure, **PLAIN)
            start = time.process_time()
            model.fit(X, y)
            times.append((time.process_time() - start) / 10)
            found.append(100 * (1 - model.score(X_held, y_held)))
        note = f"{statistics.median(times):.3f} s a tree"
        yield Row(f"steps/letter_libsvm-{n}", found, note)


def sparse(options):
    """Error and size with a limit of the weights of a split; on tables relative to no limit."""
    quick = {"classification": ["pima"], "regression": ["reg_airfoil"]}
    for task, names in groups.pick(options, comparison.TASKS, quick).items():
        kind = CO2ForestClassifier if task == "classification" else CO2ForestRegressor
        found = {n: {} for n in WEIGHTS}
        for name in names:
            errors = {n: [] for n in (None, *WEIGHTS)}
            for seed in range(options.rounds or 2):
                split = data.load_table(name, options.data, seed, 1000)
                for n in errors:
                    procedure = CO2Procedure(max_weights=n)
                    model = kind(procedure=procedure, random_state=seed, n_jobs=options.n_jobs)
                    model.fit(split.X_train, split.y_train)
                    errors[n].append(100 * (1 - model.score(split.X_test, split.y_test)))
            dense = np.mean(errors[None]) + comparison.OFFSET
            for n in WEIGHTS:
                if split.X_train.shape[1] > n:
                    found[n][name] = (np.mean(errors[n]) + comparison.OFFSET) / dense
        for n, by_table in found.items():
            note = ", ".join(f"{name} {ratio:.2f}" for name, ratio in by_table.items())
            ratios = list(by_table.values())
            value = float(np.exp(np.mean(np.log(ratios)))) if ratios else 1.0
            yield Row(f"sparse/{task}-{n}", ratios or [1.0], note, value=value)
    for name in options.sets or SPARSE_SETS:
        split = groups.load(name, options)
        for n in (0, *WEIGHTS):
            errors, spent = [], []
            for seed in groups.seeds(options):
                procedure = CO2Procedure(max_weights=n or None)
                model = CO2ForestClassifier(30, procedure=procedure, random_state=seed, **PLAIN)
                start = time.process_time()
                model.fit(split.X_train, split.y_train)
                spent.append(time.process_time() - start)
                errors.append(100 * (1 - model.score(split.X_test, split.y_test)))
            size_of = f"{model.forest_.nbytes / 2**20:.1f} MiB"
            note = f"{mean_sd(errors)} %, {statistics.median(spent) / 30:.2f} s a tree, {size_of}"
            yield Row(f"sparse/{name}-{n}", errors, note)


class SquaredLoss(Loss):
    """Half of the squared error, as a user writes it."""

    def loss(self, y, raw):
        return (raw - y) ** 2 / 2

    def gradient_hessian(self, y, raw):
        return raw - y, np.ones_like(raw)


def _seconds_of_fit(model, X, y, seed):
    return seconds_of(model.set_params(random_state=seed).fit, X, y)


def own_loss(options):
    """Time of a fit with the squared error of a user, over that of the package."""
    X, y = make_friedman1(groups.pick(options, 1000, 200), noise=1.0, random_state=0)
    for name, (cls, params) in OWN_LOSS.items():
        models = [cls(loss=loss, **params) for loss in (SquaredLoss(), "squared_error")]
        fits = {model: partial(_seconds_of_fit, model, X, y) for model in models}
        spent = list(interleave(fits, groups.pick(options, 5, 1)).values())
        yield Row(f"own-loss/{name}", ratios(*spent), f"{statistics.median(spent[0]):.2f} s")


def size_table(stored):
    """Return the table of size and speed for each precision of weights."""
    rows = []
    for what in ("model", "file", "peak", "error", "predict"):
        pair = [stored[f"measure.co2:size/{what}-{dtype}"] for dtype in DTYPES]
        shown = (results.show(row["value"], row["unit"]) for row in pair)
        rows.append((pair[0]["what"].partition(", 100 trees")[0], *shown, cells.commands(pair)))
    return ("100 trees on MNIST", *DTYPES, "Command"), rows


def special_table(stored):
    """Return the table of test errors on Connect4, Madelon, abalone and poker."""
    rows = []
    for title, script in (("CO2Forest", "co2"), ("RandomHingeForest", "hinge")):
        for row in stored.of(f"measure.{script}", "special").values():
            shown = (results.show(row[key], row["unit"]) for key in ("value", "paper"))
            rows.append((f"{title}: {row['what']}", *shown, cells.commands([row])))
    return ("What", "Measured", "Paper", "Command"), rows


def speed_table(stored):
    """Return the table of times of all models but manifold forests."""
    rows = [
        (f"{title}: {row['what']}", *cells.measured(row))
        for title, script, *kinds in (
            ("CO2Forest", "co2", "seconds", "scaling", "flops"),
            ("NonGreedyTree", "nongreedy", "seconds"),
            ("RandomHingeForest", "hinge", "speed"),
            ("E2EDecisionForest", "endtoend", "default"),
        )
        for name, row in stored.of(f"measure.{script}", *kinds).items()
        if name != "default/accuracy"
    ]
    return ("What", "Measured (least, most)", "Details", "Command"), rows


def first_cut_table(stored):
    """Return the table of the two searches of the first cut, on held-out training rows."""
    rows = []
    for name in FIRST_CUT_SETS:
        pair = [stored[f"measure.co2:first-cut/{name}-{splitter}"] for splitter in FIRST_CUTS]
        shown = (f"{cells.cell(row)} ({row['note']})" for row in pair)
        rows.append((cells.TITLES[name], *shown, cells.commands(pair)))
    return ("", *FIRST_CUTS, "Command"), rows


def sparse_table(stored):
    """Return the table of errors and sizes with a limit of the weights of a split."""
    rows = []
    for n in (0, *WEIGHTS):
        found = [stored.get(f"measure.co2:sparse/{task}-{n}") for task in comparison.TASKS]
        sets = [stored[f"measure.co2:sparse/{name}-{n}"] for name in SPARSE_SETS]
        shown = [cells.cell(row) if row else "1" for row in found]
        shown += [f"{cells.cell(row)}, {row['note'].rpartition(', ')[2]}" for row in sets]
        every = [row for row in (*found, *sets) if row]
        rows.append((n or "all", *shown, cells.commands(every)))
    titles = (f"Error, {task} tables" for task in comparison.TASKS)
    sets = (cells.TITLES[name] for name in SPARSE_SETS)
    return ("Weights of a split", *titles, *sets, "Command"), rows


GROUPS = (
    errors,
    special,
    variants,
    seconds,
    scaling,
    size,
    flops,
    first_cut,
    steps,
    sparse,
    own_loss,
)
OPTIONS = groups.SETS | groups.SEEDS
OPTIONS |= {"--trees": {"type": int, "help": "largest number of trees"}}
TABLES = {
    "size": size_table,
    "special": special_table,
    "speed": speed_table,
    "paper_co2_first_cut": first_cut_table,
    "co2_sparse": sparse_table,
}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
