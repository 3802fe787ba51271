"""Errors and probabilities of a model on test rows."""

import numpy as np
from sklearn.metrics import roc_auc_score

N_BINS = 15


def error(task, y, predicted):
    """Return the error in percent, and its standard error over the rows.

    The error of a classifier is the share of wrong labels; the error of a regressor is the root
    mean squared error divided by the standard deviation of `y`. The standard error is
    sqrt(p (1 - p) / n) for a share p of n rows, and from the delta method for the root of a mean.

    Parameters
    ----------
    task : {"classification", "regression"}
    y, predicted : ndarray of shape (n_samples,)

    Returns
    -------
    error, noise : float
    """
    if task == "classification":
        share = float(np.mean(predicted != y))
        return 100 * share, 100 * float(np.sqrt(share * (1 - share) / len(y)))
    squared = (np.asarray(y, dtype=np.float64) - predicted) ** 2 / np.var(y, dtype=np.float64)
    root = float(np.sqrt(np.mean(squared)))
    return 100 * root, 100 * float(np.std(squared) / np.sqrt(len(y)) / (2 * max(root, 1e-12)))


def log_loss(y, probabilities):
    """Return the mean negative log probability of the correct class.

    Probabilities are clipped at the machine precision of float64, 2.2e-16, as in scikit-learn's
    `log_loss`, so a correct class with probability 0 costs 36.

    Parameters
    ----------
    y : ndarray of shape (n_samples,), int
        Columns of `probabilities`; -1 for a class without a column, whose probability is 0.
    probabilities : ndarray of shape (n_samples, n_classes)

    Returns
    -------
    float
    """
    right = np.where(y < 0, 0.0, probabilities[np.arange(len(y)), y])
    return float(-np.mean(np.log(np.clip(right, np.finfo(np.float64).eps, 1))))


def loss(y, probabilities):
    """Return 1 - AUC in percent for two classes, the log loss for more.

    Parameters
    ----------
    y, probabilities : ndarray
        As in `log_loss`.

    Returns
    -------
    float
        NaN if the rows of two classes lack one of them.
    """
    if probabilities.shape[1] > 2:
        return log_loss(y, probabilities)
    if len(np.unique(y)) < 2:
        return float("nan")
    return 100 * float(1 - roc_auc_score(y, probabilities[:, 1]))


def calibration_error(y, probabilities):
    """Return the expected calibration error in percent.

    Rows are in 15 bins of equal width by the largest probability, which belongs to the label. The
    error is the mean over rows of the difference between the share of correct labels and the mean
    largest probability in the bin of the row (Guo et al., 2017).

    Parameters
    ----------
    y, probabilities : ndarray
        As in `log_loss`.

    Returns
    -------
    float
    """
    largest = probabilities.max(axis=1)
    surplus = (probabilities.argmax(axis=1) == y) - largest
    bins = np.minimum((N_BINS * largest).astype(int), N_BINS - 1)
    return 100 * float(np.abs(np.bincount(bins, surplus)).sum() / len(y))
