"""Responses of hinge trees as differentiable functions of tensors.

The response of a tree is the smallest absolute margin on the path to a leaf, times the vector of
the leaf (equation 10 of Lay et al., "Random Hinge Forest for Differentiable Learning", 2018).
There are two implementations, which agree up to rounding: `response_by_kernel` runs the compiled
loops that the estimators train with, for float32 on the CPU; `response_by_tensors` runs operations
of PyTorch, for every device and dtype.
"""

from typing import NamedTuple

import torch
from torch.autograd.function import once_differentiable

from .._kernels.hinge.layer import HingePass


class HingeTrees(NamedTuple):
    """Trees, with their tests in the order of a heap, or ferns, with one test for each level."""

    thresholds: torch.Tensor  # (n_trees, n_tests)
    leaves: torch.Tensor  # (n_trees, 2**depth, n_outputs)
    features: torch.Tensor  # (n_trees, n_tests), int64: column that a test compares
    tree_weight: torch.Tensor  # (n_trees,); a tree of weight 0 has no gradients
    depth: int
    is_fern: bool


# ------------------------------------------------------------------------------------ with tensors


def _route(z, trees):
    """Leaf, and test of smallest margin, of every sample (row) in every tree (algorithm 3)."""
    index = torch.arange(len(trees.thresholds), device=z.device)
    leaf = torch.zeros(len(z), len(index), dtype=torch.long, device=z.device)
    test, smallest = leaf, None
    for level in range(trees.depth):
        at = torch.full_like(leaf, level) if trees.is_fern else leaf + (2**level - 1)
        margin = z.gather(1, trees.features[index, at]) - trees.thresholds[index, at]
        size = margin.abs()
        if smallest is None:
            smallest = size
        # Strictly smaller: of equal margins, the one nearest to the root decides.
        is_smaller = size < smallest
        test = torch.where(is_smaller, at, test)
        smallest = torch.where(is_smaller, size, smallest)
        leaf = 2 * leaf + (margin > 0)
    return leaf, test


def gains_of_tests(layer, z):
    """Sum over samples of the norms of their gradients at each test of a layer.

    A sample has a gradient at the test of its smallest margin only: the vector of its leaf. `z`
    are standardised features, an ndarray of shape (n_samples, n_features) of float64.
    """
    thresholds, leaves = (t.detach().double().cpu() for t in (layer.thresholds, layer.leaves))
    tensors = thresholds, leaves, layer.features.cpu(), torch.ones(len(leaves))
    leaf, test = _route(torch.from_numpy(z), HingeTrees(*tensors, layer.max_depth, layer._is_fern))
    norms = leaves.norm(dim=2).gather(1, leaf.T)
    return torch.zeros_like(thresholds).scatter_add(1, test.T, norms).numpy()


class _SparseLookup(torch.autograd.Function):
    """Vectors of leaves, with a sparse gradient that leaves out trees of weight 0."""

    @staticmethod
    def forward(ctx, leaves, tree, leaf, tree_weight):
        index = torch.stack([tree.expand_as(leaf).flatten(), leaf.flatten()])
        ctx.save_for_backward(index, tree_weight)
        ctx.shape = leaves.shape
        return leaves[tree, leaf]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        index, tree_weight = ctx.saved_tensors
        kept = tree_weight[index[0]] != 0
        index, g = index[:, kept], g.flatten(0, 1)[kept]
        gradient = torch.sparse_coo_tensor(index, g, ctx.shape, check_invariants=False)
        return gradient.coalesce(), None, None, None


def response_by_tensors(z, trees, per_tree, sparse):
    """Responses of trees, by operations of PyTorch; of shape (n_samples, n_trees or 1, n_outputs).

    `per_tree`: the responses of the trees separately, and not their sum. `sparse`: the gradient of
    the leaves is a sparse tensor.
    """
    # The route has no gradient: only the smallest margin of a sample has one (equations 11 and
    # 12), and that of a margin of 0 is 0.
    with torch.no_grad():
        leaf, test = _route(z, trees)
    index = torch.arange(len(trees.thresholds), device=z.device)
    margin = z.gather(1, trees.features[index, test]) - trees.thresholds[index, test]
    if sparse:
        vector = _SparseLookup.apply(trees.leaves, index, leaf, trees.tree_weight)
    else:
        vector = trees.leaves[index, leaf]
    weight = trees.tree_weight * margin.abs()
    if per_tree:
        return weight.unsqueeze(2) * vector
    return torch.einsum("nt,ntk->nk", weight, vector).unsqueeze(1)


# ------------------------------------------------------------------------------- with the kernels


class _KernelResponse(torch.autograd.Function):
    """The function of `response_by_kernel`, with its derivatives."""

    @staticmethod
    def forward(
        ctx, has_grad, per_tree, sparse, depth, is_fern, z, thresholds, leaves, features, weight
    ):
        z, thresholds, leaves = (t.detach().contiguous() for t in (z, thresholds, leaves))
        arrays = (t.contiguous().numpy() for t in (thresholds, features, leaves, weight))
        ctx.kernel = HingePass(*arrays, depth, is_fern)
        ctx.sparse = sparse
        # The backward pass reads both again. PyTorch then raises if they have been changed.
        ctx.save_for_backward(leaves, features)
        out = ctx.kernel.respond(z.numpy(), per_tree, has_grad and any(ctx.needs_input_grad))
        return torch.from_numpy(out).transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        leaves, _ = ctx.saved_tensors
        g = g.transpose(0, 1).contiguous().numpy()
        *arrays, index = ctx.kernel.gradients(g, ctx.sparse)
        z, thresholds, vectors = map(torch.from_numpy, arrays)
        if index is not None:
            vectors = torch.sparse_coo_tensor(
                torch.from_numpy(index),
                vectors,
                leaves.shape,
                is_coalesced=True,
                check_invariants=False,
            )
        return None, None, None, None, None, z, thresholds, vectors, None, None


def response_by_kernel(z, trees, per_tree, sparse):
    """`response_by_tensors` by the compiled loops; float32 on the CPU."""
    # Within `forward`, gradients are always disabled; so their state is read here.
    flags = torch.is_grad_enabled(), per_tree, sparse, trees.depth, trees.is_fern
    tensors = trees.thresholds, trees.leaves, trees.features, trees.tree_weight
    return _KernelResponse.apply(*flags, z, *tensors)
