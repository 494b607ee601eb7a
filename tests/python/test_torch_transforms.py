"""What torch.func makes of products: derivatives forward and backward, and vmap. On CPU tensors, by the emulator."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import jitgemm  # noqa: E402
import jitgemm.torch  # noqa: E402
from torch_tensors import ACTIVATIONS, close  # noqa: E402


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
            dual = forward_ad.make_dual(a, a)
            try:
                torch.compile(lambda x: x @ b, fullgraph=True, backend=backend)(dual)
            except torch._dynamo.exc.Unsupported as refused:  # from torch 2.14 on, rather than to lose the tangent
                assert "dual tensor" in str(refused)
                with pytest.raises(torch._dynamo.exc.Unsupported, match="dual tensor"):
                    torch.compile(f, fullgraph=True, backend=backend)(dual)
            else:
                product = torch.compile(f, fullgraph=True, backend=backend)(dual)
                assert close(forward_ad.unpack_dual(product).tangent, a @ b, 1e-12)

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
