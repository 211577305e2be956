"""Messages of sessions, and of the device."""

from dataclasses import asdict, fields

from nnrt_hdi.backend import CanaryState, Capabilities, DeviceInfo, DeviceState, Telemetry
from nnrt_hdi.counters import (
    MAX_DURATION_COUNTS,
    Batches,
    DeviceCounters,
    DeviceLoad,
    Durations,
    IdentityCounters,
    Residency,
)
from nnrt_hdi.enums import DeviceStatus, DeviceType
from nnrt_hdi.v2 import device_pb2, session_pb2
from nnrt_hdi.wire.enums import enum_or, number
from nnrt_hdi.wire.errors import shortened

# Metadata of every call except DeviceSession.Open: the session id.
SESSION_METADATA = "nnrt-session-bin"
# Metadata of DeviceSession.Open on a Unix socket: the ticket with the client's identity.
TICKET_METADATA = "nnrt-ticket-bin"

_FLAGS = tuple(name for name in Capabilities.__slots__ if name != "program_formats")

_CANARY_NUMBERS = ("runs", "wrong", "late", "failed", "last_ns", "usual_ns")
_MAX_WHY_BYTES = 512


def device_info(message: session_pb2.DeviceInfo) -> DeviceInfo:
    """Return the identity of a device. An unknown type counts as OTHER, as NNRt requires."""
    capabilities = message.capabilities
    return DeviceInfo(
        device_name=message.device_name,
        vendor_name=message.vendor_name,
        device_type=enum_or(DeviceType.OTHER, message.device_type),
        capabilities=Capabilities(
            **{name: getattr(capabilities, name) for name in _FLAGS},
            program_formats=tuple(capabilities.program_formats),
        ),
        backend_name=message.backend_name,
        backend_version=message.backend_version,
    )


def device_status(number: int) -> DeviceStatus:
    """Return the DeviceStatus for a number in a message; UNKNOWN for an unknown number."""
    return enum_or(DeviceStatus.UNKNOWN, number)


def device_state(message: session_pb2.DeviceState) -> DeviceState:
    return DeviceState(
        status=device_status(message.status),
        is_draining=message.draining,
        running=message.running,
        queued=message.queued,
        held_bytes=message.held_bytes,
        sessions=message.sessions,
        out=message.out,
        telemetry=_telemetry(message.telemetry) if message.HasField("telemetry") else None,
    )


def _telemetry(message: session_pb2.Telemetry) -> Telemetry:
    return Telemetry(**{field.name: value for field, value in message.ListFields()}).plausible()


def device_state_message(state: DeviceState) -> session_pb2.DeviceState:
    return session_pb2.DeviceState(
        status=number(state.status),
        draining=state.is_draining,
        running=state.running,
        queued=state.queued,
        held_bytes=state.held_bytes,
        sessions=state.sessions,
        out=shortened(state.out, _MAX_WHY_BYTES),
        telemetry=session_pb2.Telemetry(**asdict(state.telemetry)) if state.telemetry else None,
    )


def canary_state(message: device_pb2.GetDeviceStatusReply) -> CanaryState | None:
    """Return the state of a daemon's canary, or None if it has none."""
    if not message.HasField("canary"):
        return None
    canary = message.canary
    return CanaryState(
        is_out=canary.is_out,
        why=canary.why,
        for_s=canary.for_ms / 1e3,
        **{name: getattr(canary, name) for name in _CANARY_NUMBERS},
    )


def device_status_message(status: DeviceStatus, canary: CanaryState | None) -> device_pb2.GetDeviceStatusReply:
    if canary is None:
        return device_pb2.GetDeviceStatusReply(status=number(status))
    told = device_pb2.Canary(
        is_out=canary.is_out,
        why=shortened(canary.why, _MAX_WHY_BYTES),
        for_ms=int(canary.for_s * 1e3),
        **{name: getattr(canary, name) for name in _CANARY_NUMBERS},
    )
    return device_pb2.GetDeviceStatusReply(status=number(status), canary=told)


def counters(message: device_pb2.GetCountersReply) -> DeviceCounters:
    load = _device_load(message.load) if message.HasField("load") else None
    return DeviceCounters(message.uptime_ms / 1e3, tuple(map(_identity_counters, message.identities)), load)


def _device_load(message: device_pb2.DeviceLoad) -> DeviceLoad:
    return DeviceLoad(
        slots=message.slots,
        busy_s=message.busy_ns / 1e9,
        running=message.running,
        queued=message.queued,
        queued_limit=message.queued_limit,
        sessions=message.sessions,
        sessions_limit=message.sessions_limit,
        held_bytes=dict(message.held_bytes),
        held_limit_bytes=message.held_limit_bytes,
        run_bytes=message.run_bytes,
        run_limit_bytes=message.run_limit_bytes,
        batches=Batches(
            message.batches.runs, message.batches.rows, tuple(message.batches.counts[:MAX_DURATION_COUNTS])
        ),
        residency=Residency(*(getattr(message.residency, field.name) for field in fields(Residency))),
    )


def _durations(message: device_pb2.Durations) -> Durations:
    return Durations(tuple(message.counts[:MAX_DURATION_COUNTS]), message.total_ns / 1e9)


def _identity_counters(message: device_pb2.IdentityCounters) -> IdentityCounters:
    return IdentityCounters(
        identity=message.identity,
        sessions=message.sessions,
        connections=message.connections,
        held_bytes=message.held_bytes,
        opened_sessions=message.opened_sessions,
        runs=dict(message.runs),
        run_s=message.run_ns / 1e9,
        models=dict(message.models),
        compile_s=message.compile_ns / 1e9,
        errors=dict(message.errors),
        in_bytes=message.in_bytes,
        out_bytes=message.out_bytes,
        queued=_durations(message.queued),
        copied=_durations(message.copied),
        computed=_durations(message.computed),
        served=_durations(message.served),
    )


def counters_message(counters: DeviceCounters) -> device_pb2.GetCountersReply:
    return device_pb2.GetCountersReply(
        uptime_ms=int(counters.uptime_s * 1e3),
        identities=map(_identity_counters_message, counters.identities),
        load=None if counters.load is None else _device_load_message(counters.load),
    )


def _identity_counters_message(counters: IdentityCounters) -> device_pb2.IdentityCounters:
    return device_pb2.IdentityCounters(
        identity=counters.identity,
        sessions=counters.sessions,
        connections=counters.connections,
        held_bytes=counters.held_bytes,
        opened_sessions=counters.opened_sessions,
        runs=counters.runs,
        run_ns=_nanoseconds(counters.run_s),
        models=counters.models,
        compile_ns=_nanoseconds(counters.compile_s),
        errors=counters.errors,
        in_bytes=counters.in_bytes,
        out_bytes=counters.out_bytes,
        queued=_durations_message(counters.queued),
        copied=_durations_message(counters.copied),
        computed=_durations_message(counters.computed),
        served=_durations_message(counters.served),
    )


def _device_load_message(load: DeviceLoad) -> device_pb2.DeviceLoad:
    return device_pb2.DeviceLoad(
        slots=load.slots,
        busy_ns=_nanoseconds(load.busy_s),
        running=load.running,
        queued=load.queued,
        queued_limit=load.queued_limit,
        sessions=load.sessions,
        sessions_limit=load.sessions_limit,
        held_bytes=load.held_bytes,
        held_limit_bytes=load.held_limit_bytes,
        run_bytes=load.run_bytes,
        run_limit_bytes=load.run_limit_bytes,
        batches=device_pb2.Batches(runs=load.batches.runs, rows=load.batches.rows, counts=load.batches.counts),
        residency=device_pb2.Residency(**asdict(load.residency)),
    )


def _durations_message(durations: Durations) -> device_pb2.Durations:
    return device_pb2.Durations(total_ns=_nanoseconds(durations.total_s), counts=durations.counts)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def device_info_message(info: DeviceInfo) -> session_pb2.DeviceInfo:
    return session_pb2.DeviceInfo(
        device_name=info.device_name,
        vendor_name=info.vendor_name,
        device_type=number(info.device_type),
        capabilities=session_pb2.Capabilities(
            **{name: getattr(info.capabilities, name) for name in Capabilities.__slots__}
        ),
        backend_name=info.backend_name,
        backend_version=info.backend_version,
    )
