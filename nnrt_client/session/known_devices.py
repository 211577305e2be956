"""Devices that a runtime has found at its addresses, and the reasons why other addresses have none."""

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

# Statuses of a device that takes work.
USABLE = (DeviceStatus.AVAILABLE, DeviceStatus.BUSY)


@dataclass(slots=True)
class _LeftOut:
    """Reason why an address has no usable device, and since when (time.monotonic())."""

    since: float
    error: NnrtError
    # When the runtime last asked the address.
    looked_at: float = 0.0
    # Whether the reason has been logged.
    is_logged: bool = False


class KnownDevices(fork.LockOwner):
    """Devices of a runtime by their addresses. This class makes no RPCs."""

    def __init__(self) -> None:
        self._is_open = True
        self._devices: dict[str, Device] = {}
        # Dead devices whose addresses were removed. The application may still use one, which connects it again.
        self._absent: weakref.WeakSet[Device] = weakref.WeakSet()
        # Addresses that had no usable device when they were last asked.
        self._left_out: dict[str, _LeftOut] = {}
        # Addresses of devices with the same name as another one; the text names that one's address.
        self._same_named: dict[str, str] = {}
        super().__init__()

    def _make_locks(self) -> None:
        self._lock = threading.RLock()

    def add(self, device: Device) -> bool:
        """Add a device and return True, or return False if `close` was called."""
        with self._lock:
            if self._is_open:
                self._devices[device.address] = device
            return self._is_open

    def close(self) -> list[Device]:
        """Accept no more devices, and return those that must be closed."""
        with self._lock:
            self._is_open = False
            return [*self._devices.values(), *self._absent]

    def device_at(self, address: str) -> Device | None:
        """Return the device that has answered at an address, or None."""
        return self._devices.get(address)

    def all(self) -> list[Device]:
        """Return the devices of all addresses, including devices that are gone."""
        with self._lock:
            return list(self._devices.values())

    def usable(self, addresses: Iterable[str]) -> list[Device]:
        """Return the devices at these addresses that took work as of their last heartbeat, in this order."""
        with self._lock:
            known = [self._devices[address] for address in addresses if address in self._devices]
        return [device for device in known if _is_usable(device)]

    def first(self, addresses: Iterable[str], look_again_s: float) -> Device | None:
        """Return the first device of `usable`, or None if the daemons must be asked first.

        They must be asked if there is no such device, or if an earlier address has no connected device and was last
        asked more than `look_again_s` ago, because its device may be back.
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

        Devices whose daemons live are kept, because the application may use them.
        """
        with self._lock:
            for address in self._left_out.keys() - set(addresses):
                del self._left_out[address]
            for address in self._devices.keys() - set(addresses):
                if not self._devices[address].is_connected:
                    self._absent.add(self._devices.pop(address))

    # ---- addresses without a device to use

    def leave_out(self, address: str, error: NnrtError) -> None:
        """Record why an address has no usable device now."""
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
        """Record and log the addresses whose devices have the same name as another device."""
        with self._lock:
            known, self._same_named = self._same_named, same_named
        for address in same_named.keys() - known.keys():
            _log.warning("no device at %s: %s", address, same_named[address])

    def left_out(self) -> tuple[dict[str, NnrtError], dict[str, str]]:
        """Return by address the errors of addresses without a usable device, and the texts about equal names."""
        with self._lock:
            return {address: left.error for address, left in self._left_out.items()}, self._same_named

    def log_left_out(self) -> None:
        """Log the addresses that have lost their usable device since the last call.

        A caller that raises an error doesn't call this, because the error names the addresses.
        """
        with self._lock:
            unlogged = {address: left for address, left in self._left_out.items() if not left.is_logged}
            for left in unlogged.values():
                left.is_logged = True
        for address, left in unlogged.items():
            _log.warning("no device at %s: %s", address, left.error.reason)


def _is_usable(device: Device) -> bool:
    return device.is_connected and device.state.status in USABLE
