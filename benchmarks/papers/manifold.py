"""Experiments of the paper on manifold forests: Perry et al.

    python -m benchmarks.papers.manifold as-printed [--data FOLDER] [--quick] [--models NAME ...]

``as-printed`` repeats the simulations and the importances of the paper; ``--models`` names the
models of the simulations to run, or "importances"; other stored results are kept.
"""

import time
import warnings
from importlib.util import find_spec

import joblib
import numpy as np
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits

from benchmarks.lib import cells, data, figures, groups, results
from benchmarks.lib.groups import pick
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.simulations import SIMULATIONS
from benchmarks.lib.timing import mean_sd
from skforest import ManifoldForestClassifier, ManifoldProcedure

SHAPE = (28, 28)
# Forests of figure 3 of the paper, and our setting.
KINDS = "patch", "sparse", "axis", "default"
ERROR = "error, {}, 100 trees"
# Simulations and numbers of rows whose errors are stored as rows, too.
DRAWN = (("circle", 250), ("circle", 1000), ("bars", 25))
MEASURES = {
    **{
        f"as-printed/simulations/{name}-{n}": Measure(
            ERROR.format(f"{name}, {n} rows"), "%", more=False
        )
        for name, n in DRAWN
    },
    **{
        f"as-printed/importances/{kind}-forest": Measure(
            f"error, digits 3 and 5 of MNIST, 200 rows, 500 trees, {kind} forest", "%", more=False
        )
        for kind in KINDS
    },
}


def as_printed(options):
    """Measure the simulations and the importances of the paper, with its settings."""
    if options.models != ["importances"]:
        yield from _simulations(options)
    if not options.models or "importances" in options.models:
        yield from _importances(options)


def _simulations(options):
    """Errors and times by the number of training rows in the three simulations of the paper."""
    sizes = pick(options, [10, 25, 50, 100, 250, 500, 1000, 2000], [10, 25])
    path = options.results / "manifold_simulations.json"
    stored = results.read(path)
    if stored.get("n") != sizes:
        stored = {"n": sizes}
    trees, n_test = pick(options, (100, 10_000), (5, 200))
    for name in SIMULATIONS:
        stored.setdefault(name, {})
        for model in MODELS:
            if options.models and model not in options.models:
                continue
            if model == "convolutional network" and find_spec("torch") is None:
                print("PyTorch is not installed: no convolutional network")
                continue
            stored[name][model] = joblib.Parallel(options.n_jobs)(
                joblib.delayed(_learning_curve)(name, model, repeat, sizes, trees, n_test)
                for repeat in groups.seeds(options, 5)
            )
            results.write(path, stored)
            means = {
                key: np.mean([run[key] for run in stored[name][model]], axis=0)
                for key in ("error", "fit", "predict")
            }
            print(f"{name}, {model}: {means['error'].round(1)} %", flush=True)
            print(f"  fit {means['fit'].round(3)} s, predict {means['predict'].round(3)} s")
    for name, n in DRAWN:
        if n in sizes and "patch forest" in stored[name]:
            column = sizes.index(n)
            errors = {
                model: [run["error"][column] for run in runs]
                for model, runs in stored[name].items()
            }
            note = ", ".join(f"{model} {mean_sd(values)}" for model, values in errors.items())
            yield Row(f"as-printed/simulations/{name}-{n}", errors["patch forest"], note)


def _learning_curve(name, model_name, repeat, sizes, trees, n_test):
    """Return errors in percent and processor seconds of a model on one draw, by training size."""
    simulation = SIMULATIONS[name]
    rng = np.random.default_rng([repeat, *name.encode()])
    X, y = simulation.draw(max(sizes), rng)
    X_test, y_test = simulation.draw(n_test, rng)
    test = data.Split(X, y, X_test, y_test)
    curve = {"error": [], "fit": [], "predict": []}
    for n in sizes:
        model = MODELS[model_name](simulation, trees, repeat)
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of solvers that did not converge
            start = time.process_time()
            model.fit(X[:n], y[:n])
            fitted = time.process_time()
            curve["error"].append(error(model, test))
        curve["fit"].append(fitted - start)
        curve["predict"].append(time.process_time() - fitted)
    return curve


def _network(simulation, trees, seed):
    import torch

    from benchmarks.lib.convolutional import ConvolutionalNetwork

    torch.set_num_threads(1)
    return ConvolutionalNetwork(simulation.feature_shape, seed=seed)


def _forest(projection):
    """Return a forest of the paper: exact search, signs as sparse weights, sums over patches."""

    def make(simulation, trees, seed):
        own = {"procedure": ManifoldProcedure.as_printed()}
        if projection == "patch":
            own = {"procedure": ManifoldProcedure.as_printed(max_patch=simulation.max_patch)}
            own |= {"feature_shape": simulation.feature_shape, "wrap": simulation.wrap}
        return ManifoldForestClassifier(
            trees,
            projection=projection,
            max_features=simulation.max_features,
            random_state=seed,
            **own,
        )

    return make


# Models of the simulations, from the simulation, the number of trees and a seed. Models of
# scikit-learn have default settings, except for neighbors and iterations from the authors'
# notebooks; boosting compares a part of the features, because it would take hours otherwise.
MODELS = {
    "sparse forest": _forest("sparse"),
    "patch forest": _forest("patch"),
    "default forest": lambda simulation, trees, seed: ManifoldForestClassifier(
        trees, feature_shape=simulation.feature_shape, wrap=simulation.wrap, random_state=seed
    ),
    "RandomForest": lambda _, trees, seed: RandomForestClassifier(trees, random_state=seed),
    "logistic regression": lambda *_: LogisticRegression(max_iter=1000),
    "linear SVM": lambda *_: LinearSVC(),
    "RBF-SVM": lambda *_: SVC(),
    "kNN": lambda *_: KNeighborsClassifier(3),
    "MLP": lambda _, __, seed: MLPClassifier(max_iter=1000, random_state=seed),
    "gradient boosting": lambda _, trees, seed: GradientBoostingClassifier(
        n_estimators=trees, max_features="sqrt", random_state=seed
    ),
    "convolutional network": _network,
}


def _importances(options):
    """Figure 3 of the paper: importances of pixels for the digits 3 and 5, 100 images of each."""
    split = groups.load("mnist", options)
    rows = [np.flatnonzero(split.y_train == digit)[:100] for digit in (3, 5)]
    X, y = split.X_train[np.concatenate(rows)], np.repeat([3, 5], [len(part) for part in rows])
    is_tested = np.isin(split.y_test, (3, 5))
    test = data.Split(X, y, split.X_test[is_tested], split.y_test[is_tested])
    trees = pick(options, 500, 5)
    own = {"max_features": "sqrt", "procedure": ManifoldProcedure.as_printed(max_patch=4)}
    models = {
        "patch forest": ManifoldForestClassifier(trees, feature_shape=SHAPE, **own),
        "sparse forest": ManifoldForestClassifier(trees, projection="sparse", **own),
        "axis forest": ManifoldForestClassifier(trees, projection="axis", **own),
        "default forest": ManifoldForestClassifier(trees, feature_shape=SHAPE),
    }
    means = [split.X_train[part].mean(axis=0) for part in rows]
    pictures = {"mean of 3": means[0], "mean of 5": means[1], "difference": means[0] - means[1]}
    for name, model in models.items():
        errors = []
        for seed in groups.seeds(options, 10):
            model.set_params(random_state=seed).fit(X, y)
            importances = model.forest_.feature_importances("count")
            pictures.setdefault(name, 1e5 * importances)  # of the first seed
            errors.append(error(model, test))
        row = f"as-printed/importances/{name.replace(' ', '-')}"
        yield Row(row, errors, f"{mean_sd(errors)} %")
    stored = {name: results.to_text(image.reshape(SHAPE)) for name, image in pictures.items()}
    results.write(options.results / "manifold_importances.json", stored)


def error(model, split):
    """Percent of wrong labels, or 100 (1 - R2): one minus the estimator's own score."""
    return 100 * (1 - model.score(split.X_test, split.y_test))


def simulations_table(stored):
    """Return the table of test errors in the simulations."""
    curves = stored.file("papers.manifold_simulations", "as-printed")
    columns = [("circle", 250), ("circle", 1000), ("bars", 25), ("bars", 100)]
    columns += [("impulse", 250), ("impulse", 1000)]
    rows = []
    for model in curves["circle"]:
        at = [(curves[name][model], curves["n"].index(n)) for name, n in columns]
        found = [[run["error"][k] for run in runs] for runs, k in at]
        shown = [f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}" for values in found]
        rows.append((model, *shown, str(len(at[0][0]))))
    return ("Model", *(f"{name} {n}" for name, n in columns), "Draws"), rows


def importances_table(stored):
    """Return the table of errors of the forests whose importances are drawn."""
    names = {kind: f"papers.manifold:as-printed/importances/{kind}-forest" for kind in KINDS}
    rows = [(kind, *cells.cells(stored, [name])) for kind, name in names.items()]
    return ("Forest", "Test error in %", "Command"), cells.filled(rows)


def errors_figure(stored):
    """Draw test errors in the simulations."""
    curves = stored.file("papers.manifold_simulations", "as-printed")
    return figures.learning_curves(curves, {"error": "test error in %"})


def times_figure(stored):
    """Draw times in the simulations."""
    curves = stored.file("papers.manifold_simulations", "as-printed")
    labels = {"fit": "seconds to train", "predict": "seconds to predict 10000 rows"}
    return figures.learning_curves(curves, labels)


def importances_figure(stored):
    """Draw importances of pixels: figure 3 of the paper."""
    return figures.importances(stored.file("papers.manifold_importances", "as-printed"))


GROUPS = (as_printed,)
OPTIONS = groups.SEEDS | {"--models": {"nargs": "*", "help": "some models, or importances, only"}}
TABLES = {"simulations": simulations_table, "manifold_importances": importances_table}
FIGURES = {
    "manifold_simulations": errors_figure,
    "manifold_simulations_times": times_figure,
    "manifold_importances": importances_figure,
}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
