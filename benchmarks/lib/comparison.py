"""Comparisons of models from stored results: means, ranks, and the blend with its members."""

import numpy as np
from scipy import stats

from benchmarks.lib import data
from benchmarks.lib.models import BLEND, MEMBERS, MODELS, REFERENCE

TASKS = {"classification": data.CLASSIFICATION, "regression": data.REGRESSION}
EVERY = [*data.CLASSIFICATION, *data.REGRESSION]
# Tables with 10,000 training rows and more.
LARGE = {
    "classification": ["adult", "electricity", "krkopt", "magic", "nursery"],
    "regression": [
        "california",
        "reg_bike_noleak",
        "reg_elevators",
        "reg_fried",
        "reg_house_16h",
        "reg_pol",
    ],
}
UNSEEN = {
    "classification": list(data.UNSEEN_CLASSIFICATION),
    "regression": list(data.UNSEEN_REGRESSION),
}
MEASURES = ("errors", "noise", "seconds", "predict_us", "losses", "log_loss", "calibration")
# Added to errors in percent, because an error may be 0.
OFFSET = 0.05
LOSS_OFFSET = 0.01  # added to losses: 1 - AUC and errors in percent, and log losses
# An error this much larger than that of the best member counts as worse.
TOLERANCE = 1.15


def with_raw(stored, raw):
    """Return runs on all tables, those with categories or missing values as they are.

    The other tables are the same in both forms. RandomForest keeps its runs.

    Parameters
    ----------
    stored, raw : dict
        As `results.read` returns them.

    Returns
    -------
    dict
        Runs of RandomForest and of models that were fitted on all raw tables.
    """
    fitted = [name for name in raw if raw[name].get("errors", {}).keys() >= set(data.RAW)]
    return {
        name: {
            what: {**stored[name].get(what, {}), **raw.get(name, {}).get(what, {})}
            for what in MEASURES
        }
        for name in (REFERENCE, *fitted)
        if name in stored
    }


def mean(stored, model, name, what="errors"):
    """Return the mean of a measure over the seeds of a data set; None if it is not stored."""
    runs = stored[model].get(what, {}).get(name)
    return float(np.mean(runs)) if runs else None


def relative(stored, model, names, what="errors", offset=0.0, base=REFERENCE):
    """Return means over seeds, divided by those of another model, for each data set.

    Parameters
    ----------
    stored : dict
        As `results.read` returns it.
    model : str
    names : list of str
        Data sets.
    what : {"errors", "seconds"}
    offset : float
        Added to both means.
    base : str
        The model to divide by.

    Returns
    -------
    ndarray
    """
    return np.array([
        (np.mean(ours) + offset) / (np.mean(theirs[: len(ours)]) + offset)
        for ours, theirs in (
            (stored[model][what][name], stored[base][what][name]) for name in names
        )
    ])  # fmt: skip


def complete(stored, tasks=TASKS):
    """Return the names of the models that were fitted on all tables."""
    wanted = {name for names in tasks.values() for name in names}
    return [model for model in MODELS if stored.get(model, {}).get("errors", {}).keys() >= wanted]


def summary(stored, tasks=TASKS):
    """Summarize the runs of the models that were fitted on all tables.

    Parameters
    ----------
    stored : dict
        As `results.read` returns it.
    tasks : dict of str to list of str
        The tables, by task.

    Returns
    -------
    dict of str to dict
        By model: geometric means and medians of the relative errors, number of tables on which
        the error is smaller than that of RandomForest, median fit time, geometric mean of the
        relative fit times, numbers of seeds; geometric means of relative losses and of
        microseconds to predict a row, and means of log loss and calibration error, or None where
        they are not stored for all tables.
    """
    found = {}
    every = [name for names in tasks.values() for name in names]
    classification = tasks["classification"]
    for model in complete(stored, tasks):
        means = {}
        for task, names in tasks.items():
            ratios = relative(stored, model, names, offset=OFFSET)
            means |= {task: _geometric(ratios), f"{task}_median": float(np.median(ratios))}
        smaller = relative(stored, model, every) if model != REFERENCE else np.ones(1)
        found[model] = {
            **means,
            "better": int(np.sum(smaller < 1)),
            "seconds": float(np.median([mean(stored, model, name, "seconds") for name in every])),
            "time": _geometric(relative(stored, model, every, "seconds")),
            "predict_us": _over(stored, model, every, "predict_us", _geometric),
            "losses": _relative_losses(stored, model, every),
            "log_loss": _over(stored, model, classification, "log_loss", np.mean),
            "calibration": _over(stored, model, classification, "calibration", np.mean),
            "seeds": sorted({len(runs) for runs in stored[model]["errors"].values()}),
        }
    return found


def better(stored, rival, what, model=BLEND):
    """Count the classification tables on which a measure is smaller than that of a rival.

    Returns
    -------
    n_better, n_tables : int
        Tables for which it is stored of both models, with means over the seeds of both.
    """
    differences = []
    for table in stored[model].get(what, {}):
        runs = (stored[name].get(what, {}).get(table, ()) for name in (model, rival))
        if pairs := list(zip(*runs, strict=False)):
            differences.append(sum(own - other for own, other in pairs))
    return sum(difference < 0 for difference in differences), len(differences)


def worse_than_member(stored):
    """Find tables on which the blend's error is more than 1.15 times that of its best member.

    The best member has the smallest test error. The difference is beyond the noise if it exceeds
    two standard errors, which are binomial for classifiers, and errors of a root mean square for
    regressors. They are computed from the test rows of one seed, because test rows of several
    seeds overlap, and as if both predictions were independent, which overstates the noise.

    Returns
    -------
    list of (table, member, ratio, is_beyond_noise)
        The last entry is None if the noise is not stored.
    """
    members = [name for name in MEMBERS if name in stored]
    found = []
    for table in EVERY:
        errors = {name: mean(stored, name, table) for name in members}
        errors = {name: error for name, error in errors.items() if error is not None}
        own = mean(stored, BLEND, table) if BLEND in stored else None
        if own is None or not errors:
            continue
        best = min(errors, key=errors.get)
        ratio = (own + OFFSET) / (errors[best] + OFFSET)
        if ratio > TOLERANCE:
            noise = [mean(stored, name, table, "noise") for name in (BLEND, best)]
            beyond = None
            if None not in noise:
                spread = 2 * np.hypot(noise[0], TOLERANCE * noise[1])
                beyond = bool(own - TOLERANCE * errors[best] > spread)
            found.append((table, best, float(ratio), beyond))
    return found


def ranks(stored, tasks=TASKS):
    """Return average ranks of errors, and groups of models without significant differences.

    Two models differ if Wilcoxon's signed-rank test of the logarithms of their errors is
    significant at 5 %, after Holm's correction for the number of pairs (Benavoli et al., 2016).

    Returns
    -------
    rank : dict of str to float
        From the smallest.
    cliques : list of (int, int)
        First and last position in `rank` of each largest group without a difference.
    """
    models = complete(stored, tasks)
    every = [name for names in tasks.values() for name in names]
    errors = np.array([[mean(stored, model, name) for name in every] for model in models])
    average = stats.rankdata(errors, axis=0).mean(axis=1)
    order = np.argsort(average, kind="stable")
    logs = np.log(errors[order] + OFFSET)
    pairs = [(i, j) for i in range(len(order)) for j in range(i + 1, len(order))]
    p_values = [stats.wilcoxon(logs[i], logs[j], zero_method="zsplit").pvalue for i, j in pairs]
    is_same = np.ones((len(order), len(order)), dtype=bool)
    for k, at in enumerate(np.argsort(p_values)):
        if p_values[at] > 0.05 / (len(pairs) - k):
            break
        is_same[pairs[at]] = False
    cliques, end = [], 0
    for i in range(len(order)):
        last = i
        while last + 1 < len(order) and is_same[i : last + 2, i : last + 2].all():
            last += 1
        if last > max(i, end):
            cliques.append((i, last))
            end = last
    return {models[i]: float(average[i]) for i in order}, cliques


def _over(stored, model, names, what, average):
    values = [mean(stored, model, name, what) for name in names]
    return None if None in values else float(average(values))


def _relative_losses(stored, model, names):
    runs = (stored[name].get("losses", {}).keys() for name in (model, REFERENCE))
    if any(not known >= set(names) for known in runs):
        return None
    return _geometric(relative(stored, model, names, "losses", offset=LOSS_OFFSET))


def _geometric(values):
    return float(np.exp(np.mean(np.log(values))))
