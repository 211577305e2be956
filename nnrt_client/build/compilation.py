"""Build of a model for a device, as applications request it."""

import logging
import os
import threading
from contextvars import copy_context
from dataclasses import replace

from typing_extensions import Buffer, Self

from nnrt_client.build.build_result import BuildResult, Refused
from nnrt_client.build.build_task import BuildReport, BuildTask, Progress
from nnrt_client.build.configuration import AnyDevice, Configuration, State, path_of, require_filled
from nnrt_client.build.prepared import PreparedHandle
from nnrt_client.build.sources import OfflineModel
from nnrt_client.model.model import Model
from nnrt_client.model.program import Program
from nnrt_client.session.errands import call_in_worker
from nnrt_client.session.fork import LockOwner
from nnrt_hdi.backend import Origin
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import (
    InvalidParameter,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    SaveCacheFailed,
    Unsupported,
)

_log = logging.getLogger(__name__)

# Version of a cache that is no file.
_BUFFER_VERSION = 0


class Compilation(LockOwner, Configuration, Closable):
    """Build of a model for a device, which compiles a finished model or loads one that was compiled before.

    The device may be a function that finds it when it is needed. Options are checked against the device's
    capabilities. After `build` and `close` nothing can be changed any more. Executors made from a compilation keep
    working when it is closed.
    """

    def __init__(self, model: Model, device: AnyDevice) -> None:
        """Make the compilation of a model; the class methods take the other sources of a build.

        Raises:
            InvalidParameter: `model` is no Model, or `device` is neither a Device nor a function.
        """
        if not isinstance(model, Model):
            raise InvalidParameter(f"the model is {model!r}; give a Model")
        self._begin(model, device)

    @classmethod
    def _from_source(cls, source: OfflineModel | Program | None, device: AnyDevice) -> Self:
        compilation = cls.__new__(cls)
        compilation._begin(source, device)
        return compilation

    def _begin(self, source: Model | OfflineModel | Program | None, device: AnyDevice) -> None:
        Configuration.__init__(self, source, device)
        self._under_way: BuildTask | None = None
        self._result: BuildResult | None = None
        self._report: BuildReport | None = None
        LockOwner.__init__(self)

    @classmethod
    def from_offline_file(cls, path: str | os.PathLike[str], device: AnyDevice) -> Self:
        """Load an offline model from a file, which `nnrt compile` or the vendor's tools wrote and `build` opens.

        Returns:
            The compilation, which is not built yet.

        Raises:
            InvalidParameter: `path` is no path.
        """
        return cls._from_source(OfflineModel.in_file(path_of(path)), device)

    @classmethod
    def from_offline_buffer(cls, buffer: Buffer, device: AnyDevice) -> Self:
        """Load an offline model from memory.

        The buffer is not copied: leave it as it is until `build` has returned.

        Returns:
            The compilation, which is not built yet.

        Raises:
            InvalidParameter: The buffer is empty or has no bytes.
        """
        require_filled(buffer, "offline model")
        return cls._from_source(OfflineModel.in_memory(buffer), device)

    @classmethod
    def for_cache(cls, device: AnyDevice) -> Self:
        """Load the cache that `set_cache` or `import_cache` names.

        Options that are not set are those of the cache.

        Returns:
            The compilation, which is not built yet.
        """
        return cls._from_source(None, device)

    def _make_locks(self) -> None:
        self._lock = threading.RLock()

    @property
    def is_built(self) -> bool:
        """True from a build that has succeeded until `close`."""
        return self._state is State.BUILT

    @property
    def report(self) -> BuildReport | None:
        """Report of the build; None before it has succeeded."""
        return self._report

    @property
    def origin(self) -> Origin | None:
        """Origin of the model that the build got; None before it has succeeded."""
        return self._report.origin if self._report else None

    # ---- caches

    @property
    def _unsaved(self) -> BuildResult | None:
        """Result of `build`, if it must still be written to its cache."""
        result = self._result
        return result if result and result.cache and result.cache.is_written_later else None

    def export_cache(self) -> bytes:
        """Return the compiled model as a file, which is a cache for `import_cache` and an offline model.

        Raises:
            InvalidParameter: No `build` has succeeded.
            Unsupported: The device exports no models.
            SaveCacheFailed: The device failed to export the model.
            OperationForbidden: The compilation is closed.
        """
        with self._lock:
            state, result = self._state, self._result
        if state is State.CLOSED:
            raise OperationForbidden(f"{state.value}; make a new one")
        if result is None:
            raise InvalidParameter("there is nothing to export before a build that succeeds")
        if not result.device.capabilities.model_cache:
            raise Unsupported(f"{result.device.name} does not export compiled models")
        result.prepared.retain()
        try:
            build = BuildTask()
            build.connect(result.prepared.session)
            exported = call_in_worker(result.export, build, _BUFFER_VERSION)
            return b"".join(exported.packed())
        except NnrtError as error:
            raise SaveCacheFailed(f"the model was not exported: {error}") from error
        finally:
            result.prepared.release()

    # ---- building

    def build(self, progress: Progress | None = None) -> None:
        """Let the device compile the model or restore it, and wait for the end.

        Args:
            progress: Called from any thread with a stage ("checking", "uploading", "waiting", "compiling", "restoring",
                "storing") and the fraction of it that is done. What it raises ends the build.

        Raises:
            InvalidParameter: The model is unfinished or malformed, there is no source or more than one, an option is
                bad, or the compilation has been built or closed.
            OperationForbidden: The device doesn't offer an option.
            OperationFailed: There is no such device, it doesn't take the model (with every reason), or `cancel` was
                called.
            InvalidPath: The cache's directory or the offline model's file can't be found.
            InvalidFile: The cache or the offline model can't be used.
            SaveCacheFailed: Only the cache was not written; the model is built.
            UnavailableDevice: The device was not reached (also ConnectionFailed and TimedOut). `build` may be called
                again then, as after every error that was found before the device was asked.
        """
        call_in_worker(copy_context().run, self._build, progress, when_interrupted=self.cancel)

    def _build(self, progress: Progress | None) -> None:
        with self._lock:
            if self._state is not State.CONFIGURING:
                raise InvalidParameter(f"{self._state.value}; make a new one")
            self._state = State.BUILDING
            build = self._under_way = BuildTask(progress)
        outcome = State.CONFIGURING
        result: BuildResult | None = None
        unsaved: SaveCacheFailed | None = None
        try:
            result = self._run_build(build)
            if not (result.cache and result.cache.is_written_later):
                try:
                    result.save(build)
                except SaveCacheFailed as error:
                    build.check()
                    unsaved = error
            report = replace(build.report(result.origin, result.compiled_in_s), notes=result.notes)
            with self._lock:
                build.check()  # From here on `cancel` and `close` come too late.
                self._result, self._report, self._under_way = result, report, None
                self._source = self._imported = None  # The device has the weights now, which may be gigabytes.
                outcome = self._state = State.BUILT
        except Refused as refused:
            outcome = State.FAILED
            raise refused.error from refused
        finally:
            if outcome is not State.BUILT:
                if result:
                    result.prepared.release()
                with self._lock:
                    self._under_way = None
                    if self._state is not State.CLOSED:
                        self._state = outcome
        _log.info("for %s: %s", result.device, report)
        if unsaved:
            raise unsaved

    def cancel(self) -> None:
        """Cancel the `build` that another thread runs: it raises OperationFailed there, and may be called again."""
        with self._lock:
            self._cancel_build()

    def _prepared(self) -> PreparedHandle:
        """Return the prepared model, with one more user. Raise OperationForbidden before `build` and after `close`."""
        result = self._result
        if result is None:
            raise OperationForbidden("the compilation is not built, or closed; call build first")
        return result.prepared.retain()

    def close(self) -> None:
        """Release the compiled model, and cancel a build under way.

        The compilation can't be built any more. Calling this again does nothing.
        """
        with self._lock:
            self._cancel_build()
            self._state = State.CLOSED
            result, self._result = self._result, None
        if result is not None:
            result.prepared.release()

    def _cancel_build(self) -> None:
        """Cancel the build under way; the caller has the lock."""
        if self._under_way:
            self._under_way.end(OperationFailed("the build was cancelled"))


def compilation_of(source: OfflineModel | Program, device: AnyDevice) -> Compilation:
    """Return the compilation of a source that is no Model, such as a model file in the device's own format."""
    return Compilation._from_source(source, device)


def prepared_of(compilation: Compilation) -> PreparedHandle:
    """Return the prepared model, with one more user. Raise OperationForbidden before `build` and after `close`."""
    return compilation._prepared()
