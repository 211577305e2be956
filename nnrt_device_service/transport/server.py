"""Running daemon: the gRPC server of a device, from listening to an orderly end."""

import logging
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from nnrt_device_service.announcing.announcer import Announcer
from nnrt_device_service.device import FREE_S, Device
from nnrt_device_service.host.exit import ExitCode, exit_at_once
from nnrt_device_service.host.log_handler import flush_log
from nnrt_device_service.host.readiness import send_alive, send_condition, send_ready, send_stopping, sign_of_life_s
from nnrt_device_service.host.rounds import Rounds
from nnrt_device_service.runs.replies import Replies
from nnrt_device_service.sessions.registry import CLOSE_S
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings
from nnrt_device_service.transport.addresses import require_free_path, require_free_port
from nnrt_device_service.transport.grpc.admission import FOREIGN_CALLS, AdmissionInterceptor, count_error
from nnrt_device_service.transport.grpc.call_threads import CallThreads
from nnrt_device_service.transport.grpc.certificates import server_credentials
from nnrt_device_service.transport.grpc.device_service import NnrtDeviceServicer
from nnrt_device_service.transport.grpc.health_port import HealthPort
from nnrt_device_service.transport.grpc.identities import Identities
from nnrt_device_service.transport.grpc.interceptor import OUR_SERVICES, CodecInterceptor, ErrorInterceptor
from nnrt_device_service.transport.grpc.model_service import PreparedModelServicer
from nnrt_device_service.transport.grpc.sequence_service import SequencesServicer
from nnrt_device_service.transport.grpc.session_service import DeviceSessionServicer
from nnrt_device_service.transport.grpc.tickets import Tickets
from nnrt_device_service.transport.local.socket import LocalSocket
from nnrt_device_service.transport.signs import IdleMemory, SignsOfLife
from nnrt_hdi.access.access_file import AccessFile
from nnrt_hdi.access.certificates import Certificates, watch_certificates
from nnrt_hdi.access.watched_files import WatchedFiles
from nnrt_hdi.enums import DeviceStatus
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.host_limits import raise_descriptor_limit, thread_limit
from nnrt_hdi.v2 import device_pb2_grpc, prepared_model_pb2_grpc, sequence_pb2_grpc, session_pb2_grpc
from nnrt_hdi.wire.packets import IS_POSSIBLE

if TYPE_CHECKING:
    from nnrt_device_service.metrics.port import MetricsPort
    from nnrt_device_service.transport.grpc.tracing import Traces

_log = logging.getLogger(__name__)

# Service name for which the health service always answers SERVING, whatever the state of the device.
ALIVE = "alive"

# Upper limit of connections: the number of ports.
_MANY = 1 << 16
# Seconds that calls get to end by themselves when the daemon stops.
_STOP_GRACE_S = 0.5
# Seconds that gRPC gets to end the calls.
_STOP_S = 5.0
# Seconds that the interpreter gets to exit.
_END_S = 5.0
# Threads for calls that belong to no session: of other services, such as health, or to be refused.
_OTHER_THREADS = 6 * FOREIGN_CALLS
_MIN_WATCH_INTERVAL_S, _MAX_WATCH_INTERVAL_S = 0.02, 1.0
# Seconds that clients get to learn, with their next heartbeat, that the device is stuck.
_NOTICE_S = 3.0
# Seconds that a connection gets to begin HTTP/2, and that it may stay without a call.
_HANDSHAKE_S, _IDLE_S = 5.0, 30.0
# Fraction of the process's descriptors that connections may take; the rest is for shared memory and files.
_CONNECTIONS_SHARE = 0.5
# A protobuf message is a little larger than the tensors in it.
_MESSAGE_OVERHEAD_BYTES = 64 * 1024


class Daemon:
    """Server of one device on one or more addresses."""

    def __init__(self, device: Device, settings: Settings) -> None:
        self._device = device
        self._settings = settings
        self._stopped = threading.Event()
        self._traces = _traces(device) if settings.traces else None
        replies = Replies(settings.message_bytes, self._traces)
        self._local_socket = None if settings.no_shared_memory else _local_socket(device, replies)
        # gRPC's own threads that serve calls.
        self._serving: set[threading.Thread] = set()
        self._health = health.HealthServicer(experimental_non_blocking=False)
        self._health_port: HealthPort | None = None
        self._metrics_port: MetricsPort | None = None
        # Enough for sessions at all their limits. A session takes two threads for its own stream, as it may be resumed
        # while the former one still ends; three for each other stream: open, waiting for one to end, and AwaitRun; and
        # two for each loop, one of which computes.
        session_threads = 2 + 3 * settings.session_streams + settings.session_calls + 2 * settings.session_loops
        self._most_threads = settings.max_sessions * session_threads + _OTHER_THREADS
        self._calls = CallThreads(device.threads)
        most_descriptors = raise_descriptor_limit()
        most_connections = min(int(most_descriptors * _CONNECTIONS_SHARE / len(settings.listen)), _MANY)
        self._certificates = watch_certificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        self._credentials = server_credentials(self._certificates) if self._certificates else None
        self._tickets = Tickets()
        self._identities = Identities(AccessFile(Path(settings.access)) if settings.access else None, self._tickets)
        message_bytes = settings.message_bytes + _MESSAGE_OVERHEAD_BYTES
        self._server = grpc.server(
            self._calls,
            interceptors=[
                ErrorInterceptor(partial(count_error, device)),
                AdmissionInterceptor(device, self._calls, settings.connections_of_a_host),
                *([] if self._traces is None else [self._traces.interceptor]),
                CodecInterceptor(),
            ],
            # Twice as many, so that calls beyond the limits reach the interceptors, which say why they are refused.
            maximum_concurrent_rpcs=2 * self._most_threads,
            options=[
                ("grpc.max_receive_message_length", message_bytes),
                ("grpc.max_send_message_length", message_bytes),
                ("grpc.so_reuseport", 0),  # Else a second daemon could share the port instead of failing.
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 5000),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.server_handshake_timeout_ms", int(_HANDSHAKE_S * 1000)),
                ("grpc.max_connection_idle_ms", int(_IDLE_S * 1000)),
                # For each address; gRPC has no limit for each host.
                ("grpc.max_allowed_incoming_connections", most_connections),
            ],
        )
        session_pb2_grpc.add_DeviceSessionServicer_to_server(
            DeviceSessionServicer(
                device, settings, self._identities, self._local_socket.name if self._local_socket else b""
            ),
            self._server,
        )
        device_pb2_grpc.add_NnrtDeviceServicer_to_server(NnrtDeviceServicer(device, settings), self._server)
        prepared_model_pb2_grpc.add_PreparedModelServicer_to_server(
            PreparedModelServicer(device, settings, replies), self._server
        )
        sequence_pb2_grpc.add_SequencesServicer_to_server(SequencesServicer(device, settings), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = ("DeviceSession", "NnrtDevice", "PreparedModel", "Sequences")
        services = [f"{OUR_SERVICES[1:]}{name}" for name in names]
        reflection.enable_server_reflection((*services, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        self._health_names = ["", *services]
        self._announcer = Announcer(device.info, settings.announce_interface) if settings.announce else None

    def start(self, addresses: Sequence[str]) -> list[str]:
        """Start to serve on these addresses, and return them with the ports that were really bound.

        Raises InvalidParameter for an address that can't be bound or announced, and OutOfMemory if the process has no
        threads left.
        """
        bound = [self._listen(address) for address in addresses]
        for flag, address in (
            ("--health-listen", self._settings.health_listen),
            ("--metrics-listen", self._settings.metrics_listen),
        ):
            if address:
                require_free_port(address, f"{flag} {address!r}")
        self._warn_of_few_threads()
        if self._local_socket is not None:
            self._local_socket.start()
        self._device.start_canary(self._report_condition)
        self._device.telemetry.start()
        before = set(threading.enumerate())
        self._server.start()
        self._serving = set(threading.enumerate()) - before
        self._health.set(ALIVE, health_pb2.HealthCheckResponse.SERVING)
        self._update_health()
        if self._settings.health_listen:
            self._health_port = HealthPort(self._settings.health_listen, self._health, self._calls)
        if self._settings.metrics_listen:
            self._metrics_port = _metrics_port(self._device, self._settings, self._certificates)
        self._watch(bound)
        if self._announcer is not None:
            self._announcer.start(bound)
        _log.info("serving %s on %s", self._device.info.device_name, ", ".join(bound))
        send_ready(self._device.info.device_name, bound, self._device.suspension_reason)
        return bound

    def drain(self) -> bool:
        """Refuse new work, wait for work under way within the drain time, and stop; return whether all work ended."""
        _log.info("draining")
        send_stopping(self._settings.drain_timeout_s + _STOP_S + 2 * _STOP_GRACE_S + CLOSE_S + FREE_S + _END_S)
        if self._announcer is not None:
            self._announcer.withdraw()
        self._device.stop_canary()
        self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        if not self._device.gate.close(self._settings.drain_timeout_s):
            _log.warning("work was still under way after %g s and is cut off", self._settings.drain_timeout_s)
        return self.stop()

    def stop(self) -> bool:
        """Stop now and cut off work under way; return whether all of it has ended."""
        self._stopped.set()
        if self._announcer is not None:
            self._announcer.close()
        self._tickets.stop()
        if self._local_socket is not None:
            self._local_socket.stop()
        self._device.sessions.hang_up_all()
        for port in (self._health_port, self._metrics_port):
            if port is not None:
                port.stop()
        try:
            has_stopped = self._server.stop(_STOP_GRACE_S).wait(_STOP_S)
        except RuntimeError:  # gRPC needs a thread for it, and can't start one.
            has_stopped = False
        self._calls.shutdown()
        if self._traces is not None:
            self._traces.close()
        return self._device.close(_STOP_GRACE_S) and has_stopped

    def _warn_of_few_threads(self) -> None:
        limit = thread_limit()
        if limit is not None and limit.value < self._most_threads:
            _log.warning(
                "clients at their limits take %d threads, and %s allows %d: calls beyond are refused; raise it,"
                " or lower --max-sessions, --session-streams, --session-calls or --session-loops",
                self._most_threads,
                limit.source,
                limit.value,
            )

    def _listen(self, address: str) -> str:
        path = address.removeprefix("unix:")
        if path != address:
            require_free_path(path)
        elif ":" in address:
            require_free_port(address, f"address {address!r}")
        else:
            raise InvalidParameter(f"address is {address!r}; use HOST:PORT or unix:PATH", place="--listen")
        self._settings.require_guarded(address)
        try:
            if path != address or self._credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, self._credentials)
        except (RuntimeError, ValueError) as error:
            raise InvalidParameter(f"can't listen there: {error}", place=f"address {address!r}") from error
        if path != address:
            self._tickets.listen(path)
        return address if path != address else f"{address.rpartition(':')[0]}:{port}"

    def _has_lost_its_rights(self, session: Session) -> bool:
        return not self._identities.is_valid(session.identity)

    def _report_condition(self) -> None:
        """Report that the canary has taken the device out of service, or has put it back."""
        self._update_health()
        send_condition(self._device.info.device_name, self._device.suspension_reason)

    def _update_health(self) -> None:
        """Set the health service's status by whether the device takes work."""
        is_out = self._device.status is DeviceStatus.OFFLINE
        reply = health_pb2.HealthCheckResponse
        self._set_health(reply.NOT_SERVING if is_out else reply.SERVING)

    def _set_health(self, status: int) -> None:
        for name in self._health_names:
            self._health.set(name, status)

    def _watch(self, addresses: list[str]) -> None:
        """Start the periodic steps of the watch; raise OutOfMemory if the process has no threads left."""
        sessions, timeout_s, lease_s = self._device.sessions, self._settings.heartbeat_timeout_s, self._settings.lease_s
        interval_s = min(max(min(timeout_s, lease_s or timeout_s) / 4, _MIN_WATCH_INTERVAL_S), _MAX_WATCH_INTERVAL_S)
        sign_s = sign_of_life_s()
        rounds = Rounds(min(interval_s, sign_s or interval_s), timeout_s / 4, self._stopped)
        memory = IdleMemory()
        rounds.take("serving", self._require_serving)
        rounds.take("store", self._require_whole_store)
        rounds.take("work", self._cancel_overdue, after_standstill=lambda: None)
        rounds.take("memory", lambda: memory.check(len(sessions), time.monotonic(), self._device.models.changes))
        rounds.take("models", self._device.models.shared.forget_abandoned)
        rounds.take("inputs", sessions.end_stalled_inputs)
        rounds.take("rights", self._cut_off_those_without_rights)
        rounds.take("cut-off", sessions.close_cut_off)
        rounds.take("silence", self._hang_up_silent, after_standstill=sessions.reset_silence)
        rounds.take("leases", self._close_expired)
        rounds.take("sequences", self._compact_sequences)
        rounds.take("refusals", self._device.refusals.summarize)
        rounds.take("log", flush_log)
        signs = SignsOfLife(rounds, sign_s, lambda: send_alive(addresses, self._device.suspension_reason))
        rounds.take("life", signs.check, after_standstill=lambda: None)

    def _require_serving(self) -> None:
        if not all(thread.is_alive() for thread in self._serving) and not self._stopped.is_set():
            exit_at_once(ExitCode.NOT_SERVING, "gRPC serves no more calls")

    def _require_whole_store(self) -> None:
        if damage := self._device.models.stored.damage():
            exit_at_once(ExitCode.DAMAGED, f"a file of the model store was cut short: {damage}")

    def _cancel_overdue(self) -> None:
        self._device.cancel_overdue()
        if self._device.stuck:
            self._give_up(self._device.stuck)

    def _cut_off_those_without_rights(self) -> None:
        over = self._device.sessions.cut_off(self._has_lost_its_rights, "its identity was taken away")
        _log_clients(over, "the access file no longer admits client %s as before; its session is over")
        for session in self._device.sessions.all():
            _forget_barred(session)

    def _hang_up_silent(self) -> None:
        silent = self._device.sessions.hang_up_silent()
        _log_clients(silent, "client %s has been silent for too long; its connection counts as lost")

    def _close_expired(self) -> None:
        expired = self._device.sessions.close_expired()
        _log_clients(expired, "client %s has not come back; its session is over")

    def _compact_sequences(self) -> None:
        for session in self._device.sessions.all():
            session.sequences.compact()

    def _give_up(self, why: str) -> NoReturn:
        """Tell the clients that the device is stuck or lost, and end the process: nothing else brings it back."""
        code = ExitCode.LOST if why == self._device.lost else ExitCode.STUCK
        _log.critical("the device is %s: %s", code.name.lower(), why)
        self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        until = time.monotonic() + _NOTICE_S
        while len(self._device.sessions) and time.monotonic() < until:
            self._stopped.wait(_MIN_WATCH_INTERVAL_S)
        self._server.stop(_STOP_GRACE_S).wait(_STOP_GRACE_S)  # So that the last replies are sent.
        exit_at_once(code, why)


def _forget_barred(session: Session) -> None:
    """Forget the descriptions of runs on behalf of those for whom the client may run nothing any more."""
    session.descriptions.forget_served(lambda name: session.served.is_barred(name, session.identity))


def _log_clients(sessions: Sequence[Session], message: str) -> None:
    for session in sessions:
        _log.info(message, session.client, extra=session.log_fields)


def _traces(device: Device) -> "Traces":
    try:
        from nnrt_device_service.transport.grpc.tracing import Traces
    except ImportError as error:
        raise InvalidParameter("it needs OpenTelemetry's SDK; pip install 'nnrt[tracing]'", place="--traces") from error
    return Traces(device)


def _local_socket(device: Device, replies: Replies) -> LocalSocket | None:
    if not IS_POSSIBLE:
        return None
    try:
        return LocalSocket(device, replies)
    except OSError as error:
        _log.warning("clients on this host get no shared memory: %s", error.strerror)
        return None


def _metrics_port(device: Device, settings: Settings, certificates: WatchedFiles[Certificates] | None) -> "MetricsPort":
    try:
        from nnrt_device_service.metrics.port import MetricsPort
    except ModuleNotFoundError as error:
        what = f"it needs {error.name}; pip install 'nnrt[metrics]'"
        raise InvalidParameter(what, place="--metrics-listen") from error
    return MetricsPort(settings.metrics_listen, device, settings, certificates)
