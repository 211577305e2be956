"""What a defect is, and how it is put into the reference backend.

Functions and classes in the modules of `mutants.defects` become defects by a decorator, each under its own name; the
docstring says what goes wrong. One that replaces a function gets the right one, and then that one's arguments:

    @kernel(NodeType.SOFTMAX)
    def softmax_of_the_last_dimension(right: Kernel, call: Call, x: AnyArray) -> AnyArray:
        '''The axis is ignored.'''
        return right(with_attrs(call, axis=()), x)
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

from nnrt_backend_reference import create as create_reference
from nnrt_backend_reference.kernels import KERNELS
from nnrt_backend_reference.kernels.kernel import Call
from wrapping import WrappedBackend, WrappedModel

from nnrt_hdi.backend import Backend
from nnrt_hdi.enums import NodeType

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
BackendT = TypeVar("BackendT", bound=type[WrappedBackend])
ModelT = TypeVar("ModelT", bound=type[WrappedModel])
# Puts a defect into the right backend; what it has changed elsewhere is left in the block.
Put = Callable[[Backend, ExitStack], Backend]


@dataclass(frozen=True)
class Defect:
    """A defect, of a kind: the name of its module. `levels` and `node_types` name the part of the kit that concerns it,
    by names that may have more behind them; empty for all. `left_open` says why the contract has no word against it, so
    that the kit must have none either; empty where it is wrong."""

    name: str
    kind: str
    what: str
    levels: tuple[str, ...]
    node_types: tuple[NodeType, ...]
    put: Put
    left_open: str = ""


DEFECTS: dict[str, Defect] = {}


@contextmanager
def mutant(name: str) -> Iterator[Backend]:
    """The reference backend with a defect, which other reference backends of this process have too while the block
    lasts."""
    with ExitStack() as undo:
        yield DEFECTS[name].put(create_reference({}), undo)


def entry(
    table: Mapping[Any, Any],
    *keys: Any,
    levels: tuple[str, ...] = (),
    node_types: tuple[NodeType, ...] = (),
    left_open: str = "",
) -> Callable[[FunctionT], FunctionT]:
    """Replace the functions that a table of the reference backend has under these keys."""

    def put(function: Callable[..., Any], right: Backend, undo: ExitStack) -> Backend:
        undo.enter_context(patch.dict(table, {key: partial(function, table[key]) for key in keys}))
        return right

    return _registering(put, levels, node_types, left_open)


def kernel(
    *node_types: NodeType, levels: tuple[str, ...] = (), left_open: str = ""
) -> Callable[[FunctionT], FunctionT]:
    """Replace the kernels of these nodes."""
    return entry(KERNELS, *node_types, levels=levels, node_types=node_types, left_open=left_open)


def function(
    right_one: Callable[..., Any], *node_types: NodeType, levels: tuple[str, ...] = (), left_open: str = ""
) -> Callable[[FunctionT], FunctionT]:
    """Replace a function of the reference backend wherever it is known by its name. Nodes of `node_types` need it."""

    def put(function: Callable[..., Any], right: Backend, undo: ExitStack) -> Backend:
        wrong = partial(function, right_one)
        for module in _modules_that_know(right_one):
            undo.enter_context(patch.object(module, right_one.__name__, wrong))
        return right

    return _registering(put, levels, node_types, left_open)


def backend(*node_types: NodeType, levels: tuple[str, ...] = (), left_open: str = "") -> Callable[[BackendT], BackendT]:
    """Wrap the backend in a class."""
    return _registering(lambda wrong, right, _: wrong(right), levels, node_types, left_open)


def model(*node_types: NodeType, levels: tuple[str, ...] = ()) -> Callable[[ModelT], ModelT]:
    """Wrap each model in a class."""
    return _registering(lambda wrong, right, _: WrappedBackend(right, wrong), levels, node_types)


def with_attrs(call: Call, **attrs: Any) -> Call:
    """The call with other attributes."""
    return replace(call, attrs=SimpleNamespace(**{**vars(call.attrs), **attrs}))


def _registering(
    put: Any, levels: tuple[str, ...], node_types: tuple[NodeType, ...], left_open: str = ""
) -> Callable[[Any], Any]:
    def register(wrong: Any) -> Any:
        name = wrong.__name__.replace("_", "-") if not isinstance(wrong, type) else _dashed(wrong.__name__)
        if name in DEFECTS:
            raise TypeError(f"there are two defects {name}")
        kind = wrong.__module__.rpartition(".")[2].replace("_", " ")
        what = " ".join((wrong.__doc__ or "").split())
        DEFECTS[name] = Defect(name, kind, what, levels, node_types, partial(put, wrong), left_open)
        return wrong

    return register


def _dashed(name: str) -> str:
    return "".join("-" + letter.lower() if letter.isupper() else letter for letter in name).strip("-")


def _modules_that_know(function: Callable[..., Any]) -> list[ModuleType]:
    return [
        module
        for name, module in sys.modules.items()
        if name.startswith("nnrt_backend_reference") and vars(module).get(function.__name__) is function
    ]
