"""Models in separate processes, fitted in turn on the same data."""

import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.lib.timing import interleave
from benchmarks.lib.worker import Worker


@dataclass(frozen=True)
class Rival:
    """A model to compare: dotted name, parameters, and the arguments of its `Worker`."""

    estimator: str
    parameters: dict
    dtype: str = ""
    python: str = sys.executable
    environment: dict | None = None


# scikit-learn's forests convert to float32; with float32 features their time excludes that.
RANDOM_FOREST = Rival("sklearn.ensemble.RandomForestClassifier", {}, "float32")


@contextmanager
def workers(split, rivals):
    """Start one worker for each rival on the same data, and end them."""
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "split.npz"
        split.save(path)
        yield {
            name: stack.enter_context(Worker(path, rival.dtype, rival.python, rival.environment))
            for name, rival in rivals.items()
        }


def fit(worker, rival, trees, seed):
    """Fit a rival in its worker; return its measurements, with the seconds of one tree."""
    parameters = {**rival.parameters, "n_estimators": trees, "random_state": seed}
    result = worker.ask("fit", estimator=rival.estimator, parameters=parameters)
    return {**result, "tree": result["seconds"] / trees}


def race(split, rivals, rounds, trees, measure=("error", "versions"), warm_up=True):
    """Fit the rivals in turn, with a new seed in each round.

    Parameters
    ----------
    split : data.Split
        The data.
    rivals : dict of str to Rival
        By name.
    rounds, trees : int
        Number of fits of each rival, and of trees in each fit.
    measure : sequence of str
        Methods of `worker.Bench` to call after each fit.
    warm_up : bool
        Whether to fit once before the first round.

    Returns
    -------
    dict of str to list of dict
        By rival one dictionary for each round: results of the fit and of `measure`.
    """

    def turn(name, seed):
        result = fit(running[name], rivals[name], trees, seed)
        return result | {method: running[name].ask(method) for method in measure}

    with workers(split, rivals) as running:
        return interleave({name: partial(turn, name) for name in rivals}, rounds, warm_up)
