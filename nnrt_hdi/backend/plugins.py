"""The way in which a daemon finds the installed backends, and the devices that they have on this host."""

import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points

from nnrt_hdi.backend.description import DeviceInfo, require_description
from nnrt_hdi.backend.interface import Backend
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import InvalidParameter, Unsupported

ENTRY_POINT_GROUP = "nnrt.backends"
# It grows by one with a release in which there is more in this package, or in `nnrt_hdi.ops`, for
# backends to use or to implement.
INTERFACE_VERSION = 2
DEVICES_GROUP = "nnrt.devices"
_GROUP = re.compile(re.escape(ENTRY_POINT_GROUP) + r"(?:\.([1-9]\d{0,8}))?")


class BackendSkipped(Exception):
    """Raised by a factory: the backend is sound, but its library or hardware is not here. The message says which."""


Factory = Callable[[Mapping[str, str]], Backend]


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """A device of this host: a name that tells it from others, and the options with which its backend serves it."""

    name: str
    device_type: DeviceType
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BackendState:
    """An installed backend: available with its description, skipped with a reason, broken with a traceback, or too new,
    with what would be right."""

    name: str
    info: DeviceInfo | None = None
    skipped: str = ""
    broken: str = ""
    too_new: str = ""
    # The version of this interface that it needs.
    interface: int = 1
    # Those of this host, of an available backend.
    devices: tuple[FoundDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class _Plugin:
    """Names the factory of an installed backend, which has not been imported, and the interface that it needs."""

    point: EntryPoint
    interface: int

    @property
    def too_new(self) -> str:
        """Why it can't be used with this interface, and what would be right; empty where it can."""
        if self.interface <= INTERFACE_VERSION:
            return ""
        return f"needs interface {self.interface}, this is {INTERFACE_VERSION}: update nnrt"


def backend_names() -> list[str]:
    """Names of the installed backends."""
    return sorted(_plugins())


def load_backend(name: str, options: Mapping[str, str] | None = None) -> Backend:
    """The backend of that name, ready for use.

    Raises InvalidParameter for a name that is not installed, Unsupported for one that needs a newer interface,
    BackendSkipped where it can't work here, and whatever a broken one raises.
    """
    factory: Factory = _usable(name).point.load()
    return factory(options or {})


def require_backend(name: str) -> None:
    """Raise what `load_backend` does for one that isn't installed, or needs a newer interface. Imports nothing."""
    _usable(name)


def backend_states() -> list[BackendState]:
    """Every installed backend, whether it works here, and the devices that it has."""
    return [replace(_state(name, plugin), interface=plugin.interface) for name, plugin in sorted(_plugins().items())]


def _plugins() -> dict[str, _Plugin]:
    """The installed backends by name; of one with factories for several interfaces the newest that is known here."""
    plugins: dict[str, _Plugin] = {}
    points = entry_points()
    for group in points.groups:
        if match := _GROUP.fullmatch(group):
            interface = int(match[1] or 1)
            for point in points.select(group=group):
                known = plugins.get(point.name)
                if known is None or _preference(interface) > _preference(known.interface):
                    plugins[point.name] = _Plugin(point, interface)
    return plugins


def _usable(name: str) -> _Plugin:
    plugins = _plugins()
    if name not in plugins:
        raise InvalidParameter(f"no backend named {name!r}; installed: {', '.join(sorted(plugins)) or 'none'}")
    if plugins[name].too_new:
        raise Unsupported(f"backend {name!r} {plugins[name].too_new}")
    return plugins[name]


def _preference(interface: int) -> int:
    return interface if interface <= INTERFACE_VERSION else -interface


def _state(name: str, plugin: _Plugin) -> BackendState:
    if plugin.too_new:
        return BackendState(name, too_new=plugin.too_new)
    try:
        backend = load_backend(name)
        try:
            info = require_description(backend.describe(), name)
        finally:
            backend.close()
        return BackendState(name, info, devices=tuple(_devices(name, info)))
    except BackendSkipped as reason:
        return BackendState(name, skipped=str(reason))
    except Exception:
        return BackendState(name, broken=traceback.format_exc())


def _devices(name: str, info: DeviceInfo) -> Sequence[FoundDevice]:
    points = [point for point in entry_points(group=DEVICES_GROUP) if point.name == name]
    if not points:
        return [FoundDevice(name, info.device_type)]
    find: Callable[[], Sequence[FoundDevice]] = points[0].load()
    return find()
