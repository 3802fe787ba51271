"""Default settings of oblique boosting and blends: one change at a time, on training rows only.

    python -m benchmarks.measure.choose [--data FOLDER] [--rounds N] [--models SETTING ...]

Fits the settings on three quarters of the training rows of the 32 tables of ``peers``, and
measures them on the last quarter; a further round draws other quarters of the same training rows.
The test rows of the first seed of ``compare.peers`` are never used. Results are stored for each
setting, as in ``peers``.
"""

from dataclasses import replace

import numpy as np

from benchmarks.compare import peers
from benchmarks.lib import cells, comparison, data, groups
from benchmarks.lib.models import MODELS, ONE_THREAD, REFERENCE

DEFAULTS = "defaults"
BLEND = "blend, with manifold"
MEMBERS = ["manifold", "co2", "hinge", "boosting"]
CHANGES = {
    "max_depth": (3, 5, 6),
    "learning_rate": (0.05, 0.07, 0.15),
    "min_samples_leaf": (5, 15, 30),
    "l2_regularization": (1.0, 10.0),
    "n_directions": (0, 16, 64),
    "subsample": (0.5, 0.65, 1.0),
}
SETTINGS = {
    REFERENCE: MODELS[REFERENCE],
    DEFAULTS: MODELS["ObliqueBoosting"],
    **{
        f"{name}={value}": replace(
            MODELS["ObliqueBoosting"], parameters=ONE_THREAD | {name: value}
        )
        for name, values in CHANGES.items()
        for value in values
    },
    **{
        setting: replace(MODELS["BlendedForest"], parameters=ONE_THREAD | {"members": members})
        for setting, members in ((BLEND, MEMBERS), ("blend, without manifold", MEMBERS[1:]))
    },
}


def settings(options):
    """Measure all settings on inner splits of the training rows."""
    sets = {"classification": ["pima"], "regression": ["reg_airfoil"]}
    if options.quick:
        options.models = options.models[:4]
    return peers.measure(
        options, groups.pick(options, comparison.TASKS, sets), _inner, "choose.json", SETTINGS
    )


def _inner(_, name, seed, options):
    split = data.load_table(name, options.data, 0, groups.pick(options, 5000, 300))
    return split.inner(seed), None


def summary(stored):
    """Summarize the settings that were fitted on the same tables as the defaults.

    Parameters
    ----------
    stored : dict
        As `results.read` returns it.

    Returns
    -------
    dict of str to dict
        By setting: geometric means of errors relative to RandomForest, over all tables and, where
        there are any, by task; that of the ratios to the errors of the defaults, or of the blend
        of all members, with the standard error of its logarithm over tables; that of the ratios of
        fit times; and the number of tables.
    """
    found = {}
    for setting in SETTINGS:
        base = BLEND if setting.startswith("blend") else DEFAULTS
        names = [
            name
            for name in comparison.EVERY
            if all(name in stored.get(key, {}).get("errors", ()) for key in (setting, base))
        ]
        if setting == REFERENCE or not names:
            continue
        to_forest, to_defaults = (
            np.log(
                comparison.relative(stored, setting, names, offset=comparison.OFFSET, base=other)
            )
            for other in (REFERENCE, base)
        )
        time = np.log(comparison.relative(stored, setting, names, "seconds", base=base))
        row = {"all": to_forest.mean(), "change": to_defaults.mean(), "time": time.mean()}
        for task, of_task in comparison.TASKS.items():
            if set(names).intersection(of_task):
                row[task] = np.mean(to_forest[np.isin(names, of_task)])
        row = {what: float(np.exp(value)) for what, value in row.items()}
        noise = float(np.std(to_defaults) / np.sqrt(len(names)))
        found[setting] = row | {"noise": noise, "n_tables": len(names)}
    return found


def table(stored):
    """Return the table of all settings that were measured."""
    rows, kinds = [], ("all", "classification", "regression")
    for name, row in summary(stored.file("measure.choose", "settings")).items():
        errors = (cells.known(row.get(kind), "{:.3f}") for kind in kinds)
        change = f"{row['change']:.3f} +- {row['noise']:.3f}" if row["noise"] else ""
        rows.append((name, *errors, change, f"{row['time']:.2f}x"))
    head = ("Setting", "All", "Classification", "Regression", "To the defaults", "Fit time")
    return head, rows


GROUPS = (settings,)
OPTIONS = groups.SETS | {
    "--models": {"nargs": "*", "choices": SETTINGS, "default": list(SETTINGS)}
}
TABLES = {"choose": table}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, options=OPTIONS)
