"""Modules of ONNX Runtime under the name of this package, and under its own where this package stands in its place."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, spec_from_loader
from types import ModuleType

_THEIRS = "onnxruntime."


class TheirModules(MetaPathFinder, Loader):
    """Finds what this package doesn't have. Under both names it is the same module: there is one of each class."""

    def __init__(self, name: str, path: Sequence[str], their_path: Sequence[str]) -> None:
        self._name = f"{name}."
        self._path = path
        self._their_path = their_path

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module, before others would load it a second time from where theirs is."""
        if fullname.startswith(_THEIRS) and path == self._path:  # This package is `sys.modules["onnxruntime"]`.
            return PathFinder.find_spec(fullname, [*self._path, *self._their_path])
        if not fullname.startswith(self._name):
            return None
        is_in_theirs = sys.modules[fullname.rpartition(".")[0]].__name__.startswith(_THEIRS)
        if not is_in_theirs and PathFinder.find_spec(fullname, path) is not None:
            return None
        theirs = _THEIRS + fullname.removeprefix(self._name)
        return spec_from_loader(fullname, self) if find_spec(theirs) is not None else None

    def exec_module(self, module: ModuleType) -> None:
        """Put their module in place of the new one."""
        sys.modules[module.__name__] = import_module(_THEIRS + module.__name__.removeprefix(self._name))
