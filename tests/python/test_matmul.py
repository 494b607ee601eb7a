"""matmul() and linear() of NumPy arrays, on the emulator, against float64."""
import gc
import itertools
import subprocess
import sys
import threading
import warnings

import jitgemm
import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 and 8-bit floats of NumPy come with ml_dtypes")

rng = np.random.default_rng()
EPSILON = {"float16": 2.0**-10, "float32": 2.0**-22, "float64": 2.0**-51, "bfloat16": 2.0**-7, "int32": 0}


def random(shape, dtype="float32"):
    values = rng.standard_normal(shape) * (20 if dtype == "int8" else 1)
    return values.astype(dtype)


def exact(a):
    return np.asarray(a).astype(np.float64)


def assert_close(d, expected, magnitude):
    """Within rounding of the result's type, and of float32 sums of this magnitude."""
    assert d.shape == expected.shape
    bound = EPSILON[d.dtype.name] * np.abs(expected) + (0 if d.dtype.name in ("float64", "int32") else 2e-6) * magnitude
    bound += 1e-13 * magnitude if d.dtype.name == "float64" else 0
    assert not np.isnan(exact(d)).any()
    assert (np.abs(exact(d) - expected) <= bound + 1e-30).all()


def check(a, b, **keywords):
    d = jitgemm.matmul(a, b, **keywords)
    assert_close(d, np.matmul(exact(a), exact(b)), np.matmul(np.abs(exact(a)), np.abs(exact(b))))
    return d


@pytest.mark.parametrize("dtype, result", [("float16", "float16"), ("bfloat16", "bfloat16"), ("float32", "float32"),
                                           ("float64", "float64"), ("int8", "int32"), ("float8_e4m3fn", "bfloat16"),
                                           ("float8_e5m2", "bfloat16")])
def test_types(dtype, result):
    dtype = getattr(ml_dtypes, dtype, dtype)
    assert check(random((17, 40), dtype), random((40, 23), dtype)).dtype.name == result


def test_out_dtype_by_all_its_names():
    a, b = random((8, 16), "float16"), random((16, 8), "float16")
    for name in ("f32", "float32", np.float32, np.dtype("float32")):
        assert check(a, b, out_dtype=name).dtype == np.float32
    with pytest.raises(TypeError, match="out_dtype is complex64; choose one of"):
        jitgemm.matmul(a, b, out_dtype="complex64")


@pytest.mark.parametrize("shapes", [((5, 7), (7, 9)), ((7,), (7,)), ((5, 7), (7,)), ((7,), (7, 9)), ((3, 5, 7), (7, 9)),
                                    ((3, 5, 7), (3, 7, 9)), ((2, 3, 5, 7), (3, 7, 9)), ((2, 1, 5, 7), (3, 7, 9)),
                                    ((3, 5, 7), (2, 1, 7, 9)), ((7,), (3, 7, 9)), ((3, 5, 7), (7,)), ((1, 7), (7, 1)),
                                    ((3, 1, 7), (7, 9)), ((0, 7), (7, 9)), ((5, 0), (0, 9)), ((5, 7), (7, 0)),
                                    ((0, 5, 7), (7, 9)), ((2, 0, 5, 7), (0, 7, 9)), ((1, 1, 1), (1, 1))])
def test_shapes_are_those_of_numpy(shapes):
    check(random(shapes[0]), random(shapes[1]))


def test_every_way_to_lie_in_memory():
    """Transposed, sliced, reversed and broadcast views of both operands and of the result."""
    def views(rows, columns):
        yield random((rows, columns))
        yield random((columns, rows)).T
        yield random((rows, columns + 5))[:, 2:-3]
        yield random((columns + 5, rows)).T[:, 2:-3]
        yield random((rows * 2, columns))[::2]
        yield random((rows, columns * 2))[:, ::2]
        yield random((rows, columns))[::-1, ::-1]
        yield np.broadcast_to(random((1, columns)), (rows, columns))
        yield np.broadcast_to(random((rows, 1)), (rows, columns))

    for a, b in itertools.product(views(4, 6), views(6, 5)):
        check(a, b)
    for base, cut in [((4, 5), np.s_[:]), ((5, 4), np.s_[:]), ((4, 9), np.s_[:, 2:7]), ((8, 5), np.s_[::2])]:
        memory = np.full(base, np.nan, np.float32)
        out = memory[cut].T if base == (5, 4) else memory[cut]
        a, b = random((4, 6)), random((6, 5))
        assert check(a, b, out=out) is out
        assert np.isnan(memory).sum() == memory.size - out.size  # nothing else is written


def test_batches_that_no_stride_describes():
    a = np.swapaxes(random((2, 3, 4, 5, 6)), 0, 2)[:, ::-1]
    b = random((4, 1, 2, 6, 7))
    check(a, b)
    out = np.full((7, 4, 3, 2, 5), np.nan, np.float32).transpose(1, 2, 3, 4, 0)
    check(a, b, out=out)


def test_c_bias_scalars_and_activations():
    a, b, c = random((6, 8)), random((8, 5)), random((6, 5))
    for bias in (random(5), random((1, 5)), random((6, 1))):
        for out in (np.empty((6, 5), np.float32), np.empty((5, 6), np.float32).T):
            extra = c if out.flags.c_contiguous else np.asfortranarray(c)
            d = jitgemm.matmul(a, b, c=extra, alpha=2, beta=-0.5, bias=bias, activation="relu", out=out)
            expected = np.maximum(2 * exact(a) @ exact(b) - 0.5 * exact(c) + exact(bias), 0)
            assert np.allclose(d, expected, atol=1e-5)
    assert np.allclose(jitgemm.matmul(a, b, c=c), a @ b + c, atol=1e-5)  # beta is 1 then
    assert np.allclose(jitgemm.matmul(a, b, c=c, beta=0), a @ b, atol=1e-5)
    x = exact(a) @ exact(b)
    assert np.allclose(jitgemm.matmul(a, b, activation="silu"), x / (1 + np.exp(-x)), atol=1e-5)
    assert np.allclose(jitgemm.matmul(a, b, activation="leaky_relu", slope=0.25), np.where(x < 0, 0.25 * x, x), atol=1e-5)
    assert (jitgemm.matmul(a, b, activation="gelu") == jitgemm.matmul(a, b, activation="gelu_erf")).all()


def test_a_vector_as_result_takes_a_bias_of_its_length():
    a, b = random((6, 8)), random(8)
    assert np.allclose(jitgemm.matmul(a, b, bias=np.arange(6, dtype=np.float32)), a @ b + np.arange(6), atol=1e-5)
    assert np.allclose(jitgemm.matmul(b, a.T, bias=np.arange(6, dtype=np.float32)), a @ b + np.arange(6), atol=1e-5)


def test_scales():
    e4m3 = ml_dtypes.float8_e4m3fn
    a, b = random((8, 16), e4m3), random((16, 8), e4m3)
    x = exact(a) @ exact(b)
    two, half = np.array([2], np.float32), np.array(0.5, np.float32)
    for out in (np.empty((8, 8), np.float32), np.empty((8, 8), np.float32).T):
        assert np.allclose(jitgemm.matmul(a, b, scale_a=two, out=out), 2 * x, rtol=1e-5)
        assert np.allclose(jitgemm.matmul(a, b, scale_a=two, scale_b=half * 3, out=out), 3 * x, rtol=1e-5)
        assert np.allclose(jitgemm.matmul(a, b, scale_a=2.0, scale_b=0.25, out=out), 0.5 * x, rtol=1e-5)
    rows, columns = np.linspace(0.5, 3, 8, dtype=np.float32), np.linspace(-2, 1.5, 8, dtype=np.float32)
    for out in (np.empty((8, 8), np.float32), np.empty((8, 8), np.float32).T):
        for scale_a, scale_b in ((rows, columns), (rows[:, None], columns[None, :]), (rows, 0.5), (two, columns)):
            expected = np.reshape(scale_a, (-1, 1)) * x * scale_b
            assert np.allclose(jitgemm.matmul(a, b, scale_a=scale_a, scale_b=scale_b, out=out), expected, rtol=1e-5)
    a8, b8 = np.arange(-64, 64, dtype=np.int8).reshape(8, 16), np.arange(-60, 68, dtype=np.int8).reshape(16, 8)
    d = jitgemm.matmul(a8, b8, out_dtype=np.float32, scale_a=rows, scale_b=columns)
    assert np.allclose(d, rows[:, None] * (a8.astype(int) @ b8.astype(int)) * columns, rtol=1e-5)
    wide = jitgemm.Matmul(a, b, scale_a=rows, scale_b=columns, out_dtype=np.float32)
    assert np.allclose(wide(), rows[:, None] * x * columns, rtol=1e-5)
    for wrong in (rows[:7], rows[None, :], np.stack([rows, rows], 1)[:, 0], rows.astype(np.float64)):
        with pytest.raises((TypeError, ValueError), match="scale_a (must be one float32|must be float32|is not contiguous)"):
            jitgemm.matmul(a, b, scale_a=wrong)
    with pytest.raises(TypeError, match="where a and b are matrices"):
        jitgemm.matmul(a[None], b, scale_a=rows)
    d = jitgemm.matmul(a, b, out_dtype="float8_e4m3fn", scale_d=half)
    assert np.allclose(exact(d), exact((0.5 * x).astype(np.float32).astype(e4m3)), rtol=0.07, atol=1e-2)


def test_linear_has_the_weight_of_torch():
    x, weight, bias = random((2, 3, 8)), random((5, 8)), random(5)
    assert np.allclose(jitgemm.linear(x, weight, bias), x @ weight.T + bias, atol=1e-5)
    assert np.allclose(jitgemm.linear(x, weight, activation="relu"), np.maximum(x @ weight.T, 0), atol=1e-5)
    assert np.allclose(jitgemm.linear(x[0, 0], weight), weight @ x[0, 0], atol=1e-5)


class ByDlpack:
    """An array that speaks DLPack's Python protocol, and nothing else."""

    def __init__(self, array, versioned=True, device=None):
        self.array, self.versioned, self.device = array, versioned, device
        self.exports = 0

    def __dlpack__(self, **keywords):
        if not self.versioned and "max_version" in keywords:
            raise TypeError("max_version is not known")
        self.exports += 1
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.device or self.array.__dlpack_device__()


@pytest.mark.parametrize("versioned", [True, False])
def test_whatever_speaks_dlpack(versioned):
    a, b, out = random((5, 7)), random((7, 9)), np.full((5, 9), np.nan, np.float32)
    result = ByDlpack(out, versioned)
    assert jitgemm.matmul(ByDlpack(a, versioned), ByDlpack(b, versioned), out=result) is result
    assert np.allclose(out, a @ b, atol=1e-5)
    with pytest.raises(TypeError, match="cannot make arrays of .*ByDlpack; pass out="):
        jitgemm.matmul(ByDlpack(a, versioned), ByDlpack(b, versioned))


def test_nothing_is_kept_of_an_array():
    a, b, out = random((5, 7)), random((7, 9)), np.empty((5, 9), np.float32)
    arrays = (a, b, out, ByDlpack(a))
    counts = [sys.getrefcount(array) for array in arrays]
    for _ in range(3):
        jitgemm.matmul(a, b, out=out)
        jitgemm.matmul(arrays[3], b, out=out)
        with pytest.raises(ValueError):
            jitgemm.matmul(a, a)
    gc.collect()
    assert [sys.getrefcount(array) for array in arrays] == counts


@pytest.mark.parametrize("words, error, message", [
    (lambda a, b: jitgemm.matmul(a, a), ValueError, "the last dimension of a, 7, is not the last but one of b, 5"),
    (lambda a, b: jitgemm.matmul(a, 3), TypeError, "b is a builtins.int, which does not speak DLPack"),
    (lambda a, b: jitgemm.matmul([[1.0]], b), TypeError, "a is a builtins.list"),
    (lambda a, b: jitgemm.matmul(a, None), TypeError, "b is a builtins.NoneType"),
    (lambda a, b: jitgemm.matmul(a, np.float32(2)), TypeError, "b is a numpy.float32"),
    (lambda a, b: jitgemm.matmul(a.astype("complex64"), b), TypeError, "a has elements of complex64; convert it to one"),
    (lambda a, b: jitgemm.matmul(a.astype(">f4"), b), TypeError, "a has the other byte order"),
    (lambda a, b: jitgemm.matmul(a.astype("int64"), b), TypeError, "a has elements of int64"),
    (lambda a, b: jitgemm.matmul(a, b.astype("float16")), ValueError, "with this a use b = f32"),
    (lambda a, b: jitgemm.matmul(a, b, activation="tanh"), ValueError, 'activation is "tanh"; choose one of None, relu'),
    (lambda a, b: jitgemm.matmul(a, b, activation=3), TypeError, "activation is no string"),
    (lambda a, b: jitgemm.matmul(a, b, precision="tf16"), ValueError, 'precision is "tf16"'),
    (lambda a, b: jitgemm.matmul(a.astype("f8"), b.astype("f8"), precision="tf32"), ValueError, "precision is for float32"),
    (lambda a, b: jitgemm.matmul(a, b, accumulation="slow"), ValueError, 'accumulation is "slow"'),
    (lambda a, b: jitgemm.matmul(a, b, c=b), ValueError, r"c is \(7, 9\) and the result \(5, 9\)"),
    (lambda a, b: jitgemm.matmul(a, b, c=(a @ b).astype("f8")), TypeError, "c is of f64, and goes with a result of f32 as f32"),
    (lambda a, b: jitgemm.matmul(a, b, beta=1), ValueError, "beta multiplies c, which is not there"),
    (lambda a, b: jitgemm.matmul(a, b, bias=a[0]), ValueError, r"bias is \(7,\) and the result \(5, 9\): pass one of shape \(9,\)"),
    (lambda a, b: jitgemm.matmul(a, b, bias=b[0].astype("f2")), TypeError, "bias is of f16"),
    (lambda a, b: jitgemm.matmul(a, b, out=np.empty((9, 5), "f4")), ValueError, r"out is \(9, 5\), and the result \(5, 9\)"),
    (lambda a, b: jitgemm.matmul(a, b, out=np.empty((5, 9), "f8")), ValueError, "f64"),
    (lambda a, b: jitgemm.matmul(a, b, out=np.empty((5, 9), "f4"), out_dtype="f16"), TypeError, "leave out_dtype away"),
    (lambda a, b: jitgemm.matmul(a, b, out=np.empty((10, 18), "f4")[::2, ::2]), ValueError, "lie apart"),
    (lambda a, b: jitgemm.matmul(a, b, out=np.broadcast_to(np.empty((1, 9), "f4"), (5, 9))), ValueError, "out is read-only"),
    (lambda a, b: jitgemm.matmul(b.T @ b, b.T @ b, out=(x := b.T @ b)) is jitgemm.matmul(x, x, out=x), ValueError, "overlap"),
    (lambda a, b: jitgemm.matmul(a, b, config="block_m=3"), ValueError, "cannot read"),
    (lambda a, b: jitgemm.matmul(a, b, config=3), TypeError, "config is no string"),
    (lambda a, b: jitgemm.matmul(a, b, stream="x"), TypeError, "stream is no CUDA stream"),
    (lambda a, b: jitgemm.matmul(a, b, alpha="1"), TypeError, "alpha is no number"),
    (lambda a, b: jitgemm.matmul(a, b, slope=1j), TypeError, "slope is no number"),
    (lambda a, b: jitgemm.matmul(a, b, activation="leaky_relu", slope=float("nan")), ValueError, "slope = nan is not a"),
    (lambda a, b: jitgemm.matmul(a, b, stream=-1), TypeError, "stream is no handle of a CUDA stream"),
    (lambda a, b: jitgemm.matmul(a, b, c=a @ b, beta="1"), TypeError, "beta is no number"),
    (lambda a, b: jitgemm.matmul(a, b, scale_a=2**2000), TypeError, "scale_a is no number that a float holds"),
    (lambda a, b: jitgemm.matmul(a, b, activation="\ud800"), ValueError, "activation is no text of Unicode"),
    (lambda a, b: jitgemm.matmul(a, b, activation="x" * 1000), ValueError, r'^activation is "x{80}\.\.\."; choose'),
    (lambda a, b: jitgemm.matmul(a, b, scale_d=np.ones(1, "f4")), ValueError, "pass none, and use alpha"),
    (lambda a, b: jitgemm.bench([]), ValueError, "there is no shape to time"),
    (lambda a, b: jitgemm.bench([(1, 2)]), ValueError, r"\(1, 2\) is no shape; pass \(m, n, k\)"),
    (lambda a, b: jitgemm.bench([(8, 8, 8)], seconds=float("nan")), ValueError, "seconds is nan"),
    (lambda a, b: jitgemm.warm([(1, 2)]), ValueError, r"\(1, 2\) is no shape"),
    (lambda a, b: jitgemm.warm([(8, 8, 8)], layout=3), ValueError, "layout is 3; choose one of nn, nt, tn, tt"),
    (lambda a, b: jitgemm.warm([(8, 8, 8)], progress=3), TypeError, "progress is neither a bool nor a function"),
    (lambda a, b: jitgemm.matmul(a, b, context="x"), TypeError, "context is no jitgemm.Context"),
    (lambda a, b: jitgemm.matmul(a, b, scale_a=np.ones(2, "f4")), TypeError, "scale_a must be one float32"),
    (lambda a, b: jitgemm.matmul(a, b, scale_d=2.0), TypeError, "scale_d is a number"),
    (lambda a, b: jitgemm.matmul(a, b, scale_a=np.ones(1, "f4")), ValueError, "scale"),
    (lambda a, b: jitgemm.matmul(np.empty((1,) * 17, "f4"), b), ValueError, "more than 16 dimensions"),
    (lambda a, b: jitgemm.matmul(ByDlpack(a, device=(8, 0)), b), (TypeError, ValueError, BufferError), "."),
    (lambda a, b: jitgemm.linear(a, b), ValueError,
     r"x is \(5, 7\) and weight is \(7, 9\): their last dimensions must be alike"),
    (lambda a, b: jitgemm.matmul(a, b, alpha=None), TypeError, "alpha is no number"),
    (lambda a, b: jitgemm.linear(a, b.T.copy(), slope=None), TypeError, "slope is no number"),
    (lambda a, b: jitgemm.Matmul(a, b, alpha=None), TypeError, "alpha is no number"),
    (lambda a, b: jitgemm.Matmul(a, b, slope="1"), TypeError, "slope is no number"),
    (lambda a, b: jitgemm.Epilogue(b""), TypeError, "text is no string; pass the lines"),
    (lambda a, b: jitgemm.MatrixPointers(3), TypeError, r"matrices are a builtins.int; pass a list of arrays \(K, N\)"),
    (lambda a, b: jitgemm.MatrixPointers([b])[2**70], IndexError, "there is no such matrix"),
    (lambda a, b: jitgemm.set_default_context(None), TypeError, "context is no jitgemm.Context"),
    (lambda a, b: jitgemm.default_context("cpu").tune("4x6x5"), TypeError, "problem is no jitgemm.Problem; pass one"),
])
def test_every_wrong_argument_is_one_clear_error(words, error, message):
    a, b = random((5, 7)), random((7, 9))
    before = a.copy(), b.copy()
    with pytest.raises(error, match=message) as caught:
        words(a, b)
    assert "\n" not in str(caught.value)
    assert (a == before[0]).all() and (b == before[1]).all()
    check(a, b)  # all is as it was


def test_subclasses_of_ndarray_are_their_memory():
    a, b = random((4, 6)), random((6, 5))

    class Liar(np.ndarray):
        shape = property(lambda self: (1000, 1000))

    assert np.allclose(jitgemm.matmul(a.view(Liar), b), a @ b, atol=1e-5)
    assert np.allclose(jitgemm.matmul(np.matrix(a), b), a @ b, atol=1e-5)
    with pytest.raises(TypeError, match="a is a masked array; pass filled"):
        jitgemm.matmul(np.ma.masked_array(a, mask=a > 0), b)


def test_a_matmul_object_of_nothing():
    for shapes in [((0, 5), (5, 3)), ((2, 0), (0, 3)), ((0, 2, 5), (5, 3))]:
        a, b = (np.zeros(shape, np.float32) for shape in shapes)
        assert jitgemm.Matmul(a, b)().shape == np.matmul(a, b).shape


def test_arrays_that_lie():
    a, b = random((4, 6)), random((6, 5))
    for answer in (None, 1, (1,), ("a", "b"), (2**40, 0), (1.5, 0)):
        with pytest.raises(TypeError, match="a.__dlpack_device__.. gave no pair of integers"):
            jitgemm.matmul(ByDlpack(a, device=answer or [answer]), b)


def test_errors_carry_what_the_library_knows():
    a = random((4, 4))
    with pytest.raises(ValueError) as caught:
        jitgemm.matmul(a, a.astype("f8"))
    assert caught.value.code == "invalid_problem"
    assert "a=f32 b=f64" in caught.value.problem
    assert caught.value.config == caught.value.call == caught.value.log == ""


def test_the_emulator_says_once_that_it_is_one():
    program = ("import warnings, numpy, jitgemm\n"
               "with warnings.catch_warnings(record=True) as caught:\n"
               "    warnings.simplefilter('always')\n"
               "    for _ in range(3): jitgemm.matmul(numpy.eye(2, dtype='f4'), numpy.eye(2, dtype='f4'))\n"
               "print([str(warning.message) for warning in caught])\n")
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert out.count("emulator") == 1


def test_matmul_object():
    a, b, bias = random((6, 8)), random((8, 5)), random(5)
    product = jitgemm.Matmul(a, b, bias=bias, activation="relu")
    assert np.allclose(product(), np.maximum(a @ b + bias, 0), atol=1e-5)
    other = random((6, 8))
    out = np.full((6, 5), np.nan, np.float32)
    assert product(other, out=out) is out
    assert np.allclose(out, np.maximum(other @ b + bias, 0), atol=1e-5)
    assert np.allclose(product.execute(other, bias=-bias), np.maximum(other @ b - bias, 0), atol=1e-5)
    assert product.problem.m == 6 and "bias=along_n" in str(product.problem)
    assert "jitgemm" in product.source() and "configuration" in product.explain()
    pinned = product.plan()
    assert pinned.registers >= 0  # of a compiled kernel
    assert product.plan(pinned.config).source == "pinned"
    assert np.allclose(product(), np.maximum(a @ b + bias, 0), atol=1e-5)
    for words, message in [(lambda: product(random((7, 8))), r"a is f32 \(7, 8\) .* where this Matmul has f32 \(6, 8\)"),
                           (lambda: product(a.T.copy().T), "strides"), (lambda: product(a.astype("f8")), "f64"),
                           (lambda: product(c=random((6, 5))), "c was not there"),
                           (lambda: product(out=random((6, 4))), "out is"), (lambda: product(a, 3), "b is a builtins.int"),
                           (lambda: jitgemm.Matmul(a[:, ::2], b[::2]), "contiguous in neither")]:
        with pytest.raises((ValueError, TypeError), match=message):
            words()


def test_matmul_object_of_a_column_major_result():
    a, b = random((6, 8)), random((8, 5))
    out = np.full((5, 6), np.nan, np.float32).T
    product = jitgemm.Matmul(a, b, out=out)
    assert product(-a) is out and np.allclose(out, -a @ b, atol=1e-5)


def test_threads():
    a, b = random((9, 17)), random((17, 33))
    product = jitgemm.Matmul(a, b)
    failed = []

    def work():
        for _ in range(20):
            x = random((9, 17))
            if not (np.allclose(jitgemm.matmul(x, b), x @ b, atol=1e-4) and np.allclose(product(x), x @ b, atol=1e-4)):
                failed.append(x)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_random_calls():
    """Shapes, views, types, results and epilogues drawn at random."""
    for _ in range(15):
        rank_a, rank_b = rng.integers(1, 5, 2)
        m, n, k = rng.integers(0, 20, 3) if rng.random() < 0.2 else rng.integers(1, 40, 3)
        batch = rng.integers(1, 4, 3)

        def operand(rank, rows, columns, vector):
            if rank == 1:
                return random(vector)
            lead = [int(extent) if rng.random() < 0.7 else 1 for extent in batch[3 - (rank - 2):]]
            made = random((*lead, rows, columns)) if rng.random() < 0.5 else np.swapaxes(random((*lead, columns, rows)), -1, -2)
            return made[..., ::-1, :] if rng.random() < 0.1 else made

        a, b = operand(rank_a, m, k, k), operand(rank_b, k, n, k)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(a, b)


def test_arrays_of_jax():
    jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed")
    a, b = jnp.asarray(random((5, 7))), jnp.asarray(random((7, 9)))
    d = jitgemm.matmul(a, b.T.T)
    assert type(d) is type(a) and np.allclose(d, a @ b, atol=1e-5)
    assert jitgemm.matmul(a.astype("bfloat16"), b.astype("bfloat16")).dtype == jnp.bfloat16
    assert type(jitgemm.Matmul(a, b)()) is type(a)
    with pytest.raises(TypeError, match="out is of JAX, whose arrays are immutable"):
        jitgemm.matmul(a, b, out=jnp.zeros((5, 9)))
    import jax
    for traced in (jax.jit(lambda x: jitgemm.matmul(x, b)), jax.vmap(lambda x: jitgemm.matmul(x[None], b)),
                   jax.grad(lambda x: jitgemm.matmul(x, b).sum())):
        with pytest.raises(TypeError, match="a is traced by JAX; call jitgemm outside jax.jit"):
            traced(a)
