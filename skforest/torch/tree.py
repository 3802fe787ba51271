"""End-to-end trees whose splits are small networks.

A split may be any module that maps an image to one number. The fitted tree is a `Forest` whose
features are these numbers.
"""

from copy import copy
from dataclasses import replace

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from .._docs import described
from ..estimators.base import BaseForest, Integral, Interval, Real, StrOptions
from ..estimators.targets import GATES, ForestClassifierMixin, RoutingMixin
from ..estimators.validation import store_parameters
from ..table.feature_grid import FeatureGrid
from ..training.endtoend import Annealing
from .network import BLOCK, ImageMap, NetworkMethod, NetworkSettings, on_cpu

PARAMETERS = """
network : callable or None
    Function that makes the network of a split. It takes the shape ``(channels, height, width)``
    and returns a new `torch.nn.Module`, which maps n such images to shape (n, 1) or (n,). None:
    the network of the paper, with two convolutions and two linear layers, and smaller kernels for
    small images.
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
    Learning rate of Adam, greater than 0. It is constant while the tree is grown, and decreases to
    0 along a cosine during joint training.
batch_size : int
    Maximum number of samples in a step, 1 to 2^20. Batches are smaller if an epoch would otherwise
    have fewer than 10 of them, but then have at least 16 samples.
steepness : float
    Steepness of splits in the first epoch, gamma of equation 5, greater than 0.
steepness_step : float
    Increase of the steepness after each epoch, at least 0. Joint training starts with the
    steepness at which the training of single splits ended.
routing : {"hard", "soft"}
    How samples are routed in prediction. "hard": to one child of every split. "soft": to both
    children, weighted by their probabilities at the final steepness. It can be changed after
    `fit`.
class_weight : dict, {"balanced", "balanced_subsample"} or None
    Weights of the classes, which multiply the sample weights. "balanced", and here
    "balanced_subsample" as well: all classes have the same total weight. None: 1.
random_state : int, RandomState or None
    Seed of initial networks and of batches. The global generator of PyTorch is restored.
verbose : int
    1 prints a line for every split and every epoch of joint training.
"""

ATTRIBUTES = """
networks_ : ModuleList
    One network for each split of `forest_`, in the same order. Samples go right if the output is
    positive.
forest_ : Forest
    The tree. Its features are the outputs of the networks.
mean_, unit_ : ndarray of shape (n_features_in_,), float32
    The input of networks is ``(x - mean_) * unit_``. With `feature_shape`, all features share one
    mean and unit; otherwise each feature has its own. A unit is the reciprocal of a standard
    deviation, or 0 for a constant feature.
steepness_ : float
    Steepness after the last epoch, which soft routing uses.
n_iter_ : int
    Number of epochs of joint training.
loss_curve_ : list of float
    Mean negative log-likelihood of the samples in every epoch of joint training, measured on each
    batch before its step.
"""


@described(PARAMETERS, ATTRIBUTES, without=("feature_importances_",))
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
        By `fit`, if `network` does not return a module, or is a module itself.
    ValueError
        By `fit`, if a parameter or the data is invalid, or if training diverges.

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
    >>> tree = E2ENetworkTree(
    ...     feature_shape=(8, 8), max_leaf_nodes=3, greedy_epochs=2, finetune_epochs=1,
    ...     random_state=0,
    ... ).fit(X[y < 3], y[y < 3])
    >>> print(f"training accuracy {tree.score(X[y < 3], y[y < 3]):.2f}")
    training accuracy 1.00
    """

    _trains_members = False
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
    # Read by `BaseForest`, but not parameters of a single tree.
    n_estimators, n_jobs, warm_start = 1, None, False
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
        prior=None,
        random_state=None,
        verbose=0,
    ):
        store_parameters(self, locals())

    # ----------------------------------------------------------------------------------- settings

    def _request(self, **given):
        return replace(super()._request(**given), verbose=0)  # training has lines of its own

    def _settings(self, data, request):
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
        # Plain int and float: PyTorch refuses some NumPy scalars.
        annealing = Annealing(
            greedy_epochs=int(self.greedy_epochs),
            finetune_epochs=int(self.finetune_epochs),
            learning_rate=float(self.learning_rate),
            batch_size=int(self.batch_size),
            steepness=float(self.steepness),
            steepness_step=float(self.steepness_step),
        )
        return NetworkSettings(
            network=self.network,
            image_map=self._image_map(data, (1,) * (3 - len(shape)) + shape),
            max_leaf_nodes=self.max_leaf_nodes,
            annealing=annealing,
            gate=GATES[self.routing],
            seed=self._seed,
        )

    def _image_map(self, data, shape):
        """The `ImageMap` by weighted moments of the features."""
        mean = data.mean()
        varies = data.X.max(axis=0) > data.X.min(axis=0)
        deviation = np.where(varies, data.unit().astype(np.float64), 0)
        if self.feature_shape is not None:
            variance = np.square(deviation) + np.square(mean - mean.mean())
            mean[:], deviation[:] = mean.mean(), np.sqrt(variance.mean())
        # A deviation below the rounding error of float32 counts as 0.
        varies = deviation > 1e-6 * np.abs(mean)
        unit = np.where(varies, 1 / np.where(varies, deviation, 1), 0)
        return ImageMap(shape, mean.astype(np.float32), unit.astype(np.float32))

    def _method(self, settings):
        def report(text):
            if verbose:
                print(f"{name}: {text}", flush=True)

        name, verbose = type(self).__name__, self.verbose
        return NetworkMethod(settings, self._task(), self._sampling(), report)

    def _resolved(self, settings):
        image_map = settings.image_map
        return {
            "mean_": image_map.mean,
            "unit_": image_map.unit,
            "steepness_": settings.annealing.final,
            "_image_shape": image_map.shape,
        }

    def _store(self, forest, settings, records, n_before=0):
        self.forest_ = forest
        vars(self).update(self._resolved(settings) | records[0])

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
        """Not available, since networks have no feature weights."""
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
        """Outputs of networks; with `on_path`, only of networks on the path of hard routing."""
        X = self._validate_predict(X)
        parts = [self._block_outputs(X[i : i + BLOCK], on_path) for i in range(0, len(X), BLOCK)]
        return np.concatenate(parts)

    @on_cpu()
    def _block_outputs(self, X, on_path):
        as_images = ImageMap(self._image_shape, self.mean_, self.unit_)
        x = as_images(torch.tensor(X))
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
