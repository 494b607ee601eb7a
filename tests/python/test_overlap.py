"""matmul() of arrays that lie in one: beside each other, and where the result would overlap an operand."""
import jitgemm
import numpy as np
import pytest


def array(*shape):
    return np.random.default_rng().standard_normal(shape).astype(np.float32)


def test_slices_of_one_array():
    whole = array(8, 64)
    before = whole.copy()
    a, b, c = whole[:, :8], whole[:, 8:24], whole[:, 48:]
    jitgemm.matmul(a, b, c=c, beta=1, out=whole[:, 24:40])
    expected = before.astype(np.float64)
    expected[:, 24:40] = expected[:, :8] @ expected[:, 8:24] + expected[:, 48:]
    assert np.abs(whole - expected).max() < 1e-4
    assert (np.delete(whole, np.s_[24:40], 1) == np.delete(before, np.s_[24:40], 1)).all()


def test_out_of_several_gemms_overlaps_no_operand():
    x, b, out = array(3, 2, 4, 4), array(2, 4, 4), array(2, 2, 4, 4)  # b's matrices serve all of the first dimension
    row, wide = array(4), array(2, 2, 4, 8)
    for call, name in [(lambda multiply: multiply(x[:2], b, out=x[1:]), "a"),
                       (lambda multiply: multiply(b, x[:2], out=x[1:]), "b"),
                       (lambda multiply: multiply(out, b, c=x[:2], out=x[1:]), "c"),
                       (lambda multiply: multiply(out, b, bias=x[1, 1, 0], out=x[1:]), "bias")]:
        for multiply in (jitgemm.matmul, lambda *arrays, **words: jitgemm.Matmul(*arrays, **words)()):
            with pytest.raises(ValueError, match=f"^out and {name} overlap in memory; pass arrays that do not$"):
                call(multiply)
    product = jitgemm.Matmul(x[:2], b, bias=row)
    with pytest.raises(ValueError, match="^out and a overlap in memory"):
        product(out=x[1:])
    with pytest.raises(ValueError, match="^out and bias overlap in memory"):
        product(out=out, bias=out[1, 0, 0])
    expected = x[:2] @ b + out
    assert np.allclose(jitgemm.matmul(x[:2], b, c=out, out=out), expected, atol=1e-5)
    # Beside each other, by columns and by matrices; and what is read before all of them.
    expected = wide[..., :4] @ b
    assert np.allclose(jitgemm.matmul(wide[..., :4], b, out=wide[..., 4:]), expected, atol=1e-5)
    packed = array(2, 3, 2, 4, 4)
    expected = packed[:, 2] @ b
    assert np.allclose(jitgemm.matmul(packed[:, 2], b, out=packed[:, 0]), expected, atol=1e-5)
    apart = array(2, 2, 8, 8)
    expected = apart[..., ::2, ::2] @ b
    assert np.allclose(jitgemm.matmul(apart[..., ::2, ::2], b, out=apart[..., :4, :4]), expected, atol=1e-5)
