"""Time of Shapley values, and of the package shap.

    python -m benchmarks.measure.explain trees --shap-python PYTHON [--rounds N] [--quick]
    python -m benchmarks.measure.explain hyperplanes [--rounds N] [--quick]
    python -m benchmarks.measure.explain boosting [--rounds N] [--quick]

``trees`` explains 1000 rows with 100 background rows: manifold forests of 100 trees of 64 leaves,
with sparse directions and with single features, and a RandomForest of this size by the
interventional TreeExplainer of shap, which may be in a separate environment:

    python3.11 -m venv shap-env
    shap-env/bin/pip install shap==0.51.0 scikit-learn==1.9.1

``hyperplanes`` and ``boosting`` explain 100 rows with 100 background rows. All of them have 5000
training rows of 20 features, and one thread; times are processor seconds.
"""

import json
import subprocess
import sys
import tempfile
import time
from functools import partial

import numpy as np
from sklearn.datasets import make_classification, make_regression

import skforest
from benchmarks.lib import cells, groups
from benchmarks.lib.groups import pick
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.timing import interleave, ratios
from benchmarks.lib.worker import ONE_THREAD

TASKS = ("classification", "regression")
KINDS = {"sparse": "sparse", "axis": "axis"}  # `projection` of manifold forests
SHAP = "1000 x 100 rows, 100 trees of 64 leaves, {}, {}, shap on RandomForest over ours"

MEASURES = {
    **{f"trees/{kind}-{task}": Measure(SHAP.format(kind, task), "x")
       for kind in KINDS for task in TASKS},
    "hyperplanes/co2": Measure("100 x 100 rows, CO2 forest of 100 trees", "s", more=False),
    "hyperplanes/error": Measure("largest standard error over mean value, CO2", "%", more=False),
    "boosting/classification": Measure("100 x 100 rows, one bag", "s", more=False),
    "boosting/linear": Measure("100 x 100 rows, one bag, linear leaves", "s", more=False),
}  # fmt: skip

THEIRS = """
import json, sys, time
import numpy, shap, sklearn
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

task, n_trees, n_train, n_background, path = json.loads(sys.argv[1])
X, y = numpy.load(path + "X.npy"), numpy.load(path + "y.npy")
model = RandomForestClassifier if task == "classification" else RandomForestRegressor
model = model(n_trees, max_leaf_nodes=64, random_state=0).fit(X[:n_train], y[:n_train])
explainer = shap.TreeExplainer(model, X[:n_background], feature_perturbation="interventional")
start = time.process_time()
explainer.shap_values(X[n_train:], check_additivity=False)
seconds = time.process_time() - start
versions = {"shap": shap.__version__, "scikit-learn": sklearn.__version__}
print(json.dumps([seconds, versions]))
"""


def _table(task, n_samples):
    make = make_classification if task == "classification" else make_regression
    X, y = make(n_samples, 20, n_informative=10, random_state=0)
    return X.astype(np.float32), y


def _explained(model, X, n_train, n_background):
    """Processor seconds, and the explanation."""
    model.set_params(n_jobs=1).predict(X[:10])
    start = time.process_time()
    found = skforest.shapley_values(model, X[n_train:], X[:n_background], n_jobs=1)
    return time.process_time() - start, found


def _shap(options, task, sizes, folder):
    """Processor seconds of shap, and versions, in an interpreter of its own."""
    arguments = json.dumps([task, *sizes, str(folder) + "/"])
    command = [options.shap_python, "-c", THEIRS, arguments]
    output = subprocess.run(
        command, capture_output=True, text=True, check=True, env=ONE_THREAD
    ).stdout
    return json.loads(output.splitlines()[-1])


def trees(options):
    """Time of shap over ours, for one output or two classes."""
    if not options.shap_python:
        sys.exit("trees needs --shap-python, see the docstring of this file")
    n_train, n_rows, n_trees, n_background = pick(
        options, (5000, 1000, 100, 100), (500, 20, 10, 20)
    )
    for task in TASKS:
        X, y = _table(task, n_train + n_rows)
        name = "Classifier" if task == "classification" else "Regressor"
        forest = getattr(skforest, f"ManifoldForest{name}")
        models = {
            kind: forest(n_trees, projection=projection, max_leaf_nodes=64, random_state=0).fit(
                X[:n_train], y[:n_train]
            )
            for kind, projection in KINDS.items()
        }
        with tempfile.TemporaryDirectory() as folder:
            np.save(f"{folder}/X.npy", X)
            np.save(f"{folder}/y.npy", y)
            sizes = n_trees, n_train, n_background
            functions = {"shap": lambda _, own=(task, sizes, folder): _shap(options, *own)}
            for kind, model in models.items():
                functions[kind] = lambda _, own=(model, X, n_train, n_background): _explained(*own)
            measured = interleave(functions, options.rounds or 3, warm_up=False)
        theirs = [seconds for seconds, _ in measured["shap"]]
        for kind in KINDS:
            ours = [seconds for seconds, _ in measured[kind]]
            note = f"ours {np.median(ours):.1f} s, shap {np.median(theirs):.1f} s"
            rival = measured["shap"][0][1]
            yield Row(f"trees/{kind}-{task}", ratios(theirs, ours), note, rival)


def _repeat(options, model, task):
    """Seconds of each round, and the last explanation."""
    n_train, n_rows, n_background = pick(options, (5000, 100, 100), (300, 5, 10))
    X, y = _table(task, n_train + n_rows)
    model.fit(X[:n_train], y[:n_train])
    found = [_explained(model, X, n_train, n_background) for _ in range(options.rounds or 3)]
    return [seconds for seconds, _ in found], found[-1][1]


def hyperplanes(options):
    """Time of a CO2 forest, whose trees are sampled, and the standard errors."""
    n_trees = pick(options, 100, 10)
    model = skforest.CO2ForestClassifier(n_trees, random_state=0)
    times, found = _repeat(options, model, "classification")
    yield Row("hyperplanes/co2", times, f"{np.mean(model.forest_.n_leaves):.0f} leaves per tree")
    error = 100 * found.standard_errors.max() / np.abs(found.values).mean()
    yield Row("hyperplanes/error", [error])


def boosting(options):
    """Time of oblique boosting, raw scores."""
    for name, task, model in (
        ("classification", "classification", skforest.ObliqueBoostingClassifier),
        ("linear", "regression", skforest.ObliqueBoostingRegressor),
    ):
        model = model(pick(options, 1000, 20), n_bags=1, random_state=0)
        if name == "linear":
            model.set_params(linear_leaves=True)
        times, _ = _repeat(options, model, task)
        yield Row(f"boosting/{name}", times, f"{len(model.forest_)} trees")


GROUPS = (trees, hyperplanes, boosting)
OPTIONS = {"--shap-python": {"help": "interpreter that has shap"}}
TABLES = {"explain": partial(cells.noted, script="measure.explain", groups=GROUPS)}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
