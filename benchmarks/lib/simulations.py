"""The three simulations of the manifold forest paper (Perry et al.).

Each is a function ``(n, rng) -> X, y`` with alternating classes 0 and 1, so that the first rows of
a sample are a smaller balanced sample.
"""

from dataclasses import dataclass

import numpy as np


def circle(n, rng):
    """Draw 100 positions on a circle, with two separate segments of ones.

    Class 0 has two segments of length 5; class 1 has one of length 4 and one of length 6.
    """
    y = np.arange(n) % 2
    first, second = 5 - y, 5 + y
    start = rng.integers(100, size=n)
    # There is a gap of at least one position on either side of the second segment.
    offset = rng.integers(first + 1, 100 - second)
    position = np.arange(100)
    in_first = (position - start[:, None]) % 100 < first[:, None]
    in_second = (position - (start + offset)[:, None]) % 100 < second[:, None]
    return (in_first | in_second).astype(np.uint8), y


def bars(n, rng):
    """Draw binary 28 x 28 images with full rows (class 0) or full columns (class 1) of ones.

    Their number is Poisson(10); they are placed independently and may coincide, as in the
    authors' code.
    """
    y = np.arange(n) % 2
    lines = rng.poisson(10 / 28, size=(n, 28)) > 0  # equivalent, line by line
    images = np.repeat(lines[:, :, None], 28, axis=2)
    images = np.where(y[:, None, None] == 1, images.transpose(0, 2, 1), images)
    return images.reshape(n, 784).astype(np.uint8), y


def impulse(n, rng):
    """Draw white noise of length 100, in class 1 with a decaying impulse from step 20 on.

    The impulse is ``exp(-0.1 (t - 20))``; the Bayes error is 12.0 %.
    """
    y = np.arange(n) % 2
    t = np.arange(100)
    signal = np.where(t >= 20, np.exp(-0.1 * (t - 20)), 0.0)
    return (rng.standard_normal((n, 100)) + y[:, None] * signal).astype(np.float32), y


@dataclass(frozen=True)
class Simulation:
    """A simulation, and the parameters of the patch forest in the paper."""

    draw: callable
    feature_shape: tuple
    max_patch: int
    wrap: bool
    max_features: int


SIMULATIONS = {
    "circle": Simulation(circle, (100,), 15, True, 40),
    "bars": Simulation(bars, (28, 28), 4, False, 28),
    "impulse": Simulation(impulse, (100,), 5, False, 10),
}
