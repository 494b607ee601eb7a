"""jitgemm in torch: operators, gradients, torch.compile, modules. On CPU tensors, by the emulator."""
import copy
import io
import pickle
import subprocess
import sys
import textwrap
import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import jitgemm  # noqa: E402
import jitgemm.torch  # noqa: E402

F = torch.nn.functional
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
ACTIVATIONS = {None: lambda x: x, "relu": torch.relu, "leaky_relu": lambda x: F.leaky_relu(x, 0.25), "gelu": F.gelu,
               "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}


def close(x, y, tolerance=1e-5):
    return torch.allclose(x.double().cpu(), y.double().cpu(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 4e-3), (torch.bfloat16, 3e-2), (torch.float32, 1e-5),
                                              (torch.float64, 1e-12), (torch.int8, 0), (torch.float8_e4m3fn, 3e-2),
                                              (torch.float8_e5m2, 3e-2)])
def test_types(device, dtype, tolerance):
    a = (torch.randn(33, 47, device=device) * (9 if dtype == torch.int8 else 1)).to(dtype)
    b = (torch.randn(29, 47, device=device) * (9 if dtype == torch.int8 else 1)).to(dtype).t()
    expected = a.double() @ b.double()
    d = jitgemm.matmul(a, b)
    assert d.dtype == {torch.int8: torch.int32, torch.float8_e4m3fn: torch.bfloat16,
                       torch.float8_e5m2: torch.bfloat16}.get(dtype, dtype)
    assert d.device == a.device
    # Tensor cores add products of 8 bits with 13 bits after the leading one: Accumulation::fast.
    sums = 8e-3 if dtype in (torch.float8_e4m3fn, torch.float8_e5m2) else 1e-6 if tolerance > 0 else 0
    scale = a.double().abs() @ b.double().abs()
    assert ((d.double() - expected).abs() <= tolerance * expected.abs() + sums * scale).all()
    out = torch.full_like(d, float("nan") if d.is_floating_point() else -1)
    assert jitgemm.matmul(a, b, out=out) is out and torch.equal(out, d)


def test_float32_follows_torch():
    # 1 + 2^-12 is a float32, and becomes 1 as a tf32.
    a, b = torch.full((16, 32), 1 + 2.0**-12), torch.ones(32, 16)
    assert (jitgemm.matmul(a, b) == 32 + 2.0**-7).all()
    assert (jitgemm.matmul(a, b, precision="tf32") == 32).all()
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert (jitgemm.matmul(a, b) == 32).all()
        assert (jitgemm.matmul(a, b, precision="ieee") == 32 + 2.0**-7).all()
    finally:
        torch.set_float32_matmul_precision(before)


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


@pytest.mark.parametrize("first", ["jitgemm", "torch", "torch._dynamo"])
def test_compile_whichever_is_imported_first(first):
    second = "torch" if first == "jitgemm" else "jitgemm"
    program = f"""
        import {first}
        import {second}
        import torch
        import jitgemm
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
        """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_importing_jitgemm_imports_no_torch():
    program = "import sys, jitgemm\nassert not [name for name in sys.modules if name.split('.')[0] in ('torch', 'numpy')]"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    a, b, bias = torch.randn(4, 8, requires_grad=True), torch.randn(8, 4), torch.randn(4)
    with torch.autocast("cpu", dtype=dtype):
        y = jitgemm.matmul(a, b, bias=bias)
        assert y.dtype == dtype == (a @ b).dtype
        assert jitgemm.matmul(a.double(), b.double()).dtype == torch.float64
        out = torch.empty(4, 4, dtype=dtype)
        with torch.no_grad():
            jitgemm.matmul(a, b, bias=bias, out=out)
        assert torch.equal(out, y)
    y.sum().backward()
    assert a.grad.dtype == torch.float32
    assert close(y, a @ b + bias, 0.1)


def test_autocast_as_torch_has_it():
    a, b, bias = torch.randn(4, 8, requires_grad=True), torch.randn(8, 4, requires_grad=True), torch.randn(4)
    with torch.autocast("cuda", dtype=torch.float16, enabled=torch.cuda.is_available()):  # of another device
        assert jitgemm.matmul(a, b).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = jitgemm.matmul(a, b, c=torch.randn(4, 4), bias=bias, activation="gelu")
        assert y.dtype == torch.bfloat16
        assert jitgemm.matmul(a, b, out_dtype=torch.float32, bias=bias).dtype == torch.float32
        narrow = torch.randn(16, 32).to(torch.float8_e4m3fn)
        assert jitgemm.matmul(narrow, narrow.t()).dtype == torch.bfloat16
        assert jitgemm.matmul(narrow.to(torch.int8), narrow.t().to(torch.int8)).dtype == torch.int32
        with torch.autocast("cpu", enabled=False):
            assert jitgemm.matmul(a, b).dtype == torch.float32
        layer = jitgemm.torch.Linear(8, 4)
        y = y + layer(a)
        assert torch.ops.jitgemm.matmul(a, b, None, None, 1.0, 0.0, "none", 0.01, None, "", "", None, None, None,
                                        "").dtype == torch.bfloat16
    y.float().square().sum().backward()
    assert a.grad.dtype == b.grad.dtype == layer.weight.grad.dtype == layer.bias.grad.dtype == torch.float32


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


def test_views_that_mean_more_than_their_memory():
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    z = torch.randn(4, 8, dtype=torch.complex64)
    negative = z.conj().imag
    assert negative.is_neg() and close(jitgemm.matmul(negative, b), negative @ b)
    assert close(jitgemm.matmul(a.expand(3, 4, 8), b), a.expand(3, 4, 8) @ b)
    assert close(jitgemm.matmul(a[:, ::2], b[::2]), a[:, ::2] @ b[::2])
    assert close(jitgemm.matmul(a[:1].expand(4, 8), b), a[:1].expand(4, 8) @ b)
    out = torch.zeros(4, 4, dtype=torch.complex64).conj().imag
    assert jitgemm.matmul(a, b, out=out) is out and out.is_neg() and close(out, a @ b)
    with pytest.raises(TypeError, match="a is to be negated when it is read; pass its resolve_neg"):
        jitgemm.Matmul(negative, b)
    with pytest.raises(TypeError, match="a is to be negated when it is read; pass its resolve_neg"):
        row = torch.randn(1, 8, dtype=torch.complex64)
        jitgemm.Matmul(row.imag, b)(row.conj().imag)
    assert close(jitgemm.matmul(torch._efficientzerotensor(4, 8), b), torch.zeros(4, 4))

    class Doubled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            return super().__torch_function__(function, types, arguments, keywords or {})

    result = jitgemm.matmul(a.as_subclass(Doubled), b)
    assert close(result, a @ b)


def reference(a, b, c=None, bias=None, alpha=1.0, beta=1.0, activation=None):
    total = alpha * (a @ b) if c is None else alpha * (a @ b) + beta * c
    if bias is not None:
        matrices = total.unsqueeze(-1) if b.dim() == 1 else total
        matrices = matrices.unsqueeze(-2) if a.dim() == 1 else matrices
        column = bias.dim() == 1 and a.dim() == 2 and b.dim() == 1
        total = (matrices + (bias.unsqueeze(-1) if column else bias)).reshape(total.shape)
    return ACTIVATIONS[activation](total)


def product(a, b, c=None, bias=None, alpha=1.0, beta=1.0, activation=None):
    return jitgemm.matmul(a, b, c=c, bias=bias, alpha=alpha, beta=None if c is None else beta, activation=activation,
                          slope=0.25)


SHAPES_WITH_BIAS = [((3, 4), (4, 5), (5,)), ((3, 4), (4, 5), (3, 1)), ((3, 4), (4,), (3,)), ((4,), (4, 5), (5,)),
                    ((2, 3, 4), (4, 5), (1, 5)), ((2, 3, 4), (2, 4, 5), (5,)), ((3, 4), (2, 4, 5), (3, 1)),
                    ((2, 3, 4), (4,), (3, 1))]


@pytest.mark.parametrize("a_shape, b_shape, bias_shape", SHAPES_WITH_BIAS)
def test_transforms_of_every_shape(a_shape, b_shape, bias_shape):
    a, b, bias = (torch.randn(shape, dtype=torch.float64) for shape in (a_shape, b_shape, bias_shape))
    c = torch.randn_like(a @ b)
    inputs = (a, b, c, bias)
    tangents = tuple(tensor.cos() for tensor in inputs)

    def both(transform):
        settings = dict(alpha=0.5, beta=-2.0, activation="silu")
        results = [torch.utils._pytree.tree_leaves(transform(lambda *arguments, f=f: f(*arguments, **settings)))
                   for f in (product, reference)]
        for ours, theirs in zip(*results, strict=True):
            assert ours.shape == theirs.shape and close(ours, theirs, 1e-9)

    both(lambda f: torch.func.grad(lambda *x: f(*x).sin().sum(), argnums=(0, 1, 2, 3))(*inputs))
    both(lambda f: torch.func.jvp(f, inputs, tangents))
    both(lambda f: torch.vmap(f)(*[torch.stack([tensor, tensor * 2]) for tensor in inputs]))
    for i, tensor in enumerate(inputs):
        def alone(x, f, i=i):
            return f(*inputs[:i], x, *inputs[i + 1:])

        both(lambda f: torch.func.jvp(lambda x: alone(x, f), (tensor,), (tangents[i],)))
        both(lambda f: torch.vmap(lambda x: alone(x, f), in_dims=-1)(torch.stack([tensor, tensor - 1], dim=-1)))


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_transforms_of_every_activation(activation):
    a, b, c, bias = inputs = [torch.randn(shape, dtype=torch.float64) for shape in ((3, 4), (4, 5), (3, 5), (5,))]

    def ours(*x):
        return product(*x, alpha=0.5, beta=-2.0, activation=activation)

    def theirs(*x):
        return reference(*x, alpha=0.5, beta=-2.0, activation=activation)

    every = (0, 1, 2, 3)
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        for one, other in zip(transform(ours, argnums=every)(*inputs), transform(theirs, argnums=every)(*inputs)):
            assert close(one, other, 1e-9)
    hessian = [torch.func.hessian(lambda x, f=f: f(x, b, c, bias).sum())(a) for f in (ours, theirs)]
    assert close(*hessian, 1e-9)
    with torch.autograd.forward_ad.dual_level() as _:
        duals = [torch.autograd.forward_ad.make_dual(tensor, tensor.sin()) for tensor in inputs]
        results = [torch.autograd.forward_ad.unpack_dual(f(*duals)) for f in (ours, theirs)]
        assert close(results[0].primal, results[1].primal, 1e-9) and close(results[0].tangent, results[1].tangent, 1e-9)


RAW = (None, None, 1.0, 0.0, "none", 0.01, None, "", "", None, None, None, "")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_transforms_inside_torch_compile(backend):
    a, b = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    stacked = torch.stack([a, 2 * a])
    operator = torch.ops.jitgemm.matmul

    def loss(f):
        return lambda x: f(x).sin().sum()

    transforms = [
        lambda f: lambda x: torch.func.jvp(f, (x,), (x,))[1], lambda f: torch.func.jacfwd(f),
        lambda f: torch.func.grad(loss(f)), lambda f: torch.func.jacrev(f),
        lambda f: lambda _: torch.vmap(f)(stacked), lambda f: lambda _: torch.vmap(torch.func.grad(loss(f)))(stacked)]
    for transform in transforms:
        expected = transform(lambda x: x @ b)(a)
        for f in (lambda x: jitgemm.matmul(x, b), lambda x: operator(x, b, *RAW)):
            torch._dynamo.reset()
            compiled = torch.compile(lambda x: transform(f)(x), fullgraph=True, backend=backend)
            assert close(transform(f)(a), expected, 1e-12) and close(compiled(a), expected, 1e-12)
    forward_ad = torch.autograd.forward_ad
    for f in (lambda x: jitgemm.matmul(x, b), lambda x: operator(x, b, *RAW)):
        with forward_ad.dual_level():
            dual = torch.compile(f, fullgraph=True, backend=backend)(forward_ad.make_dual(a, a))
            assert close(forward_ad.unpack_dual(dual).tangent, a @ b, 1e-12)

        def tangent(x, f=f):
            with forward_ad.dual_level():
                return forward_ad.unpack_dual(f(forward_ad.make_dual(x, x))).tangent

        assert close(torch.compile(tangent, fullgraph=True, backend=backend)(a), a @ b, 1e-12)


def test_what_loses_derivatives_is_refused():
    a, b, c = (torch.randn(shape, dtype=torch.float64) for shape in ((3, 4), (4, 5), (3, 5)))
    with pytest.raises(NotImplementedError, match="forward mode over forward mode"):
        torch.func.jacfwd(torch.func.jacfwd(lambda x: jitgemm.matmul(x, b, activation="gelu")))(a)
    for name, arguments in (("alpha", {}), ("beta", {"c": c}), ("slope", {"activation": "leaky_relu"})):
        with pytest.raises(TypeError, match=f"{name} is a tensor; pass a number, {name}.item"):
            torch.func.grad(lambda x: jitgemm.matmul(a, b, **arguments, **{name: x}).sum())(torch.tensor(2.0))
    narrow, other = torch.randn(16, 32).to(torch.float8_e4m3fn), torch.randn(32, 16).to(torch.float8_e4m3fn)
    with pytest.raises(RuntimeError, match="scales have no gradients"):
        torch.func.jvp(lambda x: jitgemm.matmul(narrow, other, scale_a=x), (torch.tensor(2.0),), (torch.tensor(1.0),))
    x, out = a.clone().requires_grad_(), torch.zeros(3, 5, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="does not support automatic differentiation"):
        torch.ops.jitgemm.matmul_out(x, b, *RAW, out=out)
    product = jitgemm.Matmul(a, b)
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(RuntimeError, match="Matmul computes past torch's operators"):
            product(torch.autograd.forward_ad.make_dual(a, a), b)
    with pytest.raises(RuntimeError, match="Matmul computes past torch's operators"):
        torch.vmap(lambda x: product(x, b))(torch.stack([a, a]))
    assert close(product(a, b), a @ b, 1e-12)


def test_out_inside_transforms():
    a, b = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)

    def into(x, out):
        return jitgemm.matmul(x, b, out=out)

    def empty():
        return torch.zeros(3, 5, dtype=torch.float64)

    assert close(torch.func.jvp(lambda x: into(x, empty()), (a,), (a,))[1], a @ b, 1e-12)
    assert close(torch.func.functionalize(lambda x, out: into(x, out) * 2)(a, empty()), 2 * a @ b, 1e-12)
    assert close(torch.vmap(into)(torch.stack([a, a]), torch.stack([empty()] * 2)), torch.stack([a @ b] * 2), 1e-12)
    with pytest.raises(ValueError, match=r"out is \(1, 5\), and the result \(3, 5\)"):
        torch.vmap(into)(torch.stack([a, a]), torch.zeros(2, 1, 5, dtype=torch.float64))
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        out = forward_ad.make_dual(empty(), torch.ones(3, 5, dtype=torch.float64))
        into(a, out)  # a constant
        assert close(forward_ad.unpack_dual(out).tangent, empty())
        into(forward_ad.make_dual(a, a), out)
        assert close(forward_ad.unpack_dual(out).tangent, a @ b, 1e-12)


def test_fx_traces_products():
    model = torch.nn.Sequential(jitgemm.torch.Linear(4, 5, activation="relu"), jitgemm.torch.Linear(5, 2))
    traced, x = torch.fx.symbolic_trace(model), torch.randn(3, 4)
    assert sum(node.target is jitgemm.matmul for node in traced.graph.nodes) == 2
    assert close(traced(x), model(x))


def test_vmap_of_vectors_and_matrices():
    a, b = torch.randn(4, 8, dtype=torch.float64), torch.randn(8, 5, dtype=torch.float64)
    batch = torch.randn(3, 4, 8, dtype=torch.float64)
    vectors = torch.randn(3, 8, dtype=torch.float64)
    for f, x in [(lambda x: jitgemm.matmul(x, b), batch), (lambda x: jitgemm.matmul(x, b), vectors),
                 (lambda x: jitgemm.matmul(a, x), vectors), (lambda x: jitgemm.matmul(x, x), vectors)]:
        expected = torch.stack([f(each) for each in x])
        assert close(torch.vmap(f)(x), expected, 1e-10)
    assert close(torch.vmap(lambda x: jitgemm.matmul(x, b), in_dims=2)(batch.movedim(0, 2)), batch @ b, 1e-10)


def test_ensembles_by_vmap():
    layers = [jitgemm.torch.Linear(8, 5) for _ in range(3)]
    x = torch.randn(4, 8)
    parameters, _ = torch.func.stack_module_state(layers)
    together = torch.vmap(lambda p: torch.func.functional_call(layers[0], p, (x,)))(parameters)
    assert close(together, torch.stack([layer(x) for layer in layers]))
    with pytest.raises(NotImplementedError, match="vmap over scales"):
        torch.vmap(lambda scale: jitgemm.matmul(x, x.t(), scale_a=scale))(torch.ones(2, 1))


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


def test_each_thread_has_its_own_modes():
    a, b = torch.randn(4, 8, requires_grad=True), torch.randn(8, 5)
    results = {}

    def work(index):
        with torch.set_grad_enabled(index % 2 == 0), torch.autocast("cpu", dtype=torch.bfloat16, enabled=index >= 2):
            for _ in range(5):
                results[index] = jitgemm.matmul(a, b)

    with torch.no_grad(), torch.inference_mode():
        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [results[index].requires_grad for index in range(4)] == [True, False, True, False]
    assert [results[index].dtype for index in range(4)] == 2 * [torch.float32] + 2 * [torch.bfloat16]


def test_tensors_without_memory():
    a, b = torch.randn(4, 8), torch.randn(8, 5)
    y = jitgemm.matmul(a.to("meta"), b.to("meta"), bias=torch.empty(5, device="meta"))
    assert y.is_meta and y.shape == (4, 5)
    assert jitgemm.torch.Linear(8, 5, device="meta")(a.to("meta")).is_meta
    emptied = torch.randn(4, 8)
    emptied.untyped_storage().resize_(0)
    with pytest.raises(TypeError, match="a has no memory"):
        jitgemm.matmul(emptied, b)
    for tensor, message in [(a.to_sparse(), "a is a tensor of layout torch.sparse_coo on cpu"),
                            (a.to_sparse_csr(), "a is a tensor of layout torch.sparse_csr"),
                            (a.bool(), "a has elements of torch.bool"), (a.to(torch.complex64), "torch.complex64"),
                            (a.to(torch.uint8), "torch.uint8")]:
        with pytest.raises(TypeError, match=message) as caught:
            jitgemm.matmul(tensor, b)
        assert "\n" not in str(caught.value)
    with pytest.raises(TypeError, match="activation is no string"):
        jitgemm.matmul(a.requires_grad_(), b, activation=3)
    with pytest.raises(TypeError, match="a and b must both be tensors of torch"):
        jitgemm.matmul(a.requires_grad_(), b.numpy())


def test_fake_tensors_are_checked_as_real_ones():
    a, b, c = torch.randn(4, 8), torch.randn(8, 5), torch.randn(4, 5)
    wrong = [dict(a=a[:, :7]), dict(b=b.double()), dict(c=c[:3]), dict(c=c.half()), dict(bias=torch.randn(4)),
             dict(bias=torch.randn(5).half()), dict(bias=torch.randn(1, 4)), dict(out=torch.empty(4, 4)),
             dict(a=a[0, 0])]
    for change in wrong:
        arguments = {"a": a, "b": b, **change}
        messages = []
        for device in ("cpu", "meta"):
            moved = {name: tensor.to(device) for name, tensor in arguments.items()}
            with pytest.raises((ValueError, TypeError)) as raised:
                jitgemm.matmul(moved.pop("a"), moved.pop("b"), **moved)
            messages.append(str(raised.value))
        assert messages[0].split()[:3] == messages[1].split()[:3], messages


def test_newer_settings_of_precision():
    a, b = torch.full((16, 32), 1 + 2.0**-12), torch.ones(32, 16)
    settings = torch.backends.cuda.matmul
    if not hasattr(settings, "fp32_precision"):
        pytest.skip("this torch has none")
    program = """
        import torch, jitgemm
        a, b = torch.full((16, 32), 1 + 2.0**-12), torch.ones(32, 16)
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert (jitgemm.matmul(a, b) == 32).all()
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        assert (jitgemm.matmul(a, b) == 32 + 2.0**-7).all()
        """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], capture_output=True,
                          text=True, timeout=300)  # what was set by the older functions says otherwise for ever
    assert done.returncode == 0, done.stderr


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


def test_linear_module():
    theirs = torch.nn.Linear(8, 5)
    ours = jitgemm.torch.Linear(8, 5)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 8)
    assert close(ours(x), theirs(x))
    with pytest.raises(ValueError, match='activation is "foo"; choose one of None, relu'):
        jitgemm.torch.Linear(8, 5, activation="foo")
    with pytest.raises(TypeError, match="from_linear.. takes a torch.nn.Linear, and this is a ReLU"):
        jitgemm.torch.Linear.from_linear(torch.nn.ReLU())
    with pytest.raises(TypeError, match="weight has no shape yet"):
        jitgemm.torch.Linear.from_linear(torch.nn.LazyLinear(5))
    with pytest.raises(TypeError, match="weight is computed from other parameters"):
        jitgemm.torch.Linear.from_linear(torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(8, 5)))
    shared = jitgemm.torch.Linear.from_linear(theirs, activation="relu")
    assert jitgemm.torch.Linear.from_linear(shared).activation == "relu"
    assert shared.weight is theirs.weight and shared.bias is theirs.bias
    assert close(shared(x), torch.relu(theirs(x)))
    assert "activation=relu" in repr(shared)
    for copied in (copy.deepcopy(shared), pickle.loads(pickle.dumps(shared))):
        assert close(copied(x), shared(x)) and copied.activation == "relu"
    assert close(jitgemm.torch.Linear(8, 5, bias=False, dtype=torch.float64)(x.double()).detach() * 0, torch.zeros(2, 3, 5))


def test_replace_linear():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(10, 8)
            self.block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8, bias=False))
            self.head = torch.nn.Linear(8, 10, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(self.block(self.embedding(tokens)))

    model = Model()
    tokens = torch.randint(10, (2, 5))
    before = model(tokens)
    assert jitgemm.torch.replace_linear(copy.deepcopy(model), lambda name, module: name != "head") == ["block.0", "block.2"]
    seen = []
    model.block[0].register_forward_hook(lambda *_: seen.append(1))
    assert jitgemm.torch.replace_linear(model) == ["block.0", "block.2", "head"]
    assert model.head.weight is model.embedding.weight and isinstance(model.head, jitgemm.torch.Linear)
    assert close(model(tokens), before) and seen == [1]
    assert jitgemm.torch.replace_linear(model) == []
    model(tokens).sum().backward()
    assert model.embedding.weight.grad is not None


def test_deterministic_and_inference_mode():
    a, b = torch.randn(4, 8, requires_grad=True), torch.randn(8, 4)
    with torch.inference_mode():
        y = jitgemm.matmul(a, b)
    assert not y.requires_grad and close(y, a @ b)
    torch.use_deterministic_algorithms(True)
    try:
        assert close(jitgemm.matmul(a, b), a @ b)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.gpu
def test_a_captured_graph_of_100_products():
    a, b = torch.randn(128, 256, device="cuda").half(), torch.randn(256, 128, device="cuda").half()
    c = [torch.empty(128, 128, device="cuda", dtype=torch.half) for _ in range(100)]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        jitgemm.matmul(a, b, out=c[0])
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            for i in range(100):
                jitgemm.matmul(a, b, alpha=i, out=c[i])
    for _ in range(3):
        a.copy_(torch.randn_like(a))
        for d in c:
            d.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        for i, d in enumerate(c):
            assert close(d / 16, i * (a.double() @ b.double()) / 16, 2e-2 * (i + 1))


@pytest.mark.gpu
def test_threads_and_streams():
    b = torch.randn(512, 384, device="cuda").half()
    torch.cuda.synchronize()
    failed = []

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(100):
                a = torch.randn(256, 512, device="cuda").half()
                d = jitgemm.matmul(a, b)
                if not close(d, a.double() @ b.double(), 5e-2):
                    failed.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.gpu
def test_a_named_stream_is_the_one_that_is_used():
    a, b = torch.randn(2048, 2048, device="cuda").half(), torch.randn(2048, 2048, device="cuda").half()
    expected = a.double() @ b.double()
    torch.isnan(jitgemm.matmul(a, b)).any().item()  # compiles, and loads torch's kernels
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for stream in (side, side.cuda_stream):
        out = torch.full((2048, 2048), float("nan"), device="cuda", dtype=torch.half)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)
        jitgemm.matmul(a, b, out=out, stream=stream)
        assert torch.isnan(out).any()  # the default stream does not wait for a stream of torch's
        side.synchronize()
        assert close(out / 64, expected / 64, 1e-2)
    with pytest.raises(ValueError, match="a copy would be made on another stream"):
        jitgemm.matmul(a[:, ::2], b[::2], stream=side)


@pytest.mark.gpu
def test_devices_that_differ():
    a, b = torch.randn(8, 8, device="cuda"), torch.randn(8, 8)
    with pytest.raises(ValueError, match="b is on cpu, and a on cuda:0"):
        jitgemm.matmul(a, b)
    with pytest.raises(ValueError, match="the context is of the emulator, and the arrays are on cuda:0"):
        jitgemm.matmul(a, a, context=jitgemm.default_context("cpu"))


@pytest.mark.gpu
def test_a_framework_that_knows_no_streams_is_waited_for():
    class Unordered:
        """Speaks DLPack alone, as JAX does on a GPU."""

        def __init__(self, tensor):
            self.tensor, self.streams = tensor, []

        def __dlpack__(self, *, stream=None, **keywords):
            self.streams.append(stream)
            return self.tensor.__dlpack__(stream=-1)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    a, b = (Unordered(torch.randn(4096, 4096, device="cuda").half()) for _ in range(2))
    out = torch.full((4096, 4096), float("nan"), device="cuda").half()
    side = torch.cuda.Stream()
    jitgemm.matmul(a, b, out=out)
    torch.cuda.synchronize()
    out.fill_(float("nan"))
    torch.cuda.synchronize()
    jitgemm.matmul(a, b, out=out, stream=side)
    assert side.query()  # nothing is left to do
    assert not torch.isnan(out).any()
    assert a.streams == [1, side.cuda_stream]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one CUDA device")
def test_the_second_device():
    assert [device.architecture for device in jitgemm.devices()] == ["sm_90a"] * torch.cuda.device_count()
    a, b = torch.randn(64, 96, device="cuda:1"), torch.randn(96, 32, device="cuda:1")
    assert torch.cuda.current_device() == 0
    d = jitgemm.matmul(a, b)
    assert d.device == a.device and close(d, a @ b, 1e-4)
    assert torch.cuda.current_device() == 0
    with torch.cuda.device(1):
        assert jitgemm.Context().plan(jitgemm.Problem(64, 32, 96, a="f32")).device
        assert close(jitgemm.matmul(a, b, context=jitgemm.Context()), a @ b, 1e-4)
    first = a.to("cuda:0")
    with pytest.raises(ValueError, match="b is on cuda:1, and a on cuda:0"):
        jitgemm.matmul(first, b)
    with pytest.raises(ValueError, match="the context is of cuda:1, and the arrays are on cuda:0"):
        jitgemm.matmul(first, first.t(), context=jitgemm.default_context("cuda:1"))
    results = {}

    def work(index):
        results[index] = jitgemm.matmul(a.to(f"cuda:{index}"), b.to(f"cuda:{index}")).cpu()

    threads = [threading.Thread(target=work, args=(index % 2,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(results[0], results[1])


def test_threads_that_begin_at_once():
    """One imports what it needs, and the other does not wait for it with Python's lock."""
    program = textwrap.dedent("""
        import sys, threading, torch, jitgemm
        assert "jitgemm.torch" not in sys.modules
        a = torch.ones(4, 4, requires_grad=True)
        begin = threading.Barrier(4)
        def work():
            begin.wait()
            jitgemm.matmul(a, a).sum().backward()
        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
    """)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
