"""Small tasks for tests of bad input, and what a refusal is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import fitted_attributes
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification

import skforest

N = 60


def task(estimator):
    X, y = make_classification(N, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=0)
    return X, y if is_classifier(estimator) else y + X[:, 0]


def trained(model):
    if "n_estimators" in model.get_params():
        model.set_params(n_estimators=2)
    return model.fit(*task(model))


def refuses(estimator, X, y, *words, weight=None):
    """fit raises ValueError or TypeError with all the words, whether fitted before or not."""
    for attributes in ({}, fitted_attributes(type(estimator), trained)):
        model = clone(estimator)
        vars(model).update(attributes)
        before = vars(model).copy()
        with pytest.raises((ValueError, TypeError)) as error:
            model.fit(X, y, sample_weight=weight)
        assert vars(model).keys() == before.keys()
        assert all(value is before[name] for name, value in vars(model).items())
        for word in words:
            assert re.search(word, str(error.value)), f"{word!r} is not in: {error.value}"


def runs(code, seconds=120):
    """The script succeeds, in time, in a process of its own."""
    place = str(Path(skforest.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": place},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr[-3000:]
