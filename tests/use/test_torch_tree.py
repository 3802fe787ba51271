"""E2ENetworkTree: a tree whose splits are networks."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

import skforest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # beside other processes of the suite

from skforest.torch import E2ENetworkTree  # noqa: E402
from skforest.torch.network import (  # noqa: E402
    NetworkTreeGrower,
    default_network,
    likelihood,
    train_networks,
)

SHORT = {"greedy_epochs": 4, "finetune_epochs": 4, "random_state": 0}
#      0
#    1   2
#  3  4    (leaf 0)
CHILD = [1, 3, -1, -2, -3]


def line(shape):
    """A hyperplane; at module level, so that it can be pickled."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(int(np.prod(shape)), 1))


def flat(shape):
    """A hyperplane whose output has one axis."""
    return torch.nn.Sequential(line(shape), torch.nn.Flatten(0))


ONE = line((4,))


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:1000], y[:1000], X[1000:], y[1000:]


@pytest.fixture(scope="module")
def small(digits):
    """A tree that is fitted to the first digits, with at most five leaves."""
    X, y = digits[:2]
    return E2ENetworkTree(feature_shape=(8, 8), max_leaf_nodes=5, **SHORT).fit(X[:150], y[:150])


@pytest.mark.parametrize("how", ["device", "dtype", "inference"])
def test_defaults_of_pytorch_change_no_tree(digits, small, how):
    X, y = digits[:2]
    if how == "dtype":
        torch.set_default_dtype(torch.float64)
    context = torch.device("meta") if how == "device" else torch.inference_mode(how == "inference")
    try:
        with context:
            model = clone(small).fit(X[:150], y[:150])
            found = model.predict_proba(X[:50])
    finally:
        torch.set_default_dtype(torch.float32)
    if how == "dtype":  # other random numbers
        assert model.score(X[:150], y[:150]) > 0.4
    else:
        np.testing.assert_array_equal(found, small.predict_proba(X[:50]))


def soft_tree(n, dtype=torch.float64):
    """Margins, labels and leaves for `CHILD`."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n, 2, generator=generator, dtype=dtype).requires_grad_()
    leaves = torch.rand(3, 4, generator=generator, dtype=dtype)
    y = torch.randint(4, (n,), generator=generator)
    return z, y, leaves / leaves.sum(dim=1, keepdim=True)


def likelihood_by_paths(z, y, leaves, steepness):
    """The definition: probabilities of paths (equation 1) and responsibilities (equation 10)."""
    g = 1 / (1 + np.exp(-steepness * z.detach().numpy()))
    paths = np.stack([g[:, 0], (1 - g[:, 0]) * (1 - g[:, 1]), (1 - g[:, 0]) * g[:, 1]], axis=1)
    joint = paths * leaves.numpy()[:, y.numpy()].T
    return g, paths, joint.sum(axis=1), joint / joint.sum(axis=1, keepdims=True)


COLUMNS = [lambda x: x[:, 0], lambda x: x[:, 1]]


def test_gradients_of_the_likelihood_are_responsibilities():
    z, y, leaves = soft_tree(50)
    log_leaves = leaves.log().requires_grad_()
    p = likelihood(CHILD, COLUMNS, log_leaves.exp(), z, y, 1.7, min_reach=0.0)
    g, paths, expected, h = likelihood_by_paths(z, y, leaves, 1.7)
    assert paths.sum(axis=1) == pytest.approx(np.ones(50))
    np.testing.assert_allclose(p.detach(), expected, rtol=1e-12)
    p.log().sum().backward()
    slope = np.stack(
        [
            (1 - g[:, 0]) * h[:, 0] - g[:, 0] * (h[:, 1] + h[:, 2]),
            (1 - g[:, 1]) * h[:, 2] - g[:, 1] * h[:, 1],
        ],
        axis=1,
    )
    np.testing.assert_allclose(z.grad, 1.7 * slope, atol=1e-12)
    counts = np.stack([np.bincount(y, h[:, leaf], 4) for leaf in range(3)])
    np.testing.assert_allclose(log_leaves.grad, counts, atol=1e-12)


def test_omitted_children_have_little_probability():
    z, y, leaves = soft_tree(400)
    whole = likelihood(CHILD, COLUMNS, leaves, z, y, 4.0, min_reach=0.0)
    part = likelihood(CHILD, COLUMNS, leaves, z, y, 4.0)
    assert (part <= whole + 1e-15).all() and (part < whole).any()
    assert (whole - part).max() <= 2 * 0.003
    part = likelihood(CHILD, COLUMNS, leaves, z, y, 1.0, min_reach=0.2).detach()
    g, paths, _, _ = likelihood_by_paths(z, y, leaves, 1.0)
    reach = np.stack([g[:, 0], 1 - g[:, 0], *paths[:, 1:].T], axis=1)  # of nodes 2, 1, 3, 4
    share = np.stack([g[:, 0], 1 - g[:, 0], 1 - g[:, 1], g[:, 1]], axis=1)
    kept = (reach >= 0.2) | (share >= 0.5)
    paths = paths * np.stack([kept[:, 0], *(kept[:, 1:2] & kept[:, 2:]).T], axis=1)
    expected = (paths * leaves.numpy()[:, y.numpy()].T).sum(axis=1)
    np.testing.assert_allclose(part, expected, rtol=1e-12)


def test_the_more_probable_child_is_never_omitted():
    z, y, leaves = soft_tree(100)
    found = likelihood(CHILD, COLUMNS, leaves, z, y, 1.0, min_reach=1.0).detach().numpy()
    _, paths, _, _ = likelihood_by_paths(z, y, leaves, 1.0)
    right, low = (z.detach().numpy() > 0).T
    leaf = np.where(right, 0, np.where(low, 2, 1))
    np.testing.assert_allclose(found, paths[np.arange(100), leaf] * leaves.numpy()[leaf, y])


def test_steepness_rises_in_growth_and_goes_on_in_joint_training(monkeypatch):
    X, y = load_iris(return_X_y=True)
    schedules = []

    def recorded(*args, **options):
        schedules.append(args[6])
        return train_networks(*args, **options)

    monkeypatch.setattr("skforest.torch.network.train_networks", recorded)
    options = {"steepness": 2.0, "steepness_step": 0.5, "learning_rate": 0.01}
    tree = E2ENetworkTree(line, max_leaf_nodes=2, **options, **SHORT).fit(X, y)
    *growth, joint = [np.array(schedule) for schedule in schedules]
    np.testing.assert_allclose(growth[0], [(2 + k / 2, 0.01) for k in range(4)])
    np.testing.assert_allclose(joint[:, 0], [4, 4.5, 5, 5.5])
    rates = [0.01, *joint[:, 1]]
    assert (np.diff(rates) < 0).all() and tree.steepness_ == 6


def test_a_very_steep_tree_is_hard():
    z, y, leaves = soft_tree(200)
    p = likelihood(CHILD, COLUMNS, leaves, z, y, 1e9).detach().numpy()
    right, low = (z.detach().numpy() > 0).T
    leaf = np.where(right, 0, np.where(low, 2, 1))
    np.testing.assert_array_equal(p, leaves.numpy()[leaf, y.numpy()])


def test_leaves_of_a_new_split_are_weighted_by_the_probabilities_of_its_sides():
    rng = np.random.default_rng(0)
    z, weight, y = rng.normal(size=20), rng.uniform(size=20), rng.integers(3, size=20)
    images = SimpleNamespace(
        outputs=lambda network, index: z[index].astype(np.float32), weight=weight,
        y=torch.from_numpy(y), n_classes=3,
    )  # fmt: skip
    grower = NetworkTreeGrower(images, (1, 1, 2), None, SimpleNamespace(steepness=1.7), 2, None)
    index = np.arange(3, 17)
    found = grower._initial_leaves(None, torch.from_numpy(index)).numpy()
    right = 1 / (1 + np.exp(-1.7 * z[index]))
    sides = [np.bincount(y[index], weight[index] * p, 3) for p in (1 - right, right)]
    np.testing.assert_allclose(found / found.sum(), sides / np.sum(sides), rtol=1e-5)


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_leaves_are_running_means_over_the_batches_of_an_epoch(ratio):
    """Networks that do not learn; every epoch is one batch, and at least five are remembered."""

    class Constant(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.output = torch.nn.Parameter(torch.zeros(()))

        def forward(self, x):
            return self.output.expand(len(x))

    y = torch.tensor([0, 1]).repeat_interleave(torch.tensor([12, 4]))
    weight = np.where(y == 0, 1.0, ratio)
    of_class = np.bincount(y, 16 * weight / weight.sum())
    images = SimpleNamespace(y=y, weight=weight, images=lambda index: torch.zeros(len(index)))
    share = np.array([[3.0, 1], [1, 3]]) / 8
    losses = train_networks(
        [1, -1, -2], [Constant()], torch.tensor(share).float(), images, torch.arange(16), 16,
        [(1.0, 0.0)] * 9,
    )  # fmt: skip
    for loss in losses:
        leaves = share / share.sum(axis=1, keepdims=True)
        p = leaves.mean(axis=0)
        assert loss == pytest.approx(-(of_class @ np.log(p)) / 16, rel=1e-5)
        share = share + (leaves / 2 / p * of_class / 16 - share) / 5


@pytest.mark.parametrize("rates, change", [((0.0, 0.0), 0.0), ((0.0, 0.1), 0.1)])
def test_every_epoch_has_a_rate_of_its_own(rates, change):
    """A step of Adam is as long as the rate, as long as gradients are the same."""
    network = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False), torch.nn.Flatten(0))
    y = torch.tensor([0, 1]).repeat(8)
    images = SimpleNamespace(y=y, weight=np.ones(16), images=lambda index: y[index, None].float())
    before = network[0].weight.item()
    train_networks(
        [1, -1, -2], [network], torch.tensor([[3.0, 1], [1, 3]]), images, torch.arange(16), 16,
        [(1.0, rate) for rate in rates], exact_counts=True,
    )  # fmt: skip
    assert abs(network[0].weight.item() - before) == pytest.approx(change, rel=0.05)


@pytest.mark.parametrize(
    "shape, n_flat", [((1, 28, 28), 96), ((3, 32, 32), 150), ((1, 8, 8), 54), ((2, 1, 1), 6)]
)
def test_default_network_has_the_sizes_of_the_paper(shape, n_flat):
    network = default_network(shape)
    assert network(torch.zeros(5, *shape)).shape == (5, 1)
    sizes = [(m.in_features, m.out_features) for m in network if isinstance(m, torch.nn.Linear)]
    assert sizes == [(n_flat, 50), (50, 1)]
    if shape[1] == 28:
        assert [m.kernel_size for m in network if hasattr(m, "dilation")][::2] == [(5, 5)] * 2


def test_learns_digits(digits):
    X, y, X_test, y_test = (part[digits[i | 1] < 6] for i, part in enumerate(digits))
    parameters = {"max_leaf_nodes": 6, "random_state": 0}
    epochs = {"greedy_epochs": 3, "finetune_epochs": 6}
    tree = E2ENetworkTree(feature_shape=(8, 8), learning_rate=0.005, **parameters, **epochs).fit(
        X, y
    )
    plain = DecisionTreeClassifier(**parameters).fit(X, y)
    assert tree.score(X_test, y_test) > max(0.85, plain.score(X_test, y_test) + 0.1)
    assert len(tree.loss_curve_) == 6 and tree.loss_curve_[-1] < tree.loss_curve_[0]
    assert tree.steepness_ == pytest.approx(1 + 9 * 0.1)


def test_predictions_equal_those_of_the_packed_forest(small, digits):
    X = digits[2]
    outputs = small.network_outputs(X)
    forest = small.forest_
    assert outputs.shape == (len(X), forest.n_features) and forest.gate == "hard"
    assert len(small.networks_) == forest.n_leaves[0] - 1 == len(forest.direction)
    np.testing.assert_array_equal(small.apply(X), forest.apply(outputs))
    np.testing.assert_array_equal(small.predict_proba(X), forest.response(outputs))
    np.testing.assert_array_equal(small.predict(X), forest.predict(outputs))
    path, ends = small.decision_path(X)
    assert path.shape == (len(X), forest.n_nodes) and ends.tolist() == [0, forest.n_nodes]
    assert path[:, 0].sum() == len(X)
    np.testing.assert_allclose(small.predict_proba(X).sum(axis=1), 1, atol=1e-6)
    one = np.concatenate([small.predict_proba(X[i : i + 1]) for i in range(20)])
    np.testing.assert_array_equal(one, small.predict_proba(X[:20]))
    np.testing.assert_array_equal(small.predict(X.reshape(-1, 8, 8)), small.predict(X))


def test_leaf_values_are_class_shares_of_the_samples_there(small, digits):
    X, y = digits[0][:150], digits[1][:150]
    leaf, p = small.apply(X)[:, 0], small.predict_proba(X)
    for one in np.unique(leaf):
        share = np.bincount(y[leaf == one], minlength=10) / (leaf == one).sum()
        expected = share[None].repeat((leaf == one).sum(), 0)
        np.testing.assert_allclose(p[leaf == one], expected, atol=1e-7)
        assert small.forest_.node_weight[one] == (leaf == one).sum()
    assert set(leaf) == set(np.flatnonzero(small.forest_.child < 0))


def test_soft_routing_tends_to_hard_routing_with_steepness(small, digits):
    X = digits[2]
    soft = pickle.loads(pickle.dumps(small)).set_params(routing="soft")
    hard = small.predict_proba(X)
    p = soft.predict_proba(X)
    assert not np.array_equal(p, hard)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)
    expected = soft._routing_forest.response(small.network_outputs(X))  # those of every network
    np.testing.assert_array_equal(p, expected)
    soft.forest_ = soft.forest_.replaced(soft.forest_.arrays, steepness=1e30)
    np.testing.assert_array_equal(soft.predict_proba(X), hard)


def test_scores_of_both_routings_and_names_of_networks(small, digits):
    X, y = digits[:2]
    scores = small.routing_scores(X, y)
    assert scores["hard"] == small.score(X, y) and 0 < scores["gap"] < 1
    assert small.n_iter_ == len(small.loss_curve_)
    assert small.forest_.feature_names[0] == "network 0"


def test_soft_routing_is_the_sum_over_paths(digits):
    X, y = digits[0][:200], digits[1][:200]
    stump = E2ENetworkTree(
        line, feature_shape=(8, 8), max_leaf_nodes=2, routing="soft", **SHORT
    ).fit(X, y)
    assert stump.forest_.gate == "sigmoid"
    g = 1 / (1 + np.exp(-stump.steepness_ * stump.network_outputs(X)))
    hard, leaf = clone(stump).set_params(routing="hard").fit(X, y), stump.apply(X)[:, 0]
    values = [hard.predict_proba(X)[leaf == node][0] for node in (1, 2)]
    expected = (1 - g) * values[0] + g * values[1]
    np.testing.assert_allclose(stump.predict_proba(X), expected, atol=1e-5)


@pytest.mark.parametrize("n_leaves", [2, 3, 5])
def test_max_leaf_nodes(n_leaves, digits):
    X, y = digits[0][:300], digits[1][:300]
    tree = E2ENetworkTree(
        line, feature_shape=(8, 8), max_leaf_nodes=n_leaves, greedy_epochs=2, finetune_epochs=0
    ).fit(X, y)
    assert tree.forest_.n_leaves.tolist() == [n_leaves] and tree.loss_curve_ == []


def test_random_state_decides_and_the_generator_of_torch_is_restored(digits):
    X, y = digits[0][:200], digits[1][:200]
    made, epochs = [], {"greedy_epochs": 2, "finetune_epochs": 1}
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        expected = torch.random.get_rng_state()
        tree = E2ENetworkTree(feature_shape=(8, 8), max_leaf_nodes=3, **epochs, random_state=0)
        tree.fit(X, y)
        assert torch.equal(torch.random.get_rng_state(), expected)
        made.append(tree.network_outputs(X))
    np.testing.assert_array_equal(*made)
    other = tree.set_params(random_state=1).fit(X, y).network_outputs(X)
    assert other.shape != made[0].shape or not np.array_equal(other, made[0])


def test_integer_weights_equal_copies():
    X, y = load_iris(return_X_y=True)
    weight = np.random.RandomState(0).randint(0, 3, len(y))
    parameters = {"network": line, "max_leaf_nodes": 4} | SHORT
    one = E2ENetworkTree(**parameters).fit(X, y, sample_weight=weight)
    other = E2ENetworkTree(**parameters).fit(X.repeat(weight, axis=0), y.repeat(weight))
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_steps_and_losses_of_few_weighted_samples(monkeypatch):
    """At least ten steps in an epoch, of at least 16 samples; only ratios of weights matter."""
    sizes = []

    def recorded(index):
        sizes.append(len(index))
        return x[index]

    x, y = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)), torch.arange(200) % 2
    losses, wrong = [], torch.tensor([[9.0, 1.0]] * 2)
    counts = torch.ones(2, 2) + torch.eye(2)
    for n, weight, given, is_exact in (
        (200, 1.0, counts, False),
        (200, 8.0, counts, False),
        (40, 1.0, counts, False),
        (200, 1.0, wrong, False),
        (200, 1.0, wrong, True),
    ):
        images = SimpleNamespace(y=y, weight=np.full(200, weight), images=recorded)
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(0)
            network = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Flatten(0))
            losses.append(train_networks(
                [1, -1, -2], [network], given, images, torch.arange(n), 1000,
                [(1.0, 0.01)] * 2, is_exact,
            ))  # fmt: skip
    assert sizes[:20] == [20] * 20 and sorted(sizes[40:46]) == [13] * 4 + [14] * 2
    # Counts of all samples are remembered for a whole epoch of ten batches, others for five.
    assert losses[4][0] > losses[3][0] + 0.01
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_pickle_string_labels_and_tables():
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    for factory in (flat, None):
        parameters = {"max_leaf_nodes": 3, "learning_rate": 0.02} | SHORT
        tree = E2ENetworkTree(factory, **parameters | {"finetune_epochs": 12})
        tree.fit(X, names)
        assert tree.score(X, names) > 0.9
        again = pickle.loads(pickle.dumps(tree))
        np.testing.assert_array_equal(again.predict_proba(X), tree.predict_proba(X))


def test_one_class_is_one_leaf():
    X = np.random.RandomState(0).rand(20, 4)
    tree = E2ENetworkTree(**SHORT).fit(X, np.full(20, 7))
    assert (tree.predict(X) == 7).all() and len(tree.networks_) == 0
    assert tree.apply(X).tolist() == [[0]] * 20
    # Constant features.
    same = E2ENetworkTree(**SHORT).fit(np.ones((20, 4)), np.arange(20) % 2)
    assert same.predict_proba(X) == pytest.approx(np.full((20, 2), 0.5))


def test_mean_and_unit_of_images_and_of_tables():
    X = np.random.RandomState(0).rand(50, 4) * [1, 10, 100, 0] + 5
    y = np.arange(50) % 2
    parameters = {"max_leaf_nodes": 2, "greedy_epochs": 1, "finetune_epochs": 0}
    table = E2ENetworkTree(line, **parameters).fit(X, y)
    np.testing.assert_allclose(table.unit_, [*(1 / X[:, :3].std(axis=0)), 0], rtol=1e-5)
    image = E2ENetworkTree(line, feature_shape=(2, 2), **parameters).fit(X, y)
    np.testing.assert_allclose(image.unit_, np.full(4, 1 / X.std()), rtol=1e-5)
    np.testing.assert_allclose(image.mean_, np.full(4, X.mean()), rtol=1e-5)


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"max_leaf_nodes": 1}, "max_leaf_nodes"),
        ({"greedy_epochs": 0}, "greedy_epochs"),
        ({"finetune_epochs": -1}, "finetune_epochs"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"batch_size": 0}, "batch_size"),
        ({"steepness": 0}, "steepness"),
        ({"steepness_step": -0.1}, "steepness_step"),
        ({"routing": "warm"}, "routing"),
        ({"network": 3}, "network"),
        ({"feature_shape": (3, 3)}, "feature_shape"),
        ({"feature_shape": (1, 1, 2, 2)}, "feature_shape=.* has 4 lengths"),
        ({"network": lambda shape: torch.nn.Flatten()}, r"network returned shape .* is required"),
        (
            {"network": lambda shape: None},
            "network=.* must return a torch.nn.Module, got NoneType",
        ),
        ({"network": torch.nn.Linear(4, 1)}, "network must be a function .* the module Linear"),
        ({"network": lambda shape: ONE}, "returned the same module twice"),
        ({"learning_rate": 1e25}, "learning_rate"),
    ],
)
def test_bad_parameters(parameters, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises((ValueError, TypeError), match=message):
        E2ENetworkTree(**parameters).fit(X, y)


def test_a_network_without_parameters_raises():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="without parameters"):
        E2ENetworkTree(lambda shape: line(shape).requires_grad_(False)).fit(X, y)


def test_an_interrupted_fit_leaves_the_tree_unchanged():
    X, y = load_iris(return_X_y=True)
    tree = E2ENetworkTree(line, max_leaf_nodes=3, **SHORT).fit(X, y)
    before, p = dict(vars(tree)), tree.predict_proba(X)
    made = []

    def interrupted(shape):
        made.append(shape)
        if len(made) > 1:
            raise KeyboardInterrupt
        return line(shape)

    tree.network = interrupted
    with pytest.raises(KeyboardInterrupt):
        tree.fit(X, y)
    after = vars(tree) | {"network": line}
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    np.testing.assert_array_equal(tree.predict_proba(X), p)
    assert made == [(1, 1, 4)] * 2


def test_unsupported_methods_raise(small, tmp_path):
    with pytest.raises(TypeError, match="cannot be saved"):
        skforest.save(small, tmp_path / "tree.npz")
    assert not hasattr(small, "feature_importances_")
    with pytest.raises(TypeError, match="splits are networks"):
        skforest.refine(small, np.zeros((2, 64)), [0, 1])
    with pytest.raises(NotFittedError):
        E2ENetworkTree().predict(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="features"):
        small.predict(np.zeros((2, 4)))


def test_check_estimator():
    parameters = {"max_leaf_nodes": 3, "learning_rate": 0.2, "random_state": 0}
    parameters |= {"greedy_epochs": 2, "finetune_epochs": 2}
    for check in check_estimator(E2ENetworkTree(line, **parameters), on_skip=None, on_fail=None):
        assert check["status"] != "failed", (check["check_name"], check["exception"])


def test_verbose_prints_splits_and_epochs(capsys):
    X, y = load_iris(return_X_y=True)
    E2ENetworkTree(line, max_leaf_nodes=3, verbose=1, **SHORT).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and all(text.startswith("E2ENetworkTree: ") for text in lines)
    E2ENetworkTree(line, max_leaf_nodes=2, **SHORT).fit(X, y)
    assert not capsys.readouterr().out


def test_missing_values_and_categories_are_refused():
    pd = pytest.importorskip("pandas")
    X, y = load_iris(return_X_y=True)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = E2ENetworkTree(line, max_leaf_nodes=2, **SHORT).fit(frame, y)
    expected = model.predict_proba(frame)
    np.testing.assert_array_equal(model.predict_proba(frame.astype("Float64")), expected)
    for wrong in (frame.where(frame > 1), frame.where(frame > 1).astype("Float64")):
        for function in (lambda X: clone(model).fit(X, y), model.predict):
            with pytest.raises(ValueError, match="X contains NaN.*column 'c'.*SimpleImputer"):
                function(wrong)
    for function in (lambda X: clone(model).fit(X, y), model.predict):
        with pytest.raises(ValueError, match="column 'c' of X holds strings or categories"):
            function(frame.assign(c="a"))


@pytest.mark.parametrize("n_columns", [3, 7])
def test_shapley_values_add_up_to_the_prediction(n_columns):
    """The features of the forest are networks, as many as columns or not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, n_columns))
    y = (X[:, 0] - X[:, 1] > 0).astype(int)
    tree = E2ENetworkTree(line, feature_shape=(n_columns,), max_leaf_nodes=4, **SHORT)
    blend = skforest.BlendedForestClassifier([("tree", tree)], random_state=0)
    for model in (tree, clone(tree).set_params(prior=[0.9, 0.1]), blend):
        found = skforest.shapley_values(
            model.fit(X, y), X[:4], background=X[10:20], n_permutations=20
        )
        assert found.values.shape == (4, n_columns)
        total = found.base_values + found.values.sum(axis=1)
        np.testing.assert_allclose(total, model.predict_proba(X[:4])[:, 1], atol=1e-12)
        assert abs(found.values[:, :2]).mean() > abs(found.values[:, 2:]).mean()
