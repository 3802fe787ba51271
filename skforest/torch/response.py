"""Answers of hinge trees as differentiable functions of tensors, in two ways.

The loops that the estimators train with (`answer_by_kernel`), for float32 on the processor, and
operations of PyTorch (`answer_by_tensors`), for every device and dtype. Both give the same numbers
up to rounding.
"""

from __future__ import annotations

import torch
from torch.autograd.function import once_differentiable

from .._kernels.hinge_layer import HingePass

# ------------------------------------------------------------------------------------ with tensors


def _descend(z, thresholds, features, depth, fern):
    """Leaf, and test of the smallest margin, of every row in every tree (algorithm 3).

    Returns
    -------
    leaf, test : tensor of shape (n_rows, n_trees), int64
    """
    trees = torch.arange(len(thresholds), device=z.device)
    leaf = torch.zeros(len(z), len(thresholds), dtype=torch.long, device=z.device)
    test, least = leaf, None
    for level in range(depth):
        at = torch.full_like(leaf, level) if fern else leaf + (2**level - 1)
        margin = z.gather(1, features[trees, at]) - thresholds[trees, at]
        size = margin.abs()
        if least is None:
            least = size
        # Of equal margins the one nearest to the root stays.
        nearer = size < least
        test = torch.where(nearer, at, test)
        least = torch.where(nearer, size, least)
        leaf = 2 * leaf + (margin > 0)
    return leaf, test


def deciding_tests(layer, z):
    """How much each test decides: the sum over the rows that have their smallest margin at it, of
    the length of the vector of their leaf, which is the gradient by its feature.

    Parameters
    ----------
    layer : HingeForest or HingeFern
    z : ndarray of shape (n_rows, n_features), float64
        Standardised, if the layer does that.

    Returns
    -------
    moved : ndarray of shape (n_trees, n_tests), float64
    """
    thresholds, leaves = (t.detach().double().cpu() for t in (layer.thresholds, layer.leaves))
    where = layer.features.cpu(), layer.max_depth, layer._fern
    leaf, test = _descend(torch.from_numpy(z), thresholds, *where)
    length = leaves.norm(dim=2).gather(1, leaf.T)
    return torch.zeros_like(thresholds).scatter_add(1, test.T, length).numpy()


class _Rows(torch.autograd.Function):
    """Vectors of leaves, with a sparse gradient, in which trees of share 0 have no part."""

    @staticmethod
    def forward(ctx, leaves, tree, leaf, share):
        place = torch.stack([tree.expand_as(leaf).flatten(), leaf.flatten()])
        ctx.save_for_backward(place, share)
        ctx.shape = leaves.shape
        return leaves[tree, leaf]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        place, share = ctx.saved_tensors
        kept = share[place[0]] != 0
        place, g = place[:, kept], g.flatten(0, 1)[kept]
        found = torch.sparse_coo_tensor(place, g, ctx.shape, check_invariants=False)
        return found.coalesce(), None, None, None


def answer_by_tensors(z, thresholds, leaves, features, share, depth, fern, apart, sparse):
    """Answers of the trees (equation 10), of shape (n_rows, n_trees or 1, n_outputs).

    Only the smallest margins take part in the gradient, so that it is no larger than in the paper
    (equations 11 and 12); that of a margin of 0 is 0.
    """
    with torch.no_grad():
        leaf, test = _descend(z, thresholds, features, depth, fern)
    trees = torch.arange(len(thresholds), device=z.device)
    margin = z.gather(1, features[trees, test]) - thresholds[trees, test]
    vector = _Rows.apply(leaves, trees, leaf, share) if sparse else leaves[trees, leaf]
    weight = share * margin.abs()
    if apart:
        return weight.unsqueeze(2) * vector
    return torch.einsum("nt,ntk->nk", weight, vector).unsqueeze(1)


# ------------------------------------------------------------------------------- with the kernels


class _Kernel(torch.autograd.Function):
    """The same by the loops in C; float32 on the processor."""

    @staticmethod
    def forward(ctx, keep, z, thresholds, leaves, features, share, depth, fern, apart, sparse):
        z, thresholds, leaves = (t.detach().contiguous() for t in (z, thresholds, leaves))
        arrays = (t.contiguous().numpy() for t in (thresholds, features, leaves, share))
        ctx.way = HingePass(*arrays, depth, fern)
        ctx.sparse = sparse
        # The way back reads both again: they must not have been changed by then.
        ctx.save_for_backward(leaves, features)
        out = ctx.way.respond(z.numpy(), apart, keep and any(ctx.needs_input_grad))
        return torch.from_numpy(out).transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        leaves, _ = ctx.saved_tensors
        g = g.transpose(0, 1).contiguous().numpy()
        *found, place = ctx.way.gradients(g, ctx.sparse)
        z, thresholds, vectors = map(torch.from_numpy, found)
        if place is not None:
            vectors = torch.sparse_coo_tensor(
                torch.from_numpy(place),
                vectors,
                leaves.shape,
                is_coalesced=True,
                check_invariants=False,
            )
        return None, z, thresholds, vectors, None, None, None, None, None, None


def answer_by_kernel(*inputs):
    """As `answer_by_tensors`."""
    return _Kernel.apply(torch.is_grad_enabled(), *inputs)
