"""Gradients of grouped_mm(), for torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jitgemm import _core


def recorded(a: Tensor, b: Tensor | _core.MatrixPointers, offs: Tensor | None, bias: Tensor | None, out_dtype: object, out: Tensor | None,
             scaled: bool, expected_m: int, config: str | None, stream: object, context: object) -> Tensor:
    """What grouped_mm() calls where a, b or bias requires a gradient."""
    if out is not None:
        raise RuntimeError("grouped_mm(out=...) does not support automatic differentiation, but one of the arguments "
                           "requires grad; leave out away, or use torch.no_grad()")
    if offs is None:
        raise RuntimeError("grouped_mm has no gradients of groups by counts; pass offs, or use torch.no_grad()")
    if scaled or a.dtype.itemsize == 1:
        raise RuntimeError("products of 8 bits, and scales, have no gradients; multiply a wider copy, or detach() the "
                           "operands")
    if not all(x is None or isinstance(x, Tensor) for x in (a, offs, bias)):
        raise TypeError("one of the arguments requires a gradient: pass torch's tensors for a, offs and bias, too")
    if stream is not None:
        raise ValueError("gradients are computed on the stream that autograd chooses; use torch.cuda.stream() and leave "
                         "stream away")
    if isinstance(b, _core.MatrixPointers):
        return _Apart.apply(a, b, offs, bias, out_dtype, expected_m, config, context, *b)
    return _Grouped.apply(a, b, offs, bias, out_dtype, expected_m, config, context)


class _Grouped(torch.autograd.Function):
    """Of rows in groups, and along k: each is the other's gradient by b, so that there are gradients of gradients."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, offs: Tensor, bias: Tensor | None, out_dtype: object, expected_m: int,
                config: str | None, context: object) -> Tensor:
        ctx.save_for_backward(a, b, offs)
        ctx.settings = {"expected_m": expected_m, "context": context}
        ctx.bias_dtype = None if bias is None else bias.dtype
        return _core.grouped_mm(a, b, offs, bias, out_dtype, expected_m=expected_m, config=config, context=context)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        a, b, offs = ctx.saved_tensors
        needs_a, needs_b, _, needs_bias = ctx.needs_input_grad[:4]
        grad_a = grad_b = grad_bias = None
        if needs_bias:
            grad_bias = _of_bias(_of_groups(grad, offs) if b.dim() == 3 else grad, ctx.bias_dtype)
        grad = _contiguous(grad.to(a.dtype))
        if b.dim() == 3:
            if needs_a:
                grad_a = _rows(grad, b.mT, offs, ctx.settings)
            if needs_b:
                grad_b = _along_k(a.t(), grad, offs, b.stride(-1) != 1, ctx.settings)
        else:
            if needs_a:
                grad_a = _rows(_contiguous(b), grad.mT, offs, ctx.settings).t()
            if needs_b:
                grad_b = _rows(_contiguous(a.t()), grad, offs, ctx.settings)
        return grad_a, grad_b, None, grad_bias, None, None, None, None


class _Apart(torch.autograd.Function):
    """Of rows in groups whose weights lie apart. They follow on the other arguments, each with its own gradient; NumPy's
    arrays may be among them, which have none."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: _core.MatrixPointers, offs: Tensor, bias: Tensor | None, out_dtype: object,
                expected_m: int, config: str | None, context: object, *weights: Any) -> Tensor:
        # The weights so that torch says when one is written before they are read again.
        ctx.save_for_backward(a, offs, *(weight for weight in weights if isinstance(weight, Tensor)))
        ctx.pointers = b
        ctx.settings = {"expected_m": expected_m, "context": context}
        ctx.bias_dtype = None if bias is None else bias.dtype
        return _core.grouped_mm(a, b, offs, bias, out_dtype, expected_m=expected_m, config=config, context=context)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        a, offs, *weights = ctx.saved_tensors
        needs_a, _, _, needs_bias = ctx.needs_input_grad[:4]
        needs_weights = ctx.needs_input_grad[8:]
        grad_bias = _of_bias(_of_groups(grad, offs), ctx.bias_dtype) if needs_bias else None
        grad = _contiguous(grad.to(a.dtype))
        grad_a = _rows(grad, ctx.pointers.mT, offs, ctx.settings) if needs_a else None
        grads: list[Tensor | None] = [None] * len(needs_weights)
        if any(needs_weights):
            of_all = _along_k(a.t(), grad, offs, weights[0].stride(-1) != 1, ctx.settings).unbind()
            grads = [own if needs else None for own, needs in zip(of_all, needs_weights)]
        return grad_a, None, None, grad_bias, None, None, None, None, *grads


def _of_bias(grad: Tensor, dtype: torch.dtype) -> Tensor:
    return grad.sum(tuple(range(grad.dim() - 1)), dtype=torch.promote_types(grad.dtype, torch.float32)).to(dtype)


def _contiguous(x: Tensor) -> Tensor:
    """With rows as kernels read them: autograd gives what is expanded, too."""
    by_rows = x.stride(-1) == 1 and x.stride(-2) >= x.shape[-1] and (x.dim() < 3 or x.stride(0) >= x.shape[-1])
    return x if by_rows else x.contiguous()


def _of_groups(x: Tensor, offs: Tensor) -> Tensor:
    """Zeros in rows that are no group's, whatever they hold."""
    own = torch.arange(x.shape[0], device=x.device) < offs[-1:]
    return torch.where(own.unsqueeze(1), x, 0)


def _rows(x: Tensor, w: Tensor | _core.MatrixPointers, offs: Tensor, settings: dict[str, Any]) -> Tensor:
    if torch.is_grad_enabled():
        return _of_groups(_core.grouped_mm(x, w, offs, **settings), offs)
    columns = w.shape[2] if isinstance(w, Tensor) else w[0].shape[1]
    return _core.grouped_mm(x, w, offs, out=x.new_zeros((x.shape[0], columns)), **settings)


def _along_k(x: Tensor, y: Tensor, offs: Tensor, by_columns: bool, settings: dict[str, Any]) -> Tensor:
    """Laid out as what it is the gradient of, which saves autograd a copy."""
    if by_columns:
        return _core.grouped_mm(y.t(), x.t(), offs, **settings).mT
    return _core.grouped_mm(x, y, offs, **settings)
