"""Calibration of quantiles on rows that no tree was trained on.

A forest of nearly no training loss predicts the training target itself, whatever the quantile, so
that its intervals are too narrow on new rows. Split conformal prediction mends that: the forest is
shifted by the quantile of its residuals on validation rows. The next row from the same source then
lies below the prediction with the wanted probability, whatever the forest is like.

Romano, Patterson, Candes, "Conformalized Quantile Regression", 2019.
"""

from __future__ import annotations

import math

import numpy as np


def validation_mask(weight, fraction, random):
    """Rows that do not train, drawn at random.

    Parameters
    ----------
    weight : ndarray of shape (n_rows,), float64
    fraction : float
        Of the rows with weight.
    random : RandomState

    Returns
    -------
    mask : ndarray of shape (n_rows,), bool
        All False where no row would be left to train on.
    """
    mask = np.zeros(len(weight), dtype=bool)
    present = np.flatnonzero(weight)
    n_validation = math.ceil(fraction * len(present))
    if n_validation < len(present):
        mask[random.permutation(present)[:n_validation]] = True
    return mask


def weighted_quantile(values, weight, quantile):
    """Quantiles of the columns of a matrix, interpolated between its rows.

    A row in sorted position k of n has the level k / (n + 1), so that the next draw lies below it
    with that probability; n is the effective number of rows where weights differ.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns), float64
    weight : ndarray of shape (n_rows,), float64
        Not negative, not all 0.
    quantile : float
        In (0, 1).

    Returns
    -------
    quantiles : ndarray of shape (n_columns,), float64
    """
    present = weight > 0
    values, weight = values[present], weight[present] / weight.sum()
    order = np.argsort(values, axis=0, kind="stable")
    # The sum of the squares is 1 / n for equal weights.
    level = np.cumsum(weight[order], axis=0) / (1 + weight @ weight)
    values = np.take_along_axis(values, order, axis=0)
    columns = range(values.shape[1])
    return np.array([np.interp(quantile, level[:, k], values[:, k]) for k in columns])


def calibrated_baseline(forest, data, mask, quantile):
    """The baseline with which a forest has a quantile on validation rows.

    Parameters
    ----------
    forest : Forest
    data : TrainingSet
    mask : ndarray of shape (n_rows,), bool
        The validation rows.
    quantile : float
        In (0, 1).

    Returns
    -------
    baseline : ndarray of shape (n_outputs,), float64
        That of the forest where there are no validation rows.
    """
    if not mask.any():
        return forest.baseline
    residual = data.y[mask] - forest.response_mapped(data.X[mask])
    return forest.baseline + weighted_quantile(residual, data.weight[mask], quantile)
