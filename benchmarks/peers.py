"""Error and fit time of forests and gradient boosting, every estimator with default settings.

    python benchmarks/peers.py tables [--data FOLDER] [--rounds N] [--models NAME ...]
    python benchmarks/peers.py images [--data FOLDER] [--rounds N] [--models NAME ...]

``tables`` fits every model on the same splits of 22 classification and 10 regression tables,
``images`` on letters, digits and satellite pixels. Errors and fit times go to
``benchmarks/results/peers.json`` and ``peers_images.json``.

Nothing is tuned: a model gets `random_state`, one thread and silence. All see the same matrix; of
tables at most 5000 training rows, missing values replaced by medians, categories as 0/1 columns.
The error of a classifier is the share of wrong labels, that of a regressor the root mean squared
error divided by the standard deviation of the test targets, both in percent. Fit times are
processor seconds, which depend little on what else the machine does.
"""

import importlib
import time

import data
import groups
import joblib
import numpy as np
import results
from threadpoolctl import threadpool_limits
from timing import environment

TABLES = {"classification": data.CLASSIFICATION, "regression": data.REGRESSION}
IMAGES = {"classification": ["letter", "letter_libsvm", "usps", "pendigits", "satimage", "mnist"]}
REFERENCE = "RandomForest"
ONE_THREAD = {"n_jobs": 1}
# Module, classifier, regressor, and the parameters that mean one thread and no output.
MODELS = {
    "RandomForest": (
        "sklearn.ensemble",
        "RandomForestClassifier",
        "RandomForestRegressor",
        ONE_THREAD,
    ),
    "HistGradientBoosting": (
        "sklearn.ensemble",
        "HistGradientBoostingClassifier",
        "HistGradientBoostingRegressor",
        {},
    ),
    "LightGBM": ("lightgbm", "LGBMClassifier", "LGBMRegressor", ONE_THREAD | {"verbose": -1}),
    "CatBoost": (
        "catboost",
        "CatBoostClassifier",
        "CatBoostRegressor",
        {"thread_count": 1, "verbose": 0, "allow_writing_files": False},
    ),
    "ManifoldForest": (
        "skforest",
        "ManifoldForestClassifier",
        "ManifoldForestRegressor",
        ONE_THREAD,
    ),
    "CO2Forest": ("skforest", "CO2ForestClassifier", "CO2ForestRegressor", ONE_THREAD),
    "NonGreedyForest": (
        "skforest",
        "NonGreedyForestClassifier",
        "NonGreedyForestRegressor",
        ONE_THREAD,
    ),
    "E2EDecisionForest": (
        "skforest",
        "E2EDecisionForest",
        "E2EDecisionForestRegressor",
        ONE_THREAD,
    ),
    "RandomHingeForest": (
        "skforest",
        "RandomHingeForestClassifier",
        "RandomHingeForestRegressor",
        ONE_THREAD,
    ),
    "ObliqueBoosting": (
        "skforest",
        "ObliqueBoostingClassifier",
        "ObliqueBoostingRegressor",
        ONE_THREAD,
    ),
    "BlendedForest": (
        "skforest",
        "BlendedForestClassifier",
        "BlendedForestRegressor",
        ONE_THREAD,
    ),
}
OURS = [name for name, (module, *_) in MODELS.items() if module == "skforest"]


def tables(options):
    """Measure all models on the 32 tables."""
    quick = {"classification": ["pima"], "regression": ["reg_airfoil"]}
    return _measure(options, groups.pick(options, TABLES, quick), _table, "peers.json")


def images(options):
    """Measure all models on letters, digits and satellite pixels."""
    quick = {"classification": ["satimage"]}
    return _measure(options, groups.pick(options, IMAGES, quick), _image, "peers_images.json")


def _table(name, seed, options):
    return data.load_table(name, options.data, seed, groups.pick(options, 5000, 300))


def _image(name, seed, options):
    return groups.load(name, options)


def _measure(options, sets, load, file):
    """Fit all models on all sets, one seed after another, and store each run."""
    path = options.results / file
    stored = results.read(path)
    jobs = [
        (model, task, name, seed)
        for seed in range(options.rounds or 3)
        for task, names in sets.items()
        for name in names
        for model in options.models
        if not options.sets or name in options.sets
    ]
    for model, _, name, _ in jobs:
        entry = stored.setdefault(model, {"errors": {}, "seconds": {}})
        entry |= {"command": options.command, "environment": environment()}
        entry["errors"][name], entry["seconds"][name] = [], []
    runs = joblib.Parallel(options.n_jobs, return_as="generator")(
        joblib.delayed(_run)(*job, load, options) for job in jobs
    )
    for (model, _, name, seed), (error, seconds) in zip(jobs, runs, strict=True):
        stored[model]["errors"][name].append(round(error, 4))
        stored[model]["seconds"][name].append(round(seconds, 4))
        results.write(path, stored)
        print(f"{model}, {name}, seed {seed}: {error:.2f} %, {seconds:.2f} s", flush=True)
    return ()


def _run(model, task, name, seed, load, options):
    """Error in percent and processor seconds of one fit."""
    split = load(name, seed, options)
    module, *kinds, parameters = MODELS[model]
    kind = getattr(importlib.import_module(module), kinds[task == "regression"])
    with threadpool_limits(1):
        start = time.process_time()
        estimator = kind(random_state=seed, **parameters).fit(split.X_train, split.y_train)
        seconds = time.process_time() - start
        predicted = np.ravel(estimator.predict(split.X_test))
    if task == "classification":
        return 100 * float(np.mean(predicted != split.y_test)), seconds
    residual = np.asarray(split.y_test, dtype=np.float64) - predicted
    return 100 * float(np.sqrt(np.mean(residual**2)) / np.std(split.y_test)), seconds


def relative(stored, model, names, what="errors", offset=0.0):
    """Means over seeds, divided by those of RandomForest, for each data set.

    Parameters
    ----------
    stored : dict
        As `results.read` returns it.
    model : str
    names : list of str
        Data sets.
    what : {"errors", "seconds"}
    offset : float
        Added to both means, since an error may be 0.

    Returns
    -------
    ndarray
    """
    return np.array([
        (np.mean(ours) + offset) / (np.mean(theirs[: len(ours)]) + offset)
        for ours, theirs in (
            (stored[model][what][name], stored[REFERENCE][what][name]) for name in names
        )
    ])  # fmt: skip


def summary(stored):
    """Summarize the runs of the models that were fitted on all tables.

    Parameters
    ----------
    stored : dict
        As `results.read` returns it.

    Returns
    -------
    dict of str to dict
        By model: geometric means and medians of the relative errors, number of tables on which the
        error is smaller than that of RandomForest, median fit time, geometric mean of the relative
        fit times, and numbers of seeds.
    """
    every = [*data.CLASSIFICATION, *data.REGRESSION]
    found = {}
    for model in (name for name in MODELS if name in stored):
        if not stored[model]["errors"].keys() >= set(every):
            continue
        means = {}
        for task, names in TABLES.items():
            ratios = relative(stored, model, names, offset=0.05)
            means |= {task: _geometric(ratios), f"{task}_median": float(np.median(ratios))}
        smaller = relative(stored, model, every) if model != REFERENCE else np.ones(1)
        seconds = [np.mean(stored[model]["seconds"][name]) for name in every]
        found[model] = {
            **means,
            "better": int(np.sum(smaller < 1)),
            "seconds": float(np.median(seconds)),
            "time": _geometric(relative(stored, model, every, "seconds")),
            "seeds": sorted({len(runs) for runs in stored[model]["errors"].values()}),
        }
    return found


def _geometric(values):
    return float(np.exp(np.mean(np.log(values))))


if __name__ == "__main__":
    groups.main(
        __doc__,
        (tables, images),
        options=groups.SETS
        | {"--models": {"nargs": "*", "choices": MODELS, "default": list(MODELS)}},
    )
