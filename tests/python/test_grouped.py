"""grouped_mm() on NumPy's arrays, by the emulator."""
import numpy as np
import pytest

import jitgemm

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


def test_what_is_out_of_range_is_told():
    context = jitgemm.Context("cpu")
    a, b = random((16, 16)), random((2, 16, 16))
    jitgemm.grouped_mm(a, b, np.array([8, 16], "int32"), context=context)
    context.check()
    jitgemm.grouped_mm(a, b, np.array([18, 4], "int32"), context=context)
    with pytest.raises(Exception, match="group_rows"):
        context.check()
    context.check()


@pytest.mark.parametrize("arguments, message", [
    (dict(), "pass one of them"),
    (dict(offs=np.array([1, 2], "int32"), counts=np.array([1, 2], "int32")), "pass one of them"),
    (dict(offs=np.array([1, 2, 3], "int32")), r"\(2,\)"),
    (dict(offs=np.array([1, 2], "int32"), bias=np.zeros(3, "float32")), "bias"),
    (dict(offs=np.array([1, 2], "int32"), out=np.zeros((3, 3), "float32")), r"\(16, 8\)"),
])
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        jitgemm.grouped_mm(random((16, 4)), random((2, 4, 8)), **arguments)
    with pytest.raises(TypeError, match="int32"):
        jitgemm.grouped_mm(random((16, 4)), random((2, 4, 8)), np.array([1, 2]))
    with pytest.raises(ValueError, match="K"):
        jitgemm.grouped_mm(random((16, 5)), random((2, 4, 8)), np.array([1, 2], "int32"))
