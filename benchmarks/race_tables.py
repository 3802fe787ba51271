"""Forests against RandomForest on tables, untuned.

The error is the misclassification rate or 1 - R2, in percent. Means over sets are geometric, of
(error + .05) / (reference + .05); both forests have as many trees and see the same columns.
"""

import statistics

import data
import numpy as np
from results import Row
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from timing import seconds

RIVALS = {"classification": RandomForestClassifier, "regression": RandomForestRegressor}


def run(names, ours, options, trees):
    """Fit on every table with every seed.

    Parameters
    ----------
    names : dict of str to list of str
        Data sets by task.
    ours : dict of str to class
        Estimators by task.
    options : namespace
        With `rounds`, the number of seeds (None: 3), and `data`, a folder or None.
    trees : int

    Returns
    -------
    rows : dict of str to list of dict
        By data set, one run a seed: errors and fit seconds of "ours", of "forest" and of
        "forest_codes", a RandomForest that sees categories as numbers.
    """
    return {
        name: [_run(name, seed, trees, task, ours, options) for seed in range(options.rounds or 3)]
        for task, group in names.items()
        for name in group
    }


def summary(rows, names):
    """Rows ``tables/all``, one a task, and ``tables/fit``, the ratio of fit times.

    Parameters
    ----------
    rows, names
        As of `run`.

    Yields
    ------
    row : Row
    """
    n_seeds = len(next(iter(rows.values())))
    for task, group in {"all": [*rows], **names}.items():
        by_seed = [[relative([rows[name][s]]) for name in group] for s in range(n_seeds)]
        overall = [relative(rows[name]) for name in group]
        worst = max(zip(overall, group, strict=True))
        note = f"{sum(r < 1 for r in overall)} of {len(group)} sets better"
        note += f"; worst {worst[0]:.2f} on {worst[1]}"
        if task != "regression":
            coded = [relative(rows[name], "forest_codes") for name in group]
            note += f"; {_geometric(coded):.3f} of a RandomForest that sees categories as numbers"
        values = [_geometric(values) for values in by_seed]
        yield Row(f"tables/{task}", values, note, value=_geometric(overall))
    times = [[run["ours_fit"] / run["forest_fit"] for run in runs] for runs in rows.values()]
    yield Row("tables/fit", [_geometric(values) for values in zip(*times, strict=True)])


def relative(runs, reference="forest"):
    """Mean error of ours over the mean error of the reference, both raised by .05 points."""
    means = (statistics.fmean(run[key] for run in runs) + 0.05 for key in ("ours", reference))
    return next(means) / next(means)


def _run(name, seed, trees, task, ours, options):
    """Errors and fit seconds of the forests on one split of a table."""
    split = data.load_table(name, options.data, seed)
    codes = data.load_table(name, options.data, seed, onehot=False)
    run = {}
    for key, kind, part in (
        ("ours", ours[task], split),
        ("forest", RIVALS[task], split),
        ("forest_codes", RIVALS[task], codes),
    ):
        model = kind(trees, random_state=seed, n_jobs=1)
        run[f"{key}_fit"] = seconds(model.fit, part.X_train, part.y_train)
        run[key] = 100 * (1 - model.score(part.X_test, part.y_test))
    return run


def _geometric(values):
    return float(np.exp(np.mean(np.log(values))))
