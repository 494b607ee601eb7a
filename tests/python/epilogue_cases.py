"""What the tests of epilogues share: operands, what results are compared with, and an epilogue of every kind of operand."""
import jitgemm
import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 of NumPy comes with ml_dtypes")

rng = np.random.default_rng()
TYPES = {"f16": np.dtype("float16"), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype("float32")}
HALF_ULP = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}


def eighths(shape, dtype):
    return (rng.integers(-8, 9, shape) / 8).astype(dtype)


def normal(shape, dtype):
    return rng.standard_normal(shape).astype(dtype)


def exact(array):
    return np.asarray(array).astype(np.float64)


def assert_close(array, expected, name, magnitude=0.0):
    """Rounded once to its type, after some units of float32's last place of `magnitude`, or the result."""
    assert array.dtype == TYPES[name] and array.shape == expected.shape
    assert np.isfinite(exact(array)).all()
    bound = HALF_ULP[name] * np.abs(expected) * 1.0001 + 2.0**-21 * np.maximum(np.abs(expected), magnitude) + 1e-7
    assert (np.abs(exact(array) - expected) <= bound).all()


EVERYTHING = jitgemm.Epilogue("""\
// operand in residual matrix f32
// operand in columns along_n f16
// operand in rows along_m f32
// operand in limit scalar
// operand out before matrix f32
__device__ float epilogue(float x, const Args& args, Out& out) {
  out.before = x + args.residual;
  return fminf(x, args.limit) * args.rows + args.columns;
}
""")


def everything(a, b, residual, columns, rows, limit):
    x = exact(a) @ exact(b)
    return np.minimum(x, limit) * exact(rows) + exact(columns), x + exact(residual)


def check_everything(a, b, operands, rows=None, **keywords):
    """`rows` as it broadcasts against the result."""
    expected = everything(a, b, operands["residual"], operands["columns"],
                          operands["rows"] if rows is None else rows, operands["limit"])
    d, outputs = jitgemm.matmul(a, b, epilogue=EVERYTHING, operands=operands, **keywords)
    assert list(outputs) == ["before"]
    assert_close(d, expected[0], "f32", 100)
    assert_close(outputs["before"], expected[1], "f32", 100)
    return d, outputs["before"]
