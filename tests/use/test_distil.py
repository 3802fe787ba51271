"""Students that imitate fitted models."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, make_friedman1
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skforest
from skforest import (
    BlendedForestClassifier,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestRegressor,
    distil,
)
from skforest.blend import distil as distilling
from skforest.table.frames import as_rows, mixed_rows

SMALL = {"n_estimators": 20, "random_state": 0}
IRIS, SPECIES = load_iris(return_X_y=True, as_frame=True)
LABELS = np.array(["setosa", "versicolor", "virginica"])[SPECIES]


@pytest.fixture(autouse=True)
def few_mixtures(monkeypatch):
    monkeypatch.setattr(distilling, "N_MIXTURES", (400, 400))


@pytest.fixture(scope="module")
def iris():
    """A fitted classifier of three classes, one of which is rare."""
    rows = np.r_[:50, 50:100, 100:110]
    X, y = IRIS.iloc[rows], LABELS[rows]
    return ManifoldForestClassifier(20, max_depth=3, random_state=0).fit(X, y), X


def test_mixtures_teach_more_than_the_rows_alone(monkeypatch):
    X, y = make_friedman1(260, n_features=5, random_state=0)
    model = RandomHingeForestRegressor(n_bags=1, max_iter=200, random_state=0)
    model.fit(X[:60], y[:60])
    expected, errors = model.predict(X[60:]), {}
    for n in (2, 1000):
        monkeypatch.setattr(distilling, "N_MIXTURES", (n, n))
        student = distil(model, X[:60], n_estimators=60, random_state=0)
        assert type(student) is ObliqueBoostingRegressor
        errors[n] = np.mean((student.predict(X[60:]) - expected) ** 2) / expected.var()
    assert errors[1000] < 0.07 < 0.1 < errors[2]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_student_of_a_classifier_is_an_ordinary_classifier(iris, n_classes, tmp_path):
    model, X = iris
    if n_classes == 2:
        X = X.iloc[:100]
        model = clone(model).fit(X[::2], LABELS[:100:2])
    student = distil(model, X, **SMALL)
    assert type(student) is ObliqueBoostingClassifier
    assert student.classes_.tolist() == model.classes_.tolist()
    assert student.feature_names_in_.tolist() == list(X.columns)
    proba = student.predict_proba(X)
    assert np.abs(proba - model.predict_proba(X)).mean() < 0.1  # 0.4 before the first tree
    assert (student.predict(X) == model.predict(X)).mean() > 0.97
    usual = ObliqueBoostingClassifier(2, early_stopping=False, random_state=0).fit(
        X, LABELS[: len(X)]
    )
    assert vars(student).keys() == vars(usual).keys()
    skforest.save(student, tmp_path / "student.skf")
    assert (skforest.load(tmp_path / "student.skf").predict_proba(X) == proba).all()
    values = skforest.shapley_values(student, X[:2], X[:10])
    assert values.values.shape[:2] == (2, 4)
    assert clone(student).fit(X, LABELS[: len(X)]).score(X, LABELS[: len(X)]) > 0.9


def test_probabilities_of_a_student_have_the_lowest_cross_entropy(iris):
    """Mean probabilities are those of the model, and rare classes are not lost."""
    model, X = iris
    student = distil(model, X, n_estimators=200, random_state=0)
    found, wanted = student.predict_proba(X), model.predict_proba(X)
    assert np.abs(found.mean(axis=0) - wanted.mean(axis=0)).max() < 0.01
    assert 0.02 < wanted[100:, 1].max() and np.abs(found - wanted)[100:].mean() < 0.03


def test_tables_keep_categories_and_missing_values():
    random, n = np.random.RandomState(0), 80
    X = pd.DataFrame(
        {
            "kind": random.choice(["a", "b", "c"], n),
            "x": np.where(random.uniform(size=n) < 0.3, np.nan, random.uniform(size=n)),
            "count": pd.Categorical(random.randint(3, size=n)),
            "name": [f"n{i}" for i in range(n)],  # text that is no category
        },
        index=random.permutation(n) / 7,
    )
    y = np.where(X["kind"] == "b", 2.0, 0.0) + np.where(X["x"].isna(), 1.0, 0.0)
    with pytest.warns(UserWarning, match="'name'"):
        model = ManifoldForestRegressor(20, random_state=0).fit(X, y)
    student = distil(model, X, n_estimators=60, random_state=0)
    assert student.feature_names_in_.tolist() == list(X.columns)
    assert student.is_categorical_.tolist() == [True, False, True, True]
    assert student.feature_importances_[3] == 0
    assert np.abs(student.predict(X) - model.predict(X)).max() < 0.3
    with pytest.warns(UserWarning, match="'name'"):
        classifier = ManifoldForestClassifier(5, random_state=0).fit(X, y > 1)
    student = distil(classifier, X, n_estimators=60, random_state=0)
    assert np.abs(student.predict_proba(X) - classifier.predict_proba(X)).mean() < 0.05
    number = np.stack([np.arange(n), np.arange(n)[::-1], np.zeros(n, int)], axis=1)[
        :, [0, 1, 2, 2]
    ]
    mixed = mixed_rows(as_rows(X), number)
    assert mixed["kind"].tolist() == X["kind"].tolist() and mixed["count"].nunique() == 1
    np.testing.assert_array_equal(mixed["x"], X["x"][::-1])


@pytest.mark.parametrize("given", [None, [0], [True, False, True], "from_dtype"])
def test_categories_of_a_student_are_those_that_the_user_named(given):
    random = np.random.RandomState(0)
    X = np.column_stack([random.randint(4, size=(60, 1)), random.uniform(size=(60, 2)).round(1)])
    model = ManifoldForestRegressor(3, categorical_features=given, random_state=0)
    model.fit(X, X[:, 0] == 2)
    student = distil(model, X, n_estimators=2, random_state=0)
    assert student.forest_.levels.keys() == model.forest_.levels.keys()


def test_mixtures_are_of_any_two_rows_or_of_two_with_similar_predictions(monkeypatch):
    random = np.random.RandomState(0)
    response = random.permutation(100)[:, None].astype(float)
    number = distilling._mixtures(response, 8, False, np.random.RandomState(0))
    assert number.shape == (500, 8)
    assert (number[:100] == np.arange(100)[:, None]).all()
    assert max(len(set(row)) for row in number.tolist()) == 2
    any_two, near = number[100:300], number[300:]
    ranks = response[:, 0]
    assert np.ptp(ranks[near], axis=1).max() == 5  # places
    assert np.ptp(ranks[any_two], axis=1).max() > 80
    counts = np.sort([np.unique(row, return_counts=True)[1].min() for row in any_two])
    assert 1.5 < np.mean(counts[counts < 8]) < 3  # of two columns, on average
    for n_columns in (2, 3):  # at most half of the columns, on average
        number = distilling._mixtures(response, n_columns, False, np.random.RandomState(0))
        assert 0.35 < np.mean([len(set(row)) > 1 for row in number[100:300].tolist()]) < 0.85
    # Wide tables have fewer mixtures, but at least a quarter.
    monkeypatch.setattr(distilling, "N_ENTRIES", (1000, 2000))
    for n_columns, is_class, n in (
        (4, False, 400),
        (8, False, 250),
        (8, True, 124),
        (90, True, 100),
    ):
        number = distilling._mixtures(response[:2], n_columns, is_class, random)
        assert number.shape == (2 + n, n_columns)


def test_students_of_other_models():
    X, y = make_friedman1(60, n_features=5, random_state=0)
    several = ManifoldForestRegressor(5, random_state=0).fit(X, np.stack([y, -y], axis=1))
    assert distil(several, X, **SMALL).predict(X).shape == (60, 2)
    column = ManifoldForestRegressor(5, random_state=0).fit(X, y[:, None])
    assert distil(column, X, **SMALL).predict(X).shape == column.predict(X).shape == (60, 1)
    quantiles = ObliqueBoostingRegressor(10, loss="quantile", quantile=[0.1, 0.9]).fit(X, y)
    assert distil(quantiles, X, **SMALL).predict(X).shape == (60, 2)
    labels = np.where(y > np.median(y), "high", "low")
    blend = BlendedForestClassifier([ManifoldForestClassifier(5)], random_state=0).fit(X, labels)
    student = distil(blend, X, **SMALL)
    assert (student.predict(X) == blend.predict(X)).mean() > 0.9
    search = GridSearchCV(ManifoldForestClassifier(3, random_state=0), {"max_depth": [2]}, cv=2)
    whole = make_pipeline(StandardScaler(), search).fit(X, labels)
    student = distil(whole, X, **SMALL)
    assert type(student[-1]) is ObliqueBoostingClassifier and type(whole[-1]) is GridSearchCV
    assert (student.predict(X) == whole.predict(X)).mean() > 0.9
    again = [
        distil(blend, X, **SMALL | {"random_state": seed}).predict_proba(X) for seed in (0, 1)
    ]
    assert (again[0] == distil(blend, X, **SMALL).predict_proba(X)).all()
    assert (again[0] != again[1]).any()


def test_errors(iris):
    model, X = iris
    with pytest.raises(NotFittedError):
        distil(ManifoldForestClassifier(), X)
    with pytest.raises(TypeError, match="estimator must be .*, got RandomForestRegressor"):
        distil(RandomForestRegressor(2).fit(X, X.iloc[:, 0]), X)
    with pytest.raises(ValueError, match="'n_estimators' parameter of distil must be a str among"):
        distil(model, X, n_estimators=0)
    with pytest.raises(ValueError, match="X has 1 row; distil needs at least 2"):
        distil(model, X[:1])
    with pytest.raises(ValueError, match="feature"):
        distil(model, X.iloc[:, :3])
    with pytest.raises(TypeError, match=r"distil takes dense X.*toarray"):
        distil(model, sparse.csr_array(X.to_numpy()))
    labels = np.stack([LABELS, LABELS], axis=1)
    several = ManifoldForestClassifier(2).fit(IRIS, labels)
    with pytest.raises(ValueError, match="estimator predicts labels of 2 outputs"):
        distil(several, IRIS)


@pytest.mark.parametrize("is_class", [True, False])
def test_last_bits_of_predictions_do_not_matter(is_class):
    """They depend on the processor, and rows with near predictions are mixed."""
    rng = np.random.default_rng(0)
    response = rng.dirichlet(np.ones(3), 40)
    response[20:] = response[:20]  # ties, which noise would break
    response *= 1 if is_class else 1e300
    near = response * (1 + rng.uniform(-1, 1, response.shape) * 1e-15)
    found, expected = (
        distilling._mixtures(rows, 4, is_class, np.random.RandomState(0))
        for rows in (near, response)
    )
    np.testing.assert_array_equal(found, expected)


def test_a_student_of_images_reads_images():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4, 4))
    model = ManifoldForestRegressor(5, feature_shape=(4, 4), random_state=0).fit(X, X[:, 0, 0])
    student = distil(model, X, **SMALL)
    np.testing.assert_array_equal(student.predict(X), student.predict(X.reshape(60, -1)))
    flat = distil(model, X.reshape(60, -1), **SMALL)
    np.testing.assert_array_equal(flat.predict(X), student.predict(X))
