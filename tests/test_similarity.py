"""Similar rows: the same as definitions that compare all pairs of rows."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import skforest
from skforest import proximity, similarity


def classes(n_classes=3, n_samples=150):
    return make_classification(
        n_samples, 6, n_informative=4, n_redundant=0, n_classes=n_classes, random_state=1
    )


def forest_of(estimator=skforest.ManifoldForestClassifier, n_classes=3, **parameters):
    X, y = classes(n_classes)
    return estimator(**{"n_estimators": 7, "random_state": 0} | parameters).fit(X, y), X, y


def shares(model, X, Y):
    """Shares of the trees in which pairs of rows are in one leaf."""
    return (model.apply(X)[:, None] == model.apply(Y)).mean(axis=2)


# -------------------------------------------------------------------------------------- proximity


@pytest.mark.parametrize(
    "estimator, parameters",
    [
        (skforest.ManifoldForestClassifier, {"max_leaf_nodes": 8}),
        (skforest.ObliqueBoostingClassifier, {"n_bags": 2}),
        (skforest.RandomHingeForestClassifier, {"n_bags": 1, "max_iter": 50}),
        (skforest.E2EDecisionForest, {"n_estimators": 2, "max_depth": 3, "routing": "soft"}),
    ],
)
def test_proximities_are_shares_of_trees(estimator, parameters, monkeypatch):
    model, X, _ = forest_of(estimator, **parameters)
    expected = shares(model, X[:40], X[40:])
    found = proximity(model, X[:40], X[40:], n_neighbors=None)
    np.testing.assert_array_equal(found.toarray(), expected)
    assert found.data.all() and found.has_canonical_format
    monkeypatch.setattr(similarity, "BLOCK", 300)  # two rows at a time
    again = proximity(model, X[:40], X[40:], n_neighbors=None)
    np.testing.assert_array_equal(again.toarray(), expected)


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
