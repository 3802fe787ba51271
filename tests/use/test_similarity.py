"""Similar rows: the same as definitions that compare all pairs of rows."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification, make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import skforest
from skforest import LeafEmbedding, ManifoldForestRegressor, prototypes, proximity
from skforest.inspect import similarity


def classes(n_classes=3, n_samples=150):
    return make_classification(
        n_samples, 6, n_informative=4, n_redundant=0, n_classes=n_classes, random_state=1
    )


def forest_of(estimator=skforest.ManifoldForestClassifier, n_classes=3, **parameters):
    X, y = classes(n_classes)
    size = {"n_estimators": 7} if "Tree" not in estimator.__name__ else {}
    return estimator(**size | {"random_state": 0} | parameters).fit(X, y), X, y


def shares(model, X, Y):
    """Shares of the trees in which pairs of rows are in one leaf."""
    of_X, of_Y = (model.apply(rows).reshape(len(rows), -1) for rows in (X, Y))
    return (of_X[:, None] == of_Y).mean(axis=2)


# -------------------------------------------------------------------------------------- proximity


@pytest.mark.parametrize(
    "estimator, parameters",
    [
        (skforest.ManifoldForestClassifier, {"max_leaf_nodes": 8}),
        (skforest.ObliqueBoostingClassifier, {"n_bags": 2}),
        (skforest.RandomHingeForestClassifier, {"n_bags": 1, "max_iter": 50}),
        (skforest.E2EDecisionForest, {"n_estimators": 2, "max_depth": 3, "routing": "soft"}),
        (skforest.NonGreedyTreeClassifier, {"max_depth": 3}),
    ],
)
def test_proximities_are_shares_of_trees(estimator, parameters, monkeypatch):
    model, X, _ = forest_of(estimator, **parameters)
    expected = shares(model, X[:40], X[40:])
    found = proximity(model, X[:40], X[40:], n_neighbors=None)
    np.testing.assert_array_equal(found.toarray(), expected)
    assert found.data.all() and found.has_canonical_format
    for size in (300, 20):  # two rows at a time, and one
        monkeypatch.setattr(similarity, "BLOCK", size)
        again = proximity(model, X[:40], X[40:], n_neighbors=None)
        np.testing.assert_array_equal(again.toarray(), expected)
        assert again.has_sorted_indices


def test_the_most_similar_rows_are_kept_and_of_equal_ones_the_first():
    model, X, _ = forest_of(max_depth=2)  # many rows of equal proximity
    expected = shares(model, X[:40], X[40:])
    found = proximity(model, X[:40], X[40:], n_neighbors=4)
    for i in range(40):
        wanted = np.sort(np.argsort(-expected[i], kind="stable")[:4])
        wanted = wanted[expected[i, wanted] > 0]
        own = slice(found.indptr[i], found.indptr[i + 1])
        assert found.indices[own].tolist() == wanted.tolist()
        np.testing.assert_array_equal(found.data[own], expected[i, wanted])


def test_rows_are_not_compared_with_themselves(monkeypatch):
    monkeypatch.setattr(similarity, "BLOCK", 1000)
    model, X, _ = forest_of()
    expected = shares(model, X, X)
    assert (np.diag(expected) == 1).all()
    np.fill_diagonal(expected, 0)
    found = proximity(model, X, n_neighbors=None)
    np.testing.assert_array_equal(found.toarray(), expected)
    assert proximity(model, X, n_neighbors=1).diagonal().sum() == 0


def test_proximity_of_tables_and_of_sparse_rows():
    X, y = classes()
    X = np.where(np.abs(X) < 0.5, 0, X)
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(g=np.array(["u", "v"])[y % 2])
    model = skforest.ManifoldForestClassifier(5, random_state=0).fit(frame, y)
    found = proximity(model, frame[:10], frame[10:30], n_neighbors=None)
    np.testing.assert_array_equal(found.toarray(), shares(model, frame[:10], frame[10:30]))
    model.fit(X, y)
    found = proximity(model, sparse.csr_matrix(X[:10]), sparse.csr_matrix(X[10:30]))
    np.testing.assert_array_equal(found.toarray(), proximity(model, X[:10], X[10:30]).toarray())


def blend_of(X, y):
    members = [skforest.ManifoldForestClassifier(6), skforest.ObliqueBoostingClassifier(10)]
    blend = skforest.BlendedForestClassifier(members, random_state=0, cv=2).fit(X, y)
    blend.members_ = {"one": members[0].fit(X, y), "other": members[1].fit(X, y)}
    blend.weights_ = {"one": 0.25, "other": 0.75}
    return blend


def test_proximity_of_a_blend_has_the_weights_of_the_members():
    X, y = classes(2)
    blend = blend_of(X, y)
    one, other = (shares(model, X[:20], X[20:]) for model in blend.members_.values())
    found = proximity(blend, X[:20], X[20:], n_neighbors=None)
    np.testing.assert_allclose(found.toarray(), one / 4 + 3 * other / 4, atol=1e-12)
    blend.members_["other"] = LogisticRegression().fit(X, y)
    with pytest.raises(TypeError, match="'other' of the blend is a LogisticRegression"):
        proximity(blend, X)
    blend.members_["other"] = blend_of(X, y)
    with pytest.raises(TypeError, match="'other' .* is a BlendedForestClassifier, whose own mem"):
        proximity(blend, X)


def test_what_has_no_leaves():
    X, y = classes()
    with pytest.raises(TypeError, match="LogisticRegression"):
        proximity(LogisticRegression().fit(X, y), X)
    with pytest.raises(NotFittedError):
        proximity(skforest.ManifoldForestClassifier(), X)
    model = skforest.ManifoldForestClassifier(2).fit(X, y)
    for n_neighbors in (0, 2.0, "all"):
        with pytest.raises(ValueError, match="n_neighbors"):
            proximity(model, X, n_neighbors=n_neighbors)
    with pytest.raises(ValueError, match="features"):
        proximity(model, X, X[:, 1:])


# ---------------------------------------------------------------------------------- leaf embedding


@parametrize_with_checks([LeafEmbedding(skforest.ManifoldForestRegressor(3, random_state=0))])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "forest",
    [
        skforest.ManifoldForestClassifier(7, random_state=0),
        skforest.ObliqueBoostingClassifier(5, n_bags=2, random_state=0),
        skforest.NonGreedyTreeClassifier(max_depth=3, random_state=0),
    ],
)
def test_an_embedding_has_a_column_for_each_leaf(forest):
    X, y = classes()
    model = LeafEmbedding(forest)
    found = model.fit_transform(X, y)
    assert not hasattr(forest, "forest_") and model.estimator_ is not forest
    packed = model.estimator_.forest_
    assert found.shape == (len(X), packed.n_leaves.sum())
    names = model.get_feature_names_out()
    assert len(set(names)) == found.shape[1]
    leaves = model.estimator_.apply(X).reshape(len(X), -1)
    for i in (0, 77):
        expected = [f"leafembedding_{t}_{node}" for t, node in enumerate(leaves[i])]
        assert sorted(names[found[i].indices]) == sorted(expected)
    own = (found @ found.T).toarray() / len(packed)
    np.testing.assert_allclose(own, shares(model.estimator_, X, X), atol=1e-12)


def test_an_embedding_by_a_fitted_forest():
    forest, X, y = forest_of()
    model = LeafEmbedding(FrozenEstimator(forest)).fit(X)
    needs_target = [get_tags(one).target_tags.required for one in (LeafEmbedding(forest), model)]
    assert needs_target == [True, False]
    assert model.estimator_ is forest
    assert clone(model).fit(X).estimator_ is forest
    np.testing.assert_array_equal(
        model.transform(X).toarray(), LeafEmbedding(forest).fit(X, y).transform(X).toarray()
    )
    named = LeafEmbedding(clone(forest)).fit(pd.DataFrame(X, columns=list("abcdef")), y)
    assert named.feature_names_in_.tolist() == list("abcdef")
    assert not hasattr(named.fit(X, y), "feature_names_in_")
    with pytest.raises(NotFittedError):
        LeafEmbedding(FrozenEstimator(skforest.ManifoldForestClassifier())).fit(X)


def test_an_embedding_takes_weights_and_forests_of_the_package():
    X, y = classes()
    weight = np.repeat([1.0, 0.0], 75)
    forest = skforest.ManifoldForestClassifier(3, random_state=0)
    some = LeafEmbedding(forest).fit(X[:75], y[:75])
    every = LeafEmbedding(forest).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(some.transform(X).toarray(), every.transform(X).toarray())
    with pytest.raises(TypeError, match="LogisticRegression"):
        LeafEmbedding(LogisticRegression()).fit(X, y)


# -------------------------------------------------------------------------------------- prototypes


def chosen_by_definition(similar, n_prototypes):
    """Greedy prototypes, from the proximities of all pairs."""
    chosen, best = [], np.zeros(len(similar))
    for _ in range(n_prototypes):
        gain = np.maximum(similar - best, 0).sum(axis=1)
        gain[chosen] = -1
        chosen.append(int(np.flatnonzero(gain >= gain.max() - 1e-9)[0]))
        best = np.maximum(best, similar[chosen[-1]])
    return chosen, best.sum()


@pytest.mark.parametrize("n_candidates", [1, 64])
def test_prototypes_as_by_definition(n_candidates, monkeypatch):
    monkeypatch.setattr(similarity, "N_CANDIDATES", n_candidates)
    model, X, y = forest_of(max_leaf_nodes=12, n_estimators=16)  # sums of sixteenths are exact
    found = prototypes(model, X, y, 5)
    assert list(found) == [0, 1, 2]
    for label, rows in found.items():
        own = np.flatnonzero(y == label)
        expected, _ = chosen_by_definition(shares(model, X[own], X[own]), 5)
        assert rows.tolist() == own[expected].tolist()


def test_prototypes_of_blends_and_of_any_labels():
    X, y = classes(2)
    blend = blend_of(X, y)
    label = np.array(["no", "yes"])[y]
    found = prototypes(blend, X, label, 4)
    one, other = (shares(model, X, X) for model in blend.members_.values())
    similar = one / 4 + 3 * other / 4
    for key, rows in found.items():
        own = np.flatnonzero(label == key)
        _, largest = chosen_by_definition(similar[np.ix_(own, own)], 4)
        total = similar[np.ix_(rows, own)].max(axis=0).sum()
        assert total == pytest.approx(largest)


def test_a_class_with_few_rows_has_few_prototypes():
    model, X, y = forest_of()
    y = np.where(np.arange(len(y)) < 2, 7, 8)
    found = prototypes(model, X, y, 3)
    assert sorted(found[7].tolist()) == [0, 1]
    assert len(set(found[8].tolist())) == 3
    with pytest.raises(ValueError, match="n_prototypes=0"):
        prototypes(model, X, y, 0)
    with pytest.raises(ValueError, match="inconsistent"):
        prototypes(model, X, y[1:])


def test_equal_rows_are_chosen_once_and_in_their_order():
    model, X, _ = forest_of()
    rows, y = X[[5, 5, 5, 80, 5, 80]], np.zeros(6)
    assert prototypes(model, rows, y, 6)[0].tolist() == [0, 3, 1, 2, 4, 5]
    assert prototypes(model, X[[3] * 4], y[:4], 3)[0].tolist() == [0, 1, 2]


def test_rows_without_a_label_are_no_prototypes():
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = ManifoldForestRegressor(10, random_state=0).fit(X, X[:, 0])
    there = np.flatnonzero(X[:, 0] > -0.5)
    expected = prototypes(model, X[there], (X[there, 0] > 0.5).astype(float))
    ranges = pd.cut(pd.Series(X[:, 0]), [-0.5, 0.5, 9])  # the others are missing
    for y in (np.where(X[:, 0] > -0.5, X[:, 0] > 0.5, np.nan), ranges):
        found = prototypes(model, X, y)
        for own, rows in zip(found.values(), expected.values(), strict=True):
            np.testing.assert_array_equal(own, there[rows])
    days = np.array(["2024-01-01", "2024-01-02"], dtype="M8[ns]")
    assert list(prototypes(model, X, np.resize(days, 60))) == list(days)


def test_an_embedding_as_a_data_frame():
    X, y = make_friedman1(60, random_state=0)
    model = LeafEmbedding(ManifoldForestRegressor(2, max_leaf_nodes=4), sparse_output=False)
    frame = model.set_output(transform="pandas").fit(X, y).transform(X)
    assert list(frame.columns) == model.get_feature_names_out().tolist()
    assert (frame.to_numpy().sum(axis=1) == 2).all()
