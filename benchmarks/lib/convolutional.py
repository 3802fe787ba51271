"""A small convolutional network with the methods of scikit-learn's classifiers; needs PyTorch."""

import numpy as np
import torch
from torch import nn


class ConvolutionalNetwork:
    """Two convolutions with ReLU and maximum pooling, dropout, and two dense layers.

    This is the network of the paper on manifold forests, which does not print the numbers of
    channels and epochs. Training by Adam ends after 10 epochs without a lower training loss.

    Parameters
    ----------
    feature_shape : tuple of int
        Length of a signal, or height and width of an image.
    n_epochs : int
        Largest number of epochs.
    seed : int
    """

    def __init__(self, feature_shape, n_epochs=50, seed=0):
        self.feature_shape, self.n_epochs, self.seed = feature_shape, n_epochs, seed

    def fit(self, X, y):
        """Train on all rows."""
        torch.manual_seed(self.seed)
        self.network = self._network()
        X, y = self._tensor(X), torch.from_numpy(np.asarray(y))
        self.network(X[:2])  # sets the size of the first dense layer
        optimizer = torch.optim.Adam(self.network.parameters())
        lowest, n_stalled = np.inf, 0
        for _ in range(self.n_epochs):
            total = 0.0
            for rows in torch.randperm(len(X)).split(32):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.network(X[rows]), y[rows])
                loss.backward()
                optimizer.step()
                total += len(rows) * float(loss.detach())
            n_stalled = n_stalled + 1 if total >= 0.999 * lowest else 0
            lowest = min(lowest, total)
            if n_stalled == 10:
                break
        return self

    def score(self, X, y):
        """Return the share of correct labels."""
        self.network.eval()
        with torch.no_grad():
            parts = [self.network(part).argmax(dim=1) for part in self._tensor(X).split(500)]
        return float((torch.cat(parts).numpy() == y).mean())

    def _network(self):
        is_signal = len(self.feature_shape) == 1
        convolution, pooling = (
            (nn.Conv1d, nn.MaxPool1d) if is_signal else (nn.Conv2d, nn.MaxPool2d)
        )
        return nn.Sequential(
            convolution(1, 8, kernel_size=5),
            nn.ReLU(),
            pooling(2),
            convolution(8, 16, kernel_size=5),
            nn.ReLU(),
            pooling(2),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.LazyLinear(64),
            nn.ReLU(),
            nn.Linear(64, 2),
        )

    def _tensor(self, X):
        return torch.from_numpy(np.asarray(X, dtype=np.float32)).reshape(
            -1, 1, *self.feature_shape
        )
