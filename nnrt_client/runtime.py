"""Where an application begins: the daemons it knows, and their devices."""

import logging
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from typing_extensions import Self

from nnrt_client import fork
from nnrt_client.connection import Connection
from nnrt_client.device import Device
from nnrt_client.settings import DEVICES_VARIABLE, Settings, addresses_from_environment
from nnrt_hdi.enums import DeviceStatus
from nnrt_hdi.errors import NnrtError, OperationFailed, OperationForbidden

_log = logging.getLogger(__name__)

_CALLBACK_THREADS = 4
_USABLE = (DeviceStatus.AVAILABLE, DeviceStatus.BUSY)


class Runtime(fork.LockOwner):
    """Connections to device daemons.

    `addresses` are HOST:PORT or unix:PATH; without them those in the environment variable NNRT_DEVICES count,
    separated by commas. A context manager: leaving it ends the sessions, and the daemons free what was made
    in them.
    """

    def __init__(self, addresses: Sequence[str] | None = None, settings: Settings | None = None) -> None:
        fork.require_original_process()
        given = addresses if addresses is not None else addresses_from_environment()
        self._addresses = tuple(dict.fromkeys(given))
        self._settings = settings or Settings()
        self._devices: dict[str, Device] = {}
        self._is_open = True
        super().__init__()

    def make_locks(self) -> None:
        self._lock = threading.Lock()
        self._connecting = {address: threading.Lock() for address in self._addresses}
        self._callbacks = ThreadPoolExecutor(_CALLBACK_THREADS, thread_name_prefix="nnrt-callback")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def answers(self) -> dict[str, Device | None]:
        """Per address, the device that answers there now and takes work; None where none does."""
        fork.require_original_process()
        if not self._is_open:
            raise OperationForbidden("the runtime is closed; make a new one")
        if not self._addresses:
            return {}
        with ThreadPoolExecutor(len(self._addresses), thread_name_prefix="nnrt-probe") as pool:
            return dict(zip(self._addresses, pool.map(self._probe, self._addresses), strict=True))

    def devices(self) -> list[Device]:
        """The devices that answer now and take work, in the order of their addresses.

        One that doesn't answer is left out, with a warning in the log; so is a second device of the same name.
        """
        devices: dict[str, Device] = {}
        for device in self.answers().values():
            if device is not None and devices.setdefault(device.name, device) is not device:
                _log.warning("%s is ignored: %s has the same name", device, devices[device.name])
        return list(devices.values())

    def device(self, which: str | int = 0) -> Device:
        """A device by name, address or id; 0 is the first. Raises OperationFailed if no such device answers.

        It costs nothing where the device is known, connected, and took work as of its last heartbeat.
        """
        device = self.find(which)
        if device is not None:
            return device
        if not self._addresses:
            raise OperationFailed(f"no addresses are known; give them to Runtime or set {DEVICES_VARIABLE}")
        wanted = "no device" if which == 0 else f"no device {which!r}"
        there = ", ".join(device.name for device in self._usable()) or "none"
        raise OperationFailed(f"{wanted} answers at {', '.join(self._addresses)}; devices there: {there}")

    def find(self, which: str | int = 0) -> Device | None:
        """The same as `device`, but None if no such device answers."""
        return _chosen(which, self._usable()) or _chosen(which, self.devices())

    def knows(self, which: str | int) -> bool:
        """Whether such a device has answered before, though it may be gone."""
        with self._lock:
            return _chosen(which, self._devices.values()) is not None

    def _usable(self) -> list[Device]:
        """The devices that, as far as is known, take work now, in the order of their addresses. Asks nobody."""
        if not self._is_open:
            raise OperationForbidden("the runtime is closed; make a new one")
        with self._lock:
            known = [self._devices[address] for address in self._addresses if address in self._devices]
        return [device for device in known if device.is_connected and device.state.status in _USABLE]

    def close(self) -> None:
        """End all sessions. Idempotent."""
        with self._lock:
            self._is_open = False
            devices = list(self._devices.values())
        for device in devices:
            device.close()
        self._callbacks.shutdown(wait=False)

    def _probe(self, address: str) -> Device | None:
        try:
            with self._connecting[address]:
                device = self._devices.get(address) or self._connected(address)
            status = device.status()
        except NnrtError as error:
            _log.warning("no device at %s: %s", address, error)
            return None
        if status not in _USABLE:
            _log.warning("%s is left out: its status is %s", device, status.name)
            return None
        return device

    def _connected(self, address: str) -> Device:
        device = Device(Connection(address, self._settings), self._callbacks)
        with self._lock:
            if self._is_open:
                self._devices[address] = device
                return device
        device.close()
        raise OperationForbidden("the runtime was closed; make a new one")


def _chosen(which: str | int, devices: Iterable[Device]) -> Device | None:
    for device in devices:
        if which in (0, device.name, device.address, device.id):
            return device
    return None
