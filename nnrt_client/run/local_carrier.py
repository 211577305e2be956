"""Runs to a daemon on this host: packets on the local socket, and tensors in memory that both have."""

import logging
import socket
from abc import ABC, abstractmethod
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING

from nnrt_client.run.carrier import Lane, OneRun
from nnrt_client.run.packet import Packet
from nnrt_client.run.reply import Reply
from nnrt_client.run.reply_reader import ReplyReader
from nnrt_client.run.run import Run
from nnrt_client.session.broken_call import BrokenCall
from nnrt_client.session.local_socket import LocalConnection, LocalSocket
from nnrt_client.session.session import Session
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.limits import LOCAL_PACKET_BYTES
from nnrt_hdi.signals import raised_by_handler

if TYPE_CHECKING:
    from nnrt_client.run.queue import RunQueue

_log = logging.getLogger(__name__)

# A number, for operations on flags of the enum take microseconds.
AT_ONCE = int(getattr(socket, "MSG_DONTWAIT", 0))

BROKEN = BrokenCall("the local socket broke off")
ANSWERS_NONE = "a reply answers no run that is under way"


class LocalCarrier:
    """Opens connections of the local socket. See `Carrier`."""

    is_read_by_callers = True

    def __init__(self, session: Session, local_socket: LocalSocket, runs: "RunQueue") -> None:
        self._session = session
        self._local_socket = local_socket
        self._runs = runs
        self.reader = ReplyReader(f"nnrt-replies {session.address}")

    def pack(self, run: Run) -> tuple[Packet, bytes]:
        """What reads the reply, and what is sent."""
        packet = Packet(run.signature.descriptions.local.of(run), run, self._local_socket)
        return packet, packet.frame(run)

    def opened(self, lane: Lane) -> "LocalStream":
        attachment, connection = self._session.attachment, LocalConnection(self._session)
        try:
            return LocalStream(connection, attachment, self._runs, self.reader, lane)
        except BaseException:
            connection.close()
            raise

    def end(self) -> None:
        self.reader.stop()

    def wait_ended(self, timeout_s: float) -> None:
        self.reader.join(timeout_s)


class ConnectionStream(ABC):
    """What streams have that are connections of the local socket, whoever reads them. See `Stream`."""

    def __init__(
        self, connection: LocalConnection, attachment: int, runs: "RunQueue", reader: ReplyReader, lane: Lane
    ) -> None:
        self.lane = lane
        self.run: Run | None = None
        self.answered = 0
        self.attachment = attachment
        self.is_over = False
        self._connection = connection
        self._runs = runs
        self._reader = reader

    @abstractmethod
    def read_ready(self) -> None:
        """Read replies, if some have come, and hand them out."""

    def fileno(self) -> int:
        return self._connection.fileno()

    def read_elsewhere(self) -> None:
        if not self._reader.arm(self):
            self.read_ready()

    def shut_down(self) -> None:
        self._connection.end()

    def close(self) -> None:
        self._reader.close(self, self._connection.close)


class LocalStream(ConnectionStream, OneRun):
    """One connection, on which one run at a time is under way. See `Stream`."""

    def send(self, run: Run, packed: tuple[Packet, bytes]) -> None:
        run.packet, data = packed
        run.stamps.sent_ns = perf_counter_ns()
        self._connection.send(data)

    def read_here(self, run: Run) -> None:
        receive = self._connection.receive
        while self.run is run and not run.ended.is_set:  # Who ends it early has the reply read elsewhere.
            try:
                data = receive(LOCAL_PACKET_BYTES)
            except OSError as error:
                if raised_by_handler(error):
                    raise
                if isinstance(error, BlockingIOError):
                    continue
                data = b""
            self._take(data)

    def read_ready(self) -> None:
        run = self.run
        try:
            try:
                self._take(self._connection.receive(LOCAL_PACKET_BYTES, AT_ONCE))
            except BlockingIOError:  # Another thread was first, or it was for another connection of this descriptor.
                pass
            except OSError:
                self._take(b"")
            if run is not None and self.run is run:
                self.read_elsewhere()
        except BaseException as error:  # No memory, perhaps. Others are read all the same.
            _log.exception("a reply could not be read")
            self._runs.could_not_read(self, run, error)

    def stop(self, run: Run, reason: NnrtError) -> None:
        self.read_elsewhere()
        if run.tensors is None or run.tensors.targets is None:
            run.fail(reason)  # Before who reads the end of the connection looks whether its reply is still wanted.
            if self is self.lane.mains:
                # The main thread may wait there, and each signal begins its wait for the reply anew.
                self.shut_down()

    def _take(self, data: bytes) -> None:
        """Hand out a reply, or the end of the connection, to the queue."""
        run = self.run
        try:
            reply = Reply(data)
        except InvalidParameter:  # Of no bytes it has no head.
            self._runs.lost(self, BROKEN)
            return
        if run is None or reply.run_id != run.id or (packet := run.packet) is None:
            _log.debug(ANSWERS_NONE)
            return
        outcome = reply.outcome
        if outcome is not None and outcome.kept:
            self._runs.kept(self, run)
        elif outcome is not None and outcome.is_unknown:
            self._send_again(run, packet)
        else:
            run.stamps.answered_ns = perf_counter_ns()
            self._runs.answered(self, run)
            run.finish(partial(packet.outputs, run, reply), reply)

    def _send_again(self, run: Run, packet: Packet) -> None:
        """Send a run once more, with its description. Raises OperationFailed where the daemon has had that."""
        packet.forget_description()
        try:
            self._connection.send(packet.frame(run))
        except OSError as error:
            if raised_by_handler(error):
                raise
            self._runs.lost(self, BROKEN)
