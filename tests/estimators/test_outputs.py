"""Classification with several outputs, and several labels per row."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
from sklearn.multioutput import ClassifierChain
from sklearn.utils import get_tags

import skforest
from skforest import (
    CO2ForestClassifier,
    Forest,
    ManifoldForestClassifier,
    ObliqueBoostingClassifier,
)
from skforest.forest.statistics import probabilities, squared_error


def rows(n=160, seed=0):
    """Three outputs: strings, numbers, bools; all depend on X."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    y = np.empty((n, 3), dtype=object)
    y[:, 0] = np.array(["low", "mid", "top"])[np.digitize(X[:, 0] + X[:, 1], [-0.5, 0.5])]
    y[:, 1] = (X[:, 2] > 0).astype(int) * 7
    y[:, 2] = X[:, 3] > 0.3
    return X, y


def coded(y):
    return np.stack([np.unique(column.astype(str), return_inverse=True)[1] for column in y.T], 1)


@pytest.mark.every_class
def test_predictions_have_the_form_of_random_forests(classifier):
    X, y = rows()
    y = coded(y)
    model, other = classifier.fit(X, y), RandomForestClassifier(5, random_state=0).fit(X, y)
    assert model.n_outputs_ == 3
    assert model.n_classes_ == list(other.n_classes_) == [3, 2, 2]
    for ours, theirs in zip(model.classes_, other.classes_):
        np.testing.assert_array_equal(ours, theirs)
    proba, logs = model.predict_proba(X), model.predict_log_proba(X)
    assert [p.shape for p in proba] == [p.shape for p in other.predict_proba(X)]
    for p, log, classes, found in zip(proba, logs, model.classes_, model.predict(X).T):
        np.testing.assert_allclose(p.sum(axis=1), 1)
        assert (p >= 0).all()
        np.testing.assert_array_equal(classes[p.argmax(axis=1)], found)
        np.testing.assert_allclose(np.exp(log), p, atol=1e-12)
    assert (model.predict(X) == y).mean(axis=0).min() > 0.8


@pytest.mark.parametrize("cls", [ManifoldForestClassifier, ObliqueBoostingClassifier])
def test_squared_errors_are_those_of_the_indicators_of_all_classes(cls):
    """Features and settings are chosen by them; some classes have a baseline."""
    X, y = rows()
    y, weight = coded(y), np.arange(len(X)) % 3
    model = cls(2, random_state=0).fit(X[:80], y[:80])
    truth = np.concatenate([codes[:, None] == np.arange(codes.max() + 1) for codes in y.T], axis=1)
    expected = weight @ np.square(model.forest_.response(X) - truth).sum(axis=1)
    found = squared_error(model.forest_, model._known_training_set(X, y, weight))
    assert found == pytest.approx(expected)


@pytest.mark.every_class
def test_several_labels_per_row(classifier):
    X, y = make_multilabel_classification(200, 8, n_classes=4, random_state=0)
    model = clone(classifier).fit(X[:150], y[:150])
    found = model.predict(X[150:])
    assert found.shape == (50, 4)
    assert found.dtype == y.dtype
    assert (found == y[150:]).mean() > 0.7
    assert 0 <= model.score(X[150:], y[150:]) <= 1
    assert np.isfinite(cross_val_score(classifier, X, y, cv=2)).all()


@pytest.mark.every_class
def test_two_equal_outputs_are_one(classifier):
    """Impurities add up, so equal outputs give the trees of one, with criterion squared error."""
    if "n_bags" in classifier.get_params():
        pytest.skip("hinge forests and boosting train another loss with several outputs")
    X, y = rows()
    y = coded(y)[:, :1]
    model = classifier.fit(X, np.hstack([y, y]))
    first, second = model.predict_proba(X)
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_labels_of_several_types():
    X, y = rows()
    model = CO2ForestClassifier(10, random_state=0).fit(X, y)
    assert [c.tolist() for c in model.classes_] == [["low", "mid", "top"], [0, 7], [False, True]]
    assert (model.predict(X) == y).mean() > 0.9


@pytest.mark.every_class
def test_weights_are_copies_and_order_is_nothing(classifier):
    X, y = rows()
    y = coded(y)
    weight = np.random.default_rng(0).integers(0, 3, size=len(X))
    order = np.random.default_rng(1).permutation(np.repeat(np.arange(len(X)), weight))
    a = clone(classifier).fit(X, y, sample_weight=weight)
    b = clone(classifier).fit(X[order], y[order])
    for name, array in a.forest_.arrays.items():
        np.testing.assert_array_equal(array, b.forest_.arrays[name], err_msg=name)


@pytest.mark.every_class
def test_saved_models_predict_labels(classifier, tmp_path):
    X, y = rows()
    y = y[:, 0].reshape(-1, 1) + np.array(["", "!"])  # two outputs of strings
    model = classifier.fit(X, y.astype(str))
    skforest.save(model, tmp_path / "model.npz")
    for again in (skforest.load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        for ours, theirs in zip(model.predict_proba(X), again.predict_proba(X)):
            np.testing.assert_array_equal(ours, theirs)
    forest = Forest.load(tmp_path / "model.npz")
    if getattr(model, "routing", "hard") == "hard":
        np.testing.assert_array_equal(forest.predict(X), model.predict(X))


@pytest.mark.parametrize("cls", [CO2ForestClassifier, ManifoldForestClassifier])
def test_class_weights(cls):
    X, y = rows()
    y = coded(y)
    plain = cls(10, random_state=0).fit(X, y)
    even = [dict.fromkeys(range(n), 1.0) for n in (3, 2, 2)]
    same = cls(10, random_state=0, class_weight=even).fit(X, y)
    np.testing.assert_array_equal(same.forest_.threshold, plain.forest_.threshold)
    heavy = [{0: 1.0, 1: 1.0, 2: 100.0}, {0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}]
    other = cls(10, random_state=0, max_depth=2, class_weight=heavy).fit(X, y)
    light = cls(10, random_state=0, max_depth=2).fit(X, y)
    assert (other.predict(X)[:, 0] == 2).sum() > (light.predict(X)[:, 0] == 2).sum()
    for kind in ("balanced", "balanced_subsample"):
        assert cls(10, random_state=0, class_weight=kind).fit(X, y).predict(X).shape == y.shape
    # An entry of the list may be what a single output may have; weights count, and copies of rows.
    weight = np.arange(len(X)) % 3 + 1
    model = cls(10, random_state=0, bootstrap=False)
    balanced = clone(model).set_params(class_weight="balanced").fit(X, y, weight)
    listed = clone(model).set_params(class_weight=["balanced"] * 3).fit(X, y, weight)
    np.testing.assert_array_equal(listed.forest_.value, balanced.forest_.value)
    with pytest.raises(ValueError, match="list of dicts"):
        cls(10, class_weight={0: 1.0}).fit(X, y)
    with pytest.raises(ValueError, match="2 entries, y has 3 outputs"):
        cls(10, class_weight=[{0: 1.0}] * 2).fit(X, y)


@pytest.mark.every_class
def test_every_classifier_takes_a_class_weight_for_each_output(classifier):
    X, y = rows()
    y = coded(y)
    even = [dict.fromkeys(range(n), 1.0) for n in (3, 2, 2)]
    plain = clone(classifier).fit(X, y)
    same = classifier.set_params(class_weight=even).fit(X, y)
    np.testing.assert_array_equal(same.predict(X), plain.predict(X))


def test_out_of_bag():
    """The score is the weighted share of the rows of which all outputs are right."""
    X, y = rows(300)
    y = coded(y)
    weight = np.random.default_rng(0).exponential(size=300) ** 2
    model = CO2ForestClassifier(30, oob_score=True, random_state=0).fit(X, y, weight)
    assert [p.shape for p in model.oob_decision_function_] == [(300, 3), (300, 2), (300, 2)]
    found = np.stack([p.argmax(axis=1) for p in model.oob_decision_function_], axis=1)
    seen = ~np.isnan(model.oob_decision_function_[0][:, 0])
    is_right = (found == y).all(axis=1)[seen]
    assert model.oob_score_ == pytest.approx(np.average(is_right, weights=weight[seen]))
    assert 0.5 < model.oob_score_ < 1


def test_responses_become_probabilities_of_each_output():
    response = np.array([[0.2, 0.6, -1.0, -2.0, 0.0], [-0.5, 2.0, 1.0, 3.0, 0.0]])
    one, two = probabilities(np.vstack([response, np.full((1, 5), np.nan)]), [2, 3])
    np.testing.assert_allclose(one, [[0.25, 0.75], [0, 1], [np.nan] * 2])
    np.testing.assert_allclose(two, [[1 / 3] * 3, [0.25, 0.75, 0], [np.nan] * 3])


def test_warm_start_and_refinement():
    X, y = rows()
    y = coded(y)
    whole = CO2ForestClassifier(6, random_state=0).fit(X, y)
    parts = CO2ForestClassifier(3, random_state=0, warm_start=True).fit(X, y)
    parts.set_params(n_estimators=6).fit(X, y)
    np.testing.assert_array_equal(parts.forest_.threshold, whole.forest_.threshold)
    with pytest.raises(ValueError, match="warm_start=True continues with"):
        parts.set_params(n_estimators=7).fit(X, y[:, 0])
    assert (skforest.refine(whole, X, y, random_state=0).predict(X) == y).mean() > 0.9
    with pytest.raises(ValueError, match="y has 1 outputs, the estimator was fitted with 3"):
        skforest.refine(whole, X, y[:, 0])


def test_what_takes_one_output_says_so():
    X, y = rows()
    y = coded(y)
    with pytest.raises(ValueError, match="entropy.* takes one output"):
        ManifoldForestClassifier(5, criterion="entropy").fit(X, y)
    with pytest.raises(ValueError, match="partial_fit takes one output"):
        skforest.RandomHingeForestClassifier().partial_fit(X, y)
    with pytest.raises(ValueError, match="y contains NaN or None: label 3 is None"):
        labels = y.astype(object)
        labels[3, 1] = None
        CO2ForestClassifier(5).fit(X, labels)
    pytest.importorskip("torch")
    from skforest.torch import E2ENetworkTree, from_estimator

    with pytest.raises(ValueError, match="y has 3 outputs; E2ENetworkTree takes one"):
        E2ENetworkTree().fit(X, y)
    with pytest.raises(ValueError, match="several outputs"):
        from_estimator(skforest.RandomHingeForestClassifier(5, n_bags=1, max_iter=5).fit(X, y))


def test_chains_of_classifiers_still_work():
    X, y = make_multilabel_classification(100, 8, n_classes=3, random_state=0)
    chain = ClassifierChain(CO2ForestClassifier(5, random_state=0)).fit(X, y)
    assert chain.predict(X).shape == y.shape


def test_plots_name_the_outputs():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    X, y = rows()
    model = CO2ForestClassifier(1, max_depth=2, random_state=0).fit(X, coded(y))
    figure = Figure()
    skforest.plot_tree(model, ax=figure.subplots())
    assert any("y[1] = 1" in text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"n_classes": [2, 3]}, "the sum of n_classes is not n_outputs"),
        ({"n_classes": [4, 0]}, "the sum of n_classes is not n_outputs"),
        ({"n_classes": None}, "n_classes does not fit"),
        ({"task": "classification"}, "n_classes does not fit"),
        ({"n_classes": [1.5, 2.5]}, "a whole number is needed"),
        ({"classes": None}, "classes are needed"),
        ({"classes": np.arange(3)}, "one entry per output"),
    ],
)
def test_wrong_metadata_of_a_forest(metadata, message):
    arrays = {"tree_start": [0, 1], "child": [-1], "threshold": [], "value": [0.5] * 4}
    good = {"task": "multioutput classification", "n_classes": [2, 2], "classes": np.arange(4)}
    good |= {"n_features": 1, "n_outputs": 4}
    assert Forest(arrays, **good).predict([[0.0]]).tolist() == [[0, 2]]
    with pytest.raises(ValueError, match=message):
        Forest(arrays, **good | metadata)


@pytest.mark.parametrize("criterion, several", [("gini", True), ("entropy", False)])
def test_tags_tell_whether_a_criterion_takes_several_outputs(criterion, several):
    X, y = rows()
    model = ManifoldForestClassifier(2, criterion=criterion)
    tags = get_tags(model)
    assert tags.target_tags.multi_output == tags.classifier_tags.multi_label == several
    if several:
        assert model.fit(X, y).n_outputs_ == 3
    else:
        with pytest.raises(ValueError, match='criterion="entropy" takes one output'):
            model.fit(X, y)


@pytest.mark.parametrize("dtype", ["Int64", "UInt64", "int64[pyarrow]"])
def test_integer_labels_of_pandas_keep_every_digit(dtype):
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.where(X[:, 0] > 0, 2**53 + 1, 2**53)
    model = ManifoldForestClassifier(3, random_state=0).fit(X, pd.Series(y, dtype=dtype))
    assert model.classes_.dtype.kind in "iu" and model.classes_.tolist() == [2**53, 2**53 + 1]
    assert model.predict(X).tolist() == y.tolist()


@pytest.mark.parametrize("labels", [[True, False], [1, 2]])
def test_objects_that_are_bools_or_integers_are_refused_with_advice(labels):
    X, y = np.zeros((4, 1)), np.array(labels * 2, dtype=object)
    with pytest.raises(ValueError, match=r"y has the dtype object; convert it: y.astype\(int\)"):
        ManifoldForestClassifier(3).fit(X, y)
    y = np.array([np.str_(label) for label in y], dtype=object)
    assert ManifoldForestClassifier(3).fit(X, y).classes_.tolist() == sorted(map(str, labels))
