"""One estimator in a process of its own, asked over a pipe.

Both ends stand here. The near end is `Worker`. The far end runs this file and needs only NumPy
and the library that it measures, so that a rival may live in an environment of its own. It works
with one thread, and answers with what it measured by its own clock.
"""

import importlib
import json
import math
import os
import pickle
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from timing import versions

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
STATUS = Path("/proc/self/status")


class Worker:
    """Near end: starts the process, asks, and ends it as a context manager.

    Parameters
    ----------
    data : path
        A `data.Split` on disk.
    dtype : str, optional
        What the features are converted to before any clock starts.
    python : path
        Interpreter of the far end.
    environment : dict, optional
        Variables to set there.
    """

    def __init__(self, data, dtype="", python=sys.executable, environment=None):
        self._process = subprocess.Popen(
            [str(python), __file__, str(data), dtype],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ONE_THREAD, **(environment or {})},
        )

    def ask(self, question, **arguments):
        """Call the method `question` of `Bench` at the far end and return its answer."""
        self._process.stdin.write(json.dumps([question, arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the worker ended with code {self._process.wait()}")
        return json.loads(answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


class Bench:
    """Far end: the data, and the model fitted last."""

    def __init__(self, data, dtype=""):
        with np.load(data) as arrays:
            X_train, self.y_train = arrays["X_train"], arrays["y_train"]
            X_test, self.y_test = arrays["X_test"], arrays["y_test"]
        self.X_train = X_train.astype(dtype or X_train.dtype, copy=False)
        self.X_test = X_test.astype(dtype or X_test.dtype, copy=False)

    def fit(self, estimator, parameters):
        """Seconds of one fit, and the bytes by which its peak exceeds the memory held before."""
        parameters = {k: tuple(v) if isinstance(v, list) else v for k, v in parameters.items()}
        self.model = _find(estimator)(**parameters)
        held = _memory("VmRSS")
        start = time.perf_counter()
        self.model.fit(self.X_train, self.y_train)
        taken = time.perf_counter() - start
        return {"seconds": taken, "memory": _memory("VmHWM") - held}

    def predict(self, rows, calls):
        """Median seconds of calls of predict, each on the next `rows` test rows."""
        starts = [i * rows % (len(self.X_test) - rows + 1) for i in range(calls)]
        times = []
        for block in [self.X_test[start : start + rows] for start in starts]:
            start = time.perf_counter()
            self.model.predict(block)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    def first_predict(self, rows):
        """Seconds of the first predict, on one thread, of a copy that was saved and loaded."""
        model = pickle.loads(pickle.dumps(self.model, protocol=5)).set_params(n_jobs=1)
        start = time.perf_counter()
        model.predict(self.X_test[:rows])
        return time.perf_counter() - start

    def error(self):
        """Test error in percent."""
        return 100 * float(np.mean(self.model.predict(self.X_test) != self.y_test))

    def versions(self):
        """Versions of the packages at this end."""
        return versions()

    def size(self):
        """Bytes of the pickled model."""
        return len(pickle.dumps(self.model, protocol=5))


class Yggdrasil:
    """Random forest of the package ydf, with its defaults, behind fit and predict."""

    def __init__(self, n_estimators, random_state):
        self.n_estimators = n_estimators
        self.random_state = random_state

    def fit(self, X, y):
        """Fit on one thread; the out-of-bag estimate, on by default, is left out."""
        import ydf

        learner = ydf.RandomForestLearner(
            label="y",
            num_trees=self.n_estimators,
            random_seed=self.random_state,
            num_threads=1,
            compute_oob_performances=False,
        )
        self.model = learner.train({"x": X, "y": y}, verbose=0)
        self.classes = np.array([int(name) for name in self.model.label_classes()])

    def predict(self, X):
        """Labels, as the other estimators return them."""
        p = self.model.predict({"x": X}, num_threads=1)
        return self.classes[p.argmax(1) if p.ndim == 2 else (p > 0.5).astype(int)]


def _find(estimator):
    """Import the class of a dotted name, or `Yggdrasil` for "ydf"."""
    if estimator == "ydf":
        return Yggdrasil
    module, _, name = estimator.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _memory(key):
    """Bytes of VmRSS (resident now) or VmHWM (its peak); nan on systems other than Linux.

    The peak that `resource.getrusage` tells is no substitute: it starts at that of the parent.
    """
    if not STATUS.exists():
        return math.nan
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(key))
    return 1024 * int(line.split()[1])


def _serve(data, dtype):
    """Answer until the pipe closes. What libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    bench = Bench(data, dtype)
    for line in sys.stdin:
        question, arguments = json.loads(line)
        answers.write(json.dumps(getattr(bench, question)(**arguments)) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
