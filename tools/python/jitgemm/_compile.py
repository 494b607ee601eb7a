"""Lets torch.compile see through jitgemm.matmul and jitgemm.linear.

torch.compile cannot look into functions that are not written in Python, unless it is told what to trace instead. It is
told when its tracer, torch._dynamo, is first imported: that takes seconds, so it must not be because of us.
"""

from __future__ import annotations

import sys
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:  # what takes longer to import than all of jitgemm
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

TRACER = "torch._dynamo"


def register() -> None:
    """Once torch._dynamo is there."""
    import torch

    import jitgemm
    import jitgemm.torch as operators

    # An epilogue of one's own is no operator: the graph ends there, which fullgraph=True refuses.
    @torch.compiler.disable
    def matmul_with_epilogue(*arguments, **keywords):
        return jitgemm.matmul(*arguments, **keywords)

    @torch.compiler.disable
    def linear_with_epilogue(*arguments, **keywords):
        return jitgemm.linear(*arguments, **keywords)

    def matmul(*arguments, epilogue=None, operands=None, **keywords):
        if epilogue is not None or operands is not None:
            return matmul_with_epilogue(*arguments, epilogue=epilogue, operands=operands, **keywords)
        return operators.matmul(*arguments, **keywords)

    def linear(*arguments, epilogue=None, operands=None, **keywords):
        if epilogue is not None or operands is not None:
            return linear_with_epilogue(*arguments, epilogue=epilogue, operands=operands, **keywords)
        return operators.linear(*arguments, **keywords)

    torch.compiler.substitute_in_graph(jitgemm.matmul, skip_signature_check=True)(matmul)
    torch.compiler.substitute_in_graph(jitgemm.linear, skip_signature_check=True)(linear)


class _Loader:
    """Another loader, and then register()."""

    def __init__(self, loader: Loader, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> object:  # what else a loader may be asked
        if name.startswith("_"):  # as copies ask before there is a loader
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        register()


class _Finder:
    """Stays until the tracer is imported: whoever looks whether it is there finds it, too."""

    def __init__(self) -> None:
        self._looking: set[int] = set()  # threads, while they ask the other finders

    def find_spec(self, name: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        thread = get_ident()
        if name != TRACER or thread in self._looking:
            return None
        import importlib.util

        self._looking.add(thread)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking.remove(thread)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec


def watch() -> None:
    """Registers now or, where the tracer is not there yet, when it comes."""
    if TRACER in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _Finder())
