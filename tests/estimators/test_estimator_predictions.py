"""What every estimator returns: probabilities, targets, importances, predictors."""

import pickle
import re
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
from makers import N_ROWS as N
from makers import classes, response, targets, task
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, log_loss, r2_score

import skforest
from skforest import refine
from skforest.table.matrix import scaled

# ------------------------------------------------------------------------------------- predictions


@pytest.mark.needs("min_weight_fraction_leaf")
def test_probabilities(classifier):
    X, y = classes()
    classifier.set_params(min_samples_leaf=7).fit(X, y)
    new = np.random.default_rng(0).standard_normal((50, 6)) * 2
    proba = classifier.predict_proba(new)
    assert proba.dtype == np.float64 and proba.shape == (50, 3)
    assert (proba >= 0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(classifier.predict(new), proba.argmax(axis=1))
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(classifier.predict_log_proba(new), np.log(proba))
    assert classifier.score(X, y) == accuracy_score(y, classifier.predict(X))


@pytest.mark.every_class
def test_probabilities_add_up_to_1_for_metrics(classifier):
    """scikit-learn warns where a sum differs from 1 by more than 1.5e-8."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(200, 3)).astype(float)
    y = rng.integers(0, 7, size=200) % (3 + X[:, 0].astype(int))  # leaves cannot be pure
    for parameters in ({"n_estimators": 1}, {}):
        if parameters.keys() <= classifier.get_params().keys():
            proba = clone(classifier).set_params(**parameters).fit(X, y).predict_proba(X)
            np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=0, atol=2e-15)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                log_loss(y, proba)


@pytest.mark.needs("min_weight_fraction_leaf")
def test_log_of_a_zero_probability_is_silent(classifier):
    X, y = classes()
    classifier.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isneginf(classifier.predict_log_proba(X)).any()


@pytest.mark.needs("min_weight_fraction_leaf")
def test_probabilities_of_a_single_tree_are_shares_of_the_training_rows(classifier):
    X, y = classes()
    classifier.set_params(n_estimators=1, bootstrap=False, max_depth=2).fit(X, y)
    leaf = classifier.apply(X)[:, 0]
    assert len(np.unique(leaf)) > 2
    expected = [np.bincount(y[leaf == one], minlength=3) / (leaf == one).sum() for one in leaf]
    np.testing.assert_allclose(classifier.predict_proba(X), expected, rtol=1e-6)


@pytest.mark.needs("min_weight_fraction_leaf")
def test_predictions_of_a_single_tree_are_means_of_the_training_rows(regressor):
    X, y = targets(n_targets=2)
    weight = np.random.default_rng(0).integers(1, 5, len(X)) * 1.0
    regressor.set_params(n_estimators=1, bootstrap=False, max_depth=2)
    regressor.fit(X, y, sample_weight=weight)
    leaf = regressor.apply(X)[:, 0]
    assert len(np.unique(leaf)) > 2
    masks = [leaf == one for one in leaf]
    expected = [np.average(y[mask], axis=0, weights=weight[mask]) for mask in masks]
    np.testing.assert_allclose(regressor.predict(X), expected, rtol=1e-5)


@pytest.mark.needs("min_weight_fraction_leaf")
def test_apply_and_decision_path_agree_with_the_trees(estimator):
    X, y = task(estimator)
    estimator.set_params(n_estimators=5).fit(X, y)
    forest = estimator.forest_
    leaves = estimator.apply(X)
    assert leaves.shape == (N, 5) and leaves.dtype == np.int32
    path, starts = estimator.decision_path(X)
    assert path.shape == (N, forest.n_nodes)
    assert starts.tolist() == forest.tree_start.tolist()
    assert set(path.data.tolist()) == {1}
    first_split = (forest.tree_start - np.arange(6)) // 2
    table = scaled(X, forest.offset, forest.scale) if len(forest.scale) else np.float32(X)
    z = np.asarray((forest.directions() @ table.T).T)
    for i in range(0, N, 10):
        for tree in range(5):
            node, passed = 0, [0]
            while (child := forest.child[starts[tree] + node]) > 0:
                split = first_split[tree] + (child - 1) // 2
                node = child + (z[i, split] > forest.threshold[split])
                passed.append(node)
            assert leaves[i, tree] == node
            row = path[i].toarray().ravel()[starts[tree] : starts[tree + 1]]
            assert np.flatnonzero(row).tolist() == sorted(passed)


@pytest.mark.every_class
@pytest.mark.needs("min_weight_fraction_leaf")
def test_response_is_the_mean_of_the_trees(estimator):
    X, y = task(estimator)
    estimator.fit(X, y)
    by_tree = np.mean([tree.response(X) for tree in estimator.forest_], axis=0)
    found = response(estimator, X).reshape(N, -1)
    np.testing.assert_allclose(found, by_tree, rtol=1e-6, atol=1e-6)


# -------------------------------------------------------------------------------------- regression


@pytest.mark.every_class
def test_several_outputs(regressor):
    X, y = targets(300, n_targets=3)
    y *= [1, 10, 100]
    regressor.set_params(n_estimators=30).fit(X[:200], y[:200])
    found = regressor.predict(X[200:])
    assert found.shape == (100, 3)
    assert regressor.n_outputs_ == 3
    assert (r2_score(y[200:], found, multioutput="raw_values") > 0.4).all()


@pytest.mark.needs("min_weight_fraction_leaf")
def test_shape_of_the_prediction_follows_the_target(regressor):
    X, y = targets()
    flat = clone(regressor).fit(X, y).predict(X)
    column = clone(regressor).fit(X, y[:, None]).predict(X)
    assert flat.shape == (N,) and column.shape == (N, 1)
    np.testing.assert_array_equal(flat, column[:, 0])
    twice = clone(regressor).fit(X, np.column_stack([y, y])).predict(X)
    np.testing.assert_array_equal(twice[:, 0], twice[:, 1])


def test_integer_targets(regressor):
    X, y = targets()
    y = np.rint(y).astype(int)
    one, other = clone(regressor).fit(X, y), clone(regressor).fit(X, y.astype(float))
    assert one.predict(X).dtype == np.float64
    np.testing.assert_array_equal(one.predict(X), other.predict(X))


@pytest.mark.needs("min_weight_fraction_leaf")
def test_target_far_from_zero(regressor):
    X, y = targets(300)
    y = y / np.abs(y).max()
    regressor.set_params(bootstrap=False, max_features=None, n_estimators=5)
    far = clone(regressor).fit(X[:200], y[:200] + 1e6).predict(X[200:])
    assert r2_score(y[200:] + 1e6, far) > 0.3
    fitted = clone(regressor).fit(X, y + 1e6).predict(X)
    assert r2_score(y + 1e6, fitted) > 0.99
    if "finetune_epochs" not in regressor.get_params():
        np.testing.assert_allclose(fitted - 1e6, y, atol=1e-6)  # pure leaves keep every digit


# Where rows are drawn one by one in training, their order, which the target decides, matters.
@pytest.mark.needs("projection")
@pytest.mark.parametrize("power", [-90, -40, 40, 110])
def test_the_scale_of_the_target_does_not_matter(regressor, power):
    X, y = targets()
    # Another order of rows gives other sums in the last bits; nodes of many rows have no ties.
    regressor.set_params(bootstrap=False, min_samples_leaf=15)
    plain = clone(regressor).fit(X, y)
    scaled = clone(regressor).fit(X, np.ldexp(y, power))
    np.testing.assert_allclose(np.ldexp(scaled.predict(X), -power), plain.predict(X), rtol=1e-4)
    np.testing.assert_allclose(scaled.feature_importances_, plain.feature_importances_, rtol=1e-4)


@pytest.mark.parametrize("power", [-1060, -300, 300, 900])
def test_targets_beyond_the_range_are_refused_or_learned(regressor, power):
    X, y = targets()
    y = np.ldexp(y, power)
    try:
        regressor.fit(X, y)
    except ValueError as error:
        assert re.search(r"\by\b.*rescale y", str(error))
    else:
        found, wanted = np.ldexp(regressor.predict(X), -power), np.ldexp(y, -power)
        assert r2_score(wanted, found) > 0.8


@pytest.mark.every_class
@pytest.mark.needs("min_weight_fraction_leaf")
def test_constant_target(regressor):
    X, _ = targets()
    regressor.fit(X, np.full(N, 1 / 3))
    np.testing.assert_array_equal(regressor.predict(X), np.full(N, 1 / 3))
    assert regressor.forest_.n_nodes == 10
    np.testing.assert_array_equal(regressor.feature_importances_, np.zeros(6))


@pytest.mark.needs("min_weight_fraction_leaf")
def test_predictions_stay_within_the_targets(regressor):
    X, y = targets()
    regressor.fit(X, y)
    new = np.random.default_rng(0).standard_normal((500, 6)) * 10
    found = regressor.predict(new)
    slack = 1e-6 * np.ptp(y)
    assert y.min() - slack <= found.min() and found.max() <= y.max() + slack


# ------------------------------------------------------------------------------------- importances


@pytest.mark.needs("projection")
def test_importances(estimator):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 12))
    signal = X[:, 3] + X[:, 7]
    y = signal > 0 if is_classifier(estimator) else signal
    estimator.set_params(feature_shape=(3, 4)).fit(X, y)
    found = estimator.feature_importances_
    assert found.shape == (12,) and found.dtype == np.float64
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1, rel=1e-12)
    np.testing.assert_array_equal(found, estimator.forest_.feature_importances("impurity"))
    assert not np.allclose(found, estimator.forest_.feature_importances("count"), rtol=0.01)
    assert found.reshape(estimator.feature_shape).shape == (3, 4)
    estimator.set_params(projection="axis").fit(X, y)
    assert set(estimator.feature_importances_.argsort()[-2:]) == {3, 7}


@pytest.mark.needs("projection")
def test_importances_ignore_the_number_of_outputs(regressor):
    X, y = targets()
    one = clone(regressor).set_params(bootstrap=False).fit(X, y)
    two = clone(regressor).set_params(bootstrap=False).fit(X, np.column_stack([y, y]))
    # Another order of rows gives other sums in the last bits, so a few ties fall elsewhere.
    np.testing.assert_allclose(one.feature_importances_, two.feature_importances_, rtol=0.02)


def test_an_unfitted_forest_has_no_importances(estimator):
    assert not hasattr(estimator, "feature_importances_")


# -------------------------------------------------------------------------------------- predictors


@pytest.mark.parametrize("n", [7, 8, 9, 15, 16, 17])
def test_blocks_of_rows_are_predicted_to_their_end(estimator, n, monkeypatch):
    X, y = task(estimator)
    X = X.astype(np.float32)
    expected = response(estimator.fit(X, y), X)[:n]
    nodes = estimator.apply(X)[:n]
    predictor = estimator.predictor()
    for module in ("estimators.base", "table.matrix", "training.threads"):
        monkeypatch.setattr(f"skforest.{module}.BLOCK", 8, raising=False)
    np.testing.assert_array_equal(predictor(X[:n]), expected)
    np.testing.assert_array_equal(response(estimator, X[:n]), expected)
    np.testing.assert_array_equal(response(estimator, X[:n].tolist()), expected)
    np.testing.assert_array_equal(estimator.apply(X[:n]), nodes)


@pytest.mark.thin(2)
@pytest.mark.every_class
def test_a_predictor_returns_what_the_estimator_returns(estimator):
    X, y = task(estimator)
    X[::9, 2] = np.nan
    X = X.astype(np.float32)
    estimator.fit(X, y)
    expected, labels = response(estimator, X), estimator.predict(X)
    predictor = estimator.predictor()
    assert predictor.n_features_in_ == 6
    other = pickle.loads(pickle.dumps(predictor))
    for rows in (slice(0, 1), slice(3, 40), slice(None)):
        np.testing.assert_array_equal(predictor(X[rows]), expected[rows])
        np.testing.assert_array_equal(other(X[rows]), expected[rows])
        np.testing.assert_array_equal(response(estimator, X[rows]), expected[rows])
    for i in (0, 1, 9):
        np.testing.assert_array_equal(predictor(X[i]), expected[i])
        np.testing.assert_array_equal(predictor.predict(X[i]), labels[i])
        np.testing.assert_array_equal(response(estimator, X[i : i + 1])[0], expected[i])
    np.testing.assert_array_equal(predictor.predict(X), labels)
    assert is_classifier(estimator) == hasattr(predictor, "predict_proba")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X[:50], y[:50])
    np.testing.assert_array_equal(predictor(X), expected)  # the model that it was made of


def test_a_predictor_stays_when_the_estimator_is_fitted_again():
    X = np.arange(20.0)[:, None]
    y = np.repeat(["a", "b"], 10)
    model = skforest.ManifoldForestClassifier(3, random_state=0).fit(X, y)
    predictor = model.predictor()
    model.fit(X, np.repeat(["c", "d"], 10))
    assert predictor.predict(X.astype(predictor.dtype)).tolist() == y.tolist()


def test_a_predictor_serves_several_threads(estimator):
    X, y = task(estimator)
    X = X.astype(np.float32)
    predictor = estimator.fit(X, y).predictor()
    expected, different = predictor(X), []

    def serve(start):
        for i in range(start, N):
            if (predictor(X[i]) != expected[i]).any() or (predictor(X) != expected).any():
                different.append(i)

    threads = [threading.Thread(target=serve, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not different


def precise_columns(y, rng):
    """Columns that are beyond float32, and others that look like it."""
    n = len(y)
    whole = rng.integers(0, 300, n) + 300 * y  # seconds that tell the classes
    return {
        "seconds": 1_700_000_000 + whole,
        "quarters": 1e9 + 0.25 * whole,
        "ids": 2.0**40 + whole,
    }, {
        "years": 1990 + rng.integers(0, 9, n) + 9 * y,
        "days": 738_000 + whole,
        "wide ids": rng.integers(10**9, 2 * 10**9, n) * (1 + y),
        "kelvin": 290 + 5 * rng.random(n) + 5 * y,
        "constant": np.full(n, 1e9 + 0.25),
    }


def as_tables(column, rng):
    X = np.c_[rng.normal(size=len(column)), column].astype(np.float64)
    return X, pd.DataFrame(X, columns=["noise", "own"]), sparse.csr_matrix(X)


@pytest.mark.thin(2)
@pytest.mark.every_class
def test_a_predictor_of_columns_beyond_float32_takes_float64(estimator, tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    beyond, others = precise_columns(y, rng)
    short = {"n_estimators": 3, "max_iter": 60}
    estimator.set_params(**{k: v for k, v in short.items() if k in estimator.get_params()})
    for number, column in enumerate(beyond.values()):
        X, frame, _ = as_tables(column, rng)
        model = estimator.fit(X if number else frame, y)
        scales = len(model.forest_.scale) > 0  # otherwise `predict` reads float32, too
        skforest.save(model, tmp_path / "model")
        weighted = clone(model).fit(np.r_[X, X], np.r_[y, y], np.r_[np.ones(80), np.zeros(80)])
        for one in (model, skforest.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
            predictor = one.predictor()
            assert predictor.dtype == (np.float64 if scales else np.float32)
            rows = predictor.encode(X if number else frame)
            expected = response(model, X if number else frame)
            np.testing.assert_array_equal(predictor(rows), expected)
            np.testing.assert_array_equal(predictor(rows[5]), expected[5])
        assert weighted.predictor().dtype == predictor.dtype
        if scales:
            name = "1" if number else "'own'"
            with pytest.raises(
                TypeError, match=f"float64, since .* values of column {name}: pass"
            ):
                predictor(rows.astype(np.float32))
    for column in others.values():
        X = as_tables(column, rng)[0]
        model = estimator.fit(X, y)
        assert model.predictor().dtype == np.float32


def test_predictors_of_blends_and_sparse_rows_beyond_float32():
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    X, _, rows = as_tables(precise_columns(y, rng)[0]["seconds"], rng)
    members = [skforest.CO2ForestClassifier(3), skforest.ManifoldForestClassifier(3)]
    for own in (members, members[::-1]):
        blend = skforest.BlendedForestClassifier(own, cv=2, random_state=0).fit(X, y)
        blend.weights_ = dict.fromkeys(blend.members_, 0.5)
        predictor = blend.predictor()
        assert predictor.dtype == np.float64
        expected = blend.predict_proba(X)
        np.testing.assert_array_equal(predictor(predictor.encode(X)), expected)
    hinge = skforest.RandomHingeForestClassifier(3, n_bags=1, random_state=0).fit(rows, y)
    predictor = hinge.predictor()
    np.testing.assert_array_equal(predictor(predictor.encode(rows)), hinge.predict_proba(X))


def test_a_predictor_says_what_it_takes(estimator):
    X, y = task(estimator)
    with pytest.raises(NotFittedError):
        estimator.predictor()
    predictor = estimator.fit(X, y).predictor()
    with pytest.raises(TypeError, match="array of float64; a predictor takes .* float32"):
        predictor(X)
    X = predictor.encode(X)
    assert X.dtype == np.float32
    with pytest.raises(TypeError, match="list"):
        predictor(X.tolist())
    for wrong in (X[0, 0], X[:0], X[:, :5], X[0, :5], X[None]):
        with pytest.raises((TypeError, ValueError), match="shape|float32"):
            predictor(wrong)
    for strided in (X[:, ::-1], X.T.copy().T):
        with pytest.raises(ValueError, match="C-contiguous"):
            predictor(strided)
    assert predictor(X).shape[0] == N


RANGES = {
    "counts": lambda y: np.rint(y),
    "decimals": lambda y: y / 10 + 0.1,
    "far": lambda y: 1e9 + np.rint(y) / 10,
    "small": lambda y: -1e-12 * y,
    "outputs": lambda y: np.column_stack([y + 0.3, -y]),
}


@pytest.mark.thin(2)
@pytest.mark.every_class
@pytest.mark.needs("min_weight_fraction_leaf")
@pytest.mark.parametrize("change", RANGES.values(), ids=RANGES)
def test_means_stay_in_the_range_of_the_targets(regressor, change):
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(80, 3)), rng.normal(size=(500, 3))
    y = change(3 * np.maximum(X[:, 0], 0))  # the least target is frequent
    forests = [regressor.set_params(n_estimators=7).fit(X, y)]
    if type(regressor).__name__.startswith(("CO2", "Manifold")):
        forests.append(refine(regressor, X, y, random_state=0))
        bootstrap = {"bootstrap": True, "oob_score": True, "n_estimators": 25}
        forests.append(clone(regressor).set_params(**bootstrap).fit(X, y))
    for forest in forests:
        found = [forest.predict(new), forest.predict(new[:1])]
        if hasattr(forest, "oob_prediction_"):
            found.append(forest.oob_prediction_)
        for prediction in found:
            assert (prediction >= y.min(axis=0)).all() and (prediction <= y.max(axis=0)).all()


# -------------------------------------------------------------------- columns without information

# Values in training, and others in prediction.
CONSTANT = {
    "large": (1e6, 1e6 + 1),
    "rounded": (0.1, np.nextafter(0.1, 1)),
    "whole": (3, 4),
    "flag": (True, False),
    "empty": (np.nan, 2.0),
    "filled": (5.0, np.nan),
    "level": ("a", "b"),
}


def with_constant(X, which):
    """X as a data frame, with columns that are constant; `which`: their first or second values."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    for name, values in CONSTANT.items():
        frame[name] = values[which]
    levels = pd.CategoricalDtype(CONSTANT["level"])
    return frame.assign(level=frame["level"].astype(levels))


@pytest.mark.thin(2)
@pytest.mark.every_class
def test_columns_without_information_have_no_effect(estimator):
    X, y = task(estimator, 80)
    train, other = with_constant(X, 0), with_constant(X, 1)
    weight = np.ones(len(y))
    weight[:5] = 0
    train[:5] = other[:5]  # constant over the rows of positive weight
    estimator.fit(train, y, sample_weight=weight)
    expected = response(estimator, with_constant(X, 0))
    np.testing.assert_array_equal(response(estimator, other), expected)
    np.testing.assert_array_equal(response(estimator, other[:1]), expected[:1])
    other["level"] = None
    np.testing.assert_array_equal(response(estimator, other), expected)
    assert not estimator.feature_importances_[X.shape[1] :].any()


def test_a_constant_with_missing_values_is_what_is_known(regressor):
    """The mean that takes the place of missing values may be rounded."""
    X, y = targets(80)
    X = np.column_stack([X, np.full(80, 0.1)])
    X[:3, 6] = np.nan
    regressor.fit(X, y)
    X[3:, 6] = 0.7
    expected = regressor.predict(np.where(np.isnan(X) | (X != 0.7), X, 0.1))
    np.testing.assert_array_equal(regressor.predict(X), expected)
