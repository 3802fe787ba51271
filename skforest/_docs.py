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
    Largest depth of a leaf; the root has depth 0. None: no limit.
min_samples_split : int or float
    Nodes with fewer rows are leaves; a float is a fraction of the rows of the tree. Equal rows
    count once.
min_samples_leaf : int or float
    Smallest number of rows of a leaf; a float is a fraction of the rows of the tree.
min_weight_fraction_leaf : float
    Smallest weight of a leaf, as a fraction of the weight of the rows of the tree, in [0, 0.5].
max_leaf_nodes : int or None
    Grow at most this many leaves, splitting the node of largest gain first. At least 2. None: no
    limit.
min_impurity_decrease : float
    A node is split only if that decreases the impurity, weighted by the node's share of the
    training weight, by at least this much. Not negative.
splitter : {"hist", "exact"}
    How a projected column is cut. "hist": between bins of equal width, with the threshold halfway
    between the rows on both sides; nodes of at most 24 rows are cut exactly. "exact": between
    any two rows, by sorting all rows of the node; slower, and rarely better.
max_bins : "auto" or int
    Number of bins of splitter="hist", from 2 to 1024. "auto": 32 with 10 classes or more, else
    64.
max_search_samples : int or None
    With splitter="hist", nodes with more rows are searched in a random subset of this size, at
    least 32; the gain of the split found is computed from all rows. None: all rows.
bootstrap : bool
    True: each tree is trained on a bootstrap sample, rows drawn with replacement with
    probabilities proportional to their weights. False: every tree is trained on all rows.
max_samples : int, float or None
    Number of rows to draw for each tree; a float is a fraction of the distinct rows. None: as
    many as there are distinct rows. Only with a bootstrap.
oob_score : bool
    Whether to score the forest on the rows that each tree did not draw. Only with a bootstrap.
class_weight : dict, list of dict, {"balanced", "balanced_subsample"} or None
    Weights of the classes, which multiply the weights of their rows. "balanced": all classes have
    the same total weight in the training set. "balanced_subsample": in the sample of every tree.
    With several outputs, a list with a dict for each; the weights of all outputs are multiplied.
categorical_features : "from_dtype", array-like of bool, int or str, or None
    Columns of X that hold categories. "from_dtype": those of a data frame that hold strings or
    have a categorical dtype, and columns of strings in arrays of objects. A mask of shape
    (n_features,), column numbers, or column names: these. None: there are none. See
    :doc:`/guide/tables`.
weight_dtype : {"float32", "float16"}
    Type in which the weights of hyperplanes are stored. "float16" halves the size of the model;
    rows are routed by the weights as they are stored, and leaves are computed from the rows that
    arrive. Predictions take longer.
momentum : float
    Fraction of the last step that is added to the next, in [0, 1).
batch_size : int
    Rows of a gradient step, at least 1.
early_stopping : bool
    Whether to hold out `validation_fraction` of the rows of a tree, end joint training when their
    loss has not decreased for `n_iter_no_change` epochs, and keep the splits of the best epoch.
    Leaves are computed from all rows in the end.
validation_fraction : float
    Fraction of the distinct rows to hold out, in (0, 1). Only with `early_stopping`.
n_iter_no_change : int
    Joint training ends after this many epochs without improvement, at least 1. Only with
    `early_stopping`.
n_jobs : int or None
    Number of threads that train trees, or predict blocks of rows. None: 1, unless in a
    `joblib.parallel_config` context, which may also name a backend of processes, see
    :doc:`/guide/scale`. -1: all processors. The forest does not depend on it.
random_state : int, RandomState or None
    Seed of everything that is random in training. An int makes the forest reproducible.
verbose : int
    1 shows progress: a bar if tqdm is installed, else about ten lines. It counts trees; rounds or
    evaluations, over all bags, of oblique boosting and hinge forests; the epochs of joint training
    of a single tree. Beside them are the last and the least loss of held-out rows, if there are
    any. More than 1, without tqdm: a line for each of them.
warm_start : bool
    Whether to keep the trees of the last fit and add those missing to `n_estimators`. Other
    parameters of training that are changed in between apply to the new trees only.
time_limit : float or None
    Seconds, more than 0, after which training ends with the trees that are complete, at least one.
    A bag of boosted or hinge trees ends with its best model so far, and no further one begins that
    would probably not end in time. A warning says what was trained. The model then depends on the
    speed of the machine. None: no limit.
"""

# Of estimators that take no "balanced_subsample".
CLASS_WEIGHT = """
class_weight : dict, list of dict, "balanced" or None
    Weights of the classes, which multiply the weights of their rows; classes that are not in a
    dict have weight 1. "balanced": all classes have the same total weight. With several outputs,
    a list with a dict for each; the weights of all outputs are multiplied.
"""

ATTRIBUTES = """
forest_ : Forest
    The fitted trees.
n_features_in_ : int
    Number of features seen during fit.
feature_names_in_ : ndarray of shape (n_features_in_,), object
    Names of the features, if X was a data frame whose column names are all strings.
is_categorical_ : ndarray of shape (n_features_in_,), bool, or None
    Which columns of X are categories; None if there are none.
n_outputs_ : int
    Number of outputs.
classes_ : ndarray of shape (n_classes_,), or list of such arrays
    Labels, sorted; a list with one array for each output if there are several.
n_classes_ : int or list of int
    Number of classes, of each output if there are several.
feature_importances_ : ndarray of shape (n_features_in_,), float64
    Importances of the features: not negative, with sum 1.
oob_score_ : float
    Out-of-bag accuracy (with several outputs, share of rows of which all labels are right), or R2
    averaged over outputs. Only with `oob_score`.
oob_decision_function_ : ndarray of shape (n_samples, n_classes_), float64, or list of such arrays
    Class probabilities of every training sample, from the trees that did not draw it; NaN where
    every tree drew it, or where its weight is 0. Only with `oob_score`.
oob_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_outputs_), float64
    Predictions of every training sample, from the trees that did not draw it; NaN where every
    tree drew it, or where its weight is 0. Only with `oob_score`.
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
The training set is a weighted set of rows: equal rows (with equal y) are merged and their weights
added, so the order of the rows does not matter, and a weight of k equals k copies. A factor of all
weights has no effect.
""",
    "outliers": """
The unit of a feature is the range of its usual values. Outliers, and values far outside of the
training range, are moved towards it, in their order; see :doc:`/guide/tables`.
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
    Rows with the columns of fit; levels may be unknown and values missing, see
    :doc:`/guide/tables`.
""",
    "takes_rows": """
Parameters
----------
X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
    Or of shape ``(n_samples, *feature_shape)``. Rows with the columns of fit; levels may be
    unknown and values missing, see :doc:`/guide/tables`.
""",
    "returns_self": """
Returns
-------
self : object

Raises
------
ValueError
    If a parameter or the data is not valid, or the loss becomes infinite; the estimator is then
    left as it was.
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
    1 where the node is on the path of the row.
""",
    "reads": """
Parameters
----------
path : str, Path or binary file
    A file or a folder. An open file, which need not be seekable, is read to its end.
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
    "categorical_features",
    "n_jobs",
    "random_state",
    "verbose",
    "warm_start",
    "time_limit",
)


def described(parameters="", attributes="", usual="", without=(), **texts):
    """Class decorator: complete the docstring of an estimator, and those of its methods.

    `parameters` and `attributes` are entries that add to the shared ones, or replace them; `texts`
    are further texts, each put in place of its name in braces. `usual` are the names of the first
    parameters, which are enough for most users. `without`: shared attributes that the class does
    not have.
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

    Of a function; or of a class and the methods that it defines. The texts are those given and
    `TEXTS`, which may contain each other.
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
    if "n_features_in_" in names and "feature_importances_" not in names:
        names.append("feature_importances_")
    if "oob_score" in signature:
        names += ["oob_score_", "oob_decision_function_" if is_classifier else "oob_prediction_"]
    return "\n".join(f"{name} : {known[name][0]}\n{known[name][1]}" for name in names)
