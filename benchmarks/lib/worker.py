"""One estimator in a separate process, controlled over a pipe.

`Worker` is the controlling side. The process runs this file, and needs only NumPy and the measured
library, which may be in a separate environment. It uses one thread and reports its times.
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
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

PACKAGES = (
    *("skforest", "scikit-learn", "numpy", "scipy", "joblib"),
    *("torch", "lightgbm", "catboost", "treeple", "ydf"),
    *("xgboost", "xgboost-cpu", "chimeraboost", "pytabkit", "autogluon.tabular"),
)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
STATUS = Path("/proc/self/status")


class Worker:
    """Start a process, call methods of `Bench` there, and end it as a context manager.

    Parameters
    ----------
    data : path
        A `data.Split` on disk.
    dtype : str, optional
        Type to which features are converted before the time is taken.
    python : path
        Interpreter of the process.
    environment : dict, optional
        Environment variables of the process.
    """

    def __init__(self, data, dtype="", python=sys.executable, environment=None):
        self._process = subprocess.Popen(
            [str(python), __file__, str(data), dtype],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ONE_THREAD, **(environment or {})},
        )

    def ask(self, method, **arguments):
        """Call a method of `Bench` in the process and return its result."""
        self._process.stdin.write(json.dumps([method, arguments]) + "\n")
        self._process.stdin.flush()
        result = self._process.stdout.readline()
        if not result:
            raise RuntimeError(f"the worker ended with code {self._process.wait()}")
        return json.loads(result)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


class Bench:
    """Data and fitted model in the process of a worker."""

    def __init__(self, data, dtype=""):
        with np.load(data) as arrays:
            X_train, self.y_train = arrays["X_train"], arrays["y_train"]
            X_test, self.y_test = arrays["X_test"], arrays["y_test"]
        self.X_train = X_train.astype(dtype or X_train.dtype, copy=False)
        self.X_test = X_test.astype(dtype or X_test.dtype, copy=False)

    def fit(self, estimator, parameters):
        """Return the seconds of one fit, and the bytes that it adds to the process at its peak.

        A dict with the key "class" becomes an object of that class.
        """
        self.model = _find(estimator)(**{k: _parameter(v) for k, v in parameters.items()})
        before = _memory("VmRSS")
        start = time.perf_counter()
        self.model.fit(self.X_train, self.y_train)
        taken = time.perf_counter() - start
        return {"seconds": taken, "memory": _memory("VmHWM") - before}

    def predict(self, rows, calls, is_cpu=False):
        """Return median seconds of calls of predict, each on the next `rows` test rows.

        `is_cpu`: whether to measure processor seconds instead of wall-clock seconds.
        """
        clock = time.process_time if is_cpu else time.perf_counter
        starts = [i * rows % (len(self.X_test) - rows + 1) for i in range(calls)]
        times = []
        for block in [self.X_test[start : start + rows] for start in starts]:
            start = clock()
            self.model.predict(block)
            times.append(clock() - start)
        return statistics.median(times)

    def first_predict(self, rows):
        """Return seconds of the first predict, with one thread, of a saved and loaded copy."""
        model = pickle.loads(pickle.dumps(self.model, protocol=5)).set_params(n_jobs=1)
        start = time.perf_counter()
        model.predict(self.X_test[:rows])
        return time.perf_counter() - start

    def error(self):
        """Return the test error in percent."""
        return 100 * float(np.mean(self.model.predict(self.X_test) != self.y_test))

    def versions(self):
        """Call the function of this name in this process."""
        return versions()

    def size(self):
        """Return the bytes of the pickled model."""
        return len(pickle.dumps(self.model, protocol=5))


class Yggdrasil:
    """Random forest of the package ydf with default settings, as a scikit-learn estimator."""

    def __init__(self, n_estimators, random_state, max_leaves=None):
        self.n_estimators = n_estimators
        self.random_state = random_state
        # Trees with a limit of the leaves are grown best first.
        self.growth = {}
        if max_leaves is not None:
            self.growth = {
                "growing_strategy": "BEST_FIRST_GLOBAL",
                "max_num_nodes": 2 * max_leaves - 1,
                "max_depth": -1,
            }

    def fit(self, X, y):
        """Fit with one thread, without the out-of-bag estimate, which is on by default."""
        import ydf

        learner = ydf.RandomForestLearner(
            label="y",
            num_trees=self.n_estimators,
            random_seed=self.random_state,
            num_threads=1,
            compute_oob_performances=False,
            **self.growth,
        )
        self.model = learner.train({"x": X, "y": y}, verbose=0)
        self.classes = np.array([int(name) for name in self.model.label_classes()])

    def predict(self, X):
        """Return labels, as the other estimators do."""
        p = self.model.predict({"x": X}, num_threads=1)
        return self.classes[p.argmax(1) if p.ndim == 2 else (p > 0.5).astype(int)]


def versions():
    """Return versions of the installed packages among `PACKAGES`."""
    found = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _find(estimator):
    """Import the class of a dotted name, or `Yggdrasil` for "ydf"."""
    if estimator == "ydf":
        return Yggdrasil
    module, _, name = estimator.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _parameter(value):
    """Convert a parameter from JSON: lists to tuples, and dicts to objects."""
    if isinstance(value, dict):
        return _find(value["class"])(**{k: v for k, v in value.items() if k != "class"})
    return tuple(value) if isinstance(value, list) else value


def _memory(key):
    """Return bytes of VmRSS (resident now) or VmHWM (peak); nan on systems other than Linux.

    The peak of `resource.getrusage` starts at that of the parent, so it cannot be used.
    """
    if not STATUS.exists():
        return math.nan
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(key))
    return 1024 * int(line.split()[1])


def _serve(data, dtype):
    """Serve calls until the pipe closes; output of libraries goes to standard error."""
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    bench = Bench(data, dtype)
    for line in sys.stdin:
        method, arguments = json.loads(line)
        pipe.write(json.dumps(getattr(bench, method)(**arguments)) + "\n")
        pipe.flush()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
