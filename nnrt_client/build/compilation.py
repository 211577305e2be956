"""The build of a model for a device, as applications ask for it."""

import logging
import operator
import os
import threading
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace
from enum import Enum
from pathlib import Path

from typing_extensions import Buffer, Self

from nnrt_client.build.build_task import BuildReport, BuildTask, Progress
from nnrt_client.build.cache import NO_VERSION, Cache, CacheDirectory, require_whole
from nnrt_client.build.options import Options, require_offered
from nnrt_client.build.prepared import PreparedHandle
from nnrt_client.build.sources import (
    BuildResult,
    OfflineModel,
    Refused,
    Site,
    from_buffer,
    from_directory,
    from_model,
    from_offline,
    from_program,
    require_compiled_from,
)
from nnrt_client.model.model import Model
from nnrt_client.model.program import Program
from nnrt_client.session.device import Device
from nnrt_client.session.errands import elsewhere
from nnrt_client.session.fork import LockOwner
from nnrt_client.session.session import Session
from nnrt_client.tracing.choice import tracer_of
from nnrt_hdi.backend import Origin
from nnrt_hdi.batching import FEATURE as BATCHING_FEATURE
from nnrt_hdi.batching import Batching
from nnrt_hdi.closable import Closable
from nnrt_hdi.enums import PerformanceMode, Priority
from nnrt_hdi.errors import (
    InvalidParameter,
    InvalidPath,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    SaveCacheFailed,
    UnavailableDevice,
    Unsupported,
)

_log = logging.getLogger(__name__)

# What a cache that is no file carries.
_BUFFER_VERSION = 0

AnyDevice = Device | Callable[[], Device]


class _State(Enum):
    """The value says why nothing can be changed any more."""

    CONFIGURING = ""
    BUILDING = "the compilation is being built"
    BUILT = "the compilation has been built"
    FAILED = "building the compilation has failed"
    CLOSED = "the compilation is closed"


class Compilation(LockOwner, Closable):
    """Compiles a finished model for a device, or loads one that was compiled before.

    A device may be given as a function that finds it when it is needed. Options are checked against what the device
    said of itself. After `build` and `close` nothing can be changed any more; executors made from it keep working when
    it is closed.
    """

    def __init__(self, model: Model, device: AnyDevice) -> None:
        """Compile this model. Other sources of a build have constructors of their own below.

        Raises InvalidParameter for what is no model or no device.
        """
        if not isinstance(model, Model):
            raise InvalidParameter(f"the model is {model!r}; give a Model")
        self._configure(model, device)

    @classmethod
    def _from_source(cls, source: OfflineModel | Program | None, device: AnyDevice) -> Self:
        compilation = cls.__new__(cls)
        compilation._configure(source, device)
        return compilation

    def _configure(self, source: Model | OfflineModel | Program | None, device: AnyDevice) -> None:
        self._source = source
        self._device = _checked_device(device)
        self._options = Options()
        self._cache: Cache | None = None
        self._imported: Buffer | None = None
        super().__init__()
        self._state = _State.CONFIGURING
        self._under_way: BuildTask | None = None
        self._result: BuildResult | None = None
        self._report: BuildReport | None = None

    @classmethod
    def from_offline_file(cls, path: str | os.PathLike[str], device: AnyDevice) -> Self:
        """Load an offline model: a file of `nnrt compile`, or one of the vendor's tools. `build` opens it.

        Raises InvalidParameter for what is no path.
        """
        return cls._from_source(OfflineModel.in_file(_path(path)), device)

    @classmethod
    def from_offline_buffer(cls, buffer: Buffer, device: AnyDevice) -> Self:
        """Load an offline model from memory, which is not copied: leave it as it is until `build` has returned.

        Raises InvalidParameter for an empty one, and for what has no bytes.
        """
        _require_filled(buffer, "offline model")
        return cls._from_source(OfflineModel.in_memory(buffer), device)

    @classmethod
    def for_cache(cls, device: AnyDevice) -> Self:
        """Load the cache that `set_cache` or `import_cache` names. Options that aren't set are those of the cache."""
        return cls._from_source(None, device)

    def _make_locks(self) -> None:
        self._lock = threading.RLock()

    @property
    def is_built(self) -> bool:
        """True from a build that has succeeded until `close`."""
        return self._state is _State.BUILT

    @property
    def device(self) -> Device:
        """The device it is built for. Raises what a function that was given to find it raises."""
        return self._device if isinstance(self._device, Device) else self._device()

    @property
    def report(self) -> BuildReport | None:
        """Report of the build, where it went and what it took; None before it has succeeded."""
        return self._report

    @property
    def origin(self) -> Origin | None:
        """The way in which the build got its model; None before it has succeeded."""
        return self._report.origin if self._report else None

    # ---- options

    def set_device(self, device: AnyDevice) -> None:
        """Compile for another device. Raises InvalidParameter for what is none, OperationForbidden after `build`."""
        self._require_configuring()
        self._device = _checked_device(device)

    def set_performance_mode(self, mode: PerformanceMode) -> None:
        """Trade speed against power.

        Raises UnavailableDevice if the device has no performance modes, OperationForbidden after `build`.
        """
        self._require_configuring()
        self._require_offered("performance_mode", mode)
        self._options.mode = mode

    def set_priority(self, priority: Priority) -> None:
        """Order the runs of this model among those of the same user.

        Raises UnavailableDevice if the device has no priorities, OperationForbidden after `build`.
        """
        self._require_configuring()
        self._require_offered("priority", priority)
        self._options.priority = priority

    def enable_float16(self, enable: bool = True) -> None:
        """Let the device compute in half precision.

        Raises UnavailableDevice if it can't, OperationForbidden after `build`.
        """
        self._require_configuring()
        self._require_offered("float16_precision", enable)
        self._options.float16 = enable

    def set_batching(self, batching: Batching | None) -> None:
        """Have runs of this model computed together with others that wait for the device, of all sessions that ask for
        the same. None leaves it to the daemon.

        `build` raises Unsupported where the model doesn't compute the rows of its inputs apart from each other, and
        where the daemon is too old. Raises InvalidParameter for what is no Batching, OperationForbidden after `build`.
        """
        self._require_configuring()
        if batching is not None and not isinstance(batching, Batching):
            raise InvalidParameter(f"the batching is {batching!r}; give a Batching")
        self._options.batching = batching

    def add_extension_config(self, name: str, value: bytes) -> None:
        """Add an attribute for the backend, which refuses in `build` what it doesn't know.

        Only `ModelName` stays here: models of different names can share a cache directory. A name given twice joins the
        values with `|`. Raises InvalidParameter for an empty name or value or one of another type, OperationForbidden
        after `build`.
        """
        self._require_configuring()
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise InvalidParameter(f"extension config {name!r} has the value {value!r}; give a text and bytes")
        if not name or not value:
            raise InvalidParameter(f"extension config {name!r} has the value {value!r}; neither may be empty")
        self._options.extend(name, value)

    def _set_options(self, options: Options) -> None:
        """Set all that these options set, as the methods above do one by one."""
        if options.float16:
            self.enable_float16()
        self.set_performance_mode(PerformanceMode(options.mode or PerformanceMode.NONE))
        self.set_priority(Priority(options.priority or Priority.NONE))
        self.set_batching(options.batching)
        for name, value in options.extensions.items():
            self.add_extension_config(name, value)

    # ---- caches

    def set_cache(self, directory: str | os.PathLike[str], version: int, *, reads_all: bool = False) -> None:
        """Have `build` load the device's cache in a directory, or write it there.

        A cache of this version is loaded, one of an earlier version replaced. Raises, and changes nothing:
        InvalidPath if the directory can't be read; InvalidFile if the cache is damaged (parts of 1 MiB or more are read
        now only with `reads_all`; the daemon checks them in `build` in any case), was made for another device or,
        having this version, from another model;
        InvalidParameter if it has a later version, and for another version than an integer 0..2**32 - 2;
        OperationForbidden after `build`. That the options are those of the cache is for `build` to see.
        """
        self._require_configuring()
        version, path = _checked_version(version), _path(directory)
        if not os.fspath(directory):  # Which Path takes for the current one.
            raise InvalidPath("the path of the cache directory is empty; give that of a directory")
        cache = CacheDirectory(path, version, self._options.model_name)
        cache.require_accessible()
        try:
            device = self.device
        except NnrtError:
            pass  # There is no such device now; `build` will say so.
        else:
            compiled, model = cache.found(device), self._source
            if compiled is not None and isinstance(model, Model) and model.is_finished:
                require_compiled_from(model, compiled, cache.place(device))
            if compiled is not None and reads_all:
                require_whole(compiled, cache.place(device))
        self._cache = cache

    def _set_user_cache(self, cache: Cache) -> None:
        """Have `build` look for the compiled model there. What it compiles instead is in `_unsaved` afterwards."""
        self._cache = cache

    @property
    def _unsaved(self) -> BuildResult | None:
        """What `build` has compiled, if it is still to be written to its cache."""
        result = self._result
        return result if result and result.cache and result.cache.is_written_later else None

    def import_cache(self, buffer: Buffer) -> None:
        """Have `build` load what `export_cache` gave, which is not copied: leave it alone until `build` has returned.

        Raises InvalidParameter for an empty buffer and for what has no bytes, OperationForbidden after `build`.
        """
        self._require_configuring()
        _require_filled(buffer, "cache")
        self._imported = buffer

    def export_cache(self) -> bytes:
        """Give the compiled model as a file: a cache for `import_cache`, and an offline model.

        Raises InvalidParameter before a successful `build`, Unsupported if the device exports no models,
        SaveCacheFailed if it fails to, OperationForbidden after `close`.
        """
        with self._lock:
            state, result = self._state, self._result
        if state is _State.CLOSED:
            raise OperationForbidden(f"{state.value}; make a new one")
        if result is None:
            raise InvalidParameter("there is nothing to export before a build that succeeds")
        if not result.device.capabilities.model_cache:
            raise Unsupported(f"{result.device.name} does not export compiled models")
        result.prepared.retain()
        try:
            build = BuildTask()
            build.connect(result.prepared.session)
            exported = elsewhere(result.exported, build, _BUFFER_VERSION)
            return b"".join(exported.packed())
        except NnrtError as error:
            raise SaveCacheFailed(f"the model was not exported: {error}") from error
        finally:
            result.prepared.release()

    # ---- building

    def build(self, progress: Progress | None = None) -> None:
        """Have the device compile the model, or restore it.

        `progress` is called with a stage ("checking", "uploading", "waiting", "compiling", "restoring", "storing") and
        a fraction of it, from any thread; what it raises ends the build.

        Raises InvalidParameter for an unfinished or malformed model, for none or several sources, a bad option, or a
        second build or one after `close`; OperationForbidden for an option the device doesn't offer; OperationFailed
        where there is no such device or it doesn't take the model, with every reason, and after `cancel`; InvalidPath
        and InvalidFile for a cache or an offline model; SaveCacheFailed where only the cache wasn't written: then it is
        built; UnavailableDevice, ConnectionFailed or TimedOut where the device wasn't reached: then `build` may be
        called again, as after everything that was found before the device was asked.
        """
        elsewhere(copy_context().run, self._build, progress, when_interrupted=self.cancel)

    def _build(self, progress: Progress | None) -> None:
        with self._lock:
            if self._state is not _State.CONFIGURING:
                raise InvalidParameter(f"{self._state.value}; make a new one")
            self._state = _State.BUILDING
            build = self._under_way = BuildTask(progress)
        outcome = _State.CONFIGURING
        result: BuildResult | None = None
        unsaved: SaveCacheFailed | None = None
        try:
            result = self._run(build)
            if not (result.cache and result.cache.is_written_later):
                try:
                    result.save(build)
                except SaveCacheFailed as error:
                    build.check()
                    unsaved = error
            report = replace(build.report(result.origin, result.compiled_in_s), notes=result.notes)
            with self._lock:
                build.check()  # `cancel` and `close` come too late from here on.
                self._result, self._report, self._under_way = result, report, None
                self._source = self._imported = None  # It may be gigabytes, which the device has now.
                outcome = self._state = _State.BUILT
        except Refused as refused:
            outcome = _State.FAILED
            raise refused.error from refused
        finally:
            if outcome is not _State.BUILT:
                if result:
                    result.prepared.release()
                with self._lock:
                    self._under_way = None
                    if self._state is not _State.CLOSED:
                        self._state = outcome
        _log.info("for %s: %s", result.device, report)
        if unsaved:
            raise unsaved

    def cancel(self) -> None:
        """End a build that is under way in another thread, with OperationFailed there. It may be built again."""
        with self._lock:
            self._cancel_build()

    def _prepared(self) -> PreparedHandle:
        """Take the compiled model into use once more. Raises OperationForbidden before `build` and after `close`."""
        result = self._result
        if result is None:
            raise OperationForbidden("the compilation is not built, or closed; call build first")
        return result.prepared.retain()

    def close(self) -> None:
        """Let go of the compiled model, and cancel a build under way. It can't be built any more. Idempotent."""
        with self._lock:
            self._cancel_build()
            self._state = _State.CLOSED
            result, self._result = self._result, None
        if result is not None:
            result.prepared.release()

    def _cancel_build(self) -> None:
        """With the lock held."""
        if self._under_way:
            self._under_way.end(OperationFailed("the build was cancelled"))

    def _run(self, build: BuildTask) -> BuildResult:
        self._require_one_source()
        try:
            device = self.device
        except (OperationFailed, InvalidParameter) as error:
            raise OperationFailed(error.message, place=error.place).of_request(error.request_id) from error
        session = device._session()
        build.connect(session)
        tracer = tracer_of(session.settings.trace)
        if tracer is None:
            return self._made(build, device, session)
        traced = tracer.begin_build()
        try:
            result = traced.context.run(self._made, build, device, session)
        except BaseException as error:
            traced.end(error, build.stages, device=session.info.device_name, sent_bytes=build.sent_bytes)
            raise
        traced.end(
            None, build.stages, device=session.info.device_name, sent_bytes=build.sent_bytes, origin=result.origin.value
        )
        return result

    def _made(self, build: BuildTask, device: Device, session: Session) -> BuildResult:
        """Have the device of a session compile or restore the model."""
        self._require_cache_support(device)
        if self._options.batching is not None and BATCHING_FEATURE not in session.welcome.features:
            raise Unsupported(
                f"the daemon of {device.name} is too old to compute runs together; load it without batching"
            )
        # Copied, for a buffer of the caller's may be changed by then.
        options = replace(self._options, extensions=dict(self._options.extensions))
        site = Site(build, device, session, options, options.config(device))
        if self._cache is not None:
            self._cache.model_name = options.model_name
            build.spent(self._cache.spent_s)
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
        if self._state is not _State.CONFIGURING:
            raise OperationForbidden(f"{self._state.value}; make a new one to change it")

    def _require_offered(self, capability: str, value: int) -> None:
        if not value:
            return  # Which no device need be asked for.
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


def _path(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError as error:
        raise InvalidParameter(f"the path is {path!r}; give a text or a Path") from error


def _require_filled(buffer: Buffer, what: str) -> None:
    try:
        size_bytes = memoryview(buffer).nbytes
    except TypeError as error:
        raise InvalidParameter(f"the {what} is {type(buffer).__name__}; give its bytes") from error
    if not size_bytes:
        raise InvalidParameter(f"the {what} is empty; give its bytes")
