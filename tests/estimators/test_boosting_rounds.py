"""Training of oblique boosting in rounds: early stopping, stages, groups, fitted models."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from makers import BOTH_BOOSTING as BOTH
from makers import assert_same_trees, bag_of
from makers import boosting_rows as rows_of
from makers import quick_boosting as quick
from scipy.special import expit, softmax
from sklearn import config_context
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupKFold, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import skforest
from skforest import ObliqueBoostingClassifier, ObliqueBoostingRegressor
from skforest.training import boosting_rounds as training_module
from skforest.training.boosting import BoostingMethod
from skforest.training.boosting_rounds import BoostingTraining
from skforest.training.early_stopping import balanced_folds, draw_held_out
from skforest.training.threads import Control

# ---------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("subsample", [0.5, 1.0])
@pytest.mark.parametrize("task", ["regression", "outputs", "poisson", "binary", "classes", "many"])
def test_raw_predictions_of_training_are_those_of_the_forest(task, subsample, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    y = {
        "regression": X[:, 0] + X[:, 1],
        "outputs": np.column_stack([X[:, 0] - X[:, 1], 1e6 * X[:, 2]]),
        "poisson": rng.poisson(np.exp(X[:, 0])),
        "binary": X[:, 0] > X[:, 1],
        "classes": np.digitize(X[:, 0] + X[:, 1], [-1, 0, 1]),
        "many": np.digitize(X[:, 0] + X[:, 1], [-2, -1, -0.5, 0, 0.5, 1, 2]),
    }[task]
    is_class = task in ("binary", "classes", "many")
    cls = ObliqueBoostingClassifier if is_class else ObliqueBoostingRegressor
    seen = []
    packed = BoostingMethod.packed

    def recorded(self, training, sample):
        forest = packed(self, training, sample)
        seen.append((training, sample, forest.response_mapped(sample.X)))
        return forest

    monkeypatch.setattr(BoostingMethod, "packed", recorded)
    options = {"loss": "poisson"} if task == "poisson" else {}
    quick(cls, n_bags=1, early_stopping=False, subsample=subsample, **options).fit(X, y)
    ((training, data, found),) = seen
    raw, units = training.raw, data.units
    expected = {
        "regression": lambda: data.baseline + raw * units.response,
        "outputs": lambda: data.baseline + raw * units.response,
        "poisson": lambda: np.exp(units.baseline + raw),
        "binary": lambda: np.hstack([expit(-raw), expit(raw)]),
    }.get(task, lambda: softmax(raw, axis=1))()
    scale = 1 if is_class else np.abs(expected).max(axis=0)
    np.testing.assert_allclose(found / scale, expected / scale, atol=2e-6)


@pytest.mark.thin(2)
@BOTH
@pytest.mark.parametrize("n_bags, feature_shape", [(1, None), (3, None), (3, (3, 2))])
def test_weights_equal_copies_and_order_and_threads_have_no_influence(
    cls, n_bags, feature_shape, monkeypatch
):
    X, y = rows_of(cls, 80)
    k = np.random.default_rng(0).integers(0, 4, len(X))
    model = quick(cls, n_bags=n_bags, feature_shape=feature_shape).fit(X, y, sample_weight=k)
    order = np.random.default_rng(1).permutation(k.sum())
    assert_same_trees(
        model, clone(model).fit(np.repeat(X, k, axis=0)[order], np.repeat(y, k)[order])
    )
    assert_same_trees(model, clone(model).fit(X[k > 0], y[k > 0], k[k > 0]))
    assert_same_trees(model, clone(model).set_params(n_jobs=2).fit(X, y, k))
    assert_same_trees(model, clone(model).fit(np.tile(X, (2, 1)), np.tile(y, 2), np.tile(k, 2)))
    scaled = clone(model).fit(X, y, k * 2.0**-900)
    np.testing.assert_array_equal(scaled.forest_.response(X), model.forest_.response(X))
    # Threads inside a bag.
    monkeypatch.setattr(training_module, "MIN_THREADED", 0)
    threaded = clone(model).set_params(n_jobs=2 * n_bags)
    assert_same_trees(model, clone(threaded).fit(X, y, k))
    # Draws of many rows, and blocks of derivatives.
    monkeypatch.setattr(training_module, "SHUFFLED_ROWS", 8)
    monkeypatch.setattr(training_module, "DERIVED_ROWS", 8)
    many = clone(model).fit(X, y, k)
    assert_same_trees(many, clone(threaded).fit(np.repeat(X, k, axis=0), np.repeat(y, k)))
    np.testing.assert_allclose(many.loss_curve_[0][0], model.loss_curve_[0][0])


def test_features_are_drawn_by_the_gains_of_their_splits(monkeypatch):
    """The gain of a mixture is divided among its features."""
    seen = []
    packed = BoostingMethod.packed

    def recorded(self, training, sample):
        seen.append(training)
        return packed(self, training, sample)

    monkeypatch.setattr(BoostingMethod, "packed", recorded)
    X, y = rows_of(ObliqueBoostingRegressor)
    quick(ObliqueBoostingRegressor, n_bags=1, early_stopping=False, linear_start=None).fit(X, y)
    (training,) = seen
    expected, n_mixtures = np.zeros(6), 0
    for tree in training.trees:
        for code, gain in zip(tree["direction"], tree["gain"].astype(float)):
            used = [code]
            if code >= 6:
                used = tree["sparse_feature"][slice(*tree["sparse_start"][code - 6 : code - 4])]
                n_mixtures += 1
            expected[used] += gain / len(used)
    assert n_mixtures > 20
    np.testing.assert_allclose(training.importance, expected, rtol=1e-6)
    chance = training._feature_chances()
    np.testing.assert_allclose(chance, 1 / 6 + expected / expected.sum(), rtol=1e-6)


def test_trees_of_many_features_search_some_that_are_drawn_by_their_gains(monkeypatch):
    """Of 300 features, 165: those with gains in nearly all trees, others in about half."""
    monkeypatch.setattr(training_module, "SEARCHED", 128)
    searched, start = [], BoostingTraining._searched

    def recorded(self, chance, seed):
        searched.append(start(self, chance, seed).astype(bool))
        gain = self.importance / max(self.importance.sum(), 1e-300)
        np.testing.assert_allclose(chance, 1 / len(chance) + gain)
        return searched[-1].astype(np.uint8)

    monkeypatch.setattr(BoostingTraining, "_searched", recorded)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 300))
    y = X[:, :3].sum(axis=1)
    given = {"n_directions": 0, "n_bags": 1, "early_stopping": False, "linear_start": None}
    model = ObliqueBoostingRegressor(60, random_state=0, **given).fit(X, y)
    assert {one.sum() for one in searched} == {128 + 300 // 8}
    share = np.mean(searched, axis=0)
    assert (share[:3] > 0.8).all() and 0.45 < share[3:].mean() < 0.6
    assert (share > 0).all() and (share[3:] < 0.9).mean() > 0.95
    for tree, own in zip(model.forest_, searched):
        assert own[tree.direction].all()
    for n_features, n_left_out in ((146, 0), (147, 1)):  # 128 + 146 // 8 = 128 + 147 // 8 = 146
        searched.clear()
        clone(model).fit(X[:, :n_features], y)
        assert {n_features - one.sum() for one in searched} == {n_left_out}


@pytest.mark.parametrize("early_stopping", [False, True])
def test_more_rounds_of_many_features_are_those_of_one_fit(early_stopping, monkeypatch):
    """The features of a tree are drawn by the gains of the trees before it, known ones, too."""
    monkeypatch.setattr(training_module, "SEARCHED", 8)
    X = np.random.default_rng(0).normal(size=(200, 40))
    given = {"n_bags": 2, "early_stopping": early_stopping, "random_state": 0}
    whole = ObliqueBoostingRegressor(20, **given).fit(X, X[:, :3].sum(axis=1))
    model = ObliqueBoostingRegressor(8, warm_start=True, **given).fit(X, X[:, :3].sum(axis=1))
    model.set_params(n_estimators=20).fit(X, X[:, :3].sum(axis=1))
    assert_same_trees(model, whole)


def test_trees_of_many_features_obey_constraints(monkeypatch):
    """Each tree searches 13 of 40 features."""
    monkeypatch.setattr(training_module, "SEARCHED", 8)
    X = np.random.default_rng(0).normal(size=(300, 40))
    y = X[:, 0] * X[:, 1] + X[:, 2] * (1 + 0.3 * X[:, 0])
    signs = np.zeros(40, dtype=int)
    signs[2] = 1
    given = {"interaction_cst": [{j, j + 1} for j in range(0, 40, 2)], "monotonic_cst": signs}
    model = ObliqueBoostingRegressor(60, n_bags=1, linear_start=None, random_state=0, **given)
    assert model.fit(X, y).score(X, y) > 0.5
    grid = np.linspace(-2, 2, 9)
    rows = np.repeat(X[:20], 81, axis=0)

    def response(j, k):
        """Predictions where columns j and k have all pairs of values: (20, 9, 9)."""
        rows[:, j], rows[:, k] = np.tile(np.repeat(grid, 9), 20), np.tile(grid, 180)
        return model.predict(rows).reshape(20, 9, 9)

    steps = np.diff(response(2, 0), axis=1)
    assert steps.min() >= -1e-9 and steps.max() > 0.1
    assert np.ptp(steps, axis=2).max() < 1e-9  # columns 0 and 2 are in no group together
    assert np.ptp(np.diff(response(0, 1), axis=1), axis=2).max() > 0.1


def test_folds_have_about_the_same_targets():
    """Of as many rows of neighbouring targets as there are folds, each fold has one."""
    y = np.random.default_rng(0).permutation(103).astype(float)
    fold = balanced_folds(y, 5, 3)
    in_order = fold[np.argsort(y)]
    assert all(len(set(in_order[i : i + 5])) == len(in_order[i : i + 5]) for i in range(0, 103, 5))
    assert len({tuple(in_order[i : i + 5]) for i in range(0, 100, 5)}) > 5  # at random


@pytest.mark.parametrize("fraction, n", [(1e-9, 1), (0.04, 1), (0.2, 4), (0.5, 10), (0.999, 19)])
def test_held_out_rows_are_at_least_one_and_not_all(fraction, n):
    weight = np.random.default_rng(0).uniform(0.5, 2, 20)
    held_out = draw_held_out(weight, fraction, 0)
    assert np.count_nonzero(held_out) == n
    np.testing.assert_array_equal(held_out[held_out > 0], weight[held_out > 0])
    assert not draw_held_out(weight[:1], fraction, 0).any()


def test_auto_is_resolved_from_the_number_of_distinct_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    model = ObliqueBoostingRegressor(2, random_state=0)
    assert model.fit(X, y).early_stopping_ and model.n_bags_ == 5
    assert not model.fit(np.tile(X[:19], (2, 1)), np.tile(y[:19], 2)).early_stopping_
    X, y = rng.normal(size=(20_000, 2)), rng.normal(size=20_000)
    assert model.fit(X, y).n_bags_ == 1 and model.learning_rate_ == 0.1


# ------------------------------------------------------------------------- rows for early stopping


@pytest.mark.thin(2)
@BOTH
@pytest.mark.parametrize("n_bags", [1, 2])
def test_early_stopping_on_given_rows(cls, n_bags):
    X, y = rows_of(cls, 260)
    given = {"X_val": X[160:], "y_val": y[160:]}
    model = quick(cls, n_bags=n_bags, n_estimators=300, n_iter_no_change=3, learning_rate=0.5)
    model.fit(X[:160], y[:160], **given)
    for scores, n_iter in zip(model.validation_scores_, model.n_iter_):
        best = int(scores.argmax())
        assert n_iter == (min(int(1.5 * best), 300) if n_bags > 1 else best) and n_iter > 0
    if cls is ObliqueBoostingClassifier and n_bags == 1:
        found = -log_loss(y[160:], model.predict_proba(X[160:]))
        assert found == pytest.approx(model.validation_scores_[0].max(), rel=1e-5)
    # All rows of X train, and none of X_val: so many rounds without early stopping are the same.
    plain = clone(model).set_params(early_stopping=False, n_bags=1, n_estimators=model.n_iter_[0])
    linear = {"linear_leaves": model.linear_leaves_, "linear_start": model.linear_start_}
    plain.set_params(**linear).fit(X[:160], y[:160])
    first = bag_of(model.forest_, 0)
    np.testing.assert_array_equal(first.response(X), plain.forest_.response(X))
    # Copies of rows are weights, and the order has no influence.
    k = np.random.default_rng(0).integers(1, 4, 100)
    weighted = clone(model).fit(X[:160], y[:160], **given, sample_weight_val=k)
    order = np.random.default_rng(1).permutation(k.sum())
    copies = [np.repeat(part, k, axis=0)[order] for part in (X[160:], y[160:])]
    again = clone(model).fit(X[:160], y[:160], X_val=copies[0], y_val=copies[1])
    assert_same_trees(weighted, again)
    kept = vars(model).keys() - {"_held_out"}  # scores of X_val, but no rows or arguments
    assert kept == vars(plain).keys()


class Rounds(training_module.BoostingTraining):
    """Rounds with given validation losses; nothing is trained."""

    def __init__(self, given, **settings):
        own = {"n_rounds": len(given) - 1, "kept": 1.0, "n_iter_no_change": 3, "warns": False}
        self.settings, self.given = SimpleNamespace(**own | settings), given
        self.weight, self.raw, self.train_rows = np.array([1.0, 3.0]), np.zeros((2, 1)), [0, 1]
        self.held_out_rows, self.control, self.is_late = np.arange(1), Control(), False
        self.stop, self.known = self.control.stop, training_module.TrainedRounds()
        self.save = None
        self.trees, self.values, self.losses = [], [], []

    def _validation_loss(self):
        return self.given[len(self.trees)]

    def _training_loss(self, raw):
        return 2.0

    def _add_round(self, number):
        self.trees.append(number)
        self.values.append(number)
        self.losses.append(8.0)


def rounds(given, **settings):
    """Numbers of rounds that were trained and that are kept, and what was reported."""
    seen, training = [], Rounds(given, **settings)
    training.control.report = lambda *args, **further: seen.append((*args, further))
    training._run()
    n_trained = len(training.losses) - 1
    # Means of all rounds and of the last one.
    assert training.losses == [2.0] * n_trained + [0.5]
    assert [n for n, *_, further in seen if "loss" in further] == [*range(n_trained + 1)][1:]
    return n_trained, len(training.trees), [one for one in seen if "best" in one[-1]]


def test_rounds_go_on_as_long_as_a_mean_of_bags_may_improve():
    falling = [20.0 - n for n in range(11)] + [10.0] * 90
    assert rounds(falling) == (13, 10, [(13, 13, {"best": 10})])
    assert rounds(falling, kept=1.5) == (15, 15, [(15, 15, {"best": 10})])
    assert rounds(falling, kept=1.5, n_iter_no_change=7) == (17, 15, [(17, 17, {"best": 10})])
    assert rounds(falling[:14]) == (13, 10, [])
    # Outliers add a constant to all losses.
    outliers = [1e9 + 50 * 0.8**n for n in range(30)]
    assert rounds(outliers) == (29, 29, [])
    still = [1.0, 0.5] + [0.5 - 1e-9 * n for n in range(30)]
    assert rounds(still) == (4, 1, [(4, 4, {"best": 1})])


def test_weights_of_given_rows_change_no_tree():
    """They only decide how many trees are kept."""
    X, y = rows_of(ObliqueBoostingRegressor, 200)
    model = quick(ObliqueBoostingRegressor, n_bags=1, n_iter_no_change=100, linear_leaves=False)
    given = {"X_val": X[60:], "y_val": y[60:]}
    plain, weighted = (
        clone(model).fit(X[:60], y[:60], sample_weight_val=weight, **given).forest_
        for weight in (None, np.random.default_rng(0).integers(50, 99, 140))
    )
    n = min(len(plain), len(weighted))
    assert n > 3
    np.testing.assert_array_equal(plain[:n].response(X), weighted[:n].response(X))


def test_given_rows_may_be_tables_with_missing_values_and_categories():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    colour = rng.choice(["blue", "green", "red"], size=400)
    frame = pandas.DataFrame({"x": rng.normal(size=400), "colour": pandas.Categorical(colour)})
    y = frame["x"] + 2 * (colour == "green")
    frame.loc[::7, "x"] = np.nan
    model = quick(ObliqueBoostingRegressor, n_estimators=25, learning_rate=0.4)
    model.fit(frame[:250], y[:250], X_val=frame[250:], y_val=y[250:])
    assert model.score(frame[250:], y[250:]) > 0.7
    with pytest.raises(ValueError, match="X_val"):
        model.fit(frame[:250], y[:250], X_val=frame[250:][["x"]], y_val=y[250:])
    labels = np.where(y > 0.5, "high", "low")
    both = np.stack([labels, colour], axis=1)
    for target in (labels, both):
        other = quick(ObliqueBoostingClassifier)
        other.fit(frame[:250], target[:250], X_val=frame[250:], y_val=target[250:])
        assert max(other.n_iter_) > 0


@pytest.mark.parametrize(
    "given, message",
    [
        ({"X_val": np.ones((5, 6))}, "y_val=None"),
        ({"y_val": np.ones(5)}, "X_val=None"),
        ({"sample_weight_val": np.ones(5)}, "X_val=None"),
        ({"X_val": np.ones((5, 4)), "y_val": np.ones(5)}, "X_val, y_val: X has 4 features"),
        ({"X_val": np.ones((5, 6)), "y_val": np.ones(4)}, "X_val, y_val.*inconsistent"),
        ({"X_val": np.ones((5, 6)), "y_val": np.ones((5, 2))}, "y_val has 2 outputs"),
        (
            {"X_val": np.full((5, 6), np.inf), "y_val": np.ones(5)},
            "X_val, y_val: Input X contains infinity",
        ),
        (
            {"X_val": np.ones((5, 6)), "y_val": np.ones(5), "sample_weight_val": -np.ones(5)},
            "^sample_weight_val has the negative value",
        ),
    ],
)
def test_bad_rows_for_early_stopping(given, message):
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, **given)
    assert vars(model) == vars(clone(model))


@pytest.mark.parametrize("loss, value", [("poisson", -1.0), ("gamma", 0.0)])
def test_targets_for_early_stopping_are_checked_as_those_of_training(loss, value):
    X, y = rows_of(ObliqueBoostingRegressor, 60)
    y = np.exp(y / y.std())
    given = {"X_val": X[40:], "y_val": np.append(y[41:], value)}
    with pytest.raises(ValueError, match=f"y_val.*{loss}.* y"):
        quick(ObliqueBoostingRegressor, loss=loss).fit(X[:40], y[:40], **given)


def test_early_stopping_on_given_rows_is_switched_on_and_reads_labels():
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor)
    good = {"X_val": X, "y_val": y}
    with pytest.raises(ValueError, match="early_stopping=False cannot be used with X_val"):
        model.set_params(early_stopping=False).fit(X, y, **good)
    assert model.set_params(early_stopping=np.True_).fit(X, y, **good).early_stopping_
    with pytest.raises(ValueError, match="y_val has labels .*7"):
        quick(ObliqueBoostingClassifier).fit(X, y > 10, X_val=X, y_val=np.full(len(y), 7))


def test_rows_for_early_stopping_are_routed_as_metadata():
    X, y = rows_of(ObliqueBoostingRegressor)
    with config_context(enable_metadata_routing=True):
        model = quick(ObliqueBoostingRegressor).set_fit_request(X_val=True, y_val=True)
        pipeline = Pipeline([("scale", StandardScaler()), ("model", model)])
        pipeline.set_params(transform_input=["X_val"])
        pipeline.fit(X[:100], y[:100], X_val=X[100:], y_val=y[100:])
    scale = StandardScaler().fit(X[:100])
    plain = clone(model).fit(
        scale.transform(X[:100]), y[:100], X_val=scale.transform(X[100:]), y_val=y[100:]
    )
    assert_same_trees(pipeline[-1], plain)


# -------------------------------------------------------------------------------- what models have


@pytest.mark.thin(2)
@BOTH
@pytest.mark.parametrize("feature_shape", [None, (2, 3)])
def test_fitted_models_in_files_and_plots(cls, feature_shape, tmp_path):
    X, y = rows_of(cls)
    model = quick(cls, feature_shape=feature_shape).fit(X, y)
    for layout in ("file", "folder"):
        skforest.save(model, tmp_path / layout, layout=layout)
        again = skforest.load(tmp_path / layout)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert again.n_iter_ == model.n_iter_ and again.get_params() == model.get_params()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    importances = model.feature_importances_
    assert importances.sum() == pytest.approx(1) and importances.min() >= 0
    leaves, (path, starts) = model.apply(X), model.decision_path(X)
    assert leaves.shape == (150, len(model.forest_))
    assert all(path[7, starts[t] + leaves[7, t]] == 1 for t in range(len(model.forest_)))
    pytest.importorskip("matplotlib")
    assert skforest.plot_tree(model) is not None


@BOTH
def test_data_frames_with_categories_and_missing_values(cls):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    colour = rng.choice(["blue", "green", "red"], size=300)
    frame = pandas.DataFrame({"x": rng.normal(size=300), "colour": pandas.Categorical(colour)})
    signal = frame["x"] + 2 * (colour == "green")
    frame.loc[::7, "x"] = np.nan
    y = signal > 0.5 if cls is ObliqueBoostingClassifier else signal
    model = quick(cls, n_estimators=40).fit(frame[:200], y[:200])
    assert model.score(frame[200:], y[200:]) > 0.7
    assert model.feature_importances_.shape == (2,)


def test_several_outputs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    Y = np.column_stack([X[:, 0] + X[:, 1], 1e8 * X[:, 2], np.full(200, 7.0)])
    model = quick(ObliqueBoostingRegressor, n_estimators=60).fit(X, Y)
    predicted = model.predict(X)
    assert predicted.shape == (200, 3) and (predicted[:, 2] == 7).all()
    assert all(np.corrcoef(predicted[:, k], Y[:, k])[0, 1] > 0.95 for k in (0, 1))
    labels = np.column_stack([X[:, 0] > 0, np.digitize(X[:, 1], [-0.5, 0.5])])
    model = quick(ObliqueBoostingClassifier, n_estimators=40).fit(X, labels)
    assert [p.shape for p in model.predict_proba(X)] == [(200, 2), (200, 3)]
    assert (model.predict(X) == labels).mean() > 0.9


def test_class_weights_are_weights():
    X, y = rows_of(ObliqueBoostingClassifier)
    model = quick(ObliqueBoostingClassifier, class_weight={0: 3}).fit(X, y)
    weighted = quick(ObliqueBoostingClassifier).fit(X, y, np.where(y == 0, 3, 1))
    # Means of the inputs, for missing values, are those without class weights.
    weighted.forest_.fill = model.forest_.fill
    assert_same_trees(model, weighted)


# ------------------------------------------------------------------------------------------ stages


@pytest.mark.thin(2)
@pytest.mark.parametrize("n_bags", [3, 1])
@pytest.mark.parametrize(
    "task", ["regression", "poisson", "outputs", "binary", "labels", "nothing"]
)
def test_stages_end_with_the_prediction(task, n_bags):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = {
        "regression": X[:, 0],
        "poisson": rng.poisson(np.exp(X[:, 0])),
        "outputs": X[:, :2],
        "binary": X[:, 0] > 0,
        "labels": X[:, :2] > 0,
        "nothing": np.ones(200),
    }[task]
    is_class = task in ("binary", "labels")
    cls = ObliqueBoostingClassifier if is_class else ObliqueBoostingRegressor
    options = {"loss": "poisson"} if task == "poisson" else {}
    own = {"n_estimators": 70, "n_iter_no_change": 5, "n_bags": n_bags, "learning_rate": 0.4}
    model = quick(cls, **own, **options).fit(X, y)
    stages = list(model.staged_predict(X))
    assert len(stages) == max(1, max(model.n_iter_))
    np.testing.assert_array_equal(stages[-1], model.predict(X))
    if is_class:
        proba = list(model.staged_predict_proba(X))
        assert len(proba) == len(stages)
        np.testing.assert_array_equal(np.array(proba[-1]), np.array(model.predict_proba(X)))
    elif task == "regression":
        # Stage 3 has the first three trees of every bag.
        bags = [bag_of(model.forest_, bag) for bag in range(n_bags)]
        expected = np.mean([bag[:3].response(X)[:, 0] for bag in bags], axis=0)
        np.testing.assert_allclose(stages[2], expected, rtol=1e-12)
        # Behind the end of the shorter bag, it keeps its response.
        expected = np.mean([bag[:-1].response(X)[:, 0] if len(bag) == len(stages) else
                            bag.response(X)[:, 0] for bag in bags], axis=0)  # fmt: skip
        np.testing.assert_allclose(stages[-2], expected, rtol=1e-12)
        errors = [np.mean((stage - y) ** 2) for stage in stages]
        assert errors[0] > 2 * errors[-1]


def test_decision_functions_are_log_odds():
    X, y = rows_of(ObliqueBoostingClassifier)
    model = quick(ObliqueBoostingClassifier).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), np.log(model.predict_proba(X)))
    model.fit(X, y == 1)
    proba = model.predict_proba(X)
    decision = model.decision_function(X)
    np.testing.assert_allclose(decision, np.log(proba[:, 1] / proba[:, 0]))
    np.testing.assert_array_equal(decision > 0, model.predict(X))
    model.fit(X, np.column_stack([y == 1, y == 2]))
    assert not hasattr(model, "decision_function")


# ------------------------------------------------------------------------------------------ groups


def grouped_rows(is_class):
    """Rows of a group are nearly equal, and their targets, random for each group, are equal."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 5)
    X = rng.standard_normal((40, 4))[groups] + 1e-3 * rng.standard_normal((200, 4))
    y = rng.permutation(np.arange(40) % 2)[groups] if is_class else rng.normal(size=40)[groups]
    return X, y, groups


@pytest.mark.thin(2)
@BOTH
@pytest.mark.parametrize("n_bags", [1, 3])
def test_groups_are_held_out_together(cls, n_bags):
    X, y, groups = grouped_rows(cls is ObliqueBoostingClassifier)
    linear = {"linear_leaves": False, "linear_start": None}
    model = quick(cls, n_bags=n_bags, max_depth=4, **linear)
    leaking = [scores.max() - scores[0] for scores in model.fit(X, y).validation_scores_]
    honest = [
        scores.max() - scores[0] for scores in model.fit(X, y, None, groups).validation_scores_
    ]
    assert max(honest) < 0.5 * min(leaking)
    named = model.fit(X, y, groups=groups.astype(str)).forest_
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = model.fit(X[order], y[order], groups=groups[order].astype(str)).forest_
    np.testing.assert_array_equal(named.threshold, shuffled.threshold)
    assert vars(model).keys() == vars(clone(model).fit(X, y)).keys()
    model = clone(model).set_params(warm_start=True).fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="groups=None, but warm_start=True continues"):
        model.set_params(n_estimators=30).fit(X, y)


@pytest.mark.parametrize(
    "groups, message",
    [
        (np.zeros(200), "groups must have at least 2 groups"),
        (np.arange(199), r"groups.shape == \(199,\), expected \(200,\)"),
        ([np.nan] * 200, "groups contains NaN or None"),
    ],
)
def test_bad_groups(groups, message):
    X, y, _ = grouped_rows(True)
    with pytest.raises(ValueError, match=message):
        quick(ObliqueBoostingClassifier).fit(X, y, groups=groups)


def test_groups_are_routed():
    X, y, groups = grouped_rows(True)
    with config_context(enable_metadata_routing=True):
        model = quick(ObliqueBoostingClassifier).set_fit_request(groups=True)
        options = {"params": {"groups": groups}, "return_estimator": True}
        found = cross_validate(model, X, y, cv=GroupKFold(2), **options)["estimator"][0]
    first = next(GroupKFold(2).split(X, y, groups))[0]
    assert_same_trees(found, model.fit(X[first], y[first], groups=groups[first]))


@pytest.mark.parametrize("n, min_samples_leaf, n_directions, n_bags", [
    (2, 1, 64, 5), (19, 1, 64, 5), (20, 1, 64, 5), (99, 1, 64, 5), (100, 2, 64, 5),
    (749, 14, 64, 5), (750, 15, 64, 5), (9_999, 15, 64, 5), (10_000, 15, 32, 5),
    (19_999, 15, 32, 5), (20_000, 15, 32, 1), (50_000, 15, 25, 1), (90_000, 15, 16, 1),
])  # fmt: skip
def test_auto_values_of_few_and_many_rows(n, min_samples_leaf, n_directions, n_bags):
    model, X = ObliqueBoostingRegressor(random_state=0), np.arange(float(n))[:, None] / 7
    request = model._request()
    settings = model._without_trials(model._read_training_set(X, X[:, 0] % 1, request), request)
    found = settings.min_samples_leaf, settings.n_directions, settings.n_bags
    assert found == (min_samples_leaf, n_directions, n_bags)
    assert settings.early_stopping == (n >= 20) and settings.learning_rate == 0.1
