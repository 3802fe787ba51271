"""Training of one bag of boosted trees: rounds, early stopping, packing.

Newton boosting (Friedman 2001; Chen and Guestrin 2016): in every round, a tree is fitted to the
first and second derivatives of the loss at the current raw predictions f, and the values of its
leaves, -learning_rate * G / (H + l2), are added to f. Leaves have values for all outputs. With
more than N_SEARCHED outputs, splits are searched with random projections of the gradients (Iosipoi
and Vakhrushev, "SketchBoost", 2022).

With linear leaves (Shi, Li and Li, "Gradient Boosting with Piece-Wise Linear Regression Trees",
2019), a leaf is a linear function of the projections on the directions of the splits above it. It
minimises the second-order expansion of the loss over the rows of the leaf, plus a penalty.

The first round may instead fit a linear function of all features; the trees are then fitted to its
residuals (Zhang, Nettleton and Zhu, "Regression-Enhanced Random Forests", 2019).
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from .._kernels.base.loss import CallbackKernel
from .._kernels.base.rows import random_stream, tree_seed
from .._kernels.boosting.linear_leaf import LeafRegression, add_linear, newton_step
from .._kernels.boosting.partition import add_gains, add_values, divided, draw_rows, leaf_sums
from ..forest import Forest
from ..forest.edit import join_starts
from ..forest.storage import LINKS
from ..table.matrix import dense_blocks, weighted_sums
from .early_stopping import warn_of_divergence
from .losses import robust_size

# The constants up to TOLERANCE were chosen without a stored measurement.
N_SEARCHED = 5  # number of outputs in the search of splits
# A tree searches at most SEARCHED features plus 1 / SEARCHED_SHARE of all features by themselves;
# `python -m benchmarks.measure.boosting wide` shows the effect.
SEARCHED, SEARCHED_SHARE = 256, 8
DERIVED_ROWS = 2**14  # rows of a block for derivatives
MIN_THREADED = 2**20  # number of bins above which threads within one bag pay off
PENALTY = 30.0  # penalty of linear leaves, in units of the curvature of a typical row
# The penalty adds this share of a regressor's variance in all rows to its variance in the leaf.
VARIANCE_SHARE = 1e-3
ROWS_PER_REGRESSOR = 5  # linear leaves with fewer rows are constant
START_STEPS = 30  # largest number of Newton steps for a linear start
STEP_FACTORS = 0.5 ** np.arange(12)  # tried until a Newton step decreases the objective
MIN_CURVATURE = 1e-9  # keeps steps finite if the curvature of a loss vanishes
SHUFFLED_ROWS = 2**14  # more rows are drawn one after the other, which is faster
ROUTED = 2**21  # leaves of rows in trees that are found at once, when leaves are fitted again
SIZED_ROWS = 10_000  # largest number of rows to find the size of residuals in a round
LARGEST_VALUE = 1e30  # largest value of a leaf, in units of the target
TOLERANCE = 1e-7  # relative decrease of the validation loss that counts as progress

BOXES = "box_corner", "box_other", "box_size"  # arrays of the boxes of a tree
SPARSE = "sparse_start", "sparse_feature", "sparse_weight"  # arrays of its sparse directions
# All arrays of a tree except its values.
TREE = "child", "node_weight", "threshold", "direction", "gain", *BOXES, *SPARSE
LINEAR = "slope_start", "slope_feature", "slope"  # further arrays of a tree with linear leaves
# Needed to fit leaves again: the terms of the directions or boxes, as `SPARSE`, if leaves are
# linear, and the bounds of the leaves if there are monotonic constraints.
OF_LEAVES = "terms", "bounds"


@dataclass
class TrainedRounds:
    """The rounds of a bag, from which training continues.

    Leaves of a `Forest` are float32, but training adds up float64. With unrounded leaves, training
    continues with the same bits as without an interruption.
    """

    n_rounds: int = 0
    n_least: int = 0  # further rounds are trained up to this number, whatever the time limit
    forest: Forest | None = None  # the trees
    # Of each tree: unrounded values, and a dict with slopes and `OF_LEAVES`; None: unknown.
    leaves: list | None = None
    unit: np.ndarray | None = None  # unit of these values, see `BoostingRows`

    def round(self, number, X, n_outputs, unit):
        """Return a tree, the values of its leaves, and the leaf of every row.

        Values are raw predictions of `n_outputs` outputs, multiplied by `unit`.
        """
        one = self.forest[number].compact()
        leaf = leaves_of_rows(one, X)[0]
        tree = {name: getattr(one, name) for name in TREE}
        if self.leaves is None:
            value, slope, known = one.value.reshape(-1, one.n_outputs), one.slope, 1.0
            if n_outputs < one.n_outputs:  # two classes, see `BoostingTraining._responses`
                value, slope = 2 * value[:, 1:], 2 * slope[:, 1:]
        else:
            (value, of_leaves), known = self.leaves[number], self.unit
            slope = of_leaves.get("slope")
            tree |= {name: of_leaves[name] for name in OF_LEAVES if name in of_leaves}
        # For the same targets, the factor is 1, which changes no bit.
        factor = np.divide(known, unit, out=np.ones(len(unit)), where=unit > 0)[:n_outputs]
        if slope is not None and len(one.slope_start):
            slope = np.ascontiguousarray(slope * factor, dtype=np.float32)
            tree |= {name: getattr(one, name) for name in LINEAR[:2]} | {"slope": slope}
        return tree, value * factor, leaf


class BoostingTraining:
    """Trains one bag.

    Parameters
    ----------
    rows : BoostingRows
    settings : BoostingSettings
    weight, held_out : ndarray of shape (n_rows,), float64
        Weights of the training rows, and of the rows for early stopping; each row has one of them.
        If no row is held out, all rounds are trained.
    seed : int
    control : Control
        When training is to end.
    known : TrainedRounds or None
        The first rounds. They are not trained again, but all other steps are repeated.
    save : callable or None
        A function that is called with the training after each new round.

    Attributes
    ----------
    is_late, is_stopped : bool
        Whether the time limit, or a callback, ended training.
    """

    def __init__(self, rows, settings, weight, held_out, seed, control, known=None, save=None):
        self.rows, self.settings, self.loss = rows, settings, settings.loss
        self.target, self.start, self.unit = rows.target, rows.start, rows.response_unit
        self.kernel = self.loss.new_kernel()
        # Sums of weights are compared with `l2`. The weight of a typical distinct row is their
        # unit, so that copies of all rows change nothing.
        of_rows = weight if rows.n_given else weight + held_out
        unit_weight = np.median(of_rows[of_rows > 0])
        weight, held_out = weight / unit_weight, held_out / unit_weight
        self.weight, self.seed, self.save = weight, seed, save
        self.known = known or TrainedRounds()
        self.control, self.stop = control, control.stop
        self.is_late = self.is_stopped = False
        self.train_rows = np.flatnonzero(weight).astype(np.int32)
        self.held_out_rows = np.flatnonzero(held_out)
        self.held_out_weight = held_out[self.held_out_rows] / (held_out.sum() or 1)
        self.scorer = None
        if settings.scoring is not None and len(self.held_out_rows):
            own = rows.y[self.held_out_rows], rows.count[self.held_out_rows]
            self.scorer = settings.scoring.of(*own)
        n_rows, n_outputs = len(weight), len(self.start)
        self.raw = np.tile(self.start, (n_rows, 1))
        self.gradient = np.zeros((n_rows, n_outputs), dtype=np.float32)
        self.curvature = np.zeros((n_rows, n_outputs), dtype=np.float32)
        self.interactions = rows.interactions()
        self.grower = rows.grower(settings, self.interactions)
        self.random = random_stream(seed)
        self.importance, self.gain_unit = np.zeros(rows.X.shape[1]), 1.0
        self.regression = None
        if settings.linear_leaves:
            self.regression = LeafRegression(
                rows.X, PENALTY, ROWS_PER_REGRESSOR, rows.unit, VARIANCE_SHARE
            )
        self.trees, self.values = [], []
        # Minus the validation loss, or the score, before the first round and after each one.
        self.scores = []
        self.losses = []  # the training loss, likewise
        self.pool, self.n_threads = None, 1

    def run(self, n_threads=1):
        """Train all rounds, or until the validation loss stops decreasing; return self."""
        if n_threads <= 1 or self.grower.n_codes < MIN_THREADED:
            return self._run()
        with ThreadPoolExecutor(n_threads) as self.pool:
            self.n_threads = n_threads
            self._run()
        self.pool = None
        return self

    def _run(self):
        report, n_rounds = self.control.report, self.settings.n_rounds
        first, least, best = np.inf, np.inf, 0
        for number in range(n_rounds + 1):
            self.control.pause()
            loss = self._validation_loss()
            if number == 0:
                first = least = loss
            # Outliers of the target add a constant to the loss, so progress is also compared to
            # the decrease so far.
            if loss < least - TOLERANCE * min(abs(least), first - least):
                least, best = loss, number
            patience = max(self.settings.n_iter_no_change, (self.settings.kept - 1) * best)
            is_stalled = number - best >= patience and len(self.held_out_rows)
            shown = loss if len(self.held_out_rows) else None
            is_ended = report is not None and number and report(number, n_rounds, loss=shown)
            # The first round and known rounds are always kept.
            n_kept = max(self.known.n_rounds, self.known.n_least)
            self.is_late = number > n_kept and self.control.is_late()
            if number == n_rounds or is_stalled or is_ended or self.stop[0] or self.is_late:
                is_early = number < n_rounds and not is_stalled
                self.is_late &= is_early
                self.is_stopped = bool(is_ended) and is_early
                break
            self._add_round(number)
            if self.save is not None and number >= self.known.n_rounds and not self.stop[0]:
                self.save(self)  # unless the round may be cut
        if report is not None and is_stalled and number < n_rounds:
            report(number, number, best=best)
        self._end_losses(best)
        if len(self.held_out_rows):
            n_kept = int(self.settings.kept * best)
            del self.trees[n_kept:], self.values[n_kept:]
        return self

    def _end_losses(self, n_best=0):
        """Add the last loss, divide all of them by the weight of the rows, and check them."""
        total = self.weight.sum()
        self.losses = [loss / total for loss in self.losses]
        self.losses.append(self._training_loss(self.raw[self.train_rows]) / total)
        self._warn_of_divergence(n_best)

    def _validation_loss(self):
        if not len(self.held_out_rows):
            return 0.0
        rows = self.held_out_rows
        if self.scorer is not None:
            response = self.rows.baseline + self._responses(self.raw[rows] - self.start)
            loss = -self.scorer.score(LINKS[self.loss.link](response))
            if not np.isfinite(loss):
                raise ValueError(
                    f"the score of the held-out rows by early_stopping is {-loss} after "
                    f"{len(self.trees)} rounds{self.scorer.lacking}"
                )
        else:
            losses = self.kernel.held_out_losses(self.raw[rows], self.target[rows])
            loss = float(np.einsum("i,i->", losses, self.held_out_weight))
        self.scores.append(-loss)
        return loss

    def _training_loss(self, raw):
        target = np.ascontiguousarray(self.target[self.train_rows])
        losses = self.kernel.losses(raw, target)
        return np.einsum("i,i->", losses, self.weight[self.train_rows])

    def _warn_of_divergence(self, n_best):
        """Warn if all rounds are kept and have increased the training loss."""
        if not self.settings.warns or not self.trees or (len(self.held_out_rows) and n_best):
            return
        before = self._training_loss(np.tile(self.start, (len(self.train_rows), 1)))
        after = self._training_loss(self.raw[self.train_rows])
        rate = self.settings.learning_rate
        warn_of_divergence("boosting", before, after, f"{len(self.trees)} rounds", rate)

    def _add_round(self, number):
        """Train one round, or repeat a known one."""
        X = self.rows.X
        if self.loss.leaf.renews or self.kernel.is_adaptive:
            rows = self.train_rows[:: -(-len(self.train_rows) // SIZED_ROWS)]
            self.size = robust_size(self.target[rows] - self.raw[rows], self.weight[rows])
        if self.kernel.is_adaptive:
            self.kernel.adapt(self.size)
        self.losses.append(self._derive(self.raw))
        if number == 1 and "slope" in self.trees[0] and not len(self.trees[0]["gain"]):
            self.gain_unit = self._gain_of_start()
        # Known rounds draw, too, so that later rounds get the same random numbers.
        rows, others = self._draw_rows(number)
        mix = self._draw_mix()
        if number < self.known.n_rounds:
            tree, value, leaf = self.known.round(number, X, self.raw.shape[1], self.unit)
        elif number == 0 and self.settings.linear_start is not None:
            tree, value, leaf = self._fit_linear_start()
        else:
            tree, leaf = self._grow_tree(number, mix, rows, others)
            value = self._fit_leaves(tree, leaf, rows)
        self._add_importances(tree)
        self._add(self.raw, tree, value, leaf)
        self.trees.append(tree)
        self.values.append(value)

    def _derive(self, raw):
        """Write the derivatives of the loss at raw predictions; return the training loss.

        Blocks of many rows are added up in their order. A loss of the user gets all rows at once.
        """
        arrays = raw, self.target, self.weight, self.gradient, self.curvature
        size = len(raw) if isinstance(self.kernel, CallbackKernel) else DERIVED_ROWS
        if len(raw) <= size:
            return self.kernel.derive(*arrays)

        def derive(first, last):
            for block in range(first, last):
                rows = slice(block * size, (block + 1) * size)
                losses[block] = self.kernel.derive(*(array[rows] for array in arrays))

        losses = [0.0] * -(-len(raw) // size)
        self._in_parts(derive, len(losses))
        return sum(losses)

    def _add(self, raw, tree, value, leaf):
        """Add the leaves of all rows to raw predictions."""
        value = np.ascontiguousarray(value, dtype=np.float64)
        self._in_parts(partial(add_values, leaf, value, raw), len(raw))
        if "slope" in tree:
            linear = self.rows.X, leaf, *(tree[name] for name in LINEAR), raw
            self._in_parts(partial(add_linear, *linear), len(raw))
        return raw

    def _fit_linear_start(self):
        """Return a tree of one leaf, linear in all features, with its value and leaves of rows.

        Newton's method minimises the training loss plus the penalty for each output separately.
        Steps are halved until this objective decreases.
        """
        X, rows, unit = self.rows.X, self.train_rows, self.rows.unit.astype(np.float64)
        center = weighted_sums(X, self.weight) / self.weight.sum()
        start, feature = np.array([0, len(unit)]), np.arange(len(unit), dtype=np.int32)
        leaf_alone = self.rows.empty_tree() | {"node_weight": np.array([float(len(rows))])}
        leaf = np.zeros(len(X), dtype=np.int32)

        def tree_of(coefficient):
            slope = coefficient[:, :-1] / unit
            value = coefficient[:, -1] - np.einsum("kj,j->k", slope, center)
            slope = np.ascontiguousarray(slope.T, dtype=np.float32)
            return leaf_alone | dict(zip(LINEAR, (start, feature, slope))), value[None]

        derivatives, least = (self.gradient, self.curvature), self.losses[-1]
        mean = self.curvature[rows].mean(axis=0, dtype=np.float64)
        penalty = self.settings.linear_start * mean + MIN_CURVATURE
        coefficient = np.zeros((len(mean), len(unit) + 1))
        for _ in range(1 if self.loss.is_quadratic else START_STEPS):
            outputs = zip(*(d.T.copy() for d in derivatives), penalty, coefficient)
            steps = np.array([newton_step(X, rows, center, unit, *output) for output in outputs])
            before = least
            for moved in coefficient + STEP_FACTORS[:, None, None] * steps:
                raw = self._add(self.raw.copy(), *tree_of(moved), leaf)
                square = np.einsum("k,kj->", penalty, moved[:, :-1] ** 2)
                least = self._training_loss(raw[rows]) + square / 2
                if least < before:
                    coefficient = moved
                    break
            if self.stop[0] or not least < before - TOLERANCE * abs(before):
                break
            self._derive(raw)
        tree, value = tree_of(coefficient)
        self._check_values(np.concatenate([value, tree["slope"]]))
        return tree, value, leaf

    def _gain_of_start(self):
        """Return the divisor of the gains of trees in whose unit the linear start has gain 1.

        A gain is twice the decrease of the loss by a whole step. Trees take the share
        `learning_rate` of the step, which decreases the loss by ``rate * (2 - rate)`` times as
        much.
        """
        rate, (before, after) = self.settings.learning_rate, self.losses
        decrease = max(before - after, TOLERANCE * abs(before))
        return 2 * decrease / (rate * (2 - rate)) or 1.0

    def _grow_tree(self, number, mix, rows, others):
        """Grow the tree of a round; return it without values, and the leaf of every row."""
        grower, interactions, chance = self.grower, self.interactions, self._feature_chances()
        of_terms = chance if interactions is None else interactions.chances(chance)
        derivatives, seed = (self.gradient, self.curvature), tree_seed(self.seed, number)
        searched = self._searched(chance, seed)
        grower.start(*derivatives, mix, np.cumsum(of_terms), seed, rows, others, searched)
        self._in_parts(grower.write_bins, len(self.raw))
        if interactions is not None:
            interactions.start(grower)
        while not (grower.is_done() or self.stop[0]):
            if interactions is not None:
                grower.restrict(interactions.allowed())
            self._in_parts(grower.search, grower.n_searched_columns())
            grower.split_nodes(self._in_parts)
            if interactions is not None:
                interactions.descend(*grower.open_splits())
        tree, leaf = grower.finish()
        gain = tree["gain"].astype(np.float64) / self.gain_unit
        tree["gain"] = np.minimum(gain, 3e38).astype(np.float32)
        if self.settings.linear_leaves:
            tree["terms"] = grower.terms()  # boxes are sums, too
        if self.rows.monotonic is not None:
            tree["bounds"] = grower.leaf_bounds()
        return tree, leaf

    def _fit_leaves(self, tree, leaf, rows):
        """Return the values of the leaves, and add slopes to the arrays of the tree."""
        if self.regression is None:
            return self._fit_constants(tree, leaf, rows)
        splits = tree["child"], tree["direction"], *tree["terms"]
        of_rows = leaf, rows, self.gradient, self.curvature
        factors = self.settings.l2, self.settings.learning_rate
        value, *linear = self.regression.fit(*splits, *of_rows, *factors)
        self._check_values(value)
        self._check_values(linear[-1])
        tree |= dict(zip(LINEAR, linear))
        return value

    def _in_parts(self, function, n):
        """Call ``function(first, last)`` for parts of range(n), in threads."""
        if self.pool is None:
            function(0, n)
            return
        ends = np.linspace(0, n, min(n, self.n_threads) + 1).astype(int).tolist()
        list(self.pool.map(function, ends[:-1], ends[1:]))

    def _draw_rows(self, number):
        """Draw the rows of a tree without replacement; return them and the other rows, sorted."""
        rows, n_rows = self.train_rows, len(self.raw)
        if self.settings.subsample < 1:
            n = max(1, round(self.settings.subsample * len(rows)))
            if len(rows) > SHUFFLED_ROWS:
                return draw_rows(rows, n, n_rows, tree_seed(self.seed, number))
            rows = self.random.permutation(rows)[:n]
        is_taken = np.zeros(n_rows, dtype=np.uint8)
        is_taken[rows] = 1
        return divided(is_taken)

    def _draw_mix(self):
        """Draw the projection of the gradients for the search of splits; None for few outputs."""
        n_outputs = self.gradient.shape[1]
        if n_outputs <= N_SEARCHED:
            return None
        mix = self.random.standard_normal((n_outputs, N_SEARCHED)) / np.sqrt(N_SEARCHED)
        return mix.astype(np.float32)

    def _feature_chances(self):
        """Return the chances of features in draws: a uniform part and a part by gains."""
        total = self.importance.sum()
        chance = np.ones(len(self.importance)) / len(self.importance)
        return chance + self.importance / total if total > 0 else chance

    def _searched(self, chance, seed):
        """Draw the features that a tree searches, without repeats; all unless there are many."""
        searched = np.ones(len(chance), dtype=np.uint8)
        if len(chance) > (n_most := SEARCHED + len(chance) // SEARCHED_SHARE):
            time = random_stream(seed).exponential(1 / chance)
            searched[np.argpartition(time, n_most)[n_most:]] = 0
        return searched

    def _add_importances(self, tree):
        """Add the gains of the splits of a tree to their features.

        Boxes are left out, because they are not drawn by gains.
        """
        if self.rows.feature_shape is not None:
            return
        names = "direction", "gain", "sparse_start", "sparse_feature"
        add_gains(*(tree[name] for name in names), self.importance)

    def _fit_constants(self, tree, leaf, rows):
        """Return the values of constant leaves."""
        n_leaves = int((tree["child"] < 0).sum())
        sums = leaf_sums(leaf, rows, self.gradient, self.curvature, n_leaves)
        value = -sums[0] / (sums[1] + self.settings.l2)
        self._check_values(value)
        value = np.clip(value, -self.loss.leaf.max_step, self.loss.leaf.max_step)
        if self.loss.leaf.renews:
            value = self._least_loss_constants(leaf[rows], rows, value)
        if self.rows.monotonic is not None:
            value = np.clip(value, *tree["bounds"].T[:, :, None])
        value = self.settings.learning_rate * value
        self._check_values(value)
        return value

    def _check_values(self, value):
        """Check that values, and gradients, fit into float32."""
        if value.size and not np.abs(value).max() < LARGEST_VALUE:
            raise ValueError(
                f"boosting diverged, values of leaves are too large in round "
                f"{len(self.trees) + 1}: lower learning_rate={self.settings.learning_rate:g}, or "
                "make the weights of rows, from sample_weight and class_weight, more alike"
            )

    def _least_loss_constants(self, leaf, rows, value):
        """Return the leaf constants with the lowest loss, for losses without curvature."""
        order = np.argsort(leaf, kind="stable")
        ends = np.cumsum(np.bincount(leaf, minlength=len(value)))
        for number, members in enumerate(np.split(rows[order], ends[:-1])):
            if len(members):
                residual = self.target[members] - self.raw[members]
                part = residual, self.weight[members], self.kernel, self.size
                value[number] = self.loss.leaf.value(*part)
        return value

    # ------------------------------------------------------------------------------------ packing

    def trained_rounds(self, forest=None):
        """Return all rounds, to continue training later."""
        names = "slope", *OF_LEAVES
        leaves = [
            (value, {name: tree[name] for name in names if name in tree})
            for value, tree in zip(self.values, self.trees)
        ]
        return TrainedRounds(len(self.trees), 0, forest, leaves, self.unit)

    def pack(self):
        """Return the arrays of a Forest."""
        trees, n_features = self.trees or [self.rows.empty_tree()], len(self.importance)
        n_leaves = np.cumsum([0] + [(tree["child"] < 0).sum() for tree in trees])
        # A model has boxes or sparse directions, not both.
        n_mixtures = [len(tree["box_corner"]) + len(tree["sparse_start"]) - 1 for tree in trees]
        child, direction = [], []
        for tree, leaves, n_before in zip(trees, n_leaves, np.cumsum([0] + n_mixtures)):
            child.append(tree["child"] - np.int32(leaves) * (tree["child"] < 0))
            is_mixture = tree["direction"] >= n_features
            direction.append(tree["direction"] + np.int32(n_before) * is_mixture)
        values = np.concatenate(self.values) if self.values else np.zeros((1, self.raw.shape[1]))
        arrays = {
            "tree_start": np.cumsum([0] + [len(tree["child"]) for tree in trees]),
            "child": np.concatenate(child),
            "direction": np.concatenate(direction),
            "sparse_start": join_starts([tree["sparse_start"] for tree in trees]),
            "value": self._responses(values).astype(np.float32).ravel(),
        }
        linear = [tree for tree in trees if "slope" in tree]
        if linear:
            starts = [
                tree.get("slope_start", np.zeros(len(value) + 1, dtype=np.int64))
                for tree, value in zip(trees, self.values)
            ]
            slopes, features = (
                np.concatenate([tree[name] for tree in linear]) for name in LINEAR[:0:-1]
            )
            arrays["slope_start"], arrays["slope_feature"] = join_starts(starts), features
            arrays["slope"] = self._responses(slopes)
        names = [name for name in TREE if name not in arrays]
        return arrays | {name: np.concatenate([tree[name] for tree in trees]) for name in names}

    def _responses(self, values):
        """Convert leaf values or slopes to responses of a Forest.

        With two classes, one raw prediction becomes two outputs, whose difference it is.
        """
        if len(self.unit) == 2 and values.shape[1] == 1:
            values = values * [-0.5, 0.5]
        return values * self.unit


class LeafRefit(BoostingTraining):
    """Fits the leaves of a trained bag again, round by round, on its held-out rows as well.

    The splits stay. A bag thus learns from all rows at a tenth of the time of its training.

    Parameters
    ----------
    training : BoostingTraining
        The trained bag.
    forest : Forest
        The bag.
    weight : ndarray of shape (n_rows,), float64
        Weights of all rows.
    """

    def __init__(self, training, forest, weight):
        settings = replace(training.settings, n_rounds=len(training.trees), subsample=1.0)
        weights = weight, np.zeros(len(weight))
        super().__init__(training.rows, settings, *weights, training.seed, training.control)
        self.trained, self.forest = training, forest

    def run(self):
        """Fit all leaves; the losses stay those of the training."""
        self.divided = super()._draw_rows(0)
        for number, leaf in enumerate(self._leaves()):
            if self.stop[0]:
                break
            self.leaf = leaf
            self._add_round(number)
        self._end_losses()
        for name in ("losses", "is_late", "is_stopped"):
            setattr(self, name, getattr(self.trained, name))
        return self

    def _leaves(self):
        """Yield the leaf of every row in each tree."""
        n = max(1, ROUTED // len(self.raw))
        for first in range(0, len(self.trained.trees), n):
            yield from leaves_of_rows(self.forest[first : first + n].compact(), self.rows.X)

    def _draw_rows(self, number):
        return self.divided

    def _draw_mix(self):
        return None

    def _grow_tree(self, number, mix, rows, others):
        """Return a trained tree, without its values, and the leaf of every row."""
        known = self.trained.trees[number]
        return {name: array for name, array in known.items() if name not in LINEAR}, self.leaf


def leaves_of_rows(forest, X):
    """Return the number of the leaf of every row in each tree, a list of int32 arrays."""
    nodes = np.concatenate([forest.apply_mapped(block) for block in dense_blocks(X)])
    nodes = np.ascontiguousarray(nodes.T)
    ends = forest.tree_start[1:]
    first_leaf = (ends + np.arange(1, len(ends) + 1)) // 2 - forest.n_leaves
    return [
        -1 - forest.child[start:end][node] - np.int32(before)
        for start, end, node, before in zip(forest.tree_start, ends, nodes, first_leaf)
    ]
