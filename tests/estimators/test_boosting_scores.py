"""Oblique boosting that is stopped early by a score in place of its loss."""

import warnings

import numpy as np
import pytest
from makers import assert_same_trees
from makers import boosting_rows as rows_of
from makers import quick_boosting as quick
from sklearn.base import clone

import skforest
from skforest import BlendedForestClassifier, ObliqueBoostingClassifier, ObliqueBoostingRegressor
from skforest.training import boosting_rounds as training_module


def labelled_rows():
    """X and labels of two classes, as strings."""
    X, y = rows_of(ObliqueBoostingClassifier, 260)
    return X, np.where(y == 1, "yes", "no")


@pytest.mark.parametrize("scoring", ["roc_auc", "accuracy"])
def test_early_stopping_by_a_score(scoring):
    """Rounds with the largest score of the given rows are kept; labels are those of y."""
    X, y = labelled_rows()
    weight = np.random.default_rng(0).exponential(1.0, 100) ** 2
    given = {"X_val": X[160:], "y_val": y[160:], "sample_weight_val": weight}
    model = quick(ObliqueBoostingClassifier, n_bags=1, early_stopping=scoring, n_iter_no_change=5)
    (scores,) = model.fit(X[:160], y[:160], **given).validation_scores_
    assert model.n_iter_ == [scores.argmax()] and 0 < scores.argmax() < 20
    assert model.early_stopping_ == scoring
    sets = {"val": (X[160:], y[160:], weight)}
    curve = skforest.staged_scores(model, sets, scoring)[scoring]["val"]
    np.testing.assert_allclose(scores[1 : len(curve) + 1], curve, rtol=1e-12)


def test_the_score_that_is_minus_the_loss_gives_the_same_model():
    """Also with weights that count copies, and for rows that bags hold out."""
    X, y = rows_of(ObliqueBoostingClassifier, 120)
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    model = quick(ObliqueBoostingClassifier, n_iter_no_change=2, n_estimators=9, n_directions=0)
    model.fit(X, y, weight)
    other = clone(model).set_params(early_stopping="neg_log_loss").fit(X, y, weight)
    for one, two in zip(model.validation_scores_, other.validation_scores_, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)
    assert_same_trees(model, other)
    # Scores do not count class weights.
    other.set_params(class_weight={0: 50.0}).fit(X, y, weight)
    assert other.validation_scores_[0][0] < -1.5  # the first prediction is nearly always class 0


def test_a_callable_score_is_not_called_by_trials():
    X, y = rows_of(ObliqueBoostingRegressor, 120)
    sizes = []

    def score(model, X, y):
        sizes.append(len(X))
        return -np.abs(model.predict(X) - y).max()

    model = quick(ObliqueBoostingRegressor, early_stopping=score, n_iter_no_change=3).fit(X, y)
    assert len(sizes) == 1 + sum(map(len, model.validation_scores_))
    assert sizes[0] == 120 and set(sizes[1:]) == {60}
    assert model.early_stopping_ is score
    with pytest.raises(TypeError, match="early_stopping is a function, which cannot be saved"):
        skforest.save(model, "unused")


def test_a_model_with_a_score_in_a_file(tmp_path):
    X, y = rows_of(ObliqueBoostingRegressor, 60)
    model = quick(ObliqueBoostingRegressor, n_estimators=5, early_stopping="r2").fit(X, y)
    skforest.save(model, tmp_path / "model")
    again = skforest.load(tmp_path / "model")
    assert again.early_stopping == again.early_stopping_ == "r2"


@pytest.mark.parametrize(
    "score, error, message",
    [
        (lambda model, X, y: None, TypeError, "early_stopping must return a number, got None"),
        (lambda model, X, y: model.predict(X).no, AttributeError, "no"),
        ("f1", ValueError, "early_stopping='f1' does not fit: .*these scorers do: accuracy, "),
        (lambda model, X, y: np.nan, ValueError, "rows by early_stopping is nan after 0 rounds"),
    ],
)
def test_bad_scores(score, error, message, monkeypatch):
    """They are found before a tree is grown."""
    X, y = rows_of(ObliqueBoostingClassifier)
    monkeypatch.setattr(training_module.BoostingTraining, "_add_round", None)
    with pytest.raises(error, match=message):
        quick(ObliqueBoostingClassifier, early_stopping=score).fit(X, y)
    with pytest.raises(ValueError, match="early_stopping='auc' does not fit: .*") as raised:
        quick(ObliqueBoostingClassifier, early_stopping="auc").fit(X, y)
    names = str(raised.value).partition("these scorers do: ")[2].split(", ")
    assert names == sorted(names) and {"roc_auc_ovr", "f1_macro"} < set(names)
    assert not {"roc_auc", "f1"} & set(names)  # for two classes
    with pytest.raises(ValueError, match="early_stopping='f1' does not fit: .*: .*neg_mean_abs"):
        quick(ObliqueBoostingRegressor, early_stopping="f1").fit(X, X[:, 0])


def test_parameters_that_have_no_effect_or_do_not_exist():
    X, y = rows_of(ObliqueBoostingClassifier)
    for model in (ObliqueBoostingClassifier(), BlendedForestClassifier()):
        name = type(model).__name__
        with pytest.raises(TypeError, match=f"^{name}.fit has no parameter 'eval_set'; .* X_val"):
            model.fit(X, y, eval_set=[(X, y)])
    with pytest.warns(UserWarning, match='quantile=0.9 has no effect, since loss is not "quant'):
        quick(ObliqueBoostingRegressor, n_estimators=1, quantile=0.9).fit(X, X[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        params = {"n_estimators": 1, "loss": "quantile", "quantile": 0.9}
        quick(ObliqueBoostingRegressor, **params).fit(X, X[:, 0])


@pytest.mark.filterwarnings("ignore:Only one class is present")
@pytest.mark.parametrize("scorer", ["neg_log_loss", "roc_auc_ovr"])
def test_errors_say_that_held_out_rows_lack_a_class(scorer):
    X, y = np.random.default_rng(0).normal(size=(150, 3)), np.repeat(["a", "b", "c"], [120, 3, 27])
    model = ObliqueBoostingClassifier(3, early_stopping=scorer, random_state=0)
    for given in ({}, {"X_val": X[:50], "y_val": y[[0] * 25 + [130] * 25]}):
        with pytest.raises(ValueError, match="early_stopping: .*held out .* none of class 'b'"):
            model.fit(X, y, **given)
    with pytest.raises(ValueError, match="early_stopping is nan .* none of class False"):
        ObliqueBoostingClassifier(3, early_stopping="roc_auc", random_state=0).fit(
            X, y != "b", X_val=X[:50], y_val=y[:50] != "b"
        )
