"""Admission of calls: only those of a living session, within its limits, and no new work while the daemon drains."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any

import grpc

from nnrt_device_service.device import Device
from nnrt_device_service.host.log_context import add_log_fields, log_fields
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.transport.grpc.call_threads import CallThreads
from nnrt_device_service.transport.grpc.interceptor import OUR_SERVICES, arity_of
from nnrt_device_service.transport.grpc.requests import RequestReader
from nnrt_hdi.access.callers import UNIX, host_of, source_at
from nnrt_hdi.access.identity import Identity, Role
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationForbidden, OutOfMemory, UnknownHandle
from nnrt_hdi.wire import SESSION_METADATA

# Most calls of one method of another service at a time.
FOREIGN_CALLS = 16

_OPEN = "DeviceSession/Open"
_RUN = "PreparedModel/Run"
_LOOP = "Sequences/Loop"
# Calls whose duration the client decides.
_STREAMS = {
    "NnrtDevice/ReadBuffer",
    "NnrtDevice/UploadConstants",
    "NnrtDevice/WriteBuffer",
    "PreparedModel/RunStream",
    "Sequences/Read",
    "Sequences/Write",
}
# Calls that wait for runs whose streams were lost, or that cancel runs.
_CONTROL_CALLS = {"PreparedModel/AwaitRun", "PreparedModel/CancelRuns"}
# Calls that don't pass the drain gate. A run stream is no work itself: each of its runs passes the gate. A session that
# is opened checks the gate itself, and one that is resumed needn't.
_UNGATED = {
    _OPEN,
    *_CONTROL_CALLS,
    "NnrtDevice/GetCounters",
    "NnrtDevice/GetDeviceStatus",
    "NnrtDevice/ReleaseBuffer",
    "PreparedModel/Release",
    "PreparedModel/RunStream",
    "Sequences/Read",
    "Sequences/Release",
    "Sequences/Stop",
}

# Roles that calls need. All others, and the local socket, need Role.RUN. Compiling needs more, which `Models` checks.
_ROLES = {
    "NnrtDevice/GetCounters": Role.OBSERVE,
    "NnrtDevice/GetDeviceStatus": Role.OBSERVE,
    "NnrtDevice/GetSupportedOperation": Role.OBSERVE,
    "PreparedModel/ExportModelCache": Role.RESTORE,
}


def session_of(device: Device, context: Any) -> Session:
    """Return the session that a call names, and count the call as a sign of life of its client."""
    session_id = session_id_of(context)
    if session_id is None:
        raise UnknownHandle(f"the call names no session; send its id as metadata {SESSION_METADATA!r}")
    session = device.sessions.find(session_id)
    session.touch()
    return session


def session_id_of(context: Any) -> bytes | None:
    """Return the id of the session that a call names in its metadata, or None."""
    for key, value in context.invocation_metadata():
        if key == SESSION_METADATA:
            return value  # type: ignore[no-any-return]
    return None


def at_end_of_call(context: Any, act: Callable[[], object]) -> None:
    """Call `act` when the call has ended; at once if it has already."""
    if not context.add_callback(act):
        act()


def count_error(device: Device, context: Any, method: str, error: NnrtError) -> None:
    """Count the error of a call for the identity whose session it names."""
    if method == _OPEN:
        return  # The servicer counts it, because only it knows the identity.
    try:
        usage = device.sessions.find(session_id_of(context) or b"").usage
    except UnknownHandle:
        usage = device.sessions.counters.find(None)
    if method == _RUN:
        if (served := log_fields().get("on_behalf_of")) is not None:
            usage = device.sessions.counters.find(Identity("name", str(served)))
        usage.count_ended_run(error, was_cancelled=not context.is_active())
    else:
        usage.count_error(error)


class _ForeignCalls:
    """Counter of calls of other services, such as health, which belong to no session.

    At most FOREIGN_CALLS of each method are under way. One more cancels the oldest, so that no client can keep others
    out by never ending its calls.
    """

    def __init__(self, threads: CallThreads, connections: "_Connections") -> None:
        self._threads = threads
        self._connections = connections
        self._lock = threading.Lock()
        self._calls: dict[str, dict[Any, None]] = {}

    @contextmanager
    def counted(self, method: str, context: Any) -> Iterator[None]:
        try:
            self._threads.require_thread()
            with self._connections.counted(context.peer()), self._counted_in_method(method, context):
                yield
        except InvalidParameter as error:  # A request that can't be read. Other services make their own errors.
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except OutOfMemory as error:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))

    @contextmanager
    def _counted_in_method(self, method: str, context: Any) -> Iterator[None]:
        with self._lock:
            calls = self._calls.setdefault(method, {})
            oldest = next(iter(calls)) if len(calls) >= FOREIGN_CALLS else None
            calls.pop(oldest, None)
            calls[context] = None
        if oldest is not None:
            oldest.cancel()
        try:
            yield
        finally:
            with self._lock:
                calls.pop(context, None)


class _Connections:
    """Counter of connections with calls under way, limited for each host that is known."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        # By host: number of calls under way on each connection.
        self._calls: dict[str, Counter[str]] = {}

    @contextmanager
    def counted(self, peer: str) -> Iterator[None]:
        """Count a call of a peer while the block lasts; raise OutOfMemory if its host has too many connections."""
        host = host_of(peer)
        if host == UNIX:  # gRPC gives all clients of a Unix socket the same name.
            yield
            return
        with self._lock:
            calls = self._calls.setdefault(host, Counter())
            if peer not in calls and len(calls) >= self._most:
                raise OutOfMemory(
                    f"host {host} has {len(calls)} connections with calls under way, its limit; use fewer, or raise the"
                    " daemon's --host-connections"
                )
            calls[peer] += 1
        try:
            yield
        finally:
            with self._lock:
                calls[peer] -= 1
                if not calls[peer]:
                    del calls[peer]
                if not calls:
                    self._calls.pop(host, None)


class AdmissionInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Counter of calls, each in its session if it has one, from before its request arrives until it ends.

    For gRPC every handler takes a stream of requests: with a unary request gRPC would give a thread to a call that
    never sends it, before this code could count the call. Requests arrive as bytes, because gRPC would parse messages
    in the one thread that serves all calls.
    """

    def __init__(self, device: Device, threads: CallThreads, host_connections: int) -> None:
        """Let each host have calls on at most `host_connections` connections."""
        self._device = device
        self._threads = threads
        self._connections = _Connections(host_connections)
        self._foreign_calls = _ForeignCalls(threads, self._connections)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = continuation(details)
        if handler is None:
            return handler
        method, is_ours = details.method.removeprefix(OUR_SERVICES), details.method.startswith(OUR_SERVICES)
        counted, work = (self._counted, self._gated) if is_ours else (self._foreign_calls.counted, _ungated)
        read_all = RequestReader(method, handler.request_deserializer).read_all
        behavior = getattr(handler, arity_of(handler))
        request_of = iter if handler.request_streaming else _only_request

        def call(requests: Iterator[Any], context: Any) -> Any:
            with counted(method, context) as budget, closing(read_all(requests, budget)) as messages:
                request = request_of(messages)
                with work(method, context):
                    return behavior(request, context)

        def stream(requests: Iterator[Any], context: Any) -> Iterator[Any]:
            with counted(method, context) as budget, closing(read_all(requests, budget)) as messages:
                request = request_of(messages)
                with work(method, context):
                    yield from behavior(request, context)

        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(stream, None, handler.response_serializer)
        return grpc.stream_unary_rpc_method_handler(call, None, handler.response_serializer)

    @contextmanager
    def _counted(self, method: str, context: Any) -> Iterator[MemoryBudget | None]:
        """Count a call during the block; yield its session's memory budget, or None if it has no session.

        Calls of a session count in its limits only, on whatever connections they come.
        """
        self._threads.require_thread()
        if method != _OPEN:
            with self._counted_in_session(method, context) as budget:
                yield budget
            return
        with ExitStack() as counts:
            try:
                counts.enter_context(self._connections.counted(context.peer()))
            except OutOfMemory as error:
                peer = context.peer()
                self._device.refusals.audit(source_at(host_of(peer)), None, peer=peer, method=method, cause=str(error))
                raise
            yield None  # `SessionRegistry` counts sessions.

    @contextmanager
    def _counted_in_session(self, method: str, context: Any) -> Iterator[MemoryBudget]:
        session = session_of(self._device, context)
        add_log_fields(session.log_fields)
        try:
            session.identity.require(_ROLES.get(method, Role.RUN), method)
            with _counter_of(session, method)(context.cancel):
                yield session.budget
        except (OperationForbidden, OutOfMemory) as error:
            who = session.identity
            self._device.refusals.audit(str(who), who, session=session.label, method=method, cause=str(error))
            raise

    @contextmanager
    def _gated(self, method: str, context: Any) -> Iterator[None]:
        gate = self._device.gate
        if method in _UNGATED:
            yield
        else:
            with gate.admit():  # Until the work has ended, perhaps after its client has gone.
                gate.enter()  # Until gRPC has sent the reply.
                at_end_of_call(context, gate.leave)
                yield


@contextmanager
def _ungated(method: str, context: Any) -> Iterator[None]:
    """Admit a call of another service, for which a draining daemon doesn't wait."""
    yield


def _counter_of(session: Session, method: str) -> Callable[[Callable[[], object]], AbstractContextManager[None]]:
    if method in _STREAMS:
        return session.calls.count_stream
    if method == _LOOP:
        return session.calls.count_loop
    return session.calls.count_control_call if method in _CONTROL_CALLS else session.calls.count_call


def _only_request(requests: Iterator[Any]) -> Any:
    for request in requests:
        return request
    raise InvalidParameter("the call ended without a request; send one")
