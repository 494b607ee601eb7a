"""grouped_mm() on NumPy's arrays, by the emulator."""
import gc
import weakref

import numpy as np
import pytest

import jitgemm
from jitgemm import epilogues

ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 of NumPy comes with ml_dtypes")
rng = np.random.default_rng()


def random(shape, dtype="float32"):
    return rng.standard_normal(shape).astype(getattr(ml_dtypes, dtype, dtype))


def check(d, a, b, offs, factors=1.0, bound=2e-2):
    begin = 0
    for group, end in enumerate(offs):
        expected = a[begin:end].astype("float64") @ b[group].astype("float64")
        if not np.isscalar(factors):
            expected = expected * factors[group][begin:end]
        assert np.all(np.abs(d[begin:end].astype("float64") - expected) <= bound * (1 + np.abs(expected))), group
        begin = end


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("transposed", [False, True])
def test_offsets(dtype, transposed):
    offs = np.array([0, 5, 5, 70, 71], "int32")
    a, b = random((80, 48), dtype), random((5, 24, 48) if transposed else (5, 48, 24), dtype)
    if transposed:
        b = b.swapaxes(1, 2)
    out = np.full((80, 24), 7, a.dtype)
    assert jitgemm.grouped_mm(a, b, offs, out=out) is out
    check(out, a, b, offs)
    assert np.all(out[71:] == 7)
    check(jitgemm.grouped_mm(a, b, offs), a, b, offs)


@pytest.mark.parametrize("shape_a, shape_b", [((0, 16), (2, 16, 8)), ((3, 0), (2, 0, 8)), ((3, 16), (2, 16, 0))])
def test_empty(shape_a, shape_b):
    d = jitgemm.grouped_mm(random(shape_a), random(shape_b), np.array([0, shape_a[0]], "int32"))
    assert d.shape == (shape_a[0], shape_b[2])
    assert not np.any(d)


def test_counts_bias_and_types():
    a, b, bias = random((3, 10, 32), "bfloat16"), random((3, 32, 16), "bfloat16"), random(16)
    counts = np.array([10, 0, 3], "int32")
    out = np.full((3, 10, 16), 7, "float32")
    jitgemm.grouped_mm(a, b, counts=counts, bias=bias, out=out, expected_m=4)
    for group, count in enumerate(counts):
        expected = a[group, :count].astype("float64") @ b[group].astype("float64") + bias
        assert np.all(np.abs(out[group, :count] - expected) <= 1e-4 * (1 + np.abs(expected)))
        assert np.all(out[group, count:] == 7)


def test_scales():
    offs = np.array([20, 33], "int32")
    a, b = random((33, 64), "float8_e4m3fn"), random((2, 16, 64), "float8_e4m3fn").swapaxes(1, 2)
    scale_a = rng.uniform(0.5, 1.5, 33).astype("float32")
    scale_b = rng.uniform(0.5, 1.5, (2, 16)).astype("float32")
    d = jitgemm.grouped_mm(a, b, offs, scale_a=scale_a, scale_b=scale_b)
    check(d, a, b, offs, factors=[scale_a[:, None] * of_group for of_group in scale_b])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("by_rows_of_k", [True, False])
def test_along_k(dtype, by_rows_of_k):
    offs = np.array([3, 3, 70, 100], "int32")
    gradient, x = random((110, 40), dtype), random((110, 24), dtype)
    a, b = gradient.T, x
    if not by_rows_of_k:
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b.T).T
    begins = [0, *offs[:-1]]
    expected = [gradient[begin:end].astype("float64").T @ x[begin:end].astype("float64") for begin, end in zip(begins, offs)]
    d = jitgemm.grouped_mm(a, b, offs, out_dtype="float32")
    assert d.shape == (4, 40, 24) and np.all(d[1] == 0)
    assert np.allclose(d, expected, rtol=1e-4, atol=1e-4)
    assert jitgemm.grouped_mm(a, b, offs, out=d, beta=1, expected_m=25) is d
    assert np.allclose(d, 2 * np.array(expected), rtol=1e-4, atol=1e-4)


def test_scales_along_k():
    offs = np.array([30, 64], "int32")
    a, b = random((16, 64), "float8_e4m3fn"), random((24, 64), "float8_e4m3fn").T
    scale_a, scale_b = (rng.uniform(0.5, 1.5, extent).astype("float32") for extent in (16, 24))
    d = jitgemm.grouped_mm(a, b, offs, scale_a=scale_a, scale_b=scale_b, out_dtype="float32")
    for group, (begin, end) in enumerate(((0, 30), (30, 64))):
        expected = a[:, begin:end].astype("float64") @ b[begin:end].astype("float64") * scale_a[:, None] * scale_b
        assert np.all(np.abs(d[group] - expected) <= 2e-3 * (1 + np.abs(expected)))


def test_beta():
    offs = np.array([4, 9], "int32")
    a, b, out = random((9, 16)), random((2, 16, 8)), random((9, 8))
    expected = 0.5 * out
    jitgemm.grouped_mm(a, b, offs, out=out, beta=0.5)
    check(out - expected, a, b, offs, bound=1e-4)
    with pytest.raises(ValueError, match="pass out"):
        jitgemm.grouped_mm(a, b, offs, beta=1)


def of_blocks(scales, rows):
    """Each 128 of k, and of rows where there are fewer scales, as a factor of each element."""
    wide = scales.repeat(128, axis=-1)
    return wide if scales.shape[-2] == rows else wide.repeat(128, axis=-2)[..., :rows, :]


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("by_counts", [False, True])
def test_scales_of_blocks(by_column, by_counts):
    offs, counts = np.array([3, 3, 40], "int32"), np.array([30, 0, 11], "int32")
    k, n = 300, 144
    a = random((3, 34, k) if by_counts else (43, k), "float8_e4m3fn")
    weight = random((3, n, k), "float8_e4m3fn")
    of_a = rng.uniform(0.5, 1.5, a.shape[:-1] + (3,))
    of_b = rng.uniform(0.5, 1.5, (3, n if by_column else 2, 3)).astype("float32")
    scale_a, scale_b = jitgemm.block_scales(of_a, a), jitgemm.block_scales(of_b, weight).swapaxes(1, 2)
    assert (scale_b.base is of_b) == (not by_column)
    assert jitgemm.block_scales(scale_a, a) is scale_a
    scaled_a = a.astype("float64") * of_blocks(of_a, a.shape[-2])[..., :k]
    scaled_b = weight.astype("float64") * of_blocks(of_b, n)[..., :k]
    b, scales = weight.swapaxes(1, 2), {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": "float32"}
    if by_counts:
        d = jitgemm.grouped_mm(a, b, counts=counts, **scales)
        for group, count in enumerate(counts):
            expected = scaled_a[group, :count] @ scaled_b[group].T
            assert np.all(np.abs(d[group, :count] - expected) <= 2e-3 * (1 + np.abs(expected)))
    else:
        check(jitgemm.grouped_mm(a, b, offs, **scales), scaled_a, scaled_b.swapaxes(1, 2), offs, bound=2e-3)


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
@pytest.mark.parametrize("by_counts", [False, True])
@pytest.mark.parametrize("by_block", [False, True])
def test_scaled_pairs(pairs, by_counts, by_block):
    counts, groups, m, n, k = np.array([3, 0, 16], "int32"), 3, 20, 272, 300
    offs = np.cumsum(counts, dtype="int32")
    a = random((groups, m, k) if by_counts else (m, k), "float8_e4m3fn")
    weight = random((groups, n, k), "float8_e4m3fn")
    shape = (k + 127) // 128 if by_block else 1
    of_a = rng.uniform(0.5, 1.5, (*a.shape[:-1], shape)).astype("float32")
    of_b = rng.uniform(0.5, 1.5, (groups, -(-n // 128) if by_block else n, shape)).astype("float32")
    left = a.astype("float64") * (of_blocks(of_a, m)[..., :k] if by_block else of_a)
    right = weight.astype("float64") * (of_blocks(of_b, n)[..., :k] if by_block else of_b)
    if by_block:
        scales = {"scale_a": jitgemm.block_scales(of_a, a), "scale_b": jitgemm.block_scales(of_b, weight).swapaxes(1, 2)}
    else:
        scales = {"scale_a": of_a[..., 0].copy(), "scale_b": of_b[..., 0].copy()}
    d = jitgemm.grouped_mm(a, weight.swapaxes(1, 2), *([] if by_counts else [offs]), **({"counts": counts} if by_counts else {}),
                           epilogue=epilogues.silu_gate(pairs), out_dtype="float32", **scales)
    assert d.shape == (*a.shape[:-1], n // 2)
    for group, count in enumerate(counts):
        rows = (group, slice(0, count)) if by_counts else slice(offs[group] - count, offs[group])
        x = left[rows] @ right[group].T
        gate, up = (x[:, :n // 2], x[:, n // 2:]) if pairs == "halves" else (x[:, ::2], x[:, 1::2])
        error = 2e-3 * (np.abs(left[rows]) @ np.abs(right[group]).T).max(initial=0)
        expected = gate / (1 + np.exp(-gate)) * up
        assert np.all(np.abs(d[rows] - expected) <= error * (1 + np.abs(gate) + np.abs(up)))


@pytest.mark.parametrize("scale_a, scale_b, message", [
    (np.ones((3, 20), "f4").T, np.ones((2, 3, 3), "f4"), r"scale_b is \(2, 3, 3\): pass \(2, 3, 144\), .* or \(2, 3, 2\)"),
    (np.ones((20, 3), "f4"), np.ones((2, 3, 2), "f4"), r"kernels read strides \(1, 20\); pass jitgemm.block_scales\(scale_a, a"),
    (np.ones((3, 20), "f4").T, np.ones((2, 3, 2), "f4"), r"kernels read strides \(6, 1, 3\); pass jitgemm.block_scales"),
    (np.ones((20, 3), "f4"), np.ones((2, 144), "f4"), r"for both operands"),
    (np.ones((1, 3), "f4"), np.ones((2, 3, 2), "f4"), r"scale_a is \(1, 3\): pass \(20, 3\)"),
])
def test_scales_of_blocks_that_are_refused(scale_a, scale_b, message):
    a, b = random((20, 300), "float8_e4m3fn"), random((2, 144, 300), "float8_e4m3fn").swapaxes(1, 2)
    with pytest.raises(ValueError, match=message):
        jitgemm.grouped_mm(a, b, np.array([5, 20], "int32"), scale_a=scale_a, scale_b=scale_b)


@pytest.mark.parametrize("dtype, along_k, arguments, message", [
    ("float8_e4m3fn", True, dict(scale_a=np.ones((16, 2), "f4"), scale_b=np.ones((2, 24), "f4")),
     r"scale_a is \(16, 2\): pass one value or a contiguous \(16,\)$"),
    ("int8", False, dict(scale_a=np.ones((2, 16), "f4").T, scale_b=np.ones((2, 2, 24), "f4"), out_dtype="float32"),
     r"scale_a is \(16, 2\): pass one value or a contiguous \(16,\)$"),
    ("int8", False, dict(scale_a=np.ones(1, "f4")), "where a is int8 and the result int32, .* pass a floating-point out or out_dtype$"),
    ("bfloat16", False, dict(scale_a=np.ones(1, "f4")), "where a is bfloat16 .* multiply the operand, or the result, by it$"),
    ("bfloat16", True, dict(scale_b=np.ones(24, "f4")), "scale_b is given .* multiply the operand, or the result, by it$"),
])
def test_advice_on_scales_is_what_the_call_takes(dtype, along_k, arguments, message):
    a, b = random((16, 256), dtype), random((256, 24) if along_k else (2, 256, 24), dtype)
    with pytest.raises(ValueError, match=message):
        jitgemm.grouped_mm(a, b, np.array([5, 16], "int32"), **arguments)


@pytest.mark.parametrize("a", [random((16, 4))[::-1], np.broadcast_to(random((1, 4)), (16, 4)), random((32, 8))[::2, ::2]])
def test_rows_that_do_not_lie_one_before_the_next(a):
    offs = np.array([1, 4], "int32")
    for b, which in ((random((2, 4, 8)), "its rows do not"), (random((4, 8)), "neither its rows nor its columns")):
        with pytest.raises(ValueError, match=rf"^a is \(16, 4\), and {which} lie .*; pass .* torch's \.contiguous\(\) or numpy"):
            jitgemm.grouped_mm(a, b, offs)
        jitgemm.grouped_mm(np.ascontiguousarray(a), b, offs)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
@pytest.mark.parametrize("by_counts", [False, True])
def test_gated_with_a_bias_of_each_group(pairs, by_counts):
    offs, counts = np.array([3, 3, 40], "int32"), np.array([30, 0, 11], "int32")
    a, weight = random((3, 34, 64) if by_counts else (43, 64)), random((3, 20, 64))
    gate_bias, up_bias = random((3, 10)), random(10)  # the latter is the same for all
    epilogue = epilogues.silu_gate(pairs, bias="f32", saved="f32")
    groups = {"counts": counts} if by_counts else {"offs": offs}
    d, saved = jitgemm.grouped_mm(a, weight.swapaxes(1, 2), **groups, epilogue=epilogue,
                                  operands={"gate_bias": gate_bias, "up_bias": up_bias})
    assert d.shape == a.shape[:-1] + (10,) and saved["gate"].shape == d.shape
    begin = 0
    for group in range(3):
        rows = (group, slice(counts[group])) if by_counts else slice(begin, offs[group])
        begin = offs[group]
        product = a[rows] @ weight[group].T
        gate, up = np.split(product, 2, axis=1) if pairs == "halves" else (product[:, ::2], product[:, 1::2])
        gate, up = gate + gate_bias[group], up + up_bias
        assert np.allclose(saved["gate"][rows], gate, atol=1e-4) and np.allclose(saved["up"][rows], up, atol=1e-4)
        assert np.allclose(d[rows], gate * sigmoid(gate) * up, rtol=1e-4, atol=1e-3)


def test_a_value_a_row_and_a_matrix():
    offs, counts = np.array([5, 16], "int32"), np.array([4, 7], "int32")
    a, b = random((16, 24)), random((2, 24, 8))
    rows, residual = random(16), random((16, 12))[:, :8]
    epilogue = epilogues.residual_rstd("f32")
    out = np.empty((16, 8), "f4")
    operands = {"rstd": rows, "residual": residual}
    assert jitgemm.grouped_mm(a, b, offs, out=out, epilogue=epilogue, operands=operands) is out
    expected = np.concatenate([a[:5] @ b[0], a[5:] @ b[1]]) * rows[:, None] + residual
    assert np.allclose(out, expected, atol=1e-4)
    assert np.allclose(jitgemm.grouped_mm(a, b, offs, epilogue=epilogue.text, operands=operands), expected, atol=1e-4)
    a, residual = a.reshape(2, 8, 24), np.broadcast_to(random((1, 8, 8)), (2, 8, 8))
    for rows in (random((2, 8)), random(8)):
        d = jitgemm.grouped_mm(a, b, counts=counts, epilogue=epilogue, operands={"rstd": rows, "residual": residual})
        for group, count in enumerate(counts):
            expected = (a[group] @ b[group]) * np.broadcast_to(rows, (2, 8))[group, :, None] + residual[group]
            assert np.allclose(d[group, :count], expected[:count], atol=1e-4)
    gradient = jitgemm.grouped_mm(random((8, 16)), random((16, 12)), offs, epilogue=epilogues.scale(),
                                  operands={"rows": random((2, 8)), "columns": np.zeros(12, "f4")})
    assert gradient.shape == (2, 8, 12) and not gradient.any()


SCALE = epilogues.scale("f32")


@pytest.mark.parametrize("arguments, message", [
    (dict(operands={"x": 1}), "operands are an epilogue's"),
    (dict(epilogue=SCALE), "operand rows is missing"),
    (dict(epilogue=SCALE, operands={"rows": np.ones((2, 16), "f4"), "columns": np.ones(8, "f4")}),
     r"operand rows is \(2, 16\), a value a row, and the result \(16, 8\): pass one of shape \(16,\)$"),
    (dict(epilogue=SCALE, operands={"rows": np.ones(16, "f4"), "columns": np.ones((3, 8), "f4")}),
     r"operand columns is \(3, 8\), .*: pass one of shape \(8,\), or \(2, 8\) where groups differ"),
    (dict(epilogue=SCALE, operands={"rows": np.ones(32, "f4")[::2], "columns": np.ones(8, "f4")}), "pass a contiguous one"),
    (dict(epilogue=epilogues.drelu("f32"), operands={"before": np.ones((16, 4), "f4")}), "operand before is .*, a matrix"),
    (dict(epilogue=epilogues.drelu("f32"), operands={"before": np.ones((8, 16), "f4").T}), "pass a contiguous one"),
    (dict(epilogue=epilogues.silu_gate(), out=np.empty((16, 8), "f4")), r"out is \(16, 8\), and the result \(16, 4\)"),
    (dict(epilogue=epilogues.silu_gate(), bias=np.ones(8, "f4")), "bias is given beside"),
    (dict(epilogue=epilogues.silu_gate(), b=np.ones((2, 4, 7), "f4")), "n = 7 is odd"),
])
def test_epilogues_that_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        jitgemm.grouped_mm(random((16, 4)), **{"b": random((2, 4, 8)), "offs": np.array([5, 16], "int32"), **arguments})


def test_what_is_out_of_range_is_told():
    context = jitgemm.Context("cpu")
    a, b = random((16, 16)), random((2, 16, 16))
    jitgemm.grouped_mm(a, b, np.array([8, 16], "int32"), context=context)
    context.check()
    jitgemm.grouped_mm(a, b, np.array([18, 4], "int32"), context=context)
    with pytest.raises(Exception, match="ends or counts of groups went .* in 1 call \\(group 0\\)"):
        context.check()
    context.check()


@pytest.mark.parametrize("arguments, message", [
    (dict(), "pass one of them"),
    (dict(offs=np.array([1, 2], "int32"), counts=np.array([1, 2], "int32")), "pass one of them"),
    (dict(offs=np.array([1, 2, 3], "int32")), r"\(2,\)"),
    (dict(offs=np.array([1, 2], "int32"), bias=np.zeros(3, "float32")), "bias"),
    (dict(offs=np.array([1, 2], "int32"), out=np.zeros((3, 3), "float32")), r"\(16, 8\)"),
    (dict(b=random((4, 8)), offs=np.array([[1, 2]], "int32")), r"pass a contiguous \(2,\)"),
    (dict(b=random((4, 8)), counts=np.array([1, 2], "int32")), r"with counts it is \(groups, M, K\)"),
    (dict(b=random((4, 8)), offs=np.array([1, 4], "int32"), out=np.zeros((16, 8), "float32")), r"\(2, 16, 8\)"),
])
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        jitgemm.grouped_mm(random((16, 4)), **{"b": random((2, 4, 8)), **arguments})
    for words, name in ((("offs", "int64"), "int64"), (("counts", "float32"), "float32")):
        message = f"{words[0]} has elements of {name}; convert it to int32, by {words[0]}.astype\\('int32'\\)"
        with pytest.raises(TypeError, match=message):
            jitgemm.grouped_mm(random((2, 16, 4) if words[0] == "counts" else (16, 4)), random((2, 4, 8)),
                               **{words[0]: np.array([1, 2], words[1])})
    with pytest.raises(ValueError, match="K"):
        jitgemm.grouped_mm(random((16, 5)), random((2, 4, 8)), np.array([1, 2], "int32"))


@pytest.mark.parametrize("by_columns", [False, True])
def test_weights_that_lie_apart(by_columns):
    a, offs = random((40, 24)), np.array([7, 7, 31, 40], "int32")
    stack = random((4, 16, 24)).swapaxes(1, 2) if by_columns else random((4, 24, 16))
    apart = jitgemm.MatrixPointers([np.array(matrix.T, order="C").T if by_columns else matrix.copy() for matrix in stack])
    assert len(apart) == 4 and np.array_equal(apart[2], stack[2]) and "(4, 24, 16)" in repr(apart)
    check(jitgemm.grouped_mm(a, apart, offs), a, stack, offs)
    out = jitgemm.grouped_mm(np.stack([a[:10]] * 4), apart, counts=np.array([3, 0, 10, 1], "int32"))
    assert np.allclose(out[2], a[:10] @ stack[2], atol=1e-4)


def test_weights_that_lie_apart_transposed():
    matrices, a, offs = random((3, 6, 5)), random((9, 5)), np.array([2, 2, 9], "int32")
    experts = jitgemm.MatrixPointers([matrix.copy() for matrix in matrices])
    transposed = experts.mT
    assert np.shares_memory(transposed[1], experts[1]) and np.array_equal(transposed[1], matrices[1].T)
    assert len(transposed) == 3 and "(3, 5, 6)" in repr(transposed) and transposed.mT[2].shape == (6, 5)
    del experts
    gc.collect()
    check(jitgemm.grouped_mm(a, transposed, offs), a, matrices.swapaxes(1, 2), offs)


def test_weights_that_lie_apart_and_do_not_go_together():
    with pytest.raises(ValueError, match="there is no matrix"):
        jitgemm.MatrixPointers([])
    with pytest.raises(ValueError, match="alike"):
        jitgemm.MatrixPointers([random((4, 8)), random((8, 4))])
    shifted = np.zeros(4 * 8 * 4 + 1, "uint8")[1:].view("float32").reshape(4, 8)
    with pytest.raises(ValueError, match="matrix 1 is not a multiple of 4 bytes"):
        jitgemm.MatrixPointers([random((4, 8)), shifted])
    weights = random((2, 4, 8))
    with pytest.raises(ValueError, match="out overlaps"):
        jitgemm.grouped_mm(random((4, 4)), jitgemm.MatrixPointers(list(weights)), np.array([1, 4], "int32"), out=weights[1])
    array = random((4, 20))
    experts, offs = [array[:, 8:16], array[:, 12:20]], np.array([1, 4], "int32")
    for out in (array[:, :8], np.empty((4, 8), np.float32)):
        jitgemm.grouped_mm(x := random((4, 4)), jitgemm.MatrixPointers(experts), offs, out=out)
        check(out, x, np.stack(experts), offs)
    with pytest.raises(ValueError, match="out overlaps"):
        jitgemm.grouped_mm(x, jitgemm.MatrixPointers(experts), offs, out=array[:, 1:9])
    with pytest.raises(TypeError, match="matrix 1"):
        jitgemm.MatrixPointers([random((4, 8)), "no array"])
    with pytest.raises(ValueError, match="pass matrices"):
        jitgemm.MatrixPointers([random((2, 4, 8))])
    with pytest.raises(TypeError, match="MatrixPointers"):
        jitgemm.grouped_mm(random((16, 4)), [random((4, 8))] * 2, np.array([5, 16], "int32"))
    with pytest.raises(ValueError, match="number for each group"):
        jitgemm.grouped_mm(random((16, 4)), jitgemm.MatrixPointers([random((4, 8))] * 2), np.array([16], "int32"))


class Lender:
    """An array of the framework of one's own, whose memory is that of what __dlpack__ gives."""

    def __init__(self, values):
        self.values, self.lent = values, []

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **keywords):
        lent = self.values.copy()
        self.lent.append(weakref.ref(lent))
        return lent.__dlpack__(**keywords)

    def alive(self):
        return sum(reference() is not None for reference in self.lent)


def test_weights_whose_memory_goes_with_its_capsule():
    matrices, a, offs = random((3, 6, 5)), random((17, 6)), np.array([4, 9, 17], "int32")
    lenders = [Lender(matrix) for matrix in matrices]
    experts = jitgemm.MatrixPointers(lenders)
    assert [lender.alive() for lender in lenders] == [1, 1, 1]
    transposed = experts.mT
    check(jitgemm.grouped_mm(a, experts, offs), a, matrices, offs)
    del experts
    gc.collect()
    assert [lender.alive() for lender in lenders] == [1, 1, 1]
    del transposed
    gc.collect()
    assert [lender.alive() for lender in lenders] == [0, 0, 0]
