"""The device a daemon owns: a backend, the sessions that use it, and the rules between them. Knows no gRPC."""

import logging
import os
import secrets
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from nnrt_device_service.access.audit import AuditLog
from nnrt_device_service.access.counters import Usage
from nnrt_device_service.access.identity import Role
from nnrt_device_service.access.refusals import Refusals
from nnrt_device_service.core.batches import UNCOUNTED_BYTES, BatchedRun, Batches, require_open_rows
from nnrt_device_service.core.canary import CANARY, Accompanied, Canary
from nnrt_device_service.core.canary_model import first_taken
from nnrt_device_service.core.outputs import require_outputs
from nnrt_device_service.core.places import Places
from nnrt_device_service.core.started_runs import StartedRuns, failed_on_device
from nnrt_device_service.core.telemetry import TelemetryWatch
from nnrt_device_service.host.threads import Threads
from nnrt_device_service.models.compilations import Compilations, Progress
from nnrt_device_service.models.signatures import Signatures, has_signature, kept_secret, new_secret, read_secret
from nnrt_device_service.scheduling.compile_quota import CompileQuota
from nnrt_device_service.scheduling.drain_gate import DrainGate
from nnrt_device_service.scheduling.joinable import Member
from nnrt_device_service.scheduling.run_watch import CompileWatch, RunWatch
from nnrt_device_service.scheduling.scheduler import Scheduler
from nnrt_device_service.sessions.constants import MissingConstants, uploaded_digests
from nnrt_device_service.sessions.device_memory import DeviceHeap, DevicePlace
from nnrt_device_service.sessions.freeing import Freeing
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.registry import SessionRegistry
from nnrt_device_service.sessions.session import CheckedModel, Prepared, Session
from nnrt_device_service.sessions.shared_files import KnownParts
from nnrt_device_service.settings import DeviceOut, LimitReached, Settings
from nnrt_hdi import __version__
from nnrt_hdi.backend import (
    Backend,
    Cancellation,
    Capabilities,
    DeviceInfo,
    DeviceState,
    ModelConfig,
    Origin,
    PreparedModel,
    Support,
    require_description,
)
from nnrt_hdi.batching import Batching
from nnrt_hdi.counters import DeviceCounters, DeviceLoad
from nnrt_hdi.enums import DeviceStatus, PerformanceMode, Priority
from nnrt_hdi.errors import (
    InvalidFile,
    InvalidParameter,
    NnrtError,
    OperationForbidden,
    OutOfMemory,
    UnavailableDevice,
    UnknownHandle,
    Unsupported,
)
from nnrt_hdi.files.compiled import CompiledModel, Target
from nnrt_hdi.files.model_store import ModelStore
from nnrt_hdi.files.store_directory import SHOWN_KEY, Recipe
from nnrt_hdi.graph import Constant, Graph
from nnrt_hdi.host_limits import memory_limit
from nnrt_hdi.ops import Inference, infer_graph
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import Array, TensorSpec

_log = logging.getLogger(__name__)

# What the backend gets, when the daemon ends, to free what nobody uses any more.
FREE_S = 3.0
# How many models are stored while their clients run them already. More would be kept in memory for a slow disk.
_WRITERS = 2

# Of the host's memory, what clients may hold, and as much again what runs may make. The rest is for the daemon itself,
# its messages, and what libraries take beside tensors.
_MEMORY_SHARE = 3 / 8
# Different notes about the nodes of a model that its client is told.
_MOST_NOTES = 16
_NO_NOTES: Mapping[str, int] = {}
_UNSIGNED = "a cache that this daemon has not signed (--cache-key)"
_INPUT_UNKNOWN = "the device needs every dimension of an input; fix those that are unknown"


Buffers = Sequence[Constant | bytes | memoryview | DevicePlace]


class Request(Protocol):
    """What a client asks to have compiled, as far as the store must know it."""

    @property
    def digest(self) -> bytes:
        """SHA-256 of all that decides what is compiled."""

    def named_constants(self) -> Sequence[Constant]:
        """The constants that are to be uploaded. Asked only for what has been compiled before."""


class ModelRequest(Request, Protocol):
    """A model as a client asks for it. What the store has needs neither the graph nor its checks."""

    def graph(self) -> Graph:
        """The graph, without the data of those constants that are to be uploaded."""


@dataclass(frozen=True, slots=True)
class Program:
    """A model file in a format of the device's own, as a client asks for it."""

    format: str
    buffers: Sequence[Constant | bytes]

    @property
    def digest(self) -> bytes:
        """SHA-256 of the format and of every buffer."""
        digests = [entry.sha256 if isinstance(entry, Constant) else sha256(entry).digest() for entry in self.buffers]
        return sha256(b"\0".join((b"program", self.format.encode(), b"".join(digests)))).digest()

    def named_constants(self) -> Sequence[Constant]:
        """The buffers that are to be uploaded."""
        return [entry for entry in self.buffers if isinstance(entry, Constant)]


class Device:
    """Does for clients what the daemon is for: says what it supports, compiles, restores and runs."""

    def __init__(self, backend: Backend, settings: Settings, described: DeviceInfo | None = None) -> None:
        """Without its description, asked and checked already, the backend is asked for it."""
        try:
            settings.name.encode()
        except UnicodeEncodeError as error:  # Nobody could be told of it.
            raise InvalidParameter(f"{settings.name!r} is not in UTF-8", place="--name") from error
        self._backend = backend
        self._settings = settings
        described = described or require_description(backend.describe(), settings.backend)
        if not settings.takes_programs:
            described = replace(described, capabilities=without_programs(described.capabilities))
        self.info = replace(described, device_name=settings.name or described.device_name)
        # To the store a device is what the backend and its options make of it, whatever its name in the fleet.
        options = (f"{name}={value}" for name, value in sorted(settings.backend_options().items()))
        self._target = Target.of(described, shlex.join((described.device_name, *options)))
        # What decides, besides the backend, which models are taken: what is in the store has passed these checks.
        self._rules = repr((__version__, settings.tensor_bytes, without_programs(described.capabilities))).encode()
        self._store = self._opened_store()
        self._signatures = Signatures(self._secret(), self._target.kind, are_needed=backend.has_opaque_exports)
        self._compilations = Compilations()
        self._known_parts = KnownParts()
        self.threads = Threads("device")
        self.audit = AuditLog(settings.audit_log)
        # Half of a host's connections are left to those who get in.
        self.refusals = Refusals(self.audit, settings.connections_of_a_host // 2)
        self.instance_id = secrets.token_bytes(16)
        share_bytes = int(memory_limit().value * _MEMORY_SHARE)
        self.freeing = Freeing(self.threads)
        self.sessions = SessionRegistry(settings, settings.held_bytes or share_bytes, self.freeing)
        self._run_limit_bytes = run_bytes = settings.run_bytes or share_bytes
        self._heap = DeviceHeap(backend.allocate, self.freeing, self.info.device_name)
        backend.start(run_bytes, accepts_programs=bool(described.capabilities.program_formats))
        self._slots = settings.concurrent_runs or backend.concurrent_runs
        queued_runs = settings.queued_runs
        self.scheduler = Scheduler(
            self._slots,
            queued_runs,
            settings.priority_ageing_s,
            identity_runs=settings.share_of(queued_runs),
            run_bytes=run_bytes,
        )
        self.gate = DrainGate()
        self.started_runs = StartedRuns(self.scheduler, self.gate)
        self.batches = Batches(self.scheduler, settings, self.sessions.counters.batches)
        compilers = settings.concurrent_compilations or max((os.cpu_count() or 1) // 2, 2)
        # There are no more compilations than calls.
        self._compilers = Scheduler(compilers, sys.maxsize, settings.priority_ageing_s)
        self._compile_watch = CompileWatch(settings.max_compile_s, settings.stuck_s)
        self._run_watch = RunWatch(settings.max_run_s, settings.stuck_s, self._compile_watch)
        self._compile_quota = CompileQuota(settings.identity_compile_s)
        # Why the device can't be used any more; empty while it can.
        self.stuck = ""
        # What tries the device, from `start_canary` on; None where nothing does.
        self.canary: Canary | None = None
        # What the device measures of itself, from its `start` on.
        self.telemetry = TelemetryWatch(backend)
        self._writers = threading.BoundedSemaphore(_WRITERS)

    @property
    def keeps_models(self) -> bool:
        """Whether what it compiles is in its store afterwards, if there is room."""
        return self._store is not None

    @property
    def status(self) -> DeviceStatus:
        if self.gate.is_closed or (self.canary is not None and self.canary.is_out):
            return DeviceStatus.OFFLINE
        return DeviceStatus.BUSY if self.scheduler.queued else DeviceStatus.AVAILABLE

    @property
    def state(self) -> DeviceState:
        return DeviceState(
            status=self.status,
            is_draining=self.gate.is_closed,
            running=self.scheduler.running,
            queued=self.scheduler.queued,
            held_bytes=self.sessions.held_bytes,
            sessions=len(self.sessions),
            out=self.out,
            telemetry=self.telemetry.latest,
        )

    @property
    def out(self) -> str:
        """Why the device takes no work until its canary is right again; empty while it isn't out."""
        return self.canary.state.why if self.canary is not None else ""

    def start_canary(self, on_change: Callable[[], object]) -> None:
        """Try the device, if the settings ask for it, now and from then on. `on_change` is called when it goes out or
        comes back.

        Raises Unsupported where the device runs none of the models there are for it, and what `Backend.prepare` raises.
        """
        if not self._settings.canary:
            return
        model = first_taken(lambda graph: self._checked(graph).graph)
        config = ModelConfig(max_tensor_bytes=self._settings.tensor_bytes)
        compiled = self._backend.prepare(model.graph, config, lambda fraction: None)
        scheduler = self.scheduler
        prepared = Accompanied(
            compiled,
            has_company=lambda: scheduler.running > 1,
            is_compiling=lambda: any(run.compiling_since_ns is not None for run in scheduler.on_device()),
        )
        session = self.sessions.own_session(CANARY)
        self.open_account(session, "")
        self.scheduler.privilege(session.account)
        loaded = session.model(session.add_model(prepared, lambda: None))

        def run(inputs: Sequence[Array], cancellation: Cancellation) -> tuple[list[Array], int, int]:
            outputs, known, queued_ns, computed_ns = self.run(session, loaded, inputs, cancellation)
            require_outputs(self.info.device_name, loaded.outputs, outputs, known)
            return outputs, queued_ns, computed_ns

        self.canary = Canary(model, prepared, session, run, self.threads, self._settings, self._set_out, on_change)
        self.canary.start()

    def stop_canary(self) -> bool:
        """Try the device no more; whether it isn't under way any longer. Idempotent."""
        return self.canary is None or self.canary.stop()

    def _set_out(self, why: str) -> None:
        """Take no work for a reason, or take it again where there is none."""
        reason = DeviceOut(f"the device is out: {why}; have it done by another one, or when this one is back")
        for scheduler in (self.scheduler, self._compilers):
            scheduler.suspend(reason) if why else scheduler.resume()

    def open_account(self, session: Session, user: str) -> None:
        """Have what a session takes of the device's time count as this user's, of those its identity has."""
        identity = str(session.identity)
        session.account = self.scheduler.account(identity, user, session.usage.runs)
        session.compilations = self._compilers.account(identity, user, session.usage.compilations)

    def counters(self, session: Session) -> DeviceCounters:
        """What has been done for the session's identity, or for all if it may administer the daemon."""
        return self.told_counters(None if session.identity.role is Role.ADMINISTER else session.usage)

    def told_counters(self, usage: Usage | None) -> DeviceCounters:
        """What has been done for one identity, or for all, and how the device is used."""
        running_ns = self.scheduler.under_way_ns()
        told = self.sessions.told_counters(usage, {**running_ns, **self._compilers.under_way_ns()})
        load = DeviceLoad(
            slots=self._slots,
            busy_s=self.sessions.counters.busy_s(running_ns),
            running=self.scheduler.running,
            queued=self.scheduler.queued,
            queued_limit=self._settings.queued_runs,
            sessions=len(self.sessions),
            sessions_limit=self._settings.max_sessions,
            held_bytes=self.sessions.held_by_kind(),
            held_limit_bytes=self.sessions.held_limit_bytes,
            run_bytes=self.scheduler.run_bytes,
            run_limit_bytes=self._run_limit_bytes,
            batches=self.sessions.counters.batches.told(),
        )
        return replace(told, load=load)

    def supported(self, session: Session, graph: Graph, progress: Progress) -> list[Support]:
        """Per node, whether `prepare` would take it."""
        with self._compiler(session, Priority.NONE, progress):
            return self._supported(infer_graph(graph))

    def prepare(
        self,
        session: Session,
        model: ModelRequest,
        config: ModelConfig,
        progress: Progress,
        batching: Batching | None = None,
    ) -> Prepared | MissingConstants:
        """Compile a model, or take it from the store, or say which constants to upload first.

        Raises InvalidParameter or Unsupported for a node the device doesn't run, or for `batching` of a model that
        isn't for it, OutOfMemory for one whose output is too large, OperationForbidden for a config the device can't
        honour.
        """
        progress("checking", 0.0)
        self._check_config(config)
        compiler = partial(self._compiler, session, config.priority, progress)
        group = self.batches.group_of(session, model, config, batching, compiler)
        made = self._prepared(session, model, config, progress)
        if group is not None and isinstance(made, Prepared):
            session.model(made.model_id).group = Member(group)
        return made

    def _prepared(
        self, session: Session, model: ModelRequest, config: ModelConfig, progress: Progress
    ) -> Prepared | MissingConstants:
        recipe = self._recipe(model, config)
        if stored := self._stored(session, model, recipe, config, progress):
            return stored
        session.identity.require(Role.COMPILE, "a model that the daemon's store doesn't have")
        checked = session.take_checked(model.digest)
        if checked is None:
            with self._compiler(session, config.priority, progress):
                checked = self._checked(model.graph())
        known = checked.graph
        with ExitStack() as undo:
            held = session.constants.hold(known)
            if isinstance(held, MissingConstants):
                session.checked = model.digest, checked  # Its client sends them and asks again.
                return held
            undo.callback(session.constants.release, uploaded_digests(known))
            inline_bytes = sum(entry.size_bytes for entry in known.constants.values() if entry.data is not None)
            session.hold_for_model(inline_bytes, undo)
            compile_it = partial(self._backend.prepare, held, config, partial(progress, "compiling"))
            size_bytes = sum(entry.size_bytes for entry in known.constants.values())
            return self._compiled(session, model, recipe, config, progress, undo, compile_it, size_bytes, checked.notes)

    def load_program(
        self,
        session: Session,
        program: Program,
        config: ModelConfig,
        progress: Progress,
        batching: Batching | None = None,
    ) -> Prepared | MissingConstants:
        """Load a model file of a format of the device's own, from the store if it is there, or say which constants to
        upload first.

        Raises Unsupported where the daemon doesn't take programs, and for `batching`, OperationForbidden where the
        client may bring none, and what `Backend.load_program` raises.
        """
        self._require_format(program.format)
        if batching is not None:
            raise Unsupported(
                "whether it computes rows apart is known of NNRt's operators only; load it as operators, or without"
                " batching",
                place=f"a program of the format {program.format!r}",
            )
        progress("checking", 0.0)
        self._check_config(config)
        recipe = self._recipe(program, config)
        if stored := self._stored(session, program, recipe, config, progress):
            return stored
        session.identity.require(Role.RESTORE, "a program that the daemon's store doesn't have")
        with ExitStack() as undo:
            parts = self._held(session, program.buffers, undo)
            if isinstance(parts, MissingConstants):
                return parts

            def load_it() -> PreparedModel:
                with session.budget.reserved(self._backend.loading_bytes(parts, config)):
                    return self._backend.load_program(program.format, parts, config, partial(progress, "compiling"))

            return self._compiled(session, program, recipe, config, progress, undo, load_it, _size_of(parts))

    def restore(
        self,
        session: Session,
        buffers: Buffers,
        config: ModelConfig,
        progress: Progress,
        batching: Batching | None = None,
    ) -> Prepared | MissingConstants:
        """Load a model the device exported, or one its vendor's tools compiled; or say which constants to upload first.

        A buffer is a constant, or bytes to be copied, because the client may go on writing them. With `batching` the
        client answers for it that rows are computed apart: its runs are joined only by those of others who say so of
        the same bytes. Raises OperationForbidden where the client may bring no cache that this daemon, or one with its
        key, has not signed; nobody may where the backend can't look into it.
        """
        self._check_config(config)
        if not self._signatures.are_made:  # Before anything is uploaded for it.
            session.identity.require(Role.RESTORE, _UNSIGNED)
        progress("restoring", 0.0)
        with ExitStack() as undo:
            # Whoever may bring any cache may bring one with the right digests: they are checked meanwhile.
            is_checked = self._signatures.are_made
            parts = self._held(session, buffers, undo, is_checked=is_checked)
            if isinstance(parts, MissingConstants):
                if not is_checked:
                    session.constants.check_later(parts.received_bytes, self.threads, self._known_parts)
                return parts
            digests = [buffer.sha256 for buffer in buffers if isinstance(buffer, Constant)]
            parts, is_signed = self._trusted(session, parts)
            with self._compiler(session, config.priority, progress), ExitStack() as unchecked:
                try:
                    own = replace(config, is_own=self._signatures.are_needed)
                    with session.budget.reserved(self._backend.loading_bytes(parts, own)):
                        prepared = self._backend.restore(parts, own)
                    unchecked.callback(self._discard, prepared, undo)
                    if batching is not None:
                        require_open_rows(prepared)
                finally:  # The backend may have failed for bytes that are wrong, which must not stay.
                    # Runs are joined by digests, which must be right then whatever is thought of a file.
                    session.constants.require_checked(digests, by_files=not is_checked and batching is None)
                unchecked.pop_all()
            made = self._added(session, prepared, Origin.RESTORED, undo, config.priority, _size_of(parts), is_signed)
            if batching is not None:
                digest = b"".join(part.sha256 for part in parts)
                group = self.batches.group(session, digest, config, batching)
                session.model(made.model_id).group = Member(group)
            return made

    def export(self, session: Session, model_id: int, progress: Progress) -> list[tuple[int, int]]:
        """Have the backend export a model: the buffers that hold its parts, by id and size, as `restore` takes them;
        signed where the daemon has a key and `LoadedModel.is_signable`, or the backend can't look into them.

        There is room before for as many bytes as the model was made of. Raises what `PreparedModel.export` raises, and
        OutOfMemory.
        """
        with session.model(model_id) as model, self._compiler(session, Priority.NONE, progress):
            with session.budget.reserved(model.size_bytes):
                parts = model.prepared.export()
            parts = self._signatures.signed(parts, is_program=not model.is_signable)
            exported = [part.data for part in parts]
            buffer_ids = session.adopt_exported(model_id, exported)
            return [(buffer_id, data.nbytes) for buffer_id, data in zip(buffer_ids, exported, strict=True)]

    def allocate(self, session: Session, length: int) -> int:
        """A buffer of that many zero bytes, in memory of the device where the backend offers that. Raises as
        `BufferPool.allocate`."""
        return session.buffers.allocate(length, to_share=session.local_peer is not None, heap=self._heap)

    def run(
        self,
        session: Session,
        model: LoadedModel,
        inputs: Sequence[Array],
        cancellation: Cancellation,
        places: Places | None = None,
        prepared: PreparedModel | None = None,
    ) -> tuple[list[Array], Sequence[TensorSpec], int, int]:
        """Run a model of the session as soon as a slot is free: what the backend gives for its outputs, at which nobody
        has looked (`require_outputs`), what was known of them before, and the nanoseconds that the run waited and
        computed. `places` are for its outputs; `prepared` takes the place of the model's own.

        Raises UnavailableDevice where the device fails. The way of every run: what it enters, it leaves by hand.
        """
        computed_ns = 0
        model.acquire()
        try:
            session.cancellations.add(cancellation)
            if not session.is_open:
                cancellation.cancel()
            if len(inputs) != len(model.inputs):
                require_input_count(model.inputs, len(inputs))
            for index, (form, array) in enumerate(zip(model.inputs, inputs, strict=True)):
                latest = form.latest
                is_known = latest is not None and array.shape == latest.shape
                if array.dtype != form.dtype or not (is_known or form.of_run(array.shape)):
                    raise _misfit(index, form.spec, array)
            asked = time.perf_counter_ns()
            if model.group is not None and prepared is None:
                run = self.batches.joined(session, model, inputs, cancellation)
                if run is not None:
                    computed_ns = run.computed_ns
                    return run.outcome, (), run.began_ns - asked, computed_ns
            self.scheduler.acquire(session.account.flows[model.rank], cancellation)
            try:
                cancellation.began_ns = began = time.perf_counter_ns()
                prepared = prepared or model.prepared
                sizes = prepared.sizes(inputs)
                if places is not None and not places.are_known:
                    places.learn(sizes.outputs)
                arrays = places.arrays if places is not None else ()
                peak_bytes = sizes.peak_bytes
                if peak_bytes < UNCOUNTED_BYTES:
                    results = prepared.run(inputs, cancellation, arrays)
                else:
                    # Memory that the outputs are given counts in the session already.
                    more_bytes = max(peak_bytes - sum(array.nbytes for array in arrays if array is not None), 0)
                    with session.budget.reserved(more_bytes):
                        self.scheduler.reserve(cancellation, peak_bytes)
                        cancellation.began_ns = began = time.perf_counter_ns()
                        results = prepared.run(inputs, cancellation, arrays)
                if cancellation.is_cancelled:  # Whether the backend has looked or not.
                    cancellation.check()
                computed_ns = time.perf_counter_ns() - began
            except (NnrtError, MemoryError):
                raise
            except BaseException as error:  # One that exits, or is cancelled, would leave the run without an end.
                raise failed_on_device(error) from error
            finally:
                busy_ns = computed_ns or time.perf_counter_ns() - began
                self.scheduler.release(cancellation, busy_ns)
            return results, sizes.outputs, began - asked, computed_ns
        finally:
            session.cancellations.discard(cancellation)
            model.release(computed_ns)

    def run_together(self, runs: Sequence[BatchedRun]) -> None:
        """Have each of these runs, of one bucket, end with an outcome; one that is to run alone is given to `run`."""
        acquired = []
        try:
            for run in runs:
                try:
                    run.model.acquire()
                except UnknownHandle as error:
                    run.settle(error)
                    continue
                acquired.append(run)
                run.session.cancellations.add(run.cancellation)
                if not run.session.is_open:
                    run.cancellation.cancel()
            if acquired:
                self.batches.settle(acquired)
        finally:
            for run in acquired:
                run.session.cancellations.discard(run.cancellation)
                run.model.release(run.computed_ns)

    def damage(self) -> str:
        """Say which file of the store has been cut short under a model that runs; empty mostly."""
        return "" if self._store is None else self._store.damage()

    def look_after_work(self) -> None:
        """End runs and compilations that last too long. Where one doesn't end, say so in `stuck`, and take no new
        work."""
        self.stuck = (
            self.stuck
            or self._run_watch.look(self.scheduler.on_device())
            or self._stuck_in_what_it_was_asked()
            or self._compile_watch.look(self._compilers.on_device())
        )
        if self.stuck:
            self.gate.close(0.0)
        self.freeing.go_on()

    def _stuck_in_what_it_was_asked(self) -> str:
        """Look after what isn't computed, but has to end as a run has."""
        found = (self._run_watch.look([asked], f"an attempt to {doing}") for asked, doing in self.freeing.asked)
        return next(filter(None, found), "")

    def close(self, timeout_s: float) -> bool:
        """Let go of the accelerator when all work has ended and all is free; whether that came in time, and in FREE_S
        more where the backend is slow to free. If not, it is left as it is."""
        ended = self.gate.close(timeout_s)
        ended = self.stop_canary() and ended
        ended = self.telemetry.stop() and ended
        self.freeing.go_on()
        self.freeing.settle(FREE_S)
        ended = ended and self.freeing.await_all(timeout_s)
        self.started_runs.close()
        self.threads.close()
        if ended:
            self._backend.close()
        self.refusals.summarize(is_last=True)
        self.audit.close()
        return ended

    def _require_format(self, format: str) -> None:
        formats = self._backend.describe().capabilities.program_formats
        if format not in formats:
            known = f"it takes {', '.join(map(repr, formats))}" if formats else "it takes none"
            raise Unsupported(f"{self.info.device_name} takes no files of the format {format!r}; {known}")
        if not self._settings.takes_programs:
            raise Unsupported(
                f"this daemon takes no {format} files as they are (--accept-programs {self._settings.accept_programs});"
                " start it with --accept-programs always where all its clients may be trusted"
            )

    def _held(
        self, session: Session, buffers: Buffers, undo: ExitStack, *, is_checked: bool = True
    ) -> list[Part] | MissingConstants:
        """The buffers as parts, kept in the session until `undo`; or what of them isn't here."""
        named = [buffer for buffer in buffers if isinstance(buffer, Constant)]
        # Each may name the same gigabyte, so the copies count.
        copied_bytes = sum(len(buffer) for buffer in buffers if not isinstance(buffer, Constant))
        held = session.constants.hold_all(named, is_checked=is_checked)
        if isinstance(held, MissingConstants):
            return held
        undo.callback(session.constants.release, [constant.sha256 for constant in named])
        session.hold_for_model(copied_bytes, undo)
        return [
            Part(held[buffer.sha256].data, buffer.sha256) if isinstance(buffer, Constant) else Part.of(bytes(buffer))
            for buffer in buffers
        ]

    def _trusted(self, session: Session, parts: list[Part]) -> tuple[list[Part], bool]:
        """The parts of a cache that the client may bring, without their signature, and whether that is of our key."""
        is_signed = self._signatures.is_of_graph(parts)
        if self._signatures.are_needed and not is_signed:
            self._require_own_program(parts)
        if not is_signed:
            session.identity.require(Role.RESTORE, _UNSIGNED)
        return parts[:-1] if has_signature(parts) else parts, is_signed

    def _require_own_program(self, parts: Sequence[Part]) -> None:
        if not self._signatures.is_of_program(parts):
            raise OperationForbidden(
                f"the backend {self.info.backend_name} can't look into compiled models, so this daemon restores those"
                " alone that it has signed itself, which this one isn't: compile the model again; where it is to last"
                " longer than a daemon or to be for several, start them with the same --cache-key or --store-dir"
            )
        if not self._settings.takes_programs:
            raise Unsupported(
                f"it was made of a program, and this daemon takes none (--accept-programs"
                f" {self._settings.accept_programs})"
            )

    def _checked(self, graph: Graph) -> CheckedModel:
        """The graph as well as it can be known. Raises what `prepare` says of its nodes."""
        inferred = infer_graph(graph)
        inferred.raise_first_problem()
        known = inferred.graph
        self._require_known_inputs(known)
        notes: Counter[str] = Counter()
        for index, support in enumerate(self._supported(inferred)):
            if support.supported:
                notes.update([support.note] if support.note else ())
                continue
            if too_large := self._too_large(known, index):
                raise LimitReached(too_large, "--tensor-bytes", place=known.place(index))
            raise Unsupported(support.reason, place=known.place(index))
        return CheckedModel(known, dict(notes.most_common(_MOST_NOTES)))

    @contextmanager
    def _compiler(self, session: Session, priority: Priority, progress: Progress) -> Iterator[None]:
        """Let the backend work on a model in this block, in the user's turn, unless its client gives up before.

        Raises OutOfMemory where the identity has spent all that it has of such time.
        """
        identity, cancellation, busy_ns = str(session.identity), progress.cancellation, 0
        session.cancellations.add(cancellation)
        try:
            if not session.is_open:
                cancellation.cancel()
            self._compile_quota.require_room(identity)
            if not self._compilers.has_free_slot:
                progress("waiting", 0.0)
            self._compilers.acquire(session.compilations.flows[priority.rank], cancellation)
            try:
                self._compile_quota.require_room(identity)  # Others of its compilations have ended meanwhile.
                cancellation.began_ns = began_ns = time.perf_counter_ns()
                try:
                    yield
                finally:
                    cancellation.began_ns = None
                    busy_ns = time.perf_counter_ns() - began_ns
                    self._compile_quota.spend(identity, busy_ns / 1e9)
            finally:
                self._compilers.release(cancellation, busy_ns)
        finally:
            session.cancellations.discard(cancellation)

    def _recipe(self, model: Request, config: ModelConfig) -> Recipe | None:
        """Make the recipe by which the store knows a model; None where there is no store."""
        if self._store is None:
            return None
        return Recipe(self._target, sha256(model.digest + self._rules).digest(), config)

    def _compiled(
        self,
        session: Session,
        model: Request,
        recipe: Recipe | None,
        config: ModelConfig,
        progress: Progress,
        undo: ExitStack,
        compile_it: Callable[[], PreparedModel],
        size_bytes: int,
        notes: Mapping[str, int] = _NO_NOTES,
    ) -> Prepared:
        """The model as the backend compiles it, which the store keeps; or from there, if another session was faster."""
        with ExitStack() as compiling:
            if self._store and recipe:
                compiling.enter_context(self._compilations.begin(recipe.key, lambda: progress("compiling", 0.0)))
                if stored := self._stored(session, model, recipe, config, progress):
                    return stored
            with self._compiler(session, config.priority, progress):
                prepared = compile_it()
            made = self._added(
                session, prepared, Origin.COMPILED, undo, config.priority, size_bytes, _is_signable(model), notes
            )
            self._keep(recipe, session, made, compiling.pop_all())
            return made

    def _stored(
        self, session: Session, model: Request, recipe: Recipe | None, config: ModelConfig, progress: Progress
    ) -> Prepared | None:
        """The model from the store, if it is there and all is well with it, and the session has room for it."""
        if self._store is None or recipe is None:
            return None
        self._compilations.await_writing(recipe.key, lambda: progress("restoring", 0.0))
        size_bytes = self._store.size_of(recipe.key)
        if size_bytes is None:
            return None
        progress("restoring", 0.0)
        with ExitStack() as undo, ExitStack() as meanwhile:
            meanwhile.enter_context(self._compiler(session, config.priority, progress))
            try:
                # Making room for it must not drop what a compilation would need.
                meanwhile.enter_context(session.constants.holding(model.named_constants()))
                session.hold_for_model(size_bytes, undo)
                compiled = self._store.load(recipe.key)
                if compiled is None:
                    return None
                prepared = self._backend.restore(compiled.parts, replace(config, is_own=True))
                if (prepared.inputs, prepared.outputs) != (compiled.inputs, compiled.outputs):
                    self._discard(prepared, undo)
                    raise InvalidFile("it holds another model than its manifest says")
            except (MemoryError, OutOfMemory) as error:
                _log.warning("the stored model %s finds no room: %s", recipe.key[:SHOWN_KEY], error)
                return None
            except (InvalidFile, Unsupported) as error:
                self._store.remove(recipe.key, f"the backend does not restore it: {error!r}")
                return None
            except BaseException:  # Not the file's fault as far as anybody knows; without it the backend can compile.
                _log.exception("the stored model %s is compiled again: it can't be restored", recipe.key[:SHOWN_KEY])
                return None
            _log.info(
                "restored model %s from the store for client %s",
                recipe.key[:SHOWN_KEY],
                session.client,
                extra=session.names,
            )
            return self._added(
                session,
                prepared,
                Origin.STORED,
                undo,
                config.priority,
                size_bytes,
                _is_signable(model),
                compiled.notes,
            )

    def _keep(self, recipe: Recipe | None, session: Session, made: Prepared, compiling: ExitStack) -> None:
        """Store a model while its client runs it already. `compiling` is left when it is in the store."""
        with ExitStack() as block:
            block.push(compiling)
            if self._store is None or recipe is None:
                return
            try:
                prepared = block.enter_context(session.model(made.model_id)).prepared
            except UnknownHandle:  # Its client has given it up.
                return
            self._compilations.begin_writing(recipe.key)
            is_later = self._may_write_later(block)
            writing = partial(self._write, recipe, prepared, made.notes, block.pop_all())
        if is_later:
            with suppress(OutOfMemory):  # No thread is left for it.
                self.threads.run(writing)
                return
        writing()

    def _may_write_later(self, block: ExitStack) -> bool:
        """Whether a model may be stored when its client has been answered. What that takes is held by the block."""
        if not self._writers.acquire(blocking=False):
            return False
        block.callback(self._writers.release)
        try:
            block.enter_context(self.gate.admit())
        except UnavailableDevice:  # The daemon drains, and waits for this call only.
            return False
        return True

    def _write(self, recipe: Recipe, prepared: PreparedModel, notes: Mapping[str, int], block: ExitStack) -> None:
        """Have the store write a model, and leave the block."""
        assert self._store is not None
        with block:
            try:
                compiled = CompiledModel(
                    target=recipe.target,
                    source_digest=recipe.source_digest,
                    config=recipe.config,
                    inputs=prepared.inputs,
                    outputs=prepared.outputs,
                    version=0,  # That is for caches of applications.
                    parts=prepared.export(),
                    notes=notes,
                )
                self._store.keep(compiled)
            except BaseException:  # The model works; that it isn't there the next time is no reason to refuse it now.
                _log.exception("model %s is not stored: the backend failed to export it", recipe.key[:SHOWN_KEY])

    def _opened_store(self) -> ModelStore | None:
        if not self._settings.store_dir:
            return None
        path, quota_bytes = self._settings.store_dir, self._settings.store_bytes
        store = ModelStore(Path(path), quota_bytes, place=f"--store-dir {path!r}", quota="--store-bytes")
        if self.info.capabilities.model_cache:
            return store
        _log.warning("the backend %s exports no models, so none are stored", self.info.backend_name)
        return None

    def _secret(self) -> bytes | None:
        """The secret that signs exports; None where nothing needs one."""
        if self._settings.cache_key:
            return read_secret(Path(self._settings.cache_key), f"--cache-key {self._settings.cache_key!r}")
        if not self._backend.has_opaque_exports:
            return None
        return new_secret() if self._store is None else kept_secret(Path(self._settings.store_dir))

    def _added(
        self,
        session: Session,
        prepared: PreparedModel,
        origin: Origin,
        undo: ExitStack,
        priority: Priority,
        size_bytes: int,
        is_signable: bool,
        notes: Mapping[str, int] = _NO_NOTES,
    ) -> Prepared:
        """Give a model to the session, with what to undo when the model is closed: at once where it isn't taken."""
        if prepared.kept_bytes:
            try:
                session.hold_for_model(prepared.kept_bytes, undo)
            except BaseException:
                self._discard(prepared, undo)
                raise
        model_id = session.add_model(prepared, undo.pop_all().close, priority, size_bytes, is_signable)
        session.usage.count_model(origin.name)
        return Prepared(model_id, prepared.inputs, prepared.outputs, origin, notes)

    def _discard(self, prepared: PreparedModel, undo: ExitStack) -> None:
        """Close a model that nobody gets, and only then undo what was done for it."""
        with self.freeing.awaited():
            LoadedModel(prepared, self.freeing, undo.pop_all().close).release()

    def _supported(self, inferred: Inference) -> list[Support]:
        """Answers about the nodes that were given, of which each stands for one that inference added to it."""
        graph = inferred.graph
        answers = []
        unknown = self._unknown_inputs(graph)
        for index, support in enumerate(self._backend.supported(graph)):
            problem = inferred.problems.get(index)
            reason = problem.message if problem else self._too_large(graph, index)
            if not reason and unknown and not unknown.isdisjoint(graph.nodes[index].inputs):
                reason = _INPUT_UNKNOWN
            answers.append(Support(reason) if reason else support)
        for added, node in inferred.added.items():
            if answers[node].supported:
                answers[node] = answers[added]
        return answers[: len(answers) - len(inferred.added)]

    def _too_large(self, graph: Graph, node: int) -> str:
        for tensor in graph.nodes[node].outputs:
            spec = graph.tensors[tensor]
            if spec.known_bytes > self._settings.tensor_bytes:
                return (
                    f"its output {spec} has {spec.byte_size} bytes; the daemon's limit (--tensor-bytes) is"
                    f" {self._settings.tensor_bytes}"
                )
        return ""

    def _require_known_inputs(self, graph: Graph) -> None:
        for index in sorted(self._unknown_inputs(graph)):
            raise Unsupported(_INPUT_UNKNOWN, place=graph.tensor_place(index))

    def _unknown_inputs(self, graph: Graph) -> set[int]:
        """Inputs of the graph with dimensions that the device would have to know, but can't."""
        if self.info.capabilities.dynamic_input:
            return set()
        return {index for index in graph.inputs if graph.tensors[index].is_dynamic}

    def _check_config(self, config: ModelConfig) -> None:
        capabilities = self.info.capabilities
        for wanted, offered, what in (
            (config.enable_float16, capabilities.float16_precision, "enable_float16"),
            (config.mode is not PerformanceMode.NONE, capabilities.performance_mode, "mode"),
            (config.priority is not Priority.NONE, capabilities.priority, "priority"),
        ):
            if wanted and not offered:
                raise OperationForbidden(
                    "the device can't honour it; leave it at its neutral value", place=f"ModelConfig.{what}"
                )


def _is_signable(model: Request) -> bool:
    """Tell whether what is compiled follows from NNRt's operators alone. A program is code of who brings it."""
    return not isinstance(model, Program)


def without_programs(capabilities: Capabilities) -> Capabilities:
    """The capabilities of a device that takes no model files as they are."""
    return replace(capabilities, program_formats=())


def _size_of(parts: Sequence[Part]) -> int:
    return sum(part.data.nbytes for part in parts)


def require_input_count(inputs: Sized, count: int) -> None:
    """Refuse another number of inputs than the model takes."""
    if len(inputs) != count:
        raise InvalidParameter(f"{count} inputs were given; the model takes {len(inputs)}")


def _misfit(index: int, spec: TensorSpec, array: Array) -> InvalidParameter:
    return InvalidParameter(
        f"it is {array.dtype.name}{list(array.shape)}; the model takes {spec}",
        place=f"input {index}" + (f" {spec.name!r}" if spec.name else ""),
    )
