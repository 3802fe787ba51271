"""Measurements of training on several workers, and on more rows than memory holds.

    python -m benchmarks.measure.scale threads [--rounds N] [--counts N ...] [--quick]
    python -m benchmarks.measure.scale few-rows [--rounds N] [--counts N ...] [--quick]
    python -m benchmarks.measure.scale backend [--rounds N] [--counts N ...] [--quick]
    python -m benchmarks.measure.scale partitions [--rounds N] [--counts N ...] [--quick]
    python -m benchmarks.measure.scale steps [--rounds N] [--quick]
    python -m benchmarks.measure.scale memory [--rounds N] [--quick]
    python -m benchmarks.measure.scale workers [--quick]
    python -m benchmarks.measure.scale costs [--quick]

Forests of 16 trees of depth 12 are fitted on 10^6 rows of 50 features in float32, with two
classes. ``threads`` compares one thread of this process with several, for the estimators and the
data of `THREADS`; ``few-rows`` does so for fits of 5000 rows of 20 features, with the default
parameters of the estimators of `FEW_ROWS`, which choose settings by small models and train few
bags. ``backend`` compares one worker with several processes of dask (`--counts`, by
default two) that `joblib.parallel_config` names, for 48 trees. ``partitions`` does so for
`skforest.dask`, with 16 partitions, and compares the accuracy with that of trees that see all
rows. ``steps`` measures what does not get faster with more workers, and computes from it the
number of workers at which each is busy half of the time with training. ``memory`` trains, in a
process whose memory is limited, on rows of three times the limit, and measures the memory that a
fit of 16 trees on 10^6 rows of 30 features adds, with two threads. ``workers`` trains boosting
and a blend on two and on four processes of dask that each have half of the memory that all
rows need; dask ends processes that use more. ``costs`` fits classifiers with
default parameters and one thread in a process of their own, each on 10^3, 10^4 and 10^5 rows; a
fit is left out if ten times the seconds on a tenth of the rows are more than `MOST_SECONDS`. Its
times are processor seconds, and its memory is what the fit adds to the process. On a machine with
fewer than four processors, times of ``backend`` and ``partitions`` are processor seconds of the
client and of the busiest worker, added up, so that other jobs of the machine do not count; all
others are wall-clock seconds. Those that are compared take turns.
"""

import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import joblib
import numpy as np
from sklearn.base import is_classifier
from sklearn.datasets import make_classification, make_friedman1

from benchmarks.lib import cells, groups
from benchmarks.lib.groups import pick
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.timing import interleave, ratios, seconds
from skforest import (
    BlendedForestClassifier,
    BlendedForestRegressor,
    CO2ForestClassifier,
    E2EDecisionForestClassifier,
    Forest,
    ManifoldForestClassifier,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)

N_FEATURES, N_TREES, N_PARTITIONS = 50, 16, 16
# Estimators that are fitted with several threads: parameters, and rows of the training set.
THREADS = {
    "manifold": (ManifoldForestClassifier, {"n_estimators": 64}, 100_000),
    "co2": (CO2ForestClassifier, {"n_estimators": 64}, 10_000),
    "nongreedy": (CO2ForestClassifier, {"n_estimators": 64, "refine": "nongreedy"}, 5_000),
    "endtoend": (E2EDecisionForestClassifier, {"n_estimators": 32}, 2_000),
    "hinge": (RandomHingeForestClassifier, {}, 20_000),
    "boosting": (
        ObliqueBoostingClassifier,
        {"n_estimators": 50, "early_stopping": False},
        500_000,
    ),
}
FEW_ROWS = (
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
    BlendedForestClassifier,
    BlendedForestRegressor,
)
COUNTS_OF_THREADS = (2, 4, 8, 16, 32, 64)
COUNTS_OF_WORKERS = (2, 4, 8, 16)
SIZES = [10**6, 10**7, 10**8, 10**9]
PARTITION = 10**6  # rows of a partition, for tables of more rows
TREES = 100  # trees of the forests for which workers are counted
KINDS = {"backend": "all rows to each worker", "partitions": "a tree on each partition"}
COUNTS = {
    f"steps/workers/{kind}-{size:.0e}": Measure(
        f"workers that train half of the time, {text}, {size:.0e} rows", "workers"
    )
    for kind, text in KINDS.items()
    for size in SIZES
    if (kind, size) != ("backend", 10**9)
}
OVER_WORKERS = {
    f"{name}-{count}": Measure(f"{text}, one worker over {count}", "x")
    for name, text in {
        "backend/fit": "fit of 48 trees, joblib's backend of dask",
        "partitions/fit": "skforest.dask.fit",
        "partitions/predict": "skforest.dask.predict",
    }.items()
    for count in COUNTS_OF_WORKERS
}
OVER_THREADS = {
    f"threads/{name}-{what}-{count}": Measure(
        f"{kind.__name__}.{what}, one thread over {count}", "x"
    )
    for name, (kind, _, _) in THREADS.items()
    for what in ("fit", "predict")
    for count in COUNTS_OF_THREADS
}
OVER_THREADS |= {
    f"few-rows/{kind.__name__}-{count}": Measure(
        f"{kind.__name__}.fit, one thread over {count}", "x"
    )
    for kind in FEW_ROWS
    for count in COUNTS_OF_THREADS
}
MEASURES = {
    "partitions/error": Measure("error of trees that see one of 16 partitions each", "%", False),
    "partitions/error-all": Measure("error of trees that see all rows", "%", False),
    "steps/tree": Measure("one tree on all rows", "s", False),
    "steps/prepare": Measure("validation and merging of all rows, in one process", "s", False),
    "steps/send": Measure("sending all rows to a process", "s", False),
    "steps/read": Measure(
        "reading a sixteenth of the rows, with a sample, by a worker", "s", False
    ),
    "steps/sample": Measure("fitting the sample of 50,000 rows, in one process", "s", False),
    "steps/task": Measure("an empty task of dask", "us", False),
    "steps/tree-size": Measure("a pickled tree", "MiB", False),
    "steps/receive": Measure("receiving and joining a tree", "us", False),
    "memory/fit": Measure(
        f"memory added by {N_TREES} trees on 10^6 x 30 beside the model, over X", "x", False
    ),
    "memory/rows": Measure("bytes of memory-mapped rows over the limit of memory", "x"),
    "memory/partitions": Measure("bytes of rows in partitions over the limit of memory", "x"),
}
WORKERS = {
    "boosting": (ObliqueBoostingClassifier, {"n_estimators": 20}),
    "blend": (
        BlendedForestClassifier,
        {"members": ["manifold", ObliqueBoostingClassifier(20)]},
    ),
}
MEASURES |= {
    f"workers/{name}-{count}": Measure(
        f"{kind.__name__}, bytes of all rows over the memory of each of {count} workers", "x"
    )
    for name, (kind, _) in WORKERS.items()
    for count in (2, 4)
}
COSTLY = {
    "ObliqueBoosting": ObliqueBoostingClassifier,
    "ManifoldForest": ManifoldForestClassifier,
    "CO2Forest": CO2ForestClassifier,
    "RandomHingeForest": RandomHingeForestClassifier,
    "BlendedForest": BlendedForestClassifier,
}
COST_ROWS, COST_COLUMNS, MOST_SECONDS = (1000, 10_000, 100_000), (10, 50), 180
OF_FITS = {
    f"costs/{name}-{n}-{p}-{what}": Measure(f"fit of {name}, {n} rows, {p} columns", unit, False)
    for name in COSTLY
    for n in COST_ROWS
    for p in COST_COLUMNS
    for what, unit in (("seconds", "s"), ("memory", "MiB"))
}
MEASURES = OF_FITS | OVER_THREADS | OVER_WORKERS | MEASURES | COUNTS


def threads(options):
    """Seconds of one thread over those of several, of fit and of predict."""
    for name, (kind, params, n) in THREADS.items():
        X, y = _rows(0, pick(options, n, 400))
        X_test, _ = _rows(1, pick(options, 200_000, 1000))

        def on(n_jobs, kind=kind, params=params, X=X, y=y, X_test=X_test):
            model = kind(random_state=0, n_jobs=n_jobs, **params)
            return seconds(model.fit, X, y), seconds(model.predict, X_test)

        names = [f"threads/{name}-fit", f"threads/{name}-predict"]
        yield from _over_one(_taking_turns(on, options), names)


def few_rows(options):
    """Seconds of one thread over those of several, of fits of 5000 rows with defaults."""
    n = pick(options, 5000, 200)
    for kind in FEW_ROWS:
        make = make_classification if is_classifier(kind()) else make_friedman1
        given = {"n_classes": 3, "n_informative": 8, "flip_y": 0.1}
        given = given if make is make_classification else {"noise": 2.0}
        X, y = make(n, 20, random_state=0, **given)

        def on(n_jobs, kind=kind, X=X, y=y):
            model = kind(random_state=0, n_jobs=n_jobs)
            return (seconds(model.fit, X, y),)

        yield from _over_one(_taking_turns(on, options), [f"few-rows/{kind.__name__}"])


def backend(options):
    """Seconds of one worker over those of several processes of dask."""
    X, y = _rows(0, _size(options))

    def on(n_workers):
        if n_workers == 1:
            with joblib.parallel_config(backend="threading", n_jobs=1):
                return (_spent(None, lambda: _forest(3 * N_TREES).fit(X, y)),)
        with _cluster(n_workers) as client, joblib.parallel_config(backend="dask"):
            _forest().fit(X[:1000], y[:1000])  # imports the package in the workers
            return (_spent(client, lambda: _forest(3 * N_TREES).fit(X, y)),)

    yield from _over_one(_taking_turns(on, options), ["backend/fit"])


def partitions(options):
    """Seconds of one worker over those of several, and errors, of trees on partitions."""
    import skforest.dask

    n = _size(options)
    X, y = _parts(n, N_PARTITIONS)
    fitted = skforest.dask.fit(_forest(), X, y)

    def on(n_workers):
        with _cluster(n_workers) as client:
            skforest.dask.fit(_forest(), X[: n // 8], y[: n // 8])  # imports the package
            fit = _spent(client, lambda: skforest.dask.fit(_forest(), X, y))
            labels = skforest.dask.predict(fitted, X)
            return fit, _spent(client, lambda: labels.sum().compute())

    yield from _over_one(_taking_turns(on, options), ["partitions/fit", "partitions/predict"])
    X_test, y_test = _rows(N_PARTITIONS, n // 5)
    whole = _forest(n_jobs=2).fit(X.compute(), y.compute())
    yield Row("partitions/error", [100 * (1 - fitted.score(X_test, y_test))])
    yield Row("partitions/error-all", [100 * (1 - whole.score(X_test, y_test))])


def steps(options):
    """The parts of training; and the workers that they keep busy."""
    n = _size(options)
    X, y = _rows(0, n)
    with _cluster(1) as client:
        client.scatter(X[:1000]).result()
        client.submit(int, 0).result()

        def tasks(_):
            return seconds(lambda: client.gather(client.map(int, range(200), pure=False))) / 200

        def send(_):
            return seconds(lambda: client.scatter(X, hash=False, direct=True))

        found = interleave(
            {
                "fit": lambda _: seconds(_forest(1).fit, X, y),
                "prepare": lambda _: seconds(_prepared, X, y),
                "send": send,
                "read": lambda _: seconds(_read, n // N_PARTITIONS),
                "sample": lambda _: seconds(_prepared, X[:50_000], y[:50_000]),
                "task": tasks,
            },
            options.rounds or 3,
        )
    found["tree"] = [fit - own for fit, own in zip(found.pop("fit"), found["prepare"])]
    forests = list(_forest(4).fit(X, y).forest_)
    received = pickle.dumps(forests)
    found["tree-size"] = [len(received) / 4]
    found["receive"] = [
        seconds(lambda: Forest.concatenate(pickle.loads(received))) / 4 for _ in range(3)
    ]
    factor = {"task": 1e6, "receive": 1e6, "tree-size": 2**-20}
    for name, values in found.items():
        yield Row(f"steps/{name}", [factor.get(name, 1) * value for value in values])
    of_step = {name: statistics.median(values) for name, values in found.items()}
    for size in SIZES:
        for kind, count in (("backend", _of_backend), ("partitions", _of_partitions)):
            name = f"steps/workers/{kind}-{size:.0e}"
            if name in MEASURES:
                value, note = count(of_step, size, n)
                yield Row(name, [value], note)


def memory(options):
    """Training on three times the rows that the memory of a process holds; memory of a fit."""
    n = pick(options, 10**6, 100_000)
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        added, note = process.submit(_memory_of_fit, n, 30).result()
    yield Row("memory/fit", [added], note)
    n = 400_000
    for kind in ("rows", "partitions"):
        with tempfile.TemporaryDirectory() as folder:
            code = "from benchmarks.measure import scale; "
            code += f"scale.train_in_little_memory({kind!r}, {folder!r}, {n})"
            path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
            environment = os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
            done = subprocess.run(
                [sys.executable, "-c", code],
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
        ratio, note = done.stdout.strip().split(" ", 1)
        yield Row(f"memory/{kind}", [float(ratio)], note)


def workers(options):
    """Training on rows that no worker has the memory for."""
    import skforest.dask

    n, n_parts = pick(options, 4_800_000, 40_000), 64
    X, y = _parts(n, n_parts)
    limit = pick(options, 4 * n * N_FEATURES // 2, 2**30)
    X_test, y_test = _rows(n_parts, 20_000)
    for name, (kind, params) in WORKERS.items():
        for count in (2, 4):
            model = kind(random_state=0, **params)
            with _cluster(count, memory_limit=limit):
                start = time.perf_counter()
                fitted = skforest.dask.fit(model, X, y)
                spent = time.perf_counter() - start
            error = 100 * (1 - fitted.score(X_test, y_test))
            note = (
                f"{X.nbytes >> 20} MiB, {limit >> 20} MiB each; {spent:.0f} s, error {error:.2f} %"
            )
            yield Row(f"workers/{name}-{count}", [X.nbytes / limit], note)


def costs(options):
    """Seconds and memory of fits by numbers of rows and columns."""
    for name in COSTLY:
        for p in COST_COLUMNS:
            seconds = 0.0
            for n in pick(options, COST_ROWS, (COST_ROWS[0],)):
                if 10 * seconds > MOST_SECONDS:
                    print(f"{name}, {n} rows, {p} columns: left out", flush=True)
                    break
                with ProcessPoolExecutor(1, get_context("spawn")) as process:
                    seconds, memory = process.submit(_cost, name, n, p).result()
                yield Row(f"costs/{name}-{n}-{p}-seconds", [seconds])
                yield Row(f"costs/{name}-{n}-{p}-memory", [memory])


def _memory_of_fit(n, p):
    """Memory that a fit adds to this process beside the model, over that of X, and a note."""
    import resource

    model = ManifoldForestClassifier(N_TREES, n_jobs=2, random_state=0)
    model.fit(*_rows(0, 200, p))  # imports what it needs
    X, y = _rows(0, n, p)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model.fit(X, y)
    added = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    size = sum(array.nbytes for array in model.forest_.arrays.values())
    note = f"{added / 2**20:.0f} MiB, the model {size / 2**20:.0f}, X {X.nbytes / 2**20:.0f}"
    return (added - size) / X.nbytes, note


def _cost(name, n, p):
    """Processor seconds of a fit, and MiB that it adds to this process."""
    import resource

    model = COSTLY[name](random_state=0, n_jobs=1)
    model.fit(*_rows(0, 200, p))  # imports what it needs
    X, y = _rows(0, n, p)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    model.fit(X, y)
    spent, after = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return spent, (after - before) / 1024


def cost_table(stored):
    """Return the table of the costs of fits: seconds and MiB in a cell."""
    found, rows = stored.of("measure.scale", "costs"), []
    for n in COST_ROWS:
        for p in COST_COLUMNS:
            pairs = [
                [found.get(f"costs/{name}-{n}-{p}-{what}") for what in ("seconds", "memory")]
                for name in COSTLY
            ]
            cost = [
                f"{s['value']:.3g} s, {m['value']:.0f} MiB" if s and m else "" for s, m in pairs
            ]
            rows.append((f"{n:,} x {p}", *cost))
    return ("Rows x columns", *COSTLY), rows


def thread_table(stored):
    """Return the table of seconds with one thread, and how many times as fast several are."""
    found, rows = stored.of("measure.scale", "threads"), []
    measured = [n for n in COUNTS_OF_THREADS if f"threads/hinge-fit-{n}" in found]
    for name, (kind, params, n) in THREADS.items():
        own = [kind.__name__.replace("Classifier", ""), f"{n:,}"]
        own[0] += ", refined jointly" if "refine" in params else ""
        for what in ("fit", "predict"):
            several = [found[f"threads/{name}-{what}-{count}"] for count in measured]
            own.append(several[0]["note"].partition(",")[0].removeprefix("1: "))
            own.append(", ".join(f"{row['value']:.1f}" for row in several))
        rows.append(own)
    several = f"times as fast with {', '.join(map(str, measured))}"
    return ("Model", "Rows", "`fit`, 1 thread", several, "`predict`, 1 thread", several), rows


def train_in_little_memory(kind, folder, n):
    """Print the size of X over a limit of private memory, below which a forest is trained."""
    import resource

    import dask
    import dask.array as da

    import skforest.dask

    path, shape = Path(folder) / "X", (n, 1000)
    X, y = np.memmap(path, np.float32, "w+", shape=shape), np.zeros(n, np.int64)
    for number, start in enumerate(range(0, n, 10_000)):
        part, y[start : start + 10_000] = _rows(number, 10_000, shape[1])
        X[start : start + 10_000] = part
    X.flush()
    del X, part
    limit = 4 * n * shape[1] // 3
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    def part(start):
        X = np.memmap(path, np.float32, "r", shape=shape)
        return np.array(X[start : start + 5000])

    forest = _forest(n // 5000, max_depth=6) if kind == "partitions" else _forest(4, max_depth=6)
    if kind == "rows":
        spent = seconds(forest.fit, np.memmap(path, np.float32, "r", shape=shape), y)
    else:
        parts = [
            da.from_delayed(dask.delayed(part)(start), (5000, shape[1]), np.float32)
            for start in range(0, n, 5000)
        ]
        own = da.concatenate(parts), da.from_array(y, chunks=5000)
        with dask.config.set(scheduler="synchronous"):
            spent = seconds(skforest.dask.fit, forest, *own)
    n_bytes = 4 * n * shape[1]
    print(n_bytes / limit, f"{n_bytes >> 20} MiB, limit {limit >> 20} MiB, {spent:.0f} s")


# ------------------------------------------------------------------------------------------ parts


def _size(options):
    return pick(options, 10**6, 20_000)


def _forest(n_trees=N_TREES, max_depth=12, **params):
    return ManifoldForestClassifier(n_trees, max_depth=max_depth, random_state=0, **params)


def _rows(seed, n, n_features=N_FEATURES):
    """Random rows, and labels that depend on eight features."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, n_features), dtype=np.float32)
    score = X[:, 0] * X[:, 1] + X[:, 2] + np.abs(X[:, 3]) - X[:, 4:8].sum(axis=1) / 2
    return X, (score + random.standard_normal(n, dtype=np.float32) > 0.8).astype(np.int64)


def _parts(n, n_parts):
    """The same rows as dask arrays, made by the workers."""
    import dask
    import dask.array as da

    size, rows = n // n_parts, dask.delayed(_rows, nout=2)
    pairs = [rows(seed, size) for seed in range(n_parts)]
    X = [da.from_delayed(X, (size, N_FEATURES), np.float32) for X, _ in pairs]
    y = [da.from_delayed(y, (size,), np.int64) for _, y in pairs]
    return da.concatenate(X), da.concatenate(y)


def _cluster(n_workers, **params):
    from distributed import Client

    return Client(n_workers=n_workers, threads_per_worker=1, dashboard_address=None, **params)


def _counts(options):
    """Numbers of threads or workers to compare, the first of which is 1."""
    return [1, *(options.counts or [2])]


def _taking_turns(on, options):
    """By number of workers, what ``on(number)`` measured in each round."""
    functions = {str(count): lambda _, count=count: on(count) for count in _counts(options)}
    return interleave(functions, options.rounds or 3, warm_up=False)


def _over_one(times, names):
    """Rows of one thread or worker over several; each measurement has one number for each name."""
    for number, name in enumerate(names):
        own = {count: [found[number] for found in every] for count, every in times.items()}
        for count in list(own)[1:]:
            note = _medians({key: own[key] for key in ("1", count)})
            yield Row(f"{name}-{count}", ratios(own["1"], own[count]), note)


def _spent(client, function):
    """Seconds of a call; on few processors those of this process and of the busiest worker."""
    if os.cpu_count() >= 4:
        return seconds(function)

    def spent():
        of_workers = {} if client is None else client.run(time.process_time)
        return time.process_time(), of_workers

    before, of_workers = spent()
    function()
    after, now = spent()
    return after - before + max((now[key] - of_workers[key] for key in now), default=0.0)


def _prepared(X, y):
    """The training set of a forest, once its settings are known."""
    forest = _forest()
    request = forest._request()
    data = forest._read_training_set(X, y, request)
    forest._settings(data, request)
    return data


def _read(n):
    import skforest.dask

    X, y = _rows(0, n)
    skforest.dask._sample(_forest(), 3000, 0, X, y)


def _medians(times):
    return ", ".join(f"{key}: {statistics.median(own):.1f} s" for key, own in times.items())


# ---------------------------------------------------------------------------------------- workers


def _of_backend(step, size, measured):
    """Workers w for which training takes w times as long as all that one process does or sends.

    Rows are prepared, and sent to the first worker; others fetch them from each other.
    """
    factor = size / measured
    work = TREES * factor * step["tree"]
    fixed = factor * (step["prepare"] + step["send"])
    fixed += TREES * (step["receive"] + step["task"])
    return work / fixed, _seconds_text(work, fixed)


def _of_partitions(step, size, measured):
    """The same for partitions: rows are read twice by workers, and trees are received."""
    n_partitions = max(N_PARTITIONS, size // PARTITION)
    n_trees, factor = max(TREES, n_partitions), size / n_partitions / measured
    reading = 2 * n_partitions * factor * N_PARTITIONS * step["read"]
    work = n_trees * factor * (step["tree"] + step["prepare"] * n_partitions / n_trees) + reading
    fixed = step["sample"] + n_trees * step["receive"] + 2 * n_partitions * step["task"]
    return min(work / fixed, n_partitions), _seconds_text(work, fixed)


def _seconds_text(work, fixed):
    return f"{work:.3g} s of work to share, {fixed:.3g} s of one process"


GROUPS = (threads, few_rows, backend, partitions, steps, memory, workers, costs)
OPTIONS = {"--counts": {"nargs": "*", "type": int, "help": "numbers of threads or workers"}}
TABLES = {"scale": partial(cells.noted, script="measure.scale", groups=GROUPS[2:-1])}
TABLES |= {"costs": cost_table, "threads": thread_table}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
