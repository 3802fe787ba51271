"""Variants of loops for processors: all levels give the same bits."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from makers import start_python

import skforest

# Prints the level, and hashes of all that the vector loops take part in.
PROBE = """
import hashlib, json, sys
import numpy as np
from forests import grow, grow_boosted, random_forest
from skforest._kernels.base import direction
from skforest._kernels.base.loss import LogLossKernel, sharpened_scores
from skforest._kernels.search.projection import BoxSampler, SparseSampler
from skforest._tree import mean_of_bags, softmax
from skforest.forest import Forest
from skforest import E2EDecisionForestClassifier

def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()

out = {"level": direction.simd_level()}
rng = np.random.default_rng(0)
for gate in ("hard", "margin", "sigmoid"):
    made = random_forest(rng, (6, 7), n_trees=9, n_splits=30, n_each=40, gate=gate)
    arrays = made.arrays
    for name in ("threshold", "value", "sparse_weight", "dense"):
        arrays[name] = rng.normal(size=arrays[name].shape)
    forest = Forest(arrays, **made.metadata)
    floats = rng.normal(size=(101, 42)).astype(np.float32)
    bytes_ = rng.integers(0, 256, size=(101, 42)).astype(np.uint8)
    for X in (floats, bytes_):
        out[f"{gate} {X.dtype}"] = digest(forest.response(X), forest.apply(X))
shape, none = (6, 7), (False, False)
low, high = np.ones(2, dtype=np.int32), np.full(2, 4, dtype=np.int32)
samplers = {
    "axis": lambda: None,
    "sparse": lambda: SparseSampler(42, 3.0, False, np.linspace(1, 2, 42).astype(np.float32)),
    "patch": lambda: BoxSampler(shape, none, none, low, high, "edge", False),
}
weight = rng.random(300) + 0.5
X = rng.normal(size=(300, 42)).astype(np.float32)
Z = rng.integers(0, 256, size=(300, 42)).astype(np.uint8)
targets = {
    "gini": rng.integers(0, 5, 300), "entropy": rng.integers(0, 5, 300),
    "squared_error": rng.normal(size=(300, 3)),
}
for name, sampler in samplers.items():
    for criterion, target in targets.items():
        for exact in (False, True):
            for table in (X, Z):
                tree = grow(
                    table, target, weight, criterion=criterion, sampler=sampler(), exact=exact,
                    n_candidates=10, max_search_samples=100, feature_shape=shape,
                )
                key = f"{name} {criterion} {exact} {table.dtype}"
                out[key] = digest(tree.child, tree.threshold, tree.direction, tree.gain,
                                  tree.value, tree.node_weight)
for n_classes in (3, 17):
    raw, label = 9 * rng.normal(size=(300, n_classes)), 1.0 * rng.integers(3, size=(300, 1))
    out[f"log loss {n_classes}"] = digest(*LogLossKernel(n_classes, 0.1).evaluate(raw, label))
    chances = rng.dirichlet([0.3] * 300, (2, n_classes))
    of_label = label[:, 0].copy()
    out[f"sharpened {n_classes}"] = digest(sharpened_scores(chances, np.ones(2), of_label, 1e-9))
    derivative = rng.random((300, 2 * n_classes)) - np.repeat([0.5, 0.0], n_classes)
    mix = rng.normal(size=(n_classes, 2 if n_classes < 5 else 5)).astype(np.float32)
    tree, leaf, _ = grow_boosted(X, derivative, n_directions=9, mix=mix)
    out[f"boosting {n_classes}"] = digest(leaf, tree["gain"], tree["threshold"])
labels = (X[:, :20].sum(axis=1) > 0).astype(int)
for n_used in (5, 9, 18):    # of 20 columns; runs of neighbours are copied as vectors
    model = E2EDecisionForestClassifier(30, max_depth=1, max_features=n_used, random_state=0)
    forest = model.fit(X[:, :20], labels).forest_
    assert (forest.directions().getnnz(axis=1) == n_used).all()
    out[f"end to end {n_used}"] = digest(forest.threshold, forest.directions().toarray())
json.dump(out, sys.stdout)
"""


@pytest.fixture(scope="module")
def probes():
    """Level and hashes by the level asked for."""
    running = [start_python(PROBE, SKFOREST_SIMD=level) for level in "012"]
    return [json.loads(process.communicate()[0]) for process in running]


def test_the_simd_level_is_the_requested_one(probes):
    top = probes[2]["level"]
    assert top in (0, 1, 2)
    assert [found["level"] for found in probes] == [min(asked, top) for asked in range(3)]


def test_all_levels_give_the_same_bits(probes):
    base = probes[0]
    assert len(base) == 1 + 3 * 2 + 3 * 3 * 2 * 2 + 2 * 3 + 3
    assert len(set(map(str, base.values()))) == len(base)
    for asked, found in enumerate(probes):
        different = [key for key in base if key != "level" and found[key] != base[key]]
        assert not different, f"level {asked}"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_every_length_of_vectors_gives_the_same_bits(tmp_path):
    """The compiler emulates vectors that are longer than those of this processor."""
    kernels = Path(skforest.__file__).parent / "_kernels"
    if not (kernels / "base" / "lanes.h").exists():
        pytest.skip("needs the source tree")
    program = tmp_path / "lanes"
    flags = ["-O1", "-w", "-ffp-contract=off", "-DSKFOREST_NO_SIMD", f"-I{kernels}"]
    source = Path(__file__).with_name("lanes.c")
    subprocess.run(["cc", *flags, source, "-o", program, "-lm"], check=True)
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[:2000]


def cpu_has(*features):
    """Whether NumPy saw these features in this processor."""
    try:
        from numpy._core._multiarray_umath import __cpu_features__ as known
    except ImportError:
        from numpy.core._multiarray_umath import __cpu_features__ as known
    return all(known.get(feature, False) for feature in features)


# A switch at build time that the tests must be run with, too.
no_simd = os.environ.get("SKFOREST_NO_SIMD", "") not in ("", "0")

multiversioned = pytest.mark.skipif(
    no_simd or not sys.platform.startswith("linux") or os.uname().machine != "x86_64",
    reason="variants are built by gcc and clang for x86-64 without SKFOREST_NO_SIMD",
)


@multiversioned
def test_the_widest_level_of_the_processor_is_taken(probes):
    expected = 0
    if cpu_has("AVX2"):
        expected = 1
        if cpu_has("AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL"):
            expected = 2
    assert probes[2]["level"] == expected


@multiversioned
@pytest.mark.parametrize(
    "module, loops",
    [
        ("base.direction", ["skf_axis_u8", "skf_sparse_f32", "skf_dense_u8", "skf_dense_f32"]),
        ("search.search", ["skf_range", "skf_cells", "skf_score_squares", "skf_score_entropy"]),
    ],
)
def test_fast_variants_are_in_the_binary(module, loops):
    binary = Path(sys.modules[f"skforest._kernels.{module}"].__file__).read_bytes()
    if b"skf_level_cached" not in binary:
        pytest.skip("the binary was stripped of its symbols")
    for loop in loops:
        for variant in ("avx2", "avx512"):
            assert f"{loop}_{variant}".encode() in binary
