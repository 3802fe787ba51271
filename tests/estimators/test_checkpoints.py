"""Checkpoints: an interrupted fit that continues has the bits of one that was not interrupted."""

import io
import pickle

import numpy as np
import pandas as pd
import pytest
from makers import assert_same_trees, boosting_rows, hinge_rows, quick_boosting, quick_hinge
from sklearn.base import clone, is_classifier
from sklearn.metrics import make_scorer

from skforest import (
    BlendedForestRegressor,
    CO2ForestRegressor,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    load,
    save,
)
from skforest.training import boosting_rounds, checkpoint
from skforest.training.growing import GrowingMethod

MEMBERS = {
    "trees": ManifoldForestClassifier(4, bootstrap=True, oob_score=True, random_state=0),
    "refined trees": CO2ForestRegressor(3, max_depth=3, refine="nongreedy", random_state=0),
    "hinge": quick_hinge(RandomHingeForestClassifier, n_bags=3, max_iter=80),
    "bags": quick_boosting(ObliqueBoostingRegressor, n_bags=3, n_estimators=5, linear_start=None),
}
OF_UNITS = "units, names or categories of X"


def rows_of(model, n=90):
    return hinge_rows(RandomHingeForestClassifier if is_classifier(model) else None, n)


def assert_same_fit(one, other):
    assert_same_trees(one, other)
    assert vars(one).keys() == vars(other).keys()
    for name in vars(one).keys() - {"forest_", "_training_seconds"}:
        np.testing.assert_equal(vars(one)[name], vars(other)[name], name)


@pytest.mark.parametrize("model", MEMBERS.values(), ids=MEMBERS)
def test_a_fit_that_was_interrupted_continues(model, tmp_path, monkeypatch):
    """After the second tree or bag; neither is trained again."""
    X, y = rows_of(model)
    save, names = checkpoint.Checkpoint.save, []

    def interrupted(self, name, result):
        save(self, name, result)
        names.append(name)
        if len(names) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.Checkpoint, "save", interrupted)
    model, at_once = clone(model), clone(model).fit(X, y)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y, checkpoint=tmp_path / "new" / "folder")
    assert not hasattr(model, "forest_") and len(names) == 2
    model.fit(X, y, checkpoint=tmp_path / "new" / "folder")
    assert_same_fit(model, at_once)
    n_members = getattr(model, "n_bags", model.n_estimators)
    assert len(set(names)) == len(names) == n_members
    # A third call trains nothing; threads, progress and a prior do not matter.
    for change in ({"n_jobs": 2}, {"verbose": 1}, {"prior": [0.2, 0.3, 0.5]}):
        if change.keys() <= model.get_params().keys():
            other = clone(model).set_params(**change)
            other.fit(X, y, checkpoint=tmp_path / "new" / "folder")
    assert len(names) == n_members


def test_a_blend_that_was_interrupted_continues(tmp_path, monkeypatch):
    """In the folds of both members, and where the first one is trained on all rows."""
    X, y = boosting_rows(ObliqueBoostingRegressor, 90)
    members = [CO2ForestRegressor(4, max_depth=3)]
    members += [quick_boosting(ObliqueBoostingRegressor, n_estimators=4, linear_start=None)]
    blend = BlendedForestRegressor(members, cv=2, random_state=0)
    at_once = clone(blend).fit(X, y)
    save, names = checkpoint.Checkpoint.save, []

    def interrupted(self, name, result):
        names.append((self.folder, name))
        if len(names) in (3, 6, 9):
            raise KeyboardInterrupt
        save(self, name, result)

    monkeypatch.setattr(checkpoint.Checkpoint, "save", interrupted)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            blend.fit(X, y, checkpoint=tmp_path)
    blend.fit(X, y, checkpoint=tmp_path)
    np.testing.assert_array_equal(blend.predict(X), at_once.predict(X))
    assert blend.weights_ == at_once.weights_
    folders = [
        tmp_path / name
        for name in ("member-CO2Forest/folds", "member-ObliqueBoosting/learned folds")
    ]
    assert [names[number][0] for number in (2, 5, 8)] == [
        *folders,
        tmp_path / "member-CO2Forest/all",
    ]
    assert len(set(names)) == len(names) - 3
    with pytest.raises(ValueError, match="checkpoint=.*folds.* other X or y"):
        blend.fit(X[:50], y[:50], checkpoint=tmp_path)
    with pytest.raises(ValueError, match="checkpoint cannot be used with time_limit=9"):
        blend.set_params(time_limit=9).fit(X, y, checkpoint=tmp_path)


@pytest.mark.parametrize("stops", [(7,), (3, 15), (20,)])
def test_rounds_of_a_bag_continue(stops, tmp_path, monkeypatch):
    """Before, and in, the second training on all rows; several times."""
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    X, y = boosting_rows(ObliqueBoostingClassifier, 100)
    model = quick_boosting(ObliqueBoostingClassifier, n_bags=1, n_estimators=12)
    at_once = clone(model).fit(X, y)
    grow, numbers = boosting_rounds.BoostingTraining._grow_tree, []

    def interrupted(self, *args):
        numbers.append(args[0])
        if len(numbers) - 1 in stops:
            raise KeyboardInterrupt
        return grow(self, *args)

    monkeypatch.setattr(boosting_rounds.BoostingTraining, "_grow_tree", interrupted)
    for _ in stops:
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y, checkpoint=tmp_path)
    model.fit(X, y, checkpoint=tmp_path)
    assert_same_fit(model, at_once)
    n_rounds = len(at_once.validation_scores_[0]) - 1 + at_once.n_iter_[0]
    assert len(numbers) == n_rounds + len(stops)  # only the round that was interrupted is repeated


def test_a_folder_of_another_fit_is_refused(tmp_path):
    X, y = rows_of(ManifoldForestClassifier())
    model = ManifoldForestClassifier(2, max_depth=2, random_state=0)
    model.fit(X, y, checkpoint=tmp_path)
    order = np.random.default_rng(0).permutation(len(y))
    model.fit(X[order], y[order], checkpoint=tmp_path)  # the same weighted set of rows
    for changes, rows, words in (
        ({"max_depth": 3}, (X, y), "max_depth:"),
        ({"random_state": 1, "n_estimators": 3}, (X, y), "n_estimators, random_state:"),
        ({}, (X + 1, y), f"X or y, {OF_UNITS}:"),
        ({}, (X, np.roll(y, 1)), "X or y:"),
        ({}, (X, y, np.arange(len(y)) + 1), "sample_weight or class_weight:"),
    ):
        other = clone(model).set_params(**changes)
        with pytest.raises(ValueError, match=f"checkpoint=.* a fit with other .*{words} pass"):
            other.fit(*rows, checkpoint=tmp_path)
    for estimator in (clone(model), BlendedForestRegressor()):
        with pytest.raises(ValueError, match="checkpoint cannot be used with random_state=None"):
            estimator.set_params(random_state=None).fit(X, y, checkpoint=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(ValueError, match="checkpoint cannot be used with time_limit=9"):
        clone(model).set_params(time_limit=9).fit(X, y, checkpoint=tmp_path)
    boosting = quick_boosting(ObliqueBoostingClassifier, n_estimators=2)
    boosting.fit(X, y, checkpoint=tmp_path / "given", X_val=X, y_val=y)
    for rows in (
        {"X_val": X[1:], "y_val": y[1:]},
        {"X_val": X, "y_val": np.roll(y, 1)},
        {"X_val": X, "y_val": y, "sample_weight_val": np.arange(90) + 1},
    ):
        with pytest.raises(ValueError, match="other X_val:"):
            boosting.fit(X, y, checkpoint=tmp_path / "given", **rows)
    boosting.fit(X, y, np.ones(90), np.arange(90) // 2, checkpoint=tmp_path / "groups")
    with pytest.raises(ValueError, match="other groups or folds:"):
        boosting.fit(X, y, groups=np.arange(90) // 3, checkpoint=tmp_path / "groups")


@pytest.mark.parametrize("content", [b"", b"\x80", None], ids=["empty", "one byte", "half"])
def test_damaged_files_are_named(content, tmp_path):
    model = clone(MEMBERS["trees"])
    X, y = rows_of(model)
    at_once = clone(model).fit(X, y, checkpoint=tmp_path)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2] if content is None else content)
        with pytest.raises(ValueError, match=rf"{path.name} of the checkpoint is damaged.*delete"):
            model.fit(X, y, checkpoint=tmp_path)
        assert not hasattr(model, "forest_")
        path.unlink()
    (tmp_path / "fit.json").write_text("{}")  # of an unknown fit
    with pytest.raises(ValueError, match="belongs to a fit with other estimator, version of"):
        model.fit(X, y, checkpoint=tmp_path)
    for content in ("[]", "3", "null"):
        (tmp_path / "fit.json").write_text(content)
        with pytest.raises(ValueError, match="fit.json of the checkpoint is damaged"):
            model.fit(X, y, checkpoint=tmp_path)
    (tmp_path / "fit.json").unlink()
    assert_same_fit(model.fit(X, y, checkpoint=tmp_path), at_once)


def test_results_of_other_fits_are_refused_without_fit_json(tmp_path):
    """It is missing where somebody deleted it, or while another fit begins in the same folder."""
    X, y = rows_of(MEMBERS["trees"])
    model = ManifoldForestClassifier(2, max_depth=2, random_state=0)
    model.fit(X, y, checkpoint=tmp_path)
    (tmp_path / "fit.json").unlink()
    with pytest.raises(ValueError, match="tree-0.pickle of the checkpoint belongs to another fit"):
        clone(model).set_params(max_depth=3).fit(X, y, checkpoint=tmp_path)
    (tmp_path / "fit.json").unlink()
    (tmp_path / "tree-1.pickle").write_bytes((tmp_path / "tree-0.pickle").read_bytes())
    with pytest.raises(ValueError, match="tree-1.pickle of the checkpoint belongs to another fit"):
        model.fit(X, y, checkpoint=tmp_path)
    (tmp_path / "tree-1.pickle").write_bytes(pickle.dumps(7))
    with pytest.raises(ValueError, match="tree-1.pickle of the checkpoint is damaged"):
        model.fit(X, y, checkpoint=tmp_path)


def test_parameters_of_members_are_checked_before_training(tmp_path, monkeypatch):
    X, y = boosting_rows(ObliqueBoostingRegressor, 60)
    trained, train = [], GrowingMethod.train
    monkeypatch.setattr(
        GrowingMethod, "train", lambda self, *given: (trained.append(0), train(self, *given))[1]
    )
    scorer = make_scorer(lambda y, found: 0.0)
    for member, message in (
        (ManifoldForestRegressor(2, time_limit=100), "cannot be used with time_limit=100"),
        (
            ObliqueBoostingRegressor(2, early_stopping=scorer),
            "cannot be used with early_stopping=.*, which cannot be pickled: .*lambda",
        ),
    ):
        blend = BlendedForestRegressor(
            [("first", ManifoldForestRegressor(2)), ("last", member)], cv=2, random_state=0
        )
        with pytest.raises(ValueError, match=message):
            blend.fit(X, y, checkpoint=tmp_path / "new")
    assert not trained


def test_members_of_any_name_have_a_folder(tmp_path):
    X, y = boosting_rows(ObliqueBoostingRegressor, 60)
    names = "..", "a/b", ".", "森" * 40, "\ud800"
    members = [(name, ManifoldForestRegressor(2)) for name in names]
    blend = BlendedForestRegressor(members, cv=2, random_state=0)
    blend.fit(X, y, checkpoint=tmp_path / "own")
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
    names = {path.name for path in (tmp_path / "own").iterdir()}
    assert names >= {"member-..", "member-a%2Fb", "member-."}


def test_what_was_stopped_is_not_saved(tmp_path, monkeypatch):
    train = GrowingMethod.train

    def stopped(self, sample, seed, control):
        control.stop[0] = 1
        return train(self, sample, seed, control)

    monkeypatch.setattr(GrowingMethod, "train", stopped)
    X, y = rows_of(MEMBERS["trees"])
    ManifoldForestClassifier(4, random_state=0).fit(X, y, checkpoint=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["fit.json"]


def test_a_bag_is_saved_once_a_minute(tmp_path, monkeypatch):
    """Counted from the first question, and then from the last time that it was saved."""
    now = 1000.0
    monkeypatch.setattr(checkpoint.time, "perf_counter", lambda: now)
    folder = checkpoint.Checkpoint(tmp_path, {})
    due = []
    for now in (1000.0, 1059.0, 1060.0, 1061.0, 1120.0, 1121.0):
        due.append(folder.is_due("bag-0"))
        if now == 1061:
            folder.save("bag-0", "rounds")
    assert due == [False, False, True, True, False, True]
    assert not folder.is_due("bag-1")


@pytest.mark.parametrize(
    "cls", [CO2ForestRegressor, ManifoldForestRegressor, ObliqueBoostingRegressor]
)
def test_other_units_names_or_levels_are_another_fit(cls, tmp_path):
    """Scaled rows, and codes of categories, may be the same."""
    X, y = boosting_rows(cls, 80)
    frame = pd.DataFrame(X[:, :3], columns=list("abc")).assign(kind=np.resize(["u", "v", "w"], 80))
    model = cls(3, random_state=0).fit(frame, y, checkpoint=tmp_path)
    for other in (
        frame.assign(a=2 * frame["a"]),
        frame.assign(a=frame["a"] + 16),
        frame.rename(columns={"a": "z"}),
        frame.assign(kind=frame["kind"].map({"u": "p", "v": "q", "w": "r"})),
    ):
        with pytest.raises(ValueError, match=f"a fit with other .*{OF_UNITS}"):
            clone(model).fit(other, y, checkpoint=tmp_path)
    assert_same_trees(clone(model).fit(frame, y, checkpoint=tmp_path), model)


def test_other_labels_or_another_first_fit_are_another_fit(tmp_path):
    X, y = rows_of(MEMBERS["trees"])
    model = ManifoldForestClassifier(2, random_state=0).fit(X, y, checkpoint=tmp_path / "labels")
    names = np.array([f"class {label}" for label in y])
    with pytest.raises(ValueError, match="a fit with other labels of y"):
        clone(model).fit(X, names, checkpoint=tmp_path / "labels")

    def continued(rate, **given):
        model = quick_boosting(ObliqueBoostingRegressor, n_estimators=3, learning_rate=rate)
        model.set_params(warm_start=True, early_stopping=False).fit(X, X[:, 0])
        return model.set_params(n_estimators=6, learning_rate=0.1).fit(X, X[:, 0], **given)

    once = continued(0.1, checkpoint=tmp_path / "warm")
    assert_same_trees(continued(0.1, checkpoint=tmp_path / "warm"), once)
    with pytest.raises(ValueError, match="other the model of a warm start"):
        continued(0.4, checkpoint=tmp_path / "warm")


def test_a_round_that_was_stopped_is_not_saved(tmp_path, monkeypatch):
    """Another thread has set `stop`, and the tree of the round ends early."""
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    X, y = boosting_rows(ObliqueBoostingRegressor, 100)
    model = quick_boosting(ObliqueBoostingRegressor, n_bags=1, n_estimators=9, linear_start=None)
    at_once = model.set_params(linear_leaves=False, random_state=0).fit(X, y)
    grow = boosting_rounds.BoostingTraining._grow_tree

    def stopped(self, number, *args):
        self.stop[0] = number == 4
        return grow(self, number, *args)

    with monkeypatch.context() as patch:
        patch.setattr(boosting_rounds.BoostingTraining, "_grow_tree", stopped)
        clone(model).fit(X, y, checkpoint=tmp_path)
    assert list(tmp_path.glob("bag-*"))
    assert_same_fit(clone(model).fit(X, y, checkpoint=tmp_path), at_once)


def test_blends_with_and_without_refit_share_no_bags(tmp_path):
    """With refit=True, bags learn from the rows of their fold."""
    X, y = boosting_rows(ObliqueBoostingRegressor, 90)
    boosting = quick_boosting(ObliqueBoostingRegressor, n_bags=3, linear_start=None)
    for refit in (True, False, True):
        blend = BlendedForestRegressor([boosting], cv=3, random_state=0, refit=refit)
        expected = clone(blend).fit(X, y).predict(X)
        np.testing.assert_array_equal(blend.fit(X, y, checkpoint=tmp_path).predict(X), expected)
    blend.set_params(refit=False).fit(X, y)
    assert (blend.predict(X) != expected).any()


def test_rounds_are_added_to_a_model_from_a_checkpoint_or_a_pickle(tmp_path):
    X, y = boosting_rows(ObliqueBoostingRegressor, 90)
    own = quick_boosting(ObliqueBoostingRegressor, n_estimators=3, early_stopping=True)
    for step in range(3):
        model = clone(own).set_params(n_bags=2, warm_start=True, n_estimators=3)
        model.fit(X, y, checkpoint=tmp_path / "first")
        model = model if step < 2 else pickle.loads(pickle.dumps(model))
        model.set_params(n_estimators=5).fit(X, y, checkpoint=tmp_path / "second")
    with io.BytesIO() as file:
        save(clone(model).set_params(n_estimators=3).fit(X, y), file)
        file.seek(0)
        loaded = load(file).set_params(n_estimators=5)
    with pytest.raises(ValueError, match="belongs to a fit with other the model of a warm start"):
        loaded.fit(X, y, checkpoint=tmp_path / "second")  # its leaves are rounded
