"""A model on its way to a device: opened once, for however many devices it goes to."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Generic, TypedDict, TypeVar

from nnrt_client.build.build_task import BuildReport, Progress
from nnrt_client.build.compilation import Compilation, compilation_of
from nnrt_client.build.options import Options
from nnrt_client.build.sources import unsupported_program
from nnrt_client.build.way import Way
from nnrt_client.model.model import Model, model_of, parts_of
from nnrt_client.model.program import ONNX, Program
from nnrt_client.model_session.model_cache import ModelCache, Saving, model_cache
from nnrt_client.model_session.model_session import ModelSession
from nnrt_client.model_session.opened_model import (
    OpenedModel,
    Shapes,
    Source,
    is_onnx,
    onnx_source,
    open_model,
    settled,
)
from nnrt_client.model_session.partition.fallback import Fallback, chosen_fallback
from nnrt_client.model_session.partition.partition_dispatcher import PartitionDispatcher
from nnrt_client.model_session.ways import Taken, chosen_ways, first_way, growing_input
from nnrt_client.onnx_import import program_from_onnx, reading
from nnrt_client.run.executor import Executor
from nnrt_client.session.device import Device
from nnrt_client.tensors.frozen import Constants
from nnrt_hdi.batching import Batching
from nnrt_hdi.enums import PerformanceMode, Priority
from nnrt_hdi.errors import NnrtError

DEFAULT_WAYS = (Way.OPERATORS, Way.PROGRAM)

T = TypeVar("T")


class Once(Generic[T]):
    """What is made when it is first asked for, by whichever thread; or the error of that."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self._made: list[T] = []
        self._error: NnrtError | None = None

    def __call__(self) -> T:
        with self._lock:
            if self._error is not None:
                raise self._error.copy()
            if not self._made:
                try:
                    self._made.append(self._make())
                except NnrtError as error:
                    self._error = error.copy()  # Without the frames that it knows, and all that they hold.
                    raise
            return self._made[0]


class LoadOptions(TypedDict, total=False):
    """Options of `load` about the model, which `Pool.load` takes too; `Options` says what those of the build do."""

    shapes: Shapes | None
    constants: Constants | None
    ways: Iterable[Way | str] | None
    cache: bool | str | os.PathLike[str]
    fallback: str | Fallback | None
    float16: bool
    performance_mode: PerformanceMode
    priority: Priority
    extensions: Mapping[str, bytes] | None
    batching: Batching | None


class Loading:
    """A model, and how devices are to get it."""

    def __init__(
        self,
        model: Source | Model,
        *,
        shapes: Shapes | None = None,
        constants: Constants | None = None,
        ways: Iterable[Way | str] | None = None,
        cache: bool | str | os.PathLike[str] = True,
        fallback: str | Fallback | None = None,
        float16: bool = False,
        performance_mode: PerformanceMode = PerformanceMode.NONE,
        priority: Priority = Priority.NONE,
        extensions: Mapping[str, bytes] | None = None,
        batching: Batching | None = None,
    ) -> None:
        """Raises InvalidParameter for ways and a fallback that can't be, InvalidPath and InvalidFile for files."""
        self._source = model
        self._shapes, self._constants = shapes, constants
        self._cache = cache
        self._options = Options(
            float16 or None, performance_mode or None, priority or None, dict(extensions or {}), batching=batching
        )
        self._instead = chosen_fallback(fallback)
        self._is_asked = ways is not None
        self._ways = chosen_ways(DEFAULT_WAYS if ways is None else ways, _possible_ways(model), self._instead)
        self._opened = Once(partial(_opened, model, shapes, constants))
        self._program = Once(partial(_read_program, model, shapes, constants))

    @property
    def digest(self) -> bytes:
        """Tells the model from others, on every host. Opens it. Raises as `on`, where no device is to blame."""
        if Way.OPERATORS in self._ways:
            try:
                opened = self._opened()
            except NnrtError:
                if self._ways == [Way.OPERATORS]:
                    raise
            else:
                if isinstance(opened, Model):
                    return opened.digest
                return hashlib.sha256(opened.data).digest() if opened.model is None else opened.model.digest
        return self._program().digest

    def on(self, found: Callable[[], Device], stack: ExitStack, progress: Progress | None) -> ModelSession:
        """Have a device ready to run it: a session, which takes over what the stack closes. Raises as `load`.

        The device is found once the file has been read.
        """

        def build(model: Model | OpenedModel) -> Compilation:
            return self._built(model, found(), progress)

        attempts: dict[Way, Callable[[], Compilation | PartitionDispatcher]] = {
            Way.OPERATORS: lambda: build(self._opened()),
            Way.PROGRAM: lambda: self._built_program(found(), progress),
            Way.PARTITION: lambda: self._built_in_parts(found(), build),
        }
        ways, growing = self._ways, self._growing_input()
        if growing is None or ONNX not in found().capabilities.program_formats:
            return _session(first_way(ways, attempts), found(), stack)
        taken = first_way([Way.PROGRAM, *(way for way in ways if way is not Way.PROGRAM)], attempts)
        if taken.way is Way.PROGRAM:
            why = f"the input {growing!r} comes back longer, so each run has new shapes, which a program runs faster"
            taken = replace(taken, passed_over={Way.OPERATORS: why})
        return _session(taken, found(), stack)

    def _growing_input(self) -> str | None:
        """The name of an input for which the file is to go as it is, if nothing asks for operators."""
        if self._is_asked or Way.PROGRAM not in self._ways or self._options.float16 or self._options.batching:
            return None
        try:
            opened = self._opened()
        except NnrtError:  # Whoever tries the operators says why.
            return None
        model = opened if isinstance(opened, Model) else opened.model
        return None if model is None else growing_input(parts_of(model).graph)

    def _built_program(self, device: Device, progress: Progress | None) -> Compilation:
        """The compilation of an ONNX file as it is, built. What a cache would hold is the file itself."""
        if ONNX not in device.capabilities.program_formats:  # Before the file is read.
            raise unsupported_program(device, ONNX)
        return _build(compilation_of(self._program(), device), self._options, progress)

    def _built_in_parts(self, device: Device, build: Callable[[Model], Compilation]) -> PartitionDispatcher:
        """The parts of an ONNX file, built on the device and here."""
        assert not isinstance(self._source, Model)
        assert self._instead is not None
        model = onnx_source(self._source)
        with reading(model):
            # Not at the top: who has no such models needs none of the packages that this does.
            from nnrt_client.model_session.partition.build import partitioned

            def execute(part: Model, stack: ExitStack) -> tuple[Executor, BuildReport]:
                compilation = build(part)
                assert compilation.report is not None
                return _executor(compilation, stack), compilation.report

            return partitioned(model, device, execute, self._shapes, self._constants, self._instead.smallest_part)

    def _built(self, opened: Model | OpenedModel, device: Device, progress: Progress | None) -> Compilation:
        """The compilation, built; from the cache, where it is there."""
        options, cache = self._options, self._cache
        model = opened if isinstance(opened, Model) else opened.model
        if model is None:
            assert isinstance(opened, OpenedModel)
            return _build(Compilation.from_offline_buffer(opened.data, device), options, progress)
        compilation = Compilation(model, device)
        return _build(compilation, options, progress, lambda chosen: model_cache(cache, model, chosen, device))


def _session(taken: Taken[Compilation | PartitionDispatcher], device: Device, stack: ExitStack) -> ModelSession:
    """The session of what was built, which takes over all that is to be closed with it."""
    built = taken.result
    executor = _executor(built, stack) if isinstance(built, Compilation) else stack.enter_context(Executor._of(built))
    assert built.report is not None
    report = replace(built.report, way=taken.way, passed_over=taken.passed_over)
    return ModelSession(executor, device, report, stack.pop_all())


def _executor(compilation: Compilation, stack: ExitStack) -> Executor:
    """The executor of what was built; the stack closes it, when what it is to save is saved.

    The compilation is closed, for with it the weights would stay here.
    """
    with compilation:
        executor = stack.enter_context(Executor(compilation))
        if unsaved := compilation._unsaved:
            stack.callback(Saving(unsaved).close)
    return executor


def _possible_ways(model: Source | Model) -> Sequence[Way]:
    if isinstance(model, Model) or not is_onnx(model):
        return (Way.OPERATORS,)
    return tuple(Way)


def _opened(model: Source | Model, shapes: Shapes | None, constants: Constants | None) -> Model | OpenedModel:
    if isinstance(model, Model):
        return model_of(settled(parts_of(model).graph, shapes, constants)) if shapes or constants else model
    return open_model(model, shapes, constants=constants)


def _read_program(model: Source | Model, shapes: Shapes | None, constants: Constants | None) -> Program:
    assert not isinstance(model, Model)
    return program_from_onnx(onnx_source(model), shapes=shapes, constants=constants)


def _build(
    compilation: Compilation,
    options: Options,
    progress: Progress | None,
    place: Callable[[Options], ModelCache | None] = lambda _: None,
) -> Compilation:
    """Build it; `place` says where the cache of a build with these options is."""
    with ExitStack() as stack:
        stack.enter_context(compilation)
        compilation._set_options(options)
        if found := place(compilation._options):
            compilation._set_user_cache(found)
        compilation.build(progress)
        stack.pop_all()
    return compilation
