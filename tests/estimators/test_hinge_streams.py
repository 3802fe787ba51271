"""Random hinge forests that are trained on the parts of a stream."""

import copy
import pickle
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from makers import OwnSquaredError, assert_same_trees
from makers import hinge_rows as rows_of
from makers import quick_hinge as quick
from scipy import sparse

from skforest import HingeProcedure, RandomHingeForestClassifier, RandomHingeForestRegressor, slim
from skforest.training.hinge_bag import HingeTraining
from skforest.training.hinge_input import HingeInput
from skforest.training.hinge_stream import HingeStream
from skforest.training.losses import TargetUnits, make_loss

BOTH = pytest.mark.parametrize("cls", [RandomHingeForestClassifier, RandomHingeForestRegressor])

# ----------------------------------------------------------------------------------------- streams


def classes_of(cls, y):
    """What the first `partial_fit` needs besides X and y."""
    return {"classes": np.unique(y)} if cls is RandomHingeForestClassifier else {}


@BOTH
def test_a_stream_is_learned_in_parts(cls):
    X, y = rows_of(cls, 900)
    model = quick(cls, learning_rate=0.02)
    whole = np.arange(600) % 300
    scores, known = [], classes_of(cls, y)
    for start in range(0, 600, 60):
        model.partial_fit(X[start : start + 60], y[start : start + 60], **known)
        scores.append(model.score(X[600:], y[600:]))
    assert scores[-1] > scores[0] + 0.1
    before = model.forest_.response(X)
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(other.forest_.response(X), before)
    for one in (model, other):
        one.partial_fit(X[whole], y[whole])
    np.testing.assert_array_equal(model.forest_.response(X), other.forest_.response(X))
    assert not np.array_equal(model.forest_.response(X), before)
    assert len(model.loss_curve_[0]) == 11 and model.n_iter_[0] > 40
    # The forest responds as the trainer does, also where the last part has no rows.
    training = model._stream.bags[0]
    assert (training.trainer.arrays["leaf"] >= 0).sum() == (model.forest_[:20].child < -1).sum()


@BOTH
def test_rows_of_weight_0_and_rows_of_a_batch_are_counted(cls):
    """A stream trains further once as many rows wait as a batch has, here 16."""
    X, y = rows_of(cls, 120)
    models = [quick(cls, procedure=HingeProcedure(batch_size=16)) for _ in range(2)]
    for model, n_unused in zip(models, (0, 20)):
        rows = np.arange(45 + n_unused)  # the stream begins again as long as it has 49 rows
        model.partial_fit(X[rows], y[rows], **classes_of(cls, y), sample_weight=rows < 45)
        model.partial_fit(X[70:80], y[70:80])
        found = [model.forest_.response(X)]
        for stop in (95, 96):
            rows = np.arange(80 if stop == 95 else 95, stop)
            model.partial_fit(X[rows], y[rows], sample_weight=np.ones(len(rows)))
            found.append(model.forest_.response(X))
        np.testing.assert_array_equal(found[0], found[1])
        assert not np.array_equal(found[1], found[2])
        model.found = found
    np.testing.assert_array_equal(models[0].found, models[1].found)


def in_shared_memory(kind, X):
    """X of some kind, and the arrays that have its numbers."""
    if kind == "sparse":
        X = sparse.csr_matrix(X)
        return X, [X.data, X.indices]
    X = np.array(X, order="F" if kind == "fortran" else "C")
    return pd.DataFrame(X, columns=list("abcdef"), copy=False) if kind == "frame" else X, [X]


@pytest.mark.thin(2)
@BOTH
@pytest.mark.parametrize("kind", ["array", "fortran", "frame", "sparse"])
def test_rows_that_wait_are_not_those_that_the_caller_overwrites(cls, kind):
    X, y = rows_of(cls, 200)
    weight = np.random.default_rng(0).integers(1, 4, 200).astype(float)
    one, other = (quick(cls, procedure=HingeProcedure(batch_size=16)) for _ in range(2))
    ends = [*range(0, 75, 5), 140, *range(145, 190, 5)]
    for part in map(slice, ends, ends[1:]):
        for model in (one, other):
            own, arrays = in_shared_memory(kind, X[part])
            arrays += [y[part].copy(), weight[part].copy()]
            model.partial_fit(own, arrays[-2], **classes_of(cls, y), sample_weight=arrays[-1])
            for array in arrays if model is other else ():
                array[...] = 0
        assert_same_trees(one, other)


def opposite(cls, y):
    """A target that contradicts y."""
    return (y + 1) % 3 if cls is RandomHingeForestClassifier else -y


def trained_on_parts(cls, X, y, weights, **params):
    """A model trained on parts of 100 rows, each with one weight."""
    model = quick(cls, **params)
    for number, weight in enumerate(weights):
        part = slice(100 * number, 100 * (number + 1))
        given = np.full(100, float(weight))
        model.partial_fit(X[part], y[part], **classes_of(cls, y), sample_weight=given)
    return model


@BOTH
@pytest.mark.parametrize("structure", ["tree", "fern"])
def test_a_part_counts_by_its_mean_weight(cls, structure):
    X, y = rows_of(cls, 400)
    y[200:] = opposite(cls, y[200:])
    models = {
        late: trained_on_parts(cls, X, y, [1, 1, late, late], structure=structure)
        for late in (1e-9, 0.01, 0.3, 1, 1e9)
    }
    first = trained_on_parts(cls, X, y, [1, 1], structure=structure)
    before = first.forest_.response(X)
    moved = [abs(model.forest_.response(X) - before).mean() for model in models.values()]
    assert moved[0] < 1e-5 < moved[1] < 0.1 * moved[3] and moved[1] < moved[2] < moved[3]
    assert_same_trees(models[1], models[1e9])
    other = trained_on_parts(cls, X, y, [7, 7, 2.1, 2.1], structure=structure)
    assert_same_trees(models[0.3], other)
    # Nor do parts of nearly no weight leave momentum, or advance the optimiser.
    known, now = (one._stream.bags[0].trainer.arrays for one in (first, models[1e-9]))
    assert now["counts"][:2].tolist() == known["counts"][:2].tolist()
    np.testing.assert_allclose(now["tests_mean"], known["tests_mean"], rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("ignore:most values")
def test_parts_of_nearly_no_weight_do_not_change_units():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    y = X[:, 0] + X[:, 1] ** 2
    for size in (100, 400):  # a part of 400 rows replaces all rows that determine units
        model = trained_on_parts(RandomHingeForestRegressor, X, y, [1, 1, 1], learning_rate=0.02)
        before = model.predict(X)
        for start in range(200, 1000, size):
            part, weight = slice(start, start + size), np.full(size, 1e-12)
            model.partial_fit(1000 * X[part], 1e4 - 1000 * y[part], sample_weight=weight)
        np.testing.assert_allclose(model.predict(X), before, atol=1e-3)


def test_weights_of_waiting_and_recent_rows_have_one_scale():
    X, y = rows_of(RandomHingeForestRegressor, 300)
    weight = np.where(np.arange(300) % 2, 2.0, 4.0)  # in each part, whole multiples of 2
    weight[200:] *= 0.25
    model = quick(RandomHingeForestRegressor, procedure=HingeProcedure(batch_size=16))
    for part in (slice(0, 100), slice(100, 200), slice(200, 210), slice(210, 300)):
        model.partial_fit(X[part], y[part], sample_weight=weight[part])
        rows = model._stream.recent
        given = {value: w for value, w in zip(y.tolist(), weight.tolist())}
        assert rows[2].tolist() == [given[value] for value in rows[1][:, 0].tolist()]
    assert len(rows[2]) == 225  # a part replaces rows in proportion to its share
    assert model._stream.mean_weight == pytest.approx(weight.mean())


def test_numbers_in_class_weight_count_from_part_to_part():
    X, y = rows_of(RandomHingeForestClassifier, 300)
    first, rows = np.arange(300) < 200, (np.arange(300) >= 200) & (y == 0)
    moved = []
    for given in ({0: 1e-9, 1: 1, 2: 1}, "balanced", None):
        model = quick(RandomHingeForestClassifier, class_weight=given)
        model.partial_fit(X[first], y[first], classes=[0, 1, 2])
        before = model.forest_.response(X)
        model.partial_fit(-X[rows], y[rows])
        moved.append(abs(model.forest_.response(X) - before).mean())
    assert moved[0] < 1e-6 and moved[1] > 1e-3 < moved[2]


def test_columns_that_are_constant_in_the_first_part_have_importance():
    X = np.random.default_rng(0).normal(size=(600, 3))
    first = X * [1, 0, 0]
    model = quick(RandomHingeForestRegressor).partial_fit(first, X[:, 0])
    assert (model.feature_importances_[1:] == 0).all()
    X[:, 2] = 0
    for _ in range(10):
        model.partial_fit(X, X[:, 1])
    assert model.feature_importances_[1] > 0 and model.feature_importances_[2] == 0
    assert model.forest_.deviation[1] == pytest.approx(X[:, 1].std(), rel=1e-5)


def first_parts(X, y):
    """First parts of a stream that say little about the later ones."""
    few, nothing = slice(0, 20), np.zeros(100)
    tiny, large = X[:100] * [1, 1e-3, 1], X[:100] * [1, 1, 1e3]
    return {
        "one row": [(X[:1], y[:1])],
        "rows one by one": [(X[i : i + 1], y[i : i + 1]) for i in range(60)],
        "few zeros": [(X[few], nothing[few])],
        "equal targets": [(X[:100], nothing + 300)],
        "constant features": [(X[:100] * [1, 0, 0] + 7, y[:100])],
        "zeros": [(X[:100], nothing)],
        "small targets": [(X[:100], y[:100] / 1000)],
        "large targets": [(X[:100], y[:100] * 1000)],
        "small column": [(tiny, y[:100])],
        "large column": [(large, y[:100])],
    }


@pytest.mark.parametrize("case", first_parts(np.zeros((200, 3)), np.zeros(200)))
def test_the_first_part_of_a_stream_may_say_little_about_the_others(case):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = 5 * X[:, 1] + X[:, 2]
    model = quick(RandomHingeForestRegressor, learning_rate=0.02, importance_power=0, n_bags=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in first_parts(X, y)[case]:
            model.partial_fit(*part)
        for k in range(40):
            rows = slice(100 * (k % 4), 100 * (k % 4 + 1))
            model.partial_fit(X[rows], y[rows])
    assert model.score(X, y) > 0.9


def test_the_first_part_of_a_stream_of_labels_may_have_one_class_or_other_units():
    X, y = rows_of(RandomHingeForestClassifier, 300)
    for first in ((X[y == 1], y[y == 1]), (X[:1], y[:1]), (X * [1, 1e3, 1, 1, 1e-3, 1], y)):
        model = quick(RandomHingeForestClassifier).partial_fit(*first, classes=[0, 1, 2])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(20):
                model.partial_fit(X, y)
        assert model.score(X, y) > 0.8


def test_columns_and_targets_far_from_those_before_are_named_once():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    model = quick(RandomHingeForestRegressor).partial_fit(X[:100], X["a"][:100])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X[100:], X["a"][100:])
    with pytest.warns(UserWarning, match="column 'b' of X, y in this part") as found:
        model.partial_fit(X[100:] * [1, 1000], 1000 * X["a"][100:])
    assert len(found) == 1
    for unit in (np.array([1, 1000]), np.array([1000, 1])):  # of one of two outputs
        model = quick(RandomHingeForestRegressor).partial_fit(X[:100], X[:100].to_numpy())
        with pytest.warns(UserWarning, match="values of y in this part"):
            model.partial_fit(X[100:], X[100:].to_numpy() * unit)


@pytest.mark.filterwarnings("ignore:most values of y")
def test_a_loss_of_the_user_follows_the_units_of_a_stream():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 3))
    y = np.where(np.arange(800) < 200, 1, 30) * (X[:, 0] + abs(X[:, 1]))
    model = quick(RandomHingeForestRegressor, loss=OwnSquaredError())
    for first in range(0, 800, 100):
        model.partial_fit(X[first : first + 100], y[first : first + 100])
    assert model.score(X[600:], y[600:]) > 0.5


def test_values_far_from_those_of_the_first_part_keep_their_differences():
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = quick(RandomHingeForestRegressor, learning_rate=0.02)
    model.partial_fit(X * [0, 1], X[:, 0])
    for _ in range(30):
        model.partial_fit(X + [2e7, 0], X[:, 0])
    assert model.score(X + [2e7, 0], X[:, 0]) > 0.9


def test_missing_values_stay_where_they_are_when_a_column_moves():
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = quick(RandomHingeForestRegressor).partial_fit(X, X[:, 0])
    before = model.forest_.feature_map
    with pytest.warns(UserWarning, match="column 0 of X"):
        model.partial_fit(X + [1e5, 0], X[:, 0])
    after = model.forest_.feature_map
    assert after.offset[0] > before.offset[0] + 9e4
    means = [own.value_of(0, own.fill[0]) for own in (before, after)]
    np.testing.assert_allclose(means, X[:, 0].mean(), atol=0.01)


@pytest.mark.filterwarnings("ignore:most values of column 0")
def test_recent_rows_stay_where_they_are_when_a_column_moves():
    """Units come from the last rows, so these must have the offsets of the new ones."""
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = quick(RandomHingeForestRegressor).partial_fit(X, X[:, 0])
    model.partial_fit(X[:100] + [1e5, 0], X[:100, 0])
    known, rows = model._stream.recent[0], np.concatenate([X, X[:100] + [1e5, 0]])
    expected = model.forest_.map_features(rows)
    assert len(known) == 300
    for row in known:  # in the order of a hash
        assert abs(expected - row).max(axis=1).min() < 0.1


@pytest.mark.parametrize("n_first", [10, 100])
def test_a_stream_goes_on_with_the_same_bits_behind_a_pickle_and_an_error(n_first):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = X[:, 0]
    parts = [slice(0, n_first), slice(n_first, n_first + 3), slice(150, 250), slice(250, 400)]
    one, other = (quick(RandomHingeForestRegressor) for _ in range(2))
    for number, part in enumerate(parts):
        factor = 1000 if number == 2 else 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one.partial_fit(factor * X[part], factor * y[part])
            other.partial_fit(factor * X[part][::-1], factor * y[part][::-1])
        assert_same_trees(one, other)
        other = pickle.loads(pickle.dumps(other))
        with pytest.raises(ValueError, match="y contains NaN|Input y"):
            other.partial_fit(X, np.full(400, np.nan))
        with pytest.raises(ValueError, match="deviates"):
            other.partial_fit(X, np.linspace(0, 1e300, 400))
    assert_same_trees(one, other)


@BOTH
def test_an_interrupted_part_leaves_the_stream_as_it_was(cls, monkeypatch):
    X, y = rows_of(cls, 300)
    model = quick(cls).partial_fit(X[:100], y[:100], **classes_of(cls, y))
    twin = copy.deepcopy(model)
    compacted_forest = HingeTraining.compacted

    def interrupted(*args, **options):
        compacted_forest(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(HingeTraining, "compacted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X[100:200], y[100:200])
    monkeypatch.undo()
    assert_same_trees(model, twin)
    for one in (model, twin):
        one.partial_fit(X[200:], y[200:])
    assert_same_trees(model, twin)


def test_classes_and_targets_of_later_parts():
    X, y = rows_of(RandomHingeForestClassifier, 300)
    model = quick(RandomHingeForestClassifier)
    model.partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2])
    assert model.predict_proba(X).shape == (300, 3)
    for _ in range(20):
        model.partial_fit(X, y)
    assert (model.predict(X) == 2).any() and model.score(X, y) > 0.8
    # A class without rows in a part may come back.
    model.partial_fit(X[y < 2], y[y < 2])
    assert model.predict_proba(X)[y == 2, 2].mean() > 0.05
    with pytest.raises(ValueError, match="classes"):
        model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match="labels"):
        model.partial_fit(X, y + 5)
    # fit starts anew, and so does partial_fit behind it
    assert_same_trees(copy.deepcopy(model).fit(X, y), quick(RandomHingeForestClassifier).fit(X, y))
    fresh = quick(RandomHingeForestClassifier)
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        fresh.partial_fit(X, y)
    assert not hasattr(fresh, "n_features_in_")
    assert_same_trees(model.fit(X, y).partial_fit(X, y), fresh.partial_fit(X, y, [0, 1, 2]))
    X, y = rows_of(RandomHingeForestRegressor, 300)
    model = quick(RandomHingeForestRegressor, learning_rate=0.02)
    for k in range(30):
        part = slice(100 * (k % 3), 100 * (k % 3 + 1))
        model.partial_fit(X[part], 1000 + y[part])
    assert model.score(X, 1000 + y) > 0.8


# --------------------------------------------------------------------------------------- bootstrap


def test_new_levels_do_not_change_those_of_the_rows_before():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"c": np.repeat(["p", "q", "r"], 10), "b": rng.normal(size=30)})
    y = np.repeat([0.0, 5.0, -5.0], 10) + X["b"]
    whole, parts = (quick(RandomHingeForestRegressor) for _ in range(2))
    for first in range(0, 30, 10):
        parts.partial_fit(X[first : first + 10], y[first : first + 10])
    assert_same_trees(parts, whole.partial_fit(X, y))


def test_a_stream_has_the_levels_of_its_first_rows_and_names_columns_of_others():
    rng = np.random.default_rng(0)
    code, b = rng.integers(0, 4, 300), rng.normal(size=300)
    y = np.array([0, 5, -5, 10.0])[code] + b
    X = pd.DataFrame({"c": np.array(list("pqrs"))[code], "b": b})
    model = quick(RandomHingeForestRegressor, learning_rate=0.02)
    for part in (slice(0, 1), slice(1, 2), slice(2, 30), *[slice(0, 300)] * 25):
        model.partial_fit(X[part], y[part])
    assert sorted(model.forest_.levels[0]) == list("pqrs")
    assert model.score(X, y) > 0.9
    with pytest.warns(UserWarning, match="column 'c' of X are levels that the first 50 rows"):
        model.partial_fit(X.assign(c="z"), y)


def test_far_columns_are_most_of_their_values_many_units_away():
    X = np.array([[50, 2, 2, 2]] * 5 + [[50, 2, 2, 0]] * 5, dtype=np.float32)
    unit, fields = np.array([10, 0.1, 0.1, 0.1]), np.arange(4, dtype=np.int32)[None]
    deviation = np.array([1, 1, 0, 1], dtype=np.float32)  # the third is constant
    source = HingeInput(X, np.zeros(4), unit, np.ones(4), deviation, fields)
    assert source.far_features().tolist() == [False, True, False, False]


def test_units_of_targets_follow_a_stream_that_is_far_from_them():
    """Old units are 2; deviations of the last rows are 3, 8, 0.5 and 3."""
    signs = np.where(np.arange(40) % 2, 1.0, -1.0)[:, None]
    y = signs * [3, 8, 0.5, 3] + [101.5, 100, 100.3, 102.5]
    window = SimpleNamespace(y=y, weight=np.ones(40))
    units = TargetUnits(np.full(4, 100.0), 4.0, np.full(4, 0.5))
    bag = SimpleNamespace(
        trainer=SimpleNamespace(respond=lambda table: np.zeros((40, 4))),
        window_table=lambda window: None,
    )
    new, factor = HingeStream(units=units).new_units(make_loss("squared_error", 4), window, [bag])
    np.testing.assert_allclose(new.response, [2, 8, 0.5, 2])
    # Responses in new units are the same if the unit is larger, and smaller with a smaller unit.
    np.testing.assert_allclose(factor, [1, 0.25, 1, 1])
    np.testing.assert_allclose(new.baseline, [100, 100, 100, 102.5])


@pytest.mark.parametrize("has_weights", [False, True])
def test_levels_do_not_depend_on_how_the_first_rows_are_cut(has_weights):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "month": rng.integers(1, 13, 60)})
    frame["kind"] = np.where(frame.index < 7, None, rng.choice(list("zyx"), 60))
    sizes = pd.CategoricalDtype(["S", "M", "L"], ordered=True)
    frame["size"] = pd.Series(rng.choice(["L", "M", "S"], 60)).astype(sizes)
    y = frame["month"] + rng.normal(size=60)
    weight = None
    if has_weights:
        weight = np.where(np.arange(60) < 20, 1.0, rng.integers(0, 2, 60))
    columns = ["month", "kind", "size"]

    def trained(*ends):
        model = quick(RandomHingeForestRegressor, random_state=0, categorical_features=columns)
        for start, end in zip([0, *ends], [*ends, 60]):
            part = frame[start:end]
            if start == 0 and len(ends):
                part = part.assign(size=part["size"].cat.remove_unused_categories())
            own = None if weight is None else weight[start:end]
            model.partial_fit(part, y[start:end], own)
        return model

    model = trained()
    assert model.forest_.levels[3] == ["S", "M", "L"]
    for ends in ((3, 40), (20,)) if has_weights else (range(1, 45), (3, 40)):
        other = trained(*ends)
        assert other.forest_.levels == model.forest_.levels
        assert other.is_categorical_.tolist() == [False, True, True, True]
        np.testing.assert_array_equal(other.predict(frame), model.predict(frame))


def test_a_column_of_missing_values_may_become_a_category():
    rows = [[0.5, None], [1.0, None], *([i / 10, "uv"[i % 2]] for i in range(58))]
    frame, y = pd.DataFrame(rows, columns=["a", "c"]), np.arange(60.0) % 2
    model = quick(RandomHingeForestRegressor, random_state=0)
    for part in (slice(0, 2), slice(2, 60)):
        model.partial_fit(frame[part], y[part])
    once = quick(RandomHingeForestRegressor, random_state=0).partial_fit(frame, y)
    np.testing.assert_array_equal(model.predict(frame), once.predict(frame))


def test_parameters_of_a_stream_are_those_of_its_first_part():
    X, y = rows_of(RandomHingeForestRegressor)
    model = quick(RandomHingeForestRegressor, random_state=0).partial_fit(X, y)
    for params in ({"dropout": 0.5}, {"n_bags": 4}, {"procedure": HingeProcedure(momentum=0.5)}):
        other = copy.deepcopy(model).set_params(**params)
        with pytest.raises(ValueError, match="changed after the first call of partial_fit; only"):
            other.partial_fit(X, y)
        np.testing.assert_array_equal(other.predict(X), model.predict(X))
    same = copy.deepcopy(model).set_params(n_jobs=2, random_state=4, max_iter=7).partial_fit(X, y)
    slow = copy.deepcopy(model).set_params(learning_rate=1e-9).partial_fit(X, y)
    assert slow.learning_rate_ == 1e-9
    directions = [one._stream.bags[0].trainer.arrays["direction"] for one in (model, slow)]
    np.testing.assert_allclose(*directions, atol=1e-6)
    model.partial_fit(X, y)
    np.testing.assert_array_equal(same.predict(X), model.predict(X))
    assert abs(model._stream.bags[0].trainer.arrays["direction"] - directions[1]).max() > 1e-3


def test_a_slim_stream_keeps_no_rows_and_does_not_go_on():
    X, y = rows_of(RandomHingeForestRegressor)
    model = quick(RandomHingeForestRegressor, random_state=0).partial_fit(X, y)
    smaller = slim(model)
    assert len(pickle.dumps(smaller)) < len(pickle.dumps(model)) / 2
    np.testing.assert_array_equal(smaller.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="slim"):
        smaller.partial_fit(X, y)
    np.testing.assert_array_equal(smaller.predict(X), model.predict(X))
    model.partial_fit(X, y)  # the model itself continues


def test_later_parts_improve_a_stream():
    """With a constant rate, scores fell from part to part: .81 at the end here."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 3))
    y = X @ [1, 2, 3] + 0.1 * rng.normal(size=len(X))
    model = RandomHingeForestRegressor(n_bags=1, random_state=0)
    scores = []
    for start in range(0, 5400, 60):
        part = slice(start, start + 60)
        scores.append(model.partial_fit(X[part], y[part]).score(X[5400:], y[5400:]))
    assert min(scores[-20:]) > 0.97 > scores[1]
    assert model.learning_rate_ < 0.03 == pytest.approx(3 / model.n_estimators_)


def test_a_given_rate_of_a_stream_is_constant():
    X, y = rows_of(RandomHingeForestRegressor)
    model = quick(RandomHingeForestRegressor, learning_rate=0.02)
    for _ in range(3):
        model.partial_fit(X, y)
        assert model.learning_rate_ == 0.02


def test_targets_are_far_from_earlier_targets_and_not_from_predictions():
    X, y = rows_of(RandomHingeForestRegressor)
    model = quick(RandomHingeForestRegressor).partial_fit(X, y)
    stream = model._stream
    far = replace(stream.units, baseline=stream.units.baseline + 1e6)
    model._stream = replace(stream, units=far)  # as if predictions were wrong
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X, y)
    with pytest.warns(UserWarning, match="most values of y"):
        model.partial_fit(X, y + 1e6 * np.std(y))
