"""Networks as splits of a tree: greedy growth, and joint training by expectation maximisation.

`NetworkMethod` trains such a tree.

The method is that of Hehn, Kooij, Hamprecht, "End-to-End Learning of Decision Trees and Forests",
2020, with networks in place of hyperplanes (section 3.4) and the derivatives left to PyTorch.
"""

import heapq
import math
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.special import xlogy
from torch import nn

from ..forest import Forest
from ..forest.edit import recount_and_prune, with_gate
from ..training.endtoend import Annealing
from ..training.method import Method

MIN_BATCHES = 10  # steps of an epoch, unless its batches would have fewer samples than
MIN_BATCH_SIZE = 16
MIN_REACH = 0.003  # samples with a smaller probability do not reach the less probable child
MIN_SHARE = 1e-6  # total of the shares that classes have in every leaf during training
MIN_MEMORY = 5  # number of batches over which the counts of leaves are averaged at least
BLOCK = 1024  # samples per evaluation of a network outside training
MAX_ATTEMPTS = 5  # networks that are tried at a node
N_STANDARDISE = 1024  # samples that standardise a new network


@contextmanager
def on_cpu():
    """Tensors are on the CPU, and have gradients, whatever the user's defaults are."""
    with torch.device("cpu"), torch.inference_mode(False), torch.enable_grad():
        yield


# --------------------------------------------------------------------------------------- networks


def default_network(shape):
    """Small convolutional network of section 3.4, for images of (channels, height, width).

    For images of 28 x 28 or more, both convolutions have 5 x 5 kernels and both are followed by 2
    x 2 max pooling. A kernel covers at most half of a side, rounded up, and sides of less than 8
    are not pooled.
    """
    channels, *sides = shape
    parts = []
    for n_filters in (3, 6):
        kernel = [min(5, (side + 1) // 2) for side in sides]
        sides = [side - length + 1 for side, length in zip(sides, kernel)]
        pool = [2 if side >= 8 else 1 for side in sides]
        sides = [side // length for side, length in zip(sides, pool)]
        parts += [nn.Conv2d(channels, n_filters, kernel), nn.MaxPool2d(pool), nn.ReLU()]
        channels = n_filters
    n = channels * math.prod(sides)
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(n, 50), nn.ReLU(), nn.Linear(50, 1))


class StandardisedNetwork(nn.Module):
    """Network whose outputs for the given images have mean 0 and standard deviation 1 at first.

    The steepness of the split then has the same meaning for every network.
    """

    def __init__(self, network, x):
        super().__init__()
        self.network = network
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("unit", torch.ones(()))
        with torch.no_grad():
            z = self.eval()(x)
            deviation = z.std(correction=0)
            self.shift.copy_(z.mean())
            self.unit.copy_(1 / deviation if deviation > 0 else 1.0)
        if not z.isfinite().all():
            raise ValueError("network returned outputs that are not finite")

    def forward(self, x):
        """Compute one output for each of n images; tensor of shape (n,)."""
        z = self.network(x)
        if tuple(z.shape) not in ((len(x),), (len(x), 1)):
            raise ValueError(
                f"network returned shape {tuple(z.shape)} for {len(x)} images; ({len(x)}, 1) or "
                f"({len(x)},) is required"
            )
        return (z.reshape(-1) - self.shift) * self.unit


@dataclass(frozen=True)
class ImageMap:
    """Makes images, which are the input of networks, of rows of features."""

    shape: tuple[int, int, int]  # channels, height and width
    mean: np.ndarray  # (n_features,), float32
    unit: np.ndarray  # reciprocal of a deviation, or 0

    def __call__(self, X):
        """Images of rows, a tensor."""
        mean, unit = torch.from_numpy(self.mean), torch.from_numpy(self.unit)
        return ((X.float() - mean) * unit).reshape(-1, *self.shape)


class ImageSet:
    """A `TrainingSet` of class numbers whose rows `as_images` maps to images."""

    def __init__(self, data, as_images):
        self.X = torch.from_numpy(data.X)
        self.y = torch.from_numpy(data.target.astype(np.int64))
        self.weight = data.weight
        self.n_classes = data.n_outputs
        self.as_images = as_images

    def images(self, index):
        """Images of some samples."""
        return self.as_images(self.X[index])

    def class_weights(self, index):
        """Sum of the weights of some samples, by class; ndarray of shape (n_classes,)."""
        return np.bincount(self.y[index].numpy(), self.weight[index.numpy()], self.n_classes)

    def outputs(self, network, index):
        """Outputs of a network for some samples; ndarray of float32."""
        network.eval()
        with torch.no_grad():
            parts = [network(self.images(part)) for part in torch.split(index, BLOCK)]
        return torch.cat(parts).numpy()

    def weighted_samples(self):
        """Samples of positive weight; tensor of int64."""
        return torch.from_numpy(np.flatnonzero(self.weight))


# --------------------------------------------------------------------------------- joint training


def likelihood(child, networks, leaves, x, y, steepness, min_reach=MIN_REACH):
    """Probability of the labels by a soft tree (equations 1 to 5), tensor of shape (n_samples,).

    `child` has the left child of every node, which the right one follows, and ``-1 - leaf`` at a
    leaf; the split with the children ``2 * i + 1`` and ``2 * i + 2`` has network i, and samples go
    right where its output is positive. `leaves` are class probabilities, (n_leaves, n_classes),
    and `steepness` is gamma of equation 5. A sample skips the less probable child of a split if it
    reaches it with less probability than `min_reach`. The derivatives of the logarithm by the
    logarithms of `leaves` are the responsibilities of the leaves (equation 10).
    """

    def subtree(node, index, reach):
        left = child[node]
        if left < 0:
            return leaves[-1 - left, y[index]]
        z = steepness * networks[(left - 1) // 2](x[index])
        total = torch.zeros_like(z)
        for side, p in ((left, torch.sigmoid(-z)), (left + 1, torch.sigmoid(z))):
            side_reach = reach * p.detach()
            kept = ((side_reach >= min_reach) | (p.detach() >= 0.5)).nonzero()[:, 0]
            if len(kept):
                part = p[kept] * subtree(side, index[kept], side_reach[kept])
                total = total.index_add(0, kept, part)
        return total

    return subtree(0, torch.arange(len(x)), torch.ones(len(x), dtype=torch.float32))


def train_networks(
    child, networks, counts, images, index, batch_size, schedule, exact_counts=False, report=None
):
    """Train the networks of a tree on the samples `index`, by expectation maximisation.

    `child` and `networks` are as in `likelihood`. `counts`, a tensor of shape (n_leaves,
    n_classes), are initial weights of the classes in the leaves, up to a common factor: with
    `exact_counts` those of all samples, else an estimate. `schedule` has the steepness and the
    learning rate of every epoch; `report` is called with the number and the loss of every epoch.
    Return the losses: the mean negative log-likelihood in every epoch, each batch before its step.
    """
    n = len(index)
    size = min(batch_size, max(MIN_BATCH_SIZE, -(-n // MIN_BATCHES)))
    n_batches = -(-n // size)
    weight = images.weight / images.weight[index.numpy()].mean()
    weight = torch.from_numpy(weight.astype(np.float32))
    counts = counts / counts.sum()
    n_seen = n_batches if exact_counts else 0
    adam = torch.optim.Adam([p for network in networks for p in network.parameters()])
    losses = []
    for network in networks:
        network.train()
    for epoch, (steepness, learning_rate) in enumerate(schedule):
        for group in adam.param_groups:
            group["lr"] = learning_rate
        total = 0.0
        for batch in torch.tensor_split(index[torch.randperm(n)], n_batches):
            log_leaves = _class_shares(counts).log().requires_grad_()
            x, y = images.images(batch), images.y[batch]
            p = likelihood(child, networks, log_leaves.exp(), x, y, steepness)
            loss = -(weight[batch] * p.log()).sum()
            if not loss.isfinite():
                raise ValueError(
                    f"training has diverged at learning_rate={learning_rate:.2g}; use a smaller "
                    "one"
                )
            adam.zero_grad()
            (loss / len(batch)).backward()
            adam.step()
            # Sums of responsibilities by class (equation 13), as a running mean over batches.
            sums = -log_leaves.grad
            n_seen += 1
            memory = max(MIN_MEMORY, min(n_seen, n_batches))
            counts = counts + (sums / sums.sum() - counts) / memory
            total += loss.item()
        losses.append(total / n)
        if report is not None:
            report(epoch, losses[-1])
    return losses


def _class_shares(counts):
    """Class probabilities of the leaves, none of them 0, so that every logarithm is finite."""
    shares = counts + 1e-12
    shares = shares / shares.sum(dim=1, keepdim=True)
    return shares * (1 - MIN_SHARE) + MIN_SHARE / counts.shape[1]


# ----------------------------------------------------------------------------------------- growth


def entropy(counts):
    """Entropy of weighted classes in bits, times their total weight."""
    return (xlogy(counts.sum(), counts.sum()) - xlogy(counts, counts).sum()) / np.log(2)


@dataclass
class NetworkTreeGrower:
    """Grows a tree best first: the split of largest information gain is the next.

    `grow` sets `child` and `networks`, as in `likelihood`, and the samples that reach each leaf.
    """

    images: ImageSet
    shape: tuple[int, int, int]  # channels, height and width
    make_network: Callable | None  # the parameter `network` of `E2ENetworkTree`
    annealing: Annealing
    max_leaf_nodes: int
    report: Callable  # called with a line of text after every split
    child: list = field(default_factory=lambda: [-1])
    networks: list = field(default_factory=list)
    leaf_samples: list = field(default_factory=list)
    _modules: list = field(default_factory=list)  # all that `make_network` has returned

    def grow(self):
        """Grow the tree; set the attributes."""
        child = self.child
        samples = {0: self.images.weighted_samples()}  # of each leaf
        candidates = []  # a heap; the node number decides between equal gains

        def add_candidate(node):
            split = self._split(samples[node])
            if split is not None:
                gain, network, goes_right = split
                heapq.heappush(candidates, (-gain, node, network, goes_right))

        add_candidate(0)
        while candidates:
            loss, node, network, goes_right = heapq.heappop(candidates)
            index, left = samples.pop(node), len(child)
            child[node] = left
            child += [-1, -1]
            self.networks.append(network)
            samples |= {left: index[~goes_right], left + 1: index[goes_right]}
            self.report(
                f"split {len(self.networks)}, {len(index)} samples, "
                f"information gain {-loss:.4g} bits"
            )
            if len(samples) == self.max_leaf_nodes:
                break
            add_candidate(left)
            add_candidate(left + 1)
        for number, node in enumerate(samples):
            child[node] = -1 - number
        self.leaf_samples = list(samples.values())

    def _split(self, index):
        """Gain, network and samples that go right of the split of a node; None for a leaf."""
        images, annealing = self.images, self.annealing
        counts = images.class_weights(index)
        if np.count_nonzero(counts) < 2:
            return None
        schedule = [
            (annealing.steepness + epoch * annealing.steepness_step, annealing.learning_rate)
            for epoch in range(annealing.greedy_epochs)
        ]
        for _ in range(MAX_ATTEMPTS):
            few = index[torch.randperm(len(index))[:N_STANDARDISE]]
            network = self._new_network(images.images(few))
            leaves = self._initial_leaves(network, few)
            train_networks(
                [1, -1, -2], [network], leaves, images, index, annealing.batch_size, schedule
            )
            goes_right = torch.from_numpy(images.outputs(network, index) > 0)
            left, right = (images.class_weights(index[s]) for s in (~goes_right, goes_right))
            gain = entropy(counts) - entropy(left) - entropy(right)
            if goes_right.any() and not goes_right.all() and gain > 0:
                return gain, network, goes_right
        return None

    def _initial_leaves(self, network, index):
        """Weights of the classes in both leaves of a new split, by the probabilities of sides."""
        images = self.images
        z = torch.from_numpy(images.outputs(network, index))
        p = torch.sigmoid(self.annealing.steepness * z)
        weight = images.weight[index.numpy()]
        weight = torch.from_numpy(weight / weight.max()).float()
        leaves = torch.zeros(2, images.n_classes, dtype=torch.float32)
        return leaves.index_add_(1, images.y[index], torch.stack([1 - p, p]) * weight)

    def _new_network(self, x):
        """A new network, standardised by some images."""
        factory = self.make_network
        network = (default_network if factory is None else factory)(self.shape)
        if isinstance(network, nn.Module):
            network.float()  # as images are, whatever the default of PyTorch
        if any(network is other for other in self._modules):
            raise ValueError(
                f"network={factory!r} returned the same module twice; it must make a new one for "
                "every split"
            )
        self._modules.append(network)
        if not isinstance(network, nn.Module):
            raise TypeError(
                f"network={factory!r} must return a torch.nn.Module, got {type(network).__name__}"
            )
        network = StandardisedNetwork(network, x).float()
        if not any(p.requires_grad for p in network.parameters()):
            raise ValueError(f"network={factory!r} returned a module without parameters to train")
        return network


# ----------------------------------------------------------------------------------------- method


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """The parameters of `E2ENetworkTree`, with every value resolved."""

    network: Callable | None
    image_map: ImageMap
    max_leaf_nodes: int
    annealing: Annealing
    gate: str
    seed: int  # of PyTorch


class NetworkMethod(Method):
    """Trains one tree of networks; `settings` are `NetworkSettings`.

    `report` is called with a line of text after every split and every epoch.
    """

    n_members = 1
    only_joins = False  # a forest alone is no model: it needs the networks

    def __init__(self, settings, task, sampling, report):
        super().__init__(settings, task, sampling)
        self.report = report

    @on_cpu()
    def train(self, sample, seed, control):
        """Grow the tree and train its networks together; its record has the networks.

        The seed is that of the settings: there is one member only.
        """
        settings = self.settings
        images = ImageSet(sample, settings.image_map)
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(settings.seed)
            grower = NetworkTreeGrower(
                images,
                settings.image_map.shape,
                settings.network,
                settings.annealing,
                settings.max_leaf_nodes,
                self.report,
            )
            grower.grow()
            losses = []
            if grower.networks and settings.annealing.finetune_epochs:
                losses = self._train_jointly(grower, images)
        forest, networks = self._packed(grower, images, sample)
        return forest, {"networks_": networks, "loss_curve_": losses, "n_iter_": len(losses)}

    def finish(self, trained, before=None):
        """The only tree."""
        (forest,) = trained.forests
        return forest

    def _train_jointly(self, grower, images):
        """Train all networks of a grown tree; return the losses."""
        annealing = self.settings.annealing
        counts = np.stack([images.class_weights(index) for index in grower.leaf_samples])
        schedule = [
            (annealing.grown + epoch * annealing.steepness_step, learning_rate)
            for epoch, learning_rate in enumerate(annealing.rates().tolist())
        ]

        def report(epoch, loss):
            self.report(f"epoch {epoch + 1}, loss {loss:.4f}")

        return train_networks(
            grower.child,
            grower.networks,
            torch.from_numpy(counts.astype(np.float32)),
            images,
            images.weighted_samples(),
            annealing.batch_size,
            schedule,
            exact_counts=True,
            report=report,
        )

    def _packed(self, grower, images, sample):
        """The tree, with leaves counted from the samples that reach them, and its networks."""
        child, networks = grower.child, grower.networks
        every_sample = torch.arange(len(sample))
        table = np.zeros((len(sample), max(len(networks), 1)), dtype=np.float32)
        for column, network in enumerate(networks):
            table[:, column] = images.outputs(network, every_sample)
        n_classes = images.n_classes
        arrays = {
            "tree_start": [0, len(child)],
            "child": np.where(np.array(child) < 0, -1, child),
            "threshold": np.zeros(len(networks)),
            "direction": np.arange(len(networks)),
            # Leaf values of one class each; `recount_and_prune` replaces those of impure leaves.
            "value": np.ones(n_classes),
            "value_index": np.arange(n_classes),
            "value_start": np.arange(n_classes + 1),
        }
        steepness = self.settings.annealing.final
        metadata = self.task.metadata | {"gate": "hard", "steepness": steepness}
        forest = Forest(arrays, n_features=table.shape[1], **metadata)
        forest = recount_and_prune(forest, sample.with_features(table, None), "entropy")
        # The networks of removed splits are removed, and the others numbered anew.
        kept = nn.ModuleList(networks[column] for column in forest.direction).eval()
        arrays = forest.arrays | {"direction": np.arange(len(kept))}
        del arrays["dense"]
        names = [f"network {k}" for k in range(max(len(kept), 1))]
        forest = Forest(arrays, n_features=len(names), feature_names=names, **metadata)
        return with_gate(forest, self.settings.gate), kept
