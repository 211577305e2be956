"""Device behind a daemon, for applications."""

import hashlib
import logging
import threading
from dataclasses import replace

from nnrt_client.session.compression import CompressionStatistics
from nnrt_client.session.fork import LockOwner
from nnrt_client.session.reasons import why_missing
from nnrt_client.session.session import Session
from nnrt_hdi import wire
from nnrt_hdi.backend import CanaryState, Capabilities, DeviceInfo, DeviceState
from nnrt_hdi.counters import FEATURE as COUNTERS_FEATURE
from nnrt_hdi.counters import DeviceCounters
from nnrt_hdi.enums import DeviceStatus, DeviceType
from nnrt_hdi.errors import ConnectionFailed, OperationForbidden, UnavailableDevice, Unsupported
from nnrt_hdi.v2 import device_pb2

_log = logging.getLogger(__name__)


class Device(LockOwner):
    """Accelerator behind a daemon. Made by a Runtime.

    It outlives its daemon: after a restart of the daemon, the next call connects again. Models and tensors of the
    former daemon process can't be used any more.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._latest = session
        self._is_closed = False
        self.address = session.address
        self.name = _unique_name(session)

    def _make_locks(self) -> None:
        self._lock = threading.RLock()
        # For one thread at a time to connect again. Not `_lock`, which `close` needs, because connecting may take long.
        self._connecting = threading.RLock()

    def __repr__(self) -> str:
        return f"<Device {self.name} at {self.address}>"

    @property
    def id(self) -> int:
        """64-bit hash of the name, the same in every process and after every restart."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8], "big") or 1

    @property
    def info(self) -> DeviceInfo:
        """Identity and capabilities of the device."""
        return self._latest.info

    @property
    def state(self) -> DeviceState:
        """Load and condition as of the last heartbeat or answer. This makes no RPC."""
        return self._latest.state

    @property
    def compression_statistics(self) -> CompressionStatistics:
        """Bytes that compression has saved in the present session. This makes no RPC.

        They are 0 unless Settings.compression asks for compression and the daemon supports it.
        """
        compressor = self._latest.compressor
        return CompressionStatistics() if compressor is None else compressor.compression_statistics

    @property
    def type(self) -> DeviceType:
        """Kind of processor."""
        return self.info.device_type

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the device, on which some options of a compilation depend."""
        return self.info.capabilities

    @property
    def is_connected(self) -> bool:
        """True while the daemon lives, as far as the session knows. This makes no RPC."""
        return self._latest.is_alive

    def status(self) -> DeviceStatus:
        """Ask the daemon for the device's status now.

        Returns:
            The status.

        Raises:
            UnavailableDevice: The daemon is gone, and no daemon with the same device answers at its address.
            ConnectionFailed: The connection broke off.
            TimedOut: The daemon didn't answer in time.
            OperationForbidden: The runtime is closed.
        """
        return self._query_status()[0]

    def canary(self) -> CanaryState | None:
        """Ask the daemon for the results of its canary: its periodic test runs on the device.

        Returns:
            The results, or None if the daemon makes no test runs.

        Raises:
            NnrtError: As `status` does.
        """
        return self._query_status()[1]

    def _query_status(self) -> tuple[DeviceStatus, CanaryState | None]:
        """Ask the daemon for the device's status and canary results, and store them in `state`."""
        session = self._session()
        reply = session.call(
            "NnrtDevice.GetDeviceStatus", device_pb2.GetDeviceStatusRequest(), session.settings.query_timeout_s
        )
        status, canary = wire.device_status(reply.status), wire.canary_state(reply)
        session.state = replace(session.state, status=status, out=canary.why if canary and canary.is_out else "")
        return status, canary

    def counters(self) -> DeviceCounters:
        """Ask the daemon for its counters since its start.

        They count the work of this client's identity, or of all identities if this client may administer the daemon.

        Returns:
            The counters.

        Raises:
            Unsupported: The daemon's version has no counters.
            NnrtError: As `status` does.
        """
        session = self._session()
        if COUNTERS_FEATURE not in session.welcome.features:
            raise Unsupported("its daemon doesn't tell what it counts; take a later version of it", place=self.name)
        reply = session.call(
            "NnrtDevice.GetCounters", device_pb2.GetCountersRequest(), session.settings.query_timeout_s
        )
        return wire.counters(reply)

    def _session(self) -> Session:
        """Return the living session, or open one with the same device. Raise UnavailableDevice if that fails."""
        if session := self._living_session():
            return session
        with self._connecting:
            if session := self._living_session():  # Another thread has connected meanwhile.
                return session
            session = self._reconnect()
            with self._lock:
                if not self._is_closed:
                    self._latest = session
                    return session
            session.close()
            raise self._closed_error()

    def _living_session(self) -> Session | None:
        with self._lock:
            if self._is_closed:
                raise self._closed_error()
            return self._latest if self._latest.is_alive else None

    def _closed_error(self) -> OperationForbidden:
        return OperationForbidden("its runtime is closed; make a new one", place=self.name)

    def _reconnect(self) -> Session:
        try:
            session = Session(self.address, self._latest.settings, self._latest.callbacks)
        except ConnectionFailed as error:
            # A daemon was reached there before, so the device is missing, unless its daemon refuses the client.
            raise why_missing(error) from error
        if (name := _unique_name(session)) != self.name:
            session.close()
            raise UnavailableDevice(f"{self.name} is gone; {name} answers in its place", place=session.place)
        return session

    def close(self) -> None:
        """End the session and make no new one. The daemon frees everything made in it."""
        with self._lock:
            self._is_closed = True
        self._latest.close()


def session_of(device: Device) -> Session:
    """Return the living session with a device, or a new one. Raise UnavailableDevice if that fails."""
    return device._session()


def _unique_name(session: Session) -> str:
    """Return NNRt's name of a device, made of its name, its vendor and the HDI version."""
    info, welcome = session.info, session.welcome
    return f"{info.device_name}_{info.vendor_name}_v{welcome.hdi_major}_{welcome.hdi_minor}"
