"""Folds, groups and scoring of blends."""

import sys

import numpy as np
import pytest
import sklearn
from blends import classes, classifier, each_kind, folds_of, regressor, targets, train_folds
from makers import bag_of, made, quick_boosting, quick_hinge
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
)
from sklearn.metrics import r2_score
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    TimeSeriesSplit,
    cross_validate,
)
from sklearn.tree import DecisionTreeClassifier

import skforest
from skforest import (
    BlendedForestClassifier,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)
from skforest.blend.members import OwnMember
from skforest.estimators.prediction import response_of
from skforest.training import early_stopping
from skforest.training.hinge import HingeMethod, HingeTraining

# ------------------------------------------------------------------------ folds, groups, scoring


@pytest.mark.parametrize("n", [2, 3, 7])
def test_there_are_no_more_folds_than_rows_or_groups(n):
    X, y = targets(14)
    blend = regressor(members=[("tree", ManifoldForestRegressor(2))], cv=9)
    assert blend._read_samples(X[:n], y[:n], None, None).n_folds == n
    weight = np.arange(14) < n
    assert blend._read_samples(X, y, weight, None).n_folds == n
    assert blend._read_samples(X, y, None, np.arange(14) % n).n_folds == n
    blend.fit(X[:n], y[:n])


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_rows_are_told_apart_if_float32_does_not(class_weight):
    """Times in seconds are equal in float32 if they are less than a minute apart."""
    X, y = 1.7e9 + np.arange(60.0)[:, None], np.arange(60) % 2
    blend = classifier(class_weight=class_weight)
    assert len(blend._read_samples(X, y, None, None).compared) == 60
    assert len(blend._read_samples(X, y, None, None, (X, y, None)).compared) == 60
    with pytest.raises(ValueError, match="too large for dtype.*column 0"):
        blend.fit(1e30 * X, y)


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
        numbered = np.column_stack([X, groups])
        folds = folds_of(model, numbered, y, groups)
        assert len(folds) == n_folds
        for trained, left_out in folds:
            assert not set(trained[:, -1]) & set(left_out[:, -1])
            assert len(trained) + len(left_out) == len(X)


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
    folds = folds_of(classifier(), np.column_stack([X, y]), y)
    assert len(folds) == 5
    for _, left_out in folds:
        assert left_out[:, -1].sum() == 2 and len(left_out) == 12


def test_parts_of_a_row_weigh_as_much_as_its_copies_in_their_fold():
    X, y = classes(40)
    X[10:15], y[10:15] = X[0], y[0]
    samples = classifier(cv=4)._read_samples(X, y, None, None)
    data, fold, rows = samples.in_folds(samples.rows)
    of_sample = samples.rows.row_of_sample
    expected = [((of_sample == row) & (samples.fold == k)).sum() for row, k in zip(rows, fold)]
    np.testing.assert_allclose(data.weight / data.weight.min(), expected)
    assert sorted(set(expected)) == [1, 2]


@each_kind
def test_given_rows_determine_the_weights_alone(blend, data, monkeypatch):
    """Members are those that were trained on X; scores are those of `X_val`, with its weights."""
    X, y = data
    weight = np.arange(40) % 3
    given = {"X_val": X[80:], "y_val": y[80:], "sample_weight_val": weight}
    blend = clone(blend).set_params(oob_score=True).fit(X[:80], y[:80], **given)
    for entry, model in zip(blend.members, blend.members_.values()):
        alone = entry[1] if isinstance(entry, tuple) else entry
        alone = clone(alone).set_params(random_state=model.random_state).fit(X[:80], y[:80])
        np.testing.assert_array_equal(response_of(alone, X, None), response_of(model, X, None))
    kept = "oob_decision_function_" if is_classifier(blend) else "oob_prediction_"

    def quarters(scores_of, may_use, *_):
        return np.tile([0.25, 0.75], (len(may_use), 1))

    monkeypatch.setattr(skforest.training.blending, "_select", quarters)
    weighted = clone(blend).fit(X[:80], y[:80], **given)
    monkeypatch.undo()
    expected = weighted._response(X[80:])
    found = getattr(weighted, kept).reshape(expected.shape)
    np.testing.assert_allclose(found[weight > 0], expected[weight > 0])
    assert np.isnan(found[weight == 0]).all()
    assert not blend.leaderboard_["refitted"].any()
    again = {"X_val": X[80:].repeat(weight, axis=0), "y_val": y[80:].repeat(weight, axis=0)}
    again = clone(blend).fit(X[:80], y[:80], **again)
    assert again.weights_ == blend.weights_ and again.score_ == pytest.approx(blend.score_)
    if not is_classifier(blend):
        expected = r2_score(y[80:], blend.predict(X[80:]), sample_weight=weight)
        assert blend.score_ < expected  # weights of each part of the rows are from the other parts
        # The constant is the mean of y, not of y_val.
        expected = r2_score(y[80:], np.full(40, y[:80].mean()), sample_weight=weight)
        assert blend.leaderboard_.loc["constant", "score"] == pytest.approx(expected)


def test_members_stop_early_on_given_rows():
    """Boosting here and in scikit-learn; a member without early stopping does not see the rows."""
    X, y = classes(240)
    given = {"X_val": X[160:], "y_val": y[160:]}
    members = [
        ("boosting", quick_boosting(ObliqueBoostingClassifier)),
        ("trees", HistGradientBoostingClassifier(max_iter=30, n_iter_no_change=3)),
        ("all", HistGradientBoostingClassifier(max_iter=30, early_stopping=False)),
    ]
    blend = BlendedForestClassifier(members, random_state=0, calibrate=False)
    samples = blend._read_samples(X[:160], y[:160], None, None, (X[160:], y[160:], None))
    for member in blend._new_members(np.random.RandomState(0)):
        train_folds(member, samples)
        response = member.response(samples)
        own = {} if member.name == "all" else given
        alone = clone(dict(members)[member.name])
        alone.set_params(random_state=member.fitted.random_state)
        alone.fit(X[:160], y[:160], **own)
        expected = alone.predict_proba(X[160:])
        np.testing.assert_allclose(response, expected[samples.compared])
    assert member.fitted.n_iter_ == 30


def test_errors_of_given_rows():
    X, y = classes()
    for given, message in (
        ({"X_val": X}, "y_val=None"),
        ({"X_val": X[:, :3], "y_val": y}, "X_val, y_val: X has 3 features"),
        ({"X_val": X, "y_val": y + 7}, "y_val has labels"),
        ({"X_val": X, "y_val": y, "sample_weight_val": -y}, "sample_weight_val"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier().fit(X, y, **given)


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


@pytest.mark.thin(2)
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
        train_folds(member, samples)
        response = member.response(samples)
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
    _, (trained, left_out) = folds_of(classifier(cv=TimeSeriesSplit(2)), X, y)
    np.testing.assert_array_equal(left_out, X[[*range(30), *range(60, 90)]])
    np.testing.assert_array_equal(trained, X[30:60])


def test_validation_rows_of_the_user_are_a_single_fold():
    """As the guide says: they decide the weights, and stop boosting; no model has seen them."""
    X, y = targets(90)
    cv = PredefinedSplit(np.repeat([-1, 0], [60, 30]))
    boosting = quick_boosting(ObliqueBoostingRegressor, early_stopping="r2", n_directions=0)
    blend = regressor(members=[("boosting", boosting)], cv=cv, refit=False).fit(X, y)
    assert blend.score_ == pytest.approx(r2_score(y[60:], blend.predict(X[60:])))
    model = blend.members_["boosting"]
    for number, scores in enumerate(model.validation_scores_):
        response = bag_of(model.forest_, number).response(X[60:])
        assert scores[model.n_iter_[number]] == pytest.approx(r2_score(y[60:], response), rel=1e-5)


def test_splitters_without_rows():
    X, y = classes()
    with pytest.raises(ValueError, match="cv has no test rows with a positive weight"):
        classifier(cv=[(np.arange(60), [])]).fit(X, y)
    with pytest.raises(ValueError, match="cv has no training rows .* in split 1"):
        classifier(cv=[([0, 1], [2, 3]), ([], [0, 1])]).fit(X, y)
    with pytest.raises(ValueError, match="cv has no test rows with a positive weight"):
        classifier(cv=PredefinedSplit(np.arange(120) // 60 - 1)).fit(X, y, np.arange(120) < 60)


def test_rows_of_splits_are_counted_from_0_and_the_splits_with_weight_count():
    X, y = classes()
    for rows, words in (([-1], "test"), ([120], "test"), ([[0]], "row numbers or masks")):
        with pytest.raises(ValueError, match=f"cv .*{words}"):
            classifier(cv=[(np.arange(60), rows)]).fit(X, y)
    splitter, part = PredefinedSplit(np.arange(120) // 30), np.arange(120) // 30
    for weight, n_folds in ((None, 4), (part != 1, 3), (part % 2, 2)):
        samples = classifier(cv=splitter)._read_samples(X, y, weight, None)
        assert samples.n_folds == n_folds and set(samples.fold[samples.fold >= 0]) == {
            *range(n_folds)
        }


def test_groups_of_rows_with_several_labels_are_held_out():
    X, y = classes()
    groups = np.arange(120) // 6
    samples = classifier()._read_samples(X, np.stack([y, y > 0], axis=1), None, groups)
    assert samples.n_folds == 5
    assert all(len(set(samples.fold[groups == group])) == 1 for group in range(20))


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


def test_members_hold_out_whole_groups(monkeypatch):
    X, y = classes(60)
    groups, seen, drawn = np.arange(60) // 3, {}, early_stopping._drawn

    def recorded(rows, n, random, group):
        seen.setdefault(sys._getframe(1).f_code.co_name, []).append(group)
        return drawn(rows, n, random, group)

    monkeypatch.setattr(early_stopping, "_drawn", recorded)
    early, hinge = {"early_stopping": True}, skforest.RandomHingeForestClassifier
    trained = skforest.NonGreedyTreeClassifier(n_epochs=1, **early)
    members = [
        made(skforest.E2EDecisionForest, 1, greedy_epochs=1, finetune_epochs=1, **early),
        skforest.CO2ForestClassifier(1, objective="random", max_features=1, refine=trained),
        quick_hinge(hinge, n_bags=1, max_iter=5, early_stopping=True),
        quick_hinge(hinge, max_iter=5, early_stopping=False),  # rows for the temperature
    ]
    classifier(members=members, cv=2, n_rounds=2).fit(X, y, groups=groups)
    assert len(seen["validation_mask"]) >= 4 and len(seen["draw_weighted"]) >= 4
    for group in sum(seen.values(), []):
        assert group is not None and len(np.unique(group)) > 5


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


# ------------------------------------------------------------------------------ other estimators


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


@pytest.mark.parametrize("groups", [None, np.arange(4)])
def test_copies_of_one_row_are_too_few_for_a_blend(groups):
    X, y = np.ones((4, 2)), np.full(4, 3.0)
    with pytest.raises(ValueError, match="a blend needs at least 2 distinct rows"):
        regressor().fit(X, y, groups=groups)


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


@pytest.mark.parametrize(
    "members",
    [["linear"], ["manifold", HistGradientBoostingClassifier()], [ExtraTreesClassifier(9)]],
)
def test_a_class_of_one_row(members):
    """Without its row, a fold has a single class, which some classifiers refuse."""
    X = np.random.default_rng(0).normal(size=(80, 3))
    y = np.where(np.arange(80) == 3, "rare", "usual")
    blend = BlendedForestClassifier(members, random_state=0, oob_score=True).fit(X, y)
    assert blend.classes_.tolist() == ["rare", "usual"]
    assert blend.oob_decision_function_[3, 1] > 0.9
    proba = blend.predict_proba(X)[:, 0]
    assert proba[3] > np.median(proba)
    blend.fit(X, np.repeat("usual", 80))
    assert (blend.predict_proba(X) == 1).all() and (blend.predict(X) == "usual").all()


# ------------------------------------------------------------- importances of hinge forests


@pytest.mark.parametrize(
    "options",
    [{}, {"bootstrap": True}, {"early_stopping": True}, {"loss": "quantile", "quantile": 0.8}],
    ids=["calibrate", "bootstrap", "early_stopping", "quantile"],
)
def test_a_bag_of_a_hinge_forest_does_not_know_the_labels_that_it_leaves_out(options, monkeypatch):
    """Importances were those of all rows: on noise with many columns, held-out rows told much."""
    trained, known = [], {}

    class Witness(HingeTraining):
        def __init__(self, source, *args, **given):
            super().__init__(source, *args, **given)
            trained.append((tuple(self.trained_rows), source.emphasis))

    class WitnessMethod(HingeMethod):
        def emphasis(self, data):
            found = super().emphasis(data)
            known[tuple(np.flatnonzero(data.weight))] = found
            return found

    monkeypatch.setattr("skforest.training.hinge.HingeTraining", Witness)
    monkeypatch.setattr("skforest.estimators.hinge.HingeMethod", WitnessMethod)
    cls = RandomHingeForestRegressor if "loss" in options else RandomHingeForestClassifier
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 100)), rng.integers(2, size=60)
    quick_hinge(cls, **options).fit(X, y)
    assert 20 <= len(trained[0][0]) <= 55
    for rows, emphasis in trained:
        np.testing.assert_array_equal(emphasis, known[rows])


def test_held_out_scores_of_noise_with_many_columns():
    """They were .77, .69 and .67, and hinge forests had most of the weight."""
    scores, out_of_bag = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(100, 600)), rng.integers(2, size=100)
        hinge = made(RandomHingeForestClassifier, n_estimators=20, max_iter=300, random_state=0)
        blend = BlendedForestClassifier([("hinge", hinge)], random_state=0, oob_score=True)
        blend.fit(X, y)
        scores.append(np.mean(blend.oob_decision_function_.argmax(axis=1) == y))
        hinge.set_params(bootstrap=True, oob_score=True, n_bags=10).fit(X, y)
        out_of_bag.append(hinge.oob_score_)
    assert np.mean(scores) < 0.58 and np.mean(out_of_bag) < 0.58
