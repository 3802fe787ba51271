"""Random hinge forests: training of estimators, bootstrap samples."""

import _thread
import copy
import threading

import numpy as np
import pytest
from makers import assert_same_trees, bag_of, changed
from makers import hinge_rows as rows_of
from makers import quick_hinge as quick
from scipy import sparse
from skforest._kernels.base.rows import tree_seed
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss

from skforest import HingeProcedure, RandomHingeForestClassifier, RandomHingeForestRegressor
from skforest.table.feature_grid import FeatureGrid
from skforest.training.hinge import HingeMethod
from skforest.training.threads import Control

BOTH = pytest.mark.parametrize("cls", [RandomHingeForestClassifier, RandomHingeForestRegressor])

# -------------------------------------------------------------------------------------- estimators


@pytest.mark.thin(2)
@BOTH
@pytest.mark.parametrize("structure", ["tree", "fern"])
@pytest.mark.parametrize("features", ["linear", "identity", "both"])
@pytest.mark.parametrize("head", ["leaves", "linear"])
def test_estimators_predict_the_responses_of_the_forest(cls, structure, features, head):
    X, y = rows_of(cls)
    model = quick(cls, structure=structure, features=features, head=head).fit(X, y)
    forest = model.forest_
    assert forest.gate == "margin" and forest.aggregate == "sum"
    np.testing.assert_array_equal(forest.bag_start, [0, 20, 40])
    if cls is RandomHingeForestClassifier:
        bags = [forest[:20].response(X), forest[20:].response(X)]
        np.testing.assert_array_equal(model.predict_proba(X), (bags[0] + bags[1]) / 2)
    assert model.score(X, y) > 0.7
    assert model.feature_importances_.sum() == pytest.approx(1)


def test_places_of_kernels():
    found = FeatureGrid((4, 5, 2), 40).receptive_fields((3, 3))
    image = np.arange(40).reshape(4, 5, 2)
    assert found.shape == (6, 18)
    for q, (i, j) in enumerate(np.ndindex(2, 3)):
        assert set(found[q]) == set(image[i : i + 3, j : j + 3].ravel())
        # The same pixel of the kernel has the same weight at every place.
        np.testing.assert_array_equal(found[q] - found[0], image[i, j, 0])
    assert FeatureGrid((28, 28), 784).receptive_fields((5, 5), 3).shape == (64, 25)


@pytest.mark.parametrize("side", [5, 6, 7])
def test_a_kernel_with_one_place(side):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(80, side, side)).astype(np.float32)
    y = X[:, 1, 1] > 0.5
    shape = {"features": "conv", "feature_shape": (side, side)}
    model = RandomHingeForestClassifier(5, n_bags=1, max_iter=200, random_state=0, **shape)
    model.fit(X, y)
    assert model.score(X, y) > 0.8
    seen = model.feature_importances_.reshape(side, side) > 0
    assert seen[:5, :5].all()
    assert seen.sum() == 25


def test_convolutions_see_images_wherever_a_thing_is():
    """A bright pixel on a dark ground, or a dark one on a bright ground, anywhere."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=600)
    X = np.repeat(255 * (1 - y), 36).reshape(600, 6, 6).astype(np.uint8)
    X[np.arange(600), rng.integers(6, size=600), rng.integers(6, size=600)] = 255 * y
    X[:, 0, 0] = rng.integers(256, size=600)
    model = quick(
        RandomHingeForestClassifier, features="conv", feature_shape=(6, 6), kernel_size=3, stride=1
    )
    model.fit(X[:300], y[:300])
    assert model.n_directions_ == 80 and model.score(X[300:], y[300:]) > 0.95
    flat = X.reshape(600, 36)
    np.testing.assert_array_equal(model.predict_proba(flat), model.predict_proba(X))
    for shape, words in ((None, "needs feature_shape"), ((5, 7), "36 features"), (36, "36")):
        with pytest.raises(ValueError, match=words):
            clone(model).set_params(feature_shape=shape).fit(flat, y)
    with pytest.raises(ValueError, match="kernel_size=7 is larger"):
        clone(model).set_params(procedure__kernel_size=7).fit(flat, y)


def test_kernels_are_compared_with_the_sides_and_not_the_channels():
    grid = FeatureGrid.of_images((5, 4, 2), 40)
    for size, n_places in ((1, 20), (3, 6), (4, 2)):
        assert grid.kernel_fields(size, 1).shape == (n_places, 2 * size**2)
    with pytest.raises(ValueError, match="kernel_size=5 is larger"):
        grid.kernel_fields(5, 1)


@BOTH
def test_depth_1_forests_and_ferns_are_the_same(cls):
    X, y = rows_of(cls)
    one, other = (quick(cls, structure=s, max_depth=1).fit(X, y) for s in ("tree", "fern"))
    for name, array in one.forest_.arrays.items():
        np.testing.assert_array_equal(array, other.forest_.arrays[name], err_msg=name)


@pytest.mark.thin(2)
@BOTH
@pytest.mark.parametrize("early_stopping", [False, True])
def test_weights_equal_copies_and_order_and_threads_have_no_influence(cls, early_stopping):
    X, y = rows_of(cls)
    k = np.random.default_rng(0).integers(0, 4, len(X))
    model = quick(cls, early_stopping=early_stopping, n_bags=3).fit(X, y, sample_weight=k)
    order = np.random.default_rng(1).permutation(k.sum())
    copies = np.repeat(X, k, axis=0)[order], np.repeat(y, k)[order]
    assert_same_trees(model, clone(model).fit(*copies))
    assert_same_trees(model, clone(model).set_params(n_jobs=2).fit(X, y, k))
    scaled = clone(model).fit(X, y, k * 2.0**-900)
    np.testing.assert_array_equal(scaled.forest_.response(X), model.forest_.response(X))


def test_class_weights_are_weights():
    X, y = rows_of(RandomHingeForestClassifier)
    model = quick(RandomHingeForestClassifier, class_weight={0: 3}).fit(X, y)
    weighted = quick(RandomHingeForestClassifier).fit(X, y, np.where(y == 0, 3, 1))
    # Class weights are those of labels: means of the inputs, for missing values, have none.
    weighted.forest_.fill = model.forest_.fill
    assert_same_trees(model, weighted)
    rare = y * (np.arange(len(y)) % 4 == 0) > 0
    plain = quick(RandomHingeForestClassifier, max_iter=60).fit(X, rare)
    balanced = clone(plain).set_params(class_weight="balanced").fit(X, rare)
    assert balanced.predict(X).sum() > plain.predict(X).sum()


@BOTH
def test_more_bags_by_warm_start(cls):
    X, y = rows_of(cls)
    model = quick(cls, n_bags=2, warm_start=True).fit(X, y)
    model.set_params(n_bags=4).fit(X, y)
    assert_same_trees(model, quick(cls, n_bags=4).fit(X, y))
    assert len(model.loss_curve_) == len(model.n_iter_) == 4
    with pytest.raises(ValueError, match="n_bags=3 must be larger or equal to the 4"):
        clone_of = copy.deepcopy(model).set_params(n_bags=3)
        clone_of.fit(X, y)
    with pytest.raises(ValueError, match="n_estimators=7, but"):
        copy.deepcopy(model).set_params(n_bags=5, n_estimators=7).fit(X, y)
    with pytest.warns(UserWarning, match="without increasing n_bags"):
        model.fit(X, y)


def test_bags_that_are_added_to_a_single_one_find_the_temperature():
    X, y = make_classification(400, 6, flip_y=0.3, random_state=0)
    options = {"max_iter": 60, "warm_start": True, "procedure": HingeProcedure(weight_decay=0.0)}
    model = RandomHingeForestClassifier(n_bags=1, random_state=0, **options)
    assert model.fit(X[:200], y[:200]).temperature_ == 1
    before = model.forest_
    model.set_params(n_bags=3).fit(X[:200], y[:200])
    assert model.temperature_ > 1.5
    value = model.forest_[: len(before)].compact().value
    np.testing.assert_allclose(value, before.compact().value / model.temperature_, rtol=1e-6)
    found = model.temperature_
    model.set_params(n_bags=4).fit(X[:200], y[:200])
    assert model.temperature_ == found
    at_once = clone(model).fit(X[:200], y[:200])
    losses = [log_loss(y[200:], one.predict_proba(X[200:])) for one in (model, at_once)]
    assert losses[0] == pytest.approx(losses[1], rel=0.1)


@BOTH
def test_auto_is_resolved_from_the_number_of_distinct_rows(cls):
    X, y = rows_of(cls)
    model = quick(cls, n_bags="auto", max_iter=1).fit(X, y)
    assert (model.n_bags_, model.max_depth_, model.n_directions_, model.batch_size_) == (
        10 if cls is RandomHingeForestClassifier else 5, 5, 50, 9,
    )  # fmt: skip
    assert model.learning_rate_ == 3 / 20
    copies = clone(model).fit(np.tile(X, (70, 1)), np.tile(y, 70))
    assert copies.batch_size_ == 9
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(10_000, 2)), rng.integers(2, size=10_000)
    model = quick(cls, n_estimators=2, max_iter=1, n_bags=1).fit(X, y)
    assert (model.max_depth_, model.n_directions_, model.batch_size_) == (8, 200, 128)
    short = clone(model).set_params(max_iter="auto", n_directions=1).fit(X[:300], y[:300])
    assert short.max_iter_ == 2400


@pytest.mark.parametrize(
    "n_rows, batch_size, max_iter",
    [
        (100, 8, 2400),
        (800, 50, 2400),
        (9999, 64, 9374),
        (10_000, 128, 4688),
        (90_000, 128, 20_000),
    ],
)
def test_auto_values_of_many_rows(n_rows, batch_size, max_iter):
    """40 to 120 passes over the rows, 6 for each thousand of them, in 2400 to 20,000 steps."""
    model = RandomHingeForestRegressor(50)
    model.n_outputs_ = 1
    found = model._auto(n_rows)
    assert (found["batch_size"], found["max_iter"]) == (batch_size, max_iter)
    model.set_params(features="conv", procedure=HingeProcedure(optimizer="adagrad"))
    found = model._auto(n_rows)
    assert (found["n_directions"], found["learning_rate"]) == (80, 0.6)


@pytest.mark.parametrize("head", ["leaves", "linear"])
def test_early_stopping_keeps_the_model_of_least_validation_loss(head):
    """Labels are noise: the loss of rows held out rises from the start."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 5)), rng.integers(2, size=300)
    own = {"head": head, "max_iter": 1000, "max_depth": 6, "calibrate": False}
    stopped = {"early_stopping": True, "n_iter_no_change": 3}
    model = quick(RandomHingeForestClassifier, **stopped, **own).fit(X, y)
    plain = quick(RandomHingeForestClassifier, early_stopping=False, **own).fit(X, y)
    for scores, curve, steps in zip(model.validation_scores_, model.loss_curve_, model.n_iter_):
        assert len(scores) == len(curve) == steps / 25
        assert len(scores) - 1 - scores.argmax() == 3
    assert max(model.n_iter_) < 1000 == min(plain.n_iter_)
    assert all(len(scores) == 0 for scores in plain.validation_scores_)
    fresh = rng.normal(size=(2000, 5))
    certainty = [m.predict_proba(fresh).max(axis=1).mean() for m in (model, plain)]
    assert certainty[0] < certainty[1] - 0.03
    numeric = quick(RandomHingeForestRegressor, early_stopping=True, max_iter=1000)
    assert numeric.fit(X, rng.normal(size=300)).predict(fresh).std() < 0.05  # a constant is best


@pytest.mark.parametrize("schedule", ["cosine", "constant", "plateau"])
@pytest.mark.parametrize("optimizer", ["auto", "adam", "adagrad", "sgd"])
def test_every_schedule_and_optimizer_learns(schedule, optimizer):
    X, y = rows_of(RandomHingeForestClassifier)
    model = quick(
        RandomHingeForestClassifier, schedule=schedule, optimizer=optimizer, early_stopping=False
    ).fit(X, y)
    curve = model.loss_curve_[0]
    assert np.mean(curve[-5:]) < 0.7 * curve[0]
    assert model.score(X, y) > 0.8


IMAGES = {"features": "conv", "feature_shape": (2, 3), "kernel_size": 2, "stride": 1}

# Other parameters, and a value of a parameter of the procedure that is not its default.
EFFECTS = [
    (IMAGES, {"kernel_size": 1}),
    (IMAGES, {"stride": 2}),
    ({}, {"head": "linear"}),
    ({}, {"optimizer": "sgd"}),
    ({"optimizer": "sgd"}, {"momentum": 0.0}),
    ({}, {"weight_decay": 0.1}),
    ({}, {"schedule": "constant"}),
    ({}, {"batch_size": 20}),
    ({}, {"scaling": None}),
    ({}, {"importance_power": 2.0}),
    ({}, {"label_smoothing": 0.3}),
    ({}, {"early_stopping": True}),
    ({"early_stopping": True}, {"validation_fraction": 0.4}),
    ({"early_stopping": True, "learning_rate": 3.0}, {"n_iter_no_change": 1}),
]


@pytest.mark.parametrize("beside, params", EFFECTS, ids=lambda params: next(iter(params), ""))
def test_every_parameter_of_the_procedure_matters(beside, params):
    X, y = rows_of(RandomHingeForestClassifier)
    own = {"n_bags": 1, "max_iter": 60, "calibrate": False} | beside
    one, other = (
        quick(RandomHingeForestClassifier, **own | changes).fit(X, y) for changes in ({}, params)
    )
    assert one.forest_.response(X).tobytes() != other.forest_.response(X).tobytes()


def test_the_list_of_the_parameters_of_the_procedure_is_complete():
    listed = {name for _, params in EFFECTS for name in params}
    assert HingeProcedure().get_params().keys() == listed


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("n_directions", [50, 100])
def test_an_infinite_loss_is_reported_and_never_returned(n_directions, early_stopping):
    """Also if the best loss was finite, but not the thresholds in the units of X."""
    X, y = rows_of(RandomHingeForestRegressor)
    model = quick(
        RandomHingeForestRegressor,
        optimizer="sgd",
        learning_rate=1e4,
        n_directions=n_directions,
        early_stopping=early_stopping,
    )
    with pytest.raises(ValueError, match=r"infinite.*learning_rate=1e\+04"):
        model.fit(X, y)
    assert not hasattr(model, "forest_")


def test_an_infinite_loss_names_the_weight_decay():
    X, y = rows_of(RandomHingeForestRegressor)
    with pytest.raises(ValueError, match="weight_decay=1e.30; a smaller learning_rate or weig"):
        quick(RandomHingeForestRegressor, weight_decay=1e30).fit(X, y)


def test_several_outputs_and_constant_ones():
    X, y = rows_of(RandomHingeForestRegressor)
    model = quick(RandomHingeForestRegressor).fit(X, np.column_stack([y, 1e6 - y, 0 * y + 7]))
    predicted = model.predict(X)
    assert (predicted[:, 2] == 7).all()
    np.testing.assert_allclose(predicted[:, 0], 1e6 - predicted[:, 1], atol=40)


@BOTH
@pytest.mark.parametrize("n", [1, 15, 16, 17, 32, 33])
def test_a_part_of_a_stream_is_trained_on_to_its_end(cls, n):
    """In batches of 16 rows, of which the last one is filled up; fewer rows wait for others."""
    X, y = rows_of(cls)
    model = quick(cls, batch_size=16, n_bags=1)
    own = {"classes": [0, 1, 2]} if cls is RandomHingeForestClassifier else {}
    model.partial_fit(X[:100], y[:100], **own)
    before = model.n_iter_[0]
    assert before == 7
    model.partial_fit(X[100 : 100 + n], y[100 : 100 + n])
    assert model.n_iter_[0] - before == (-(-n // 16) if n >= 16 else 0)
    if n < 16:
        model.partial_fit(X[120:136], y[120:136])
        assert model.n_iter_[0] - before == 2


@BOTH
def test_one_row_and_two(cls):
    X, y = rows_of(cls)
    for n in (1, 2):
        model = quick(cls).fit(X[:n], y[:n])
        assert np.isfinite(model.predict(X)).all()
    assert (quick(cls).fit(X[:1], y[:1]).predict(X) == y[0]).all()


@pytest.mark.usefixtures("interruptible")
@BOTH
def test_progress_and_an_interrupt(cls, capsys, monkeypatch):
    X, y = rows_of(cls)
    monkeypatch.setattr("skforest.training.progress._progress_bar", lambda total, name, unit: None)
    model = quick(cls, verbose=2).fit(X, y)
    n = sum(map(len, model.loss_curve_))
    assert f"{cls.__name__}: {n} of {n} evaluations" in capsys.readouterr().out
    model.set_params(verbose=0)
    before = dict(vars(model)) | {"max_iter": 10**9}
    model.set_params(max_iter=10**9)
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    finally:
        timer.join()
    assert vars(model) == before


@pytest.mark.parametrize("features", ["linear", "both"])
def test_features_in_one_unit(features):
    """A common factor has no influence, and the unit of one feature has."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)) + 5
    y = X[:, 0] - abs(X[:, 1] - 5)
    model = quick(RandomHingeForestRegressor, features=features, scaling=None, max_iter=300)
    first = model.fit(X, y).predict(X)
    assert model.score(X, y) > 0.9
    np.testing.assert_array_equal(model.fit(4 * X, y).predict(4 * X), first)
    # Without units, two features hide behind the large one; their inner products are noise.
    X[:, 3] *= 1e5
    standard = clone(model).set_params(procedure__scaling="standard").fit(X, y)
    assert model.fit(X, y).score(X, y) < standard.score(X, y)


def test_steps_change_weights_less_in_one_unit():
    """They start with variance 1, and with 1 / 50 otherwise; features have deviation 1 in both."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 50))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = X[:, 0] - abs(X[:, 1])
    moved = []
    for scaling in (None, "standard"):
        model = quick(RandomHingeForestRegressor, scaling=scaling, importance_power=0.0, n_bags=1)
        ends = []
        for rate in (1e-9, 0.05):  # without and with training
            forest = model.set_params(learning_rate=rate, max_iter=50).fit(X, y).forest_
            used = forest.directions(np.unique(forest.direction)).toarray()
            ends.append(used / np.linalg.norm(used, axis=1, keepdims=True))
        cosine = np.abs(ends[1] @ ends[0].T).max(axis=1)
        moved.append(1 - np.median(cosine))
    assert moved[0] < moved[1] / 5


@pytest.mark.parametrize("max_iter, n_checks", [(30, 30), (400, 40), (1000, 40), (25_000, 50)])
def test_the_loss_is_evaluated_every_500_steps_or_40_times(max_iter, n_checks):
    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    forest = RandomHingeForestClassifier(
        1,
        max_depth=1,
        n_bags=1,
        n_directions=1,
        max_iter=max_iter,
        procedure=HingeProcedure(batch_size=2),
    ).fit(X, y)
    assert [len(curve) for curve in forest.loss_curve_] == [n_checks]


@pytest.mark.parametrize(
    ("features", "factor"),
    [("linear", 2.0**-900), ("linear", 2.0**-10), ("linear", 2.0**900), ("conv", 2.0**900)],
)
def test_features_in_one_unit_of_any_size(features, factor):
    """Constant features have no influence on the unit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    X[:, 3] = 2.0
    shape = (2, 2) if features == "conv" else None
    model = quick(
        RandomHingeForestRegressor,
        features=features,
        feature_shape=shape,
        kernel_size=2,
        scaling=None,
        max_iter=20,
    )
    first = model.fit(X, X[:, 0]).predict(X)
    scaled = X * np.array([factor, factor, factor, 1.0])
    np.testing.assert_array_equal(model.fit(scaled, X[:, 0]).predict(scaled), first)


def test_importance_scaling_finds_the_features_that_matter():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 60))
    y = X[:, 0] * X[:, 1] > 0
    fresh = rng.normal(size=(1000, 60))
    truth = fresh[:, 0] * fresh[:, 1] > 0
    scores = [
        quick(RandomHingeForestClassifier, importance_power=power, max_iter=600)
        .fit(X, y)
        .score(fresh, truth)
        for power in (0.0, 2.0)
    ]
    assert scores[1] > scores[0] + 0.1


# --------------------------------------------------------------------------------------- bootstrap


@pytest.mark.parametrize("cls", [RandomHingeForestClassifier, RandomHingeForestRegressor])
def test_bags_draw_bootstrap_samples_and_score_the_rows_left_out(cls):
    X, y = make_classification(150, 5, random_state=0)
    options = {"n_estimators": 10, "n_bags": 4, "max_iter": 60, "random_state": 0}
    model = cls(bootstrap=True, oob_score=True, **options).fit(X, y)
    total, n_bags = 0.0, 0
    data = model._known_training_set(X, y, None)
    for bag in range(4):
        out = data.bootstrap(tree_seed(model._seed, bag), len(data)) == 0
        first, last = model.forest_.bag_start[bag : bag + 2]
        response = model.forest_[first:last].response_mapped(data.X)
        total = total + out[:, None] * response
        n_bags = n_bags + out
    known = n_bags > 0
    expected = (total[known] / n_bags[known][:, None])[:, 0]
    found = getattr(model, "oob_decision_function_", None)
    found = model.oob_prediction_ if found is None else found[:, 0]
    row = data.row_of_sample
    np.testing.assert_allclose(
        found[known[row]], expected[(np.cumsum(known) - 1)[row][known[row]]]
    )
    plain = cls(**options).fit(X, y)
    assert (plain.forest_.threshold[:5] != model.forest_.threshold[:5]).any()
    with pytest.raises(ValueError, match="needs bootstrap=True"):
        cls(oob_score=True, **options).fit(X, y)


@pytest.mark.thin(2)
@pytest.mark.parametrize("cls", [RandomHingeForestClassifier, RandomHingeForestRegressor])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
def test_outliers_among_the_training_rows_do_little_harm(cls, convert):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 4))
    y = X[:, 0] + X[:, 1] * X[:, 2]
    y = y > 0 if cls is RandomHingeForestClassifier else y
    wrong = X.copy()
    wrong[:4, :3] = rng.choice([-1e12, 1e12], size=(4, 3))
    scores = []
    for rows in (X, wrong):
        forest = cls(30, n_bags=2, max_iter=1000, random_state=0)
        forest.fit(convert(rows[:800]), y[:800])
        scores.append(forest.score(convert(X[800:]), y[800:]))
    assert scores[0] > 0.85
    assert scores[1] > scores[0] - 0.03
    coded = np.where(rng.random(X.shape) < 0.1, -999, X)  # more rows than are rare
    forest.fit(convert(coded[:800]), y[:800])
    assert forest.score(convert(coded[800:]), y[800:]) > scores[0] - 0.3
    # The features of the paper are not clipped.
    changed(forest, scaling=None, n_bags=1, max_iter=10).fit(convert(wrong), y)
    assert forest.forest_.high[0] > 1.5


def test_a_shortened_schedule_ends_with_small_steps():
    """The cosine is bent where the end is moved, and still reaches its end."""
    X, y = rows_of(RandomHingeForestClassifier)
    model = quick(RandomHingeForestClassifier, max_iter=400)
    request = model._request()
    data = model._read_training_set(X, y, request)
    method = model._method(model._settings(data, request))
    source = method.input(data, np.ones(data.X.shape[1]))
    training = method.training(data, source, 0, Control())
    whole = training._rates(np.arange(400))
    training.n_done = 100
    training._end_in(50)
    rates = training._rates(np.arange(100, 150))
    assert rates[0] == whole[100] and (np.diff(rates) < 0).all() and rates[-1] < whole[390]
    training._end_in(10**6)
    assert training.end == 400


@pytest.mark.parametrize("options", [{}, {"features": "linear"}, {"structure": "fern"}])
def test_inner_products_of_wide_tables_read_the_important_columns(options, monkeypatch):
    """At least as many as there are rows; so training takes no time for all others."""
    monkeypatch.setattr("skforest.training.hinge.MANY_COLUMNS", 40)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 200))
    y = 2 * X[:, 7] - X[:, 150]
    forest = quick(RandomHingeForestRegressor, **options).fit(X, y)
    dense = forest.forest_.dense
    read = dense.any(axis=0)
    assert read.sum() == 60 and read[7] and read[150]
    wide = quick(RandomHingeForestRegressor, **options).fit(X[:, :50], y).forest_.dense
    assert wide.any(axis=0).all()
    stream = quick(RandomHingeForestRegressor, **options).partial_fit(X, y)
    assert stream.forest_.dense.any(axis=0).all()  # other columns may be important later


# ------------------------------------------------------------------------------------- given rows


@pytest.mark.parametrize("head", ["leaves", "linear"])
@BOTH
def test_early_stopping_on_given_rows(cls, head):
    """The model with the smallest loss of these rows is kept, and all rows of X are trained on."""
    X, y = rows_of(cls, 150)
    weight = np.random.default_rng(0).exponential(1.0, 50) ** 2
    given = {"X_val": X[100:], "y_val": y[100:], "sample_weight_val": weight}
    # Training rows reach every leaf; the loss of given rows rises in the end.
    options = {"max_depth": 1, "max_iter": 400, "head": head, "learning_rate": 0.05}
    options |= {"n_directions": 100, "optimizer": "adam"}
    model = quick(cls, **options).fit(X[:100], y[:100], **given)
    for bag, scores in enumerate(model.validation_scores_):
        response = bag_of(model.forest_, bag).response(X[100:])
        if cls is RandomHingeForestClassifier:
            loss = log_loss(y[100:], response, sample_weight=weight)
        else:
            loss = np.average((response[:, 0] - y[100:]) ** 2, weights=weight)
            loss /= 2 * y[:100].var()
        assert -scores.max() == pytest.approx(loss, rel=1e-4)
        assert len(scores) > 2
    # The first steps are those without early stopping and without a calibration.
    if cls is RandomHingeForestClassifier:
        options["calibrate"] = False
    plain = quick(cls, **options).fit(X[:100], y[:100])
    for one, other in zip(model.loss_curve_, plain.loss_curve_, strict=True):
        np.testing.assert_array_equal(one, other[: len(one)])
    assert vars(model).keys() == vars(plain).keys()


def test_given_rows_of_sparse_tables():
    X, y = rows_of(RandomHingeForestClassifier, 90)
    X = np.where(X > 0.5, X, 0)
    model = quick(RandomHingeForestClassifier, max_iter=100)
    dense, other = (
        clone(model).fit(rows[:60], y[:60], X_val=rows[60:], y_val=y[60:])
        for rows in (X, sparse.csr_matrix(X))
    )
    for one, two in zip(dense.validation_scores_, other.validation_scores_, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4)
    with pytest.raises(TypeError, match="X_val must be sparse if X is sparse"):
        model.fit(sparse.csr_matrix(X[:60]), y[:60], X_val=X[60:], y_val=y[60:])
    with pytest.raises(ValueError, match="y_val=None: X_val and y_val must be passed together"):
        model.fit(X, y, X_val=X)


def test_groups_of_rows_are_held_out_together(monkeypatch):
    seen, training = [], HingeMethod.training

    def recorded(self, data, *others):
        seen.append((data, training(self, data, *others)))
        return seen[-1][1]

    monkeypatch.setattr(HingeMethod, "training", recorded)
    X, y = rows_of(RandomHingeForestRegressor, 90)
    model = quick(RandomHingeForestRegressor, early_stopping=True, n_bags=1, max_iter=40)
    model.fit(X, y, groups=np.arange(90) // 6)
    ((data, one),) = seen
    held_out, trained = data.group[one.validation_rows], data.group[one.trained_rows]
    assert len(set(held_out)) == 3 and not set(held_out) & set(trained)


def test_a_batch_has_at_most_all_rows():
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = quick(RandomHingeForestRegressor, n_bags=1, max_iter=3, batch_size=500)
    assert model.fit(X, X[:, 0]).batch_size_ == 30
