"""Blends: held-out responses, fitted models, predictors."""

import re

import numpy as np
import pytest
import sklearn
from blends import (
    CO2,
    HINGE,
    classes,
    classifier,
    each_kind,
    folds_of,
    regressor,
    targets,
    train_folds,
)
from makers import response
from skforest._kernels.base.rows import tree_seed
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    KFold,
    ShuffleSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
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
    RandomHingeForestClassifier,
)
from skforest.table.training_set import TrainingSet
from skforest.training.blending import (
    sharpened,
)
from skforest.training.method import Sampling, member_of, n_members

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
@pytest.mark.parametrize("n_folds", [5, 2, 1])
def test_a_row_is_predicted_by_the_members_that_left_its_fold_out(
    forest, data, n_folds, monkeypatch
):
    """With many rows, those of some folds are predicted, by the same share of the members."""
    X, y = data
    monkeypatch.setattr(skforest.blend.folds, "COMPARED", len(X) * n_folds // 5)
    kind = BlendedForestClassifier if is_classifier(forest) else BlendedForestRegressor
    blend = kind([forest], random_state=0)
    samples = blend._read_samples(X, y, None, None)
    (member,) = blend._new_members(np.random.RandomState(0))
    train_folds(member, samples)
    found = member.response(samples)
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
    assert blend.leaderboard_.loc["blend", "score"] == blend.score_


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
    else:
        scores = {"blend": blend.score_, **blend.member_scores_}
        assert blend.leaderboard_["score"][list(scores)].to_dict() == scores
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
        # Only fits of one's own are continued by a warm start.
        assert alone.__getstate__().keys() - {"_samples"} == vars(member).keys()
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
    # Without folds, trees have seen few of the rows.
    some = classifier(
        members=[ManifoldForestClassifier(3)] * 2, cv=ShuffleSplit(2, random_state=0)
    )
    board = some.fit(X, y).leaderboard_
    np.testing.assert_array_equal(board["refitted"], board["weight"] > 0)


@pytest.mark.parametrize("n_folds", [1, 2])
def test_members_are_compared_on_some_folds_of_many_rows(n_folds, monkeypatch):
    """Scores and weights are those of the rows of these folds; `refit=False` needs all folds."""
    X, y = classes()
    monkeypatch.setattr(skforest.blend.folds, "COMPARED", n_folds * len(X) // 5)
    linear = make_pipeline(StandardScaler(), LogisticRegression())
    blend = classifier(members=[ManifoldForestClassifier(10), ("linear", linear)]).fit(X, y)
    number = {row.tobytes(): i for i, row in enumerate(X)}
    folds = folds_of(blend, X, y)
    assert len(folds) == n_folds
    losses = []
    for rows, left_out in folds:
        label = y[[number[row.tobytes()] for row in left_out]]
        trained = clone(linear).fit(rows, y[[number[row.tobytes()] for row in rows]])
        proba = trained.predict_proba(left_out)[range(len(label)), label]
        losses += np.log(np.maximum(proba, 1e-3)).tolist()
    expected = np.mean(losses)
    assert blend.member_scores_["linear"] == pytest.approx(expected)
    monkeypatch.setattr(skforest.blend.blend, "MIN_REFITTED", 0.99)
    sizes = {}
    for refit in (True, False):
        members = classifier(refit=refit, members=["manifold"] * 2).fit(X, y).members_
        sizes[refit] = {len(member.forest_) for member in members.values()}
    assert sizes == {True: {20 * n_folds}, False: {100}}
    few = classifier(members=[ManifoldForestClassifier(7)] * 2).fit(X, y).members_.values()
    assert {len(member.forest_) for member in few} == {[2, 3][n_folds - 1]}  # rounded up


@pytest.mark.thin(2)
@pytest.mark.parametrize("n_folds", [1, 2, 3])
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(
    "forest, data",
    [
        (ManifoldForestClassifier(10), classes()),
        (CO2ForestRegressor(10, **CO2), targets()),
        (RandomHingeForestClassifier(10, **HINGE), classes()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_trees_that_few_folds_left_out_are_kept(forest, data, n_jobs, n_folds, monkeypatch):
    """If they are at most half of the trees, only the others are trained on all rows."""
    X, y = data
    monkeypatch.setattr(skforest.blend.folds, "COMPARED", n_folds * len(X) // 5)
    kind = BlendedForestClassifier if is_classifier(forest) else BlendedForestRegressor
    blend = kind([forest], random_state=0, n_jobs=n_jobs).fit(X, y)
    (member,) = blend.members_.values()
    assert blend.leaderboard_["refitted"][list(blend.weights_)].all()
    alone = clone(member).fit(X, y)
    samples = blend._read_samples(X, y, None, None)
    (of_folds,) = kind([forest], random_state=0)._new_members(np.random.RandomState(0))
    train_folds(of_folds, samples)
    n = n_members(member.forest_)
    assert n == of_folds.n_wanted
    n_kept = n_folds * n // 5 if n_folds < 3 else 0
    for number in range(n):
        source = of_folds.forest if number < n_kept else alone.forest_
        expected = member_of(source, number).response(X)
        np.testing.assert_array_equal(member_of(member.forest_, number).response(X), expected)


def test_members_with_an_out_of_bag_score_keep_no_trees(monkeypatch):
    """Rows that a fold left out are not those that a tree did not draw."""
    X, y = classes()
    monkeypatch.setattr(skforest.blend.folds, "COMPARED", 20)
    forest = ManifoldForestClassifier(30, bootstrap=True, oob_score=True)
    (member,) = classifier(members=[forest]).fit(X, y).members_.values()
    assert member.oob_score_ == clone(member).fit(X, y).oob_score_


def test_rows_that_a_member_merges_are_compared(monkeypatch):
    """Hinge forests clip features, which makes rows of several folds equal."""
    monkeypatch.setattr(skforest.blend.folds, "COMPARED", 20)
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
    monkeypatch.setattr(skforest.blend.folds, "COMPARED", 20)
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


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "member",
    [
        CO2ForestClassifier(4),
        ObliqueBoostingClassifier(8, n_bags=1),
        ManifoldForestClassifier(6, bootstrap=False),
    ],
    ids=["co2", "boosting", "manifold"],
)
@pytest.mark.parametrize(
    "given",
    ["balanced", {0: 1.0, 1: np.pi}, {0: 1.0, 1: 2.0, 2: 0.0}],
    ids=["balanced", "dict", "zero"],
)
def test_weights_are_copies_with_class_weights_too(given, member):
    """Rows repeat with other labels, so that copies may be held out one by one."""
    has_zero = isinstance(given, dict) and 2 in given
    for seed in (0, 1, 3, 4):
        rng = np.random.default_rng(seed)
        X = np.round(rng.normal(size=(60, 4)))
        y = (X[:, 0] + rng.normal(size=60) * 0.4 > 0).astype(int)
        weight = rng.integers(1, 4, 60)
        if has_zero:
            y[:8] = 2
        blend = BlendedForestClassifier([("member", member)], class_weight=given, random_state=0)
        expected = blend.fit(X, y, sample_weight=weight).predict_proba(X)
        rows = np.repeat(np.arange(60), weight)
        copies = clone(blend).fit(X[rows], y[rows])
        np.testing.assert_array_equal(copies.predict_proba(X), expected)
        assert copies.score_ == blend.score_
        if has_zero:
            without = clone(blend).set_params(class_weight={0: 1.0, 1: 2.0})
            without.fit(X, y, sample_weight=np.where(y < 2, weight, 0))
            np.testing.assert_array_equal(without.predict_proba(X), expected)


def test_forests_take_over_the_class_weights_of_a_blend():
    X, y = classes()
    given = {0: 1.0, 1: 3.0, 2: 0.5}
    for own, expected in ((None, given), ("balanced", "balanced")):
        members = [("forest", ManifoldForestClassifier(3, class_weight=own))]
        blend = classifier(members=members, class_weight=given).fit(X, y)
        assert blend.members_["forest"].class_weight == expected
    blend = classifier(members=[("lr", LogisticRegression())], class_weight=given).fit(X, y)
    assert blend.members_["lr"].class_weight is None


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
    X, y = classes(50)
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
    blend = regressor(scoring="neg_mean_absolute_error").fit(X, y, weight)
    errors = np.abs(y - np.average(y, weights=weight))
    found = blend.leaderboard_.loc["constant", "score"]
    assert found == pytest.approx(-np.average(errors, weights=weight))


def test_progress(capsys):
    X, y = classes()
    classifier(verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    first, second, *others = [line.partition(": ") for line in lines]
    assert re.fullmatch(r"\[1/2\] ManifoldForest ... \d\.\d s, about \d\.\d s left", first[2])
    assert re.fullmatch(r"\[2/2\] co2 ... \d\.\d s", second[2])
    assert re.match(r"co2 has score -\d\.\d+ and weight", others[-1][2])
    again = [line[2] for line in others if "again" in line[2]]
    end = r"again on all rows ... \d\.\d s"
    assert re.fullmatch(rf"\[1/2\] ManifoldForest {end}, about \d\.\d s left", again[0])
    assert re.fullmatch(rf"\[2/2\] co2 {end}", again[1]) and len(again) == 2
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


# ---------------------------------------------------------------------------------- predictors


def test_a_predictor_of_a_blend():
    X, y = make_classification(150, 6, n_classes=3, n_informative=5, n_redundant=0, random_state=0)
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
    with pytest.raises(ValueError, match="LogisticRegression, cannot take codes of categories"):
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
