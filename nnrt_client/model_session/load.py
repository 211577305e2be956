"""From a file to a session, in one step."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache as cached
from functools import partial
from typing import Literal

from nnrt_client.build.build_task import BuildReport, Progress
from nnrt_client.build.compilation import Compilation
from nnrt_client.build.options import Options
from nnrt_client.build.sources import no_programs
from nnrt_client.build.way import Way
from nnrt_client.model.model import Model
from nnrt_client.model.program import ONNX
from nnrt_client.model_session.model_cache import ModelCache, Saving, model_cache
from nnrt_client.model_session.model_session import ModelSession, reloading
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
from nnrt_client.model_session.partition.partitioned_executor import PartitionedExecutor
from nnrt_client.model_session.ways import Taken, chosen_ways, first_way
from nnrt_client.onnx_import import program_from_onnx, reading
from nnrt_client.run.executor import Executor
from nnrt_client.session.device import Device
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import Settings, addresses_to_ask_for
from nnrt_client.tensors.frozen import Constants
from nnrt_hdi.enums import PerformanceMode, Priority

DEFAULT_WAYS = (Way.OPERATORS, Way.PROGRAM)


def load(
    model: Source | Model,
    device: str | int | Device | None = None,
    *,
    shapes: Shapes | None = None,
    constants: Constants | None = None,
    ways: Iterable[Way | str] = DEFAULT_WAYS,
    cache: bool | str | os.PathLike[str] = True,
    progress: Progress | None = None,
    runtime: Runtime | None = None,
    settings: Settings | None = None,
    fallback: str | Fallback | None = None,
    float16: bool = False,
    performance_mode: PerformanceMode = PerformanceMode.NONE,
    priority: Priority = Priority.NONE,
    extensions: Mapping[str, bytes] | None = None,
    on_death: Literal["raise", "reload"] = "raise",
) -> "ModelSession":
    """Have a device ready to run a model: an ONNX file, a saved model or an offline one, its bytes, or a Model.

    The device is given by its address, name or id, or as a Device; without, it is the first of NNRT_DEVICES that
    answers. `shapes` settle unknown dimensions of inputs, `constants` freeze inputs to what they always are, by name:
    `constants={"sr": 16000}` leaves a model without the input sr. An ONNX file goes to the device in the first of these
    `ways` that works: as NNRt's operators, or as it is, where the device takes such files; all else as operators. Where
    the device can restore what it compiled and its daemon doesn't keep that itself, it is kept in the directory
    `cache`, or in the user's (see `cache_directory`), and found there the next time; it is written while the session is
    used, and `close` waits for that. (A file that goes as it is needs no cache.) With `fallback="cpu"`, or a Fallback,
    a file that goes in none of these ways is cut: the parts that the device runs go there, the others run here, in ONNX
    Runtime. `ways` may name "partition" then, to have that come earlier. `progress` is called as by
    `Compilation.build`. The session makes a runtime with these `settings`, unless it is given one, or a Device. Raises
    InvalidPath and InvalidFile for files, InvalidParameter for `shapes` and `constants` that don't fit, OperationFailed
    where there is no such device, and what `Compilation.build` raises; Unsupported for an ONNX model that can't be
    imported. Where there are several ways the error has the reasons of all.
    With `on_death="reload"` the session loads the model again when its daemon has died, by the same call; see
    ModelSession.
    """
    if on_death != "raise":
        ways = tuple(ways) if isinstance(ways, Iterator) else ways  # It would be empty the next time.
        return reloading(on_death, partial(load, **{**locals(), "on_death": "raise"}))
    options = Options(float16 or None, performance_mode or None, priority or None, dict(extensions or {}))
    instead = chosen_fallback(fallback)
    chosen = chosen_ways(ways, _possible_ways(model), instead)
    with ExitStack() as stack:
        found = cached(partial(_device, device, runtime, settings, stack))

        def build(opened: Model | OpenedModel) -> Compilation:
            return _built(opened, found(), options, cache, progress)

        attempts: dict[Way, Callable[[], Compilation | PartitionedExecutor]] = {
            Way.OPERATORS: lambda: build(_opened(model, shapes, constants)),
            Way.PROGRAM: lambda: _built_program(model, shapes, constants, found(), options, progress),
            Way.PARTITION: lambda: _built_in_parts(model, shapes, constants, found(), instead, build),
        }
        taken = first_way(chosen, attempts)
        return _session(taken, found(), stack)


def _device(
    device: str | int | Device | None, runtime: Runtime | None, settings: Settings | None, stack: ExitStack
) -> Device:
    """The device that is meant; a runtime that is made for it is closed with the stack."""
    if isinstance(device, Device):
        return device
    if runtime is None:
        runtime = stack.enter_context(Runtime(addresses_to_ask_for(device), settings))
    return runtime.device(0 if device is None else device)


def _session(taken: Taken[Compilation | PartitionedExecutor], device: Device, stack: ExitStack) -> ModelSession:
    """The session of what was built, which takes over all that is to be closed with it."""
    built = taken.result
    executor = _executor(built, stack) if isinstance(built, Compilation) else stack.enter_context(built)
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


def _built_program(
    source: Source | Model,
    shapes: Shapes | None,
    constants: Constants | None,
    device: Device,
    options: Options,
    progress: Progress | None,
) -> Compilation:
    """The compilation of an ONNX file as it is, built. What a cache would hold is the file itself."""
    assert not isinstance(source, Model)
    if ONNX not in device.capabilities.program_formats:  # Before the file is read.
        raise no_programs(device, ONNX)
    program = program_from_onnx(onnx_source(source), shapes=shapes, constants=constants)
    return _build(Compilation._from_source(program, device), options, progress)


def _built_in_parts(
    source: Source | Model,
    shapes: Shapes | None,
    constants: Constants | None,
    device: Device,
    instead: Fallback | None,
    build: Callable[[Model], Compilation],
) -> PartitionedExecutor:
    """The parts of an ONNX file, built on the device and here."""
    assert not isinstance(source, Model)
    assert instead is not None
    model = onnx_source(source)
    with reading(model):
        # Not at the top: who has no such models needs none of the packages that this does.
        from nnrt_client.model_session.partition.build import partitioned

        def execute(part: Model, stack: ExitStack) -> tuple[Executor, BuildReport]:
            compilation = build(part)
            assert compilation.report is not None
            return _executor(compilation, stack), compilation.report

        return partitioned(model, device, execute, shapes, constants, instead.smallest_part)


def _opened(model: Source | Model, shapes: Shapes | None, constants: Constants | None) -> Model | OpenedModel:
    if isinstance(model, Model):
        return Model._from_graph(settled(model._graph, shapes, constants)) if shapes or constants else model
    return open_model(model, shapes, constants=constants)


def _built(
    opened: Model | OpenedModel,
    device: Device,
    options: Options,
    cache: bool | str | os.PathLike[str],
    progress: Progress | None,
) -> Compilation:
    """The compilation, built; from the cache, where it is there."""
    model = opened if isinstance(opened, Model) else opened.model
    if model is None:
        assert isinstance(opened, OpenedModel)
        return _build(Compilation.from_offline_buffer(opened.data, device), options, progress)
    compilation = Compilation(model, device)
    return _build(compilation, options, progress, lambda chosen: model_cache(cache, model, chosen, device))


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
