"""The choice between settings by small forests."""

import tracemalloc

import numpy as np
import pytest
from makers import made, training_rows
from sklearn.base import clone
from sklearn.datasets import load_digits, make_friedman1

import skforest
from skforest import (
    CO2ForestClassifier,
    CO2ForestRegressor,
    CO2Procedure,
    E2EDecisionForest,
    E2EDecisionForestRegressor,
    ManifoldForestRegressor,
)
from skforest.training import trials

CHOSEN = ("objective_", "bootstrap_", "max_features_", "holdout_")
FREE = ("co2", False, "sqrt", 0.0)
GUARDED = ("co2", False, "power", 0.3)
AXIS = (None, True, "sqrt", 0.0)


def chosen(model):
    return tuple(getattr(model, name) for name in CHOSEN)


def of(setting, p):
    count = int(np.ceil(p ** (0.8 if setting[2] == "power" else 0.5)))
    return (*setting[:2], count, setting[3])


def digits():
    return load_digits(return_X_y=True)


def halves(n=400, p=30):
    """One hyperplane of all features separates the classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    return X, X @ rng.normal(size=p) > 0


def squares(n=1000):
    """Two crossing bands, parallel to the axes, and label noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 4))
    y = (np.abs(X[:, 0]) < 0.3) ^ (np.abs(X[:, 1]) < 0.3) ^ (rng.random(n) < 0.15)
    return X, y


def needles(n=1000, p=100):
    """An oblique boundary in two features among noise features; no label noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    return X, np.abs(X[:, 0]) + X[:, 1] > 0.7


@pytest.mark.parametrize(
    "data, setting",
    [(halves, FREE), (squares, AXIS), (needles, GUARDED)],
    ids=["free", "axis", "guarded"],
)
def test_the_setting_that_suits_the_data_is_chosen(data, setting):
    X, y = data()
    for seed in range(3):
        model = CO2ForestClassifier(1, random_state=seed).fit(X, y)
        assert chosen(model) == of(setting, X.shape[1])


def test_the_chosen_setting_is_trained():
    X, y = squares()
    model = CO2ForestClassifier(5, random_state=0).fit(X, y)
    params = {name[:-1]: value for name, value in zip(CHOSEN, chosen(model), strict=True)}
    given = CO2ForestClassifier(5, random_state=0, **params).fit(X, y)
    assert chosen(given) == chosen(model)
    np.testing.assert_array_equal(given.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    "given",
    [
        {"objective": "soft"},
        {"bootstrap": False},
        {"holdout": 0.2, "objective": "co2"},
        {"max_features": 3},
        {"objective": "oc1", "n_restarts": 0},
    ],
)
def test_given_parameters_are_kept(given):
    X, y = squares(300)
    model = made(CO2ForestClassifier, 2, random_state=0, **given).fit(X, y)
    for name in given.keys() - {"n_restarts"}:
        assert getattr(model, f"{name}_") == given[name]


@pytest.mark.parametrize("params", [{"oob_score": True}, {"max_samples": 0.5}])
def test_parameters_that_need_a_bootstrap_enable_it(params):
    X, y = digits()
    model = CO2ForestClassifier(10, random_state=0, **params).fit(X[:300], y[:300])
    assert model.bootstrap_ is True and model.objective_ == "co2"


def test_few_rows_take_the_first_setting():
    X, y = squares()
    for n, same in ((29, True), (1000, False)):
        model = CO2ForestClassifier(1, random_state=0).fit(X[:n], y[:n])
        assert (chosen(model) == of(FREE, 4)) is same


def test_a_class_without_weight_takes_no_part():
    X, y = digits()
    weight = {k: float(k > 1) for k in range(10)}
    model = CO2ForestClassifier(3, random_state=0, class_weight=weight).fit(X[:400], y[:400])
    assert not np.isin(model.predict(X), (0, 1)).any()


def test_threads_and_copies_change_no_choice():
    X, y = squares(400)
    one = CO2ForestClassifier(5, random_state=0).fit(X, y)
    two = clone(one).set_params(n_jobs=2).fit(X, y)
    twice = clone(one).fit(np.vstack([X, X[:50]]), np.append(y, y[:50]))
    weighed = clone(one).fit(X, y, 1.0 + (np.arange(400) < 50))
    assert chosen(one) == chosen(two)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    assert chosen(twice) == chosen(weighed)
    np.testing.assert_array_equal(twice.predict_proba(X), weighed.predict_proba(X))


def test_warm_start_keeps_the_choice(tmp_path):
    X, y = squares(400)
    model = CO2ForestClassifier(3, random_state=0, warm_start=True).fit(X, y)
    before = chosen(model)
    assert before[0] is None
    skforest.save(model, tmp_path / "model")
    model.set_params(n_estimators=6).fit(X, y)
    again = skforest.load(tmp_path / "model").set_params(n_estimators=6).fit(X, y)
    whole = CO2ForestClassifier(6, random_state=0).fit(X, y)
    assert chosen(model) == chosen(again) == chosen(whole) == before
    np.testing.assert_array_equal(model.predict_proba(X), whole.predict_proba(X))
    np.testing.assert_array_equal(again.predict_proba(X), whole.predict_proba(X))
    # A parameter that is set later applies to the trees that are added.
    model.set_params(n_estimators=8, objective="co2").fit(X, y)
    assert model.objective_ == "co2" and chosen(model)[1:] == before[1:]


def test_real_targets():
    X, y = make_friedman1(600, noise=0.5, random_state=0)
    one = CO2ForestRegressor(20, random_state=0).fit(X[:400], y[:400])
    two = clone(one).fit(X[:400], 1024 * y[:400])
    assert chosen(one) == chosen(two)
    both = clone(one).fit(X[:400], np.column_stack([y, y])[:400])
    assert chosen(both)[0] in ("co2", None)
    assert one.score(X[400:], y[400:]) > 0.8


def test_many_classes_are_predicted_in_small_blocks():
    """The predictions of a forest for 2000 rows take 48 MB, those of its trees ten times that."""
    X = np.repeat(np.random.default_rng(0).normal(size=(3000, 2)), 2, axis=0)
    X[1::2] += 1e-3
    model = CO2ForestClassifier(
        1, max_features=2, random_state=0, procedure=CO2Procedure(n_epochs=1)
    )
    tracemalloc.start()
    model.fit(X, np.repeat(np.arange(3000), 2))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40e6


@pytest.mark.parametrize("kind", [E2EDecisionForest, E2EDecisionForestRegressor])
def test_end_to_end_trees_find_their_number_of_features(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 30))
    together = X @ rng.normal(size=30) > 0
    assert kind(2, random_state=0).fit(X, together).max_features_ in (16, 30)
    quick = {"greedy_epochs": 1, "finetune_epochs": 1, "random_state": 0}
    model = kind(2, **quick).fit(X[:999], together[:999])
    assert model.max_features_ == 6  # the first, where rows are few
    assert kind(2, max_features=5, **quick).fit(X, together).max_features_ == 5
    assert kind(1, **quick).fit(X, together).max_features_ == 30


def test_features_of_end_to_end_trees_stay_with_warm_starts_and_threads():
    X, y = halves(1200)
    model = E2EDecisionForest(2, warm_start=True, random_state=0).fit(X, y)
    more = clone(model).set_params(n_estimators=4, n_jobs=2).fit(X, y)
    model.set_params(n_estimators=4).fit(X, y)
    assert model.max_features_ == more.max_features_
    np.testing.assert_array_equal(model.predict_proba(X), more.predict_proba(X))


@pytest.mark.parametrize("n, n_train, n_test", [(30, 20, 10), (90, 60, 30), (500, 100, 100)])
def test_forests_are_compared_on_rows_that_they_do_not_know(n, n_train, n_test, monkeypatch):
    monkeypatch.setattr(trials, "MAX_ROWS", 100)
    X = np.random.default_rng(0).permutation(n + 5)[:, None]
    weight = np.append(np.arange(n) % 3 + 1.0, np.zeros(5))
    data = training_rows(ManifoldForestRegressor(), X, X[:, 0], weight)
    train, test = trials._split(data, 3)
    assert (len(train), len(test)) == (n_train, n_test)
    rows = np.concatenate([train.X[:, 0], test.X[:, 0]])
    assert len(np.unique(rows)) == n_train + n_test
    order = np.argsort(X[:, 0])
    for part in (train, test):
        np.testing.assert_array_equal(part.weight, weight[order][part.X[:, 0].astype(int)])


@pytest.mark.parametrize("n_features", [1, 2, 7])
def test_importances_of_few_features(n_features):
    X = np.random.default_rng(0).normal(size=(60, n_features))
    data = training_rows(ManifoldForestRegressor(), X, X[:, -1])
    found = trials.quick_importances(data, 0)
    assert found.sum() == pytest.approx(1) and found[-1] > 0.7
