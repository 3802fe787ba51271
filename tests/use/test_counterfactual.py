"""Counterfactuals: the wanted prediction, near the row and near the boundary."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.datasets import make_classification, make_friedman1
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skforest
from skforest import counterfactual


def classes(n_classes=3):
    return make_classification(
        200, 6, n_informative=4, n_redundant=0, n_classes=n_classes, random_state=1
    )


def check(model, x, background, found):
    """The prediction is as stated, the distance at most that of background rows, sums hold."""
    spread = background.std(axis=0)
    assert model.predict(found.row[None])[0] == found.prediction
    other = background[model.predict(background) == found.prediction]
    distances = (np.abs(other - x) / spread).sum(axis=1)
    own = np.abs(found.row - x) / spread
    assert found.distance == pytest.approx(own.sum())
    assert found.distance <= distances.min() + 1e-12
    assert set(found.changes) == set(np.flatnonzero(found.row != x))
    for j, (before, after) in found.changes.items():
        assert (before, after) == (x[j], found.row[j])


@pytest.mark.parametrize(
    "estimator",
    [
        skforest.ManifoldForestClassifier(10, random_state=0),
        skforest.ObliqueBoostingClassifier(10, n_bags=1, random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
)
def test_another_label(estimator):
    X, y = classes()
    model = estimator.fit(X, y)
    before = model.predict(X)
    for i in range(0, 20, 5):
        found = counterfactual(model, X[i], X)
        assert found.prediction != before[i]
        check(model, X[i], X, found)
        wanted = (before[i] + 1) % 3
        found = counterfactual(model, X[i : i + 1], X, wanted, n_starts=2)
        assert found.prediction == wanted
        check(model, X[i], X, found)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("exponent", [-900, 40, 1000])
def test_columns_of_any_unit(exponent):
    X, y = classes()
    model = skforest.RandomHingeForestClassifier(5, n_bags=1, max_iter=100, random_state=0)
    unit = 2.0 ** np.array([exponent, 0, 0, 0, exponent, 0])
    expected = counterfactual(model.fit(X, y), X[0], X)
    found = counterfactual(model.fit(X * unit, y), X[0] * unit, X * unit)
    np.testing.assert_array_equal(found.row, expected.row * unit)
    assert (found.prediction, found.distance) == (expected.prediction, expected.distance)


def test_more_starts_are_not_worse():
    X, y = classes()
    model = skforest.ManifoldForestClassifier(10, random_state=0).fit(X, y)
    one = [counterfactual(model, x, X, n_starts=1).distance for x in X[:10]]
    ten = [counterfactual(model, x, X).distance for x in X[:10]]
    assert (np.array(ten) <= one).all() and sum(ten) < 0.9 * sum(one)


def test_an_interval_of_a_target():
    X, y = make_friedman1(200, n_features=6, random_state=0)
    model = skforest.ManifoldForestRegressor(10, random_state=0).fit(X, y)
    before = model.predict(X[:1])[0]
    found = counterfactual(model, X[0], X, (before + 2, np.inf))
    assert found.prediction >= before + 2
    assert found.prediction == model.predict(found.row[None])[0]
    found = counterfactual(model, X[0], X, [before - 3, before - 2])
    assert before - 3 <= found.prediction <= before - 2


class Rule(ClassifierMixin, BaseEstimator):
    """Predicts whether a function of the columns is positive."""

    classes_ = np.array([False, True])

    def __init__(self, function):
        self.function = function

    def predict(self, X):
        return np.asarray(self.function(X), dtype=float) > 0


class First(RegressorMixin, BaseEstimator):
    """Predicts the first column."""

    def predict(self, X):
        return X[:, 0].astype(float)


def test_both_ends_of_an_interval_belong_to_it():
    X = np.random.default_rng(0).integers(0, 9, (60, 2)).astype(float)
    for target in ((5, 5), (5, 5.5), (4.5, 5)):
        found = counterfactual(First(), np.array([2.0, 3.0]), X, target)
        assert found.prediction == 5 and found.changes == {0: (2, 5)}
    for target in ((2, 7), (-1, 2)):
        with pytest.raises(ValueError, match="the prediction of x, 2, is in target"):
            counterfactual(First(), np.array([2.0, 3.0]), X, target)


def test_answers_of_fewer_columns_come_first():
    """Also where a small change of two columns is nearer than a large one of a single one."""
    X = np.random.default_rng(0).uniform(0, 10, (100, 3))
    model = Rule(lambda X: (X[:, 0] > 9) | ((X[:, 1] > 0) & (X[:, 2] > 0)))
    one, two = counterfactual(model, np.array([0.0, -0.1, -0.1]), X, n_answers=2)
    assert list(one.changes) == [0] and list(two.changes) == [1, 2]
    assert two.distance < one.distance
    nearest = counterfactual(model, np.array([0.0, -0.1, -0.1]), X)
    assert list(nearest.changes) == [1, 2]


def test_the_largest_differences_are_given_back_first():
    X = np.array([[0.0, 0], [1, 9], [-3, 0], [-3, 0]])
    model = Rule(lambda X: X.max(axis=1) - 0.5)  # each column alone is enough
    for small in (0, 1):
        rows = X[:, [small, 1 - small]]
        assert list(counterfactual(model, rows[0], rows).changes) == [small]


def test_the_boundary_is_found_and_other_columns_stay():
    X = np.random.default_rng(0).normal(size=(50, 3))
    x = np.array([0.25, 5.0, -5.0])
    found = counterfactual(Rule(lambda X: X[:, 0] - 1), x, X)
    assert list(found.changes) == [0]
    assert 1 < found.row[0] < 1 + 1e-5
    assert found.distance == pytest.approx(0.75 / X[:, 0].std(), rel=1e-5)


def test_a_rare_extreme_value_is_no_unit_of_distance():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    rule, x = Rule(lambda X: X[:, 0] - 0.2), np.array([-0.5, 0.1])
    usual = counterfactual(rule, x, X).distance
    X[np.argmax(X[:, 0]), 0] = 1e6
    assert counterfactual(rule, x, X).distance == pytest.approx(usual, rel=0.05)


def test_integers_stay_integers():
    X = np.random.default_rng(0).integers(0, 100, (50, 2))
    found = counterfactual(Rule(lambda X: X[:, 0] - 41.5), np.array([3, 7]), X)
    assert found.row.dtype == X.dtype
    assert found.row.tolist() == [42, 7]
    assert found.changes == {0: (3, 42)}


def mixed_table(n=200):
    rng = np.random.default_rng(0)
    return pd.DataFrame({
        "size": np.where(rng.uniform(size=n) < 0.3, np.nan, rng.normal(size=n)),
        "colour": rng.choice(["red", "green", "blue"], n),
        "town": pd.Categorical(rng.choice(["A", "B"], n)),
        "children": rng.integers(0, 5, n),
        "smokes": rng.uniform(size=n) < 0.5,
    }, index=np.arange(n) + 1000)  # fmt: skip


@pytest.mark.parametrize(
    "rule, changes",
    [
        (lambda X: X["colour"] == "blue", {"colour": ("red", "blue")}),
        (lambda X: X["town"] == "B", {"town": ("A", "B")}),
        (lambda X: X["size"].notna(), {"size": None}),
        (lambda X: X["children"] > 2, {"children": (1, 3)}),
        (
            lambda X: X["smokes"] & (X["children"] > 1),
            {"smokes": (False, True), "children": (1, 2)},
        ),
    ],
)
def test_columns_of_a_data_frame(rule, changes):
    X = mixed_table()
    x = X.iloc[[0]].assign(size=np.nan, colour="red", town="A", children=1, smokes=False)
    x = x.astype(X.dtypes)
    found = counterfactual(Rule(rule), x, X)
    assert found.prediction
    assert set(found.changes) == set(changes)
    for name, (before, after) in found.changes.items():
        if name == "size":  # a number in place of a missing value is taken from a row
            assert np.isnan(before) and after in X["size"].to_numpy()
            assert found.distance == 1
        else:
            assert (before, after) == changes[name]
    assert (found.row.dtypes == X.dtypes).all()
    assert found.row.index.tolist() == [1000]
    stays = [name for name in X if name not in changes]
    pd.testing.assert_frame_equal(found.row[stays], x[stays])


def test_columns_of_x_may_have_another_order():
    X = mixed_table(40)
    model, x = Rule(lambda X: X["children"] > 2), X[X["children"] == 1].iloc[[0]]
    found = counterfactual(model, x[list(X)[::-1]], X)
    assert list(found.row) == list(X) and found.changes == {"children": (1, 3)}


@pytest.mark.parametrize("is_frame", [True, False])
def test_present_values_do_not_become_missing_and_integers_stay_whole(is_frame):
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, 300).astype(float)
    income = np.where(rng.random(300) < 0.3, np.nan, rng.normal(3000, 900, 300))
    y = np.where(np.isnan(income), rng.random(300) < 0.9, age > 60).astype(int)
    age[rng.random(300) < 0.1] = np.nan
    X = pd.DataFrame({"age": age, "income": income})
    forest = skforest.ManifoldForestClassifier(15, random_state=0).fit(X, y)
    rows = np.flatnonzero(X.notna().all(axis=1) & (forest.predict(X) == 0))[:6]
    if not is_frame:
        forest = skforest.ManifoldForestClassifier(15, random_state=0).fit(X.to_numpy(), y)
    table = X if is_frame else X.to_numpy()
    for i in rows:
        found = counterfactual(forest, table[i : i + 1], table, target=1)
        row = found.row.to_numpy()[0] if is_frame else found.row
        assert np.isfinite(row).all() and row[0] == round(row[0])
    only = X.assign(age=age * 0 + 30, income=np.where(y == 1, np.nan, 1000.0))
    forest.fit(only if is_frame else only.to_numpy(), y)
    table = only if is_frame else only.to_numpy()
    start = int(np.flatnonzero(y == 0)[0])
    with pytest.raises(ValueError, match="only with values missing that x has"):
        counterfactual(forest, table[start : start + 1], table, target=1)


def test_tables_with_a_forest():
    X = mixed_table()
    y = (X["colour"] == "blue") | (X["size"] > 0.5)
    model = skforest.ManifoldForestClassifier(10, random_state=0).fit(X, y)
    before = model.predict(X)
    for i in range(5):
        found = counterfactual(model, X.iloc[[i]], X)
        assert found.prediction != before[i] == (not model.predict(found.row)[0])
        assert 0 < len(found.changes) <= 3
    matrix = X.to_numpy()
    model = skforest.ManifoldForestClassifier(10, random_state=0, categorical_features=[1, 2]).fit(
        matrix, y
    )
    found = counterfactual(model, matrix[0], matrix)
    assert found.prediction != model.predict(matrix[:1])[0]
    assert found.row.dtype == object


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_other_data_frames(library):
    module = pytest.importorskip(library)
    X = mixed_table().drop(columns="town")
    own = {name: [None if v != v else v for v in X[name].tolist()] for name in X}
    table = (module.DataFrame if library == "polars" else module.table)(own)
    y = (X["colour"] == "blue").to_numpy()
    model = skforest.ManifoldForestClassifier(5, random_state=0).fit(table, y)
    first = int(np.flatnonzero(~y)[0])
    found = counterfactual(model, table[first : first + 1], table, True)
    assert type(found.row) is type(table)
    assert found.prediction and model.predict(found.row)[0]
    assert found.changes["colour"][1] == "blue"


def test_bad_input():
    X, y = classes()
    model = skforest.ManifoldForestClassifier(5, random_state=0).fit(X, y)
    label = model.predict(X[:1])[0]
    others = X[model.predict(X) == label]
    frame = pd.DataFrame(X, columns=list("abcdef"))
    of_frame = skforest.ManifoldForestClassifier(2, random_state=0).fit(frame, y)
    for options, message in (
        ((X[0], X, 7), "target=7"),
        ((X[0], X, label), "already"),
        ((X[0], others), "no row of background"),
        ((X[0], X[:0]), "0 sample"),
        ((X[:2], X), "shape"),
        ((X[0, 1:], X), "shape"),
    ):
        with pytest.raises(ValueError, match=message):
            counterfactual(model, *options)
    with pytest.raises(ValueError, match="n_starts=0"):
        counterfactual(model, X[0], X, n_starts=0)
    with pytest.raises(TypeError, match="toarray"):
        counterfactual(model, X[0], sparse.csr_matrix(X))
    renamed = frame.iloc[[0]].rename(columns={"a": "g"})
    for x in (frame.iloc[0], frame.iloc[:2], frame.iloc[[0], 1:], renamed, X[0]):
        with pytest.raises(ValueError, match="x must"):
            counterfactual(of_frame, x, frame)
    column = skforest.ManifoldForestRegressor(9, random_state=0).fit(X, y[:, None])
    flat = skforest.ManifoldForestRegressor(9, random_state=0).fit(X, y)
    below = flat.predict(X).min(), flat.predict(X[:1])[0] - 0.1
    answers = [counterfactual(one, X[0], X, target=below) for one in (column, flat)]
    assert repr(answers[0]) == repr(answers[1])
    several = skforest.ManifoldForestClassifier(2).fit(X, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="several outputs"):
        counterfactual(several, X[0], X)


def test_bad_intervals():
    X, y = make_friedman1(50, n_features=6, random_state=0)
    model = skforest.ManifoldForestRegressor(2, random_state=0).fit(X, y)
    for target in (None, 3.0, (1, 2, 3), (2, 1), ("low", "high"), (-np.inf, np.inf)):
        with pytest.raises(ValueError, match="target="):
            counterfactual(model, X[0], X, target)


# ------------------------------------------------------------------------------------ restrictions


class Linear(ClassifierMixin, BaseEstimator):
    """A random rule for tables of any kind with the columns of `mixed_table`."""

    classes_ = np.array([False, True])

    def __init__(self, seed=0):
        self.seed = seed

    def predict(self, X):
        rng = np.random.default_rng(self.seed)
        values = X if isinstance(X, np.ndarray) else X.to_numpy()
        levels = [["red", "green", "blue"], ["A", "B"]]
        score = rng.normal(scale=0.3, size=1)
        for j in range(values.shape[1]):
            column, weight = values[:, j], rng.normal(size=4)
            if isinstance(column[0], str):
                code = [levels[len(value) < 2].index(value) for value in column.tolist()]
                score = score + weight[code]
            else:
                numbers = np.array([np.nan if v is None else v for v in column], dtype=float)
                score = score + np.where(np.isnan(numbers), weight[0], weight[1] * numbers)
        return score > 0


LIMITS = {
    "size": (-0.5, 0.8),
    "colour": ["red", "blue"],
    "town": ["A", "B"],
    "children": "increase",
    "smokes": "decrease",
}


@pytest.mark.parametrize("kind", ["pandas", "polars", "array"])
def test_restrictions_hold(kind):
    X = mixed_table()
    X = X.assign(town=X["town"].astype(str))
    names, limits, table = list(X), LIMITS, X
    if kind == "polars":
        table = pytest.importorskip("polars").from_pandas(X)
    elif kind == "array":
        table = X.to_numpy()
        limits = {names.index(name): limit for name, limit in LIMITS.items()}
    n_answers = n_failures = 0
    for seed in range(6):
        rng, model = np.random.default_rng(seed), Linear(seed)
        which = rng.permutation(5)[:3].tolist()
        vary = which if kind == "array" or seed % 2 else [names[j] for j in which]
        options = [{"vary": vary}, {"fixed": vary}][seed % 2]
        allowed = set(which) if "vary" in options else set(range(5)) - set(which)
        x = table[seed : seed + 1]
        try:
            found = counterfactual(model, x, table, limits=limits, n_answers=3, **options)
        except ValueError as error:
            assert "if only these columns change" in str(error)
            n_failures += 1
            continue
        kinds = set()
        for one in found:
            assert one.prediction != model.predict(x)[0]
            assert len(one.changes) >= len(found[0].changes) > 0
            signs = []
            for key, (before, after) in one.changes.items():
                j = key if kind == "array" else names.index(key)
                assert j in allowed
                assert after is not None and after == after
                assert {
                    0: lambda b, a: -0.5 <= a <= 0.8,
                    1: lambda b, a: a in ("red", "blue"),
                    2: lambda b, a: a in ("A", "B"),
                    3: lambda b, a: a > b and a == int(a),
                    4: lambda b, a: b and not a,
                }[j](before, after)
                signs.append((j, after if isinstance(after, str) else (after > (before or 0))))
            kinds.add(tuple(signs))
        assert len(kinds) == len(found) <= 3
        n_answers += len(found)
    assert n_answers > 4 and n_failures < 4


def test_limits_with_a_forest_and_missing_values():
    X = mixed_table()
    y = (X["colour"] == "blue") | (X["size"] > 0.5)
    model = skforest.ManifoldForestClassifier(10, random_state=0).fit(X, y)
    i = int(np.flatnonzero(~model.predict(X) & X["size"].notna())[0])
    x = X.iloc[[i]]
    by_colour, by_size = counterfactual(model, x, X, n_answers=2)
    assert {tuple(by_colour.changes), tuple(by_size.changes)} == {("colour",), ("size",)}
    found = counterfactual(model, x, X, limits={"colour": ["red", "green"]})
    assert list(found.changes) == ["size"]
    assert found.changes["size"][1] > 0.4
    with pytest.raises(ValueError, match=r"within limits: \['size', 'smokes'\]"):
        counterfactual(model, x, X, vary=["size", "smokes"], limits={"size": (-9, 0)})


def test_columns_of_a_data_frame_that_are_numbers():
    X = pd.DataFrame([[0.0, "a"], [10.0, "b"], [0.0, "b"]], columns=[5, 1])
    model = Rule(lambda X: (X[5] > 4) | (X[1] == "b"))
    assert counterfactual(model, X[:1], X, vary=[5]).changes == {5: (0, 5)}
    assert counterfactual(model, X[:1], X, fixed=[5]).changes == {1: ("a", "b")}


def test_numbers_outside_their_limits_are_moved_to_them():
    X = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 9.0]])
    model = Rule(lambda X: (X[:, 0] > 4) | (X[:, 1] > 8))
    found = counterfactual(model, X[0], X, limits={0: (5, 7.5), 1: "decrease"})
    assert found.row.tolist() == [5, 0]  # 4 to 5 is wanted, and not within the limits
    found = counterfactual(model, X[0], X, fixed=[0])
    assert found.changes == {1: (0, 9)}
    found = counterfactual(Rule(lambda X: np.abs(X[:, 0]) - 4), X[0], X - 10, n_answers=1)
    assert found.changes == {0: (0, -5)}


def test_present_levels_do_not_become_missing():
    X = pd.DataFrame({"level": ["u", "v", None, None], "size": [1.0, 1.0, 1.0, 2.0]})
    model = Rule(lambda X: X["level"].isna() | (X["size"] > 1.5))
    found = counterfactual(model, X[:1], X)
    assert list(found.changes) == ["size"]
    with pytest.raises(ValueError, match="only with values missing that x has"):
        counterfactual(model, X[:1], X[:3])


def test_limits_of_a_missing_value_are_those_of_the_background():
    """There is nothing between a missing value and a number, so numbers are not moved."""
    X = np.array([[np.nan, 0.0], [0.75, 0.0], [5.0, 0.0]])
    model = Rule(lambda X: X[:, 0] > 0.5)
    assert counterfactual(model, X[0], X, limits={0: (0, 1)}).row[0] == 0.75
    with pytest.raises(ValueError, match="only these columns change, within limits"):
        counterfactual(model, X[0], X[[0, 2]], limits={0: (0, 1)})


def test_whole_numbers_stay_within_limits_that_are_not_whole():
    X = np.random.default_rng(0).integers(0, 12, (60, 2)).astype(float)
    options = {"limits": {0: (4.5, 7.5)}}
    assert counterfactual(First(), np.array([2.0, 3.0]), X, (3, 9), **options).row[0] == 5
    assert counterfactual(First(), np.array([11.0, 3.0]), X, (3, 9), **options).row[0] == 7


@pytest.mark.parametrize(
    "options, message",
    [
        ({"vary": ["colour", "age"]}, "vary has 'age', which is not a column"),
        ({"fixed": [7]}, "fixed has 7"),
        ({"vary": ["size", "town"], "fixed": [2]}, "column 'town' is both in vary and in fixed"),
        ({"limits": {"age": (0, 1)}}, "limits has 'age'"),
        ({"limits": {"size": 3}}, "'size': 3} must be"),
        ({"limits": {"size": (3, 1)}}, "low must not be larger"),
        ({"limits": {"size": "up"}}, '"increase" or "decrease"'),
        ({"limits": {"colour": "increase"}}, "list of levels among .'blue', 'green', 'red'"),
        ({"limits": {"colour": ["pink"]}}, "'colour': .'pink'.} must be a list of levels"),
        ({"vary": ["town"], "limits": {"town": []}}, "no row of background .* limits: ..$"),
        ({"n_answers": 0}, "n_answers=0"),
    ],
)
def test_bad_restrictions(options, message):
    X = mixed_table()
    with pytest.raises(ValueError, match=message):
        counterfactual(Rule(lambda X: X["colour"] == "blue"), X.iloc[[0]], X, **options)


@pytest.mark.parametrize("zone", [None, "Europe/Oslo"])
def test_dates_move_within_their_limits(zone):
    rng = np.random.default_rng(0)
    start = pd.Timestamp("2024-01-01", tz=zone)
    X = pd.DataFrame({"day": start + pd.to_timedelta(rng.permutation(200), unit="D")})
    X["size"] = rng.uniform(size=200)
    days = (X["day"] - start).dt.days.to_numpy()
    forest = skforest.ManifoldForestRegressor(10, random_state=0)
    model = make_pipeline(skforest.DateFeatures(), forest).fit(X, days + 10 * X["size"])
    x = X.iloc[[int(np.argmin(days))]]
    found = counterfactual(model, x, X, target=(80, 120), vary=["day"])
    ((before, after),) = found.changes.values()
    assert before == x["day"].iloc[0] and found.row["day"].dtype == X["day"].dtype
    assert 80 <= model.predict(found.row)[0] <= 120 and before < after <= X["day"].max()
    limits = {"day": (np.datetime64("2024-04-10"), np.datetime64("2024-04-15"))}
    found = counterfactual(model, x, X, target=(80, 120), vary=["day"], limits=limits)
    after = found.changes["day"][1].tz_localize(None)
    assert pd.Timestamp("2024-04-10") <= after <= pd.Timestamp("2024-04-15")
    with pytest.raises(ValueError, match="within limits"):
        counterfactual(model, x, X, target=(80, 120), vary=["day"], limits={"day": "decrease"})


@pytest.mark.parametrize("unit", ["D", "h", "min", "s"])
def test_dates_keep_the_unit_of_their_column(unit):
    rng = np.random.default_rng(0)
    steps = pd.to_timedelta(rng.integers(0, 1000, 100), unit=unit)
    X = pd.DataFrame({"day": pd.Timestamp("2024-03-01") + steps, "size": rng.uniform(size=100)})
    passed = (X["day"].max() - X["day"].min()) / 3.14

    class Model(Rule):
        def predict(self, X):
            return (X["day"] > x["day"].iloc[0] + passed).to_numpy()

    x = X.loc[[X["day"].idxmin()]]
    found = counterfactual(Model(None), x, X, vary="day")  # one column, by its name
    assert list(found.changes) == ["day"]
    after = found.changes["day"][1]
    assert after == after.round(unit) and after > x["day"].iloc[0] + passed
    kept = counterfactual(Model(None), x, X, fixed="size")
    assert kept.changes["day"][1] == after


def test_answers_may_differ_in_a_level_alone():
    X = pd.DataFrame({"kind": list("abcd")})
    model = Rule(lambda X: X["kind"] != "a")
    found = counterfactual(model, X.iloc[[0]], X, n_answers=5)
    assert [one.changes["kind"] for one in found] == [("a", level) for level in "bcd"]


@pytest.mark.parametrize(
    "x",
    [
        {"a": 0, "b": 1, "k": 2, "c": "u"},
        {"a": 0.0, "b": None, "k": 2, "c": "u"},
        {"a": 0.0, "b": 1.0, "k": 2.0, "c": "u"},
    ],
)
def test_the_row_may_have_other_dtypes_than_the_background(x):
    pl = pytest.importorskip("polars")
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"a": rng.normal(size=150), "b": rng.normal(size=150)})
    frame = frame.with_columns(k=pl.Series(rng.integers(0, 5, 150), dtype=pl.Int32))
    frame = frame.with_columns(c=pl.Series(rng.choice(["u", "v"], 150)).cast(pl.Categorical))
    model = skforest.ManifoldForestRegressor(10, random_state=0)
    model.fit(frame, frame["a"].to_numpy() + frame["k"].to_numpy())
    found = counterfactual(model, pl.DataFrame([x]), frame, target=(4, 9))
    expected = counterfactual(model, pd.DataFrame([x]), frame.to_pandas(), target=(4, 9))
    assert found.changes == expected.changes and found.prediction == expected.prediction
    assert 4 <= model.predict(found.row)[0] <= 9


def test_a_changed_column_keeps_its_dtype_of_pandas():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=200), "b": rng.integers(0, 9, 200)})
    frame["k"] = pd.array(rng.integers(0, 9, 200), dtype="Int64")
    model = skforest.ManifoldForestRegressor(20, random_state=0)
    model.fit(frame, frame["b"] + frame["k"].astype(float))
    low = frame[(frame["b"] < 2) & (frame["k"] < 2)]
    found = counterfactual(model, low[:1], frame, target=(10, 17))
    assert set(found.changes) == {"b", "k"}
    assert found.row.dtypes.to_dict() == frame.dtypes.to_dict()
