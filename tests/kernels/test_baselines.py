"""The baselines of the CO2 papers: axis-aligned trees, random hyperplanes, OC1."""

import numpy as np
import oracles
import pytest
from forests import as_kernel_input, grow, make_splitter
from hypothesis import given
from hypothesis import strategies as st
from makers import changed, fixed
from scipy.stats import kstest
from skforest._kernels.co2.oc1 import CoordinateSplitter
from skforest._kernels.search.projection import GaussianSampler, draw
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, make_classification
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import skforest
from skforest import CO2ForestClassifier, CO2ForestRegressor, CO2Procedure
from skforest.table.matrix import min_max, scaled

BASELINES = [None, "random", "oc1"]


def tables(seed, n=40, p=3, n_outputs=0):
    """Whole numbers, so that there are ties, and uneven weights."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 6, size=(n, p)) / 5
    y = rng.integers(0, 3, size=n) if not n_outputs else rng.normal(size=(n, n_outputs))
    return X, y, rng.integers(1, 5, size=n).astype(float)


# ------------------------------------------------------------------------------------------- moves


@pytest.mark.parametrize("n_outputs", [0, 1, 3])
@given(st.integers(0, 2**32 - 1))
@fixed
def test_a_move_is_the_best_of_all_critical_values(n_outputs, seed):
    X, target, weight = tables(seed, n_outputs=n_outputs)
    X, target = as_kernel_input(X, target)
    rng = np.random.default_rng(seed)
    w, bias = rng.normal(size=3), rng.normal()
    d = np.float32(np.eye(3)[rng.integers(3)] if rng.random() < 0.7 else rng.normal(size=3))
    splitter = make_splitter(
        X, target, weight, kind=CoordinateSplitter, n_restarts=0, n_jumps=0,
        criterion="squared_error" if n_outputs else "entropy",
    )  # fmt: skip
    moved, score, margin, new_w = splitter.step(w, bias, d)
    expected = oracles.best_move(X, target, weight, w, bias, d)
    assert moved == (expected > -np.inf)
    if not moved:
        return
    assert score == pytest.approx(expected, rel=1e-6, abs=1e-9)
    # The cached margins are those of the moved plane, and its split has the score.
    constant = margin - X @ new_w
    np.testing.assert_allclose(constant, constant[0], atol=1e-4)
    found = oracles.split_score(target, weight, margin > 0)
    assert found == pytest.approx(score, rel=1e-6, abs=1e-9)


def test_a_move_of_a_row_that_no_tilt_reaches():
    """Rows at the least value of the feature stay where they are."""
    X, y = np.array([[0.0], [0.0], [1.0], [1.0]]), [0, 1, 1, 0]
    splitter = make_splitter(
        X, y, kind=CoordinateSplitter, n_restarts=0, n_jumps=0, criterion="entropy"
    )  # fmt: skip
    moved, score, margin, w = splitter.step(np.array([1.0]), 0.5, np.ones(1, dtype=np.float32))
    assert not moved or (margin[:2] <= 0).all()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("cls", [CO2ForestClassifier, CO2ForestRegressor])
def test_a_plane_gains_no_less_than_the_cut_it_began_with(cls, seed):
    X, y, weight = tables(seed, n=200, p=5)
    model = cls(1, max_depth=1, max_features=None, random_state=seed)
    gains = [
        clone(model).set_params(objective=objective).fit(X, y, weight).forest_.gain[0]
        for objective in (None, "oc1")
    ]
    assert gains[1] >= gains[0] > 0


def test_a_plane_from_a_part_of_the_rows_is_cut_by_all_of_them():
    """And it must gain more there than the cut of a feature, which is found in the same part."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)).astype(np.float32)
    n_planes = 0
    for seed in range(6):
        y = (X[:, 0] > 0.3 * rng.normal(size=200)).astype(int)
        options = {"criterion": "entropy", "max_search_samples": 30, "max_depth": 1, "seed": seed}
        cut = grow(X, y, **options)
        plane = grow(X, y, kind=CoordinateSplitter, n_restarts=0, n_jumps=5, **options)
        assert plane.gain[0] >= cut.gain[0]
        if len(plane.dense):
            n_planes += 1
            column, Y = X @ plane.dense[0], oracles.one_hot(y, 2)
            best = oracles.best_gain(column, Y, np.ones(200), "entropy")
            assert plane.gain[0] == pytest.approx(best, rel=1e-4)
    assert 0 < n_planes < 6


def test_oc1_finds_a_plane_that_no_feature_shows():
    rng = np.random.default_rng(0)
    X = rng.random(size=(400, 3))
    y = X @ [1.0, -2.0, 0.7] > 0.1
    model = CO2ForestClassifier(1, objective="oc1", random_state=0).fit(X, y)
    plain = clone(model).set_params(objective=None).fit(X, y)
    assert model.forest_.n_leaves[0] < 0.3 * plain.forest_.n_leaves[0]
    assert model.score(X, y) == 1


def test_each_restart_of_oc1_is_a_further_chance():
    """The best of more planes, of which the first are the same; some restart is better."""
    gains = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 5))
        y = (X[:, 0] * X[:, 1] + X[:, 2] > 0).astype(int)
        own = {"objective": "oc1", "max_depth": 1, "max_features": None, "bootstrap": False}
        own |= {"procedure": CO2Procedure(n_jumps=0), "random_state": seed}
        model = CO2ForestClassifier(1, **own)
        gains.append(
            [model.set_params(procedure__n_restarts=n).fit(X, y).forest_.gain[0] for n in range(3)]
        )
    steps = np.diff(gains, axis=1)
    assert (steps > -1e-4).all() and (steps > 1e-3).any(axis=0).all()


@pytest.mark.parametrize("params", [{"n_restarts": 0}, {"n_jumps": 0}])
def test_every_parameter_of_oc1_matters(params):
    X, y = make_classification(300, 8, n_informative=6, n_classes=3, random_state=0)
    model = CO2ForestClassifier(2, objective="oc1", random_state=0)
    plain = clone(model).fit(X, y).predict_proba(X[:50] + 0.3)
    other = changed(model, **params).fit(X, y).predict_proba(X[:50] + 0.3)
    assert not np.array_equal(plain, other)


# ---------------------------------------------------------------------- features and random planes


@pytest.mark.parametrize("seed", range(5))
def test_without_objective_the_root_is_the_best_cut(seed):
    X, y = make_classification(300, 6, n_informative=4, n_classes=3, random_state=seed)
    weight = np.random.default_rng(seed).exponential(size=300)
    plain = {"objective": None, "max_depth": 1, "max_features": None, "bootstrap": False}
    ours = CO2ForestClassifier(1, **plain).fit(X, y, weight)
    theirs = DecisionTreeClassifier(criterion="entropy", max_depth=1).fit(X, y, weight)
    assert ours.forest_.direction[0] == theirs.tree_.feature[0]
    left = X[:, theirs.tree_.feature[0]] <= theirs.tree_.threshold[0]
    np.testing.assert_array_equal(ours.apply(X)[:, 0] == 1, left)
    target = np.stack([y, X[:, 0] * X[:, 1]], axis=1)
    ours = CO2ForestRegressor(1, **plain)
    theirs = DecisionTreeRegressor(max_depth=1).fit(X, target, weight)
    np.testing.assert_allclose(
        ours.fit(X, target, weight).predict(X), theirs.predict(X), rtol=1e-4, atol=1e-5
    )


def test_weights_of_random_planes_are_standard_normal():
    planes = draw(GaussianSampler(20), 3, 500)
    weights = np.array([plane["weights"] for plane in planes])
    assert weights.shape == (500, 20)
    assert kstest(weights.ravel(), "norm").pvalue > 1e-3
    assert np.abs(np.corrcoef(weights.T) - np.eye(20)).max() < 0.2


@pytest.mark.parametrize("cls", [CO2ForestClassifier, CO2ForestRegressor])
def test_the_root_of_random_planes_is_the_best_of_those_drawn(cls):
    """More candidates from the same stream hold the fewer: the gain can only grow."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    gains = []
    for n in (1, 2, 5, 30):
        model = cls(1, objective="random", max_depth=1, max_features=n, random_state=0)
        forest = model.set_params(bootstrap=False).fit(X, y).forest_
        assert len(forest.dense) == 1
        Z = scaled(X, *min_max(X)).astype(float)
        target = oracles.one_hot(y, 10) if cls is CO2ForestClassifier else y[:, None]
        best = oracles.best_cut(Z @ forest.dense[0], y if cls is CO2ForestClassifier else target)
        right = Z @ forest.dense[0] > forest.threshold[0]
        labels = y if cls is CO2ForestClassifier else target.astype(float)
        assert oracles.split_score(labels, np.ones(300), right) == pytest.approx(best, rel=1e-5)
        gains.append(forest.gain[0])
    assert gains == sorted(gains) and gains[0] < gains[-1]


# ----------------------------------------------------------------------- what holds for every tree


@pytest.mark.thin(2)
@pytest.mark.parametrize("objective", BASELINES)
@pytest.mark.parametrize("cls", [CO2ForestClassifier, CO2ForestRegressor])
def test_every_baseline_learns(cls, objective, tmp_path):
    load = load_digits if cls is CO2ForestClassifier else load_diabetes
    X, y = load(return_X_y=True)
    X, y = X[:400], y[:400]
    model = cls(15, objective=objective, random_state=0, bootstrap=True, oob_score=True)
    model.set_params(procedure=CO2Procedure(n_restarts=0)).fit(X, y)
    assert model.oob_score_ > (0.6 if cls is CO2ForestClassifier else 0.0)
    two = clone(model).set_params(n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), two.predict(X))
    np.testing.assert_array_equal(model.forest_.threshold, two.forest_.threshold)
    skforest.save(model, tmp_path / "model")
    np.testing.assert_array_equal(skforest.load(tmp_path / "model").predict(X), model.predict(X))
    np.testing.assert_allclose(model.feature_importances_.sum(), 1)


@pytest.mark.parametrize("objective", BASELINES)
def test_several_outputs(objective):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    Y = np.stack([X @ rng.normal(size=5), np.sin(X[:, 0]), X[:, 1] > X[:, 2]], axis=1)
    model = CO2ForestRegressor(10, objective=objective, bootstrap=True, random_state=0)
    assert model.fit(X[:200], Y[:200]).score(X[200:], Y[200:]) > 0.35


@pytest.mark.parametrize("objective", BASELINES)
@pytest.mark.parametrize("cls", [CO2ForestClassifier, CO2ForestRegressor])
def test_weights_are_copies(cls, objective):
    X, y, weight = tables(0, n=80)
    model = cls(3, objective=objective, random_state=0)
    one = clone(model).fit(X, y, weight)
    copies = np.repeat(np.arange(80), weight.astype(int))
    other = clone(model).fit(X[copies], y[copies])
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    np.testing.assert_array_equal(one.forest_.threshold, other.forest_.threshold)


def test_large_nodes_search_in_some_of_their_rows():
    rng = np.random.default_rng(0)
    X = rng.random(size=(3000, 3))
    y = X @ [1.0, -1.0, 0.5] > 0.2
    model = CO2ForestClassifier(1, objective="oc1", max_depth=1, random_state=0).fit(X, y)
    right = model.apply(X)[:, 0] == 2
    assert max(np.mean(right == y), np.mean(right != y)) > 0.97


# ----------------------------------------------------------------------------- leaves by gradient


@pytest.mark.parametrize("objective", ["co2", "soft"])
def test_values_of_leaves_move_in_units_of_the_node(objective):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    Y = np.stack([X @ rng.normal(size=6), X[:, 0] * X[:, 1]], axis=1)
    model = CO2ForestRegressor(
        10, objective=objective, random_state=0, procedure=CO2Procedure(leaves="gradient")
    )
    plain = clone(model).fit(X[:300], Y[:300])
    assert plain.score(X[300:], Y[300:]) > 0.4
    for unit in (1e-6, 1e6):
        other = clone(model).fit(X[:300], unit * Y[:300])
        score = other.score(X[300:], unit * Y[300:])
        assert score == pytest.approx(plain.score(X[300:], Y[300:]), abs=0.08)


def test_the_procedure_as_printed_learns():
    X, y = load_digits(return_X_y=True)
    literal = {"bootstrap": True, "procedure": CO2Procedure.as_printed(), "random_state": 0}
    model = CO2ForestClassifier(10, **literal).fit(X[:1200], y[:1200])
    assert model.score(X[1200:], y[1200:]) > 0.88
    weight = np.ones(len(X))
    weight[:100] = 2
    model.set_params(bootstrap=False)
    X, y, weight = X[:400], y[:400], weight[:400]
    one = clone(model).fit(X, y, weight)
    other = clone(model).fit(np.concatenate([X, X[:100]]), np.concatenate([y, y[:100]]))
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))
