"""Measurements of oblique boosting and of blends: many rows, single rows, settings, images.

    python -m benchmarks.measure.boosting scale [--rounds N] [--quick]
    python -m benchmarks.measure.boosting one-bag [--rounds N] [--quick]
    python -m benchmarks.measure.boosting one-row [--rounds N] [--quick]
    python -m benchmarks.measure.boosting linear-start [--rounds N] [--quick]
    python -m benchmarks.measure.boosting depth [--rounds N] [--quick]
    python -m benchmarks.measure.boosting directions [--rounds N] [--quick]
    python -m benchmarks.measure.boosting few-directions [--rounds N] [--quick]
    python -m benchmarks.measure.boosting classes [--rounds N] [--quick]
    python -m benchmarks.measure.boosting rate [--rounds N] [--quick]
    python -m benchmarks.measure.boosting wide [--rounds N] [--quick]
    python -m benchmarks.measure.boosting boxes [--rounds N] [--n-jobs N] [--quick]

``scale`` fits 50 rounds on 10^6 rows of 50 normal features, as LightGBM does, each in a process of
its own with one thread; ``one-bag`` fits one bag by default and 300 rounds of LightGBM on 5000
rows of the tables with many rows of ``compare.peers``; ``one-row`` predicts single rows of 20
features with models of 500 rounds and with blends. ``linear-start`` compares models that start
from a linear function with others, on splits of the training rows of the regression tables of
``compare.peers``, at three sizes; ``depth`` compares depths of the trees, and ``directions``
numbers of directions, on splits of all training rows of its tables with many rows;
``few-directions`` does so in regression, as ``linear-start`` does. ``classes``
fits models by default on 10^5 rows of 30 features with four classes, and LightGBM with 300 rounds;
times are processor seconds of one thread. ``rate`` learning rates, on splits of at most 2000
training rows of its tables of several classes. ``wide`` compares trees that search some of many
features with trees that search all, on splits of at most 1000 training rows of data sets, and on
simulated ones; five bags by default are compared in time with LightGBM. A round is another split.
``boxes`` compares models with and without `feature_shape`, and manifold forests, by their test
errors on images and signals; a round is another seed and draws other training rows.
"""

import multiprocessing
import resource
import statistics
import time
from functools import partial

import numpy as np
from sklearn.base import is_regressor
from sklearn.datasets import make_friedman1

import skforest
from benchmarks.lib import cells, comparison, data, groups
from benchmarks.lib.groups import pick
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.timing import interleave, mean_sd, ratios, seconds
from skforest.training import boosting_rounds

N_ROUNDS = 50
SEARCHED = boosting_rounds.SEARCHED
SIZES = 300, 1000, 5000  # rows, of which inner splits have three quarters
STARTS = "auto", 1.0, 30.0, 100.0
DEPTHS = "auto", 6, 8
RATES = 0.2, 0.3
DIRECTIONS = ("auto",)
CLASSES = (  # tables with four classes and more
    "krkopt",
    "mfeat_factors",
    "nursery",
    "page_blocks",
    "segment",
    "soybean",
    "ucr_ecg5000",
    "ucr_swedishleaf",
    "vowel",
    "wine_quality_white_cls",
)
WIDE = "madelon", "mnist", "simulated"
BOX_MODELS = "boosting", "boosting, boxes", "manifold forest, boxes"
BOX_ROWS = 4000  # that train, at most
MEASURES = {
    "scale/time": Measure("fit of 50 rounds, 10^6 x 50, LightGBM over ours", "x"),
    "scale/memory": Measure("peak memory of fit without X, 10^6 x 50", "MiB", more=False),
    "one-bag/time": Measure("fit of one bag, 5000 rows, over LightGBM", "x", more=False),
    "one-row/boosting": Measure("predict of one row, 500 rounds in one bag", "us", more=False),
    "one-row/blend": Measure("predict of one row, blend of 4 kinds", "us", more=False),
    **{
        f"linear-start/{n}-{start}": Measure(
            f"error with linear_start={start!r} over that with None, {n} rows", "x", more=False
        )
        for n in SIZES
        for start in STARTS
    },
    **{
        f"depth/{depth}": Measure(
            f"error with max_depth={depth!r} over that with 4, many rows", "x", more=False
        )
        for depth in DEPTHS
    },
    **{
        f"directions/{n}": Measure(
            f"error with n_directions={n!r} over that with 64, many rows", "x", more=False
        )
        for n in DIRECTIONS
    },
    **{
        f"few-directions/{n}": Measure(
            f"error of regression with n_directions=32 over that with 64, {n} rows",
            "x",
            more=False,
        )
        for n in SIZES
    },
    **{
        f"classes/{name}-{what}": Measure(
            f"{text} of {name}, 10^5 x 30, four classes", unit, False
        )
        for name in ("skforest", "LightGBM")
        for what, text, unit in (("time", "fit", "s"), ("error", "error", "%"))
    },
    **{
        f"rate/{rate}": Measure(
            f"error with learning_rate={rate} over that with 0.1, several classes", "x", more=False
        )
        for rate in RATES
    },
    **{
        f"wide/{name}": Measure(
            f"error with some features per tree over that with all, {name}", "x", more=False
        )
        for name in WIDE
    },
    "wide/time": Measure("fit of 200 rows of 5000 features, over LightGBM", "x", more=False),
    **{
        f"boxes/{name}/{model}": Measure(f"test error, {model}, {name}", "%", more=False)
        for name in data.SHAPES
        for model in BOX_MODELS
    },
}


def scale(options):
    """Time and memory of a fit on many rows."""
    n_rows = pick(options, 10**6, 20_000)
    models = {"skforest": _boosting, "LightGBM": _lightgbm}
    measured = interleave(
        {name: lambda _, make=make: _in_process(make, n_rows) for name, make in models.items()},
        options.rounds or 1,
        warm_up=False,
    )
    times = {name: [run[0] for run in runs] for name, runs in measured.items()}
    memory = {name: [run[1] for run in runs] for name, runs in measured.items()}
    matrix = n_rows * 50 * 4 / 2**20
    note = ", ".join(f"{name} {statistics.median(v):.1f} s" for name, v in times.items())
    yield Row("scale/time", ratios(times["LightGBM"], times["skforest"]), note)
    note = f"LightGBM {statistics.median(memory['LightGBM']):.0f} MiB; X is {matrix:.0f} MiB"
    yield Row("scale/memory", memory["skforest"], note)


def _boosting():
    return skforest.ObliqueBoostingRegressor(
        N_ROUNDS, n_bags=1, early_stopping=False, random_state=0
    )


def _lightgbm():
    import lightgbm

    return lightgbm.LGBMRegressor(n_estimators=N_ROUNDS, n_jobs=1, verbose=-1, random_state=0)


def _in_process(make, n_rows):
    """Seconds of a fit in a new process, and the MiB that it adds to the peak of its memory."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_fit, args=(make, n_rows, queue))
    process.start()
    result = queue.get()
    process.join()
    return result


def _fit(make, n_rows, queue):
    random = np.random.default_rng(0)
    X = random.standard_normal((n_rows, 50), dtype=np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(X[:, 2]) + X[:, 3:8].sum(axis=1)
    y += random.standard_normal(n_rows, dtype=np.float32) / 2
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    make().fit(X, y)
    passed = time.perf_counter() - start
    queue.put((passed, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024))


def one_bag(options):
    """Processor seconds of one bag, and of LightGBM with 300 rounds."""
    import lightgbm

    fixed = {"n_estimators": pick(options, 300, 10), "num_threads": 1, "verbose": -1}
    quick = {"classification": ["magic"], "regression": ["reg_pol"]}
    sets = pick(options, comparison.LARGE, quick)
    kinds = {
        "classification": (skforest.ObliqueBoostingClassifier, lightgbm.LGBMClassifier),
        "regression": (skforest.ObliqueBoostingRegressor, lightgbm.LGBMRegressor),
    }
    found, names = [], [(task, name) for task, names in sets.items() for name in names]
    for task, name in names:
        own, other = kinds[task]
        split = data.load_table(name, options.data, 0, pick(options, 5000, 300))
        for seed in range(options.rounds or 1):
            models = own(n_bags=1, random_state=seed), other(**fixed, random_state=seed)
            times = [_error_and_time(model, split)[1] for model in models]
            found.append((times[0] / times[1], name))
    mean = np.exp(np.mean(np.log([ratio for ratio, _ in found])))
    (low, fast), (high, slow) = min(found), max(found)
    note = f"{len(names)} tables, {low:.1f} ({fast}) to {high:.1f} ({slow})"
    yield Row("one-bag/time", [mean], note)


def one_row(options):
    """Time to predict one row of an array."""
    X, y = make_friedman1(pick(options, 2000, 200), 20, noise=1.0, random_state=0)
    n_rounds = pick(options, 500, 20)
    boosting = skforest.ObliqueBoostingRegressor(
        n_rounds, n_bags=1, early_stopping=False, random_state=0
    )
    for name, model in (
        ("boosting", boosting),
        ("blend", skforest.BlendedForestRegressor(random_state=0)),
    ):
        model.fit(X, y)
        model.predict(X[:1])
        times = [
            1e6 * min(seconds(model.predict, X[i : i + 1]) for i in range(100))
            for _ in range(options.rounds or 5)
        ]
        yield Row(f"one-row/{name}", times)


def linear_start(options):
    """Errors of models that start from a linear function, over those of others."""
    for n, found in _in_regression(options, "linear_start", (None, *STARTS)):
        yield from _ratios([f"linear-start/{n}-{start}" for start in STARTS], found)


def few_directions(options):
    """Errors of regression with 32 directions, over those with 64."""
    for n, found in _in_regression(options, "n_directions", (64, 32)):
        yield from _ratios([f"few-directions/{n}"], found)


def _in_regression(options, parameter, values):
    """Yield a number of rows, and errors and times of fits with each value of a parameter."""
    names = pick(options, comparison.TASKS["regression"], ["reg_airfoil"])
    cls = skforest.ObliqueBoostingRegressor
    for n in pick(options, SIZES, (300,)):
        found = []
        for name in names:
            for seed in range(options.rounds or 1):
                split = data.load_table(name, options.data, 0, n).inner(seed)
                models = (cls(**{parameter: value}, random_state=seed) for value in values)
                found.append([_error_and_time(model, split) for model in models])
        yield n, found


def depth(options):
    """Errors of models with several depths, over those with 4, on tables with many rows."""
    yield from _on_many_rows(options, "depth", "max_depth", (4, *DEPTHS))


def directions(options):
    """Errors with several numbers of directions, over those with 64, on tables with many rows."""
    yield from _on_many_rows(options, "directions", "n_directions", (64, *DIRECTIONS))


def _on_many_rows(options, group, parameter, values):
    """Errors with several values of a parameter, over those with the first one."""
    quick = {"classification": ["magic"], "regression": ["reg_pol"]}
    sets, found = pick(options, comparison.LARGE, quick), []
    kinds = {
        "classification": skforest.ObliqueBoostingClassifier,
        "regression": skforest.ObliqueBoostingRegressor,
    }
    for task, names in sets.items():
        for name in names:
            for seed in range(options.rounds or 1):
                n_rows = pick(options, None, 300)
                split = data.load_table(name, options.data, 0, n_rows).inner(seed)
                cls = kinds[task]
                models = (cls(**{parameter: value}, random_state=seed) for value in values)
                found.append([_error_and_time(model, split) for model in models])
    yield from _ratios([f"{group}/{value}" for value in values[1:]], found)


def classes(options):
    """Times and errors on many rows of four classes, which depend on sums of features."""
    import lightgbm

    n_rows, n_rounds = pick(options, (100_000, 1000), (2000, 20))
    models = {
        "skforest": lambda seed: skforest.ObliqueBoostingClassifier(
            n_rounds, n_jobs=1, random_state=seed
        ),
        "LightGBM": lambda seed: lightgbm.LGBMClassifier(
            n_estimators=3 * n_rounds // 10, n_jobs=1, verbose=-1, random_state=seed
        ),
    }
    tables = [_four_classes(n_rows + 20_000, seed) for seed in range(options.rounds or 1)]
    for name, make in models.items():
        times, errors = [], []
        for seed, (X, y) in enumerate(tables):
            split = data.Split(X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:])
            error, spent = _error_and_time(make(seed), split)
            times.append(spent)
            errors.append(error - comparison.OFFSET)
        yield Row(f"classes/{name}-time", times)
        yield Row(f"classes/{name}-error", errors)


def _four_classes(n, seed):
    """Rows of 30 normal features, and the largest of four noisy smooth scores."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 30), dtype=np.float32)
    first, last = random.standard_normal((30, 8)) / np.sqrt(30), random.standard_normal((8, 4))
    score = np.tanh(2 * X @ first) @ last + np.sin(2 * X[:, :4]) / 2
    return X, np.argmax(score + 0.3 * random.gumbel(size=score.shape), axis=1)


def rate(options):
    """Errors of models with several learning rates, over those with 0.1, on several classes."""
    found = []
    for name in pick(options, CLASSES, ["pima"]):
        for seed in range(options.rounds or 1):
            split = data.load_table(name, options.data, 0, pick(options, 2000, 300)).inner(seed)
            cls = skforest.ObliqueBoostingClassifier
            models = (cls(learning_rate=rate, random_state=seed) for rate in (0.1, *RATES))
            found.append([_error_and_time(model, split) for model in models])
    yield from _ratios([f"rate/{rate}" for rate in RATES], found)


def wide(options):
    """Errors of models whose trees search some of many features, over those that search all."""
    for name in pick(options, WIDE, ["madelon"]):
        found = []
        for seed in range(options.rounds or 1):
            split = _wide(name, options).inner(seed).head(1000)
            own = []
            for most in (10**9, SEARCHED):
                boosting_rounds.SEARCHED = most
                model = skforest.ObliqueBoostingClassifier(random_state=seed)
                own.append(_error_and_time(model, split))
            found.append(own)
        yield from _ratios([f"wide/{name}"], found)
    import lightgbm

    random = np.random.default_rng(0)
    X = random.standard_normal(pick(options, (200, 5000), (100, 400)), dtype=np.float32)
    given = X, (X[:, :20] @ random.standard_normal(20) > 0).astype(int)
    models = (
        skforest.ObliqueBoostingClassifier(random_state=0),
        lightgbm.LGBMClassifier(verbose=-1),
    )
    fits = {
        name: lambda _, model=model: seconds(model.set_params(n_jobs=1).fit, *given)
        for name, model in zip(("skforest", "LightGBM"), models)
    }
    times = interleave(fits, options.rounds or 1, warm_up=False)
    note = ", ".join(f"{name} {statistics.median(found):.1f} s" for name, found in times.items())
    yield Row("wide/time", ratios(times["skforest"], times["LightGBM"]), note)


def _wide(name, options):
    """Rows of a data set, or of 1000 normal features, of which 20 make two classes."""
    if name != "simulated":
        return groups.load(name, options)
    random = np.random.default_rng(0)
    X = random.standard_normal((4000, 1000), dtype=np.float32)
    y = X[:, :20] @ random.standard_normal(20) + random.standard_normal(4000) > 0
    return data.Split(X, y.astype(int), X, y)


def boxes(options):
    """Test errors on images and signals, with and without `feature_shape`."""
    for name in pick(options, data.SHAPES, ["usps"]):
        split = groups.load(name, options)
        X_train, X_test = (X.reshape(len(X), -1) for X in (split.X_train, split.X_test))
        errors = {model: [] for model in BOX_MODELS}
        for seed in range(options.rounds or 3):
            rows = np.random.RandomState(seed).permutation(len(X_train))[:BOX_ROWS]
            own = {"random_state": seed, "n_jobs": options.n_jobs}
            shaped = own | {"feature_shape": data.SHAPES[name]}
            if options.quick:
                own["n_estimators"] = shaped["n_estimators"] = 20
            models = (
                skforest.ObliqueBoostingClassifier(**own),
                skforest.ObliqueBoostingClassifier(**shaped),
                skforest.ManifoldForestClassifier(**shaped),
            )
            for found, model in zip(errors.values(), models):
                model.fit(X_train[rows], split.y_train[rows])
                found.append(100 * (1 - model.score(X_test, split.y_test)))
        for model, found in errors.items():
            yield Row(f"boxes/{name}/{model}", found, f"{mean_sd(found)} %")


def _error_and_time(model, split):
    """Error on test rows, in percent plus `comparison.OFFSET`, and seconds of the fit."""
    start = time.process_time()
    model.fit(split.X_train, split.y_train)
    spent = time.process_time() - start
    predicted, y = model.predict(split.X_test), split.y_test
    error = np.mean(predicted != y)
    if is_regressor(model):
        error = np.sqrt(np.mean((predicted - y) ** 2)) / np.std(y)
    return 100 * error + comparison.OFFSET, spent


def _ratios(names, found):
    """Rows of geometric means of errors over those of the first of several models."""
    logs = np.log(found)
    for number, name in enumerate(names, 1):
        error, spent = (logs[:, number] - logs[:, 0]).T
        noise = np.std(error) / np.sqrt(len(error))
        note = f"{len(error)} fits, +- {noise:.3f}, fit time {np.exp(spent.mean()):.2f}"
        yield Row(name, [np.exp(error.mean())], note)


def start_table(stored):
    """Return the table of the errors with a linear start, by the number of rows."""
    columns = [(n,) for n in SIZES]
    rows = cells.pivot(stored, STARTS, columns, "measure.boosting:linear-start/{1}-{0}")
    return ("`linear_start`", *(f"{n} rows" for n in SIZES), "Command"), rows


def boxes_table(stored):
    """Return the table of the errors on images and signals."""
    columns = [(name,) for name in data.SHAPES]
    rows = cells.pivot(stored, BOX_MODELS, columns, "measure.boosting:boxes/{1}/{0}")
    return ("", *(cells.TITLES[name] for name in data.SHAPES), "Command"), rows


GROUPS = (
    scale,
    one_bag,
    one_row,
    linear_start,
    depth,
    directions,
    few_directions,
    classes,
    rate,
    wide,
    boxes,
)
NOTED = partial(cells.noted, script="measure.boosting")
TABLES = {
    "boosting": partial(NOTED, groups=(scale, classes, one_bag, one_row)),
    "boosting_start": start_table,
    "boosting_depth": partial(NOTED, groups=(depth, directions, few_directions)),
    "boosting_rate": partial(NOTED, groups=(rate,)),
    "boosting_wide": partial(NOTED, groups=(wide,)),
    "boosting_boxes": boxes_table,
}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES)
