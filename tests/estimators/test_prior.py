"""Probabilities for other class frequencies than those of training: the parameter `prior`."""

import functools
import io
import json

import blends
import numpy as np
import pandas as pd
import pytest
from conftest import ALL, small
from exported import check_onnx, in_c, predicted
from json_reader import response
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.pipeline import make_pipeline

import skforest
from skforest import CO2ForestClassifier, ManifoldForestClassifier

PRIOR = [0.7, 0.2, 0.1]
PRIORS = [PRIOR, {"no": 0.9, "yes": 0.1}]  # of two outputs
each_classifier = pytest.mark.parametrize(
    "cls", [cls for cls in ALL if is_classifier(cls())], ids=lambda cls: cls.__name__
)


@functools.cache
def rows(n_outputs=1):
    """Rows of classes with unequal frequencies."""
    weights = [0.2, 0.3]
    X, y = make_classification(
        150, 6, n_informative=4, n_classes=3, weights=weights, random_state=0
    )
    y = np.array(["a", "b", "c"])[y]
    return (X, y) if n_outputs == 1 else (X, np.array([y, np.where(X[:, 0] > 0.4, "yes", "no")]).T)


def unfitted(cls, **params):
    model = blends.classifier(cv=3) if "Blended" in cls.__name__ else small(cls)
    return model.set_params(**params)


@functools.cache
def fitted(cls, has_prior, n_outputs=1):
    prior = (PRIOR if n_outputs == 1 else PRIORS) if has_prior else None
    return unfitted(cls, prior=prior).fit(*rows(n_outputs))


def moved(proba, prior, share):
    proba = proba * np.array(prior) / share
    return proba / proba.sum(axis=1, keepdims=True)


def shares(y, weight=None):
    codes = np.unique(y, return_inverse=True)[1]
    found = np.bincount(codes, weight)
    return found / found.sum()


# ----------------------------------------------------------------------------------- probabilities


@pytest.mark.parametrize("unit", [1, 0.1, 0.7, 1 / 3, 1 / 150])
def test_frequencies_of_training_are_no_prior_in_any_unit(unit):
    X, y = rows()
    prior = unit * np.unique(y, return_counts=True)[1]
    model = unfitted(ManifoldForestClassifier, prior=prior).fit(X, y)
    assert model.forest_.prior_ratio is None


@each_classifier
def test_probabilities_are_those_of_other_frequencies(cls):
    X, y = rows()
    plain, model = fitted(cls, False), fitted(cls, True)
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba, moved(plain.predict_proba(X), PRIOR, shares(y)), atol=1e-14)
    np.testing.assert_array_equal(model.predict(X), model.classes_[proba.argmax(axis=1)])
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), proba)
    assert (model.predict(X) != plain.predict(X)).any()
    for n in (1, 7):  # few rows take another way
        np.testing.assert_array_equal(model.predict_proba(X[:n]), proba[:n])
    # Nothing but the end of the prediction has changed.
    if hasattr(model, "forest_"):
        for name, array in plain.forest_.arrays.items():
            np.testing.assert_array_equal(model.forest_.arrays[name], array)
        np.testing.assert_array_equal(model.forest_.predict(X), model.predict(X))
    else:
        assert model.weights_ == plain.weights_ and model.score_ == plain.score_


@each_classifier
def test_the_frequencies_of_training_change_no_bit(cls):
    X, y = rows()
    prior = dict(zip("cba", 10 * np.unique(y, return_counts=True)[1][::-1]))
    model = unfitted(cls, prior=prior).fit(X, y)
    np.testing.assert_array_equal(
        model.predict_proba(X), fitted(cls, False).predict_proba(X), strict=True
    )


@each_classifier
def test_every_output_has_a_prior(cls):
    X, y = rows(2)
    plain, model = fitted(cls, False, 2), fitted(cls, True, 2)
    proba = model.predict_proba(X)
    for k, prior in enumerate([PRIOR, [0.9, 0.1]]):
        expected = moved(plain.predict_proba(X)[k], prior, shares(y[:, k]))
        np.testing.assert_allclose(proba[k], expected, atol=1e-14)
        found = model.classes_[k][proba[k].argmax(axis=1)]
        np.testing.assert_array_equal(model.predict(X)[:, k], found)


def test_an_output_without_a_prior_keeps_its_probabilities():
    X, y = rows(2)
    model = unfitted(ManifoldForestClassifier, prior=[None, PRIORS[1]]).fit(X, y)
    one, two = model.predict_proba(X)
    np.testing.assert_allclose(one, fitted(ManifoldForestClassifier, False, 2).predict_proba(X)[0])
    np.testing.assert_allclose(two, fitted(ManifoldForestClassifier, True, 2).predict_proba(X)[1])


@pytest.mark.parametrize("weight", ["balanced", {"a": 3.0}])
@pytest.mark.parametrize("cls", [ManifoldForestClassifier, skforest.BlendedForestClassifier])
def test_class_weights_are_refused(cls, weight):
    """Leaves of single rows do not react to weights, and would be corrected as if they did."""
    X, y = rows()
    model = cls(class_weight=weight, prior=PRIOR)
    with pytest.raises(ValueError, match=r"prior=.* needs class_weight=None, got"):
        model.fit(X, y)


def test_frequencies_in_training_are_those_of_the_weights():
    X, y = rows()
    own = np.linspace(0, 2, len(y))
    share = shares(y, own)
    options = {"min_samples_leaf": 8, "n_estimators": 60, "oob_score": True}
    plain = unfitted(ManifoldForestClassifier, **options).fit(X, y, own)
    model = clone(plain).set_params(prior=PRIOR).fit(X, y, own)
    expected = moved(plain.predict_proba(X), PRIOR, share)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-14)
    expected = moved(plain.oob_decision_function_, PRIOR, share)
    np.testing.assert_allclose(model.oob_decision_function_, expected, atol=1e-14)


def test_equal_classes_with_a_prior_predict_a_population():
    """Labels of rare classes are then neither too many, as without a prior, nor too few."""
    X, y = make_classification(
        3000, 6, n_informative=4, n_clusters_per_class=1, weights=[0.9], class_sep=0.5,
        random_state=0,
    )  # fmt: skip
    test, rare = slice(1500, None), np.flatnonzero(y[:1500])
    train = np.concatenate([rare, np.flatnonzero(y[:1500] == 0)[: len(rare)]])
    forest = ManifoldForestClassifier(30, min_samples_leaf=5, random_state=0)
    means = [
        forest.set_params(prior=prior).fit(X[train], y[train]).predict_proba(X[test])[:, 1].mean()
        for prior in (None, [0.9, 0.1])
    ]
    truth = y[test].mean()
    assert means[0] > 2 * truth and abs(means[1] - truth) < 0.25 * truth


# ------------------------------------------------------------------- whatever reads a prediction


@each_classifier
def test_files_dicts_copies_and_predictors_agree(cls):
    for n_outputs in (1, 2):
        model, (X, _) = fitted(cls, True, n_outputs), rows(n_outputs)
        expected = predicted(model, X)
        file = io.BytesIO()
        skforest.save(model, file)
        file.seek(0)
        for other in (skforest.load(file), skforest.slim(model)):
            np.testing.assert_array_equal(predicted(other, X), expected)
        predictor = model.predictor()
        found = predictor(predictor.encode(X))
        found = np.concatenate(found, axis=1) if n_outputs > 1 else found
        np.testing.assert_allclose(found, expected, atol=1e-5)
        model = json.loads(json.dumps(skforest.to_dict(model)))
        for i in range(5):
            np.testing.assert_allclose(response(model, X[i]), expected[i], atol=1e-5)


@pytest.mark.parametrize("name", ["BlendedForest", "CO2Forest", "ObliqueBoosting"])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_c_and_onnx_agree(name, n_outputs, tmp_path):
    model, (X, _) = fitted(getattr(skforest, f"{name}Classifier"), True, n_outputs), rows()
    if n_outputs == 1:
        check_onnx(model, X)
    expected = predicted(model, X)
    found = in_c(skforest.to_c(model, name="predict"), X, expected.shape[1], tmp_path)
    np.testing.assert_allclose(found, expected, atol=1e-14)


@each_classifier
def test_explanations_are_of_the_corrected_probabilities(cls):
    for n_outputs in (1, 2):
        model, (X, _) = fitted(cls, True, n_outputs), rows(n_outputs)
        found = skforest.shapley_values(model, X[:2], background=X[:4], units="response")
        total = found.base_values + np.asarray(found.values).sum(axis=1)
        np.testing.assert_allclose(total, predicted(model, X[:2]), atol=1e-12)


def test_raw_scores_of_boosting_contain_the_prior():
    X, y = rows()
    y = y == "a"
    model = skforest.ObliqueBoostingClassifier(5, n_bags=1, prior=[1, 3], random_state=0).fit(X, y)
    found = skforest.shapley_values(model, X[:3], background=X[:4])
    total = found.base_values + np.asarray(found.values).sum(axis=1)
    np.testing.assert_allclose(total, model.decision_function(X[:3]))
    *_, last = model.staged_predict_proba(X)
    np.testing.assert_allclose(last, model.predict_proba(X), atol=1e-14)


def test_texts_show_the_probabilities_of_the_tree():
    X, y = rows()
    tree = fitted(CO2ForestClassifier, True)
    tree = clone(tree).set_params(n_estimators=1, max_depth=1)
    text = skforest.export_text(tree.fit(X, y))
    for proba in np.unique(tree.predict_proba(X), axis=0):
        assert f"class: a (probabilities: [{', '.join(f'{p:.2f}' for p in proba)}])" in text


def test_refined_trees_have_the_prior_of_their_rows():
    X, y = rows()
    weight = np.where(y == "a", 5.0, 1.0)
    plain, model = (fitted(CO2ForestClassifier, has_prior) for has_prior in (False, True))
    one, two = (
        skforest.refine(forest, X, y, weight, n_sweeps=1, n_epochs=2, random_state=0)
        for forest in (plain, model)
    )
    expected = moved(one.predict_proba(X), PRIOR, shares(y, weight))
    np.testing.assert_allclose(two.predict_proba(X), expected, atol=1e-14)


@pytest.mark.parametrize("name", ["ManifoldForest", "ObliqueBoosting", "RandomHingeForest"])
def test_a_warm_start_takes_the_prior_of_the_last_fit(name):
    X, y = rows()
    cls = getattr(skforest, f"{name}Classifier")
    number = "n_estimators" if name == "ManifoldForest" else "n_bags"
    model = unfitted(cls, warm_start=True, prior=[0.1, 0.1, 0.8]).fit(X, y)
    model.set_params(**{number: getattr(model, number) + 1}, prior=PRIOR).fit(X, y)
    plain = unfitted(cls, **{number: getattr(model, number)}).fit(X, y)
    expected = moved(plain.predict_proba(X), PRIOR, shares(y))
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-14)
    for prior, wanted in ((None, plain.predict_proba(X)), (PRIOR, expected)):
        with pytest.warns(UserWarning, match="does not fit new trees"):
            model.set_params(prior=prior).fit(X, y)
        np.testing.assert_allclose(model.predict_proba(X), wanted, atol=1e-14)


# ---------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "prior, words",
    [
        ([0.5, 0.5], "must have 3 finite numbers greater than 0.*'a', 'b', 'c'"),
        ([0.5, 0.5, 0.0], "finite numbers greater than 0"),
        ([0.5, 0.5, np.nan], "finite numbers greater than 0"),
        ([[0.5, 0.3, 0.2]], "finite numbers greater than 0"),
        (["x", "y", "z"], "finite numbers greater than 0"),
        ({"a": 0.5, "b": 0.5}, "needs a frequency for each class, and no others"),
        ({"a": 1, "b": 1, "c": 1, "d": 1}, "needs a frequency for each class, and no others"),
        ([1e-200, 1, 1], "times as frequent as in training"),
    ],
)
def test_a_prior_that_is_none_is_refused_before_training(prior, words, monkeypatch):
    monkeypatch.setattr("skforest.estimators.base.train_members", None)
    with pytest.raises(ValueError, match=f"(?s)prior=.*{words}"):
        ManifoldForestClassifier(2, prior=prior).fit(*rows())


def test_where_a_prior_has_no_meaning_it_is_refused():
    X, y = rows()
    hinge = skforest.RandomHingeForestClassifier(prior=PRIOR)
    with pytest.raises(ValueError, match="prior=.*partial_fit does not know; use fit"):
        hinge.partial_fit(X, y, classes=["a", "b", "c"])
    with pytest.raises(
        ValueError, match="prior=.* must be a list with an entry for each of the 2"
    ):
        ManifoldForestClassifier(2, prior=PRIOR).fit(*rows(2))
    with pytest.raises(ValueError, match="prior=.* needs rows of class 'a', which has no weight"):
        ManifoldForestClassifier(2, prior=PRIOR).fit(X, y, np.where(y == "a", 0.0, 1.0))
    for member in (hinge, make_pipeline(hinge)):
        with pytest.raises(ValueError, match="with prior=.*; set prior of the blend instead"):
            skforest.BlendedForestClassifier([member]).fit(X, y)


def test_partitions_do_not_know_the_frequencies():
    array = pytest.importorskip("dask.array")
    from skforest.dask import fit

    X, y = map(array.from_array, rows())
    with pytest.raises(ValueError, match="prior=.* needs the frequencies .* in all partitions"):
        fit(ManifoldForestClassifier(prior=PRIOR), X, y)


def test_modules_of_torch_contain_no_prior():
    pytest.importorskip("torch")
    from skforest import torch

    with pytest.raises(ValueError, match="prior=.*, which a module does not contain"):
        torch.from_estimator(fitted(skforest.RandomHingeForestClassifier, True))


def test_a_blend_with_a_damaged_ratio_is_not_loaded():
    blend = clone(fitted(skforest.BlendedForestClassifier, True))
    vars(blend).update(vars(fitted(skforest.BlendedForestClassifier, True)))
    for wrong in ([1.0], [1.0, 1.0, -1.0], 2.0, ["x", "y", "z"]):
        blend._prior_ratio = wrong
        file = io.BytesIO()
        skforest.save(blend, file)
        file.seek(0)
        with pytest.raises(ValueError, match="damaged: the fitted attribute _prior_ratio is"):
            skforest.load(file)


def test_a_forest_checks_its_ratio():
    forest = fitted(ManifoldForestClassifier, True).forest_
    arguments = forest.metadata
    assert skforest.Forest(forest.arrays, **arguments).prior_ratio == forest.prior_ratio
    for wrong in ([1.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1e101]):
        with pytest.raises(ValueError, match="prior_ratio needs a number from 1e-100 to 1e"):
            skforest.Forest(forest.arrays, **arguments | {"prior_ratio": wrong})
    with pytest.raises(ValueError, match="prior_ratio is 'x'; a finite number is needed"):
        skforest.Forest(forest.arrays, **arguments | {"prior_ratio": "xyz"})
    with pytest.raises(ValueError, match="forests differ in prior_ratio"):
        skforest.Forest.concatenate([forest, fitted(ManifoldForestClassifier, False).forest_])


def test_a_series_is_a_prior_by_label():
    X, y = rows()
    shares = pd.Series({"c": 0.7, "a": 0.2, "b": 0.1})  # as value_counts sorts them
    models = [
        ManifoldForestClassifier(5, random_state=0, prior=prior).fit(X, y)
        for prior in (shares, [0.2, 0.1, 0.7])
    ]
    np.testing.assert_array_equal(*[model.predict_proba(X) for model in models])
    with pytest.raises(ValueError, match="the classes are"):
        ManifoldForestClassifier(5, prior=shares.rename({"c": "d"})).fit(X, y)
