"""Blends: held-out responses, weights, temperature, limits of time, members of other packages."""

import json
import re
import time
import zipfile

import numpy as np
import pytest
import sklearn
from makers import response
from skforest._kernels.base.rows import tree_seed
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification, make_friedman1
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Perceptron, Ridge
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    TimeSeriesSplit,
    cross_validate,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.class_weight import compute_sample_weight

import skforest
from skforest import (
    BlendedForestClassifier,
    BlendedForestRegressor,
    CO2ForestClassifier,
    CO2ForestRegressor,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)
from skforest.blend.leaderboard import constant_response
from skforest.blend.members import OtherMember, OwnMember, _mean_by_row, criterion_of, response_of
from skforest.blend.schedule import train_in_time
from skforest.table.training_set import TrainingSet
from skforest.training.blending import (
    HeldOutLogLoss,
    HeldOutR2,
    Scorer,
    blend_weights,
    find_temperature,
    flattening_temperature,
    greedy_weights,
    sharpened,
)
from skforest.training.method import Sampling, member_of, n_members
from skforest.training.threads import NotInTime, TimeLimit

CO2 = {"objective": "co2", "holdout": 0.0, "max_features": "sqrt", "bootstrap": False}
HINGE = {"n_bags": 5, "max_iter": 200}


def classifier(**params):
    members = [ManifoldForestClassifier(10), ("co2", CO2ForestClassifier(10, **CO2))]
    return BlendedForestClassifier(**{"members": members, "random_state": 0} | params)


def regressor(**params):
    members = [ManifoldForestRegressor(10), ("co2", CO2ForestRegressor(10, **CO2))]
    return BlendedForestRegressor(**{"members": members, "random_state": 0} | params)


def classes(n=120, n_classes=3):
    return make_classification(
        n, 6, n_informative=5, n_redundant=0, n_classes=n_classes, random_state=0
    )


def targets(n=120):
    return make_friedman1(n, random_state=0)


each_kind = pytest.mark.parametrize(
    "blend, data", [(classifier(), classes()), (regressor(), targets())], ids=["class", "target"]
)


# -------------------------------------------------------------------------------------- selection


def test_greedy_weights_by_hand():
    y = np.array([[0.0], [0.0], [1.0], [1.0]])
    right = y + [[0.25], [-0.25], [0.25], [-0.25]]
    opposite = y - [[0.25], [-0.25], [0.25], [-0.25]]
    wrong = 1 - y
    criterion = HeldOutR2(y, np.ones(4))
    residuals = [criterion.reduce(response) for response in (wrong, right, opposite)]
    assert greedy_weights(criterion, residuals, 40).tolist() == [0, 0.5, 0.5]
    farther = y + 3 * (right - y)
    residuals = [criterion.reduce(response) for response in (farther, right)]
    assert greedy_weights(criterion, residuals, 40).tolist() == [0, 1]
    weights, score = blend_weights(criterion, [farther, right], 40, seed=0)
    assert weights.tolist() == [0, 1]
    assert score == pytest.approx(r2_score(y, right))


def test_weights_are_means_over_bootstrap_samples():
    rng = np.random.default_rng(0)
    codes, proba = rng.integers(0, 2, (60, 1)), rng.dirichlet([1, 1], (3, 60))
    criterion = HeldOutLogLoss(codes, [2], rng.random(60) + 0.5)
    weights, score = blend_weights(criterion, proba, 10, seed=3)
    random, expected = np.random.RandomState(3), np.zeros(3)
    for _ in range(20):
        rows = random.randint(60, size=60)
        own = HeldOutLogLoss(codes[rows], [2], criterion.weight[rows])
        expected += greedy_weights(own, [own.reduce(part[rows]) for part in proba], 10) / 20
    expected[expected < 0.05] = 0
    np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-12)
    blended = np.einsum("m,mij->ij", weights, proba)
    assert score == pytest.approx(criterion.score(criterion.reduce(blended)))


def test_samples_of_rows_stay_within_the_budget():
    rng = np.random.default_rng(0)
    y = rng.random((50, 1))
    responses = [y + rng.normal(0, scale, y.shape) for scale in (0.2, 0.2, 0.4)]
    costs = [3.0, 4.0, 1.0]
    weights, _ = blend_weights(HeldOutR2(y, np.ones(50)), responses, 20, 0, costs, budget=7)
    assert np.dot(weights > 0, costs) <= 7
    weights, _ = blend_weights(HeldOutR2(y, np.ones(50)), responses, 20, 0)
    assert (weights > 0).all()


def test_greedy_weights_within_a_budget():
    y = np.array([[0.0], [1.0]])
    first, second, wrong = y + [[0.25], [-0.25]], y - [[0.25], [-0.25]], 1 - y
    criterion = HeldOutR2(y, np.ones(2))
    parts, costs = [first - y, second - y, wrong - y], [3.0, 4.0, 1.0]

    def chosen(budget):
        return greedy_weights(criterion, parts, 10, costs, budget).tolist()

    assert chosen(7) == [0.5, 0.5, 0]
    assert chosen(6) == [1, 0, 0]
    assert chosen(0.5) == [0, 0, 1]


def test_criteria_are_the_metrics():
    rng = np.random.default_rng(0)
    codes, weight = rng.integers(0, 3, (50, 1)), rng.random(50)
    proba = rng.dirichlet(np.ones(3), 50) * 0.9 + 0.1 / 3
    criterion = HeldOutLogLoss(codes, [3], weight)
    expected = -log_loss(codes[:, 0], proba, sample_weight=weight)
    assert criterion.score(criterion.reduce(proba)) == pytest.approx(expected)
    y, predicted = rng.random((50, 2)), rng.random((50, 2))
    criterion = HeldOutR2(y, weight)
    expected = r2_score(y, predicted, sample_weight=weight)
    assert criterion.score(criterion.reduce(predicted)) == pytest.approx(expected)


def test_a_scorer_sees_whole_weights_as_copies():
    seen = []

    def scorer(response, X, y, **options):
        seen.append((response.tolist(), X.tolist(), y.tolist(), options))
        return 0.0

    X, y, response = np.array([3, 4]), np.array([5.0, 6.0]), np.array([7.0, 8.0])
    own = lambda X, response: response, lambda rows: X[rows], y
    for weight, n_samples in (([2.0, 1.0], 3), ([9.0, 1.0], 10)):
        Scorer(scorer, *own, np.array(weight), n_samples).score(response)
    for weight in ([0.5, 1.0], [9.0, 1.0]):
        Scorer(scorer, *own, np.array(weight), 2).score(response)
    assert seen[0] == ([7, 7, 8], [3, 3, 4], [5, 5, 6], {})
    assert seen[1] == ([7] * 9 + [8], [3] * 9 + [4], [5] * 9 + [6], {})
    for *rest, options in seen[2:]:
        assert rest == [[7, 8], [3, 4], [5, 6]] and list(options) == ["sample_weight"]


@pytest.mark.parametrize("is_frame", [False, True])
def test_a_scorer_of_costs_sees_the_rows(is_frame):
    """Also where rows repeat often, and with weights of classes."""
    rng = np.random.default_rng(0)
    columns = {"a": rng.integers(0, 2, 300), "cost": rng.integers(1, 4, 300)}
    X = np.stack(list(columns.values()), axis=1).astype(float)
    if is_frame:
        X = pytest.importorskip("pandas").DataFrame(X, columns=list(columns))
    y = (columns["a"] ^ (rng.random(300) < 0.2)).astype(int)
    seen = []

    def saved(model, X, y):
        cost = X["cost"] if hasattr(X, "columns") else X[:, 1]
        seen.append(len(y))
        return (cost * (model.predict(X) == y)).mean()

    members = ["manifold", ("dummy", DummyClassifier())]
    for class_weight in (None, "balanced"):
        blend = skforest.BlendedForestClassifier(
            members, scoring=saved, class_weight=class_weight, random_state=0
        )
        blend.fit(X, y)
        assert set(seen) == {300}
        assert blend.member_scores_["manifold"] == pytest.approx(1.6, abs=0.15)
    with pytest.raises(TypeError, match="scoring must take sample_weight"):
        blend.fit(X, y, sample_weight=rng.random(300))
    blend.set_params(scoring=lambda model, X, y: model.predict(X[:5]).sum())
    with pytest.raises(ValueError, match="scoring must predict all rows of its X"):
        blend.fit(X, y)


@pytest.mark.parametrize(
    "members, message",
    [
        ([("cv", DummyClassifier())], "'cv', which is that of a parameter"),
        ([("a__b", DummyClassifier())], "'a__b', which must not contain '__'"),
    ],
)
def test_names_of_members_that_cannot_be_set(members, message):
    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    with pytest.raises(ValueError, match=message):
        skforest.BlendedForestClassifier(members).fit(X, y)


def test_members_and_their_parameters_are_set_together():
    blend = skforest.BlendedForestClassifier()
    blend.set_params(members=[("q", LogisticRegression())], q__C=0.5)
    assert blend.members[0][1].C == 0.5 and blend.get_params()["q__C"] == 0.5


def test_a_time_out_of_a_member_is_an_error_of_its_own():
    class Late(DummyClassifier):
        def fit(self, X, y, sample_weight=None):
            raise TimeoutError("no answer")

    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    for members in ([Late()], [Late(), "manifold"]):
        with pytest.raises(TimeoutError, match="no answer"):
            skforest.BlendedForestClassifier(members).fit(X, y)


def test_no_importances_without_a_member_that_has_them():
    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    blend = skforest.BlendedForestClassifier([DummyClassifier()]).fit(X, y)
    with pytest.raises(AttributeError, match="no member of this blend has"):
        _ = blend.feature_importances_


def test_members_of_small_weight_are_left_out():
    """Of many members that are about as good, no weight is below 0.05."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(80, 1))
    responses = [y + rng.normal(size=(80, 1)) for _ in range(14)]
    weights, _ = blend_weights(HeldOutR2(y, np.ones(80)), responses, 40, 0)
    assert weights.sum() == pytest.approx(1)
    assert (weights == 0).any() and weights[weights > 0].min() >= 0.05


def test_means_of_the_copies_of_rows_have_their_weights():
    rng = np.random.default_rng(0)
    row, values = rng.integers(5, size=40), rng.normal(size=(40, 2))
    weight = rng.exponential(size=40) * (rng.random(40) < 0.8)
    found = _mean_by_row(values, weight, row)
    for number in range(5):
        own = row == number
        expected = np.average(values[own], axis=0, weights=weight[own])
        np.testing.assert_allclose(found[number], expected)


def test_the_temperature_is_that_of_the_weighted_loss_and_of_other_folds():
    """Few sure and wrong rows of much weight ask for a higher temperature."""
    rng = np.random.default_rng(0)
    p = np.where(rng.random(400) < 0.5, 0.9, 0.1)
    probability = np.stack([1 - p, p], axis=1)
    codes = (rng.random(400) < p).astype(int)
    is_wrong = (p > 0.5) != (codes == 1)
    weight, fold = np.where(is_wrong, 4.0, 1.0), np.arange(400) % 4
    found = find_temperature(probability, codes, weight, fold, 4)
    grid = np.exp(np.linspace(-2, 2, 401))
    own = np.where(codes == 1, p, 1 - p)
    losses = []
    for temperature in grid:
        right = own ** (1 / temperature)
        right = right / (right + (1 - own) ** (1 / temperature))
        share = 1 / 402  # of each label belongs to the other class
        losses.append(-weight @ ((1 - share) * np.log(right) + share * np.log1p(-right)))
    assert found == pytest.approx(grid[np.argmin(losses)], rel=0.02)
    assert found > 1.5 * find_temperature(probability, codes, np.ones(400), fold, 4)
    # Folds that ask for opposite temperatures: that of the others helps no fold.
    fold = (is_wrong.cumsum() > is_wrong.sum() / 2).astype(int)
    sure = (fold == 0) | ~is_wrong
    codes = np.where(fold == 0, codes, np.where(sure, codes, 1 - codes))
    assert find_temperature(probability, codes, np.ones(400), fold, 2) == 1


def test_temperature():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((3000, 3)) * 2
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    codes = np.array([rng.choice(3, p=p) for p in true])
    own = codes, np.ones(3000), np.arange(3000) % 5, 5
    assert sharpened(true, 1.0) is true
    for power in (0.5, 2.0):
        distorted = sharpened(true, power)
        found = find_temperature(distorted, *own)
        assert found == pytest.approx(1 / power, rel=0.15)
        np.testing.assert_allclose(sharpened(distorted, 1 / power), true, rtol=1e-6)
    assert find_temperature(sharpened(true, 0.5), *own, may_flatten=False) == 1


def test_few_rows_that_are_all_right_do_not_prove_certainty():
    sure = np.tile([1e-6, 1 - 1e-6], (10, 1))
    labels, weight = np.ones(10, dtype=int), np.ones(10)
    found = sharpened(sure, flattening_temperature(sure, labels, weight))
    np.testing.assert_allclose(found[:, 1], 11 / 12, rtol=1e-3)  # Platt's target
    # Probabilities that are not sure enough remain as they are.
    unsure = np.tile([0.2, 0.8], (10, 1))
    assert flattening_temperature(unsure, labels, weight) == pytest.approx(1, abs=1e-4)


def test_few_rows_that_are_all_right_are_not_sharpened_without_a_limit():
    right = np.tile([0.02, 0.08, 0.9], (50, 1))
    own = np.full(50, 2), np.ones(50), np.arange(50) % 5, 5
    assert 0.9 < sharpened(right, find_temperature(right, *own))[0, 2] < 52 / 53


# ------------------------------------------------------------------------------ held-out responses


@pytest.mark.parametrize(
    "forest, data",
    [
        (ManifoldForestClassifier(11), classes()),
        (CO2ForestRegressor(11, **CO2), targets()),
        (RandomHingeForestClassifier(10, **HINGE), classes()),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("n_folds", [5, 2])
def test_a_row_is_predicted_by_the_members_that_left_its_fold_out(
    forest, data, n_folds, monkeypatch
):
    """With many rows, those of two folds are predicted, by two fifths of the members."""
    X, y = data
    monkeypatch.setattr(skforest.blend.members, "COMPARED", len(X) * n_folds // 5)
    kind = BlendedForestClassifier if is_classifier(forest) else BlendedForestRegressor
    blend = kind([forest], random_state=0)
    samples = blend._read_samples(X, y, None, None)
    (member,) = blend._new_members(np.random.RandomState(0))
    found = member.train_folds(samples, None)
    method, data, forest = member.method, member.data, member.forest
    fold = samples.fold[data.first_samples()]
    folded = data.with_folds(fold, n_folds)
    assert n_members(forest) == member.n_done == -(-method.n_members * n_folds // 5)
    compared = np.flatnonzero(samples.fold < n_folds)
    np.testing.assert_array_equal(np.sort(samples.compared), compared)
    for sample in compared[[0, 17]]:
        row, own = np.flatnonzero(data.first_samples() == sample)[0], []
        for i in range(member.n_done):
            seed = tree_seed(member.estimator._seed, i)
            weight = method.sampling.sample(folded.without_fold(i), seed).weight
            assert not weight[fold == i % n_folds].any()
            assert np.count_nonzero(folded.without_fold(i).weight) == len(data) * 4 // 5
            if fold[row] == i % n_folds:
                own.append(member_of(forest, i).response_mapped(data.X[row][None])[0])
        of_blend = np.flatnonzero(samples.compared == sample)[0]
        np.testing.assert_allclose(found[of_blend], np.mean(own, axis=0), rtol=1e-6)


def test_a_bootstrap_without_a_fold_draws_as_often_from_each_row():
    X, y = classes()
    data = TrainingSet(X.astype(np.float32), y[:, None].astype(float), np.ones(len(X)))
    fold = np.arange(len(data)) % 5
    left = data.with_folds(fold, 5).without_fold(0)
    np.testing.assert_array_equal(left.left_out_weight + left.weight, data.weight)
    assert (left.left_out_weight > 0).sum() == (fold == 0).sum()
    weight = Sampling(bootstrap=True).sample(left, 3).weight
    assert weight.sum() == round(len(data) * 4 / 5)


def test_folds_of_noise_are_honest():
    """A member that saw a row would know its label: all labels are random."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 5)), rng.integers(0, 2, 300)
    blend = classifier(calibrate=False).fit(X, y)
    assert blend.score_ < -0.65


# --------------------------------------------------------------------------------- the blend


@each_kind
def test_the_blend_is_the_weighted_mean(blend, data):
    X, y = data
    blend = clone(blend).fit(X, y)
    assert list(blend.weights_) == list(blend.member_scores_)
    assert sum(blend.weights_.values()) == pytest.approx(1)
    assert set(blend.members_) == {name for name, weight in blend.weights_.items() if weight}
    mean = sum(blend.weights_[name] * response(m, X) for name, m in blend.members_.items())
    if is_classifier(blend):
        mean = sharpened(mean, blend.temperature_)
    np.testing.assert_allclose(response(blend, X), mean, rtol=1e-12)
    assert blend.score_ >= max(blend.member_scores_.values())
    assert blend.feature_importances_.shape == (X.shape[1],)
    assert blend.feature_importances_.sum() == pytest.approx(1)


@each_kind
def test_refitted_members_are_the_forests_of_one_fit(blend, data):
    X, y = data
    blend = clone(blend).set_params(refit=True).fit(X, y)
    for member in blend.members_.values():
        alone = clone(member).fit(X, y)
        assert alone.__getstate__().keys() == vars(member).keys()
        np.testing.assert_array_equal(response(member, X), response(alone, X))


def test_members_of_small_weight_are_not_trained_again(monkeypatch):
    X, y = classes()
    board = classifier().fit(X, y).leaderboard_
    expected = board["weight"] >= skforest.blend.blend.MIN_REFITTED
    assert expected.any()
    np.testing.assert_array_equal(board["refitted"], expected)
    monkeypatch.setattr(skforest.blend.blend, "MIN_REFITTED", 0.99)
    weights = board["weight"]
    board = classifier().fit(X, y).leaderboard_
    np.testing.assert_array_equal(board["weight"], weights)
    assert not board["refitted"].any()


def test_members_are_compared_on_two_folds_of_many_rows(monkeypatch):
    """Scores and weights are those of the rows of two folds; `refit=False` needs all folds."""
    X, y = classes()
    monkeypatch.setattr(skforest.blend.members, "COMPARED", 20)
    linear = make_pipeline(StandardScaler(), LogisticRegression())
    blend = classifier(members=[ManifoldForestClassifier(10), ("linear", linear)]).fit(X, y)
    fold = blend._read_samples(X, y, None, None).fold
    proba = np.full((len(X), 3), np.nan)
    for k in range(2):
        own = fold == k
        proba[own] = clone(linear).fit(X[~own], y[~own]).predict_proba(X[own])
    own = fold < 2
    expected = np.log(np.maximum(proba[own, y[own]], 1e-3)).mean()
    assert blend.member_scores_["linear"] == pytest.approx(expected)
    monkeypatch.setattr(skforest.blend.blend, "MIN_REFITTED", 0.99)
    sizes = {}
    for refit in (True, False):
        members = classifier(refit=refit, members=["manifold"] * 2).fit(X, y).members_
        sizes[refit] = {len(member.forest_) for member in members.values()}
    assert sizes == {True: {40}, False: {100}}


def test_rows_that_a_member_merges_are_compared(monkeypatch):
    """Hinge forests clip features, which makes rows of several folds equal."""
    monkeypatch.setattr(skforest.blend.members, "COMPARED", 20)
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=300), 100 + 1e4 * rng.random(40)])[:, None]
    y = (X[:, 0] > 0).astype(int)
    hinge = RandomHingeForestClassifier(4, n_bags=5, max_iter=50)
    blend = classifier(members=[hinge]).fit(X, y)
    order = rng.permutation(len(X))
    assert blend.score_ == classifier(members=[hinge]).fit(X[order], y[order]).score_
    assert np.isfinite(blend.score_)


def test_rows_of_all_classes_are_compared(monkeypatch):
    """Scorers need them; contiguous folds of sorted rows have one class each."""
    monkeypatch.setattr(skforest.blend.members, "COMPARED", 20)
    X, y = classes()
    y = y % 2
    y[0] = 2
    members = [LogisticRegression()]
    blend = classifier(members=members, scoring="neg_log_loss").fit(X, y)
    assert np.isfinite(blend.score_)
    order = np.argsort(y % 2)
    blend = classifier(members=members, scoring="roc_auc", cv=KFold(4))
    assert blend.fit(X[order], y[order] % 2).score_ > 0.5


def test_members_of_the_folds_are_kept():
    X, y = classes()
    kept = classifier(refit=False).fit(X, y)
    assert not kept.leaderboard_["refitted"].any()
    assert kept.weights_ == classifier(refit=True).fit(X, y).weights_
    assert kept.score(X, y) > 0.9
    single = BlendedForestClassifier([skforest.NonGreedyTreeClassifier()], refit=False)
    single.fit(X, y)
    assert len(single.members_["NonGreedyTree"].forest_) == 1


@each_kind
def test_same_bits_for_copies_for_any_order_and_for_any_number_of_threads(blend, data):
    X, y = data
    weight = np.random.default_rng(0).integers(0, 3, len(X))
    expected = clone(blend).fit(X, y, sample_weight=weight)
    rows = np.random.default_rng(1).permutation(np.repeat(np.arange(len(X)), weight))
    copies = clone(blend).set_params(n_jobs=2).fit(X[rows], y[rows])
    assert copies.weights_ == expected.weights_
    np.testing.assert_array_equal(response(copies, X), response(expected, X))


def test_class_weights_are_sample_weights():
    X, y = classes()
    given = {0: 1.0, 1: 3.0, 2: 0.5}
    one = classifier(class_weight=given).fit(X, y)
    other = classifier().fit(X, y, sample_weight=[given[label] for label in y])
    assert one.weights_ == other.weights_
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-6)
    assert classifier(class_weight="balanced").fit(X, y).score(X, y) > 0.9
    without = classifier(class_weight={1: 0.0}).fit(X, y)
    assert np.isfinite(without.score_)
    assert not without.predict_proba(X)[:, 1].any()


def test_class_weights_and_a_member_that_takes_none():
    X, y = classes()
    blend = classifier(members=[("lr", make_pipeline(StandardScaler(), LogisticRegression()))])
    blend.set_params(class_weight="balanced")
    with pytest.raises(ValueError, match="'lr', a Pipeline, takes no sample_weight.*class_weight"):
        blend.fit(X, y)
    with sklearn.config_context(enable_metadata_routing=True):
        with pytest.raises(ValueError, match="'lr', a Pipeline, takes no sample_weight"):
            blend.fit(X, y)
        steps = StandardScaler(), LogisticRegression()
        pipeline = make_pipeline(*(step.set_fit_request(sample_weight=True) for step in steps))
        blend.set_params(members=[("lr", pipeline)]).fit(X, y)
        weight = compute_sample_weight("balanced", y)
        expected = clone(pipeline).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(
        blend.members_["lr"].predict_proba(X), expected.predict_proba(X), rtol=1e-6
    )


def test_tables_with_missing_values_and_categories():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"size": rng.random(120), "kind": rng.choice(["a", "b"], 120)})
    X.loc[3, "size"] = None
    y = np.where((X["kind"] == "a") == (X["size"] > 0.5), "yes", "no")
    blend = classifier().fit(X, y)
    assert blend.is_categorical_.tolist() == [False, True]
    assert blend.feature_names_in_.tolist() == ["size", "kind"]
    assert blend.score(X, y) > 0.95
    for forest in blend.members_.values():
        assert forest.forest_.levels == {1: ["a", "b"]}
    with pytest.raises(ValueError, match="feature names"):
        blend.predict(X[["kind", "size"]])


def test_several_outputs():
    X, y = classes()
    Y = np.column_stack([y, y > 0])
    blend = classifier().fit(X, Y)
    assert [p.shape for p in blend.predict_proba(X)] == [(120, 3), (120, 2)]
    assert (blend.predict(X) == Y).mean() > 0.9
    X, y = targets()
    blend = regressor().fit(X, np.column_stack([y, -y]))
    assert blend.predict(X).shape == (120, 2)
    assert blend.score(X, np.column_stack([y, -y])) > 0.8


def test_names_of_members():
    names = ["a-2", "a", "a"]
    X, y = classes()
    members = [(name, ManifoldForestClassifier(5)) for name in names]
    blend = classifier(members=[*members, ManifoldForestClassifier(5), ("b", "manifold")])
    assert list(blend.fit(X, y).weights_) == ["a-2", "a", "a-3", "ManifoldForest", "b"]


def test_parameters_of_members_are_parameters_of_the_blend():
    boosting, logistic = ObliqueBoostingClassifier(5), LogisticRegression()
    blend = BlendedForestClassifier(["manifold", ("ob", boosting), ("cv", logistic)])
    params = blend.get_params()
    assert params["ob"] is boosting and params["ob__n_estimators"] == 5
    assert params["cv"] == 5 and "cv__C" not in params  # a parameter of the blend has this name
    assert blend.get_params(deep=False).keys() == BlendedForestClassifier().get_params().keys()
    assert blend.set_params(ob__n_estimators=7, n_rounds=3) is blend
    assert boosting.n_estimators == 7 and blend.n_rounds == 3
    other = clone(blend).set_params(ob__n_estimators=9)
    assert (other.members[1][1].n_estimators, boosting.n_estimators) == (9, 7)
    new = CO2ForestClassifier(3)
    blend.set_params(ob=new)
    assert blend.members == ["manifold", ("ob", new), ("cv", logistic)]
    with pytest.raises(ValueError, match="'manifold'"):
        blend.set_params(manifold__n_estimators=3)
    assert BlendedForestClassifier(members=3).get_params()["members"] == 3


@pytest.mark.parametrize("cls", [BlendedForestClassifier, BlendedForestRegressor])
def test_the_default_members(cls):
    X, y = classes(80)
    blend = cls(random_state=0, time_limit=600).fit(X, y)
    is_class = cls is BlendedForestClassifier
    assert list(blend.weights_) == list(skforest.blend.blend.MEMBERS)[0 if is_class else 1 :]
    assert blend.left_out_ == []
    kind = "Classifier" if is_class else "Regressor"
    stems = "ManifoldForest", "CO2Forest", "RandomHingeForest", "ObliqueBoosting"
    kinds = {type(member).__name__ for member in blend.members_.values()}
    assert kinds <= {f"{stem}{kind}" for stem in stems}
    assert blend.score(X, y) > 0.8


def test_hinge_forests_have_no_temperature_of_their_own():
    X, y = make_classification(400, 6, flip_y=0.3, random_state=1)
    hinge = RandomHingeForestClassifier(10, n_bags=2, max_iter=100)
    blend = classifier(members=[hinge]).fit(X, y)
    member = blend.members_["RandomHingeForest"]
    assert hinge.calibrate and not member.calibrate and member.temperature_ == 1


def test_the_leaderboard_is_shown():
    pytest.importorskip("pandas")
    X, y = classes()
    blend = classifier()
    with pytest.raises(NotFittedError):
        blend.leaderboard_  # noqa: B018
    assert "leaderboard" not in blend._repr_html_() and "fit_seconds" not in blend._repr_html_()
    board = blend.fit(X, y).leaderboard_
    assert list(board.columns) == ["score", "weight", "fit_seconds", "predict_us", "refitted"]
    assert board["score"].is_monotonic_decreasing
    assert board["weight"].dropna().to_dict() == blend.weights_
    assert set(board.index) - set(blend.weights_) == {"blend", "constant", "random forest"}
    assert blend.score_name_ == "minus log loss in nats, with a temperature, held-out rows"
    assert board.loc["constant", "score"] == pytest.approx(-np.log(3), abs=2e-3)
    assert board.loc["constant", "score"] < board.loc["random forest", "score"] < 0
    for html in (blend._repr_html_(), blend._repr_mimebundle_()["text/html"]):
        assert "fit_seconds" in html and "CO2Forest" in html and blend.score_name_ in html


def test_the_constant_is_the_weighted_mean():
    X, y = targets()
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    samples = regressor()._read_samples(X, y, weight, None)
    expected = np.average(y, weights=weight)
    np.testing.assert_allclose(constant_response(samples), np.full((len(y), 1), expected))


def test_progress(capsys):
    X, y = classes()
    classifier(verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    first, second, *others = [line.partition(": ") for line in lines]
    assert re.fullmatch(r"\[1/2\] ManifoldForest ... \d\.\d s, about \d\.\d s left", first[2])
    assert re.fullmatch(r"\[2/2\] co2 ... \d\.\d s", second[2])
    assert re.match(r"co2 has score -\d\.\d+ and weight", others[-1][2])
    again = [line[2] for line in others if "again" in line[2]]
    assert again and all(
        re.fullmatch(r"\S+ again on all rows ... \d\.\d s", line) for line in again
    )
    assert {line[0] for line in (first, second, *others)} == {"BlendedForestClassifier"}
    classifier(verbose=2).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert "BlendedForestClassifier: [1/2] ManifoldForest ..." in lines
    ends = [line for line in lines if re.match(r"\w+: \[1/2\] ManifoldForest: \d\.\d s, ab", line)]
    assert len(ends) == 1


def test_members_that_end_too_late_are_named(capsys):
    X, y = classes()
    with pytest.warns(UserWarning, match="time_limit=1e-09: co2 left out of the blend"):
        classifier(verbose=1, time_limit=1e-9).fit(X, y)
    assert "BlendedForestClassifier: ManifoldForest trained in" in capsys.readouterr().out


# ------------------------------------------------------------------------ folds, groups, scoring


def test_groups_are_left_out_together():
    """Rows of a group are nearly equal, and their labels are random."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 6)
    X = rng.standard_normal((40, 4))[groups] + 1e-3 * rng.standard_normal((240, 4))
    y = rng.integers(0, 2, 40)[groups]
    assert classifier().fit(X, y).score_ > -0.3
    blend = classifier().fit(X, y, groups=groups)
    assert blend.score_ < -0.6
    given = classifier(cv=GroupKFold(4)).fit(X, y, groups=groups)
    assert given.score_ < -0.6
    for model, n_folds in ((blend, 5), (given, 4)):
        samples = model._read_samples(X, y, None, groups)
        assert samples.n_folds == n_folds
        assert all(len(set(samples.fold[groups == group])) == 1 for group in range(40))


def test_groups_by_metadata_routing():
    X, y = classes()
    groups = np.arange(120) // 4
    with sklearn.config_context(enable_metadata_routing=True):
        blend = classifier().set_fit_request(groups=True)
        found = cross_validate(
            blend, X, y, cv=KFold(2), params={"groups": groups}, return_estimator=True
        )
    train = np.arange(60, 120)
    alone = classifier().fit(X[train], y[train], groups=groups[train])
    np.testing.assert_array_equal(found["estimator"][0].predict_proba(X), alone.predict_proba(X))


def test_folds_are_stratified():
    X, y = classes(60)
    y[:] = 0
    y[:10] = 1
    samples = classifier()
    samples = samples._read_samples(X, y, None, None)
    for k in range(5):
        assert y[samples.fold == k].sum() == 2
        assert (samples.fold == k).sum() == 12


def test_folds_of_a_splitter():
    X, y = classes()
    with pytest.raises(ValueError, match="at least 2 folds"):
        classifier(cv=[(np.arange(3), np.arange(120))]).fit(X, y)
    splits = list(KFold(3).split(X))
    one, other = classifier(cv=splits).fit(X, y), classifier(cv=KFold(3)).fit(X, y)
    assert one.weights_ == other.weights_


SPLITTERS = [
    TimeSeriesSplit(3),
    RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
    ShuffleSplit(4, random_state=0),
    ShuffleSplit(1, test_size=0.5, random_state=0),
    PredefinedSplit(np.arange(120) % 4 - 1),
    [(np.arange(50), np.arange(60, 90)), (np.arange(60, 120), np.arange(40) < np.inf)],
]


@pytest.mark.parametrize("cv", SPLITTERS, ids=lambda cv: type(cv).__name__)
@each_kind
def test_members_are_trained_on_the_rows_of_a_splitter(blend, data, cv):
    """And on no others, such as those after the test rows; rows of several tests have the mean."""
    X, y = data
    if isinstance(cv, list):
        cv[1] = cv[1][0], np.arange(40)
    splits = list(cv) if isinstance(cv, list) else list(cv.split(X, y))
    splits.sort(key=lambda split: -len(split[0]))
    other = ExtraTreesClassifier if is_classifier(blend) else ExtraTreesRegressor
    blend = clone(blend).set_params(
        cv=cv, members=[*blend.members, ("other", other(5, random_state=1))]
    )
    samples = blend._read_samples(X, y, None, None)
    tested = np.unique(np.concatenate([test for _, test in splits]))
    np.testing.assert_array_equal(np.sort(samples.compared), tested)
    for member in blend._new_members(np.random.RandomState(0)):
        response = member.train_folds(samples)
        assert np.isfinite(response).all()
        expected, n_tests = np.zeros((len(X), response.shape[1])), np.zeros((len(X), 1))
        for k, (train, test) in enumerate(splits):
            n_tests[test] += 1
            if isinstance(member, OwnMember):
                data = member.in_folds
                sample = np.flatnonzero(data.without_fold(k + len(splits)).weight > 0)
                assert set(data.first_samples()[sample]) == set(train)
                assert set(data.first_samples()[data.is_left_out(k)]) == set(test)
            else:
                model = clone(member.estimator).fit(X[np.sort(train)], y[np.sort(train)])
                expected[test] += response_of(model, X[test], samples.classes)
        if not isinstance(member, OwnMember):
            np.testing.assert_allclose(response, (expected / n_tests.clip(1))[samples.compared])


def test_a_blend_on_a_series():
    X, y = targets()
    blend = regressor(cv=TimeSeriesSplit(3)).fit(X, y)
    refitted = blend.leaderboard_["refitted"]
    assert all(refitted[name] for name, weight in blend.weights_.items() if weight)
    assert 0 < blend.score_ < 1
    assert blend.fit(X, y, np.linspace(0, 1, len(X))).score_ > 0


def test_equal_rows_are_on_one_side_of_a_split():
    X, y = classes(60)
    X, y = np.vstack([X, X[:30]]), np.append(y, y[:30])
    blend = classifier(cv=TimeSeriesSplit(2))
    samples = blend._read_samples(X, y, None, None)
    trains, left_out = samples.split(1)
    np.testing.assert_array_equal(left_out, [*range(30), *range(60, 90)])
    np.testing.assert_array_equal(trains, np.arange(30, 60))


def test_splitters_without_rows():
    X, y = classes()
    with pytest.raises(ValueError, match="cv has no test rows with positive weight"):
        classifier(cv=[(np.arange(60), [])]).fit(X, y)
    with pytest.raises(ValueError, match="cv has no training rows .* in split 1"):
        classifier(cv=[([0, 1], [2, 3]), ([], [0, 1])]).fit(X, y)
    with pytest.raises(ValueError, match="cv has no test rows with positive weight"):
        classifier(cv=PredefinedSplit(np.arange(120) // 60 - 1)).fit(X, y, np.arange(120) < 60)


def test_members_get_the_groups(monkeypatch):
    X, y = classes()
    groups, seen = np.arange(120) // 3, []

    def recorded(weight, fraction, seed, group=None):
        seen.append(group)
        return held_out(weight, fraction, seed, group)

    held_out = skforest.training.boosting.draw_held_out
    monkeypatch.setattr(skforest.training.boosting, "draw_held_out", recorded)
    boosting = ObliqueBoostingClassifier(5, n_bags=1)
    classifier(members=[boosting]).fit(X, y, groups=groups)
    assert seen and all(len(np.unique(group)) == 40 for group in seen)


class Untrained(DummyClassifier):
    def fit(self, X, y, sample_weight=None):
        raise AssertionError("a member was trained before scoring was tried")


@pytest.mark.parametrize(
    "scoring, error, message",
    [
        ("aucc", ValueError, "'aucc' is not a valid scoring value"),
        ("average_precision", ValueError, "pos_label=1 is not a valid label"),
        (lambda model, X: 1.0, TypeError, "takes 2 positional arguments but 3 were given"),
        (lambda model, X, y: "good", TypeError, "scoring must return a number, got 'good'"),
        (lambda model, X, y: np.nan, ValueError, "is nan for predictions that are right"),
    ],
)
def test_scoring_is_tried_before_anything_is_trained(scoring, error, message):
    X, y = classes(n_classes=2)
    for options in ({}, {"time_limit": 100}):
        blend = classifier(members=[Untrained()], scoring=scoring, **options)
        with pytest.raises(error, match=message):
            blend.fit(X, np.array(["no", "yes"])[y])


@pytest.mark.parametrize("scoring", ["roc_auc_ovr", "accuracy", "neg_log_loss"])
def test_scoring(scoring):
    X, y = classes()
    blend = classifier(scoring=scoring).fit(X, y)
    assert blend.score_ >= max(blend.member_scores_.values())
    assert (blend.score_ > 0.5) == (scoring != "neg_log_loss")
    weighted = classifier(scoring=scoring).fit(X, y, sample_weight=np.linspace(0.5, 1, 120))
    assert weighted.score_ != blend.score_


def test_scoring_with_a_callable_without_weights():
    X, y = targets()

    def worst(model, X, y):
        return -np.abs(model.predict(X) - y).max()

    blend = regressor(scoring=worst).fit(X, y)
    other = regressor(scoring="neg_max_error").fit(X, y)
    assert blend.weights_ == other.weights_
    assert blend.score_ == pytest.approx(other.score_)


# --------------------------------------------------------------------------------------- limits


def test_members_that_have_no_time_are_left_out():
    X, y = classes()
    members = [
        ManifoldForestClassifier(10),
        CO2ForestClassifier(30_000, **CO2),
        ExtraTreesClassifier(),
    ]
    start = time.perf_counter()
    with pytest.warns(UserWarning, match="time_limit=0.5: ExtraTrees left out of the blend"):
        blend = classifier(members=members, time_limit=0.5).fit(X, y)
    assert time.perf_counter() - start < 5
    assert blend.left_out_ == ["ExtraTrees"]
    assert "_time_limit" not in vars(blend.members_["CO2Forest"])
    assert 5 <= len(blend.members_["CO2Forest"].forest_) < 30_000  # those that were in time
    assert blend.score(X, y) > 0.9


@each_kind
def test_there_is_a_model_within_any_time(blend, data):
    X, y = data
    blend = clone(blend).set_params(time_limit=1e-6)
    with pytest.warns(UserWarning, match="co2 left out of the blend"):
        blend.fit(X, y)
    assert list(blend.members_) == [next(iter(blend.weights_))]
    assert blend.score(X, y) > 0.5


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_limit_beyond_that_of_timers():
    X, y = classes()
    blend = classifier(members=[ManifoldForestClassifier(3)], time_limit=1e300).fit(X, y)
    assert blend.left_out_ == []


def test_a_long_tree_is_ended():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3000, 20)), rng.integers(0, 2, 3000)
    slow = RandomHingeForestClassifier(max_iter=10**6)
    start = time.perf_counter()
    with pytest.warns(UserWarning, match="RandomHingeForest left out"):
        classifier(members=[ManifoldForestClassifier(10), slow], time_limit=0.5).fit(X, y)
    assert time.perf_counter() - start < 5


class Clock:
    """Stands in for `time` where it is read by limits of time."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(skforest.training.threads, "time", self)
        monkeypatch.setattr(
            skforest.blend.schedule, "common_rows", lambda members, samples: (0, members)
        )

    def perf_counter(self):
        return self.now


class TimedMember(OwnMember):
    """A member that takes as long as it is told to, and notes what it is asked for."""

    def __init__(self, clock, estimator, n, seconds, weight, log):
        super().__init__(type(estimator).__name__, estimator)
        self.unit = "bag" if hasattr(estimator, "n_bags") else "tree"
        self.clock, self.n_folds, self.n_left_out, self.weight = clock, n, min(n, 5), weight
        self.step_seconds, self.cost, self.n_done, self.log = 0.0, seconds, 0, log

    def begin(self, samples, limit=None):
        self.n_done = 0

    def extend(self, n, samples, limit=None):
        n_before = self.n_done
        if limit.least and self.unit == "bag":
            limit.check(self.cost)
        for i in range(n):
            if i >= limit.at_least and limit.left() < (self.cost if self.n_done else 1e-9):
                break
            self.clock.now += self.cost
            self.n_done, self.step_seconds = self.n_done + 1, self.cost
        self.log.append((self.name[:4], self.n_done - n_before))
        if self.n_done == n_before:
            raise NotInTime(self.name)


class WeightOfMember:
    """A criterion that prefers the heaviest member."""

    def reduce(self, member):
        return member.weight

    def score(self, weight):
        return float(weight)


def planned(monkeypatch, seconds, weights=(3, 0, 1, 2)):
    """Trees and bags that each member has within a limit, and what was trained in which order."""
    clock, log = Clock(monkeypatch), []
    kinds = (RandomHingeForestClassifier, 5, 4.0), (CO2ForestClassifier, 100, 0.05)
    kinds += (ManifoldForestClassifier, 100, 0.01), (ObliqueBoostingClassifier, 5, 3.0)
    members = [
        TimedMember(clock, cls(), n, cost, weight, log)
        for (cls, n, cost), weight in zip(kinds, weights)
    ]
    limit = TimeLimit.of(seconds, clock.now)
    trained = train_in_time(members, None, limit, lambda *_: WeightOfMember())
    late = clock.now - limit.deadline
    return {m.name[:4]: m.n_done for m in members if m in trained}, log, late


def test_boosting_begins_and_the_members_with_a_weight_go_on(monkeypatch):
    done, log, late = planned(monkeypatch, 5.0)
    assert log[0] == ("Obli", 1) and late <= 0
    assert done["Obli"] == 1 and "Rand" not in done  # nothing begins that would not end
    assert done["Mani"] > 10 and done["CO2F"] >= 5
    done, log, late = planned(monkeypatch, 25.0, weights=(0, 0, 1, 2))
    assert late <= 0 and done["Obli"] == 5  # before the first bag of the hinge forest
    assert done.get("Rand", 0) <= 1
    done, log, late = planned(monkeypatch, 40.0, weights=(3, 0, 1, 2))
    assert late <= 0 and done["Rand"] == 5 > done["Obli"]  # where it is better
    done, log, late = planned(monkeypatch, 60.0)
    assert list(done.values()) == [5, 100, 100, 5]
    assert planned(monkeypatch, 1e-6)[0] == {"Obli": 1}


class TimedOther(OtherMember):
    """As `TimedMember`, of another package: it is trained once more in the end."""

    def __init__(self, clock, weight, log):
        super().__init__("other", None)
        self.clock, self.weight, self.log = clock, weight, log
        self.n_folds, self.n_left_out, self.n_done, self.cost = 2, 2, 0, 1.0
        self.final_seconds = 11.0

    begin, extend = TimedMember.begin, TimedMember.extend


def test_members_of_other_packages_have_time_for_their_final_training(monkeypatch):
    clock, log = Clock(monkeypatch), []
    other = TimedOther(clock, 2, log)
    boosting = TimedMember(clock, ObliqueBoostingClassifier(), 5, 0.1, 1, log)
    hinge = TimedMember(clock, RandomHingeForestClassifier(), 5, 4.0, 3, log)
    limit = TimeLimit.of(15.0, clock.now)
    train_in_time([other, boosting, hinge], None, limit, lambda *_: WeightOfMember())
    assert other.n_done == 2 and clock.now + other.final_seconds <= limit.deadline


@each_kind
def test_a_limit_that_is_not_reached_changes_no_weight(blend, data):
    X, y = data
    other = ExtraTreesClassifier if is_classifier(blend) else ExtraTreesRegressor
    blend = clone(blend).set_params(members=[other(5), *blend.members])
    free, limited = clone(blend).fit(X, y), blend.set_params(time_limit=600).fit(X, y)
    assert list(limited.weights_.items()) == list(free.weights_.items())
    np.testing.assert_array_equal(response(limited, X), response(free, X))


def test_bags_that_a_limit_cut_short_are_kept(monkeypatch):
    """Weights are those of the rows of the folds that were left out by then."""
    X, y = classes(200)
    seen = []
    monkeypatch.setattr(
        skforest.blend.blend,
        "criterion_of",
        lambda blend, samples, kept: seen.append(samples) or criterion_of(blend, samples, kept),
    )
    boosting = ObliqueBoostingClassifier(10**6, learning_rate=1e-4, n_iter_no_change=10**6)
    blend = classifier(members=["manifold", boosting], time_limit=0.3)
    with pytest.warns(UserWarning, match="time_limit=0.3: .*ObliqueBoosting 1 of 5 bags"):
        blend.fit(X, y)
    assert blend.weights_["ObliqueBoosting"] > 0 or len(blend.weights_) > 1
    compared = seen[-1]
    assert set(compared.compared_fold) == {0} and len(compared.compared) == 40


def test_a_foreign_member_is_tried_on_few_rows():
    class Slow(DummyClassifier):
        def fit(self, X, y, sample_weight=None):
            time.sleep(3e-4 * len(X))
            return super().fit(X, y)

    X, y = make_classification(3000, random_state=0)
    start = time.perf_counter()
    with pytest.warns(UserWarning, match="time_limit=1: Slow left out of the blend"):
        classifier(members=[Slow(), ManifoldForestClassifier(5)], time_limit=1).fit(X, y)
    assert time.perf_counter() - start < 10


def test_the_time_of_a_prediction_grows_with_the_trees(monkeypatch):
    X, y = classes()
    samples = classifier()._read_samples(X, y, None, None)
    member = OwnMember("forest", ManifoldForestClassifier(3, random_state=0))
    member.train_folds(samples)
    ticks = iter(range(100))
    monkeypatch.setattr(skforest.blend.members.time, "perf_counter", lambda: next(ticks) ** 2)
    member.growth = 1
    one = member.predict_us(samples)
    ticks = iter(range(100))
    member.growth = 3
    assert member.predict_us(samples) == 3 * one > 0


def test_max_predict_us(monkeypatch):
    costs = {"ManifoldForest": 2.0, "co2": 3.0, "random forest": 1.0}
    monkeypatch.setattr(OwnMember, "predict_us", lambda member, samples: costs[member.name])
    X, y = classes()
    assert len(classifier(max_predict_us=5).fit(X, y).members_) == 2
    assert len(classifier(max_predict_us=4).fit(X, y).members_) == 1
    assert list(classifier(max_predict_us=2.5).fit(X, y).members_) == ["ManifoldForest"]
    with pytest.warns(UserWarning, match="no member is as fast; the fastest is used"):
        blend = classifier(max_predict_us=1).fit(X, y)
    assert list(blend.members_) == ["ManifoldForest"]
    assert blend.leaderboard_.loc["co2", "predict_us"] == 3


# ------------------------------------------------------------------------------ other estimators


def test_members_of_other_packages():
    X, y = classes()
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    members = [ManifoldForestClassifier(5), ExtraTreesClassifier(20), ("logistic", pipeline)]
    blend = classifier(members=members, n_jobs=1).fit(X, y)
    assert list(blend.weights_) == ["ManifoldForest", "ExtraTrees", "logistic"]
    trees = blend.members_["ExtraTrees"]
    assert trees.n_jobs == 1 and isinstance(trees.random_state, int)
    alone = clone(trees).fit(X, y)
    np.testing.assert_array_equal(trees.predict_proba(X), alone.predict_proba(X))
    assert blend.score(X, y) > 0.9
    again = classifier(members=members, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), blend.predict_proba(X))


def test_a_frozen_member_is_the_fitted_one():
    X, y = targets(200)
    model = Ridge().fit(X[:100], y[:100])
    blend = regressor(members=[FrozenEstimator(model)], cv=3).fit(X[100:], y[100:])
    np.testing.assert_allclose(blend.predict(X), model.predict(X))


def test_cross_validation_of_members_of_other_packages():
    X, y = targets()
    members = [Ridge(), ExtraTreesRegressor(10), RandomForestRegressor(10)]
    blend = regressor(members=members, cv=KFold(4)).fit(X, y)
    predicted = np.zeros(120)
    for a, b in KFold(4).split(X):
        predicted[b] = Ridge(random_state=1).fit(X[a], y[a]).predict(X[b])
    assert blend.member_scores_["Ridge"] == pytest.approx(r2_score(y, predicted))
    assert blend.feature_importances_.sum() == pytest.approx(1)


def test_a_class_that_a_forest_of_this_package_did_not_see_has_probability_0():
    X, y = classes(40)
    forest = ManifoldForestClassifier(2, random_state=0).fit(X[y > 0], y[y > 0])
    response = response_of(forest, X, [np.arange(3)])
    assert not response[:, 0].any()
    np.testing.assert_array_equal(response[:, 1:], forest.predict_proba(X))


def test_a_class_that_a_member_did_not_see_has_probability_0():
    X, y = classes()
    y = np.where(np.arange(120) == 7, 9, y)
    blend = classifier(members=[KNeighborsClassifier(), ExtraTreesClassifier(5)]).fit(X, y)
    assert blend.predict_proba(X).shape == (120, 4)
    only = skforest.blend.members.response_of(
        KNeighborsClassifier().fit(X[y < 9], y[y < 9]), X, [blend.classes_]
    )
    assert not only[:, 3].any()
    np.testing.assert_allclose(only.sum(axis=1), 1)


@pytest.mark.parametrize(
    "members, error, message",
    [
        ([], ValueError, "members is empty"),
        (["cart"], ValueError, "members contains 'cart'; the names are"),
        ([3], TypeError, "members contains 3, which is not an estimator"),
        ([(3, ManifoldForestClassifier())], TypeError, "its name must be a str"),
        ([("a", "b", "c")], TypeError, "which is not an estimator"),
        ([Ridge()], ValueError, "which is not a classifier"),
        ([Perceptron()], ValueError, "which has no predict_proba"),
        ("some", ValueError, "The 'members' parameter"),
    ],
    ids=str,
)
def test_bad_members(members, error, message):
    X, y = classes()
    with pytest.raises(error, match=message):
        classifier(members=members).fit(X, y)


def test_other_errors_leave_no_trace():
    X, y = classes()
    blend = classifier().fit(X, y)
    before = vars(blend).copy()
    with pytest.raises(ValueError, match="groups.shape"):
        blend.fit(X, y, groups=[1, 2])
    with pytest.raises(ValueError, match="2 distinct rows"):
        blend.fit(X[[3, 3]], y[[3, 3]])
    blend.members = [KNeighborsClassifier()]
    with pytest.raises(ValueError, match="'KNeighbors', a KNeighborsClassifier, takes no sample"):
        blend.fit(X, y, sample_weight=np.ones(120))
    with pytest.raises(ValueError, match="n_jobs=0"):
        blend.set_params(n_jobs=0).fit(X, y)
    blend.set_params(members=before["members"], n_jobs=None)
    assert vars(blend) == before


class Strange(DecisionTreeClassifier):
    """Predicts other probabilities."""

    def __init__(self, change=None, max_depth=None):
        super().__init__(max_depth=max_depth)
        self.change = change

    def predict_proba(self, X):
        return self.change(super().predict_proba(X))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda proba: proba * np.nan, "'Strange' predicts values that are not finite"),
        (lambda proba: 2 * proba - 1, "'Strange' predicts negative probabilities"),
        (lambda proba: proba[:, :1], r"an array of shape \(40, 1\) for 2 classes"),
        (lambda proba: proba[1:], r"an array of shape \(39, 2\), expected \(40, 2\)"),
    ],
)
def test_responses_of_members_are_checked(change, message):
    X, y = make_classification(120, random_state=0)
    members = [ManifoldForestClassifier(2), Strange(change)]
    with pytest.raises(ValueError, match=message):
        BlendedForestClassifier(members, cv=3).fit(X, y)


def test_members_with_several_quantiles_are_refused():
    X, y = make_friedman1(60, random_state=0)
    member = ObliqueBoostingRegressor(2, loss="quantile", quantile=[0.1, 0.9], n_bags=1)
    with pytest.raises(
        ValueError, match=r"'ObliqueBoosting' predicts an array of shape \(60, 2\)"
    ):
        BlendedForestRegressor([member], cv=2).fit(X, y)


def test_an_error_names_the_member():
    X, y = make_classification(60, random_state=0)
    X[0, 0] = np.nan
    blend = BlendedForestClassifier([("linear", LogisticRegression())], cv=2)
    with pytest.raises(ValueError) as caught:
        blend.fit(X, y)
    assert "'linear'" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    "groups, message",
    [
        (np.zeros(60), "groups must have at least 2 groups"),
        (np.full(60, np.nan), "groups contains NaN"),
        ([None, "a", 3] * 20, "groups must be numbers or strings"),
        (np.ones((60, 2)), "groups.shape"),
    ],
)
def test_bad_groups(groups, message):
    X, y = make_classification(60, random_state=0)
    blend = BlendedForestClassifier([ManifoldForestClassifier(2)], cv=3)
    with pytest.raises(ValueError, match=message):
        blend.fit(X, y, groups=groups)


def test_there_are_no_more_folds_than_groups():
    X, y = make_classification(60, random_state=0)
    blend = BlendedForestClassifier([DecisionTreeClassifier()], cv=5)
    assert blend.fit(X, y, groups=np.arange(60) % 2).members_


HALF = np.arange(30)


@pytest.mark.parametrize(
    "cv, message",
    [
        ([(HALF, HALF + 40), (HALF + 30, HALF)], "cv has test rows outside of 0 .. 59"),
        ([1, 2], "cv yields no pairs of training and test rows"),
        ([(HALF, HALF[:, None])], "cv must yield row numbers or masks of 60 rows"),
        ([(HALF, HALF / 2)], "cv must yield row numbers or masks of 60 rows"),
        ([(HALF, HALF > 5)], "cv must yield row numbers or masks of 60 rows"),
        ([(HALF, ["a", "b"])], "cv must yield row numbers or masks of 60 rows"),
        (KFold(61), "cv yields no pairs of training and test rows: .*n_splits=61"),
    ],
)
def test_folds_are_checked(cv, message):
    X, y = make_classification(60, random_state=0)
    with pytest.raises(ValueError, match=message):
        BlendedForestClassifier([ManifoldForestClassifier(2)], cv=cv).fit(X, y)


@pytest.mark.parametrize("found, error", [(np.nan, ValueError), (None, TypeError)])
def test_scoring_must_return_finite_numbers(found, error):
    X, y = make_classification(60, random_state=0)
    blend = BlendedForestClassifier(
        [DecisionTreeClassifier()], cv=2, scoring=lambda estimator, X, y: found
    )
    with pytest.raises(error, match="scoring"):
        blend.fit(X, y)


def test_an_interrupted_fit_changes_nothing(monkeypatch):
    X, y = classes()
    blend = classifier().fit(X, y)
    expected, before = blend.predict_proba(X), vars(blend).copy()
    members = [vars(member).copy() for member in blend.members_.values()]

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(OwnMember, "train", interrupt)
    with pytest.raises(KeyboardInterrupt):
        blend.fit(X[:90, :4], y[:90])
    assert vars(blend) == before
    assert [vars(member) for member in blend.members_.values()] == members
    np.testing.assert_array_equal(blend.predict_proba(X), expected)


# ------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("layout", ["file", "folder"])
@each_kind
def test_save_and_load(blend, data, layout, tmp_path):
    X, y = data
    blend = clone(blend).fit(X, y)
    skforest.save(blend, tmp_path / "blend", layout=layout)
    mmap_mode = "r" if layout == "folder" else None
    again = skforest.load(tmp_path / "blend", mmap_mode=mmap_mode)
    assert repr(again) == repr(blend)
    assert again.weights_ == blend.weights_
    assert again.leaderboard_.equals(blend.leaderboard_)
    np.testing.assert_array_equal(response(again, X), response(blend, X))
    for name, member in blend.members_.items():
        np.testing.assert_array_equal(response(again.members_[name], X), response(member, X))
    smaller = skforest.slim(again)
    np.testing.assert_array_equal(response(smaller, X), response(blend, X))
    assert not hasattr(smaller, "feature_importances_")
    assert again.feature_importances_.sum() == pytest.approx(1)
    with pytest.raises(ValueError, match=r"contains \d forests; skforest.load reads it"):
        skforest.Forest.load(tmp_path / "blend")


def test_save_tables_labels_and_outputs(tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = classes()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    for target in (np.array(["x", "y", "z"])[y], np.column_stack([y, y > 1])):
        blend = classifier(members=[RandomHingeForestClassifier(10, **HINGE), "manifold"])
        blend.fit(frame, target)
        skforest.save(blend, tmp_path / "blend")
        again = skforest.load(tmp_path / "blend")
        assert again.feature_names_in_.tolist() == list("abcdef")
        np.testing.assert_array_equal(again.predict(frame), blend.predict(frame))
    X, y = targets()
    blend = regressor(members=[RandomHingeForestRegressor(10, **HINGE)]).fit(X, y)
    skforest.save(blend, tmp_path / "blend")
    np.testing.assert_array_equal(skforest.load(tmp_path / "blend").predict(X), blend.predict(X))


def test_members_of_other_packages_are_not_saved(tmp_path):
    X, y = classes()
    blend = classifier(members=[ExtraTreesClassifier(5)]).fit(X, y)
    with pytest.raises(TypeError, match="'ExtraTrees' of the blend is a ExtraTrees.*joblib"):
        skforest.save(blend, tmp_path / "blend")
    with pytest.raises(NotFittedError):
        skforest.save(classifier(), tmp_path / "blend")
    assert not list(tmp_path.iterdir())


def test_damaged_files_are_refused(tmp_path):
    X, y = classes()
    blend = classifier(members=[ManifoldForestClassifier(5)]).fit(X, y)
    folder = tmp_path / "blend"
    skforest.save(blend, folder, layout="folder")
    header = json.loads((folder / "header.json").read_text())
    assert all(name.startswith("0.") for name in header["arrays"])

    def check(message, **entries):
        (folder / "header.json").write_text(json.dumps(header | entries))
        with pytest.raises(ValueError, match=message):
            skforest.load(folder)

    check("no list of members", members=[])
    check("no list of members", members=header["members"] * 1001)
    check("does not describe a forest", members=[{}])
    check("not the name of an array", arrays=["child"])
    check("not the name of an array", arrays=["00.child"])
    check("not the name of an array", arrays=["1.child"])
    check("not the name of an array", arrays=["0.../../x"])
    check("has one forest", estimator="CO2ForestClassifier", params={})
    check("damaged", members=header["members"] * 2)
    check("damaged", state=header["state"] | {"temperature_": 0})
    check("damaged", state=header["state"] | {"weights_": {"items": []}})
    check("damaged", state=header["state"] | {"n_features_in_": 7})
    check("damaged", state=header["state"] | {"fit": 1})
    (folder / "header.json").write_text(json.dumps(header))
    np.testing.assert_array_equal(skforest.load(folder).predict(X), blend.predict(X))


def test_damaged_archives_are_refused(tmp_path):
    X, y = classes()
    path = tmp_path / "blend.npz"
    skforest.save(classifier(members=[ManifoldForestClassifier(5)]).fit(X, y), path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("0.", "1.", 1), content)
    with pytest.raises(ValueError, match="damaged"):
        skforest.load(path)


# ---------------------------------------------------------------------------------- predictors


def test_a_predictor_of_a_blend():
    X, y = make_classification(150, 6, n_classes=3, n_informative=5, n_redundant=0, random_state=0)
    X = X.astype(np.float32)
    members = [ManifoldForestClassifier(5), CO2ForestClassifier(5), LogisticRegression()]
    model = BlendedForestClassifier(members, cv=2, random_state=0).fit(X, y)
    model.temperature_ = 0.8
    assert len(model.members_) > 1
    expected, predictor = model.predict_proba(X), model.predictor()
    np.testing.assert_array_equal(predictor(X), expected)
    np.testing.assert_array_equal(predictor(X[3]), model.predict_proba(X[3:4])[0])
    np.testing.assert_array_equal(predictor.predict(X), model.predict(X))
    np.testing.assert_array_equal(predictor.encode(X.tolist()), X)


def test_a_predictor_of_other_members_takes_missing_values():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).astype(np.float32)
    X[::5, 1] = np.nan
    member = HistGradientBoostingRegressor(max_iter=3)
    model = BlendedForestRegressor([("other", member)], random_state=0).fit(X, X[:, 0])
    predictor = model.predictor()
    np.testing.assert_array_equal(predictor(predictor.encode(X.tolist())), model.predict(X))


def test_a_predictor_of_a_blend_of_tables():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": np.arange(60.0), "b": ["x", "y", "z"] * 20})
    y = frame["a"] + 30 * (frame["b"] == "x")
    members = [CO2ForestRegressor(5), ManifoldForestRegressor(5)]
    model = BlendedForestRegressor(members, cv=2, random_state=0).fit(frame, y)
    predictor = model.predictor()
    np.testing.assert_array_equal(predictor(predictor.encode(frame)), model.predict(frame))
    model.members_["linear"] = LogisticRegression()
    with pytest.raises(ValueError, match="LogisticRegression, takes no codes of categories"):
        model.predictor()


@pytest.mark.parametrize("make", [classifier, regressor])
def test_columns_without_information_have_no_effect(make):
    X, y = classes() if make is classifier else targets()
    wide = np.column_stack([X, np.full(len(X), 1e6), np.full(len(X), np.nan)])
    other = np.column_stack([X, np.full((len(X), 2), 1e6 + 1)])
    model = make().fit(wide, y)
    np.testing.assert_array_equal(response(model, other), response(model, wide))


@pytest.mark.parametrize("make", [classifier, regressor])
def test_a_factor_of_all_weights_has_no_effect(make):
    X, y = classes() if make is classifier else targets()
    expected = response(make().fit(X, y), X)
    weighted = make().fit(X, y, sample_weight=np.full(len(y), 0.1))
    np.testing.assert_array_equal(response(weighted, X), expected)
