"""Blends in files."""

import json
import sys
import zipfile

import numpy as np
import pytest
from blends import HINGE, classes, classifier, each_kind, regressor, targets
from makers import response
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

import skforest
from skforest import (
    ManifoldForestClassifier,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)
from skforest.blend.encoding import MemberPipeline


@pytest.mark.parametrize("layout", ["file", "folder"])
@each_kind
def test_save_and_load(blend, data, layout, tmp_path):
    X, y = data
    blend = clone(blend).fit(X, y)
    skforest.save(blend, tmp_path / "blend", layout=layout)
    mmap_mode = "r" if layout == "folder" else None
    again = skforest.load(tmp_path / "blend", mmap_mode=mmap_mode)
    assert repr(again) == repr(blend)
    assert again.weights_ == blend.weights_
    assert again.leaderboard_.equals(blend.leaderboard_)
    np.testing.assert_array_equal(response(again, X), response(blend, X))
    for name, member in blend.members_.items():
        np.testing.assert_array_equal(response(again.members_[name], X), response(member, X))
    smaller = skforest.slim(again)
    np.testing.assert_array_equal(response(smaller, X), response(blend, X))
    assert not hasattr(smaller, "feature_importances_")
    assert again.feature_importances_.sum() == pytest.approx(1)
    with pytest.raises(ValueError, match=r"contains \d forests; skforest.load reads it"):
        skforest.Forest.load(tmp_path / "blend")


def test_save_tables_labels_and_outputs(tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = classes()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    for target in (np.array(["x", "y", "z"])[y], np.column_stack([y, y > 1])):
        blend = classifier(
            members=[RandomHingeForestClassifier(5, **HINGE), ManifoldForestClassifier(10)]
        )
        blend.fit(frame, target)
        skforest.save(blend, tmp_path / "blend")
        again = skforest.load(tmp_path / "blend")
        assert again.feature_names_in_.tolist() == list("abcdef")
        np.testing.assert_array_equal(again.predict(frame), blend.predict(frame))
    X, y = targets()
    blend = regressor(members=[RandomHingeForestRegressor(10, **HINGE)]).fit(X, y)
    skforest.save(blend, tmp_path / "blend")
    np.testing.assert_array_equal(skforest.load(tmp_path / "blend").predict(X), blend.predict(X))


def with_other_members():
    """A blend of a forest and an encoded linear model, and its table."""
    pd = pytest.importorskip("pandas")
    X, y = classes()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame["g"] = np.array(["one", "two", "three"])[y] + np.array(
        [str(i % 5) for i in range(len(y))]
    )
    frame.loc[::7, "a"] = np.nan
    members = [ManifoldForestClassifier(5), ("linear", LogisticRegression(max_iter=500))]
    blend = classifier(members=members, n_rounds=5).fit(frame, np.array(["x", "y", "z"])[y])
    return blend, frame


@pytest.mark.parametrize("layout", ["file", "folder"])
def test_members_of_other_packages_are_written_by_skops(layout, tmp_path):
    pytest.importorskip("skops.io")
    blend, frame = with_other_members()
    assert {type(member) for member in blend.members_.values()} == {
        ManifoldForestClassifier,
        MemberPipeline,
    }
    for name in ("members_", "weights_"):  # forests do not come first
        setattr(blend, name, dict(reversed(getattr(blend, name).items())))
    skforest.save(blend, tmp_path / "blend", layout=layout)
    again = skforest.load(tmp_path / "blend", mmap_mode="r" if layout == "folder" else None)
    assert repr(again) == repr(blend) and list(again.members_) == list(blend.members_)
    assert again.leaderboard_.equals(blend.leaderboard_)
    np.testing.assert_array_equal(again.predict_proba(frame), blend.predict_proba(frame))
    np.testing.assert_array_equal(again.predict(frame), blend.predict(frame))
    skforest.save(again, tmp_path / "again")
    np.testing.assert_array_equal(
        skforest.load(tmp_path / "again").predict(frame), blend.predict(frame)
    )


def test_a_blend_without_any_forest(tmp_path):
    pytest.importorskip("skops.io")
    X, y = classes()
    labels = np.array(["x", "y", "z"], dtype=object)[y]
    blend = classifier(members=[LogisticRegression()]).fit(X, labels)
    numbers = regressor(members=[Ridge()]).fit(X, np.column_stack([y, -y]))
    pd = pytest.importorskip("pandas")
    named = classifier(members=[LogisticRegression()])
    named.fit(pd.DataFrame(X, columns=list("abcdef")), labels)
    skforest.save(named, tmp_path / "blend")
    assert skforest.load(tmp_path / "blend").feature_names_in_.tolist() == list("abcdef")
    for model in (blend, numbers):
        skforest.save(model, tmp_path / "blend")
        np.testing.assert_array_equal(
            skforest.load(tmp_path / "blend").predict(X), model.predict(X)
        )
    with pytest.raises(ValueError, match="contains 0 forests"):
        skforest.Forest.load(tmp_path / "blend")


class Unknown(LogisticRegression):
    """An estimator of a user."""


def test_types_that_are_not_trusted(tmp_path):
    pytest.importorskip("skops.io")
    X, y = classes()
    blend = classifier(members=[Unknown()]).fit(X, y)
    path = tmp_path / "blend"
    skforest.save(blend, path)
    name = f"{Unknown.__module__}.Unknown"
    with pytest.raises(TypeError, match=rf"not trusted, \['{name}'\].*pass trusted="):
        skforest.load(path)
    again = skforest.load(path, trusted=[name])
    np.testing.assert_array_equal(again.predict_proba(X), blend.predict_proba(X))
    with pytest.raises(TypeError, match="trusted='x' must be a list of names"):
        skforest.load(path, trusted="x")


def test_without_skops(tmp_path, monkeypatch):
    X, y = classes()
    blend = classifier(members=[LogisticRegression()]).fit(X, y)
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(ImportError, match="saving LogisticRegression.* needs the package skops"):
        skforest.save(blend, tmp_path / "blend")
    with pytest.raises(NotFittedError):
        skforest.save(classifier(), tmp_path / "blend")
    assert not list(tmp_path.iterdir())


def test_damaged_objects_of_other_packages(tmp_path):
    pytest.importorskip("skops.io")
    X, y = classes()
    blend = classifier(members=[LogisticRegression()]).fit(X, y)
    folder = tmp_path / "blend"
    skforest.save(blend, folder, layout="folder")
    header = json.loads((folder / "header.json").read_text())

    def check(message, **entries):
        (folder / "header.json").write_text(json.dumps(header | entries))
        with pytest.raises(ValueError, match=message):
            skforest.load(folder)

    check("has no object 9", other_members=[["LogisticRegression", {"other": 9}]])
    check("has no object -1", other_members=[["LogisticRegression", {"other": -1}]])
    check("has no object 'x'", other_members=[["LogisticRegression", {"other": "x"}]])
    check("no members", other_members=[])
    blend.members_ = {"LogisticRegression": StandardScaler().fit(X)}
    skforest.save(blend, tmp_path / "scaler", layout="folder")
    with pytest.raises(ValueError, match="the member 'LogisticRegression' is a StandardScaler"):
        skforest.load(tmp_path / "scaler")
    check("neither forests nor other models", arrays=[])
    check("damaged", other_members=3)
    (folder / "header.json").write_text(json.dumps(header))
    np.save(folder / "others.npy", np.arange(100, dtype=np.uint8))
    with pytest.raises(ValueError, match="damaged"):
        skforest.load(folder)


def test_damaged_files_are_refused(tmp_path):
    X, y = classes()
    blend = classifier(members=[ManifoldForestClassifier(5)]).fit(X, y)
    folder = tmp_path / "blend"
    skforest.save(blend, folder, layout="folder")
    header = json.loads((folder / "header.json").read_text())
    assert all(name.startswith("0.") for name in header["arrays"])

    def check(message, **entries):
        (folder / "header.json").write_text(json.dumps(header | entries))
        with pytest.raises(ValueError, match=message):
            skforest.load(folder)

    check("differ|not the name", members=[])
    check("no list of members", members=header["members"] * 1001)
    check("does not describe a forest", members=[{}])
    check("not the name of an array", arrays=["child"])
    check("not the name of an array", arrays=["00.child"])
    check("not the name of an array", arrays=["1.child"])
    check("not the name of an array", arrays=["0.../../x"])
    check("has one forest", estimator="CO2ForestClassifier", params={})
    check("damaged", members=header["members"] * 2)
    for temperature in (0, 0.0, -1.0):
        check("temperature_ is", state=header["state"] | {"temperature_": temperature})
    check("damaged", state=header["state"] | {"weights_": {"items": []}})
    check("different numbers of features", state=header["state"] | {"n_features_in_": 7})
    check("damaged", state=header["state"] | {"fit": 1})
    (folder / "header.json").write_text(json.dumps(header))
    np.testing.assert_array_equal(skforest.load(folder).predict(X), blend.predict(X))


def test_damaged_archives_are_refused(tmp_path):
    X, y = classes()
    path = tmp_path / "blend.npz"
    skforest.save(classifier(members=[ManifoldForestClassifier(5)]).fit(X, y), path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("0.", "1.", 1), content)
    with pytest.raises(ValueError, match="damaged"):
        skforest.load(path)
