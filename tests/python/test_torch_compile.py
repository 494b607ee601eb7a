"""What looks at products as operators: torch.compile, export, traces and modes. On CPU tensors, by the emulator."""
import io
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import jitgemm  # noqa: E402
import jitgemm.torch  # noqa: E402
from torch_tensors import DEVICES, F, close  # noqa: E402


def test_opcheck():
    a, b = torch.randn(2, 3, 8, requires_grad=True), torch.randn(8, 4, requires_grad=True)
    bias, c = torch.randn(4, requires_grad=True), torch.randn(2, 3, 4, requires_grad=True)
    tail = (1.0, 0.0, "none", 0.01, None, "", "", None, None, None, "")
    torch.library.opcheck(torch.ops.jitgemm.matmul.default, (a, b, None, None, *tail))
    torch.library.opcheck(torch.ops.jitgemm.matmul.default,
                          (a, b, c, bias, 2.0, 0.5, "silu", 0.01, None, "", "", None, None, None, ""))
    with torch.no_grad():
        torch.library.opcheck(torch.ops.jitgemm.matmul_out.default,
                              (a.detach(), b.detach(), None, None, *tail), {"out": torch.empty(2, 3, 4)})


def mlp(x, w1, b1, w2, b2):
    return jitgemm.linear(jitgemm.matmul(x, w1, bias=b1, activation="gelu_tanh"), w2, b2)


@pytest.mark.parametrize("device", DEVICES)
def test_compile_of_an_mlp_forward_and_backward(device):
    backend = "inductor" if device == "cuda" else "aot_eager"
    shapes = [(6, 8), (8, 16), (16,), (4, 16), (4,)]
    ours = [torch.randn(shape, device=device, requires_grad=True) for shape in shapes]
    theirs = [tensor.detach().clone().requires_grad_() for tensor in ours]
    torch._dynamo.reset()
    compiled = torch.compile(mlp, fullgraph=True, backend=backend)
    y = compiled(*ours)
    x, w1, b1, w2, b2 = theirs
    expected = F.linear(F.gelu(x @ w1 + b1, approximate="tanh"), w2, b2)
    assert close(y, expected, 1e-4)
    weights = torch.randn_like(y)
    (y * weights).sum().backward()
    (expected * weights).sum().backward()
    for one, other in zip(ours, theirs):
        assert close(one.grad, other.grad, 1e-4)
    with torch.no_grad():
        assert close(compiled(*ours), expected, 1e-4)


LOOKS_FOR_THE_TRACER = """
        import importlib.util
        import jitgemm
        spec = importlib.util.find_spec("torch._dynamo")
        assert spec.loader.is_package("torch._dynamo") and spec.loader.path == spec.origin
"""


@pytest.mark.parametrize("first", ["import jitgemm", "import torch", "import torch._dynamo", LOOKS_FOR_THE_TRACER],
                         ids=["jitgemm", "torch", "torch._dynamo", "look-up"])
def test_compile_whichever_is_imported_first(first):
    program = f"""
        {first}
        import jitgemm
        import sys
        import torch
        def f(a, b, out):
            y = jitgemm.matmul(a, b, activation="relu") + jitgemm.linear(a, b.t())
            jitgemm.matmul(a, b, out=out)
            return y
        a, b, out = torch.randn(4, 8), torch.randn(8, 4), torch.empty(4, 4)
        y = torch.compile(f, fullgraph=True, backend="aot_eager")(a, b, out)
        assert torch.allclose(y, torch.relu(a @ b) + a @ b, atol=1e-5), y
        assert torch.allclose(out, a @ b, atol=1e-5), out
        model = jitgemm.torch.Linear(8, 4)
        assert torch.allclose(torch.compile(model, fullgraph=True, backend="aot_eager")(a), model(a), atol=1e-5)
        assert not any(type(finder).__module__.startswith("jitgemm") for finder in sys.meta_path)
        """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_compile_with_an_epilogue_that_is_none():
    def f(a, b):
        return jitgemm.matmul(a, b, epilogue=None, operands=None) + jitgemm.linear(a, b.t(), operands=None, epilogue=None)

    a, b = torch.randn(4, 8), torch.randn(8, 5)
    torch._dynamo.reset()
    assert close(torch.compile(f, fullgraph=True, backend="aot_eager")(a, b), 2 * a @ b, 1e-4)
    with pytest.raises(ValueError, match="operands are an epilogue's, which is not there"):
        torch.compile(lambda: jitgemm.matmul(a, b, operands={"x": a}), backend="aot_eager")()


def test_fx_traces_products():
    model = torch.nn.Sequential(jitgemm.torch.Linear(4, 5, activation="relu"), jitgemm.torch.Linear(5, 2))
    traced, x = torch.fx.symbolic_trace(model), torch.randn(3, 4)
    assert sum(node.target is jitgemm.matmul for node in traced.graph.nodes) == 2
    assert close(traced(x), model(x))


def test_whatever_looks_at_operators_sees_them():
    a, b = torch.randn(4, 8), torch.randn(8, 5)
    seen = []

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            seen.append(str(function))
            return function(*arguments, **(keywords or {}))

    with Recorder():
        assert close(jitgemm.matmul(a, b), a @ b)
    assert "jitgemm.matmul.default" in seen
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        assert jitgemm.matmul(torch.empty(2, 3, 8), torch.empty(8, 5)).shape == (2, 3, 5)
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x: jitgemm.matmul(x, b))(a).graph
    assert [node for node in graph.nodes if "jitgemm.matmul" in str(node.target)]
    traced = torch.jit.trace(lambda x: jitgemm.matmul(x, b), (a,))
    assert close(traced(2 * a), 2 * a @ b)
    assert close(torch.func.functionalize(lambda x: jitgemm.matmul(x, b))(a), a @ b)
    with torch.device("cpu"):
        assert close(jitgemm.matmul(a, b), a @ b)


def test_compile_of_every_kind_of_result():
    a, b, c = torch.randn(4, 8), torch.randn(8, 5), torch.randn(4, 5)
    torch._dynamo.reset()

    def f(a, b, c, scale):
        wide = jitgemm.matmul(a.bfloat16(), b.bfloat16(), out_dtype="float32", alpha=scale)
        jitgemm.matmul(a, b, c=c, out=c)
        return wide, c * 2

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    for scale in (1.0, 2.5, 3.5):
        expected = a @ b + c
        wide, doubled = compiled(a, b, c, scale)
        assert wide.dtype == torch.float32 and close(wide, scale * (a.bfloat16().float() @ b.bfloat16().float()), 1e-2)
        assert close(c, expected, 1e-4) and close(doubled, 2 * expected, 1e-4)
    layer = torch.compile(jitgemm.torch.Linear(8, 5), fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 4, 7):
        assert layer(torch.randn(rows, 8)).shape == (rows, 5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_trace_records_the_product():
    class Residual(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = jitgemm.torch.Linear(8, 8)

        def forward(self, x):
            return x + self.layer(x)

    model, x = Residual(), torch.randn(4, 8)
    with torch.no_grad():
        traced = torch.jit.trace(model, x)
        assert close(traced(2 * x), model(2 * x))


def test_checkpoint_and_export():
    a, w = torch.randn(4, 8, requires_grad=True), torch.randn(4, 8, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda x: jitgemm.linear(x, w, activation="silu"), a, use_reentrant=False)
    y.sum().backward()
    first = a.grad.clone()
    a.grad = None
    jitgemm.linear(a, w, activation="silu").sum().backward()
    assert close(first, a.grad)
    layer = jitgemm.torch.Linear(8, 4)
    exported = torch.export.export(layer, (torch.randn(3, 8),), dynamic_shapes=({0: torch.export.Dim("rows")},))
    assert any("jitgemm.matmul" in str(node.target) for node in exported.graph.nodes)
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    x = torch.randn(7, 8)
    assert close(torch.export.load(file).module()(x), layer(x))
