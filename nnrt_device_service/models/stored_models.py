"""Models in the daemon's store, and compilation of models that the store lacks."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from nnrt_device_service.host.threads import Threads
from nnrt_device_service.isolation.backend import IsolatingBackend
from nnrt_device_service.models.compilations import Compilers, Progress
from nnrt_device_service.models.requests import Build, Notes, Request
from nnrt_device_service.models.residency import Residency
from nnrt_device_service.models.shared_models import Making
from nnrt_device_service.scheduling.drain_gate import DrainGate
from nnrt_device_service.sessions.session import Prepared, Session
from nnrt_device_service.sessions.shared_model import SharedModel
from nnrt_device_service.settings import Settings
from nnrt_hdi import __version__
from nnrt_hdi.backend import Backend, Cancellation, DeviceInfo, ModelConfig, Origin, PreparedModel
from nnrt_hdi.errors import InvalidFile, OutOfMemory, UnavailableDevice, UnknownHandle, Unsupported
from nnrt_hdi.files.compiled import CompiledModel, Target
from nnrt_hdi.files.model_store import ModelStore
from nnrt_hdi.files.store_directory import SHOWN_KEY, Recipe, parts_beside, touch
from nnrt_hdi.mapped_files import drop_pages

_log = logging.getLogger(__name__)

# Models written at a time after their clients got them. More would fill memory when the disk is slow.
_WRITERS = 2


class StoredModels:
    """Compiler of models. With a store it compiles each model once for all sessions and for later daemons."""

    def __init__(
        self,
        backend: Backend,
        info: DeviceInfo,
        target: Target,
        settings: Settings,
        compilers: Compilers,
        gate: DrainGate,
        threads: Threads,
    ) -> None:
        """Open the store of the settings, if any. Raises what `ModelStore` raises."""
        self._backend = backend
        self._compilers = compilers
        self._target = target
        self._gate = gate
        self._threads = threads
        # Rules of acceptance besides the backend's. The key includes them, so a stored model has passed these checks.
        capabilities = replace(info.capabilities, program_formats=())
        isolation = backend.isolates if isinstance(backend, IsolatingBackend) else "none"
        # What a process of its own has exported may be anything: daemons without such processes must not find it.
        self._rules = repr((__version__, settings.tensor_bytes, capabilities, isolation)).encode()
        self._store: ModelStore | None = None
        if settings.store_dir:
            place = f"--store-dir {settings.store_dir!r}"
            store = ModelStore(Path(settings.store_dir), settings.store_bytes, place=place, quota="--store-bytes")
            self._store = store if info.capabilities.model_cache else None
            if self._store is None:
                _log.warning("the backend %s exports no models, so none are stored", info.backend_name)
        self._writers = threading.BoundedSemaphore(_WRITERS)
        # Number of large models exported so far, after each of which malloc keeps free memory.
        self.exports = 0

    @property
    def has_store(self) -> bool:
        """True if the daemon stores compiled models."""
        return self._store is not None

    def damage(self) -> str:
        """Return which file of a loaded model has been truncated, or an empty string if none has."""
        return "" if self._store is None else self._store.damage()

    def identify(self, build: Build, request: Request) -> Build:
        """Return the build with the request and the recipe that identifies its model."""
        recipe = Recipe(self._target, sha256(request.digest + self._rules).digest(), build.config)
        return replace(build, request=request, recipe=recipe)

    def compile(
        self,
        build: Build,
        making: Making,
        undo: ExitStack,
        compile_it: Callable[[Progress], PreparedModel],
        size_bytes: int,
        notes: Notes,
        uploads: Sequence[bytes],
    ) -> Prepared:
        """Compile a model for all sessions that wait for it, and store it. `uploads` is that of `Build.add_made`."""
        progress = Progress(build.progress.report, making.cancellation)
        with self._compilers.turn(build.session, build.config.priority, build.progress, making.cancellation):
            making.begin_work(size_bytes)
            prepared = making.make(partial(compile_it, progress))
        made = build.add_made(prepared, Origin.COMPILED, making.finish, undo, size_bytes, notes, uploads=uploads)
        if self._store is not None and build.recipe is not None:
            self._keep(build.recipe, build.session, made, making.residency)
        return made

    def restore(self, build: Build, making: Making) -> Prepared | None:
        """Load the model from the store. Returns None if it is missing or damaged, or if the session lacks memory."""
        session, recipe, progress = build.session, build.recipe, build.progress
        if self._store is None or recipe is None or build.request is None:
            return None
        if (entry := self._store.find(recipe.key)) is None:
            return None
        progress("restoring", 0.0)
        shown = recipe.key[:SHOWN_KEY]
        with ExitStack() as undo, ExitStack() as meanwhile:
            meanwhile.enter_context(self._compilers.turn(session, build.config.priority, progress))
            making.begin_work(entry.size_bytes)
            try:
                # Keep the constants: making room must not drop what a compilation would need.
                meanwhile.enter_context(session.constants.keeping(build.request.named_constants()))
                session.reserve_for_model(entry.size_bytes, undo)
                compiled = self._store.load(entry)
                if compiled is None:
                    return None
                prepared = making.make(partial(self._restore, compiled, build.config))
            except (MemoryError, OutOfMemory) as error:
                _log.warning("the stored model %s finds no room: %s", shown, error)
                return None
            except (InvalidFile, Unsupported) as error:
                self._store.remove(recipe.key, f"the backend does not restore it: {error!r}")
                return None
            except BaseException:  # Keep the file: it may be fine.
                _log.exception("the stored model %s is compiled again: it can't be restored", shown)
                return None
            _log.info("restored model %s from the store for client %s", shown, session.client, extra=session.log_fields)
            size_bytes, notes = entry.size_bytes, compiled.notes
            return build.add_made(prepared, Origin.STORED, making.finish, undo, size_bytes, notes, is_stored=True)

    def has(self, recipe: Recipe) -> bool:
        """Return whether the store has a model, which counts as a use: the store should keep it for a while."""
        entry = self._store.find(recipe.key) if self._store is not None else None
        if entry is not None:
            touch(entry.path)
        return entry is not None

    def find(self, recipe: Recipe, config: ModelConfig) -> Callable[[], PreparedModel]:
        """Return what restores a model that has left the device. Raises UnknownHandle if the store has it no longer.

        The returned function does too, if the backend doesn't take it.
        """
        entry = self._store.find(recipe.key) if self._store is not None else None
        compiled = self._store.load(entry) if self._store is not None and entry is not None else None
        shown = recipe.key[:SHOWN_KEY]
        lost = f"model {shown} had left the device for others (--resident-bytes), and can't come back from the store:"
        if compiled is None:
            raise UnknownHandle(f"{lost} its file is gone or damaged; load it again")

        def restore() -> PreparedModel:
            try:
                return self._restore(compiled, config)
            except (InvalidFile, Unsupported) as error:
                raise UnknownHandle(f"{lost} {error}; load it again") from error

        return restore

    def _restore(self, compiled: CompiledModel, config: ModelConfig) -> PreparedModel:
        """Return what the backend makes of a stored model. Raises InvalidFile if that isn't what was stored."""
        prepared = self._backend.restore(compiled.parts, replace(config, is_own=True))
        # The backend may have made something else of them, such as packed weights.
        drop_pages(part.data for part in compiled.parts)
        if (prepared.inputs, prepared.outputs) != (compiled.inputs, compiled.outputs):
            prepared.close()
            raise InvalidFile("it holds another model than its manifest says")
        return prepared

    def _keep(self, recipe: Recipe, session: Session, made: Prepared, residency: Residency) -> None:
        """Store a model, if possible after the client got it. It stays open until then."""
        with ExitStack() as block:
            block.enter_context(residency.unsettled())
            try:
                model = block.enter_context(session.model(made.model_id).used(Cancellation())).shared
            except UnknownHandle:  # The client has closed the model already.
                return
            is_later = self._may_write_later(block)
            writing = partial(self._write, recipe, model, block.pop_all())
        if is_later:
            with suppress(OutOfMemory):  # No thread can be started.
                self._threads.run(writing)
                return
        writing()

    def _may_write_later(self, block: ExitStack) -> bool:
        """Return whether a model may be stored after the answer to its client; `block` releases what that needs."""
        if not self._writers.acquire(blocking=False):
            return False
        block.callback(self._writers.release)
        try:
            block.enter_context(self._gate.admit())
        except UnavailableDevice:  # The daemon drains, and waits only for this call.
            return False
        return True

    def _write(self, recipe: Recipe, model: SharedModel, block: ExitStack) -> None:
        """Export a model, write it to the store and close the block."""
        assert self._store is not None
        is_large, compiled = False, None
        with block:
            prepared = model.prepared
            try:
                compiled = CompiledModel(
                    target=recipe.target,
                    source_digest=recipe.source_digest,
                    config=recipe.config,
                    inputs=prepared.inputs,
                    outputs=prepared.outputs,
                    version=0,  # Versions are for caches of applications.
                    parts=prepared.export(),
                    notes=model.notes,
                )
                is_large = bool(parts_beside(compiled))
                if self._store.keep(compiled):
                    model.recipe = recipe
            except BaseException:  # The client's model works, even if it can't be stored.
                _log.exception("model %s is not stored: the backend failed to export it", recipe.key[:SHOWN_KEY])
        compiled = None
        self.exports += is_large
