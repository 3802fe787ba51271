"""Link functions: from the sum or mean of leaf values to the scale of predictions."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, softmax

# Each takes an array of shape (n_samples, n_outputs).
LINKS = {
    "identity": lambda raw: raw,
    "softmax": lambda raw: softmax(raw, axis=1),
    "sigmoid": expit,
    "log": np.exp,
}
