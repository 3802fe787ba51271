"""Time of a training step through a hinge forest as a PyTorch layer.

    python -m benchmarks.measure.layer [--rounds N] [--quick]

A batch has 128 rows of 100 features; there are 100 trees of depth 10 and 26 outputs. Times are
processor seconds of one thread. The script compares the compiled kernels with dense and with
sparse gradients of the leaves, the same layer in PyTorch operations, and a linear layer with as
many inputs and outputs. Sparse gradients go to SparseAdam, all others to a fused Adam.
"""

import statistics
import time

from benchmarks.lib import cells, groups
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.timing import interleave

SIZE = {"n_features": 100, "n_outputs": 26, "n_estimators": 100, "max_depth": 10}
LAYERS = {
    "forest, kernels": ("HingeForest", {"backend": "kernel"}),
    "forest, kernels, sparse": ("HingeForest", {"backend": "kernel", "sparse": True}),
    "forest, tensors": ("HingeForest", {"backend": "tensor"}),
    "forest, tensors, sparse": ("HingeForest", {"backend": "tensor", "sparse": True}),
    "ferns, kernels, sparse": ("HingeFern", {"backend": "kernel", "sparse": True}),
    "linear": ("Linear", None),
}
PARTS = {"both": "forward and backward pass", "step": "both passes and a step of Adam"}
MEASURES = {
    f"layers/{part}/{name}": Measure(f"{text}, {name}", "us", more=False)
    for part, text in PARTS.items()
    for name in LAYERS
}


def stepper(kind, parameters, batch=128):
    """Return a function that makes 20 training steps and returns the median times of one."""
    import torch

    import skforest.torch

    if parameters is None:
        layer = torch.nn.Linear(100, 26)
    else:
        layer = getattr(skforest.torch, kind)(**SIZE | parameters)
    z = torch.randn(batch, 100, requires_grad=True)
    y = torch.randint(26, (batch,))
    sparse = [layer.leaves] if getattr(layer, "sparse", False) else []
    dense = [p for p in layer.parameters() if all(p is not other for other in sparse)]
    optimizers = [torch.optim.Adam(dense, lr=0.01, fused=True)]
    optimizers += [torch.optim.SparseAdam(sparse, lr=0.01)] if sparse else []

    def run(_):
        both, step = [], []
        for _ in range(20):
            start = time.process_time()
            torch.nn.functional.cross_entropy(layer(z), y).backward()
            both.append(time.process_time() - start)
            for optimizer in optimizers:
                optimizer.step()
            step.append(time.process_time() - start)
            layer.zero_grad()
            z.grad = None
        return statistics.median(both), statistics.median(step)

    return run


def layers(options):
    """Measure all layers in turn."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    steppers = {name: stepper(*own) for name, own in LAYERS.items()}
    measured = interleave(steppers, options.rounds or 25)
    for k, part in enumerate(PARTS):
        for name, turns in measured.items():
            yield Row(f"layers/{part}/{name}", [1e6 * turn[k] for turn in turns])


def table(stored):
    """Return the table of the steps of all layers."""
    rows = []
    for name in LAYERS:
        pair = [stored[f"measure.layer:layers/{part}/{name}"] for part in PARTS]
        times = (f"{row['value'] / 1000:.1f} ms" for row in pair)
        rows.append((name, *times, cells.commands(pair)))
    return ("Layer", "Both passes", "With a step of Adam", "Command"), rows


GROUPS = (layers,)
TABLES = {"layer": table}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES)
