"""Epilogues of pairs of columns, and those of jitgemm.epilogues: on the emulator, against float64.

Sums are of small multiples of 1/8, so that they are exact, and what is off is off by the epilogue.
"""
import jitgemm
import numpy as np
import pytest
from jitgemm import epilogues

rng = np.random.default_rng()
SWAPPED = "sm90 64x32x64 group_m=8 stages=3 warps=4 swap_ab=true schedule=data_parallel"
DIFFERENCE = "__device__ float epilogue(float gate, float up, const Args&, Out&) { return 2 * gate - up; }"


def eighths(shape, dtype="f2"):
    return (rng.integers(-8, 9, shape) / 8).astype(dtype)


def exact(array):
    return np.asarray(array).astype(np.float64)


def split(product, pairs):
    half = product.shape[-1] // 2
    return (product[..., :half], product[..., half:]) if pairs == "halves" else (product[..., ::2], product[..., 1::2])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def clamped(gate, up, limit, alpha):
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return (up + 1) * gate * sigmoid(alpha * gate)


LIBRARY = {
    "silu_gate": (epilogues.silu_gate, {}, lambda gate, up: gate * sigmoid(gate) * up),
    "gelu_gate": (epilogues.gelu_gate, {}, lambda gate, up: gelu_tanh(gate) * up),
    "clamped_silu_gate": (epilogues.clamped_silu_gate, {"limit": 1.25, "alpha": 1.702}, clamped),
}


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
@pytest.mark.parametrize("name", LIBRARY)
def test_library(name, pairs):
    make, scalars, meaning = LIBRARY[name]
    for (m, n, k), config in [((37, 46, 40), None), ((64, 96, 64), SWAPPED), ((1, 2, 8), None)]:
        x, weight = eighths((m, k)), eighths((n, k))
        gate, up = split(exact(x) @ exact(weight).T, pairs)
        d = jitgemm.linear(x, weight, epilogue=make(pairs), operands=scalars, config=config, out_dtype="f32")
        assert d.shape == (m, n // 2)
        expected = meaning(gate, up, **scalars)
        assert (np.abs(d - expected) <= 2.0**-18 * (np.abs(gate) + 1) * (np.abs(up) + 1)).all()


def test_bias_is_added_first_and_both_sums_are_saved():
    x, weight = eighths((12, 24), "f4"), eighths((20, 24), "f4")
    bias = {"gate_bias": eighths(10, "f4"), "up_bias": eighths(10, "f4")}
    gate, up = split(exact(x) @ exact(weight).T, "neighbours")
    gate, up = gate + bias["gate_bias"], up + bias["up_bias"]
    epilogue = epilogues.silu_gate("neighbours", bias="f32", saved="f32")
    d, saved = jitgemm.linear(x, weight, epilogue=epilogue, operands=bias)
    assert np.abs(d - gate * sigmoid(gate) * up).max() < 1e-4
    assert (saved["gate"] == gate).all() and (saved["up"] == up).all()


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
@pytest.mark.parametrize("shapes", [((3, 5, 8), (8, 6)), ((2, 3, 5, 8), (3, 8, 6)), ((8,), (8, 10)), ((0, 8), (8, 6))])
def test_batches_and_vectors(pairs, shapes):
    a, b = eighths(shapes[0]), eighths(shapes[1])
    gate, up = split(exact(a) @ exact(b), pairs)
    epilogue = jitgemm.Epilogue(f"// pairs {pairs}\n{DIFFERENCE}")
    assert epilogue.pairs == pairs and epilogues.clamp().pairs is None
    d = jitgemm.matmul(a, b, epilogue=epilogue, out_dtype="f32")
    assert d.shape == gate.shape and (d == 2 * gate - up).all()
    out = np.empty(gate.shape, np.float32)
    if out.size:
        product = jitgemm.Matmul(a, b, out=out, epilogue=epilogue)
        product()
        assert (out == d).all()


def test_every_mistake_is_one_clear_error():
    a, b = eighths((5, 8)), eighths((8, 6))
    halves = jitgemm.Epilogue(f"// pairs halves\n{DIFFERENCE}")
    for call, message in [
            (lambda: jitgemm.matmul(a, eighths((8, 7)), epilogue=halves), r"b is \(8, 7\), of an odd number of columns, 7"),
            (lambda: jitgemm.matmul(a, eighths(8), epilogue=halves), r"b is \(8,\), a vector, and the epilogue takes pairs"),
            (lambda: jitgemm.matmul(a, b, epilogue=halves, out=np.empty((5, 6), "f2")), r"out is \(5, 6\), and the result \(5, 3\)"),
            (lambda: jitgemm.matmul(a, b, epilogue=halves, bias=eighths(3)), "bias is given beside"),
            (lambda: jitgemm.matmul(a, b, epilogue=epilogues.silu_gate(bias="f16"),
                                    operands={"gate_bias": eighths(6), "up_bias": eighths(3)}), r"pass one of shape \(3,\)"),
            (lambda: jitgemm.Epilogue(DIFFERENCE), "line 1: the function takes a pair"),
            (lambda: epilogues.silu_gate("thirds"), "choose one of halves, neighbours"),
            (lambda: epilogues.gelu_gate(approximate="erf"), "choose one of none, tanh")]:
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
