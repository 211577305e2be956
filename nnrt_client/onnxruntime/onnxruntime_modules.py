"""Import hook that finds ONNX Runtime's modules under the name of this package.

It also finds them as `onnxruntime.*` if an application has put this package into `sys.modules["onnxruntime"]`.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, spec_from_loader
from types import ModuleType

_ONNXRUNTIME = "onnxruntime."


class OnnxRuntimeModules(MetaPathFinder, Loader):
    """Finder of modules that this package lacks. Both names refer to one module object, so no class exists twice."""

    def __init__(self, name: str, path: Sequence[str], onnxruntime_path: Sequence[str]) -> None:
        self._name = f"{name}."
        self._path = path
        self._onnxruntime_path = onnxruntime_path

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of ONNX Runtime before another finder loads it a second time."""
        if fullname.startswith(_ONNXRUNTIME) and path == self._path:  # This package is sys.modules["onnxruntime"].
            return PathFinder.find_spec(fullname, [*self._path, *self._onnxruntime_path])
        if not fullname.startswith(self._name):
            return None
        is_in_onnxruntime = sys.modules[fullname.rpartition(".")[0]].__name__.startswith(_ONNXRUNTIME)
        if not is_in_onnxruntime and PathFinder.find_spec(fullname, path) is not None:
            return None
        original = _ONNXRUNTIME + fullname.removeprefix(self._name)
        return spec_from_loader(fullname, self) if find_spec(original) is not None else None

    def exec_module(self, module: ModuleType) -> None:
        """Replace the new module in `sys.modules` by ONNX Runtime's."""
        sys.modules[module.__name__] = import_module(_ONNXRUNTIME + module.__name__.removeprefix(self._name))
