"""Descriptions of parameters and attributes that estimators share, each written once.

A module describes its own parameters in a text of numpydoc entries without defaults, and decorates
its estimators with `described`, which puts the entries of all parameters of a class, in the order
of its signature and with the defaults of the signature, in place of ``{parameters}`` in the
docstring; and those of its attributes in place of ``{attributes}``. Other texts that docstrings
share, in `TEXTS`, stand in place of their names in braces; `with_texts` puts them there.
"""

import inspect
import re

PARAMETERS = """
n_estimators : int
    Number of trees, at least 1.
max_depth : int or None
    Maximum depth of a tree, at least 1; the root has depth 0. None: no limit.
min_samples_split : int or float
    Minimum number of rows that a node needs to be split. A float is a fraction of the rows of the
    tree. Equal rows count once.
min_samples_leaf : int or float
    Minimum number of rows in a leaf. A float is a fraction of the rows of the tree.
min_weight_fraction_leaf : float
    Minimum weight of a leaf, as a fraction of the total weight of the tree, in [0, 0.5].
max_leaf_nodes : int or None
    Maximum number of leaves, at least 2. The node with the largest gain is split first. None: no
    limit.
min_impurity_decrease : float
    A node is split only if the split decreases the impurity, weighted by the node's share of the
    training weight, by at least this much. At least 0.
splitter : {"hist", "exact"}
    How the threshold of a projected column is found. "hist": between bins of equal width; the
    threshold lies halfway between the nearest rows on either side, and nodes with at most 24 rows
    are cut exactly. "exact": between any two rows, by sorting all rows of the node; slower, and
    rarely better.
max_bins : "auto" or int
    Number of bins with splitter="hist", from 2 to 1024. "auto": 32 with 10 or more classes,
    otherwise 64.
max_search_samples : int or None
    With splitter="hist", a node with more rows than this is searched on a random subset of this
    size, at least 32; the gain of the best split is then computed from all rows. None: all rows
    are searched.
voting : {"soft", "hard"}
    How trees are combined in classification. "soft": class probabilities are the mean of the class
    frequencies of the leaves. "hard": every tree votes for the most frequent class of the leaf,
    the first one in a tie, and class probabilities are the shares of the votes. Votes are stored
    in the leaves by `fit`: with `warm_start`, a change applies to the new trees only.
bootstrap : bool
    True: each tree is trained on a bootstrap sample; rows are drawn with replacement, with
    probabilities proportional to their weights. False: every tree is trained on all rows.
max_samples : int, float or None
    Number of rows to draw for each tree; a float is a fraction of the rows. None: as many as there
    are rows. Equal rows count as one, unless rows repeat by nature or by chance, see "Copies" in
    the guide to oblique boosting. Only with a bootstrap.
oob_score : bool
    Whether to compute an out-of-bag score, for which each row is predicted by the trees that did
    not draw it. Only with a bootstrap.
class_weight : dict, list of dict, {"balanced", "balanced_subsample"} or None
    Weights of the classes; the weight of a row is multiplied by the weight of its class.
    "balanced": all classes have the same total weight in the training set. "balanced_subsample":
    they have it in the sample of every tree. With several outputs, pass a list with one dict,
    "balanced" or None per output; the weights of all labels of a row are multiplied.
prior : array-like of shape (n_classes,), dict, list of these, or None
    Frequencies of the classes where the model is used, in the order of `classes_` or by label.
    Training does not see them. Predicted probabilities are multiplied by their ratio to the
    frequencies in training, and divided by their sum. You can thus train on equally many rows of
    each class; `class_weight` must be None. Only their proportions matter, and all must be greater
    than 0. With several outputs, pass a list with one entry per output, which may be None. None:
    no correction. See :ref:`prior`.
categorical_features : "from_dtype", array-like of bool, int or str, or None
    Which columns of X are categories. "from_dtype": columns of a data frame that hold strings or
    have a categorical dtype, and columns of strings in object arrays. You can also pass a mask of
    shape (n_features,), column numbers, or column names. A mask that is a Series of pandas is read
    by its labels, if they are names. None: no column. See :doc:`/guide/tables`.
weight_dtype : {"float32", "float16"}
    Type in which the weights of hyperplanes are stored. "float16" halves the size of the model,
    but predictions take longer. Rows are routed by the stored weights, and each leaf is computed
    from the rows that then reach it; there may be fewer than `min_samples_leaf`.
momentum : float
    Fraction of the previous step that is added to the next one, in [0, 1).
batch_size : int
    Number of rows in a gradient step, at least 1.
early_stopping : bool
    Whether to hold out `validation_fraction` of the rows of each tree. Joint training then ends
    when the loss on these rows has not decreased for `n_iter_no_change` epochs, and the splits of
    the best epoch are kept. Finally, the leaves are computed from all rows.
validation_fraction : float
    Fraction of the distinct rows to hold out, in (0, 1). Only with `early_stopping`.
n_iter_no_change : int
    Joint training ends after this many epochs without improvement, at least 1. Only with
    `early_stopping`.
n_jobs : int or None
    Number of threads that train trees, or predict blocks of rows. None: 1, unless in a
    `joblib.parallel_config` context, which may also name a backend of processes, see
    :doc:`/guide/scale`. -1: all processors. The fitted forest does not depend on it.
random_state : int, RandomState or None
    Seed of all random choices in training. Pass an int for reproducible results.
verbose : int
    1 shows progress: a bar if tqdm is installed, otherwise about ten lines. It counts trees; in
    oblique boosting, rounds over all bags; in hinge forests, evaluations over all bags; for a
    single tree, epochs of joint training. If rows are held out, it also shows their latest and
    their lowest loss. More than 1, without tqdm: one line for each step.
warm_start : bool
    Whether to keep the trees of the previous fit and train only those that are missing to reach
    `n_estimators`. If other training parameters have changed in between, they apply to the new
    trees only. Bags that a `time_limit` has ended are completed: boosting continues with their
    rounds, and hinge forests train them again.
time_limit : float or None
    Seconds, greater than 0, after which training ends with the trees completed so far, at least
    one. In boosting and hinge forests, the bag in training keeps its best model so far, and no bag
    is started that would probably not finish in time. A warning says what was trained. With a
    limit, the model depends on the speed of the machine. None: no limit.
"""

# Of estimators without "balanced_subsample".
CLASS_WEIGHT = """
class_weight : dict, list of dict, "balanced" or None
    Weights of the classes; the weight of a row is multiplied by the weight of its class, which is
    1 if a dict does not contain the class; 0: its rows are left out. "balanced": all classes have
    the same total weight. With several outputs, pass a list with one dict, "balanced" or None per
    output; the weights of all labels of a row are multiplied.
"""

ATTRIBUTES = """
forest_ : Forest
    The fitted trees.
n_features_in_ : int
    Number of features seen during fit.
feature_names_in_ : ndarray of shape (n_features_in_,), object
    Names of the features, if X was a data frame whose column names are all strings.
is_categorical_ : ndarray of shape (n_features_in_,), bool, or None
    Which columns of X are categories; None if no column is.
n_outputs_ : int
    Number of outputs.
classes_ : ndarray of shape (n_classes_,), or list of such arrays
    Sorted class labels; with several outputs, a list with one array per output.
n_classes_ : int or list of int
    Number of classes; with several outputs, a list with one entry per output.
feature_importances_ : ndarray of shape (n_features_in_,), float64
    Importances of the features; at least 0, with sum 1.
oob_score_ : float
    Out-of-bag accuracy (with several outputs, the fraction of rows with all labels correct), or R2
    averaged over outputs, without class weights. Only with `oob_score`.
oob_decision_function_ : ndarray of shape (n_samples, n_classes_), float64, or list of such arrays
    Class probabilities of every training sample, from the trees that did not draw it, or that a
    blend trained without it; NaN where there are none, or where its weight, or that of its class,
    is 0. Only with `oob_score`.
oob_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_outputs_), float64
    Predictions of every training sample, from the trees that did not draw it, or that a blend
    trained without it; NaN where there are none, or where its weight is 0. Only with `oob_score`.
"""

TEXTS = {
    "parameters_and_attributes": """
Parameters
----------
{parameters}

Attributes
----------
{attributes}
""",
    "notes_and_references": """
Notes
-----
{notes}

References
----------
{references}
""",
    "weighted_rows": """
The training set is treated as a weighted set of rows: equal rows with equal y are merged, and
their weights are added. The order of the rows therefore does not matter, and a weight of k is
equivalent to k copies of a row. Multiplying all weights by a constant has no effect, except for
rounding.
""",
    "outliers": """
Features are measured in units of the range of their usual values. Outliers, and values far outside
the training range, are moved towards this range without changing their order; see
:doc:`/guide/tables`.
""",
    "digits": """
>>> from sklearn.datasets import load_digits
>>> from sklearn.model_selection import train_test_split
>>> X, y = load_digits(return_X_y=True)
>>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
""",
    "takes_matrix": """
Parameters
----------
X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
    Rows with the same columns as in `fit`, sparse only if `fit` takes sparse X. Unknown levels
    and missing values are allowed, see :doc:`/guide/tables`.
""",
    "takes_rows": """
Parameters
----------
X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
    Or of shape ``(n_samples, *feature_shape)``. Rows with the same columns as in `fit`, sparse
    only if `fit` takes sparse X. Unknown levels and missing values are allowed, see
    :doc:`/guide/tables`.
""",
    "takes_targets": """
y : array-like of shape (n_samples,) or (n_samples, n_outputs)
    Class labels, or numbers in regression.
sample_weight : array-like of shape (n_samples,), default=None
    At least 0, and not all 0. A weight of k is equivalent to k copies of the row, and a weight of
    0 to leaving it out, except that `classes_` keeps its class; if no row of a class is left,
    trees may draw other rows. None: all weights are 1.
""",
    "takes_given_targets": """
y_val : array-like of shape (n_val,) or (n_val, n_outputs), default=None
    Targets of `X_val`. Labels must occur in y.
sample_weight_val : array-like of shape (n_val,), default=None
    Weights of `X_val`, like `sample_weight`; they are not multiplied by `class_weight`.
""",
    "checkpoint": """
checkpoint : str or Path, default=None
    Folder for complete trees or bags, and once a minute for the rounds of a bag of boosting. If
    the fit is interrupted, the same call continues from there, with the same result, see
    :ref:`checkpoints`; `random_state` must be set. It contains pickles: pass only a folder that
    nobody else can write to.
""",
    "returns_self": """
Returns
-------
self : object

Raises
------
ValueError
    If a parameter or the data is invalid, or the loss becomes infinite. The estimator is then left
    unchanged.
TypeError
    If X is of a type that cannot be read, such as a column of dates, or is sparse where it must be
    dense. The estimator is then left unchanged.
""",
    "returns_leaves": """
Returns
-------
leaves : ndarray of shape (n_samples, n_trees), int32
    Node numbers, counted from the root of each tree.
""",
    "returns_path": """
Returns
-------
indicator : csr_matrix of shape (n_samples, n_nodes)
    1 if the row passes through the node.
""",
    "reads": """
Parameters
----------
path : str, Path or binary file
    A file or a folder. An open file is read to its end; it need not be seekable.
mmap_mode : {None, "r"}, default=None
    "r": map the arrays of a folder into memory instead of reading them.
""",
}

COMMON = ("forest_", "n_features_in_", "feature_names_in_", "is_categorical_", "n_outputs_")
OF_CLASSIFIERS = ("classes_", "n_classes_")


def entries(text):
    """Entries of a numpydoc section without headings: dict from name to (type, description)."""
    found = {}
    for block in re.split(r"\n(?=\S)", text.strip("\n")):
        head, _, description = block.partition("\n")
        names, _, kind = head.partition(" : ")
        found[names] = kind, description
    return found


# The last group of parameters in a docstring.
RUNNING = (
    "class_weight",
    "prior",
    "categorical_features",
    "n_jobs",
    "random_state",
    "verbose",
    "warm_start",
    "time_limit",
)


def described(parameters="", attributes="", usual="", without=(), **texts):
    """Class decorator: complete the docstring of an estimator, and those of its methods.

    `parameters` and `attributes` are entries that add to the shared ones, or replace them. Each of
    the `texts` takes the place of its name in braces. `usual` names the first group of parameters,
    which are enough for most users; `without` names shared attributes that the class does not
    have.
    """

    def decorate(cls):
        known = entries(PARAMETERS) | entries(parameters)
        signature = inspect.signature(cls.__init__).parameters
        lines, first, last = [], usual.split(), None
        for name, parameter in list(signature.items())[1:]:
            group = "Running" if name in RUNNING else "Of the method"
            group = "Usually enough" if name in first else group
            if usual and group != last:
                lines, last = [*lines, *([""] if lines else []), f"**{group}**", ""], group
            kind, description = known[name]
            default = repr(parameter.default).replace("'", '"')
            lines += [f"{name} : {kind}, default={default}", description]
        own = {
            "parameters": "\n".join(lines),
            "attributes": _attribute_lines(cls, signature, attributes, without),
        }
        return with_texts(**own | texts)(cls)

    return decorate


def with_texts(**texts):
    """Decorator: put texts in place of their names in braces, in docstrings.

    It decorates a function, or a class and the methods that the class defines. The texts are the
    given ones and `TEXTS`; they may contain each other.
    """

    def decorate(thing):
        methods = vars(thing).values() if inspect.isclass(thing) else ()
        for one in (thing, *(getattr(method, "__func__", method) for method in methods)):
            if (one is thing or inspect.isfunction(one)) and "{" in (one.__doc__ or ""):
                one.__doc__ = _completed(inspect.cleandoc(one.__doc__), TEXTS | texts)
        return thing

    return decorate


def _completed(doc, texts):
    """A docstring with texts in place of their names, until it contains none of them."""
    pattern = re.compile("|".join(f"{{{name}}}" for name in texts))
    while pattern.search(doc):
        doc = pattern.sub(lambda found: texts[found[0][1:-1]].strip("\n"), doc)
    return doc


def _attribute_lines(cls, signature, attributes, without):
    """The section of attributes: common ones, those of the task, the class's own."""
    own = entries(attributes)
    known = entries(ATTRIBUTES) | own
    is_classifier = hasattr(cls, "predict_proba")
    names = [*COMMON, *(OF_CLASSIFIERS if is_classifier else ())]
    names = [name for name in names if name not in without]
    names += [name for name in own if name not in names]
    if "n_features_in_" in names and "feature_importances_" not in (*names, *without):
        names.append("feature_importances_")
    if "oob_score" in signature:
        names += ["oob_score_", "oob_decision_function_" if is_classifier else "oob_prediction_"]
    return "\n".join(f"{name} : {known[name][0]}\n{known[name][1]}" for name in names)
