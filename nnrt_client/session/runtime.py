"""Runtime of an application: the addresses of its daemons, and their devices."""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from numbers import Integral

from nnrt_client.session import fork
from nnrt_client.session.device import Device
from nnrt_client.session.known_devices import USABLE, KnownDevices
from nnrt_client.session.membership import AddressChange, Membership
from nnrt_client.session.reasons import common_class, joined_reasons, why_missing
from nnrt_client.session.session import Session
from nnrt_client.settings import DEVICES_VARIABLE, Settings, addresses_from_environment
from nnrt_hdi.closable import Closable
from nnrt_hdi.enums import DeviceStatus
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, OperationForbidden, UnavailableDevice

_log = logging.getLogger(__name__)

_CALLBACK_THREADS = 4
# Number of daemons that are asked at the same time.
_MOST_PROBES = 64


@dataclass(frozen=True, slots=True)
class Look:
    """Result of asking the daemon at an address. `status` is None if no daemon answered."""

    # The device that answered now or before, if any.
    device: Device | None
    status: DeviceStatus | None
    # Why the device takes no work, or None if it does.
    error: NnrtError | None = None

    @property
    def why(self) -> str:
        """Reason why the device takes no work; empty if it does."""
        return self.error.reason if self.error else ""


class Runtime(fork.LockOwner, Closable):
    """Connections to device daemons, and their devices.

    A context manager: its end ends the sessions, and the daemons free everything made in them.

    Args:
        addresses: Addresses of daemons, HOST:PORT or unix:PATH, and names that resolve to addresses, such as
            dns:///HOST:PORT and file:///PATH (docs/guides/fleet.md lists all kinds). None: those in the environment
            variable NNRT_DEVICES, separated by commas. The runtime watches names from first use: it uses addresses that
            are added, and begins nothing new at addresses that are removed.
        settings: Settings of its sessions.

    Raises:
        InvalidParameter: `addresses` is no list of texts or has an invalid name, or `settings` is no Settings.
        Unsupported: Names of this kind need a package that is not installed.
        UnavailableDevice: This process was forked from one that had connections.
    """

    def __init__(self, addresses: Sequence[str] | None = None, settings: Settings | None = None) -> None:
        fork.require_original_process()
        given = addresses if addresses is not None else addresses_from_environment()
        self._settings = settings if settings is not None else Settings()
        if not isinstance(self._settings, Settings):
            raise InvalidParameter(f"the settings are {settings!r}; give Settings", place="Runtime")
        self._members = Membership(_require_addresses(given), self._settings)
        self._known = KnownDevices()
        self._is_open = True
        super().__init__()

    def _make_locks(self) -> None:
        # One lock per address, for one thread at a time to connect.
        self._connecting: dict[str, threading.RLock] = {}
        self._callbacks = ThreadPoolExecutor(_CALLBACK_THREADS, thread_name_prefix="nnrt-callback")

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses known now, including those of names.

        The first use waits until all names have been looked up, for at most connect_timeout_s.
        """
        return self._members.addresses

    def watch(self, listener: Callable[[AddressChange], None]) -> Callable[[], None]:
        """Call `listener` with each change of the addresses, until the returned function is called.

        Args:
            listener: Called at once, in the calling thread, with all addresses known now as added; then with each
                change, in a thread of the runtime, one at a time. Its exceptions are logged.

        Returns:
            Function that ends the watch.

        Raises:
            OperationForbidden: The runtime is closed.
            UnavailableDevice: This process was forked from one that had connections.
        """
        fork.require_original_process()
        self._require_open()
        return self._members.watch(listener)

    def answers(self) -> dict[str, Device | None]:
        """Ask all daemons now. Return by address the device that takes work, or None if there is none."""
        answers = self._ask_all()
        self._log_left_out()
        return answers

    def devices(self) -> list[Device]:
        """Ask all daemons now. Return the devices that take work, in the order of their addresses.

        Devices that don't answer or take no work are missing in the result; a warning is logged when this begins and
        when it ends. Of devices with the same name, only the first is returned.

        Returns:
            The devices.
        """
        devices = self._find_answering()
        self._log_left_out()
        return devices

    def device(self, which: str | int = 0) -> Device:
        """Return a device by its name, address or id; 0 is the first one.

        This asks no daemon if the device is connected and took work as of its last heartbeat.

        Raises:
            UnavailableDevice: The device was not found, and some addresses have no usable device; the message lists
                them with the reasons.
            OperationFailed: All addresses answer and none has that device, or the runtime has no addresses.
            InvalidParameter: `which` is neither a text nor a number.
            OperationForbidden: The runtime is closed.
            NnrtError: All daemons refuse the client with this error.
        """
        device = self._find(which)
        if device is None:
            raise self._not_found_error(which)
        self._log_left_out()
        return device

    def _not_found_error(self, which: str | int) -> NnrtError:
        """Return the error for a device that was not found."""
        if not self._members.given:
            what = "" if which == 0 else f"{which!r} is no HOST:PORT, and "
            return OperationFailed(f"{what}no addresses are known; give a device's address, or set {DEVICES_VARIABLE}")
        wanted = "no device" if which == 0 else f"no device {which!r}"
        there = ", ".join(device.name for device in self._usable_devices()) or "none"
        errors, same_named = self._known.left_out()
        errors |= {name: UnavailableDevice(why) for name, why in self._members.failures().items()}
        if len(errors) == 1 and self._members.given == (*errors,) and which in (0, *errors):
            return joined_reasons(errors)
        reasons = {address: error.reason for address, error in errors.items()} | same_named
        left_out = ", ".join(f"{address} ({why})" for address, why in reasons.items()) or "none"
        kind = common_class(errors.values()) if errors else OperationFailed
        return kind(
            f"{wanted} answers at {', '.join(self._members.given)}; devices there: {there}; left out: {left_out}"
        )

    def find(self, which: str | int = 0) -> Device | None:
        """Find a device as `device` does, but return None if it doesn't answer.

        Returns:
            The device, or None.

        Raises:
            InvalidParameter: `which` is neither a text nor a number.
            OperationForbidden: The runtime is closed.
        """
        device = self._find(which)
        self._log_left_out()
        return device

    def _find(self, which: str | int) -> Device | None:
        if not isinstance(which, str | int | Integral):
            raise InvalidParameter(f"the device is {which!r}; give a name, an address or an id", place="Runtime")
        if which == 0:
            self._require_open()
            known = self._known.first(self.addresses, self._settings.look_again_s)
        else:
            known = self._choose(which, self._usable_devices())
        return known or self._choose(which, self._find_answering())

    def _ask_all(self) -> dict[str, Device | None]:
        fork.require_original_process()
        self._require_open()
        addresses = self.addresses
        self._known.forget_all_but(addresses)
        if not addresses:
            return {}
        with ThreadPoolExecutor(min(len(addresses), _MOST_PROBES), thread_name_prefix="nnrt-probe") as pool:
            looks = zip(addresses, pool.map(self._look, addresses), strict=True)
            return {address: None if look.why else look.device for address, look in looks}

    def _find_answering(self) -> list[Device]:
        """Ask all daemons. Return the devices that take work, one per name."""
        devices: dict[str, Device] = {}
        same_named: dict[str, str] = {}
        for device in self._ask_all().values():
            if device is not None and (first := devices.setdefault(device.name, device)) is not device:
                same_named[device.address] = f"the device at {first.address} has the same name"
        self._known.note_same_named(same_named)
        return list(devices.values())

    def _has_seen(self, which: str | int) -> bool:
        """Return whether the device with this name, address or id has ever answered. It may be gone now."""
        return self._choose(which, self._known.all()) is not None

    def _choose(self, which: str | int, devices: Iterable[Device]) -> Device | None:
        behind = self._members.behind(which) if isinstance(which, str) else ()
        for device in devices:
            if which in (0, device.name, device.id) or device.address in behind:
                return device
        return None

    def _usable_devices(self) -> list[Device]:
        """Return the devices that took work as of their last heartbeat, in the order of their addresses."""
        self._require_open()
        return self._known.usable(self.addresses)

    def close(self) -> None:
        """End all sessions. Idempotent."""
        self._is_open = False
        devices = self._known.close()
        with ExitStack() as stack:  # If one `close` is interrupted, the stack still calls the others.
            stack.callback(self._callbacks.shutdown, wait=False)
            for device in devices:
                stack.callback(device.close)
            stack.callback(self._members.close)

    def _require_open(self) -> None:
        if not self._is_open:
            raise OperationForbidden("the runtime is closed; make a new one")

    def _look(self, address: str) -> Look:
        """Ask the daemon at an address whether its device takes work."""
        try:
            with self._connecting.setdefault(address, threading.RLock()):
                device = self._known.device_at(address) or self._connect(address)
            status, canary = device._query_status()
        except NnrtError as error:
            missing = why_missing(error)
            # Without the place, because the address is reported with it.
            unplaced = type(missing)(missing.message).of_request(missing.request_id)
            self._known.leave_out(address, unplaced)
            return Look(self._known.device_at(address), None, unplaced)
        if status not in USABLE:
            why = f"{device.name} is {_condition(device, status)}"
            since = f"; since {canary.for_s:.0f} s" if canary and canary.is_out else ""
            self._known.leave_out(address, UnavailableDevice(f"{why}{since}"))
            # Without the time, so that equal states give equal texts.
            return Look(device, status, UnavailableDevice(why))
        self._known.take_back(device)
        return Look(device, status)

    def _log_left_out(self) -> None:
        """Log the addresses that have lost their usable device since the last such log.

        Methods that raise don't call this, because their error names the addresses.
        """
        self._known.log_left_out()

    def _connect(self, address: str) -> Device:
        device = Device(Session(address, self._settings, self._callbacks))
        if self._known.add(device):
            return device
        device.close()
        raise OperationForbidden("the runtime was closed; make a new one")


def _condition(device: Device, status: DeviceStatus) -> str:
    """Describe why a device takes no work."""
    if status is DeviceStatus.OFFLINE and device.state.is_draining:
        return "shutting down"
    return f"out: {device.state.out}" if device.state.out else status.name


def _require_addresses(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, Iterable) and not isinstance(given, str):
        addresses = tuple(given)
        if all(isinstance(address, str) for address in addresses):
            return addresses
    raise InvalidParameter(f'the addresses are {given!r}; give a list of texts: ["127.0.0.1:50051"]', place="Runtime")
