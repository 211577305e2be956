"""What a runtime knows of addresses: the devices that it has found there, and why others have none to use."""

import logging
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nnrt_client.session import fork
from nnrt_client.session.device import Device
from nnrt_hdi.enums import DeviceStatus
from nnrt_hdi.errors import NnrtError

_log = logging.getLogger(__name__)

# Of devices that take work.
USABLE = (DeviceStatus.AVAILABLE, DeviceStatus.BUSY)


@dataclass(slots=True)
class _LeftOut:
    """Why an address has no device to use, and since when."""

    since: float
    error: NnrtError
    looked_at: float = 0.0
    # Whether the log says so.
    is_told: bool = False


class KnownDevices(fork.LockOwner):
    """The devices of a runtime, by their addresses. Nothing here asks a daemon."""

    def __init__(self) -> None:
        self._is_open = True
        self._devices: dict[str, Device] = {}
        # Dead ones that no address leads to any more; somebody may still use them, and so connect them again.
        self._absent: weakref.WeakSet[Device] = weakref.WeakSet()
        # Per address where the last look found no device to use.
        self._left_out: dict[str, _LeftOut] = {}
        # Per address of a device with the name of another one, which one that is.
        self._doubles: dict[str, str] = {}
        super().__init__()

    def _make_locks(self) -> None:
        self._lock = threading.RLock()

    def add(self, device: Device) -> bool:
        """Know a device from now on; false once this is closed."""
        with self._lock:
            if self._is_open:
                self._devices[device.address] = device
            return self._is_open

    def close(self) -> list[Device]:
        """Take no more devices. Returns those that are to be closed."""
        with self._lock:
            self._is_open = False
            return [*self._devices.values(), *self._absent]

    def at(self, address: str) -> Device | None:
        """Give the device that has answered at an address."""
        return self._devices.get(address)

    def all(self) -> list[Device]:
        """Give all devices that an address leads to, though they may be gone."""
        with self._lock:
            return list(self._devices.values())

    def usable(self, addresses: Iterable[str]) -> list[Device]:
        """Give the devices at these addresses that, as far as is known, take work now, in this order."""
        with self._lock:
            known = [self._devices[address] for address in addresses if address in self._devices]
        return [device for device in known if _is_usable(device)]

    def first(self, addresses: Iterable[str], look_again_s: float) -> Device | None:
        """Give the first of `usable`; None if that has to be asked, for one before it may be back."""
        looked_since = time.monotonic() - look_again_s
        with self._lock:
            for address in addresses:
                device, left = self._devices.get(address), self._left_out.get(address)
                if device is not None and _is_usable(device):
                    return device
                if (left is None or left.looked_at < looked_since) and not (device is not None and device.is_connected):
                    return None
        return None

    def forget_all_but(self, addresses: Sequence[str]) -> None:
        """Let go of what belongs to other addresses. Devices whose daemons live stay, in case they are used."""
        with self._lock:
            for address in self._left_out.keys() - set(addresses):
                del self._left_out[address]
            for address in self._devices.keys() - set(addresses):
                if not self._devices[address].is_connected:
                    self._absent.add(self._devices.pop(address))

    # ---- addresses without a device to use

    def leave_out(self, address: str, error: NnrtError) -> None:
        """Note why an address has no device to use now."""
        now = time.monotonic()
        with self._lock:
            left = self._left_out.setdefault(address, _LeftOut(now, error))
            left.looked_at, left.error = now, error

    def take_back(self, device: Device) -> None:
        """Note that a device takes work now."""
        with self._lock:
            left = self._left_out.pop(device.address, None)
        if left is not None and left.is_told:
            _log.warning("%s is back at %s, after %.1f s", device.name, device.address, time.monotonic() - left.since)

    def note_doubles(self, doubles: dict[str, str]) -> None:
        """Note, and log, which addresses lead to devices with the names of others."""
        with self._lock:
            known, self._doubles = self._doubles, doubles
        for address in doubles.keys() - known.keys():
            _log.warning("no device at %s: %s", address, doubles[address])

    def left_out(self) -> tuple[dict[str, NnrtError], dict[str, str]]:
        """Give the errors of addresses without a device to use, and what is to be said of doubles."""
        with self._lock:
            return {address: left.error for address, left in self._left_out.items()}, self._doubles

    def log_left_out(self) -> None:
        """Log which addresses have been left out since this was last called; an error that is raised says so itself."""
        with self._lock:
            untold = {address: left for address, left in self._left_out.items() if not left.is_told}
            for left in untold.values():
                left.is_told = True
        for address, left in untold.items():
            _log.warning("no device at %s: %s", address, left.error.reason)


def _is_usable(device: Device) -> bool:
    return device.is_connected and device.state.status in USABLE
