"""Fitted estimators in other formats: C99 and ONNX.

Both writers read an `ExportedModel`: forests with weights, and what happens to their responses.
"""

import re
from pathlib import Path

from .c_code import c_code
from .model import exported

# Words of C99, and what the written functions call.
RESERVED = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while main exp log fabsf size_t".split()
)


def to_c(estimator, path=None, *, name="predict"):
    """Write a fitted estimator as a function of C99 without dependencies.

    The source has the arrays of the model, macros with the numbers of its inputs and outputs, and
    ``void predict(const double *x, double *out)``, which predicts one row. It allocates no memory
    and has no state, so that threads may call it at the same time.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted, of any kind but `skforest.torch.E2ENetworkTree`. The members of a blend must be
        forests of this package.
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
    ``x`` has one number for each column of X. NaN stands for a missing value. A column that is a
    category has the code of its level: its number, from 0, in the list in the comment at the head
    of the source; any other number stands for levels that are unknown. Infinite values, which the
    estimator refuses, count as the largest number that it takes.

    ``out`` gets the prediction of a regressor, or the probabilities of a classifier: of the classes
    in the order of `classes_`, and with several outputs one output after the other. The macros
    ``PREDICT_N_INPUTS`` and ``PREDICT_N_OUTPUTS`` are the lengths of ``x`` and ``out``,
    ``PREDICT_N_CLASSES`` the number of classes, and ``PREDICT_N_TARGETS`` the number of outputs of a
    classifier.

    Sums and products are computed in the order and in the dtypes of the estimator, so that rows
    take the same branches; results differ by the rounding of the functions ``exp`` and ``log``. That
    needs a compiler that neither contracts nor reorders floating-point operations:
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
    if name in RESERVED:
        raise ValueError(f"name={name!r} has a meaning in C; choose another one")
    source = c_code(exported(estimator), name)
    if path is not None:
        Path(path).write_text(source, encoding="ascii", newline="\n")
    return source
