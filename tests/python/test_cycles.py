"""The garbage collector ends cycles that lead through objects of ours, and what it has taken apart does not crash."""
import ctypes
import gc
import weakref

import jitgemm
import numpy as np
import pytest
from jitgemm import epilogues


class Node(np.ndarray):
    """An array that may refer to anything."""


def node(shape):
    return np.ones(shape, np.float32).view(Node)


def is_collected(make):
    """Whether what make() returns, an object that can be referred to weakly, goes."""
    gc.collect()
    gone = weakref.ref(make())
    gc.collect()
    return gone() is None


def a_context(tmp_path):
    class Owner:
        def fallback(self, problem, pointers, stream):
            return False

    owner = Owner()
    owner.context = jitgemm.Context("cpu", fallback=owner.fallback, compile_in_background=True,
                                    cache_dir=tmp_path)
    return owner


def a_matmul(role):
    arrays = {"a": node((4, 6)), "b": node((6, 5)), "c": node((4, 5)), "out": node((4, 5))}
    arrays[role].product = jitgemm.Matmul(arrays.pop("a"), arrays.pop("b"), **arrays) if role in ("c", "out") else \
        jitgemm.Matmul(arrays["a"], arrays["b"])
    return arrays[role]


def a_matmul_with_operands():
    residual = node((4, 5))
    residual.product = jitgemm.Matmul(node((4, 6)), node((6, 5)), epilogue=epilogues.bias_residual("f32"),
                                      operands={"residual": residual, "bias": node(5)})
    return residual


def matrix_pointers():
    matrix = node((4, 6))
    matrix.pointers = jitgemm.MatrixPointers([matrix])
    return matrix


def test_cycles_are_collected(tmp_path):
    assert is_collected(lambda: a_context(tmp_path))
    for role in ("a", "b", "c", "out"):
        assert is_collected(lambda: a_matmul(role)), role
    assert is_collected(a_matmul_with_operands)
    assert is_collected(matrix_pointers)


def test_a_matmul_with_a_context_that_leads_back(tmp_path):
    def make():
        owner = a_context(tmp_path)
        owner.product = jitgemm.Matmul(node((4, 6)), node((6, 5)), context=owner.context)
        return owner

    assert is_collected(make)


def test_what_is_alive_stays(tmp_path):
    owner, a = a_context(tmp_path), a_matmul("a")
    matrix = matrix_pointers()
    gc.collect()
    assert (a.product() == 6).all() and a.product.problem.k == 6
    assert (jitgemm.matmul(a, node((6, 5)), context=owner.context) == 6).all()
    offs = np.array([3], np.int32)
    assert (jitgemm.grouped_mm(np.ones((3, 4), np.float32), matrix.pointers, offs) == 4).all()


def cleared(make):
    """What make() returns, as the garbage collector leaves what a finalizer brings back."""
    kept = make()
    clear = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)(
        ctypes.pythonapi.PyType_GetSlot(ctypes.py_object(type(kept)), 51))  # Py_tp_clear
    assert clear(kept) == 0
    return kept


def test_what_was_taken_apart_does_not_crash(tmp_path):
    ctypes.pythonapi.PyType_GetSlot.restype = ctypes.c_void_p
    a, b = np.ones((4, 6), np.float32), np.ones((6, 5), np.float32)
    product = cleared(lambda: jitgemm.Matmul(a, b, out=np.empty((4, 5), np.float32)))
    for use in (product, lambda: product(a, b)):
        with pytest.raises(ValueError, match="arrays were freed by Python's garbage collector; make another one"):
            use()
    assert "k=6" in str(product.problem) and product.explain()
    product = cleared(lambda: jitgemm.Matmul(a, b, epilogue=epilogues.bias_residual("f32"),
                                             operands={"residual": node((4, 5)), "bias": node(5)}))
    with pytest.raises(ValueError, match="arrays were freed"):
        product(a, b, operands={"residual": node((4, 5)), "bias": node(5)})
    pointers = cleared(lambda: jitgemm.MatrixPointers([b]))
    for use in (lambda: pointers[0], lambda: jitgemm.grouped_mm(a, pointers, np.array([4], np.int32))):
        with pytest.raises(ValueError, match="were freed by Python's garbage collector; make another one"):
            use()
    assert len(pointers) == 1 and "(1, 6, 5)" in repr(pointers)
    context = cleared(lambda: jitgemm.Context("cpu", fallback=print, compile_in_background=True, cache_dir=tmp_path))
    assert (jitgemm.matmul(a, b, context=context) == 6).all()
