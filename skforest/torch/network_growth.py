"""Growth of a tree whose splits are networks: best first, one split at a time."""

from __future__ import annotations

import heapq

import numpy as np
import torch
from scipy.special import xlogy
from torch import nn

from .network import StandardisedNetwork, default_network
from .network_training import train_networks

MAX_ATTEMPTS = 5  # networks that are tried at a node
N_STANDARDISE = 1024  # samples that standardise a new network


def entropy(counts):
    """Entropy of weighted classes in bits, times their total weight."""
    return (xlogy(counts.sum(), counts.sum()) - xlogy(counts, counts).sum()) / np.log(2)


class NetworkTreeGrower:
    """Grows a tree best first: the split of largest information gain is the next.

    Parameters
    ----------
    images : ImageSet
        Training set; samples of weight 0 are left out.
    shape : tuple (int, int, int)
        Channels, height and width of the images.
    make_network : callable or None
        As the parameter `network` of `E2ENetworkTree`.
    annealing : Annealing
    max_leaf_nodes : int
    report : callable
        Called with a line of text after every split.

    Attributes
    ----------
    child : list of int
        As in `likelihood`.
    networks : list of StandardisedNetwork
        In the order of the splits.
    leaf_samples : list of tensor of int64
        Samples that reach each leaf.
    """

    def __init__(self, images, shape, make_network, annealing, max_leaf_nodes, report):
        self.images = images
        self.shape = shape
        self.make_network = make_network
        self.annealing = annealing
        self.max_leaf_nodes = max_leaf_nodes
        self.report = report
        self.child, self.networks, self.leaf_samples = [-1], [], []
        self._modules = []  # all that `make_network` has returned

    def grow(self):
        """Grow the tree; set the attributes."""
        child = self.child
        samples = {0: torch.from_numpy(np.flatnonzero(self.images.weight))}  # of each leaf
        candidates = []  # a heap; the node number decides between equal gains

        def add_candidate(node):
            split = self._split(samples[node])
            if split is not None:
                gain, network, goes_right = split
                heapq.heappush(candidates, (-gain, node, network, goes_right))

        add_candidate(0)
        while candidates:
            loss, node, network, goes_right = heapq.heappop(candidates)
            index, left = samples.pop(node), len(child)
            child[node] = left
            child += [-1, -1]
            self.networks.append(network)
            samples |= {left: index[~goes_right], left + 1: index[goes_right]}
            self.report(
                f"split {len(self.networks)}, {len(index)} samples, "
                f"information gain {-loss:.4g} bits"
            )
            if len(samples) == self.max_leaf_nodes:
                break
            add_candidate(left)
            add_candidate(left + 1)
        for number, node in enumerate(samples):
            child[node] = -1 - number
        self.leaf_samples = list(samples.values())

    def _split(self, index):
        """Gain, network and samples that go right of the split of a node; None for a leaf."""
        images, annealing = self.images, self.annealing
        counts = images.class_weights(index)
        if np.count_nonzero(counts) < 2:
            return None
        schedule = [
            (annealing.steepness + epoch * annealing.steepness_step, annealing.learning_rate)
            for epoch in range(annealing.greedy_epochs)
        ]
        for _ in range(MAX_ATTEMPTS):
            few = index[torch.randperm(len(index))[:N_STANDARDISE]]
            network = self._new_network(images.images(few))
            leaves = self._initial_leaves(network, few)
            train_networks(
                [1, -1, -2], [network], leaves, images, index, annealing.batch_size, schedule
            )
            goes_right = torch.from_numpy(images.outputs(network, index) > 0)
            left, right = (images.class_weights(index[s]) for s in (~goes_right, goes_right))
            gain = entropy(counts) - entropy(left) - entropy(right)
            if goes_right.any() and not goes_right.all() and gain > 0:
                return gain, network, goes_right
        return None

    def _initial_leaves(self, network, index):
        """Weights of the classes in both leaves of a new split.

        Leaves with equal class probabilities have the probabilities of the two sides as their
        responsibilities.
        """
        images = self.images
        z = torch.from_numpy(images.outputs(network, index))
        p = torch.sigmoid(self.annealing.steepness * z)
        weight = images.weight[index.numpy()]
        weight = torch.from_numpy(weight / weight.max()).float()
        leaves = torch.zeros(2, images.n_classes)
        for leaf, responsibility in enumerate((1 - p, p)):
            leaves[leaf].index_add_(0, images.y[index], responsibility * weight)
        return leaves

    def _new_network(self, x):
        """A new network, standardised by some images."""
        factory = self.make_network
        network = (default_network if factory is None else factory)(self.shape)
        if any(network is other for other in self._modules):
            raise ValueError(
                f"network={factory!r} returned the same module twice; it must make a new one for "
                "every split"
            )
        self._modules.append(network)
        if not isinstance(network, nn.Module):
            raise TypeError(
                f"network={factory!r} must return a torch.nn.Module, got {type(network).__name__}"
            )
        network = StandardisedNetwork(network, x)
        if not any(p.requires_grad for p in network.parameters()):
            raise ValueError(f"network={factory!r} returned a module without parameters to train")
        return network
