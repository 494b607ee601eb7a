"""The epilogues of jitgemm.epilogues: on the emulator, against float64.

Sums are of small multiples of 1/8, so that they are exact, and what is off is off by the epilogue.
"""
import math

import jitgemm
import numpy as np
import pytest
from epilogue_cases import TYPES, assert_close, eighths, exact, normal
from jitgemm import epilogues

SHAPES = [(1, 1, 8), (37, 23, 40), (3, 129, 72), (64, 32, 64)]
SWAPPED = "sm90 64x32x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=data_parallel"


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
