"""The interface that an accelerator vendor implements, and the way in which a daemon finds it.

A backend is a package that names a factory in the entry-point group `nnrt.backends`:

    [project.entry-points."nnrt.backends"]
    acme = "nnrt_backend_acme:create"

`create(options)` returns a Backend, or raises BackendSkipped where its library or hardware is not here. A backend that
uses what a later version of this interface added has that version's number behind the group, `nnrt.backends.2`, and is
imported only where there is that version.

Where one backend serves several kinds of devices or several of a kind, a function `devices()` says which this host has:

    [project.entry-points."nnrt.devices"]
    acme = "nnrt_backend_acme:devices"

It returns a FoundDevice for each, and soon: it starts none of them. Without it there is what `create({})` makes.
"""

from nnrt_hdi.backend.cancellation import Cancellation
from nnrt_hdi.backend.description import (
    CanaryState,
    Capabilities,
    DeviceInfo,
    DeviceState,
    Telemetry,
    require_description,
)
from nnrt_hdi.backend.interface import (
    DEFAULT_MAX_TENSOR_BYTES,
    Backend,
    DimRange,
    FirstEnd,
    ModelConfig,
    Origin,
    PreparedModel,
    RunEnd,
    StartableModel,
    Support,
)
from nnrt_hdi.backend.plugins import (
    INTERFACE_VERSION,
    BackendSkipped,
    BackendState,
    FoundDevice,
    backend_names,
    backend_states,
    load_backend,
    require_backend,
)

__all__ = [
    "DEFAULT_MAX_TENSOR_BYTES",
    "INTERFACE_VERSION",
    "Backend",
    "BackendSkipped",
    "BackendState",
    "CanaryState",
    "Cancellation",
    "Capabilities",
    "DeviceInfo",
    "DeviceState",
    "DimRange",
    "FirstEnd",
    "FoundDevice",
    "ModelConfig",
    "Origin",
    "PreparedModel",
    "RunEnd",
    "StartableModel",
    "Support",
    "Telemetry",
    "backend_names",
    "backend_states",
    "load_backend",
    "require_backend",
    "require_description",
]
