"""Making of sessions' models: from clients' requests to models that run."""

from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

from nnrt_device_service.host.threads import Threads
from nnrt_device_service.memory.constants import MissingConstants, uploaded_digests
from nnrt_device_service.memory.freeing import Freeing
from nnrt_device_service.memory.shared_files import KnownParts
from nnrt_device_service.models.checks import Checks
from nnrt_device_service.models.compilations import Compilers, Progress
from nnrt_device_service.models.groups import Groups, require_open_rows
from nnrt_device_service.models.requests import Buffers, Build, ModelRequest, Outcome, Program, reserved_parts
from nnrt_device_service.models.residency import Residency
from nnrt_device_service.models.shared_models import Making, SharedModels
from nnrt_device_service.models.signatures import Signatures, find_secret, has_signature
from nnrt_device_service.models.stored_models import StoredModels
from nnrt_device_service.scheduling.drain_gate import DrainGate
from nnrt_device_service.scheduling.joinable import Member
from nnrt_device_service.sessions.session import Prepared, Session
from nnrt_device_service.sessions.shared_model import SharedModel
from nnrt_device_service.settings import Settings
from nnrt_hdi.access.identity import Role
from nnrt_hdi.backend import Backend, Cancellation, DeviceInfo, ModelConfig, Origin, PreparedModel, Support
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import InvalidParameter, OperationForbidden, Unsupported
from nnrt_hdi.files.compiled import Target
from nnrt_hdi.graph import Constant, Graph
from nnrt_hdi.ops import infer_graph
from nnrt_hdi.part import Part

_UNSIGNED = "a cache that this daemon has not signed (--cache-key)"


class Models:
    """Maker of models from operators, programs and caches, and exporter of models."""

    def __init__(
        self,
        backend: Backend,
        info: DeviceInfo,
        target: Target,
        settings: Settings,
        gate: DrainGate,
        freeing: Freeing,
        threads: Threads,
    ) -> None:
        """Open the store and read the signing key. Raises NnrtError for settings that don't work."""
        self._backend = backend
        self._info = info
        self._settings = settings
        self._threads = threads
        self.compilers = Compilers(settings)
        self.checks = Checks(backend, info.capabilities, settings)
        self.stored = StoredModels(backend, info, target, settings, self.compilers, gate, threads)
        is_needed = backend.has_opaque_exports
        secret = find_secret(settings, is_needed=is_needed, has_store=self.stored.has_store)
        self._signatures = Signatures(secret, target.kind, are_needed=is_needed)
        if settings.resident_bytes and not self.stored.has_store:
            message = "models that leave the device come back from the store; give --store-dir, too"
            raise InvalidParameter(message, place="--resident-bytes")
        self.residency = Residency(settings, freeing, self.stored.has, self.stored.find)
        self.shared = SharedModels(settings.sharing if backend.shares_models else "none", self.residency)
        self._groups = Groups(settings, self.compilers)
        self._known_parts = KnownParts()

    @property
    def changes(self) -> int:
        """Number of large models made, exported and closed so far, after each of which malloc keeps free memory."""
        return self.shared.changes + self.stored.exports

    def supported(self, session: Session, graph: Graph, progress: Progress) -> list[Support]:
        """Return for each node whether `prepare` would accept it."""
        with self.compilers.turn(session, Priority.NONE, progress):
            return self.checks.supported(infer_graph(graph))

    def prepare(self, model: ModelRequest, build: Build) -> Outcome:
        """Compile a model or load it from the store; or return the constants that the client must upload first.

        Raises InvalidParameter or Unsupported for a node that the device doesn't run, or for a model that can't be
        batched; OutOfMemory for an output above the limit; OperationForbidden for a config that the device can't
        honour.
        """
        build.progress("checking", 0.0)
        self.checks.require_config(build.config)
        group = self._groups.group_of(build, model)
        build = self.stored.identify(build, model)
        made = self._share(build, partial(self._compile, model, build))
        if group is not None and isinstance(made, Prepared):
            build.session.model(made.model_id).group = Member(group)
        return made

    def pin(self, session: Session, made: Prepared, cancellation: Cancellation) -> None:
        """Let a model stay on the device as long as the session has it. On failure the session releases it.

        Brings it back first if it is away. Raises OperationForbidden if the identity's role allows none, OutOfMemory if
        the identity pins too much, and what `LoadedModel.acquire` raises.
        """
        try:
            session.identity.require(Role.RESTORE, "a model that stays on the device (pin)")
            model = session.model(made.model_id)
            model.pin(partial(self.residency.pin, identity=str(session.identity)))
            with model.used(cancellation):  # Another session's model may be away.
                pass
        except BaseException:
            session.release_model(made.model_id)
            raise

    def _share(self, build: Build, make: Callable[[Making], Outcome]) -> Outcome:
        """Return the model that another session has, or that the store has, or that `make` makes."""
        found = self._find(build, build.recipe and build.recipe.key)
        if isinstance(found, SharedModel):
            return build.add(found, Origin.SHARED, ExitStack())
        with found as making:
            if (restored := self.stored.restore(build, making)) is not None:
                return restored
            making.end_work()  # The room that a failed restoration took.
            return make(making)

    def _compile(self, model: ModelRequest, build: Build, making: Making) -> Outcome:
        session, config, progress = build.session, build.config, build.progress
        session.identity.require(Role.COMPILE, "a model that the daemon doesn't have")
        checked = session.take_checked(model.digest)
        if checked is None:
            with self.compilers.turn(session, config.priority, progress):
                checked = self.checks.check(model.graph())
        known = checked.graph
        with ExitStack() as undo:
            found = session.constants.acquire(known)
            if isinstance(found, MissingConstants):
                session.keep_checked(model.digest, checked)
                making.await_constants()
                return found
            uploads = uploaded_digests(known)
            undo.callback(session.constants.release, uploads)
            inline_bytes = sum(entry.size_bytes for entry in known.constants.values() if entry.data is not None)
            session.reserve_for_model(inline_bytes, undo)

            def compile_it(progress: Progress) -> PreparedModel:
                return self._backend.prepare(found, config, partial(progress, "compiling"))

            size_bytes = sum(entry.size_bytes for entry in known.constants.values())
            return self.stored.compile(build, making, undo, compile_it, size_bytes, checked.notes, uploads)

    def _find(self, build: Build, made_of: Hashable) -> SharedModel | Making:
        """Return a model that sessions share, or work on it, as `SharedModels.find`; raise if the device is out."""
        if (reason := self.compilers.scheduler.suspended_for) is not None:
            raise reason.copy()
        return self.shared.find(build, made_of)

    def load_program(self, program: Program, build: Build) -> Outcome:
        """Load a program (a model file in the device's own format), from the store if it is there.

        Returns the constants that the client must upload first, if any is missing. Raises Unsupported if the daemon
        doesn't accept programs or the client asks for batching, OperationForbidden if the client's role allows none,
        and what `Backend.load_program` raises.
        """
        self._require_format(program.format)
        if build.batching is not None:
            raise Unsupported(
                "the daemon can't know whether it computes rows apart; load it as NNRt's operators, or without"
                " batching",
                place=f"a program of the format {program.format!r}",
            )
        build.progress("checking", 0.0)
        self.checks.require_config(build.config)
        build = self.stored.identify(build, program)
        return self._share(build, partial(self._load, program, build))

    def _load(self, program: Program, build: Build, making: Making) -> Outcome:
        session, config = build.session, build.config
        session.identity.require(Role.RESTORE, "a program that the daemon doesn't have")
        with ExitStack() as undo:
            parts = reserved_parts(session, program.buffers, undo)
            if isinstance(parts, MissingConstants):
                making.await_constants()
                return parts

            def load_it(progress: Progress) -> PreparedModel:
                with session.budget.reserved(self._backend.loading_bytes(parts, config)):
                    return self._backend.load_program(program.format, parts, config, partial(progress, "compiling"))

            size_bytes = sum(part.data.nbytes for part in parts)
            uploads = [constant.sha256 for constant in program.named_constants()]
            return self.stored.compile(build, making, undo, load_it, size_bytes, {}, uploads)

    def restore(self, buffers: Buffers, build: Build) -> Outcome:
        """Load a cache: a model that the device exported or that its vendor's tools compiled.

        Returns the constants that the client must upload first, if any is missing. A buffer is a constant, or bytes
        that are copied because the client may still write to them. With batching, the client guarantees that the model
        computes each row separately; its runs are batched only with those of clients that guarantee the same of the
        same bytes. Raises OperationForbidden for a cache that neither this daemon nor another one with its key has
        signed, if the client's role doesn't allow it or the backend can't inspect caches.
        """
        session, config, batching = build.session, build.config, build.batching
        self.checks.require_config(config)
        if not self._signatures.has_secret:  # Check before the client uploads anything.
            session.identity.require(Role.RESTORE, _UNSIGNED)
        build.progress("restoring", 0.0)
        found = self._find(build, None if batching is not None else _cache_key(buffers, config))
        if isinstance(found, Making):
            with found as making:
                return self._restore(buffers, build, making)
        if not found.is_signable:
            try:
                session.identity.require(Role.RESTORE, _UNSIGNED)
            except OperationForbidden:
                session.discard(found.release)
                raise
        return build.add(found, Origin.SHARED, ExitStack())

    def _restore(self, buffers: Buffers, build: Build, making: Making) -> Outcome:
        session, config, batching = build.session, build.config, build.batching
        with ExitStack() as undo:
            # A client that may restore any cache could give it right digests: check these in parallel.
            is_checked = self._signatures.has_secret
            parts = reserved_parts(session, buffers, undo, is_checked=is_checked)
            if isinstance(parts, MissingConstants):
                if not is_checked:
                    session.constants.check_later(parts.received_bytes, self._threads, self._known_parts)
                making.await_constants()
                return parts
            digests = [buffer.sha256 for buffer in buffers if isinstance(buffer, Constant)]
            parts, is_signed = self._require_trusted(session, parts)
            with self.compilers.turn(session, config.priority, build.progress), ExitStack() as unchecked:
                size_bytes = sum(part.data.nbytes for part in parts)
                making.begin_work(size_bytes)
                try:
                    own = replace(config, is_own=self._signatures.are_needed)
                    with session.budget.reserved(self._backend.loading_bytes(parts, own)):
                        prepared = making.make(partial(self._backend.restore, parts, own))
                    unchecked.callback(session.discard, prepared.close, undo)
                    if batching is not None:
                        require_open_rows(prepared)
                finally:  # Also after a failure of the backend: wrong bytes may have caused it, and must not stay.
                    # Other identities find runs to join, and models, by digests: these must be right for them.
                    is_own = batching is None and self._settings.sharing != "all"
                    session.constants.require_checked(digests, by_files=not is_checked and is_own)
                unchecked.pop_all()
            made = build.add_made(prepared, Origin.RESTORED, making.finish, undo, size_bytes, {}, is_signed=is_signed)
            if batching is not None:
                digest = b"".join(part.sha256 for part in parts)
                group = self._groups.group(build, digest, batching)
                session.model(made.model_id).group = Member(group)
            return made

    def export(self, session: Session, model_id: int, progress: Progress) -> list[tuple[int, int]]:
        """Export a model into buffers that `restore` accepts, and return their ids and sizes in bytes.

        Signs the parts if the daemon has a key, and either `LoadedModel.is_signable` or the backend can't inspect
        caches. Reserves as many bytes as the model was made from. Raises OutOfMemory, and what `PreparedModel.export`
        raises.
        """
        with ExitStack() as block:
            model = block.enter_context(session.model(model_id).used(progress.cancellation)).shared
            block.enter_context(self.compilers.turn(session, Priority.NONE, progress))
            with session.budget.reserved(model.size_bytes):
                parts = model.prepared.export()
                if self.stored.has_store:  # The model may leave, and the parts may be views of its memory.
                    parts = [Part(memoryview(bytes(part.data)), part.sha256) for part in parts]
            parts = self._signatures.sign(parts, is_program=not model.is_signable)
            exported = [part.data for part in parts]
            # A session that restores these parts gets the model itself.
            self.shared.add_key(model, _cache_key(parts, model.config), session)
            self.shared.note_change(model)
            buffer_ids = session.adopt_exported(model_id, exported)
            return [(buffer_id, data.nbytes) for buffer_id, data in zip(buffer_ids, exported, strict=True)]

    def _require_format(self, format: str) -> None:
        formats = self._backend.describe().capabilities.program_formats
        if format not in formats:
            known = f"it takes {', '.join(map(repr, formats))}" if formats else "it takes none"
            raise Unsupported(f"{self._info.device_name} takes no files of the format {format!r}; {known}")
        if not self._settings.takes_programs:
            raise Unsupported(
                f"this daemon takes no {format} files as they are (--accept-programs {self._settings.accept_programs});"
                " start it with --accept-programs always where all its clients may be trusted"
            )

    def _require_trusted(self, session: Session, parts: list[Part]) -> tuple[list[Part], bool]:
        """Return the parts of a cache without their signature, and whether it is signed with this daemon's key.

        Raises OperationForbidden or Unsupported if the client may not restore the cache.
        """
        is_signed = self._signatures.is_graph_signed(parts)
        must_be_program = self._signatures.are_needed and not is_signed
        if must_be_program and not self._signatures.is_program_signed(parts):
            raise OperationForbidden(
                f"the backend {self._info.backend_name} can't check caches, so this daemon restores only those that it"
                " has signed itself; compile the model again, and start daemons that share caches, or restore them"
                " after a restart, with the same --cache-key or --store-dir"
            )
        if must_be_program and not self._settings.takes_programs:
            raise Unsupported(
                f"the cache was made from a program, and this daemon takes none (--accept-programs"
                f" {self._settings.accept_programs})"
            )
        if not is_signed:
            session.identity.require(Role.RESTORE, _UNSIGNED)
        return parts[:-1] if has_signature(parts) else parts, is_signed


def _cache_key(parts: Sequence[Any], config: ModelConfig) -> Hashable:
    """Return what decides a restored model: the digests of its parts, and the configuration, which is checked, too.

    Returns None if the client may still change some of the parts.
    """
    if not all(isinstance(part, Constant | Part | bytes) for part in parts):
        return None
    digests = (part.sha256 if isinstance(part, Constant | Part) else sha256(part).digest() for part in parts)
    return (*digests, config.enable_float16, config.mode, frozenset(config.extensions.items()))
