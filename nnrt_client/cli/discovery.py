"""Where devices are looked for when nobody says where, and how each was found."""

from collections.abc import Iterable
from importlib.util import find_spec

from nnrt_client.session.device import Device
from nnrt_client.session.runtime import Runtime

_HOST, _LINK = "local:///", "mdns:///"


def host_and_link() -> tuple[str, ...]:
    """The names behind which everything on this host and on this link is, as far as it can be asked."""
    return (_HOST, _LINK) if find_spec("zeroconf") else (_HOST,)


def nothing_found(names: tuple[str, ...]) -> str:
    """Say where nothing was found, and what else could be done."""
    if _LINK in names:
        return "nnrt-device up keeps no daemon on this host, and none announces itself on this link; give an address"
    return (
        "nnrt-device up keeps no daemon on this host; give an address, or pip install 'nnrt[mdns]' to find those that"
        " announce themselves on this link"
    )


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
