"""A report of a fitted estimator: one HTML page that needs no network, and the same as text."""

import html
from functools import cached_property, partial
from itertools import combinations

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import log_loss, r2_score
from sklearn.utils import check_consistent_length, check_random_state

from .._version import __version__
from ..estimators.prediction import is_blend, is_forest, prediction_of
from ..estimators.unwrap import unwrapped
from ..estimators.validation import numbers_rows, size_text, why_no_category
from ..table.dates import day_text
from ..table.frames import CATEGORY, DATE, as_array, as_frame
from .comparison import (
    METRICS,
    Predicted,
    baselines,
    check_baseline_rows,
    checked_target,
    is_banded,
    scores_of,
)
from .contents import refuse_networks
from .displays import TrainingCurveDisplay
from .effects import EffectDisplay, TableRows
from .explain import shapley_values, values_of_table
from .importances import importances_table
from .page import Report, Section, bars, cell, cell_text, contributions, short
from .picture import COLOURS, add_legend, import_axes, in_legend
from .plotting import plot_tree

N_DRAWS = 200  # bootstrap samples for intervals of scores
INTERVAL = 2.5, 97.5  # percent
PERMUTED = 500  # rows, at most, for permutation importances and pairs
N_REPEATS = 5  # permutations of each column
MAX_PERMUTED = 30  # columns, those with the largest impurity importance
N_COLUMNS = 100  # columns in the table of columns
N_BARS = 15  # columns in the table of importances
N_EFFECTS, N_POINTS, N_EFFECT_ROWS = 6, 25, 100  # panels, and points of each for so many rows
N_PAIRED, N_PAIR_ROWS = 4, 40  # columns whose pairs are measured, on the square of so many rows
N_PICTURE_ROWS = 100  # of the picture of the first pair
# Rows that explained ones are compared with, at most; fewer if there are more than 100 columns, as
# the time is proportional to the product of both.
N_BACKGROUND, LEAST_BACKGROUND, N_EXCHANGED = 100, 10, 10_000
MAX_CURVES = 10  # classes with a curve each
MAX_POINTS = 1000  # of a scatter plot
N_TREES, TREE_DEPTH = 2, 3
N_SHOWN = 8  # columns of an explained row
LAST_STEP = "The columns are those that the last step of the pipeline takes."


def describe(
    estimator,
    X_test=None,
    y_test=None,
    *,
    X_train=None,
    y_train=None,
    target=None,
    random_state=0,
):
    """Describe a fitted estimator in a report: data, training, scores, and what it learned.

    With rows that the estimator was not trained on, the report has the columns as they are read,
    scores beside those of a constant and a random forest, curves of the predictions, permutation
    importances, effects of the most important columns, interactions of the four most important
    ones, and three rows whose predictions are explained. Without rows, it has the training, the
    importances and some trees.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted classifier or regressor with one output; it may be inside a search or a pipeline.
        The columns of the report are then those of `X_test`; only trees, and importances without
        `y_test`, have the columns that transformers make.
    X_test : {array-like, dataframe} of shape (n_samples, n_features), default=None
        Rows that the estimator was not trained on.
    y_test : array-like of shape (n_samples,), default=None
        Their labels or targets. None: the report has no scores.
    X_train, y_train : array-like or dataframe, default=None
        Rows to train the constant and the random forest on. None: these are cross-validated on
        `X_test`, with five folds.
    target : label, default=None
        The class whose probability effects, pairs and explained rows show. None: of two classes,
        the second, but the rarer one if labels are text (churn rather than stay); of more classes,
        the most probable one, and the predicted one in explained rows.
    random_state : int, RandomState or None, default=0
        Seed of permutations and of bootstrap samples.

    Returns
    -------
    report : Report
        ``print(report)`` shows its text and tables. ``report.save("report.html")`` writes a page
        with all pictures, which needs no network. Notebooks show it directly.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If the estimator is not one of skforest, if its splits are networks, or if X is sparse.
    ValueError
        If the estimator has several outputs, if targets are given without rows or the other way
        round, if their lengths differ, if `y_test` has missing values or labels that the estimator
        does not know, if there are too few rows for five folds, or if `target` is no class.

    See Also
    --------
    leaderboard : Scores of several estimators.

    Notes
    -----
    Intervals of scores have 95 % of the scores of 200 bootstrap samples of the rows. Permutation
    importances are the mean decrease of R2, or of minus the log loss, over 5 permutations, on at
    most 500 rows. The interaction of two columns is the share of their joint effect that is not
    the sum of both effects (Friedman's H squared [1]_). Explained rows are compared with 100
    other rows, or with 10 to 99 if there are more than 100 columns.

    References
    ----------
    .. [1] J. H. Friedman, B. E. Popescu, "Predictive learning via rule ensembles", Annals of
       Applied Statistics 2, 2008.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.model_selection import train_test_split
    >>> from skforest import ObliqueBoostingRegressor, describe
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    >>> model = ObliqueBoostingRegressor(random_state=0).fit(X, y)
    >>> report = describe(model, X_test, y_test)
    >>> report.save("diabetes.html")  # doctest: +SKIP
    >>> [section.title for section in report.sections][:3]
    ['Columns', 'Training', 'Scores']
    """
    import_axes("describe")
    refuse_networks(estimator)
    model = unwrapped(estimator).estimator
    prediction_of(model)  # raises an error for other estimators
    if X_test is None and y_test is not None:
        raise ValueError("y_test is given without X_test")
    if y_test is not None:
        is_class, known = is_classifier(model), {"estimator": getattr(model, "classes_", None)}
        y_test = checked_target(y_test, is_class, known, "y_test")
        y_train = check_baseline_rows(is_class, y_test, X_train, y_train, "y_test")
    subject = _Subject(estimator, X_test, y_test, random_state, target)
    sections = [
        _columns(subject),
        _training(subject),
        _scores(subject, X_train, y_train),
        _importances(subject),
        _effects(subject),
        _pairs(subject),
        _trees(subject),
        _rows(subject),
    ]
    title = f"{type(model).__name__}, skforest {__version__}"
    return Report(title, [section for section in sections if section is not None])


class _Subject:
    """The described estimator and its rows.

    `model` is the estimator inside of pipelines, `X` the rows that the whole estimator takes, or
    None; `names` are those of the columns of X, and `keys` those in importances, which know only
    strings. `order` has the columns, the most important first, once they have been measured.
    """

    def __init__(self, estimator, X, y, random_state, target=None):
        whole = unwrapped(estimator)
        self.estimator, self.model = estimator, whole.estimator
        self.has_transformers, self.has_names = bool(whole.transformers), whole.has_names
        self.target, self.is_class = target, is_classifier(self.model)
        self.random = check_random_state(random_state)
        self.X = self.y = self.order = None
        if getattr(self.model, "n_outputs_", 1) > 1 or is_banded(self.model):
            raise ValueError("estimator has several outputs; describe takes one")
        if target is not None and target not in list(getattr(self.model, "classes_", ())):
            raise ValueError(f"target={target!r} is not a label of the estimator")
        if X is not None:
            X = as_array(as_frame(X))
            X = X.reshape(len(X), -1) if len(getattr(X, "shape", ())) > 2 else X
            self.rows = TableRows(estimator, X)
            self.n_rows = self.rows.table.n_rows
            self.X = self.rows.replaced(np.arange(self.n_rows))
            names = self.rows.table.names
            self.keys = [n if isinstance(n, str) else f"x{j}" for j, n in enumerate(names)]
            self.names = [str(name) for name in names] if self.rows.is_named else self.keys
        if y is not None:
            self.y = y
            check_consistent_length(self.X, self.y)
        if X is not None:
            self.predicted = Predicted.of(estimator, self.X, 1)

    @cached_property
    def shown(self):
        """int: the class whose probability is shown, see `target` of `describe`."""
        classes = self.model.classes_
        if self.target is not None:
            return classes.tolist().index(self.target)
        if len(classes) == 2 and classes.dtype.kind not in "OUS":
            return 1
        mean = self.predicted.proba.mean(axis=0)
        return int(np.argmax(mean) if len(classes) != 2 else mean[0] >= mean[1])

    @property
    def label(self):
        """object: the label of this class; None for a regressor."""
        return self.model.classes_[self.shown] if self.is_class else None

    def is_category(self, j):
        """bool: does the model read a column as a category?"""
        known = getattr(self.model, "is_categorical_", None) if self.has_names else None
        names = list(getattr(self.model, "feature_names_in_", self.keys))
        if known is not None and len(known) == len(names) and self.keys[j] in names:
            return bool(known[names.index(self.keys[j])])
        return self.rows.kind(j) == CATEGORY

    def sample(self, n):
        """At most n of the rows, at random: their numbers."""
        return np.sort(self.random.permutation(self.n_rows)[:n])

    def response(self, X):
        """Predictions as numbers: the probability of the shown class, or a regression."""
        if self.is_class:
            return self.estimator.predict_proba(X)[:, self.shown]
        return self.estimator.predict(X)


def _columns(subject):
    """How the columns of the rows are read."""
    if subject.X is None:
        return None
    section, rows, n_rows = Section("Columns"), [], subject.n_rows
    for j, name in enumerate(subject.names[:N_COLUMNS]):
        codes, levels = subject.rows.codes(j)
        values, counts = np.unique(codes[~np.isnan(codes)], return_counts=True)
        note = "constant in these rows" if len(values) < 2 else ""
        is_date = subject.rows.kind(j) == DATE
        kind = "date" if is_date else "category" if subject.is_category(j) else "number"
        if levels is not None:
            ranked = np.argsort(-counts, kind="stable")[:3]
            shown = ", ".join(str(levels[int(code)]) for code in values[ranked])
            if kind == "category":
                note = why_no_category([str(level) for level in levels], counts.sum()) or note
        else:
            if not is_date and numbers_rows(codes):
                note = "another whole number in every row"
            ends = np.nanpercentile(codes, [0, 50, 100]) if len(values) else ()
            shown = " / ".join(day_text(end) if is_date else cell_text(float(end)) for end in ends)
        missing = 100 * np.isnan(codes).mean()
        share = f"{missing:.3g} %" if missing else ""
        rows.append((name, kind, share, len(values), shown, note))
    listed = f", the first {N_COLUMNS} of which are listed" * (len(rows) < len(subject.names))
    section.say(
        f"{n_rows:,} rows and {len(subject.names)} columns{listed}"
        ". Values are the minimum, median and maximum, or the most frequent ones."
    )
    section.table(("column", "read as", "missing", "distinct", "values", "note"), rows)
    return section


def _training(subject):
    """Parameters, size and records of training."""
    model, section = subject.model, Section("Training")
    section.html.append(f"<pre class=wide>{html.escape(repr(model))}</pre>")
    section.text.append(repr(model))
    if hasattr(model, "leaderboard_"):
        board = model.leaderboard_
        rows = board if isinstance(board, dict) else board.reset_index().to_dict("list")
        section.say(f"Score: {model.score_name_}. Models were not trained on these rows.")
        section.table(list(rows), [*zip(*rows.values())])
    else:
        forest = model.forest_
        seconds = getattr(model, "_training_seconds", None)
        rows = [
            ("trees", f"{len(forest):,}"),
            ("leaves", f"{forest.n_leaves.sum():,}"),
            ("greatest depth", f"{forest.max_depth.max()}"),
            ("memory", size_text(forest.nbytes)),
            *([("seconds of training", cell_text(float(seconds)))] if seconds else []),
        ]
        section.table(("forest", ""), rows)
        try:
            figure = TrainingCurveDisplay.from_estimator(model).figure_
        except ValueError:  # it was grown in one pass
            return section
        section.picture(figure, "curves of training")
    return section


def _scores(subject, X_train, y_train):
    """Scores with intervals, and curves of the predictions."""
    if subject.y is None:
        return None
    section, y = Section("Scores"), subject.y
    found = {"this model": subject.predicted}
    found |= baselines(subject.is_class, subject.X, y, X_train, y_train)
    n, rows, names = len(y), [], METRICS[subject.is_class]
    draws = [np.bincount(subject.random.randint(n, size=n), minlength=n) for _ in range(N_DRAWS)]
    for name, one in found.items():
        scores = scores_of(one, y, names).values()
        cells = [_with_interval(score(None), [*map(score, draws)]) for score in scores]
        rows.append((name, *cells))
    section.say(
        f"Scores of {len(y):,} rows with intervals of 95 %; larger is better, and losses have a "
        "minus sign."
    )
    section.table(("", *names), rows)
    draw = _class_curves if subject.is_class else _residuals
    section.picture(draw(subject), "predictions against the truth")
    return section


def _with_interval(score, drawn):
    """A score and its interval as text; nothing if the rows lack a class that it needs."""
    if np.isnan(score) or np.isnan(drawn).all():
        return ""
    low, high = np.nanpercentile(drawn, INTERVAL)
    return f"{cell_text(score)} ({cell_text(low)} to {cell_text(high)})"


def _class_curves(subject):
    """ROC curves, calibration and confusion of a classifier."""
    import matplotlib.pyplot as plt
    from sklearn.calibration import calibration_curve
    from sklearn.metrics import ConfusionMatrixDisplay, RocCurveDisplay

    y, proba, classes = subject.y, subject.predicted.proba, subject.predicted.classes_
    figure, (roc, calibration, confusion) = plt.subplots(
        1, 3, figsize=(12, 4), layout="constrained"
    )
    shown = [k for k in range(len(classes)) if 0 < np.mean(y == classes[k]) < 1]
    shown = [subject.shown] if len(classes) == 2 and shown else shown[:MAX_CURVES]
    for k in shown:
        colour, of_class = COLOURS[k % len(COLOURS)], (y == classes[k], proba[:, k])
        RocCurveDisplay.from_predictions(*of_class, ax=roc, name=in_legend(str(classes[k])))
        truth, mean = calibration_curve(*of_class, n_bins=10, strategy="quantile")
        calibration.plot(mean, truth, "o-", color=colour, markersize=3, linewidth=1)
        roc.lines[-1].set_color(colour)
    for ax in (roc, calibration):
        ax.plot([0, 1], [0, 1], color="grey", linestyle=":", linewidth=1)
    if shown:
        add_legend(roc, fontsize=7, loc="lower right")
    roc.set(title="ROC", xlabel="false positive rate", ylabel="true positive rate")
    calibration.set(title="calibration", xlabel="probability", ylabel="share of rows")
    ConfusionMatrixDisplay.from_predictions(
        y,
        subject.predicted.labels,
        labels=classes if len(classes) == 1 else None,  # otherwise those that occur
        ax=confusion,
        colorbar=False,
        cmap="Blues",
        include_values=len(classes) <= MAX_CURVES,
        xticks_rotation="vertical" if len(classes) > 3 else "horizontal",
    )
    for text in (*confusion.get_xticklabels(), *confusion.get_yticklabels()):
        text.set_parse_math(False)
    confusion.set(title="confusion")
    return figure


def _residuals(subject):
    """Predictions against targets, and residuals of a regressor."""
    import matplotlib.pyplot as plt

    y, predicted = subject.y, np.ravel(subject.predicted.labels)
    rows = subject.sample(MAX_POINTS)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.scatter(predicted[rows], y[rows], s=8, alpha=0.5, color=COLOURS[0])
    ends = [min(predicted.min(), y.min()), max(predicted.max(), y.max())]
    left.plot(ends, ends, color="grey", linestyle=":")
    left.set(xlabel="prediction", ylabel="target")
    right.hist(y - predicted, bins=40, color=COLOURS[0])
    right.set(xlabel="target minus prediction", ylabel="rows")
    right.locator_params(axis="x", nbins=5)  # large numbers would touch each other
    return figure


def _importances(subject):
    """Impurity and permutation importances; sets the order of the columns."""
    section = Section("Importances")
    impurity = _impurity(subject)
    if subject.y is None:
        if impurity is None:
            return None
        is_known = subject.X is not None and subject.has_names
        column = {key: j for j, key in enumerate(subject.keys)} if is_known else {}
        shown = [subject.names[column[key]] if key in column else key for key in impurity]
        rows = list(zip(shown, map(float, impurity.values())))
        if subject.has_transformers:
            section.say(LAST_STEP)
        section.table(("column", "importance in training"), rows[:N_BARS])
        if subject.X is not None:
            ranked = [column[key] for key in impurity if key in column]
            subject.order = ranked or list(range(len(subject.names)))
        return section
    names, keys = subject.names, subject.keys
    is_known = subject.has_names and impurity is not None and set(impurity) == set(keys)
    known = impurity if is_known else None
    columns = np.arange(len(names))
    if known is not None:
        columns = np.argsort([-known[key] for key in keys], kind="stable")
    rows, n_columns = subject.sample(PERMUTED), min(len(names), MAX_PERMUTED)
    loss, y, predict, predicted = {}, subject.y[rows], "predict", subject.predicted.labels
    what, sign, score = "r2", 1, r2_score
    if subject.is_class:  # accuracy is the same while the most frequent class is predicted
        predict, predicted = "predict_proba", subject.predicted.proba
        what, sign = "neg_log_loss", -1
        classes = subject.predicted.classes_  # of a single class, the loss is 0
        score = partial(log_loss, labels=classes) if len(classes) > 1 else lambda *_: 0.0
    predict, best = getattr(subject.estimator, predict), score(y, predicted[rows])
    for j in columns[:n_columns]:
        orders = [subject.random.permutation(rows) for _ in range(N_REPEATS)]
        changed = subject.rows.replaced(np.tile(rows, N_REPEATS), (j, np.concatenate(orders)))
        drawn = np.split(np.asarray(predict(changed)), N_REPEATS)
        loss[j] = [sign * (best - score(y, values)) for values in drawn]
    subject.order = sorted(loss, key=lambda j: -np.mean(loss[j]))
    section.say(
        f"Decrease of {what} when a column is permuted (mean and standard deviation of "
        f"{N_REPEATS} permutations of {len(rows)} rows"
        + (f", {n_columns} of {len(names)} columns)" if n_columns < len(names) else ")")
        + (", and its share of the importances that training found." if known else ".")
    )
    head = ("column", "decrease", "deviation", *(("in training",) if known else ()))
    section.table(
        head,
        [
            (names[j], float(np.mean(loss[j]).round(12)) + 0.0, float(np.std(loss[j])))
            + ((float(known[keys[j]]),) if known else ())
            for j in subject.order[:N_BARS]
        ],
    )
    shown = subject.order[:N_BARS]
    figure = bars([names[j] for j in shown], [loss[j] for j in shown], what)
    section.picture(figure, "permutation importances")
    return section


def _impurity(subject):
    """Importances by name, the largest first; None if the model has none."""
    try:
        table = importances_table(subject.estimator)
    except (TypeError, ValueError):
        return None
    if isinstance(table, dict):
        return dict(zip(table["feature"], table["importance"]))
    return table["importance"].to_dict()


def _effects(subject):
    """Effects of the most important columns."""
    if subject.order is None:
        return None
    section = Section("Effects")
    subject.order = [j for j in subject.order if not np.isnan(subject.rows.codes(j)[0]).all()]
    columns = [[j] for j in subject.order[:N_EFFECTS]]
    what = f"the probability of {subject.label!s}" if subject.is_class else "the prediction"
    section.say(f"Mean of {what} when all rows have the same value in a column.")
    seed = subject.random.randint(2**31 - 1)
    display = EffectDisplay._of_numbers(
        subject.estimator,
        subject.rows,
        columns,
        target=subject.label,
        grid_resolution=N_POINTS,
        subsample=N_EFFECT_ROWS,
        random_state=seed,
    )
    section.picture(display.plot().figure_, "effects of single columns")
    section.text = []  # there is no table
    return section


def _pairs(subject):
    """Interactions of the most important columns."""
    if subject.order is None or len(subject.order) < 2:
        return None
    rows = subject.sample(N_PAIR_ROWS)
    columns, n = subject.order[:N_PAIRED], len(rows)

    def mean_effect(*fixed):
        """Mean response of all rows with the columns of each row, minus its mean."""
        sources = [(j, np.repeat(rows, n)) for j in fixed]
        every = subject.rows.replaced(np.tile(rows, n), *sources)
        effect = subject.response(every).reshape(n, n).mean(axis=1)
        return effect - effect.mean()

    single = {j: mean_effect(j) for j in columns}
    found = []
    for j, k in combinations(columns, 2):
        joint = mean_effect(j, k)
        total = np.sum(joint**2)
        share = np.sum((joint - single[j] - single[k]) ** 2) / total if total > 0 else 0.0
        found.append((100 * min(share, 1.0), float(np.std(joint)), j, k))
    found.sort(key=lambda one: (-one[0], one[2:]))
    section = Section("Pairs of columns")
    section.say(
        "How much of the joint effect of two columns is not the sum of both effects, and the "
        f"standard deviation of their joint effect, for the {len(columns)} most important columns."
    )
    names = subject.names
    section.table(
        ("pair", "interaction in percent", "deviation of the joint effect"),
        [(f"{names[j]} x {names[k]}", share, deviation) for share, deviation, j, k in found],
    )
    options = {"target": subject.label, "subsample": N_PICTURE_ROWS}
    pair = [found[0][2:]]
    display = EffectDisplay._of_numbers(subject.estimator, subject.rows, pair, **options)
    section.picture(display.plot().figure_, "mean prediction over the first pair")
    return section


def _trees(subject):
    """The first trees of the model, or of the member of a blend with the largest weight."""
    model, section = subject.model, Section("Trees")
    if is_blend(model):
        own = [name for name, member in model.members_.items() if is_forest(member)]
        if not own:
            return None
        name = max(own, key=model.weights_.get)
        model = model.members_[name]
        section.say(f"Of the member {name!r}, whose weight is largest among the forests.")
    if not hasattr(model.forest_, "node_weight"):  # `slim` removed it
        return None
    if subject.has_transformers:
        section.say(LAST_STEP)
    import matplotlib.pyplot as plt

    has_splits = np.flatnonzero(model.forest_.n_leaves > 1)
    for tree in has_splits[:N_TREES].tolist():
        figure = plt.figure(figsize=(11, 4.5))
        plot_tree(model, tree, max_depth=TREE_DEPTH, ax=figure.add_axes([0, 0, 1, 1]))
        section.picture(figure, f"tree {tree} to depth {TREE_DEPTH}")
    return section


def _rows(subject):
    """Three rows whose predictions are explained."""
    if subject.X is None:
        return None
    predicted = subject.predicted
    if subject.is_class:
        sure = predicted.proba.max(axis=1)
        kinds = {"surest prediction": np.argmax(sure), "least sure one": np.argmin(sure)}
        if subject.y is not None and (is_wrong := predicted.labels != subject.y).any():
            kinds["surest error"] = np.argmax(np.where(is_wrong, sure, 0))
    else:
        order = np.argsort(np.ravel(predicted.labels), kind="stable")
        kinds = {"smallest prediction": order[0], "median prediction": order[len(order) // 2]}
        kinds["largest prediction"] = order[-1]
    rows = np.array(list(kinds.values()))
    n_most = max(LEAST_BACKGROUND, min(N_BACKGROUND, N_EXCHANGED // len(subject.names)))
    background = subject.rows.replaced(subject.sample(n_most))
    X = subject.rows.replaced(rows)
    if subject.has_transformers:
        classes = predicted.classes_ if subject.is_class else None
        every = values_of_table(subject.estimator, X, background, classes)
    else:  # of two classes, only one
        label = subject.label if subject.is_class and predicted.proba.shape[1] == 2 else None
        explained = shapley_values(subject.estimator, X, background, "response", target=label)
        every = explained.values.reshape(len(rows), len(subject.names), -1)
    section, names, cells = Section("Three rows explained"), subject.names, np.asarray(X, object)
    section.say(
        "Contributions of columns to the prediction of a row, beside its mean for "
        f"{min(n_most, subject.n_rows)} other rows (Shapley values)."
    )
    pictures = []
    for i, (kind, row) in enumerate(kinds.items()):
        k, what, total = 0, "prediction", np.ravel(predicted.labels)[row]
        if subject.is_class:
            label = subject.label
            if subject.target is None and len(predicted.classes_) > 2:
                label = predicted.labels[row]
            what = f"probability of {label}"
            k = list(predicted.classes_).index(label)
            total, k = predicted.proba[row, k], k if every.shape[2] > 1 else 0
        values = every[i, :, k]
        values[np.abs(values) < 1e-9 * np.abs(values).max()] = 0  # by rounding
        lines = [f"row {row}, {kind}", f"{what}: {cell_text(float(total))}"]
        lines += [] if subject.y is None else [f"truth: {cell(subject.y[row])}"]
        order = np.argsort(-np.abs(values), kind="stable")[:N_SHOWN]
        section.text.append(", ".join(lines).replace("row", "Row", 1))
        table, shown = Section(""), [cell(cells[i].ravel()[j]) for j in order]
        table.table(
            ("column", "value", "contribution"),
            [(names[j], value, float(values[j])) for j, value in zip(order, shown)],
        )
        section.text += table.text
        labels = [short(f"{names[j]} = {value}") for j, value in zip(order, shown)]
        pictures.append(("\n".join(map(short, lines)), labels, values[order]))
    section.picture(contributions(pictures), "contributions of columns to three predictions")
    return section
