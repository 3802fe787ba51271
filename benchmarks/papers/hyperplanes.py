"""Tables and pictures of the pages on the CO2 and the non-greedy paper, from the stored rows."""

import re

import co2
import figures
import nongreedy
import results

MODELS = {
    "random forest": "co2:trees/{}-random forest-{}",
    "OC1": "co2:trees/{}-OC1-{}",
    "two-probe": "co2:trees/{}-two-probe-{}",
    "CO2, as printed": "co2:as-printed/{}-{}",
    "CO2, algorithm 1": "co2:algorithm-1/{}-{}",
    "CO2, defaults": "co2:errors/{}-{}",
}
SIZES = (10, 30, 100, 1000)
PAPER = "CO2 in the paper"  # label of the printed values


def error_table(stored, commands, titles):
    """Return head and rows of the errors of all forests by data set and number of trees.

    Parameters
    ----------
    stored : dict
        Rows by script and name.
    commands : callable
        Takes rows, returns their commands as text.
    titles : dict
        Titles of the data sets.
    """
    rows = []
    for name, papers in co2.PRINTED_SETS.items():
        printed = dict(zip(co2.PAPER_TREES, papers, strict=True))
        cells = [f"{printed[n]:g}" if n in printed else "" for n in SIZES]
        rows.append((f"{titles[name]}: CO2 in the paper", *cells, ""))
        for model, form in MODELS.items():
            if name in co2.SPECIAL:
                form = form.replace("errors", "special")
            found = [stored.get(form.format(name, n)) for n in SIZES]
            if model == "CO2, defaults":  # `trees` measures the same forests
                trees = [stored.get(f"co2:trees/{name}-{model}-{n}") for n in SIZES]
                found = [own or other for own, other in zip(found, trees, strict=True)]
            others = co2.RIVAL_PAPERS.get(model, {}).get(name, ())
            if any(found) or others:
                papers = dict(zip(co2.PAPER_TREES, others))
                cells = [_cell(row, papers.get(n)) for row, n in zip(found, SIZES, strict=True)]
                used = commands([row for row in found if row]) if any(found) else ""
                rows.append((f"{titles[name]}: {model}", *cells, used))
    return ("", *(f"{n} trees" for n in SIZES), "Command"), rows


def choice_table(stored, commands, titles):
    """Return head and rows of the settings that were chosen on training rows."""
    rows = []
    for group in ("as-printed", "algorithm-1"):
        for name in co2.PRINTED_SETS:
            if row := stored.get(f"co2:{group}/{name}-choice"):
                values = dict(re.findall(r"(\w+)=([\w.]+)", row["note"]))
                cells = [values[key] for key in ("max_features", *co2.GRID)]
                label = f"{titles[name]}, {group.replace('-', ' ')}"
                rows.append((label, *cells, f"{row['value']:.2f}", commands([row])))
    head = ("", "max_features", "scaling", "nu", "learning_rate", "Error on held-out rows")
    return (*head, "Command"), rows


def first_cut_table(stored, commands, titles):
    """Return head and rows of the two searches of the first cut, on held-out training rows."""
    rows = []
    for name in co2.FIRST_CUT_SETS:
        pair = [stored.get(f"co2:first-cut/{name}-{splitter}") for splitter in co2.FIRST_CUTS]
        if all(pair):
            cells = [f"{_value(row)} ({row['note']})" for row in pair]
            rows.append((titles[name], *cells, commands(pair)))
    return ("", *co2.FIRST_CUTS, "Command"), rows


def prior_table(stored, commands, _):
    """Return head and rows of forests with equal classes and corrected probabilities."""
    rows = []
    for kind in co2.PRIORS:
        pair = [stored.get(f"co2:prior/{what}-{kind}") for what in ("error", "jaccard")]
        if all(pair):
            rows.append((kind, *(f"{row['value']:.2f}" for row in pair), commands(pair)))
    return ("Training", "Error", "Mean Jaccard score", "Command"), rows


def tree_table(stored, commands, titles):
    """Return head and rows of single trees as printed, training errors in brackets."""
    rows = []
    for name in nongreedy.SETS:
        for depth in nongreedy.PRINTED_DEPTHS:
            cells, used = [], []
            for model in nongreedy.PRINTED_MODELS:
                key = f"nongreedy:as-printed/{name}-{model}-{depth}"
                pair = [stored[k] for k in (key, f"{key}-training") if k in stored]
                cells.append(f"{_value(pair[0])} ({pair[1]['value']:.2f})" if pair else "")
                used += pair
            if not used:
                continue
            own = [
                stored.get(f"nongreedy:depths/{name}-{model}-{depth}")
                for model in ("non-greedy", "non-greedy + alternating")
            ]
            cells += [_value(row) if row else "" for row in own]
            used += [row for row in own if row]
            rows.append((f"{titles[name]}, {depth}", *cells, commands(used)))
    head = ("Depth", *nongreedy.PRINTED_MODELS, "non-greedy, defaults", "the same, refined")
    return (*head, "Command"), rows


def leaf_values_table(stored, commands, titles):
    """Return head and rows of trees that predict class frequencies, or their trained leaves."""
    rows = []
    for name in nongreedy.SETS:
        names = [
            f"nongreedy:leaf-values/{name}-{kind}-{what}"
            for what in ("error", "loss")
            for kind in nongreedy.LEAF_VALUES
        ]
        if all(key in stored for key in names):
            found = [stored[key] for key in names]
            cells = [row["note"].replace("+-", "±") for row in found]
            rows.append((titles[name], *cells, commands(found)))
    head = (f"{what}, {kind}" for what in ("Error", "Log loss") for kind in nongreedy.LEAF_VALUES)
    return ("Depth 10", *head, "Command"), rows


TABLES = {
    "paper_co2": error_table,
    "paper_co2_choice": choice_table,
    "paper_co2_first_cut": first_cut_table,
    "paper_co2_prior": prior_table,
    "paper_nongreedy": tree_table,
    "paper_nongreedy_leaf_values": leaf_values_table,
}


def draw(stored, titles, folder):
    """Draw all pictures whose rows are stored."""
    panels = {}
    for name, papers in co2.PRINTED_SETS.items():
        for model, form in MODELS.items():
            curve = {}
            if model == "CO2, defaults":  # these forests are measured by `errors`, too
                group = "special" if name in co2.SPECIAL else "errors"
                curve = _curve(stored, {n: f"co2:{group}/{name}-{n}" for n in SIZES})
                form = "co2:trees/{}-CO2, defaults-{}"
            curve |= _curve(stored, {n: form.format(name, n) for n in co2.CURVE})
            if curve:
                panels.setdefault(titles[name], {})[model] = dict(sorted(curve.items()))
        if titles[name] in panels:
            panels[titles[name]][PAPER] = dict(zip(co2.PAPER_TREES, papers, strict=True))
    if panels := {title: lines for title, lines in panels.items() if len(lines) > 3}:
        path = folder / "paper_co2_trees.png"
        n_rows = 1 if len(panels) < 5 else 2
        figures.curves(panels, "trees", "test error in %", path, "log", n_rows, (PAPER,))
    panels = {}
    for part in ("training", "held-out"):
        for nu in (*co2.NUS, "axis"):
            names = {d: f"co2:nu/{part}-{nu}-{d}" for d in co2.NU_DEPTHS}
            if curve := _curve(stored, names):
                label = "single features" if nu == "axis" else f"$\\nu$ = {nu:g}"
                panels.setdefault(f"{part} rows", {})[label] = curve
    if panels:
        figures.curves(panels, "largest depth", "error in %", folder / "paper_co2_nu.png")
    panels = {}
    for suffix, part in (("", "test"), ("-training", "training")):
        for name in nongreedy.SETS:
            for model in nongreedy.PRINTED_MODELS:
                names = {
                    d: f"nongreedy:as-printed/{name}-{model}-{d}{suffix}"
                    for d in nongreedy.PRINTED_DEPTHS
                }
                if curve := _curve(stored, names):
                    panels.setdefault(f"{titles[name]}, {part}", {})[model] = curve
    if panels:
        path = folder / "paper_nongreedy_depths.png"
        figures.curves(panels, "largest depth", "error in %", path, n_rows=2)
    panels = {}
    for depth in nongreedy.LEAF_DEPTHS:
        lines = {}
        for label, prefix in (("as printed", ""), ("defaults", "defaults-")):
            names = {nu: f"nongreedy:leaves/{prefix}{nu}-{depth}" for nu in nongreedy.LEAF_NUS}
            lines[f"non-greedy, {label}"] = _curve(stored, names)
        for kind, label in (("axis", "single features"), ("CO2", "CO2, as printed")):
            if start := stored.get(f"nongreedy:leaves/{kind}-{depth}"):
                lines[label] = dict.fromkeys(nongreedy.LEAF_NUS, start["value"])
        if lines := {label: curve for label, curve in lines.items() if curve}:
            panels[f"depth {depth}"] = lines
    if panels:
        path = folder / "paper_nongreedy_leaves.png"
        figures.curves(panels, r"$\nu$", "leaves in use", path, "log")
    lines = {}
    for kind in ("fast", "full"):
        names = {d: f"nongreedy:inference/{kind}-{d}" for d in nongreedy.INFERENCE_DEPTHS}
        if curve := _curve(stored, names):
            lines[f'inference="{kind}"'] = curve
    if lines:
        path = folder / "paper_nongreedy_inference.png"
        label = "seconds of an epoch"
        figures.curves({"Connect4": lines}, "largest depth", label, path)


def _cell(row, paper=None):
    """Format mean and deviation, and in brackets what the paper reports, measured or not."""
    text = f"[{paper:g}]" if paper is not None else ""
    return f"{_value(row)} {text}".rstrip() if row else text


def _value(row):
    """Format the mean and, of several repetitions, the deviation."""
    spread = results.deviation(row)
    return f"{row['value']:.2f}" + (f" ± {spread:.2f}" if spread is not None else "")


def _curve(stored, names):
    """Return the stored values by the keys of `names`."""
    return {key: stored[name]["value"] for key, name in names.items() if name in stored}
