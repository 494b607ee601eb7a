"""Epilogues of one's own, of torch's tensors: on CPU tensors, by the emulator."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import jitgemm  # noqa: E402
from jitgemm import epilogues  # noqa: E402

F = torch.nn.functional
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
KINDS = [("f16", torch.float16, 2e-3), ("bf16", torch.bfloat16, 1.2e-2), ("f32", torch.float32, 1e-5)]
CLAMP = {"epilogue": epilogues.clamp(), "operands": {"low": -1.0, "high": 1.0}}


def close(x, y, tolerance):
    return torch.allclose(x.double().cpu(), y.double().cpu(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind, dtype, tolerance", KINDS)
def test_a_layer_forward_and_backward(device, kind, dtype, tolerance):
    x, weight = torch.randn(5, 7, 32, device=device).to(dtype), torch.randn(24, 32, device=device).to(dtype) / 6
    bias, residual = torch.randn(24, device=device).to(dtype), torch.randn(5, 7, 24, device=device).to(dtype)
    h = x.double() @ weight.double().t()
    d = jitgemm.linear(x, weight, epilogue=epilogues.bias_residual(kind), operands={"bias": bias, "residual": residual})
    assert d.dtype == dtype and d.device == x.device and close(d, h + bias + residual, tolerance)
    d, outputs = jitgemm.linear(x, weight, epilogue=epilogues.gelu(kind, bias=kind), operands={"bias": bias})
    before = outputs["before"]
    assert before.dtype == dtype and before.device == x.device and before.is_contiguous()
    assert close(before, h + bias, tolerance) and close(d, F.gelu(h + bias), tolerance)
    gradient, other = torch.randn(5, 7, 16, device=device).to(dtype), torch.randn(16, 24, device=device).to(dtype) / 4
    for make, function in ((epilogues.dgelu, F.gelu), (epilogues.dsilu, F.silu), (epilogues.drelu, F.relu),
                           (epilogues.dgelu_tanh, lambda z: F.gelu(z, approximate="tanh"))):
        wide = before.double().requires_grad_()
        function(wide).backward(gradient.double() @ other.double())
        assert close(jitgemm.matmul(gradient, other, epilogue=make(kind), operands={"before": before}), wide.grad,
                     2 * tolerance)


@pytest.mark.parametrize("device", DEVICES)
def test_outputs_that_are_given_are_noted_as_written(device):
    a, b = torch.randn(4, 8, device=device), torch.randn(8, 4, device=device)
    before, out = torch.empty(4, 4, device=device), torch.empty(4, 4, device=device)
    gelu = epilogues.gelu("f32")
    product = jitgemm.Matmul(a, b, epilogue=gelu)
    for write in (lambda: jitgemm.matmul(a, b, epilogue=gelu, operands={"before": before}, out=out),
                  lambda: product(operands={"before": before}, out=out),
                  lambda: jitgemm.linear(a, b.t(), epilogue=gelu, operands={"before": before}, out=out)):
        versions = before._version, out._version
        before.fill_(0)
        d, outputs = write()
        assert d is out and outputs["before"] is before
        assert before._version > versions[0] + 1 and out._version > versions[1]
        assert close(before, a @ b, 1e-5) and close(out, F.gelu(a @ b), 1e-5)


def test_gradients_are_refused_and_never_lost():
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    operands = {"bias": torch.randn(4), "residual": torch.randn(4, 4)}
    add = epilogues.bias_residual("f32")
    expected = a @ b + operands["bias"] + operands["residual"]
    for name in ("a", "b", "operand bias", "operand residual", "out"):
        def of(key, tensor):
            return tensor.clone().requires_grad_() if key == name else tensor
        given = {key: of(f"operand {key}", value) for key, value in operands.items()}
        x, y, out = of("a", a), of("b", b), of("out", torch.empty(4, 4))
        for call in (lambda: jitgemm.matmul(x, y, epilogue=add, operands=given, out=out),
                     lambda: jitgemm.linear(x, y.t(), epilogue=add, operands=given, out=out)):
            with pytest.raises(RuntimeError, match=r"requires a gradient, and a product with an epilogue of one's own has "
                                                   r"none; use torch.no_grad\(\), or call it in forward"):
                call()
            with torch.no_grad():
                d = call()
            assert close(d, expected, 1e-5) and d.requires_grad == (name == "out")
        with pytest.raises(RuntimeError, match="requires a gradient, and Matmul has none"):
            jitgemm.Matmul(x, y, epilogue=add, operands=given, out=out)()
    with torch.inference_mode():
        assert close(jitgemm.matmul(a, b, epilogue=add, operands=operands), expected, 1e-5)
    with pytest.raises(TypeError, match=r"operand low is a tensor; pass a number, operand low.item\(\)"):
        jitgemm.matmul(a, b, epilogue=epilogues.clamp(), operands={"low": torch.tensor(1.0), "high": 2})


class GeluLinear(torch.autograd.Function):
    """As one writes it: what the epilogue leaves is what going back needs."""

    @staticmethod
    def forward(ctx, x, weight, next_weight):
        y, outputs = jitgemm.linear(x, weight, epilogue=epilogues.gelu("f32", approximate="tanh"))
        ctx.save_for_backward(x, weight, next_weight, y, outputs["before"])
        return jitgemm.linear(y, next_weight)

    @staticmethod
    def backward(ctx, gradient):
        x, weight, next_weight, y, before = ctx.saved_tensors
        inner = jitgemm.matmul(gradient, next_weight, epilogue=epilogues.dgelu_tanh("f32"), operands={"before": before})
        return jitgemm.matmul(inner, weight), jitgemm.matmul(inner.t(), x), jitgemm.matmul(gradient.t(), y)


def test_in_an_autograd_function():
    ours = [torch.randn(shape, requires_grad=True) for shape in ((6, 8), (16, 8), (4, 16))]
    theirs = [tensor.detach().clone().requires_grad_() for tensor in ours]
    y = GeluLinear.apply(*ours)
    expected = F.linear(F.gelu(F.linear(*theirs[:2]), approximate="tanh"), theirs[2])
    assert close(y, expected, 1e-4)
    weights = torch.randn_like(y)
    (y * weights).sum().backward()
    (expected * weights).sum().backward()
    for one, other in zip(ours, theirs):
        assert close(one.grad, other.grad, 1e-4)


def test_autocast_casts_what_is_multiplied():
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        d = jitgemm.matmul(a, b, **CLAMP)
        assert d.dtype == torch.bfloat16 and close(d, (a @ b).clamp(-1, 1), 1e-2)
        assert jitgemm.matmul(a, b, out_dtype="f32", **CLAMP).dtype == torch.float32
        assert jitgemm.matmul(a.double(), b.double(), epilogue="__device__ double epilogue(double x, const Args&, Out&) "
                                                              "{ return x; }").dtype == torch.float64
        with pytest.raises(RuntimeError, match="a requires a gradient"):
            jitgemm.matmul(a.requires_grad_(), b, **CLAMP)


def test_what_looks_at_operators_is_refused():
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    refused = pytest.raises(RuntimeError, match="is computed past torch's operators, which something here looks at")

    class Doubled(torch.Tensor):
        pass

    with refused:
        jitgemm.matmul(a.as_subclass(Doubled), b, **CLAMP)
    with refused:
        jitgemm.matmul(a, b, epilogue=epilogues.bias_residual("f32"),
                       operands={"bias": torch.ones(4), "residual": torch.ones(4, 4).as_subclass(Doubled)})
    with refused:
        torch.func.vmap(lambda x: jitgemm.matmul(x, b, **CLAMP))(torch.randn(3, 4, 8))
    with refused:
        torch.func.grad(lambda x: jitgemm.matmul(x, b, **CLAMP).sum())(a)
    with refused, torch._subclasses.FakeTensorMode():
        jitgemm.matmul(torch.empty(4, 8), torch.empty(8, 4), **CLAMP)
    with pytest.raises((RuntimeError, TypeError), match="looks at|without memory|no memory"):
        jitgemm.matmul(a.to("meta"), b.to("meta"), **CLAMP)
    with refused:
        torch.fx.symbolic_trace(lambda x, y: jitgemm.matmul(x, y, **CLAMP))


def test_compile_ends_its_graph_there_or_says_so():
    a, b = torch.randn(4, 8), torch.randn(8, 4)

    def f(x, y):
        clamped = jitgemm.matmul(x * 2, y, **CLAMP)
        return clamped + jitgemm.linear(x, y.t(), **CLAMP)

    torch._dynamo.reset()
    once = (a @ b).clamp(-1, 1)
    assert close(torch.compile(f, backend="aot_eager")(a, b), (2 * a @ b).clamp(-1, 1) + once, 1e-5)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="matmul_with_epilogue") as caught:
        torch.compile(f, fullgraph=True, backend="aot_eager")(a, b)
    assert type(caught.value).__module__.startswith("torch._dynamo")
    with pytest.raises(RuntimeError, match="a requires a gradient"):
        torch.compile(lambda x, y: jitgemm.matmul(x, y, **CLAMP), backend="aot_eager")(a.requires_grad_(), b)


@pytest.mark.gpu
def test_operands_on_another_device():
    a, b = torch.randn(8, 8, device="cuda"), torch.randn(8, 8, device="cuda")
    with pytest.raises(ValueError, match="operand residual is on cpu, and a on cuda:0"):
        jitgemm.matmul(a, b, epilogue=epilogues.bias_residual("f32"),
                       operands={"bias": torch.ones(8, device="cuda"), "residual": torch.ones(8, 8)})


@pytest.mark.gpu
def test_a_captured_graph():
    a, b = torch.randn(128, 256, device="cuda").half(), torch.randn(256, 128, device="cuda").half()
    given = {"bias": torch.randn(128, device="cuda").half(), "residual": torch.randn(128, 128, device="cuda").half()}
    product = jitgemm.Matmul(a, b, epilogue=epilogues.bias_residual("f16"), operands=given)
    out = torch.empty(128, 128, device="cuda", dtype=torch.half)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        product(out=out)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            product(out=out)
    for _ in range(3):
        given["residual"].copy_(torch.randn(128, 128, device="cuda"))
        out.fill_(float("nan"))
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        assert close(out, a.double() @ b.double() + given["bias"] + given["residual"], 2e-2)
