"""What the package is to Python: where it may be imported, and its names."""
import importlib.util
import subprocess
import sys
import textwrap

import jitgemm
import pytest


def run(program):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)


def test_a_subinterpreter_is_refused():
    done = run("""
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        program = "import jitgemm"
        one = interpreters.create()
        try:
            print((getattr(interpreters, "exec", None) or interpreters.run_string)(one, program))
        except interpreters.RunFailedError as error:
            print(error)
        import jitgemm
        print(jitgemm.__version__)
    """)
    if "No module named '_xxsubinterpreters'" in done.stderr:
        pytest.skip("this Python has no subinterpreters")
    assert done.returncode == 0, done.stderr
    assert "subinterpreter" in done.stdout and jitgemm.__version__ in done.stdout, done.stdout
