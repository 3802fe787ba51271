"""What a step through a hinge forest as a layer costs: forth, back, and with the optimiser.

    python benchmarks/layer.py [--rounds N] [--quick]

128 rows of 100 features, 100 trees of depth 10, 26 outputs; one thread, processor time. Rivals are
the kernels with dense and sparse gradients of leaves, the operations of PyTorch in their place,
and a linear layer with as many inputs and outputs. Sparse gradients go to SparseAdam, all others
to a fused Adam. Rows go to ``benchmarks/results/layer.json``.
"""

import argparse
import statistics
import time
from pathlib import Path

import results
import torch
from results import Bar, Row
from timing import interleave

from skforest.torch import HingeFern, HingeForest

FOLDER = Path(__file__).resolve().parent
SIZE = {"n_features": 100, "n_outputs": 26, "n_estimators": 100, "max_depth": 10}
LAYERS = {
    "forest, kernels": (HingeForest, {"backend": "kernel"}),
    "forest, kernels, sparse": (HingeForest, {"backend": "kernel", "sparse": True}),
    "forest, tensors": (HingeForest, {"backend": "tensor"}),
    "forest, tensors, sparse": (HingeForest, {"backend": "tensor", "sparse": True}),
    "ferns, kernels, sparse": (HingeFern, {"backend": "kernel", "sparse": True}),
    "linear": (torch.nn.Linear, None),
}
BARS = {
    f"{part}/{name}": Bar(f"{words}, {name}", "us", more=False)
    for part, words in {"both": "forth and back", "step": "with a step of Adam"}.items()
    for name in LAYERS
}


def rival(kind, words, batch):
    """A function that goes forth and back some times and returns processor times of one."""
    layer = kind(100, 26) if words is None else kind(**SIZE | words)
    z = torch.randn(batch, 100, requires_grad=True)
    y = torch.randint(26, (batch,))
    lazy = [layer.leaves] if getattr(layer, "sparse", False) else []
    eager = [p for p in layer.parameters() if all(p is not other for other in lazy)]
    optimizers = [torch.optim.Adam(eager, lr=0.01, fused=True)]
    optimizers += [torch.optim.SparseAdam(lazy, lr=0.01)] if lazy else []

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


def main():
    """Measure all rivals in turn and store their rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=FOLDER / "results", help="where JSON goes")
    parser.add_argument("--rounds", type=int, default=25, help="turns of each rival")
    parser.add_argument("--quick", action="store_true", help="smoke run")
    options = parser.parse_args()
    if options.quick:
        options.results, options.rounds = options.results / "quick", 1
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rivals = {name: rival(*own, batch=128) for name, own in LAYERS.items()}
    measured = interleave(rivals, options.rounds)
    for k, part in enumerate(("both", "step")):
        for name, turns in measured.items():
            row = Row(f"{part}/{name}", [1e6 * turn[k] for turn in turns])
            stored = results.add(
                options.results / "layer.json", row, BARS[row.name], "python benchmarks/layer.py"
            )
            print(f"{row.name}: {results.show(stored['value'], 'us')}", flush=True)


if __name__ == "__main__":
    main()
