"""Runtime of an application: the daemons that it knows, and their devices."""

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
# Most daemons that are asked at the same time.
_MOST_PROBES = 64


@dataclass(frozen=True, slots=True)
class Look:
    """Result of asking an address: the device that has ever answered there, if any, and its status now.

    `status` is None if no device answered now.
    """

    device: Device | None
    status: DeviceStatus | None
    # Why the device takes no work, or None if it does.
    error: NnrtError | None = None

    @property
    def why(self) -> str:
        """Why the device takes no work; empty if it does."""
        return self.error.reason if self.error else ""


class Runtime(fork.LockOwner, Closable):
    """Connections to device daemons, and the devices behind them.

    A context manager: leaving it ends the sessions, and the daemons free what was made in them.

    Args:
        addresses: HOST:PORT or unix:PATH, or names behind which addresses are found, such as dns:///HOST:PORT and
            file:///PATH (docs/guides/fleet.md has them all). Without them the runtime takes those in the environment
            variable NNRT_DEVICES, separated by commas. It watches names from first use: it uses the addresses that they
            gain, and begins nothing new at those that they lose.
        settings: Settings of its sessions.

    Raises:
        InvalidParameter: `addresses` is no list of texts or has a bad name, or `settings` is no Settings.
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
        # A lock for each address.
        self._connecting: dict[str, threading.RLock] = {}
        self._callbacks = ThreadPoolExecutor(_CALLBACK_THREADS, thread_name_prefix="nnrt-callback")

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses known now, including those behind names.

        The first use waits until the names have been looked up, for connect_timeout_s at most.
        """
        return self._members.addresses

    def watch(self, listener: Callable[[AddressChange], None]) -> Callable[[], None]:
        """Call `listener` with each change of the addresses, until the returned function is called.

        Args:
            listener: Called at once, in this thread, with all addresses known now as added; then with each change, in a
                thread of the runtime, one at a time. What it raises is logged.

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
        """Ask all daemons now; return per address the device that answers and takes work, or None if none does."""
        answers = self._ask_all()
        self._tell()
        return answers

    def devices(self) -> list[Device]:
        """Return the devices that answer now and take work, in the order of their addresses.

        A device that doesn't answer is left out, with a warning in the log, and another one when it is back. A second
        device of the same name is left out, too.
        """
        devices = self._find_answering()
        self._tell()
        return devices

    def device(self, which: str | int = 0) -> Device:
        """Return a device by its name, address or id; 0 is the first one.

        No daemon is asked if the device is known, connected, and took work as of its last heartbeat.

        Raises:
            UnavailableDevice: The device was not found, and some addresses have no device to use; the message has each
                with its reason.
            OperationFailed: All addresses answer and none is that device, or the runtime has no addresses.
            InvalidParameter: `which` is neither a text nor a number.
            OperationForbidden: The runtime is closed.
            NnrtError: All daemons refuse the client, with this error.
        """
        device = self._find(which)
        if device is None:
            raise self._why_not(which)
        self._tell()
        return device

    def _why_not(self, which: str | int) -> NnrtError:
        """Return the error of a device that was not found."""
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

        Raises:
            InvalidParameter: `which` is neither a text nor a number.
            OperationForbidden: The runtime is closed.
        """
        device = self._find(which)
        self._tell()
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
        """Ask all daemons, and return the devices that take work, one of each name."""
        devices: dict[str, Device] = {}
        same_named: dict[str, str] = {}
        for device in self._ask_all().values():
            if device is not None and (first := devices.setdefault(device.name, device)) is not device:
                same_named[device.address] = f"the device at {first.address} has the same name"
        self._known.note_same_named(same_named)
        return list(devices.values())

    def _knows(self, which: str | int) -> bool:
        """Return whether such a device has answered before, even if it is gone now."""
        return self._choose(which, self._known.all()) is not None

    def _choose(self, which: str | int, devices: Iterable[Device]) -> Device | None:
        behind = self._members.behind(which) if isinstance(which, str) else ()
        for device in devices:
            if which in (0, device.name, device.id) or device.address in behind:
                return device
        return None

    def _usable_devices(self) -> list[Device]:
        """Return the devices that, as far as is known, take work now, in the order of their addresses.

        No daemon is asked.
        """
        self._require_open()
        return self._known.usable(self.addresses)

    def close(self) -> None:
        """End all sessions. Calling it again does nothing."""
        self._is_open = False
        devices = self._known.close()
        with ExitStack() as stack:  # If one `close` is interrupted, the stack calls the others all the same.
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
            status, canary = device._asked()
        except NnrtError as error:
            missing = why_missing(error)
            unplaced = type(missing)(missing.message).of_request(missing.request_id)  # The address says where.
            self._known.leave_out(address, unplaced)
            return Look(self._known.device_at(address), None, unplaced)
        if status not in USABLE:
            why = f"{device.name} is {_condition(device, status)}"
            since = f"; since {canary.for_s:.0f} s" if canary and canary.is_out else ""
            self._known.leave_out(address, UnavailableDevice(f"{why}{since}"))
            return Look(device, status, UnavailableDevice(why))  # No time in it: equal states give equal looks.
        self._known.take_back(device)
        return Look(device, status)

    def _tell(self) -> None:
        """Log which addresses have been left out since the last such log; an error that is raised says it itself."""
        self._known.log_left_out()

    def _connect(self, address: str) -> Device:
        device = Device(Session(address, self._settings, self._callbacks))
        if self._known.add(device):
            return device
        device.close()
        raise OperationForbidden("the runtime was closed; make a new one")


def _condition(device: Device, status: DeviceStatus) -> str:
    """Describe the condition of a device that takes no work."""
    if status is DeviceStatus.OFFLINE and device.state.is_draining:
        return "shutting down"
    return f"out: {device.state.out}" if device.state.out else status.name


def _require_addresses(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, Iterable) and not isinstance(given, str):
        addresses = tuple(given)
        if all(isinstance(address, str) for address in addresses):
            return addresses
    raise InvalidParameter(f'the addresses are {given!r}; give a list of texts: ["127.0.0.1:50051"]', place="Runtime")
