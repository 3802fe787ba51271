"""Estimators for tests of files, and the comparison of two of them."""

import copy

import numpy as np
from conftest import fitted_attributes
from makers import changed, response
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification

N = 90


def task(estimator):
    X, y = make_classification(N, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=0)
    return X, y if is_classifier(estimator) else y + X[:, 0]


def trained(model):
    return model.fit(*task(model))


def fitted(estimator, **params):
    """A fitted estimator of its own; with the parameters of `small`, trained once per process."""
    model = clone(estimator)
    if params:
        return trained(changed(model, **params))
    vars(model).update(copy.deepcopy(fitted_attributes(type(model), trained)))
    return model


def new_rows():
    return np.random.default_rng(1).standard_normal((50, 6)) * 2


def assert_same(a, b, X=None):
    """Two models predict the same bits and have the same fitted attributes."""
    X = new_rows() if X is None else X
    assert type(a) is type(b)
    np.testing.assert_array_equal(response(a, X), response(b, X))
    np.testing.assert_array_equal(a.predict(X), b.predict(X))
    assert a.predict(X).dtype == b.predict(X).dtype
    np.testing.assert_array_equal(a.apply(X), b.apply(X))
    np.testing.assert_array_equal(a.feature_importances_, b.feature_importances_)
    assert repr(a.forest_) == repr(b.forest_)
    assert a.forest_.versions == b.forest_.versions
    assert a.__getstate__().keys() == b.__getstate__().keys()
    for name in a.__getstate__().keys() - a.get_params().keys() - {"forest_"}:
        one, other = getattr(a, name), getattr(b, name)
        np.testing.assert_equal(one, other, err_msg=name)
        assert isinstance(one, np.ndarray) == isinstance(other, np.ndarray)
    for name, array in a.forest_.arrays.items():
        other = b.forest_.arrays[name]
        np.testing.assert_array_equal(array, other, err_msg=name)
        assert array.dtype == other.dtype
