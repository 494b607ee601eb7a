"""Gradients of the operators, going back and in forward mode."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad

import jitgemm
from jitgemm._torch_operators import EIGHT_BITS, library


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
    ctx.eight_bits = a.dtype in EIGHT_BITS or scale_a is not None or scale_b is not None
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


record = _Recorded.apply  # of run, a, b, c, bias, and all other arguments


class _Transformed(torch.autograd.function._SingleLevelFunction):
    """The same of one transform of torch.func. It has a context set up apart, which torch asks for from 2.14 on."""

    @staticmethod
    def forward(a, b, c, bias, others: tuple) -> Tensor:
        return _below_tangents(a, b, c, bias, *others)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: Tensor) -> None:
        *tensors, others = inputs
        _keep(ctx, (*tensors, *others), output, *ctx.needs_input_grad[:2], True)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple:
        return *_gradients(ctx, grad, ctx.needs_input_grad), None

    @staticmethod
    def jvp(ctx, a, b, c, bias, others) -> Tensor | None:
        return _tangent(ctx, a, b, c, bias)


def _below_autograd(*arguments) -> Tensor:
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.jitgemm.matmul(*arguments)


def _below_tangents(*arguments) -> Tensor:
    """The same where there are tangents or further transforms of torch.func."""
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):  # Function.forward() has both off
        return _below_autograd(*arguments)


def refuse_gradients(out: Tensor, arguments: tuple) -> None:
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (out, *arguments[:4])):
        raise RuntimeError("matmul(out=...) does not support automatic differentiation, but one of the arguments "
                           "requires grad; leave out away, or use torch.no_grad()")


@torch.library.impl(library, "matmul_out", "Autograd")
def _matmul_out_autograd(*arguments, out: Tensor) -> None:
    refuse_gradients(out, arguments)
    with torch._C._AutoDispatchBelowAutograd():
        torch.ops.jitgemm.matmul_out(*arguments, out=out)


# Not by torch.library.register_autograd(), whose operators lose tangents without a word.
@torch.library.impl(library, "matmul", "Autograd")
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
        return _Transformed.apply(*arguments[:4], arguments[4:])
