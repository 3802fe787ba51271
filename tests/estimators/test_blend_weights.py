"""Weights of the members of blends: their choice, criteria, temperature."""

from copy import copy
from types import SimpleNamespace

import numpy as np
import pytest
from blends import classes, classifier
from sklearn.datasets import make_regression
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, r2_score
from sklearn.utils.class_weight import compute_sample_weight

import skforest
from skforest import ManifoldForestClassifier, ManifoldForestRegressor
from skforest.blend.leaderboard import comparison
from skforest.blend.members import OwnMember, criterion_of
from skforest.training.blending import (
    HeldOutLogLoss,
    HeldOutR2,
    Scorer,
    blend_weights,
    find_temperature,
    flattening,
    greedy_weights,
    sharpened,
    unseen_response,
    with_temperature,
)
from skforest.training.method import mean_by_row


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
    weights = blend_weights(criterion, [farther, right], 40, seed=0)
    assert weights.tolist() == [0, 1]


def test_fewer_members_of_equal_scores_are_kept():
    """Another round that only equals the best score, as of labels, adds no member."""

    class Accuracy:
        def score(self, mean):
            return np.mean((mean > 0.5) == [True, True, False, False])

    parts = np.array([[0.6, 0.4, 0.2, 0.2], [0.9, 0.9, 0.2, 0.2], [0.7, 0.2, 0.2, 0.1]])
    assert greedy_weights(Accuracy(), parts, 10).tolist() == [0, 1, 0]


def test_weights_are_means_over_bootstrap_samples():
    rng = np.random.default_rng(0)
    codes, proba = rng.integers(0, 2, (60, 1)), rng.dirichlet([1, 1], (3, 60))
    criterion = HeldOutLogLoss(codes, [2], rng.random(60) + 0.5)
    weights = blend_weights(criterion, proba, 10, seed=3)
    random, expected = np.random.RandomState(3), np.zeros(3)
    for _ in range(20):
        rows = random.randint(60, size=60)
        own = HeldOutLogLoss(codes[rows], [2], criterion.weight[rows])
        expected += greedy_weights(own, [own.reduce(part[rows]) for part in proba], 10) / 20
    expected[expected < 0.05] = 0
    np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-12)


@pytest.mark.parametrize("is_class", [False, True])
def test_samples_of_a_few_rows_that_draw_none_with_a_weight(is_class):
    """Of twenty samples of five rows, one of which has a weight, about seven draw only others."""
    right, wrong = np.eye(2)[[0, 1, 1, 0, 1]], np.full((5, 2), 0.5)
    weight = np.array([0.0, 0.0, 1.0, 0.0, 0.0])
    criterion = HeldOutR2(right, weight)
    if is_class:
        codes = right[:, 1:].astype(int)
        criterion = HeldOutLogLoss(codes, [2], weight, is_sharpened=True)
    assert blend_weights(criterion, [wrong, right], 10, seed=0).tolist() == [0, 1]


@pytest.mark.parametrize("is_class", [False, True])
def test_scores_of_blends_are_from_weights_of_other_folds(is_class):
    """Rows of a fold where one member is right by chance do not give it weight there."""
    rng = np.random.default_rng(0)
    fold = np.arange(90) % 3
    if is_class:
        codes, responses = rng.integers(0, 2, (90, 1)), rng.dirichlet([1, 1], (3, 90))
        criterion = HeldOutLogLoss(codes, [2], np.ones(90))
    else:
        y = rng.normal(size=(90, 1))
        responses, criterion = y + rng.normal(size=(3, 90, 1)), HeldOutR2(y, np.ones(90))
    weights = blend_weights(criterion, responses, 10, 0)
    found = unseen_response(criterion, responses, weights, (fold, 3), 10, 0, [1.0, 1.0, 1.0])
    for k in range(3):
        others = fold != k
        if is_class:
            part = HeldOutLogLoss(codes[others], [2], np.ones(60))
        else:
            part = HeldOutR2(y[others], np.ones(60))
        parts = [part.reduce(response[others]) for response in responses]
        own = np.einsum("m,mij->ij", weights_of_samples(part, parts, 90, others), responses)
        np.testing.assert_allclose(found[~others], own[~others], rtol=1e-9)
    seen = np.einsum("m,mij->ij", weights, responses)
    assert criterion.score(criterion.reduce(found)) < criterion.score(criterion.reduce(seen))
    alone = unseen_response(criterion, responses[:1], np.ones(1), (fold, 3), 10, 0)
    np.testing.assert_array_equal(alone, responses[0])


def weights_of_samples(criterion, parts, n_rows, mask):
    """The mean of greedy weights over five bootstrap samples of all rows, restricted to a mask."""
    random, total = np.random.RandomState(0), np.zeros(len(parts))
    for _ in range(5):
        drawn = copy(criterion)
        drawn.weight = np.bincount(random.randint(n_rows, size=n_rows), minlength=n_rows)[mask]
        total += greedy_weights(drawn, parts, 10)
    total[total < 0.05 * 5] = 0
    return total / total.sum()


def test_weights_are_found_at_the_best_of_four_temperatures():
    rng = np.random.default_rng(0)
    codes, weight = rng.integers(0, 3, (80, 1)), rng.random(80) + 0.5
    search = HeldOutLogLoss(codes, [3], weight, is_sharpened=True).for_weights
    for cautious in (1.0, 0.75, 0.6, 0.5, 0.2):
        label = np.eye(3)[codes[:, 0]]
        proba = cautious * (0.6 * label + 0.4 * rng.dirichlet([1] * 3, 80)) + (1 - cautious) / 3
        losses = [
            log_loss(codes[:, 0], sharpened(proba, t), sample_weight=weight)
            for t in (1, 4 / 5, 2 / 3, 1 / 2)
        ]
        assert search.score(search.reduce(proba)) == pytest.approx(-min(losses), rel=1e-10)
    counts = rng.integers(0, 3, 80)
    rows = np.repeat(np.arange(80), counts)
    copies = HeldOutLogLoss(codes[rows], [3], weight[rows], is_sharpened=True).for_weights
    (found,) = search.scores(search.row_scores(search.reduce(proba)), (weight * counts)[None])
    assert found == pytest.approx(copies.score(copies.reduce(proba[rows])))


@pytest.mark.parametrize("n_classes", [2, 7])
def test_scores_of_bags_are_logarithms_of_sharpened_means(n_classes):
    """Probabilities from 1e-20 to 1, and more rows than a block has."""
    rng = np.random.default_rng(n_classes)
    codes = rng.integers(0, n_classes, (150, 1))
    search = HeldOutLogLoss(codes, [n_classes], np.ones(150), is_sharpened=True).for_weights
    proba = rng.dirichlet([0.05] * n_classes, (3, 150))
    parts = [search.reduce(part) for part in proba]
    for counts in ((1, 0, 0), (0, 2, 3), (5, 1, 1)):
        mean = np.average(proba, axis=0, weights=counts)
        expected = []
        for power in (1, 5 / 4, 3 / 2, 2):
            sharp = mean**power / (mean**power).sum(axis=1, keepdims=True)
            expected.append(np.log(np.maximum(sharp[np.arange(150), codes[:, 0]], 1e-3)))
        found = search.scores_of_bag(parts, counts)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
        assert found.min() == pytest.approx(np.log(1e-3), rel=1e-14)


def test_a_cautious_member_that_is_right_has_the_weight():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 2, (300, 1))
    label = np.eye(2)[codes[:, 0]]
    cautious = 0.3 + 0.4 * label  # always right
    is_wrong = rng.random(300) < 0.08
    bold = np.where(is_wrong[:, None], 0.9 - 0.8 * label, 0.1 + 0.8 * label)
    plain, sharp = (HeldOutLogLoss(codes, [2], np.ones(300), flag) for flag in (False, True))
    plain_weight, _ = blend_weights(plain, [cautious, bold], 20, 0)
    weight, _ = blend_weights(sharp, [cautious, bold], 20, 0)
    assert weight > plain_weight + 0.2


@pytest.mark.parametrize("calibrate", [True, False])
def test_weights_expect_a_temperature_only_if_there_will_be_one(calibrate):
    X, y = classes(200)
    model = classifier(members=["manifold", "co2"], calibrate=calibrate)
    seen = []

    def spy(criterion, *args):
        seen.append(criterion.is_sharpened)
        return blend_weights(criterion, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(skforest.blend.blend, "blend_weights", spy)
        model.fit(X, y)
    assert seen == [calibrate]


def test_samples_of_rows_stay_within_the_budget():
    rng = np.random.default_rng(0)
    y = rng.random((50, 1))
    responses = [y + rng.normal(0, scale, y.shape) for scale in (0.2, 0.2, 0.4)]
    costs = [3.0, 4.0, 1.0]
    weights = blend_weights(HeldOutR2(y, np.ones(50)), responses, 20, 0, costs, budget=7)
    assert np.dot(weights > 0, costs) <= 7
    weights = blend_weights(HeldOutR2(y, np.ones(50)), responses, 20, 0)
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
    for weight, n_samples in (([2.0, 1.0], 3), ([9.0, 1.0], 10), ([7.0, 1.0], 2)):
        Scorer(scorer, *own, np.array(weight), n_samples).score(response)
    for weight in ([0.5, 1.0], [9.0, 1.0]):
        Scorer(scorer, *own, np.array(weight), 2).score(response)
    assert seen[0] == ([7, 7, 8], [3, 3, 4], [5, 5, 6], {})
    assert seen[1] == ([7] * 9 + [8], [3] * 9 + [4], [5] * 9 + [6], {})
    assert seen[2] == ([7] * 7 + [8], [3] * 7 + [4], [5] * 7 + [6], {})  # four times as many rows
    for *rest, options in seen[3:]:
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


def test_scoring_may_copy_rows_with_missing_values():
    X, y = classes(60)
    X[::3, 0] = np.nan
    blend = classifier(members=[ManifoldForestClassifier(3)], calibrate=False)
    expected = blend.set_params(scoring="accuracy").fit(X, y).score_
    blend.set_params(scoring=lambda model, X, y: (model.predict(X.copy()) == y).mean())
    assert blend.fit(X, y).score_ == expected


@pytest.mark.parametrize("losses", [["huber"], ["huber", "squared_error"], ["squared_error"]])
def test_outliers_are_left_out_of_scores_if_a_member_hardly_changes_them(losses):
    y = np.random.default_rng(0).normal(size=(50, 1))
    y[::10] = 1e6
    weight = np.arange(50) % 7 + 1.0
    models = [skforest.RandomHingeForestRegressor(loss=loss) for loss in losses]
    for model in models:
        model.n_outputs_ = 1
    members = [OwnMember("own", model) for model in models]
    samples = SimpleNamespace(compared_y=y, compared_weight=weight)
    blend = skforest.BlendedForestRegressor()
    criterion = criterion_of(blend, samples, members)
    keeps = (y[:, 0] < 1e6) | ("huber" not in losses)
    np.testing.assert_array_equal(criterion.weight, np.where(keeps, weight, 0))
    # Each of 8 outputs has other outliers, so that most rows have one: no row is left out.
    y = np.random.default_rng(0).normal(size=(50, 8))
    y[np.arange(50), np.arange(50) % 10 % 8] = 1e6
    for model in models:
        model.n_outputs_ = 8
    samples.compared_y = y
    np.testing.assert_array_equal(criterion_of(blend, samples, members).weight, weight)


def test_the_forest_on_the_leaderboard_reads_categories_as_the_blend_does():
    """Without their columns, it would refuse an array of strings."""
    codes = np.stack([np.arange(60) % 3, np.arange(60) // 3], axis=1)
    X = np.array(list("abcdefghijklmnopqrst"))[codes]
    member = ManifoldForestRegressor(2)
    blend = skforest.BlendedForestRegressor([member], cv=2, categorical_features=[0, 1])
    rows = blend.set_params(random_state=0).fit(X, (X[:, 0] == "b") * 1.0).leaderboard_
    assert rows["score"]["random forest"] > 0.5


@pytest.mark.parametrize(
    "members, message",
    [
        ([("cv", DummyClassifier())], "'cv', which is also a parameter"),
        ([("a__b", DummyClassifier())], "'a__b', which must not contain '__'"),
        (["co2", ("blend", DummyClassifier())], "'blend'; the leaderboard has another row"),
        ([("constant", DummyClassifier())], "'constant'; the leaderboard"),
        ([("random forest", DummyClassifier())], "'random forest'; the leaderboard"),
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
    weights = blend_weights(HeldOutR2(y, np.ones(80)), responses, 40, 0)
    assert weights.sum() == pytest.approx(1)
    assert (weights == 0).any() and weights[weights > 0].min() >= 0.05


def test_means_of_the_copies_of_rows_have_their_weights():
    rng = np.random.default_rng(0)
    row, values = rng.integers(5, size=40), rng.normal(size=(40, 2))
    weight = rng.exponential(size=40) * (rng.random(40) < 0.8)
    found = mean_by_row(values, weight, row)
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


def equal_weights(criterion, responses, *_):
    return np.full(len(responses), 1 / len(responses))


def test_only_members_of_other_packages_are_flattened(monkeypatch):
    flattened = []
    monkeypatch.setattr(
        skforest.blend.blend,
        "find_temperature",
        lambda *args, may_flatten: flattened.append(may_flatten) or 1.0,
    )
    X, y = classes(60)
    forest, other = ManifoldForestClassifier(2, max_depth=1), DummyClassifier()
    monkeypatch.setattr(skforest.blend.blend, "blend_weights", equal_weights)
    for members in ([forest], [forest, other], [other]):
        classifier(members=members).fit(X, y)
    assert flattened == [False, False, True]


def test_few_rows_that_are_all_right_do_not_prove_certainty():
    sure = np.tile([1e-6, 1 - 1e-6], (10, 1))
    labels, weight = np.ones(10, dtype=int), np.ones(10)
    even = np.full(2, 0.5)
    temperature, offset = flattening(sure, labels, weight, even)
    np.testing.assert_allclose(sharpened(sure, temperature)[:, 1], 11 / 12, rtol=1e-3)  # Platt's
    np.testing.assert_array_equal(offset, 0)
    # Probabilities that are not sure enough remain as they are.
    unsure = np.tile([0.2, 0.8], (10, 1))
    assert flattening(unsure, labels, weight, even)[0] == pytest.approx(1, abs=1e-4)
    # Rows count by their weights: two labels of ten are wrong, with half of the weight of others.
    sure = np.tile([1e-4, 1 - 1e-4], (10, 1))
    labels, weight = (np.arange(10) > 1).astype(int), np.where(np.arange(10) > 1, 2.0, 1.0)
    for factor in (1.0, 1e-3):
        temperature, _ = flattening(sure, labels, factor * weight, even)
        found = sharpened(sure, temperature)
        np.testing.assert_allclose(found[:, 1], (16 * 11 + 2) / 12 / 18, rtol=1e-3)


@pytest.mark.parametrize("factor", [1.0, 1e-3])
def test_predictions_that_know_nothing_are_flattened_to_the_frequencies_of_classes(factor):
    rng, frequency = np.random.default_rng(0), np.array([0.05, 0.25, 0.7])
    codes = np.repeat(np.arange(3), np.array([10, 50, 140]))
    weight = np.full(200, factor)
    noise = rng.dirichlet(np.full(3, 0.3), size=200) + 1e-6
    temperature, offset = flattening(noise, codes, weight, frequency)
    np.testing.assert_allclose(offset, np.log(frequency))
    found = sharpened(noise, temperature, offset=offset)
    np.testing.assert_allclose(found.mean(axis=0), frequency, atol=0.03)
    # Probabilities that are right keep their form, and few rows say too little.
    true = rng.dirichlet(np.full(3, 0.5), size=2000)
    labels = (rng.random((2000, 1)) > np.cumsum(true, axis=1)[:, :2]).sum(axis=1)
    sure = sharpened(true, 1 / 3)
    temperature, offset = flattening(sure, labels, np.full(2000, factor), frequency)
    assert temperature == pytest.approx(3, rel=0.15)
    np.testing.assert_array_equal(offset, 0)
    few = np.arange(0, 200, 40)
    _, offset = flattening(noise[few], codes[few], weight[few], frequency)
    np.testing.assert_array_equal(offset, 0)


@pytest.mark.parametrize("prior", [None, [0.2, 0.3, 0.5]])
def test_predictions_of_held_out_rows_have_the_temperature_and_the_prior(prior, monkeypatch):
    """As new rows have them; scores of sets are those of the same probabilities."""
    X, y = classes(60)
    keep = (y == 0) | (np.arange(60) % 3 == 0)
    X, y = X[keep], y[keep]
    blend = classifier(members=[ManifoldForestClassifier(4, max_depth=2)], oob_score=True)
    plain = blend.set_params(calibrate=False).fit(X, y).oob_decision_function_
    monkeypatch.setattr(skforest.blend.blend, "find_temperature", lambda *_, **__: 3.0)
    blend.set_params(calibrate=True, prior=prior).fit(X, y)
    expected = sharpened(plain, 3.0)
    if prior is not None:
        expected = expected * prior / np.bincount(y)
        expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(blend.oob_decision_function_, expected, rtol=1e-5)


def test_few_rows_that_are_all_right_are_not_sharpened_without_a_limit():
    right = np.tile([0.02, 0.08, 0.9], (50, 1))
    own = np.full(50, 2), np.ones(50), np.arange(50) % 5, 5
    assert 0.9 < sharpened(right, find_temperature(right, *own))[0, 2] < 52 / 53


def test_the_temperature_of_a_fold_is_found_on_the_others():
    """The model is too certain in fold 0, and too cautious in fold 1."""
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.ones(3), size=600)
    codes = (rng.random((600, 1)) > np.cumsum(true, axis=1)[:, :2]).sum(axis=1)
    fold = np.arange(600) % 2
    probability = np.where(fold[:, None] == 0, sharpened(true, 1 / 3), sharpened(true, 2.0))
    found = with_temperature(probability, codes, np.ones(600), fold, 2)
    for own in (0, 1):
        rows, temperature = fold == own, find_temperature(
            probability[fold != own], codes[fold != own], np.ones(300), np.arange(300) % 4, 4
        )  # fmt: skip
        expected = sharpened(probability[rows], temperature)
        np.testing.assert_allclose(found[rows], expected, atol=0.02)
    weight = np.where(np.arange(600) < 300, 1e-6, 1.0)  # rows of no weight have no influence
    other = with_temperature(probability, np.where(weight < 1, 0, codes), weight, fold, 2)
    half = with_temperature(probability[300:], codes[300:], np.ones(300), fold[300:], 2)
    np.testing.assert_allclose(other[300:], half, atol=0.02)
    # So it is on the leaderboard, by halves of the folds, unless calibrate=False.
    samples = SimpleNamespace(
        classes=[np.arange(3)],
        compared_y=codes[:, None] * 1.0,
        compared_weight=weight,
        temperature_folds=lambda: (np.arange(600) % 5, 5),
    )
    criterion = HeldOutLogLoss(codes[:, None], [3], weight)
    halves = with_temperature(probability, codes, weight, np.arange(600) % 5 % 2, 2)
    for calibrate, expected in ((True, halves), (False, probability)):
        score = comparison(SimpleNamespace(calibrate=calibrate), criterion, samples)
        assert score(probability) == criterion.score(criterion.reduce(expected))


def test_the_unit_of_sample_weights_does_not_matter_to_other_estimators():
    """Penalties are relative to the sum of weights; numbers of copies stay what they are."""
    X, y = make_regression(60, 4, noise=30, random_state=0)
    blend = skforest.BlendedForestRegressor([("linear", Ridge(5.0))], cv=2, random_state=0)
    expected = blend.fit(X, y).predict(X)
    copies = np.arange(60) % 3 + 1
    counted = blend.fit(X, y, copies).predict(X)
    np.testing.assert_allclose(counted, Ridge(5.0).fit(X, y, copies).predict(X), rtol=1e-9)
    for unit in (1e-6, 1 / 60, 1e9):
        found = blend.fit(X, y, np.full(60, unit)).predict(X)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_array_equal(blend.fit(X, y, copies * 6).predict(X), counted)
    uneven = np.random.default_rng(0).uniform(size=60)
    uneven[0] = 0
    for weight in (uneven, uneven.round(2), uneven.round(1)):
        given = weight.copy()
        found = blend.fit(X, y, weight).predict(X)
        np.testing.assert_array_equal(weight, given)
        np.testing.assert_allclose(blend.fit(X, y, 1e-3 * weight).predict(X), found, rtol=1e-9)
        n = np.count_nonzero(weight)
        alone = Ridge(5.0).fit(X, y, weight * n / weight.sum()).predict(X)
        np.testing.assert_allclose(found, alone, rtol=1e-9)


def test_class_weights_do_not_change_the_mean_for_other_estimators():
    """Whether their ratio is a whole number or not; scikit-learn's "balanced" does neither."""
    X, y = classes(180)
    y = (y == 0).astype(int)
    for class_weight in ({0: 1, 1: 3}, {0: 0.5, 1: 1.7}, "balanced"):
        linear = LogisticRegression(C=1e-3)
        blend = skforest.BlendedForestClassifier(
            [("linear", linear)], class_weight=class_weight, cv=2, calibrate=False, random_state=0
        ).fit(X, y)
        factor = compute_sample_weight(class_weight, y)
        alone = LogisticRegression(C=1e-3).fit(X, y, factor / factor.mean())
        np.testing.assert_allclose(blend.members_["linear"].coef_, alone.coef_, rtol=1e-5)
