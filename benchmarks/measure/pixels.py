"""Images pixel by pixel: the membranes of cells, from windows around their pixels.

    python -m benchmarks.measure.pixels GROUP [--data FOLDER] [--quick]

Forests are trained on windows of the first 25 images and label all pixels of the last 5. The
windows are those of random pixels, or of equally many pixels of each class; then, `prior` has the
frequencies of the classes in the training images, or is None.
"""

import time
import tracemalloc

import numpy as np
from sklearn.metrics import jaccard_score

from benchmarks.lib import cells, data, figures, groups, results
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.timing import interleave, ratios
from skforest import CO2ForestClassifier, ManifoldForestClassifier, windows_of

SIZE = 17  # height and width of a window
N_TEST = 5  # images
SHOWN = (slice(150, 350), slice(150, 350))  # part of the last image in the picture
MODELS = {
    "manifold": lambda **own: ManifoldForestClassifier(feature_shape=(SIZE, SIZE), **own),
    "co2": lambda **own: CO2ForestClassifier(**own),
}
TITLES = {"manifold": "manifold forest", "co2": "CO2 forest"}
# By name: whether both classes have equally many windows, and whether there is a prior.
SAMPLES = {"random": (False, False), "equal": (True, False), "prior": (True, True)}
SAMPLE_TITLES = {
    "random": "random pixels",
    "equal": "equal classes",
    "prior": "equal classes, with prior",
}
MEASURES = {
    "membranes/share": Measure("share of membrane pixels in the test images", "ratio"),
    "memory/rows": Measure("peak of arrays, image predicted row by row", "MiB", more=False),
    "memory/whole": Measure("peak of arrays, all windows at once", "MiB", more=False),
    "memory/time": Measure("time row by row over that of all windows at once", "x", more=False),
}
for model in MODELS:
    for sample in SAMPLES:
        name, what = f"membranes/{model}-{sample}", f"{TITLES[model]}, {SAMPLE_TITLES[sample]}"
        MEASURES[name] = Measure(f"mean Jaccard index, {what}", "ratio")
        MEASURES[f"{name}-error"] = Measure(f"wrong pixels, {what}", "%", more=False)
        MEASURES[f"{name}-share"] = Measure(f"predicted share of membranes, {what}", "ratio")


def membranes(options):
    """Jaccard indices of both classes, wrong pixels, and the predicted share of membranes."""
    images, labels = data.membrane_images(options.data)
    windows = windows_of(images, (1, SIZE, SIZE))[:, :, :, 0]
    train, test = labels[:-N_TEST], labels[-N_TEST:]
    yield Row("membranes/share", [1 - test.mean()])
    prior = [1 - train.mean(), train.mean()]
    last = slice(-1, None) if options.quick else slice(-N_TEST, None)
    n_trees, n_train = groups.pick(options, (30, 40_000), (3, 1000))
    shown = {}
    for model, make in MODELS.items():
        for sample, (is_equal, has_prior) in SAMPLES.items():
            found = []
            for seed in groups.seeds(options):
                own = {"n_estimators": n_trees, "prior": prior if has_prior else None}
                forest = make(**own, random_state=seed, n_jobs=options.n_jobs)
                at = _drawn(train, n_train, is_equal, seed)
                forest.fit(windows[at].reshape(n_train, -1), train[at])
                probability = np.stack([_predicted(forest, own) for own in windows[last]])
                found.append(_scores(labels[last], probability > 0.5))
                if seed == 0:
                    picture = results.packed(100 * probability[-1][SHOWN])
                    shown.setdefault(TITLES[model], {})[SAMPLE_TITLES[sample]] = picture
            scores = np.transpose(found).tolist()
            for suffix, values in zip(("", "-error", "-share"), scores, strict=True):
                yield Row(f"membranes/{model}-{sample}{suffix}", values)
    stored = {"image": images[-1][SHOWN], "labels": labels[-1][SHOWN]}
    stored = {name: results.packed(picture) for name, picture in stored.items()}
    results.write(options.results / "pixels_membranes.json", stored | {"models": shown})


def _drawn(labels, n, is_equal, seed):
    """Positions of n pixels, of all pixels or half of each class, as a tuple of arrays."""
    rng = np.random.default_rng(seed)
    if not is_equal:
        return tuple(rng.integers(length, size=n) for length in labels.shape)
    flat = labels.ravel()
    each = [np.flatnonzero(flat == label) for label in (0, 1)]
    chosen = np.concatenate([own[rng.integers(len(own), size=n // 2)] for own in each])
    return np.unravel_index(chosen, labels.shape)


def _predicted(forest, windows):
    """Probability of the inside of cells for the pixels of an image, row by row."""
    return np.stack([forest.predict_proba(row.reshape(len(row), -1))[:, 1] for row in windows])


def _scores(labels, found):
    """Mean Jaccard index of both classes over images, percent of wrong pixels, and the share."""
    pairs = zip(labels.reshape(len(labels), -1), found.reshape(len(labels), -1), strict=True)
    jaccard = [jaccard_score(truth, own, average="macro") for truth, own in pairs]
    return np.mean(jaccard), 100 * (labels != found).mean(), 1 - found.mean()


def memory(options):
    """Memory and time to predict an image row by row, and with all windows at once."""
    images, labels = data.membrane_images(options.data)
    windows = windows_of(images[0], SIZE)
    rng = np.random.default_rng(0)
    at = tuple(rng.integers(length, size=2000) for length in labels[0].shape)
    n_trees = groups.pick(options, 100, 2)
    forest = ManifoldForestClassifier(n_trees, feature_shape=(SIZE, SIZE), random_state=0)
    forest.fit(windows[at], labels[0][at])
    ways = {
        "rows": lambda: np.stack([forest.predict(row) for row in windows]),
        "whole": lambda: forest.predict(windows.reshape(-1, SIZE, SIZE)),
    }
    for name, predict in ways.items():
        tracemalloc.start()
        predict()
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        note = f"{windows.nbytes / 2**20:.1f} MiB in all windows"
        yield Row(f"memory/{name}", [peak], note)

    def seconds_of(predict):
        def measure(turn):
            start = time.process_time()
            predict()
            return time.process_time() - start

        return measure

    rounds = options.rounds or groups.pick(options, 5, 1)
    times = interleave({name: seconds_of(way) for name, way in ways.items()}, rounds)
    yield Row("memory/time", ratios(times["rows"], times["whole"]))


def table(stored):
    """Return the table of scores by model and sample."""
    rows = []
    for model in MODELS:
        for sample in SAMPLES:
            name = f"measure.pixels:membranes/{model}-{sample}"
            columns = cells.cells(stored, [name, f"{name}-error", f"{name}-share"])
            rows.append((f"{TITLES[model]}, {SAMPLE_TITLES[sample]}", *columns))
    head = "Mean Jaccard index", "Wrong pixels in %", "Membranes", "Command"
    return ("", *head), rows


def figure(stored):
    """Draw a part of a test image, its labels, and the probabilities of its pixels."""
    return figures.segmentations(stored.file("measure.pixels_membranes", "membranes"))


GROUPS = (membranes, memory)
OPTIONS = groups.SEEDS
TABLES = {"pixels": table}
FIGURES = {"pixels": figure}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
