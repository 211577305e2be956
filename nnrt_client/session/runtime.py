"""The beginning of an application: the daemons it knows, and their devices."""

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
from nnrt_client.session.reasons import kind_of, why_missing
from nnrt_client.session.session import Session
from nnrt_client.settings import DEVICES_VARIABLE, Settings, addresses_from_environment
from nnrt_hdi.closable import Closable
from nnrt_hdi.enums import DeviceStatus
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, OperationForbidden, UnavailableDevice

_log = logging.getLogger(__name__)

_CALLBACK_THREADS = 4
# Daemons that are asked at a time.
_MOST_PROBES = 64


@dataclass(frozen=True, slots=True)
class Look:
    """What is found at an address now: the device, if one has ever answered there, and its answer, if it did now."""

    device: Device | None
    status: DeviceStatus | None
    # Why it takes no work; None where it does.
    error: NnrtError | None = None

    @property
    def why(self) -> str:
        """Why it takes no work; empty where it does."""
        return self.error.reason if self.error else ""


class Runtime(fork.LockOwner, Closable):
    """Connections to device daemons.

    `addresses` are HOST:PORT or unix:PATH, or names behind which addresses are found, such as dns:///HOST:PORT and
    file:///PATH (docs/guides/fleet.md has them all); without any those in the environment variable NNRT_DEVICES count,
    separated by commas. Names are watched from first use: what they gain is used, and what they lose is offered for
    nothing new. A context manager: leaving it ends the sessions, and the daemons free what was made in them.
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
        # Per address.
        self._connecting: dict[str, threading.RLock] = {}
        self._callbacks = ThreadPoolExecutor(_CALLBACK_THREADS, thread_name_prefix="nnrt-callback")

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses known now, those behind names included. The first time it waits until names are looked up, for
        connect_timeout_s at most."""
        return self._members.addresses

    def watch(self, listener: Callable[[AddressChange], None]) -> Callable[[], None]:
        """Call `listener` with each change of the addresses; what is returned ends that.

        It hears at once, from this call, that all known now were added, and of later changes in a thread of the
        runtime's, one at a time. What it raises is logged.
        """
        fork.require_original_process()
        self._require_open()
        return self._members.watch(listener)

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
        """A device by name, address or id; 0 is the first.

        It costs nothing where the device is known, connected, and took work as of its last heartbeat. Raises
        UnavailableDevice, with each address and its reason, where the device was not found and addresses have none to
        use; what they refuse with, if all refuse the client; OperationFailed where all answer, and none is that device.
        """
        device = self._found(which)
        if device is None:
            raise self._why_not(which)
        self._tell()
        return device

    def _why_not(self, which: str | int) -> NnrtError:
        """The error of a device that was not found."""
        if not self._members.given:
            what = "" if which == 0 else f"{which!r} is no HOST:PORT, and "
            return OperationFailed(f"{what}no addresses are known; give a device's address, or set {DEVICES_VARIABLE}")
        wanted = "no device" if which == 0 else f"no device {which!r}"
        there = ", ".join(device.name for device in self._usable()) or "none"
        errors, doubles = self._known.left_out()
        errors |= {name: UnavailableDevice(why) for name, why in self._members.failures().items()}
        reasons = {address: error.reason for address, error in errors.items()} | doubles
        left_out = ", ".join(f"{address} ({why})" for address, why in reasons.items()) or "none"
        kind = kind_of(errors.values()) if errors else OperationFailed
        return kind(
            f"{wanted} answers at {', '.join(self._members.given)}; devices there: {there}; left out: {left_out}"
        )

    def find(self, which: str | int = 0) -> Device | None:
        """Find a device as `device` does; None if no such one answers. Raises InvalidParameter for what names none."""
        device = self._found(which)
        self._tell()
        return device

    def _found(self, which: str | int) -> Device | None:
        if not isinstance(which, str | int | Integral):
            raise InvalidParameter(f"the device is {which!r}; give a name, an address or an id", place="Runtime")
        if which == 0:
            self._require_open()
            known = self._known.first(self.addresses, self._settings.look_again_s)
        else:
            known = self._chosen(which, self._usable())
        return known or self._chosen(which, self._answering())

    def _asked(self) -> dict[str, Device | None]:
        fork.require_original_process()
        self._require_open()
        addresses = self.addresses
        self._known.forget_all_but(addresses)
        if not addresses:
            return {}
        with ThreadPoolExecutor(min(len(addresses), _MOST_PROBES), thread_name_prefix="nnrt-probe") as pool:
            looks = zip(addresses, pool.map(self._look, addresses), strict=True)
            return {address: None if look.why else look.device for address, look in looks}

    def _answering(self) -> list[Device]:
        """The devices that answer now, each name once."""
        devices: dict[str, Device] = {}
        doubles: dict[str, str] = {}
        for device in self._asked().values():
            if device is not None and (first := devices.setdefault(device.name, device)) is not device:
                doubles[device.address] = f"the device at {first.address} has the same name"
        self._known.note_doubles(doubles)
        return list(devices.values())

    def _knows(self, which: str | int) -> bool:
        """Tell if such a device has answered before, though it may be gone."""
        return self._chosen(which, self._known.all()) is not None

    def _chosen(self, which: str | int, devices: Iterable[Device]) -> Device | None:
        behind = self._members.behind(which) if isinstance(which, str) else ()
        for device in devices:
            if which in (0, device.name, device.id) or device.address in behind:
                return device
        return None

    def _usable(self) -> list[Device]:
        """The devices that, as far as is known, take work now, in the order of their addresses. Asks nobody."""
        self._require_open()
        return self._known.usable(self.addresses)

    def close(self) -> None:
        """End all sessions. Idempotent."""
        self._is_open = False
        devices = self._known.close()
        with ExitStack() as stack:  # Who is interrupted closes the others, too.
            stack.callback(self._callbacks.shutdown, wait=False)
            for device in devices:
                stack.callback(device.close)
            stack.callback(self._members.close)

    def _require_open(self) -> None:
        if not self._is_open:
            raise OperationForbidden("the runtime is closed; make a new one")

    def _look(self, address: str) -> Look:
        """Ask the daemon at an address."""
        try:
            with self._connecting.setdefault(address, threading.RLock()):
                device = self._known.at(address) or self._connected(address)
            status, canary = device._asked()
        except NnrtError as error:
            missing = why_missing(error)
            unplaced = type(missing)(missing.message).of_request(missing.request_id)  # The address says where.
            self._known.leave_out(address, unplaced)
            return Look(self._known.at(address), None, unplaced)
        if status not in USABLE:
            why = f"{device.name} is {_condition(device, status)}"
            since = f"; since {canary.for_s:.0f} s" if canary and canary.is_out else ""
            self._known.leave_out(address, UnavailableDevice(f"{why}{since}"))
            return Look(device, status, UnavailableDevice(why))  # Looks are compared: it says the same each time.
        self._known.take_back(device)
        return Look(device, status)

    def _tell(self) -> None:
        """Log which addresses have been left out since the log said so; an error that is raised says it itself."""
        self._known.log_left_out()

    def _connected(self, address: str) -> Device:
        device = Device(Session(address, self._settings, self._callbacks))
        if self._known.add(device):
            return device
        device.close()
        raise OperationForbidden("the runtime was closed; make a new one")


def _condition(device: Device, status: DeviceStatus) -> str:
    """The condition of a device that takes no work."""
    if status is DeviceStatus.OFFLINE and device.state.is_draining:
        return "shutting down"
    return f"out: {device.state.out}" if device.state.out else status.name


def _require_addresses(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, Iterable) and not isinstance(given, str):
        addresses = tuple(given)
        if all(isinstance(address, str) for address in addresses):
            return addresses
    raise InvalidParameter(f'the addresses are {given!r}; give a list of texts: ["127.0.0.1:50051"]', place="Runtime")
