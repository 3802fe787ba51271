"""The packed forest, the fitted model of every estimator of the package.

A forest is a set of directions and axis-aligned trees over them: a split asks ``a . x > t``. A
prediction is a sum over leaves of ``weight(leaf, x) * value[leaf]``; the weight is 1 for the leaf
that x reaches (gate "hard"), the smallest margin on the way to it ("margin", random hinge
forests), or a product of sigmoids ("sigmoid", soft end-to-end trees).

All of it is a few NumPy arrays, listed in `ARRAYS` and explained in docs/format, which can be
copied, pickled, joined and saved as they are.
"""

from __future__ import annotations

import platform

import numpy as np
import scipy
import sklearn
from scipy import sparse
from scipy.special import softmax

from .._feature_map import scaled
from .._tree import Router
from .._version import __version__
from .io import narrow, read_forest, widen, write_forest
from .storage import check_counts, check_forest, exactly, join, without_unused

# name: (dtype, number of axes)
ARRAYS = {
    "tree_start": (np.int64, 1),
    "child": (np.int32, 1),
    "node_weight": (np.float64, 1),
    "threshold": (np.float32, 1),
    "direction": (np.int32, 1),
    "gain": (np.float32, 1),
    "value": (np.float32, 1),
    "value_start": (np.int64, 1),
    "value_index": (np.int32, 1),
    "box_corner": (np.int32, 1),
    "box_other": (np.int32, 1),
    "box_size": (np.int32, 2),
    "box_subset": (np.uint8, 2),
    "sparse_start": (np.int64, 1),
    "sparse_feature": (np.int32, 1),
    "sparse_weight": (np.float32, 1),
    "dense": (np.float32, 2),
    "spread": (np.float32, 1),
    "offset": (np.float64, 1),
    "scale": (np.float64, 1),
    "baseline": (np.float64, 1),
    "bag_start": (np.int64, 1),
}

WEIGHTS = ("sparse_weight", "dense")  # float32, or float16 in a forest of `weight_dtype` float16

LINKS = {
    "identity": lambda raw: raw,
    "softmax": lambda raw: softmax(raw, axis=1),
    "log": np.exp,
}


def package_versions():
    """Versions of what a forest is made with, as a dict of str."""
    return {
        "skforest": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


class Forest:
    """Trees over directions, packed into arrays.

    Parameters
    ----------
    arrays : mapping of str to array-like
        Some or all of `ARRAYS`; what is missing is empty. Indices of nodes count from the root of
        their tree, indices of everything else over the whole forest.

        tree_start : (n_trees + 1,)
            First node of each tree, and the number of nodes.
        child : (n_nodes,)
            Left child (the right one follows it), or ``-1 - row`` of the value of a leaf. The
            children of a tree are numbered in pairs: 1 and 2, 3 and 4, ..., behind their parents.
        node_weight : (n_nodes,)
            Training weight that reached the node.
        threshold, direction, gain : (n_splits,)
            Of the split that made the pair of children 1 and 2, 3 and 4, ... of a tree: go right
            where ``a . x > threshold``; code of the direction a; decrease of weight times
            impurity (in regression, of the target over a constant of the forest). Codes
            0 .. n_features - 1 are features, then come boxes, sparse and dense directions.
        value : (n_values * n_outputs,) or (n_entries,)
            Leaf values as deviations from the baseline: row after row; or, with `value_start`
            (n_values + 1,) and `value_index` (n_entries,), the entries that are not zero.
        box_corner, box_other : (n_boxes,)
            First entry of a box in the array of features, and of an equal box that is subtracted,
            or -1.
        box_size : (n_boxes, n_axes)
            Lengths of a box.
        box_subset : (n_boxes, n_bytes)
            Bits of the entries taken along unordered axes.
        sparse_start, sparse_feature, sparse_weight : (n_sparse + 1,), (n_nonzero,), (n_nonzero,)
            Sparse directions, as the rows of a CSR matrix.
        dense : (n_dense, n_features)
            Dense directions.
        spread : (n_features,) or (0,)
            Standard deviations of the features in training, where weights of sparse and dense
            directions are in units of their reciprocals; for importances.
        offset, scale : (n_features,) or (0,)
            A row x is walked as ``(x - offset) * scale``, which is computed in float64 and rounded
            to float32; as it is where both are empty.
        baseline : (n_outputs,)
            What leaf values are deviations from.
        bag_start : (n_bags + 1,)
            First tree of each bag, and the number of trees.
    n_features, n_outputs : int
    task : {"classification", "regression"}
    classes : ndarray of shape (n_outputs,), default=None
        Labels; needed in classification.
    aggregate : {"mean", "sum"}, default="mean"
        How the trees of a bag are put together.
    link : {"identity", "softmax", "log"}, default="identity"
        From the response of a bag to the prediction scale ("log": the response is a logarithm).
        Bags are averaged behind it.
    gate : {"hard", "margin", "sigmoid"}, default="hard"
    steepness : float, default=1.0
        Of the sigmoid gate.
    feature_shape : tuple of int, default=None
        Shape that the features unfold to, for boxes. None: ``(n_features,)``.
    wrap, unordered : tuple of bool, default=None
        One per axis. None: False.
    weight_dtype : {"float32", "float16"}, default="float32"
        Of the weights of sparse and dense directions. Rows are projected in float32 either way.
    n_shared_values : int, default=0
        Leading value rows that every forest of this kind begins with (the pure leaves of a
        classifier): `concatenate` keeps them once.
    feature_names : sequence of str, default=None
    versions : dict, default=None
        Of the packages that made the forest. None: those at hand.

    Raises
    ------
    ValueError
        If an array does not describe trees, or points outside of what it indexes.
    """

    def __init__(
        self,
        arrays,
        *,
        n_features,
        n_outputs,
        task,
        classes=None,
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
        versions=None,
    ):
        self.n_features = int(n_features)
        self.n_outputs = int(n_outputs)
        check_counts(self.n_features, self.n_outputs)
        self.task = task
        self.classes = None if classes is None else np.asarray(classes)
        self.aggregate = aggregate
        self.link = link
        self.gate = gate
        self.steepness = float(steepness)
        if feature_shape is None:
            feature_shape = (n_features,)
        self.feature_shape = tuple(int(length) for length in feature_shape)
        n_axes = len(self.feature_shape)
        self.wrap = (False,) * n_axes if wrap is None else tuple(bool(w) for w in wrap)
        self.unordered = (
            (False,) * n_axes if unordered is None else tuple(bool(u) for u in unordered)
        )
        self.weight_dtype = weight_dtype
        if weight_dtype not in ("float32", "float16"):
            raise ValueError(f'weight_dtype is {weight_dtype!r}, "float32" or "float16" is needed')
        self.n_shared_values = int(n_shared_values)
        self.feature_names = None if feature_names is None else [str(n) for n in feature_names]
        self.versions = package_versions() if versions is None else dict(versions)
        self._set_arrays(arrays)
        check_forest(self)

    def _set_arrays(self, arrays):
        """Take the arrays over, in their dtypes, contiguous; fill in what is missing."""
        unknown = set(arrays) - set(ARRAYS)
        if unknown:
            raise ValueError(f"unknown arrays {sorted(unknown)}; a Forest has {sorted(ARRAYS)}")
        missing = {"tree_start", "child", "threshold"} - set(arrays)
        if missing:
            raise ValueError(f"arrays {sorted(missing)} are missing")
        n_bytes = sum(
            (length + 7) // 8 for length, u in zip(self.feature_shape, self.unordered) if u
        )
        empty = {
            "box_size": (0, len(self.feature_shape)),
            "box_subset": (len(arrays.get("box_corner", ())), n_bytes),
            "dense": (0, self.n_features),
        }
        for name, (_, n_axes) in ARRAYS.items():
            dtype = self._dtype(name)
            if name in arrays and arrays[name] is not None:
                array = exactly(arrays[name], dtype, name)
            elif name == "baseline":
                array = np.zeros(self.n_outputs)
            elif name == "sparse_start":
                array = np.zeros(1, dtype=dtype)
            elif name == "bag_start":
                array = np.array([0, len(arrays["tree_start"]) - 1], dtype=dtype)
            elif name == "node_weight":
                array = np.zeros(len(arrays["child"]), dtype=dtype)
            elif name == "gain":
                array = np.zeros(len(arrays["threshold"]), dtype=dtype)
            else:
                array = np.zeros(empty.get(name, 0), dtype=dtype)
            if array.ndim != n_axes:
                raise ValueError(f"{name} has {array.ndim} axes, {n_axes} are needed")
            setattr(self, name, array)

    def _dtype(self, name):
        """dtype of an array."""
        return np.dtype(self.weight_dtype if name in WEIGHTS else ARRAYS[name][0])

    @property
    def arrays(self):
        """dict of str to ndarray: all arrays by name."""
        return {name: getattr(self, name) for name in ARRAYS}

    @property
    def _meta(self):
        """What a forest is besides its arrays; JSON can hold it, but for the classes."""
        return {
            "n_features": self.n_features,
            "n_outputs": self.n_outputs,
            "task": self.task,
            "classes": self.classes,
            "aggregate": self.aggregate,
            "link": self.link,
            "gate": self.gate,
            "steepness": self.steepness,
            "feature_shape": self.feature_shape,
            "wrap": self.wrap,
            "unordered": self.unordered,
            "weight_dtype": self.weight_dtype,
            "n_shared_values": self.n_shared_values,
            "feature_names": self.feature_names,
            "versions": self.versions,
        }

    # ------------------------------------------------------------------------------- predicting

    @property
    def _router(self):
        router = self.__dict__.get("_router_")
        if router is None:
            router = self.__dict__["_router_"] = Router(
                self.arrays,
                self.n_features,
                self.n_outputs,
                (self.feature_shape, self.wrap, self.unordered),
                self.gate,
                self.steepness,
            )
        return router

    def _table(self, X):
        """X as the kernels read it; uint8 and float32 in C order pass through."""
        X = np.asarray(X)
        if X.ndim != 2:
            X = X.reshape(len(X), -1)
        if X.shape[1] != self.n_features:
            raise ValueError(f"X has {X.shape[1]} features, the forest takes {self.n_features}")
        if len(self.scale):
            return scaled(X, self.offset, self.scale)
        if X.dtype != np.uint8:
            X = X.astype(np.uint8 if X.dtype == bool else np.float32, copy=False)
        return np.ascontiguousarray(X)

    def apply(self, X):
        """Leaf of every row in every tree.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        leaves : ndarray of shape (n_samples, n_trees), int32
            Node numbers, counted from the root of each tree.
        """
        return self._router.apply(self._table(X))

    def response(self, X):
        """Prediction on the scale of the link: probabilities, or values of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        response : ndarray of shape (n_samples, n_outputs), float64
        """
        return self._respond(self._table(X))

    def _respond(self, table):
        """Response of rows that are scaled already."""
        link = LINKS[self.link]
        n_bags = len(self.bag_start) - 1
        total = None
        for first, last in zip(self.bag_start[:-1].tolist(), self.bag_start[1:].tolist()):
            raw = self._router.respond(table, first, last)
            if self.aggregate == "mean":
                raw /= last - first
            raw += self.baseline
            raw = link(raw)
            total = raw if total is None else total + raw
        return total if n_bags == 1 else total / n_bags

    def predict(self, X):
        """Labels of largest response, or the response itself.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        response = self.response(X)
        if self.task == "classification":
            return self.classes[response.argmax(axis=1)]
        return response[:, 0] if self.n_outputs == 1 else response

    def decision_path(self, X):
        """Nodes that every row passes, in all trees.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        indicator : csr_matrix of shape (n_samples, n_nodes)
            1 where the row passes the node.
        n_nodes_ptr : ndarray of shape (n_trees + 1,)
            Columns ``n_nodes_ptr[i] .. n_nodes_ptr[i + 1] - 1`` are tree i.
        """
        leaves = self.apply(X)
        if not len(leaves):
            shape = (0, self.n_nodes)
            return sparse.csr_matrix(shape, dtype=np.int64), self.tree_start.copy()
        parent = self._parents()
        node = (leaves + self.tree_start[:-1]).ravel()
        row = np.repeat(np.arange(len(leaves)), len(self))
        rows, nodes = [], []
        while len(node):
            rows.append(row)
            nodes.append(node)
            up = parent[node]
            row, node = row[up >= 0], up[up >= 0]
        rows, nodes = np.concatenate(rows), np.concatenate(nodes)
        indicator = sparse.csr_matrix(
            (np.ones(len(rows), dtype=np.int64), (rows, nodes)), shape=(len(leaves), self.n_nodes)
        )
        return indicator, self.tree_start.copy()

    # ------------------------------------------------------------------------- looking at trees

    def __len__(self):
        return len(self.tree_start) - 1

    @property
    def n_nodes(self):
        """int: nodes of all trees."""
        return len(self.child)

    @property
    def n_leaves(self):
        """ndarray of shape (n_trees,): leaves of each tree."""
        return (np.diff(self.tree_start) + 1) // 2

    @property
    def max_depth(self):
        """ndarray of shape (n_trees,): depth of the deepest leaf of each tree; a root has 0."""
        depth = np.zeros(len(self), dtype=np.int64)
        node, owner, level = self.tree_start[:-1], np.arange(len(self)), 0
        while True:
            child = self.child[node]
            split = child > 0
            if not split.any():
                return depth
            left = self.tree_start[owner[split]] + child[split]
            node = np.concatenate([left, left + 1])
            owner = np.concatenate([owner[split], owner[split]])
            level += 1
            depth[owner] = level

    def _owner(self, node):
        """Tree of every node."""
        return np.searchsorted(self.tree_start, node, side="right") - 1

    def _parents(self):
        """Parent of every node over the whole forest, -1 for roots."""
        parent = np.full(self.n_nodes, -1, dtype=np.int64)
        split = np.flatnonzero(self.child > 0)
        left = self.tree_start[self._owner(split)] + self.child[split]
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
        """Some of the trees, as a view: ``forest[3]``, ``forest[:10]``.

        The trees become one bag. Directions and values stay those of the whole forest;
        `compact` drops what the chosen trees do not use.
        """
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step != 1:
                raise IndexError("trees are taken by an index or a slice of step 1")
            last = max(first, last)
        else:
            first = index + len(self) if index < 0 else index
            if not 0 <= first < len(self):
                raise IndexError(f"tree {index} of a forest of {len(self)} trees")
            last = first + 1
        node = slice(self.tree_start[first], self.tree_start[last])
        split = slice((node.start - first) // 2, (node.stop - last) // 2)
        arrays = dict(self.arrays)
        arrays["tree_start"] = self.tree_start[first : last + 1] - self.tree_start[first]
        arrays["bag_start"] = np.array([0, last - first])
        for name in ("child", "node_weight"):
            arrays[name] = arrays[name][node]
        for name in ("threshold", "direction", "gain"):
            arrays[name] = arrays[name][split]
        return self._with(arrays)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def _with(self, arrays, **meta):
        """The same kind of forest with other arrays and words, which are known to be right."""
        other = object.__new__(Forest)
        other.__dict__.update(self._meta | meta)
        for name in ARRAYS:
            setattr(other, name, np.ascontiguousarray(arrays[name], dtype=other._dtype(name)))
        return other

    # ------------------------------------------------------------------------------- directions

    def directions(self, codes=None):
        """Directions as rows of a matrix: ``directions() @ x`` are the values that splits compare.

        Parameters
        ----------
        codes : array-like of int of shape (n_directions,), default=None
            None: the direction of every split, in the order of `threshold`.

        Returns
        -------
        weights : csr_matrix of shape (n_directions, n_features), float32
        """
        codes = self.direction if codes is None else exactly(codes, np.int32, "codes")
        if len(codes) and (codes.min() < 0 or codes.max() >= self._code_ends[-1]):
            raise ValueError(f"codes must be in 0 .. {self._code_ends[-1] - 1}")
        indptr, indices, data = self._router.expand(codes)
        matrix = sparse.csr_matrix((data, indices, indptr), shape=(len(codes), self.n_features))
        matrix.sum_duplicates()  # boxes of a difference may overlap
        matrix.eliminate_zeros()
        return matrix

    def feature_importances(self, importance_type="impurity"):
        """Importance of every feature.

        Parameters
        ----------
        importance_type : {"impurity", "count"}, default="impurity"
            "impurity": decrease of impurity at every split, times the absolute weight of the
            feature in its direction (and its `spread`, if there is one, which makes the importance
            independent of units); each tree counts the same. "count": number of splits with a
            weight that is not zero (Perry et al., section 3.2).

        Returns
        -------
        importances : ndarray of shape (n_features,), float64
            Not negative, with sum 1, or all 0 if no tree splits.
        """
        total = np.zeros(self.n_features)
        first_split = (self.tree_start - np.arange(len(self) + 1)) // 2
        for first, last in zip(first_split[:-1], first_split[1:]):
            codes = self.direction[first:last]
            weights = abs(self.directions(codes))
            if len(self.spread):
                is_mixture = np.repeat(codes >= self._code_ends[1], np.diff(weights.indptr))
                weights.data[is_mixture] *= self.spread[weights.indices[is_mixture]]
            if importance_type == "count":
                total += weights.getnnz(axis=0)
            else:
                tree = weights.T @ self.gain[first:last].astype(np.float64)
                total += tree / (tree.sum() or 1)
        return total / (total.sum() or 1)

    def compact(self):
        """The same forest without directions and values that no tree uses.

        Returns
        -------
        forest : Forest
        """
        return self._with(without_unused(self))

    @property
    def _code_ends(self):
        """First code behind the features, the boxes, the sparse and the dense directions."""
        counts = (len(self.box_corner), len(self.sparse_start) - 1, len(self.dense))
        return self.n_features + np.cumsum([0, *counts])

    # -------------------------------------------------------------------------- joining, copying

    @classmethod
    def concatenate(cls, forests):
        """One forest of the trees of several of the same kind, in order, as one bag.

        Parameters
        ----------
        forests : iterable of Forest
            With the same features, outputs, task, classes, aggregate, link, gate, dtype of
            weights, baseline and shared values.

        Returns
        -------
        forest : Forest
        """
        forests = list(forests)
        return cls(join(forests), **forests[0]._meta)

    def __getstate__(self):
        """Arrays in the narrowest types that hold them exactly."""
        return {"meta": self._meta, "arrays": narrow(self.arrays)}

    def __setstate__(self, state):
        self.__init__(widen(state["arrays"]), **state["meta"])

    def save(self, path, layout="file"):
        """Write the forest to disk, without pickle.

        Parameters
        ----------
        path : str or Path
        layout : {"file", "folder"}, default="file"
            "file": one compressed .npz file. "folder": one .npy file an array, which `load` can
            map into memory instead of reading it.
        """
        write_forest(path, self._meta, self.arrays, layout)

    @classmethod
    def load(cls, path, mmap_mode=None):
        """Read a forest that `save` wrote.

        Parameters
        ----------
        path : str or Path
            A file or a folder.
        mmap_mode : {None, "r"}, default=None
            "r": map the arrays of a folder into memory.

        Returns
        -------
        forest : Forest

        Raises
        ------
        ValueError
            If it is no forest, of another format, or its arrays do not fit together.
        """
        meta, arrays = read_forest(path, mmap_mode)
        try:
            return cls(arrays, **meta)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not a saved forest: {error}") from error
