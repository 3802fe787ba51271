"""Joint training of the networks of a tree by expectation maximisation.

The method is that of Hehn, Kooij, Hamprecht, "End-to-End Learning of Decision Trees and Forests",
2020, with networks in place of hyperplanes (section 3.4) and the derivatives left to PyTorch.
"""

from __future__ import annotations

import numpy as np
import torch

MIN_BATCHES = 10  # steps of an epoch, unless its batches would have fewer samples than
MIN_BATCH_SIZE = 16
MIN_REACH = 0.003  # samples with a smaller probability do not reach the less probable child
MIN_SHARE = 1e-6  # total of the shares that classes have in every leaf during training
MIN_MEMORY = 5  # number of batches over which the counts of leaves are averaged at least
BLOCK = 1024  # samples per evaluation of a network outside training


class ImageSet:
    """Training samples as images.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features), uint8 or float32
    y : ndarray of shape (n_samples,), int
        Class numbers.
    weight : ndarray of shape (n_samples,), float64
    as_images : callable
        Maps a tensor of rows of X to images.
    n_classes : int
    """

    def __init__(self, X, y, weight, as_images, n_classes):
        self.X = torch.from_numpy(np.require(X, requirements="W"))
        self.y = torch.from_numpy(y.astype(np.int64))
        self.weight = weight
        self.as_images = as_images
        self.n_classes = n_classes

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


def likelihood(child, networks, leaves, x, y, steepness, min_reach=MIN_REACH):
    """Probability of the labels by a soft tree (equations 1 to 5), from the leaves up.

    Parameters
    ----------
    child : sequence of int
        Left child of every node, which the right one follows; ``-1 - leaf`` at a leaf. The split
        with the children ``2 * i + 1`` and ``2 * i + 2`` has network i.
    networks : sequence of callable
        From images to one number each; samples go right where it is positive.
    leaves : tensor of shape (n_leaves, n_classes)
        Class probabilities of the leaves.
    x : tensor of shape (n_samples, channels, height, width)
    y : tensor of shape (n_samples,), int64
        Class numbers.
    steepness : float
        Gamma of equation 5.
    min_reach : float, default=0.003
        A sample that reaches the less probable child of a split with a smaller probability leaves
        it out.

    Returns
    -------
    p : tensor of shape (n_samples,)
        The derivatives of its logarithm by the logarithms of `leaves` are the responsibilities of
        the leaves (equation 10).
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

    return subtree(0, torch.arange(len(x)), torch.ones(len(x)))


def train_networks(
    child, networks, counts, images, index, batch_size, schedule, exact_counts=False, report=None
):
    """Train the networks of a tree on some samples, by expectation maximisation.

    Parameters
    ----------
    child, networks
        As in `likelihood`.
    counts : tensor of shape (n_leaves, n_classes)
        Initial weights of the classes in the leaves, up to a common factor.
    images : ImageSet
    index : tensor of shape (n_samples,), int64
        Samples to train on.
    batch_size : int
    schedule : sequence of (float, float)
        Steepness and learning rate of every epoch.
    exact_counts : bool, default=False
        Whether `counts` are those of all samples, and not an estimate.
    report : callable, default=None
        Called after every epoch with its number and loss.

    Returns
    -------
    losses : list of float
        Mean negative log-likelihood in every epoch, each batch before its step.

    Raises
    ------
    ValueError
        If the loss is not finite.
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
