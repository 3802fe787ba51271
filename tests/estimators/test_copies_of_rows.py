"""A weight of k is k copies of a row, for every estimator."""

import numpy as np
import pytest
from makers import response, task
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from sklearn.base import is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.metrics import log_loss, mean_pinball_loss
from sklearn.tree import DecisionTreeClassifier

import skforest
from skforest import BlendedForestClassifier, ManifoldForestClassifier, ManifoldForestRegressor
from skforest.table.copies import MAX_COPIES
from skforest.table.training_set import (
    TrainingSet,
    check_sample_weight,
    rescale_weights,
)
from skforest.training.early_stopping import validation_mask
from skforest.training.method import Sampling


@pytest.mark.parametrize(
    "estimator",
    [
        skforest.ObliqueBoostingClassifier(20, random_state=0),
        skforest.RandomHingeForestClassifier(5, n_bags=2, max_iter=50, random_state=0),
        skforest.BlendedForestClassifier(
            [skforest.CO2ForestClassifier(10), ManifoldForestClassifier(10)], random_state=0
        ),
    ],
    ids=["boosting", "hinge", "blend"],
)
def test_weights_are_copies_of_rows_with_several_targets(estimator):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(300, 3)).astype(float)
    y = (rng.random(300) < 0.2 + 0.25 * X[:, 0]).astype(int)
    rows, weight = np.unique(np.c_[X, y], axis=0, return_counts=True)
    expected = estimator.fit(X, y).predict_proba(X)
    found = estimator.fit(rows[:, :3], rows[:, 3], sample_weight=weight).predict_proba(X)
    assert_array_equal(found, expected)


def test_members_of_other_packages_see_other_copies_of_a_row():
    """A blend that holds out all copies of a row would prefer the member that knows no feature."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(400, 3)).astype(float)
    y = (rng.random(400) < 0.2 + 0.6 * X[:, 0]).astype(int)
    members = [("none", DummyClassifier()), ("tree", DecisionTreeClassifier())]
    blend = skforest.BlendedForestClassifier(members, random_state=0).fit(X, y)
    assert blend.weights_["tree"] > 0.7


@pytest.mark.thin(2)
@pytest.mark.every_class
def test_a_factor_of_all_weights_has_no_effect(estimator):
    X, y = task(estimator, 60)
    expected = response(estimator.fit(X, y), X)
    for factor in (0.1, 3.0, 1e7):
        weighted = estimator.fit(X, y, sample_weight=np.full(60, factor))
        assert_array_equal(response(weighted, X), expected)
    assert_array_equal(response(estimator.fit(np.tile(X, (3, 1)), np.tile(y, 3)), X), expected)
    weight = 2 + np.arange(60) % 3
    expected = response(estimator.fit(X, y, sample_weight=weight), X)
    assert_array_equal(response(estimator.fit(X, y, sample_weight=weight / 7), X), expected)


@pytest.mark.parametrize("weight, expected", [
    ([0.1, 0.1 + 0.2, 0, 0.7], [1, 3, 0, 7]),
    ([1e300, 1.5e300], [2, 3]),
    ([6, 9], [2, 3]),
    ([1, np.pi, 7], [1, np.pi, 7]),
    ([2.0**-90, np.pi * 2.0**-90], [0.25, np.pi / 4]),
    ([1, 2.0**40], [1, 2.0**40]),
])  # fmt: skip
def test_weights_are_whole_multiples_where_they_can_be(weight, expected):
    assert_array_equal(rescale_weights(np.array(weight, dtype=float)), expected)


def test_one_weight_for_all_rows():
    assert_array_equal(check_sample_weight(2.5, 3), [2.5, 2.5, 2.5])
    assert_array_equal(check_sample_weight(None, 2), [1, 1])
    with pytest.raises(ValueError, match="own is all zero"):
        check_sample_weight(0.0, 3, "own")


def test_copies_of_rows_with_several_targets():
    X = np.array([[0], [0], [0], [1], [1], [2], [2]], dtype=np.float32)
    y = np.array([0, 0, 1, 0, 0, 1, 0])[:, None].astype(float)
    # Further rows, of one target and one copy, carry nearly all of the weight.
    X = np.concatenate([X, np.arange(3, 1503, dtype=np.float32)[:, None]])
    y = np.concatenate([y, np.zeros((1500, 1))])
    further = np.repeat(5.0, 1500)
    for unit in (1, 0.1):
        data = TrainingSet(X, y, unit * np.array([1, 2, 1, 1, 1, 1, 300.0, *further]))
        copies, row = data.in_copies()
        assert_array_equal(copies.y[:, 0], data.y[row, 0])
        assert_array_equal(copies.X, data.X[row])
        assert_allclose(np.bincount(row, copies.weight), data.weight)
        # Weights of classes are not copies.
        weighted, other_row = data.with_weight(data.weight * (1 + 1.5 * data.y[:, 0])).in_copies()
        assert_array_equal(other_row, row)
        # In a unit in which they are whole.
        assert_allclose(weighted.weight, 2 * copies.weight * (1 + 1.5 * copies.y[:, 0]))
        assert {(*x, *t): n for x, t, n in zip(data.X, data.y, np.bincount(row))} == {
            (0, 0): 3, (0, 1): 1, (1, 0): 1, (2, 0): MAX_COPIES, (2, 1): 1,
        } | {(x, 0): 1 for x in range(3, 1503)}  # fmt: skip
    unique, row = TrainingSet(X[:3], y[:3] * 0, np.ones(3)).in_copies()
    assert len(unique) == len(row) == 1


@pytest.mark.parametrize("unit", [1, 3, 2.0**-900])
def test_copies_of_rows_that_repeat(unit):
    """Those of a random sample are held out one by one; weights that say how much rows matter
    are not copies."""
    rng = np.random.default_rng(0)
    X, y = np.arange(400, dtype=np.float32)[:, None], rng.integers(0, 2, size=(400, 1)) * 1.0
    ones = np.full(400, float(unit))

    def numbers(weight, y=y, **options):
        data = TrainingSet(X, y, weight)
        copies, row = data.in_copies(**options)
        found = np.bincount(row)
        assert_array_equal(np.bincount(row, copies.weight), data.weight)
        assert_array_equal(copies.X, data.X[row])
        return found[np.argsort(data.X[:, 0])]

    repeated = ones * np.where(rng.random(400) < 0.2, rng.integers(2, 5, size=400), 1)
    expected = repeated / unit
    assert_array_equal(numbers(repeated), expected)
    assert_array_equal(numbers(repeated, y=rng.normal(size=(400, 1))), expected)  # real targets
    assert numbers(np.where(X[:, 0] == 7, 300 * unit, repeated))[7] == MAX_COPIES
    assert (numbers(repeated, also_repeated=False) == 1).all()
    # The second class has more weight, even if it is rare.
    for rare in (0.1, 0.01):
        label = (rng.random((400, 1)) < rare) * 1.0
        weight = np.where(label[:, 0] == 1, 5 * unit, repeated)
        assert_array_equal(numbers(weight, y=label), np.where(label[:, 0] == 1, 1, expected))
    for weight in (
        ones,
        ones * rng.integers(1, 5, size=400),
        np.where(np.arange(400) == 3, 1e30 * unit, repeated),  # more than a table has
        repeated * np.where(np.arange(400) == np.argmin(repeated), 1.5, 1),
        unit * np.bincount(rng.integers(0, 400, 400), minlength=400),  # a bootstrap sample
    ):
        used = weight > 0
        assert (numbers(weight)[: used.sum()] == 1).all()


def test_copies_of_rows_of_few_categories():
    """If new rows are like them by nature, those of a single target have copies, too."""
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 3, size=(2000, 4)).astype(np.float32)
    once, count = np.unique(cells, axis=0, return_counts=True)
    target = rng.integers(0, 2, size=(len(once), 1)).astype(float)

    def numbers(X, y, weight):
        data = TrainingSet(X, y, weight)
        n_copies, is_sparse = data.n_copies(), TrainingSet(csr_matrix(X), y, weight).n_copies()
        assert_array_equal(np.sort(n_copies), np.sort(is_sparse))
        return dict(zip(map(tuple, np.hstack([data.X, data.y])), n_copies))

    rows = np.hstack([once, target])
    expected = dict(zip(map(tuple, rows), count))
    assert numbers(once, target, count * 1.0) == expected
    # Each row is one if the columns have more values, as in a table of numbers with weights.
    noise = np.arange(len(once), dtype=np.float32)[:, None]
    assert set(numbers(np.hstack([once, noise]), target, np.minimum(count, 9.0)).values()) == {1}
    # In a bootstrap sample of distinct rows, too.
    drawn = rng.multinomial(len(once), np.full(len(once), 1 / len(once))).astype(float)
    assert set(numbers(once, target, drawn).values()) == {1}
    # Some rows with several targets tell that all rows repeat, if there are few values.
    for n, n_others, has_copies in ((20, 0, False), (20, 1, True), (21, 1, False)):
        X, y = np.arange(n, dtype=np.float32)[:, None], np.zeros((n, 1))
        both = np.concatenate([X, X[:n_others]]), np.concatenate([y, y[:n_others] + 1])
        found = numbers(*both, np.append(np.full(n, 9.0), np.ones(n_others + 1))[: n + n_others])
        assert found[n - 1, 0] == (9 if has_copies else 1)


@pytest.mark.parametrize("weight", [3, 30])
def test_weights_of_numbers_are_not_copies(weight):
    """Noise would be known otherwise, since copies of held-out rows are trained on."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(500, 4)), rng.integers(0, 2, 500)
    X, y = np.concatenate([X, X[:25]]), np.concatenate([y, 1 - y[:25]])
    given = rng.integers(1, 2 * weight, 525)
    forest = ManifoldForestClassifier(30, bootstrap=True, oob_score=True, random_state=0)
    boosting = skforest.ObliqueBoostingClassifier(50, random_state=0)
    for model in (forest, boosting):
        assert model.fit(X, y, sample_weight=given).oob_score_ < 0.62


def test_out_of_bag_scores_of_few_trees_where_rows_repeat():
    """Copies that a tree drew do not count; on noise, they made .55 of the score."""
    rng, scores = np.random.default_rng(0), []
    for seed in range(20):
        X, y = rng.integers(0, 3, size=(600, 3)).astype(float), rng.integers(0, 2, 600)
        model = ManifoldForestClassifier(1, oob_score=True, random_state=seed)
        scores.append(model.fit(X, y).oob_score_)
    assert 0.46 < np.mean(scores) < 0.52


OF_CELLS = [
    skforest.ObliqueBoostingClassifier(300, n_bags=2, random_state=0),
    skforest.RandomHingeForestClassifier(random_state=0),
    ManifoldForestClassifier(50, oob_score=True, random_state=0),
    skforest.CO2ForestClassifier(10, bootstrap=True, oob_score=True, random_state=0),
    BlendedForestClassifier(
        [skforest.ObliqueBoostingClassifier(100, n_bags=2), ManifoldForestClassifier(50)],
        oob_score=True,
        random_state=0,
    ),
    pytest.param(skforest.ObliqueBoostingClassifier(random_state=0), marks=pytest.mark.slow),
    pytest.param(
        BlendedForestClassifier(
            [skforest.ObliqueBoostingClassifier(), ManifoldForestClassifier(50)],
            oob_score=True,
            random_state=0,
        ),
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.thin(2)
@pytest.mark.parametrize("noise", [0, 0.1, 1])
@pytest.mark.parametrize("estimator", OF_CELLS, ids=lambda estimator: type(estimator).__name__)
def test_cells_with_one_label_are_held_out_in_copies(estimator, noise, monkeypatch):
    """Otherwise, nothing like a held-out row would be among those that are trained on."""
    monkeypatch.setattr("skforest.training.trials.IMPORTANCE_TREES", 50)  # as for users
    rng = np.random.default_rng(0)
    kinds = rng.random((3, 3, 3, 4))
    truth = np.where(kinds < noise, 0.3, kinds > (1 + noise) / 2)

    def rows(n):
        X = np.stack([rng.integers(0, k, size=n) for k in truth.shape], axis=1)
        return X.astype(float), (rng.random(n) < truth[tuple(X.T)]).astype(int)

    (X, y), (X_new, y_new) = rows(3000), rows(3000)
    model = estimator.fit(X, y)
    expected = log_loss(y_new, truth[tuple(X_new.astype(int).T)])
    assert log_loss(y_new, model.predict_proba(X_new)) < expected + 0.03
    if hasattr(model, "oob_score_"):
        assert model.oob_score_ == pytest.approx(model.score(X_new, y_new), abs=0.03)


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "estimator",
    [
        ManifoldForestClassifier(50, oob_score=True, random_state=0),
        skforest.CO2ForestClassifier(10, bootstrap=True, oob_score=True, random_state=0),
        skforest.RandomHingeForestClassifier(bootstrap=True, oob_score=True, random_state=0),
        skforest.E2EDecisionForest(5, bootstrap=True, oob_score=True, random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_out_of_bag_scores_where_rows_repeat(estimator):
    """A row is not only predicted by the trees that drew none of its copies, but other labels."""
    rng = np.random.default_rng(1)
    truth = rng.choice([0.1, 0.9], size=(4, 4, 4))
    X = rng.integers(0, 4, size=(1200, 3))
    y = (rng.random(1200) < truth[tuple(X.T)]).astype(int)
    model = estimator.fit(X[:600], y[:600])
    assert model.oob_score_ == pytest.approx(model.score(X[600:], y[600:]), abs=0.05)
    covered = model.predict_set(X[600:])[np.arange(600), y[600:]].mean()
    assert 0.85 < covered < 0.95


def test_shares_of_copies_that_are_not_drawn():
    X = np.repeat(np.arange(2, dtype=np.float32), 3)[:, None]
    y = np.array([0, 0, 1, 0, 1, 1])[:, None].astype(float)
    data, sampling = TrainingSet(X, y, np.ones(6)), Sampling(bootstrap=True)
    drawn = sampling.drawn(data, 5)
    assert drawn.sum() == data.n_copies().sum() == 6
    expected = np.where(data.count == 1, drawn == 0, 0.5**drawn)
    assert_array_equal(sampling.share_left(data, 5), expected)


def test_bootstrap_samples_draw_copies():
    """Four distinct rows are not enough to see the rarest one."""
    rng = np.random.default_rng(0)
    X = (rng.random((5000, 1)) < 0.02).astype(float)
    y = (rng.random(5000) < np.where(X[:, 0], 0.9, 0.1)).astype(int)
    model = ManifoldForestClassifier(30, random_state=0)
    found = model.fit(X, y).predict_proba([[0.0], [1.0]])[:, 1]
    assert_allclose(found, [y[X[:, 0] == value].mean() for value in (0, 1)], atol=0.05)
    # In the folds of a blend, copies of a row that are in one fold are a row.
    blend = BlendedForestClassifier([model], random_state=0)
    samples = blend._read_samples(X, y, np.ones(5000), None)
    (member,) = blend._new_members(np.random.RandomState(0))
    member.begin(samples)
    of_folds = np.bincount(member.row, member.in_folds.n_copies())
    assert len(member.row) > len(of_folds) == len(member.data) == 4
    assert_array_equal(of_folds, member.data.n_copies())


QUANTILE = {"loss": "quantile", "quantile": 0.95, "random_state": 0}


@pytest.mark.parametrize(
    "estimator, given",
    [
        (skforest.ObliqueBoostingRegressor(100, n_bags=2, **QUANTILE), False),
        (skforest.ObliqueBoostingRegressor(100, n_bags=2, **QUANTILE), True),
        (
            skforest.ObliqueBoostingRegressor(
                100, early_stopping=False, subsample=1.0, **QUANTILE
            ),
            False,
        ),
        (skforest.RandomHingeForestRegressor(n_bags=2, max_iter=500, **QUANTILE), False),
        (skforest.RandomHingeForestRegressor(n_bags=2, max_iter=500, **QUANTILE), True),
    ],
    ids=["boosting", "boosting, X_val", "boosting, all rows", "hinge", "hinge, X_val"],
)
def test_quantiles_where_rows_repeat(estimator, given):
    """Levels are those of all copies, also among `X_val` and in samples of all rows."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, size=(8000, 1)).astype(float)
    y = rng.poisson(np.exp(X[:, 0] - 1)).astype(float)
    validation = {"X_val": X[2000:4000], "y_val": y[2000:4000]} if given else {}
    predicted = estimator.fit(X[:2000], y[:2000], **validation).predict(X[4000:])
    best = np.array([np.quantile(y[X[:, 0] == cell], 0.95) for cell in range(4)])
    loss, least = (
        mean_pinball_loss(y[4000:], each, alpha=0.95)
        for each in (predicted, best[X[4000:, 0].astype(int)])
    )
    assert loss < 1.25 * least


@pytest.mark.parametrize("given", [False, True])
def test_samples_of_rows_that_occur_often_keep_the_frequencies_of_targets(given):
    """Without held-out rows, too; a sample of four rows would often be without one of them."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(1000, 1)).astype(float)
    y = (rng.random(1000) < 0.12 + 0.41 * X[:, 0]).astype(int)
    expected = [y[X[:, 0] == value].mean() for value in (0, 1)]
    model = skforest.ObliqueBoostingClassifier(100, early_stopping=given, random_state=0)
    model.fit(X, y, **({"X_val": X, "y_val": y} if given else {}))
    assert_allclose(model.predict_proba([[0.0], [1.0]])[:, 1], expected, atol=0.02)


def test_weights_of_classes_do_not_change_what_is_a_copy():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(90, 6)).astype(float)
    y = (rng.random(90) < 0.3 + 0.4 * X[:, 0]).astype(int)
    weight = np.where(rng.random(90) < 0.9, 1, 50)
    row = np.repeat(np.arange(90), weight)
    model = skforest.ObliqueBoostingClassifier(10, class_weight="balanced", random_state=0)
    expected = model.fit(X[row], y[row]).predict_proba(X)
    assert_array_equal(model.fit(X, y, sample_weight=weight).predict_proba(X), expected)


@pytest.mark.parametrize(
    "estimator",
    [
        skforest.ObliqueBoostingRegressor(5, random_state=0),
        skforest.RandomHingeForestRegressor(
            2,
            loss="quantile",
            max_iter=50,
            random_state=0,
            procedure=skforest.HingeProcedure(early_stopping=True),
        ),
        skforest.BlendedForestRegressor(
            [
                (
                    "hinge",
                    skforest.RandomHingeForestRegressor(
                        2, loss="quantile", max_iter=20, random_state=0
                    ),
                ),
                ("manifold", ManifoldForestRegressor(4, random_state=0)),
            ],
            random_state=0,
        ),
    ],
    ids=["boosting", "quantiles", "blend"],
)
def test_copies_of_copies_are_not_made(estimator):
    """Where rows are held out twice, for early stopping and for a choice or a calibration."""
    rng = np.random.default_rng(30)
    X = rng.normal(size=(100, 4)).astype(np.float32)
    y = X.sum(axis=1) + rng.normal(size=100)
    weight = np.where(rng.random(100) < 0.9, 1, 250)
    row = np.repeat(np.arange(100), weight)
    expected = estimator.fit(X[row], y[row]).predict(X)
    assert_array_equal(estimator.fit(X, y, sample_weight=weight).predict(X), expected)
    assert_array_equal(estimator.fit(X, y, sample_weight=32 * weight).predict(X), expected)
    data = TrainingSet(X, y[:, None], 32.0 * weight)
    once, _ = data.in_copies()
    twice, row = once.in_copies()
    assert len(row) == len(twice) == len(once) > len(data)


def test_rows_that_repeat_are_learned():
    """Held-out copies show that what is noise for other rows can be known."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = (X[:, 0] + rng.normal(size=600) > 0).astype(int)
    drawn = np.concatenate([np.arange(600), rng.integers(0, 600, 190)])
    new = rng.integers(0, 600, 300)
    model = skforest.ObliqueBoostingClassifier(300, n_bags=2, random_state=0)
    once, n_rounds = model.fit(X, y).score(X[new], y[new]), sum(model.n_iter_)
    assert model.fit(X[drawn], y[drawn]).score(X[new], y[new]) > once + 0.05
    assert sum(model.n_iter_) > 2 * n_rounds


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "estimator",
    [
        skforest.ObliqueBoostingClassifier(random_state=0),
        skforest.ObliqueBoostingClassifier(n_bags=1, random_state=0),
        skforest.ObliqueBoostingRegressor(random_state=0),
        skforest.RandomHingeForestClassifier(random_state=0),
        skforest.RandomHingeForestClassifier(
            random_state=0, procedure=skforest.HingeProcedure(early_stopping=True)
        ),
        skforest.BlendedForestClassifier(
            [skforest.ObliqueBoostingClassifier(100, n_bags=2), ManifoldForestClassifier(20)],
            random_state=0,
        ),
    ],
    ids=["bags", "one bag", "regressor", "hinge", "hinge, early stopping", "blend"],
)
@pytest.mark.parametrize("n_features", [2, 3])
def test_copies_of_rows_are_held_out_one_by_one(estimator, n_features, monkeypatch):
    """The copies of a row are one row: without it, its X would have the other labels only."""
    monkeypatch.setattr("skforest.training.trials.IMPORTANCE_TREES", 50)  # as for users
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, size=(2400, n_features)).astype(float)
    truth = 1 / (1 + np.exp(1.5 - X[:, 0] - 1.5 * (X[:, 1] == X[:, -1])))
    y = (rng.random(2400) < truth).astype(int)
    model = estimator.fit(X, y)
    found = model.predict_proba(X)[:, 1] if is_classifier(model) else model.predict(X)
    assert np.sqrt(np.mean((found - truth) ** 2)) < 0.4 * truth.std()


@pytest.mark.parametrize(
    "estimator, module",
    [
        (skforest.NonGreedyTreeClassifier(early_stopping=True), "co2"),
        (
            skforest.E2EDecisionForest(
                1, max_depth=2, procedure=skforest.E2EProcedure(early_stopping=True)
            ),
            "endtoend",
        ),
    ],
    ids=["non-greedy", "end to end"],
)
def test_early_stopping_of_trees_holds_out_copies(estimator, module, monkeypatch):
    """A tenth of 200 rows, and not one of four distinct rows with all of its copies."""
    masks = []

    def recorded(*given):
        masks.append(validation_mask(*given))
        return masks[-1]

    monkeypatch.setattr(f"skforest.training.{module}.validation_mask", recorded)
    X = (np.arange(200) % 2)[:, None].astype(float)
    y = (np.arange(200) % 7 < 2 + 3 * X[:, 0]).astype(int)
    estimator.set_params(random_state=0).fit(X, y)
    assert [(len(mask), mask.sum()) for mask in masks] == [(200, 20)]


def test_rows_that_are_left_out_keep_their_weights():
    rng = np.random.default_rng(0)
    X, weight = np.arange(12.0)[:, None], rng.exponential(size=12)
    data = TrainingSet(X.astype(np.float32), X, weight)
    for fold in (np.arange(12) % 3 - 1, rng.integers(0, 3, size=(12, 2))):
        rows = data.with_folds(fold, 2)
        for member in (0, 1, 4, 5):  # members share folds
            own = fold == member % 2 if fold.ndim == 1 else fold[:, member % 2] == 2
            trains = ~own if fold.ndim == 1 else fold[:, member % 2] == 1
            part = rows.without_fold(member)
            assert_array_equal(part.weight, np.where(trains, data.weight, 0))
            assert_array_equal(part.left_out_weight, np.where(own, data.weight, 0))
    assert data.without_fold(1) is data


def test_all_rows_may_be_drawn():
    X, y = np.arange(20.0)[:, None], np.arange(20.0)
    models = [
        ManifoldForestRegressor(3, bootstrap=True, max_samples=n, random_state=0).fit(X, y)
        for n in (20, 1.0, None)
    ]
    for other in models[1:]:
        assert_array_equal(models[0].predict(X), other.predict(X))
    with pytest.raises(ValueError, match="max_samples=21 is more than the 20 rows to draw"):
        models[0].set_params(max_samples=21).fit(X, y)


@pytest.mark.parametrize("first", [0, 1_700_000_000])
@pytest.mark.parametrize("kind", ["manifold", "co2", "hinge", "boosting"])
def test_a_blend_keeps_the_weight_of_rows_that_only_some_members_tell_apart(kind, first):
    """Seconds since 1970 are equal in float32, and far apart once a member has scaled them."""
    rng = np.random.default_rng(0)
    X = first + 10.0 * rng.integers(0, 40, (300, 1))
    y = ((X[:, 0] - first) // 80 % 2).astype(int)
    y[:20] = 1 - y[:20]
    weight = rng.integers(1, 4, 300)
    blend = BlendedForestClassifier([kind], random_state=0)
    samples = blend._read_samples(X, y, weight, None)
    (member,) = blend._new_members(np.random.RandomState(0))
    member.begin(samples)
    of_folds = np.bincount(member.row, member.in_folds.weight, minlength=len(member.data))
    np.testing.assert_allclose(of_folds, member.data.weight)
    assert of_folds.sum() == weight.sum()
    if first and kind == "manifold":
        assert len(member.data) < len(samples.rows)
        of_fold = np.bincount(member.in_folds.fold, member.in_folds.weight)
        np.testing.assert_allclose(of_fold, weight.sum() / 5, rtol=0.3)
    elif first:
        assert blend.fit(X, y, sample_weight=weight).score(X, y, weight) > 0.85
