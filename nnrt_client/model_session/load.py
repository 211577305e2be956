"""From a file to a session, in one step."""

import os
from collections.abc import Mapping
from contextlib import ExitStack

from nnrt_client.build.build_task import Progress
from nnrt_client.build.compilation import Compilation
from nnrt_client.build.options import Options
from nnrt_client.model.model import Model
from nnrt_client.model_session.model_cache import Saving, model_cache
from nnrt_client.model_session.model_session import ModelSession
from nnrt_client.model_session.opened_model import OpenedModel, Shapes, Source, open_model, with_shapes
from nnrt_client.run.executor import Executor
from nnrt_client.session.device import Device
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import Settings, addresses_to_ask_for
from nnrt_hdi.enums import PerformanceMode, Priority


def load(
    model: Source | Model,
    device: str | int | Device | None = None,
    *,
    shapes: Shapes | None = None,
    cache: bool | str | os.PathLike[str] = True,
    progress: Progress | None = None,
    runtime: Runtime | None = None,
    settings: Settings | None = None,
    float16: bool = False,
    performance_mode: PerformanceMode = PerformanceMode.NONE,
    priority: Priority = Priority.NONE,
    extensions: Mapping[str, bytes] | None = None,
) -> "ModelSession":
    """Have a device ready to run a model: an ONNX file, a saved model or an offline one, its bytes, or a Model.

    The device is given by its address, name or id, or as a Device; without, it is the first of NNRT_DEVICES that
    answers. `shapes` settle unknown dimensions of inputs, by name. Where the device can restore what it compiled and
    its daemon doesn't keep that itself, it is kept in the directory `cache`, or in the user's (see `cache_directory`),
    and found there the next time; it is written while the session is used, and `close` waits for that. `progress` is
    called as by `Compilation.build`. The session makes a runtime with these `settings`, unless it is given one, or a
    Device. Raises InvalidPath and InvalidFile for files, Unsupported for an ONNX model that can't be imported,
    InvalidParameter for `shapes` that don't fit, OperationFailed where there is no such device, and what
    `Compilation.build` raises.
    """
    options = Options(float16 or None, performance_mode or None, priority or None, dict(extensions or {}))
    opened = _opened(model, shapes)
    return open_session(opened, device, options, cache=cache, progress=progress, runtime=runtime, settings=settings)


def open_session(
    opened: Model | OpenedModel,
    device: str | int | Device | None,
    options: Options,
    *,
    cache: bool | str | os.PathLike[str] = True,
    progress: Progress | None = None,
    runtime: Runtime | None = None,
    settings: Settings | None = None,
) -> "ModelSession":
    """Have a device ready to run a model that is in memory already; see `load`."""
    with ExitStack() as stack:
        if not isinstance(device, Device):
            if runtime is None:
                runtime = stack.enter_context(Runtime(addresses_to_ask_for(device), settings))
            device = runtime.device(0 if device is None else device)
        compilation = stack.enter_context(_built(opened, device, options, cache, progress))
        executor = stack.enter_context(Executor(compilation))
        if unsaved := compilation._unsaved:
            stack.callback(Saving(unsaved).close)
        assert compilation.report is not None
        return ModelSession(executor, device, compilation.report, stack.pop_all())


def _opened(model: Source | Model, shapes: Shapes | None) -> Model | OpenedModel:
    if isinstance(model, Model):
        return Model._from_graph(with_shapes(model._graph, shapes)) if shapes else model
    return open_model(model, shapes)


def _built(
    opened: Model | OpenedModel,
    device: Device,
    options: Options,
    cache: bool | str | os.PathLike[str],
    progress: Progress | None,
) -> Compilation:
    """The compilation, built; from the cache, where it is there."""
    model = opened if isinstance(opened, Model) else opened.model
    with ExitStack() as stack:
        if model is None:
            assert isinstance(opened, OpenedModel)
            compilation = stack.enter_context(Compilation.from_offline_buffer(opened.data, device))
        else:
            compilation = stack.enter_context(Compilation(model, device))
        compilation._set_options(options)
        if model is not None and (place := model_cache(cache, model, compilation._options, device)):
            compilation._set_user_cache(place)
        compilation.build(progress)
        stack.pop_all()
    return compilation
