"""The three simulations of the manifold forest paper (Perry et al.), and three with other layouts.

Each is a function ``(n, rng) -> X, y`` with alternating classes 0 and 1, so that the first rows of
a sample are a smaller balanced sample.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.spatial import ConvexHull


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


def vertices(n=500):
    """Points that cover a sphere evenly, a Fibonacci lattice, in random order: (n, 3)."""
    at = np.arange(n) + 0.5
    height, angle = 1 - 2 * at / n, np.pi * (1 + np.sqrt(5)) * at
    radius = np.sqrt(1 - height**2)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle), height], axis=1)
    return np.random.default_rng(0).permutation(points)


def mesh(points):
    """Return the adjacency matrix of the triangles between points on a sphere."""
    triangles = ConvexHull(points).simplices
    rows, columns = triangles[:, [0, 1, 2, 1, 2, 0]], triangles[:, [1, 2, 0, 0, 1, 2]]
    place = rows.ravel(), columns.ravel()
    return sparse.csr_array((np.ones(len(place[0])), place), shape=(len(points), len(points)))


def sphere(n, rng):
    """Draw noise on 500 vertices of a sphere and a bump anywhere, in class 1 in the upper half."""
    y = np.arange(n) % 2
    centre = rng.standard_normal((n, 3))
    centre /= np.linalg.norm(centre, axis=1, keepdims=True)
    centre[:, 2] = np.abs(centre[:, 2]) * (2 * y - 1)
    bump = np.exp((centre @ vertices().T - 1) / 0.3**2)
    return (rng.standard_normal((n, 500)) + 1.2 * bump).astype(np.float32), y


def volume(n, rng):
    """Draw noise in 12 x 12 x 12 voxels and a blob at a random place, in class 1 in front."""
    y = np.arange(n) % 2
    centre = rng.uniform(2, 9, size=(n, 3))
    centre[:, 0] = rng.uniform(2, 4.5, size=n) + 4.5 * (y == 0)
    along = np.exp(-((np.arange(12) - centre[:, :, None]) ** 2) / (2 * 1.5**2))
    blob = np.einsum("ni,nj,nk->nijk", *along.transpose(1, 0, 2)).reshape(n, -1)
    return (rng.standard_normal((n, 12**3)) + 0.7 * blob).astype(np.float32), y


def sensors(n, rng):
    """Draw noise of 6 sensors at 60 times; one of two gets a pulse 8 steps before the other.

    In class 1, it is sensor 1 and otherwise sensor 4; the time is random.
    """
    y = np.arange(n) % 2
    X = rng.standard_normal((n, 6, 60))
    start = rng.uniform(15, 40, size=n)
    for sensor, at in ((1, start), (4, start + np.where(y == 1, 8, -8))):
        X[:, sensor] += np.exp(-((np.arange(60) - at[:, None]) ** 2) / (2 * 4**2))
    return X.reshape(n, -1).astype(np.float32), y


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
