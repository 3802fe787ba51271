"""Every figure of the manifold forest, each group of them by one command.

    python benchmarks/manifold.py GROUP [--data FOLDER] [--quick]

A group merges its rows into ``benchmarks/results/manifold.json``; the last command, ``table``,
writes them and the pictures into ``docs/performance``. ``--quick`` runs a group in seconds on a
small part of its data, to see that it works, and keeps its rows apart.

Times are wall-clock seconds on one thread. Rivals live in processes of their own and take turns,
and ratios are formed round by round. Two rivals want environments of their own::

    python3.11 -m venv treeple-env
    treeple-env/bin/pip install scikit-learn==1.6.1 treeple==0.10.3
    python3.11 -m venv ydf-env
    ydf-env/bin/pip install ydf==0.16.1

and are named by ``--treeple-python treeple-env/bin/python``, ``--ydf-python ydf-env/bin/python``.
"""

import argparse
import statistics
import sys
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import data
import figures
import joblib
import numpy as np
import race_tables
import results
from race import RANDOM_FOREST, Rival, fit, race, workers
from results import Bar, Row
from simulations import SIMULATIONS
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC
from timing import interleave, mean_sd, ratios

from skforest import ManifoldForestClassifier, ManifoldForestRegressor

FOLDER = Path(__file__).resolve().parent
SHAPE = (28, 28)
MNIST_MIB = 60_000 * 784 / 2**20

AXIS = "seconds a tree, axis projections, {}, RandomForest to ours"
SPARSE = "seconds a tree, sparse projections, {}, treeple ObliqueRandomForest to ours"
PATCH = "seconds a tree, patch sums 1..4, MNIST, {} to ours"
TABULAR = "make_classification 100000 x 50"
FIRST = "first predict after load, {}, 200000 x 30, 100 trees, RandomForest to ours"
OFF = ", vector instructions off"
ERROR = "error, {}, 100 trees"
RELATIVE = "error relative to RandomForest, {} tables, defaults"

BARS = {
    "speed-axis/mnist": Bar(AXIS.format("MNIST 60000 x 784"), "x", 4, 10),
    "speed-axis/mnist-plain": Bar(AXIS.format("MNIST 60000 x 784") + OFF, "x", 4, 10),
    "speed-axis/synthetic": Bar(AXIS.format(TABULAR), "x", 4, 10),
    "speed-axis/synthetic-plain": Bar(AXIS.format(TABULAR) + OFF, "x", 4, 10),
    "speed-patch/mnist": Bar(PATCH.format("RandomForest"), "x", 2, 8),
    "speed-patch/treeple": Bar(PATCH.format("treeple PatchObliqueRandomForest"), "x"),
    "speed-sparse/mnist": Bar(SPARSE.format("MNIST 60000 x 784"), "x", 8, 20),
    "speed-sparse/synthetic": Bar(SPARSE.format(TABULAR), "x", 8, 20),
    "mnist/60000": Bar(ERROR.format("MNIST 60000, defaults"), "%", 2.8, 2.5, more=False),
    "mnist/10000": Bar(ERROR.format("MNIST, first 10000 rows"), "%", 4.1, 3.8, more=False),
    "simulations/circle-250": Bar(ERROR.format("circle, 250 rows"), "%", 7, more=False),
    "simulations/circle-1000": Bar(ERROR.format("circle, 1000 rows"), "%", 4, more=False),
    "simulations/bars-25": Bar(ERROR.format("bars, 25 rows"), "%", 11, more=False),
    "predict/one-row": Bar("predict of one row, 100 trees, RandomForest to ours", "x", 20),
    "predict/one-row-time": Bar("predict of one row, 100 trees", "us", None, 100, more=False),
    "predict/10000-rows": Bar(
        "predict of 10000 rows, MNIST, 100 trees, RandomForest to ours", "x", 3
    ),
    "predict/10000-rows-ydf": Bar(
        "predict of 10000 rows, MNIST, 100 trees, Yggdrasil (ydf) to ours", "x", None, 1
    ),
    "first-predict/one-row": Bar(FIRST.format("one row"), "x", 1),
    "first-predict/10000-rows": Bar(FIRST.format("10000 rows"), "x", 1),
    "size/mnist": Bar("pickled size, MNIST, 100 trees, RandomForest to ours", "x", 5, 15),
    "threads/mnist": Bar("fit of 16 trees, MNIST, 1 thread to 2", "x", 1.7, 1.95),
    "memory/mnist": Bar(
        "peak memory of fit beyond X, MNIST, 100 trees, 2 threads",
        "MiB",
        MNIST_MIB + 64,
        more=False,
    ),
    "tables/all": Bar(RELATIVE.format("32"), "ratio", 0.97, 0.92, more=False),
    "tables/classification": Bar(RELATIVE.format("22 classification"), "ratio", more=False),
    "tables/regression": Bar(RELATIVE.format("10 regression"), "ratio", more=False),
    "tables/fit": Bar("fit time relative to RandomForest, 32 tables", "ratio", more=False),
    "bits/same": Bar(
        "same bits for n_jobs 1, 2, 4, threading and loky, predict in blocks of 1, 7, all rows",
        "yes",
        1,
    ),
}


def manifold(**parameters):
    """Our classifier as a rival, on the data as they are."""
    return Rival("skforest.ManifoldForestClassifier", parameters)


def speed(name, ours, theirs):
    """Turn a race into a row: seconds a tree of theirs over ours."""
    times, errors = (
        [[answer[key] for answer in answers] for answers in (ours, theirs)]
        for key in ("tree", "error")
    )
    note = (
        f"{1000 * statistics.median(times[0]):.1f} against "
        f"{1000 * statistics.median(times[1]):.1f} ms a tree; "
        f"error {mean_sd(errors[0])} against {mean_sd(errors[1])} %"
    )
    rival = theirs[0]["versions"] if "treeple" in theirs[0]["versions"] else None
    return Row(name, ratios(times[1], times[0]), note, rival)


def speed_axis(options):
    """Axis projections against RandomForest, with the vector instructions on and off."""
    ours = manifold(projection="axis", max_features="sqrt")
    rivals = {
        "RandomForest": RANDOM_FOREST,
        "": ours,
        "-plain": replace(ours, environment={"SKFOREST_SIMD": "0"}),
    }
    for name, split in (("mnist", _mnist(options)), ("synthetic", _synthetic(options))):
        answers = race(split, rivals, options.rounds or 5, _pick(options, 10, 2))
        for suffix in ("", "-plain"):
            yield speed(f"speed-axis/{name}{suffix}", answers[suffix], answers["RandomForest"])


def speed_patch(options):
    """Patch sums against RandomForest, and against treeple where it is there."""
    patch = {"min_patch": 1, "max_patch": 4, "max_features": "sqrt"}
    rivals = {
        "skforest": manifold(projection="patch", contrast="sum", feature_shape=SHAPE, **patch),
        "mnist": RANDOM_FOREST,
    }
    if options.treeple_python:
        rivals["treeple"] = Rival(
            "treeple.ensemble.PatchObliqueRandomForestClassifier",
            {"data_dims": SHAPE, "min_patch_dims": (1, 1), "max_patch_dims": (4, 4)},
            "float32",
            options.treeple_python,
        )
    answers = race(_mnist(options), rivals, options.rounds or 5, _pick(options, 10, 2))
    for name in list(rivals)[1:]:
        yield speed(f"speed-patch/{name}", answers["skforest"], answers[name])


def speed_sparse(options):
    """Sparse projections against treeple's oblique forest: signs, three of them, sqrt(p) times."""
    if not options.treeple_python:
        sys.exit("speed-sparse needs --treeple-python, see the head of this file")
    rivals = {
        "skforest": manifold(
            projection="sparse", sparse_weights="sign", n_nonzeros=3.0, max_features="sqrt"
        ),
        "treeple": Rival(
            "treeple.ensemble.ObliqueRandomForestClassifier",
            {"max_features": "sqrt", "feature_combinations": 3.0},
            "float32",
            options.treeple_python,
        ),
    }
    for name, split in (("mnist", _mnist(options)), ("synthetic", _synthetic(options))):
        answers = race(split, rivals, options.rounds or 5, _pick(options, 5, 2))
        yield speed(f"speed-sparse/{name}", answers["skforest"], answers["treeple"])


def mnist(options):
    """Accuracy on MNIST: all rows with the defaults, the first 10000 with every contrast.

    Few rows want more candidates than the default: 4 sqrt(p) were better out of bag.
    """
    split = _mnist(options)
    seeds = range(options.rounds or 3)
    trees = _pick(options, 100, 5)

    def fitted(part, seed, **parameters):
        model = ManifoldForestClassifier(
            trees, feature_shape=SHAPE, random_state=seed, n_jobs=options.n_jobs, **parameters
        )
        return model.fit(part.X_train, part.y_train)

    errors = [_error(fitted(split, seed), split) for seed in seeds]
    yield Row("mnist/60000", errors, f"{mean_sd(errors)} %")

    part = split.head(10_000)
    errors, scores = {}, {}
    for contrast in ("sum", "edge", "difference", "mix"):
        choice = {"contrast": contrast, "max_features": 4 * 28, "oob_score": True}
        models = [fitted(part, seed, **choice) for seed in seeds]
        errors[contrast] = [_error(model, part) for model in models]
        scores[contrast] = statistics.fmean(model.oob_score_ for model in models)
    best = max(scores, key=scores.get)
    note = ", ".join(f"{contrast} {mean_sd(values)} %" for contrast, values in errors.items())
    yield Row(
        "mnist/10000", errors[best], f"112 candidates; {best} by the out-of-bag score; {note}"
    )


def simulations(options):
    """Error against the number of training rows in the three simulations of the paper."""
    sizes = _pick(options, [10, 25, 50, 100, 250, 500, 1000, 2000], [10, 25])
    repeats = range(options.rounds or 10)
    jobs = [(name, repeat) for name in SIMULATIONS for repeat in repeats]
    trees, n_test = _pick(options, (100, 10_000), (5, 200))
    curves = joblib.Parallel(options.n_jobs)(
        joblib.delayed(_learning_curves)(*job, sizes, trees, n_test) for job in jobs
    )
    stored = {"n": sizes}
    for name in SIMULATIONS:
        mine = [curve for job, curve in zip(jobs, curves, strict=True) if job[0] == name]
        stored[name] = {model: [curve[model] for curve in mine] for model in mine[0]}
    results.write(options.results / "manifold_simulations.json", stored)

    for name, n in (("circle", 250), ("circle", 1000), ("bars", 25)):
        if n in sizes:
            column = sizes.index(n)
            errors = {model: [c[column] for c in runs] for model, runs in stored[name].items()}
            note = ", ".join(f"{model} {mean_sd(values)}" for model, values in errors.items())
            yield Row(f"simulations/{name}-{n}", errors["patch forest"], note)


def _learning_curves(name, repeat, sizes, trees, n_test):
    """Errors in percent of every model on one draw of a simulation, for every training size."""
    simulation = SIMULATIONS[name]
    rng = np.random.default_rng([repeat, *name.encode()])
    X, y = simulation.draw(max(sizes), rng)
    X_test, y_test = simulation.draw(n_test, rng)
    curves = {}
    for model_name, model in _simulation_models(simulation, trees, repeat).items():
        curves[model_name] = []
        for n in sizes:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # solvers that stop before they converge
                model.fit(X[:n], y[:n])
            curves[model_name].append(_error(model, data.Split(X, y, X_test, y_test)))
    return curves


def _simulation_models(simulation, trees, seed):
    """Make the forests in the paper's setting, the others with scikit-learn's defaults.

    The k of kNN and the iterations of the MLP are those of the authors' notebooks.
    """
    forest = partial(
        ManifoldForestClassifier,
        trees,
        max_features=simulation.max_features,
        random_state=seed,
    )
    return {
        "axis forest": forest(projection="axis"),
        "sparse forest": forest(projection="sparse"),
        "patch forest": forest(
            projection="patch",
            contrast="sum",
            feature_shape=simulation.feature_shape,
            max_patch=simulation.max_patch,
            wrap=simulation.wrap,
        ),
        "RandomForest": RandomForestClassifier(trees, random_state=seed),
        "logistic regression": LogisticRegression(max_iter=1000),
        "RBF-SVM": SVC(),
        "kNN": KNeighborsClassifier(3),
        "MLP": MLPClassifier(max_iter=1000, random_state=seed),
    }


def predict(options):
    """Time of predict for one row and for 10000, against RandomForest and ydf."""
    rivals = {"skforest": manifold(feature_shape=SHAPE), "RandomForest": RANDOM_FOREST}
    if options.ydf_python:
        rivals["ydf"] = Rival("ydf", {}, "float32", options.ydf_python)
    split = _mnist(options)
    with workers(split, rivals) as running:
        for name, rival in rivals.items():
            fit(running[name], rival, _pick(options, 100, 5), 0)
        errors = {name: worker.ask("error") for name, worker in running.items()}
        rival = running["ydf"].ask("versions") if "ydf" in running else None

        def times(rows, calls):
            return interleave(
                {
                    name: lambda _, worker=worker: worker.ask("predict", rows=rows, calls=calls)
                    for name, worker in running.items()
                },
                options.rounds or 7,
            )

        one, many = times(1, 100), times(len(split.X_test), 1)
    microseconds = {name: [1e6 * t for t in values] for name, values in one.items()}
    yield Row(
        "predict/one-row",
        ratios(one["RandomForest"], one["skforest"]),
        ", ".join(f"{k} {statistics.median(v):.0f} us" for k, v in microseconds.items()),
    )
    yield Row("predict/one-row-time", microseconds["skforest"])
    note = ", ".join(
        f"{name} {1e6 * statistics.median(values) / len(split.X_test):.2f} us a row, "
        f"error {errors[name]:.2f} %"
        for name, values in many.items()
    )
    yield Row("predict/10000-rows", ratios(many["RandomForest"], many["skforest"]), note)
    if "ydf" in many:
        yield Row("predict/10000-rows-ydf", ratios(many["ydf"], many["skforest"]), note, rival)


def first_predict(options):
    """Time of the first predict of a loaded forest of millions of nodes, against RandomForest."""
    split = data.synthetic(600, 30, n_test=200) if options.quick else data.synthetic(200_000, 30)
    n_jobs = {"n_jobs": options.n_jobs}
    rivals = {
        "skforest": manifold(**n_jobs),
        "RandomForest": replace(RANDOM_FOREST, parameters=n_jobs),
    }
    with workers(split, rivals) as running:
        for name, rival in rivals.items():
            fit(running[name], rival, _pick(options, 100, 5), 0)
        for label, rows in (("one-row", 1), ("10000-rows", 10_000)):
            times = interleave(
                {name: partial(_first_predict, w, rows) for name, w in running.items()},
                options.rounds or 7,
            )
            note = ", ".join(f"{k} {1e3 * statistics.median(v):.1f} ms" for k, v in times.items())
            ratio = ratios(times["RandomForest"], times["skforest"])
            yield Row(f"first-predict/{label}", ratio, note)


def _first_predict(worker, rows, turn):
    """Seconds that `worker.Bench.first_predict` measures, whatever the turn."""
    return worker.ask("first_predict", rows=rows)


def size(options):
    """Bytes of the pickled model against RandomForest, with the errors of both."""
    rivals = {"skforest": manifold(feature_shape=SHAPE), "RandomForest": RANDOM_FOREST}
    trees = _pick(options, 100, 5)
    answers = race(_mnist(options), rivals, options.rounds or 3, trees, ("error", "size"), False)
    sizes = {k: [answer["size"] for answer in v] for k, v in answers.items()}
    note = "; ".join(
        f"{name} {statistics.median(sizes[name]) / 2**20:.1f} MiB, "
        f"error {mean_sd([answer['error'] for answer in answers[name]])} %"
        for name in rivals
    )
    yield Row("size/mnist", ratios(sizes["RandomForest"], sizes["skforest"]), note)


def threads(options):
    """Fit of 16 trees on 2 threads against 1."""
    rivals = {n_jobs: manifold(feature_shape=SHAPE, n_jobs=n_jobs) for n_jobs in (1, 2)}
    answers = race(_mnist(options), rivals, options.rounds or 5, 16, ())
    times = {n_jobs: [answer["seconds"] for answer in v] for n_jobs, v in answers.items()}
    note = ", ".join(f"{n} thread(s) {statistics.median(v):.2f} s" for n, v in times.items())
    yield Row("threads/mnist", ratios(times[1], times[2]), note)


def memory(options):
    """Peak resident memory of fit beyond what the process held before, in fresh processes."""
    rivals = {
        "skforest": manifold(feature_shape=SHAPE, n_jobs=2),
        "RandomForest": replace(RANDOM_FOREST, parameters={"n_jobs": 2}, dtype=""),
    }
    split = _mnist(options)
    trees = _pick(options, 100, 5)
    peaks = {name: [] for name in rivals}
    for seed in range(options.rounds or 2):
        with workers(split, rivals) as running:
            for name, worker in running.items():
                answer = fit(worker, rivals[name], trees, seed)
                peaks[name].append(answer["memory"] / 2**20)
    note = ", ".join(f"{name} {statistics.median(v):.0f} MiB" for name, v in peaks.items())
    yield Row("memory/mnist", peaks["skforest"], f"{note}; X is {MNIST_MIB:.1f} MiB as uint8")


def tables(options):
    """Error and fit time relative to RandomForest on 22 classification and 10 regression sets."""
    names = {
        "classification": _pick(options, data.CLASSIFICATION, ["vowel", "pima"]),
        "regression": _pick(options, data.REGRESSION, ["reg_airfoil"]),
    }
    ours = {"classification": ManifoldForestClassifier, "regression": ManifoldForestRegressor}
    rows = race_tables.run(names, ours, options, _pick(options, 100, 5))
    results.write(options.results / "manifold_tables.json", rows)
    yield from race_tables.summary(rows, names)


def bits(options):
    """Whether fit and predict return the same bits however the work is shared out."""
    rows = _pick(options, (3000, 500), (300, 50))
    tabular = data.synthetic(rows[0], n_test=rows[1])
    cases = {
        "patch": (_mnist(options).head(*rows), {"feature_shape": SHAPE, "contrast": "mix"}),
        "axis": (tabular, {}),
        "sparse": (tabular, {}),
    }
    if options.quick:
        del cases["axis"], cases["sparse"]
    differing = []
    for projection, (split, parameters) in cases.items():
        X = split.X_test
        seen = {}
        for backend in ("threading", "loky"):
            for n_jobs in (1, 2, 4):
                model = ManifoldForestClassifier(
                    12, projection=projection, n_jobs=n_jobs, random_state=0, **parameters
                )
                with joblib.parallel_config(backend):
                    model.fit(split.X_train, split.y_train)
                    seen[f"fit, {backend}, {n_jobs} jobs"] = joblib.hash(model.forest_)
                    p = model.predict_proba(X)
                seen[f"predict, {backend}, {n_jobs} jobs"] = p.tobytes()
        for block in (1, 7):
            parts = [model.predict_proba(X[i : i + block]) for i in range(0, len(X), block)]
            seen[f"predict, blocks of {block}"] = np.concatenate(parts).tobytes()
        for kind in ("fit", "predict"):
            mine = {key: value for key, value in seen.items() if key.startswith(kind)}
            first = next(iter(mine.values()))
            differing += [f"{projection} {k}" for k, value in mine.items() if value != first]
    yield Row("bits/same", [float(not differing)], "; ".join(differing))


def table(options):
    """Write the table and the pictures of all stored rows into the documentation."""
    output = options.results if options.quick else FOLDER.parent / "docs" / "performance"
    output.mkdir(parents=True, exist_ok=True)
    stored = results.read(options.results / "manifold.json")
    lines = results.list_table([stored[name] for name in BARS if name in stored])
    (output / "manifold.inc").write_text("\n".join(lines) + "\n")
    if curves := results.read(options.results / "manifold_simulations.json"):
        figures.learning_curves(curves, output / "manifold_simulations.png")
    if rows := results.read(options.results / "manifold_tables.json"):
        relative = {name: race_tables.relative(runs) for name, runs in rows.items()}
        figures.relative_errors(relative, data.REGRESSION, output / "manifold_tables.png")
    return ()


def _mnist(options):
    split = data.load("mnist", options.data)
    return split.head(600, 200) if options.quick else split


def _synthetic(options):
    return data.synthetic(600, n_test=200) if options.quick else data.synthetic()


def _pick(options, full, quick):
    return quick if options.quick else full


def _error(model, split):
    """Percent of wrong labels, or 100 (1 - R2): one minus the estimator's own score."""
    return 100 * (1 - model.score(split.X_test, split.y_test))


GROUPS = [
    *(speed_axis, speed_patch, speed_sparse, mnist, simulations, predict),
    *(first_predict, size, threads, memory, tables, bits, table),
]
PEERS = {speed_patch: "treeple", speed_sparse: "treeple", predict: "ydf"}


def parse(arguments=None):
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--data", help="folder of .npz files, else SKFOREST_DATA, else OpenML")
    common.add_argument("--results", type=Path, default=FOLDER / "results", help="where JSON goes")
    common.add_argument("--quick", action="store_true", help="smoke run on small data")
    common.add_argument("--rounds", type=int, help="repeats, other than the group's own number")
    common.add_argument("--n-jobs", type=int, default=1, help="for what is not timed")
    groups = parser.add_subparsers(dest="group", required=True, metavar="GROUP")
    for function in GROUPS:
        name, head = function.__name__.replace("_", "-"), function.__doc__.splitlines()[0]
        group = groups.add_parser(name, help=head, description=head, parents=[common])
        group.set_defaults(function=function)
        if peer := PEERS.get(function):
            group.add_argument(f"--{peer}-python", help=f"interpreter that has {peer}")
    options = parser.parse_args(arguments)
    options.command = _command(options)
    if options.quick:
        options.results = options.results / "quick"
        options.rounds = options.rounds or 2
    return options


def _command(options):
    """Return the command that repeats a run, without the places of this machine."""
    parts = ["python benchmarks/manifold.py", options.group]
    if options.rounds:
        parts.append(f"--rounds {options.rounds}")
    peer = PEERS.get(options.function)
    if peer and getattr(options, f"{peer}_python"):
        parts.append(f"--{peer}-python PYTHON")
    return " ".join(parts)


def main():
    """Run one group and store its rows."""
    options = parse()
    for row in options.function(options):
        path = options.results / "manifold.json"
        stored = results.add(path, row, BARS[row.name], options.command)
        wanted = results.wanted(stored, "bar") or "no bar"
        print(f"{row.name}: {results.show(stored['value'], stored['unit'])} ({wanted}) {row.note}")


if __name__ == "__main__":
    main()
