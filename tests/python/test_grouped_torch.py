"""Gradients of grouped_mm() in torch. On CPU tensors, by the emulator."""
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import jitgemm  # noqa: E402
from jitgemm import epilogues  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def by_torch(a, b, offs, bias=None):
    """The same, by torch's own operators; zeros where there is no group."""
    begins = [0, *offs[:-1]]
    if b.dim() == 2:
        return torch.stack([a[:, begin:end] @ b[begin:end] for begin, end in zip(begins, offs)])
    parts = [a[begin:end] @ b[group] for group, (begin, end) in enumerate(zip(begins, offs))]
    own = torch.cat(parts) if bias is None else torch.cat(parts) + bias
    return torch.cat([own, own.new_zeros(len(a) - len(own), own.shape[1])])


def leaf(*shape, dtype, device):
    return torch.randn(*shape, device=device).to(dtype).requires_grad_()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 3e-2), (torch.float16, 4e-3), (torch.float32, 1e-5)])
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients(device, dtype, tolerance, transposed):
    ends = [7, 7, 50]
    offs = torch.tensor(ends, dtype=torch.int32, device=device)
    a, bias = leaf(56, 32, dtype=dtype, device=device), leaf(24, dtype=dtype, device=device)
    weight = leaf(3, *((24, 32) if transposed else (32, 24)), dtype=dtype, device=device)
    b = weight.mT if transposed else weight
    d = jitgemm.grouped_mm(a, b, offs, bias)
    grad = torch.randn(56, 24, device=device).to(dtype)
    grad[50:] = float("nan")  # of rows that are no group's
    d.backward(grad)
    assert weight.grad.stride() == weight.stride()
    wide = [x.detach().double().requires_grad_() for x in (a, weight, bias)]
    expected = by_torch(wide[0], wide[1].mT if transposed else wide[1], ends, wide[2])
    assert torch.allclose(d[:50].double(), expected[:50], rtol=tolerance, atol=tolerance)
    expected[:50].backward(grad[:50].double())
    for x, y in zip((a, weight, bias), wide):
        assert x.grad.dtype == dtype
        assert torch.allclose(x.grad.double(), y.grad, rtol=tolerance, atol=tolerance * 8), x.shape
    assert torch.all(a.grad[50:] == 0)
    assert torch.all(weight.grad[1] == 0)


@pytest.mark.parametrize("along_k", [False, True])
def test_gradients_of_gradients(along_k):
    ends = [2, 2, 5]
    offs = torch.tensor(ends, dtype=torch.int32)
    a = leaf(*((3, 6) if along_k else (6, 4)), dtype=torch.float64, device="cpu")
    b = leaf(*((6, 4) if along_k else (3, 4, 5)), dtype=torch.float64, device="cpu")

    def product(a, b):
        d = jitgemm.grouped_mm(a, b, offs)
        return d if along_k else d[:5]

    assert torch.allclose(product(a, b), by_torch(a, b, ends)[slice(None) if along_k else slice(5)])
    assert torch.autograd.gradcheck(product, (a, b))
    assert torch.autograd.gradgradcheck(product, (a, b))


def test_expanded_gradients_and_what_nobody_needs():
    offs = torch.tensor([3, 9], dtype=torch.int32)
    a, b = leaf(9, 16, dtype=torch.float32, device="cpu"), torch.randn(2, 16, 8)
    jitgemm.grouped_mm(a, b, offs).sum().backward()
    assert torch.allclose(a.grad[:3], b[0].sum(1).expand(3, 16), atol=1e-5) and b.grad is None
    with torch.no_grad():
        assert not jitgemm.grouped_mm(a, b, offs).requires_grad
    wide = jitgemm.grouped_mm(a.to(torch.bfloat16), b.to(torch.bfloat16), offs, out_dtype=torch.float32)
    wide.backward(torch.ones_like(wide))
    assert a.grad.dtype == torch.float32


def test_a_training_step_agrees_with_torch():
    if not hasattr(torch, "_grouped_mm"):
        pytest.skip("this torch has no _grouped_mm")
    offs = torch.tensor([8, 24, 40], dtype=torch.int32)
    grads = []
    for grouped in (jitgemm.grouped_mm, lambda a, b, offs: torch._grouped_mm(a, b, offs=offs)):
        torch.manual_seed(3)
        x = leaf(40, 32, dtype=torch.bfloat16, device="cpu")
        up, down = leaf(3, 32, 64, dtype=torch.bfloat16, device="cpu"), leaf(3, 64, 32, dtype=torch.bfloat16, device="cpu")
        grouped(torch.relu(grouped(x, up, offs)), down, offs).float().square().mean().backward()
        grads.append([x.grad, up.grad, down.grad])
    for ours, theirs in zip(*grads):
        scale = theirs.float().abs().max()
        assert torch.all((ours.float() - theirs.float()).abs() <= 0.03 * scale)


def test_what_has_no_gradients():
    offs = torch.tensor([3, 9], dtype=torch.int32)
    a, b = leaf(9, 16, dtype=torch.float32, device="cpu"), torch.randn(2, 16, 8)
    with pytest.raises(RuntimeError, match="leave out away"):
        jitgemm.grouped_mm(a, b, offs, out=torch.empty(9, 8))
    with pytest.raises(RuntimeError, match="groups by counts"):
        jitgemm.grouped_mm(a.view(1, 9, 16), b[:1], counts=offs[:1])
    with pytest.raises(RuntimeError, match="have no gradients"):
        jitgemm.grouped_mm(torch.ones(9, 16, dtype=torch.float8_e4m3fn), torch.ones(2, 16, 16, dtype=torch.float8_e4m3fn),
                           offs, bias=torch.ones(16, dtype=torch.bfloat16, requires_grad=True))
    for name in ("scale_a", "scale_b"):
        with pytest.raises(RuntimeError, match="scales, have no gradients"):
            jitgemm.grouped_mm(torch.ones(9, 16, dtype=torch.float8_e4m3fn), torch.ones(2, 16, 16, dtype=torch.float8_e4m3fn),
                               offs, **{name: torch.ones(1, requires_grad=True)})


def test_an_epilogue_has_no_gradients_and_loses_none():
    offs = torch.tensor([3, 9], dtype=torch.int32)
    a, b, residual = torch.randn(9, 16), torch.randn(2, 16, 8), leaf(9, 8, dtype=torch.float32, device="cpu")
    call = {"epilogue": epilogues.bias_residual("f32"), "operands": {"bias": torch.randn(2, 8), "residual": residual}}
    with pytest.raises(RuntimeError, match=r"requires a gradient, and a product with an epilogue of one's own has none; "
                                           r"use torch.no_grad\(\)"):
        jitgemm.grouped_mm(a, b, offs, **call)
    with torch.no_grad():
        d = jitgemm.grouped_mm(a, b, offs, **call)
    expected = by_torch(a, b, [3, 9]) + residual + call["operands"]["bias"].repeat_interleave(torch.tensor([3, 6]), 0)
    assert not d.requires_grad and torch.allclose(d, expected, atol=1e-4)
    d, outputs = jitgemm.grouped_mm(a, b, offs, epilogue=epilogues.silu("f32"))
    assert torch.allclose(outputs["before"], by_torch(a, b, [3, 9]), atol=1e-4)
    assert torch.allclose(d, torch.nn.functional.silu(outputs["before"]), atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 3e-2), (torch.float32, 1e-5)])
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_weights_that_lie_apart(device, dtype, tolerance, transposed):
    ends = [7, 7, 50]
    offs = torch.tensor(ends, dtype=torch.int32, device=device)
    a, bias = leaf(56, 32, dtype=dtype, device=device), leaf(24, dtype=dtype, device=device)
    weights = [leaf(*((24, 32) if transposed else (32, 24)), dtype=dtype, device=device) for _ in ends]
    experts = jitgemm.MatrixPointers([weight.T if transposed else weight for weight in weights])
    grad = torch.randn(56, 24, device=device).to(dtype)
    for _ in range(2):  # it adds up
        jitgemm.grouped_mm(a, experts, offs, bias)[:50].backward(grad[:50])
    wide = [x.detach().double().requires_grad_() for x in (a, bias, *weights)]
    stack = torch.stack([w.mT if transposed else w for w in wide[2:]])
    (2 * by_torch(wide[0], stack, ends, wide[1])[:50]).backward(grad[:50].double())
    for x, y in zip((a, bias, *weights), wide):
        assert x.grad.dtype == dtype and x.grad.stride() == x.stride()
        assert torch.allclose(x.grad.double(), y.grad, rtol=tolerance, atol=tolerance * 16), x.shape
    assert torch.all(a.grad[50:] == 0) and torch.all(weights[1].grad == 0)


def test_gradients_of_gradients_of_weights_that_lie_apart():
    offs = torch.tensor([2, 2, 5], dtype=torch.int32)
    a = leaf(6, 4, dtype=torch.float64, device="cpu")
    weights = [leaf(4, 5, dtype=torch.float64, device="cpu") for _ in range(3)]

    def product(a, *weights):
        return jitgemm.grouped_mm(a, jitgemm.MatrixPointers(weights), offs)[:5]

    assert torch.autograd.gradcheck(product, (a, *weights))
    assert torch.autograd.gradgradcheck(product, (a, *weights))


def test_experts_some_of_which_are_frozen():
    a, offs = torch.randn(9, 16), torch.tensor([4, 9], dtype=torch.int32)
    layers = [torch.nn.Linear(16, 8, bias=False) for _ in range(2)]
    layers[0].requires_grad_(False)
    experts = jitgemm.MatrixPointers([layer.weight.T for layer in layers])
    optimizer = torch.optim.SGD(layers[1].parameters(), lr=0.1)
    for _ in range(2):  # as the weights are in memory now
        d = jitgemm.grouped_mm(a, experts, offs)
        assert torch.allclose(d, torch.cat([layers[0](a[:4]), layers[1](a[4:])]), atol=1e-4)
        optimizer.zero_grad()
        d.square().sum().backward()
        assert layers[0].weight.grad is None
        expected, = torch.autograd.grad(layers[1](a[4:]).square().sum(), [layers[1].weight])
        assert torch.allclose(layers[1].weight.grad, expected, atol=1e-4)
        optimizer.step()
    d = jitgemm.grouped_mm(a, experts, offs)
    with torch.no_grad():
        assert not jitgemm.grouped_mm(a, experts, offs).requires_grad
        layers[0].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        d.sum().backward()
    b = a.clone().requires_grad_()
    frozen = jitgemm.MatrixPointers([layer.weight.detach().T for layer in layers])
    jitgemm.grouped_mm(b, frozen, offs).sum().backward()
    assert torch.allclose(b.grad[:4], layers[0].weight.sum(0).expand(4, 16), atol=1e-4)
    with pytest.raises(RuntimeError, match="leave out away"):
        jitgemm.grouped_mm(a, frozen, offs, out=torch.empty(9, 8, requires_grad=True))


def test_weights_of_numpy_among_those_that_learn():
    a, offs = torch.randn(9, 4), torch.tensor([4, 9], dtype=torch.int32)
    weight = leaf(4, 5, dtype=torch.float32, device="cpu")
    experts = jitgemm.MatrixPointers([np.zeros((4, 5), np.float32), weight])
    jitgemm.grouped_mm(a, experts, offs).sum().backward()
    assert torch.allclose(weight.grad, a[4:].sum(0)[:, None].expand(4, 5), atol=1e-4)
    with pytest.raises(TypeError, match="pass torch's tensors for a, offs and bias, too"):
        jitgemm.grouped_mm(a, experts, offs.numpy())


def test_pointers_to_transposed_matrices():
    weights = [torch.randn(4, 6) for _ in range(2)]
    experts = jitgemm.MatrixPointers(weights)
    a, offs = torch.randn(5, 6), torch.tensor([2, 5], dtype=torch.int32)
    d = jitgemm.grouped_mm(a, experts.mT, offs)
    assert torch.allclose(d, torch.cat([a[:2] @ weights[0].T, a[2:] @ weights[1].T]), atol=1e-5)
    assert len(experts.mT) == 2 and experts.mT[1].shape == (6, 4) and experts.mT.mT[0].data_ptr() == weights[0].data_ptr()
    assert "(2, 6, 4)" in repr(experts.mT)
