"""Sources of C alone: names, macros, types of arrays."""

import numpy as np
import pytest
from conftest import small
from exported import in_c
from makers import mixed_table as table
from sklearn.datasets import make_friedman1

from skforest import (
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    to_c,
)


@pytest.fixture(scope="module")
def friedman():
    return make_friedman1(300, noise=1.0, random_state=0)


def test_names_macros_and_comments_of_the_source(tmp_path):
    frame = table()
    model = ManifoldForestClassifier(2, random_state=0).fit(frame, frame["city"].fillna("?"))
    path = tmp_path / "f.c"
    source = to_c(model, path, name="f")
    assert path.read_text(encoding="ascii") == source
    for text in (
        "void f(const double *x, double *out)",
        "#define F_N_INPUTS 6",
        "#define F_N_OUTPUTS 4",
        "#define F_N_CLASSES 4",
        '2: "city", category, 3 levels',
        '     1 = "Oslo"',
        '  3 = "Rome"',
    ):
        assert text in source
    assert "predict" not in source.replace("predicts", "").replace("prediction", "")
    assert in_c(source, np.zeros((1, 6)), 4, tmp_path, name="f").sum() == pytest.approx(1)


def test_every_number_that_is_no_code_is_an_unknown_level(tmp_path):
    city = np.array(["Bern", "Oslo", "Rome", None, "Lima"] * 40, dtype=object)
    y = np.where(city == None, 5.0, 0) + (city == "Rome")  # noqa: E711
    model = ManifoldForestRegressor(5, random_state=0, categorical_features=[0])
    model.fit(city[:, None], y)
    codes = np.array([0, 1, 2, 3, np.nan, -1, 4, 5, 1e9, -0.5, 0.5, 2.9, np.inf])[:, None]
    found = in_c(to_c(model), codes, 1, tmp_path)[:, 0]
    rows = np.array([*model.forest_.levels[0], None, "Paris"], dtype=object)[:, None]
    expected = model.predict(rows)
    np.testing.assert_allclose(found[:6], expected, rtol=1e-12)
    assert (found[6:] == found[5]).all() and found[4] != found[5]
    predictor = model.predictor()  # takes the same codes, and no infinite ones
    np.testing.assert_allclose(predictor(codes[:-1].astype(np.float32)), found[:-1], rtol=1e-12)
    np.testing.assert_array_equal(
        model.forest_.response_mapped(model.forest_.map_coded(codes))[:, 0], found
    )


@pytest.mark.parametrize("name", ["", "1a", "a-b", "double", "sinf", "int8_t", 3, "\u00e9"])
def test_names_that_c_does_not_have_are_refused(name, friedman):
    model = small(ManifoldForestRegressor).fit(*friedman)
    with pytest.raises(ValueError, match="name="):
        to_c(model, name=name)


def test_arrays_of_c_have_the_smallest_type():
    from skforest.export.c_code import array_text, narrow_type

    assert narrow_type(np.array([-128, 127])) == "int8_t"
    assert narrow_type(np.array([128])) == "int16_t"
    assert narrow_type(np.array([-(2**31)])) == "int32_t"
    with pytest.raises(ValueError, match="at most"):
        narrow_type(np.array([2**31]))
    array = np.array([0.1, 1e-45, 3e38, -0.0, 3, 1 / 3, 2**24 + 2], dtype=np.float32)
    text = array_text("a", array)
    assert text.startswith("static const float a[7] = {\n")
    found = text[text.index("{") + 1 : text.index("}")].split(",")
    assert all(number.endswith("f") and not number[:-1].strip().isdigit() for number in found)
    read = np.array([float(number.strip()[:-1]) for number in found], dtype=np.float32)
    assert read.tobytes() == array.tobytes()


def test_macros_count_the_classes_of_one_output_and_the_outputs(friedman):
    X, y = friedman
    labels = np.c_[np.digitize(y, [10, 15]), X[:, 0] > 0.5]
    source = to_c(small(ManifoldForestClassifier).fit(X, labels))
    assert "#define PREDICT_N_OUTPUTS 5\n#define PREDICT_N_TARGETS 2\n" in source
    assert "#define PREDICT_N_CLASSES" not in source
    source = to_c(small(ManifoldForestRegressor).fit(X, y))
    assert "#define PREDICT_N_OUTPUTS 1\n" in source
    assert "_N_TARGETS" not in source and "_N_CLASSES" not in source
