"""Discovery of devices when the user gives no address, and of the names that lead to each device."""

from collections.abc import Iterable

from nnrt_client.resolvers.names import resolver_for
from nnrt_client.session.device import Device
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import Settings
from nnrt_hdi.errors import NnrtError

_HOST, _LINK = "local:///", "mdns:///"


def default_names(settings: Settings) -> tuple[str, ...]:
    """Return the names of all devices on this host and, if mDNS can search it, on this network link."""
    return (_HOST,) if _mdns_error(settings) else (_HOST, _LINK)


def nothing_found_message(settings: Settings) -> str:
    """Return a message that says where the command looked for devices in vain, and what to do."""
    why = _mdns_error(settings)
    link = f" (this link was not asked: {why})" if why else ", and none announces itself on this link"
    return f"nnrt-device up keeps no daemon on this host{link}; give an address"


def _mdns_error(settings: Settings) -> str:
    try:
        resolver_for(_LINK, settings)
    except NnrtError as error:
        return error.message
    return ""


def found_by(runtime: Runtime, address: str) -> tuple[str, ...]:
    """Return those of the user's names and addresses that lead to an address."""
    return tuple(given for given in runtime._members.given if address in runtime._members.behind(given))


def unique_devices(found: Iterable[Device]) -> dict[Device, list[str]]:
    """Return each daemon's device once, with all addresses that lead to it."""
    addresses: dict[bytes, list[str]] = {}
    devices: dict[Device, list[str]] = {}
    for device in found:
        known = addresses.setdefault(device._latest.welcome.instance_id, [])
        if not known:
            devices[device] = known
        known.append(device.address)
    return devices
