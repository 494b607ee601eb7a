"""jitgemm as operators of torch: gradients, autocast, torch.compile, CUDA graphs; and a drop-in Linear.

`torch.ops.jitgemm.matmul` and `torch.ops.jitgemm.matmul_out` are what `jitgemm.matmul` calls where something looks at
operators; else it goes past torch's dispatcher, which costs less.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad

import jitgemm
from jitgemm import _core

__all__ = ["Linear", "linear", "matmul", "replace_linear"]

_ARGUMENTS = ("Tensor a, Tensor b, Tensor? c, Tensor? bias, float alpha, float beta, str activation, float slope, "
              "ScalarType? out_dtype, str precision, str accumulation, Tensor? scale_a, Tensor? scale_b, "
              "Tensor? scale_d, str config")
_library = torch.library.Library("jitgemm", "DEF")
_library.define(f"matmul({_ARGUMENTS}) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
_library.define(f"matmul_out({_ARGUMENTS}, *, Tensor(z!) out) -> ()", tags=torch.Tag.pt2_compliant_tag)

_EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)


def matmul(a: Tensor, b: Tensor, *, c: Tensor | None = None, alpha: float = 1.0, beta: float | None = None,
           bias: Tensor | None = None, activation: str | None = None, slope: float = 0.01, out: Tensor | None = None,
           out_dtype: object = None, precision: str | None = None, accumulation: str | None = None,
           scale_a: Tensor | float | None = None, scale_b: Tensor | float | None = None, scale_d: Tensor | None = None,
           config: str | None = None, stream: object = None, context: object = None) -> Tensor:
    """jitgemm.matmul() by torch's operators: with gradients for a, b, c and bias, autocast, and inside torch.compile.

    RuntimeError for `out` where a gradient is required, as of torch's own operators; ValueError for `stream` and
    `context`, which operators do not have.
    """
    if stream is not None or context is not None:
        raise ValueError("operators run on torch's current stream by the device's own context; use torch.cuda.stream() "
                         "and leave stream and context away where there are gradients, autocast or torch.compile")
    scale = 1.0
    if isinstance(scale_a, (int, float)):
        scale, scale_a = scale * scale_a, None
    if isinstance(scale_b, (int, float)):
        scale, scale_b = scale * scale_b, None
    if beta is None:
        beta = 0.0 if c is None else 1.0
    if not torch.compiler.is_compiling():
        _refuse_transforms((a, b, c, bias))
    arguments = (a, b, c, bias, float(alpha) * scale, float(beta), activation or "none", float(slope),
                 _dtype(out_dtype), precision or "", accumulation or "", scale_a, scale_b, scale_d, config or "")
    if out is None:
        return torch.ops.jitgemm.matmul(*arguments)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (a, b, c, bias, out)):
        raise RuntimeError("matmul(out=...) does not support automatic differentiation, but one of the arguments "
                           "requires grad; leave out away, or use torch.no_grad()")
    if not torch.compiler.is_compiling() and out.is_neg():  # its memory has the other sign
        return out.copy_(torch.ops.jitgemm.matmul(*arguments))
    torch.ops.jitgemm.matmul_out(*arguments, out=out)
    return out


def _refuse_transforms(tensors: tuple[Tensor | None, ...]) -> None:
    """Of torch's transforms those that operators of a library do not have; unrefused, some would lose derivatives."""
    if forward_ad._current_level >= 0:
        if any(tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
            raise NotImplementedError("jitgemm.matmul has no forward-mode derivative (jvp, jacfwd, make_dual); use "
                                      "backward(), or torch.matmul there")
    transform = torch._C._functorch.peek_interpreter_stack()
    if transform is not None and transform.key() in (torch._C._functorch.TransformType.Grad,
                                                     torch._C._functorch.TransformType.Jvp):
        raise NotImplementedError("jitgemm.matmul does not run inside torch.func.grad, vjp, jvp, jacrev, jacfwd and "
                                  "hessian; use backward() or torch.autograd.grad(), or torch.matmul there")


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, activation: str | None = None, slope: float = 0.01,
           out: Tensor | None = None, out_dtype: object = None, precision: str | None = None,
           config: str | None = None, stream: object = None, context: object = None) -> Tensor:
    """activation(x @ weight.T + bias) by torch's operators; x is (..., in), weight (out, in), bias (out,)."""
    return matmul(x, weight.t(), bias=bias, activation=activation, slope=slope, out=out, out_dtype=out_dtype,
                  precision=precision, config=config, stream=stream, context=context)


def _dtype(dtype: object) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    name = _core.dtype_name(dtype)
    return getattr(torch, name)


def _default_dtype(a: torch.dtype) -> torch.dtype:
    return torch.bfloat16 if a in _EIGHT_BITS else torch.int32 if a == torch.int8 else a


def _compute(a, b, c, bias, alpha, beta, activation, slope, out_dtype, precision, accumulation, scale_a, scale_b,
             scale_d, config, out=None) -> Tensor:
    return _core.compute(a, b, c=c, alpha=alpha, beta=beta, bias=bias,
                         activation=None if activation == "none" else activation, slope=slope, out=out,
                         out_dtype=out_dtype, precision=precision or None, accumulation=accumulation or None,
                         scale_a=scale_a, scale_b=scale_b, scale_d=scale_d, config=config or None)


@torch.library.impl(_library, "matmul", "CompositeExplicitAutograd")
def _matmul(*arguments) -> Tensor:
    return _compute(*arguments)


@torch.library.impl(_library, "matmul_out", "CompositeExplicitAutograd")
def _matmul_out(*arguments, out: Tensor) -> None:
    _compute(*arguments, out=out)


@torch.library.register_fake("jitgemm::matmul", lib=_library)
def _fake(a, b, c, bias, alpha, beta, activation, slope, out_dtype, precision, accumulation, scale_a, scale_b, scale_d,
          config) -> Tensor:
    torch._check(a.dim() > 0 and b.dim() > 0, lambda: "a or b has no dimension; to multiply by a number use alpha")
    rows = b.shape[0] if b.dim() == 1 else b.shape[-2]
    torch._check(a.shape[-1] == rows, lambda: f"the last dimension of a, {a.shape[-1]}, is not b's, {rows}")
    shape = list(torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    if a.dim() > 1:
        shape.append(a.shape[-2])
    if b.dim() > 1:
        shape.append(b.shape[-1])
    return a.new_empty(shape, dtype=out_dtype or _default_dtype(a.dtype))


@torch.library.register_fake("jitgemm::matmul_out", lib=_library)
def _fake_out(*arguments, out: Tensor) -> None:
    return None


def _setup_context(ctx, inputs, output) -> None:
    (a, b, c, bias, ctx.alpha, ctx.beta, ctx.activation, ctx.slope, ctx.out_dtype, ctx.precision, ctx.accumulation,
     scale_a, scale_b, scale_d, ctx.config) = inputs
    ctx.eight_bits = a.dtype in _EIGHT_BITS or b.dtype in _EIGHT_BITS or scale_a is not None or scale_b is not None
    needs_sum = ctx.activation not in ("none", "relu")  # the sum before the activation is computed again
    ctx.shape_c = None if c is None else c.shape
    ctx.shape_bias = None if bias is None else bias.shape
    ctx.save_for_backward(a, b, c if needs_sum else None, bias if needs_sum else None,
                          output if ctx.activation == "relu" else None)


def _backward(ctx, grad: Tensor):
    a, b, c, bias, output = ctx.saved_tensors
    if ctx.eight_bits:
        raise RuntimeError("products of 8-bit floats, and scales, have no gradients; multiply a wider copy, or detach() "
                           "the operands")
    if ctx.activation == "relu":
        grad = torch.ops.aten.threshold_backward(grad, output, 0)
    elif ctx.activation != "none":
        total = torch.ops.jitgemm.matmul(a, b, c, bias, ctx.alpha, ctx.beta, "none", ctx.slope, ctx.out_dtype,
                                         ctx.precision, ctx.accumulation, None, None, None, "")
        grad = _ACTIVATION_BACKWARD[ctx.activation](grad, total, ctx.slope)
    needs = ctx.needs_input_grad
    grad_c = grad * ctx.beta if needs[2] else None
    grad_bias = _sum_to(grad, ctx.shape_bias, a.dim() > 1 and b.dim() == 1) if needs[3] else None

    # As matrices: vectors get the dimension that the product took from them.
    left = a.unsqueeze(0) if a.dim() == 1 else a
    right = b.unsqueeze(1) if b.dim() == 1 else b
    outer = grad.unsqueeze(-1) if b.dim() == 1 else grad
    outer = (outer.unsqueeze(-2) if a.dim() == 1 else outer).to(a.dtype)

    def product(x: Tensor, y: Tensor) -> Tensor:
        return torch.ops.jitgemm.matmul(x, y, None, None, ctx.alpha, 0.0, "none", ctx.slope, None, ctx.precision,
                                        ctx.accumulation, None, None, None, "")

    grad_a = grad_b = None
    if needs[0]:
        grad_a = product(outer, right.mT).sum_to_size(left.shape).reshape(a.shape)
    if needs[1]:
        if right.dim() == 2 and left.dim() > 2:  # one product instead of a batch that is summed
            grad_b = product(left.flatten(0, -2).mT, outer.flatten(0, -2)).reshape(b.shape)
        else:
            grad_b = product(left.mT, outer).sum_to_size(right.shape).reshape(b.shape)
    return grad_a, grad_b, grad_c, grad_bias, *[None] * 11


def _sum_to(grad: Tensor, shape: torch.Size, column: bool) -> Tensor:
    """Of a bias: one value a column, or a row where the result is a column or the bias has two dimensions."""
    if len(shape) == 2:
        return grad.sum_to_size(shape)
    return grad.sum_to_size(shape) if not column else grad.flatten(0, -2).sum(0) if grad.dim() > 1 else grad


def _silu_backward(grad: Tensor, x: Tensor) -> Tensor:
    if torch.is_grad_enabled():  # torch's own has no derivative
        sigmoid = torch.sigmoid(x)
        return grad * sigmoid * (1 + x * (1 - sigmoid))
    return torch.ops.aten.silu_backward(grad, x)


_ACTIVATION_BACKWARD: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "leaky_relu": lambda grad, x, slope: torch.ops.aten.leaky_relu_backward(grad, x, slope, False),
    "gelu": lambda grad, x, slope: torch.ops.aten.gelu_backward(grad, x),
    "gelu_erf": lambda grad, x, slope: torch.ops.aten.gelu_backward(grad, x),
    "gelu_tanh": lambda grad, x, slope: torch.ops.aten.gelu_backward(grad, x, approximate="tanh"),
    "silu": lambda grad, x, slope: _silu_backward(grad, x),
}

_ACTIVATIONS = ("relu", *_ACTIVATION_BACKWARD)

torch.library.register_autograd("jitgemm::matmul", _backward, setup_context=_setup_context, lib=_library)


def _register_autocast(device: str, key: str) -> None:
    """As torch's matmul: operands of 32 and 16 bits become the type that autocast asks for."""
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        narrow = tensor is not None and tensor.dtype in (torch.float32, torch.float16, torch.bfloat16)
        return tensor.to(dtype) if narrow else tensor

    def arguments_of(a, b, c, bias, alpha, beta, activation, slope, out_dtype, precision, *rest):
        dtype = torch.get_autocast_dtype(device)
        result = out_dtype or dtype
        if a.dtype in (torch.float32, torch.float16, torch.bfloat16):
            precision = ""
            c, bias = cast(c, result), cast(bias, result)
        return cast(a, dtype), cast(b, dtype), c, bias, alpha, beta, activation, slope, out_dtype, precision, *rest

    def autocast(*arguments) -> Tensor:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return torch.ops.jitgemm.matmul(*arguments_of(*arguments))

    def autocast_out(*arguments, out: Tensor) -> None:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            torch.ops.jitgemm.matmul_out(*arguments_of(*arguments), out=out)

    _library.impl("matmul", autocast, key)
    _library.impl("matmul_out", autocast_out, key)


_register_autocast("cuda", "AutocastCUDA")
_register_autocast("cpu", "AutocastCPU")


@torch.library.register_vmap("jitgemm::matmul", lib=_library)
def _vmap(info, in_dims, a, b, c, bias, *rest):
    dims = dict(zip(("a", "b", "c", "bias"), in_dims))
    if dims["bias"] is not None or dims["c"] is not None or any(dim is not None for dim in in_dims[11:14]):
        raise NotImplementedError("vmap over c, bias or scales of jitgemm.matmul; add them to its result instead")

    def matrix(tensor: Tensor, dim: int | None, vector_dim: int) -> tuple[Tensor, bool]:
        """With the mapped dimension first; a vector as a matrix."""
        tensor = tensor.unsqueeze(0) if dim is None else tensor.movedim(dim, 0)
        vector = tensor.dim() == 2
        return (tensor.unsqueeze(vector_dim) if vector else tensor), vector

    left, row = matrix(a, dims["a"], 1)
    right, column = matrix(b, dims["b"], 2)
    while left.dim() < right.dim():
        left = left.unsqueeze(1)
    while right.dim() < left.dim():
        right = right.unsqueeze(1)
    if bias is not None and column and bias.dim() == 1:
        bias = bias.unsqueeze(1)
    if c is not None:
        c = c.unsqueeze(-1) if column else c
        c = c.unsqueeze(-2) if row else c
        c = c.expand(*torch.broadcast_shapes(left.shape[:-2], right.shape[:-2]), *c.shape[-2:])
    result = torch.ops.jitgemm.matmul(left, right, c, bias, *rest)
    if column:
        result = result.squeeze(-1)
    if row:
        result = result.squeeze(-1 if column else -2)
    return result, 0


class Linear(torch.nn.Linear):
    """torch.nn.Linear by jitgemm: the same parameters and state, and an activation of the result if one is named.

    activation  relu, leaky_relu (with slope), gelu, gelu_tanh or silu.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: object = None,
                 dtype: torch.dtype | None = None, *, activation: str | None = None, slope: float = 0.01) -> None:
        if activation is not None and activation not in _ACTIVATIONS:
            raise ValueError(f'activation is "{activation}"; choose one of None, {", ".join(_ACTIVATIONS)}')
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation
        self.slope = slope

    activation: str | None = None
    slope: float = 0.01

    @classmethod
    def from_linear(cls, module: torch.nn.Linear, *, activation: str | None = None, slope: float = 0.01) -> Linear:
        """One that shares the parameters of another. TypeError for what is no torch.nn.Linear."""
        if not isinstance(module, torch.nn.Linear):
            raise TypeError(f"from_linear() takes a torch.nn.Linear, and this is a {type(module).__name__}")
        made = cls(module.in_features, module.out_features, bias=False, device="meta", dtype=module.weight.dtype,
                   activation=activation, slope=slope)
        made.weight = module.weight
        made.bias = module.bias
        return made.train(module.training)

    def forward(self, input: Tensor) -> Tensor:
        return jitgemm.linear(input, self.weight, self.bias, activation=self.activation, slope=self.slope)

    def extra_repr(self) -> str:
        text = super().extra_repr()
        return text if self.activation is None else f"{text}, activation={self.activation}"


def replace_linear(model: torch.nn.Module, which: Callable[[str, torch.nn.Linear], bool] | None = None) -> list[str]:
    """Makes every torch.nn.Linear of a model one by jitgemm, in place. Returns their names.

    Parameters, hooks and ties stay. Subclasses of torch.nn.Linear, which may mean anything, are left alone.

    which  a function of (name, module) that says which ones.
    """
    names = [name for name, module in model.named_modules()
             if type(module) is torch.nn.Linear and (which is None or which(name, module))]
    for name in names:
        model.get_submodule(name).__class__ = Linear
    return names
