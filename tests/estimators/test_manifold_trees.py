"""Trees of manifold forests: limits of their growth, candidates, bins, criteria."""

import numpy as np
import pytest
from makers import changed, made
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification

from skforest import (
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ManifoldProcedure,
)

BOTH = [ManifoldForestClassifier, ManifoldForestRegressor]


@pytest.fixture(params=BOTH, ids=lambda cls: cls.__name__)
def forest(request):
    return request.param(n_estimators=5, random_state=0, bootstrap=False)


def noise(n=200, n_features=40, seed=0):
    """Targets that are independent of the rows: no direction is better than another."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, n_features)).astype(np.float32), rng.integers(0, 2, n)


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
        model = made(cls, 2, min_impurity_decrease=factor * decrease, **params)
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
        model = made(cls, 1, min_impurity_decrease=decrease, random_state=0, **own).fit(X, y)
        assert model.forest_.n_leaves.tolist() == [n_leaves]
    xor = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    model = cls(1, random_state=0, **own).fit(xor, [0, 1, 1, 0])
    assert model.forest_.n_leaves.tolist() == [4]


def test_min_impurity_decrease_is_a_share_of_the_whole(forest):
    X, y = noise(200)
    y = y * 2 - 1  # variance and Gini: about 1 and 1/2
    least = 0.01 if is_classifier(forest) else 0.02
    changed(forest, min_impurity_decrease=least, splitter="exact").fit(X, y)
    free = changed(clone(forest), min_impurity_decrease=0.0).fit(X, y)
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


@pytest.mark.parametrize("n_features", [1, 2, 3])
@pytest.mark.parametrize("value", ["sqrt", "log2", 0.3, 1.0, None, 1])
def test_few_features_have_a_candidate_at_least(value, n_features):
    forest = ManifoldForestClassifier(max_features=value)
    found = forest._resolve_max_features(n_features, 16)
    assert found == (n_features if value is None or isinstance(value, float) and value == 1 else 1)


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


@pytest.mark.parametrize(
    "projection, n_features, expected",  # of a classifier, and of a regressor
    [
        ("sparse", 4, (16, 16)), ("sparse", 20, (18, 18)), ("sparse", 101, (41, 41)),
        ("patch", 64, (16, 16)), ("axis", 10, (4, 10)), ("axis", 64, (8, 64)),
    ],
)  # fmt: skip
def test_the_default_number_of_directions(projection, n_features, expected):
    rows = np.random.default_rng(0).normal(size=(20, n_features))
    for cls, n in zip((ManifoldForestClassifier, ManifoldForestRegressor), expected):
        forest = cls(1, max_depth=1, projection=projection).fit(rows, np.arange(20) % 2)
        assert forest.max_features_ == n


@pytest.mark.parametrize("n_classes, n_bins", [(2, 64), (9, 64), (10, 32)])
def test_many_classes_have_fewer_bins(n_classes, n_bins):
    X, _ = noise(100)
    forest = ManifoldForestClassifier(1, max_depth=1).fit(X, np.arange(100) % n_classes)
    assert forest.max_bins_ == n_bins


def test_a_search_among_few_rows_is_noisier():
    X, y = make_classification(3000, 10, n_informative=6, flip_y=0.3, random_state=0)
    gains = []
    for value in (32, 300, None):
        procedure = ManifoldProcedure(max_search_samples=value, max_bins=256)
        model = ManifoldForestClassifier(30, procedure=procedure, random_state=0, **STUMP)
        gains.append(model.fit(X, y).forest_.gain.mean())
    assert gains[0] < 0.95 * gains[2]
    assert gains[0] < gains[1] < gains[2]


@pytest.mark.parametrize("n, least", [(60, 8), (64, 8), (65, 9)])
def test_a_leaf_may_weigh_its_fraction_and_no_less(n, least):
    X = np.arange(float(n))[:, None]
    model = ManifoldForestRegressor(1, min_weight_fraction_leaf=1 / 8, random_state=0, **STUMP)
    forest = model.fit(X, X[:, 0] < 4).forest_
    assert forest.node_weight.tolist() == [n, least, n - least]


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
            own = {"criterion": criterion, "min_impurity_decrease": factor * expected}
            model = made(ManifoldForestClassifier, 1, **own, **STUMP)
            assert model.fit(X, y).forest_.n_leaves == [n_leaves]
