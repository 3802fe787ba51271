"""Rivals in processes of their own, fitted in turn on the same data."""

import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from timing import interleave
from worker import Worker


@dataclass(frozen=True)
class Rival:
    """An estimator by its dotted name, its parameters, and where it runs; see `Worker`."""

    estimator: str
    parameters: dict
    dtype: str = ""
    python: str = sys.executable
    environment: dict | None = None


# scikit-learn's forests turn everything into float32: hand it over, their clock is spared that.
RANDOM_FOREST = Rival("sklearn.ensemble.RandomForestClassifier", {}, "float32")


@contextmanager
def workers(split, rivals):
    """Start one worker a rival on the same data, and end them."""
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "split.npz"
        split.save(path)
        yield {
            name: stack.enter_context(Worker(path, rival.dtype, rival.python, rival.environment))
            for name, rival in rivals.items()
        }


def fit(worker, rival, trees, seed):
    """Fit a rival in its worker; return its answer, with the seconds a tree."""
    parameters = {**rival.parameters, "n_estimators": trees, "random_state": seed}
    answer = worker.ask("fit", estimator=rival.estimator, parameters=parameters)
    return {**answer, "tree": answer["seconds"] / trees}


def race(split, rivals, rounds, trees, measure=("error", "versions"), warm_up=True):
    """Fit the rivals in turn, a new seed each round.

    Parameters
    ----------
    split : data.Split
        The data of all.
    rivals : dict of str to Rival
        By name.
    rounds, trees : int
        Fits of each rival, and trees of each fit.
    measure : sequence of str
        Further questions after each fit: methods of `worker.Bench`.
    warm_up : bool
        Whether to fit once before.

    Returns
    -------
    dict of str to list of dict
        A rival's answers, round by round: those of the fit and of the further questions.
    """

    def turn(name, seed):
        answer = fit(running[name], rivals[name], trees, seed)
        return answer | {question: running[name].ask(question) for question in measure}

    with workers(split, rivals) as running:
        return interleave({name: partial(turn, name) for name in rivals}, rounds, warm_up)
