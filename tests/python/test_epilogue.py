"""Epilogues of one's own, and those of jitgemm.epilogues: on the emulator, against float64.

Sums are of small multiples of 1/8, so that they are exact, and what is off is off by the epilogue.
"""
import gc
import math
import pickle
import sys

import jitgemm
import numpy as np
import pytest
from jitgemm import epilogues

ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 of NumPy comes with ml_dtypes")

rng = np.random.default_rng()
TYPES = {"f16": np.dtype("float16"), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype("float32")}
HALF_ULP = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}
SHAPES = [(1, 1, 8), (37, 23, 40), (3, 129, 72), (64, 32, 64)]
SWAPPED = "sm90 64x32x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=data_parallel"


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


def erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def gelu(h):
    return 0.5 * h * (1 + erf(h / math.sqrt(2)))


def gelu_tanh(h):
    return 0.5 * h * (1 + np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))


def dgelu(h):
    return 0.5 * (1 + erf(h / math.sqrt(2))) + h * np.exp(-h * h / 2) / math.sqrt(2 * math.pi)


def dgelu_tanh(h):
    k = math.sqrt(2 / math.pi)
    t = np.tanh(k * (h + 0.044715 * h**3))
    return 0.5 * (1 + t) + 0.5 * h * (1 - t * t) * k * (1 + 3 * 0.044715 * h * h)


def sigmoid(h):
    return 1 / (1 + np.exp(-h))


def dsilu(h):
    return sigmoid(h) * (1 + h * (1 - sigmoid(h)))


# By name: the epilogue of operands of one type; what they are, for m rows and n columns; and what comes of x.
LIBRARY = {
    "bias_residual": (lambda t: epilogues.bias_residual(t),
                      lambda m, n, t: {"bias": normal(n, t), "residual": normal((m, n), t)},
                      lambda x, bias, residual: x + bias + residual),
    "residual_rstd": (lambda t: epilogues.residual_rstd(t),
                      lambda m, n, t: {"rstd": normal(m, "f4"), "residual": normal((m, n), t)},
                      lambda x, rstd, residual: x * rstd[:, None] + residual),
    "scale": (lambda t: epilogues.scale(t), lambda m, n, t: {"rows": normal(m, t), "columns": normal(n, t)},
              lambda x, rows, columns: x * rows[:, None] * columns),
    "gelu": (lambda t: epilogues.gelu(t), lambda m, n, t: {}, lambda x: (gelu(x), {"before": x})),
    "gelu_tanh": (lambda t: epilogues.gelu(t, approximate="tanh", bias="f32"), lambda m, n, t: {"bias": normal(n, "f4")},
                  lambda x, bias: (gelu_tanh(x + bias), {"before": x + bias})),
    "silu": (lambda t: epilogues.silu(t, bias=t), lambda m, n, t: {"bias": normal(n, t)},
             lambda x, bias: (sigmoid(x + bias) * (x + bias), {"before": x + bias})),
    "drelu": (lambda t: epilogues.drelu(t), lambda m, n, t: {"before": eighths((m, n), t)},
              lambda x, before: np.where(before > 0, x, 0)),
    "dgelu": (lambda t: epilogues.dgelu(t), lambda m, n, t: {"before": 3 * normal((m, n), t)},
              lambda x, before: x * dgelu(before)),
    "dgelu_tanh": (lambda t: epilogues.dgelu_tanh(t), lambda m, n, t: {"before": 3 * normal((m, n), t)},
                   lambda x, before: x * dgelu_tanh(before)),
    "dsilu": (lambda t: epilogues.dsilu(t), lambda m, n, t: {"before": 3 * normal((m, n), t)},
              lambda x, before: x * dsilu(before)),
    "soft_cap": (lambda t: epilogues.soft_cap(), lambda m, n, t: {"cap": 2.5}, lambda x, cap: cap * np.tanh(x / cap)),
    "clamp": (lambda t: epilogues.clamp(), lambda m, n, t: {"low": -0.75, "high": 1.5},
              lambda x, low, high: np.clip(x, low, high)),
    "leaky_relu": (lambda t: epilogues.leaky_relu(), lambda m, n, t: {"slope": 0.125},
                   lambda x, slope: np.where(x < 0, slope * x, x)),
    "dropout": (lambda t: epilogues.dropout(), lambda m, n, t: {"seed": 12345, "p": 0.375},
                lambda x, seed, p: np.where(drawn(x.shape, seed) < p, 0, x / (1 - p))),
}


def drawn(shape, seed, batch=0):
    """dropout()'s numbers in [0, 1)."""
    u = np.uint32

    def mixed(z):
        z = (z ^ (z >> u(16))) * u(0x7FEB352D)
        z = (z ^ (z >> u(15))) * u(0x846CA68B)
        return z ^ (z >> u(16))

    row, column = (index.astype(u) for index in np.indices(shape))
    given = np.full(shape, seed, u), np.full(shape, batch, u)
    first = mixed(row + mixed(given[0] + given[1] * u(0x9E3779B1)))
    second = mixed(row ^ mixed(given[1] - given[0] * u(0x7FEB352E)))
    z = (column + first) * u(0x9E3779B1)
    z = ((z ^ (z >> u(15))) + second) * u(0x85EBCA6B)
    z = (z ^ (z >> u(13))) * u(0xC2B2AE35)
    return (z >> u(8)).astype(np.float64) * 2.0**-24


@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.parametrize("kind", TYPES)
def test_library(name, kind):
    make, operands_of, meaning = LIBRARY[name]
    epilogue = make(kind)
    for m, n, k in SHAPES:
        operands = operands_of(m, n, TYPES[kind])
        a, b = eighths((m, k), TYPES[kind]), eighths((k, n), TYPES[kind])
        x = exact(a) @ exact(b)
        expected = meaning(x, **{key: value if isinstance(value, (int, float)) else exact(value)
                                 for key, value in operands.items()})
        d = jitgemm.matmul(a, b, epilogue=epilogue, operands=operands)
        d, outputs = d if isinstance(expected, tuple) else (d, {})
        expected, expected_outputs = expected if isinstance(expected, tuple) else (expected, {})
        magnitude = np.abs(x) * 2 + sum(np.abs(exact(value)).max() for value in operands.values() if
                                        not isinstance(value, (int, float)))
        assert_close(d, expected, kind, magnitude)
        assert outputs.keys() == expected_outputs.keys()
        for key in outputs:
            assert_close(outputs[key], expected_outputs[key], kind, magnitude)


@pytest.mark.parametrize("name", ["residual_rstd", "scale", "gelu_tanh", "dropout"])
def test_library_of_swapped_operands(name):
    make, operands_of, meaning = LIBRARY[name]
    m, n, k = 40, 72, 64
    operands = operands_of(m, n, TYPES["f16"])
    a, weight = eighths((m, k), "f2"), eighths((n, k), "f2")
    expected = meaning(exact(a) @ exact(weight).T, **{key: value if isinstance(value, (int, float)) else exact(value)
                                                      for key, value in operands.items()})
    for config in (None, SWAPPED):
        result = jitgemm.linear(a, weight, epilogue=make("f16"), operands=operands, config=config)
        if isinstance(expected, tuple):
            assert_close(result[1]["before"], expected[1]["before"], "f16", 40)
            assert_close(result[0], expected[0], "f16", 40)
        else:
            assert_close(result, expected, "f16", 40)


def test_dropout_drops_as_often_as_it_says_and_anew_for_each_seed():
    a, b = np.ones((3, 256, 8), np.float32), np.ones((8, 192), np.float32)
    first, again, other = (jitgemm.matmul(a, b, epilogue=epilogues.dropout(), operands={"seed": seed, "p": 0.25})
                           for seed in (7, 7, 8))
    assert (first == again).all() and (first != other).any()
    for batch in range(3):
        expected = drawn((256, 192), 7, batch) < 0.25
        assert ((first[batch] == 0) == expected).all()
        assert (first[batch][~expected] == np.float32(8) / np.float32(0.75)).all()
    total = first.size
    assert abs((first == 0).sum() - 0.25 * total) < 5 * math.sqrt(total * 0.25 * 0.75)
    both = ((first == 0) & (other == 0)).sum()
    assert abs(both - total / 16) < 5 * math.sqrt(total / 16)
    assert (jitgemm.matmul(a, b, epilogue=epilogues.dropout(), operands={"seed": 7, "p": 1.0}) == 0).all()
    assert (jitgemm.matmul(a, b, epilogue=epilogues.dropout(), operands={"seed": 7, "p": 0.0}) == 8).all()


def test_nan_and_what_is_far_out():
    a = np.array([[np.nan], [-np.inf], [np.inf], [-1000], [1000]], np.float32)
    one = np.ones((1, 1), np.float32)
    clamped = jitgemm.matmul(a, one, epilogue=epilogues.clamp(), operands={"low": -2, "high": 3})
    assert np.isnan(clamped[0, 0]) and clamped[1:, 0].tolist() == [-2, 3, -2, 3]
    capped = jitgemm.matmul(a, one, epilogue=epilogues.soft_cap(), operands={"cap": 5})
    assert np.isnan(capped[0, 0]) and capped[1:, 0].tolist() == [-5, 5, -5, 5]
    ones = np.ones((5, 1), np.float32)
    for make in (epilogues.dgelu, epilogues.dgelu_tanh, epilogues.dsilu):
        d = jitgemm.matmul(ones, one, epilogue=make("f32"), operands={"before": a})[:, 0]
        assert np.isnan(d[0]) and (abs(d[[1, 3]]) < 1e-30).all() and (d[[2, 4]] == 1).all()
    before = a[[0, 3, 4]]
    ones = ones[:3]
    assert jitgemm.matmul(ones, one, epilogue=epilogues.drelu("f32"), operands={"before": before})[:, 0].tolist() == [1, 0, 1]


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


@pytest.mark.parametrize("change, error, message", [
    ({"residual": None}, ValueError, "operand residual is missing; pass operands={\"residual\": an array}"),
    ({"limit": None}, ValueError, "operand limit is missing; pass operands={\"limit\": a number}"),
    ({"limit": "1"}, TypeError, "operand limit is no number"),
    ({"limit": np.ones(3, "f4")}, TypeError, "operand limit is no number"),
    ({"residual": 2.0}, TypeError, "operand residual is a number, and described as matrix; pass an array"),
    ({"residual": [[1.0]]}, TypeError, "operand residual is a builtins.list"),
    ({"residual": np.ones((5, 9), "f2")}, TypeError, "operand residual is of f16, and described as f32; convert it"),
    ({"residual": np.ones((9, 5), "f4")}, ValueError, r"operand residual is \(9, 5\), a matrix, and the result \(5, 9\)"),
    ({"residual": np.ones((1, 9), "f4")}, ValueError, r"operand residual is \(1, 9\), a matrix, and the result \(5, 9\)"),
    ({"residual": np.ones((2, 5, 9), "f4")}, ValueError, "pass one of that shape"),
    ({"residual": np.ones((9, 5), "f4").T}, ValueError, "do not lie one after the other along the last dimension"),
    ({"residual": np.ones((5, 18), "f4")[:, ::2]}, ValueError, "do not lie one after the other along the last dimension"),
    ({"residual": np.ones((5, 9), "f4")[::-1]}, ValueError, "do not lie one after the other along the last dimension"),
    ({"columns": np.ones(5, "f2")}, ValueError, r"columns is \(5,\), a value a column, and the result \(5, 9\): pass one of shape \(9,\)"),
    ({"columns": np.ones((9, 1), "f2")}, ValueError, r"or \(..., 1, 9\) whose leading"),
    ({"columns": np.ones(18, "f2")[::2]}, ValueError, "operand columns is .9,., and its elements do not lie one after the"),
    ({"rows": np.ones(9, "f4")}, ValueError, r"rows is \(9,\), a value a row, and the result \(5, 9\): pass one of shape \(5,\)"),
    ({"rows": np.ones((2, 5, 1), "f4")}, ValueError, "leading dimensions are those of the batch"),
    ({"before": np.ones((5, 9), "f2")}, TypeError, "operand before is of f16, and described as f32"),
    ({"before": np.ones((1, 9), "f4")}, ValueError, "an output has the result's shape"),
    ({"before": np.broadcast_to(np.ones((1, 9), "f4"), (5, 9))}, ValueError, "operand before is read-only"),
    ({"before": np.lib.stride_tricks.as_strided(np.ones(90, "f4"), (5, 9), (0, 4))}, ValueError, "do not lie|are one in memory"),
    ({"others": 1}, ValueError, "operands has \"others\", and the epilogue's are residual, columns, rows, limit, before"),
    ({1: 1}, ValueError, "operands has \"1\""),
])
def test_every_wrong_operand_is_one_clear_error(change, error, message):
    a, b = eighths((5, 7), "f4"), eighths((7, 9), "f4")
    operands = {"residual": normal((5, 9), "f4"), "columns": normal(9, "f2"), "rows": normal(5, "f4"), "limit": 1}
    with pytest.raises(error, match=message) as caught:
        jitgemm.matmul(a, b, epilogue=EVERYTHING, operands={**operands, **change})
    assert "\n" not in str(caught.value)
    with pytest.raises(error, match=message):
        jitgemm.Matmul(a, b, epilogue=EVERYTHING, operands={**operands, **change})
    check_everything(a, b, operands, operands["rows"].reshape(5, 1))  # all is as it was


def test_every_other_mistake_is_one_clear_error():
    a, b = eighths((5, 7), "f4"), eighths((7, 9), "f4")
    operands = {"residual": normal((5, 9), "f4"), "columns": normal(9, "f2"), "rows": normal(5, "f4"), "limit": 1}
    x = np.empty((5, 9), np.float32)
    for keywords, error, message in [
            ({"epilogue": 3}, TypeError, "epilogue is no jitgemm.Epilogue; pass one, or its text"),
            ({"epilogue": EVERYTHING, "operands": [1]}, TypeError, "operands is no dict"),
            ({"operands": operands}, ValueError, "operands are an epilogue's, which is not there; pass epilogue"),
            ({"epilogue": EVERYTHING, "operands": operands, "bias": normal(9, "f4")}, ValueError, "bias is given beside"),
            ({"epilogue": EVERYTHING, "operands": operands, "c": x}, ValueError, "beta is given beside"),
            ({"epilogue": EVERYTHING, "operands": operands, "activation": "relu"}, ValueError, "activation is given beside"),
            ({"epilogue": EVERYTHING, "operands": operands, "out": np.empty((9, 5), "f4").T}, ValueError, "with an epilogue its rows"),
            ({"epilogue": EVERYTHING, "operands": {**operands, "before": x}, "out": x}, ValueError, "before overlaps D"),
            ({"epilogue": "__device__ float wrong(float x) { return x; }"}, ValueError, "there is no function \"epilogue\""),
            ({"epilogue": "// operand in x\n"}, ValueError, "line 1: \"\" is no shape")]:
        with pytest.raises(error, match=message) as caught:
            jitgemm.matmul(a, b, **keywords)
        assert "\n" not in str(caught.value)
    with pytest.raises(RuntimeError, match="does not compile") as caught:
        jitgemm.matmul(a, b, epilogue="__device__ float epilogue(float x, const Args&, Out&) { return misspelt; }")
    assert caught.value.code == "compile_failed" and "misspelt" in caught.value.log
    code = "__device__ float epilogue(float x, const Args&, Out&) { return x; }"
    for line, text in ((2, f"\n// operand in limit scalar\n{code}"),
                       (3, f"// operand in low scalar\n\n// operand in limit scalar\n{code}")):
        with pytest.raises(ValueError, match=f"line {line}: operands come first"):
            jitgemm.Epilogue(text)
    assert len(jitgemm.Epilogue(f"  //operand in limit scalar\n{code}").operands) == 1
    assert jitgemm.Epilogue(f"// operands: none\n{code}").operands == []
    with pytest.raises(ValueError, match='approximate is "erf"; choose one of none, tanh'):
        epilogues.gelu(approximate="erf")


def test_operands_of_a_batch_that_no_stride_describes_may_not_overlap():
    a, b = eighths((2, 1, 5, 8), "f4"), eighths((3, 8, 7), "f4")
    out, given = np.empty((2, 3, 5, 7), np.float32), {"bias": np.ones(7, np.float32)}
    bias_residual = epilogues.bias_residual("f32")
    with pytest.raises(ValueError, match="operand residual and out overlap in memory"):
        jitgemm.matmul(a, b, out=out, epilogue=bias_residual, operands={**given, "residual": out[0, 0]})
    out[:] = 1
    jitgemm.matmul(a, b, out=out, epilogue=bias_residual, operands={**given, "residual": out})
    assert_close(out, exact(a) @ exact(b) + 2, "f32", 10)
    before = np.empty((2, 3, 5, 7), np.float32)
    with pytest.raises(ValueError, match="operand before and out overlap"):
        jitgemm.matmul(a, b, out=before, epilogue=epilogues.gelu("f32"), operands={"before": before})
    with pytest.raises(ValueError, match="some of its elements are one in memory"):
        jitgemm.matmul(a, b, epilogue=epilogues.gelu("f32"),
                       operands={"before": np.lib.stride_tricks.as_strided(before, before.shape, (0, 140, 28, 4))})


def test_arrays_of_jax():
    jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed")
    a, b = jnp.asarray(eighths((5, 8), "f4")), jnp.asarray(eighths((8, 7), "f4"))
    d, outputs = jitgemm.matmul(a, b, epilogue=epilogues.gelu("f32"))
    assert type(d) is type(outputs["before"]) is type(a) and (outputs["before"] == a @ b).all()
