"""Families of operators. Each package that knows operators has a module for each family, with the same name."""

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

FAMILIES = (
    *("activation", "arithmetic", "convolution", "creation", "elementwise", "indexing", "linear"),
    *("logic", "normalization", "quantization", "reduction", "shape", "spatial"),
)


def family_modules(room: str, names: Sequence[str] = FAMILIES) -> dict[str, ModuleType]:
    """Import the family modules of a package, which register their content, and return them by family."""
    return {name: import_module(f"{room}.{name}") for name in names}
