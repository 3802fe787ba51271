"""Tables and pictures of the documentation, from the stored rows.

    python benchmarks/performance.py

writes ``docs/performance/*.inc`` and the pictures beside them, and prints the table of the
comparison with other libraries as Markdown. It measures nothing.
"""

import json
import re
from functools import partial
from pathlib import Path

import choose
import co2
import compare
import data
import endtoend
import figures
import hinge
import hyperplanes
import manifold
import models
import nongreedy
import numpy as np
import peers
import results
import tables

FOLDER = Path(__file__).resolve().parent
TITLES = {
    "letter": "Letter",
    "letter_libsvm": "Letter LIBSVM",
    "usps": "USPS",
    "pendigits": "Pendigits",
    "satimage": "SatImage",
    "mnist": "MNIST",
    "connect4": "Connect4",
    "protein": "Protein",
    "sensit": "SensIT",
    "covertype": "Covertype",
    "madelon": "Madelon",
    "membranes": "Membranes",
    "circle": "Circle",
    "bars": "Bars",
    "impulse": "Impulse",
    "ucr_ecg5000": "ECG5000",
    "ucr_gunpoint": "GunPoint",
    "ucr_swedishleaf": "SwedishLeaf",
}
# Comparisons on tables that have a file of results of their own, and these tables.
OTHER_TABLES = {"peers_unseen": compare.UNSEEN, "peers_large": compare.LARGE}
# Names of stored rows.
LINEAR_START, DEPTH = "boosting:linear-start/", "boosting:depth/"
RATE, BOXES = "boosting:rate/", "boosting:boxes/"
SCRIPTS = (
    "manifold",
    "co2",
    "nongreedy",
    "hinge",
    "boosting",
    "explain",
    "serve",
    "scale",
    "endtoend",
    "layer",
    "tables",
)


def main():
    """Write everything."""
    stored = {
        f"{script}:{name}": row
        for script in SCRIPTS
        for name, row in results.read(FOLDER / "results" / f"{script}.json").items()
    }
    output = FOLDER.parent / "docs" / "performance"
    output.mkdir(parents=True, exist_ok=True)
    for file, table in TABLES.items():
        head, rows = table(stored)
        if rows:
            (output / f"{file}.inc").write_text("\n".join(list_table(head, rows)) + "\n")
    for file, table in hyperplanes.TABLES.items():
        head, rows = table(stored, _commands, TITLES)
        if rows:
            (output / f"{file}.inc").write_text("\n".join(list_table(head, rows)) + "\n")
    hyperplanes.draw(stored, TITLES, output)
    runs = [
        _runs(name) for name in ("peers", "peers_raw", *OTHER_TABLES, "peers_images", "choose")
    ]
    rows = [*stored.values(), *(row for of_file in runs for row in of_file.values())]
    (output / "environments.inc").write_text("\n".join(environments(rows)) + "\n")
    print("\n".join(markdown(*peers_table(stored))))
    peers_figures(output)
    if curves := results.read(FOLDER / "results" / "manifold_simulations.json"):
        figures.learning_curves(curves, output / "manifold_simulations.png")
    figures.depth_curves(depth_curves(stored), output / "nongreedy_depths.png")
    for name, draw in (
        ("hinge_plane", figures.surfaces),
        ("hinge_curves", figures.loss_curves),
        ("endtoend_tradeoff", figures.tradeoff),
        ("endtoend_splits", figures.split_images),
        ("manifold_importances", figures.importances),
    ):
        if content := results.read(FOLDER / "results" / f"{name}.json"):
            titled = {}
            for key, part in content.items():
                data_set, *kind = key.split(", ")  # kind: trees or ferns
                titled[", ".join([TITLES.get(data_set, data_set), *kind])] = part
            draw(titled, output / f"{name}.png")


def peers_figures(output):
    """Draw the comparisons on tables."""
    summary = compare.summary(*_compared("peers"))
    for what, name, label in (
        ("time", "peers", "fit time relative to RandomForest"),
        ("predict_us", "peers_predict", "microseconds to predict one of many rows"),
    ):
        if any(row[what] is not None for row in summary.values()):
            figures.peers(summary, models.OURS, what, label, output / f"{name}.png")
    for name in ("peers", "peers_raw", *OTHER_TABLES):
        if len(compare.complete(*_compared(name))) > 2:
            path = output / f"{name}_ranks.png"
            figures.critical_difference(*compare.ranks(*_compared(name)), models.OURS, path)


def peers_table(_, comparison="peers"):
    """Return head and rows of a comparison on tables."""
    runs, tasks = _compared(comparison)
    n_tables = sum(map(len, tasks.values()))
    head = (
        "Model",
        "Classification error (median)",
        "Regression error (median)",
        "Tables with a smaller error",
        "Median fit time",
        "Fit time",
        "Predict, one row of many",
        "Seeds",
    )
    rows = [
        (
            name,
            f"{row['classification']:.3f} ({row['classification_median']:.3f})",
            f"{row['regression']:.3f} ({row['regression_median']:.3f})",
            f"{row['better']} of {n_tables}" if name != models.REFERENCE else "",
            f"{row['seconds']:.2f} s",
            f"{row['time']:.2f}x",
            _known(row["predict_us"], "{:.1f} us"),
            " or ".join(map(str, row["seeds"])),
        )
        for name, row in compare.summary(runs, tasks).items()
    ]
    return head, rows if len(rows) > 1 else []


def probabilities_table(_, comparison="peers"):
    """Return head and rows of log loss and calibration, with those of the blend beside them."""
    runs, tasks = _compared(comparison)
    rows = []
    for name, row in compare.summary(runs, tasks).items():
        means = _known(row["log_loss"], "{:.3f}"), _known(row["calibration"], "{:.2f} %")
        cells = ["", ""]
        if models.BLEND in runs and name != models.BLEND:
            pairs = (compare.better(runs, name, what) for what in ("log_loss", "calibration"))
            cells = [f"{n} of {n_tables}" if n_tables else "" for n, n_tables in pairs]
        rows.append((name, *means, *cells))
    head = ("Model", "Log loss", "Calibration error", "Blend's log loss is smaller")
    rows = _filled(rows)
    return (*head, "Blend's calibration error is smaller"), rows if len(rows) > 1 else []


def members_table(_):
    """Return head and rows of tables on which the blend is much worse than a member."""
    known = {True: "yes", False: "no", None: "not known"}
    rows = [
        (table, member, f"{ratio:.2f}", known[beyond])
        for table, member, ratio, beyond in compare.worse_than_member(_runs("peers"))
    ]
    return ("Table", "Best member", "Error of the blend to its", "Beyond the noise"), rows


def settings_table(_):
    """Return head and rows of the settings of oblique boosting on inner splits."""
    rows = [
        (
            name,
            *(
                f"{row[key]:.3f}" if key in row else ""
                for key in ("all", "classification", "regression")
            ),
            f"{row['change']:.3f} +- {row['noise']:.3f}" if row["noise"] else "",
            f"{row['time']:.2f}x",
        )
        for name, row in choose.summary(_runs("choose")).items()
    ]
    head = ("Setting", "All", "Classification", "Regression", "To the defaults", "Fit time")
    return head, rows


def categories_table(stored):
    """Return head and rows of errors on tables with categories."""
    reference = _errors(stored.get(f"tables:categories/{models.REFERENCE}"))
    rows = []
    for model in tables.ALL:
        row = stored.get(f"tables:categories/{model}")
        if not row:
            continue
        errors, bases = _errors(row), _errors(row, "base")
        ours = model in models.OURS
        cells = [
            (f"{errors[name]:.2f} ({bases[name]:.2f})" if ours else f"{errors[name]:.2f}")
            if name in errors
            else ""
            for name in data.WITH_CATEGORIES
        ]
        to_codes = f"{row['value']:.3f}" if ours else ""
        rows.append(
            (model, *cells, to_codes, _relative(errors, reference), _commands([row], True))
        )
    head = ("Model", *data.WITH_CATEGORIES, "To codes", "To RandomForest", "Command")
    return head, rows


def holes_table(stored):
    """Return head and rows of errors on tables from which entries were removed."""
    rows = []
    for model in tables.ALL:
        found = [stored.get(f"tables:holes/{kind}/{model}") for kind in tables.HOLES]
        cells = []
        for kind, row in zip(tables.HOLES, found):
            reference = _errors(stored.get(f"tables:holes/{kind}/{models.REFERENCE}"))
            cell = _relative(_errors(row), reference)
            if row and model in models.OURS:
                cell += f" ({row['value']:.3f})"
            cells.append(cell)
        rows.append((model, *cells, _commands([row for row in found if row], True)))
    titles = (f"{kind.partition('-')[2]} %, {kind.partition('-')[0]}" for kind in tables.HOLES)
    return ("Model", *titles, "Command"), _filled(rows)


def choose_table(stored):
    """Return head and rows of the features that were compared for categories."""
    columns = [(model,) for model in models.OURS]
    rows = _pivot(stored, tables.SETTINGS, columns, "tables:choose/{0}/{1}")
    return ("Features of categories", *models.OURS, "Command"), _filled(rows)


def images_table(stored):
    """Return head and rows of test errors on letters, digits and satellite pixels."""
    sets = peers.IMAGES["classification"]
    rows = []
    for name, runs in _runs("peers_images").items():
        cells = [f"{sum(e) / len(e):.2f}" if (e := runs["errors"].get(s)) else "" for s in sets]
        rows.append((f"{name}, defaults", *cells, _commands([runs])))

    def add(label, *cells):
        rows.append((label, *_row(stored, cells)))

    add("ManifoldForest, 100 trees of patches", *5 * [None], "manifold:mnist/60000")
    for n in co2.TREES:
        add(f"CO2Forest, {n} trees", None, *(f"co2:errors/{s}-{n}" for s in sets[1:]))
    for variant in co2.VARIANTS:
        add(
            f"CO2Forest, 100 trees, {variant}",
            None,
            *(f"co2:variants/{s}-{variant}-100" for s in sets[1:]),
        )
    for label, letter, usps, mnist in (
        ("defaults", "letter-defaults", None, None),
        ("one bag, depth 10", "letter-deep", None, None),
        ("one bag, chosen settings", "letter-chosen", "usps", "mnist"),
        ("4 or 5 bags, chosen settings", "letter-4", "usps-5", None),
        ("one bag of ferns", "letter-fern", "usps-fern", "mnist-fern"),
        ("1000 trees of convolutions", None, None, "mnist-1000"),
    ):
        names = (letter, None, usps, None, None, mnist)
        add(f"RandomHingeForest, {label}", *(name and f"hinge:images/{name}" for name in names))
    for label, kind in (("trees", "published"), ("ferns", "ferns")):
        cells = (f"hinge:{kind}/{name}" for name in ("letter", "usps", "mnist"))
        letter, usps, mnist = cells
        add(
            f"RandomHingeForest, {label}, settings of the paper",
            *(letter, None, usps, None, None, mnist),
        )
    for label, letter, usps, mnist in (
        ("8 or 10 trees, all features", "letter-10", None, "mnist-8"),
        ("70, 100 or 80 trees", "letter-70", "usps-100", "mnist-80"),
    ):
        names = (letter, None, usps, None, None, mnist)
        add(
            f"E2EDecisionForest, {label}", *(name and f"endtoend:forests/{name}" for name in names)
        )
    add("E2ENetworkTree, 10 leaves", *5 * [None], "endtoend:cnn/mnist")
    return ("Model", *(TITLES[name] for name in sets), "Command"), _filled(rows)


def trees_table(stored):
    """Return head and rows of test errors of single trees."""
    columns = [("mnist", depth) for depth in (4, 6, 8, 10, 14)]
    columns += [("connect4", depth) for depth in (6, 10, 12)] + [("letter_libsvm", 10)]
    models = (*nongreedy.MODELS, *nongreedy.REFINED)
    rows = _pivot(stored, models, columns, "nongreedy:depths/{1}-{0}-{2}")
    names = [
        f"endtoend:trees/mnist-{n}" if name == "mnist" else f"endtoend:{name}/{n}"
        for name, n in columns
    ]
    rows.append(("end-to-end", *_row(stored, names)))
    return ("Tree", *(f"{TITLES[name]} {n}" for name, n in columns), "Command"), rows


def speed_table(stored):
    """Return head and rows of times and sizes of all models but manifold forests."""
    wanted = ("co2:seconds", "co2:scaling", "co2:flops", "nongreedy:seconds", "hinge:speed")
    wanted += ("endtoend:default/fit",)
    titles = {
        "co2": "CO2Forest",
        "nongreedy": "NonGreedyTree",
        "hinge": "RandomHingeForest",
        "endtoend": "E2EDecisionForest",
    }
    rows = []
    for name, row in stored.items():
        if name.startswith(wanted):
            title = titles[name.partition(":")[0]]
            rows.append((f"{title}: {row['what']}", *_measured(row)))
    return ("What", "Measured (least, most)", "Details", "Command"), rows


def manifold_table(stored):
    """Return head and rows of everything measured of manifold forests."""
    rows = [
        (row["what"], *_measured(row))
        for name, row in stored.items()
        if name.startswith("manifold:")
        and not name.startswith(
            ("manifold:simulations/", "manifold:importances/", "manifold:contrasts/")
        )
    ]
    return ("What", "Measured (least, most)", "Details", "Command"), rows


def simulations_table(_):
    """Return head and rows of test errors in the simulations of the manifold forest paper."""
    curves = results.read(FOLDER / "results" / "manifold_simulations.json")
    columns = [("circle", 250), ("circle", 1000), ("bars", 25), ("bars", 100)]
    columns += [("impulse", 250), ("impulse", 1000)]
    rows = []
    for model in curves["circle"]:
        at = [(curves[name][model], curves["n"].index(n)) for name, n in columns]
        found = [[run["error"][k] for run in runs] for runs, k in at]
        cells = [f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}" for values in found]
        rows.append((model, *cells, str(len(at[0][0]))))
    return ("Model", *(f"{name} {n}" for name, n in columns), "Draws"), rows


def contrasts_table(stored):
    """Return head and rows of out-of-bag errors of manifold forests by contrast."""
    columns = [(contrast,) for contrast in manifold.CONTRASTS]
    rows = _pivot(stored, manifold.IMAGES_AND_SIGNALS, columns, "manifold:contrasts/{}/{}")
    rows = [(TITLES.get(row[0], row[0]), *row[1:]) for row in rows if row[-1]]
    return ("", *manifold.CONTRASTS, "Command"), rows


def size_table(stored):
    """Return head and rows of size and speed for each precision of weights."""
    rows = []
    for what in ("model", "file", "peak", "error", "predict"):
        pair = [stored[f"co2:size/{what}-{dtype}"] for dtype in co2.DTYPES]
        cells = [results.show(row["value"], row["unit"]) for row in pair]
        rows.append((pair[0]["what"].partition(", 100 trees")[0], *cells, _commands(pair)))
    return ("100 trees on MNIST", *co2.DTYPES, "Command"), rows


def boosting_table(stored):
    """Return head and rows of times and memory of oblique boosting and blends."""
    others = LINEAR_START, DEPTH, RATE, BOXES
    return _noted_table(
        {name: row for name, row in stored.items() if not name.startswith(others)}, "boosting:"
    )


def boxes_table(stored):
    """Return head and rows of the errors of oblique boosting on images and signals."""
    found = [name.removeprefix(BOXES).split("/") for name in stored if name.startswith(BOXES)]
    sets, models = (list(dict.fromkeys(row[i] for row in found)) for i in (0, 1))
    rows = _pivot(stored, models, [(name,) for name in sets], BOXES + "{1}/{0}")
    return ("", *(TITLES.get(name, name) for name in sets), "Command"), rows


def start_table(stored):
    """Return head and rows of the errors with a linear start, by the number of rows."""
    found = [
        name.removeprefix(LINEAR_START).split("-")
        for name in stored
        if name.startswith(LINEAR_START)
    ]
    sizes, starts = (list(dict.fromkeys(row[i] for row in found)) for i in (0, 1))
    rows = _pivot(stored, starts, [(size,) for size in sizes], LINEAR_START + "{1}-{0}")
    return ("`linear_start`", *(f"{size} rows" for size in sizes), "Command"), rows


def serve_table(stored):
    """Return head and rows of the times to predict single rows, batches and data frames."""
    return _noted_table(stored, "serve:")


def scale_table(stored):
    """Return head and rows of training on several workers and in little memory."""
    return _noted_table(stored, "scale:")


def explain_table(stored):
    """Return head and rows of times of Shapley values."""
    return _noted_table(stored, "explain:")


def _noted_table(stored, prefix):
    """Return head and rows of all results of a script, with their notes."""
    found = [row for name, row in stored.items() if name.startswith(prefix)]
    rows = [
        (row["what"], results.show(row["value"], row["unit"]), row["note"], _commands([row]))
        for row in found
    ]
    return ("What", "Measured", "", "Command"), rows


def layer_table(stored):
    """Return head and rows of the steps of a hinge forest as a PyTorch layer."""
    rows = []
    names = [name.partition("/")[2] for name in stored if name.startswith("layer:both")]
    for name in names:
        pair = [stored[f"layer:{part}/{name}"] for part in ("both", "step")]
        cells = [f"{row['value'] / 1000:.1f} ms" for row in pair]
        rows.append((name, *cells, _commands(pair)))
    return ("Layer", "Both passes", "With a step of Adam", "Command"), rows


def procedure_table(stored):
    """Return head and rows of the objectives and procedures of CO2 forests."""
    columns = [(name, n) for name in co2.BASELINE_SETS for n in (10, 30)]
    rows = _pivot(stored, co2.BASELINES, columns, "co2:baselines/{1}-{0}-{2}")
    return ("Procedure", *(f"{TITLES[name]} {n}" for name, n in columns), "Command"), rows


def special_table(stored):
    """Return head and rows of test errors on Connect4, Madelon, abalone and poker."""
    rows = []
    for title, source in (("CO2Forest", "co2"), ("RandomHingeForest", "hinge")):
        for name, row in stored.items():
            if name.startswith(f"{source}:special/"):
                cell = results.show(row["value"], row["unit"])
                paper = results.show(row["paper"], row["unit"])
                rows.append((f"{title}: {row['what']}", cell, paper, _commands([row])))
    return ("What", "Measured", "Paper", "Command"), rows


def published_table(stored, kind="published"):
    """Return head and rows of the grid of trees and depths of the hinge forest paper."""
    trees, depths = ({size[k]: None for size in hinge.SIZES} for k in (0, 1))
    rows = []
    for name in hinge.GRID:
        title = "abalone, R2" if name == "abalone_r2" else f"{name}, error in %"
        for n in trees:
            names = [f"hinge:{kind}/{name}-{n}x{depth}" for depth in depths]
            plural = "s" if n > 1 else ""
            rows.append((f"{title}, {n} tree{plural}", *_row(stored, names)))
    return ("", *(f"depth {depth}" for depth in depths), "Command"), _filled(rows)


def ferns_table(stored):
    """As `published_table`, for ferns, where all sizes of a table have been measured."""
    complete = [name for name in hinge.GRID if f"hinge:ferns/{name}-1x1" in stored]
    wanted = {f"hinge:ferns/{name}-{n}x{d}" for name in complete for n, d in hinge.SIZES}
    return published_table({name: stored[name] for name in wanted & stored.keys()}, "ferns")


def hinge_summary(stored):
    """Return head and rows of tables 2 and 3 of the hinge forest paper."""
    cells = [
        *(("iris-10x5", "special/iris"), ("abalone-50x1", "special/abalone")),
        *(("abalone_r2-100x1", "special/abalone_r2"), ("madelon-10x3", "special/madelon")),
        *(("poker-50x3", "special/poker"), ("letter", "images/letter-defaults")),
        *(("usps", "images/usps-5"), ("mnist", "images/mnist")),
        ("mnist-1000", "images/mnist-1000"),
    ]
    ferns = {"madelon-10x3": "madelon-50x7", "poker-50x3": "poker-100x3"}
    rows = []
    for name, ours in cells:
        names = [
            f"hinge:published/{name}",
            f"hinge:ferns/{ferns.get(name, name)}",
            f"hinge:{ours}",
        ]
        found = [stored.get(key) for key in names]
        values = [_cell(row | {"paper": None}) if row else "" for row in found]
        papers = [f"{hinge.PRINTED[key.partition(':')[2]][2]:.4g}" for key in names[:2]]
        forest = stored.get(f"hinge:random-forest/{name.partition('-')[0]}")
        ordered = (papers[0], values[0], papers[1], values[1], values[2])
        used = [row for row in (*found, forest) if row]
        rows.append((name, *ordered, _cell(forest) if forest else "", _commands(used)))
    head = ("Set and size", "Trees, paper", "Trees", "Ferns, paper", "Ferns", "Our setting")
    return (*head, "Random forest [paper]", "Command"), rows


def steepness_table(stored):
    """Return head and rows of table 1 of the paper on end-to-end trees."""
    prefix = "endtoend:as-printed/"
    measured = {name.removeprefix(prefix).partition("-")[0] for name in stored if prefix in name}
    columns = [(s, n) for s in endtoend.TABLE_1 if s in measured for n in endtoend.EPOCHS]
    rows = []
    for step in endtoend.STEPS:
        found = [stored.get(f"{prefix}{name}-{step}-{n}") for name, n in columns]
        cells = [
            _with_trees(row, name) if row else ""
            for row, (name, _) in zip(found, columns, strict=True)
        ]
        rows.append((str(step), *cells, _commands([row for row in found if row])))
    titles = (f"{TITLES[name]}, {n} epochs" for name, n in columns)
    return ("Step", *titles, "Command"), rows


def _with_trees(row, name):
    """Format an error of table 1, with the number of trees where the paper has more."""
    n_trees = re.search(r"(\d+) trees?,", row["note"])[1]
    text = _cell(row)
    if int(n_trees) < endtoend.PRINTED_FORESTS[name]["n_estimators"]:
        text += f", {n_trees} trees"
    return text


def endtoend_table(stored):
    """Return head and rows of errors of end-to-end trees with hard and with soft routing."""
    rows = []
    for name, row in stored.items():
        if name.startswith("endtoend:") and f"{name}-soft" in stored:
            triple = [row, stored[f"{name}-soft"], stored[f"{name}-seconds"]]
            cells = [_cell(row), _cell(triple[1]), f"{triple[2]['value']:.1f} s"]
            rows.append((row["what"].partition(", ")[2], *cells, _commands(triple)))
    for n in (4, 8, 24):
        pair = [stored[f"endtoend:membranes/{routing}-{n}"] for routing in ("hard", "soft")]
        label = f"one tree, membranes, depth 6, {n} epochs"
        rows.append((label, *map(_cell, pair), "", _commands(pair)))
    return ("Model", "Hard routing", "Soft routing", "Fit", "Command"), rows


def single_trees(stored):
    """Return head and rows of single end-to-end trees by depth."""
    depths = endtoend.CONNECT4
    own = {"connect4": "connect4/{}", "mnist": "trees/mnist-{}"}
    rows = []
    for name in endtoend.SINGLE:
        for label, form in (
            ("as printed, without joint training", f"{name}-grown/{{}}"),
            ("as printed", f"{name}-printed/{{}}"),
            ("defaults", own[name]),
        ):
            names = [f"endtoend:{form.format(depth)}" for depth in depths]
            rows.append((f"{TITLES[name]}: {label}", *_row(stored, names)))
    return ("", *(f"depth {depth}" for depth in depths), "Command"), _filled(rows)


def tradeoff_table(stored):
    """Return head and rows of errors and passed splits of end-to-end and random forests."""
    points_of = results.read(FOLDER / "results" / "endtoend_tradeoff.json")
    names = {"printed": "as printed", "defaults": "defaults", "RandomForest": "RandomForest"}
    rows = [
        (
            TITLES[data_set],
            names[model],
            str(n),
            f"{passed:.0f}",
            f"{100 - accuracy:.2f}",
            _commands([stored[f"endtoend:tradeoff/{data_set}-{model}"]]),
        )  # fmt: skip
        for data_set, models_ in points_of.items()
        for model, points in models_.items()
        for n, passed, accuracy in points
        if n in (1, 10) or n == points[-1][0]
    ]
    head = ("Set", "Forest", "Trees", "Splits that a row passes", "Test error in %")
    return (*head, "Command"), rows


def importances_table(stored):
    """Return head and rows of errors of the forests whose importances are drawn."""
    rows = [
        (kind, *_row(stored, [f"manifold:importances/{kind}-forest"])) for kind in manifold.KINDS
    ]
    return ("Forest", "Test error in %", "Command"), _filled(rows)


def engines_table(stored):
    """Return head and rows of the two ways to compute joint training of end-to-end trees."""
    rows = []
    for engine in ("lists", "products"):
        names = [f"endtoend:engines/{engine}-{when}" for when in ("first", "last")]
        pairs = [(stored[name], stored[f"{name}-seconds"]) for name in names]
        cells = [
            ", ".join(results.show(row["value"], row["unit"]) for row in pair) for pair in pairs
        ]
        rows.append((engine, *cells, _commands([pair[0] for pair in pairs])))
    return ("Engine", "First epoch", "Last epoch", "Command"), rows


TABLES = {
    "peers": peers_table,
    "peers_raw": partial(peers_table, comparison="peers_raw"),
    "peers_unseen": partial(peers_table, comparison="peers_unseen"),
    "peers_large": partial(peers_table, comparison="peers_large"),
    "peers_unseen_probabilities": partial(probabilities_table, comparison="peers_unseen"),
    "peers_probabilities": probabilities_table,
    "peers_large_probabilities": partial(probabilities_table, comparison="peers_large"),
    "peers_raw_probabilities": partial(probabilities_table, comparison="peers_raw"),
    "peers_members": members_table,
    "choose": settings_table,
    "boosting_start": start_table,
    "boosting_depth": partial(_noted_table, prefix=DEPTH),
    "boosting_rate": partial(_noted_table, prefix=RATE),
    "boosting_boxes": boxes_table,
    "tables_categories": categories_table,
    "tables_holes": holes_table,
    "tables_choose": choose_table,
    "images": images_table,
    "trees": trees_table,
    "manifold": manifold_table,
    "speed": speed_table,
    "simulations": simulations_table,
    "manifold_contrasts": contrasts_table,
    "size": size_table,
    "boosting": boosting_table,
    "explain": explain_table,
    "serve": serve_table,
    "scale": scale_table,
    "layer": layer_table,
    "co2_procedure": procedure_table,
    "special": special_table,
    "hinge_published": published_table,
    "hinge_ferns": ferns_table,
    "endtoend_steepness": steepness_table,
    "endtoend_routing": endtoend_table,
    "endtoend_engines": engines_table,
    "endtoend_single": single_trees,
    "endtoend_tradeoff": tradeoff_table,
    "hinge_summary": hinge_summary,
    "manifold_importances": importances_table,
}


def depth_curves(stored):
    """Return errors of single trees, by data set, kind of tree and depth."""
    curves = {}
    for name in nongreedy.SETS:
        for model in (*nongreedy.MODELS, *nongreedy.REFINED):
            rows = {
                d: stored.get(f"nongreedy:depths/{name}-{model}-{d}") for d in nongreedy.DEPTHS
            }
            if points := {depth: row["value"] for depth, row in rows.items() if row}:
                curves.setdefault(TITLES[name], {})[model] = points
    return curves


def environments(rows):
    """Return one line for each environment in which rows were measured."""
    facts = dict.fromkeys(json.dumps(row["environment"]) for row in rows)
    lines = []
    for fact in facts:
        parts = (f"{key} {value}" for key, value in json.loads(fact).items() if value)
        lines += [f"- {', '.join(parts)}"]
    return lines


def list_table(head, rows):
    """Return the lines of a list-table (reStructuredText)."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (head, *rows):
        first, *others = (f"{cell}".rstrip() for cell in row)
        lines += [f"   * - {first}".rstrip(), *(f"     - {cell}".rstrip() for cell in others)]
    return lines


def markdown(head, rows):
    """Return the lines of a Markdown table, numbers to the right."""
    align = ["---"] + ["---:"] * (len(head) - 1)
    return ["| " + " | ".join(row) + " |" for row in (head, align, *rows)]


def _runs(name):
    """Return the runs of models that a script stored."""
    return results.read(FOLDER / "results" / f"{name}.json")


def _compared(comparison):
    """Return the runs of models on tables, and these tables by task."""
    if comparison in OTHER_TABLES:
        return _runs(comparison), OTHER_TABLES[comparison]
    runs = _runs("peers")
    if comparison == "peers_raw" and runs:
        runs = compare.with_raw(runs, _runs("peers_raw"))
    return runs, compare.TASKS


def _known(value, form):
    """Format a value, or return an empty cell where it is not stored."""
    return "" if value is None else form.format(value)


def _pivot(stored, labels, columns, name):
    """Return a table row for each label; `name` formats label and column into a stored row."""
    return [
        (str(label), *_row(stored, [name.format(label, *column) for column in columns]))
        for label in labels
    ]


def _row(stored, names):
    """Return the cells of a row, empty where nothing is stored, and their commands."""
    rows = [stored.get(name) for name in names]
    cells = [_cell(row) if row else "" for row in rows]
    return *cells, _commands([row for row in rows if row])


def _cell(row):
    """Format a value and its deviation over seeds, with the paper's value in brackets.

    Accuracies in percent become errors.
    """
    value, paper = row["value"], row["paper"]
    if row["unit"] == "%" and row["more"]:
        value = 100 - value
        paper = None if paper is None else 100 - paper
    digits = 2 if row["unit"] == "%" else 3
    spread = results.deviation(row)
    return (
        f"{value:.{digits}f}"
        + (f" ± {spread:.{digits}f}" if spread is not None else "")
        + (f" [{paper:.4g}]" if paper is not None else "")
    )


def _measured(row):
    """Return value with range, remark, and command of a row."""
    least, most = (results.show(value, row["unit"]) for value in row["spread"])
    value = results.show(row["value"], row["unit"])
    # Mean and deviation, or the median, are in the value already.
    note = re.sub(r"^(median .*|[\d.]+ \+- [\d.]+( %)?)$", "", row["note"])
    if row["rival"]:
        note += " (" + ", ".join(f"{k} {v}" for k, v in row["rival"].items()) + ")"
    return value if least == most else f"{value} ({least}, {most})", note, _commands([row])


def _commands(rows, with_sets=False):
    """Return the different commands of rows, without what all have in common.

    The option ``--sets`` is left out where a row belongs to one set, which it does not change.
    """
    commands = [row["command"].removeprefix("python benchmarks/") for row in rows]
    if not with_sets:
        commands = [re.sub(r" --sets( (?!--)\S+)+", "", command) for command in commands]
    found = dict.fromkeys(commands)
    return ", ".join(f"``{command}``" for command in found)


def _errors(row, which="own"):
    """Return errors by table, of the model or of what it is compared with, from the note."""
    found = re.findall(r"(\w+) ([\d.]+) \(([\d.]+)\)", row["note"]) if row else []
    return {name: float(own if which == "own" else base) for name, own, base in found}


def _relative(errors, reference):
    """Format the geometric mean of errors relative to those of another model."""
    pairs = [(error, reference[name]) for name, error in errors.items() if name in reference]
    if not pairs:
        return ""
    own, other = np.log(np.array(pairs).T + tables.OFFSET)
    return f"{np.exp(np.mean(own - other)):.3f}"


def _filled(rows):
    """Leave out rows in which nothing was measured."""
    return [row for row in rows if any(row[1:])]


if __name__ == "__main__":
    main()
