"""Fitted estimators in other formats: C99 and ONNX.

Both writers read an `ExportedModel`: weighted forests, and how their responses become a
prediction.
"""

import re
from numbers import Integral
from pathlib import Path

from .c_code import c_code
from .model import exported
from .onnx_graph import DEFAULT_OPSET, MIN_OPSET, onnx_model

# Keywords of C99, and names declared by the headers that the source includes.
KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while main"
)
FUNCTIONS = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 "
    "fabs fdim floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 "
    "log1p log2 logb lrint lround modf nan nearbyint nextafter nexttoward pow remainder remquo "
    "rint round scalbln scalbn sin sinh sqrt tan tanh tgamma trunc"
)
OTHERS = (
    "HUGE_VAL HUGE_VALF HUGE_VALL INFINITY NAN NULL fpclassify isfinite isgreater isgreaterequal "
    "isinf isless islessequal islessgreater isnan isnormal isunordered offsetof signbit"
)
RESERVED = {*KEYWORDS.split(), *OTHERS.split()}
RESERVED |= {name + end for name in FUNCTIONS.split() for end in ("", "f", "l")}


def to_c(estimator, path=None, *, name="predict"):
    """Write a fitted estimator as a function of C99 without dependencies.

    The source contains the arrays of the model, macros with the numbers of its inputs and outputs,
    and ``void predict(const double *x, double *out)``, which predicts one row. The function
    allocates no memory and has no state, so several threads may call it at the same time.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted estimator of any kind except `skforest.torch.E2ENetworkTree`. The members of a blend
        must be forests of this package. For a search, the best estimator is written. A pipeline
        may contain scalers of scikit-learn and `SimpleImputer`, applied to all columns alike; they
        become part of the result.
    path : str or Path, default=None
        Where to write the source. None: it is only returned.
    name : str, default="predict"
        Name of the function, an identifier of C. All other names in the source begin with this
        name, in lower or upper case.

    Returns
    -------
    source : str
        ASCII only.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If the estimator, or a member of a blend, is not a forest of this package, or if members
        differ in their categories.
    ValueError
        If `name` is not an identifier, or the model has more than 2^31 - 1 nodes or weights.

    See Also
    --------
    to_onnx : Write an estimator as a graph of ONNX.

    Notes
    -----
    ``x`` has one number for each column of X; rows of shape `feature_shape` are flattened in C
    order. NaN stands for a missing value. A column that is a category has the code of its level.
    The comment at the head of the source lists the levels, whose codes count from 0; any other
    number stands for an unknown level. Infinite values, which the estimator refuses, count as the
    largest number that it accepts.

    ``out`` receives the prediction of a regressor, or the probabilities of a classifier, with
    classes in the order of `classes_` and, for several outputs, one output after another. The
    macros ``PREDICT_N_INPUTS`` and ``PREDICT_N_OUTPUTS`` are the lengths of ``x`` and ``out``,
    ``PREDICT_N_CLASSES`` is the number of classes, and ``PREDICT_N_TARGETS`` the number of outputs
    of a classifier.

    Sums and products are computed in the same order and in the same dtypes as in the estimator, so
    rows take the same branches; results differ only by the rounding of the functions ``exp`` and
    ``log``. This requires a compiler that neither contracts nor reorders floating-point
    operations: ``cc -std=c99 -O2 predict.c -lm``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skforest import ManifoldForestClassifier, to_c
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = ManifoldForestClassifier(n_estimators=10, random_state=0).fit(X, y)
    >>> source = to_c(forest, name="iris")
    >>> for line in source.splitlines():
    ...     if line.startswith(("void iris", "#define IRIS")):
    ...         print(line)
    #define IRIS_N_INPUTS 4
    #define IRIS_N_OUTPUTS 3
    #define IRIS_N_TARGETS 1
    #define IRIS_N_CLASSES 3
    void iris(const double *x, double *out);
    void iris(const double *x, double *out)
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(f"name={name!r} must be an identifier of C that begins with a letter")
    if name in RESERVED or name.endswith("_t"):
        raise ValueError(f"name={name!r} has a meaning in C; choose another one")
    source = c_code(exported(estimator), name)
    if path is not None:
        Path(path).write_text(source, encoding="ascii", newline="\n")
    return source


def to_onnx(estimator, path=None, *, opset=None):
    """Write a fitted estimator as a graph of ONNX.

    The graph takes the columns of X as they are: it includes the handling of missing values,
    categories and scaling. It uses only standard operators, including those for trees, and runs in
    onnxruntime.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted estimator of any kind except `skforest.torch.E2ENetworkTree`. The members of a blend
        must be forests of this package. For a search, the best estimator is written. A pipeline
        may contain scalers of scikit-learn and `SimpleImputer`, applied to all columns alike; they
        become part of the result.
    path : str or Path, default=None
        Where to write the model. If its constants take about 2 GB or more, they are written to a
        second file beside it, whose name ends with ``.data``, and the returned model refers to
        this file. None: it is only returned.
    opset : int, default=None
        Version of the standard operators, at least 13. None: 17. Operators for trees have
        version 3 of ``ai.onnx.ml``.

    Returns
    -------
    model : onnx.ModelProto

    Raises
    ------
    ImportError
        If onnx is not installed.
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If the estimator, or a member of a blend, is not a forest of this package; if members
        differ in their categories; or if labels or levels have mixed types, or types that ONNX
        does not have.
    ValueError
        If `opset` is not supported, or a model with linear leaves has more than 1 GB.

    See Also
    --------
    to_c : Write an estimator as a function of C.

    Notes
    -----
    Inputs: if the estimator was fitted on a data frame, or on a table with categories, the graph
    has one input of shape (N, 1) for each column, with the name of the column (``x0``, ``x1``, ...
    if columns have no names; with ``_`` appended if it is the name of an output). Otherwise there
    is one input ``X`` of shape (N, n_features); rows of shape `feature_shape` are flattened in C
    order.

    Numbers are float64 if the estimator scales features, because it scales them in float64;
    otherwise they are float32. NaN stands for missing numbers. Categories are strings, or float64
    if their levels are numbers; a missing string is the empty string. Infinite values, which the
    estimator refuses, count as the largest number that it accepts.

    Outputs: a classifier has ``label`` of shape (N,), or (N, n_outputs) for several outputs, and
    ``probabilities``, float32 of shape (N, n_classes), with the classes of all outputs side by
    side. A regressor has ``variable``, float64 of shape (N, n_outputs).

    Sums of many terms may be rounded differently. A row may therefore take another branch if its
    projection equals a threshold up to rounding, and may get another label if two probabilities
    are equal up to rounding.

    Examples
    --------
    >>> from onnxruntime import InferenceSession  # doctest: +SKIP
    >>> from sklearn.datasets import load_iris
    >>> from skforest import ManifoldForestClassifier, to_onnx
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = ManifoldForestClassifier(n_estimators=10, random_state=0).fit(X, y)
    >>> model = to_onnx(forest)  # doctest: +SKIP
    >>> session = InferenceSession(model.SerializeToString())  # doctest: +SKIP
    >>> rows = X[::50].astype("float32")
    >>> label, proba = session.run(None, {"X": rows})  # doctest: +SKIP
    >>> label.tolist()  # doctest: +SKIP
    [0, 1, 2]
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError('to_onnx needs onnx: pip install "skforest[onnx]"') from error
    latest = onnx.defs.onnx_opset_version()
    if opset is None:
        opset = DEFAULT_OPSET
    is_int = isinstance(opset, Integral) and not isinstance(opset, bool)
    if not is_int or not MIN_OPSET <= opset <= latest:
        raise ValueError(f"opset={opset!r} must be an int from {MIN_OPSET} to {latest}, or None")
    return onnx_model(onnx, exported(estimator), int(opset), path)
