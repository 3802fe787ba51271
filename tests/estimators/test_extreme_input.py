"""Data at the edges: few rows, few values, any layout, light and heavy weights."""

import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from conftest import ALL, small
from makers import changed, response
from refusals import N, refuses, runs, task
from sklearn.base import clone, is_classifier, is_regressor

import skforest
from skforest.table.training_set import _features_with_outliers

# Bad input gives a result or an error, no warning of NumPy.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

# ------------------------------------------------------------------------- few rows, few values


@pytest.mark.every_class
@pytest.mark.needs("max_features", "min_weight_fraction_leaf")
def test_one_row(estimator):
    X, y = task(estimator)
    estimator.fit(X[:1], y[:1])
    np.testing.assert_array_equal(estimator.predict(X), np.full(N, y[0]))
    assert estimator.forest_.n_nodes == 10
    np.testing.assert_array_equal(estimator.apply(X), np.zeros((N, 10)))
    if is_classifier(estimator):
        np.testing.assert_array_equal(estimator.predict_proba(X), np.ones((N, 1)))
    np.testing.assert_array_equal(estimator.feature_importances_, np.zeros(6))


HINGE = skforest.RandomHingeForestRegressor(max_iter=300)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "case", ["few rows", "one row of each bag", "a heavy row", "early stopping"]
)
def test_hinge_bags_of_few_rows_predict_near_the_targets(case, seed):
    """What is constant in a bag has the unit of all rows: others are not thousands away."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(4 if case == "few rows" else 60, 3))
    y, weight, model = X[:, 0] + 5, np.ones(len(X)), clone(HINGE).set_params(random_state=seed)
    if case in ("few rows", "one row of each bag"):
        model.set_params(bootstrap=True, max_samples=1 if "one" in case else None)
    else:
        weight[7] = 1e6
    if case == "early stopping":
        model.set_params(procedure=skforest.HingeProcedure(early_stopping=True))
    found = model.fit(X, y, sample_weight=weight).predict(X)
    assert np.abs(found - y.mean()).max() < 3 * np.abs(y - y.mean()).max()


@pytest.mark.parametrize("n_rows", [3, 30])
def test_hinge_quantiles_if_all_rows_of_a_bag_are_held_out(n_rows):
    """Their quantile is calibrated on rows that no bag sees; such a bag takes the other rows."""
    X = np.random.default_rng(2).normal(size=(n_rows, 3))
    model = clone(HINGE).set_params(loss="quantile", bootstrap=True, max_samples=1, max_iter=20)
    for seed in range(4):
        found = model.set_params(random_state=seed).fit(X, X[:, 0]).predict(X)
        assert np.abs(found).max() < 10


@pytest.mark.every_class
@pytest.mark.needs("max_features", "min_weight_fraction_leaf")
def test_two_rows(estimator):
    X, _ = task(estimator)
    y = np.array([0, 1])
    estimator.set_params(bootstrap=False).fit(X[:2], y)
    np.testing.assert_array_equal(estimator.predict(X[:2]), y)


@pytest.mark.every_class
@pytest.mark.needs("max_features", "min_weight_fraction_leaf")
def test_one_class(classifier):
    X, y = task(classifier)
    classifier.set_params(oob_score=True, n_estimators=50).fit(X, np.full(N, "only"))
    assert classifier.classes_.tolist() == ["only"]
    np.testing.assert_array_equal(classifier.predict(X), np.full(N, "only"))
    np.testing.assert_array_equal(classifier.predict_proba(X), np.ones((N, 1)))
    np.testing.assert_array_equal(classifier.predict_log_proba(X), np.zeros((N, 1)))
    assert classifier.oob_score_ == 1.0


@pytest.mark.parametrize("weight", ["balanced", "balanced_subsample", {0: 2}], ids=str)
@pytest.mark.needs("min_weight_fraction_leaf")
def test_one_class_with_class_weight(classifier, weight):
    X, _ = task(classifier)
    classifier.set_params(class_weight=weight).fit(X, np.zeros(N, dtype=int))
    np.testing.assert_array_equal(classifier.predict_proba(X), np.ones((N, 1)))


@pytest.mark.parametrize("n_nonzeros", [2.0, 4.0])
def test_columns_and_sums_of_columns_wider_than_float32(n_nonzeros):
    """Such numbers are whole, though they do not number the rows."""
    X = np.random.default_rng(0).uniform(-3e38, 3e38, size=(150, 4)).astype(np.float32)
    model = skforest.ManifoldForestClassifier(10, projection="sparse", random_state=0)
    changed(model, n_nonzeros=n_nonzeros).fit(X, X[:, 0] / 2 > X[:, 1] / 2)
    assert model.score(X, X[:, 0] / 2 > X[:, 1] / 2) > 0.9


@pytest.mark.parametrize(
    "model, grid",
    [
        (skforest.E2EDecisionForestRegressor(1, max_depth=1), {"feature_shape": (2, 3)}),
        (
            skforest.RandomHingeForestRegressor(2, n_bags=1, max_iter=2),
            {"features": "conv", "feature_shape": (2, 3), "kernel_size": 1},
        ),
    ],
    ids=["end to end", "hinge"],
)
def test_pixels_are_not_limited(model, grid):
    """Columns of tables have tails for outliers, see `FeatureMap`."""
    X, y = task(model)
    X[3, 2] = 1e6
    low, high = X.min(axis=0).astype(float), X.max(axis=0).astype(float)
    image = changed(clone(model), **grid).fit(X, y).forest_.feature_map
    assert not len(image.low) and not len(image.knots)
    np.testing.assert_allclose(1 / image.scale, high - low, rtol=1e-6)
    assert len(clone(model).fit(X, y).forest_.feature_map.knots)


@pytest.mark.thin(2)
@pytest.mark.needs("projection")
@pytest.mark.parametrize("value", [np.uint8(7), np.float32(7), np.float32(0.1), 0.0])
@pytest.mark.parametrize("projection", ["axis", "sparse", "patch"])
@pytest.mark.parametrize("splitter", ["hist", "exact"])
def test_constant_features(estimator, value, projection, splitter):
    X = np.full((40, 6), value)
    y = np.arange(40) % 4 // 3  # a quarter of ones
    changed(estimator, projection=projection, splitter=splitter, bootstrap=False).fit(X, y)
    expected = [0.75, 0.25] if is_classifier(estimator) else 0.25
    np.testing.assert_allclose(response(estimator, X)[:1], [expected], rtol=1e-6)
    assert (estimator.forest_.n_leaves == 1).all()
    np.testing.assert_array_equal(estimator.feature_importances_, np.zeros(6))


@pytest.mark.needs("projection")
def test_one_feature_among_constant_ones(estimator):
    rng = np.random.default_rng(0)
    X = np.full((80, 20), 3.0)
    X[:, 13] = rng.standard_normal(80)
    y = (X[:, 13] > 0) * 1
    for projection in ("axis", "sparse"):
        estimator.set_params(bootstrap=False, projection=projection, max_features=60).fit(X, y)
        assert estimator.score(X, y) == pytest.approx(1)
        assert estimator.feature_importances_.argmax() == 13
        assert estimator.feature_importances_.sum() == pytest.approx(1)


@pytest.mark.every_class
@pytest.mark.needs("max_features", "min_weight_fraction_leaf")
def test_duplicate_rows_with_different_labels(estimator):
    X = np.repeat([[0.0, 0], [1, 5]], [4, 10], axis=0)
    y = np.array([0, 0, 0, 1] + [1] * 9 + [0])
    estimator.set_params(bootstrap=False, max_features=None).fit(X, y)
    share = np.array([0.25, 0.9])[[0] * 4 + [1] * 10]
    expected = np.column_stack([1 - share, share]) if is_classifier(estimator) else share
    np.testing.assert_allclose(response(estimator, X), expected, rtol=1e-6)
    assert (estimator.forest_.n_leaves == 2).all()


@pytest.mark.needs("min_weight_fraction_leaf")
def test_ten_thousand_classes(classifier):
    rng = np.random.default_rng(0)
    n = 10000
    X = np.column_stack([np.arange(n), rng.random(n)])
    X, y = np.concatenate([X, X + 0.2, X + 0.4]), np.tile(np.arange(n), 3)
    if "objective" in classifier.get_params():
        changed(classifier, n_epochs=1)
        # Too few epochs: the grown tree is kept.
        classifier.set_params(refine=skforest.NonGreedyTreeClassifier(n_epochs=3, nu=20.0))
    if "finetune_epochs" in classifier.get_params():
        classifier.set_params(greedy_epochs=1, finetune_epochs=0, max_depth=None)
    classifier.set_params(n_estimators=2, bootstrap=False, max_features=4).fit(X, y)
    found = classifier.predict(X[:300])
    assert (found == y[:300]).all()
    assert classifier.predict_proba(X[:3]).shape == (3, n)
    assert classifier.forest_.nbytes < 40 * classifier.forest_.n_nodes


def test_two_to_the_31_rows(estimator):
    X = np.broadcast_to(np.uint8(0), (2**31, 1))
    y = np.broadcast_to(np.int8(0), 2**31)
    refuses(estimator, X, y, r"\bX\b.*2147483648 rows", "2147483647")
    good, y = task(estimator)
    estimator.fit(good[:, :1], y)
    with pytest.raises(ValueError, match=r"\bX\b.*2147483648 rows.*2147483647"):
        estimator.predict(X)


def test_two_to_the_31_features():
    """Refused before anything is copied: the error fits into 2 GiB of additional memory."""
    pytest.importorskip("resource")
    runs("""
import resource, sys
import numpy as np
from sklearn.base import BaseEstimator
import skforest
if sys.platform == "linux":
    limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + 2**31
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
X = np.broadcast_to(np.uint8(0), (2, 2**31))
n_refused = 0
for name in skforest.__all__:
    cls = getattr(skforest, name)
    if isinstance(cls, type) and issubclass(cls, BaseEstimator) and hasattr(cls, "predict"):
        try:
            cls().fit(X, [0, 1])
        except ValueError as error:
            assert "X" in str(error) and "2147483648" in str(error), error
            n_refused += 1
        else:
            raise AssertionError("not refused")
assert n_refused >= 2
""")


# ------------------------------------------------------------------------------ layouts of X


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_read_only_memory_map(estimator, tmp_path, dtype):
    X, y = task(estimator)
    X = (X * 20 + 128).clip(0, 255).astype(dtype)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert not mapped.flags.writeable
    one, other = clone(estimator).fit(X, y), clone(estimator).fit(mapped, y)
    np.testing.assert_array_equal(response(one, X), response(other, mapped))
    weight = np.ones(N)
    weight.flags.writeable = y.flags.writeable = False
    other = clone(estimator).fit(mapped, y, sample_weight=weight)
    np.testing.assert_array_equal(response(one, X), response(other, mapped))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_layouts_in_memory(estimator, dtype):
    X, y = task(estimator)
    X = (X * 20 + 128).clip(0, 255).astype(dtype)
    one = clone(estimator).fit(X, y)
    wide = np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)
    for other in (np.asfortranarray(X), X.T.copy().T, wide[::2, ::3], X[:, ::-1].copy()[:, ::-1]):
        np.testing.assert_array_equal(
            response(clone(estimator).fit(other, y), other), response(one, X)
        )


# ------------------------------------------------------------------------------------- weights


@pytest.mark.every_class
@pytest.mark.parametrize(
    "weight, words",
    [
        (-1.0, ["sample_weight.*-1", "0 or more"]),
        (np.nan, ["sample_weight", "NaN"]),
        (np.inf, ["sample_weight", "inf"]),
    ],
    ids=["negative", "nan", "inf"],
)
def test_bad_weights(estimator, weight, words):
    X, y = task(estimator)
    weights = np.ones(N)
    weights[7] = weight
    refuses(estimator, X, y, *words, weight=weights)


def test_weights_of_other_shapes(estimator):
    X, y = task(estimator)
    refuses(estimator, X, y, "sample_weight", r"\(59,\)", r"\(60,\)", weight=np.ones(59))
    refuses(estimator, X, y, "sample_weight", r"\(60, 1\)", weight=np.ones((60, 1)))


def test_weights_that_are_no_numbers(estimator):
    X, y = task(estimator)
    refuses(estimator, X, y, "sample_weight", weight=["a"] * N)
    refuses(estimator, X, y, "(?i)complex", weight=np.ones(N) * 1j)


@pytest.mark.every_class
def test_all_weights_zero(estimator):
    X, y = task(estimator)
    refuses(estimator, X, y, "sample_weight", "all zero", "positive", weight=np.zeros(N))


@pytest.mark.thin(2)
@pytest.mark.parametrize("power", [-1060, -700, -100, 100, 700, 1015])
@pytest.mark.needs("min_weight_fraction_leaf")
def test_tiny_and_huge_weights(estimator, power):
    X, y = task(estimator)
    estimator.set_params(bootstrap=False, max_depth=3)
    one = clone(estimator).fit(X, y)
    other = clone(estimator).fit(X, y, sample_weight=np.full(N, 2.0**power))
    np.testing.assert_allclose(response(other, X), response(one, X), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        other.feature_importances_, one.feature_importances_, rtol=1e-3, atol=1e-6
    )


def test_weights_whose_sum_overflows(estimator):
    X, y = task(estimator)
    refuses(estimator, X, y, "sample_weight", "large|sum", weight=np.full(N, 1.7e308))


@pytest.mark.every_class
def test_all_weights_of_a_class_zero(classifier):
    X, y = task(classifier)
    weight = np.where(y == 1, 0.0, 1.0)
    kinds = [None, "balanced"]
    if "min_weight_fraction_leaf" in classifier.get_params():  # classes have weights in every tree
        kinds.append("balanced_subsample")
    for class_weight in kinds:
        model = clone(classifier).set_params(class_weight=class_weight).fit(X, y, weight)
        assert model.classes_.tolist() == [0, 1, 2]
        assert not model.predict_proba(X)[:, 1].any()
        assert set(model.predict(X)) == {0, 2}


def test_a_class_of_weight_zero_by_class_weight(classifier):
    X, y = task(classifier)
    model = clone(classifier).set_params(class_weight={0: 1, 1: 0, 2: 1}).fit(X, y)
    assert not model.predict_proba(X)[:, 1].any()
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    "value",
    [
        {0: -1, 1: 1, 2: 1},
        {0: np.nan, 1: 1, 2: 1},
        {0: np.inf, 1: 1, 2: 1},
        {0: 0, 1: 0, 2: 0},
        {0: "a", 1: 1, 2: 1},
        {7: 1},
    ],
    ids=str,
)
def test_bad_class_weights(classifier, value):
    refuses(classifier.set_params(class_weight=value), *task(classifier), "class_weight")


def test_outliers_are_sought_without_a_copy_of_all_rows(monkeypatch):
    """Neither a copy nor a mask: X may be a file that is larger than the memory."""
    monkeypatch.setattr("skforest.table.matrix.RANKED", 2**15)
    X = np.random.default_rng(0).standard_normal((20_000, 200), dtype=np.float32)
    X[:, 0] += 100
    X[:40], X[-1, 0] = 1e6, 0  # zeros are never outliers
    tracemalloc.start()
    try:
        columns, low, high = _features_with_outliers(X, np.ones(len(X)))
        assert tracemalloc.get_traced_memory()[1] < X.nbytes / 8
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(columns, np.arange(200))
    assert low[0] == 0 and (low[1:] > -10).all() and (high < 200).all()


@pytest.mark.thin(2)
@pytest.mark.parametrize("value", [1e-16, 1.1e-20, 0.1, -1e300])
@pytest.mark.parametrize("cls", [cls for cls in ALL if is_regressor(cls())])
def test_constant_targets_are_predicted_as_they_are(cls, value):
    """Their mean differs from them by rounding."""
    if "Blended" in cls.__name__:
        value = np.clip(value, -1e100, None)  # scores of a leaderboard have squares
    X = np.arange(7.0)[:, None]
    assert (small(cls).fit(X, np.full(7, value)).predict(X) == value).all()


@pytest.mark.parametrize(
    "column, is_told",
    [
        (1.7e9 + 10.0 * np.arange(300), True),
        (1e-50 * np.arange(300), True),
        (1e-50 * (np.arange(300) % 2), True),
        (1.7e9 + 1000.0 * np.arange(300), False),
        (np.where(np.arange(300) % 3, np.sin(np.arange(300)), np.nan), False),
        (np.full(300, 1e-50), False),
    ],
    ids=["seconds", "tiny", "two tiny values", "hours", "sines", "constant"],
)
def test_values_that_float32_makes_equal_are_told(column, is_told):
    """By estimators that read float32; the others scale columns first."""
    for X in (np.stack([np.arange(300.0), column], axis=1), pd.DataFrame({"k": 1, "t": column})):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            skforest.ManifoldForestRegressor(2, random_state=0).fit(X, np.arange(300))
            skforest.CO2ForestRegressor(1, random_state=0).fit(X, np.arange(300))
        found = [str(w.message) for w in caught if "float32" in str(w.message)]
        name = "'t'" if isinstance(X, pd.DataFrame) else "1"
        told = f"equal to others: {name}. Subtract an offset"
        assert len(found) == is_told and all(told in text for text in found)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_targets_beyond_32_bits():
    X = np.random.default_rng(0).normal(size=(60, 3))
    with np.errstate(all="raise"):
        model = skforest.ManifoldForestRegressor(3, random_state=0).fit(X, 3e9 + 1e8 * X[:, 0])
    assert model.score(X, 3e9 + 1e8 * X[:, 0]) > 0.5
