"""Epilogues of one's own: on the emulator, against float64.

Sums are of small multiples of 1/8, so that they are exact, and what is off is off by the epilogue.
"""
import gc
import pickle
import sys

import jitgemm
import numpy as np
import pytest
from epilogue_cases import (EVERYTHING, assert_close, check_everything, eighths, everything, exact, ml_dtypes, normal,
                            rng)
from jitgemm import epilogues


def test_every_way_for_operands_to_lie_in_memory():
    m, n, k = 6, 10, 8
    a, b = eighths((m, k), "f4"), eighths((k, n), "f4")
    residuals = [normal((m, n), "f4"), normal((m, n + 3), "f4")[:, 1:-2], normal((2 * m, n), "f4")[::2]]
    for residual in residuals:
        for rows in (normal(m, "f4"), normal((m, 1), "f4")):
            for columns in (normal(n, "f2"), normal((1, n), "f2"), normal(n + 5, "f2")[3:-2]):
                operands = {"residual": residual, "columns": columns, "rows": rows, "limit": 0.5}
                check_everything(a, b, operands, rows.reshape(m, 1))
    memory = np.full((m + 1, n + 5), np.nan, np.float32)
    before = memory[1:, 2:-3]
    out = np.full((m, n + 1), np.nan, np.float32)
    d, given = check_everything(a, b, {**operands, "before": before}, operands["rows"].reshape(m, 1), out=out[:, :n])
    assert given is before and np.isnan(memory).sum() == memory.size - before.size
    assert np.shares_memory(d, out) and np.isnan(out).sum() == m
    assert jitgemm.matmul(a.T.copy().T, b.T.copy().T, epilogue=EVERYTHING, operands=operands)[0].shape == (m, n)
    assert np.array_equal(jitgemm.matmul(a[:, ::2], b[::2], epilogue=EVERYTHING, operands=operands)[0],
                          jitgemm.matmul(a[:, ::2].copy(), b[::2].copy(), epilogue=EVERYTHING, operands=operands)[0])


@pytest.mark.parametrize("shapes", [((3, 5, 7), (7, 9)), ((3, 5, 7), (3, 7, 9)), ((2, 3, 5, 7), (3, 7, 9)),
                                    ((2, 1, 5, 7), (3, 7, 9)), ((5, 7), (2, 7, 9)), ((2, 3, 1, 7), (7, 9)),
                                    ((3, 5, 7), (7, 1)), ((2, 0, 7), (7, 9)), ((2, 5, 0), (0, 9)), ((2, 5, 7), (7, 0))])
def test_batches(shapes):
    a, b = eighths(shapes[0], "f4"), eighths(shapes[1], "f4")
    shape = np.matmul(a, b).shape
    *batch, m, n = shape
    for lead in (tuple(batch), (1,) * len(batch), ()):
        for per_matrix in (lead, ()):
            operands = {"residual": normal((*lead, m, n), "f4"), "columns": normal((*per_matrix, 1, n), "f2"),
                        "rows": normal((*per_matrix, m, 1), "f4"), "limit": 1}
            check_everything(a, b, operands)
    reversed_ = {**operands, "residual": normal(shape, "f4")[::-1], "rows": normal((*batch, m, 1), "f4")[::-1]}
    check_everything(a, b, reversed_)
    cut = np.full((*batch, m, n + 2), np.nan, np.float32)
    check_everything(a, b, {**operands, "before": cut[..., 1:-1]})
    assert np.isnan(cut).sum() == cut.size - int(np.prod(shape))


def test_vectors():
    a, b = eighths((6, 8), "f4"), eighths(8, "f4")
    operands = {"residual": normal(6, "f4"), "columns": normal(1, "f2"), "rows": normal(6, "f4"), "limit": 1}
    check_everything(a, b, operands)
    operands = {"residual": normal(6, "f4"), "columns": normal(6, "f2"), "rows": normal(1, "f4"), "limit": 1}
    check_everything(b, a.T, operands)
    operands = {"residual": normal((), "f4"), "columns": normal(1, "f2"), "rows": normal(1, "f4"), "limit": 1}
    d, outputs = jitgemm.matmul(b, b, epilogue=EVERYTHING, operands=operands)
    assert d.shape == outputs["before"].shape == ()


PLACES = jitgemm.Epilogue("__device__ float epilogue(float x, const Args& args, Out&) {\n"
                          "  return x * 0 + float(args.row * 10000 + args.column * 100 + args.batch);\n}")
ROWS = jitgemm.Epilogue("__device__ float epilogue(float x, const Args& args, Out&) { return float(args.row); }")


def test_rows_are_those_of_each_matrix_and_batch_counts_through():
    for a_shape, b_shape in (((4, 5, 8), (8, 7)), ((2, 3, 5, 8), (8, 7)), ((2, 3, 5, 8), (2, 3, 8, 7)), ((5, 8), (3, 8, 7)),
                             ((3, 1, 8), (8, 7))):
        a, b = eighths(a_shape, "f4"), eighths(b_shape, "f4")
        shape = np.matmul(a, b).shape
        batch, row, column = np.indices((int(np.prod(shape[:-2])), *shape[-2:]))
        for d in (jitgemm.matmul(a, b, epilogue=PLACES), jitgemm.Matmul(a, b, epilogue=PLACES)()):
            assert (d.reshape(-1, *shape[-2:]) == row * 10000 + column * 100 + batch).all()
        assert (jitgemm.matmul(a, b, epilogue=ROWS).reshape(-1, *shape[-2:]) == row).all()
    a, b = eighths((2, 1, 5, 8), "f4"), eighths((3, 8, 7), "f4")
    assert (jitgemm.matmul(a, b, epilogue=ROWS) == np.arange(5)[:, None]).all()
    with pytest.raises(ValueError, match="the epilogue reads batch, and no one stride goes through"):
        jitgemm.matmul(a, b, epilogue=PLACES)


def test_one_taller_product_where_nothing_tells_rows_apart():
    a, b = eighths((4, 5, 8), "f4"), eighths((8, 7), "f4")
    assert jitgemm.Matmul(a, b, epilogue=ROWS).problem.batch == 4
    given = {"residual": normal((4, 5, 7), "f4"), "bias": normal(7, "f4")}
    assert jitgemm.Matmul(a, b, epilogue=epilogues.bias_residual("f32"), operands=given).problem.m == 20
    given["residual"] = normal((5, 7), "f4")
    assert jitgemm.Matmul(a, b, epilogue=epilogues.bias_residual("f32"), operands=given).problem.batch == 4
    scales = {"rows": normal((4, 5, 1), "f4"), "columns": normal(7, "f4")}
    assert jitgemm.Matmul(a, b, epilogue=epilogues.scale(), operands=scales).problem.m == 20
    scales["rows"] = scales["rows"][0, :, 0].copy()
    assert jitgemm.Matmul(a, b, epilogue=epilogues.scale(), operands=scales).problem.batch == 4


def test_in_place_of_what_it_reads():
    a, b, residual = eighths((6, 8), "f4"), eighths((8, 5), "f4"), normal((6, 5), "f4")
    expected = exact(a) @ exact(b) + exact(residual) + 1
    operands = {"bias": np.ones(5, np.float32), "residual": residual}
    assert jitgemm.matmul(a, b, epilogue=epilogues.bias_residual("f32"), operands=operands, out=residual) is residual
    assert_close(residual, expected, "f32", 10)


def test_matmul_object():
    a, b = eighths((6, 8), "f4"), eighths((8, 5), "f4")
    operands = {"residual": normal((6, 5), "f4"), "columns": normal(5, "f2"), "rows": normal((6, 1), "f4"), "limit": 1.0}
    product = jitgemm.Matmul(a, b, epilogue=EVERYTHING, operands=operands)
    assert f"epilogue={EVERYTHING.digest}" in str(product.problem) and "epilogue" in product.source()
    assert jitgemm.Problem(6, 5, 8, epilogue=EVERYTHING.digest) == jitgemm.Problem(f"m=6 n=5 k=8 epilogue={EVERYTHING.digest}")
    kept = None
    for changed in ({}, {"limit": 0.25}, {"residual": normal((6, 5), "f4")}, {"before": np.empty((6, 5), np.float32)}, {}):
        left = eighths((6, 8), "f4")
        d, outputs = product(left, operands=changed)
        now = {**operands, **changed}
        expected = everything(left, b, now["residual"], now["columns"], now["rows"], now["limit"])
        assert_close(d, expected[0], "f32", 100)
        assert_close(outputs["before"], expected[1], "f32", 100)
        assert outputs["before"] is changed.get("before", outputs["before"]) and outputs["before"] is not kept
        kept = outputs["before"]
    for words, message in [(lambda: product(operands={"residual": normal((6, 6), "f4")[:, :5]}), "residual is f32 .* where this Matmul has"),
                           (lambda: product(operands={"residual": normal((6, 5), "f2")}), "residual is of f16, and described as f32"),
                           (lambda: product(operands={"other": 1}), '"other", and the epilogue\'s are residual, columns'),
                           (lambda: jitgemm.Matmul(a, b)(operands={}), "this Matmul has none")]:
        with pytest.raises((ValueError, TypeError), match=message):
            words()
    given = np.empty((6, 5), np.float32)
    assert jitgemm.Matmul(a, b, epilogue=EVERYTHING, operands={**operands, "before": given})()[1]["before"] is given


def test_doubles_and_integers():
    a, b, c = eighths((6, 8), "f8"), eighths((8, 5), "f8"), normal((6, 5), "f8")
    d = jitgemm.matmul(a, b, operands={"c": c}, epilogue="// operand in c matrix f64\n__device__ double epilogue(double x, "
                                                         "const Args& args, Out&) { return fmax(x, args.c); }")
    assert (d == np.maximum(a @ b, c)).all()
    a, b = (rng.integers(-9, 9, shape).astype("i1") for shape in ((6, 8), (8, 5)))
    d, outputs = jitgemm.matmul(a, b, operands={"times": 3}, epilogue="// operand in times scalar\n// operand out raw matrix s32\n"
                                "__device__ int epilogue(int x, const Args& args, Out& out) { out.raw = x; return x * args.times; }")
    assert (d == 3 * (a.astype("i4") @ b)).all() and (outputs["raw"] == a.astype("i4") @ b).all()
    with pytest.raises(ValueError, match="operand bias is f32 where sums are s32"):
        jitgemm.matmul(a, b, epilogue=epilogues.bias_residual("f32"),
                       operands={"bias": normal(5, "f4"), "residual": normal((6, 5), "f4")})


def test_alpha_and_scales_come_before_it():
    e4m3 = ml_dtypes.float8_e4m3fn
    a, b = eighths((8, 16), e4m3), eighths((16, 8), e4m3)
    x = exact(a) @ exact(b)
    d = jitgemm.matmul(a, b, alpha=-2, scale_a=np.array([0.5], "f4"), out_dtype="f32", epilogue=epilogues.clamp(),
                       operands={"low": -1, "high": 1})
    assert (d == np.clip(-x, -1, 1)).all()


def test_an_epilogue_says_what_it_is():
    assert [(operand.name, operand.shape, operand.type, operand.direction) for operand in EVERYTHING.operands] == [
        ("residual", "matrix", "f32", "in"), ("columns", "along_n", "f16", "in"), ("rows", "along_m", "f32", "in"),
        ("limit", "scalar", None, "in"), ("before", "matrix", "f32", "out")]
    same = jitgemm.Epilogue(EVERYTHING.text)
    assert same == EVERYTHING == pickle.loads(pickle.dumps(EVERYTHING)) and hash(same) == hash(EVERYTHING)
    assert same.digest == EVERYTHING.digest != PLACES.digest and same != PLACES and same != EVERYTHING.text
    assert f"{EVERYTHING.digest:016x}" in repr(EVERYTHING) and "out before matrix f32" in repr(EVERYTHING)
    assert epilogues.gelu("f16") is epilogues.gelu("f16") and epilogues.gelu("f16") != epilogues.gelu("bf16")
    a, b = eighths((4, 8), "f4"), eighths((8, 5), "f4")
    assert "epilogue" in jitgemm.explain(a, b, epilogue=PLACES) and "args.batch" in jitgemm.source(a, b, epilogue=PLACES)


def test_nothing_is_kept_of_an_operand():
    a, b = eighths((5, 7), "f4"), eighths((7, 9), "f4")
    residual, before = normal((5, 9), "f4"), np.empty((5, 9), np.float32)
    operands = {"residual": residual, "columns": normal(9, "f2"), "rows": normal(5, "f4"), "limit": 1, "before": before}
    counts = [sys.getrefcount(array) for array in (residual, before, operands)]
    for _ in range(3):
        jitgemm.matmul(a, b, epilogue=EVERYTHING, operands=operands)
        jitgemm.Matmul(a, b, epilogue=EVERYTHING, operands=operands)()
        with pytest.raises(ValueError):
            jitgemm.matmul(a, b, epilogue=EVERYTHING, operands={**operands, "rows": normal(4, "f4")})
    gc.collect()
    assert [sys.getrefcount(array) for array in (residual, before, operands)] == counts


def test_arrays_of_jax():
    jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed")
    a, b = jnp.asarray(eighths((5, 8), "f4")), jnp.asarray(eighths((8, 7), "f4"))
    d, outputs = jitgemm.matmul(a, b, epilogue=epilogues.gelu("f32"))
    assert type(d) is type(outputs["before"]) is type(a) and (outputs["before"] == a @ b).all()
