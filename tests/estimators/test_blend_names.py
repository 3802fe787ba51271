"""Members of blends by name: other libraries, what a blend sets, presets."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from blends import classes, classifier, regressor, targets
from sklearn.base import clone
from sklearn.linear_model import HuberRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import get_tags

import skforest
from skforest import BlendedForestClassifier, BlendedForestRegressor, ObliqueBoostingClassifier
from skforest.blend import names

LIBRARIES = ["lightgbm", "catboost", "extra_trees"]
OF_LIGHTGBM = [
    *("collections.OrderedDict", "lightgbm.basic.Booster", "lightgbm.sklearn.LGBMClassifier"),
]


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch):
    for name, size in zip(("lightgbm", "xgboost", "catboost", "extra_trees"), [5, 5, 5, 8]):
        module, start, params = names.LIBRARIES[name]
        key = "iterations" if name == "catboost" else "n_estimators"
        monkeypatch.setitem(names.LIBRARIES, name, (module, start, params | {key: size}))


def table(n=80):
    """Numbers with gaps, and categories with gaps and without an order."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=n), "kind": rng.choice(["a", "b", "c"], n)})
    y = np.where(frame["size"] + (frame["kind"] == "b") > 0.3, "yes", "no")
    frame.loc[::6, "size"] = np.nan
    frame.loc[1::9, "kind"] = None
    return frame, y


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", [*LIBRARIES, "linear"])
@pytest.mark.parametrize("make", [classifier, regressor])
def test_libraries_by_name_read_tables_with_categories_and_missing_values(make, name, capfd):
    if name in ("lightgbm", "catboost"):
        pytest.importorskip(name)
    frame, y = table()
    y = y if make is classifier else (y == "yes") + frame["size"].fillna(0).to_numpy()
    blend = make(members=[("other", name)], cv=2).fit(frame, y, sample_weight=np.arange(80) % 3)
    assert list(blend.weights_) == ["other"]
    assert isinstance(blend.members_["other"], Pipeline)
    assert blend.score(frame, y) > (0.7 if make is classifier else 0.1)
    assert blend.predict(frame.assign(kind="new")).shape == (80,)
    assert capfd.readouterr() == ("", "")


def test_a_blend_sets_seeds_and_threads_of_libraries():
    pytest.importorskip("lightgbm")
    pytest.importorskip("catboost")
    X, y = classes(60)
    members = ["lightgbm", "catboost", "extra_trees", "linear"]
    unset = {"lightgbm": "n_jobs", "catboost": "thread_count"}
    for n_jobs in (None, 2):
        made = classifier(members=members, n_jobs=n_jobs)._new_members(np.random.RandomState(0))
        made = {member.name: member.estimator for member in made}
        for name, key in unset.items():
            assert made[name].get_params()[key] == (n_jobs or 1)
        assert made["extra_trees"].n_jobs == n_jobs
        seeds = {made[name].get_params()["random_state"] for name in LIBRARIES}
        assert len(seeds | {made["linear"][-1].random_state}) == 4
        assert all(isinstance(seed, int) for seed in seeds)
    from catboost import CatBoostClassifier

    given = CatBoostClassifier(thread_count=3, random_seed=5)
    (member,) = classifier(members=[given])._new_members(np.random.RandomState(0))
    assert member.estimator.get_params() == given.get_params()


def test_catboost_reads_the_categories_that_its_parameters_name():
    catboost = pytest.importorskip("catboost")
    frame, y = table()
    frame = frame.assign(kind=frame["kind"].fillna("none").astype(str))
    model = catboost.CatBoostClassifier(iterations=5, verbose=0, allow_writing_files=False)
    blend = classifier(members=[("cat", model)], cv=2)
    assert isinstance(blend.fit(frame, y).members_["cat"], Pipeline)
    blend.set_params(cat__cat_features=("kind",))
    assert blend.fit(frame, y).members_["cat"].get_cat_feature_indices() == [1]


def test_a_missing_library_is_named(monkeypatch):
    X, y = classes(60)
    monkeypatch.setitem(sys.modules, "xgboost", None)
    for member in ("xgboost", ("mine", "xgboost")):
        with pytest.raises(ImportError, match="the member 'xgboost' needs the package xgboost"):
            classifier(members=["manifold", member]).fit(X, y)


class Codes(GaussianNB):
    """Takes only labels 0, 1, ..., as XGBoost does."""

    __module__ = "xgboost.sklearn"

    def __init__(self, n_estimators=5, learning_rate=1, verbosity=1, n_jobs=None):
        super().__init__()
        self.n_estimators, self.learning_rate = n_estimators, learning_rate
        self.verbosity, self.n_jobs = verbosity, n_jobs

    def fit(self, X, y, sample_weight=None):
        np.testing.assert_array_equal(np.unique(y), np.arange(len(np.unique(y))))
        return super().fit(X, y, sample_weight)


def test_a_blend_takes_several_outputs_if_every_member_does():
    of_one, of_several = GaussianNB(), DecisionTreeClassifier()
    for members, expected in (
        ([of_one, of_several], False),
        ([of_several, of_one], False),
        ([of_several, ("again", of_several)], True),
        ("auto", True),
    ):
        tags = get_tags(BlendedForestClassifier(members))
        assert tags.target_tags.multi_output == tags.classifier_tags.multi_label == expected
    of_one, of_several = HuberRegressor(), DecisionTreeRegressor()
    for members, expected in (
        ([of_one, of_several], False), ([of_several, of_one], False), ([of_several], True)
    ):  # fmt: skip
        tags = get_tags(BlendedForestRegressor(members))
        assert tags.target_tags.multi_output == expected and tags.classifier_tags is None


def test_xgboost_gets_numbers_for_labels(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", SimpleNamespace(XGBClassifier=Codes))
    X, y = classes(90)
    labels = np.array(["x", "y", "z"])[y]
    blend = classifier(members=["xgboost"], cv=2, n_jobs=2).fit(X, labels)
    member = blend.members_["xgboost"]
    assert (member.estimator.n_jobs, member.estimator.verbosity) == (2, 0)
    assert member.classes_.tolist() == ["x", "y", "z"]
    np.testing.assert_array_equal(member.predict(X), blend.predict(X))
    assert (member.predict(X) == labels).mean() > 0.6


def test_what_a_blend_sets_in_its_members():
    forest = skforest.RandomHingeForestClassifier(verbose=1)
    scaled = Pipeline([("first", DecisionTreeClassifier()), ("last", forest)])
    fixed = skforest.ManifoldForestClassifier(n_jobs=2, random_state=3, categorical_features=[0])
    for verbose, of_forest, of_fixed in ((0, 1, 0), (1, 1, 0), (2, 1, 1), (4, 3, 3)):
        blend = BlendedForestClassifier(verbose=verbose, n_jobs=3, categorical_features=None)
        assert names.set_by_blend(blend, forest, 7) == {
            "random_state": 7,
            "n_jobs": 3,
            "calibrate": False,
            "verbose": of_forest,
            "categorical_features": None,
        }
        assert names.set_by_blend(blend, fixed, 7) == {"verbose": of_fixed}
        own = {"first__random_state": 7, "last__random_state": 7}
        assert names.set_by_blend(blend, scaled, 7) == own


def test_weights_reach_the_models_in_members_by_name():
    X, y = classes(60)
    weight = np.random.default_rng(0).exponential(size=60) ** 2
    tree = DecisionTreeClassifier(max_depth=1, random_state=0)
    codes = names.LabelCodes(tree).fit(X, np.array(["x", "y", "z"])[y], sample_weight=weight)
    expected = clone(tree).fit(X, y, sample_weight=weight).predict_proba(X)
    np.testing.assert_array_equal(codes.predict_proba(X), expected)
    X, y = targets(60)
    linear = names.OTHERS["linear"][1]().fit(X, y, sample_weight=weight)
    scaled = linear[:-1].transform(X)
    expected = clone(linear[-1]).fit(scaled, y, sample_weight=weight).predict(scaled)
    np.testing.assert_array_equal(linear.predict(X), expected)
    assert not np.allclose(clone(linear).fit(X, y).predict(X), expected)


def test_names_in_parameters_and_clones():
    blend = classifier(members=["manifold"]).set_params(members=["linear", ("t", "extra_trees")])
    again = clone(blend)
    assert again.members == ["linear", ("t", "extra_trees")] and again.members is not None
    X, y = classes(60)
    assert set(again.fit(X, y).weights_) == {"linear", "t"}


@pytest.mark.parametrize(
    "name, trusted",
    [
        ("linear", []),
        ("extra_trees", ["sklearn.tree._tree.Tree"]),
        pytest.param("lightgbm", OF_LIGHTGBM, marks=pytest.mark.slow),
        pytest.param("catboost", ["catboost.core.CatBoostClassifier"], marks=pytest.mark.slow),
    ],
)
def test_members_by_name_are_saved(name, trusted, tmp_path):
    pytest.importorskip("skops.io")
    if name in ("lightgbm", "catboost"):
        pytest.importorskip(name)
    frame, y = table()
    blend = classifier(members=[name], cv=2).fit(frame, y)
    skforest.save(blend, tmp_path / name)
    again = skforest.load(tmp_path / name, trusted=trusted)
    np.testing.assert_array_equal(again.predict_proba(frame), blend.predict_proba(frame))
    if trusted:
        with pytest.raises(TypeError, match=f"not trusted.*{trusted[-1]}"):
            skforest.load(tmp_path / name)


def test_shapley_values_of_members_by_name():
    X, y = targets(60)
    blend = regressor(members=["extra_trees", "linear"], cv=2).fit(X, y)
    values = skforest.shapley_values(blend, X[:2], X[:20], random_state=0)
    total = values.values.sum(axis=1) + values.base_values
    np.testing.assert_allclose(total, blend.predict(X[:2]), rtol=1e-6)


# ----------------------------------------------------------------------------------------- presets


def members_of(blend):
    made = blend._new_members(np.random.RandomState(0))
    return {member.name: member.estimator for member in made}


@pytest.mark.parametrize("cls", [BlendedForestClassifier, BlendedForestRegressor])
def test_presets_are_members(cls):
    auto = list(cls._auto_members)
    assert list(members_of(cls())) == list(members_of(cls(preset="balanced"))) == auto
    best = members_of(cls(preset="best"))
    assert list(best)[: len(auto)] == auto and len(best) > len(auto)
    fast = members_of(cls(preset="fast"))
    assert list(fast) == ["manifold", "boosting", "linear"]
    assert fast["manifold"].n_estimators == 50 and fast["boosting"].n_directions == 0


def test_a_preset_fits_and_excludes_members():
    X, y = classes(60)
    blend = BlendedForestClassifier(preset="fast", random_state=0, cv=2)
    assert set(blend.fit(X, y).weights_) == {"manifold", "boosting", "linear"}
    assert (clone(blend).fit(X, np.full(60, "a")).predict(X) == "a").all()
    with pytest.raises(
        ValueError, match='"linear", which takes one output of labels, and y has 2'
    ):
        clone(blend).fit(X, np.column_stack([y, y]))
    given = classifier(members=[ObliqueBoostingClassifier(5)], preset="fast")
    with pytest.raises(ValueError, match="preset='fast' chooses.*needs members=\"auto\", got"):
        given.fit(X, y)
