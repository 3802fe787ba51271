"""Every figure of the CO2 forest, each group of them by one command.

    python benchmarks/co2.py GROUP [--data FOLDER] [--quick] [--sets NAME ...]

A group merges its rows into ``benchmarks/results/co2.json``; the last command, ``table``, writes
them into ``docs/performance``. One setting, the defaults, serves all data sets.
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

import data
import groups
import numpy as np
import psutil
import race_tables
import results
from results import Bar, Row
from timing import mean_sd

from skforest import CO2ForestClassifier, CO2ForestRegressor, Forest

FOLDER = Path(__file__).resolve().parent
RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes
# Bars of 10, 30 and 100 trees, and the errors that the paper reports for 10, 30 and 1000.
SETS = {
    "letter_libsvm": ((3.0, 2.2, 1.8), (3.2, 2.3, 1.8)),
    "usps": ((5.6, 5.2, 4.9), (5.8, 5.9, 5.5)),
    "pendigits": ((2.3, 2.0, 1.9), (1.8, 1.7, 1.7)),
    "satimage": ((9.2, 8.6, 8.5), (9.6, 9.1, 8.9)),
    "mnist": ((2.4, 1.9, 1.75), (2.5, 2.0, 1.9)),
}
TREES = (10, 30, 100)
SECONDS = {"letter_libsvm": (0.08, 0.04), "usps": (0.07, 0.03), "mnist": (2.0, 1.0)}
NOISY = {"objective": "co2", "max_features": None, "bootstrap": True, "holdout": 0.3}
# Beyond the five sets of one setting: parameters, and bars of 10, 30 and 100 trees.
SPECIAL = {
    "connect4": ({}, (17.5, 16.0, 15.4), (17.1, 15.7, 14.7)),
    "madelon": (NOISY, (None, 20.0, None), ()),
}
# Hyperplanes that nothing guards, without a choice.
PLAIN = {"objective": "co2", "max_features": "sqrt", "bootstrap": False, "holdout": 0.0}
# More than the defaults: parameters; and what is hoped for of 100 trees.
VARIANTS = {
    "mixed": PLAIN | {"objective": "mixed"},
    "alternating": PLAIN | {"refine": "alternating"},
}
HOPED = {"letter_libsvm": 1.6, "usps": 4.6, "mnist": 1.6}
# The procedure as the paper has it.
LITERAL = PLAIN | {
    "bootstrap": True,
    "signs": "old",
    "leaves": "gradient",
    "row_norm": None,
    "keep": "last",
}
# What the papers compare with; and from the paper's procedure to the defaults, change by change.
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
DTYPES = ("float32", "float16")
# Bars of 10 and 30 OC1 trees: the paper's errors, in brackets, and 1.
OC1 = {"letter_libsvm": (8.6, 6.0), "pendigits": (4.2, 3.2)}

BARS = {
    f"errors/{name}-{n}": Bar(
        f"error, {name}, {n} trees, defaults (paper, {1000 if n == 100 else n} trees: {paper})",
        "%",
        bar,
        paper if n < 100 and paper < bar else None,
        more=False,
    )
    for name, (bars, papers) in SETS.items()
    for n, bar, paper in zip(TREES, bars, papers, strict=True)
}
BARS |= {
    f"special/{name}-{n}": Bar(
        f"error, {name}, {n} trees, {params}" + (f" (paper: {papers})" if papers else ""),
        "%",
        bar,
        more=False,
    )
    for name, (params, bars, papers) in SPECIAL.items()
    for n, bar in zip(TREES, bars, strict=True)
}
BARS |= {
    f"variants/{name}-{variant}-{n}": Bar(
        f"error, {name}, {n} trees, {variant}", "%", None, hoped if n == 100 else None, more=False
    )
    for name, hoped in HOPED.items()
    for variant in VARIANTS
    for n in TREES
}
BARS |= {
    f"tables/{task}": Bar(f"error of {task} tables over RandomForest's", "ratio", bar, more=False)
    for task, bar in {"all": None, "classification": 0.88, "regression": 0.9}.items()
}
BARS["tables/fit"] = Bar("fit time on tables over RandomForest's", "ratio", 3.0, more=False)
BARS |= {
    f"seconds/{name}": Bar(f"processor seconds a tree, {name}", "s", bar, stretch, more=False)
    for name, (bar, stretch) in SECONDS.items()
}
BARS["scaling/time"] = Bar(
    "growth of the seconds of a tree from 4096 to 524288 rows, over that of n log n",
    "ratio",
    1.0,
    more=False,
)
BARS["scaling/memory"] = Bar("memory of a tree beyond X and the model, over X", "x", more=False)
BARS |= {
    f"size/{what}-{dtype}": Bar(
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
BARS |= {
    f"flops/{where}": Bar(f"products of 784 features, rows in {where}", "GFLOP/s")
    for where in ("cache", "memory")
}
BARS |= {
    f"flops/read-{where}": Bar(f"the machine, rows read from {where} at the same time", "GB/s")
    for where in ("cache", "memory")
}
BARS |= {
    f"baselines/{name}-{baseline}-{n}": Bar(
        f"error, {name}, {n} trees, {baseline}",
        "%",
        OC1[name][TREES.index(n)] if baseline == "oc1" and name in OC1 else None,
        more=False,
    )
    for name in ("letter_libsvm", "pendigits", "usps", "satimage")
    for baseline in BASELINES
    for n in TREES[:2]
}


def errors(options):
    """Test error with the defaults, for growing numbers of trees of one forest."""
    for name in options.sets or SETS:
        yield from _errors("errors", name, _load(name, options), {}, options)


def special(options):
    """The same with a setting for data of another kind."""
    for name, (params, *_) in SPECIAL.items():
        if name in (options.sets or SPECIAL):
            yield from _errors("special", name, _load(name, options), params, options)


def variants(options):
    """The same with the mixed objective, and with alternating refinement."""
    for name in options.sets or HOPED:
        for variant, params in VARIANTS.items():
            split = _load(name, options)
            yield from _errors("variants", name, split, params, options, f"-{variant}")


def _errors(group, name, split, params, options, suffix=""):
    trees = [n for n in TREES if n <= options.trees]
    found = {n: [] for n in trees}
    for seed in range(options.rounds or 3):
        model = CO2ForestClassifier(trees[0], random_state=seed, n_jobs=options.n_jobs, **params)
        model.set_params(warm_start=True)
        for n in trees:
            model.set_params(n_estimators=n).fit(split.X_train, split.y_train)
            found[n].append(100 * (1 - model.score(split.X_test, split.y_test)))
    for n in trees:
        size = model.forest_[:n].nbytes / 2**20 if n == trees[-1] else None
        note = f"{mean_sd(found[n])} %"
        yield Row(
            f"{group}/{name}{suffix}-{n}", found[n], note + (f", {size:.0f} MiB" if size else "")
        )


def tables(options):
    """Error and fit time relative to RandomForest on 22 classification and 10 regression sets."""
    names = {"classification": data.CLASSIFICATION, "regression": data.REGRESSION}
    if options.quick:
        names = {task: group[-1:] for task, group in names.items()}
    ours = {"classification": CO2ForestClassifier, "regression": CO2ForestRegressor}
    rows = race_tables.run(names, ours, options, options.trees)
    results.write(options.results / "co2_tables.json", rows)
    yield from race_tables.summary(rows, names)


def seconds(options):
    """Processor seconds of one thread for a tree."""
    for name in options.sets or SECONDS:
        split = _load(name, options)
        times = []
        for seed in range(options.rounds or 3):
            n_trees = 2 if name == "mnist" else 10
            model = CO2ForestClassifier(n_trees, random_state=seed, **PLAIN)
            start = time.process_time()
            model.fit(split.X_train, split.y_train)
            times.append((time.process_time() - start) / n_trees)
        yield Row(f"seconds/{name}", times, f"median {statistics.median(times):.3f} s")


def scaling(options):
    """Seconds and memory of a tree, from 4096 rows of 50 features to 524288."""
    sizes = (256, 512) if options.quick else [2**k for k in range(12, 20)]
    split = data.synthetic(sizes[-1], p=50, n_test=1)
    times = {n: [] for n in sizes}
    memory = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        for n in sizes:
            np.savez(path, X=split.X_train[:n], y=split.y_train[:n])
            for seed in range(options.rounds or 3):
                # A process of its own: the peak of memory never falls.
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
    """Processor seconds, and bytes that the process grew by, of a tree."""
    with np.load(path) as file:
        X, y = file["X"], file["y"]
    # Compiled code, and what scikit-learn imports on the way, are not the tree's.
    CO2ForestClassifier(1, **PLAIN).fit(X[:200], y[:200])
    before = psutil.Process().memory_info().rss
    start = time.process_time()
    model = CO2ForestClassifier(1, random_state=seed, **PLAIN).fit(X, y)
    took = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT
    return took, max(0, peak - before - model.forest_.nbytes)


def size(options):
    """Size, peak of memory, error and speed of a forest on MNIST by the precision of weights."""
    for dtype in DTYPES:
        # A process of its own: the peak of memory never falls.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found = pool.submit(_size_of, dtype, options).result()
        for what, value in found.items():
            yield Row(f"size/{what}-{dtype}", [value], f"{options.trees} trees, seed 0")


def _size_of(dtype, options):
    """What the group `size` measures."""
    split = _load("mnist", options)
    model = CO2ForestClassifier(
        options.trees, weight_dtype=dtype, random_state=0, n_jobs=options.n_jobs, **PLAIN
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
    """Speed of the products of rows and hyperplanes, by which trees grow and predict."""
    p, n_splits = 784, 200
    rng = np.random.default_rng(0)
    # A chain: every row passes every split.
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
        yield Row(f"flops/read-{where}", reads, "largest number of the rows, by NumPy")
        yield Row(f"flops/{where}", speeds, f"{n} rows, {n_splits} hyperplanes one after another")


def baselines(options):
    """Test error of 10 and 30 trees by other objectives, and processor seconds for a tree."""
    for name in options.sets or ("pendigits", "satimage", "letter_libsvm", "usps"):
        split = _load(name, options)
        for baseline, params in BASELINES.items():
            trees = [n for n in TREES[:2] if n <= options.trees]
            found = {n: [] for n in trees}
            times = []
            for seed in range(options.rounds or 3):
                model = CO2ForestClassifier(trees[-1], random_state=seed, n_jobs=options.n_jobs)
                start = time.process_time()
                model.set_params(**params).fit(split.X_train, split.y_train)
                times.append((time.process_time() - start) / trees[-1])
                for n in trees:
                    likely = model.forest_[:n].response(split.X_test).argmax(axis=1)
                    wrong = model.classes_[likely] != split.y_test
                    found[n].append(100 * wrong.mean())
            leaves = model.forest_.n_leaves.mean()
            for n in trees:
                note = f"{mean_sd(found[n])} %, {statistics.median(times):.3f} s and {leaves:.0f} "
                yield Row(f"baselines/{name}-{baseline}-{n}", found[n], note + "leaves a tree")


def table(options):
    """Write the table of all stored rows into the documentation."""
    output = options.results if options.quick else FOLDER.parent / "docs" / "performance"
    stored = results.read(options.results / "co2.json")
    lines = results.list_table([stored[name] for name in BARS if name in stored])
    output.mkdir(parents=True, exist_ok=True)
    (output / "co2.inc").write_text("\n".join(lines) + "\n")
    return ()


def _load(name, options):
    load = data.connect4 if name == "connect4" else partial(data.load, name)
    split = load(options.data)
    return split.head(600, 200) if options.quick else split


def main():
    """Run one group and store its rows."""
    functions = (
        errors, special, variants, tables, seconds, scaling, size, flops, baselines, table,
    )  # fmt: skip
    parser = groups.parser(__doc__, functions)
    parser.add_argument("--trees", type=int, default=100, help="at most this many trees")
    parser.add_argument("--sets", nargs="*", choices=[*SETS, *SPECIAL], help="some data sets only")
    parser.add_argument("--n-jobs", type=int, default=1, help="for what is not timed")
    groups.run(parser, BARS)


if __name__ == "__main__":
    main()
