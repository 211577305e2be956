"""Sessions, and the device that they lead to."""

from nnrt_hdi.backend import Capabilities, DeviceInfo, DeviceState
from nnrt_hdi.counters import DeviceCounters, IdentityCounters
from nnrt_hdi.enums import DeviceStatus, DeviceType
from nnrt_hdi.v2 import device_pb2, session_pb2
from nnrt_hdi.wire.enums import enum_or, number

# Metadata of every call but DeviceSession.Open: the session it belongs to.
SESSION_METADATA = "nnrt-session-bin"
# Metadata of DeviceSession.Open on a Unix socket: the ticket that says whose the client is.
TICKET_METADATA = "nnrt-ticket-bin"

_FLAGS = tuple(name for name in Capabilities.__slots__ if name != "program_formats")


def device_info(message: session_pb2.DeviceInfo) -> DeviceInfo:
    """The identity of a device. A type this version doesn't know reads as OTHER, as NNRt asks."""
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
    """A status this version doesn't know reads as UNKNOWN."""
    return enum_or(DeviceStatus.UNKNOWN, number)


def device_state(message: session_pb2.DeviceState) -> DeviceState:
    return DeviceState(
        status=device_status(message.status),
        is_draining=message.draining,
        running=message.running,
        queued=message.queued,
        held_bytes=message.held_bytes,
        sessions=message.sessions,
    )


def counters(message: device_pb2.GetCountersReply) -> DeviceCounters:
    return DeviceCounters(message.uptime_ms / 1e3, tuple(map(_identity_counters, message.identities)))


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
    )


def counters_message(counters: DeviceCounters) -> device_pb2.GetCountersReply:
    return device_pb2.GetCountersReply(
        uptime_ms=int(counters.uptime_s * 1e3),
        identities=[
            device_pb2.IdentityCounters(
                identity=each.identity,
                sessions=each.sessions,
                connections=each.connections,
                held_bytes=each.held_bytes,
                opened_sessions=each.opened_sessions,
                runs=each.runs,
                run_ns=int(each.run_s * 1e9),
                models=each.models,
                compile_ns=int(each.compile_s * 1e9),
                errors=each.errors,
            )
            for each in counters.identities
        ],
    )


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
