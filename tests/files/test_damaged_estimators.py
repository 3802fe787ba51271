"""Files of estimators that are damaged: a ValueError, or a model that can be used."""

import json
import sys
import tracemalloc

import numpy as np
import pytest
from archives import (
    SAVED,
    first,
    golden,
    load_and_use,
    npy,
    npy_of_text,
    read_archive,
    rewritten,
    write_archive,
    write_edited,
    write_edited_folder,
)
from forests import rich_mixed
from hypothesis import given, settings
from hypothesis import strategies as st
from makers import fixed, use
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline

import skforest
from skforest.forest import ARRAYS, Forest, io

# ---------------------------------------------------------------------- files of small size only


def expanding_arrays(n_bytes):
    """Pairs of metadata and arrays that take some memory, of which a file has a few KB."""
    one = {"tree_start": np.array([0, 1]), "child": np.full(1, -1, "i1"), "threshold": zeros(0)}
    one["value"] = zeros(1)
    n = n_bytes // 24
    roots = {"delta:tree_start": (np.arange(n + 1) > 0).astype(np.uint8)}
    roots |= {"child": np.full(n, -1, "i1"), "threshold": zeros(0), "value": zeros(1)}
    yield {}, roots
    m = n_bytes // 54
    child = np.append(1 + 2 * np.arange(m), np.full(m + 1, -1)).astype(np.int32)
    tree = {"tree_start": np.array([0, 2 * m + 1]), "child": child, "threshold": zeros(m)}
    yield {}, one | tree | {"direction": zeros(m)}
    n = n_bytes // 17
    yield {"n_features": n}, one | {"source": zeros(n), "kind": zeros(n), "fill": zeros(1)}
    n = n_bytes // 40
    inputs = {"source": np.arange(n, dtype=np.int32), "kind": zeros(n), "fill": zeros(n)}
    yield {"n_features": n}, one | inputs | {"offset": zeros(n), "scale": zeros(n) + 1}
    n, axis = n_bytes // 54, {"feature_shape": [1] * 8, "wrap": [False] * 8}
    boxes = {"box_corner": zeros(n), "box_other": zeros(n), "box_size": zeros(n, 8) + 1}
    yield axis | {"unordered": [False] * 8}, one | boxes | {"box_subset": zeros(n, 0)}
    subset = zeros(1, n_bytes // 3)
    subset[0, 0], n = 1, 8 * subset.size
    boxes = {"box_corner": zeros(1), "box_other": zeros(1), "box_size": zeros(1, 1) + 1}
    axis = {"n_features": n, "feature_shape": [n], "wrap": [False], "unordered": [True]}
    yield axis, one | boxes | {"box_subset": subset}
    n = n_bytes // 50
    labels = {"value": zeros(n), "baseline": zeros(n), "classes": np.zeros(n, "<U8")}
    yield {"n_outputs": n, "task": "classification"}, one | labels


def zeros(*shape):
    return np.zeros(shape, np.uint8)


def completed(arrays, forest):
    """All arrays; those that are not given are as short as they may be, or have one per node."""
    n_nodes, n_splits = len(arrays["child"]), len(arrays["threshold"])
    n_trees, n_features = n_nodes - 2 * n_splits, forest["n_features"]
    shapes = {"node_weight": n_nodes, "gain": n_splits, "baseline": forest["n_outputs"]}
    shapes |= {"sparse_start": 1, "table_start": len(arrays.get("source", ())) + 1}
    shapes |= {"dense": (0, n_features), "slope": (0, forest["n_outputs"]), "knots": (0, 2, 8)}
    shapes |= {"box_size": (0, len(forest.get("feature_shape", "1"))), "box_subset": (0, 0)}
    known = {key.removeprefix("delta:") for key in arrays}
    missing = {name: np.zeros(shapes.get(name, 0), np.uint8) for name in ARRAYS.keys() - known}
    return arrays | missing | {"bag_start": np.array([0, n_trees])}


def expanding_texts(header, n_bytes):
    """Headers of a saved estimator with entries that take some memory."""
    estimators = '{"estimator":"E2EDecisionForest","params":{}},' * (n_bytes // 2200)
    entries = (
        "[" + "[]," * (n_bytes // 360) + "[]]",
        '{"set":[' + ",".join(map(str, range(n_bytes // 160))) + "]}",
        '"' + "a" * (n_bytes // 13) + '\\ud83d\\ude00"',
        f"[{estimators} 9]",
    )
    for entry in entries:
        yield header.replace('"state": {', f'"state": {{"a": {entry}, ', 1)
    levels = ",".join(map(str, range(n_bytes // 160)))
    yield header.replace('"levels": [', f'"levels": [[9, [{levels}]], ', 1)


def expanding_files(path, n_bytes):
    """Contents of files with about as much memory as `load` accepts, by names of their members."""
    for metadata, arrays in expanding_arrays(n_bytes):
        default = {"n_features": 1, "n_outputs": 1, "task": "regression", "levels": []}
        forest = default | metadata
        arrays = {f"0.{name}": array for name, array in completed(arrays, forest).items()}
        header = {"format": 1, "members": [{"forest": forest}], "arrays": list(arrays)}
        members = {f"{k}.npy": npy(v.dtype.str, v.shape, v.tobytes()) for k, v in arrays.items()}
        yield members | {"header.npy": npy_of_text(json.dumps(header))}
    for text in expanding_texts(str(np.load(path)["header"]), n_bytes):
        yield read_archive(path) | {"header.npy": npy_of_text(text)}


def test_no_file_takes_more_memory_than_documented(tmp_path, monkeypatch):
    """At most 10 times its size and 64 MiB; here with less of it, since tracing is slow."""
    others = 2**26 - io.FREE_MEMORY
    monkeypatch.setattr(io, "FREE_MEMORY", 2**23)
    path = tmp_path / "model.npz"
    for members in expanding_files(golden("table_classifier"), io.FREE_MEMORY):
        write_archive(path, members)
        tracemalloc.start()
        try:
            skforest.load(path)
        except ValueError as error:
            assert "would take" not in str(error)  # it is as large as it may be
        finally:
            peak = tracemalloc.get_traced_memory()[1] - io.MEMORY_FACTOR * path.stat().st_size
            tracemalloc.stop()
        assert io.FREE_MEMORY / 4 < peak < io.FREE_MEMORY + others / 2


def test_arrays_of_strings_are_limited(saved, tmp_path):
    """All strings of an array take as much as the longest."""
    path = tmp_path / "model.npz"
    path.write_bytes(saved[0].read_bytes())
    strings = {"array": ["a" * 2000] + [""] * 2000, "dtype": "U"}
    rewritten(path, header=lambda head: first(head)["state"].update(a=strings))
    with pytest.raises(ValueError, match="model.npz is damaged: .*arrays of strings"):
        skforest.load(path)
    model = skforest.load(saved[0])
    model.strings_ = np.array(strings["array"])
    with pytest.raises(ValueError, match="arrays of strings of 16008000 bytes"):
        skforest.save(model, path)


# ------------------------------------------------------------------------- damaged estimators


@pytest.fixture(scope="module", params=["classifier", "regressor"])
def saved(request, tmp_path_factory):
    """A saved estimator, as bytes by name, and the rows it was fitted to."""
    X, y = load_iris(return_X_y=True)
    if request.param == "classifier":
        model = skforest.ManifoldForestClassifier(3, random_state=0).fit(X, y)
    else:
        model = skforest.ManifoldForestRegressor(3, random_state=0).fit(X, y.astype(float))
    path = tmp_path_factory.mktemp("saved") / "model.npz"
    skforest.save(model, path)
    return path, X


@pytest.mark.parametrize(
    "damage",
    [
        lambda head: first(head)["state"].pop("n_features_in_"),
        lambda head: first(head)["state"].pop("n_outputs_"),
        lambda head: first(head)["state"].update(n_features_in_="4"),
        lambda head: (
            first(head)["state"].update(_is_1d=[]) or first(head)["state"].pop("n_classes_", 0)
        ),
        lambda head: first(head)["state"].update(feature_names_in_=None),
        lambda head: first(head)["state"].update(
            a={"array": ["a"], "dtype": "<U500000000"}, n_outputs_=None
        ),
        lambda head: first(head)["state"].update(a={"array": ["a"], "dtype": "<U500000000"}),
        lambda head: first(head)["state"].update(a={"array": [0], "dtype": "O"}),
        lambda head: first(head)["state"].update(a={"array": [300], "dtype": "u1"}),
        lambda head: first(head)["state"].update(a={"items": [[[], 1]]}),
        lambda head: first(head)["state"].update(a={"items": 1}),
        lambda head: first(head)["state"].update(a=deeply_nested()),
        lambda head: first(head)["state"].update(__class__="x"),
        lambda head: first(head).update(state=[]),
        lambda head: first(head).update(params=5),
        lambda head: first(head)["forest"].update(task="clustering"),
    ],
)
def test_damaged_estimators_raise_errors_that_name_the_file(damage, saved, tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(saved[0].read_bytes())
    rewritten(path, header=damage)
    head = json.loads(str(np.load(path)["header"]))
    if first(head)["forest"]["task"] == "classification" and "_is_1d" in first(head)["state"]:
        return  # classifiers do not read it
    with pytest.raises(ValueError, match="model.npz is damaged"):
        skforest.load(path)


def dates_of(state):
    return state["_dates"]["items"][0][1]["tuple"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.update(n_features_in_=10**9),
        lambda state: state.update(n_features_in_=2),
        lambda state: state.update(feature_names_in_=["when", "then"]),
        lambda state: state.update(feature_names_in_=[1]),
        lambda state: state.pop("_dates"),
        lambda state: state.update(_dates=[]),
        lambda state: state.update(_words=[]),
        lambda state: state["_words"]["items"][0].__setitem__(1, [1]),
        lambda state: dates_of(state).pop(),
        lambda state: dates_of(state).__setitem__(0, 3),
        lambda state: dates_of(state).__setitem__(1, "%s"),
        lambda state: dates_of(state).__setitem__(2, 10**30),
        lambda state: dates_of(state).__setitem__(2, "0"),
        lambda state: dates_of(state).__setitem__(3, ["age"] * 4),
        lambda state: dates_of(state).__setitem__(3, ["days"]),
        lambda state: state["_dates"]["items"][0].__setitem__(0, 1),
    ],
)
def test_damaged_dates_are_refused(damage, tmp_path):
    path = tmp_path / "model.npz"
    X = np.array([[f"2025-0{month}-01"] for month in range(1, 9)], dtype=object)
    forest = skforest.ManifoldForestRegressor(1, random_state=0)
    skforest.save(make_pipeline(skforest.DateFeatures(), forest).fit(X, np.arange(8)), path)
    rewritten(path, header=lambda head: damage(head["pipeline"]["transformers"][0][1]["state"]))
    with pytest.raises(ValueError, match="model.npz is damaged"):
        skforest.load(path)


def test_a_wrong_number_of_features_is_refused(saved, tmp_path):
    """Rows of fewer columns than the trees read were read beyond their end."""
    path = tmp_path / "model.npz"
    path.write_bytes(saved[0].read_bytes())
    rewritten(path, header=lambda head: first(head)["state"].update(n_features_in_=1))
    with pytest.raises(ValueError, match="n_features_in_ is 1, not 4"):
        skforest.load(path)
    model = skforest.load(saved[0])
    model.n_features_in_ = 1  # as another format of files may do
    with pytest.raises(ValueError, match="X has 1 features, the trees read 4"):
        model.predict(np.zeros((3, 1)))
    with pytest.raises(ValueError, match="X has 5 features, the trees read 4"):
        model.forest_.apply_mapped(np.zeros((3, 5), dtype=np.float32))


def deeply_nested():
    """Lists that JSON can write and read, and that are too deep for functions in Python."""
    lists = []
    for _ in range(800 if sys.version_info < (3, 12) else 1200):
        lists = [lists]
    return lists


EDIT = st.tuples(
    st.sampled_from(["set", "flip", "cut", "repeat", "header"]),
    st.integers(0, 2**24),  # where, modulo what there is
    st.integers(0, 255),
)


def test_members_of_a_blend_have_equal_classes(tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(golden("blend_classifier").read_bytes())
    with np.load(path) as file:
        classes = file["1.classes"]
    rewritten(path, **{"1.classes": np.arange(10, 10 + len(classes))})
    with pytest.raises(ValueError, match="members have different classes"):
        skforest.load(path)


@pytest.mark.parametrize(
    "name, damage, message",
    [
        ("blend_classifier", lambda head: head.pop("estimator"), "2 forests, but is no blend"),
        (
            "blend_classifier",
            lambda head: head.update(estimator="CO2ForestClassifier", params={}),
            "a CO2ForestClassifier has one forest, not 2",
        ),
        (
            "manifold_classifier",
            lambda head: first(head).update(estimator="BlendedForestClassifier", params={}),
            "a BlendedForestClassifier is no estimator of one forest",
        ),
    ],
)
def test_only_blends_have_several_forests(name, damage, message, tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(golden(name).read_bytes())
    rewritten(path, damage)
    with pytest.raises(ValueError, match=f"model.npz is damaged: .*{message}"):
        skforest.load(path)


def test_categories_are_not_scaled():
    forest = rich_mixed()
    ones = np.ones(forest.n_inputs)
    arrays = forest.arrays | {"offset": 0 * ones, "scale": ones}
    use(Forest(arrays, **forest.metadata))
    for change in ({"scale": np.full(forest.n_inputs, 1e-18)}, {"offset": ones}):
        with pytest.raises(ValueError, match="a category is scaled"):
            Forest(arrays | change, **forest.metadata)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:Reading .*npy:UserWarning")
@pytest.mark.parametrize("n", [60, pytest.param(5_000, marks=pytest.mark.slow)])
def test_damaged_estimators_are_refused_or_can_be_used(n, tmp_path):
    @settings(fixed, max_examples=n)
    @given(st.sampled_from(SAVED), st.lists(EDIT, min_size=1, max_size=3), st.booleans())
    def check(source, edits, is_archive):
        write_edited(source, tmp_path / "model.npz", edits, is_archive)
        load_and_use(tmp_path / "model.npz")

    check()


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:Reading .*npy:UserWarning")
@pytest.mark.parametrize("n", [20, pytest.param(2_000, marks=pytest.mark.slow)])
def test_damaged_folders_are_refused_or_can_be_used(n, tmp_path):
    @settings(fixed, max_examples=n)
    @given(st.sampled_from(SAVED), st.lists(EDIT, min_size=1, max_size=3), st.booleans())
    def check(source, edits, is_mapped):
        write_edited_folder(source, tmp_path / "model", edits)
        load_and_use(tmp_path / "model", "r" if is_mapped else None)

    check()


@pytest.mark.parametrize(
    "parts", [[[1.0], [0], [0, 1]], [[1.0], [9], [0, 1, 1]], [[], [], []], [0]], ids=str
)
def test_a_damaged_sparse_parameter_is_refused(parts, tmp_path):
    path = tmp_path / "model.npz"
    model = skforest.ManifoldForestRegressor(1, feature_graph=sparse.eye_array(2))
    skforest.save(model.fit([[0.0, 1.0], [1.0, 0.0]], [0.0, 1.0]), path)
    members = read_archive(path)
    header = json.loads(str(np.load(path)["header"]))
    params = header["members"][0]["params"]
    assert params["feature_graph"]["shape"] == [2, 2]
    params["feature_graph"]["sparse"] = parts
    write_archive(path, members | {"header.npy": npy_of_text(json.dumps(header))})
    with pytest.raises(ValueError, match="damaged"):
        skforest.load(path)
