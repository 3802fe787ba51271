"""Manifold forests: the effect of each parameter, and data on which patches help."""

import numpy as np
import pytest
from makers import changed, made
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from skforest import (
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ManifoldProcedure,
    load,
    save,
    shapley_values,
)

BOTH = [ManifoldForestClassifier, ManifoldForestRegressor]
SHAPE = (5, 8)


@pytest.fixture(params=BOTH, ids=lambda cls: cls.__name__)
def forest(request):
    return request.param(n_estimators=5, random_state=0, bootstrap=False)


def noise(n=200, n_features=40, seed=0):
    """Targets that are independent of the rows: no direction is better than another."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, n_features)).astype(np.float32), rng.integers(0, 2, n)


def drawn(shape, n=200, **params):
    """Drawn directions as dense arrays: a node with one candidate splits by it."""
    n_features = int(np.prod(shape))
    own = {"feature_shape": shape, "max_features": 1, "random_state": 0}
    model = made(ManifoldForestClassifier, 10, **own, **params)
    model.fit(*noise(n, n_features))
    weights = model.forest_.directions().toarray()
    assert len(weights) > 200
    return weights.reshape(-1, *np.atleast_1d(shape))


def extent(mask):
    """First entry and length of a boolean array's bounding box, along each axis."""
    hit = np.argwhere(mask)
    return hit.min(axis=0), np.ptp(hit, axis=0) + 1


def is_box(mask):
    """Are the entries that are true a full block?"""
    return np.prod(extent(mask)[1]) == mask.sum()


def is_run_on_circle(mask):
    """Are the true entries one run on a circle?"""
    return np.count_nonzero(mask & ~np.roll(mask, 1)) <= 1


def axis_of_edge(one):
    """Axis along which the two boxes of an edge are adjacent."""
    (apart,) = np.flatnonzero(extent(one > 0)[0] != extent(one < 0)[0])
    return int(apart)


# ---------------------------------------------------------------------- every parameter matters

# Further parameters, and a value of the parameter that is not its default.
EFFECTS = {
    "n_estimators": ({}, 6),
    "projection": ({}, "axis"),
    "feature_shape": ({"projection": "patch"}, (10, 4)),
    "contrast": ({"projection": "patch"}, "difference"),
    "min_patch": ({"projection": "patch"}, 2),
    "max_patch": ({"projection": "patch"}, (5, 8)),
    "wrap": ({"projection": "patch"}, True),
    "unordered": ({"projection": "patch"}, (True, False)),
    "placement": ({"projection": "patch"}, "inside"),
    "n_nonzeros": ({"projection": "sparse"}, 6.0),
    "nonzeros": ({"projection": "sparse"}, "fixed"),
    "sparse_weights": ({"projection": "sparse"}, "sign"),
    "criterion": ({}, "entropy"),
    "splitter": ({}, "exact"),
    "max_bins": ({}, 5),
    "max_search_samples": ({}, 50),
    "max_features": ({}, 0.9),
    "max_depth": ({}, 3),
    "min_samples_split": ({}, 20),
    "min_samples_leaf": ({}, 9),
    "max_leaf_nodes": ({}, 7),
    "min_impurity_decrease": ({}, 0.02),
    "bootstrap": ({}, False),
    "min_weight_fraction_leaf": ({}, 0.2),
    "max_samples": ({}, 0.4),
    "class_weight": ({}, {0: 5, 1: 1, 2: 1}),
    "categorical_features": ({"feature_shape": None}, [0]),
    "random_state": ({}, 1),
}
# These change no tree. Each has a test elsewhere.
NO_EFFECT_ON_TREES = ["oob_score", "n_jobs", "verbose", "warm_start", "time_limit"]


@pytest.mark.parametrize("cls", BOTH, ids=lambda cls: cls.__name__)
def test_the_list_of_parameters_is_complete(cls):
    listed = {*EFFECTS, *NO_EFFECT_ON_TREES}
    if cls is ManifoldForestRegressor:
        listed -= {"class_weight", "criterion"}
    apart = ManifoldProcedure().get_params().keys()
    assert apart < listed
    assert cls().get_params().keys() == listed - apart | {"procedure"}


@pytest.mark.parametrize("cls", BOTH, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("name", EFFECTS)
def test_every_parameter_has_an_effect(cls, name):
    beside, value = EFFECTS[name]
    if cls is ManifoldForestRegressor and name in ("class_weight", "criterion"):
        with pytest.raises(TypeError, match=name):
            cls(**{name: value})
        return
    X, y = make_classification(300, 40, n_informative=6, n_classes=3, random_state=0)
    params = {"n_estimators": 5, "random_state": 0, "feature_shape": SHAPE, **beside}
    one = cls(**params).fit(X, y)
    other = made(cls, **{**params, name: value}).fit(X, y)
    assert not (
        np.array_equal(one.forest_.child, other.forest_.child)
        and np.array_equal(one.forest_.threshold, other.forest_.threshold)
    )


@pytest.mark.parametrize("name", NO_EFFECT_ON_TREES)
@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB")
def test_the_other_parameters_change_no_tree(forest, name):
    X, y = noise(100)
    forest.set_params(bootstrap=True, n_estimators=20)
    value = {"n_jobs": 2}.get(name, True)
    other = clone(forest).set_params(**{name: value}).fit(X, y)
    np.testing.assert_array_equal(other.forest_.threshold, forest.fit(X, y).forest_.threshold)


# --------------------------------------------------------------------------------- projections


def test_auto_projection_is_patch_where_a_shape_is_given(forest):
    X, y = noise(60)
    assert forest.fit(X, y).projection_ == "sparse"
    assert forest.set_params(feature_shape=SHAPE).fit(X, y).projection_ == "patch"
    assert forest.set_params(projection="axis").fit(X, y).projection_ == "axis"
    assert forest.feature_shape_ == SHAPE


def test_axis_directions_are_features():
    weights = drawn(40, projection="axis")
    assert (np.count_nonzero(weights, axis=1) == 1).all()
    assert (weights.max(axis=1) == 1).all()
    assert set(weights.argmax(axis=1)) == set(range(40))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_sparse_directions_with_a_fixed_number(n):
    weights = drawn(40, projection="sparse", nonzeros="fixed", n_nonzeros=n, sparse_weights="sign")
    assert set(np.unique(weights)) <= {-1, 0, 1}
    assert (np.count_nonzero(weights, axis=1) == n).all()
    assert (weights != 0).any(axis=0).all()
    if n > 1:
        assert (weights[weights != 0] == 1).mean() == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("mean", [0.5, 1.0, 3.0, 8.0])
def test_sparse_directions_with_a_poisson_number(mean):
    weights = drawn(40, projection="sparse", nonzeros="poisson", n_nonzeros=mean)
    counts = np.count_nonzero(weights, axis=1)
    assert counts.min() >= 1
    # A Poisson number that is not zero.
    expected = mean / -np.expm1(-mean)
    spread = np.sqrt(expected * (1 + mean - expected) / len(counts))
    assert abs(counts.mean() - expected) < 4 * spread
    assert counts.max() > expected


def test_scaled_weights_are_signs_over_standard_deviations(forest):
    X, y = noise(300, 6)
    X *= np.float32([1, 1000, 1e-3, 1, 1e6, 1])
    changed(forest, projection="sparse", nonzeros="fixed", n_nonzeros=3, sparse_weights="scaled")
    weights = forest.fit(X, y).forest_.directions().toarray()
    assert (np.count_nonzero(weights, axis=1) == 3).all()
    signs = weights * X.std(axis=0)
    np.testing.assert_allclose(np.abs(signs[signs != 0]), 1, rtol=0.01)
    assert (signs > 0).any() and (signs < 0).any()


def test_scaled_weights_do_not_depend_on_units():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 6))
    y = (X[:, 0] - X[:, 1] + X[:, 2] > 0).astype(int)
    X *= 10.0 ** np.arange(-3, 3)
    errors = {}
    for kind in ("scaled", "sign"):
        procedure = ManifoldProcedure(nonzeros="fixed", n_nonzeros=3, sparse_weights=kind)
        model = ManifoldForestClassifier(
            50, projection="sparse", max_features=None, procedure=procedure, random_state=0
        )
        errors[kind] = error(model, (X[:300], y[:300]), (X[300:], y[300:]))
    assert errors["scaled"] < 0.3 * errors["sign"]


def test_more_nonzeros_than_features_mean_all_features():
    weights = drawn(4, n=400, projection="sparse", nonzeros="fixed", n_nonzeros=100)
    assert (weights != 0).all()


def test_sums_are_boxes_of_ones():
    weights = drawn(SHAPE, contrast="sum", max_patch=4)
    for one in weights:
        assert set(np.unique(one)) <= {0, 1}
        assert is_box(one != 0)


@pytest.mark.parametrize("contrast", ["sum", "edge"])
def test_sizes_keep_to_the_limits_of_each_axis(contrast):
    weights = drawn((5, 9), contrast=contrast, min_patch=(1, 2), max_patch=(2, 4))
    sizes = {tuple(extent(one > 0)[1]) for one in weights}
    assert sizes == {(a, b) for a in (1, 2) for b in (2, 3, 4)}


def test_one_limit_for_all_axes():
    weights = drawn((5, 9), contrast="sum", min_patch=2, max_patch=3)
    sizes = {tuple(extent(one != 0)[1]) for one in weights}
    assert sizes == {(a, b) for a in (2, 3) for b in (2, 3)}


def test_smallest_and_largest_size_may_be_the_same():
    weights = drawn((5, 9), contrast="sum", min_patch=(5, 3), max_patch=(5, 3))
    corners = {tuple(extent(one != 0)[0]) for one in weights}
    assert corners == {(0, b) for b in range(7)}
    assert all((one != 0).sum() == 15 for one in weights)


def test_edges_are_two_boxes_side_by_side():
    weights = drawn((6, 9), contrast="edge", max_patch=3)
    along = set()
    for one in weights:
        assert set(np.unique(one)) == {-1, 0, 1}
        assert one.sum() == 0
        assert is_box(one > 0) and is_box(one < 0) and is_box(one != 0)
        assert extent(one > 0)[1].tolist() == extent(one < 0)[1].tolist()
        along.add(axis_of_edge(one))
    assert along == {0, 1}


def test_differences_are_two_equal_boxes_not_far_apart():
    weights = drawn((30, 20), contrast="difference", min_patch=2, max_patch=2)
    apart = []
    for one in weights:
        if (one != 0).sum() == 8:  # boxes that do not overlap
            a, b = extent(one > 0)[0], extent(one < 0)[0]
            apart.append(np.abs(a - b))
            assert is_box(one > 0) and is_box(one < 0)
        else:  # overlapping boxes cancel, equal ones fall back to a sum
            assert one.sum() in (0, 4)
    assert len(apart) > 100
    assert 4 < np.max(apart) <= 8
    assert (np.array(apart) > 0).any(axis=0).all()


def test_a_mix_is_one_of_the_three():
    weights = drawn((12, 15), n=400, contrast="mix", min_patch=2, max_patch=3)
    kinds = {"sum": 0, "edge": 0, "difference": 0}
    for one in weights:
        if one.min() >= 0:
            kinds["sum"] += 1
            assert is_box(one != 0) and one.max() == 1
        else:
            kinds["edge" if is_box(one != 0) else "difference"] += 1
            assert one.sum() == 0
    # A few differences look like sums or edges.
    spread = np.sqrt(2 / 9 / len(weights))
    for count in kinds.values():
        assert count / len(weights) == pytest.approx(1 / 3, abs=4 * spread + 0.03)


@pytest.mark.parametrize("contrast", ["sum", "edge"])
def test_wrap_on_a_circle(contrast):
    weights = drawn(20, contrast=contrast, max_patch=5, wrap=True)
    crossing = 0
    for one in weights:
        assert is_run_on_circle(one > 0) and is_run_on_circle(one < 0)
        assert is_run_on_circle(one != 0)
        crossing += one[0] != 0 and one[-1] != 0
    assert crossing > len(weights) / 20
    # All positions of a circle are equally likely.
    share = (weights != 0).mean(axis=0)
    assert share.max() < 1.6 * share.min()
    straight = drawn(20, contrast=contrast, max_patch=5, wrap=False)
    assert not ((straight[:, 0] != 0) & (straight[:, -1] != 0)).any()


def test_wrap_of_single_axes():
    weights = drawn((6, 9), contrast="sum", max_patch=3, wrap=(False, True))
    assert not ((weights[:, 0] != 0) & (weights[:, -1] != 0)).any()
    assert ((weights[:, :, 0] != 0) & (weights[:, :, -1] != 0)).any()
    torus = drawn((6, 9), contrast="sum", max_patch=3, wrap=True)
    corners = torus[:, [0, 0, -1, -1], [0, -1, 0, -1]] != 0
    assert corners.all(axis=1).any()


def test_unordered_axis_takes_random_subsets():
    weights = drawn(8, n=400, contrast="sum", unordered=True, min_patch=1, max_patch=8)
    sizes = np.count_nonzero(weights, axis=1)
    assert set(sizes) == set(range(1, 9))
    assert len(np.unique(weights, axis=0)) > 100  # there are 36 runs
    np.testing.assert_allclose((weights != 0).mean(axis=0), 4.5 / 8, atol=0.1)


@pytest.mark.parametrize("contrast", ["sum", "edge", "difference"])
def test_colour_images_take_the_same_channels_everywhere(contrast):
    weights = drawn(
        (6, 7, 3), contrast=contrast, max_patch=(3, 3, 3), unordered=(False, False, True)
    )
    seen = set()
    for one in weights:
        channels = (one != 0).any(axis=(0, 1))
        seen.add(tuple(channels))
        # The same box in every channel of the subset.
        picture = one[:, :, channels]
        assert (picture == picture[:, :, :1]).all()
        if contrast == "edge":
            assert one.sum() == 0 and is_box((one > 0).any(axis=2))
    assert len(seen) == 7  # all subsets but the empty one


def test_volumes():
    weights = drawn((4, 5, 6), contrast="sum", min_patch=(1, 2, 1), max_patch=(2, 2, 4))
    sizes = {tuple(extent(one != 0)[1]) for one in weights}
    assert sizes == {(a, 2, c) for a in (1, 2) for c in (1, 2, 3, 4)}
    assert all(is_box(one != 0) and one.max() == 1 for one in weights)
    edges = drawn((4, 5, 6), contrast="edge", max_patch=2)
    assert {axis_of_edge(one) for one in edges} == {0, 1, 2}


def test_four_axes():
    weights = drawn((3, 2, 3, 2), contrast="sum", min_patch=(2, 1, 3, 1), max_patch=(2, 2, 3, 1))
    assert {tuple(extent(one != 0)[1]) for one in weights} == {(2, 1, 3, 1), (2, 2, 3, 1)}


def test_placement():
    """Corner first, with sizes limited by the border; or size first, all sizes equally likely."""
    params = {"contrast": "sum", "min_patch": 1, "max_patch": 15}
    inside, corner = (drawn(30, placement=p, **params) for p in ("inside", "corner"))
    of_inside = np.count_nonzero(inside, axis=1)
    of_corner = np.count_nonzero(corner, axis=1)
    spread = 15 / np.sqrt(12 * len(of_inside))
    assert abs(of_inside.mean() - 8) < 4 * spread
    # Corners 0 .. 29, sizes 1 .. min(15, 30 - corner).
    expected = np.mean([(1 + min(15, 30 - c)) / 2 for c in range(30)])
    assert abs(of_corner.mean() - expected) < 4 * spread
    assert (corner[:, -1] != 0).mean() > (inside[:, -1] != 0).mean()


def test_shape_as_an_int_and_none():
    X, y = noise()
    params = {"n_estimators": 3, "random_state": 0, "projection": "patch"}
    none = ManifoldForestClassifier(**params).fit(X, y)
    for shape in (40, (40,), [40], np.array([40]), np.int64(40)):
        other = ManifoldForestClassifier(feature_shape=shape, **params).fit(X, y)
        assert other.feature_shape_ == (40,)
        np.testing.assert_array_equal(other.forest_.threshold, none.forest_.threshold)


def test_limits_per_axis_are_lists_tuples_or_arrays():
    X, y = noise()

    def thresholds(**params):
        own = {"feature_shape": SHAPE, "random_state": 0}
        model = made(ManifoldForestClassifier, 3, **own, **params)
        return model.fit(X, y).forest_.threshold

    limits = {
        "min_patch": (1, 2),
        "max_patch": (3, 4),
        "wrap": (True, False),
        "unordered": (False, False),
    }
    wanted = thresholds(**limits)
    for kind in (list, np.array):
        found = thresholds(**{name: kind(value) for name, value in limits.items()})
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(
        thresholds(min_patch=2, max_patch=3, wrap=True),
        thresholds(min_patch=[2, 2], max_patch=[3, 3], wrap=[True, True]),
    )


def test_automatic_patch_sizes_fit_the_shape():
    X, y = noise()
    model = ManifoldForestClassifier(2, feature_shape=(10, 2, 2), unordered=(False, False, True))
    model.fit(X, y)
    low, high = np.array(model.min_patch_), np.array(model.max_patch_)
    assert (low >= 1).all() and (low <= high).all() and (high <= [10, 2, 2]).all()
    assert high.tolist() == [4, 2, 2]  # roots, rounded up; all of an unordered axis


# -------------------------------------------------------------------------------------- growing


def leaf_sizes(model, X, tree=0):
    return np.unique(model.apply(X)[:, tree], return_counts=True)[1]


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("leaves", [None, 1000])
def test_max_depth(forest, depth, leaves):
    X, y = noise()
    forest.set_params(max_depth=depth, max_leaf_nodes=leaves).fit(X, y)
    assert (forest.forest_.max_depth == depth).all()
    assert (forest.forest_.n_leaves <= 2**depth).all()


@pytest.mark.parametrize("value, count", [(1, 1), (7, 7), (0.1, 20), (0.101, 21)])
def test_min_samples_leaf(forest, value, count):
    X, y = noise(200)
    forest.set_params(min_samples_leaf=value, n_estimators=10)
    for splitter in ("hist", "exact"):
        changed(forest, splitter=splitter).fit(X, y)
        assert min(leaf_sizes(forest, X, tree).min() for tree in range(10)) == count


@pytest.mark.parametrize("value, count", [(2, 2), (30, 30), (0.25, 50)])
def test_min_samples_split(forest, value, count):
    X, y = noise(200)
    forest.set_params(min_samples_split=value).fit(X, y)
    path, _ = forest.decision_path(X)
    rows = np.asarray(path.sum(axis=0)).ravel()
    split = forest.forest_.child > 0
    assert rows[split].min() >= count
    impure = np.zeros(len(split), dtype=bool)
    for node in np.flatnonzero(~split):
        here = path[:, [node]].toarray().ravel() > 0
        impure[node] = len(np.unique(y[here])) > 1
    assert rows[impure].max(initial=0) < count


def test_max_leaf_nodes_grows_the_best_first(forest):
    X, y = noise(200)
    for n in (2, 5, 17):
        forest.set_params(max_leaf_nodes=n).fit(X, y)
        assert (forest.forest_.n_leaves == n).all()
    # One feature and no ties: the best eight of all splits that become possible.
    rng = np.random.default_rng(0)
    X, y = rng.random((200, 1)), rng.random(200)
    y = y > 0.5 if is_classifier(forest) else y
    changed(forest, projection="axis", splitter="exact", max_leaf_nodes=9).fit(X, y)
    free = clone(forest).set_params(max_leaf_nodes=None).fit(X, y)
    whole, small = free.forest_[0], forest.forest_[0]
    waiting, taken = [0], []
    for _ in range(8):
        best = max(waiting, key=lambda node: split_gain(whole, node))
        waiting.remove(best)
        taken.append(split_gain(whole, best))
        waiting += [whole.child[best], whole.child[best] + 1]
    np.testing.assert_allclose(np.sort(small.gain), np.sort(taken), rtol=1e-6)


def split_gain(tree, node):
    """Gain of a node of one tree, 0 for a leaf."""
    child = tree.child[node]
    return tree.gain[(child - 1) // 2] if child > 0 else 0.0


def test_enough_leaf_nodes_give_the_same_partition_as_no_limit():
    rng = np.random.default_rng(0)
    X, y = rng.random((200, 1)), rng.random(200)  # one feature: no ties to be broken by chance
    model = ManifoldForestRegressor(
        3, projection="axis", random_state=0, procedure=ManifoldProcedure(splitter="exact")
    )
    free = clone(model).fit(X, y)
    bounded = clone(model).set_params(max_leaf_nodes=10000).fit(X, y)
    for tree in range(3):
        a, b = free.apply(X)[:, tree], bounded.apply(X)[:, tree]
        assert len({*zip(a.tolist(), b.tolist())}) == len(set(a.tolist())) == len(set(b.tolist()))


@pytest.mark.parametrize(
    "cls, params, y, decrease",
    [
        (ManifoldForestClassifier, {"criterion": "gini"}, [0, 1], 0.5),
        (ManifoldForestClassifier, {"criterion": "entropy"}, [0, 1], 1.0),
        (ManifoldForestRegressor, {}, [-1.0, 1.0], 1.0),
        (ManifoldForestRegressor, {}, [[-1.0, 0, 0], [1.0, 0, 0]], 1 / 3),
        (ManifoldForestRegressor, {}, [[-1.0, 3, 0], [1.0, -3, 0]], 10 / 3),
        (ManifoldForestRegressor, {}, [1e6 - 70.0, 1e6 + 70.0], 4900.0),
    ],
    ids=["gini", "entropy", "variance", "3 outputs", "3 outputs, 2 that vary", "far away"],
)
def test_min_impurity_decrease_is_that_of_scikit_learn(cls, params, y, decrease):
    """A split of 100 rows into two pure halves; the impurity falls from `decrease` to 0."""
    X = np.repeat([0.0, 1.0], 50)[:, None]
    y = np.repeat(np.array(y), 50, axis=0)
    params = {"projection": "axis", "bootstrap": False, **params}
    for factor, depth in ((0.99, 1), (1.01, 0)):
        model = cls(2, min_impurity_decrease=factor * decrease, **params)
        model.fit(X, y, sample_weight=np.full(100, 3.0))
        assert model.forest_.max_depth.tolist() == [depth, depth]


@pytest.mark.parametrize("splitter", ["exact", "hist"])
@pytest.mark.parametrize("criterion, most", [("gini", 0.5), ("entropy", 1), (None, 0.25)])
def test_a_decrease_that_is_just_reached_is_enough(criterion, most, splitter):
    """As in scikit-learn, also one of 0."""
    X, y = np.repeat([[0.0], [1.0]], 8, axis=0), np.repeat([0, 1], 8)
    cls = ManifoldForestRegressor if criterion is None else ManifoldForestClassifier
    own = {"projection": "axis", "bootstrap": False, "max_features": None}
    own |= {"procedure": ManifoldProcedure(splitter=splitter)}
    own |= {} if criterion is None else {"criterion": criterion}
    for decrease, n_leaves in ((most, 2), (np.nextafter(most, 2), 1), (0.0, 2)):
        model = cls(1, min_impurity_decrease=decrease, random_state=0, **own).fit(X, y)
        assert model.forest_.n_leaves.tolist() == [n_leaves]
    xor = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    model = cls(1, random_state=0, **own).fit(xor, [0, 1, 1, 0])
    assert model.forest_.n_leaves.tolist() == [4]


def test_min_impurity_decrease_is_a_share_of_the_whole(forest):
    X, y = noise(200)
    y = y * 2 - 1  # variance and Gini: about 1 and 1/2
    least = 0.01 if is_classifier(forest) else 0.02
    changed(forest, min_impurity_decrease=least, splitter="exact").fit(X, y)
    free = clone(forest).set_params(min_impurity_decrease=0.0).fit(X, y)
    assert (forest.forest_.n_leaves < free.forest_.n_leaves).all()
    assert forest.forest_.n_leaves.min() > 2
    for tree in range(5):
        path, _ = forest.forest_[tree].decision_path(X)
        rows = np.asarray(path.todense()) > 0
        child = forest.forest_[tree].child
        for node in np.flatnonzero(child > 0):
            here, left, right = rows[:, node], rows[:, child[node]], rows[:, child[node] + 1]
            after = left.sum() * y[left].var() + right.sum() * y[right].var()
            decrease = (here.sum() * y[here].var() - after) / 200
            # Gini of two classes -1 and 1 is half their variance.
            assert (decrease / 2 if is_classifier(forest) else decrease) >= least * (1 - 1e-6)


@pytest.mark.parametrize(
    "value, count",
    [("sqrt", 6), ("log2", 5), (None, 40), (17, 17), (0.25, 10), (1e-9, 1), (100, 100), (2.0, 80)],
)
def test_max_features_is_the_number_of_candidates(forest, value, count):
    X, y = noise()
    changed(forest, max_features=value, max_depth=2, splitter="exact").fit(X, y)
    assert forest.max_features_ == count


def test_more_candidates_find_better_splits(forest):
    X, y = noise()
    gains = []
    for value in (1, 10, 200):
        changed(forest, max_features=value, max_depth=1, n_estimators=30, splitter="exact")
        gains.append(forest.fit(X, y).forest_.gain.mean())
    assert gains[0] < 0.6 * gains[1] and gains[1] < 0.9 * gains[2]


def test_all_features_are_tried_when_all_may_be():
    """Axis candidates are drawn without replacement, so that p of p finds the best."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 30))
    y = X[:, 11] > 0
    model = ManifoldForestClassifier(
        20, projection="axis", max_features=None, bootstrap=False, random_state=0
    ).fit(X, y)
    assert (model.forest_.n_leaves == 2).all()
    assert (model.forest_.direction == 11).all()


STUMP = {"projection": "axis", "max_features": None, "bootstrap": False, "max_depth": 1}


def test_bins_approach_the_exact_search():
    rng = np.random.default_rng(0)
    X = rng.random((600, 10))
    y = (X[:, 0] > 0.315).astype(int)
    gains = []
    for params in ({"max_bins": 2}, {"max_bins": 8}, {"max_bins": 512}, {"splitter": "exact"}):
        procedure = ManifoldProcedure(max_search_samples=None, **params)
        model = ManifoldForestClassifier(5, procedure=procedure, random_state=0, **STUMP)
        gains.append(model.fit(X, y).forest_.gain.mean())
    assert gains[0] < gains[1] < gains[2] <= gains[3] * (1 + 1e-6)
    assert gains[3] == pytest.approx(600 * 2 * y.mean() * (1 - y.mean()), rel=1e-6)


def test_automatic_bins_are_within_the_range(forest):
    X, y = noise()
    assert 2 <= forest.fit(X, y).max_bins_ <= 1024
    assert changed(forest, max_bins=17).fit(X, y).max_bins_ == 17


def test_a_search_among_few_rows_is_noisier():
    X, y = make_classification(3000, 10, n_informative=6, flip_y=0.3, random_state=0)
    gains = []
    for value in (32, 300, None):
        procedure = ManifoldProcedure(max_search_samples=value, max_bins=256)
        model = ManifoldForestClassifier(30, procedure=procedure, random_state=0, **STUMP)
        gains.append(model.fit(X, y).forest_.gain.mean())
    assert gains[0] < 0.95 * gains[2]
    assert gains[0] < gains[1] < gains[2]


def test_gini_and_entropy_are_those_of_scikit_learn():
    X = np.array([[0.0], [0], [0], [1], [1], [1], [1], [1]])
    y = np.array([0, 0, 1, 1, 1, 1, 2, 2])

    def gini(labels):
        share = np.bincount(labels, minlength=3) / len(labels)
        return 1 - (share**2).sum()

    def entropy(labels):
        share = np.bincount(labels, minlength=3) / len(labels)
        return -(share[share > 0] * np.log2(share[share > 0])).sum()

    for criterion, measure in {"gini": gini, "entropy": entropy}.items():
        expected = measure(y) - 3 / 8 * measure(y[:3]) - 5 / 8 * measure(y[3:])
        for factor, n_leaves in ((0.999, 2), (1.001, 1)):
            model = ManifoldForestClassifier(
                1, criterion=criterion, min_impurity_decrease=factor * expected, **STUMP
            )
            assert model.fit(X, y).forest_.n_leaves == [n_leaves]


# --------------------------------------------------------------------------------- importances


@pytest.mark.parametrize(
    "params",
    [
        {"projection": "axis"},
        {"projection": "sparse"},
        {"projection": "sparse", "sparse_weights": "sign"},
        {"projection": "patch", "contrast": "sum"},
        {"projection": "patch", "contrast": "edge", "unordered": (True, False)},
        {"projection": "patch", "contrast": "difference", "wrap": True},
    ],
    ids=lambda params: " ".join(map(str, params.values())),
)
def test_importances_from_their_definition(forest, params):
    X, y = noise()
    changed(forest, feature_shape=SHAPE, bootstrap=True, **params).fit(X, y)
    packed = forest.forest_
    weights = packed.directions().toarray()
    # By count: how many splits have a weight on the feature (Perry et al., section 3.2).
    count = (weights != 0).sum(axis=0)
    found = forest.forest_.feature_importances("count")
    np.testing.assert_allclose(found, count / count.sum(), rtol=1e-12)
    # By impurity: decrease at the split times the absolute weight, all trees weighing the same.
    # Weights that were divided by the deviation of their feature count as their signs.
    if params == {"projection": "sparse"}:
        weights = np.sign(weights)
    tree = np.repeat(np.arange(len(packed)), packed.n_leaves - 1)
    share = packed.gain[:, None].astype(float) * abs(weights)
    by_tree = np.array([share[tree == t].sum(axis=0) for t in range(len(packed))])
    expected = (by_tree / by_tree.sum(axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(forest.feature_importances_, expected, rtol=1e-6)
    assert not np.allclose(found, forest.feature_importances_)


def test_importances_do_not_depend_on_units(forest):
    X, _ = noise(300, 6)
    y = X[:, 0] - X[:, 1] > 0
    units = np.float32([1e-3, 1e3, 1, 1, 1e6, 1e-6])
    forest.set_params(projection="sparse", bootstrap=True, n_estimators=30)
    one, other = clone(forest).fit(X, y), clone(forest).fit(X * units, y)
    found = other.feature_importances_
    assert set(found.argsort()[-2:]) == {0, 1}
    np.testing.assert_allclose(found, one.feature_importances_, atol=0.05)


def test_importances_are_largest_in_the_patch():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 8, 8))
    y = X[:, 2:5, 3:5].sum(axis=(1, 2)) > 0
    patch = np.zeros((8, 8), dtype=bool)
    patch[2:5, 3:5] = True
    procedure = ManifoldProcedure(contrast="sum")
    model = ManifoldForestClassifier(
        30, feature_shape=(8, 8), max_features=30, procedure=procedure, random_state=0
    ).fit(X, y)
    for kind in ("impurity", "count"):
        picture = model.forest_.feature_importances(kind).reshape(8, 8)
        assert picture[patch].mean() > 2 * picture[~patch].mean()


# ----------------------------------------------------------------- data on which patches help


def circle(n, rng):
    """Two arcs of 5 and 5, or of 4 and 6, of 100 positions on a circle; they do not touch."""
    y = np.arange(n) % 2
    X = np.zeros((n, 100), dtype=np.uint8)
    for row, label in zip(X, y):
        first, second = 5 - label, 5 + label
        start, gap = rng.integers(100), rng.integers(1, 100 - first - second)
        row[(start + np.arange(first)) % 100] = 1
        row[(start + first + gap + np.arange(second)) % 100] = 1
    return X, y


def bars(n, rng):
    """28 x 28 pictures of whole rows, or of whole columns; about ten of them."""
    y = np.arange(n) % 2
    X = np.zeros((n, 28, 28), dtype=np.uint8)
    for picture, label in zip(X, y):
        lines = rng.integers(0, 28, rng.poisson(10))
        (picture.T if label else picture)[lines] = 1
    return X, y


def error(model, train, test):
    return 1 - model.fit(*train).score(*test)


def test_patches_on_a_circle_beat_single_features():
    rng = np.random.default_rng(0)
    train, test = circle(250, rng), circle(500, rng)
    common = {"n_estimators": 30, "max_features": 40, "random_state": 0}
    procedure = ManifoldProcedure(max_patch=15, contrast="sum")
    patch = ManifoldForestClassifier(feature_shape=100, wrap=True, procedure=procedure, **common)
    assert error(patch, train, test) < 0.15
    for projection in ("axis", "sparse"):
        other = ManifoldForestClassifier(projection=projection, **common)
        assert error(other, train, test) > 0.35


@pytest.mark.parametrize("contrast", ["sum", "edge"])
def test_patches_of_bars_beat_single_pixels(contrast):
    ours, theirs = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        train, test = bars(25, rng), bars(300, rng)
        common = {"n_estimators": 30, "max_features": 28, "feature_shape": (28, 28)}
        common["random_state"] = seed
        patch = ManifoldForestClassifier(
            procedure=ManifoldProcedure(max_patch=4, contrast=contrast), **common
        )
        axis = ManifoldForestClassifier(projection="axis", **common)
        ours.append(error(patch, train, test))
        theirs.append(error(axis, train, test))
    assert np.mean(ours) < 0.12
    assert np.mean(ours) < 0.5 * np.mean(theirs)


def test_patches_of_digits_beat_a_random_forest():
    X, y = load_digits(return_X_y=True)
    ours, theirs = [], []
    for seed in range(8):
        a, b, c, d = train_test_split(X, y, test_size=600, random_state=seed)
        model = ManifoldForestClassifier(50, feature_shape=(8, 8), random_state=seed)
        ours.append(error(model, (a, c), (b, d)))
        theirs.append(error(RandomForestClassifier(50, random_state=seed), (a, c), (b, d)))
    assert np.mean(ours) < 0.9 * np.mean(theirs)
    assert np.mean(ours) < 0.03


def test_default_patches_see_the_level_of_a_signal():
    rng = np.random.default_rng(0)
    y = np.arange(1400) % 2
    X = rng.standard_normal((1400, 60)) + 0.4 * y[:, None]
    train, test = (X[:400], y[:400]), (X[400:], y[400:])
    forests = {
        name: made(ManifoldForestClassifier, 50, feature_shape=60, random_state=0, **params)
        for name, params in {"default": {}, "edge": {"contrast": "edge"}}.items()
    }
    errors = {name: error(forest, train, test) for name, forest in forests.items()}
    assert errors["default"] < 0.8 * errors["edge"]


def test_patches_help_regression():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 8, 8))
    y = X[:, 1:4, 2:5].sum(axis=(1, 2))
    common = {"n_estimators": 30, "max_features": 30, "random_state": 0}
    patch = ManifoldForestRegressor(
        feature_shape=(8, 8), procedure=ManifoldProcedure(contrast="sum"), **common
    )
    axis = ManifoldForestRegressor(feature_shape=(8, 8), projection="axis", **common)
    train, test = (X[:400], y[:400]), (X[400:], y[400:])
    assert error(patch, train, test) < 0.5 * error(axis, train, test)


def test_sparse_directions_help_where_features_add_up():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 6))
    y = (X[:, 0] - X[:, 1] + X[:, 2] > 0).astype(int)
    common = {"n_estimators": 50, "max_features": None, "random_state": 0}
    train, test = (X[:300], y[:300]), (X[300:], y[300:])
    sparse = error(ManifoldForestClassifier(projection="sparse", **common), train, test)
    axis = error(ManifoldForestClassifier(projection="axis", **common), train, test)
    assert sparse < 0.7 * axis


@pytest.mark.parametrize("projection", ["axis", "sparse", "patch"])
def test_bytes_are_summed_without_overflow(forest, projection):
    rng = np.random.default_rng(0)
    X = rng.integers(250, 256, (60, 400)).astype(np.uint8)
    total = X.sum(axis=1, dtype=int)
    y = total > np.median(total) if is_classifier(forest) else total
    changed(
        forest,
        projection=projection,
        feature_shape=(20, 20),
        contrast="sum",
        min_patch=15,
        max_patch=20,
        n_nonzeros=300,
        n_estimators=2,
    )
    forest.fit(X, y)
    np.testing.assert_array_equal(forest.predict(X), forest.predict(X.astype(np.float64)))
    if projection == "patch":
        assert (forest.forest_.threshold > 250 * 15 * 15).all()
        # The sums that the thresholds cut are those of the matrix of directions.
        z = X.astype(int) @ forest.forest_.directions(forest.forest_.direction[:1]).toarray().T
        left = z[:, 0] <= forest.forest_.threshold[0]
        path, _ = forest.decision_path(X)
        np.testing.assert_array_equal(path[:, [1]].toarray().ravel() == 1, left)


@pytest.mark.parametrize("change", [np.uint8, np.float64, lambda X: X / 7 + 0.1])
@pytest.mark.parametrize(
    "params", [{"feature_shape": (8, 8)}, {"projection": "patch"}, {"sparse_weights": "sign"}]
)
def test_constant_pixels_have_no_effect(params, change, tmp_path):
    """Patches contain them, but read the values that they had in training."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:150], y[:150]
    other, constant = X.copy(), np.flatnonzero(np.ptp(X, axis=0) == 0)
    other[:, constant] = 9
    X, other = change(X), change(other)
    forest = made(ManifoldForestClassifier, 10, random_state=0, **params).fit(X, y)
    expected = forest.predict_proba(X)
    save(forest, tmp_path / "forest")
    for model in (forest, load(tmp_path / "forest")):
        np.testing.assert_array_equal(model.predict_proba(other), expected)
        np.testing.assert_array_equal(model.predict_proba(other[:1]), expected[:1])
    np.testing.assert_array_equal(forest.predictor()(other.astype(np.float32)), expected)
    values = shapley_values(forest, other[:2], background=X[:5]).values
    assert len(constant) and not values[:, constant].any()


def test_without_any_information_all_trees_are_leaves():
    forest = ManifoldForestRegressor(3, random_state=0).fit(np.ones((9, 2)), np.arange(9.0))
    assert len(np.unique(forest.predict([[0, 1], [2, 3]]))) == 1
