"""export_text, export_graphviz and to_dict: what they write agrees with the forest."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from forests import random_forest
from json_reader import response
from makers import changed
from sklearn.base import is_classifier
from sklearn.datasets import load_diabetes, load_iris, make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from sklearn.tree import export_text as sklearn_text

import skforest
from skforest import (
    BlendedForestClassifier,
    CO2ForestClassifier,
    E2EDecisionForestClassifier,
    Forest,
    ManifoldForestClassifier,
    ManifoldProcedure,
    NonGreedyTreeClassifier,
    NonGreedyTreeRegressor,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
    export_graphviz,
    export_text,
    to_dict,
)
from skforest.inspect.contents import _set_text, forest_of

COLOURS = "#3f90da", "#ffa90e", "#bd1f01"  # of the first outputs
SCHEMA = Path(__file__).parents[2] / "docs" / "forest.schema.json"
N = 200


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def table():
    """Numbers and categories with few and many levels, and missing values in all of them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "age": rng.integers(18, 90, N) + 0.5,
        "city": rng.choice(["Bern", "Oslo", "Rome", "Lima"], N),
        "shop": rng.choice([f"s{i:02}" for i in range(14)], N),
        "open": rng.random(N) < 0.5,
    })  # fmt: skip
    frame.loc[rng.random(N) < np.where(frame["age"] > 60, 0.5, 0.1), "age"] = np.nan
    frame.loc[::9, "city"] = None
    frame.loc[::11, "shop"] = None
    return frame


def target(frame):
    return frame["age"].isna().to_numpy() | (frame["city"] == "Oslo").to_numpy()


def split(direction, threshold=2.5, **meta):
    """One split on a sparse direction, given as a dict."""
    arrays = {
        "tree_start": [0, 3],
        "child": [1, -1, -2],
        "threshold": [threshold],
        "direction": [4],
        "sparse_start": [0, len(direction)],
        "sparse_feature": list(direction),
        "sparse_weight": list(direction.values()),
        "value": [-1.0, 1.0],
    }
    of_inputs = "offset", "scale", "fill", "source", "kind", "table_start", "table"
    arrays |= {name: meta.pop(name) for name in (*of_inputs, "deviation") if name in meta}
    return Forest(arrays, n_features=4, n_outputs=1, task="regression", **meta)


# -------------------------------------------------------------------------------------- rules


def test_axis_aligned_trees_have_the_text_of_scikit_learn():
    X, y = make_friedman1(2000, random_state=0)
    y = np.where(y > np.median(y), "large", "small")
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    own = ManifoldForestClassifier(1, projection="axis", max_features=10, max_depth=3)
    changed(own, splitter="exact", bootstrap=False, random_state=0).fit(X, y)
    for options in ({}, {"show_weights": True}, {"max_depth": 0}, {"decimals": 3}):
        expected = sklearn_text(tree, feature_names=own.forest_.feature_names, **options)
        expected = re.sub(r"feature_(\d+)", r"x[\1]", expected)
        assert export_text(own, **options) == expected
    assert "truncated branch of depth 3" in export_text(own, max_depth=0)


@pytest.mark.parametrize(
    "direction, options, left, right",
    [
        ({2: 1}, {}, "x[2] <= 2.50", "x[2] >  2.50"),
        ({2: -2}, {}, "x[2] >= -1.25", "x[2] <  -1.25"),
        ({0: 1, 3: -1}, {}, "x[0] - x[3] <= 2.50", "x[0] - x[3] >  2.50"),
        ({0: 1, 1: 8, 3: -1234.5}, {"max_terms": 2, "decimals": 1},
         "-1234.5 * x[3] + 8.0 * x[1] + (1 more) <= 2.5",
         "-1234.5 * x[3] + 8.0 * x[1] + (1 more) >  2.5"),
        ({0: 0.25, 1: 8}, {"max_terms": 1}, "8.00 * x[1] + (1 more) <= 2.50",
         "8.00 * x[1] + (1 more) >  2.50"),
        ({0: 1, 1: 0.00012345}, {}, "x[0] + 0.00012 * x[1] <= 2.50",
         "x[0] + 0.00012 * x[1] >  2.50"),
        ({0: 1, 1: 2}, {"decimals": 0, "max_terms": None}, "2 * x[1] + x[0] <= 2",
         "2 * x[1] + x[0] >  2"),
        ({}, {}, "0 <= 2.50", "0 >  2.50"),
    ],
)  # fmt: skip
def test_conditions(direction, options, left, right):
    text = export_text(split(direction), **options)
    decimals = options.get("decimals", 2)
    assert text.splitlines() == [
        f"|--- {left}",
        f"|   |--- value: [{-1:.{decimals}f}]",
        f"|--- {right}",
        f"|   |--- value: [{1:.{decimals}f}]",
    ]


def test_weights_are_in_the_units_of_the_features():
    """0.5 * (x - 3) * 10 > 2.5 is 5 x > 17.5; the length of a direction matters to margins."""
    forest = split({1: 0.5}, offset=[0, 3, 0, 0], scale=[1, 10, 1, 1])
    assert "x[1] <= 3.50\n" in export_text(forest)
    forest = split({1: 0.5}, offset=[0, 3, 0, 0], scale=[1, 10, 1, 1], gate="margin")
    text = export_text(forest, show_weights=True)
    assert "5.00 * x[1] <= 17.50\n" in text and "weight: 0.00 value: [1.00] * margin" in text
    forest = split({0: 1, 1: 0.5}, deviation=[1, 10, 1, 1])
    assert "0.50 * x[1] + (1 more) <= " in export_text(forest, max_terms=1)


def test_thresholds_of_level_numbers_count_from_0():
    """Where features are scaled, the number of the last of four levels is 1."""
    own = {"levels": {0: list("abcd")}, "source": [0, 1, 2, 3], "kind": [2, 0, 0, 0]}
    own |= {"table_start": [0, 6, 6, 6, 6], "table": [0, 1 / 3, 2 / 3, 1, 0, 0]}
    own |= {"offset": [0] * 4, "scale": [1, 10, 1, 1], "fill": [0] * 4}
    text = export_text(split({0: 3, 1: 1}, **own))
    assert "--- x[0] (level number) + 10.00 * x[1] <= 2.50\n" in text


@pytest.mark.parametrize(
    "weight, right", [(1, "c, d, (other)"), (3, "c, d, (other)"), (-2, "a, b")]
)
def test_levels_of_a_split_of_any_weight(weight, right):
    own = {"levels": {0: list("abcd")}, "source": [0, 1, 2, 3], "kind": [2, 0, 0, 0]}
    own |= {"table_start": [0, 6, 6, 6, 6], "table": np.arange(6), "fill": [0] * 4}
    lines = export_text(split({0: weight}, 1.5 * weight, **own)).splitlines()
    assert lines[2] == f"|--- x[0] in {{{right}}}"
    assert _set_text(list("abc"), 3) == "{a, b, c}" and _set_text(list("abc"), 2) == "{a, 2 more}"


def rule_of(text, row):
    """The leaf of a row by the rules of a text, whose conditions are evaluated as written."""
    depth = 0
    for line in text.splitlines():
        bars, _, content = line.partition("--- ")
        if bars.count("|") - 1 != depth:
            continue
        if content.startswith(("class", "value")):
            return content
        condition = re.sub(r" = (\w+)\)", r" == '\1')", content)
        condition = re.sub(r"\((\w+) is missing\)", r"isna(\1)", condition)
        condition = re.sub(r"(\w+) \(level number\)", r"number(\1)", condition)
        condition = re.sub(r"(\w+) (!=|=) (\w+)$", r"\1 \2 '\3'", condition).replace(" = ", " == ")
        condition = re.sub(r"^(\w+) is (not )?missing$", r"\2 isna(\1)", condition)
        condition = re.sub(r"\{(.*)\}", lambda m: repr(m[1].split(", ")), condition)
        if eval(condition, row):  # noqa: S307
            depth += 1
    raise AssertionError("no leaf")


@pytest.mark.parametrize("kind", ["axis", "mixtures"])
def test_rules_of_categories_and_missing_values_lead_to_the_leaf(kind):
    """A row that follows the text arrives at the class that the tree predicts."""
    frame = table()[["age", "city", "open"]]
    frame["age"] = frame["age"].fillna(30.0).where(~target(table()), np.nan)
    y = (frame["city"] == "Oslo").to_numpy() ^ frame["age"].isna().to_numpy()
    if kind == "axis":
        model = ManifoldForestClassifier(3, projection="axis", random_state=0)
    else:
        model = CO2ForestClassifier(3, max_depth=3, random_state=0)
    model.set_params(random_state=0).fit(frame, np.where(y, "yes", "no"))
    forest = model.forest_
    text = export_text(model, 1, max_depth=None, max_terms=None, decimals=9)
    feature_map = forest.feature_map
    levels = feature_map.levels[1]
    fill = float(feature_map.fill[0])
    if feature_map.is_scaling:
        fill = fill / feature_map.scale[0] + feature_map.offset[0]
    coded = feature_map.coded(frame)
    code = [f for f in range(forest.n_features) if feature_map.kind[f] == 2][0]
    other = feature_map.table_of(code)[len(levels)] * (
        len(levels) - 1 if feature_map.is_scaling else 1
    )

    class Age(float):
        pass

    expected = forest[1].predict(frame)
    for i, row in enumerate(frame.itertuples(index=False)):
        age = Age(fill if np.isnan(row.age) else row.age)
        age.is_missing = np.isnan(row.age)
        city = "(other)" if not isinstance(row.city, str) else row.city

        def isna(x):
            return getattr(x, "is_missing", x == "(other)")

        def number(x):
            return levels.index(x) if x in levels else other

        names = {"age": age, "city": city, "open": row.open, "isna": isna, "number": number}
        assert rule_of(text, names) == f"class: {expected[i]}", coded[i]
    assert "city" in text and "missing" in text


def test_leaves_of_several_outputs_and_of_sums(rng):
    X, y = load_iris(return_X_y=True)
    several = ManifoldForestClassifier(1, max_depth=1, random_state=0)
    several.fit(X, np.stack([y, y > 0], axis=1))
    assert "class: [y[0] = 0, y[1] = 0]" in export_text(several)
    boosting = ObliqueBoostingClassifier(3, n_bags=2, max_depth=1, random_state=0).fit(X, y)
    text = export_text(boosting, tree=4, decimals=6)
    tree = boosting.forest_[4]
    values = tree.value.reshape(-1, 3)[-1 - tree.child[tree.child < 0]]
    assert text.count("value: [") == 2 and "class" not in text
    for row in values:
        assert f"value: [{', '.join(f'{v:.6f}' for v in row)}]" in text or (abs(row) < 1e-6).any()


def test_linear_leaves_are_in_the_units_of_the_features():
    X, y = make_friedman1(300, random_state=0)
    X = 100 * X + 7
    model = ObliqueBoostingRegressor(1, n_bags=1, max_depth=1, linear_leaves=True, random_state=0)
    model.set_params(early_stopping=False).fit(X, y)
    text = export_text(model, max_terms=None, decimals=9)
    tree = model.forest_
    leaf, response = tree.apply(X)[:, 0], tree.response(X)[:, 0]
    values = re.findall(r"value: \[(.*)\]", text)
    for node, formula in zip((1, 2), values):
        rows = np.flatnonzero(leaf == node)
        found = [eval(formula, {"x": X[i]}) for i in rows]  # noqa: S307
        assert found == pytest.approx(response[rows], abs=1e-4)
    dot = export_graphviz(model, filled=True, max_terms=1)
    assert 'fillcolor="#ffffff"' in dot and "more)" in dot


def test_a_linear_start_is_announced():
    X, y = make_friedman1(200, random_state=0)
    model = ObliqueBoostingRegressor(2, n_bags=2, linear_start=1.0, early_stopping=False)
    model.set_params(linear_leaves=False, max_depth=1, random_state=0).fit(X, y)
    for tree, following in ((0, 1), (2, 3)):
        text = f"linear start; trees from tree={following}"
        assert export_text(model, tree).endswith(f"] ({text})\n")
        assert f'\\n{text}"' in export_graphviz(model, tree)
        assert "start" not in export_text(model, following)
    assert "linear start" in export_text(model.forest_)
    values = re.findall(r"\[(.*)\]", export_text(model, max_terms=None, decimals=9))
    expected = (model.forest_[0].response(X[7:8]) - model.forest_[0].baseline)[0, 0]
    assert eval(values[0], {"x": X[7]}) == pytest.approx(expected)  # noqa: S307


def test_the_largest_slopes_are_those_in_comparable_units():
    X, y = make_friedman1(300, random_state=0)
    X[:, 0] *= 1e-3  # a large slope in the units of the data
    model = ObliqueBoostingRegressor(1, n_bags=1, linear_start=1.0, early_stopping=False)
    model.fit(X, 1000 * X[:, 0] + 10 * X[:, 3])
    assert re.search(r"\+ [\d.]+ \* x\[3\] \+ \(", export_text(model, max_terms=1))
    X[:, 0] = np.arange(300) < 4  # a large range for its deviation
    model.fit(X, 5 * X[:, 0] + 3 * X[:, 3])
    assert re.search(r"\+ [\d.]+ \* x\[3\] \+ \(", export_text(model, max_terms=1))


def test_nodes_are_filled_by_their_place_in_the_range():
    X, y = load_diabetes(return_X_y=True)
    tree = NonGreedyTreeRegressor(max_depth=2, n_epochs=2, random_state=0).fit(X, y)
    rows = re.findall(
        r"value = (.*?)\".*\"#(.*?)\"", export_graphviz(tree, filled=True, precision=9)
    )
    values = np.array([value for value, _ in rows], dtype=float)
    strength = (values - values.min()) / np.ptp(values)
    blue = np.array(list(bytes.fromhex(COLOURS[0][1:])))
    found = [list(bytes.fromhex(colour)) for _, colour in rows]
    expected = 255 - 0.8 * strength[:, None] * (255 - blue)
    np.testing.assert_allclose(found, expected, atol=0.51)


@pytest.mark.parametrize("kind", ["classes", "outputs"])
def test_nodes_are_filled_by_their_lead(kind):
    """From white, if two classes are equally probable, to 80 % of the colour of a pure class."""
    X, y = load_iris(return_X_y=True)
    forest = ManifoldForestClassifier(1, max_depth=3, max_features=2, random_state=0).fit(X, y)
    if kind == "outputs":
        Y = np.eye(3)[y] * [1, 4, 2] - 1
        forest = skforest.ManifoldForestRegressor(1, max_depth=3, random_state=0).fit(X, Y)
    dot = export_graphviz(forest, filled=True, precision=9)
    rows = re.findall(r"value = \[(.*?)\].*fillcolor=\"(#.*?)\"", dot)
    values = np.array([one.split(", ") for one, _ in rows], dtype=float)
    for value, (_, colour) in zip(values, rows):
        k = value.argmax()
        rest = np.delete(value, k)
        strength = (value[k] - rest.max()) / (1 - rest.max()) if rest.max() < 1 else 0
        if kind == "outputs":
            strength = (value[k] - rest.mean()) / np.ptp(values)
        own = 255 - 0.8 * strength * (255 - np.array(list(bytes.fromhex(COLOURS[k][1:]))))
        assert np.abs(list(bytes.fromhex(colour[1:])) - own).max() <= 0.51
    assert len(rows) == forest.forest_.n_nodes > 5


def test_levels_of_a_long_set_are_counted(rng):
    frame = pd.DataFrame({"shop": [f"s{i:02}" for i in rng.integers(0, 30, 400)]})
    forest = ManifoldForestClassifier(1, max_depth=1, bootstrap=False, categorical_features=[0])
    forest.fit(frame, frame["shop"] < "s14")
    sets = re.findall(r"shop in \{(.*)\}", export_text(forest))
    n_shown = [len(re.findall(r"s\d\d|\(other\)", one)) for one in sets]
    n_more = [int(re.findall(r", (\d+) more$", one)[0]) for one in sets]
    assert n_shown == [9, 9] and sum(n_shown + n_more) == 31


def test_a_rare_class_has_its_probabilities():
    X = np.arange(200.0)[:, None]
    y = np.where(np.isin(np.arange(200), [3, 7, 9, 13]), "bad", "ok")
    forest = ManifoldForestClassifier(1, max_depth=1, min_samples_leaf=20, bootstrap=False)
    text = export_text(forest.fit(X, y), decimals=4)
    rows = re.findall(r"class: ok \(probabilities: \[(.*), (.*)\]\)", text)
    found = sorted(forest.predict_proba(X)[[0, -1]].tolist())
    assert np.array(sorted(rows), float) == pytest.approx(np.array(found), abs=1e-4)
    shown = export_text(forest, show_weights=True)
    assert "probabilities" not in shown and shown.count("weights") == 2


def test_names_of_features_and_classes():
    X, y = load_iris(return_X_y=True)
    forest = CO2ForestClassifier(1, max_depth=1, random_state=0).fit(X, y)
    text = export_text(forest, feature_names=list("abcd"), class_names=["s", "e", "i"])
    assert re.match(r"\|--- [abcd] <=", text) and re.search(r"class: [sei]\n", text)
    with pytest.raises(ValueError, match="feature_names must be a sequence of 4 names"):
        export_text(forest, feature_names=["a"])
    with pytest.raises(ValueError, match="class_names must be a sequence of 3 names"):
        export_graphviz(forest, class_names=["a"])


@pytest.mark.every_class
def test_every_estimator_has_text(estimator):
    X, y = load_iris(return_X_y=True)
    estimator.set_params(**({"max_depth": 2} if "max_depth" in estimator.get_params() else {}))
    estimator.fit(X, y)
    tree = len(estimator.forest_) - 1
    text = export_text(estimator, tree, max_depth=None)
    n_leaves = estimator.forest_.n_leaves[tree]
    word = "class: " if is_classifier(estimator) else "value: "
    if estimator.forest_.aggregate == "sum" or estimator.forest_.gate == "margin":
        word = "value: "
    assert text.count(word) == n_leaves
    assert text.count("|--- ") == 3 * n_leaves - 2
    assert export_graphviz(estimator, tree).count('[label="') == 2 * n_leaves - 1


# ------------------------------------------------------------------------------------- graphs


def parsed(dot):
    """Labels of the nodes, and edges, of a graph in the DOT language."""
    string = r'"((?:[^"\\]|\\.)*)"'
    labels, edges = {}, []
    for line in dot.splitlines():
        if found := re.fullmatch(rf"(\w+) \[label={string}(?:, fillcolor={string})?\] ;", line):
            labels[found[1]] = found[2]
        elif found := re.match(r"(\w+) -> (\w+)", line):
            edges.append((found[1], found[2]))
    return labels, edges


def test_the_graph_has_the_nodes_and_edges_of_the_tree(rng):
    forest = random_forest(rng, n_splits=8)
    labels, edges = parsed(export_graphviz(forest, 1, node_ids=True))
    child = forest[1].child
    expected = [
        (str(p), str(c)) for p in np.flatnonzero(child > 0) for c in child[p] + np.arange(2)
    ]
    assert sorted(edges) == sorted(expected)
    assert sorted(labels) == sorted(map(str, range(17)))
    for node, label in labels.items():
        assert label.startswith(f"node #{node}\\n")
        assert f"samples = {forest[1].node_weight[int(node)]:g}" in label
    labels, edges = parsed(export_graphviz(forest, 1, max_depth=1))
    hidden = [name for name in labels if name.startswith("hidden")]
    assert len(labels) - len(hidden) == 3 and hidden
    assert all(labels[name] == "(...)" for name in hidden)


def test_values_of_inner_nodes_are_means(rng):
    X, y = load_diabetes(return_X_y=True)
    model = skforest.CO2ForestRegressor(1, max_depth=3, bootstrap=False, random_state=0).fit(X, y)
    labels, _ = parsed(export_graphviz(model, precision=6))
    path = model.forest_.decision_path(X)[0].toarray().astype(bool)
    for node, label in labels.items():
        value = float(re.search(r"value = ([-\d.]+)", label)[1])
        assert value == pytest.approx(y[path[:, int(node)]].mean(), rel=1e-5)


@pytest.mark.parametrize("n_outputs", [1, 10, 11])
def test_graphs_show_at_most_ten_outputs(rng, n_outputs):
    dot = export_graphviz(random_forest(rng, n_trees=1, n_outputs=n_outputs), precision=3)
    found = [values.count(",") + 1 for values in re.findall(r"value = \[?([^\]\"]*)", dot)]
    assert set(found) == ({n_outputs} if n_outputs <= 10 else set())
    heads = re.findall(
        r'\n0 -> (\d) \[labeldistance=2.5, labelangle=(-?45), headlabel="(\w+)"', dot
    )
    assert heads == [("1", "45", "True"), ("2", "-45", "False")]


def test_names_are_escaped():
    names = ['a "quote"', "back\\slash", "new\nline", "<b>&{|}"]
    forest = split({0: 1, 1: 2, 2: 3, 3: 4}, feature_names=names)
    labels, _ = parsed(export_graphviz(forest))
    assert "3.000 * new\\nline" in labels["0"]
    assert 'a \\"quote\\"' in labels["0"] and "back\\\\slash" in labels["0"]
    assert "<b>&{|}" in labels["0"]


def test_options_of_graphs(tmp_path):
    X, y = load_iris(return_X_y=True)
    forest = CO2ForestClassifier(1, max_depth=2, random_state=0).fit(X, y)
    plain = export_graphviz(forest)
    assert "fillcolor" not in plain and "style" not in plain
    dot = export_graphviz(
        forest, filled=True, rounded=True, rotate=True, leaves_parallel=True, proportion=True
    )
    assert 'style="filled, rounded"' in dot and "rankdir=LR" in dot and "rank=same" in dot
    assert "samples = 100.0%" in dot
    colours = dict(re.findall(r'class = (\d)", fillcolor="(#[0-9a-f]{6})"', dot))
    assert len(set(colours.values())) == 3
    path, file = tmp_path / "tree.dot", io.StringIO()
    assert export_graphviz(forest, 0, path) is None and export_graphviz(forest, 0, file) is None
    assert path.read_text(encoding="utf-8") == file.getvalue() == plain


# -------------------------------------------------------------------------------------- dicts


def models():
    """Estimators of every gate, link and kind of direction, with the data to fit."""
    X, y = load_iris(return_X_y=True)
    Xr, yr = make_friedman1(150, random_state=0)
    short = {"n_estimators": 3, "random_state": 0}
    hinge = short | {"max_iter": 60, "n_bags": 2, "max_depth": 2}
    linear = short | {"linear_leaves": True, "linear_start": None, "early_stopping": False}
    return {
        "boxes": (
            ManifoldForestClassifier(
                feature_shape=(2, 2), procedure=ManifoldProcedure(contrast="mix"), **short
            ),
            X,
            y,
        ),
        "hyperplanes": (CO2ForestClassifier(weight_dtype="float16", **short), X, y.astype(str)),
        "single tree": (NonGreedyTreeClassifier(max_depth=2, random_state=0), X, y > 0),
        "soft": (E2EDecisionForestClassifier(max_depth=3, **short), X, y),
        "hinge": (RandomHingeForestClassifier(**hinge), X, y),
        "ferns": (RandomHingeForestRegressor(structure="fern", **hinge), Xr, yr),
        "counts": (RandomHingeForestRegressor(loss="poisson", **hinge), Xr, np.floor(yr)),
        "boosting": (ObliqueBoostingClassifier(**short), X, y),
        "linear": (ObliqueBoostingRegressor(**linear), Xr, yr),
        "linear start": (ObliqueBoostingClassifier(linear_start=100.0, **short), X, y),
        "outputs": (ObliqueBoostingRegressor(**short), Xr, np.stack([yr, -yr], axis=1)),
        "labels": (CO2ForestClassifier(**short), X, np.stack([y, y > 0], axis=1)),
    }


def check_schema(model):
    """Raise unless a dict fits the schema in docs, where there are docs."""
    if not SCHEMA.exists():
        return
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(model)


@pytest.mark.parametrize("name", models())
def test_predictions_from_json(name):
    estimator, X, y = models()[name]
    estimator.fit(X, y).set_params(**{"routing": "soft"} if name == "soft" else {})
    model = json.loads(json.dumps(to_dict(estimator), allow_nan=False))
    check_schema(model)
    assert model["estimator"] == type(estimator).__name__
    far = 100 if estimator.forest_.aggregate == "sum" else 1  # outside of the training range
    rows = np.concatenate([X[::10], far * X[::75], -far * X[::75]])
    found = [response(model, row.tolist()) for row in rows]
    np.testing.assert_allclose(found, estimator._response(rows), rtol=1e-4, atol=1e-5)
    if is_classifier(estimator):
        assert np.concatenate(model["classes"]).tolist() == estimator.forest_.classes.tolist()
    assert to_dict(forest_of(estimator)) == to_dict(estimator) | {"estimator": None}


@pytest.mark.parametrize(
    "estimator",
    [
        ManifoldForestClassifier(3, random_state=0),
        CO2ForestClassifier(3, random_state=0),
        ObliqueBoostingClassifier(3, n_bags=2, random_state=0),
    ],
    ids=["unscaled", "scaled", "boosting"],
)
def test_categories_and_missing_values_in_json(estimator, monkeypatch):
    """All kinds of features; unknown levels; values missing where none were before."""
    monkeypatch.setattr("skforest.estimators.base.useful_features", lambda data, *_: data)
    frame = table().assign(same=1.0)  # scaled by 0, as the features are patched
    estimator.fit(frame, target(frame))
    model = json.loads(json.dumps(to_dict(estimator), allow_nan=False))
    check_schema(model)
    kinds = {feature["kind"] for feature in model["features"]}
    assert kinds == {"value", "is missing", "code", "level", "target"}
    new = frame.head(60).astype({"open": object})
    new.loc[3, "city"], new.loc[4, "shop"], new.loc[5, "open"] = "Paris", "s99", None
    new["open"] = new["open"].astype(float)
    expected = estimator.predict_proba(new)
    found = [response(model, row) for row in new.itertuples(index=False)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_large_numbers_are_not_limited_in_json():
    X, y = load_iris(return_X_y=True)
    estimator = ManifoldForestClassifier(3, random_state=0).fit(1e30 * X, y)
    model = json.loads(json.dumps(to_dict(estimator)))
    found = [response(model, row.tolist()) for row in 1e30 * X[::7]]
    np.testing.assert_allclose(found, estimator.predict_proba(1e30 * X[::7]), atol=1e-6)


def test_numbers_beyond_the_limits_in_json():
    """Scaled numbers are limited, so the largest one does not hide the others."""
    forest = split({0: 1.0, 1: 2.0}, offset=[0] * 4, scale=[1] * 4)
    forest = Forest(forest.arrays | {"gain": [7], "node_weight": [5, 2, 3]}, **forest.metadata)
    model = json.loads(json.dumps(to_dict(forest)))
    nodes = model["bags"][0][0]
    assert nodes[0]["gain"] == 7 and [node["weight"] for node in nodes] == [5, 2, 3]
    rows = np.array([[1e35, -1e30, 0, 0], [-1e30, 1e35, 0, 0], [1e30, 1e35, 0, 0]])
    found = [response(model, row.tolist()) for row in rows]
    assert found == forest.response(rows).tolist() == [[-1], [1], [1]]


def test_blends_in_json():
    X, y = load_iris(return_X_y=True)
    members = [CO2ForestClassifier(5), ManifoldForestClassifier(5)]
    blend = BlendedForestClassifier(members, cv=3, random_state=0).fit(X, y)
    model = json.loads(json.dumps(to_dict(blend), allow_nan=False))
    check_schema(model)
    found = [response(model, row.tolist()) for row in X[::7]]
    np.testing.assert_allclose(found, blend.predict_proba(X[::7]), atol=1e-5)
    blend = BlendedForestClassifier([LogisticRegression(max_iter=1000)], cv=3).fit(X, y)
    with pytest.raises(TypeError, match="'LogisticRegression' of the blend, a Log.*, has no dict"):
        to_dict(blend)


# -------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("function", [export_text, export_graphviz])
def test_bad_input(function, rng):
    forest = random_forest(rng)
    decimals = "decimals" if function is export_text else "precision"
    for options, message in (
        ({"tree": 3}, "tree=3 must be an int from 0 to 2"),
        ({"max_depth": -1}, "max_depth=-1 must be an int of at least 0, or None"),
        ({"max_terms": 0}, "max_terms=0 must be an int of at least 1, or None"),
        ({decimals: -1}, f"{decimals}=-1 must be an int of at least 0"),
        ({decimals: 1.5}, f"{decimals}=1.5 must be an int"),
    ):
        with pytest.raises(ValueError, match=message):
            function(forest, **options)


@pytest.mark.parametrize("function", [export_text, export_graphviz, to_dict])
def test_unsupported_estimators(function):
    with pytest.raises(NotFittedError):
        function(CO2ForestClassifier())
    X, y = load_iris(return_X_y=True)
    with pytest.raises(TypeError, match="estimator must be .*, got DecisionTreeClassifier"):
        function(DecisionTreeClassifier().fit(X, y))
    networks = CO2ForestClassifier(1, max_depth=1).fit(X, y)
    networks.networks_ = []  # as an E2ENetworkTree has
    with pytest.raises(TypeError, match="the splits of a CO2ForestClassifier are networks"):
        function(networks)
    if function is not to_dict:
        blend = BlendedForestClassifier([ManifoldForestClassifier(5)], cv=2).fit(X, y)
        blend.members_["other"] = DecisionTreeClassifier().fit(X, y)  # has no Forest
        with pytest.raises(TypeError, match="pass one of its members_: 'ManifoldForest'$"):
            function(blend)
