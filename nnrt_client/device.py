"""A device as an application sees it."""

import hashlib
import logging
import threading
from concurrent.futures import Executor as ThreadPool

from nnrt_client.connection import Connection
from nnrt_client.fork import LockOwner
from nnrt_client.run_call import RunCall
from nnrt_client.run_streams import Decode, PendingRun, RunStreams
from nnrt_client.savings import Savings
from nnrt_client.side_channel import SideChannel
from nnrt_client.side_runs import SideRuns
from nnrt_hdi import wire
from nnrt_hdi.backend import Capabilities, DeviceInfo, DeviceState
from nnrt_hdi.enums import DeviceStatus, DeviceType, Priority
from nnrt_hdi.errors import ConnectionFailed, OperationForbidden, OutOfMemory, UnavailableDevice
from nnrt_hdi.v2 import device_pb2

_log = logging.getLogger(__name__)


class Link:
    """A living connection to a device, with the streams its runs travel on."""

    def __init__(self, connection: Connection, callbacks: ThreadPool) -> None:
        self.connection = connection
        self._streams = RunStreams(connection)
        self.channel = SideChannel.of(connection)
        self._side_runs = None if self.channel is None else SideRuns(connection, self.channel, self._streams)
        self.callbacks = callbacks

    def submit(
        self, call: RunCall, decode: Decode, timeout_ms: int | None, priority: Priority, is_callers: bool = False
    ) -> PendingRun:
        """Start a run, on the side channel where there is one and it fits. See `RunStreams.submit`."""
        if self._side_runs is not None and call.signature.fits_packet:
            try:
                return self._side_runs.submit(call, decode, timeout_ms, priority, is_callers)
            except (ConnectionFailed, OutOfMemory) as error:
                _log.debug("a run goes over gRPC: %s", error)
        return self._streams.submit(call, decode, timeout_ms, priority, is_callers)

    def close(self) -> None:
        """End the session; when this returns, its runs have ended."""
        self.connection.close()
        for streams in filter(None, (self._side_runs, self._streams)):
            streams.wait_ended(self.connection.settings.verdict_timeout_s)


class Device(LockOwner):
    """An accelerator behind a daemon. Made by a Runtime.

    It outlives its daemon: when the daemon has been restarted, the next call connects again. What was
    prepared on the old instance stays dead.
    """

    def __init__(self, connection: Connection, callbacks: ThreadPool) -> None:
        super().__init__()
        self._link = Link(connection, callbacks)
        self._callbacks = callbacks
        self._is_closed = False
        self.address = connection.address
        self.name = _unique_name(connection)

    def make_locks(self) -> None:
        self._lock = threading.Lock()
        # One connects anew at a time; not under the lock that `close` needs, for it may take long.
        self._connecting = threading.Lock()

    def __repr__(self) -> str:
        return f"<Device {self.name} at {self.address}>"

    @property
    def id(self) -> int:
        """64 bits that follow from the name, so that they are the same in every process and after every restart."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8], "big") or 1

    @property
    def info(self) -> DeviceInfo:
        return self._link.connection.info

    @property
    def state(self) -> DeviceState:
        """Load and condition as of the last heartbeat. Costs nothing."""
        return self._link.connection.state

    @property
    def savings(self) -> Savings:
        """What compression has saved on the present connection; nothing unless Settings.compression asks for it, and
        the daemon knows it. Costs nothing."""
        compressor = self._link.connection.compressor
        return Savings() if compressor is None else compressor.savings

    @property
    def type(self) -> DeviceType:
        return self.info.device_type

    @property
    def capabilities(self) -> Capabilities:
        return self.info.capabilities

    @property
    def is_connected(self) -> bool:
        """Whether the daemon lives, as far as is known. Costs nothing."""
        return self._link.connection.is_alive

    def status(self) -> DeviceStatus:
        """Whether the device takes work, asked now. Raises UnavailableDevice or ConnectionFailed."""
        connection = self.link().connection
        reply = connection.call(
            connection.device.GetDeviceStatus,
            device_pb2.GetDeviceStatusRequest(),
            connection.settings.query_timeout_s,
            "NnrtDevice.GetDeviceStatus",
        )
        return wire.device_status(reply.status)

    def link(self) -> Link:
        """The living link, or a new one to the same device. Raises UnavailableDevice if there is none any more."""
        if link := self._living_link():
            return link
        with self._connecting:
            if link := self._living_link():  # Another thread was first.
                return link
            link = Link(self._reconnected(), self._callbacks)
            with self._lock:
                if not self._is_closed:
                    self._link = link
                    return link
            link.close()
            raise self._closed_error()

    def _living_link(self) -> Link | None:
        with self._lock:
            if self._is_closed:
                raise self._closed_error()
            return self._link if self._link.connection.is_alive else None

    def _closed_error(self) -> OperationForbidden:
        return OperationForbidden("its runtime is closed; make a new one", place=self.name)

    def _reconnected(self) -> Connection:
        try:
            connection = Connection(self.address, self._link.connection.settings)
        except ConnectionFailed as error:
            # The address was good before, so it is the device that is missing.
            raise UnavailableDevice(error.message, place=error.place) from error
        if (name := _unique_name(connection)) != self.name:
            connection.close()
            raise UnavailableDevice(f"{self.name} is gone; {name} answers in its place", place=connection.place)
        return connection

    def close(self) -> None:
        """End the session, for good; the daemon frees everything made in it."""
        with self._lock:
            self._is_closed = True
        self._link.close()


def _unique_name(connection: Connection) -> str:
    """NNRt's name of a device: device, vendor and HDI version."""
    info, welcome = connection.info, connection.welcome
    return f"{info.device_name}_{info.vendor_name}_v{welcome.hdi_major}_{welcome.hdi_minor}"
