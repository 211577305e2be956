"""Devices that a runtime found at its addresses, and the reasons why other addresses have none."""

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

# States in which a device takes work.
USABLE = (DeviceStatus.AVAILABLE, DeviceStatus.BUSY)


@dataclass(slots=True)
class _LeftOut:
    """Reason why an address has no device to use, and since when."""

    since: float
    error: NnrtError
    looked_at: float = 0.0
    # Whether it has been logged.
    is_logged: bool = False


class KnownDevices(fork.LockOwner):
    """Devices of a runtime by their addresses. Nothing here asks a daemon."""

    def __init__(self) -> None:
        self._is_open = True
        self._devices: dict[str, Device] = {}
        # Dead devices that no address leads to any more. The application may still use one, and so connect it again.
        self._absent: weakref.WeakSet[Device] = weakref.WeakSet()
        # Addresses at which the last look found no device to use.
        self._left_out: dict[str, _LeftOut] = {}
        # Addresses whose device has the name of another one, each with a text that says which.
        self._same_named: dict[str, str] = {}
        super().__init__()

    def _make_locks(self) -> None:
        self._lock = threading.RLock()

    def add(self, device: Device) -> bool:
        """Add a device and return True, or return False if this is closed."""
        with self._lock:
            if self._is_open:
                self._devices[device.address] = device
            return self._is_open

    def close(self) -> list[Device]:
        """Take no more devices, and return those that must be closed."""
        with self._lock:
            self._is_open = False
            return [*self._devices.values(), *self._absent]

    def device_at(self, address: str) -> Device | None:
        """Return the device that has answered at an address, or None."""
        return self._devices.get(address)

    def all(self) -> list[Device]:
        """Return all devices that an address leads to, even those that are gone."""
        with self._lock:
            return list(self._devices.values())

    def usable(self, addresses: Iterable[str]) -> list[Device]:
        """Return the devices at these addresses that, as far as is known, take work now, in this order."""
        with self._lock:
            known = [self._devices[address] for address in addresses if address in self._devices]
        return [device for device in known if _is_usable(device)]

    def first(self, addresses: Iterable[str], look_again_s: float) -> Device | None:
        """Return the first device of `usable`, or None if the daemons must be asked.

        They must be asked if an earlier address has no connected device and was not looked at for `look_again_s`: its
        device may be back.
        """
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
        """Forget all other addresses and their devices.

        Devices whose daemons live stay, because the application may use them.
        """
        with self._lock:
            for address in self._left_out.keys() - set(addresses):
                del self._left_out[address]
            for address in self._devices.keys() - set(addresses):
                if not self._devices[address].is_connected:
                    self._absent.add(self._devices.pop(address))

    # ---- addresses without a device to use

    def leave_out(self, address: str, error: NnrtError) -> None:
        """Record why an address has no device to use now."""
        now = time.monotonic()
        with self._lock:
            left = self._left_out.setdefault(address, _LeftOut(now, error))
            left.looked_at, left.error = now, error

    def take_back(self, device: Device) -> None:
        """Record that a device takes work now, and log this if its absence was logged."""
        with self._lock:
            left = self._left_out.pop(device.address, None)
        if left is not None and left.is_logged:
            _log.warning("%s is back at %s, after %.1f s", device.name, device.address, time.monotonic() - left.since)

    def note_same_named(self, same_named: dict[str, str]) -> None:
        """Record and log which addresses lead to devices with the names of others."""
        with self._lock:
            known, self._same_named = self._same_named, same_named
        for address in same_named.keys() - known.keys():
            _log.warning("no device at %s: %s", address, same_named[address])

    def left_out(self) -> tuple[dict[str, NnrtError], dict[str, str]]:
        """Return the errors of addresses without a device to use, and the texts about equal names."""
        with self._lock:
            return {address: left.error for address, left in self._left_out.items()}, self._same_named

    def log_left_out(self) -> None:
        """Log which addresses have been left out since the last call.

        A caller that raises an error doesn't call this, because the error names the addresses.
        """
        with self._lock:
            untold = {address: left for address, left in self._left_out.items() if not left.is_logged}
            for left in untold.values():
                left.is_logged = True
        for address, left in untold.items():
            _log.warning("no device at %s: %s", address, left.error.reason)


def _is_usable(device: Device) -> bool:
    return device.is_connected and device.state.status in USABLE
