"""Training of every estimator: bootstrap samples, warm starts, limits of time."""

import pickle
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from makers import N_ROWS as N
from makers import (
    assert_same_trees,
    changed,
    hinge_rows,
    quick_boosting,
    quick_hinge,
    response,
    targets,
    task,
    training_rows,
)
from skforest._kernels.base.rows import tree_seed
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.metrics import r2_score

from skforest import (
    BlendedForestClassifier,
    E2EDecisionForestRegressor,
    HingeProcedure,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    NonGreedyTreeRegressor,
    ObliqueBoostingClassifier,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)
from skforest.forest.statistics import recount
from skforest.table.matrix import scaled
from skforest.table.training_set import TrainingSet
from skforest.training import threads
from skforest.training.method import Sampling

# ------------------------------------------------------------------- bootstrap, out of bag, growth


def drawn(model, X, y, weight=None):
    """Rows of the training set, and how often each tree drew them, from first principles."""
    codes = np.searchsorted(model.classes_, y) if is_classifier(model) else y
    weight = np.ones(len(X)) if weight is None else weight
    forest = model.forest_
    table = scaled(X, forest.offset, forest.scale) if len(forest.scale) else np.float32(X)
    rows = TrainingSet(table, np.float64(codes).reshape(len(X), -1), weight)
    n_trees = len(model.forest_)
    seeds = [tree_seed(model._seed, tree) for tree in range(n_trees)]
    return rows, [rows.bootstrap(seed, rows.n_copies().sum()) for seed in seeds]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.needs("min_weight_fraction_leaf")
def test_oob_score_by_hand(estimator, weighted):
    X, y = task(estimator)
    X, y = (
        np.concatenate([X, X[:30]]),
        np.concatenate([y, y[:30]]),
    )  # copies
    weight = np.ones(len(X))
    if weighted:
        weight = np.random.default_rng(0).integers(0, 4, len(X)) * 1.0
    estimator.set_params(oob_score=True, n_estimators=40).fit(X, y, weight if weighted else None)
    rows, counts = drawn(estimator, X, y, weight)
    total, n_trees = 0.0, 0
    for tree, count in zip(estimator.forest_, counts):
        out = ((1 - 1 / rows.n_copies()) ** count)[:, None]
        of_samples = tree.response(X)
        sample = [np.flatnonzero(rows.row_of_sample == row)[0] for row in range(len(rows))]
        total = total + of_samples[sample] * out
        n_trees = n_trees + out
    assert (n_trees > 0).all()
    expected = np.where(
        rows.row_of_sample[:, None] < 0, np.nan, (total / n_trees)[rows.row_of_sample]
    )
    seen = rows.row_of_sample >= 0
    assert seen.all() != weighted
    if is_classifier(estimator):
        np.testing.assert_allclose(estimator.oob_decision_function_, expected, rtol=1e-6)
        hits = expected[seen].argmax(axis=1) == y[seen]
        score = np.average(hits, weights=weight[seen])
    else:
        np.testing.assert_allclose(estimator.oob_prediction_, expected[:, 0], rtol=1e-5)
        score = r2_score(y[seen], expected[seen, 0], sample_weight=weight[seen])
    assert estimator.oob_score_ == pytest.approx(score, rel=1e-6)
    assert 0.4 < estimator.oob_score_ < estimator.score(X, y)


@pytest.mark.parametrize(
    "model",
    [
        ManifoldForestClassifier(50, oob_score=True, random_state=0),
        quick_boosting(ObliqueBoostingClassifier, n_bags=3, early_stopping=True),
        BlendedForestClassifier(
            [ManifoldForestClassifier(8)], oob_score=True, refit=False, random_state=0
        ),
    ],
    ids=["forest", "boosting", "blend"],
)
def test_scores_of_held_out_rows_are_those_of_new_rows_without_class_weights(model):
    """Weights of samples count, as in `score`."""
    X, y = task(ManifoldForestClassifier())
    weight = np.random.default_rng(0).integers(1, 4, size=len(y))
    model.set_params(class_weight={0: 1, 1: 1, 2: 9}).fit(X, y, weight)
    seen = ~np.isnan(model.oob_decision_function_[:, 0])
    hits, weight = (model.oob_decision_function_.argmax(axis=1) == y)[seen], weight[seen]
    assert model.oob_score_ == pytest.approx(np.average(hits, weights=weight))
    weighted = np.average(hits, weights=weight * np.where(y == 2, 9, 1)[seen])
    assert abs(model.oob_score_ - weighted) > 0.01


@pytest.mark.needs("min_weight_fraction_leaf")
def test_oob_score_of_noise_is_chance(classifier):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 4)), rng.integers(0, 2, 200)
    X, y = np.repeat(X, 3, axis=0), np.repeat(y, 3)
    classifier.set_params(oob_score=True, n_estimators=40).fit(X, y)
    assert classifier.score(X, y) > 0.9
    assert 0.35 < classifier.oob_score_ < 0.65


@pytest.mark.needs("min_weight_fraction_leaf")
def test_oob_of_several_outputs(regressor):
    X, y = targets(n_targets=3)
    regressor.set_params(oob_score=True, n_estimators=40).fit(X, y)
    assert regressor.oob_prediction_.shape == y.shape
    assert regressor.oob_score_ == pytest.approx(r2_score(y, regressor.oob_prediction_))


@pytest.mark.needs("min_weight_fraction_leaf")
def test_oob_with_too_few_trees_warns_and_is_nan(estimator):
    X, y = task(estimator)
    estimator.set_params(oob_score=True, n_estimators=1)
    with pytest.warns(UserWarning, match="do not have OOB scores"):
        estimator.fit(X, y)
    name = "oob_decision_function_" if is_classifier(estimator) else "oob_prediction_"
    found = getattr(estimator, name).reshape(len(X), -1)
    _, (count,) = drawn(estimator, X, y)
    assert np.isnan(found).any(axis=1).sum() == (count > 0).sum()
    assert np.isfinite(estimator.oob_score_)


@pytest.mark.needs("oob_score")
def test_oob_without_a_row_that_a_tree_left_out_is_refused(estimator):
    X, y = np.zeros((5, 2)), np.ones(5)  # one distinct row, which all trees draw
    estimator.set_params(oob_score=True, bootstrap=True)
    message = r"oob_score=True: each of the \d+ (trees|bags) drew all 1 distinct rows, .* max_sam"
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, y)
    assert not hasattr(estimator, "forest_") and not hasattr(estimator, "oob_score_")


def test_every_tree_has_a_bootstrap_of_its_own(estimator):
    X, y = task(estimator, 400)
    estimator.fit(X, y)
    _, counts = drawn(estimator, X, y)
    present = np.array(counts) > 0
    np.testing.assert_allclose(present.mean(axis=1), 1 - np.exp(-1), atol=0.08)
    overlap = (present.astype(int) @ present.T.astype(int)) / present.sum(axis=1)
    off = overlap[~np.eye(len(overlap), dtype=bool)]
    assert 0.55 < off.min() and off.max() < 0.71


@pytest.mark.parametrize(
    "value, n_draws", [(None, N), (0.25, 30), (1.0, N), (17, 17), (1, 1), (1e-3, 1)]
)
@pytest.mark.needs("min_weight_fraction_leaf")
def test_max_samples_is_the_number_of_draws(estimator, value, n_draws):
    X, y = task(estimator)
    estimator.set_params(max_samples=value).fit(X, y)
    roots = estimator.forest_.node_weight[estimator.forest_.tree_start[:-1]]
    np.testing.assert_array_equal(roots, np.full(10, n_draws))


@pytest.mark.needs("min_weight_fraction_leaf")
@pytest.mark.parametrize("share, count", [(0.021, 3), (0.05, 6), (1e-9, 1)])
def test_shares_of_rows_are_rounded_up(estimator, share, count):
    X, y = task(estimator)
    estimator.set_params(bootstrap=False, n_estimators=2)
    one = clone(estimator).set_params(min_samples_leaf=share).fit(X, y)
    assert_same_trees(one, clone(estimator).set_params(min_samples_leaf=count).fit(X, y))
    if "min_samples_split" not in estimator.get_params():
        return
    one = clone(estimator).set_params(min_samples_split=share).fit(X, y)
    assert_same_trees(one, clone(estimator).set_params(min_samples_split=max(count, 2)).fit(X, y))


@pytest.mark.needs("projection")
def test_a_decrease_of_impurity_is_a_mean_over_outputs_and_rows(regressor):
    """It depends neither on copies of outputs nor on weights, and has the squared unit of y."""
    X, y = task(regressor)
    own = {"bootstrap": False, "n_estimators": 2, "min_impurity_decrease": 0.05 * y.var()}
    plain = changed(clone(regressor), **own).fit(X, y)
    assert 2 < plain.forest_.n_leaves[0] < 30
    twice = clone(plain).fit(X, np.stack([y, y], axis=1), np.full(len(y), 4.0))
    np.testing.assert_array_equal(twice.apply(X), plain.apply(X))
    own["min_impurity_decrease"] *= 16
    scaled = changed(clone(regressor), **own).fit(X, 4 * y)
    np.testing.assert_array_equal(scaled.apply(X), plain.apply(X))


@pytest.mark.needs("min_weight_fraction_leaf")
def test_without_bootstrap_every_tree_sees_all_rows(estimator):
    X, y = task(estimator)
    estimator.set_params(bootstrap=False).fit(X, y)
    roots = estimator.forest_.node_weight[estimator.forest_.tree_start[:-1]]
    np.testing.assert_array_equal(roots, np.full(10, N))
    # Joint training may join leaves that were pure.
    exact = "finetune_epochs" not in estimator.get_params()
    assert estimator.score(X, y) == pytest.approx(1, abs=1e-9 if exact else 0.01)


@pytest.mark.thin(2)
@pytest.mark.every_class
def test_a_second_fit_leaves_nothing_of_the_first(estimator):
    """Of other rows, columns and labels; what few rows are predicted with is made again."""
    X, y = task(estimator)
    other = X[::-2, :4] * 3 + 1
    target = y[::-2] > np.median(y) if is_classifier(estimator) else y[::-2] * 5
    quick = {"n_estimators": 3, "max_iter": 40}
    estimator.set_params(**{k: v for k, v in quick.items() if k in estimator.get_params()})
    fresh = clone(estimator).fit(other, target)
    estimator.fit(X, y)
    response(estimator, X[:1]), estimator.apply(X[:3]), estimator.predictor()(np.float32(X))
    assert estimator.feature_importances_.shape == (6,)
    estimator.fit(other, target)
    for rows in (other[:1], other):
        np.testing.assert_array_equal(response(estimator, rows), response(fresh, rows))
        np.testing.assert_array_equal(estimator.predict(rows), fresh.predict(rows))
        np.testing.assert_array_equal(estimator.apply(rows), fresh.apply(rows))
    np.testing.assert_array_equal(
        estimator.predictor().predict(np.float32(other)), fresh.predict(np.float32(other))
    )
    np.testing.assert_array_equal(estimator.feature_importances_, fresh.feature_importances_)
    assert vars(estimator).keys() == vars(fresh).keys()


@pytest.mark.every_class
def test_the_weight_of_a_node_is_that_of_the_rows_that_reach_it(estimator):
    """Of distinct rows, for boosting, whose rows do not repeat in the tree of a round."""
    X, y = task(estimator)
    weight = np.random.default_rng(0).exponential(size=len(X)) + 0.01
    own = {"bootstrap": False, "subsample": 1.0, "max_iter": 40, "n_estimators": 3}
    own |= {"calibrate": False}  # which holds rows out
    estimator.set_params(**{k: v for k, v in own.items() if k in estimator.get_params()})
    forest = estimator.fit(X, y, weight).forest_
    path, _ = estimator.decision_path(X)
    counts = "subsample" in estimator.get_params()
    expected = path.T @ (np.ones(len(X)) if counts else weight)
    np.testing.assert_allclose(forest.node_weight, expected, rtol=1e-9)


def test_random_state(estimator):
    X, y = task(estimator)

    def trained(state):
        return response(clone(estimator).set_params(random_state=state).fit(X, y), X)

    np.testing.assert_array_equal(trained(3), trained(3))
    assert not np.array_equal(trained(3), trained(4))
    np.testing.assert_array_equal(
        trained(np.random.RandomState(5)), trained(np.random.RandomState(5))
    )
    state = np.random.RandomState(5)
    estimator.set_params(random_state=state)
    first = response(estimator.fit(X, y), X)
    assert not np.array_equal(first, response(estimator.fit(X, y), X))  # the state has changed
    assert not np.array_equal(trained(None), trained(None))


def test_trees_of_a_forest_differ(estimator):
    X, y = task(estimator)
    forest = estimator.fit(X, y).forest_
    seen = Counter(tree.threshold.tobytes() for tree in forest)
    assert len(seen) == len(forest)


# -------------------------------------------------------------------------------------- warm start


@pytest.mark.every_class
@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB")
@pytest.mark.needs("min_weight_fraction_leaf")
def test_warm_start_gives_the_forest_of_one_fit(estimator):
    X, y = task(estimator)
    estimator.set_params(oob_score=True, n_estimators=30)
    whole = clone(estimator).fit(X, y)
    steps = clone(estimator).set_params(warm_start=True)
    for n_estimators in (12, 13, 30):
        steps.set_params(n_estimators=n_estimators).fit(X, y)
        assert len(steps.forest_) == n_estimators
    assert_same_trees(steps, whole)
    np.testing.assert_array_equal(response(steps, X), response(whole, X))
    assert steps.oob_score_ == whole.oob_score_


@pytest.mark.needs("min_weight_fraction_leaf")
def test_warm_start_with_a_generator_as_random_state(estimator):
    X, y = task(estimator)
    whole = clone(estimator).set_params(random_state=np.random.RandomState(0)).fit(X, y)
    steps = clone(estimator).set_params(random_state=np.random.RandomState(0), warm_start=True)
    for n_estimators in (4, 10):
        steps.set_params(n_estimators=n_estimators).fit(X, y)
    assert_same_trees(steps, whole)


@pytest.mark.needs("min_weight_fraction_leaf")
def test_warm_start_with_fewer_trees(estimator):
    X, y = task(estimator)
    estimator.set_params(warm_start=True).fit(X, y)
    before = response(estimator, X)
    with pytest.raises(ValueError, match="n_estimators=4 .*10 .*warm_start"):
        estimator.set_params(n_estimators=4).fit(X, y)
    np.testing.assert_array_equal(response(estimator, X), before)


@pytest.mark.needs("min_weight_fraction_leaf")
def test_warm_start_with_as_many_trees_warns_and_keeps_them(estimator):
    X, y = task(estimator)
    estimator.set_params(warm_start=True).fit(X, y)
    before = response(estimator, X)
    with pytest.warns(UserWarning, match="without increasing n_estimators") as warned:
        estimator.fit(X, y)
    assert warned[0].filename == __file__  # not a line of the package, or of its decorators
    # Python drops warnings of code without a name.
    exec("estimator.fit(X, y)", {"estimator": estimator, "X": X, "y": y, "__name__": None})
    np.testing.assert_array_equal(response(estimator, X), before)


@pytest.mark.needs("bootstrap", "oob_score")
def test_warm_start_with_as_many_trees_keeps_the_out_of_bag_score(estimator):
    X, y = task(estimator)
    estimator.set_params(warm_start=True, bootstrap=True, oob_score=True).fit(X, y)
    before = estimator.oob_score_
    with pytest.warns(UserWarning, match="without increasing n_"):
        estimator.fit(X, y)
    assert estimator.oob_score_ == before


@pytest.mark.needs("min_weight_fraction_leaf")
def test_warm_start_refuses_other_data(estimator):
    X, y = task(estimator)
    estimator.set_params(warm_start=True).fit(X, y)
    estimator.set_params(n_estimators=12)
    with pytest.raises(ValueError, match="X has 4 features.*expecting 6"):
        estimator.fit(X[:, :4], y)
    if is_classifier(estimator):
        with pytest.raises(ValueError, match="classes.*warm_start"):
            estimator.fit(X, y % 2)
    else:
        with pytest.raises(ValueError, match="2 outputs.*warm_start"):
            estimator.fit(X, np.column_stack([y, y]))
    assert len(estimator.forest_) == 10
    assert estimator.fit(X, y).score(X, y) > 0.8


@pytest.mark.needs("min_weight_fraction_leaf")
def test_warm_start_on_more_data(estimator):
    X, y = task(estimator)
    first = clone(estimator).fit(X[:60], y[:60])
    estimator.set_params(warm_start=True).fit(X[:60], y[:60])
    estimator.set_params(n_estimators=20).fit(X, y)
    assert len(estimator.forest_) == 20
    np.testing.assert_array_equal(estimator.forest_[:10].response(X), first.forest_.response(X))
    assert estimator.score(X[60:], y[60:]) > first.score(X[60:], y[60:])


@pytest.mark.needs("min_weight_fraction_leaf")
def test_warm_start_on_targets_of_another_scale(regressor):
    X, y = targets()
    regressor.set_params(warm_start=True).fit(X, y)
    regressor.set_params(n_estimators=40).fit(X, 1000 * y)
    # 30 trees of the second scale, 10 of the first.
    assert r2_score(750 * y, regressor.predict(X)) > 0.8


def test_without_warm_start_a_second_fit_starts_anew(estimator):
    X, y = task(estimator)
    other_X, other_y = task(estimator, seed=7)
    estimator.fit(other_X[:, :4], other_y).fit(X, y)
    assert_same_trees(estimator, clone(estimator).fit(X, y))


# -------------------------------------------------------------------------------------- outliers


@pytest.mark.every_class
def test_wrong_values_do_not_erase_a_column(regressor):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = X[:, 0] + X[:, 1] ** 2
    train, test = slice(0, 300), slice(300, 600)
    clean = regressor.fit(X[train], y[train]).score(X[test], y[test])
    for rows, value in ((5, 1000.0), (5, -(2.0**31)), (slice(0, 300, 50), -999.0)):
        wrong = X.copy()
        wrong[rows, 1] = value
        assert regressor.fit(wrong[train], y[train]).score(X[test], y[test]) > clean - 0.15, value


# ------------------------------------------------------------------------------------ time limits

ENDLESS = {"n_estimators": 10**6, "max_iter": 10**8, "early_stopping": False}


@pytest.mark.every_class
@pytest.mark.usefixtures("interruptible")  # ends what a limit does not
def test_training_ends_in_time(estimator):
    """With what is trained by then, at least one tree, and a warning that says so."""
    own = {name: value for name, value in ENDLESS.items() if name in estimator.get_params()}
    if "max_iter" in own:
        del own["n_estimators"]  # those of a bag
    X, y = task(estimator)
    with pytest.warns(UserWarning, match=r"time_limit=0.1: .*\d of \d+ (trees|rounds|steps)"):
        model = estimator.set_params(time_limit=0.1, **own).fit(X, y)
    assert len(model.forest_) >= 1 and np.isfinite(response(model, X)).all()
    assert "_time_limit" not in vars(model)


def test_a_limit_that_is_not_reached_changes_nothing(estimator):
    X, y = task(estimator)
    free = clone(estimator).fit(X, y)
    assert_same_trees(estimator.set_params(time_limit=600).fit(X, y), free)


@pytest.mark.parametrize("cls", [RandomHingeForestClassifier, RandomHingeForestRegressor])
@pytest.mark.parametrize("how", ["held out", "X_val"])
def test_early_stopping_with_a_limit_that_is_not_reached(cls, how):
    X, y = hinge_rows(cls)
    given = {"X_val": X[100:], "y_val": y[100:]} if how == "X_val" else {}
    procedure = HingeProcedure(early_stopping=True)
    model = quick_hinge(cls, **{} if given else {"procedure": procedure}).fit(
        X[:100], y[:100], **given
    )
    limited = clone(model).set_params(time_limit=500).fit(X[:100], y[:100], **given)
    np.testing.assert_array_equal(limited.predict(X), model.predict(X))


def test_the_trees_that_a_limit_left_out_are_added_later():
    X, y = targets()
    model = ManifoldForestRegressor(30, warm_start=True, random_state=0)
    with pytest.warns(UserWarning, match="time_limit=1e-09: 1 of 30 trees"):
        model.set_params(time_limit=1e-9).fit(X, y)
    whole = clone(model).set_params(time_limit=None).fit(X, y)
    assert_same_trees(model.set_params(time_limit=None).fit(X, y), whole)


class Clock:
    """A false clock of one process."""

    now, wall = 100.0, 5000.0

    def perf_counter(self):
        return self.now

    def time(self):
        return self.wall


def test_limits_of_time_by_a_clock_of_their_own(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(threads, "time", clock)
    limit = threads.TimeLimit.of(10.0, 98.0)
    assert limit.left() == 8 and limit.part(0.25).left() == 2
    sooner = threads.TimeLimit.of(10.0, 95.0)
    assert threads.earlier(limit, sooner) is threads.earlier(sooner, limit) is sooner
    assert threads.earlier(None, limit) is threads.earlier(limit, None) is limit
    # The clock of another process has another zero.
    stored = pickle.dumps(limit)
    clock.now, clock.wall = 7.0, 5003.0
    assert pickle.loads(stored).left() == pytest.approx(5)
    # The member that took longest says whether there is time for another one.
    clock.now, limit.at_least = 98.0, 1
    seconds = {0: 4.0, 1: 1.0, 2: 2.0, 3: 1.0}

    def train(member, control):
        clock.now += seconds[member]
        return member

    train = threads.until_late(train, range(4), limit)
    assert [train(member, None) for member in range(4)] == [0, 1, 2, None]
    records = [{"ended": (7, 9, "round")}, {"ended": (3, 9, "round")}, {}]
    assert limit.report(3, 4, "bag", records) == (
        "time_limit=10: 3 of 4 bags, 3 of 9 rounds of a bag"
    )
    limit.least, clock.now = 0.5, 104.0
    limit.check(8.0)
    with pytest.raises(threads.NotInTime):
        limit.check(8.1)


def test_every_output_is_balanced_by_the_rows_that_were_drawn():
    rng = np.random.default_rng(0)
    codes = np.stack([rng.choice([0, 2], 50, p=[0.8, 0.2]), rng.integers(0, 2, 50)], axis=1)
    weight = rng.exponential(size=50)  # as they are drawn without a bootstrap
    data = SimpleNamespace(y=codes.astype(float), weight=weight, sample=lambda found: found)
    expected = weight
    for column, n_present in zip(codes.T, (2, 2)):  # no row has class 1 of the first output
        total = np.bincount(column, weight)
        expected = expected * weight.sum() / (n_present * total[column])
    np.testing.assert_allclose(Sampling(balanced=(3, 2)).sample(data, 0), expected)


@pytest.mark.parametrize("cls", [ManifoldForestClassifier, ManifoldForestRegressor])
def test_gains_and_weights_of_nodes_are_those_of_all_rows(cls):
    model = cls(1, bootstrap=False, min_weight_fraction_leaf=0.08, random_state=0)
    X, y = task(model)
    weight = 50 * np.random.default_rng(0).exponential(size=N)
    forest = model.fit(X, y, weight).forest_
    data = training_rows(model, X, y, weight)
    counted = recount(forest, data, model._criterion)
    np.testing.assert_allclose(forest.node_weight, counted.node_weight)
    np.testing.assert_allclose(forest.gain, counted.gain, rtol=1e-4, atol=1e-5 * forest.gain[0])
    leaves = forest.node_weight[forest.child < 0]
    assert 0.08 * data.weight.sum() <= leaves.min() < 0.3 * data.weight.sum()
    assert len(leaves) > 4


def test_class_weights_count_in_the_deviations_of_columns():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 10 == 0
    X = rng.normal(size=(200, 3)) * np.where(y, 5, 1)[:, None]
    model = ManifoldForestClassifier(1, projection="sparse", random_state=0)
    given = clone(model).fit(X, y, np.where(y, 9, 1)).forest_.deviation
    found = clone(model).set_params(class_weight={False: 1, True: 9}).fit(X, y).forest_.deviation
    np.testing.assert_allclose(found, given, rtol=1e-6)
    assert (found > 1.5 * model.fit(X, y).forest_.deviation).all()


def test_limits_of_time_of_any_type_have_all_digits():
    for seconds in (np.float32(0.5), np.float16(0.5), 0.5):
        assert float(threads.TimeLimit.of(seconds, 1e9).deadline) == 1e9 + 0.5


class NarrowTree(NonGreedyTreeRegressor):
    """A subclass whose constructor has few parameters."""

    def __init__(self, max_depth=2):
        super().__init__(max_depth=max_depth, random_state=0)


class NarrowForest(E2EDecisionForestRegressor):
    """A subclass whose constructor has few parameters."""

    def __init__(self, max_depth=2):
        super().__init__(2, max_depth=max_depth, random_state=0)


@pytest.mark.parametrize("narrow", [NarrowTree, NarrowForest])
def test_subclasses_with_fewer_parameters(narrow):
    X, y = targets()
    model = narrow().fit(X, y)
    wide = narrow.__base__(max_depth=2, random_state=0)
    if narrow is NarrowForest:
        wide.set_params(n_estimators=2)
    np.testing.assert_array_equal(model.predict(X), wide.fit(X, y).predict(X))


def test_attributes_of_patches_belong_to_the_last_fit():
    X, y = make_classification(60, 6, random_state=0)
    model = ManifoldForestClassifier(1, feature_shape=(2, 3)).fit(X, y)
    assert model.max_patch_ is not None
    assert not hasattr(model.set_params(feature_shape=None).fit(X, y), "max_patch_")
