"""Measurements of serving: one row at a time, batches, and several threads.

    python -m benchmarks.compare.serve one-row [--ydf-python PYTHON] [--rounds N] [--quick]
    python -m benchmarks.compare.serve batch [--ydf-python PYTHON] [--rounds N] [--quick]
    python -m benchmarks.compare.serve frame [--rounds N] [--quick]
    python -m benchmarks.compare.serve threads [--rounds N] [--quick]
    python -m benchmarks.compare.serve contention [--rounds N] [--quick]
    python -m benchmarks.compare.serve interpreter [--rounds N] [--quick]

Models of 100 trees (or rounds) with at most 64 leaves are fitted on 10,000 rows of 64 features and
two classes, slow models on 2000 rows. ``one-row`` predicts single rows, each time another one,
``batch`` 10,000 rows with one thread, ``frame`` data frames of one row, and ``threads`` batches
with two threads. Models take turns, with several calls in each round; the result is the median of
the rounds. Times are processor seconds, but wall-clock seconds in ``threads``, which needs a
machine that does nothing else. ``contention`` compares the processor seconds of two threads and of
one. ``interpreter`` compares one thread with two threads and two processes, in wall-clock seconds;
the usual and the free-threaded build of Python store separate rows. ydf runs in a separate
process, in the environment of ``--ydf-python``.
"""

import multiprocessing
import statistics
import sys
import threading
import time
import warnings
from functools import partial
from itertools import cycle

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from threadpoolctl import threadpool_limits

import skforest
from benchmarks.lib import cells, data, groups
from benchmarks.lib.groups import pick
from benchmarks.lib.race import Rival, workers
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.timing import interleave, ratios, seconds

OURS = {
    "sparse": "sparse trees of 64 leaves",
    "deep": "sparse trees, fully grown",
    "boosting": "100 rounds of oblique boosting, one bag",
    "co2": "CO2 trees of 64 leaves",
    "hinge": "hinge forest, default of 500 trees",
}
RIVALS = ("RandomForest", "LightGBM", "HistGradientBoosting", "ydf")
KINDS = {"predict": "predict", "predictor": "predictor()"}
ONE = {
    f"one-row/{name}-{kind}": Measure(f"one row, {label}, {text}", "us", more=False)
    for name, label in OURS.items()
    for kind, text in KINDS.items()
}
BATCH = {
    f"batch/{name}": Measure(f"one of 10,000 rows, {label}", "us/row", more=False)
    for name, label in OURS.items()
}
AGAINST = {
    f"{group}/{rival}": Measure(f"{text}, {rival} over sparse trees", "x")
    for group, text in (("one-row", "predict of one row"), ("batch", "predict of 10,000 rows"))
    for rival in RIVALS
}
FRAMES = {
    "frame/numbers": Measure("one-row frame of 64 numbers, sparse trees", "us", more=False),
    "frame/categories": Measure("one-row frame with 2 categories of 22", "us", more=False),
}
THREADS = {
    "threads/predictor": Measure("rows a second, two threads that call a predictor over one", "x"),
    "threads/n-jobs": Measure("rows a second, predict with n_jobs=2 over 1", "x"),
    "contention/predictor": Measure(
        "processor time of a row, two threads that call a predictor at once over one",
        "ratio",
        False,
    ),
}
WORK = {"rows": "rows, in batches of 10,000", "one-row": "single rows", "fits": "small forests"}
BUILDS = {"gil": "", "free-threaded": ", free-threaded Python"}
BY_BUILD = {
    f"interpreter/{build}/{name}": Measure(f"{work} a second, two threads over one{text}", "x")
    for build, text in BUILDS.items()
    for name, work in WORK.items()
}
MEASURES = ONE | BATCH | AGAINST | FRAMES | THREADS | BY_BUILD
OPTIONS = {"--ydf-python": {"help": "interpreter of an environment with ydf"}}


def one_row(options):
    """Measure microseconds of one row, and ratios of other libraries to ours."""
    calls = pick(options, 500, 3)

    def timed(function, rows, n_calls):
        # Repeating the same row would take less time, because branches are predicted well.
        row = cycle(rows)
        return lambda _: (
            _processor(lambda: [function(next(row)) for _ in range(n_calls)]) / n_calls
        )

    split, models = _models(options)
    rows, functions = list(split.X_test), {}
    tables = [row[None] for row in rows]
    for name, model in models.items():
        # Slow models are called less often.
        n_calls = calls if name in OURS else max(1, calls // 10)
        functions[name] = timed(model.predict, tables, n_calls)
        if name in OURS:
            functions[f"{name}-predictor"] = timed(model.predictor(), rows, calls)
    with _ydf(options, split) as (ydf, rival):
        if ydf is not None:
            functions["ydf"] = lambda _: ydf.ask("predict", rows=1, calls=calls, is_cpu=True)
        times = interleave(functions, options.rounds or 41)
    for name in OURS:
        for kind in KINDS:
            own = times[name if kind == "predict" else f"{name}-predictor"]
            yield Row(f"one-row/{name}-{kind}", [1e6 * t for t in own])
    yield from _against("one-row", times, 1e6, "us", rival)


def batch(options):
    """Measure microseconds per row in a batch, and ratios of other libraries to ours."""
    split, models = _models(options)
    X, functions = split.X_test, {}
    for name, model in models.items():
        functions[name] = lambda _, predict=model.predict: _processor(predict, X)
    with _ydf(options, split) as (ydf, rival):
        if ydf is not None:
            functions["ydf"] = lambda _: ydf.ask("predict", rows=len(X), calls=1, is_cpu=True)
        times = interleave(functions, options.rounds or 9)
    for name in OURS:
        yield Row(f"batch/{name}", [1e6 * t / len(X) for t in times[name]])
    yield from _against("batch", times, 1e6 / len(X), "us a row", rival)


def frame(options):
    """Measure microseconds of a data frame of one row, with columns predicted before."""
    random = np.random.default_rng(0)
    split = _split(options)
    numbers = pd.DataFrame(split.X_train).add_prefix("x")
    table = numbers.iloc[:, :20].assign(
        city=random.choice(["Bern", "Oslo", "Rome"], len(numbers)),
        shop=pd.Categorical([f"s{i}" for i in random.integers(0, 25, len(numbers))]),
    )
    functions, calls = {}, pick(options, 20, 2)
    for name, columns in (("numbers", numbers), ("categories", table)):
        model = _sparse(options).fit(columns, split.y_train)
        row = columns.iloc[7:8]
        functions[name] = lambda _, predict=model.predict, row=row: (
            _processor(lambda: [predict(row) for _ in range(calls)]) / calls
        )
    for name, times in interleave(functions, options.rounds or 21).items():
        yield Row(f"frame/{name}", [1e6 * t for t in times])


def threads(options):
    """Measure the ratio of the throughputs of two threads and one."""
    split = _split(options)
    model = _sparse(options).fit(split.X_train, split.y_train)
    predictor, X, calls = model.predictor(), split.X_test, pick(options, 10, 1)

    def predict(n_jobs):
        model.n_jobs = n_jobs
        return seconds(lambda: [model.predict(X) for _ in range(calls)])

    times = interleave(
        {
            "one": lambda _: seconds(_serve, predictor, X, calls, 1),
            "two": lambda _: seconds(_serve, predictor, X, calls, 2) / 2,
            "n_jobs=1": lambda _: predict(1),
            "n_jobs=2": lambda _: predict(2),
        },
        options.rounds or 15,
    )
    yield Row("threads/predictor", ratios(times["one"], times["two"]))
    yield Row("threads/n-jobs", ratios(times["n_jobs=1"], times["n_jobs=2"]))


def contention(options):
    """Measure the ratio of the processor times of a row with two threads and one."""
    split = _split(options)
    predictor = _sparse(options).fit(split.X_train, split.y_train).predictor()
    own = predictor, split.X_test, pick(options, 10, 1)
    functions = {"one": lambda _: _processor(_serve, *own, 1)}
    functions["two"] = lambda _: _processor(_serve, *own, 2) / 2
    times = interleave(functions, options.rounds or 15)
    yield Row("contention/predictor", ratios(times["two"], times["one"]))


def interpreter(options):
    """Measure the ratio of the throughputs of two threads and one in this build of Python."""
    build = "gil" if getattr(sys, "_is_gil_enabled", lambda: True)() else "free-threaded"
    split, few = _split(options), data.synthetic(200, 10, 2, n_informative=5, n_test=50)
    predictor = _sparse(options).fit(split.X_train, split.y_train).predictor()
    small = skforest.ManifoldForestClassifier(10, n_jobs=1, random_state=0)
    work = {
        "rows": (partial(predictor, split.X_test), pick(options, 10, 1)),
        "one-row": (partial(predictor, split.X_test[0]), pick(options, 20_000, 10)),
        "fits": (lambda: clone(small).fit(few.X_train, few.y_train), pick(options, 40, 1)),
    }
    process = multiprocessing.get_context("fork").Process
    for name, own in work.items():
        functions = {"one": partial(_repeat, *own)}
        for kind, start in (("threads", threading.Thread), ("processes", process)):
            functions[kind] = partial(_start, start, 2, _repeat, *own)
        times = interleave(
            {kind: lambda _, run=run: seconds(run) for kind, run in functions.items()},
            options.rounds or 15,
        )
        gains = {kind: [2 * x for x in ratios(times["one"], times[kind])] for kind in functions}
        note = f"two processes {statistics.median(gains['processes']):.2f}x"
        yield Row(f"interpreter/{build}/{name}", gains["threads"], note)


def _serve(predictor, X, calls, n_threads):
    """Call a predictor in each of some threads."""
    _start(threading.Thread, n_threads, _repeat, partial(predictor, X), calls)


def _repeat(function, calls):
    for _ in range(calls):
        function()


def _start(kind, n, function, *arguments):
    """Call a function in each of n threads, or processes, and wait for them."""
    started = [kind(target=function, args=arguments) for _ in range(n)]
    for one in started:
        one.start()
    for one in started:
        one.join()


def _processor(function, *arguments):
    """Return processor seconds of one call."""
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


def _against(group, times, factor, unit, rival):
    for name in RIVALS:
        if name in times:
            note = f"{name} {factor * statistics.median(times[name]):.3g} {unit}"
            versions = rival if name == "ydf" else None
            yield Row(f"{group}/{name}", ratios(times[name], times["sparse"]), note, versions)


def _split(options):
    n_train, n_test = pick(options, (10_000, 10_000), (300, 50))
    return data.synthetic(n_train, 64, n_classes=2, n_informative=20, n_test=n_test)


def _sparse(options):
    return skforest.ManifoldForestClassifier(
        pick(options, 100, 5), max_leaf_nodes=64, projection="sparse", n_jobs=1, random_state=0
    )


def _models(options):
    """Return the split, and all fitted models that run in this process."""
    from lightgbm import LGBMClassifier

    split, n = _split(options), pick(options, 100, 5)
    fixed = {"n_jobs": 1, "random_state": 0}
    models = {
        "sparse": _sparse(options),
        "deep": skforest.ManifoldForestClassifier(n, projection="sparse", **fixed),
        "boosting": skforest.ObliqueBoostingClassifier(n, n_bags=1, early_stopping=False, **fixed),
        "co2": skforest.CO2ForestClassifier(n, max_leaf_nodes=64, **fixed),
        "hinge": skforest.RandomHingeForestClassifier(**fixed),
        "RandomForest": RandomForestClassifier(n, max_leaf_nodes=64, **fixed),
        "LightGBM": LGBMClassifier(n_estimators=n, num_leaves=64, verbose=-1, **fixed),
        "HistGradientBoosting": HistGradientBoostingClassifier(
            max_iter=n, max_leaf_nodes=64, early_stopping=False, random_state=0
        ),
    }
    slow = {"co2", "hinge"}  # trained on fewer rows
    for name, model in models.items():
        n_rows = min(len(split.X_train), 2000) if name in slow else len(split.X_train)
        model.fit(split.X_train[:n_rows], split.y_train[:n_rows])
    return split, models


class _ydf:
    """Return a worker of ydf with a fitted forest, and its versions; else None, None."""

    def __init__(self, options, split):
        self.options, self.running = options, None
        if options.ydf_python:
            rival = Rival("ydf", {}, "float32", options.ydf_python)
            self.running = workers(split, {"ydf": rival})

    def __enter__(self):
        if self.running is None:
            return None, None
        worker = self.running.__enter__()["ydf"]
        parameters = {
            "n_estimators": pick(self.options, 100, 5),
            "random_state": 0,
            "max_leaves": 64,
        }
        worker.ask("fit", estimator="ydf", parameters=parameters)
        return worker, worker.ask("versions")

    def __exit__(self, *error):
        if self.running is not None:
            self.running.__exit__(*error)


GROUPS = (one_row, batch, frame, threads, contention, interpreter)
TABLES = {"serve": partial(cells.noted, script="compare.serve", groups=GROUPS)}

if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    with threadpool_limits(1):  # HistGradientBoosting takes all cores otherwise
        groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
