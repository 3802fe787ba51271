"""Random hinge forests and ferns.

Lay, Harrison, Schreiber, Dawer, Barbu, "Random Hinge Forest for Differentiable Learning". The
answer of a tree is the smallest margin on the way to a leaf times the vector of the leaf.
Features, thresholds and vectors are trained by stochastic gradient descent, all trees at once.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np

from ._base import BaseForest, Integral, Interval, Real, StrOptions, draw_seed
from ._feature_map import min_max, scaled, tame, validate_weight
from ._kernels.rows import RowSet, tree_seed
from ._selection import quick_importances
from ._targets import ForestClassifierMixin, ForestRegressorMixin
from .forest import Forest
from .forest.storage import join
from .training.calibration import calibrated_baseline
from .training.hinge import (
    HingeInput,
    HingeSettings,
    HingeTraining,
    kernel_places,
    train_hinge,
    whole_rows,
)
from .training.losses import LOSSES, make_loss

LEAST = 1e-3  # of the emphasis of a feature
ADAM, ADAGRAD = 3.0, 30.0  # rates times the number of trees, whose answers add up


class _HingeForest(BaseForest):
    """Parameters and training shared by classifier and regressor."""

    # Words of a forest of drawn rows, which the door asks for.
    bootstrap = False
    max_samples = None
    oob_score = False
    _scales = True

    _parameter_constraints: dict = {
        **{
            name: kinds
            for name, kinds in BaseForest._parameter_constraints.items()
            if name in {"n_estimators", "n_jobs", "random_state", "verbose", "warm_start"}
        },
        "structure": [StrOptions({"tree", "fern"})],
        "features": [StrOptions({"linear", "identity", "both", "conv"})],
        "feature_shape": [Integral, tuple, list, np.ndarray, None],
        "kernel_size": [Interval(Integral, 1, 2**15, closed="both")],
        "stride": [Interval(Integral, 1, 2**15, closed="both")],
        "head": [StrOptions({"leaves", "linear"})],
        "n_directions": [StrOptions({"auto"}), Interval(Integral, 1, 2**20, closed="both")],
        "max_depth": [StrOptions({"auto"}), Interval(Integral, 1, 16, closed="both")],
        "n_bags": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "optimizer": [StrOptions({"adam", "adagrad", "sgd"})],
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither")],
        "momentum": [Interval(Real, 0.0, 1.0, closed="left")],
        "weight_decay": [Interval(Real, 0.0, None, closed="left")],
        "schedule": [StrOptions({"cosine", "constant", "plateau"})],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 2, 2**20, closed="both")],
        "max_iter": [StrOptions({"auto"}), Interval(Integral, 1, 2**40, closed="both")],
        "dropout": [Interval(Real, 0.0, 1.0, closed="left")],
        "importance_power": [Interval(Real, 0.0, 16.0, closed="both")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0.0, 1.0, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_estimators=100,
        *,
        structure="tree",
        features="both",
        feature_shape=None,
        kernel_size=5,
        stride=3,
        head="leaves",
        n_directions="auto",
        max_depth="auto",
        n_bags="auto",
        optimizer="adam",
        learning_rate="auto",
        momentum=0.9,
        weight_decay=0.0,
        schedule="cosine",
        batch_size="auto",
        max_iter="auto",
        dropout=0.2,
        importance_power=0.5,
        early_stopping=False,
        validation_fraction=0.15,
        n_iter_no_change=10,
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        self.n_estimators = n_estimators
        self.structure = structure
        self.features = features
        self.feature_shape = feature_shape
        self.kernel_size = kernel_size
        self.stride = stride
        self.head = head
        self.n_directions = n_directions
        self.max_depth = max_depth
        self.n_bags = n_bags
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.dropout = dropout
        self.importance_power = importance_power
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start

    # ----------------------------------------------------------------------------------- fitting

    def _members(self, goes_on):
        return "n_bags", self.n_bags_, len(self.forest_.bag_start) - 1 if goes_on else 0

    def _resolve(self, rows, target, goes_on):
        """What "auto" stands for, by the number of rows (chosen on validation rows, see docs)."""
        n = int(np.count_nonzero(rows.weight))

        def settle(value, auto):
            return auto if value == "auto" else value

        if goes_on and self.forest_.bag_start[1] != self.n_estimators:
            raise ValueError(
                f"n_estimators={self.n_estimators}, but warm_start=True goes on with bags of "
                f"{self.forest_.bag_start[1]} trees"
            )
        if self.features == "conv":
            self._check_image(rows.X.shape[1])
        self.n_bags_ = settle(self.n_bags, 5)
        self.max_depth_ = settle(self.max_depth, 5 if n < 10_000 else 8)
        n_directions = 80 if self.features == "conv" else 100 if n < 10_000 else 200
        self.n_directions_ = settle(self.n_directions, n_directions)
        self.batch_size_ = settle(self.batch_size, min(max(n // 16, 8), 64 if n < 10_000 else 128))
        n_epochs = min(max(20, 3 * n / 1000), 60)
        n_steps = math.ceil(n_epochs * n / self.batch_size_)
        self.max_iter_ = settle(self.max_iter, min(max(1200, n_steps), 20_000))
        rate = ADAGRAD if self.optimizer == "adagrad" else ADAM
        self.learning_rate_ = settle(self.learning_rate, rate / self.n_estimators)

    @property
    def _image_shape(self):
        return tuple(int(length) for length in np.atleast_1d(self.feature_shape))

    def _check_image(self, n_features):
        """Can a kernel go over the features?"""
        if self.feature_shape is None:
            raise ValueError("features='conv' needs feature_shape, such as (28, 28)")
        shape = self._image_shape
        if len(shape) not in (2, 3) or min(shape) < 1 or math.prod(shape) != n_features:
            raise ValueError(
                f"feature_shape={self.feature_shape!r} must be (height, width) or (height, width, "
                f"channels) of X's {n_features} features for features='conv'"
            )
        if self.kernel_size > min(shape[:2]):
            raise ValueError(
                f"kernel_size={self.kernel_size} is larger than feature_shape={shape}"
            )

    @property
    def _settings(self):
        calibrates = self._calibration_level is not None
        return HingeSettings(
            n_trees=int(self.n_estimators),
            depth=int(self.max_depth_),
            fern=self.structure == "fern",
            head=self.head,
            n_linear=0 if self.features == "identity" else int(self.n_directions_),
            identity=self.features in ("identity", "both"),
            optimizer=self.optimizer,
            learning_rate=float(self.learning_rate_),
            momentum=float(self.momentum),
            weight_decay=float(self.weight_decay),
            schedule=self.schedule,
            dropout=float(self.dropout),
            batch_size=int(self.batch_size_),
            n_steps=int(self.max_iter_),
            validation_fraction=float(self.validation_fraction) if self.early_stopping else 0.0,
            n_iter_no_change=int(self.n_iter_no_change),
            calibration_fraction=float(self.validation_fraction) if calibrates else 0.0,
            calibration_seed=self._seed,
        )

    def _input(self, rows, target):
        """The rows, with features in units of their deviation, the important ones in smaller."""
        if self.features == "conv":
            return self._image_input(rows)
        present = rows.weight > 0
        total = rows.weight.sum()
        # No BLAS, whose last bits depend on its threads.
        mean = np.einsum("i,ij->j", rows.weight, rows.X, dtype=np.float64) / total
        spread = rows.spread()
        emphasis = np.ones(len(mean))
        if self.importance_power and present.sum() > 1:
            options = {k: v for k, v in self._forest_options.items() if k != "n_shared_values"}
            shared = {"n_shared_values": options["n_outputs"]} if target.ndim == 1 else {}
            found = quick_importances(rows, target, options | shared, self._seed)
            if found.any():
                emphasis = np.maximum(found * len(found), LEAST**2) ** self.importance_power
                emphasis = np.maximum(emphasis, LEAST)
        taps = whole_rows(len(mean))
        return HingeInput(rows.X, mean, spread.astype(np.float64), emphasis, spread, taps)

    def _image_input(self, rows):
        """The rows for convolutions: in one unit for all columns, as a kernel sees them all."""
        range_ = 1 / self._scale  # of every column; what the door has divided by
        spread = rows.spread()
        unit = float(np.sqrt(np.mean(np.square(np.where(spread == 1, 0, spread) * range_))))
        deviation = self._scale * (unit or 1.0)
        ones = np.ones(len(range_))
        taps = kernel_places(self._image_shape, self.kernel_size, self.stride)
        return HingeInput(rows.X, 0 * ones, deviation, ones, spread, taps)

    def _fit_forest(self, rows, target, bags):
        self.__dict__.pop("_stream", None)
        self._source = self._input(rows, target)
        try:
            forest = super()._fit_forest(rows, target, bags)
        finally:
            del self._source
        return self._calibrated(forest, rows, bags[0] > 0)

    @property
    def _calibration_level(self):
        return self._make_loss().calibration_level

    def _calibrated(self, forest, rows, is_warm_start):
        """New bags with the baseline that all bags are to have."""
        if self._calibration_level is None:
            return forest
        whole = self._joined([self.forest_, forest]) if is_warm_start else forest
        mask = self._settings.calibration_mask(rows.weight)
        baseline = calibrated_baseline(whole, rows, mask, self._calibration_level)
        return forest._with(forest.arrays | {"baseline": baseline})

    def _fit_tree(self, rows, target, weight, seed, stop):
        """One bag of trees."""
        loss, target, unit = self._task(target)
        training = train_hinge(self._source, target, loss, weight, self._settings, seed, stop)
        return training.pack(unit, self._packed), training.record

    def _task(self, target):
        """The compiled loss, the target in its units, and the unit of the response."""
        loss = self._make_loss()
        target = loss.standardize(target, self._units)
        return loss.kernel_loss(), target, self._units.response

    def _packed(self, arrays):
        """A bag as a Forest."""
        own = {"offset": self._offset, "scale": self._scale, "baseline": self._baseline}
        return self._new_forest(arrays | own, aggregate="sum", gate="margin", link=self._link)

    # ------------------------------------------------------------------------------------ streams

    def _partial_fit(self, X, y, sample_weight, encode):
        """Learn a part of a stream; `encode` takes y, and whether it is the first part."""
        self._validate_params()
        with self._all_or_nothing():
            self._go_on(X, y, sample_weight, encode)
        return self

    def _go_on(self, X, y, sample_weight, encode):
        first = not hasattr(self, "_stream")
        X, y = self._validate_fit(X, y, reset=first)
        weight = validate_weight(sample_weight, len(X))
        if first:
            self._offset, self._scale = min_max(X[weight > 0])
        rows = RowSet(scaled(X, self._offset, self._scale), encode(y, first), weight)
        rows.weight = tame(rows.weight)
        raw = self._stream_target(rows, first)
        loss, target, unit = self._task(raw)
        if first:
            self._seed = draw_seed(self.random_state)
            self._resolve(rows, target, False)
            source = self._input(rows, raw)
            settings = replace(self._settings, validation_fraction=0.0, calibration_fraction=0.0)
            stop = np.zeros(1, dtype=np.uint8)
            own = source, target, loss, rows.weight, settings
            stream = [
                HingeTraining(*own, tree_seed(self._seed, bag), stop)
                for bag in range(self.n_bags_)
            ]
        else:
            # Training changes arrays in place: what fails on the way must not be seen.
            stream = copy.deepcopy(self._stream)
        forests = []
        for training in stream:
            training.partial_fit(rows.X, target, rows.weight)
            forests.append(training.pack(unit, self._packed, whole=True))
            training.release_rows()
        self._stream = stream
        self.forest_ = self._joined(forests)
        records = [training.record for training in stream]
        for name in records[0]:
            setattr(self, name, [record[name] for record in records])

    def _joined(self, forests, consume=False):
        """One forest of all bags, with the baseline of the last."""
        baseline = forests[-1].baseline
        if (forests[0].baseline != baseline).any():
            # More bags change the calibration of those that are there.
            first = forests[0]._with(forests[0].arrays | {"baseline": baseline})
            forests = [first, *forests[1:]]
        ends = np.cumsum([0] + [len(forest) for forest in forests])
        bags = [forest.bag_start[:-1] + first for forest, first in zip(forests, ends)]
        meta = forests[0]._meta
        arrays = join(forests, consume)
        arrays["bag_start"] = np.concatenate([*bags, ends[-1:]])
        return Forest(arrays, **meta)


class RandomHingeForestClassifier(ForestClassifierMixin, _HingeForest):
    """Classify with trees of margins that are trained together, by gradient descent.

    The answer of a tree is the smallest margin on the way to a leaf times the vector of the leaf
    (equation 10 of the paper [1]_); probabilities are the softmax of the sum over trees. Inner
    products, thresholds and leaf vectors are trained together, from random ones, to the least log
    loss. Such a forest is continuous, and smooth where a greedy forest is a staircase.

    Parameters
    ----------
    n_estimators : int, default=100
        Trees of a bag, at least 1. Their answers are added.
    structure : {"tree", "fern"}, default="tree"
        "tree": every split has a feature and a threshold of its own. "fern": one for all splits of
        a level, which takes half of the parameters and is a little faster.
    features : {"linear", "identity", "both", "conv"}, default="both"
        What splits compare with their thresholds: inner products that are learned, the columns of
        X themselves, or any of both, each as often as any other, but columns in no more than a
        quarter of the splits. "conv": convolutions over images, each at each of its places, with
        kernels that are learned.
    feature_shape : tuple of int, default=None
        Height and width, and perhaps the number of channels, that the features unfold to. Needed
        for "conv", and without effect otherwise. X may then come with images as its rows.
    kernel_size : int, default=5
        Height and width of the kernels of "conv", which see all channels.
    stride : int, default=3
        Pixels from one place of a kernel to the next, in both directions.
    head : {"leaves", "linear"}, default="leaves"
        "leaves": leaves hold vectors, one number for each output, and trees are added. "linear":
        leaves hold one number, and a learned matrix, the same everywhere, leads from the answers
        of the trees to the outputs; the paper's choice for tables.
    n_directions : "auto" or int, default="auto"
        Learned inner products, which all trees of a bag share. "auto": 100, or 200 from 10000 rows
        on. For "conv" the number of kernels; "auto": 80.
    max_depth : "auto" or int, default="auto"
        Splits on the way to any leaf, 1 to 16. "auto": 5, or 8 from 10000 rows on.
    n_bags : "auto" or int, default="auto"
        Forests that are trained apart, each with random numbers, and held out rows, of its own;
        their predictions are averaged. "auto": 5.
    label_smoothing : float, default=0.0
        Share of each row that counts for all classes alike, in [0, 1). Makes predictions less
        sure.
    optimizer : {"adam", "adagrad", "sgd"}, default="adam"
        How a gradient becomes a step. "sgd": with `momentum`. Of leaves and thresholds, a step
        touches those that the batch came by.
    learning_rate : "auto" or float, default="auto"
        Length of the first steps, more than 0. "auto": 3 over `n_estimators`, since the answers of
        trees add up, and ten times that for "adagrad".
    momentum : float, default=0.9
        Share of the last step that is added to the next, in [0, 1). Only for "sgd".
    weight_decay : float, default=0.0
        Share of the weights of inner products and leaves that a step takes away, in units of its
        length. Not negative.
    schedule : {"cosine", "constant", "plateau"}, default="cosine"
        How the length of steps develops: to 0 along a cosine, not at all, or times 0.3 whenever
        three looks at the loss have not found it lower.
    batch_size : "auto" or int, default="auto"
        Rows of a step, at least 2. "auto": a sixteenth of the rows, at least 8, at most 64, or 128
        from 10000 rows on.
    max_iter : "auto" or int, default="auto"
        Steps. "auto": as many as show every row 20 times, or 60 times from 20000 rows on, but at
        least 1200 and at most 20000.
    dropout : float, default=0.2
        Share of the trees, drawn anew for every step, that take no part in it. In [0, 1).
    importance_power : float, default=0.5
        Inner products see features that are important in a quick random forest in smaller units:
        their standard deviation over (importance / mean importance) to this power, 0 to 16. 0: the
        standard deviation alone. Larger ones help where most features are noise.
    early_stopping : bool, default=False
        Hold rows out, and keep the model as it was when their loss was least. Probabilities are
        then less sure of themselves, and on most tables more labels are wrong.
    validation_fraction : float, default=0.15
        Share of the rows to hold out, in (0, 1). Other ones in every bag.
    n_iter_no_change : int, default=10
        Training ends when so many looks at the held out rows, of the 40 in all, have not found
        less loss. At least 1.
    class_weight : "balanced", dict or None, default=None
        Factors of the weights of rows by their class, {label: factor}; labels without an entry
        have 1. "balanced": factors that give all classes the same weight.
    n_jobs : int or None, default=None
        Threads that train bags, or predict blocks of rows. None: 1, unless in a
        `joblib.parallel_config` context. -1: all processors. The forest does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the first parameters, of batches, dropout and held out rows.
    verbose : int, default=0
        1 shows progress: a bar if tqdm is installed, else about ten lines. More than 1, without
        tqdm: a line a bag.
    warm_start : bool, default=False
        Keep the bags of the last fit and add those missing to `n_bags`.

    Attributes
    ----------
    forest_ : Forest
        The trees: gate "margin", over directions that trees share.
    classes_ : ndarray of shape (n_classes_,)
    n_classes_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        If X had column names.
    n_outputs_ : int
        1.
    n_bags_, max_depth_, n_directions_, batch_size_, max_iter_, learning_rate_ : int, float
        What `n_bags` and so on came to.
    loss_curve_ : list of ndarray
        One entry a bag: mean loss of the batches since the last look, 40 looks in all.
    validation_scores_ : list of ndarray
        One entry a bag: minus the loss of the rows held out, at each look. Empty without them.
    n_iter_ : ndarray of shape (n_bags_,), int
        Steps of each bag.
    feature_importances_ : ndarray of shape (n_features_in_,), float64
        Not negative, sum 1: mean absolute derivative of the trees by the feature, in units of its
        standard deviation.

    See Also
    --------
    RandomHingeForestRegressor : The same for real targets.
    CO2ForestClassifier : Hyperplanes that are found node by node.

    Notes
    -----
    Features are brought to mean 0 and deviation 1, and so are inner products, by running
    statistics; the forest has both folded into its directions and thresholds. Subtrees that no
    training row reaches are cut off, and answer 0.

    The training set counts as a weighted set of rows: equal rows (with equal y) are one row with
    their weights added. A row comes into an epoch as often as its weight, over the mean weight,
    wants it.

    References
    ----------
    .. [1] N. Lay, A. P. Harrison, S. Schreiber, G. Dawer, A. Barbu, "Random Hinge Forest for
       Differentiable Learning", 2018.

    Examples
    --------
    >>> from skforest import RandomHingeForestClassifier
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = load_digits(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> forest = RandomHingeForestClassifier(n_bags=1, random_state=0).fit(X_train, y_train)
    >>> bool(forest.score(X_test, y_test) > 0.97)
    True
    """

    _parameter_constraints: dict = {
        **_HingeForest._parameter_constraints,
        "label_smoothing": [Interval(Real, 0.0, 1.0, closed="left")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }
    _link = LOSSES["log_loss"].link

    def __init__(
        self,
        n_estimators=100,
        *,
        structure="tree",
        features="both",
        feature_shape=None,
        kernel_size=5,
        stride=3,
        head="leaves",
        n_directions="auto",
        max_depth="auto",
        n_bags="auto",
        label_smoothing=0.0,
        optimizer="adam",
        learning_rate="auto",
        momentum=0.9,
        weight_decay=0.0,
        schedule="cosine",
        batch_size="auto",
        max_iter="auto",
        dropout=0.2,
        importance_power=0.5,
        early_stopping=False,
        validation_fraction=0.15,
        n_iter_no_change=10,
        class_weight=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        super().__init__(
            n_estimators,
            structure=structure,
            features=features,
            feature_shape=feature_shape,
            kernel_size=kernel_size,
            stride=stride,
            head=head,
            n_directions=n_directions,
            max_depth=max_depth,
            n_bags=n_bags,
            optimizer=optimizer,
            learning_rate=learning_rate,
            momentum=momentum,
            weight_decay=weight_decay,
            schedule=schedule,
            batch_size=batch_size,
            max_iter=max_iter,
            dropout=dropout,
            importance_power=importance_power,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            warm_start=warm_start,
        )
        self.label_smoothing = label_smoothing
        self.class_weight = class_weight

    @property
    def _forest_options(self):
        # The one value that bags share is that of what no row reaches.
        return super()._forest_options | {"n_shared_values": 1}

    def _make_loss(self):
        return make_loss("log_loss", self.n_classes_, self)

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Learn a part of a stream: every row once, at the constant rate `learning_rate`.

        The first part settles what is "auto", the scales of the features, and which are important;
        it should be a fair sample. `schedule`, `max_iter` and `early_stopping` have no effect, and
        a model from `fit` is not gone on with.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, *feature_shape)
        y : array-like of shape (n_samples,)
        classes : array-like of shape (n_classes,), default=None
            All labels there are; wanted with the first part only. None: those of the first part.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If the data is not valid, or the loss becomes infinite.
        """

        def encode(y, first):
            if first:
                self._encode(y if classes is None else classes, False)
            elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise ValueError(f"classes={classes!r} are not those of before, {self.classes_}")
            return self._encode_known(y)

        return self._partial_fit(X, y, sample_weight, encode)

    def _stream_target(self, rows, first):
        target = self._make_target(rows, not first)
        self._baseline = np.zeros(self.n_classes_)  # a class may come later
        return target

    def _make_target(self, rows, goes_on):
        target = super()._make_target(rows, goes_on)
        baseline = self.forest_.baseline if goes_on else None
        self._units = self._make_loss().target_units(target, rows.weight, baseline)
        self._baseline = self._units.baseline
        return target


class RandomHingeForestRegressor(ForestRegressorMixin, _HingeForest):
    """Predict real targets with trees of margins that are trained together, by gradient descent.

    As `RandomHingeForestClassifier`, with the sum over trees as the prediction: a continuous,
    piecewise linear function (equation 10 of the paper [1]_).

    Parameters
    ----------
    n_estimators : int, default=100
        Trees of a bag, at least 1. Their answers are added.
    structure : {"tree", "fern"}, default="tree"
        "tree": every split has a feature and a threshold of its own. "fern": one for all splits of
        a level, which takes half of the parameters and is a little faster.
    features : {"linear", "identity", "both", "conv"}, default="both"
        What splits compare with their thresholds: inner products that are learned, the columns of
        X themselves, or any of both, each as often as any other, but columns in no more than a
        quarter of the splits. "conv": convolutions over images, each at each of its places, with
        kernels that are learned.
    feature_shape : tuple of int, default=None
        Height and width, and perhaps the number of channels, that the features unfold to. Needed
        for "conv", and without effect otherwise. X may then come with images as its rows.
    kernel_size : int, default=5
        Height and width of the kernels of "conv", which see all channels.
    stride : int, default=3
        Pixels from one place of a kernel to the next, in both directions.
    head : {"leaves", "linear"}, default="leaves"
        "leaves": leaves hold vectors, one number for each output, and trees are added. "linear":
        leaves hold one number, and a learned matrix, the same everywhere, leads from the answers
        of the trees to the outputs; the paper's choice for tables.
    n_directions : "auto" or int, default="auto"
        Learned inner products, which all trees of a bag share. "auto": 100, or 200 from 10000 rows
        on. For "conv" the number of kernels; "auto": 80.
    max_depth : "auto" or int, default="auto"
        Splits on the way to any leaf, 1 to 16. "auto": 5, or 8 from 10000 rows on.
    n_bags : "auto" or int, default="auto"
        Forests that are trained apart, each with random numbers, and held out rows, of its own;
        their predictions are averaged. "auto": 5.
    loss : {"squared_error", "absolute_error", "huber", "quantile", "poisson"}, \
            default="squared_error"
        What is minimised, in units of the standard deviation of each output. "squared_error" leads
        to means, "absolute_error" to medians, "huber" to something between, "quantile" to the
        quantile given. "poisson": for counts, 0 or more, whose logarithm of the mean the trees
        add up to.
    delta : float, default=1.35
        Difference, more than 0, from which on "huber" grows no faster than the difference.
    quantile : float, default=0.5
        In (0, 1), for loss="quantile". After training, `fit` shifts predictions by the quantile of
        the residuals of a share `validation_fraction` of the rows, which no bag is trained on, so
        that new rows lie below the prediction with this probability. `partial_fit` does not.
    optimizer : {"adam", "adagrad", "sgd"}, default="adam"
        How a gradient becomes a step. "sgd": with `momentum`. Of leaves and thresholds, a step
        touches those that the batch came by.
    learning_rate : "auto" or float, default="auto"
        Length of the first steps, more than 0. "auto": 3 over `n_estimators`, since the answers of
        trees add up, and ten times that for "adagrad".
    momentum : float, default=0.9
        Share of the last step that is added to the next, in [0, 1). Only for "sgd".
    weight_decay : float, default=0.0
        Share of the weights of inner products and leaves that a step takes away, in units of its
        length. Not negative.
    schedule : {"cosine", "constant", "plateau"}, default="cosine"
        How the length of steps develops: to 0 along a cosine, not at all, or times 0.3 whenever
        three looks at the loss have not found it lower.
    batch_size : "auto" or int, default="auto"
        Rows of a step, at least 2. "auto": a sixteenth of the rows, at least 8, at most 64, or 128
        from 10000 rows on.
    max_iter : "auto" or int, default="auto"
        Steps. "auto": as many as show every row 20 times, or 60 times from 20000 rows on, but at
        least 1200 and at most 20000.
    dropout : float, default=0.2
        Share of the trees, drawn anew for every step, that take no part in it. In [0, 1).
    importance_power : float, default=0.5
        Inner products see features that are important in a quick random forest in smaller units:
        their standard deviation over (importance / mean importance) to this power, 0 to 16. 0: the
        standard deviation alone. Larger ones help where most features are noise.
    early_stopping : bool, default=False
        Hold rows out, and keep the model as it was when their loss was least. Probabilities are
        then less sure of themselves, and on most tables more labels are wrong.
    validation_fraction : float, default=0.15
        Share of the rows to hold out, in (0, 1). Other ones in every bag.
    n_iter_no_change : int, default=10
        Training ends when so many looks at the held out rows, of the 40 in all, have not found
        less loss. At least 1.
    n_jobs : int or None, default=None
        Threads that train bags, or predict blocks of rows. None: 1, unless in a
        `joblib.parallel_config` context. -1: all processors. The forest does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the first parameters, of batches, dropout and held out rows.
    verbose : int, default=0
        1 shows progress: a bar if tqdm is installed, else about ten lines. More than 1, without
        tqdm: a line a bag.
    warm_start : bool, default=False
        Keep the bags of the last fit and add those missing to `n_bags`.

    Attributes
    ----------
    forest_ : Forest
        The trees: gate "margin", over directions that trees share.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        If X had column names.
    n_outputs_ : int
    n_bags_, max_depth_, n_directions_, batch_size_, max_iter_, learning_rate_ : int, float
        What `n_bags` and so on came to.
    loss_curve_ : list of ndarray
        One entry a bag: mean loss of the batches since the last look, 40 looks in all.
    validation_scores_ : list of ndarray
        One entry a bag: minus the loss of the rows held out, at each look. Empty without them.
    n_iter_ : ndarray of shape (n_bags_,), int
        Steps of each bag.
    feature_importances_ : ndarray of shape (n_features_in_,), float64
        Not negative, sum 1: mean absolute derivative of the trees by the feature, in units of its
        standard deviation.

    See Also
    --------
    RandomHingeForestClassifier : The same for labels.
    CO2ForestRegressor : Hyperplanes that are found node by node.

    Notes
    -----
    Beyond the training data, predictions go on along lines.

    Features are brought to mean 0 and deviation 1, and so are inner products, by running
    statistics; the forest has both folded into its directions and thresholds. Subtrees that no
    training row reaches are cut off, and answer 0.

    The training set counts as a weighted set of rows: equal rows (with equal y) are one row with
    their weights added. A row comes into an epoch as often as its weight, over the mean weight,
    wants it.

    References
    ----------
    .. [1] N. Lay, A. P. Harrison, S. Schreiber, G. Dawer, A. Barbu, "Random Hinge Forest for
       Differentiable Learning", 2018.

    Examples
    --------
    >>> from skforest import RandomHingeForestRegressor
    >>> from sklearn.datasets import make_friedman1
    >>> X, y = make_friedman1(600, noise=1.0, random_state=0)
    >>> forest = RandomHingeForestRegressor(n_bags=2, random_state=0).fit(X[:400], y[:400])
    >>> bool(forest.score(X[400:], y[400:]) > 0.9)
    True
    """

    _parameter_constraints: dict = {
        **_HingeForest._parameter_constraints,
        "loss": [
            StrOptions({"squared_error", "absolute_error", "huber", "quantile", "poisson"}),
        ],
        "delta": [Interval(Real, 0.0, None, closed="neither")],
        "quantile": [Interval(Real, 0.0, 1.0, closed="neither")],
    }

    def __init__(
        self,
        n_estimators=100,
        *,
        structure="tree",
        features="both",
        feature_shape=None,
        kernel_size=5,
        stride=3,
        head="leaves",
        n_directions="auto",
        max_depth="auto",
        n_bags="auto",
        loss="squared_error",
        delta=1.35,
        quantile=0.5,
        optimizer="adam",
        learning_rate="auto",
        momentum=0.9,
        weight_decay=0.0,
        schedule="cosine",
        batch_size="auto",
        max_iter="auto",
        dropout=0.2,
        importance_power=0.5,
        early_stopping=False,
        validation_fraction=0.15,
        n_iter_no_change=10,
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        super().__init__(
            n_estimators,
            structure=structure,
            features=features,
            feature_shape=feature_shape,
            kernel_size=kernel_size,
            stride=stride,
            head=head,
            n_directions=n_directions,
            max_depth=max_depth,
            n_bags=n_bags,
            optimizer=optimizer,
            learning_rate=learning_rate,
            momentum=momentum,
            weight_decay=weight_decay,
            schedule=schedule,
            batch_size=batch_size,
            max_iter=max_iter,
            dropout=dropout,
            importance_power=importance_power,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            warm_start=warm_start,
        )
        self.loss = loss
        self.delta = delta
        self.quantile = quantile

    @property
    def _forest_options(self):
        return super()._forest_options | {"n_shared_values": 1}

    @property
    def _link(self):
        return LOSSES[self.loss].link

    def _make_loss(self):
        return make_loss(self.loss, self.n_outputs_, self)

    def _make_target(self, rows, goes_on):
        loss = self._make_loss()
        keeps_baseline = goes_on and loss.calibration_level is None
        baseline = self.forest_.baseline if keeps_baseline else None
        self._units = loss.target_units(rows.Y, rows.weight, baseline)
        self._baseline, self._target_scale = self._units.baseline, self._units.scale
        return loss.scale_target(rows.Y, self._units)

    def partial_fit(self, X, y, sample_weight=None):
        """Learn a part of a stream: every row once, at the constant rate `learning_rate`.

        The first part settles what is "auto", the scales of features and target, and which
        features are important; it should be a fair sample. `schedule`, `max_iter` and
        `early_stopping` have no effect, and a model from `fit` is not gone on with.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, *feature_shape)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If the data is not valid, or the loss becomes infinite.
        """

        def encode(y, first):
            return self._encode(y, False) if first else self._encode_known(y)

        return self._partial_fit(X, y, sample_weight, encode)

    def _stream_target(self, rows, first):
        """The target in the units of the first part."""
        if first:
            return self._make_target(rows, False)
        loss = self._make_loss()
        loss.target_units(rows.Y, rows.weight, self._units.baseline)  # checks this part, too
        return loss.scale_target(rows.Y, self._units)
