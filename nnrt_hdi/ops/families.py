"""The families of operators. Each room has a module for each of them, with the same name."""

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

FAMILIES = (
    *("activation", "arithmetic", "convolution", "creation", "elementwise", "indexing", "linear"),
    *("logic", "normalization", "quantization", "reduction", "shape", "spatial"),
)


def family_modules(room: str, names: Sequence[str] = FAMILIES) -> dict[str, ModuleType]:
    """Import the modules of a room, which declare what they have, and return them by family."""
    return {name: import_module(f"{room}.{name}") for name in names}
