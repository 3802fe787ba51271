"""plot_tree: the plot agrees with the tree."""

import io
import re
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from forests import random_forest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from sklearn.base import is_classifier
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier

import skforest
from skforest import (
    CO2ForestClassifier,
    Forest,
    ManifoldForestClassifier,
    ObliqueBoostingRegressor,
    plot_tree,
)

STUMP = {"tree_start": [0, 3], "child": [1, -1, -2], "threshold": [2.5]}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def drawn(estimator, tree=0, figsize=(6.4, 4.8), **parameters):
    """Artists by their gids."""
    ax = Figure(figsize=figsize).add_axes((0, 0, 1, 1))
    artists = plot_tree(estimator, tree, ax=ax, **parameters)
    named = {artist.get_gid(): artist for artist in artists}
    assert len(named) == len(artists)
    return named


def nodes(artists, kind):
    """Artists of a kind by their node numbers."""
    found = (name.split() for name in artists)
    return {int(n[1]): artists[" ".join(n)] for n in found if n[0] == kind and len(n) == 2}


def number(text):
    """The last number in a text."""
    return float(text.replace("\N{MINUS SIGN}", "-").split()[-1])


def bars(axes, n_outputs):
    """Heights of the bars of a leaf, one for each output."""
    heights = np.zeros(n_outputs)
    for bar in axes.patches:
        heights[round(bar.get_x() + bar.get_width() / 2)] = bar.get_height()
    return heights


def images(axes):
    """Images of weights, left to right."""
    shown = sorted(axes.images, key=lambda image: image.get_extent()[0])
    return [np.asarray(image.get_array()) for image in shown]


def data(estimator):
    """Images of ten classes, or a regression."""
    if is_classifier(estimator):
        X, y = load_digits(return_X_y=True)
        return X[:400], y[:400]
    return load_diabetes(return_X_y=True, scaled=False)


def test_leaves_show_what_the_tree_predicts(estimator):
    X, y = data(estimator)
    estimator.set_params(max_depth=4).fit(X, y)
    for tree in (0, len(estimator.forest_) - 1):
        artists = drawn(estimator, tree, max_depth=None, precision=9)
        one = estimator.forest_[tree]
        response, leaf = one.response(X), one.apply(X)[:, 0]
        if one.gate == "margin" or one.aggregate == "sum":  # the stored value
            response = one.value.reshape(-1, one.n_outputs)[-1 - one.child[leaf]]
        shown = nodes(artists, "value")
        assert len(shown) == one.n_leaves[0]
        for node, row in dict(zip(leaf, response)).items():
            if is_classifier(estimator):
                assert bars(shown[node], 10) == pytest.approx(row, abs=1e-7)
                label, n = nodes(artists, "leaf")[node].get_text().split("\n")
                assert label == str(row.argmax())
            else:
                assert number(shown[node].get_text()) == pytest.approx(row[0], rel=1e-7)
                n = nodes(artists, "leaf")[node].get_text()
            assert number(n) == pytest.approx(one.node_weight[node])


def test_splits_on_a_graph_list_their_features(rng):
    """A path; a patch has up to five neighbours."""
    X, path = rng.normal(size=(200, 8)), np.eye(8, k=1) + np.eye(8, k=-1)
    forest = ManifoldForestClassifier(1, max_depth=3, feature_graph=path, random_state=0)
    one = forest.fit(X, X[:, 2:5].sum(axis=1) > 0).forest_
    shown = nodes(drawn(forest, max_depth=None, n_weights=8, precision=9), "split")
    for split, row in enumerate(one.directions(one.direction).toarray()):
        node = np.flatnonzero(one.child == 2 * split + 1)[0]
        text = shown[node].get_text().replace("\N{MINUS SIGN}", "-")
        assert number(text) == pytest.approx(one.threshold[split])
        found = np.zeros(8)
        for sign, size, j in re.findall(r"(?:([+-]) ([\d.]*) ?)?x\[(\d)\]", text):
            found[int(j)] = float(f"{sign}{size or 1}")
        np.testing.assert_allclose(found, row)
    assert np.diff(one.sparse_start).max() > 2 and len(shown) == len(one.threshold)


def test_numbers_are_on_the_colour_of_their_place_in_the_range():
    tree = skforest.NonGreedyTreeRegressor(max_depth=3, n_epochs=4, random_state=0)
    shown = nodes(drawn(tree.fit(*data(tree)), max_depth=None, precision=9), "value")
    values = np.array([number(text.get_text()) for text in shown.values()])
    for share, text in zip((values - values.min()) / np.ptp(values), shown.values()):
        expected = plt.get_cmap("viridis")(0.25 + 0.75 * share)
        np.testing.assert_allclose(text.get_bbox_patch().get_facecolor(), expected, atol=0.02)


@pytest.mark.parametrize("name", ["NonGreedyTreeClassifier", "NonGreedyTreeRegressor"])
def test_single_tree_estimators(name):
    tree = getattr(skforest, name)(max_depth=2, n_epochs=4, random_state=0)
    artists = drawn(tree.fit(*data(tree)))
    found = sorted(nodes(artists, "value") | nodes(artists, "split"))
    assert found == list(range(tree.forest_.n_nodes))


def test_images_and_thresholds_are_in_the_units_of_the_features(classifier):
    """Image and threshold send a sample to the same side as the tree."""
    X, y = data(classifier)
    X = 100 * X + 1000
    forest = classifier.fit(X, y).forest_
    artists = drawn(classifier, 1, feature_shape=(8, 8), max_depth=3, precision=9)
    path = forest[1].decision_path(X)[0].toarray().astype(bool)
    shown = nodes(artists, "weights")
    assert shown.keys() == nodes(artists, "split").keys() and len(shown) > 1
    for node, axes in shown.items():
        (image,) = images(axes)
        assert image.shape == (8, 8)
        value = X[path[:, node]] @ image.ravel()
        threshold = number(nodes(artists, "split")[node].get_text())
        right = path[path[:, node], forest[1].child[node] + 1]
        clear = np.abs(value - threshold) > 1e-4 * np.abs(value).max()
        assert clear.mean() > 0.9
        assert ((value > threshold) == right)[clear].all()


def test_widths_of_edges_are_shares_of_samples(rng):
    forest = random_forest(rng, n_splits=20)
    artists = drawn(forest, 2, max_depth=None)
    tree = forest[2]
    widths = {node: edge.get_linewidth() for node, edge in nodes(artists, "edge").items()}
    assert sorted(widths) == list(range(1, 41))
    for node, width in widths.items():
        assert width == pytest.approx(max(0.6, 12 * tree.node_weight[node] / tree.node_weight[0]))


def test_edges_connect_parents_and_children(rng):
    artists = drawn(random_forest(rng, n_trees=1, n_splits=9), max_depth=None)
    assert artists["no"].get_position()[0] < artists["yes"].get_position()[0]  # is it larger?
    child = random_forest(np.random.default_rng(0), n_trees=1, n_splits=9).child
    edges = nodes(artists, "edge")
    place = {node: edge.get_path().vertices[-1] for node, edge in edges.items()}
    leaves = [node for node in place if child[node] < 0]
    assert sorted(place[node][0] for node in leaves) == [k + 0.5 for k in range(10)]
    for node in np.flatnonzero(child > 0):
        left, right = (edges[child[node] + k].get_path().vertices for k in (0, 1))
        assert left[0].tolist() == right[0].tolist()
        assert left[0][0] == (left[-1][0] + right[-1][0]) / 2
        assert left[-1][1] < left[0][1] and left[-1][0] < right[-1][0]
        assert node == 0 or left[0][0] == place[node][0]


@pytest.mark.thin(2)
@pytest.mark.parametrize("kind", ["box", "sparse", "dense"])
@pytest.mark.parametrize("shape", [(3, 4), (12,), (2, 2, 3), (3, 4, 1)])
def test_weights_of_every_kind_have_the_shape_of_the_features(rng, kind, shape):
    wrap = (True,) + (False,) * (len(shape) - 1)
    forest = random_forest(rng, shape, wrap, n_trees=1, n_splits=4, kinds=[kind], n_each=9)
    artists = drawn(forest, feature_shape=shape, max_depth=None)
    weights = forest.directions().toarray()
    shown = nodes(artists, "weights")
    assert len(shown) == 4
    for node, axes in shown.items():
        row = weights[(forest.child[node] - 1) // 2]
        if len(shape) == 1:
            assert axes.lines[-1].get_ydata().tolist() == row.tolist()
            continue
        channels = row.reshape(*shape[:2], -1)
        assert len(images(axes)) == channels.shape[2]
        for k, image in enumerate(images(axes)):
            assert image.tolist() == channels[:, :, k].tolist()
        low, high = axes.images[0].get_clim()
        assert high == -low == (np.abs(row).max() or 1)


def test_the_default_shape_is_that_of_the_forest(rng):
    """One axis is a signal only if the forest has patches."""
    assert nodes(drawn(random_forest(rng, (3, 4), kinds=["dense"])), "weights")
    assert nodes(drawn(random_forest(rng, (12,), kinds=["box"])), "weights")
    assert not nodes(drawn(random_forest(rng, (12,), kinds=["dense"])), "weights")
    forest = random_forest(rng, (2, 2, 5), kinds=["dense"])
    artists = drawn(forest, n_weights=1, max_depth=None)
    assert not nodes(artists, "weights")
    words = " ".join(text.get_text() for text in nodes(artists, "split").values())
    assert re.search(r"x\[[01], [01], [0-4]\]", words)


def stump(direction, threshold=2.5, **meta):
    """One split on a sparse direction, given as a dict."""
    arrays = STUMP | {
        "threshold": [threshold],
        "direction": [4],
        "sparse_start": [0, len(direction)],
        "sparse_feature": list(direction),
        "sparse_weight": list(direction.values()),
        "value": [-1.0, 1.0],
    }
    arrays |= {name: meta.pop(name) for name in ("offset", "scale", "deviation") if name in meta}
    return Forest(arrays, n_features=4, n_outputs=1, task="regression", **meta)


@pytest.mark.parametrize(
    "direction, text",
    [
        ({2: 1}, "x[2] > 2.5"),
        ({2: -2}, "x[2] < −1.25"),
        ({0: 1, 3: -1}, "+ x[0]\n− x[3]\n> 2.5"),
        ({0: 1, 1: 8, 2: 2, 3: -1234.5}, "− 1234.5 x[3]\n+ 8 x[1]\n+ 2 more features\n> 2.5"),
        ({0: 0.25, 1: 8, 3: -1234.5}, "− 1234.5 x[3]\n+ 8 x[1]\n+ 1 more feature\n> 2.5"),
        ({}, "0\n> 2.5"),
    ],
)
def test_listed_weights(direction, text):
    assert drawn(stump(direction), n_weights=2)["split 0"].get_text() == text


def test_a_single_feature():
    forest = Forest(
        STUMP | {"direction": [1], "value": [0, 1]}, n_features=2, n_outputs=1, task="regression"
    )
    artists = drawn(forest, feature_names=["length", "width"])
    assert artists["split 0"].get_text() == "width > 2.5"


def test_listed_weights_are_in_the_units_of_the_features():
    """They are ranked after scaling: 1 * 1 < 0.5 * 10; (x - 3) * 10 / 2 > 2.5."""
    forest = stump({0: 1.0, 1: 0.5}, offset=[0.0, 3.0, 0.0, 0.0], scale=[1.0, 10.0, 1.0, 1.0])
    assert drawn(forest, n_weights=1)["split 0"].get_text() == "+ x[0]\n+ 1 more feature\n> 17.5"
    forest = stump({0: 0.5, 1: 1.0}, offset=[0.0, 3.0, 0.0, 0.0], scale=[1.0, 10.0, 1.0, 1.0])
    assert drawn(forest)["split 0"].get_text() == "+ 10 x[1]\n+ 0.5 x[0]\n> 32.5"
    forest = stump({0: 1.0, 1: 0.5}, deviation=[1.0, 10.0, 1.0, 1.0])
    assert (
        drawn(forest, n_weights=1)["split 0"].get_text() == "+ 0.5 x[1]\n+ 1 more feature\n> 2.5"
    )


@pytest.mark.parametrize(
    "threshold, text",
    [
        (0, "0"),
        (18, "18"),
        (0.123456, "0.123"),
        (211.5, "211.5"),
        (2021.5, "2021.5"),
        (-1.996, "−2"),
        (1e-7, "1.00e−07"),
        (2e9, "2.00e+09"),
    ],
)
def test_numbers(threshold, text):
    artists = drawn(stump({0: 1, 1: 1}, np.float32(threshold)))
    assert artists["split 0"].get_text().endswith(f"> {text}")


def test_names(rng):
    X, y = load_iris(return_X_y=True, as_frame=True)
    forest = ManifoldForestClassifier(3, projection="axis", random_state=0)
    forest.fit(X, load_iris().target_names[y])
    for fitted in (forest, forest.forest_):
        artists = drawn(fitted)
        for text in nodes(artists, "split").values():
            assert text.get_text().rpartition(" > ")[0] in X.columns
        labels = [text.get_text() for text in artists["classes"].get_texts()]
        assert labels == ["setosa", "versicolor", "virginica"]
    artists = drawn(forest, feature_names=list("abcd"), class_names=["s", "e", "i"])
    for text in nodes(artists, "split").values():
        assert text.get_text()[0] in "abcd"
    assert {text.get_text().split("\n")[0] for text in nodes(artists, "leaf").values()} <= set(
        "sei"
    )


def test_names_are_shown_as_they_are():
    """No formulas are rendered, and the legend leaves out no entry."""
    names = ["$", "a_$x^{", "_hidden", "%"]
    forest = Forest(
        STUMP | {"direction": [1], "value": np.eye(4)[:2].ravel()},
        n_features=4, n_outputs=4, task="classification", classes=names, feature_names=names,
    )  # fmt: skip
    artists = drawn(forest)
    artists["split 0"].figure.savefig(io.BytesIO())
    assert artists["split 0"].get_text() == "a_$x^{ > 2.5"
    assert [text.get_text() for text in artists["classes"].get_texts()] == names


def test_a_hidden_subtree_shows_its_number_of_nodes_and_its_mean():
    X, y = load_digits(return_X_y=True)
    forest = ManifoldForestClassifier(2, random_state=0).fit(X, y)
    tree = forest.forest_[1]
    artists = drawn(forest, 1, max_depth=2)
    shown, hidden = len(nodes(artists, "edge")) + 1, nodes(artists, "hidden")
    assert shown == 7 and hidden
    counts = [int(re.search(r"\+ (\d+) nodes", text.get_text())[1]) for text in hidden.values()]
    assert shown + sum(counts) == tree.n_nodes
    # The mean over the training samples below; paler than a leaf.
    parent, leaves = tree.parents(), np.flatnonzero(tree.child < 0)
    values = np.zeros((len(leaves), 10))
    for row, start in zip(values, -1 - tree.child[leaves]):
        entries = slice(*tree.value_start[start : start + 2])
        row[tree.value_index[entries]] = tree.value[entries]
    for node in hidden:
        above = leaves.copy()
        for _ in range(tree.max_depth[0]):
            above = np.where(above == node, node, np.where(above > 0, parent[above], above))
        weight = tree.node_weight[leaves] * (above == node)
        assert weight.sum() == pytest.approx(tree.node_weight[node])
        inset = nodes(artists, "value")[node]
        assert bars(inset, 10) == pytest.approx(weight @ values / weight.sum(), abs=1e-6)
        assert all(bar.get_alpha() < 1 for bar in inset.patches)
        assert hidden[node].get_text().startswith("n = ")  # a class is that of a leaf


def test_hidden_subtrees_of_regressions_show_pale_means(rng):
    forest = random_forest(rng, n_trees=1, n_outputs=1, n_splits=20)
    whole, part = (drawn(forest, max_depth=depth, precision=9) for depth in (None, 2))
    parent = forest.parents()
    for node in nodes(part, "hidden"):
        leaves = []
        for leaf in nodes(whole, "leaf"):
            above = leaf
            while above > node:
                above = parent[above]
            if above == node:
                leaves.append(leaf)
        values = [number(whole[f"value {leaf}"].get_text()) for leaf in leaves]
        mean = np.average(values, weights=forest.node_weight[leaves])
        text = part[f"value {node}"]
        assert number(text.get_text()) == pytest.approx(mean)
        assert min(text.get_bbox_patch().get_facecolor()[:3]) >= 0.5
    assert nodes(part, "hidden")


def test_a_subtree_by_its_root():
    X, y = load_digits(return_X_y=True)
    forest = CO2ForestClassifier(1, max_depth=4, random_state=0).fit(X, y)
    whole = drawn(forest, feature_shape=(8, 8), max_depth=None)
    node = int(forest.forest_.child[0]) + 1
    left = int(forest.forest_.child[node])
    part = drawn(forest, feature_shape=(8, 8), max_depth=1, node=node, node_ids=True)
    # Widths are shares of the samples at the root of the subtree.
    width, before = (drawing[f"edge {left}"].get_linewidth() for drawing in (part, whole))
    weight = forest.forest_.node_weight
    assert before == pytest.approx(12 * weight[left] / weight[0])
    assert width == pytest.approx(12 * weight[left] / weight[node])
    assert set(nodes(part, "edge")) == {left, left + 1}
    assert set(nodes(part, "weights")) == {node}
    for image, other in zip(images(part[f"weights {node}"]), images(whole[f"weights {node}"])):
        assert (image == other).all()
    assert part[f"split {node}"].get_text().startswith(f"#{node}: > ")


def test_node_ids_are_the_numbers_of_apply(rng):
    forest = random_forest(rng, n_trees=2, n_splits=4)
    artists = drawn(forest, 1, node_ids=True, max_depth=None)
    texts = nodes(artists, "split") | nodes(artists, "leaf")
    assert sorted(texts) == list(range(9))
    for node, text in texts.items():
        assert text.get_text().startswith(f"#{node}:")


def test_a_tree_of_one_leaf():
    X, y = load_iris(return_X_y=True)
    forest = ManifoldForestClassifier(1, max_depth=1, min_samples_split=1000).fit(X, y)
    artists = drawn(forest)
    assert set(artists) == {"value 0", "leaf 0", "classes"}
    assert bars(artists["value 0"], 3).sum() == pytest.approx(1)


def test_values_of_every_gate_and_link():
    """Trees that are averaged show predictions, trees that are summed stored values."""
    value = np.log([[0.25, 0.75], [0.5, 0.5]])
    arrays = {
        "tree_start": [0, 3, 6],
        "child": [1, -1, -2, 1, -2, -1],
        "threshold": [0.5, 0.5],
        "direction": [0, 0],
        "value": value.ravel(),
        "baseline": [0.0, np.log(2)],
    }
    words = {"n_features": 1, "n_outputs": 2, "task": "classification", "classes": ["a", "b"]}
    for gate, aggregate, link, expected in [
        ("hard", "mean", "softmax", [1 / 7, 6 / 7]),
        ("sigmoid", "mean", "log", [0.25, 1.5]),
        ("hard", "sum", "softmax", value[0]),
        ("margin", "mean", "softmax", value[0]),
    ]:
        forest = Forest(arrays, gate=gate, aggregate=aggregate, link=link, **words)
        artists = drawn(forest)
        assert bars(artists["value 1"], 2) == pytest.approx(expected, rel=1e-6)
        low, high = artists["value 1"].get_ylim()
        assert low <= min(0, *expected) + 1e-6 and high >= max(0, *expected) - 1e-6
    alone = Forest(arrays, aggregate="sum", link="softmax", **words)[0]
    assert bars(drawn(alone)["value 1"], 2) == pytest.approx([1 / 7, 6 / 7], rel=1e-6)


def test_a_forest_without_node_weights():
    """No numbers of samples, edges of the smallest width, and unweighted means."""
    forest = stump({0: 1, 1: 1})
    artists = drawn(forest)
    assert artists["edge 1"].get_linewidth() == 0.6
    assert artists["leaf 1"].get_text() == ""
    assert artists["value 1"].get_text() == "−1"


def test_several_outputs_are_bars(rng):
    forest = random_forest(rng, n_trees=1, n_outputs=3)
    artists = drawn(forest, max_depth=None, class_names=["u", "v", "w"])
    values = forest.value.reshape(-1, 3)
    limits = set()
    for node, axes in nodes(artists, "value").items():
        assert bars(axes, 3).tolist() == values[-1 - forest.child[node]].tolist()
        limits.add(axes.get_ylim())
    assert limits == {(min(0, values.min()), max(0, values.max()))}
    assert [text.get_text() for text in artists["classes"].get_texts()] == ["u", "v", "w"]


def test_colours_of_classes_are_those_of_the_legend():
    X, y = load_digits(return_X_y=True)
    artists = drawn(CO2ForestClassifier(1, max_depth=3, random_state=0).fit(X, y))
    assert {axes.get_ylim() for axes in nodes(artists, "value").values()} == {(0, 1)}
    key = [to_hex(patch.get_facecolor()) for patch in artists["classes"].get_patches()]
    assert len(set(key)) == 10
    for axes in nodes(artists, "value").values():
        for bar in axes.patches:
            assert to_hex(bar.get_facecolor()) == key[round(bar.get_x() + bar.get_width() / 2)]


def test_hundreds_of_classes(rng):
    X = rng.normal(size=(600, 5))
    forest = ManifoldForestClassifier(1, max_depth=3, random_state=0).fit(X, np.arange(600) % 300)
    artists = drawn(forest)
    assert "classes" not in artists
    axes = nodes(artists, "value").popitem()[1]
    assert 0 < len(axes.patches) < 300


@pytest.mark.parametrize("images", [True, False])
def test_texts_do_not_overlap_at_the_default_size(images):
    """A tree of depth 3 is readable in a notebook."""
    X, y = load_digits(return_X_y=True)
    forest = CO2ForestClassifier(1, max_depth=3, random_state=0).fit(X, y)
    figure = plt.figure(figsize=(6.4, 4.8), dpi=100)
    artists = plot_tree(forest, feature_shape=(8, 8) if images else None)
    figure.canvas.draw()
    named = {artist.get_gid(): artist for artist in artists}
    texts = [*nodes(named, "split").values(), *nodes(named, "leaf").values(), named["classes"]]
    boxes = [text.get_window_extent() for text in texts]
    for i, box in enumerate(boxes):
        assert box.x0 >= 0 and box.x1 <= 640 and box.y0 >= 0 and box.y1 <= 480
        assert not any(box.overlaps(other) for other in boxes[:i])
    assert nodes(named, "split")[0].get_fontsize() > 6
    assert {t.get_fontsize() for t in plot_tree(forest, fontsize=4) if hasattr(t, "get_text")} == {
        4
    }


def test_axes_are_the_current_ones_and_are_cleared():
    forest = stump({0: 1})
    figure = plt.figure()
    artists = plot_tree(forest)
    (ax,) = figure.axes
    assert artists[0].axes is ax and ax.get_position().width > 0.9
    _, panels = plt.subplots(1, 2)
    before = panels[1].get_position().bounds
    panels[1].plot([1, 2])
    assert plot_tree(forest)[0].axes is panels[1]
    assert not panels[1].lines and panels[1].get_position().bounds == before
    assert plot_tree(forest, ax=panels[0])[0].axes is panels[0]
    n_children = len(panels[0].get_children())
    plot_tree(forest, ax=panels[0])
    assert len(panels[0].get_children()) == n_children


def test_half_precision_and_files(tmp_path):
    X, y = load_digits(return_X_y=True)
    forest = CO2ForestClassifier(1, max_depth=2, weight_dtype="float16", random_state=0).fit(X, y)
    skforest.save(forest, tmp_path / "forest", layout="folder")
    again = skforest.load(tmp_path / "forest", mmap_mode="r")
    first, second = (drawn(f, feature_shape=(8, 8))["weights 0"] for f in (forest, again))
    assert (images(first)[0] == images(second)[0]).all() and images(first)[0].any()


def text_of(artists, gid):
    return next(artist.get_text() for artist in artists if artist.get_gid() == gid)


@pytest.mark.parametrize("n_outputs", [1, 6])
def test_linear_leaves_are_functions_in_the_units_of_the_data(n_outputs):
    rng = np.random.default_rng(0)
    X = 100 * rng.normal(size=(300, 3)) + 7
    y = np.abs(X @ [[1.0, 2.0] * 3, [0.3] * 6, [0.0] * 6])[:, :n_outputs].squeeze()
    model = ObliqueBoostingRegressor(1, n_bags=1, max_depth=1, linear_leaves=True, random_state=0)
    model.set_params(linear_start=None, early_stopping=False, n_directions=0).fit(X, y)
    artists = plot_tree(model, precision=9, node_ids=True, ax=Figure().subplots())
    assert not any(artist.get_gid().startswith("value") for artist in artists)
    tree = model.forest_
    for leaf in (1, 2):
        row = X[tree.apply(X)[:, 0] == leaf][0]
        lines = text_of(artists, f"leaf {leaf}").replace("\N{MINUS SIGN}", "-").split("\n")
        assert lines[0].startswith(f"#{leaf}: ") and lines[-1].startswith("n = ")
        lines[0] = lines[0].partition(": ")[2]
        if n_outputs == 1:
            formula = re.sub(r" x", " * x", " ".join(lines[:-1])).replace("+ x", "+ 1 * x")
            assert eval(formula, {"x": row}) == pytest.approx(tree.response([row])[0, 0])  # noqa: S307
        else:
            names = [f"y[{k}]: " for k in range(4)]
            assert [line[:6] for line in lines if ":" in line] == names
            assert lines[-2] == "+ 2 more outputs"
            assert sum(" x" in line for line in lines) <= 4  # one slope each
    hidden = plot_tree(model, max_depth=1, ax=Figure().subplots())
    assert {a.get_gid() for a in hidden} >= {"leaf 1", "leaf 2"}


def test_a_linear_start_is_announced():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = ObliqueBoostingRegressor(2, n_bags=1, linear_start=1.0, early_stopping=False)
    artists = plot_tree(model.fit(X, y), ax=Figure().subplots())
    text = text_of(artists, "leaf 0")
    assert text.startswith("linear start\ntrees from tree=1\n")
    assert "\n+ 7 more features\nn = 442" in text
    artists = plot_tree(model.fit(X, np.tile(y, (6, 1)).T), ax=Figure().subplots())
    assert text_of(artists, "leaf 0").count("\n+ 9 more features\n") == 4  # of six outputs
    with pytest.raises(ValueError, match="from 0 to 1: the forest has 2 trees$"):
        plot_tree(model, tree=50)


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"tree": 3}, r"tree=3 must be an int from 0 to 2"),
        ({"tree": -1}, r"tree=-1 must be an int from 0 to 2"),
        ({"tree": 1.0}, r"tree=1.0 must be an int"),
        ({"node": 13}, r"node=13 must be an int from 0 to 12"),
        ({"node": True}, r"node=True must be an int"),
        ({"max_depth": 0}, r"max_depth=0 must be an int of at least 1, or None"),
        ({"n_weights": 0}, r"n_weights=0 must be an int of at least 1"),
        ({"precision": "high"}, r"precision='high' must be an int of at least 1"),
        ({"fontsize": 0}, r"fontsize=0 must be a number above 0, or None"),
        ({"fontsize": "small"}, r"fontsize='small' must be a number above 0, or None"),
        ({"feature_names": ["a"]}, r"feature_names must be .* 12 names, got length 1"),
        ({"feature_names": "abcdefghijkl"}, r"feature_names must be .* 12 names, got 'abc"),
        ({"class_names": list("abc")}, r"class_names must be .* 2 names, got length 3"),
        ({"feature_shape": (3, 5)}, r"feature_shape=\(3, 5\) must .* multiply to the 12 features"),
        ({"feature_shape": (-3, -4)}, r"feature_shape=\(-3, -4\) must be an int of at least 1"),
        ({"feature_shape": "12"}, r"feature_shape='12' must be an int of at least 1"),
    ],
)
def test_bad_input(rng, parameters, message):
    with pytest.raises(ValueError, match=message):
        plot_tree(random_forest(rng), ax=Figure().subplots(), **parameters)


def test_unsupported_estimators_and_axes(rng):
    with pytest.raises(NotFittedError):
        plot_tree(CO2ForestClassifier())
    X, y = load_iris(return_X_y=True)
    with pytest.raises(TypeError, match="estimator must be a fitted estimator .*, got str"):
        plot_tree("forest")
    with pytest.raises(TypeError, match="estimator must be .*, got DecisionTreeClassifier"):
        plot_tree(DecisionTreeClassifier().fit(X, y))
    with pytest.raises(TypeError, match="ax must be matplotlib axes or None, got Figure"):
        plot_tree(random_forest(rng), ax=Figure())


def test_without_matplotlib(rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    with pytest.raises(ImportError, match="plot_tree needs matplotlib: pip install"):
        plot_tree(random_forest(rng))
