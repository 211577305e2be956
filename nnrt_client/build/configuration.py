"""Configuration of a compilation: its source, device, options and caches."""

import operator
import os
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path

from typing_extensions import Buffer

from nnrt_client.build.build_result import BuildResult, Site
from nnrt_client.build.build_task import BuildTask
from nnrt_client.build.cache import NO_VERSION, Cache, CacheDirectory, require_whole
from nnrt_client.build.options import Options, require_offered
from nnrt_client.build.sources import (
    OfflineModel,
    from_buffer,
    from_directory,
    from_model,
    from_offline,
    from_program,
    require_compiled_from,
)
from nnrt_client.model.model import Model
from nnrt_client.model.program import Program
from nnrt_client.session.device import Device, session_of
from nnrt_client.session.session import Session
from nnrt_client.tracing.choice import tracer_of
from nnrt_hdi.batching import FEATURE as BATCHING_FEATURE
from nnrt_hdi.batching import Batching
from nnrt_hdi.enums import PerformanceMode, Priority
from nnrt_hdi.errors import (
    InvalidParameter,
    InvalidPath,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    UnavailableDevice,
    Unsupported,
)

AnyDevice = Device | Callable[[], Device]


class State(Enum):
    """State of a compilation. Its value says in errors why the compilation can't be changed any more."""

    CONFIGURING = ""
    BUILDING = "the compilation is being built"
    BUILT = "the compilation has been built"
    FAILED = "building the compilation has failed"
    CLOSED = "the compilation is closed"


class Configuration:
    """Source of a build, its device, options and caches, which can be changed until it is built."""

    def __init__(self, source: Model | OfflineModel | Program | None, device: AnyDevice) -> None:
        self._source = source
        self._device = _checked_device(device)
        self._options = Options()
        self._cache: Cache | None = None
        self._imported: Buffer | None = None
        self._state = State.CONFIGURING

    @property
    def device(self) -> Device:
        """Device to build for.

        If the device was given as a function, this calls the function and raises what it raises.
        """
        return self._device if isinstance(self._device, Device) else self._device()

    # ---- options

    def set_device(self, device: AnyDevice) -> None:
        """Compile for another device.

        Raises:
            InvalidParameter: `device` is neither a Device nor a function.
            OperationForbidden: `build` was called.
        """
        self._require_configuring()
        self._device = _checked_device(device)

    def set_performance_mode(self, mode: PerformanceMode) -> None:
        """Set how the device trades speed against power.

        Raises:
            UnavailableDevice: The device has no performance modes.
            OperationForbidden: `build` was called.
        """
        self._require_configuring()
        self._require_offered("performance_mode", mode)
        self._options.performance_mode = mode

    def set_priority(self, priority: Priority) -> None:
        """Set the priority of this model's runs among those of the same user.

        Raises:
            UnavailableDevice: The device has no priorities.
            OperationForbidden: `build` was called.
        """
        self._require_configuring()
        self._require_offered("priority", priority)
        self._options.priority = priority

    def enable_float16(self, enable: bool = True) -> None:
        """Let the device compute in half precision.

        Raises:
            UnavailableDevice: The device can't.
            OperationForbidden: `build` was called.
        """
        self._require_configuring()
        self._require_offered("float16_precision", enable)
        self._options.float16 = enable

    def set_batching(self, batching: Batching | None) -> None:
        """Let the daemon compute runs of this model together with other runs of it that wait for the device.

        The others may come from any session that has set the same batching. None leaves the choice to the daemon.
        `build` raises Unsupported if the model doesn't compute the rows of its inputs independently of each other, or
        if the daemon is too old.

        Raises:
            InvalidParameter: `batching` is no Batching.
            OperationForbidden: `build` was called.
        """
        self._require_configuring()
        if batching is not None and not isinstance(batching, Batching):
            raise InvalidParameter(f"the batching is {batching!r}; give a Batching")
        self._options.batching = batching

    def set_pin(self, stay: bool = True) -> None:
        """Let the model stay on the device, even while no run uses it, as long as the session has it.

        A daemon with `--resident-bytes` lets other models leave, and restores them with their next run. `build` raises
        OperationForbidden without the role `restore`, and OutOfMemory if the identity pins more than its share.

        Raises:
            OperationForbidden: `build` was called.
        """
        self._require_configuring()
        self._options.pin = stay

    def add_extension_config(self, name: str, value: bytes) -> None:
        """Add an attribute for the backend, which refuses attributes that it doesn't know in `build`.

        Only `ModelName` stays in the client: models with different names can share a cache directory. If a name is
        given twice, `|` joins the values.

        Raises:
            InvalidParameter: The name or value is empty or has another type.
            OperationForbidden: `build` was called.
        """
        self._require_configuring()
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise InvalidParameter(f"extension config {name!r} has the value {value!r}; give a text and bytes")
        if not name or not value:
            raise InvalidParameter(f"extension config {name!r} has the value {value!r}; neither may be empty")
        self._options.extend(name, value)

    def _set_options(self, options: Options) -> None:
        """Set every option that `options` sets, with the methods above."""
        if options.float16:
            self.enable_float16()
        self.set_performance_mode(PerformanceMode(options.performance_mode or PerformanceMode.NONE))
        self.set_priority(Priority(options.priority or Priority.NONE))
        self.set_batching(options.batching)
        self.set_pin(options.pin)
        for name, value in options.extensions.items():
            self.add_extension_config(name, value)

    # ---- caches

    def set_cache(self, directory: str | os.PathLike[str], version: int, *, reads_all: bool = False) -> None:
        """Let `build` load the device's cache from a directory, or write it there.

        `build` loads a cache of this version, replaces one of an earlier version, and checks that its options are those
        that are set. If this raises, nothing has changed.

        Args:
            directory: Directory that exists.
            version: The application's version of the model, 0..2**32 - 2.
            reads_all: Whether this call reads and checks parts of 1 MiB or more. In `build` the daemon checks them in
                any case.

        Raises:
            InvalidPath: The directory can't be read.
            InvalidFile: The cache is damaged, was made for another device or, having this version, from another model.
            InvalidParameter: The cache has a later version, or `version` is out of range.
            OperationForbidden: `build` was called.
        """
        self._require_configuring()
        version, path = _checked_version(version), path_of(directory)
        if not os.fspath(directory):  # Path takes it for the current directory.
            raise InvalidPath("the path of the cache directory is empty; give that of a directory")
        cache = CacheDirectory(path, version, self._options.model_name)
        cache.require_accessible()
        try:
            device = self.device
        except NnrtError:
            pass  # There is no such device now; `build` will say so.
        else:
            compiled, model = cache.find(device), self._source
            if compiled is not None and isinstance(model, Model) and model.is_finished:
                require_compiled_from(model, compiled, cache.place(device))
            if compiled is not None and reads_all:
                require_whole(compiled, cache.place(device))
        self._cache = cache

    def _set_user_cache(self, cache: Cache) -> None:
        """Let `build` look for the compiled model in `cache`.

        If `build` compiles the model, and `cache.is_written_later`, `_unsaved` is then the result to write.
        """
        self._cache = cache

    def import_cache(self, buffer: Buffer) -> None:
        """Let `build` load a cache that `export_cache` returned.

        The buffer is not copied: leave it as it is until `build` has returned.

        Raises:
            InvalidParameter: The buffer is empty or has no bytes.
            OperationForbidden: `build` was called.
        """
        self._require_configuring()
        require_filled(buffer, "cache")
        self._imported = buffer

    # ---- building

    def _run_build(self, build: BuildTask) -> BuildResult:
        """Let the device build the model, and record the build in the trace."""
        self._require_one_source()
        try:
            device = self.device
        except (OperationFailed, InvalidParameter) as error:
            raise OperationFailed(error.message, place=error.place).of_request(error.request_id) from error
        session = session_of(device)
        build.connect(session)
        tracer = tracer_of(session.settings.trace)
        if tracer is None:
            return self._build_on_device(build, device, session)
        traced = tracer.begin_build()
        try:
            result = traced.context.run(self._build_on_device, build, device, session)
        except BaseException as error:
            traced.end(error, build.stages, device=session.info.device_name, sent_bytes=build.sent_bytes)
            raise
        traced.end(
            None, build.stages, device=session.info.device_name, sent_bytes=build.sent_bytes, origin=result.origin.value
        )
        return result

    def _build_on_device(self, build: BuildTask, device: Device, session: Session) -> BuildResult:
        """Let the device of a session compile or restore the model."""
        self._require_cache_support(device)
        if self._options.batching is not None and BATCHING_FEATURE not in session.welcome.features:
            raise Unsupported(
                f"the daemon of {device.name} is too old to compute runs together; load it without batching"
            )
        # Copied, so that nothing changes them during the build.
        options = replace(self._options, extensions=dict(self._options.extensions))
        build.is_pinned = options.pin
        site = Site(build, device, session, options, options.config(device))
        if self._cache is not None:
            self._cache.model_name = options.model_name
            build.add_checking_time(self._cache.spent_s)
        if isinstance(self._source, Model):
            return from_model(site, self._source, self._cache)
        if isinstance(self._source, Program):
            return from_program(site, self._source)
        if self._source is not None:
            return from_offline(site, self._source)
        if self._imported is not None:
            return from_buffer(site, self._imported)
        assert isinstance(self._cache, CacheDirectory)
        return from_directory(site, self._cache)

    def _require_one_source(self) -> None:
        directory = self._cache if self._source is None else None
        given = [
            what
            for what, source in (
                ("a model", self._source),
                ("an imported cache", self._imported),
                ("a cache directory", directory),
            )
            if source is not None
        ]
        if len(given) != 1:
            raise InvalidParameter(f"it has {' and '.join(given) or 'nothing to build'}; give it exactly one source")

    def _require_cache_support(self, device: Device) -> None:
        if self._cache is None and self._imported is None:
            return
        if not device.capabilities.model_cache:
            raise OperationForbidden(f"{device.name} has no model caches; build without one, or take another device")
        if self._cache is not None and self._cache.version == NO_VERSION:
            raise InvalidParameter(f"the version of the cache is {NO_VERSION}; use 0..{NO_VERSION - 1}")

    def _require_configuring(self) -> None:
        if self._state is not State.CONFIGURING:
            raise OperationForbidden(f"{self._state.value}; make a new one to change it")

    def _require_offered(self, capability: str, value: int) -> None:
        if not value:
            return  # Every device takes the neutral value.
        try:
            device = self.device
        except NnrtError:
            return  # There is no such device now; `build` will say so.
        require_offered(device, capability, value, UnavailableDevice)


def _checked_device(device: AnyDevice) -> AnyDevice:
    if not isinstance(device, Device) and not callable(device):
        raise InvalidParameter(f"the device is {device!r}; give a Device, or a function that finds one")
    return device


def _checked_version(version: int) -> int:
    try:
        number = operator.index(version)
    except TypeError:
        number = -1
    if isinstance(version, bool) or not 0 <= number <= NO_VERSION:
        raise InvalidParameter(f"the version is {version!r}; use an integer 0..{NO_VERSION - 1}")
    return number


def path_of(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError as error:
        raise InvalidParameter(f"the path is {path!r}; give a text or a Path") from error


def require_filled(buffer: Buffer, what: str) -> None:
    try:
        size_bytes = memoryview(buffer).nbytes
    except TypeError as error:
        raise InvalidParameter(f"the {what} is {type(buffer).__name__}; give its bytes") from error
    if not size_bytes:
        raise InvalidParameter(f"the {what} is empty; give its bytes")
