"""
A layer of a PyTorch network
============================

:class:`skforest.torch.HingeForest` is a PyTorch module. Here it is the last layer of a network
with two convolutions and pooling, and all layers are trained together. It needs the extra
``torch``.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from skforest.torch import HingeForest, to_estimator

torch.set_num_threads(1)
torch.manual_seed(0)
X, y = load_digits(return_X_y=True)
images = torch.from_numpy(X).float().reshape(-1, 1, 8, 8) / 16
X_train, X_test, y_train, y_test = train_test_split(
    images, torch.from_numpy(y), random_state=0
)

convolutions = nn.Sequential(
    *(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
    ),  # 8 x 8 to 4 x 4 pixels
    *(nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2), nn.Flatten()),
)
network = nn.Sequential(
    convolutions, HingeForest(32 * 2 * 2, 10, n_estimators=50, max_depth=5)
)
optimizer = torch.optim.Adam(network.parameters(), lr=0.005)
losses = []
for _ in range(5):
    network.train()
    for batch in torch.randperm(len(X_train)).split(50):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(
            network(X_train[batch]), y_train[batch]
        )
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

network.eval()
with torch.no_grad():
    accuracy = (network(X_test).argmax(1) == y_test).float().mean().item()
print(f"test accuracy {accuracy:.3f}")

# %%
# ``to_estimator`` converts the last layer to an estimator, which predicts without PyTorch and can
# be saved by :func:`skforest.save`. Its columns are the outputs of the layers below. On MNIST,
# such a network has :ref:`a test error of 0.78 % <hinge-several-layers>`.

with torch.no_grad():
    features, features_test = (
        convolutions(X_train).numpy(),
        convolutions(X_test).numpy(),
    )
forest = to_estimator(network[1], classes=np.arange(10), X=features)
print(
    f"accuracy of the estimator {forest.score(features_test, y_test.numpy()):.3f}"
)

fig, ax = plt.subplots(figsize=(6, 2.8), layout="constrained")
ax.semilogy(losses, linewidth=1)
ax.set(xlabel="gradient step", ylabel="loss of the batch")
