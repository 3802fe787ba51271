"""Members of blends: those of other packages, frozen ones, and errors of members."""

import numpy as np
import pytest
import sklearn
from blends import classes, classifier, regressor, targets
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification, make_friedman1
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    StackingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Perceptron, Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import skforest
from skforest import (
    BlendedForestClassifier,
    BlendedForestRegressor,
    ManifoldForestClassifier,
    ObliqueBoostingRegressor,
)
from skforest.blend.encoding import Columns
from skforest.blend.members import OwnMember
from skforest.estimators.prediction import response_of
from skforest.forest.storage import as_levels


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


def mixed_table(n=200):
    """A table with categories of few and many levels, missing values and an identifier."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    many, effect = np.array([f"level {i}" for i in range(14)]), rng.normal(size=14)
    code = rng.integers(14, size=n)
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=n),
            "few": pd.Categorical(rng.choice(["a", "b", "c"], n)),
            "many": many[code],
            "ordered": pd.Categorical.from_codes(
                rng.integers(3, size=n), list("xyz"), ordered=True
            ),
        }
    )
    y = frame["number"] + (frame["few"] == "b") + 2 * effect[code] + frame["ordered"].cat.codes
    frame.loc[::6, "number"] = np.nan
    frame.loc[1::9, "few"] = None
    return frame, y.to_numpy() + 0.1 * rng.normal(size=n)


def test_members_that_read_no_tables_get_encoded_columns():
    frame, y = mixed_table()
    blend = regressor(members=[("linear", Ridge())]).fit(frame[:150], y[:150])
    linear = blend.members_["linear"]
    assert linear[:-1].transform(frame[:2]).shape == (2, 4 + 1 + 1 + 2)  # a, b, c, none; mean; ...
    assert blend.score(frame[150:], y[150:]) > 0.8  # .25 without the means of many levels
    new = frame[150:].assign(few="new", many="new")  # levels that training did not see
    assert np.isfinite(blend.predict(new)).all()
    again = regressor(members=[("linear", Ridge())]).fit(frame[:150], y[:150])
    np.testing.assert_array_equal(again.predict(frame), blend.predict(frame))


def test_columns_of_many_levels_have_more_than_indicators():
    levels = as_levels({j: [f"{i:02}" for i in range(n)] for j, n in enumerate((9, 10, 11))})
    matrix = np.column_stack([np.arange(99.0) % n for n in (9, 10, 11)])
    found = Columns.of(matrix, levels, True)
    assert (found.few, found.many, found.left_out) == ([0, 1], [2], [])


def test_a_missing_value_is_the_median_and_has_an_indicator():
    X = np.array([[0.0], [0.0], [1.0], [9.0], [np.nan]])
    steps = Columns.of(X, {}, True).encoded(LogisticRegression(), None, 1)
    found = steps[:-1].fit(X).transform(X)
    np.testing.assert_array_equal(found, [[0, 0], [0, 0], [1, 0], [9, 0], [0.5, 1]])


def test_encoded_members_have_weights_and_parameters():
    frame, y = mixed_table()
    blend = regressor(members=[("linear", Ridge())]).set_params(linear__alpha=3.0)
    weight = np.arange(200) % 3
    blend.fit(frame, y, sample_weight=weight)
    assert blend.members_["linear"][-1].alpha == 3
    kept = weight > 0
    alone = clone(blend.members_["linear"])
    alone.fit(frame[kept], y[kept], sample_weight=weight[kept])
    np.testing.assert_allclose(blend.predict(frame), alone.predict(frame))
    without = clone(alone).set_params(columns="passthrough", model=DummyRegressor())
    assert without.fit(frame, y).predict(frame).std() < 1e-9
    plain = clone(alone).fit(frame[kept], y[kept])
    assert abs(plain.predict(frame) - alone.predict(frame)).max() > 0.01


def test_members_that_read_tables_get_them_as_they_are():
    frame, y = mixed_table()
    columns = make_column_transformer((OneHotEncoder(), ["few"]))
    members = {
        "picks": make_pipeline(columns, Ridge()),
        "reads": make_pipeline(OneHotEncoder(handle_unknown="ignore"), Ridge()),
        "named": HistGradientBoostingRegressor(categorical_features=["few", "many", "ordered"]),
    }
    blend = regressor(members=list(members.items()), refit=False, cv=2)
    samples = blend._read_samples(frame, y, None, None)
    for model in members.values():
        assert samples.encoding(model) is model
    for model in (Ridge(), HistGradientBoostingRegressor(), ExtraTreesRegressor()):
        assert isinstance(samples.encoding(model), Pipeline)
    numbers = blend._read_samples(np.where(np.eye(200, 3), np.nan, 1.0), y, None, None)
    assert isinstance(numbers.encoding(Ridge()), Pipeline)
    trees = ExtraTreesRegressor()  # takes missing values
    assert numbers.encoding(trees) is trees


@pytest.mark.parametrize("kind", ["polars", "pyarrow", "objects"])
def test_encoded_columns_of_other_tables(kind):
    frame, y = mixed_table()
    frame = frame.astype({"few": object, "ordered": object})
    blend = regressor(members=[("linear", Ridge())]).fit(frame, y)
    if kind == "objects":
        table = frame.to_numpy(dtype=object)
    else:
        module = pytest.importorskip(kind)
        table = module.from_pandas(frame) if kind == "polars" else module.table(frame)
    other = regressor(members=[("linear", Ridge())]).fit(table, y)
    np.testing.assert_allclose(other.predict(table), blend.predict(frame))


def test_a_frozen_member_is_the_fitted_one():
    X, y = targets(200)
    model = Ridge().fit(X[:100], y[:100])
    blend = regressor(members=[FrozenEstimator(model)], cv=3)
    with pytest.warns(UserWarning, match="'FrozenEstimator' is frozen.*seen no row of X"):
        blend.fit(X[100:], y[100:])
    np.testing.assert_allclose(blend.predict(X), model.predict(X))


@pytest.mark.parametrize("wrap", [FrozenEstimator, lambda m: make_pipeline(FrozenEstimator(m))])
def test_a_frozen_member_reads_the_columns_that_it_was_fitted_on(wrap):
    frame, y = mixed_table()
    trees = ObliqueBoostingRegressor(5, n_bags=1, random_state=0).fit(frame[::2], y[::2])
    blend = regressor(members=[("trees", wrap(trees))], cv=3)
    with pytest.warns(UserWarning, match="'trees' is frozen"):
        blend.fit(frame[1::2], y[1::2])
    np.testing.assert_allclose(blend.predict(frame), trees.predict(frame))


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


def test_probabilities_may_be_negative_by_rounding():
    X, y = make_classification(120, random_state=0)
    member = Strange(lambda proba: np.where(proba == 0, -1e-9, proba))
    blend = BlendedForestClassifier([member], cv=3, calibrate=False).fit(X, y)
    np.testing.assert_allclose(blend.predict_proba(X), member.fit(X, y).predict_proba(X))


def test_members_with_several_quantiles_are_refused():
    X, y = make_friedman1(60, random_state=0)
    member = ObliqueBoostingRegressor(2, loss="quantile", quantile=[0.1, 0.9], n_bags=1)
    with pytest.raises(
        ValueError, match=r"'ObliqueBoosting' predicts an array of shape \(60, 2\)"
    ):
        BlendedForestRegressor([member], cv=2).fit(X, y)


def test_an_error_names_the_member():
    X, y = make_classification(60, random_state=0)
    blend = BlendedForestClassifier([("linear", LogisticRegression(C=-1))], cv=2)
    with pytest.raises(ValueError) as caught:
        blend.fit(X, y)
    assert "'linear'" in caught.value.__notes__[0]


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


@pytest.mark.parametrize(
    "members", [[("lr", LogisticRegression())], ["linear"]], ids=["lr", "linear"]
)
def test_weights_reach_encoded_members_with_metadata_routing(members):
    frame, target = mixed_table()
    y, weight = (target > np.median(target)).astype(int), 1 + 9 * (np.arange(200) % 3)
    for X in (frame, frame[["number"]].fillna(0.0)):
        blend = classifier(members=members)
        expected = clone(blend).fit(X, y, sample_weight=weight).predict_proba(X)
        with sklearn.config_context(enable_metadata_routing=True):
            found = clone(blend).fit(X, y, sample_weight=weight).predict_proba(X)
            balanced = clone(blend).set_params(class_weight="balanced").fit(X, y)
        np.testing.assert_array_equal(found, expected)
        assert abs(expected - clone(blend).fit(X, y).predict_proba(X)).max() > 0.01
        assert balanced.score(X, y) > 0.5


def test_stacking_has_probabilities_only_after_fit():
    X, y = classes()
    stack = StackingClassifier([("lr", LogisticRegression()), ("tree", DecisionTreeClassifier())])
    members = [("stack", stack), ("steps", make_pipeline(StandardScaler(), stack))]
    assert classifier(members=members).fit(X, y).score(X, y) > 0.8
    for member in (SVC(), make_pipeline(SVC())):
        with pytest.raises(ValueError, match="SVC.* has no predict_proba"):
            classifier(members=[("svc", member)]).fit(X, y)


def test_new_levels_of_columns_that_are_not_used_are_no_warning(recwarn):
    frame, y = mixed_table()
    frame["identifier"] = [f"row {i}" for i in range(200)]
    blend = regressor(members=["linear"]).fit(frame, y)
    said = [str(one.message) for one in recwarn]
    assert any("'identifier'" in text for text in said), said
    assert not any("only levels that were not in fit" in text for text in said)
    recwarn.clear()
    blend.predict(frame.assign(identifier=[f"new {i}" for i in range(200)]))
    assert not len(recwarn)


def test_out_of_bag_results_belong_to_the_last_fit():
    X, y = classes()
    model = BlendedForestClassifier(["manifold"], oob_score=True, random_state=0).fit(X, y)
    assert model.oob_score_ > 0.5
    model.set_params(oob_score=False).fit(X, y)
    assert not (hasattr(model, "oob_score_") or hasattr(model, "oob_decision_function_"))


@pytest.mark.parametrize("wrap", [make_pipeline, lambda model: GridSearchCV(model, {}, cv=2)])
def test_a_pipeline_or_search_around_a_forest_is_a_member_as_the_forest(wrap):
    """Boosting with several outputs has responses outside of 0 .. 1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    Y = np.column_stack([X[:, 0] + X[:, 1] > 0, X[:, 2] * X[:, 3] > 0]).astype(int)
    boosting = skforest.ObliqueBoostingClassifier(30, n_bags=1, learning_rate=0.5, random_state=0)
    members = [("boosting", wrap(boosting)), ManifoldForestClassifier(3)]
    blend = BlendedForestClassifier(members, cv=2, random_state=0).fit(X, Y)
    assert blend.weights_["boosting"] > 0
    explained = skforest.shapley_values(blend, X[:9], X[:20])
    total = explained.base_values + explained.values.sum(axis=1)
    expected = np.concatenate(blend.predict_proba(X[:9]), axis=1)
    np.testing.assert_allclose(total, expected, atol=1e-6)


@pytest.mark.parametrize(
    "member", [Ridge(), make_pipeline(StandardScaler(), skforest.CO2ForestRegressor(5))]
)
def test_predictors_of_other_members_take_float64(member):
    time = 1.7e9 + 3 * np.arange(200.0)  # float32 has steps of 128 seconds
    y = time - time[0]
    blend = BlendedForestRegressor([member], cv=3, random_state=0).fit(time[:, None], y)
    predictor = blend.predictor()
    assert predictor.dtype == np.float64
    rows = predictor.encode(time[:, None])
    np.testing.assert_array_equal(predictor(rows), blend.predict(time[:, None]))
    with pytest.raises(TypeError, match="float64, which a member of the blend from another"):
        predictor(rows.astype(np.float32))
