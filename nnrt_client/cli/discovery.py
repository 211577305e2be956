"""Where devices are looked for when nobody says where, and how each was found."""

from collections.abc import Iterable

from nnrt_client.resolvers.names import resolver_for
from nnrt_client.session.device import Device
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import Settings
from nnrt_hdi.errors import NnrtError

_HOST, _LINK = "local:///", "mdns:///"


def host_and_link(settings: Settings) -> tuple[str, ...]:
    """The names behind which everything on this host and on this link is, as far as it can be asked."""
    return (_HOST,) if _why_not_link(settings) else (_HOST, _LINK)


def nothing_found(settings: Settings) -> str:
    """Say where nothing was found, and what else could be done."""
    why = _why_not_link(settings)
    link = f" (this link was not asked: {why})" if why else ", and none announces itself on this link"
    return f"nnrt-device up keeps no daemon on this host{link}; give an address"


def _why_not_link(settings: Settings) -> str:
    try:
        resolver_for(_LINK, settings)
    except NnrtError as error:
        return error.message
    return ""


def found_by(runtime: Runtime, address: str) -> tuple[str, ...]:
    """Which of what the runtime was given lead to an address."""
    return tuple(given for given in runtime._members.given if address in runtime._members.behind(given))


def each_once(found: Iterable[Device]) -> dict[Device, list[str]]:
    """Devices, without those that are the same daemon at another address; with each all its addresses."""
    addresses: dict[bytes, list[str]] = {}
    devices: dict[Device, list[str]] = {}
    for device in found:
        known = addresses.setdefault(device._latest.welcome.instance_id, [])
        if not known:
            devices[device] = known
        known.append(device.address)
    return devices
