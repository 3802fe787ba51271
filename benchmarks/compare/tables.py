"""Tables as they come: categories and missing values, untuned, against gradient boosting.

    python -m benchmarks.compare.tables choose [--data FOLDER] [--rounds N] [--models NAME ...]
    python -m benchmarks.compare.tables categories [--data FOLDER] [--rounds N] [--models NAME ...]
    python -m benchmarks.compare.tables holes [--data FOLDER] [--rounds N] [--models NAME ...]

``choose`` compares features that categories may become, on a quarter of the training rows; no
features are dropped there.
``categories`` fits the tables that have categorical columns. Our estimators and the rivals are
given the categories; ours are given integer codes, too. ``holes`` removes 10 or 30 % of the
entries of all tables, at random or the larger ones more often, and fits them as they are, and
filled with the medians of the training rows, without and with indicators of missing values.

Nothing is tuned: a model gets `random_state`, one thread and silence. At most 5000 rows train. The
value of a row is the geometric mean over tables of errors relative to those of the same model with
codes, or with the better of both imputations; of a rival, relative to RandomForest on codes and
medians. Errors are those of ``compare.peers``, plus 0.05 %. The notes of rows have the
errors on each table.
"""

import re
import warnings

import joblib
import numpy as np
from sklearn.impute import SimpleImputer
from threadpoolctl import threadpool_limits

from benchmarks.lib import cells, data, groups, scores
from benchmarks.lib.models import MODELS, OURS, REFERENCE
from benchmarks.lib.results import Measure, Row
from skforest.estimators import base
from skforest.table import feature_map

RIVALS = ["HistGradientBoosting", "LightGBM", "CatBoost"]
ALL = [*OURS, REFERENCE, *RIVALS]
# Most levels with an indicator each, and fewest with target statistics, by the name of a choice.
SETTINGS = {
    "codes": (0, 2**31),
    "indicators-5": (5, 2**31),
    "indicators-10": (10, 2**31),
    "indicators-64": (64, 2**31),
    "targets": (0, 3),
    "targets-6": (0, 6),
    "targets-11": (0, 11),
    "indicators-5-targets-6": (5, 6),
    "indicators-10-targets-11": (10, 11),
    "indicators-10-targets": (10, 3),
}
HOLES = [f"{how}-{rate}" for how in ("random", "large") for rate in (10, 30)]
OFFSET = 0.05

MEASURES = {
    **{f"categories/{model}": Measure(f"{model}, categories", "ratio", False) for model in ALL},
    **{
        f"choose/{setting}/{model}": Measure(f"{model}, {setting}", "ratio", False)
        for setting in SETTINGS
        for model in OURS
    },
    **{
        f"holes/{holes}/{model}": Measure(f"{model}, {holes} % missing", "ratio", False)
        for holes in HOLES
        for model in ALL
    },
}


def _error(job, options):
    """Error in percent of one fit."""
    name, task, table, seed, treatment, holes = job
    split, mask = data.load_raw_table(table, options.data, seed)
    if options.group == "choose":
        # Test rows must not choose: a quarter of the training rows takes their place.
        first, last = np.split(np.arange(len(split.X_train)), [len(split.X_train) * 3 // 4])
        split = data.Split(
            split.X_train[first], split.y_train[first], split.X_train[last], split.y_train[last]
        )
        treatment, setting = "native", treatment
        feature_map.MAX_INDICATORS, feature_map.MIN_TARGET_LEVELS = SETTINGS[setting]
        base.useful_features = lambda training_set, *_: training_set
    X_train, X_test = split.X_train, split.X_test
    if holes:
        X_train, X_test = _with_holes(X_train, X_test, holes, seed)
    # Not every rival takes columns without any value.
    has_values = ~np.isnan(X_train).all(axis=0)
    X_train, X_test, mask = X_train[:, has_values], X_test[:, has_values], mask[has_values]
    if treatment != "native":
        mask = np.zeros_like(mask)
    if treatment in ("median", "indicator"):
        imputer = SimpleImputer(
            strategy="median", add_indicator=treatment == "indicator", keep_empty_features=True
        )
        X_train, X_test = imputer.fit_transform(X_train), imputer.transform(X_test)
        mask = np.zeros(X_train.shape[1], dtype=bool)
    if mask.any():
        levels = data.levels(X_train)
        X_train, X_test = (MODELS[name].frame(X, mask, levels) for X in (X_train, X_test))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MODELS[name].make(task, seed, mask).fit(X_train, split.y_train)
        return scores.error(task, split.y_test, np.ravel(model.predict(X_test)))[0]


def _with_holes(X_train, X_test, holes, seed):
    """Remove entries: a share of all at random, or with the odds of the rank in the column."""
    how, rate = holes.split("-")
    rate = int(rate) / 100
    random = np.random.RandomState(1000 + seed)
    parts = []
    for X in (X_train, X_test):
        chance = np.full(X.shape, rate)
        if how == "large":
            # Ranks among the training rows, so that both parts lose the same values.
            rank = np.stack(
                [
                    np.searchsorted(np.sort(own), column) / len(own)
                    for own, column in zip(X_train.T, X.T)
                ],
                axis=1,
            )
            chance = 2 * rate * rank
        parts.append(np.where(random.uniform(size=X.shape) < chance, np.nan, X))
    return parts


def _tasks(options, tables):
    names = options.sets or tables
    return {name: "regression" if name in data.REGRESSION else "classification" for name in names}


def _errors(options, jobs):
    """Mean errors over seeds, by model, treatment and table."""
    if options.quick:
        jobs = jobs[:6]
    runs = joblib.Parallel(options.n_jobs, return_as="generator")(
        joblib.delayed(_error)(job, options) for job in jobs
    )
    found = {}
    for (name, _, table, seed, treatment, holes), error in zip(jobs, runs, strict=True):
        key = name, treatment, holes
        found.setdefault(key, {}).setdefault(table, []).append(error)
        print(
            f"{name}, {treatment}, {table}, {holes or ''} seed {seed}: {error:.2f} %", flush=True
        )
    return {
        key: {table: float(np.mean(errors)) for table, errors in of.items()}
        for key, of in found.items()
    }


def _ratios(ours, theirs):
    return [(ours[table] + OFFSET) / (theirs[table] + OFFSET) for table in ours if table in theirs]


def _row(name, ours, theirs):
    ratios = _ratios(ours, theirs)
    note = ", ".join(f"{table} {ours[table]:.2f} ({theirs[table]:.2f})" for table in ours)
    return Row(name, ratios, note, value=float(np.exp(np.mean(np.log(ratios)))))


def categories(options):
    """Errors with categories, relative to those with codes."""
    tasks = _tasks(options, data.WITH_CATEGORIES)
    treatments = {model: ["codes", "native"] if model in OURS else ["native"] for model in ALL}
    treatments[REFERENCE] = ["median"]
    jobs = [
        (model, task, table, seed, treatment, None)
        for table, task in tasks.items()
        for seed in range(options.rounds or 3)
        for model in options.models
        for treatment in treatments[model]
    ]
    found = _errors(options, jobs)
    for model in options.models:
        own = found.get((model, "native", None)) or found.get((model, "median", None))
        base = found.get((model, "codes", None)) or found.get((REFERENCE, "median", None))
        if own and base:
            yield _row(f"categories/{model}", own, base)


def choose(options):
    """Errors with several features of categories, relative to codes; training rows only."""
    models = [model for model in options.models if model in OURS]
    jobs = [
        (model, task, table, seed, setting, None)
        for table, task in _tasks(options, data.WITH_CATEGORIES).items()
        for seed in range(options.rounds or 3)
        for model in models
        for setting in SETTINGS
    ]
    found = _errors(options, jobs)
    for model in models:
        for setting in SETTINGS:
            own, base = (found.get((model, how, None)) for how in (setting, "codes"))
            if own and base:
                yield _row(f"choose/{setting}/{model}", own, base)


def holes(options):
    """Errors with missing values, relative to those of the better imputation."""
    tasks = _tasks(options, [*data.CLASSIFICATION, *data.REGRESSION])
    treatments = {
        model: ["native", "median", "indicator"] if model in OURS else ["native"] for model in ALL
    }
    treatments[REFERENCE] = ["median"]
    for kind in options.kinds or HOLES:
        jobs = [
            (model, task, table, seed, treatment, kind)
            for table, task in tasks.items()
            for seed in range(options.rounds or 1)
            for model in options.models
            for treatment in treatments[model]
        ]
        found = _errors(options, jobs)
        for model in options.models:
            own = found.get((model, treatments[model][0], kind))
            imputed = [found.get((model, how, kind)) for how in ("median", "indicator")]
            if all(imputed):
                # The better of both over all tables, not on each of them.
                scale = [np.sum(np.log(np.array([*of.values()]) + OFFSET)) for of in imputed]
                base = imputed[int(np.argmin(scale))]
            else:
                base = found.get((REFERENCE, "median", kind))
            if own and base:
                yield _row(f"holes/{kind}/{model}", own, base)


def categories_table(stored):
    """Return the table of errors on tables with categories."""
    reference = _noted_errors(stored[f"compare.tables:categories/{REFERENCE}"])
    rows = []
    for model in ALL:
        row = stored.get(f"compare.tables:categories/{model}")
        if not row:
            continue
        errors, bases = _noted_errors(row), _noted_errors(row, 1)
        form = "{:.2f} ({:.2f})" if model in OURS else "{:.2f}"
        of_tables = (
            form.format(errors[name], bases[name]) if name in errors else ""
            for name in data.WITH_CATEGORIES
        )
        to_codes = f"{row['value']:.3f}" if model in OURS else ""
        relative = _relative(errors, reference)
        rows.append((model, *of_tables, to_codes, relative, cells.commands([row], True)))
    head = ("Model", *data.WITH_CATEGORIES, "To codes", "To RandomForest", "Command")
    return head, rows


def holes_table(stored):
    """Return the table of errors on tables from which entries were removed."""
    rows = []
    for model in ALL:
        found = [stored.get(f"compare.tables:holes/{kind}/{model}") for kind in HOLES]
        errors = []
        for kind, row in zip(HOLES, found):
            reference = _noted_errors(stored[f"compare.tables:holes/{kind}/{REFERENCE}"])
            cell = _relative(_noted_errors(row), reference)
            if row and model in OURS:
                cell += f" ({row['value']:.3f})"
            errors.append(cell)
        rows.append((model, *errors, cells.commands(found, True)))
    titles = (f"{rate} %, {how}" for how, rate in (kind.split("-") for kind in HOLES))
    return ("Model", *titles, "Command"), cells.filled(rows)


def choose_table(stored):
    """Return the table of the features that were compared for categories."""
    columns = [(model,) for model in OURS]
    rows = cells.pivot(stored, SETTINGS, columns, "compare.tables:choose/{0}/{1}")
    return ("Features of categories", *OURS, "Command"), cells.filled(rows)


def _noted_errors(row, which=0):
    """Errors by table, of the model or (1) of what it is compared with, from the note of a row."""
    found = re.findall(r"(\w+) ([\d.]+) \(([\d.]+)\)", row["note"]) if row else []
    return {name: float(errors[which]) for name, *errors in found}


def _relative(errors, reference):
    """Format the geometric mean of errors relative to those of another model."""
    ratios = _ratios(errors, reference)
    return f"{np.exp(np.mean(np.log(ratios))):.3f}" if ratios else ""


GROUPS = (choose, categories, holes)
OPTIONS = groups.SETS | {
    "--models": {"nargs": "*", "choices": ALL, "default": ALL},
    "--kinds": {"nargs": "*", "choices": HOLES, "help": "some ways of removing only"},
}
TABLES = {
    "tables_categories": categories_table,
    "tables_holes": holes_table,
    "tables_choose": choose_table,
}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
