"""Fitted estimators in other formats: C99 and ONNX.

Both writers read an `ExportedModel`: forests with weights, and what happens to their responses.
"""

import re
from numbers import Integral
from pathlib import Path

from .c_code import c_code
from .model import exported
from .onnx_graph import DEFAULT_OPSET, MIN_OPSET, onnx_model

# Words of C99, and what the headers that the source includes declare.
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

    The source has the arrays of the model, macros with the numbers of its inputs and outputs, and
    ``void predict(const double *x, double *out)``, which predicts one row. It allocates no memory
    and has no state, so that threads may call it at the same time.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted, of any kind but `skforest.torch.E2ENetworkTree`. The members of a blend must be
        forests of this package. Of a search, its best estimator; a pipeline may have the scalers
        of scikit-learn and `SimpleImputer` for all columns alike, which become a part of it.
    path : str or Path, default=None
        Where to write the source. None: it is returned only.
    name : str, default="predict"
        Name of the function, an identifier of C. All other names in the source begin with it, in
        lower or upper case.

    Returns
    -------
    source : str
        ASCII only.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If an estimator, or a member of a blend, is not a forest of this package, or members differ
        in their categories.
    ValueError
        If `name` is not an identifier, or the model has more than 2^31 - 1 nodes or weights.

    See Also
    --------
    to_onnx : Write an estimator as a graph of ONNX.

    Notes
    -----
    ``x`` has one number for each column of X; rows of shape `feature_shape` are flattened in C
    order. NaN stands for a missing value. A column that is a category has the code of its level:
    its number, from 0, in the list in the comment at the head of the source; any other number
    stands for levels that are unknown. Infinite values, which the estimator refuses, count as the
    largest number that it takes.

    ``out`` gets the prediction of a regressor, or the probabilities of a classifier: of the
    classes in the order of `classes_`, and with several outputs one output after the other. The
    macros ``PREDICT_N_INPUTS`` and ``PREDICT_N_OUTPUTS`` are the lengths of ``x`` and ``out``,
    ``PREDICT_N_CLASSES`` is the number of classes, and ``PREDICT_N_TARGETS`` the number of outputs
    of a classifier.

    Sums and products are computed in the order and in the dtypes of the estimator, so that rows
    take the same branches; results differ by the rounding of the functions ``exp`` and ``log``.
    That needs a compiler that neither contracts nor reorders floating-point operations:
    ``cc -std=c99 -O2 predict.c -lm``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skforest import ManifoldForestClassifier, to_c
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = ManifoldForestClassifier(n_estimators=10, random_state=0).fit(X, y)
    >>> source = to_c(forest, name="iris")
    >>> "void iris(const double *x, double *out)" in source
    True
    >>> "#define IRIS_N_CLASSES 3" in source
    True
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

    The graph takes the columns of X as they are: missing values, categories and scaling are part
    of it. It uses operators of the standard only, those for trees included, and runs in
    onnxruntime.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted, of any kind but `skforest.torch.E2ENetworkTree`. The members of a blend must be
        forests of this package. Of a search, its best estimator; a pipeline may have the scalers
        of scikit-learn and `SimpleImputer` for all columns alike, which become a part of it.
    path : str or Path, default=None
        Where to write the model. If its constants have about 2 GB or more, they are written to a
        second file beside it, whose name ends with ``.data``, and the returned model refers to
        this file. None: it is returned only.
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
        If an estimator, or a member of a blend, is not a forest of this package; if members differ
        in their categories; or if labels or levels are of types that ONNX does not have, or of
        several types.
    ValueError
        If `opset` is not supported, or a model with linear leaves has more than 1 GB.

    See Also
    --------
    to_c : Write an estimator as a function of C.

    Notes
    -----
    The inputs: if the estimator was fitted on a data frame, or on a table with categories, one
    matrix of shape (N, 1) for each column, with its name (``x0``, ``x1``, ... without names, and
    with ``_`` behind it if it is that of an output). Otherwise one matrix ``X`` of shape
    (N, n_features); rows of shape `feature_shape` are flattened in C order.

    Numbers are float64 if the estimator scales features, since it does so in float64, and float32
    if it does not. NaN stands for missing numbers. Categories are strings, or float64 if their
    levels are numbers; a missing string is the empty string. Infinite values, which the
    estimator refuses, count as the largest number that it takes.

    The outputs of a classifier: ``label`` of shape (N,), or (N, n_outputs) for several outputs,
    and ``probabilities``, float32 of shape (N, n_classes), with the classes of all outputs side by
    side. That of a regressor: ``variable``, float64 of shape (N, n_outputs).

    Sums of many terms may be rounded differently, so that a row may take another branch where its
    projection equals a threshold up to rounding, and may get another label where two probabilities
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
    >>> label, proba = session.run(None, {"X": X.astype("float32")})  # doctest: +SKIP
    >>> bool((label == forest.predict(X)).all())  # doctest: +SKIP
    True
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
