"""Which interpreter of the process this is."""

from __future__ import annotations


def require_main() -> None:
    """ImportError in a subinterpreter: the native part has one state for the process, and would end it there."""
    try:
        from ctypes import PYFUNCTYPE, c_int64, c_void_p, pythonapi
    except ImportError:  # isolated subinterpreters may not have it, and Python refuses the native part there itself
        return
    current = PYFUNCTYPE(c_void_p)(("PyInterpreterState_Get", pythonapi))
    number = PYFUNCTYPE(c_int64, c_void_p)(("PyInterpreterState_GetID", pythonapi))
    if number(current()) != 0:
        raise ImportError("jitgemm cannot be used in a subinterpreter; import it in the main one")
