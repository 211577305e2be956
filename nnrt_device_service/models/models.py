"""Models of sessions, from what clients ask for to what they run."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from nnrt_device_service.access.identity import Role
from nnrt_device_service.host.threads import Threads
from nnrt_device_service.memory.constants import MissingConstants, uploaded_digests
from nnrt_device_service.memory.shared_files import KnownParts
from nnrt_device_service.models.checks import Checks
from nnrt_device_service.models.compilations import Compilers, Progress
from nnrt_device_service.models.groups import Groups, require_open_rows
from nnrt_device_service.models.requests import Buffers, Build, ModelRequest, Outcome, Program, reserved_parts
from nnrt_device_service.models.signatures import Signatures, has_signature, secret_of
from nnrt_device_service.models.stored_models import StoredModels
from nnrt_device_service.scheduling.drain_gate import DrainGate
from nnrt_device_service.scheduling.joinable import Member
from nnrt_device_service.sessions.session import Prepared, Session
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import Backend, DeviceInfo, Origin, PreparedModel, Support
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import OperationForbidden, Unsupported
from nnrt_hdi.files.compiled import Target
from nnrt_hdi.graph import Constant, Graph
from nnrt_hdi.ops import infer_graph
from nnrt_hdi.part import Part

_UNSIGNED = "a cache that this daemon has not signed (--cache-key)"


class Models:
    """Makes models for sessions: of operators, of programs, of what was exported; and exports them."""

    def __init__(
        self, backend: Backend, info: DeviceInfo, target: Target, settings: Settings, gate: DrainGate, threads: Threads
    ) -> None:
        """Raises what settings raise that can't be."""
        self._backend = backend
        self._info = info
        self._settings = settings
        self._threads = threads
        self.compilers = Compilers(settings)
        self.checks = Checks(backend, info.capabilities, settings)
        self.stored = StoredModels(backend, info, target, settings, self.compilers, gate, threads)
        is_needed = backend.has_opaque_exports
        secret = secret_of(settings, is_needed=is_needed, has_store=self.stored.are_kept)
        self._signatures = Signatures(secret, target.kind, are_needed=is_needed)
        self._groups = Groups(settings, self.compilers)
        self._known_parts = KnownParts()

    def supported(self, session: Session, graph: Graph, progress: Progress) -> list[Support]:
        """Per node, whether `prepare` would take it."""
        with self.compilers.turn(session, Priority.NONE, progress):
            return self.checks.supported(infer_graph(graph))

    def prepare(self, model: ModelRequest, build: Build) -> Outcome:
        """Compile a model, or take it from the store, or say which constants to upload first.

        Raises InvalidParameter or Unsupported for a node the device doesn't run, or for batching of a model that
        isn't for it, OutOfMemory for one whose output is too large, OperationForbidden for a config the device can't
        honour.
        """
        build.progress("checking", 0.0)
        self.checks.require_config(build.config)
        group = self._groups.group_of(build, model)
        made = self._prepared(model, self.stored.known(build, model))
        if group is not None and isinstance(made, Prepared):
            build.session.model(made.model_id).group = Member(group)
        return made

    def _prepared(self, model: ModelRequest, build: Build) -> Outcome:
        if stored := self.stored.restored(build):
            return stored
        session, config, progress = build.session, build.config, build.progress
        session.identity.require(Role.COMPILE, "a model that the daemon's store doesn't have")
        checked = session.take_checked(model.digest)
        if checked is None:
            with self.compilers.turn(session, config.priority, progress):
                checked = self.checks.checked(model.graph())
        known = checked.graph
        with ExitStack() as undo:
            held = session.constants.hold(known)
            if isinstance(held, MissingConstants):
                session.keep_checked(model.digest, checked)
                return held
            undo.callback(session.constants.release, uploaded_digests(known))
            inline_bytes = sum(entry.size_bytes for entry in known.constants.values() if entry.data is not None)
            session.hold_for_model(inline_bytes, undo)
            compile_it = partial(self._backend.prepare, held, config, partial(progress, "compiling"))
            size_bytes = sum(entry.size_bytes for entry in known.constants.values())
            return self.stored.compiled(build, undo, compile_it, size_bytes, checked.notes)

    def load_program(self, program: Program, build: Build) -> Outcome:
        """Load a model file of a format of the device's own, from the store if it is there, or say which constants to
        upload first.

        Raises Unsupported where the daemon doesn't take programs, and for batching, OperationForbidden where the
        client may bring none, and what `Backend.load_program` raises.
        """
        self._require_format(program.format)
        if build.batching is not None:
            raise Unsupported(
                "whether it computes rows apart is known of NNRt's operators only; load it as operators, or without"
                " batching",
                place=f"a program of the format {program.format!r}",
            )
        session, config, progress = build.session, build.config, build.progress
        progress("checking", 0.0)
        self.checks.require_config(config)
        build = self.stored.known(build, program)
        if stored := self.stored.restored(build):
            return stored
        session.identity.require(Role.RESTORE, "a program that the daemon's store doesn't have")
        with ExitStack() as undo:
            parts = reserved_parts(session, program.buffers, undo)
            if isinstance(parts, MissingConstants):
                return parts

            def load_it() -> PreparedModel:
                with session.budget.reserved(self._backend.loading_bytes(parts, config)):
                    return self._backend.load_program(program.format, parts, config, partial(progress, "compiling"))

            return self.stored.compiled(build, undo, load_it, sum(part.data.nbytes for part in parts), {})

    def restore(self, buffers: Buffers, build: Build) -> Outcome:
        """Load a model the device exported, or one its vendor's tools compiled; or say which constants to upload first.

        A buffer is a constant, or bytes to be copied, because the client may go on writing them. With batching the
        client answers for it that rows are computed apart: its runs are joined only by those of others who say so of
        the same bytes. Raises OperationForbidden where the client may bring no cache that this daemon, or one with its
        key, has not signed; nobody may where the backend can't look into it.
        """
        session, config, batching = build.session, build.config, build.batching
        self.checks.require_config(config)
        if not self._signatures.are_made:  # Before anything is uploaded for it.
            session.identity.require(Role.RESTORE, _UNSIGNED)
        build.progress("restoring", 0.0)
        with ExitStack() as undo:
            # Whoever may bring any cache may bring one with the right digests: they are checked meanwhile.
            is_checked = self._signatures.are_made
            parts = reserved_parts(session, buffers, undo, is_checked=is_checked)
            if isinstance(parts, MissingConstants):
                if not is_checked:
                    session.constants.check_later(parts.received_bytes, self._threads, self._known_parts)
                return parts
            digests = [buffer.sha256 for buffer in buffers if isinstance(buffer, Constant)]
            parts, is_signed = self._trusted(session, parts)
            with self.compilers.turn(session, config.priority, build.progress), ExitStack() as unchecked:
                try:
                    own = replace(config, is_own=self._signatures.are_needed)
                    with session.budget.reserved(self._backend.loading_bytes(parts, own)):
                        prepared = self._backend.restore(parts, own)
                    unchecked.callback(session.discard, prepared, undo)
                    if batching is not None:
                        require_open_rows(prepared)
                finally:  # The backend may have failed for bytes that are wrong, which must not stay.
                    # Runs are joined by digests, which must be right then whatever is thought of a file.
                    session.constants.require_checked(digests, by_files=not is_checked and batching is None)
                unchecked.pop_all()
            made = build.add(prepared, Origin.RESTORED, undo, sum(part.data.nbytes for part in parts), is_signed, {})
            if batching is not None:
                digest = b"".join(part.sha256 for part in parts)
                group = self._groups.group(build, digest, batching)
                session.model(made.model_id).group = Member(group)
            return made

    def export(self, session: Session, model_id: int, progress: Progress) -> list[tuple[int, int]]:
        """Have the backend export a model: the buffers that hold its parts, by id and size, as `restore` takes them;
        signed where the daemon has a key and `LoadedModel.is_signable`, or the backend can't look into them.

        There is room before for as many bytes as the model was made of. Raises what `PreparedModel.export` raises, and
        OutOfMemory.
        """
        with session.model(model_id) as model, self.compilers.turn(session, Priority.NONE, progress):
            with session.budget.reserved(model.size_bytes):
                parts = model.prepared.export()
            parts = self._signatures.signed(parts, is_program=not model.is_signable)
            exported = [part.data for part in parts]
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

    def _trusted(self, session: Session, parts: list[Part]) -> tuple[list[Part], bool]:
        """The parts of a cache that the client may bring, without their signature, and whether that is of our key."""
        is_signed = self._signatures.is_of_graph(parts)
        must_be_program = self._signatures.are_needed and not is_signed
        if must_be_program and not self._signatures.is_of_program(parts):
            raise OperationForbidden(
                f"the backend {self._info.backend_name} can't look into compiled models, so this daemon restores those"
                " alone that it has signed itself, which this one isn't: compile the model again; where it is to last"
                " longer than a daemon or to be for several, start them with the same --cache-key or --store-dir"
            )
        if must_be_program and not self._settings.takes_programs:
            raise Unsupported(
                f"it was made of a program, and this daemon takes none (--accept-programs"
                f" {self._settings.accept_programs})"
            )
        if not is_signed:
            session.identity.require(Role.RESTORE, _UNSIGNED)
        return parts[:-1] if has_signature(parts) else parts, is_signed
