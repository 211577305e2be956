"""Device of a daemon: a backend, the sessions that use it, and the limits between them. Independent of gRPC."""

import secrets
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from nnrt_device_service.access.counters import Usage
from nnrt_device_service.health.canary import CANARY, Canary, ObservedModel
from nnrt_device_service.health.canary_model import first_supported
from nnrt_device_service.health.speed import product_speed
from nnrt_device_service.health.telemetry import TelemetryWatch
from nnrt_device_service.host.threads import Threads
from nnrt_device_service.isolation.backend import IsolatingBackend, isolated
from nnrt_device_service.memory.device_memory import DeviceHeap
from nnrt_device_service.memory.freeing import Freeing
from nnrt_device_service.models.models import Models
from nnrt_device_service.runs.executing import Executing
from nnrt_device_service.runs.run import Run
from nnrt_device_service.scheduling.drain_gate import DrainGate
from nnrt_device_service.scheduling.run_costs import RunCosts
from nnrt_device_service.scheduling.run_watch import CompileWatch, RunWatch
from nnrt_device_service.scheduling.scheduler import Scheduler
from nnrt_device_service.sessions.payers import RoleOf, ServedIdentities
from nnrt_device_service.sessions.registry import SessionRegistry
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.sessions.shared_model import SharedModel
from nnrt_device_service.settings import DeviceOut, Settings
from nnrt_hdi.access.audit import AuditLog
from nnrt_hdi.access.identity import Role
from nnrt_hdi.access.refusals import Refusals
from nnrt_hdi.backend import (
    Backend,
    Cancellation,
    DeviceInfo,
    DeviceState,
    ModelConfig,
    PreparedModel,
    require_description,
)
from nnrt_hdi.counters import DeviceCounters, DeviceLoad
from nnrt_hdi.enums import DeviceStatus, DeviceType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.files.compiled import Target
from nnrt_hdi.graph import Graph
from nnrt_hdi.host_limits import memory_limit
from nnrt_hdi.tensor import Array

# Seconds that the backend gets to free unused models and buffers when the daemon ends.
FREE_S = 3.0
# Default fraction of the host's memory that clients may use; runs may allocate as much again. The rest is for the
# daemon itself, its messages, and what libraries allocate besides tensors.
_MEMORY_SHARE = 3 / 8


class Device:
    """Device that clients use: a backend with its description, models, sessions, scheduler and health checks."""

    def __init__(self, backend: Backend, settings: Settings, described: DeviceInfo | None = None) -> None:
        """Make a device; `described` is the backend's description, if the caller has asked for and checked it."""
        try:
            settings.name.encode()
        except UnicodeEncodeError as error:  # Messages and logs could not contain it.
            raise InvalidParameter(f"{settings.name!r} is not in UTF-8", place="--name") from error
        self._backend = isolating = isolated(backend, settings)
        self._settings = settings
        described = described or require_description(backend.describe(), settings.backend)
        if not settings.takes_programs:
            described = replace(described, capabilities=replace(described.capabilities, program_formats=()))
        self.info = replace(described, device_name=settings.name or described.device_name)
        self.threads = Threads("device")
        self.gate = DrainGate()
        # For the model store a device is identified by its backend and options, not by its name in the fleet.
        options = (f"{name}={value}" for name, value in sorted(settings.backend_options().items()))
        target = Target.of(described, shlex.join((described.device_name, *options)))
        self.freeing = Freeing(self.threads)
        self.models = Models(isolating, self.info, target, settings, self.gate, self.freeing, self.threads)
        self.audit = AuditLog(settings.audit_log)
        # Refused callers may use half of a host's connections; the rest is for others.
        self.refusals = Refusals(self.audit, settings.connections_of_a_host // 2)
        self.instance_id = secrets.token_bytes(16)
        share_bytes = int(memory_limit().value * _MEMORY_SHARE)
        self.sessions = SessionRegistry(settings, settings.held_bytes or share_bytes, self.freeing)
        self.sessions.budget.on_shortage(self.models.residency.evict_idle)
        self._run_limit_bytes = run_bytes = settings.run_bytes or share_bytes
        # Buffers in the device's memory, if the backend offers that.
        self.heap = DeviceHeap(backend.allocate, self.freeing, self.info.device_name)
        isolating.start(run_bytes, accepts_programs=bool(described.capabilities.program_formats))
        self._slots = settings.concurrent_runs or backend.concurrent_runs
        self.scheduler = Scheduler(
            self._slots,
            settings.queued_runs,
            settings.priority_ageing_s,
            identity_runs=settings.share_of(settings.queued_runs),
            run_bytes=run_bytes,
        )
        # Only a processor shows its speed in products of a size that every host has memory for.
        measure = partial(product_speed, self._prepare_own) if described.device_type is DeviceType.CPU else None
        self.executing = Executing(
            self.scheduler,
            RunCosts(settings.max_run_s, measure),
            self.gate,
            self.sessions.counters.batches,
            self.heap,
            self.info.device_name,
        )
        self._compile_watch = CompileWatch(settings.max_compile_s, settings.stuck_s)
        self._run_watch = RunWatch(settings.max_run_s, settings.stuck_s, self._compile_watch)
        # Why the device is stuck, or empty.
        self.stuck = ""
        # Set by `start_canary`; None if no canary checks the device.
        self.canary: Canary | None = None
        # Telemetry of the device, which is read after `telemetry.start`.
        self.telemetry = TelemetryWatch(backend)

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
            held_bytes=self.sessions.budget.used_bytes,
            sessions=len(self.sessions),
            out=self.suspension_reason,
            telemetry=self.telemetry.latest,
        )

    def isolated_bytes(self) -> list[int]:
        """Return the bytes of memory that each process of a model has."""
        return self._backend.resident_bytes() if isinstance(self._backend, IsolatingBackend) else []

    @property
    def suspension_reason(self) -> str:
        """Why the canary has taken the device out of service, or empty while it is in service."""
        return self.canary.state.why if self.canary is not None else ""

    def start_canary(self, on_change: Callable[[], object]) -> None:
        """Check the device with a canary now and periodically, if the settings ask for it.

        `on_change` is called when the device goes out of service or comes back. Raises Unsupported if the device runs
        none of the canary models, and what `Backend.prepare` raises.
        """
        if not self._settings.canary:
            return
        model = first_supported(lambda graph: self.models.checks.check(graph).graph)
        compiled = self._prepare_own(model.graph)
        scheduler = self.scheduler
        prepared = ObservedModel(
            compiled,
            is_shared=lambda: scheduler.running > 1,
            is_compiling=lambda: any(run.compiling_since_ns is not None for run in scheduler.on_device()),
        )
        session = self.sessions.own_session(CANARY)
        self.open_account(session, "")
        self.scheduler.privilege(session.account)
        loaded = session.model(session.add_model(SharedModel.alone(prepared, session.budget.root)))

        def execute(inputs: Sequence[Array], cancellation: Cancellation) -> tuple[Sequence[Array], int]:
            run = Run(session, 0, cancellation)
            run.model, run.inputs = loaded, list(inputs)
            self.executing.execute(run)
            if run.error is not None:
                raise run.error
            return run.outputs, run.computed_ns

        self.canary = Canary(model, prepared, session, execute, self.threads, self._settings, self._suspend, on_change)
        self.canary.start()

    def _prepare_own(self, graph: Graph) -> PreparedModel:
        """Compile a model of the daemon itself. Raises Unsupported, and what `Backend.prepare` raises."""
        config = ModelConfig(max_tensor_bytes=self._settings.tensor_bytes)
        return self._backend.prepare(self.models.checks.check(graph).graph, config, lambda fraction: None)

    def stop_canary(self) -> bool:
        """Stop the canary and return whether its run has ended. Idempotent."""
        return self.canary is None or self.canary.stop()

    def _suspend(self, why: str) -> None:
        """Suspend all work for a reason, or resume it if the reason is empty."""
        reason = DeviceOut(f"the device is out: {why}; use another device, or try again when this one is back")
        for scheduler in (self.scheduler, self.models.compilers.scheduler):
            scheduler.suspend(reason) if why else scheduler.resume()

    def open_account(self, session: Session, user: str, role_of: RoleOf = lambda name: None) -> None:
        """Make the accounts that count a session's device time for this user of its identity.

        `role_of` says what the access file lets the identities do on whose behalf the client may run models.
        """
        identity = str(session.identity)
        session.account = self.scheduler.account(identity, user, session.usage.runs)
        session.compilations = self.models.compilers.scheduler.account(identity, user, session.usage.compilations)
        session.served = ServedIdentities(self.scheduler, self.sessions.counters, role_of)

    def counters(self, session: Session) -> DeviceCounters:
        """Return the counters of the session's identity, or of all identities if it may administer the daemon."""
        return self.counters_snapshot(None if session.identity.role is Role.ADMINISTER else session.usage)

    def counters_snapshot(self, usage: Usage | None) -> DeviceCounters:
        """Return the counters of one identity, or of all if `usage` is None, and the load of the device."""
        running_ns = self.scheduler.running_ns()
        counters = self.sessions.snapshot_counters(
            usage, {**running_ns, **self.models.compilers.scheduler.running_ns()}
        )
        load = DeviceLoad(
            slots=self._slots,
            busy_s=self.sessions.counters.busy_s(running_ns),
            running=self.scheduler.running,
            queued=self.scheduler.queued,
            queued_limit=self._settings.queued_runs,
            sessions=len(self.sessions),
            sessions_limit=self._settings.max_sessions,
            held_bytes=self.sessions.bytes_by_kind(),
            held_limit_bytes=self.sessions.budget.limit_bytes,
            run_bytes=self.scheduler.memory.taken_bytes,
            run_limit_bytes=self._run_limit_bytes,
            batches=self.sessions.counters.batches.snapshot(),
            residency=self.models.residency.snapshot(),
        )
        return replace(counters, load=load)

    def cancel_overdue(self) -> None:
        """Cancel runs and compilations that take too long.

        If one doesn't end, or the backend has lost the device, set `stuck` and close the drain gate.
        """
        self.stuck = (
            self.stuck
            or self.lost
            or self._run_watch.end_overdue(self.scheduler.on_device())
            or self._find_stuck_call()
            or self._compile_watch.end_overdue(self.models.compilers.scheduler.on_device())
        )
        if self.stuck:
            self.gate.close(0.0)
        self.freeing.ensure_thread()

    @property
    def lost(self) -> str:
        """Why the backend has lost the device; empty if it hasn't."""
        return self._backend.fault()

    def _find_stuck_call(self) -> str:
        """Return why a backend call besides runs and compilations counts as stuck, or an empty string."""
        watch, calls = self._run_watch, self.freeing.backend_calls
        return next(filter(None, (watch.end_overdue([call], f"an attempt to {doing}") for call, doing in calls)), "")

    def close(self, timeout_s: float) -> bool:
        """Close the backend when all work has ended and everything is freed; return whether that was in time.

        A backend that is slow to free gets FREE_S more. If the time is over, the backend is left open.
        """
        ended = self.gate.close(timeout_s)
        ended = self.stop_canary() and ended
        ended = self.telemetry.stop() and ended
        self.freeing.ensure_thread()
        self.freeing.await_queued(FREE_S)
        ended = ended and self.freeing.await_all(timeout_s)
        self.executing.close()
        self.threads.close()
        if ended:
            self._backend.close()
        self.refusals.summarize(is_last=True)
        self.audit.close()
        return ended
