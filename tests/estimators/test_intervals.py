"""Intervals and sets from predictions of held-out rows."""

import functools
import pickle

import numpy as np
import pytest
from conftest import ALL, small
from makers import OwnPoisson, bags_before, quick_boosting, quick_hinge, task, training_rows
from scipy.special import expit
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import KFold, TimeSeriesSplit, cross_val_predict

import skforest
from skforest import (
    BlendedForestClassifier,
    BlendedForestRegressor,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)
from skforest.estimators import base, conformal
from skforest.training.early_stopping import balanced_folds

pytestmark = pytest.mark.filterwarnings("ignore:Some inputs do not have OOB")

BAGGED = {"n_estimators": 20, "oob_score": True, "min_samples_leaf": 5, "random_state": 0}
LEVELS = [0.9, 0.05, 0.5, 0.1, 0.95]


def rows(n=1400, seed=0):
    """Targets whose noise grows with their mean."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 3))
    return X, 2 * X[:, 0] + (0.1 + X[:, 0]) * rng.normal(size=n)


X, Y = rows()
TRAIN, TEST = slice(0, 400), slice(400, None)


@functools.cache
def fitted(kind):
    """A fitted regressor of each kind that holds out rows, trained once."""
    models = {
        "bags": quick_boosting(ObliqueBoostingRegressor, n_bags=3, n_estimators=30),
        "one bag": quick_boosting(ObliqueBoostingRegressor, n_bags=1, n_estimators=30),
        "quantiles": quick_boosting(
            ObliqueBoostingRegressor, loss="quantile", quantile=LEVELS, n_bags=3, n_estimators=30
        ),
        "bootstrap": ManifoldForestRegressor(**BAGGED),
        "hinge": quick_hinge(RandomHingeForestRegressor, bootstrap=True, oob_score=True),
        "stopped hinge": quick_hinge(
            RandomHingeForestRegressor, procedure=skforest.HingeProcedure(early_stopping=True)
        ),
        "hinge quantile": quick_hinge(RandomHingeForestRegressor, loss="quantile", quantile=0.6),
        "blend": BlendedForestRegressor([ManifoldForestRegressor(20)], random_state=0),
    }
    return models[kind].fit(X[TRAIN], Y[TRAIN])


KINDS = (
    "bags",
    "one bag",
    "quantiles",
    "bootstrap",
    "hinge",
    "stopped hinge",
    "hinge quantile",
    "blend",
)


def coverage(interval, y):
    return np.mean((interval[:, 0] <= y) & (y <= interval[:, 1]))


def quantile_of(scores, alpha):
    """The score that a new row exceeds with probability alpha at most, by its definition."""
    n = len(scores)
    return np.sort(scores)[int(np.ceil((1 - alpha) * (n + 1) - 1e-9)) - 1]


# --------------------------------------------------------------------------------------- intervals


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_cover_new_rows(kind):
    model = fitted(kind)
    few = {"one bag": 80, "hinge quantile": 60, "stopped hinge": 100, "hinge": 200}
    n_held_out = few.get(kind, 395)
    assert n_held_out <= model._held_out["n_rows"] <= 400
    widths = []
    for alpha in (0.4, 0.1):
        interval = model.predict_interval(X[TEST], alpha)
        assert interval.shape == (1000, 2) and (interval[:, 0] <= interval[:, 1]).all()
        tolerance = 0.07 if n_held_out > 300 else 0.12 if n_held_out > 60 else 0.16
        assert abs(coverage(interval, Y[TEST]) - (1 - alpha)) < tolerance
        widths.append(np.diff(interval).ravel())
    assert (widths[1] > widths[0]).all()
    np.testing.assert_array_equal(model.predict_interval(X[TEST]), interval)
    if n_held_out > 300:  # more than one bin of predictions
        noisy = X[TEST][:, 0] > 0.5
        assert widths[1][noisy].mean() > 1.3 * widths[1][~noisy].mean()


def test_intervals_of_bags_are_those_of_the_definition(monkeypatch):
    """Errors are those of bags before they learn from the rows that they have held out."""
    before = bags_before(monkeypatch)
    model, data = fitted("bags"), training_rows(fitted("bags"), X[TRAIN], Y[TRAIN])
    clone(model).fit(X[TRAIN], Y[TRAIN])
    fold = balanced_folds(data.y[:, 0], 3, model._seed)
    predicted = np.empty(len(data))
    for bag in range(3):
        predicted[fold == bag] = before[bag].response_mapped(data.X[fold == bag])[:, 0]
    error, order = np.abs(data.y[:, 0] - predicted), np.argsort(predicted)
    bins = np.array_split(order, 8)  # 400 / 50
    centre = [np.median(predicted[own]) for own in bins]
    typical = [(error[own].sum() + 20 * error.mean()) / (len(own) + 20) for own in bins]
    for alpha in (0.05, 0.1, 0.5):
        score = quantile_of(error / np.interp(predicted, centre, typical), alpha)
        mean = model.predict(X[TEST])
        half = score * np.interp(mean, centre, typical)
        expected = np.stack([mean - half, mean + half], axis=1)
        np.testing.assert_allclose(model.predict_interval(X[TEST], alpha), expected, rtol=1e-9)


def test_pairs_of_quantiles_are_moved_by_the_scores_of_held_out_rows():
    """Romano, Patterson and Candes 2019, equations 4 to 6."""
    model, data = fitted("quantiles"), training_rows(fitted("quantiles"), X[TRAIN], Y[TRAIN])
    fold, forest = balanced_folds(data.y[:, 0], 3, model._seed), model.forest_
    held_out = np.empty((len(data), 5))
    for bag in range(3):
        member = forest[slice(*forest.bag_start[bag : bag + 2])]
        held_out[fold == bag] = np.sort(member.response_mapped(data.X[fold == bag]), axis=1)
    predicted, y = np.sort(model.predict(X[TEST]), axis=1), data.y[:, 0]
    for alpha, pair in ((0.1, [0, 4]), (0.01, [0, 4]), (0.2, [1, 3]), (0.9, [2, 2])):
        low, high = held_out[:, pair].T
        score = quantile_of(np.maximum(low - y, y - high), alpha)
        expected = np.sort(predicted[:, pair] + [-score, score], axis=1)
        np.testing.assert_allclose(model.predict_interval(X[TEST], alpha), expected, atol=1e-12)


def test_a_bag_that_is_trained_again_keeps_the_predictions_from_before(monkeypatch):
    seen, whole, model = [], base.mean_response, clone(fitted("one bag"))
    monkeypatch.setattr(base, "mean_response", lambda *given: seen.append(given) or whole(*given))
    model.fit(X[TRAIN], Y[TRAIN])
    ((forest, data, is_held_out, others),) = seen
    mask = is_held_out(0)
    assert mask.sum() == 80 and others.keys() == {0}
    before, after = (
        np.abs(data.y - one.response_mapped(data.X))[:, 0] for one in (others[0], forest)
    )
    assert after[mask].mean() < 0.95 * before[mask].mean()
    _, typical = model._held_out["errors"][0]
    assert typical == pytest.approx(before[mask].mean())


def test_quantiles_from_before_a_bag_was_trained_again_are_calibrated(monkeypatch):
    seen, whole, model = [], base.mean_response, clone(fitted("one bag"))
    monkeypatch.setattr(base, "mean_response", lambda *given: seen.append(given) or whole(*given))
    model.set_params(loss="quantile", quantile=0.9).fit(X[TRAIN], Y[TRAIN])
    ((_, data, is_held_out, others),) = seen
    mask = is_held_out(0)
    below = data.y[mask] <= others[0].response_mapped(data.X[mask])
    assert below.mean() == pytest.approx(0.9, abs=0.02)


def test_rows_for_early_stopping_are_held_out():
    model = quick_boosting(ObliqueBoostingRegressor, n_bags=2, n_estimators=20)
    model.fit(X[:100], Y[:100], X_val=X[100:300], y_val=Y[100:300])
    assert model._held_out["n_rows"] == 200
    error = np.abs(Y[100:300] - model.predict(X[100:300]))
    _, typical = model._held_out["errors"][0]
    assert typical.mean() == pytest.approx(error.mean(), rel=0.1)


@pytest.mark.parametrize("n_columns", [1, 2])
def test_intervals_of_several_outputs(n_columns):
    y = np.column_stack([Y, 100 - 30 * Y])[:, :n_columns]
    model = ManifoldForestRegressor(**BAGGED).fit(X[TRAIN], y[TRAIN])
    interval = model.predict_interval(X[TEST])
    assert interval.shape == (1000, 2, n_columns)
    for k in range(n_columns):
        assert abs(coverage(interval[:, :, k], y[TEST, k]) - 0.9) < 0.05


@pytest.mark.parametrize("loss", ["poisson", OwnPoisson()], ids=["poisson", "own"])
def test_intervals_are_in_the_range_of_a_link(loss):
    counts = np.random.default_rng(0).poisson(3 * X[:, 0])
    model = quick_boosting(ObliqueBoostingRegressor, loss=loss, n_bags=2, n_estimators=20)
    interval = model.fit(X[TRAIN], counts[TRAIN]).predict_interval(X[TEST])
    assert interval.min() == 0 and np.isfinite(interval).all()
    assert 0.85 < coverage(interval, counts[TEST]) < 0.97
    blend = BlendedForestRegressor([model], random_state=0)
    if loss == "poisson":
        assert blend.fit(X[TRAIN], counts[TRAIN]).predict_interval(X[TEST]).min() == 0


@pytest.mark.parametrize(
    "link, limits",
    [(lambda raw: np.exp(-raw), (0, np.inf)), (expit, (0, 1)), (np.square, (-np.inf, np.inf))],
    ids=["falling", "bounded", "not monotonic"],
)
def test_limits_of_a_link(link, limits):
    class Linked(OwnPoisson):
        def inverse_link(self, raw):
            return link(raw)

    model = ObliqueBoostingRegressor(loss=Linked())
    model.n_outputs_ = 2
    np.testing.assert_array_equal(np.broadcast_to(model._target_limits(), (2, 2)).T, [limits] * 2)


def test_constant_targets_have_intervals_of_width_0():
    model = ManifoldForestRegressor(**BAGGED).fit(X[TRAIN], np.full(400, 3.5))
    np.testing.assert_array_equal(model.predict_interval(X[:5]), np.full((5, 2), 3.5))


def test_rounding_does_not_exclude_a_target_that_most_rows_have():
    """If nothing can be learned, all zeros have the same score."""
    X, y = np.random.default_rng(0).normal(size=(500, 2)), np.zeros(500)
    y[:31] = 1
    model = ObliqueBoostingRegressor(n_bags=1, learning_rate=1e-9, random_state=0).fit(X, y)
    low, high = model.predict_interval(X).T
    assert model.n_iter_ == [0] and np.mean((low <= y) & (y <= high)) > 0.9


def test_outliers_count_as_rows_and_do_not_widen_the_others():
    y = Y[TRAIN].copy()
    y[:10] = 1e6
    model = quick_boosting(ObliqueBoostingRegressor, loss="absolute_error", n_bags=3)
    model.set_params(n_estimators=30).fit(X[TRAIN], y)
    assert model._held_out["n_rows"] == 400
    interval = model.predict_interval(X[TEST], 0.2)
    assert coverage(interval, Y[TEST]) > 0.78


# ------------------------------------------------------------------------------------- kept scores


@pytest.mark.parametrize("n", [1, 10, 1000, 5000])
def test_quantiles_of_kept_scores_hardly_differ_from_those_of_all(n):
    scores = np.random.default_rng(n).normal(size=n)
    model = ManifoldForestRegressor()
    model.n_features_in_ = 1
    model._keep(np.ones(n), [(scores, np.ones(n))])
    assert model._held_out["scores"][0].shape[1] <= conformal.MOST
    alphas = (1.0001 / (n + 1), 0.5, 0.1, 0.01, 0.002)
    for alpha in (alpha for alpha in alphas if alpha > 1 / (n + 1)):
        (found,) = model._allowed_scores(alpha, "predict_interval")
        least = most = quantile_of(scores, alpha)
        if n > conformal.MOST:  # never too small
            most = scores.max() if alpha < 0.001 else quantile_of(scores, alpha * 0.98)
        assert least <= found <= most + 1e-12 * abs(most)


def test_a_weight_is_a_number_of_copies():
    weight = np.random.default_rng(0).integers(0, 3, size=120)
    given, repeated = X[:120], np.repeat(np.arange(120), weight)
    model = ManifoldForestRegressor(**BAGGED)
    weighted = clone(model).fit(given, Y[:120], sample_weight=weight)
    copied = clone(model).fit(given[repeated], Y[repeated])
    assert weighted._held_out["n_rows"] == copied._held_out["n_rows"] > 100
    np.testing.assert_array_equal(*(m.predict_interval(X[TEST]) for m in (weighted, copied)))
    # Weights that are no numbers of copies: as many rows as there are.
    other = clone(model).fit(given, Y[:120], sample_weight=weight + 0.37 * X[:120, 1])
    assert other._held_out["n_rows"] < 120


def test_typical_errors_are_those_of_copies():
    predicted, weight = np.arange(100.0), np.repeat([1.0, 3.0], 50)
    centre, typical = conformal.typical_errors(predicted, np.repeat([1.0, 5.0], 50), weight)
    # Bins have the same number of copies, up to a row; 20 copies have the mean error, 4.
    n_copies = np.array([50, 51, 48, 51])
    np.testing.assert_allclose(typical, (n_copies * [1, 5, 5, 5] + 20 * 4) / (n_copies + 20))
    np.testing.assert_allclose(centre, [24.5, 50 + 23.5 / 3, 50 + 73.5 / 3, 50 + 123.5 / 3])


def test_copies_that_are_held_out_one_by_one_count_once_each():
    few, n_copies = np.round(X[:60, :1]), 1 + np.arange(60) % 3  # two rows of X, many targets
    y = np.repeat(Y[:60], n_copies)
    model = quick_boosting(ObliqueBoostingRegressor, n_bags=3, n_estimators=5)
    model.fit(np.repeat(few, n_copies, axis=0), y)
    assert model._held_out["n_rows"] == pytest.approx(n_copies.sum())
    hinge = clone(fitted("stopped hinge")).fit(np.repeat(few, n_copies, axis=0), y)
    assert 10 < hinge._held_out["n_rows"] < n_copies.sum()


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_without_held_out_rows_the_error_names_the_parameter(cls):
    model = small(cls)
    predict = "predict_set" if is_classifier(model) else "predict_interval"
    with pytest.raises(NotFittedError):
        getattr(model, predict)(np.zeros((1, 6)))
    given, y = task(model)
    if "Blended" in cls.__name__:
        return
    model.fit(given, y)
    name = {"NonGreedyTree": "", "ObliqueBoosting": "early_stopping=True"}
    name = next((own for key, own in name.items() if key in cls.__name__), "oob_score=True")
    if hasattr(model, "_held_out"):  # the rows of the temperature of a hinge forest
        assert cls is RandomHingeForestClassifier
        return
    with pytest.raises(ValueError, match=f"{predict} needs.*{name}.*a blend"):
        getattr(model, predict)(given)


def test_bad_alpha():
    model = fitted("bootstrap")
    for alpha in (0, 1, -0.1, "0.1", None, [0.1]):
        with pytest.raises(ValueError, match=r"alpha=.* must be a number in \(0, 1\)"):
            model.predict_interval(X[:2], alpha)
    n_rows = model._held_out["n_rows"]
    smallest = 1 / (n_rows + 1)
    with pytest.raises(ValueError, match=f"{n_rows:g} held-out rows; it must be at least 0.002"):
        model.predict_interval(X[:2], 0.99 * smallest)
    widest = model.predict_interval(X[TRAIN], smallest)
    assert coverage(widest, Y[TRAIN]) == 1


def test_intervals_need_the_routing_of_fit(tmp_path):
    model = skforest.E2EDecisionForestRegressor(
        8, max_depth=2, bootstrap=True, oob_score=True, random_state=0
    )
    model.fit(X[:80], Y[:80])
    assert model.predict_interval(X[:3]).shape == (3, 2)
    with pytest.raises(ValueError, match="routing of fit, not routing='soft'"):
        model.set_params(routing="soft").predict_interval(X[:3])
    skforest.save(model, tmp_path / "model.skf")
    loaded = skforest.load(tmp_path / "model.skf")
    with pytest.raises(ValueError, match="routing of fit, not routing='soft'"):
        loaded.predict_interval(X[:3])
    found = loaded.set_params(routing="hard").predict_interval(X[:3])
    np.testing.assert_array_equal(found, model.set_params(routing="hard").predict_interval(X[:3]))


# -------------------------------------------------------------------------------------------- sets

LABELS = make_classification(
    1400, 6, n_informative=4, n_classes=3, class_sep=0.3, weights=[0.6, 0.3], random_state=0
)


@functools.cache
def classifier(kind):
    models = {
        "bags": quick_boosting(ObliqueBoostingClassifier, n_bags=3, n_estimators=30),
        "bootstrap": ManifoldForestClassifier(**BAGGED),
        "hinge": quick_hinge(RandomHingeForestClassifier, n_bags=2, calibrate=True),
        "blend": BlendedForestClassifier([ManifoldForestClassifier(20)], random_state=0),
    }
    return models[kind].fit(LABELS[0][TRAIN], np.array(list("cab"))[LABELS[1][TRAIN]])


@pytest.mark.parametrize("kind", ["bags", "bootstrap", "hinge", "blend"])
def test_sets_contain_new_labels(kind):
    model, given = classifier(kind), LABELS[0][TEST]
    label = np.array(list("cab"))[LABELS[1][TEST]]
    sizes = []
    for alpha in (0.1, 0.03):
        sets = model.predict_set(given, alpha)
        assert sets.shape == (1000, 3) and sets.dtype == bool
        covered = np.mean((sets & (model.classes_ == label[:, None])).any(axis=1))
        assert abs(covered - (1 - alpha)) < (0.1 if kind == "hinge" else 0.04)
        sizes.append(sets.sum(axis=1).mean())
    assert 1 <= sizes[0] < sizes[1] <= 3
    assert not np.array_equal(model.predict_set(given), sets)
    most = model.predict_proba(given).argmax(axis=1)
    few = model.predict_set(given, 0.95)
    assert few.sum() == 1000 and few[np.arange(1000), most].all()


def test_sets_are_those_of_a_threshold_on_held_out_probabilities():
    model, (given, label) = classifier("bootstrap"), LABELS
    proba = model.oob_decision_function_
    code = np.searchsorted(model.classes_, np.array(list("cab"))[label[TRAIN]])
    known = ~np.isnan(proba[:, 0])
    of_true = proba[np.arange(400), code][known]
    threshold = -quantile_of(-of_true, 0.1)
    found = model.predict_proba(given[TEST])
    expected = (found >= threshold) | (found == found.max(axis=1, keepdims=True))
    assert (model.predict_set(given[TEST]) == expected).mean() > 0.999  # ties of the largest


def test_sets_cover_a_population_with_other_frequencies():
    given, label = LABELS
    model = ManifoldForestClassifier(**BAGGED, prior=[0.1, 0.1, 0.8])
    model.fit(given[TRAIN], label[TRAIN])
    covered = model.predict_set(given[TEST])[np.arange(1000), label[TEST]]
    weight = np.array([0.1, 0.1, 0.8])[label[TEST]] / np.bincount(label[TEST])[label[TEST]]
    assert abs(np.average(covered, weights=weight) - 0.9) < 0.05
    plain = ManifoldForestClassifier(**BAGGED).fit(given[TRAIN], label[TRAIN])
    covered = plain.predict_set(given[TEST])[np.arange(1000), label[TEST]]
    assert np.average(covered, weights=weight) < 0.85


def test_class_weights_do_not_change_the_rows_that_sets_cover():
    given, label = LABELS
    models = [
        ManifoldForestClassifier(**BAGGED),
        quick_boosting(ObliqueBoostingClassifier, n_bags=2, n_estimators=9, max_depth=3),
        BlendedForestClassifier([ManifoldForestClassifier(20)], refit=False, random_state=0),
    ]
    for model in models:
        model.set_params(class_weight={0: 1, 1: 1, 2: 50}).fit(given[TRAIN], label[TRAIN])
        covered = model.predict_set(given[TEST])[np.arange(1000), label[TEST]]
        assert 350 < model._held_out["n_rows"] <= 400 and abs(covered.mean() - 0.9) < 0.05
        weight = np.diff(np.append(model._held_out["scores"][0][1], model._held_out["n_rows"]))
        np.testing.assert_allclose(weight, 1)


def test_sets_of_several_outputs():
    given, label = LABELS
    y = np.stack([label, label > 1], axis=1)
    model = ManifoldForestClassifier(**BAGGED).fit(given[TRAIN], y[TRAIN])
    sets = model.predict_set(given[TEST])
    assert [part.shape for part in sets] == [(1000, 3), (1000, 2)]
    for part, own in zip(sets, y[TEST].T):
        assert abs(part[np.arange(1000), own].mean() - 0.9) < 0.06


# --------------------------------------------------------------------- files, and further training


@pytest.mark.parametrize("kind", ["bags", "quantiles", "blend"])
def test_intervals_of_saved_and_small_models(kind, tmp_path):
    model = fitted(kind)
    skforest.save(model, tmp_path / "model.npz")
    others = [skforest.load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))]
    for other in (*others, skforest.slim(model)):
        np.testing.assert_array_equal(
            other.predict_interval(X[TEST]), model.predict_interval(X[TEST])
        )


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: kept.pop("scores"),
        lambda kept: kept.update(n_rows="many"),
        lambda kept: kept["scores"].append(kept["scores"][0]),
        lambda kept: kept.update(errors=[np.zeros((2, 0))]),
        lambda kept: kept.update(scores=[np.array(["a", "b"])]),
    ],
)
def test_damaged_scores_are_refused_when_a_file_is_read(damage, tmp_path):
    model = pickle.loads(pickle.dumps(fitted("bootstrap")))
    damage(model._held_out)
    skforest.save(model, tmp_path / "model.npz")
    with pytest.raises(ValueError, match="is damaged"):
        skforest.load(tmp_path / "model.npz")


def test_scores_of_an_earlier_fit_are_dropped():
    given, y = X[:100], Y[:100]
    model = ManifoldForestRegressor(**BAGGED, warm_start=True).fit(given, y)
    before = model.predict_interval(X[TEST])
    more = model.set_params(n_estimators=40).fit(given, y).predict_interval(X[TEST])
    assert not np.array_equal(more, before)
    at_once = ManifoldForestRegressor(**BAGGED | {"n_estimators": 40}).fit(given, y)
    np.testing.assert_array_equal(at_once.predict_interval(X[TEST]), more)
    model.set_params(oob_score=False, warm_start=False).fit(given, y)
    with pytest.raises(ValueError, match="oob_score=True"):
        model.predict_interval(X[TEST])


@pytest.mark.filterwarnings("ignore:Warm-start fitting without increasing")
def test_another_prior_drops_the_scores():
    given, label = LABELS[0][:100], LABELS[1][:100]
    model = ManifoldForestClassifier(**BAGGED, warm_start=True).fit(given, label)
    model.predict_set(given)
    model.set_params(prior=[0.1, 0.1, 0.8]).fit(given, label)
    with pytest.raises(ValueError, match="predict_set needs"):
        model.predict_set(given)


def test_bags_that_are_added_have_scores_of_their_own():
    model = quick_boosting(ObliqueBoostingRegressor, n_bags=2, n_estimators=10, warm_start=True)
    model.fit(X[:90], Y[:90])
    assert model._held_out["n_rows"] == 90
    model.set_params(n_bags=3).fit(X[:90], Y[:90])
    assert model._held_out["n_rows"] == 30  # those of the third bag
    model.set_params(n_estimators=12, n_bags=3)
    assert coverage(model.predict_interval(X[TEST]), Y[TEST]) > 0.6


def test_streams_drop_the_scores():
    model = quick_hinge(RandomHingeForestRegressor, bootstrap=True, oob_score=True)
    model.fit(X[:100], Y[:100]).predict_interval(X[:2])
    model.partial_fit(X[:100], Y[:100])
    with pytest.raises(ValueError, match="predict_interval needs"):
        model.predict_interval(X[:2])


def test_refinement_predicts_held_out_rows_again_or_drops_them():
    model = ManifoldForestRegressor(**BAGGED).fit(X[:150], Y[:150])
    refined = skforest.refine(model, X[:150], Y[:150], n_sweeps=1, random_state=0)
    interval = refined.predict_interval(X[TEST])
    assert coverage(interval, Y[TEST]) > 0.8
    assert not np.array_equal(interval, model.predict_interval(X[TEST]))
    other = skforest.refine(model, X[150:300], Y[150:300], n_sweeps=1, random_state=0)
    with pytest.raises(ValueError, match="predict_interval needs"):
        other.predict_interval(X[TEST])


# ----------------------------------------------------------------- held-out predictions of a blend


@pytest.mark.parametrize("is_class", [False, True])
def test_held_out_predictions_of_a_blend_are_those_of_cross_validation(is_class):
    given = np.concatenate([X[:90], X[:1]])  # the last row is a copy of the first
    y = np.concatenate([Y[:90], Y[:1]])
    weight = np.ones(91)
    weight[5] = 0
    cv, options = KFold(3), {"oob_score": True, "random_state": 0}
    if is_class:
        label = np.array(["no", "yes"])[(y > 1).astype(int)]
        model, kept = LogisticRegression(), "oob_decision_function_"
        blend = BlendedForestClassifier([model], cv=cv, calibrate=False, **options)
        expected = cross_val_predict(model, given, label, cv=cv, method="predict_proba")
        blend.fit(given, label)
        assert blend.oob_score_ == pytest.approx(
            np.mean((expected[:, 1] > 0.5) == (y > 1)), abs=0.02
        )
    else:
        model, kept = LinearRegression(), "oob_prediction_"
        blend = BlendedForestRegressor([model], cv=cv, **options)
        expected = cross_val_predict(model, given, y, cv=cv)
        blend.fit(given, y)
        assert blend.oob_score_ == pytest.approx(blend.score_)
    found = getattr(blend, kept)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found[1:-1], expected[1:-1])
    np.testing.assert_array_equal(found[0], found[-1])
    assert not hasattr(skforest.slim(blend), kept)
    assert not hasattr(
        clone(blend).set_params(oob_score=False).fit(given, blend_y(blend, y)), kept
    )
    of_weights = getattr(blend.fit(given, blend_y(blend, y), sample_weight=weight), kept)
    assert np.isnan(of_weights[5]).all() and np.isnan(of_weights).sum() == of_weights[5].size


def blend_y(blend, y):
    return y if not is_classifier(blend) else np.array(["no", "yes"])[(y > 1).astype(int)]


def test_held_out_predictions_of_a_blend_have_its_prior():
    given, label = LABELS[0][:90], LABELS[1][:90]
    blend = BlendedForestClassifier([ManifoldForestClassifier(8)], oob_score=True, random_state=0)
    plain, other = blend.fit(given, label), clone(blend).set_params(prior=[0.1, 0.1, 0.8])
    other.fit(given, label)
    expected = plain.oob_decision_function_ * [0.1, 0.1, 0.8] / np.bincount(label)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(other.oob_decision_function_, expected)
    of_true = np.sort(expected[np.arange(90), label])
    np.testing.assert_allclose(-other._held_out["scores"][0][0], of_true)


def test_rows_that_no_member_leaves_out_have_no_held_out_prediction():
    blend = BlendedForestRegressor(
        [ManifoldForestRegressor(6)], cv=TimeSeriesSplit(3), oob_score=True, random_state=0
    )
    blend.fit(X[:80], Y[:80])
    missing = np.isnan(blend.oob_prediction_)
    assert missing[:20].all() and not missing[20:].any()
    assert blend._held_out["n_rows"] == 60


# ---------------------------------------------------------------------- what makes a row uncertain


def test_shapley_values_of_a_width_are_differences():
    model = quick_boosting(
        ObliqueBoostingRegressor, loss="quantile", quantile=[0.05, 0.95], n_estimators=10, n_bags=1
    ).fit(X[TRAIN], Y[TRAIN])
    found = skforest.shapley_values(model, X[:4], X[:20])
    width, base = (np.diff(part)[..., 0] for part in (found.values, found.base_values))
    low, high = model.predict(X[:4]).T
    np.testing.assert_allclose(width.sum(axis=1) + base, high - low, atol=1e-6)
    assert np.abs(width).mean(axis=0).argmax() == 0  # the noise depends on the first column
