"""Training and prediction with dask, and in processes of dask and ray."""

import os
import signal
import threading
import time
import warnings
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LinearRegression

import skforest
from skforest.training.method import n_members as count
from skforest.training.threads import SharedFunction

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
import skforest.dask as on_dask  # noqa: E402

N_PARTITIONS = 3


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 6)).astype(np.float32)
    y = np.where(X[:, 0] + X[:, 1] > 0.5, "yes", np.where(X[:, 2] > 0, "no", "perhaps"))
    return X, y, X[:, 0] + X[:, 1] ** 2


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.slow)])
def cluster(request):
    """One process with two threads, or two processes with one."""
    distributed = pytest.importorskip("distributed")
    threads = {"n_workers": request.param, "threads_per_worker": 2 // request.param}
    with distributed.Client(**threads, dashboard_address=None) as client:
        yield client


def chunked(*arrays, n_rows=200):
    return [da.from_array(a, chunks=(n_rows, *a.shape[1:])) for a in arrays]


def of_kind(estimator, data):
    """X and the target of an estimator."""
    if is_classifier(estimator):
        return data[:2]
    is_positive = getattr(estimator, "loss", None) == "poisson"
    return data[0], np.exp(data[2] / 2) if is_positive else data[2]


def fitted_names(estimator):
    return {name for name in vars(estimator) if name.endswith("_")}


def have_same_bits(one, other):
    return all(np.array_equal(a, other.arrays[name]) for name, a in one.arrays.items())


MODELS = {
    "manifold": skforest.ManifoldForestClassifier(6, random_state=0),
    "co2": skforest.CO2ForestRegressor(6, max_depth=4, random_state=0),
    "boosting": skforest.ObliqueBoostingClassifier(10, random_state=0),
    "calibrated": skforest.ObliqueBoostingRegressor(10, loss="poisson", random_state=0),
    "quantile": skforest.RandomHingeForestRegressor(
        5, n_bags=3, max_iter=50, loss="quantile", random_state=0
    ),
    "temperature": skforest.RandomHingeForestClassifier(5, max_iter=50, random_state=0),
    "endtoend": skforest.E2EDecisionForestClassifier(
        3,
        max_depth=2,
        max_features=3,
        random_state=0,
        procedure=skforest.E2EProcedure(learning_rate=0.1),
    ),
}
models = pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))


# ------------------------------------------------------------------------------------ partitions


@models
def test_fit_and_predict_on_partitions(model, data):
    X, y = of_kind(model, data)
    fitted = on_dask.fit(model, *chunked(X, y))
    assert not hasattr(model, "forest_")
    assert fitted.score(X, y) > (0.6 if is_classifier(model) else 0.3)
    n_members = count(fitted.forest_)
    assert n_members == (fitted.n_bags_ if hasattr(fitted, "n_bags_") else fitted.n_estimators)
    for name in ("n_iter_", "loss_curve_"):
        assert len(getattr(fitted, name, range(n_members))) == n_members
    names = fitted_names(clone(model).fit(X, y))
    assert fitted_names(fitted) == {name for name in names if not name.startswith("oob_")}
    predicted = on_dask.predict(fitted, da.from_array(X, chunks=(250, 4)))
    assert predicted.shape == (600,)
    np.testing.assert_array_equal(predicted.compute(), fitted.predict(X))
    if is_classifier(model):
        proba = on_dask.predict_proba(fitted, *chunked(X))
        assert proba.shape == (600, 3)
        np.testing.assert_array_equal(proba.compute(), fitted.predict_proba(X))


def test_training_continues_after_dask(data):
    X, _, y = data
    fitted = on_dask.fit(skforest.ObliqueBoostingRegressor(3, random_state=0), *chunked(X, y))
    fitted.set_params(warm_start=True, n_bags=10).fit(X, y)
    assert len(fitted.forest_.bag_start) == 11
    model = skforest.ManifoldForestRegressor(2, warm_start=True, random_state=0)
    fitted = on_dask.fit(model, *chunked(X, y))
    assert len(fitted.set_params(n_estimators=3).fit(X, y).forest_) == 3


def test_each_tree_is_trained_on_one_partition(data):
    X, y, _ = data
    model = skforest.ManifoldForestClassifier(7, bootstrap=False, random_state=0)
    sizes = (100, 0, 300, 200)
    chunks = [da.from_array(a, chunks=(sizes, *a.shape[1:])) for a in (X, y)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the empty partition needs no tree
        forest = on_dask.fit(model, *chunks).forest_
    roots = forest.node_weight[forest.tree_start[:-1]]
    assert roots.tolist() == [100] * 1 + [300] * 4 + [200] * 2


def test_partitions_of_equal_rows_have_different_trees(data):
    X, y = np.tile(data[0][:100], (3, 1)), np.tile(data[1][:100], 3)
    model = skforest.ManifoldForestClassifier(6, random_state=0)
    forest = on_dask.fit(model, *chunked(X, y, n_rows=100)).forest_
    assert len({forest[tree].threshold.tobytes() for tree in range(6)}) == 6


@pytest.mark.parametrize("n_bags, n_expected", [("auto", 8), (9, 9)])
def test_bags_are_shared_among_partitions(n_bags, n_expected, data):
    X, _, y = data
    model = skforest.ObliqueBoostingRegressor(3, n_bags=n_bags, random_state=0)
    rows = (75, 75, 0, *[75] * 6)  # one of nine partitions is empty
    chunks = [da.from_array(a, chunks=(rows, *a.shape[1:])) for a in (X, y)]
    fitted = on_dask.fit(model, *chunks)
    assert fitted.n_bags_ == len(fitted.forest_.bag_start) - 1 == n_expected
    if n_bags == "auto":  # at least one, also for few rows
        chunks = [da.from_array(a, chunks=((20, 290, 290), *a.shape[1:])) for a in (X, y)]
        assert on_dask.fit(model, *chunks).n_bags_ == 6


WEIGHTED = [  # weights of four partitions of 150 rows, and their numbers of members
    ("manifold", None, [2, 1, 1, 2]),
    ("manifold", [0.1] * 4, [2, 1, 1, 2]),  # the same as without weights
    ("manifold", [1, 1e-6, 1, 1], [2, 0, 2, 2]),
    ("manifold", [1, 0, 3, 2], [1, 0, 3, 2]),
    ("boosting", None, [1, 1, 2, 1]),
    ("boosting", [7] * 4, [1, 1, 2, 1]),
    ("boosting", [1, 1e-6, 1e-6, 1], [2, 0, 0, 3]),
    ("boosting", [1.6, 0.6, 0.6, 1.6], [2, 1, 1, 2]),  # at least one
    ("boosting", [1, 1, 0.2, 1.8], [1, 2, 0, 2]),
]


@pytest.mark.parametrize("name, weight, expected", WEIGHTED)
def test_members_are_distributed_in_proportion_to_weights(
    name, weight, expected, data, monkeypatch
):
    found = [0] * 4

    def recorded(estimator, settings, n_members, number, *rows):
        found[number] = n_members
        return fit_members(estimator, settings, n_members, number, *rows)

    fit_members = on_dask._fit_members
    monkeypatch.setattr(on_dask, "_fit_members", recorded)
    rows = chunked(*of_kind(MODELS[name], data), n_rows=150)
    if weight is not None:
        rows += chunked(np.repeat(weight, 150) / 150, n_rows=150)
    with warnings.catch_warnings(action="error"):
        fitted = on_dask.fit(MODELS[name], *rows)
    assert found == expected and count(fitted.forest_) == sum(expected)
    if name == "boosting":
        assert fitted.n_bags_ == sum(expected)


def test_weights_of_partitions_are_checked(data):
    X, _, y = data
    weight = np.where(np.arange(600) == 599, -1.0, 1.0)
    with pytest.raises(ValueError, match="sample_weight has the negative value -1"):
        on_dask.fit(skforest.ManifoldForestRegressor(3), *chunked(X, y, weight))
    few = [1.0, 1e-6, 1.0]
    with pytest.warns(UserWarning, match="n_estimators=1: 2 of 3 partitions are not used"):
        model = skforest.ManifoldForestRegressor(1)
        on_dask.fit(model, *chunked(X, y, np.repeat(few, 200)))


def test_the_temperature_is_the_mean_over_partitions(data, monkeypatch):
    found = []

    def recorded(*args):
        found.append(fit_members(*args))
        return found[-1]

    fit_members = on_dask._fit_members
    monkeypatch.setattr(on_dask, "_fit_members", recorded)
    X, y = data[0][:120], data[1][:120]
    fitted = on_dask.fit(MODELS["temperature"], *chunked(X, y, n_rows=60))
    temperatures = [temperature for _, _, temperature in found]
    assert len(set(temperatures)) == 2
    n_bags = [count(forest) for forest, *_ in found]
    assert sum(n_bags) == fitted.n_bags_
    assert fitted.temperature_ == pytest.approx(np.average(temperatures, weights=n_bags))


def test_a_common_baseline_keeps_the_mean_over_bags(data):
    model = clone(MODELS["quantile"]).set_params(max_iter=5)
    forests = [model.set_params(n_bags=n).fit(data[0][::n], data[2][::n]).forest_ for n in (3, 1)]
    assert forests[0].baseline != forests[1].baseline
    joined = on_dask._with_one_baseline(forests)
    assert joined[0].baseline == joined[1].baseline
    old, new = ((3 * a.response(data[0]) + b.response(data[0])) / 4 for a, b in (forests, joined))
    np.testing.assert_allclose(new, old, rtol=1e-9)


def test_frames_with_categories_missing_values_and_an_empty_partition(data):
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    X, y, _ = data
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame["b"] = np.where(X[:, 1] > 1, np.nan, X[:, 1])
    frame["c"] = np.where(X[:, 2] > 0, "up", "down")
    weight = pd.Series(np.arange(600) % 3)
    frames = [dd.from_pandas(f, npartitions=3) for f in (frame, pd.Series(y), weight)]
    for model in (MODELS["manifold"], MODELS["boosting"]):
        fitted = on_dask.fit(model, *frames)
        assert fitted.feature_names_in_.tolist() == list("abcdef")
        assert fitted.forest_.levels == {2: ["down", "up"]}
        assert fitted.score(frame, y) > 0.8
        some = frames[0][frames[0]["a"] > 0.5]
        some = dd.concat([some, some[some["a"] > 99]])  # the last partitions are empty
        expected = frame[frame["a"] > 0.5]
        for method in ("predict", "predict_proba"):
            found = getattr(on_dask, method)(fitted, some).compute()
            np.testing.assert_array_equal(found, getattr(fitted, method)(expected))


def test_classes_of_few_partitions_are_classes_of_the_forest(data, monkeypatch):
    """A class of three rows in one partition, none of which is among the rows drawn."""
    monkeypatch.setattr(on_dask, "SAMPLE_ROWS", 30)
    X, y, _ = data
    y = np.where(np.isin(np.arange(600), [400, 410, 500]), "rare", y)
    for model in (MODELS["manifold"], MODELS["boosting"]):
        fitted = on_dask.fit(model, *chunked(X, y))
        assert fitted.classes_.tolist() == ["no", "perhaps", "rare", "yes"]
        if model is MODELS["boosting"]:
            share = np.exp(fitted.forest_.baseline)
            np.testing.assert_allclose(share[2], 3 / 600, rtol=0.1)


def test_a_factor_of_all_weights_leaves_the_shares_of_sampled_classes():
    """Also that of a class of which no row is drawn."""
    X, y = np.zeros((2002, 1)), np.repeat([0, 1], [2000, 2])
    model = skforest.ManifoldForestClassifier()
    for factor in (1.0, 50.0):
        *_, labels, weight = on_dask._sample(model, 100, 0, X, y, np.full(2002, factor))
        assert weight[labels == 1].tolist() == [2 * factor]
        assert weight[labels == 0].sum() == pytest.approx(2002 * factor)


def test_rare_classes_of_any_output_are_sampled():
    X = np.zeros((500, 1))
    for column in (0, 1):
        y = np.zeros((500, 2), dtype=int)
        y[[11, 300], column] = 1
        *_, labels, weight = on_dask._sample(skforest.ManifoldForestClassifier(), 5, 0, X, y)
        assert labels[:, column].tolist() == [0, 0, 0, 0, 0, 1] and weight[-1] == 2


def test_outliers_are_clipped_in_rows_outside_of_the_sample(data, monkeypatch):
    """A feature that is constant in the sample is not clipped."""
    monkeypatch.setattr(on_dask, "SAMPLE_ROWS", 100)
    rng = np.random.default_rng(1)
    X = np.column_stack([data[0], np.zeros(600)])
    X[rng.permutation(600)[:15], 2] = 1e12
    model = skforest.RandomHingeForestRegressor(10, n_bags=3, max_iter=600, random_state=0)
    fitted = on_dask.fit(model, *chunked(X, data[2]))
    assert fitted.score(data[0] @ np.eye(6, 7), data[2]) > 0.9
    constant = fitted.forest_.low[6], fitted.forest_.high[6]
    assert constant == (-(2.0**60), 2.0**60)


def test_wide_rows_have_a_sample_of_a_thousand(data, monkeypatch):
    X, y, _ = data
    expected = on_dask.fit(MODELS["manifold"], *chunked(X, y))
    monkeypatch.setattr(on_dask, "SAMPLE_SIZE", 1)
    found = on_dask.fit(MODELS["manifold"], *chunked(X, y))
    assert have_same_bits(found.forest_, expected.forest_)


def test_several_outputs(data):
    X, y, _ = data
    Y = np.stack([y, np.where(X[:, 3] > 0, "up", "down")], axis=1)
    fitted = on_dask.fit(MODELS["manifold"], *chunked(X, Y))
    assert on_dask.predict(fitted, *chunked(X)).shape == (600, 2)
    found = [part.compute() for part in on_dask.predict_proba(fitted, *chunked(X))]
    assert [part.shape for part in found] == [(600, 3), (600, 2)]
    for part, expected in zip(found, fitted.predict_proba(X)):
        np.testing.assert_array_equal(part, expected)


def test_several_quantiles(data):
    X, _, y = data
    options = {"loss": "quantile", "quantile": [0.9, 0.1], "random_state": 0}
    fitted = on_dask.fit(skforest.ObliqueBoostingRegressor(10, **options), *chunked(X, y))
    found = on_dask.predict(fitted, *chunked(X)).compute()
    np.testing.assert_array_equal(found, fitted.predict(X))
    assert 0.7 < (y < found[:, 0]).mean() < 1 and 0 < (y < found[:, 1]).mean() < 0.3


def test_images(data):
    X, y, _ = data
    model = skforest.ManifoldForestClassifier(6, feature_shape=(2, 3), random_state=0)
    images = da.from_array(X.reshape(-1, 2, 3), chunks=(200, 1, 3))
    fitted = on_dask.fit(model, images, *chunked(y))
    assert have_same_bits(fitted.forest_, on_dask.fit(model, *chunked(X, y)).forest_)
    predicted = on_dask.predict(fitted, images)
    np.testing.assert_array_equal(predicted.compute(), fitted.predict(X))


def test_sparse_partitions_of_any_form(data):
    (X, y), model = chunked(*data[:2]), MODELS["manifold"]
    one, other = (X.map_blocks(getattr(sparse, form)) for form in ("csr_matrix", "coo_matrix"))
    assert have_same_bits(on_dask.fit(model, one, y).forest_, on_dask.fit(model, other, y).forest_)


@pytest.mark.parametrize("kind", ["rows", "weights", "classes"])
def test_blends_have_the_weights_of_a_sample_and_forests_of_all_partitions(kind, data):
    X, y, _ = data
    manifold = skforest.ManifoldForestClassifier(12, max_depth=3)
    named = [("forest", manifold), MODELS["boosting"], "linear"]
    class_weight = {"yes": 1, "no": 4, "perhaps": 1} if kind == "classes" else None
    weight = np.random.default_rng(1).uniform(size=600) if kind == "weights" else None
    model = skforest.BlendedForestClassifier(named, class_weight=class_weight, random_state=0)
    on_sample = clone(model).fit(X, y, weight)  # which has all rows
    assert all(on_sample.weights_.values())
    given = chunked(X, y) + ([] if weight is None else chunked(weight))
    blend = on_dask.fit(model, *given)
    assert not hasattr(model, "members_")
    assert blend.weights_ == on_sample.weights_ and blend.temperature_ == on_sample.temperature_
    expected = 0
    for name, member in on_sample.members_.items():
        if name != "linear":
            member = clone(member).set_params(class_weight=class_weight)
            member = on_dask.fit(member, *given)
            assert have_same_bits(blend.members_[name].forest_, member.forest_)
        expected = expected + blend.weights_[name] * member.predict_proba(X)
    expected **= 1 / blend.temperature_
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(blend.predict_proba(X), expected, atol=1e-6)
    roots = blend.members_["forest"].forest_.tree_start[:-1]
    if kind == "rows":
        found = blend.members_["forest"].forest_.node_weight[roots]
        np.testing.assert_array_equal(found, 200)
    assert blend.score(X, y) > 0.8


def test_a_blend_of_regressors_on_frames(data):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, y, target = data
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(y=pd.Categorical(y))
    model = skforest.BlendedForestRegressor(["co2", "linear"], n_rounds=5, random_state=0)
    chunks = [dd.from_pandas(given, npartitions=2) for given in (frame, pd.Series(target))]
    blend = on_dask.fit(model, *chunks)
    assert blend.score(frame, target) > 0.7
    found = on_dask.predict(blend, chunks[0]).compute()
    np.testing.assert_array_equal(found, blend.predict(frame))
    with pytest.raises(ValueError, match="use a blend that was not trained by skforest.dask"):
        blend.predict_interval(frame)  # those of the sample are of other forests
    order = np.argsort(target)
    with pytest.warns(UserWarning, match="explain .* of the variance") as record:
        on_dask.fit(model, *chunked(X[order], target[order]))
    assert [w.filename for w in record] == [__file__]


def test_blends_predict(data):
    X, y, _ = data
    members = [MODELS["manifold"], MODELS["endtoend"]]
    blend = skforest.BlendedForestClassifier(members, cv=2, random_state=0).fit(X, y)
    found = on_dask.predict_proba(blend, *chunked(X)).compute()
    np.testing.assert_array_equal(found, blend.predict_proba(X))


def test_warnings(data):
    X, y, target = data
    order = np.argsort(target)
    model = skforest.ManifoldForestRegressor(6, random_state=0)
    with pytest.warns(UserWarning, match=r"explain 7\d% of the variance.*shuffle") as record:
        on_dask.fit(model, *chunked(X[order], target[order]))
    assert record[0].filename == __file__
    with pytest.warns(UserWarning, match="explain .* of the variance"):
        on_dask.fit(MODELS["manifold"], *chunked(X[np.argsort(y)], np.sort(y)))
    # Partitions of two random rows explain half of the variance, by chance.
    rows = SimpleNamespace(y=np.random.default_rng(0).normal(size=(90, 1)), of_samples=lambda y: y)
    with warnings.catch_warnings(action="error"):
        on_dask._warn_if_sorted(model, rows, np.arange(90) // 2)
    with pytest.warns(UserWarning, match="n_estimators=2: 1 of 3 partitions are not used"):
        on_dask.fit(clone(model).set_params(n_estimators=2), *chunked(X, target))


def test_errors(data):
    X, y, target = data
    dX, dy = chunked(X, y)
    model = MODELS["manifold"]
    cases = [
        (TypeError, "X is of type ndarray; a dask", lambda: on_dask.fit(model, X, dy)),
        (TypeError, "y is of type ndarray; a dask", lambda: on_dask.fit(model, dX, y)),
        (ValueError, "X has 600 rows, y has 500", lambda: on_dask.fit(model, dX, dy[:500])),
        (ValueError, "no rows of positive", lambda: on_dask.fit(model, dX, dy, 0 * dX[:, 0])),
        (ValueError, "oob_score=True", lambda: on_dask.fit(oob(), dX, dy)),
        (ValueError, "time_limit=1: tasks of a cl", lambda: on_dask.fit(limited(), dX, dy)),
        (TypeError, "is a LinearRegression", lambda: on_dask.fit(LinearRegression(), dX, dy)),
        (ValueError, "oob_score=True", lambda: on_dask.fit(blend(oob()), dX, dy)),
        (ValueError, "prior=.* needs", lambda: on_dask.fit(blend(prior="balanced"), dX, dy)),
        (ValueError, "and class_weight='balanced' of its member 'a'", lambda: on_dask.fit(blend(
            ("a", weighted()), class_weight={"yes": 2, "no": 1, "perhaps": 1}), dX, dy)),
        (TypeError, "no predict_proba", lambda: on_dask.predict_proba(regressor(), dX)),
        (TypeError, "X is of type ndarray; a dask", lambda: on_dask.predict(regressor(), X)),
        (ValueError, "n_estimators", lambda: on_dask.fit(clone(model).set_params(
            n_estimators=0), dX, dy)),
    ]  # fmt: skip

    def oob():
        return skforest.ManifoldForestClassifier(oob_score=True)

    def limited():
        return skforest.ManifoldForestClassifier(time_limit=1)

    def weighted():
        return skforest.ManifoldForestClassifier(class_weight="balanced")

    def blend(*members, **given):
        return skforest.BlendedForestClassifier(members or "auto", **given)

    def regressor():
        return skforest.ManifoldForestRegressor(2).fit(X, target)

    for kind, match, call in cases:
        with pytest.raises(kind, match=match):
            call()
    unknown = dX[dX[:, 0] > 0]  # chunks of unknown sizes
    with pytest.raises(ValueError, match=r"partition \d has \d+ rows of X, 200 of y"):
        on_dask.fit(model, unknown, dy)
    assert on_dask.fit(model, unknown, dy[dX[:, 0] > 0]).n_features_in_ == 6


# ----------------------------------------------------------------------------------- in processes


def test_the_number_of_workers_has_no_influence(data, cluster):
    X, y, _ = data
    model, chunks = MODELS["manifold"], chunked(X, y)
    fitted = on_dask.fit(model, *chunks)
    with dask.config.set(scheduler="synchronous"):
        assert have_same_bits(fitted.forest_, on_dask.fit(model, *chunks).forest_)
    np.testing.assert_array_equal(on_dask.predict(fitted, chunks[0]).compute(), fitted.predict(X))


@models
def test_same_bits_in_processes_of_dask(model, data, cluster, monkeypatch):
    monkeypatch.setattr("skforest.training.trials.IMPORTANCE_TREES", 50)  # as in the processes
    X, y = of_kind(model, data)
    expected = clone(model).fit(X, y)
    with joblib.parallel_config(backend="dask"):
        fitted = clone(model).fit(X, y)
        np.testing.assert_array_equal(fitted.predict(X), expected.predict(X))
    assert have_same_bits(fitted.forest_, expected.forest_)
    for name in ("n_iter_", "loss_curve_", "validation_scores_"):
        for one, other in zip(getattr(fitted, name, []), getattr(expected, name, [])):
            np.testing.assert_array_equal(one, other)


def test_the_training_set_is_sent_once_to_each_process(data, cluster):
    X, y, _ = data
    n_sent = 0

    class Counted(SharedFunction):
        def __reduce__(self):
            nonlocal n_sent
            n_sent += 1
            return SharedFunction, (self.function,)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skforest.training.threads.SharedFunction", Counted)
        with joblib.parallel_config(backend="dask"):
            skforest.ManifoldForestClassifier(30, random_state=0).fit(X, y)
    assert 1 <= n_sent <= 4  # dask tries pickle, then cloudpickle


def test_the_size_of_what_is_sent():
    X = np.zeros((100, 50))
    assert 40_000 < SharedFunction(lambda member, control: X).__sizeof__() < 50_000


@pytest.mark.usefixtures("interruptible")
def test_time_limits_and_interrupts_in_processes(data, cluster):
    X, _, y = data
    model = skforest.ManifoldForestRegressor(100_000, bootstrap=False, random_state=0)
    model.set_params(time_limit=0.4)
    with joblib.parallel_config(backend="dask"):
        with pytest.warns(UserWarning, match="time_limit=0.4: .* of 100000 trees"):
            model.fit(X, y)
        assert 1 <= len(model.forest_) < 1000
        model.set_params(time_limit=None)
        interrupt = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0.2, 0.5])
@pytest.mark.parametrize("way", ["partitions", "processes"])
def test_a_killed_worker_changes_nothing(way, moment, data):
    distributed = pytest.importorskip("distributed")
    model = skforest.ObliqueBoostingClassifier(300, n_bags=6, random_state=0)
    model.set_params(early_stopping=False)
    with two_processes(distributed) as client:
        client.run(__import__, "skforest")
        start = time.perf_counter()
        expected = fit_in(way, clone(model), data)
        killed, pids = [], list(client.run(os.getpid).values())

        def kill():
            os.kill(pids[0], signal.SIGKILL)
            killed.append(pids[0])

        timer = threading.Timer(moment * (time.perf_counter() - start), kill)
        timer.start()
        fitted = fit_in(way, clone(model), data)
        assert killed
    assert have_same_bits(fitted.forest_, expected.forest_)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["partitions", "processes"])
def test_a_restarted_cluster_ends_the_fit_with_an_error(way, data):
    distributed = pytest.importorskip("distributed")
    model = skforest.ObliqueBoostingClassifier(1000, n_bags=6, random_state=0)
    model.set_params(early_stopping=False)
    with two_processes(distributed) as client:
        timer = threading.Timer(2, client.restart)
        timer.start()
        with pytest.raises(Exception, match="[Rr]estart|cancelled"):
            fit_in(way, model, data)
        assert not hasattr(model, "forest_")
        timer.join()


def two_processes(distributed):
    return distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None)


def fit_in(way, model, data):
    """The model, fitted on partitions, or with trees in processes."""
    if way == "partitions":
        return on_dask.fit(model, *chunked(*data[:2], n_rows=100))
    with joblib.parallel_config(backend="dask"):
        return model.fit(*data[:2])


@pytest.mark.slow
@models
def test_same_bits_in_processes_of_ray(model, data):
    ray = pytest.importorskip("ray")
    from ray.util.joblib import register_ray

    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    register_ray()
    X, y = of_kind(model, data)
    expected = clone(model).fit(X, y)
    with joblib.parallel_config(backend="ray", n_jobs=2):
        fitted = clone(model).fit(X, y)
        np.testing.assert_array_equal(fitted.predict(X), expected.predict(X))
    assert have_same_bits(fitted.forest_, expected.forest_)


@pytest.mark.slow
def test_partitions_on_ray(data):
    ray = pytest.importorskip("ray")
    from ray.util.dask import enable_dask_on_ray

    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    expected = on_dask.fit(MODELS["manifold"], *chunked(*data[:2]))
    with enable_dask_on_ray():
        fitted = on_dask.fit(MODELS["manifold"], *chunked(*data[:2]))
    assert have_same_bits(fitted.forest_, expected.forest_)
