"""From a file to a session, in one step."""

import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Literal

from nnrt_client.build.build_task import Progress
from nnrt_client.build.cache import CacheDirectory
from nnrt_client.build.compilation import Compilation
from nnrt_client.build.options import Options
from nnrt_client.model.model import Model
from nnrt_client.model_session.model_cache import cache_name, chosen_directory, made_directory
from nnrt_client.model_session.model_session import ModelSession, reloading
from nnrt_client.model_session.opened_model import OpenedModel, Shapes, Source, open_model, with_shapes
from nnrt_client.run.executor import Executor
from nnrt_client.session.device import Device
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import Settings, addresses_to_ask_for
from nnrt_hdi.enums import PerformanceMode, Priority
from nnrt_hdi.errors import InvalidFile, SaveCacheFailed

_log = logging.getLogger(__name__)

_VERSION = 0


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
    on_death: Literal["raise", "reload"] = "raise",
) -> "ModelSession":
    """Have a device ready to run a model: an ONNX file, a saved model or an offline one, its bytes, or a Model.

    The device is given by its address, name or id, or as a Device; without, it is the first of NNRT_DEVICES that
    answers. `shapes` settle unknown dimensions of inputs, by name. What was compiled is kept in the directory `cache`,
    or in the user's (see `cache_directory`), where the device can restore it, and found there the next time; what is
    damaged or outdated there is built again. `progress` is called as by `Compilation.build`. The session makes a
    runtime with these `settings`, unless it is given one, or a Device. Raises InvalidPath and InvalidFile for files,
    Unsupported for an ONNX model that can't be imported, InvalidParameter for `shapes` that don't fit, OperationFailed
    where there is no such device, and what `Compilation.build` raises. With `on_death="reload"` the session loads the
    model again when its daemon has died, by the same call; see ModelSession.
    """
    if on_death != "raise":
        return reloading(on_death, partial(load, **{**locals(), "on_death": "raise"}))
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
        compilation = stack.enter_context(_built(opened, device, options, chosen_directory(cache), progress))
        executor = stack.enter_context(Executor(compilation))
        assert compilation.report is not None
        return ModelSession(executor, device, compilation.report, stack.pop_all())


def _opened(model: Source | Model, shapes: Shapes | None) -> Model | OpenedModel:
    if isinstance(model, Model):
        return Model._from_graph(with_shapes(model._graph, shapes)) if shapes else model
    return open_model(model, shapes)


def _built(
    opened: Model | OpenedModel, device: Device, options: Options, root: Path | None, progress: Progress | None
) -> Compilation:
    """The compilation, built; with its cache below a directory, where it has one."""
    model = opened if isinstance(opened, Model) else opened.model
    if model is None:
        assert isinstance(opened, OpenedModel)
        return _build(Compilation.from_offline_buffer(opened.data, device), options, None, progress)
    directory = None
    if root is not None and device.capabilities.model_cache:
        directory = made_directory(root / cache_name(model, options))
    try:
        return _build(Compilation(model, device), options, directory, progress)
    except InvalidFile as error:
        # The directory is the session's own, so nobody loses anything but time.
        file = CacheDirectory(directory, _VERSION).file(device) if directory else None
        if file is None or not file.exists():
            raise
        _log.warning("the model is built again and its cache replaced: %s", error)
        with suppress(OSError):  # The next build says what is wrong then.
            file.unlink()
        return _build(Compilation(model, device), options, directory, progress)


def _build(
    compilation: Compilation, options: Options, directory: Path | None, progress: Progress | None
) -> Compilation:
    with ExitStack() as stack:
        stack.enter_context(compilation)
        compilation._set_options(options)
        if directory:
            compilation.set_cache(directory, _VERSION)
        try:
            compilation.build(progress)
        except SaveCacheFailed as error:  # It is built all the same.
            _log.warning("%s", error)
        stack.pop_all()
    return compilation
