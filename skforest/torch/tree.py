"""End-to-end trees whose splits are small networks.

As `E2EDecisionForest`, with the derivatives left to PyTorch: a split may be any module that
answers an image with one number. The fitted tree is a `Forest` whose features are those numbers.
"""

from __future__ import annotations

import heapq
import math

import numpy as np
import torch
from scipy.special import xlogy
from torch import nn

from .._base import BaseForest, Integral, Interval, Real, StrOptions
from .._targets import GATES, ForestClassifierMixin, RoutingMixin
from ..forest import Forest
from ..forest.edit import settle
from ..training.endtoend import Annealing

ATTEMPTS = 5  # networks that a node tries
LEAST_BATCHES, LEAST_ROWS = 10, 16  # of an epoch, and of each of these batches
LEAST_REACH = 0.003  # probability below which a row does not go to the smaller child
LEAST_SHARE = 1e-6  # of all classes in a leaf, while it learns
SEEN_FIRST = 1024  # rows that settle the unit of a new network
SETTLING = 5  # batches that the leaves of a new split remember at least
BLOCK = 1024  # rows that networks see at once when they do not learn


def default_network(shape):
    """The small network of the paper's section 3.4, made to fit.

    Parameters
    ----------
    shape : tuple (int, int, int)
        Channels, height and width.

    Returns
    -------
    network : Module
        From (n, \\*shape) to (n, 1). On images of 28 x 28 or more both kernels are 5 x 5 and both
        pools 2 x 2; a kernel covers at most half of a side, rounded up, and sides of less than 8
        are not pooled.
    """
    channels, *sides = shape
    parts = []
    for wanted in (3, 6):
        kernel = [min(5, (side + 1) // 2) for side in sides]
        sides = [side - length + 1 for side, length in zip(sides, kernel)]
        pool = [2 if side >= 8 else 1 for side in sides]
        sides = [side // length for side, length in zip(sides, pool)]
        parts += [nn.Conv2d(channels, wanted, kernel), nn.MaxPool2d(pool), nn.ReLU()]
        channels = wanted
    n = channels * math.prod(sides)
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(n, 50), nn.ReLU(), nn.Linear(50, 1))


class Margin(nn.Module):
    """A network whose answers had mean 0 and deviation 1 before it learned.

    Parameters
    ----------
    network : Module
        From n images to (n, 1) or (n,).
    x : tensor of shape (n_rows, channels, height, width)
        Images that settle the mean and the deviation.
    """

    def __init__(self, network, x):
        super().__init__()
        self.network = network
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("unit", torch.ones(()))
        with torch.no_grad():
            z = self.eval()(x)
            spread = z.std(correction=0)
            self.shift.copy_(z.mean())
            self.unit.copy_(1 / spread if spread > 0 else 1.0)
        if not z.isfinite().all():
            raise ValueError("network answers with numbers that are not finite")

    def forward(self, x):
        """One number for each image.

        Parameters
        ----------
        x : tensor of shape (n, channels, height, width)

        Returns
        -------
        z : tensor of shape (n,)
        """
        z = self.network(x)
        if tuple(z.shape) not in ((len(x),), (len(x), 1)):
            raise ValueError(
                f"network answers {len(x)} images with shape {tuple(z.shape)}, ({len(x)}, 1) or "
                f"({len(x)},) is needed"
            )
        return (z.reshape(-1) - self.shift) * self.unit


def likelihood(child, networks, leaves, x, y, steepness, least=LEAST_REACH):
    """Probability of the labels by a soft tree, from the leaves up.

    Parameters
    ----------
    child : sequence of int
        Left child of every node, which the right one follows; ``-1 - leaf`` at a leaf. The split
        with the children ``2 * i + 1`` and ``2 * i + 2`` asks network i.
    networks : sequence of callable
        From images to one number each; positive ones go right.
    leaves : tensor of shape (n_leaves, n_classes)
    x : tensor of shape (n_rows, channels, height, width)
    y : tensor of shape (n_rows,), int64
    steepness : float
    least : float
        Rows that reach the smaller child with less than this probability leave it out.

    Returns
    -------
    p : tensor of shape (n_rows,)
        Its logarithm has the responsibilities of the leaves (equation 10) as its derivatives by
        the logarithms of `leaves`.
    """

    def below(node, rows, reach):
        left = child[node]
        if left < 0:
            return leaves[-1 - left, y[rows]]
        z = steepness * networks[(left - 1) // 2](x[rows])
        total = torch.zeros_like(z)
        for side, share in ((left, torch.sigmoid(-z)), (left + 1, torch.sigmoid(z))):
            there = reach * share.detach()
            seen = ((there >= least) | (share.detach() >= 0.5)).nonzero()[:, 0]
            if len(seen):
                part = share[seen] * below(side, rows[seen], there[seen])
                total = total.index_add(0, seen, part)
        return total

    return below(0, torch.arange(len(x)), torch.ones(len(x)))


class Pictures:
    """Training rows as images.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features), uint8 or float32
    y : ndarray of shape (n_rows,), int
    weight : ndarray of shape (n_rows,), float64
    look : callable
        From some rows of X, as a tensor, to images.
    n_classes : int
    """

    def __init__(self, X, y, weight, look, n_classes):
        self.X = torch.from_numpy(np.require(X, requirements="W"))
        self.y = torch.from_numpy(y.astype(np.int64))
        self.weight = weight
        self.look = look
        self.n_classes = n_classes

    def counts(self, rows):
        """Weight of the classes of some rows."""
        return np.bincount(self.y[rows].numpy(), self.weight[rows.numpy()], self.n_classes)

    def margins(self, network, rows):
        """Answers of a network, as an ndarray of float32."""
        network.eval()
        with torch.no_grad():
            parts = [network(self.look(self.X[part])) for part in torch.split(rows, BLOCK)]
        return torch.cat(parts).numpy()


def train(child, networks, counts, pictures, rows, batch_size, schedule, known=False, report=None):
    """Train the networks of a tree on some rows, by expectation maximisation.

    Parameters
    ----------
    child, networks
        As in `likelihood`.
    counts : tensor of shape (n_leaves, n_classes)
        What leaves begin with: any multiple of the weight of their classes.
    pictures : Pictures
    rows : tensor of shape (n_rows,), int64
    batch_size : int
    schedule : sequence of (float, float)
        Steepness and rate of every epoch.
    known : bool, default=False
        `counts` are those of all rows, and not a guess.
    report : callable, default=None
        Told the number of an epoch, and its loss.

    Returns
    -------
    losses : list of float
        Mean negative log-likelihood in every epoch, each batch before its step.
    """
    n = len(rows)
    size = min(batch_size, max(LEAST_ROWS, -(-n // LEAST_BATCHES)))
    n_batches = -(-n // size)
    weight = torch.from_numpy(
        (pictures.weight / pictures.weight[rows.numpy()].mean()).astype(np.float32)
    )
    n_classes = counts.shape[1]
    counts = counts / counts.sum()
    n_seen = n_batches if known else 0
    adam = torch.optim.Adam([p for network in networks for p in network.parameters()])
    losses = []
    for network in networks:
        network.train()
    for epoch, (steepness, rate) in enumerate(schedule):
        for group in adam.param_groups:
            group["lr"] = rate
        total = 0.0
        for batch in torch.tensor_split(rows[torch.randperm(n)], n_batches):
            # Shares of the classes, which a batch moves as soon as it has been seen.
            shares = counts + 1e-12
            shares = shares / shares.sum(dim=1, keepdim=True)
            shares = shares * (1 - LEAST_SHARE) + LEAST_SHARE / n_classes
            log_leaves = shares.log().requires_grad_()
            x, y = pictures.look(pictures.X[batch]), pictures.y[batch]
            p = likelihood(child, networks, log_leaves.exp(), x, y, steepness)
            loss = -(weight[batch] * p.log()).sum()
            if not loss.isfinite():
                raise ValueError(
                    f"training has diverged at learning_rate={rate:.2g}: a smaller one is needed"
                )
            adam.zero_grad()
            (loss / len(batch)).backward()
            adam.step()
            found = -log_leaves.grad  # sums of responsibilities, label by label: equation 13
            n_seen += 1
            memory = max(SETTLING, min(n_seen, n_batches))
            counts = counts + (found / found.sum() - counts) / memory
            total += loss.item()
        losses.append(total / n)
        if report is not None:
            report(epoch, losses[-1])
    return losses


def entropy(counts):
    """Entropy of some classes in bits, times their weight."""
    return (xlogy(counts.sum(), counts.sum()) - xlogy(counts, counts).sum()) / np.log(2)


class E2ENetworkTree(ForestClassifierMixin, RoutingMixin, BaseForest):
    """Classify with a tree whose splits are small networks, trained together: soft, then hard.

    The tree of `E2EDecisionForest` with a network in the place of each hyperplane (section 3.4 of
    the paper [1]_). The node whose split gains most information is split next; then all networks
    are trained together, while splits become steeper. A row asks only the networks on its way.

    Parameters
    ----------
    network : callable or None, default=None
        Makes the network of a split: from the shape ``(channels, height, width)`` to a
        `torch.nn.Module` that takes n such images to shape (n, 1) or (n,). None: that of the
        paper, two convolutions and two linear maps, with smaller kernels on small images.
    feature_shape : int, tuple of int or None, default=None
        Shape of the images: ``(height, width)`` or ``(channels, height, width)``. X may come with
        such arrays as its rows. One length, or None: one row of pixels.
    max_leaf_nodes : int, default=10
        Leaves of the tree, at least 2.
    greedy_epochs : int, default=15
        How often the rows of a node are shown to its network when the tree is grown, at least 1.
    finetune_epochs : int, default=30
        How often all rows are shown to the whole tree when it has been grown. 0: the tree stays
        as it was grown.
    learning_rate : float, default=0.003
        Of Adam, more than 0. Constant while the tree grows, then falling to 0 along a cosine.
    batch_size : int, default=256
        Rows of a step, 1 to 2^20. An epoch takes at least 10 steps, or fewer where its batches
        would have less than 16 rows.
    steepness : float, default=1.0
        Gamma of equation 5 in the first epoch, more than 0.
    steepness_step : float, default=0.1
        What each epoch adds to the steepness, 0 or more. Training of the whole tree goes on from
        where that of its splits ended.
    routing : {"hard", "soft"}, default="hard"
        How predictions go. "hard": one way at every split. "soft": all ways, by the probabilities
        of the last steepness. Can be changed after `fit`.
    class_weight : dict, {"balanced", "balanced_subsample"} or None, default=None
        Weights of the classes, which multiply the weights of their rows. "balanced", and here
        "balanced_subsample" too: all classes weigh the same over the training set.
    random_state : int, RandomState or None, default=None
        Seed of networks and batches. The seed of PyTorch is neither used nor changed.
    verbose : int, default=0
        1 prints a line for every split and every epoch of joint training.

    Attributes
    ----------
    networks_ : ModuleList
        One for each split of `forest_`, in their order. Rows go right where the answer is
        positive.
    forest_ : Forest
        The tree over the answers of the networks, which are its features.
    classes_ : ndarray of shape (n_classes_,)
    n_classes_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        If X had column names.
    n_outputs_ : int
        1.
    mean_, unit_ : ndarray of shape (n_features_in_,), float32
        Networks see ``(x - mean_) * unit_``: all features in one unit with `feature_shape`, else
        each in its own.
    steepness_ : float
        After the last epoch; that of soft routing.
    n_iter_ : int
        Epochs of joint training.
    loss_curve_ : list of float
        Mean negative log-likelihood of the rows in every epoch of joint training, each batch
        before its step.

    See Also
    --------
    skforest.E2EDecisionForest : Hyperplanes as splits, and forests.

    Notes
    -----
    Where all rows of a node end on one side of its split, another network is tried, up to 5 times.
    After training, the leaves are counted from the rows that hard routing sends there, and what no
    row reaches is gone.

    A row that reaches a node with a probability below 0.003 leaves it out while the tree is
    trained, so batch normalisation within a network would not see whole batches.

    Trees that are fitted in several threads of one process at once draw from one generator, that
    of PyTorch, so they depend on each other; processes do not.

    A fitted tree can be pickled if `network` can. `skforest.save`, which has no pickle, refuses
    it.

    References
    ----------
    .. [1] T. M. Hehn, J. F. P. Kooij, F. A. Hamprecht, "End-to-End Learning of Decision Trees and
       Forests", International Journal of Computer Vision 128, 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skforest.torch import E2ENetworkTree
    >>> X, y = load_digits(return_X_y=True)
    >>> tree = E2ENetworkTree(feature_shape=(8, 8), max_leaf_nodes=3, greedy_epochs=3,
    ...                       finetune_epochs=3, random_state=0).fit(X[y < 3], y[y < 3])
    >>> bool(tree.score(X[y < 3], y[y < 3]) > 0.95)
    True
    """

    _parameter_constraints: dict = {
        "network": [callable, None],
        "feature_shape": ["array-like", Interval(Integral, 1, None, closed="left"), None],
        "max_leaf_nodes": [Interval(Integral, 2, None, closed="left")],
        "greedy_epochs": [Interval(Integral, 1, 2**31 - 1, closed="left")],
        "finetune_epochs": [Interval(Integral, 0, 2**31 - 1, closed="left")],
        "learning_rate": [Interval(Real, 0.0, None, closed="neither")],
        "batch_size": [Interval(Integral, 1, 2**20, closed="both")],
        "steepness": [Interval(Real, 0.0, None, closed="neither")],
        "steepness_step": [Interval(Real, 0.0, None, closed="left")],
        "routing": [StrOptions(set(GATES))],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        **ForestClassifierMixin._parameter_constraints,
    }
    # What the door asks of forests.
    bootstrap = oob_score = warm_start = False
    max_samples = n_jobs = None

    def __init__(
        self,
        network=None,
        *,
        feature_shape=None,
        max_leaf_nodes=10,
        greedy_epochs=15,
        finetune_epochs=30,
        learning_rate=0.003,
        batch_size=256,
        steepness=1.0,
        steepness_step=0.1,
        routing="hard",
        class_weight=None,
        random_state=None,
        verbose=0,
    ):
        self.network = network
        self.feature_shape = feature_shape
        self.max_leaf_nodes = max_leaf_nodes
        self.greedy_epochs = greedy_epochs
        self.finetune_epochs = finetune_epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.steepness = steepness
        self.steepness_step = steepness_step
        self.routing = routing
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose

    # ----------------------------------------------------------------------------------- settings

    def _members(self, goes_on):
        return "trees", 1, 0

    def _resolve(self, rows, target, goes_on):
        if isinstance(self.network, nn.Module):
            raise TypeError(
                f"network is a {type(self.network).__name__}; what makes a new one for every "
                "split is needed: a function of the shape (channels, height, width)"
            )
        p = rows.X.shape[1]
        shape = np.atleast_1d(p if self.feature_shape is None else self.feature_shape)
        whole = shape.ndim == 1 and shape.dtype.kind in "iu" and 1 <= len(shape) <= 3
        if not whole or (shape < 1).any() or math.prod(shape.tolist()) != p:
            raise ValueError(
                f"feature_shape={self.feature_shape!r} must be one to three whole numbers with "
                f"the product {p}, the number of features of X"
            )
        self._shape = (1,) * (3 - len(shape)) + tuple(shape.tolist())
        self.steepness_ = self._annealing.final
        # No BLAS, whose last bits depend on its threads.
        weight = rows.weight / rows.weight.sum()
        mean, square = np.zeros(p), np.zeros(p)
        for start in range(0, len(rows.X), BLOCK):
            part, own = rows.X[start : start + BLOCK], weight[start : start + BLOCK]
            mean += np.einsum("i,ij->j", own, part, dtype=np.float64)
        for start in range(0, len(rows.X), BLOCK):
            part, own = rows.X[start : start + BLOCK], weight[start : start + BLOCK]
            square += np.einsum("i,ij->j", own, np.square(part - mean), dtype=np.float64)
        if self.feature_shape is not None:
            square += np.square(mean - mean.mean())
            mean[:], square[:] = mean.mean(), square.mean()
        spread = np.sqrt(square)
        self.mean_ = mean.astype(np.float32)
        # A spread below the rounding of float32 is none.
        varies = spread > 1e-6 * np.abs(mean)
        self.unit_ = np.where(varies, 1 / np.where(varies, spread, 1), 0).astype(np.float32)

    @property
    def _annealing(self):
        return Annealing(
            greedy_epochs=int(self.greedy_epochs),
            finetune_epochs=int(self.finetune_epochs),
            learning_rate=float(self.learning_rate),
            batch_size=int(self.batch_size),
            steepness=float(self.steepness),
            steepness_step=float(self.steepness_step),
        )

    def _look(self, rows):
        """Rows of X, as a tensor, as the images that networks see."""
        mean, unit = torch.from_numpy(self.mean_), torch.from_numpy(self.unit_)
        return ((rows.float() - mean) * unit).reshape(-1, *self._shape)

    def _say(self, *words):
        if self.verbose:
            print(f"{type(self).__name__}:", *words, flush=True)

    # ----------------------------------------------------------------------------------- training

    def _fit_forest(self, rows, target, trees):
        weight = self._tree_weight(rows, target, self._seed)
        return self._fit_tree(rows, target, weight, self._seed, None)

    def _fit_tree(self, rows, target, weight, seed, stop):
        pictures = Pictures(rows.X, target, weight, self._look, self.n_classes_)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.random.default_generator.manual_seed(seed)
            self._made = []
            try:
                child, networks, members = self._grow(pictures)
            finally:
                del self._made
            everyone = torch.from_numpy(np.flatnonzero(weight))
            self.loss_curve_ = []
            if networks and self.finetune_epochs:
                counts = np.stack([pictures.counts(own) for own in members])
                self.loss_curve_ = train(
                    child,
                    networks,
                    torch.from_numpy(counts.astype(np.float32)),
                    pictures,
                    everyone,
                    self.batch_size,
                    self._joint_schedule(),
                    known=True,
                    report=lambda epoch, loss: self._say(f"epoch {epoch + 1}, loss {loss:.4f}"),
                )
        self.n_iter_ = len(self.loss_curve_)
        return self._pack(child, networks, pictures, target, weight)

    def _joint_schedule(self):
        annealing = self._annealing
        return [
            (annealing.grown + epoch * annealing.steepness_step, rate)
            for epoch, rate in enumerate(annealing.rates().tolist())
        ]

    def _grow(self, pictures):
        """Grow the tree best first: children as in `likelihood`, networks, rows of the leaves."""
        child, networks = [-1], []
        leaf_rows = {0: torch.from_numpy(np.flatnonzero(pictures.weight))}
        waiting = []

        def try_node(node):
            found = self._stump(pictures, leaf_rows[node])
            if found is not None:
                heapq.heappush(waiting, (-found[0], node, *found[1:]))

        try_node(0)
        while waiting:
            loss, node, network, right = heapq.heappop(waiting)
            rows, left = leaf_rows.pop(node), len(child)
            child[node] = left
            child += [-1, -1]
            networks.append(network)
            leaf_rows |= {left: rows[~right], left + 1: rows[right]}
            self._say(f"split {len(networks)} of {len(rows)} rows gains {-loss:.4g} bits")
            if len(leaf_rows) == self.max_leaf_nodes:
                break
            try_node(left)
            try_node(left + 1)
        for number, node in enumerate(leaf_rows):
            child[node] = -1 - number
        return child, networks, list(leaf_rows.values())

    def _stump(self, pictures, rows):
        """Gain of the split of a node, its network, and the rows that go right; None: a leaf."""
        counts = pictures.counts(rows)
        if np.count_nonzero(counts) < 2:
            return None
        annealing = self._annealing
        schedule = [
            (annealing.steepness + epoch * annealing.steepness_step, annealing.learning_rate)
            for epoch in range(annealing.greedy_epochs)
        ]
        for _ in range(ATTEMPTS):
            few = rows[torch.randperm(len(rows))[:SEEN_FIRST]]
            network = self._new_network(pictures.look(pictures.X[few]))
            # Responsibilities of leaves that know nothing yet are the probabilities of both ways.
            goes = torch.sigmoid(
                annealing.steepness * torch.from_numpy(pictures.margins(network, few))
            )
            share = pictures.weight[few.numpy()]
            share = torch.from_numpy(share / share.max()).float()
            first = torch.zeros(2, pictures.n_classes)
            for leaf, own in enumerate((1 - goes, goes)):
                first[leaf].index_add_(0, pictures.y[few], own * share)
            train([1, -1, -2], [network], first, pictures, rows, self.batch_size, schedule)
            right = torch.from_numpy(pictures.margins(network, rows) > 0)
            sides = pictures.counts(rows[~right]), pictures.counts(rows[right])
            gain = entropy(counts) - entropy(sides[0]) - entropy(sides[1])
            if right.any() and not right.all() and gain > 0:
                return gain, network, right
        return None

    def _new_network(self, x):
        make = default_network if self.network is None else self.network
        network = make(self._shape)
        if any(network is made for made in self._made):
            raise ValueError(f"network={self.network!r} made the same module twice")
        self._made.append(network)
        if not isinstance(network, nn.Module):
            raise TypeError(
                f"network={self.network!r} makes a {type(network).__name__}, a torch.nn.Module "
                "is needed"
            )
        network = Margin(network, x)
        if not any(p.requires_grad for p in network.parameters()):
            raise ValueError(f"network={self.network!r} makes a module without parameters")
        return network

    def _pack(self, child, networks, pictures, target, weight):
        """The hard tree, counted from the rows that come by; set its networks."""
        everyone = torch.arange(len(target))
        table = np.zeros((len(target), max(len(networks), 1)), dtype=np.float32)
        for column, network in enumerate(networks):
            table[:, column] = pictures.margins(network, everyone)
        n_classes = self.n_classes_
        arrays = {
            "tree_start": [0, len(child)],
            "child": child,
            "threshold": np.zeros(len(networks)),
            "direction": np.arange(len(networks)),
            # Pure leaves first; all others are counted below.
            "value": np.ones(n_classes),
            "value_index": np.arange(n_classes),
            "value_start": np.arange(n_classes + 1),
        }
        arrays["child"] = np.where(np.array(child) < 0, -1, child)
        meta = self._forest_options | {"gate": "hard", "steepness": self.steepness_}
        forest = Forest(arrays, n_features=table.shape[1], **meta)
        forest = settle(forest, table, target, weight, criterion="entropy")
        # Networks that no row asks are gone.
        self.networks_ = nn.ModuleList(networks[column] for column in forest.direction).eval()
        arrays = forest.arrays | {"direction": np.arange(len(self.networks_))}
        del arrays["dense"]
        names = [f"network {k}" for k in range(max(len(self.networks_), 1))]
        forest = Forest(arrays, n_features=len(names), feature_names=names, **meta)
        return self._gated(forest)

    # --------------------------------------------------------------------------------- predicting

    def _response(self, X):
        answers = self._answers(X, self.routing == "hard")
        return self._gated(self.forest_).response(answers)

    def apply(self, X):
        """Leaf that every row reaches, by hard routing.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, \\*feature_shape)

        Returns
        -------
        leaves : ndarray of shape (n_samples, 1), int32
            Node numbers.
        """
        answers = self._answers(X)
        return self.forest_.apply(answers)

    def decision_path(self, X):
        """Nodes that every row passes, by hard routing.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, \\*feature_shape)

        Returns
        -------
        indicator : csr_matrix of shape (n_samples, n_nodes)
            1 where the row passes the node.
        n_nodes_ptr : ndarray of shape (2,)
            0 and the number of nodes.
        """
        answers = self._answers(X)
        return self.forest_.decision_path(answers)

    @property
    def feature_importances_(self):
        """Not there: networks have no weight for a feature."""
        raise AttributeError(f"{type(self).__name__} has no feature_importances_")

    def network_answers(self, X):
        """Answers of all networks, the features of `forest_`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, \\*feature_shape)

        Returns
        -------
        answers : ndarray of shape (n_samples, max(n_networks, 1)), float32
        """
        return self._answers(X, False)

    def _answers(self, X, on_its_way=True):
        """Answers of networks; `on_its_way`: of those that a row passes by hard routing."""
        X = self._validate_predict(X)
        parts = [self._some_answers(X[i : i + BLOCK], on_its_way) for i in range(0, len(X), BLOCK)]
        return np.concatenate(parts)

    def _some_answers(self, X, on_its_way):
        x = self._look(torch.tensor(X))
        child = self.forest_.child
        table = np.zeros((len(X), self.forest_.n_features), dtype=np.float32)
        passes = {0: np.arange(len(X))}
        with torch.no_grad():
            for node in np.flatnonzero(child > 0).tolist():
                left = int(child[node])
                split = (left - 1) // 2
                rows = passes.pop(node)
                if len(rows):
                    table[rows, split] = self.networks_[split](x[rows]).numpy()
                right = table[rows, split] > 0
                passes[left] = rows[~right] if on_its_way else rows
                passes[left + 1] = rows[right] if on_its_way else rows
        return table
