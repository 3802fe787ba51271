"""The leaderboard of a blend: its members, itself, a constant and a random forest."""

import html

import numpy as np
from sklearn.base import is_classifier

from ..training.blending import HeldOutLogLoss, with_temperature
from ..training.threads import NotInTime

COLUMNS = "score", "weight", "fit_seconds", "predict_us", "refitted"
BLEND, CONSTANT, FOREST = "blend", "constant", "random forest"


def comparison(blend, criterion, samples):
    """Return a function that scores a response for the leaderboard.

    The log loss is measured with a temperature for each model, which is found on one half of the
    folds and applied to the other half. Without it, overconfident models would look worse than
    they are in a blend with a temperature.
    """
    has_temperature = isinstance(criterion, HeldOutLogLoss) and len(samples.classes) == 1
    codes = samples.compared_y[:, 0]

    def score(response):
        if has_temperature and blend.calibrate:
            half = samples.temperature_folds()[0] % 2
            parts = codes.astype(np.int64), samples.compared_weight, half
            response = with_temperature(response, *parts, 2)
        return criterion.score(criterion.reduce(response))

    return score


def score_name(blend):
    """Name and unit of the scores of a blend."""
    if blend.scoring is not None:
        name = blend.scoring
        name = name if isinstance(name, str) else getattr(name, "__name__", repr(name))
    elif not is_classifier(blend):
        name = "R2"
    else:
        has_temperature = blend.calibrate and not isinstance(blend.classes_, list)
        name = "minus log loss in nats" + (", with a temperature" if has_temperature else "")
    return f"{name}, held-out rows"


def constant_response(samples):
    """The weighted mean of the targets, or shares of the classes, for each compared row."""
    y, weight = samples.trained_rows.y, samples.trained_rows.weight
    if samples.classes is None:
        mean = np.average(y, axis=0, weights=weight)
    else:
        columns = zip(y.astype(np.int64).T, samples.classes)
        shares = [np.bincount(codes, weight, len(labels)) for codes, labels in columns]
        mean = np.concatenate([share / share.sum() for share in shares])
    return np.tile(mean, (len(samples.compared), 1))


def baseline_rows(member, samples, compared, score, limit):
    """Rows of the leaderboard, as dicts: a constant and, if there is time, a `member`."""
    found = {CONSTANT: {"score": score(constant_response(compared)), "fit_seconds": 0.0}}
    found[CONSTANT]["predict_us"] = 0.0
    try:
        if limit is not None and not limit.left():
            return found
        member.begin(samples, limit)
        if limit is not None:
            member.extend(member.n_left_out, samples, limit)
            if limit.left() < member.step_seconds * member.n_folds:
                return found
        member.extend(member.n_folds - member.n_done, samples, limit)
    except NotInTime:
        return found
    if member.n_done == member.n_folds:
        response = member.response(compared)
        found[FOREST] = {
            "score": score(response),
            "fit_seconds": member.seconds,
            "predict_us": member.predict_us(compared),
        }
    return found


def leaderboard(blend):
    """The leaderboard of a fitted blend: a DataFrame, or without pandas a dict of lists."""
    scores, rows = blend._board_scores, dict(blend._baselines)
    for name, weight in blend.weights_.items():
        rows[name] = {
            "score": scores[name],
            "weight": weight,
            "fit_seconds": blend._fit_seconds[name],
            "predict_us": blend._predict_us[name],
            "refitted": blend._is_refitted[name],
        }
    names = sorted(rows, key=lambda name: rows[name]["score"], reverse=True)
    missing = {"weight": np.nan, "refitted": False}
    columns = {
        column: [rows[name].get(column, missing.get(column)) for name in names]
        for column in COLUMNS
    }
    try:
        import pandas as pd
    except ImportError:
        return {"member": names} | columns
    return pd.DataFrame(columns, index=pd.Index(names, name="member"))


def leaderboard_html(blend):
    """The leaderboard of a fitted blend; nothing without pandas."""
    board = blend.leaderboard_
    if isinstance(board, dict):
        return ""
    caption = f"<p>Score: {html.escape(blend.score_name_)}</p>"
    return caption + board.to_html(float_format="{:.4g}".format, na_rep="")
