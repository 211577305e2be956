"""Admits calls: those of a living session, within its limits, and no new work once the daemon shuts down."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any

import grpc

from nnrt_device_service.access.identity import Role
from nnrt_device_service.device import Device
from nnrt_device_service.host.log_context import say_about
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.transport.grpc.call_threads import CallThreads
from nnrt_device_service.transport.grpc.identities import UNIX, host_of, source_of
from nnrt_device_service.transport.grpc.interceptor import OUR_SERVICES, arity_of
from nnrt_device_service.transport.grpc.requests import RequestReader
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationForbidden, OutOfMemory, UnknownHandle
from nnrt_hdi.wire import SESSION_METADATA

# Calls of one method of another service at a time.
FOREIGN_CALLS = 16

_OPEN = "DeviceSession/Open"
_RUN = "PreparedModel/Run"
# Calls that last as long as the client likes.
_STREAMS = {"NnrtDevice/UploadConstants", "NnrtDevice/WriteBuffer", "NnrtDevice/ReadBuffer", "PreparedModel/RunStream"}
# Calls for runs that have lost their streams, or are to end.
_CONTROL_CALLS = {"PreparedModel/AwaitRun", "PreparedModel/CancelRuns"}
# Answered to the end of the daemon. A run stream is no work; each run on it is, and passes the gate by itself. So does
# a session that is begun; one that is resumed need not.
_UNGATED = {
    _OPEN,
    *_CONTROL_CALLS,
    "NnrtDevice/GetCounters",
    "NnrtDevice/GetDeviceStatus",
    "NnrtDevice/ReleaseBuffer",
    "PreparedModel/Release",
    "PreparedModel/RunStream",
}

# Roles that calls need; all others, and the local socket, need Role.RUN. `Device` asks for more where it compiles.
_ROLES = {
    "NnrtDevice/GetCounters": Role.OBSERVE,
    "NnrtDevice/GetDeviceStatus": Role.OBSERVE,
    "NnrtDevice/GetSupportedOperation": Role.OBSERVE,
    "PreparedModel/ExportModelCache": Role.RESTORE,
}


def session_of(device: Device, context: Any) -> Session:
    """The session a call names; the call is a sign of life of its client."""
    session_id = session_id_of(context)
    if session_id is None:
        raise UnknownHandle(f"the call names no session; send its id as metadata {SESSION_METADATA!r}")
    session = device.sessions.of(session_id)
    session.touch()
    return session


def session_id_of(context: Any) -> bytes | None:
    """The id of the session that a call names."""
    for key, value in context.invocation_metadata():
        if key == SESSION_METADATA:
            return value  # type: ignore[no-any-return]
    return None


def count_error(device: Device, context: Any, method: str, error: NnrtError) -> None:
    """Count the error of a call for the identity whose session it names."""
    if method == _OPEN:
        return  # Its servicer does, which alone knows whose it is.
    try:
        usage = device.sessions.of(session_id_of(context) or b"").usage
    except UnknownHandle:
        usage = device.sessions.counters.of(None)
    if method == _RUN:
        usage.count_ended_run(error, was_cancelled=not context.is_active())
    else:
        usage.count_error(error)


class _ForeignCalls:
    """Calls of other services, such as health, which belong to no session: so many of each method at a time.

    The oldest gives way, so that nobody keeps others out by never ending a call.
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
            with self._connections.counted(context.peer()), self._placed(method, context):
                yield
        except InvalidParameter as error:  # Of the request; the errors of other services are their own.
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except OutOfMemory as error:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))

    @contextmanager
    def _placed(self, method: str, context: Any) -> Iterator[None]:
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
    """Connections that have calls under way: so many of each host, as far as it is known."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        # By hosts: how many calls are under way on each connection.
        self._calls: dict[str, Counter[str]] = {}

    @contextmanager
    def counted(self, peer: str) -> Iterator[None]:
        """Count a call. Raises OutOfMemory where it comes on one connection too many."""
        host = host_of(peer)
        if host == UNIX:  # There all are called the same.
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
    """Counts each call, in its session if it has one, from before its request has come until its end.

    To gRPC every handler then takes a stream of requests: it would give a thread to a call that never sends its only
    one before asking us. They come as bytes: gRPC would parse them in the one thread that serves all.
    """

    def __init__(self, device: Device, threads: CallThreads, host_connections: int) -> None:
        """A host may have calls on so many connections."""
        self._device = device
        self._threads = threads
        self._connections = _Connections(host_connections)
        self._foreign_calls = _ForeignCalls(threads, self._connections)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = continuation(details)
        if handler is None:
            return handler
        method, is_ours = details.method.removeprefix(OUR_SERVICES), details.method.startswith(OUR_SERVICES)
        counted, work = (self._counted, self._work) if is_ours else (self._foreign_calls.counted, _no_work)
        read_each = RequestReader(method, handler.request_deserializer).each
        behavior = getattr(handler, arity_of(handler))
        request_of = iter if handler.request_streaming else _only

        def call(requests: Iterator[Any], context: Any) -> Any:
            with counted(method, context) as budget, closing(read_each(requests, budget)) as messages:
                request = request_of(messages)
                with work(method, context):
                    return behavior(request, context)

        def stream(requests: Iterator[Any], context: Any) -> Iterator[Any]:
            with counted(method, context) as budget, closing(read_each(requests, budget)) as messages:
                request = request_of(messages)
                with work(method, context):
                    yield from behavior(request, context)

        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(stream, None, handler.response_serializer)
        return grpc.stream_unary_rpc_method_handler(call, None, handler.response_serializer)

    @contextmanager
    def _counted(self, method: str, context: Any) -> Iterator[MemoryBudget | None]:
        """Count a call; the memory of its session, if it has one. A session's calls are as many as it may have, on
        whatever connections."""
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
                self._device.refusals.audit(source_of(peer), None, peer=peer, method=method, cause=str(error))
                raise
            yield None  # `SessionRegistry` counts them.

    @contextmanager
    def _counted_in_session(self, method: str, context: Any) -> Iterator[MemoryBudget]:
        session = session_of(self._device, context)
        say_about(session.names)
        try:
            session.identity.require(_ROLES.get(method, Role.RUN), method)
            with _counter_of(session, method)(context.cancel):
                yield session.budget
        except (OperationForbidden, OutOfMemory) as error:
            who = session.identity
            self._device.refusals.audit(str(who), who, session=session.label, method=method, cause=str(error))
            raise

    @contextmanager
    def _work(self, method: str, context: Any) -> Iterator[None]:
        gate = self._device.gate
        if method in _UNGATED:
            yield
        else:
            with gate.admit():  # Until the work has ended, which may go on after its client has gone...
                gate.enter()  # ...and until gRPC has sent the reply.
                if not context.add_callback(gate.leave):
                    gate.leave()
                yield


@contextmanager
def _no_work(method: str, context: Any) -> Iterator[None]:
    """Admit a call of another service, which doesn't keep a daemon from ending."""
    yield


def _counter_of(session: Session, method: str) -> Callable[[Callable[[], object]], AbstractContextManager[None]]:
    if method in _STREAMS:
        return session.calls.stream
    return session.calls.control if method in _CONTROL_CALLS else session.calls.plain


def _only(requests: Iterator[Any]) -> Any:
    for request in requests:
        return request
    raise InvalidParameter("the call ended without a request; send one")
