"""Blends in files."""

import json
import zipfile

import numpy as np
import pytest
from blends import HINGE, classes, classifier, each_kind, regressor, targets
from makers import response
from sklearn.base import clone
from sklearn.ensemble import (
    ExtraTreesClassifier,
)
from sklearn.exceptions import NotFittedError

import skforest
from skforest import (
    ManifoldForestClassifier,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)


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
        blend = classifier(members=[RandomHingeForestClassifier(10, **HINGE), "manifold"])
        blend.fit(frame, target)
        skforest.save(blend, tmp_path / "blend")
        again = skforest.load(tmp_path / "blend")
        assert again.feature_names_in_.tolist() == list("abcdef")
        np.testing.assert_array_equal(again.predict(frame), blend.predict(frame))
    X, y = targets()
    blend = regressor(members=[RandomHingeForestRegressor(10, **HINGE)]).fit(X, y)
    skforest.save(blend, tmp_path / "blend")
    np.testing.assert_array_equal(skforest.load(tmp_path / "blend").predict(X), blend.predict(X))


def test_members_of_other_packages_are_not_saved(tmp_path):
    X, y = classes()
    blend = classifier(members=[ExtraTreesClassifier(5)]).fit(X, y)
    with pytest.raises(TypeError, match="'ExtraTrees' of the blend is a ExtraTrees.*joblib"):
        skforest.save(blend, tmp_path / "blend")
    with pytest.raises(NotFittedError):
        skforest.save(classifier(), tmp_path / "blend")
    assert not list(tmp_path.iterdir())


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

    check("no list of members", members=[])
    check("no list of members", members=header["members"] * 1001)
    check("does not describe a forest", members=[{}])
    check("not the name of an array", arrays=["child"])
    check("not the name of an array", arrays=["00.child"])
    check("not the name of an array", arrays=["1.child"])
    check("not the name of an array", arrays=["0.../../x"])
    check("has one forest", estimator="CO2ForestClassifier", params={})
    check("damaged", members=header["members"] * 2)
    check("damaged", state=header["state"] | {"temperature_": 0})
    check("damaged", state=header["state"] | {"weights_": {"items": []}})
    check("damaged", state=header["state"] | {"n_features_in_": 7})
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
