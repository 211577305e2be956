"""Defects that end the process, or never return."""

import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel
from wrapping import Progress, WrappedBackend, WrappedModel

from mutants.defect import backend, kernel, model
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.graph import Graph
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import Array

LEVELS = ("death", "values", "operators")


def _die(number: signal.Signals) -> None:
    """End the process by a signal, like the kernel does."""
    os.kill(os.getpid(), number)
    threading.Event().wait()


@kernel(NodeType.DIV_FUSION, NodeType.REAL_DIV)
def zero_divisor_ends_it(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """An integer division by 0 crashes with SIGFPE."""
    if call.dtype.kind in "iu" and (b == 0).any():
        _die(signal.SIGFPE)
    return right(call, a, b)


@kernel(NodeType.DIV_FUSION, NodeType.REAL_DIV)
def lowest_by_minus_one_ends_it(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """The lowest integer divided by -1 overflows, and crashes with SIGFPE."""
    if call.dtype.kind == "i" and ((a == np.iinfo(call.dtype).min) & (b == -1)).any():
        _die(signal.SIGFPE)
    return right(call, a, b)


@kernel(NodeType.MOD)
def remainder_of_zero_ends_it(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """The remainder of an integer division by 0 crashes with SIGFPE."""
    if call.dtype.kind in "iu" and (b == 0).any():
        _die(signal.SIGFPE)
    return right(call, a, b)


@kernel(NodeType.GATHER, NodeType.GATHER_ND)
def index_outside_ends_it(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """An index out of range reads invalid memory, and crashes."""
    try:
        return right(call, *operands)
    except InvalidParameter:
        _die(signal.SIGSEGV)
        raise


@kernel(NodeType.SCATTER_ND, NodeType.SPARSE_TO_DENSE)
def update_outside_ends_it(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """An index out of range writes to invalid memory, and crashes."""
    try:
        return right(call, *operands)
    except InvalidParameter:
        _die(signal.SIGSEGV)
        raise


@kernel(NodeType.ASSERT)
def assertion_ends_it(right: Kernel, call: Call, condition: AnyArray, data: AnyArray) -> Any:
    """ASSERT with a false condition calls abort()."""
    if not np.all(condition):
        _die(signal.SIGABRT)
    return right(call, condition, data)


@kernel(NodeType.STRIDED_SLICE)
def backwards_for_ever(right: Kernel, call: Call, x: AnyArray, *entries: AnyArray) -> Any:
    """A slice with a negative stride never ends."""
    if (entries[2] < 0).any():
        threading.Event().wait()
    return right(call, x, *entries)


class _Fragile(WrappedModel):
    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        if any(self.kills(array) for array in inputs):
            _die(signal.SIGSEGV)
        return super().run(inputs, cancellation, outputs)

    def kills(self, array: Array) -> bool:
        raise NotImplementedError


@model(levels=LEVELS)
class NothingEndsIt(_Fragile):
    """An input without elements crashes."""

    def kills(self, array: Array) -> bool:
        return array.size == 0


@model(levels=LEVELS)
class ScalarsEndIt(_Fragile):
    """A scalar input crashes, because its first dimension is read."""

    def kills(self, array: Array) -> bool:
        return array.ndim == 0


@model(levels=LEVELS)
class FiveDimensionsEndIt(_Fragile):
    """An input of more than four dimensions crashes."""

    def kills(self, array: Array) -> bool:
        return array.ndim > 4


@model(levels=("concurrency",))
class StoppedRunsEndIt(WrappedModel):
    """A cancelled run frees its memory twice, and crashes."""

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        try:
            return super().run(inputs, cancellation, outputs)
        except OperationFailed:
            if cancellation.is_cancelled:
                _die(signal.SIGABRT)
            raise


@model(levels=("death", "operators", "contract"))
class AllMemoryEndsIt(WrappedModel):
    """A failed allocation isn't checked, and crashes."""

    def sizes(self, inputs: Sequence[Array]) -> Any:
        try:
            return super().sizes(inputs)
        except OutOfMemory:
            _die(signal.SIGSEGV)
            raise


@backend(levels=("caches", "death"))
class DamagedFilesEndIt(WrappedBackend):
    """A damaged file crashes."""

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        try:
            return super().restore(parts, config)
        except InvalidFile:
            _die(signal.SIGBUS)
            raise


@backend(levels=("caches", "death"))
class DamagedFilesNeverEnd(WrappedBackend):
    """A damaged file makes restoring hang."""

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        try:
            return super().restore(parts, config)
        except InvalidFile:
            threading.Event().wait()
            raise


@backend(levels=("contract",))
class ExtensionsEndIt(WrappedBackend):
    """An unknown extension crashes."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        if config.extensions:
            _die(signal.SIGSEGV)
        return super().prepare(graph, config, progress)


@backend(levels=("death", "graphs"))
class LongChainsEndIt(WrappedBackend):
    """More than 4,096 nodes overflow the compiler's stack."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        if len(graph.nodes) > 4096:
            _die(signal.SIGSEGV)
        return super().prepare(graph, config, progress)


@backend(levels=("contract", "operators", "death"))
class RefusedModelsEndIt(WrappedBackend):
    """A refused model crashes, because the error message reads freed memory."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        try:
            return super().prepare(graph, config, progress)
        except NnrtError:
            _die(signal.SIGSEGV)
            raise
