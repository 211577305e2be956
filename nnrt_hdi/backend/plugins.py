"""Plug-ins: the installed backends, and their devices on this host."""

import logging
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nnrt_hdi.backend.description import DeviceInfo, require_description
from nnrt_hdi.backend.interface import Backend
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, Unsupported

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_log = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "nnrt.backends"
# Version of the interface. A release that adds something for backends, here or in `nnrt_hdi.ops`, increments it.
INTERFACE_VERSION = 2
DEVICES_GROUP = "nnrt.devices"
_GROUP = re.compile(re.escape(ENTRY_POINT_GROUP) + r"(?:\.([1-9]\d{0,8}))?")


class BackendSkipped(Exception):
    """Raised by a factory if the backend's library or hardware is not on this host. The message says which."""


Factory = Callable[[Mapping[str, str]], Backend]


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """Device of this host: a unique name, and the options with which its backend serves it.

    `hardware` is what any backend that finds the device calls it: the driver and the number there, such as cuda:0.
    Empty if no other backend finds it.
    """

    name: str
    device_type: DeviceType
    options: Mapping[str, str] = field(default_factory=dict)
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class BackendState:
    """State of an installed backend: available, skipped with a reason, broken with a traceback, or too new."""

    name: str
    info: DeviceInfo | None = None
    skipped: str = ""
    broken: str = ""
    too_new: str = ""
    # Version of the interface that the backend needs.
    interface: int = 1
    # Devices on this host, if the backend is available.
    devices: tuple[FoundDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class _Plugin:
    """Factory of an installed backend, not imported yet, and the interface version that it needs."""

    point: "EntryPoint"
    interface: int

    @property
    def too_new(self) -> str:
        """Why the backend is too new for this interface, and what would be right; empty if it isn't."""
        if self.interface <= INTERFACE_VERSION:
            return ""
        return f"needs interface {self.interface}, this is {INTERFACE_VERSION}: update nnrt"

    def make(self, options: Mapping[str, str]) -> Backend:
        """Import the factory and call it."""
        factory: Factory = self.point.load()
        return factory(options)


def backend_names() -> list[str]:
    """Return the names of the installed backends."""
    return sorted(_plugins())


def load_backend(name: str, options: Mapping[str, str] | None = None) -> Backend:
    """Load a backend by its name.

    Args:
        name: The name of the entry point.
        options: Options of the backend.

    Returns:
        The backend, ready for use.

    Raises:
        InvalidParameter: No backend of that name is installed.
        Unsupported: The backend needs a newer interface.
        BackendSkipped: The backend can't work on this host.
        NnrtError: The backend refuses the options.
        OperationFailed: The backend is broken.
    """
    plugin = _usable(name)
    try:
        return plugin.make(options or {})
    except (BackendSkipped, NnrtError):
        raise
    except Exception as error:
        _log.exception("backend %r is broken", name)
        raise OperationFailed(f"backend {name!r} is broken: {error!r}; the lines above say where") from error


def require_backend(name: str) -> None:
    """Raise as `load_backend` if a backend isn't installed or is too new, without importing it."""
    _usable(name)


def backend_states() -> list[BackendState]:
    """Return the state of every installed backend, with its devices."""
    return [replace(_state(name, plugin), interface=plugin.interface) for name, plugin in sorted(_plugins().items())]


def _plugins() -> dict[str, _Plugin]:
    """Return the installed backends by name, each with its newest factory that this version can use."""
    # Not at the top: clients import this module, and need no plug-ins.
    from importlib.metadata import entry_points

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
        backend = plugin.make({})
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
    from importlib.metadata import entry_points

    points = [point for point in entry_points(group=DEVICES_GROUP) if point.name == name]
    if not points:
        return [FoundDevice(name, info.device_type)]
    find: Callable[[], Sequence[FoundDevice]] = points[0].load()
    return find()
