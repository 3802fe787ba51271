"""End-to-end trees whose splits are small networks.

A split may be any module that maps an image to one number. The fitted tree is a `Forest` whose
features are these numbers.
"""

from copy import copy
from typing import get_type_hints

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from .._base import BaseForest, Integral, Interval, Real, StrOptions
from .._docs import described
from .._feature_grid import FeatureGrid
from .._targets import GATES, ForestClassifierMixin, RoutingMixin
from .._validation import store_parameters
from ..forest import Forest
from ..forest.edit import recount_and_prune
from ..training.endtoend import Annealing
from .network import BLOCK, ImageSet, NetworkTreeGrower, train_networks

PARAMETERS = """
network : callable or None
    Makes the network of a split: it takes the shape ``(channels, height, width)`` and returns a
    new `torch.nn.Module`, which maps n such images to shape (n, 1) or (n,). None: the network of
    the paper, two convolutions and two linear layers, with smaller kernels for small images.
feature_shape : int, tuple of int or None
    Shape of the images: ``(height, width)`` or ``(channels, height, width)``. The rows of X may be
    arrays of this shape. An int, or None: images of one row of pixels.
max_leaf_nodes : int
    Maximum number of leaves, at least 2.
greedy_epochs : int
    Number of epochs over the samples of a node for which its network is trained when the tree is
    grown, at least 1.
finetune_epochs : int
    Number of epochs of joint training over the training set. 0: no joint training.
learning_rate : float
    Learning rate of Adam, more than 0. It is constant while the tree is grown, and decreases to 0
    along a cosine during joint training.
batch_size : int
    Maximum number of samples of a step, 1 to 2^20. Batches are smaller where an epoch would have
    less than 10 of them, but not smaller than 16 samples for this reason.
steepness : float
    Gamma of equation 5 in the first epoch, more than 0.
steepness_step : float
    Increase of the steepness after each epoch, at least 0. Joint training starts with the
    steepness at which the training of single splits ended.
routing : {"hard", "soft"}
    How samples are routed in prediction. "hard": to one child of every split. "soft": to both
    children, by the probabilities at the last steepness. Can be changed after `fit`.
class_weight : dict, {"balanced", "balanced_subsample"} or None
    Weights of the classes, which multiply the sample weights. "balanced", and here
    "balanced_subsample" as well: all classes have the same total weight. None: 1.
random_state : int, RandomState or None
    Seed of initial networks and of batches. The global generator of PyTorch is left as it was.
verbose : int
    1 prints a line for every split and every epoch of joint training.
"""

ATTRIBUTES = """
networks_ : ModuleList
    One network for each split of `forest_`, in their order. Samples go right where the output is
    positive.
forest_ : Forest
    The tree. Its features are the outputs of the networks.
mean_, unit_ : ndarray of shape (n_features_in_,), float32
    The input of networks is ``(x - mean_) * unit_``. With `feature_shape`, mean and unit are the
    same for all features, else each feature has its own. A unit is the reciprocal of a standard
    deviation, or 0 for a constant feature.
steepness_ : float
    Steepness after the last epoch, which soft routing uses.
n_iter_ : int
    Number of epochs of joint training.
loss_curve_ : list of float
    Mean negative log-likelihood of the samples in every epoch of joint training, each batch before
    its step.
"""


@described(PARAMETERS, ATTRIBUTES)
class E2ENetworkTree(ForestClassifierMixin, RoutingMixin, BaseForest):
    """Decision tree classifier whose splits are small networks, trained together.

    This is the tree of `E2EDecisionForest` with a network in place of each hyperplane (section 3.4
    of the paper [1]_). The tree is grown best first: the node whose split has the largest
    information gain is split next. All networks are then trained together by expectation
    maximisation, while splits become steeper. By default a sample is routed to one leaf, and only
    the networks on its path are evaluated.

    {parameters_and_attributes}

    Raises
    ------
    TypeError
        By `fit`, if `network` returns something else than a module, or is a module itself.
    ValueError
        By `fit`, if a parameter or the data is not valid, or if training diverges.

    See Also
    --------
    skforest.E2EDecisionForest : Hyperplanes as splits, and forests.

    Notes
    -----
    If all samples of a node end up on one side of its split, or the split has no information gain,
    another network is tried, up to 5 in total. After training, the class probabilities of the
    leaves are counted from the samples that hard routing sends there, and nodes that no sample
    reaches are removed.

    During training, samples leave out nodes that they reach with a probability below 0.003. Batch
    normalisation within a network would therefore see parts of batches.

    Training draws from the global generator of PyTorch and restores it afterwards. Trees that are
    fitted at the same time in several threads of one process therefore influence each other; use
    processes instead.

    A fitted tree can be pickled if its networks can. `skforest.save` refuses it, since networks
    cannot be stored without pickle.

    References
    ----------
    .. [1] T. M. Hehn, J. F. P. Kooij, F. A. Hamprecht, "End-to-End Learning of Decision Trees and
       Forests", International Journal of Computer Vision 128, 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skforest.torch import E2ENetworkTree
    >>> X, y = load_digits(return_X_y=True)
    >>> tree = E2ENetworkTree(feature_shape=(8, 8), max_leaf_nodes=3, greedy_epochs=2,
    ...                       finetune_epochs=1, random_state=0).fit(X[y < 3], y[y < 3])
    >>> bool(tree.score(X[y < 3], y[y < 3]) > 0.95)
    True
    """

    _trains_members = False
    _takes_missing = False
    _takes_several_outputs = False
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
    }
    warm_start = False  # read by `BaseForest`; not a parameter of a single tree
    schedule = "cosine"  # of the learning rate in joint training; read by `RoutingMixin`
    _takes_missing = False  # images have no missing pixels

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
        store_parameters(self, locals())

    # --------------------------------------------------------------------------------- parameters

    def _member_counts(self, is_warm_start):
        return "trees", 1, 0

    def _resolve_settings(self, data, is_warm_start):
        if isinstance(self.network, nn.Module):
            raise TypeError(
                "network must be a function that makes a new module for every split, from the "
                f"shape (channels, height, width); got the module {type(self.network).__name__}"
            )
        shape = FeatureGrid(self.feature_shape, data.X.shape[1]).shape
        if len(shape) > 3:
            raise ValueError(
                f"feature_shape={self.feature_shape} has {len(shape)} lengths; images have at "
                "most 3: channels, height and width"
            )
        self._shape = (1,) * (3 - len(shape)) + shape
        self.steepness_ = self._annealing.final
        self._set_units(data)

    def _set_units(self, data):
        """Set `mean_` and `unit_` by weighted moments of the features."""
        mean = data.mean()
        varies = data.X.max(axis=0) > data.X.min(axis=0)
        deviation = np.where(varies, data.unit().astype(np.float64), 0)
        if self.feature_shape is not None:
            variance = np.square(deviation) + np.square(mean - mean.mean())
            mean[:], deviation[:] = mean.mean(), np.sqrt(variance.mean())
        self.mean_ = mean.astype(np.float32)
        # A deviation below the rounding error of float32 counts as 0.
        varies = deviation > 1e-6 * np.abs(mean)
        unit = np.where(varies, 1 / np.where(varies, deviation, 1), 0)
        self.unit_ = unit.astype(np.float32)

    @property
    def _annealing(self):
        # Plain int and float: PyTorch refuses some NumPy scalars.
        types = get_type_hints(Annealing)
        return Annealing(**{name: kind(getattr(self, name)) for name, kind in types.items()})

    def _as_images(self, X):
        """Rows of X, as a tensor, as the images that are the input of networks."""
        mean, unit = torch.from_numpy(self.mean_), torch.from_numpy(self.unit_)
        return ((X.float() - mean) * unit).reshape(-1, *self._shape)

    def _report(self, text):
        if self.verbose:
            print(f"{type(self).__name__}: {text}", flush=True)

    # ----------------------------------------------------------------------------------- training

    def _fit_forest(self, data, members):
        return self._fit_tree(self._tree_sample(data, self._seed), self._seed, None)

    def _fit_tree(self, data, seed, control):
        images = ImageSet(data, self._as_images)
        annealing = self._annealing
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.random.default_generator.manual_seed(seed)
            grower = NetworkTreeGrower(
                images, self._shape, self.network, annealing, self.max_leaf_nodes, self._report
            )
            grower.grow()
            self.loss_curve_ = []
            if grower.networks and annealing.finetune_epochs:
                self.loss_curve_ = self._train_jointly(grower, images, annealing)
        self.n_iter_ = len(self.loss_curve_)
        return self._pack(grower.child, grower.networks, images, data)

    def _train_jointly(self, grower, images, annealing):
        """Train all networks of a grown tree; return the losses."""
        counts = np.stack([images.class_weights(index) for index in grower.leaf_samples])
        schedule = [
            (annealing.grown + epoch * annealing.steepness_step, learning_rate)
            for epoch, learning_rate in enumerate(annealing.rates().tolist())
        ]
        counts = torch.from_numpy(counts.astype(np.float32))

        def report(epoch, loss):
            self._report(f"epoch {epoch + 1}, loss {loss:.4f}")

        return train_networks(
            grower.child,
            grower.networks,
            counts,
            images,
            images.weighted_samples(),
            annealing.batch_size,
            schedule,
            exact_counts=True,
            report=report,
        )

    def _pack(self, child, networks, images, data):
        """The hard tree, with leaves counted from the samples that reach them; set `networks_`."""
        every_sample = torch.arange(len(data))
        table = np.zeros((len(data), max(len(networks), 1)), dtype=np.float32)
        for column, network in enumerate(networks):
            table[:, column] = images.outputs(network, every_sample)
        n_classes = self.n_classes_
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
        meta = self._task_metadata | {"gate": "hard", "steepness": self.steepness_}
        forest = Forest(arrays, n_features=table.shape[1], **meta)
        forest = recount_and_prune(forest, data.with_features(table, None), "entropy")
        # The networks of removed splits are removed, and the others numbered anew.
        self.networks_ = nn.ModuleList(networks[column] for column in forest.direction).eval()
        arrays = forest.arrays | {"direction": np.arange(len(self.networks_))}
        del arrays["dense"]
        names = [f"network {k}" for k in range(max(len(self.networks_), 1))]
        forest = Forest(arrays, n_features=len(names), feature_names=names, **meta)
        return self._gated(forest)

    # --------------------------------------------------------------------------------- prediction

    def _response(self, X):
        outputs = self._outputs(X, on_path=self.routing == "hard")
        return self._routing_forest.response(outputs)

    def _responder(self):
        check_is_fitted(self, "forest_")
        fitted = copy(self)
        return fitted._response, fitted._validate_predict, []

    # Both are documented in the base class; they follow hard routing.

    def apply(self, X):
        return self.forest_.apply(self._outputs(X, on_path=True))

    def decision_path(self, X):
        return self.forest_.decision_path(self._outputs(X, on_path=True))

    @property
    def feature_importances_(self):
        """Not available: networks have no weights of features."""
        raise AttributeError(f"{type(self).__name__} has no feature_importances_")

    def network_outputs(self, X):
        """Return the outputs of all networks, which are the features of `forest_`.

        {takes_rows}

        Returns
        -------
        outputs : ndarray of shape (n_samples, max(n_networks, 1)), float32
        """
        return self._outputs(X, on_path=False)

    network_answers = network_outputs  # the former name

    def _outputs(self, X, on_path):
        """Outputs of networks; `on_path`: of those that a sample passes by hard routing only."""
        X = self._validate_predict(X)
        parts = [self._block_outputs(X[i : i + BLOCK], on_path) for i in range(0, len(X), BLOCK)]
        return np.concatenate(parts)

    def _block_outputs(self, X, on_path):
        x = self._as_images(torch.tensor(X))
        child = self.forest_.child
        outputs = np.zeros((len(X), self.forest_.n_features), dtype=np.float32)
        samples = {0: np.arange(len(X))}  # of each node whose parent is done
        with torch.no_grad():
            for node in np.flatnonzero(child > 0).tolist():
                left = int(child[node])
                split = (left - 1) // 2
                index = samples.pop(node)
                if len(index):
                    outputs[index, split] = self.networks_[split](x[index]).numpy()
                goes_right = outputs[index, split] > 0
                samples[left] = index[~goes_right] if on_path else index
                samples[left + 1] = index[goes_right] if on_path else index
        return outputs
