"""Networks as splits of a tree."""

from __future__ import annotations

import math

import torch
from torch import nn


def default_network(shape):
    """Small convolutional network of section 3.4 of Hehn et al., fitted to the image size.

    Parameters
    ----------
    shape : tuple (int, int, int)
        Channels, height and width of the images.

    Returns
    -------
    network : Module
        From shape (n, \\*shape) to (n, 1). For images of 28 x 28 or more, both convolutions have
        5 x 5 kernels and both are followed by 2 x 2 max pooling. A kernel covers at most half of a
        side, rounded up, and sides of less than 8 are not pooled.
    """
    channels, *sides = shape
    parts = []
    for n_filters in (3, 6):
        kernel = [min(5, (side + 1) // 2) for side in sides]
        sides = [side - length + 1 for side, length in zip(sides, kernel)]
        pool = [2 if side >= 8 else 1 for side in sides]
        sides = [side // length for side, length in zip(sides, pool)]
        parts += [nn.Conv2d(channels, n_filters, kernel), nn.MaxPool2d(pool), nn.ReLU()]
        channels = n_filters
    n = channels * math.prod(sides)
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(n, 50), nn.ReLU(), nn.Linear(50, 1))


class StandardisedNetwork(nn.Module):
    """Network whose outputs have mean 0 and standard deviation 1 before training.

    The steepness of the split then has the same meaning for every network.

    Parameters
    ----------
    network : Module
        From n images to shape (n, 1) or (n,).
    x : tensor of shape (n_samples, channels, height, width)
        Images that determine the mean and the standard deviation.

    Raises
    ------
    ValueError
        If outputs have another shape or are not finite.
    """

    def __init__(self, network, x):
        super().__init__()
        self.network = network
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("unit", torch.ones(()))
        with torch.no_grad():
            z = self.eval()(x)
            deviation = z.std(correction=0)
            self.shift.copy_(z.mean())
            self.unit.copy_(1 / deviation if deviation > 0 else 1.0)
        if not z.isfinite().all():
            raise ValueError("network returned outputs that are not finite")

    def forward(self, x):
        """Compute one output for each image.

        Parameters
        ----------
        x : tensor of shape (n, channels, height, width)

        Returns
        -------
        z : tensor of shape (n,)
        """
        z = self.network(x)
        if tuple(z.shape) not in ((len(x),), (len(x), 1)):
            raise ValueError(
                f"network returned shape {tuple(z.shape)} for {len(x)} images; ({len(x)}, 1) or "
                f"({len(x)},) is required"
            )
        return (z.reshape(-1) - self.shift) * self.unit
