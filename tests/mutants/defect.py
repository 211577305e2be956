"""Defects, and the decorators that put them into the reference backend.

Functions and classes in the modules of `mutants.defects` become defects by a decorator, each under its own name; the
docstring says what goes wrong. A defect that replaces a function gets the right function, and then that function's
arguments:

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
# Puts a defect into the right backend; the ExitStack undoes its changes elsewhere.
Put = Callable[[Backend, ExitStack], Backend]


@dataclass(frozen=True)
class Defect:
    """Defect of a kind, which is the name of its module.

    `levels` and `node_types` select the trials of the kit that concern it; empty selects all. `left_open` is the reason
    why the contract permits the change, so that the kit must not report it; it is empty for a real defect.
    """

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
    """Yield the reference backend with a defect.

    Other reference backends of this process have the defect, too, until the block ends.
    """
    with ExitStack() as undo:
        yield DEFECTS[name].put(create_reference({}), undo)


def entry(
    table: Mapping[Any, Any],
    *keys: Any,
    levels: tuple[str, ...] = (),
    node_types: tuple[NodeType, ...] = (),
    left_open: str = "",
) -> Callable[[FunctionT], FunctionT]:
    """Register a defect that replaces the functions in a table of the reference backend under these keys."""

    def put(function: Callable[..., Any], right: Backend, undo: ExitStack) -> Backend:
        undo.enter_context(patch.dict(table, {key: partial(function, table[key]) for key in keys}))
        return right

    return _registering(put, levels, node_types, left_open)


def kernel(
    *node_types: NodeType, levels: tuple[str, ...] = (), left_open: str = ""
) -> Callable[[FunctionT], FunctionT]:
    """Register a defect that replaces the kernels of these nodes."""
    return entry(KERNELS, *node_types, levels=levels, node_types=node_types, left_open=left_open)


def function(
    right_one: Callable[..., Any], *node_types: NodeType, levels: tuple[str, ...] = (), left_open: str = ""
) -> Callable[[FunctionT], FunctionT]:
    """Register a defect that replaces a function of the reference backend, or of the operators, in all their modules.

    Nodes of `node_types` need the function.
    """

    def put(function: Callable[..., Any], right: Backend, undo: ExitStack) -> Backend:
        wrong = partial(function, right_one)
        for module in _modules_that_know(right_one):
            undo.enter_context(patch.object(module, right_one.__name__, wrong))
        return right

    return _registering(put, levels, node_types, left_open)


def backend(*node_types: NodeType, levels: tuple[str, ...] = (), left_open: str = "") -> Callable[[BackendT], BackendT]:
    """Register a defect that wraps the backend in a class."""
    return _registering(lambda wrong, right, _: wrong(right), levels, node_types, left_open)


def model(*node_types: NodeType, levels: tuple[str, ...] = ()) -> Callable[[ModelT], ModelT]:
    """Register a defect that wraps each model in a class."""
    return _registering(lambda wrong, right, _: WrappedBackend(right, wrong), levels, node_types)


def with_attrs(call: Call, **attrs: Any) -> Call:
    """Return the call with other attributes."""
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
        if name.startswith(("nnrt_backend_reference", "nnrt_hdi.")) and vars(module).get(function.__name__) is function
    ]
