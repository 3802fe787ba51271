"""Trees of oblique boosting: monotonic constraints, and constraints of interactions."""

import numpy as np
import pytest
from forests import grow_boosted
from hypothesis import given
from hypothesis import strategies as st
from makers import assert_same_trees, fixed
from makers import boosting_rows as rows_of
from makers import quick_boosting as quick
from sklearn.base import clone

from skforest import ObliqueBoostingClassifier, ObliqueBoostingRegressor, load, save
from skforest.training.constraints import Interactions, read_groups

# --------------------------------------------------------------------------- monotonic constraints


def check_monotonic(respond, X, constraints):
    """Predictions along each constrained column, from rows of X."""
    for j, sign in enumerate(constraints):
        if not sign:
            continue
        grid = np.quantile(X[:, j], np.linspace(0, 1, 60))
        rows = np.repeat(X[:25], 60, axis=0)
        rows[:, j] = np.tile(grid, 25)
        assert (sign * np.diff(respond(rows).reshape(25, 60), axis=1) >= 0).all()


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "poisson", "gamma", "log"])
def test_predictions_obey_monotonic_constraints(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    raw = np.sin(3 * X[:, 0]) + X[:, 0] - X[:, 1] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3]
    constraints = [1, -1, 0, 0]
    common = {"n_estimators": 40, "monotonic_cst": constraints, "early_stopping": False}
    if loss == "log":
        model = quick(ObliqueBoostingClassifier, **common).fit(X, raw > 0)
        plain = quick(ObliqueBoostingClassifier, n_estimators=40).fit(X, raw > 0)
        respond = [lambda rows, m=m: m.predict_proba(rows)[:, 1] for m in (model, plain)]
        assert model.score(X, raw > 0) > 0.9
    else:
        y = raw if loss in ("squared_error", "absolute_error") else np.exp(raw / 2)
        model = quick(ObliqueBoostingRegressor, loss=loss, **common).fit(X, y)
        plain = quick(ObliqueBoostingRegressor, loss=loss, n_estimators=40).fit(X, y)
        respond = [model.predict, plain.predict]
        assert model.score(X, y) > 0.5
    check_monotonic(respond[0], X, constraints)
    with pytest.raises(AssertionError):
        check_monotonic(respond[1], X, constraints)
    # Weights of directions have the signs of the constraints.
    feature, weight = model.forest_.sparse_feature, model.forest_.sparse_weight
    assert set(feature) == {0, 1, 2, 3} and {*np.sign(weight[feature == 2])} == {-1, 1}
    assert (weight[feature == 0] > 0).all() and (weight[feature == 1] < 0).all()


def test_directions_without_constrained_columns_are_free_in_all_trees():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = X[:, 0] + np.sin(2 * (X[:, 1] + X[:, 2]))
    options = {"n_estimators": 60, "n_bags": 1, "max_depth": 1, "monotonic_cst": [1, 0, 0]}
    forest = quick(ObliqueBoostingRegressor, early_stopping=False, **options).fit(X, y).forest_
    weight = forest.directions(forest.direction).toarray()
    left, right = forest.value[-1 - forest.child.reshape(60, 3)[:, 1:]].T
    is_free = (weight[:, 0] == 0) & (weight[:, 1] != 0) & (weight[:, 2] != 0)
    rises = (right > left)[is_free]
    assert rises[-len(rises) // 2 :].any() and not rises[-len(rises) // 2 :].all()


@given(st.integers(0, 2**32 - 1))
@fixed
def test_values_of_trees_are_monotonic(seed):
    """Ties, equal rows, and any gradients: bounds of the leaves keep the order of the rows."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 6, size=(60, 3)).astype(np.float32)
    derivative = np.hstack([rng.integers(-3, 4, size=(60, 1)), rng.integers(1, 4, size=(60, 1))])
    signs = rng.integers(-1, 2, size=3).astype(np.int8)
    options = {"n_directions": int(rng.integers(0, 10)), "seed": seed % 2**31}
    tree, leaf, _, bounds = grow_boosted(X, derivative, monotonic=signs, max_depth=5, **options)
    low, high = bounds[leaf].T
    value = -np.bincount(leaf, derivative[:, 0]) / (np.bincount(leaf, derivative[:, 1]) + 1)
    value = np.clip(value, *bounds.T)[leaf]
    assert (low <= high).all()
    for i in range(60):
        # Rows that differ in one constrained column.
        for j in np.flatnonzero(signs):
            other = np.delete(X, j, axis=1)
            above = (other == other[i]).all(axis=1) & (X[:, j] > X[i, j])
            assert (signs[j] * (value[above] - value[i]) >= 0).all()


def test_the_bound_between_two_children_is_the_middle_of_their_values():
    rng = np.random.default_rng(0)
    X = np.arange(40)[:, None]
    derivative = np.column_stack([rng.normal(size=40) - (X[:, 0] > 15), np.ones(40)])
    monotonic = np.ones(1, dtype=np.int8)
    _, leaf, _, bounds = grow_boosted(X, derivative, monotonic=monotonic, max_depth=1, l2=2.0)
    value = -np.bincount(leaf, derivative[:, 0]) / (np.bincount(leaf) + 2)
    assert len(value) == 2 and value[0] < value[1]
    expected = [[-np.inf, value.mean()], [value.mean(), np.inf]]
    np.testing.assert_allclose(bounds, expected, rtol=1e-6)


def test_without_constraints_bounded_search_is_the_plain_one():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    derivative = np.column_stack([rng.normal(size=100), np.ones(100)])
    plain, _, _ = grow_boosted(X, derivative)
    bounded, _, _, bounds = grow_boosted(X, derivative, monotonic=np.zeros(3, dtype=np.int8))
    np.testing.assert_array_equal(plain["direction"], bounded["direction"])
    np.testing.assert_array_equal(plain["threshold"], bounded["threshold"])
    np.testing.assert_allclose(plain["gain"], bounded["gain"], rtol=1e-5)
    assert np.isinf(bounds).all()


def test_monotonic_constraints_of_a_data_frame():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    colour = rng.choice(["blue", "green"], size=300)
    frame = pandas.DataFrame({"c": pandas.Categorical(colour), "x": rng.normal(size=300)})
    frame["z"] = rng.normal(size=300)
    y = np.sin(4 * frame["x"]) + frame["x"] + (colour == "green")
    frame.loc[::9, "x"] = np.nan
    model = quick(ObliqueBoostingRegressor, monotonic_cst={"x": 1}).fit(frame, y)
    grid = frame.iloc[np.ones(50, dtype=int)].assign(x=np.linspace(-2, 2, 50))
    assert (np.diff(model.predict(grid)) >= 0).all() and np.ptp(model.predict(grid)) > 1
    for cst in ([0, 1, 0], pandas.Series([0, 1, 0]), pandas.Series({"z": 0, "x": 1, "c": 0})):
        again = quick(ObliqueBoostingRegressor, monotonic_cst=cst).fit(frame, y)
        assert_same_trees(model, again)
    for wrong in ({"c": 1}, {"q": 1}, {"x": [1]}, [1, 0, 0], [0, 1], [0, 2, 0]):
        with pytest.raises(ValueError, match="monotonic_cst="):
            clone(model).set_params(monotonic_cst=wrong).fit(frame, y)


def test_monotonic_constraints_need_one_output():
    X, y = rows_of(ObliqueBoostingClassifier)
    constraints = {"monotonic_cst": [1, 0, 0, 0, 0, 0]}
    with pytest.raises(ValueError, match="monotonic_cst=.*one output and one quantile, or two"):
        quick(ObliqueBoostingClassifier, **constraints).fit(X, y)
    with pytest.raises(ValueError, match="monotonic_cst=.*one output and one quantile, or two"):
        quick(ObliqueBoostingRegressor, **constraints).fit(X, X[:, :2])
    for all_of_them in ([1] * 6, [1] * 5 + [0]):
        model = quick(ObliqueBoostingClassifier, monotonic_cst=all_of_them).fit(X, y == 1)
        weight = model.forest_.sparse_weight[model.forest_.sparse_feature < 5]
        assert len(weight) and (weight > 0).all()


def test_signs_of_0_are_no_constraints():
    X = np.random.default_rng(0).normal(size=(90, 3))
    for cls, y in ((ObliqueBoostingClassifier, np.arange(90) % 3), (ObliqueBoostingRegressor, X)):
        model = quick(cls, n_estimators=3)
        one, other = (clone(model).set_params(monotonic_cst=c).fit(X, y) for c in (None, [0] * 3))
        assert_same_trees(one, other)


def test_a_monotonic_direction_is_found():
    """The target rises along a sum of constrained columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 4))
    y = np.tanh(2 * (X[:, 0] - X[:, 1])) + 0.1 * rng.normal(size=1000)
    options = {"n_estimators": 60, "monotonic_cst": [1, -1, 0, 0]}
    errors = []
    for n_directions in (0, 64):
        model = quick(ObliqueBoostingRegressor, n_directions=n_directions, **options)
        errors.append(1 - model.fit(X[:500], y[:500]).score(X[500:], y[500:]))
    assert errors[1] < 0.7 * errors[0]


# --------------------------------------------------------------------- constraints of interactions


GROUPS = {
    "pairs and the rest": [{0, 1}, [1, 2]],
    "overlapping": [(0, 1, 2), {2, 3, 4}, {0, 4}],
    "no_interactions": "no_interactions",
    "pairwise": "pairwise",
}


def interactions_of(respond, X, rng):
    """Largest mixed second difference of each pair of columns, at random rows and shifts."""
    d = X.shape[1]
    found = np.zeros((d, d))
    base, other = (X[rng.integers(len(X), size=300)] for _ in range(2))
    for i in range(d):
        for j in range(i):
            moved = [base.copy() for _ in range(3)]
            for k, columns in enumerate(([i], [j], [i, j])):
                moved[k][:, columns] = other[:, columns]
            one, two, both = map(respond, moved)
            found[i, j] = found[j, i] = np.abs(respond(base) + both - one - two).max()
    return found


def test_features_are_drawn_within_groups_of_several_features():
    groups = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]], dtype=bool)
    chance = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    found = Interactions(groups, np.array([0, 1, 1, 2, 3])).chances(chance)
    np.testing.assert_array_equal(found, [0.1, 0.2, 0.3, 0, 0, *[0] * 5, 0, 0.2, 0.3, 0, 0.5])
    np.testing.assert_array_equal(Interactions(2, np.arange(5)).chances(chance), chance)


@pytest.mark.thin(2)
@pytest.mark.parametrize("linear_leaves", [False, True])
@pytest.mark.parametrize("given", GROUPS.values(), ids=GROUPS)
def test_columns_of_different_groups_do_not_interact(given, linear_leaves):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    y = X[:, 0] * X[:, 1] + X[:, 1] * X[:, 2] + X[:, 3] * X[:, 4] + X[:, 0] * X[:, 5]
    options = {"interaction_cst": given, "linear_leaves": linear_leaves, "max_depth": 5}
    model = quick(ObliqueBoostingRegressor, **options).fit(X, y)
    found = interactions_of(model.predict, X, rng)
    if given == "pairwise":  # no term has three columns
        base, other = (X[rng.integers(300, size=200)] for _ in range(2))
        total = 0
        for number in range(8):
            chosen = [number >> k & 1 for k in range(3)]
            mixed = base.copy()
            mixed[:, :3] = np.where(chosen, other[:, :3], base[:, :3])
            total = total + (-1) ** sum(chosen) * model.predict(mixed)
        assert np.abs(total).max() < 1e-4 and found[0, 1] > 0.1
        return
    allowed = np.eye(6, dtype=bool)
    groups = [] if given == "no_interactions" else [*map(list, given)]
    if given == GROUPS["pairs and the rest"]:
        groups.append([3, 4, 5])
    for group in groups:
        allowed[np.ix_(group, group)] = True
    assert found[~allowed].max() < 1e-4
    assert not groups or found[allowed].max() > 0.1
    assert (len(model.forest_.sparse_feature) > 0) == (given != "no_interactions")


@given(st.integers(0, 2**32 - 1))
@fixed
def test_paths_and_directions_stay_within_groups(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(120, 7)), rng.normal(size=120)
    groups = [set(np.flatnonzero(mask).tolist()) for mask in rng.random((3, 7)) < 0.5]
    options = {"interaction_cst": groups, "min_samples_leaf": 3, "n_bags": 1, "n_estimators": 3}
    forest = quick(ObliqueBoostingRegressor, early_stopping=False, **options).fit(X, y).forest_
    groups.append(set(range(7)).difference(*groups))
    sparse = np.split(forest.sparse_feature, forest.sparse_start[1:-1])

    def walk(tree, node, used):
        assert any(used <= group for group in groups)
        if tree.child[node] >= 0:
            code = tree.direction[(tree.child[node] - 1) // 2]
            own = [code] if code < 7 else sparse[code - 7].tolist()
            for child in (0, 1):
                walk(tree, tree.child[node] + child, used | set(own))

    for tree in range(3):
        walk(forest[tree], 0, set())


def test_interactions_of_a_data_frame(tmp_path):
    """Features of one column of X belong together."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    colour = rng.choice(["blue", "green", "red"], size=400)
    frame = pandas.DataFrame({"c": pandas.Categorical(colour), "x": rng.normal(size=400)})
    frame["z"] = rng.normal(size=400)
    y = frame["x"] * (colour == "green") + frame["z"] * (colour == "red")
    by_name = quick(ObliqueBoostingRegressor, interaction_cst=[{"c", "x"}]).fit(frame, y)
    save(by_name, tmp_path / "model")
    assert load(tmp_path / "model").interaction_cst == [{"c", "x"}]
    assert_same_trees(
        by_name, quick(ObliqueBoostingRegressor, interaction_cst=[[0, 1]]).fit(frame, y)
    )
    rows = frame.iloc[:40]
    shift = [by_name.predict(rows.assign(z=z)) - by_name.predict(rows) for z in (-1.0, 1.0)]
    slope = by_name.predict(rows.assign(z=1.0)) - by_name.predict(rows.assign(z=-1.0))
    np.testing.assert_allclose(slope, slope[0], atol=1e-5)
    assert np.ptp(shift[0]) > 0
    for wrong in ([{"q"}], [{3}], [{-1}], [1, 2], ["c"], [[0.5]], ("c", "x")):
        with pytest.raises(ValueError, match="interaction_cst="):
            clone(by_name).set_params(interaction_cst=wrong).fit(frame, y)


def test_columns_in_no_group_are_a_group():
    names = ["a", "b", "c", "d"]
    groups = [[1, 0, 1, 0], [0, 0, 1, 0], [0, 1, 0, 1]]
    for each in ([{0, "c"}, [2]], [("a", 2), {"c"}], [["a", "c"], ["c"], ["d", "b"]]):
        np.testing.assert_array_equal(read_groups(each, names), np.array(groups, dtype=bool))
    assert [read_groups(x, names) for x in ("pairwise", "no_interactions", None)] == [2, 1, None]
