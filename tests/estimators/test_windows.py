"""Windows around the pixels of an image, and predictions of whole images."""

import tracemalloc

import numpy as np
import pytest

from skforest import (
    E2EDecisionForestClassifier,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ObliqueBoostingClassifier,
    windows_of,
)


def reflected(at, length):
    """A position on an axis, with the axis reflected at its first and last entry."""
    while not 0 <= at < length:
        at = -at if at < 0 else 2 * (length - 1) - at
    return at


@pytest.mark.parametrize(
    "image_shape, shape",
    [((5, 6), 3), ((5, 6), (4, 1)), ((4, 5, 2), 3), ((7,), (5,)), ((3, 4, 5), (3, 2, 3)),
     ((2, 4, 5, 3), (1, 3, 2)), ((3, 4), (9, 3)), ((2, 2), 1)],
)  # fmt: skip
def test_windows_are_those_of_a_reflected_image(image_shape, shape):
    image = np.arange(np.prod(image_shape), dtype=np.uint8).reshape(image_shape)
    lengths = (shape, shape) if isinstance(shape, int) else shape
    windows = windows_of(image, shape)
    n_axes = len(lengths)
    assert windows.shape == image.shape[:n_axes] + lengths + image.shape[n_axes:]
    assert windows.dtype == image.dtype and not windows.flags.writeable
    for pixel in np.ndindex(*image.shape[:n_axes]):
        for entry in np.ndindex(*lengths):
            at = [p + e - n // 2 for p, e, n in zip(pixel, entry, lengths)]
            at = tuple(map(reflected, at, image.shape))
            np.testing.assert_array_equal(windows[pixel + entry], image[at])
    middle = tuple(n // 2 for n in lengths)
    np.testing.assert_array_equal(windows[(..., *middle)] if windows.ndim == 2 * n_axes else
                                  windows[(..., *middle, slice(None))], image)  # fmt: skip


def test_windows_take_the_memory_of_one_image():
    image = np.zeros((400, 400), dtype=np.uint8)
    tracemalloc.start()
    windows = windows_of(image, 9)
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert windows.nbytes == 81 * image.nbytes
    assert size < 1.2 * image.nbytes and peak < 1.5 * image.nbytes
    assert np.shares_memory(windows[0], windows[8])


def blob(size=48):
    """A noisy disk, of bytes, and its pixels."""
    rows, columns = np.indices((size, size)) - size / 2
    inside = rows**2 + columns**2 < (size / 3) ** 2
    noise = np.random.default_rng(0).normal(scale=40, size=inside.shape)
    return np.clip(100 + 50 * inside + noise, 0, 255).astype(np.uint8), inside


@pytest.mark.parametrize(
    "forest",
    [
        ManifoldForestClassifier(10, feature_shape=(5, 5), prior=[0.5, 0.5], random_state=0),
        ManifoldForestRegressor(5, feature_shape=(5, 5), random_state=0),
        E2EDecisionForestClassifier(1, feature_shape=(5, 5), random_state=0),
        ObliqueBoostingClassifier(5, n_bags=1, feature_shape=(5, 5), random_state=0),
    ],
    ids=lambda forest: type(forest).__name__,
)
def test_an_image_is_predicted_row_by_row(forest):
    image, inside = blob()
    windows = windows_of(image, 5)
    i, j = np.random.default_rng(1).integers(48, size=(2, 300))
    forest.fit(windows[i, j], inside[i, j])
    at_once = forest.predict(windows.reshape(-1, 5, 5)).reshape(image.shape)
    found = np.stack([forest.predict(row) for row in windows])
    np.testing.assert_array_equal(found, at_once, strict=True)
    assert ((found > 0.5) == inside).mean() > 0.85
    flat = windows[7].reshape(48, 25)
    np.testing.assert_array_equal(forest.predict(flat), found[7])


def test_row_by_row_takes_little_memory():
    image, inside = blob(200)
    windows = windows_of(image, 9)
    i, j = np.random.default_rng(1).integers(200, size=(2, 200))
    forest = ManifoldForestClassifier(2, feature_shape=(9, 9), random_state=0)
    forest.fit(windows[i, j], inside[i, j]).predict(windows[0])
    tracemalloc.start()
    np.stack([forest.predict(row) for row in windows])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.1 * windows.nbytes


@pytest.mark.parametrize(
    "image, shape, words",
    [
        (np.zeros(5), 3, r"image has shape \(5,\); shape=3 needs 2 axes of at least one"),
        (np.zeros((5, 5, 5, 2)), (3, 3), r"needs 2 axes.*, or 3 with channels"),
        (np.zeros((0, 5)), 3, "at least one pixel"),
        (np.zeros((5, 5)), 0, "shape=0 must be an int of at least 1"),
        (np.zeros((5, 5)), (3, 2.5), "must be an int of at least 1"),
        (np.zeros((5, 5)), (3, -1), "must be an int of at least 1"),
    ],
)  # fmt: skip
def test_images_and_shapes_that_do_not_match(image, shape, words):
    with pytest.raises(ValueError, match=words):
        windows_of(image, shape)


def test_masked_images_are_refused():
    image = np.ma.masked_less(np.arange(25.0).reshape(5, 5), 3)
    with pytest.raises(TypeError, match=r"masked array.*image.filled\(np.nan\)"):
        windows_of(image, 3)
