"""CO2 forests: the stump against a plain definition, and what holds for every tree."""

import functools

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from makers import changed, fixed
from scipy import sparse
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, make_blobs, make_classification
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import StandardScaler

from skforest import CO2ForestClassifier, CO2ForestRegressor, CO2Procedure, Forest, refine
from skforest.table.matrix import min_max, scaled

PLAIN = {
    "n_estimators": 1, "max_depth": 1, "max_features": None, "holdout": 0.0, "bootstrap": False
}  # fmt: skip

MINIMAL = {"objective": "co2", "max_features": 2, "holdout": 0.0, "bootstrap": False}


def blobs(n=60, p=5, n_classes=3, seed=0):
    X, y = make_blobs(n, p, centers=n_classes, cluster_std=4.0, random_state=seed)
    return X, y


def split_of(model):
    """Direction, threshold and left rows of the split at the root of a fitted tree."""
    forest = model.forest_
    direction = forest.directions(forest.direction[:1]).toarray()[0]
    return direction, float(forest.threshold[0])


# ---------------------------------------------------------------------------- the plain definition


@pytest.mark.thin(2)
@pytest.mark.parametrize("keep", ["best", "last"])
@pytest.mark.parametrize("row_norm", [8.0, None])
@pytest.mark.parametrize("leaves", ["counts", "gradient"])
@pytest.mark.parametrize("objective", ["co2", "soft"])
@pytest.mark.parametrize("seed", range(6))
def test_one_stump_is_that_of_the_definition(objective, seed, leaves, row_norm, keep):
    check_stump(*blobs(20 + 10 * seed, seed=seed), objective, leaves, row_norm, keep)


@pytest.mark.parametrize("p", [15, 16, 17, 33, 64, 81])
def test_stumps_of_any_width_are_those_of_the_definition(p):
    """Vectors have 16 lanes, of which sums take four at a time."""
    check_stump(*blobs(70, p, seed=p), "co2", "counts", 8.0, "best")


@pytest.mark.parametrize("objective", ["co2", "soft"])
@pytest.mark.parametrize("nu", [0.3, 2.0])
def test_stumps_of_bounded_weights_are_those_of_the_definition(nu, objective):
    check_stump(*blobs(70, seed=1), objective, "counts", 8.0, "last", nu)


def test_no_rows_are_held_out_where_nothing_is_trained():
    X, y = blobs()
    for objective, expected in (("co2", 0.3), ("soft", 0.3), ("random", 0.0), (None, 0.0)):
        model = CO2ForestClassifier(1, objective=objective, holdout=0.3, random_state=0).fit(X, y)
        assert model.holdout_ == expected


def check_stump(X, y, objective, leaves, row_norm, keep, nu=100.0):
    """All rows form one batch, so that their order does not matter."""
    procedure = CO2Procedure(
        batch_size=1000, n_epochs=12, leaves=leaves, row_norm=row_norm, keep=keep
    )
    model = CO2ForestClassifier(objective=objective, nu=nu, procedure=procedure, **PLAIN)
    model.fit(X, y)
    # With a learning rate of nearly 0 the split is the cut that training starts from.
    start, cut = split_of(clone(model).set_params(procedure__learning_rate=1e-30).fit(X, y))
    assert (np.abs(start) > 1e-9).sum() == 1
    expected, threshold = oracles.co2_stump(
        scaled(X, *min_max(X)).astype(float), y, start.argmax(), cut / start.max(), objective,
        n_epochs=12, leaves=leaves, row_norm=row_norm, keep=keep, nu=nu,
    )  # fmt: skip
    found, where = split_of(model)
    if row_norm is not None or keep == "last":  # else no plane may do better than the cut
        assert (np.abs(found) > 1e-3).sum() > 1
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    assert where == pytest.approx(threshold, rel=2e-3, abs=2e-3)


@pytest.mark.parametrize("leaves", ["counts", "gradient"])
@pytest.mark.parametrize("objective", ["co2", "soft"])
def test_a_node_is_trained_as_if_there_were_no_other(objective, leaves):
    """Two groups lie far apart, so the root separates them; then each is a node."""
    rng = np.random.default_rng(0)
    X, is_far = rng.normal(size=(120, 4)), np.arange(120) < 60
    X[is_far, 0] += 100
    y = 2 * is_far + (X[:, 1] + X[:, 2] > rng.normal(size=120))
    procedure = CO2Procedure(batch_size=1000, n_epochs=12, leaves=leaves, scaling=None)
    model = CO2ForestClassifier(objective=objective, procedure=procedure, **PLAIN)
    whole = clone(model).set_params(max_depth=2).fit(X, y).forest_
    for own in (is_far, ~is_far):
        alone = clone(model).fit(X[own], y[own])
        leaves_of_group = np.unique(whole.apply(X[own]))
        split = (leaves_of_group.min() - 1) // 2
        assert len(leaves_of_group) == 2 and (leaves_of_group - 1 == 2 * split + [0, 1]).all()
        direction, threshold = split_of(alone)
        found = whole.directions(whole.direction[[split]]).toarray()[0]
        np.testing.assert_allclose(found, direction, rtol=1e-5, atol=1e-7)
        assert whole.threshold[split] == pytest.approx(threshold, rel=1e-5)


@pytest.mark.parametrize("leaves", ["counts", "gradient"])
@pytest.mark.parametrize("scaling", ["standard", None])
@pytest.mark.parametrize("seed", range(3))
def test_a_constant_rate_and_other_scales_are_those_of_the_definition(seed, scaling, leaves):
    X, y = blobs(40, seed=seed)
    procedure = CO2Procedure(
        batch_size=1000, n_epochs=25, leaves=leaves, scaling=scaling, schedule="constant",
        row_norm=None, keep="last", learning_rate=0.1,
    )  # fmt: skip
    model = CO2ForestClassifier(objective="co2", procedure=procedure, **PLAIN).fit(X, y)
    start, cut = split_of(clone(model).set_params(procedure__learning_rate=1e-30).fit(X, y))
    Z = X if scaling is None else StandardScaler().fit_transform(X)
    expected, threshold = oracles.co2_stump(
        Z, y, start.argmax(), cut / start.max(), "co2", n_epochs=25, leaves=leaves,
        row_norm=None, keep="last", schedule="constant", rate=0.1,
    )  # fmt: skip
    found, where = split_of(model)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    assert where == pytest.approx(threshold, rel=2e-3, abs=2e-3)


@pytest.mark.parametrize("leaves", ["counts", "gradient"])
@pytest.mark.parametrize("objective", ["co2", "soft"])
def test_single_rows_are_drawn_in_proportion_to_their_weights(objective, leaves):
    """Algorithm 1 with tiny steps: their sum is their number times the mean gradient by weight."""
    X, y = blobs(40)
    weight = np.random.default_rng(0).choice([1.0, 2.0, 10.0], size=40)
    Z = StandardScaler().fit(X, sample_weight=weight).transform(X)
    procedure = CO2Procedure(
        batch_size=1, momentum=0.0, schedule="constant", n_epochs=1000, learning_rate=1e-7,
        scaling="standard", row_norm=None, signs="old", leaves=leaves, keep="last",
    )  # fmt: skip
    model = CO2ForestClassifier(objective=objective, procedure=procedure, random_state=0, **PLAIN)
    start, cut = split_of(
        clone(model).set_params(procedure__learning_rate=1e-30).fit(X, y, weight)
    )
    found, _ = split_of(model.fit(X, y, weight))
    m = Z @ start - cut
    onehot = np.eye(3)[y] * weight[:, None]
    smoothing = 0.1 * weight.mean()
    shares = [onehot[side].sum(axis=0) + smoothing for side in (m <= 0, m > 0)]
    l0, l1 = (-np.log(share / share.sum())[y] for share in shares)
    gradient = np.average(
        oracles.co2_slope(m, l1 - l0, objective)[:, None] * Z, axis=0, weights=weight
    )
    n_steps = 1000 * len(X)
    own = np.abs(start) < 0.1  # float32 is too coarse for the weight of the first cut, near 1
    assert own.sum() == 4
    moved = (start - found)[own] / (1e-7 * n_steps)
    np.testing.assert_allclose(moved, gradient[own], atol=0.02 * np.abs(gradient).max())


@pytest.mark.parametrize("seed", range(6))
def test_steps_of_one_row_are_those_of_algorithm_1(seed):
    """One row has nearly all of the weight, so that it is drawn in every step."""
    X, y = blobs(20, seed=seed)
    X = X / 10
    weight = np.full(20, 1e-6)
    weight[seed] = 1.0
    rate, n_epochs, smoothing = 0.02, 3, 40.0  # both leaves begin nearly alike
    procedure = CO2Procedure(
        batch_size=1, momentum=0.0, schedule="constant", n_epochs=n_epochs, learning_rate=rate,
        smoothing=smoothing, scaling=None, row_norm=None, signs="old", leaves="gradient",
        keep="last",
    )  # fmt: skip
    model = CO2ForestClassifier(objective="co2", procedure=procedure, random_state=0, **PLAIN)
    w, bias = split_of(clone(model).set_params(procedure__learning_rate=1e-30).fit(X, y, weight))
    w = w.astype(float)
    sides = X @ w <= bias, X @ w > bias
    onehot, pseudo = np.eye(3)[y] * weight[:, None], smoothing * weight.mean()
    leaf = np.log([onehot[side].sum(axis=0) + pseudo for side in sides])
    x, label = X[seed], y[seed]
    for _ in range(n_epochs):
        sign = 1 if x @ w > bias else -1
        for _ in range(len(X)):  # lines 6 to 14
            m = x @ w - bias
            l0, l1 = -log_softmax(leaf, axis=1)[:, label]
            worse = int(l1 + m > l0 - m)
            leaf[worse] -= rate * (softmax(leaf[worse]) - np.eye(3)[label])
            step = rate * ((-1 if worse else 1) + sign)
            w, bias = w + step * x, bias - step
        if 0 < (X @ w > bias).sum() < len(X):
            last = w, bias
    found, threshold = split_of(model.fit(X, y, weight))
    np.testing.assert_allclose(found, last[0], rtol=1e-4, atol=1e-4)
    assert threshold == pytest.approx(last[1], abs=1e-4)


def test_signs_of_single_rows_are_those_at_the_end_of_the_last_epoch():
    X, y = blobs(40)
    procedure = CO2Procedure(batch_size=1, learning_rate=0.3, n_epochs=3, keep="last")
    model = CO2ForestClassifier(objective="co2", procedure=procedure, random_state=0, **PLAIN)
    old, current = (
        split_of(model.set_params(procedure__signs=signs).fit(X, y))[0]
        for signs in ("old", "current")
    )
    assert np.abs(old - current).max() > 0.1


@given(st.integers(0, 2**32 - 1))
@fixed
def test_the_bound_is_above_the_loss_and_touches_it_far_out(seed):
    """Equation 5: for any margin and losses; equality where |m| exceeds half the difference."""
    rng = np.random.default_rng(seed)
    m, l0, l1 = rng.normal(size=3) * 10 ** rng.uniform(-2, 2, size=3)
    loss = l1 if m > 0 else l0
    bound = oracles.co2_bound(m, l0, l1)
    assert bound >= loss - 1e-9 * (abs(loss) + abs(m))
    if 2 * abs(m) >= abs(l1 - l0):
        assert bound == pytest.approx(loss, abs=1e-9 * (1 + abs(loss) + abs(m)))


@pytest.mark.parametrize("objective", ["co2", "soft"])
def test_slopes_of_the_objectives_are_their_derivatives(objective):
    rng = np.random.default_rng(0)
    m, l0, l1 = rng.normal(size=(3, 1000))
    value = oracles.co2_bound if objective == "co2" else oracles.soft_loss
    smooth = np.abs(2 * m + l1 - l0) > 1e-3
    smooth &= np.abs(m) > 1e-3
    numeric = (value(m + 1e-6, l0, l1) - value(m - 1e-6, l0, l1)) / 2e-6
    slope = oracles.co2_slope(m, l1 - l0, objective)
    np.testing.assert_allclose(slope[smooth], numeric[smooth], atol=1e-6)


@pytest.mark.parametrize("objective", ["co2", "soft"])
def test_gradients_of_the_leaves_are_the_derivatives(objective):
    rng = np.random.default_rng(0)
    leaf, m, y = rng.normal(size=(2, 4)), rng.normal(size=50), rng.integers(0, 4, size=50)

    def mean_objective(leaf):
        l0, l1 = -log_softmax(leaf, axis=1)[:, y]
        return (oracles.co2_bound if objective == "co2" else oracles.soft_loss)(m, l0, l1).mean()

    gradient = oracles.leaf_gradient(leaf, m, y, objective)
    for side, k in np.ndindex(leaf.shape):
        step = np.zeros_like(leaf)
        step[side, k] = 1e-6
        numeric = (mean_objective(leaf + step) - mean_objective(leaf - step)) / 2e-6
        assert gradient[side, k] == pytest.approx(numeric, abs=1e-6)


# ----------------------------------------------------------------------- what holds for every tree


@pytest.mark.thin(2)
@pytest.mark.parametrize("objective", ["co2", "soft", "mixed", "oc1", "random", None])
@pytest.mark.parametrize("cls", [CO2ForestClassifier, CO2ForestRegressor])
def test_no_training_row_crosses_a_threshold(cls, objective):
    X, y = blobs(300, 8, 4)
    weight = np.random.default_rng(0).exponential(size=300)
    model = cls(5, objective=objective, bootstrap=False, random_state=0).fit(X, y, weight)
    leaves = model.apply(X)
    for tree, leaf in zip(model.forest_, leaves.T):
        counted = np.bincount(leaf, weight, minlength=tree.n_nodes)
        is_leaf = tree.child < 0
        np.testing.assert_allclose(counted[is_leaf], tree.node_weight[is_leaf], rtol=1e-9)
    assert model.score(X, y) == pytest.approx(1)


@pytest.mark.parametrize("objective", ["co2", "soft", "oc1", "random", None])
def test_features_in_other_units_give_the_same_trees(objective):
    """Powers of two, and shifts that float64 holds exactly."""
    X, y = make_classification(200, 6, n_informative=5, n_redundant=0, random_state=0)
    X = np.float32(X).astype(float)
    model = CO2ForestClassifier(5, objective=objective, random_state=0)
    plain = clone(model).fit(X, y)
    other = X * 2.0 ** np.array([0, 30, -30, 5, 1, -200]) + np.array([1024, 0, 0, 0, -7, 0])
    moved = clone(model).fit(other, y)
    for name in ("child", "threshold", "direction", "dense", "value"):
        np.testing.assert_array_equal(
            getattr(plain.forest_, name), getattr(moved.forest_, name), err_msg=name
        )
    np.testing.assert_array_equal(plain.predict_proba(X), moved.predict_proba(other))


def test_features_that_do_not_vary_in_a_node_have_no_weight():
    X, y = load_digits(return_X_y=True)
    model = CO2ForestClassifier(1, random_state=0).fit(X, y)
    forest = model.forest_
    path, _ = model.decision_path(X)
    parents = np.flatnonzero(forest.child >= 0)
    n_dense = 0
    for node in parents:
        split = (forest.child[node] - 1) // 2
        weights = forest.directions(forest.direction[[split]]).toarray()[0]
        rows = np.asarray(path[:, [node]].todense()).ravel() > 0
        constant = np.ptp(X[rows], axis=0) == 0
        assert (weights[constant] == 0).all()
        n_dense += np.count_nonzero(weights) > 1
    assert n_dense > 0.5 * len(parents)


@pytest.mark.parametrize("cls", [CO2ForestClassifier, CO2ForestRegressor])
def test_planes_leave_as_many_rows_as_asked(cls):
    """Also where a hyperplane that gains more would not."""
    X = np.random.default_rng(0).normal(size=(300, 4))
    y = np.arange(300) % 10 == 0
    for seed in range(4):
        model = cls(1, bootstrap=False, holdout=0.0, min_samples_leaf=20, random_state=seed)
        leaves = model.fit(X, y).apply(X)[:, 0]
        assert np.unique(leaves, return_counts=True)[1].min() >= 20


@pytest.mark.parametrize("nu", [0.5, 10.0])
def test_the_norm_of_a_split_is_bounded(nu):
    X, y = blobs(200, 6)
    forest = CO2ForestClassifier(3, nu=nu, holdout=0.0, random_state=0).fit(X, y).forest_
    square = (forest.dense.astype(float) ** 2).sum(axis=1)
    # The stored weights of a split that training does not change have norm 1.
    assert square.max() <= max(nu, 1) * (1 + 1e-5)
    assert len(square) > 10


@pytest.mark.parametrize("n, share", [(600, 0.3), (150, 0.2), (80, 0.5)])
def test_validation_rows_reject_planes_through_noise(n, share):
    """Also where few are held out, which the training rows would outvote."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 60))
    y = (X[:, 0] > 0) ^ (rng.random(n) < 0.2)
    shares = []
    for holdout in (0.0, share):
        model = CO2ForestClassifier(10, max_depth=1, max_features=None, random_state=0)
        model.set_params(objective="co2", holdout=holdout, bootstrap=True)
        forest = model.fit(X, y).forest_
        shares.append(np.mean(forest.direction >= 60))
    assert shares[0] > 0.9
    assert shares[1] < 0.5


def plain_forest():
    return CO2ForestClassifier(2, random_state=0)


@functools.cache
def plain_proba():
    X, y = make_classification(400, 8, n_informative=6, n_classes=3, random_state=0)
    return plain_forest().fit(X, y).predict_proba(X[:50] + 0.3)


@pytest.mark.parametrize(
    "params",
    [
        {"signs": "old"},
        {"leaves": "gradient"},
        {"objective": "soft"},
        {"objective": "mixed"},
        {"n_epochs": 1},
        {"batch_size": 7},
        {"momentum": 0.0},
        {"learning_rate": 0.3},
        {"smoothing": 5.0},
        {"row_norm": 1.0},
        {"row_norm": None},
        {"keep": "last"},
        {"schedule": "constant", "n_epochs": 30, "learning_rate": 0.3},
        {"scaling": "standard", "row_norm": None},
        {"scaling": None, "row_norm": None},
        {"splitter": "exact"},
        {"max_bins": 4},
        {"max_search_samples": 32},
        {"nu": 0.1},
    ],
)
def test_every_parameter_of_training_matters(params):
    X, y = make_classification(400, 8, n_informative=6, n_classes=3, random_state=0)
    other = changed(plain_forest(), **params).fit(X, y).predict_proba(X[:50] + 0.3)
    assert not np.array_equal(plain_proba(), other)


def with_missing(X):
    X = X.copy()
    X[::7, 1] = np.nan
    return X


@pytest.mark.parametrize("change", [np.asarray, with_missing, sparse.csr_matrix])
def test_standard_scaling_is_that_of_the_weighted_rows(change, tmp_path):
    """Mean 0 and deviation 1; sparse columns with zeros are not shifted."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)) * [1, 100, 0.01, 1] + [0, 5, 7, 0]
    X[::3, 0], X[:, 3] = 0, 2.5
    y, weight = rng.integers(0, 2, 60), rng.integers(0, 3, 60)
    X = change(X)
    model = CO2ForestClassifier(
        3, random_state=0, procedure=CO2Procedure(scaling="standard"), **MINIMAL
    )
    forest = model.fit(X, y, sample_weight=weight).forest_
    A = X.toarray() if sparse.issparse(X) else X
    B = np.repeat(A, weight, axis=0)
    scaler = StandardScaler().fit(B)
    mean = (
        np.where((B == 0).any(axis=0), 0, scaler.mean_)
        if change is sparse.csr_matrix
        else scaler.mean_
    )
    np.testing.assert_allclose(forest.scale[:3], 1 / scaler.scale_[:3], rtol=1e-6)
    np.testing.assert_allclose(forest.offset[:3], mean[:3], rtol=1e-5, atol=1e-7)
    assert forest.scale[3] == 0  # constant
    # Copies of rows, in another order, are the same training set.
    order = rng.permutation(weight.sum())
    rows = np.repeat(np.arange(60), weight)[order]
    again = clone(model).fit(X[rows], y[rows]).forest_
    for name, array in forest.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array, err_msg=name)
    forest.save(tmp_path / "forest")
    loaded = Forest.load(tmp_path / "forest")
    np.testing.assert_array_equal(loaded.response(A), model.predict_proba(X))


def test_without_scaling_rows_are_read_as_they_are():
    X, y = load_digits(return_X_y=True)
    model = CO2ForestClassifier(
        2, random_state=0, procedure=CO2Procedure(scaling=None), **MINIMAL
    ).fit(X[:200], y[:200])
    assert not model.forest_.offset.any()
    np.testing.assert_array_equal(model.forest_.scale, np.ptp(X[:200], axis=0) > 0)
    np.testing.assert_array_equal(model.predict_proba(X.astype(np.uint8)), model.predict_proba(X))


def test_the_first_class_wins_a_tie_of_votes_in_a_leaf():
    for labels in ([0, 1, 2], [2, 1, 0], ["b", "a", "c"]):
        model = CO2ForestClassifier(
            2, random_state=0, procedure=CO2Procedure(voting="hard"), **MINIMAL
        )
        found = model.fit(np.zeros((3, 1)), labels).predict_proba(np.zeros((1, 1)))
        np.testing.assert_array_equal(found, [[1, 0, 0]])
        several = np.stack([labels, labels[::-1]], axis=1)
        for part in clone(model).fit(np.zeros((3, 1)), several).predict_proba(np.zeros((1, 1))):
            np.testing.assert_array_equal(part, [[1, 0, 0]])


@pytest.mark.parametrize("outputs", [1, 2])
def test_hard_voting_counts_the_trees(outputs, tmp_path):
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    Y = y if outputs == 1 else np.stack([y, y % 3], axis=1)
    model = CO2ForestClassifier(5, max_depth=3, random_state=0, **MINIMAL).fit(X, Y)
    votes = clone(model).set_params(procedure=CO2Procedure(voting="hard"), n_estimators=3)
    votes.fit(X, Y)
    votes.set_params(n_estimators=5, warm_start=True).fit(X, Y)
    np.testing.assert_array_equal(votes.apply(X), model.apply(X))
    for k in range(outputs):
        n_classes = 10 if k == 0 else 3
        own = slice(0, 10) if k == 0 else slice(10, 13)
        trees = [tree.response(X)[:, own].argmax(axis=1) for tree in model.forest_]
        expected = np.mean([np.eye(n_classes)[labels] for labels in trees], axis=0)
        found = votes.predict_proba(X)
        np.testing.assert_allclose(found if outputs == 1 else found[k], expected, atol=1e-6)
    votes.forest_.save(tmp_path / "forest")
    found = Forest.load(tmp_path / "forest").predict(X)
    np.testing.assert_array_equal(found, votes.predict(X))
    refined = refine(votes, X, Y, n_sweeps=1, random_state=0)
    assert set(np.unique(refined.forest_[:1].response(X))) == {0.0, 1.0}


def test_several_outputs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    Y = np.stack([X @ rng.normal(size=5), np.sin(X[:, 0]), X[:, 1] > X[:, 2]], axis=1)
    model = CO2ForestRegressor(20, random_state=0).fit(X[:200], Y[:200])
    assert model.score(X[200:], Y[200:]) > 0.6


# --------------------------------------------------------------------------------------- numbers


def test_numbers_beyond_float32_are_learned():
    X, y = blobs(100)
    huge = X * 1e150
    model = CO2ForestClassifier(3, random_state=0)
    assert clone(model).fit(huge, y).score(huge, y) == 1
    far = clone(model).fit(X, y).predict_proba(np.full((1, X.shape[1]), 1e300))
    assert np.isfinite(far).all()


def test_differences_beyond_float32_are_learned():
    X = (1 + 1e-12 * np.arange(40.0))[:, None]
    y = np.arange(40) // 10
    assert CO2ForestClassifier(3, random_state=0).fit(X, y).score(X, y) == 1


@pytest.mark.parametrize("column", [[-1.7e308, 1.7e308], [0, 1e-320]])
def test_ranges_beyond_float64_are_refused(column):
    X = np.array([[0.0, column[0]], [1.0, column[1]]])
    with pytest.raises(ValueError, match="feature 1 of X has a range"):
        CO2ForestClassifier(2).fit(X, [0, 1])
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="column 'width' of X has a range"):
        CO2ForestClassifier(2).fit(pd.DataFrame(X, columns=["size", "width"]), [0, 1])


def test_bytes_and_floats_give_the_same_forest():
    X, y = load_digits(return_X_y=True)
    model = CO2ForestClassifier(3, random_state=0)
    plain = clone(model).fit(X, y)
    for dtype in (np.uint8, np.float32, np.int64):
        other = clone(model).fit(X.astype(dtype), y)
        np.testing.assert_array_equal(plain.forest_.dense, other.forest_.dense)
        np.testing.assert_array_equal(plain.predict_proba(X), other.predict_proba(X.astype(dtype)))


# -------------------------------------------------------------------------------------- accuracy


@pytest.mark.slow  # so does the example of CO2ForestClassifier, with one split of the rows
def test_better_than_a_random_forest_on_digits():
    X, y = load_digits(return_X_y=True)
    ours = cross_val_score(CO2ForestClassifier(30, random_state=0), X, y, cv=3).mean()
    theirs = cross_val_score(RandomForestClassifier(30, random_state=0), X, y, cv=3).mean()
    assert ours > theirs + 0.01


def test_better_than_a_random_forest_on_a_linear_target():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 10))
    y = X @ rng.normal(size=10)
    ours = cross_val_score(CO2ForestRegressor(10, random_state=0), X, y, cv=3).mean()
    theirs = cross_val_score(RandomForestRegressor(10, random_state=0), X, y, cv=3).mean()
    assert ours > theirs + 0.1


@pytest.mark.slow  # the example of CO2ForestRegressor fits the same rows
def test_good_on_diabetes():
    X, y = load_diabetes(return_X_y=True)
    model = CO2ForestRegressor(100, bootstrap=True, random_state=0)
    assert cross_val_score(model, X, y, cv=3).mean() > 0.4


@pytest.mark.parametrize("seed", range(4))
def test_training_leaves_the_cut_of_a_binary_feature(seed):
    """All rows have the same distance to its cut, where the bound can be flat."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (2000, 30)).astype(np.float32)
    y = (X - 0.5) @ rng.normal(size=30) + rng.normal(size=2000) / 2 > 0
    stump = CO2ForestClassifier(objective="co2", random_state=0, **PLAIN)
    axis = clone(stump).set_params(objective=None).fit(X[:1000], y[:1000])
    assert axis.score(X[1000:], y[1000:]) < 0.8
    assert stump.fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.88


def test_an_epoch_of_a_small_node_has_several_steps():
    """With old signs, the branches of rows are those before the first of these steps."""
    X, y = make_classification(80, 6, n_informative=4, class_sep=0.5, random_state=0)

    def planes(**params):
        procedure = CO2Procedure(learning_rate=0.02, schedule="constant", **params)
        model = CO2ForestClassifier(
            1, objective="co2", bootstrap=False, holdout=0.0, max_depth=1, max_features=None,
            procedure=procedure, random_state=0,
        )  # fmt: skip
        return model.fit(X, y).forest_.directions().toarray()

    last = {"keep": "last", "leaves": "counts"}
    one = planes(n_epochs=6, **last)
    # Leaves are fitted once an epoch, so that six steps in one epoch are not six epochs.
    assert not np.array_equal(one, planes(n_epochs=1, min_batches=6, **last))
    # Signs of the last epoch only differ from current ones where an epoch has several steps.
    for min_batches, are_equal in ((1, True), (20, False)):
        pair = [
            planes(n_epochs=3, min_batches=min_batches, signs=signs, **last)
            for signs in ("old", "current")
        ]
        assert np.array_equal(*pair) == are_equal


def test_a_weight_counts_as_rows_that_are_nearly_equal():
    """Equal rows are merged into one with a weight, so that copies would not show a wrong sum."""
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(60, 4)), rng.integers(1, 6, size=60)
    y = np.where(X[:, 0] + X[:, 1] > 0.5, 2.0, 0.0) + 0.3 * rng.normal(size=60) + 10
    rows = np.repeat(np.arange(60), weight)
    X_near = X[rows] + 1e-5 * rng.normal(size=(len(rows), 4))
    procedure = CO2Procedure(batch_size=1000, n_epochs=12)
    model = CO2ForestRegressor(objective="co2", procedure=procedure, **PLAIN)
    expected = model.fit(X_near, y[rows]).predict(X)
    direction, threshold = split_of(model)
    assert (np.abs(direction) > 1e-3).sum() > 1
    for target, weights in ((y, weight), (np.stack([y, y], axis=1), weight)):
        model.fit(X, target, weights)
        found = split_of(model)
        np.testing.assert_allclose(found[0], direction, atol=2e-3)
        assert found[1] == pytest.approx(threshold, abs=2e-3)
        predicted = model.predict(X).reshape(60, -1)
        np.testing.assert_allclose(predicted.T, [expected] * predicted.shape[1], rtol=1e-3)
