"""The packed forest, the fitted model of every estimator of the package.

A forest is a set of directions and axis-aligned trees over them: a split compares ``a . x`` with a
threshold. A prediction is a sum over leaves of ``weight(leaf, x) * value[leaf]``; the weight is 1
for the leaf that x reaches (gate "hard"), the smallest margin on the path to it ("margin", random
hinge forests), or a product of sigmoids ("sigmoid", soft end-to-end trees).

A forest is stored in a few NumPy arrays, listed in `storage.ARRAYS` and specified in docs/format.
"""

from functools import cached_property

import numpy as np
from scipy import sparse

from .._docs import with_texts
from .._kernels.base.row_reader import RowMap
from .._tree import Router, mean_of_bags
from ..forest import io
from ..table.feature_map import FeatureMap
from ..table.frames import FEW_ROWS
from ..table.matrix import BYTE_FEATURES, N_KNOTS
from .edit import join
from .statistics import decision_path, feature_importances, labels_of, max_depth, with_prior
from .storage import (
    ARRAYS,
    HALF_ARRAYS,
    LINKS,
    METADATA,
    OF_INPUTS,
    RemovableArray,
    as_levels,
    as_ratio,
    cast_exactly,
    check_arrays,
    check_metadata,
    finite_number,
    whole_number,
    without_unused,
)


@with_texts()
class Forest:
    """Trees over directions, packed into arrays.

    Parameters
    ----------
    arrays : mapping of str to array-like
        `tree_start`, `child` and `threshold` are required. By default, `node_weight`, `gain` and
        `baseline` are 0, and all others are empty. Node numbers count from the root of their tree,
        all other indices over the whole forest.

        tree_start : (n_trees + 1,)
            First node of each tree, then the number of nodes.
        child : (n_nodes,)
            Left child of a split (the right child follows it), or ``-1 - row`` for a leaf with a
            row of values. Children are numbered in pairs, 1 and 2, 3 and 4, ..., after parents.
        node_weight : (n_nodes,) or (0,)
            Training weight, in the unit of `fit`; empty, like `gain`, if `slim` removed it.
        threshold, direction, gain : (n_splits,)
            Splits, in the order of their children: the parent of nodes 1 and 2 of a tree first. A
            sample goes right if ``a . x > threshold``. `direction` is the code of a, and `gain`
            the decrease of weight times impurity (of the target over a constant, in regression).
            Codes 0 .. n_features - 1 are features; boxes, sparse, dense directions follow.
        value : (n_values * n_outputs,) or (n_entries,)
            Leaf values, as deviations from the baseline: row after row; or, if `value_start`
            (n_values + 1,) and `value_index` (n_entries,) are given, only the nonzero entries.
        slope_start, slope_feature, slope : (n_values + 1,), (n_slopes,), (n_slopes, n_outputs)
            Linear functions to add to rows of values; empty if leaves are constant.
        box_corner, box_other, box_size : (n_boxes,), (n_boxes,), (n_boxes, n_axes)
            First entry of each box, and of the box to subtract, or -1; lengths of the boxes.
        box_subset : (n_boxes, n_bytes)
            Bits of the entries that the box contains along unordered axes.
        sparse_start, sparse_feature, sparse_weight : (n_sparse + 1,), (n_nonzero,), (n_nonzero,)
            Sparse directions, as the rows of a CSR matrix.
        dense : (n_dense, n_features)
            Dense directions.
        deviation : (n_features,) or (0,)
            Standard deviations of the features in training, 0 for constant ones. They make
            importances independent of the units of the features.
        offset, scale : (n_inputs,) or (0,)
            Inputs, the columns of X, are mapped to ``(x - offset) * scale`` in float64, before the
            trees see them, unless both are empty. Constant inputs have the scale 0.
        low, high, tail, knots : (n_inputs,) or (0,), knots (n_inputs, 2, 8) or (0, 2, 8)
            Limits of scaled inputs, and the map of values beyond them; see docs/format.
        fill : (n_inputs,) or (0,)
            Replacement of missing values, after scaling; if empty, missing values raise an error.
        source, kind : (n_features,) or (0,)
            Input of each feature, and its kind: 0, the input itself, as if empty; 1, whether it is
            missing; 2, the number of a level; 3, an indicator of a level; 4, a mean of the target.
        table_start, table : (n_features + 1,) and (n_entries,), or (1,) and (0,)
            Values of each feature: 0 and 1 for kind 1; for kinds 2 to 4, a value for each level,
            for missing values and for unknown levels.
        baseline : (n_outputs,)
            Leaf values are deviations from the baseline.
        bag_start : (n_bags + 1,)
            First tree of each bag, then the number of trees. Default: one bag.
    n_features, n_outputs : int
    task : {"classification", "multioutput classification", "regression"}
    classes : ndarray of shape (n_outputs,), default=None
        Class labels, required in classification. The labels of several outputs follow each other.
    n_classes : sequence of int, default=None
        Numbers of classes with task="multioutput classification"; their sum is `n_outputs`.
    aggregate : {"mean", "sum"}, default="mean"
        How the trees of a bag are combined.
    link : {"identity", "softmax", "sigmoid", "log"}, default="identity"
        Scale of the combined value of a bag. The inverse is applied before bags are averaged: the
        softmax over outputs ("softmax"), the logistic function of each output ("sigmoid"), or the
        exponential function ("log").
    gate : {"hard", "margin", "sigmoid"}, default="hard"
        How a split weights its children.
    steepness : float, default=1.0
        Slope of the sigmoid gate.
    feature_shape : tuple of int, default=None
        Shape of the array of features, for boxes. None: ``(n_features,)``.
    wrap, unordered : tuple of bool, default=None
        For each axis, whether its ends meet and whether its entries have no order. None: False.
    weight_dtype : {"float32", "float16"}, default="float32"
        Dtype of the weights of sparse and dense directions; projections are float32.
    n_shared_values : int, default=0
        Number of leading value rows that all forests of this kind share (the pure leaves of a
        classifier); `concatenate` stores them once.
    feature_names : sequence of str, default=None
        Names of the inputs.
    levels : mapping of int to list of float or str, default=None
        Levels of each input that is a category, in the order of their numbers.
    versions : dict, default=None
        Versions of the packages that made the forest. None: the installed ones.
    prior_ratio : sequence of float of shape (n_outputs,), default=None
        Factors of the probabilities of classes, which are then divided by their sum per output.

    Raises
    ------
    ValueError
        If the arrays do not describe trees, or contain an index that is out of range.
    """

    __module__ = "skforest.forest"
    _checks_arrays = True  # does the constructor check that the arrays describe trees?
    node_weight = RemovableArray(like="child")
    gain = RemovableArray(like="threshold")

    def __init__(
        self,
        arrays,
        *,
        n_features,
        n_outputs,
        task,
        classes=None,
        n_classes=None,
        aggregate="mean",
        link="identity",
        gate="hard",
        steepness=1.0,
        feature_shape=None,
        wrap=None,
        unordered=None,
        weight_dtype="float32",
        n_shared_values=0,
        feature_names=None,
        levels=None,
        versions=None,
        prior_ratio=None,
    ):
        self.n_features = whole_number(n_features, "n_features")
        self.n_outputs = whole_number(n_outputs, "n_outputs")
        self.task = task
        self.classes = None if classes is None else np.asarray(classes)
        self.n_classes = None
        if n_classes is not None:
            self.n_classes = [whole_number(n, "n_classes") for n in n_classes]
        self.aggregate = aggregate
        self.link = link
        self.gate = gate
        self.steepness = finite_number(steepness, "steepness")
        shape = (self.n_features,) if feature_shape is None else feature_shape
        self.feature_shape = tuple(whole_number(n, "feature_shape") for n in shape)
        none = (False,) * len(self.feature_shape)
        self.wrap = none if wrap is None else tuple(bool(w) for w in wrap)
        self.unordered = none if unordered is None else tuple(bool(u) for u in unordered)
        self.weight_dtype = weight_dtype
        self.n_shared_values = whole_number(n_shared_values, "n_shared_values")
        self.feature_names = None if feature_names is None else [str(n) for n in feature_names]
        self.levels = as_levels(levels)
        self.versions = io.package_versions() if versions is None else dict(versions)
        self.prior_ratio = as_ratio(prior_ratio)
        check_metadata(self)  # the shapes of missing arrays depend on the metadata
        self._set_arrays(arrays)
        if self._checks_arrays:
            check_arrays(self)

    def _set_arrays(self, arrays):
        """Set all arrays, C-contiguous and in their dtypes; missing ones get their defaults."""
        arrays = {name: array for name, array in arrays.items() if array is not None}
        unknown = set(arrays) - set(ARRAYS)
        if unknown:
            raise ValueError(f"unknown arrays {sorted(unknown)}; a Forest has {sorted(ARRAYS)}")
        missing = {"tree_start", "child", "threshold"} - set(arrays)
        if missing:
            raise ValueError(f"arrays {sorted(missing)} are missing")
        for name, (_, n_axes) in ARRAYS.items():
            array = arrays[name] if name in arrays else self._default(name)
            array = cast_exactly(array, self._dtype(name), name)
            if array.ndim != n_axes:
                raise ValueError(f"{name} has {array.ndim} axes; {n_axes} are needed")
            setattr(self, name, array)

    def _default(self, name):
        """Return the default of an array, given the arrays before it in ARRAYS.

        No default takes more memory than the given arrays.
        """
        if name in ("node_weight", "gain"):
            n_items = len(self.child if name == "node_weight" else self.threshold)
            return np.zeros(n_items, ARRAYS[name][0])
        if name == "tail":
            return np.zeros(len(self.low))
        if name == "table_start":
            return np.zeros(len(self.source) + 1, np.int64)
        if name == "bag_start":
            return [0, len(self.tree_start) - 1]
        if name == "baseline" and self.n_outputs <= len(self.value):
            return np.zeros(self.n_outputs)
        n_boxes = len(self.box_corner) if name == "box_subset" else 0
        shape = {
            "box_size": (0, len(self.feature_shape)),
            "knots": (0, 2, N_KNOTS),
            "box_subset": (n_boxes, 0 if n_boxes else self.n_subset_bytes),
            "dense": (0, self.n_features),
            "slope": (0, self.n_outputs),
            "sparse_start": 1,
        }
        return np.zeros(shape.get(name, 0))

    def _dtype(self, name):
        return np.dtype(self.weight_dtype if name in HALF_ARRAYS else ARRAYS[name][0])

    @cached_property
    def feature_map(self):
        """FeatureMap: maps rows before they are routed; created at the first use."""
        arrays = {name: getattr(self, name) for name in OF_INPUTS}
        return FeatureMap(**arrays, levels=self.levels)

    @property
    def n_inputs(self):
        """int: number of columns of X; categories and missing values may add features."""
        return len(self.fill) if len(self.source) else self.n_features

    @property
    def arrays(self):
        """dict of str to ndarray: all arrays by name; arrays that `slim` removed are empty."""
        return {name: vars(self)[name] for name in ARRAYS}

    @property
    def metadata(self):
        """dict: the parameters besides the arrays; all except `classes` can be stored in JSON."""
        return {name: getattr(self, name) for name in METADATA}

    def replaced(self, arrays, **metadata):
        """Return a copy with other arrays and metadata, which are not checked.

        Parameters
        ----------
        arrays : dict of str to ndarray
            All arrays; contiguous arrays of the right dtype are shared, not copied.
        **metadata
            Changes of `metadata`.

        Returns
        -------
        forest : Forest
        """
        other = object.__new__(Forest)
        vars(other).update(self.metadata | metadata)
        for name in ARRAYS:
            setattr(other, name, np.ascontiguousarray(arrays[name], dtype=other._dtype(name)))
        return other

    # ------------------------------------------------------------------------------ predictions

    @cached_property
    def router(self):
        """Router: the traversal of the trees, created at the first use."""
        sizes = self.n_features, self.n_outputs
        grid = self.feature_shape, self.wrap, self.unordered
        return Router(self.arrays, *sizes, grid, self.gate, self.steepness)

    @cached_property
    def row_map(self):
        """RowMap: `feature_map` for few rows, created at the first use."""
        n_levels = [len(self.levels.get(j, ())) for j in range(self.n_inputs)]
        # Only boxes, which are routed by tables of sums, gain from bytes.
        reads_bytes = len(self.box_corner) > 0 and self.n_inputs <= BYTE_FEATURES
        return RowMap(self.arrays, n_levels, reads_bytes)

    def map_features(self, X):
        """Map rows to the features that trees see, in the dtype of the kernels.

        {takes_matrix}

        Returns
        -------
        Z : ndarray of shape (n_samples, n_features), uint8 or float32, C order
            X itself if it needs no change.
        """
        X = self.feature_map.coded(X, self.feature_names)
        if X.shape[1] != self.n_inputs:
            raise ValueError(f"X has {X.shape[1]} features, the forest takes {self.n_inputs}")
        return self.map_coded(X)

    def map_coded(self, X):
        """Like `map_features`, for a matrix that has the numbers of levels as categories."""
        if not len(self.scale) and X.dtype != np.uint8:
            X = X.astype(np.uint8 if X.dtype == bool else np.float32, copy=False)
        return np.ascontiguousarray(self.feature_map.transform(X, seek_bytes=False))

    def apply(self, X):
        """Return the leaf of every row in every tree.

        {takes_matrix}

        {returns_leaves}
        """
        return self.apply_mapped(self.map_features(X))

    def apply_mapped(self, Z):
        """Like `apply`, for rows that `map_features` returned."""
        return self.router.apply(Z)

    def response(self, X):
        """Return predictions on the scale of the target: probabilities, or values.

        A forest does not contain the `inverse_link` of a user's `Loss`: values are before it.

        {takes_matrix}

        Returns
        -------
        response : ndarray of shape (n_samples, n_outputs), float64
        """
        return self.response_mapped(self.map_features(X))

    def response_mapped(self, Z):
        """Like `response`, for rows that `map_features` returned."""
        link, router, is_mean = LINKS[self.link], self.router, self.aggregate == "mean"
        start = self.bag_start.tolist()
        n_bags = len(start) - 1
        if 1 < n_bags and Z.shape[0] <= FEW_ROWS:
            raws = router.respond_bags(Z, self.bag_start, is_mean, self.baseline)
            parts = link(raws.reshape(-1, self.n_outputs)).reshape(raws.shape)
            mean = mean_of_bags(parts)  # in the same order as below
        else:
            total = None
            for a, b in zip(start, start[1:]):  # one bag at a time, which takes less memory
                n_trees = max(b - a, 1) if is_mean else 1
                part = link(router.respond(Z, a, b, n_trees, self.baseline))
                total = part if total is None else total + part
            mean = total if n_bags == 1 else total / n_bags
        return with_prior(mean, self.prior_ratio, self.n_classes or [self.n_outputs])

    def predict(self, X):
        """Predict the labels with the largest response, or return the values of `response`.

        {takes_matrix}

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        response = self.response(X)
        if self.task != "regression":
            ends = np.cumsum(self.n_classes or [self.n_outputs])
            return labels_of(response, np.split(self.classes, ends[:-1]))
        return response[:, 0] if self.n_outputs == 1 else response

    def decision_path(self, X):
        """Return the nodes on the paths of the rows in all trees.

        {takes_matrix}

        {returns_path}
        n_nodes_ptr : ndarray of shape (n_trees + 1,)
            Columns ``n_nodes_ptr[i] .. n_nodes_ptr[i + 1] - 1`` belong to tree i.
        """
        return decision_path(self, self.apply(X))

    # ------------------------------------------------------------------------------------ trees

    def __len__(self):
        return len(self.tree_start) - 1

    @property
    def n_nodes(self):
        """int: number of nodes of all trees."""
        return len(self.child)

    @property
    def n_leaves(self):
        """ndarray of shape (n_trees,): number of leaves of each tree."""
        return (np.diff(self.tree_start) + 1) // 2

    @property
    def max_depth(self):
        """ndarray of shape (n_trees,): depth of the deepest leaf of each tree; 0 for a root."""
        return max_depth(self)

    def tree_of(self, node):
        """Return the trees, int64, of nodes that are numbered over the whole forest."""
        return np.searchsorted(self.tree_start, node, side="right") - 1

    def parents(self):
        """Return the parent of every node, numbered over the whole forest; -1 for roots."""
        parent = np.full(self.n_nodes, -1, dtype=np.int64)
        split = np.flatnonzero(self.child > 0)
        left = self.tree_start[self.tree_of(split)] + self.child[split]
        parent[left] = split
        parent[left + 1] = split
        return parent

    @property
    def nbytes(self):
        """int: bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def __repr__(self):
        return (
            f"Forest({len(self)} trees, {self.n_nodes} nodes, {self.n_features} features, "
            f"{self.n_outputs} outputs, {self.nbytes / 2**20:.1f} MiB)"
        )

    def __getitem__(self, index):
        """Return a forest of some of the trees, as a view: ``forest[3]``, ``forest[:10]``.

        The trees become one bag; without trees, the response comes from the baseline alone. The
        view keeps all directions and values; `compact` removes unused ones.
        """
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step != 1:
                raise IndexError("trees are selected by an integer or a slice of step 1")
            last = max(first, last)
        else:
            first = index + len(self) if index < 0 else index
            if not 0 <= first < len(self):
                raise IndexError(f"tree {index} is out of range for a forest of {len(self)} trees")
            last = first + 1
        node = slice(self.tree_start[first], self.tree_start[last])
        split = slice((node.start - first) // 2, (node.stop - last) // 2)
        arrays = dict(self.arrays)
        arrays["tree_start"] = self.tree_start[first : last + 1] - self.tree_start[first]
        arrays["bag_start"] = np.array([0, last - first])
        arrays |= {name: arrays[name][node] for name in ("child", "node_weight")}
        arrays |= {name: arrays[name][split] for name in ("threshold", "direction", "gain")}
        return self.replaced(arrays)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    # ------------------------------------------------------------------------------- directions

    def directions(self, codes=None):
        """Return directions as rows of a matrix; splits test ``directions() @ x > threshold``.

        Parameters
        ----------
        codes : array-like of int of shape (n_directions,), default=None
            None: the direction of every split, in the order of `threshold`.

        Returns
        -------
        weights : csr_matrix of shape (n_directions, n_features), float32
        """
        codes = self.direction if codes is None else cast_exactly(codes, np.int32, "codes")
        if len(codes) and (codes.min() < 0 or codes.max() >= self.code_ends[-1]):
            raise ValueError(f"codes must be in 0 .. {self.code_ends[-1] - 1}")
        indptr, indices, data = self.router.expand(codes)
        matrix = sparse.csr_matrix((data, indices, indptr), shape=(len(codes), self.n_features))
        matrix.sum_duplicates()  # the two boxes of a difference may overlap
        matrix.eliminate_zeros()
        return matrix

    def feature_importances(self, importance_type="impurity"):
        """Return the importance of every feature.

        Parameters
        ----------
        importance_type : {"impurity", "count"}, default="impurity"
            "impurity": decrease of impurity or loss in the splits, times the absolute weight of
            the feature in the direction and, in directions of several features, its `deviation`
            if the forest has one, so that importances do not depend on units. Averaged trees have
            the same total. The decrease by a linear start is divided by the variances of its
            terms. "count": number of splits that use the feature.

        Returns
        -------
        importances : ndarray of shape (n_features,), float64
            At least 0, with sum 1, or all 0 if no tree has a split or slopes.
        """
        return feature_importances(self, importance_type)

    def compact(self):
        """Return the forest without the directions and value rows that no tree uses.

        Returns
        -------
        forest : Forest
        """
        return self.replaced(without_unused(self))

    def slim(self):
        """Return the compact forest without `node_weight` and `gain`.

        Importances, plots, further training and `concatenate` then raise an AttributeError.

        Returns
        -------
        forest : Forest
        """
        return self.replaced(without_unused(self) | {"node_weight": [], "gain": []})

    @property
    def code_ends(self):
        """ndarray of shape (4,): ends of the codes of features, boxes, sparse and dense rows."""
        counts = (len(self.box_corner), len(self.sparse_start) - 1, len(self.dense))
        return self.n_features + np.cumsum([0, *counts])

    @property
    def n_subset_bytes(self):
        """int: bytes of each box in `box_subset`, one bit per entry of unordered axes."""
        return sum((n + 7) // 8 for n, u in zip(self.feature_shape, self.unordered) if u)

    # ------------------------------------------------------------------- joining, copies, files

    @classmethod
    def concatenate(cls, forests):
        """Return a forest that contains the trees of several forests, in order, as one bag.

        Parameters
        ----------
        forests : iterable of Forest
            They must have the same features, outputs, task, classes, aggregate, link, gate, dtype
            of weights, baseline and shared value rows.

        Returns
        -------
        forest : Forest
        """
        forests = list(forests)
        return cls(join(forests), **forests[0].metadata)

    def __getstate__(self):
        """Store arrays in the narrowest dtypes that represent them exactly, unless mapped."""
        return {"meta": self.metadata, "arrays": io.narrow_unless_mapped(self.arrays)}

    def __setstate__(self, state):
        self.__init__(io.widen(state["arrays"]), **state["meta"])

    def save(self, path, layout="file"):
        """Write the forest to disk, without pickle.

        Parameters
        ----------
        path : str, Path or binary file
            An existing file is replaced once the new one is complete.
        layout : {"file", "folder"}, default="file"
            "file": one compressed .npz file. "folder": one .npy file per array, which `load` can
            map into memory.
        """
        io.write_forests(path, [(self, {})], layout)

    @classmethod
    def load(cls, path, mmap_mode=None):
        """Read a forest that `save` wrote.

        {reads}

        Returns
        -------
        forest : Forest

        Raises
        ------
        ValueError
            If there is no saved forest at `path`, if it has another format, or if it is damaged.
        """
        forests, *_ = load_with_header(path, mmap_mode)
        if len(forests) != 1:
            raise ValueError(f"{path} contains {len(forests)} forests; skforest.load reads it")
        return forests[0]


def load_with_header(path, mmap_mode=None):
    """Return the forests in a file, its header, and objects of other packages as bytes."""
    header, parts, others = io.read_forests(path, mmap_mode)
    with io.as_value_error(f"{path} is damaged"):
        return [Forest(arrays, **metadata) for arrays, metadata in parts], header, others
