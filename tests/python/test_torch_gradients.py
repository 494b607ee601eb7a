"""Gradients of products in torch. On CPU tensors, by the emulator."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import jitgemm  # noqa: E402
import jitgemm.torch  # noqa: E402
from torch_tensors import ACTIVATIONS, F, close  # noqa: E402


@pytest.mark.parametrize("shapes", [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)),
                                    ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 5)), ((3, 4), (2, 4, 5)),
                                    ((2, 3, 4), (4,)), ((4,), (2, 4, 5)), ((0, 4), (4, 5)), ((3, 0), (0, 5))])
def test_gradients_of_every_shape(shapes):
    a, b = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    assert torch.autograd.gradcheck(lambda x, y: jitgemm.matmul(x, y, alpha=0.75), (a, b))
    assert close(jitgemm.matmul(a, b), a @ b, 1e-12)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_gradients_of_everything_that_is_added(activation):
    a, b = torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.randn(5, 4, dtype=torch.float64).t()
    b.requires_grad_()
    c = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    for bias_shape in ((5,), (3, 1)):
        bias = torch.randn(bias_shape, dtype=torch.float64, requires_grad=True)

        def ours(a, b, c, bias):
            return jitgemm.matmul(a, b, c=c, alpha=0.5, beta=-2, bias=bias, activation=activation, slope=0.25)

        expected = ACTIVATIONS[activation](0.5 * (a @ b) - 2 * c + bias)
        assert close(ours(a, b, c, bias), expected, 1e-10)
        assert torch.autograd.gradcheck(ours, (a, b, c, bias))
    assert torch.autograd.gradgradcheck(ours, (a, b, c, bias))


def test_gradients_of_a_bias_of_vectors():
    a, b = torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.randn(4, dtype=torch.float64)
    bias = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, bias: jitgemm.matmul(a, b, bias=bias), (a, bias))


def test_gradients_lie_as_what_they_are_of():
    for left in (torch.randn(3, 4), torch.randn(4, 3).t()):
        for right in (torch.randn(4, 5), torch.randn(5, 4).t()):
            a, b = left.double().requires_grad_(), right.double().requires_grad_()
            ours = torch.autograd.grad(jitgemm.matmul(a, b).sin().sum(), (a, b))
            theirs = torch.autograd.grad((a @ b).sin().sum(), (a, b))
            for one, other in zip(ours, theirs):
                assert close(one, other, 1e-10) and one.stride() == other.stride()


def test_only_what_gradients_need_is_kept():
    x, weight, bias = torch.randn(6, 8), torch.randn(5, 8), torch.randn(5)

    def kept(x_grad, weight_grad, bias_grad, activation=None):
        tensors = [tensor.clone().requires_grad_(needs)
                   for tensor, needs in ((x, x_grad), (weight, weight_grad), (bias, bias_grad))]
        shapes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: shapes.append(tuple(tensor.shape)) or tensor,
                                                      lambda tensor: tensor):
            jitgemm.linear(*tensors, activation=activation)
        return sorted(shapes)

    assert kept(True, False, False) == [(8, 5)]  # a frozen layer keeps no activations
    assert kept(False, True, True) == [(6, 8)]
    assert kept(False, False, True) == []
    assert kept(False, False, True, "relu") == [(6, 5)]
    assert kept(True, True, True, "leaky_relu") == [(6, 5), (6, 8), (8, 5)]
    assert kept(True, True, True, "silu") == [(5,), (6, 8), (8, 5)]


def test_backward_notices_that_a_saved_tensor_was_overwritten():
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    product, weight = jitgemm.Matmul(a, b), torch.randn(4, 8)
    for write in (lambda out: jitgemm.matmul(a, b, out=out), lambda out: product(out=out),
                  lambda out: jitgemm.linear(a, weight, out=out), lambda out: jitgemm.torch.matmul(a, b, out=out),
                  lambda out: torch.compile(lambda x: jitgemm.matmul(a, b, out=x), backend="aot_eager")(out)):
        x, saved = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
        y = (x * saved).sum()
        before = saved._version
        write(saved)
        assert saved._version > before
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
    with torch.inference_mode():
        out = torch.empty(4, 4)
        assert close(jitgemm.matmul(a, b, out=out), a @ b)


def test_out_has_no_gradient():
    a, b = torch.randn(4, 8, requires_grad=True), torch.randn(8, 4)
    with pytest.raises(RuntimeError, match="does not support automatic differentiation"):
        jitgemm.matmul(a, b, out=torch.empty(4, 4))
    with torch.no_grad():
        jitgemm.matmul(a, b, out=torch.empty(4, 4))
    with pytest.raises(RuntimeError, match="a requires a gradient, and Matmul has none"):
        jitgemm.Matmul(a, b)(a, b)
    with pytest.raises(ValueError, match="leave stream and context away"):
        jitgemm.matmul(a, b, context=jitgemm.default_context("cpu"))


def test_eight_bits_have_no_gradient():
    a = torch.randn(16, 32).to(torch.float8_e4m3fn).requires_grad_()
    b = torch.randn(32, 16).to(torch.float8_e4m3fn)
    y = jitgemm.matmul(a, b)
    with pytest.raises(RuntimeError, match="8-bit floats, and scales, have no gradients"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="scales have no gradients; detach"):
        jitgemm.matmul(a, b, scale_a=torch.ones(1, requires_grad=True))
    bias = torch.randn(16, dtype=torch.bfloat16, requires_grad=True)
    scale = torch.full((1,), 0.5)
    jitgemm.matmul(a.detach(), b, bias=bias, scale_a=scale, activation="silu").sum().backward()
    expected = bias.detach().float().requires_grad_()
    F.silu(0.5 * (a.detach().float() @ b.float()) + expected).sum().backward()
    assert close(bias.grad, expected.grad, 0.1)
