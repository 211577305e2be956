"""The beginning of an application: the daemons it knows, and their devices."""

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from numbers import Integral

from nnrt_client.session import fork
from nnrt_client.session.device import Device
from nnrt_client.session.session import Session
from nnrt_client.settings import DEVICES_VARIABLE, Settings, addresses_from_environment
from nnrt_hdi.closable import Closable
from nnrt_hdi.enums import DeviceStatus
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, OperationForbidden

_log = logging.getLogger(__name__)

_CALLBACK_THREADS = 4
_USABLE = (DeviceStatus.AVAILABLE, DeviceStatus.BUSY)


@dataclass(slots=True)
class _LeftOut:
    """Why an address has no device to use, and since when."""

    since: float
    looked_at: float = 0.0
    why: str = ""
    # Whether the log says so.
    is_told: bool = False


class Runtime(fork.LockOwner, Closable):
    """Connections to device daemons.

    `addresses` are HOST:PORT or unix:PATH; without them those in the environment variable NNRT_DEVICES count,
    separated by commas. A context manager: leaving it ends the sessions, and the daemons free what was made
    in them.
    """

    def __init__(self, addresses: Sequence[str] | None = None, settings: Settings | None = None) -> None:
        fork.require_original_process()
        given = addresses if addresses is not None else addresses_from_environment()
        self._addresses = tuple(dict.fromkeys(_require_addresses(given)))
        self._settings = settings if settings is not None else Settings()
        if not isinstance(self._settings, Settings):
            raise InvalidParameter(f"the settings are {settings!r}; give Settings", place="Runtime")
        self._devices: dict[str, Device] = {}
        # Per address where the last look found no device to use.
        self._left_out: dict[str, _LeftOut] = {}
        # Per address of a device with the name of another one, which one that is.
        self._doubles: dict[str, str] = {}
        self._is_open = True
        super().__init__()

    def _make_locks(self) -> None:
        self._lock = threading.RLock()
        self._connecting = {address: threading.RLock() for address in self._addresses}
        self._callbacks = ThreadPoolExecutor(_CALLBACK_THREADS, thread_name_prefix="nnrt-callback")

    def answers(self) -> dict[str, Device | None]:
        """Ask all daemons: per address, the device that answers there now and takes work; None where none does."""
        answers = self._asked()
        self._tell()
        return answers

    def devices(self) -> list[Device]:
        """The devices that answer now and take work, in the order of their addresses.

        One that doesn't answer is left out, with a warning in the log, and another one when it is back; so is a second
        device of the same name.
        """
        devices = self._answering()
        self._tell()
        return devices

    def device(self, which: str | int = 0) -> Device:
        """A device by name, address or id; 0 is the first. Raises OperationFailed if no such device answers.

        It costs nothing where the device is known, connected, and took work as of its last heartbeat.
        """
        device = self._found(which)
        if device is not None:
            self._tell()
            return device
        if not self._addresses:
            what = "" if which == 0 else f"{which!r} is no HOST:PORT, and "
            raise OperationFailed(f"{what}no addresses are known; give a device's address, or set {DEVICES_VARIABLE}")
        wanted = "no device" if which == 0 else f"no device {which!r}"
        there = ", ".join(device.name for device in self._usable()) or "none"
        with self._lock:
            reasons = {address: left.why for address, left in self._left_out.items()} | self._doubles
        left_out = ", ".join(f"{address} ({why})" for address, why in reasons.items()) or "none"
        raise OperationFailed(
            f"{wanted} answers at {', '.join(self._addresses)}; devices there: {there}; left out: {left_out}"
        )

    def find(self, which: str | int = 0) -> Device | None:
        """Find a device as `device` does; None if no such one answers. Raises InvalidParameter for what names none."""
        device = self._found(which)
        self._tell()
        return device

    def _found(self, which: str | int) -> Device | None:
        if not isinstance(which, str | int | Integral):
            raise InvalidParameter(f"the device is {which!r}; give a name, an address or an id", place="Runtime")
        known = self._known_first() if which == 0 else _chosen(which, self._usable())
        return known or _chosen(which, self._answering())

    def _asked(self) -> dict[str, Device | None]:
        fork.require_original_process()
        if not self._is_open:
            raise OperationForbidden("the runtime is closed; make a new one")
        if not self._addresses:
            return {}
        with ThreadPoolExecutor(len(self._addresses), thread_name_prefix="nnrt-probe") as pool:
            return dict(zip(self._addresses, pool.map(self._probe, self._addresses), strict=True))

    def _answering(self) -> list[Device]:
        """The devices that answer now, each name once."""
        devices: dict[str, Device] = {}
        doubles: dict[str, str] = {}
        for device in self._asked().values():
            if device is not None and (first := devices.setdefault(device.name, device)) is not device:
                doubles[device.address] = f"the device at {first.address} has the same name"
        with self._lock:
            known, self._doubles = self._doubles, doubles
        for address in doubles.keys() - known.keys():
            _log.warning("no device at %s: %s", address, doubles[address])
        return list(devices.values())

    def _knows(self, which: str | int) -> bool:
        """Tell if such a device has answered before, though it may be gone."""
        with self._lock:
            return _chosen(which, self._devices.values()) is not None

    def _known_first(self) -> Device | None:
        """The device that `devices` would name first, None if that has to be asked: one before it may be back."""
        usable = {device.address: device for device in self._usable()}
        looked_since = time.monotonic() - self._settings.look_again_s
        with self._lock:
            for address in self._addresses:
                if address in usable:
                    return usable[address]
                left = self._left_out.get(address)
                device = self._devices.get(address)
                if (left is None or left.looked_at < looked_since) and not (device is not None and device.is_connected):
                    return None
        return None

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
            self._leave_out(address, error.message)
            return None
        if status not in _USABLE:
            is_draining = status is DeviceStatus.OFFLINE and device.state.is_draining
            self._leave_out(address, f"{device.name} is {'shutting down' if is_draining else status.name}")
            return None
        with self._lock:
            left = self._left_out.pop(address, None)
        if left is not None and left.is_told:
            _log.warning("%s is back at %s, after %.1f s", device.name, address, time.monotonic() - left.since)
        return device

    def _leave_out(self, address: str, why: str) -> None:
        now = time.monotonic()
        with self._lock:
            left = self._left_out.setdefault(address, _LeftOut(now))
            left.looked_at, left.why = now, why

    def _tell(self) -> None:
        """Log which addresses have been left out since it was last told; an error that is raised says so itself."""
        with self._lock:
            untold = {address: left for address, left in self._left_out.items() if not left.is_told}
            for left in untold.values():
                left.is_told = True
        for address, left in untold.items():
            _log.warning("no device at %s: %s", address, left.why)

    def _connected(self, address: str) -> Device:
        device = Device(Session(address, self._settings, self._callbacks))
        with self._lock:
            if self._is_open:
                self._devices[address] = device
                return device
        device.close()
        raise OperationForbidden("the runtime was closed; make a new one")


def _require_addresses(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, Iterable) and not isinstance(given, str):
        addresses = tuple(given)
        if all(isinstance(address, str) for address in addresses):
            return addresses
    raise InvalidParameter(f'the addresses are {given!r}; give a list of texts: ["127.0.0.1:50051"]', place="Runtime")


def _chosen(which: str | int, devices: Iterable[Device]) -> Device | None:
    for device in devices:
        if which in (0, device.name, device.address, device.id):
            return device
    return None
