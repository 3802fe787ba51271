"""Blends with a time limit, against single members that fit into it; presets; distilled blends.

    python -m benchmarks.measure.limits limits [--data FOLDER] [--rounds N] [--sets NAME ...]
    python -m benchmarks.measure.limits presets [--data FOLDER] [--rounds N] [--sets NAME ...]
    python -m benchmarks.measure.limits distil [--data FOLDER] [--rounds N] [--sets NAME ...]

``limits``: a blend without a limit is timed on each of ten tables, and so is each of its members
with default parameters, and oblique boosting with a single bag. A blend and oblique boosting are
then given 5, 20, 40 and 70 % of the time of the blend. All run in one thread, one after the other,
on at most 5000 rows, on which nothing else should run at the same time.

Values are geometric means over tables of errors, plus 0.05 %, relative to the single model with
the lowest test error among models that need no more time; if none is as fast, they are relative to
boosting with the limit. This rival is hard to beat, because nobody knows before the test which
member is best. ``boosting`` is oblique boosting with the limit, relative to the same. Notes have
the errors on each table, with the rival in brackets.

``presets``: errors and times of the presets of blends, on training rows only. Blends are fitted on
three quarters of at most 2000 training rows, and measured on the others. Each seed draws other
quarters. Times are processor seconds, so other jobs of the machine hardly count.

``distil``: blends, models distilled from them, and oblique boosting by default and with one bag,
on 30 tables; the other two take as long as all of these. They are fitted on at most 1000 training
rows in three quarters of the training rows, and measured on at most 2000 of the others. Values are
geometric means over tables and seeds of the ratios to oblique boosting by default: of errors (plus
0.05 %), of log losses (with probabilities of at least 0.001), of processor seconds to train and to
predict 1000 rows, and of the bytes of the forests. Notes have the standard errors of the
logarithms. A blend is fitted before a model is distilled from it, which is not part of the time.
"""

import time
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.lib import cells, data, groups, scores
from benchmarks.lib.comparison import EVERY
from benchmarks.lib.models import BLEND, MEMBERS, MODELS
from benchmarks.lib.results import Measure, Row
from skforest import distil as distilled

DATA_SETS = [
    "banana", "churn", "page_blocks", "pima", "segment", "waveform",
    "reg_airfoil", "reg_concrete", "reg_kin8nm", "reg_wind",
]  # fmt: skip
LIMITS = 5, 20, 40, 70  # percent
BOOSTING = "ObliqueBoosting"
OFFSET = 0.05

MEASURES = {
    f"limits/{percent}/{what}": Measure(f"{what}, {percent} % of the time", "ratio", False)
    for percent in LIMITS
    for what in ("blend", "boosting", "overrun")
} | {"limits/free/blend": Measure("blend without a limit", "ratio", False)}
PRESETS = "fast", "balanced", "best"
PRESET_SETS = [
    "pima", "reg_concrete", "german_credit", "reg_airfoil",
    "waveform", "california", "churn", "reg_wind",
]  # fmt: skip
MEASURES |= {
    f"presets/{preset}/{what}-{table}": Measure(f"{what}, preset={preset!r}, {table}", unit, False)
    for preset in PRESETS
    for what, unit in (("error", "%"), ("seconds", "s"))
    for table in PRESET_SETS
}
DISTIL_SETS = [name for name in EVERY if name not in ("mfeat_factors", "ucr_swedishleaf")]
# The models of the group "distil"; one is distilled from the blend before it.
DISTILLED = {"blend": BLEND, "distilled": None, "one bag": BOOSTING, "boosting": BOOSTING}
MEASURES |= {
    f"distil/{what}/{name}": Measure(f"{what}, {name}", "ratio", False)
    for what in ("error-classification", "error-regression", "log-loss", "fit", "predict", "bytes")
    for name in DISTILLED
    if name != "boosting"
}


def _run(name, task, split, seed, clock=time.perf_counter, **params):
    """Error in percent, and seconds of the fit."""
    model = MODELS[name].make(task, seed, np.zeros(split.X_train.shape[1], dtype=bool))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.set_params(**params)
        start = clock()
        model.fit(split.X_train, split.y_train)
        seconds = clock() - start
        predicted = np.ravel(model.predict(split.X_test))
    return scores.error(task, split.y_test, predicted)[0], seconds


def limits(options):
    """Errors with limits of time, relative to the best single model that fits."""
    errors, overruns = {}, {percent: [] for percent in LIMITS}
    for table in options.sets or groups.pick(options, DATA_SETS, DATA_SETS[3:4]):
        task = "regression" if table in data.REGRESSION else "classification"
        for seed in groups.seeds(options):
            split = data.load_table(table, options.data, seed)
            split = split.head(600, 600) if options.quick else split
            found, free = _run(BLEND, task, split, seed)
            single = {name: _run(name, task, split, seed) for name in MEMBERS}
            single["one bag"] = _run(BOOSTING, task, split, seed, n_bags=1)
            best = min(error for error, _ in single.values())
            errors.setdefault("free/blend", []).append((table, found, best))
            print(f"{table}, {seed}: {free:.1f} s, {found:.2f} %, {_shown(single)}", flush=True)
            for percent in LIMITS:
                limit = free * percent / 100
                blend, seconds = _run(BLEND, task, split, seed, time_limit=limit)
                boosting, _ = _run(BOOSTING, task, split, seed, time_limit=limit)
                fitting = [error for error, needed in single.values() if needed <= limit]
                rival = min(fitting, default=boosting)
                errors.setdefault(f"{percent}/blend", []).append((table, blend, rival))
                errors.setdefault(f"{percent}/boosting", []).append((table, boosting, rival))
                overruns[percent].append(seconds / limit)
                print(
                    f"  {percent} %: blend {blend:.2f} % in {seconds / limit:.2f} of the time, "
                    f"boosting {boosting:.2f} %, rival {rival:.2f} %",
                    flush=True,
                )
    for name, of in errors.items():
        ratios = [(ours + OFFSET) / (theirs + OFFSET) for _, ours, theirs in of]
        note = ", ".join(f"{table} {ours:.2f} ({theirs:.2f})" for table, ours, theirs in of)
        yield Row(f"limits/{name}", ratios, note, value=float(np.exp(np.mean(np.log(ratios)))))
    for percent, ratios in overruns.items():
        yield Row(f"limits/{percent}/overrun", ratios, "seconds of the blend over the limit")


def presets(options):
    """Errors and times of the presets of blends."""
    for table in options.sets or groups.pick(options, PRESET_SETS, PRESET_SETS[:1]):
        task = "regression" if table in data.REGRESSION else "classification"
        found = {preset: [] for preset in PRESETS}
        for seed in groups.seeds(options, 2):
            rows = groups.pick(options, 2000, 300)
            split = data.load_table(table, options.data, 0, rows).inner(seed)
            for preset, of in found.items():
                params = {"clock": time.process_time, "preset": preset}
                of.append(_run(BLEND, task, split, seed, **params))
        for preset, of in found.items():
            for what, values in zip(("error", "seconds"), zip(*of)):
                yield Row(f"presets/{preset}/{what}-{table}", list(values))


def distil(options):
    """Errors, times and sizes of models distilled from blends, relative to oblique boosting."""
    found = {}
    for table in options.sets or groups.pick(options, DISTIL_SETS, ["pima", "reg_concrete"]):
        task = "regression" if table in data.REGRESSION else "classification"
        for seed in groups.seeds(options, 1):
            split = data.load_table(table, options.data, 0).inner(seed)
            split = split.head(*groups.pick(options, (1000, 2000), (200, 200)))
            of_models, model = {}, None
            for name, of in DISTILLED.items():
                with threadpool_limits(1), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    start = time.process_time()
                    if of is None:
                        model = distilled(model, split.X_train, random_state=seed)
                    else:
                        is_categorical = np.zeros(split.X_train.shape[1], dtype=bool)
                        model = MODELS[of].make(task, seed, is_categorical)
                        if name == "one bag":
                            model.set_params(n_bags=1)
                        model.fit(split.X_train, split.y_train)
                    seconds = time.process_time() - start
                    of_models[name] = {"fit": seconds} | _measured(model, task, split)
            print(table, seed, {k: v[f"error-{task}"] for k, v in of_models.items()}, flush=True)
            base = of_models.pop("boosting")
            for name, values in of_models.items():
                for what, value in values.items():
                    ratio = value / base[what]
                    found.setdefault(f"distil/{what}/{name}", []).append(ratio)
    for name, ratios in found.items():
        logs = np.log(ratios)
        noise = np.std(logs) / np.sqrt(max(len(logs) - 1, 1))
        yield Row(name, ratios, f"± {noise:.3f}", value=float(np.exp(np.mean(logs))))


def _measured(model, task, split):
    """Error with the offset, log loss, seconds to predict 1000 rows, bytes of the forests."""
    predict = model.predict if task == "regression" else model.predict_proba
    rows, seconds = np.resize(split.X_test, (1000, split.X_test.shape[1])), []
    for _ in range(5):
        start = time.process_time()
        predict(rows)
        seconds.append(time.process_time() - start)
    error = scores.error(task, split.y_test, np.ravel(model.predict(split.X_test)))[0]
    forests = [part.forest_ for part in getattr(model, "members_", {0: model}).values()]
    n_bytes = sum(forest.nbytes for forest in forests)
    found = {"predict": min(seconds), "bytes": n_bytes}
    if task == "regression":
        return found | {"error-regression": error}
    y, proba = split.y_test, predict(split.X_test)
    column = np.searchsorted(model.classes_, y).clip(max=len(model.classes_) - 1)
    right = np.where(model.classes_[column] == y, proba[np.arange(len(y)), column], 0)
    loss = -np.mean(np.log(np.maximum(right, 0.001)))
    return found | {"error-classification": error + OFFSET, "log-loss": float(loss)}


def preset_table(stored):
    """Return the table of errors and times of the presets; the last row has ratios."""
    rows, found = [], stored.of("measure.limits", "presets")
    tables = [name for name in PRESET_SETS if f"presets/fast/error-{name}" in found]
    values = {
        (what, preset): np.array([found[f"presets/{preset}/{what}-{t}"]["value"] for t in tables])
        for what in ("error", "seconds")
        for preset in PRESETS
    }
    for i, name in enumerate(tables):
        of = (
            f"{column[i]:.{2 if what == 'error' else 1}f}" for (what, _), column in values.items()
        )
        rows.append((cells.TITLES.get(name, name.removeprefix("reg_")), *of))
    mean = (
        np.exp(np.mean(np.log(column / values[what, "balanced"])))
        for (what, _), column in values.items()
    )
    rows.append(('relative to "balanced"', *(f"{value:.3f}" for value in mean)))
    head = [f"{what}, {preset}" for what in ("Error in %", "Seconds") for preset in PRESETS]
    return ("Table", *head), rows


def _shown(single):
    return ", ".join(
        f"{name} {error:.2f} % {took:.1f} s" for name, (error, took) in single.items()
    )


GROUPS = (limits, presets, distil)
OPTIONS = groups.SETS | groups.SEEDS
TABLES = {"presets": preset_table}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
