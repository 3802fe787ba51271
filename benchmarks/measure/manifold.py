"""Measurements of the manifold forest: times beside other libraries, errors, sizes.

    python -m benchmarks.measure.manifold GROUP [--data FOLDER] [--quick]

Times are wall-clock seconds on one thread. Competing libraries run in processes of their own and
take turns, and ratios are formed round by round. Two of them need environments of their own::

    python3.11 -m venv treeple-env
    treeple-env/bin/pip install scikit-learn==1.6.1 treeple==0.10.3
    python3.11 -m venv ydf-env
    ydf-env/bin/pip install ydf==0.16.1

which ``--treeple-python treeple-env/bin/python`` and ``--ydf-python ydf-env/bin/python`` name.
"""

import statistics
import sys
from dataclasses import replace
from functools import partial

import joblib
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.image import grid_to_graph

from benchmarks.lib import cells, data, groups, simulations
from benchmarks.lib.groups import pick
from benchmarks.lib.race import RANDOM_FOREST, Rival, fit, race, workers
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.simulations import SIMULATIONS
from benchmarks.lib.timing import interleave, mean_sd, ratios
from benchmarks.papers.manifold import ERROR, SHAPE, error
from skforest import ManifoldForestClassifier, ManifoldProcedure

CONTRASTS = "sum", "edge", "difference", "mix"
PROCEDURE = {"class": "skforest.ManifoldProcedure"}  # in a process of its own
# Images and signals on which contrasts are compared, and their shapes.
IMAGES_AND_SIGNALS = (
    data.SHAPES
    | {"membranes": (9, 9)}
    | {name: simulation.feature_shape for name, simulation in SIMULATIONS.items()}
)
# Images, simulations whose features lie on no line and in no plane, and layouts of both.
SENSORS = {"feature_shape": (6, 60), "unordered": (True, False)}
LAYOUTS = {
    "mnist": {
        "patches on the grid": {"feature_shape": SHAPE},
        "patches on the graph of the grid": {"feature_graph": grid_to_graph(*SHAPE)},
    },
    "sphere": {
        "patches on the mesh": {"feature_graph": simulations.mesh(simulations.vertices())},
        "patches along the columns": {"feature_shape": 500},
    },
    "volume": {
        "patches in three dimensions": {"feature_shape": (12, 12, 12)},
        "patches along the columns": {"feature_shape": 12**3},
    },
    "sensors": {
        "patches of sensors and time": SENSORS,
        "patches of one sensor, up to 16 times": SENSORS
        | {"procedure": ManifoldProcedure(max_patch=(1, 16))},
        "patches along the columns": {"feature_shape": 360},
    },
}
OTHERS = "sparse mixtures", "RandomForest"  # these know no layout
MODELS = {name: [*layouts, *OTHERS] for name, layouts in LAYOUTS.items()}
N_ROWS = 200, 1000  # of training
# Series, and boxes along time.
SERIES = "ucr_ecg5000", "ucr_gunpoint", "ucr_swedishleaf", "impulse"
BOXES = "boxes", "balls", "dilated balls", "boxes, and of differences"
MNIST_MIB = 60_000 * 784 / 2**20
AXIS = "fit time of a tree, single features, {}, RandomForest over ours"
SPARSE = "fit time of a tree, sparse projections, {}, treeple ObliqueRandomForest over ours"
PATCH = "fit time of a tree, patch sums 1..4, MNIST, {} over ours"
TABULAR = "make_classification 100000 x 50"
FIRST = "first predict after load, {}, 200000 x 30, 100 trees, RandomForest over ours"
OFF = ", vector instructions off"
MEASURES = {
    "speed-axis/mnist": Measure(AXIS.format("MNIST 60000 x 784"), "x"),
    "speed-axis/mnist-plain": Measure(AXIS.format("MNIST 60000 x 784") + OFF, "x"),
    "speed-axis/synthetic": Measure(AXIS.format(TABULAR), "x"),
    "speed-axis/synthetic-plain": Measure(AXIS.format(TABULAR) + OFF, "x"),
    "speed-patch/mnist": Measure(PATCH.format("RandomForest"), "x"),
    "speed-patch/treeple": Measure(PATCH.format("treeple PatchObliqueRandomForest"), "x"),
    "speed-sparse/mnist": Measure(SPARSE.format("MNIST 60000 x 784"), "x"),
    "speed-sparse/synthetic": Measure(SPARSE.format(TABULAR), "x"),
    "mnist/60000": Measure(ERROR.format("MNIST 60000, defaults"), "%", more=False),
    "mnist/10000": Measure(ERROR.format("MNIST, first 10000 rows"), "%", more=False),
    **{
        f"contrasts/{name}/{contrast}": Measure(
            f"out-of-bag error, {name}, contrast {contrast}", "%", more=False
        )
        for name in IMAGES_AND_SIGNALS
        for contrast in CONTRASTS
    },
    **{
        f"layouts/{name}/{model}/{n}": Measure(
            f"error, {name}, {n} rows, {model}", "%", more=False
        )
        for name, models in MODELS.items()
        for model in models
        for n in N_ROWS
    },
    **{
        f"series/{name}/{kind}": Measure(f"out-of-bag error, {name}, {kind}", "%", more=False)
        for name in SERIES
        for kind in BOXES
    },
    "predict/one-row": Measure("predict of one row, 100 trees, RandomForest over ours", "x"),
    "predict/one-row-time": Measure("predict of one row, 100 trees", "us", more=False),
    "predict/10000-rows": Measure(
        "predict of 10000 rows, MNIST, 100 trees, RandomForest over ours", "x"
    ),
    "predict/10000-rows-ydf": Measure(
        "predict of 10000 rows, MNIST, 100 trees, Yggdrasil (ydf) over ours", "x"
    ),
    "first-predict/one-row": Measure(FIRST.format("one row"), "x"),
    "first-predict/10000-rows": Measure(FIRST.format("10000 rows"), "x"),
    "size/mnist": Measure("pickled size, MNIST, 100 trees, RandomForest over ours", "x"),
    "threads/mnist": Measure("fit of 16 trees, MNIST, time with 1 thread over 2", "x"),
    "memory/mnist": Measure(
        "peak memory of fit without X, MNIST, 100 trees, 2 threads", "MiB", more=False
    ),
    "bits/same": Measure(
        "same bits for n_jobs 1, 2, 4, threading and loky, predict in blocks of 1, 7, all rows",
        "yes",
    ),
}


def manifold(**parameters):
    """Our classifier, in a process of its own, on the data without conversion.

    Parameters are sent as JSON; those of the procedure are a dict, see `worker.Bench.fit`.
    """
    return Rival("skforest.ManifoldForestClassifier", parameters)


def speed(name, ours, theirs):
    """Return the row of their seconds for one tree, divided by ours."""
    times, errors = (
        [[run[key] for run in runs] for runs in (ours, theirs)] for key in ("tree", "error")
    )
    note = (
        f"{1000 * statistics.median(times[0]):.1f} against "
        f"{1000 * statistics.median(times[1]):.1f} ms a tree; "
        f"error {mean_sd(errors[0])} against {mean_sd(errors[1])} %"
    )
    rival = theirs[0]["versions"] if "treeple" in theirs[0]["versions"] else None
    return Row(name, ratios(times[1], times[0]), note, rival)


def speed_axis(options):
    """Fit time with single features and of RandomForest, with vector instructions on and off."""
    ours = manifold(projection="axis", max_features="sqrt")
    rivals = {
        "RandomForest": RANDOM_FOREST,
        "": ours,
        "-plain": replace(ours, environment={"SKFOREST_SIMD": "0"}),
    }
    for name, split in _speed_sets(options).items():
        runs = race(split, rivals, options.rounds or 5, pick(options, 10, 2))
        for suffix in ("", "-plain"):
            yield speed(f"speed-axis/{name}{suffix}", runs[suffix], runs["RandomForest"])


def speed_patch(options):
    """Fit time with patch sums and of RandomForest, and of treeple where it is installed."""
    patch = PROCEDURE | {"contrast": "sum", "min_patch": 1, "max_patch": 4}
    rivals = {
        "skforest": manifold(
            projection="patch", feature_shape=SHAPE, max_features="sqrt", procedure=patch
        ),
        "mnist": RANDOM_FOREST,
    }
    if options.treeple_python:
        rivals["treeple"] = Rival(
            "treeple.ensemble.PatchObliqueRandomForestClassifier",
            {"data_dims": SHAPE, "min_patch_dims": (1, 1), "max_patch_dims": (4, 4)},
            "float32",
            options.treeple_python,
        )
    runs = race(_mnist(options), rivals, options.rounds or 5, pick(options, 10, 2))
    for name in list(rivals)[1:]:
        yield speed(f"speed-patch/{name}", runs["skforest"], runs[name])


def speed_sparse(options):
    """Fit time with sparse projections and of treeple: sqrt(p) of three random signs each."""
    if not options.treeple_python:
        sys.exit("speed-sparse needs --treeple-python, see the docstring of this file")
    signs = PROCEDURE | {"sparse_weights": "sign", "n_nonzeros": 3.0}
    rivals = {
        "skforest": manifold(projection="sparse", max_features="sqrt", procedure=signs),
        "treeple": Rival(
            "treeple.ensemble.ObliqueRandomForestClassifier",
            {"max_features": "sqrt", "feature_combinations": 3.0},
            "float32",
            options.treeple_python,
        ),
    }
    for name, split in _speed_sets(options).items():
        runs = race(split, rivals, options.rounds or 5, pick(options, 5, 2))
        yield speed(f"speed-sparse/{name}", runs["skforest"], runs["treeple"])


def mnist(options):
    """Error on MNIST: all rows with the default settings, the first 10000 with each contrast.

    With 10000 rows, 4 sqrt(p) candidates had a smaller out-of-bag error than the default.
    """
    split = _mnist(options)
    seeds = groups.seeds(options)
    trees = pick(options, 100, 5)

    def fitted(part, seed, **parameters):
        model = ManifoldForestClassifier(
            trees, feature_shape=SHAPE, random_state=seed, n_jobs=options.n_jobs, **parameters
        )
        return model.fit(part.X_train, part.y_train)

    errors = [error(fitted(split, seed), split) for seed in seeds]
    yield Row("mnist/60000", errors, f"{mean_sd(errors)} %")

    part = split.head(10_000)
    errors, scores = {}, {}
    for contrast in CONTRASTS:
        choice = {"max_features": 4 * 28, "oob_score": True}
        choice["procedure"] = ManifoldProcedure(contrast=contrast)
        models = [fitted(part, seed, **choice) for seed in seeds]
        errors[contrast] = [error(model, part) for model in models]
        scores[contrast] = statistics.fmean(model.oob_score_ for model in models)
    best = max(scores, key=scores.get)
    note = ", ".join(f"{contrast} {mean_sd(values)} %" for contrast, values in errors.items())
    yield Row(
        "mnist/10000", errors[best], f"112 candidates; {best} by the out-of-bag score; {note}"
    )


def contrasts(options):
    """Out-of-bag error with each contrast, which has chosen the default; no test rows are used."""
    for name, shape in IMAGES_AND_SIGNALS.items():
        if name in SIMULATIONS:
            X, y = SIMULATIONS[name].draw(500, np.random.default_rng(0))
        elif name == "membranes":
            split = data.membranes(options.data, n_train=4000)
            X, y = split.X_train, split.y_train
        else:
            split = groups.load(name, options).head(10_000)
            X, y = split.X_train, split.y_train
        X, y = (part[: pick(options, len(X), 100)] for part in (X, y))
        wrap = name in SIMULATIONS and SIMULATIONS[name].wrap
        for contrast in CONTRASTS:
            errors = []
            for seed in groups.seeds(options):
                model = ManifoldForestClassifier(
                    pick(options, 100, 20),
                    feature_shape=shape,
                    wrap=wrap,
                    n_jobs=options.n_jobs,
                    oob_score=True,
                    random_state=seed,
                    procedure=ManifoldProcedure(contrast=contrast),
                )
                errors.append(100 * (1 - model.fit(X, y).oob_score_))
            yield Row(f"contrasts/{name}/{contrast}", errors, f"{len(X)} rows")


def layouts(options):
    """Error on images, a mesh, in a volume and of sensors, with and without their layout."""
    for name, own in LAYOUTS.items():
        for n in N_ROWS:
            errors = {model: [] for model in MODELS[name]}
            for seed in groups.seeds(options, 5):
                split = _split(name, n, seed, options)
                for model, values in errors.items():
                    forest = _with_layout(model, own, pick(options, 100, 5), seed)
                    values.append(error(forest.fit(split.X_train, split.y_train), split))
            for model, values in errors.items():
                yield Row(f"layouts/{name}/{model}/{n}", values, f"{mean_sd(values)} %")


def _split(name, n, seed, options):
    """Training rows, n of them, and test rows of an entry of `LAYOUTS`."""
    if name == "mnist":
        return _mnist(options).head(n)
    rng, draw = np.random.default_rng([seed, n]), getattr(simulations, name)
    rows = draw(pick(options, n, 40), rng), draw(pick(options, 2000, 100), rng)
    return data.Split(*rows[0], *rows[1])


def _with_layout(model, layouts, trees, seed):
    """A forest of `MODELS` with the default parameters."""
    if model == "RandomForest":
        return RandomForestClassifier(trees, random_state=seed)
    return ManifoldForestClassifier(trees, random_state=seed, **layouts.get(model, {}))


def series(options):
    """Out-of-bag error with boxes along time, dilated ones, and boxes of differences.

    A dilated ball is one of the graph in which a time is next to the one 1, 2 or 4 steps later.
    """
    trees = pick(options, 50, 20)
    for name in SERIES:
        if name in SIMULATIONS:
            X, y = SIMULATIONS[name].draw(pick(options, 500, 100), np.random.default_rng(0))
        else:
            split = groups.load(name, options)
            X, y = split.X_train, split.y_train
        n = X.shape[1]
        both = np.concatenate([X, np.diff(X, axis=1, prepend=X[:, :1])], axis=1)
        kinds = {
            "boxes": [(X, {"feature_shape": n})] * 3,
            "balls": [(X, {"feature_graph": _chain(n, 1)})] * 3,
            "dilated balls": [(X, {"feature_graph": _chain(n, d)}) for d in (1, 2, 4)],
            "boxes, and of differences": [
                (both, {"feature_shape": (2, n), "unordered": (True, False)})
            ]
            * 3,
        }
        for kind, parts in kinds.items():
            errors = []
            for seed in groups.seeds(options, 5):
                total = 0
                for k, (rows, layout) in enumerate(parts):
                    model = ManifoldForestClassifier(
                        trees, oob_score=True, random_state=100 * seed + k, **layout
                    )
                    total = total + np.nan_to_num(model.fit(rows, y).oob_decision_function_)
                errors.append(100 * np.mean(model.classes_[total.argmax(axis=1)] != y))
            yield Row(f"series/{name}/{kind}", errors, f"{mean_sd(errors)} %")


def _chain(n, step):
    """Adjacency matrix of times that are some steps apart."""
    return np.eye(n, k=step) + np.eye(n, k=-step)


def predict(options):
    """Time to predict one row and 10000 rows, and that of RandomForest and ydf."""
    rivals = {"skforest": manifold(feature_shape=SHAPE), "RandomForest": RANDOM_FOREST}
    if options.ydf_python:
        rivals["ydf"] = Rival("ydf", {}, "float32", options.ydf_python)
    split = _mnist(options)
    with workers(split, rivals) as running:
        for name, rival in rivals.items():
            fit(running[name], rival, pick(options, 100, 5), 0)
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
            fit(running[name], rival, pick(options, 100, 5), 0)
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
    """Size of the pickled model and of a pickled RandomForest, with the errors of both."""
    rivals = {"skforest": manifold(feature_shape=SHAPE), "RandomForest": RANDOM_FOREST}
    trees = pick(options, 100, 5)
    runs = race(_mnist(options), rivals, options.rounds or 3, trees, ("error", "size"), False)
    sizes = {k: [run["size"] for run in v] for k, v in runs.items()}
    note = "; ".join(
        f"{name} {statistics.median(sizes[name]) / 2**20:.1f} MiB, "
        f"error {mean_sd([run['error'] for run in runs[name]])} %"
        for name in rivals
    )
    yield Row("size/mnist", ratios(sizes["RandomForest"], sizes["skforest"]), note)


def threads(options):
    """Fit time of 16 trees with one and with two threads."""
    rivals = {n_jobs: manifold(feature_shape=SHAPE, n_jobs=n_jobs) for n_jobs in (1, 2)}
    runs = race(_mnist(options), rivals, options.rounds or 5, 16, ())
    times = {n_jobs: [run["seconds"] for run in v] for n_jobs, v in runs.items()}
    note = ", ".join(f"{n} thread(s) {statistics.median(v):.2f} s" for n, v in times.items())
    yield Row("threads/mnist", ratios(times[1], times[2]), note)


def memory(options):
    """Resident memory that fit adds to a new process at its peak."""
    rivals = {
        "skforest": manifold(feature_shape=SHAPE, n_jobs=2),
        "RandomForest": replace(RANDOM_FOREST, parameters={"n_jobs": 2}, dtype=""),
    }
    split = _mnist(options)
    trees = pick(options, 100, 5)
    peaks = {name: [] for name in rivals}
    for seed in groups.seeds(options, 2):
        with workers(split, rivals) as running:
            for name, worker in running.items():
                run = fit(worker, rivals[name], trees, seed)
                peaks[name].append(run["memory"] / 2**20)
    note = ", ".join(f"{name} {statistics.median(v):.0f} MiB" for name, v in peaks.items())
    yield Row("memory/mnist", peaks["skforest"], f"{note}; X is {MNIST_MIB:.1f} MiB as uint8")


def bits(options):
    """Whether fit and predict return the same bits for all ways to parallelize them."""
    rows = pick(options, (3000, 500), (300, 50))
    tabular = data.synthetic(rows[0], n_test=rows[1])
    cases = {
        "patch": (_mnist(options).head(*rows), {"feature_shape": SHAPE}),
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


def _mnist(options):
    return groups.load("mnist", options)


def _speed_sets(options):
    synthetic = data.synthetic(600, n_test=200) if options.quick else data.synthetic()
    return {"mnist": _mnist(options), "synthetic": synthetic}


def table(stored):
    """Return the table of all measurements but those of contrasts."""
    others = set(GROUPS) - {contrasts, layouts, series}
    found = stored.of("measure.manifold", *map(groups.name_of, others))
    rows = [(row["what"], *cells.measured(row)) for row in found.values()]
    return ("What", "Measured (least, most)", "Details", "Command"), rows


def contrasts_table(stored):
    """Return the table of out-of-bag errors by contrast."""
    columns = [(contrast,) for contrast in CONTRASTS]
    form = "measure.manifold:contrasts/{}/{}"
    rows = cells.pivot(stored, IMAGES_AND_SIGNALS, columns, form)
    return ("", *CONTRASTS, "Command"), [(cells.TITLES[name], *row) for name, *row in rows]


def layouts_table(stored):
    """Return the table of errors with and without the layout of the features."""
    rows = [
        (cells.TITLES[name], model, *cells.cells(stored, [
            f"measure.manifold:layouts/{name}/{model}/{n}" for n in N_ROWS
        ]))
        for name, models in MODELS.items()
        for model in models
    ]  # fmt: skip
    return ("", "Forest", *(f"{n} rows" for n in N_ROWS), "Command"), rows


def series_table(stored):
    """Return the table of out-of-bag errors by the boxes along time."""
    columns = [(kind,) for kind in BOXES]
    rows = cells.pivot(stored, SERIES, columns, "measure.manifold:series/{}/{}")
    return ("", *BOXES, "Command"), [(cells.TITLES[name], *row) for name, *row in rows]


GROUPS = (speed_axis, speed_patch, speed_sparse, mnist, contrasts, layouts, series, predict)
GROUPS += (first_predict, size, threads, memory, bits)
OPTIONS = groups.SEEDS | {
    "--treeple-python": {"help": "interpreter that has treeple"},
    "--ydf-python": {"help": "interpreter that has ydf"},
}
TABLES = {
    "manifold": table,
    "manifold_contrasts": contrasts_table,
    "manifold_layouts": layouts_table,
    "manifold_series": series_table,
}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
