"""jitgemm as operators of torch: gradients, autocast, torch.compile, CUDA graphs; and a drop-in Linear.

`jitgemm.matmul` and `jitgemm.linear` ask one question a call. Where nobody looks, they go past torch's dispatcher. For
gradients and autocast, an autograd function of ours stands in between. Where something looks at operators (compiling,
fake tensors, subclasses, torch.func), they are `torch.ops.jitgemm.matmul` and `torch.ops.jitgemm.matmul_out`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import handle_torch_function, has_torch_function

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
_AUTOCAST = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}
_ACTIVATIONS = (None, "relu", "leaky_relu", "gelu", "gelu_erf", "gelu_tanh", "silu")
_DTYPES = {"f16": torch.float16, "float16": torch.float16, "bf16": torch.bfloat16, "bfloat16": torch.bfloat16,
           "f32": torch.float32, "float32": torch.float32, "f64": torch.float64, "float64": torch.float64,
           "s8": torch.int8, "int8": torch.int8, "s32": torch.int32, "int32": torch.int32,
           "e4m3": torch.float8_e4m3fn, "float8_e4m3fn": torch.float8_e4m3fn,
           "e5m2": torch.float8_e5m2, "float8_e5m2": torch.float8_e5m2}


def matmul(a: Tensor, b: Tensor, *, c: Tensor | None = None, alpha: float = 1.0, beta: float | None = None,
           bias: Tensor | None = None, activation: str | None = None, slope: float = 0.01, out: Tensor | None = None,
           out_dtype: object = None, precision: str | None = None, accumulation: str | None = None,
           scale_a: Tensor | float | None = None, scale_b: Tensor | float | None = None, scale_d: Tensor | None = None,
           config: str | None = None, stream: object = None, context: object = None) -> Tensor:
    """jitgemm.matmul() by torch's operators: with gradients for a, b, c and bias, autocast, and inside torch.compile.

    RuntimeError for `out` where a gradient is required, as of torch's own operators; ValueError for `stream` and
    `context`, which operators do not have. Nor do they have an epilogue of one's own: that is jitgemm.matmul()'s alone.
    """
    if has_torch_function((a, b)) and not (isinstance(a, Tensor) and isinstance(b, Tensor)):  # torch.fx traces it
        given = {"c": c, "beta": beta, "bias": bias, "activation": activation, "out": out, "out_dtype": out_dtype,
                 "precision": precision, "accumulation": accumulation, "scale_a": scale_a, "scale_b": scale_b,
                 "scale_d": scale_d, "config": config, "stream": stream, "context": context}
        return handle_torch_function(jitgemm.matmul, (a, b), a, b, alpha=alpha, slope=slope,
                                     **{name: value for name, value in given.items() if value is not None})
    arguments = _arguments(a, b, c, alpha, beta, bias, activation, slope, out_dtype, precision, accumulation, scale_a,
                           scale_b, scale_d, config, stream, context)
    return torch.ops.jitgemm.matmul(*arguments) if out is None else _by_operators_into(out, arguments)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, activation: str | None = None, slope: float = 0.01,
           out: Tensor | None = None, out_dtype: object = None, precision: str | None = None,
           config: str | None = None, stream: object = None, context: object = None) -> Tensor:
    """activation(x @ weight.T + bias) by torch's operators; x is (..., in), weight (out, in), bias (out,)."""
    return matmul(x, weight.t(), bias=bias, activation=activation, slope=slope, out=out, out_dtype=out_dtype,
                  precision=precision, config=config, stream=stream, context=context)


def _recorded(a, b, c, alpha, beta, bias, activation, slope, out, out_dtype, precision, accumulation, scale_a, scale_b,
              scale_d, config, stream, context, b_is_weight) -> Tensor:
    """What jitgemm.matmul() and linear() call for gradients and autocast, where nothing else looks at operators: these
    cost more."""
    arguments = _arguments(a, b.t() if b_is_weight else b, c, alpha, beta, bias, activation, slope, out_dtype,
                           precision, accumulation, scale_a, scale_b, scale_d, config, stream, context)
    if out is not None:
        return _by_operators_into(out, arguments)
    device = a.device.type
    if device in _AUTOCAST and torch.is_autocast_enabled(device):
        arguments = _cast_arguments(device, *arguments)
    return _Recorded.apply(_compute, *arguments[:4], arguments[4:])


def _prepared(what: str, a, b, c, bias, out, scale_a, scale_b, scale_d, operands) -> tuple:
    """a and b of a product that torch does not see, as autocast has them. RuntimeError where it would need gradients;
    `what` names such a product."""
    tensors = {"a": a, "b": b, "c": c, "bias": bias, "out": out, "scale_a": scale_a, "scale_b": scale_b,
               "scale_d": scale_d}
    if isinstance(operands, dict):
        tensors.update((f"operand {name}", value) for name, value in operands.items())
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor) and tensor.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(f"{name} requires a gradient, and {what} has none; use "
                               "torch.no_grad(), or call it in forward() and backward() of a torch.autograd.Function")
    narrow = (torch.float32, torch.float16, torch.bfloat16)

    def cast(tensor: object) -> object:
        if not isinstance(tensor, Tensor):
            return tensor
        device = tensor.device.type
        if device in _AUTOCAST and torch.is_autocast_enabled(device) and tensor.dtype in narrow:
            return tensor.to(torch.get_autocast_dtype(device))
        return tensor

    return cast(a), cast(b)


def _compute(*arguments) -> Tensor:
    try:
        return _core.compute(*arguments)
    except _core.UnreadableTensor:  # on torch's meta device for instance
        return torch.ops.jitgemm.matmul(*arguments)


def _arguments(a, b, c, alpha, beta, bias, activation, slope, out_dtype, precision, accumulation, scale_a, scale_b,
               scale_d, config, stream, context) -> tuple:
    """An operator's."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        raise TypeError("a and b must both be tensors of torch, by torch.as_tensor() for instance, where there are "
                        "gradients, autocast or torch.compile")
    if stream is not None or context is not None:
        raise ValueError("operators run on torch's current stream by the device's own context; use torch.cuda.stream() "
                         "and leave stream and context away where there are gradients, autocast or torch.compile")
    for name, number in (("alpha", alpha), ("beta", beta), ("slope", slope)):
        if isinstance(number, Tensor):
            raise TypeError(f"{name} is a tensor; pass a number, {name}.item() for instance")
    if isinstance(scale_a, (int, float)):
        alpha, scale_a = alpha * scale_a, None
    if isinstance(scale_b, (int, float)):
        alpha, scale_b = alpha * scale_b, None
    for scale in (scale_a, scale_b, scale_d):
        if scale is not None and (_has_tangent(scale) or (scale.requires_grad and torch.is_grad_enabled())):
            raise RuntimeError("scales have no gradients; detach() them, or multiply by them in operators of their own")
    for name, text in (("activation", activation), ("precision", precision), ("accumulation", accumulation),
                       ("config", config)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name} is no string")
    if beta is None:
        beta = 0.0 if c is None else 1.0
    return (a, b, c, bias, float(alpha), float(beta), activation or "none", float(slope),
            None if out_dtype is None else _dtype(out_dtype), precision or "", accumulation or "", scale_a, scale_b,
            scale_d, config or "")


def _has_tangent(tensor: Tensor) -> bool:
    if torch.compiler.is_compiling():
        return False
    if torch._C._functorch.is_gradtrackingtensor(tensor):
        return True
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def _dtype(dtype: object) -> torch.dtype:
    if isinstance(dtype, torch.dtype):
        return dtype
    if isinstance(dtype, str) and dtype in _DTYPES:
        return _DTYPES[dtype]
    return getattr(torch, _core.dtype_name(dtype))


def _refuse_gradients(out: Tensor, arguments: tuple) -> None:
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (out, *arguments[:4])):
        raise RuntimeError("matmul(out=...) does not support automatic differentiation, but one of the arguments "
                           "requires grad; leave out away, or use torch.no_grad()")


def _by_operators_into(out: Tensor, arguments: tuple) -> Tensor:
    _refuse_gradients(out, arguments)
    if not torch.compiler.is_compiling() and (out.is_neg() or forward_ad._current_level >= 0
                                              or torch._C._are_functorch_transforms_active()):
        result = torch.ops.jitgemm.matmul(*arguments[:8], out.dtype, *arguments[9:])
        if result.shape != out.shape:
            raise ValueError(f"out is {tuple(out.shape)}, and the result {tuple(result.shape)}; pass an array of that "
                             "shape")
        out.copy_(result)
    else:
        torch.ops.jitgemm.matmul_out(*arguments, out=out)
    return out


@torch.library.impl(_library, "matmul", "CompositeExplicitAutograd")
def _matmul(*arguments) -> Tensor:
    return _core.compute(*arguments)


@torch.library.impl(_library, "matmul_out", "CompositeExplicitAutograd")
def _matmul_out(*arguments, out: Tensor) -> None:
    _core.compute(*arguments, out)


def _check_fake(a, b, c, bias, alpha, beta, activation, slope, out_dtype, precision, accumulation, scale_a, scale_b,
                scale_d, config) -> tuple[list, torch.dtype]:
    """Shape and type of the result."""
    for name, tensor in (("a", a), ("b", b)):
        torch._check_value(tensor.dim() > 0, lambda: f"{name} has no dimension; to multiply by a number use alpha")
    rows = b.shape[0] if b.dim() == 1 else b.shape[-2]
    torch._check_value(a.shape[-1] == rows,
                       lambda: f"a is {tuple(a.shape)} and b is {tuple(b.shape)}: the last dimension of a, {a.shape[-1]}, "
                               f"is not {'that' if b.dim() == 1 else 'the last but one'} of b, {rows}; transpose one of "
                               "them")
    torch._check_value(a.dtype == b.dtype or (a.dtype in _EIGHT_BITS and b.dtype in _EIGHT_BITS),
                       lambda: f"no kernel multiplies a = {a.dtype} by b = {b.dtype}: convert one of them")
    shape = list(torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    if a.dim() > 1:
        shape.append(a.shape[-2])
    if b.dim() > 1:
        shape.append(b.shape[-1])
    usual = torch.bfloat16 if a.dtype in _EIGHT_BITS else torch.int32 if a.dtype == torch.int8 else a.dtype
    dtype = out_dtype or usual
    added = torch.bfloat16 if dtype in _EIGHT_BITS else dtype
    for name, tensor in (("c", c), ("bias", bias)):
        torch._check_type(tensor is None or tensor.dtype == added,
                          lambda: f"{name} is of {tensor.dtype}, and goes with a result of {dtype} as {added}; convert "
                                  "it")
    torch._check_value(c is None or list(c.shape) == shape,
                       lambda: f"c is {tuple(c.shape)} and the result {tuple(shape)}: they must be alike; what is added "
                               "to each row is a bias")
    if bias is not None:
        m, n = 1 if a.dim() == 1 else a.shape[-2], 1 if b.dim() == 1 else b.shape[-1]
        column = _is_column(a, b)
        if bias.dim() == 1:
            fits = bias.shape[0] == (m if column else n)
        else:
            fits = bias.dim() == 2 and (tuple(bias.shape) == (1, n) or tuple(bias.shape) == (m, 1))
        torch._check_value(fits, lambda: f"bias is {tuple(bias.shape)} and the result {tuple(shape)}: pass one of shape "
                                         + (f"({m},)" if column else f"({n},), or ({m}, 1) for one value a row"))
    return shape, dtype


@torch.library.register_fake("jitgemm::matmul", lib=_library)
def _fake(*arguments) -> Tensor:
    shape, dtype = _check_fake(*arguments)
    return arguments[0].new_empty(shape, dtype=dtype)


@torch.library.register_fake("jitgemm::matmul_out", lib=_library)
def _fake_out(*arguments, out: Tensor) -> None:
    shape, _ = _check_fake(*arguments[:8], out.dtype, *arguments[9:])
    torch._check_value(list(out.shape) == shape,
                       lambda: f"out is {tuple(out.shape)}, and the result {tuple(shape)}; pass an array of that shape")


def _is_column(a: Tensor, b: Tensor) -> bool:
    """Whether the result is a vector that belongs to rows: then so does a bias of one dimension."""
    return a.dim() == 2 and b.dim() == 1


def _as_matrices(a_dim: int, b_dim: int, result: Tensor) -> Tensor:
    """With the dimensions that a product with vectors leaves out."""
    if b_dim == 1:
        result = result.unsqueeze(-1)
    return result.unsqueeze(-2) if a_dim == 1 else result


def _by_columns(x: Tensor) -> bool:
    return x.dim() > 1 and x.stride(-2) == 1 and x.stride(-1) != 1


def _keep(ctx, inputs: tuple, output: Tensor, needs_a: bool, needs_b: bool, forward_mode: bool) -> None:
    """What going back needs. Nothing is kept for gradients that nobody asks for."""
    a, b, c, bias, *_, scale_a, scale_b, scale_d, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.settings = inputs[4:11]
    activation, slope = inputs[6], inputs[7]
    by_output = activation == "relu" or (activation == "leaky_relu" and slope >= 0)
    again = activation != "none" and not by_output  # the sum before the activation is computed again
    ctx.eight_bits = a.dtype in _EIGHT_BITS or scale_a is not None or scale_b is not None
    ctx.shapes = a.shape, b.shape, None if bias is None else bias.shape
    ctx.by_columns = needs_a and _by_columns(a), needs_b and _by_columns(b)
    ctx.a_dtype = a.dtype
    ctx.save_for_backward(a if needs_b or again else None, b if needs_a or again else None, c if again else None,
                          bias if again else None, output if by_output else None, scale_a if again else None,
                          scale_b if again else None)
    if forward_mode:
        ctx.save_for_forward(a, b, c, bias, output, scale_a, scale_b)


def _through_activation(ctx, grad: Tensor, a, b, c, bias, output, scale_a, scale_b) -> Tensor:
    """grad times the activation's derivative."""
    alpha, beta, activation, slope, out_dtype, precision, accumulation = ctx.settings
    if activation == "none":
        return grad
    if activation == "relu":
        return torch.ops.aten.threshold_backward(grad, output, 0)
    if activation == "leaky_relu" and slope >= 0:
        return torch.ops.aten.leaky_relu_backward(grad, output, slope, True)
    total = jitgemm.matmul(a, b, c=c, alpha=alpha, beta=beta, bias=bias, out_dtype=out_dtype,
                           precision=precision or None, accumulation=accumulation or None, scale_a=scale_a,
                           scale_b=scale_b)
    return _ACTIVATION_BACKWARD[activation](grad, total, slope)


def _gradients(ctx, grad: Tensor | None, needs: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    """Of a, b, c and bias."""
    if grad is None:
        return None, None, None, None
    alpha, beta, _, _, _, precision, accumulation = ctx.settings
    if ctx.eight_bits and (needs[0] or needs[1]):
        raise RuntimeError("products of 8-bit floats, and scales, have no gradients; multiply a wider copy, or "
                           "detach() the operands")
    kept = a, b, *_ = ctx.saved_tensors
    a_shape, b_shape, bias_shape = ctx.shapes
    grad = _through_activation(ctx, grad, *kept)
    grad_a = grad_b = grad_c = grad_bias = None
    if needs[2]:
        grad_c = grad if beta == 1 else grad * beta
    outer = _as_matrices(len(a_shape), len(b_shape), grad)
    if needs[3]:
        column = len(a_shape) == 2 and len(b_shape) == 1 and len(bias_shape) == 1
        grad_bias = outer.sum_to_size((*bias_shape, 1) if column else bias_shape).reshape(bias_shape)
    if not (needs[0] or needs[1]):
        return None, None, grad_c, grad_bias
    outer = outer.to(ctx.a_dtype)

    def product(x: Tensor, y: Tensor, by_columns: bool) -> Tensor:
        """Laid out as what it is the gradient of, which saves autograd a copy."""
        if by_columns:
            return product(y.mT, x.mT, False).mT
        return jitgemm.matmul(x, y, alpha=alpha, precision=precision or None, accumulation=accumulation or None)

    if needs[0]:
        right = b.unsqueeze(1) if b.dim() == 1 else b
        grad_a = product(outer, right.mT, ctx.by_columns[0])
        grad_a = grad_a.sum_to_size((1, *a_shape) if len(a_shape) == 1 else a_shape).reshape(a_shape)
    if needs[1]:
        left = a.unsqueeze(0) if a.dim() == 1 else a
        if len(b_shape) <= 2 and left.dim() > 2:  # one product instead of a batch that is summed
            grad_b = product(left.flatten(0, -2).mT, outer.flatten(0, -2), ctx.by_columns[1]).reshape(b_shape)
        else:
            grad_b = product(left.mT, outer, ctx.by_columns[1])
            grad_b = grad_b.sum_to_size((*b_shape, 1) if len(b_shape) == 1 else b_shape).reshape(b_shape)
    return grad_a, grad_b, grad_c, grad_bias


def _tangent(ctx, tangent_a, tangent_b, tangent_c, tangent_bias) -> Tensor | None:
    """Of the result, in forward mode."""
    alpha, beta, _, _, out_dtype, precision, accumulation = ctx.settings
    kept = a, b, _, _, output, *_ = ctx.saved_tensors
    a_shape, b_shape, _ = ctx.shapes
    if ctx.eight_bits and (tangent_a is not None or tangent_b is not None):
        raise RuntimeError("products of 8-bit floats, and scales, have no tangents; multiply a wider copy")
    terms = [jitgemm.matmul(x, y, alpha=alpha, out_dtype=out_dtype, precision=precision or None,
                            accumulation=accumulation or None)
             for x, y in ((tangent_a, b), (a, tangent_b)) if x is not None and y is not None]
    if tangent_c is not None:
        terms.append(tangent_c * beta)
    if tangent_bias is not None:
        column = tangent_bias.dim() == 1 and len(a_shape) == 2 and len(b_shape) == 1
        matrices = _as_matrices(len(a_shape), len(b_shape), output).shape
        terms.append((tangent_bias.unsqueeze(-1) if column else tangent_bias).expand(matrices).reshape(output.shape))
    if not terms:
        return None
    return _through_activation(ctx, sum(terms[1:], terms[0].clone()), *kept)


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


class _Recorded(torch.autograd.Function):
    """A product for autograd, going back and in forward mode. `run` computes it."""

    @staticmethod
    def forward(ctx, run: Callable[..., Tensor], a, b, c, bias, others: tuple) -> Tensor:  # each argument costs time
        output = run(a, b, c, bias, *others)
        _keep(ctx, (a, b, c, bias, *others), output, *ctx.needs_input_grad[1:3], run is _below_tangents)
        return output

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple:
        return None, *_gradients(ctx, grad, ctx.needs_input_grad[1:]), None

    @staticmethod
    def jvp(ctx, _, a, b, c, bias, others) -> Tensor | None:
        return _tangent(ctx, a, b, c, bias)


def _cast_arguments(device: str, a, b, c, bias, alpha, beta, activation, slope, out_dtype, precision, *rest) -> tuple:
    """As torch's matmul under autocast: operands of 32 and 16 bits become the type that it asks for."""
    narrow = (torch.float32, torch.float16, torch.bfloat16)
    if a.dtype not in narrow:
        return a, b, c, bias, alpha, beta, activation, slope, out_dtype, precision, *rest
    dtype = torch.get_autocast_dtype(device)

    def cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        return tensor.to(dtype) if tensor is not None and tensor.dtype in narrow else tensor

    added = out_dtype or dtype
    return (cast(a, dtype), cast(b, dtype), cast(c, added), cast(bias, added), alpha, beta, activation, slope,
            out_dtype, "", *rest)


def _register_autocast(device: str, key: str) -> None:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def autocast(*arguments) -> Tensor:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return torch.ops.jitgemm.matmul(*_cast_arguments(device, *arguments))

    def autocast_out(*arguments, out: Tensor) -> None:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            torch.ops.jitgemm.matmul_out(*_cast_arguments(device, *arguments), out=out)

    _library.impl("matmul", autocast, key)
    _library.impl("matmul_out", autocast_out, key)


for _device, _key in _AUTOCAST.items():
    _register_autocast(_device, _key)


def _vmap(info, in_dims: tuple, a, b, c, bias, alpha, beta, *rest) -> tuple[Tensor, int]:
    dims = dict(zip(("a", "b", "c", "bias"), in_dims))
    if any(dim is not None for dim in in_dims[11:14]):
        raise NotImplementedError("vmap over scales of jitgemm.matmul; scale the operands or the result instead")

    def mapped(tensor: Tensor, name: str) -> Tensor:
        """With the mapped dimension first."""
        return tensor.unsqueeze(0) if dims[name] is None else tensor.movedim(dims[name], 0)

    def insert(tensor: Tensor, rank: int) -> Tensor:
        """Dimensions after the mapped one."""
        return tensor.reshape(tensor.shape[0], *[1] * (rank - tensor.dim()), *tensor.shape[1:])

    left, right = mapped(a, "a"), mapped(b, "b")
    row, column = left.dim() == 2, right.dim() == 2
    of_rows = left.dim() == 3 and column  # a bias of one dimension is a value a row
    left = left.unsqueeze(1) if row else left
    right = right.unsqueeze(2) if column else right
    rank = max(left.dim(), right.dim())
    left, right = insert(left, rank), insert(right, rank)
    if bias is not None:
        one = bias.dim() - (dims["bias"] is not None) == 1
        bias = mapped(bias, "bias")
        bias = bias.unsqueeze(-1) if one and of_rows else bias
        bias = insert(bias.unsqueeze(-2) if bias.dim() == 2 else bias, rank)
    if c is not None:
        c = mapped(c, "c")
        c = c.unsqueeze(-1) if column else c
        c = c.unsqueeze(-2) if row else c
    if dims["bias"] is not None:  # then it is no vector, but one for each: part of c
        c, beta, bias = bias if c is None else beta * c + bias, 1.0, None
    elif bias is not None:
        bias = bias.reshape(bias.shape[-2:])
    if c is not None:
        batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2], (info.batch_size, *[1] * (rank - 3)))
        c = c.expand(*batch, left.shape[-2], right.shape[-1])
        left = left.expand(*batch, *left.shape[-2:])
    result = torch.ops.jitgemm.matmul(left, right, c, bias, alpha, beta, *rest)
    if column:
        result = result.squeeze(-1)
    if row:
        result = result.squeeze(-1 if column else -2)
    return result, 0


torch.library.register_vmap("jitgemm::matmul", _vmap, lib=_library)


def _below_autograd(*arguments) -> Tensor:
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.jitgemm.matmul(*arguments)


def _below_tangents(*arguments) -> Tensor:
    """The same where there are tangents or further transforms of torch.func."""
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):  # Function.forward() has both off
        return _below_autograd(*arguments)


@torch.library.impl(_library, "matmul_out", "Autograd")
def _matmul_out_autograd(*arguments, out: Tensor) -> None:
    _refuse_gradients(out, arguments)
    with torch._C._AutoDispatchBelowAutograd():
        torch.ops.jitgemm.matmul_out(*arguments, out=out)


# Not by torch.library.register_autograd(), whose operators lose tangents without a word.
@torch.library.impl(_library, "matmul", "Autograd")
def _matmul_autograd(*arguments) -> Tensor:
    if not torch._C._are_functorch_transforms_active():
        tensors = [tensor for tensor in arguments[:4] if tensor is not None]
        # Not by forward_ad's level: graphs that torch has compiled leave that alone.
        if any(tensor.layout is torch.strided and torch._VF._unpack_dual(tensor, level=0)[1] is not None
               for tensor in tensors):
            return _Recorded.apply(_below_tangents, *arguments[:4], arguments[4:])
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return _Recorded.apply(_below_autograd, *arguments[:4], arguments[4:])
        return _below_autograd(*arguments)
    transforms = [transform.key() for transform in torch._C._functorch.get_interpreter_stack()]
    if transforms.count(torch._C._functorch.TransformType.Jvp) > 1:
        raise NotImplementedError("forward mode over forward mode: torch would lose what an autograd function adds; "
                                  "take one of the two derivatives by grad() or jacrev()")
    # Function.apply() would begin torch.func's transforms anew, and this is called in the midst of one.
    with torch._functorch.utils.enable_single_level_autograd_function():
        return super(torch.autograd.Function, _Recorded).apply(_below_tangents, *arguments[:4], arguments[4:])


class Linear(torch.nn.Linear):
    """torch.nn.Linear by jitgemm: the same parameters and state, and an activation of the result if one is named.

    activation  relu, leaky_relu (with slope), gelu, gelu_tanh or silu.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: object = None,
                 dtype: torch.dtype | None = None, *, activation: str | None = None, slope: float = 0.01) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        if activation not in _ACTIVATIONS:
            raise ValueError(f'activation is "{activation}"; choose one of {", ".join(map(str, _ACTIVATIONS))}')
        self.activation = activation
        self.slope = slope

    activation: str | None = None
    slope: float = 0.01

    @classmethod
    def from_linear(cls, module: torch.nn.Linear, *, activation: str | None = None, slope: float = 0.01) -> Linear:
        """One that shares the parameters of another, and the activation of one of ours if no other is named.

        TypeError for what is no torch.nn.Linear, or computes its weight.
        """
        if not isinstance(module, torch.nn.Linear):
            raise TypeError(f"from_linear() takes a torch.nn.Linear, and this is a {type(module).__name__}")
        if isinstance(module.weight, torch.nn.parameter.UninitializedParameter):
            raise TypeError("the module's weight has no shape yet; call the module once before")
        if "weight" not in module._parameters:
            raise TypeError("the module's weight is computed from other parameters; remove the parametrization "
                            "first")
        if activation is None and isinstance(module, cls):
            activation, slope = module.activation, module.slope
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
