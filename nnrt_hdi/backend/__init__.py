"""Interface that the vendor of an accelerator implements, and how a daemon finds it.

A backend is a package that names a factory in the entry-point group `nnrt.backends`:

    [project.entry-points."nnrt.backends"]
    acme = "nnrt_backend_acme:create"

`create(options)` returns a Backend, or raises BackendSkipped if its library or hardware is not on this host. A backend
that needs version 2 of this interface uses the group `nnrt.backends.2`; a daemon with an older interface doesn't import
it.

A backend for several devices names a function `devices()` that lists those of this host:

    [project.entry-points."nnrt.devices"]
    acme = "nnrt_backend_acme:devices"

It returns a FoundDevice for each device without starting any, so that it is quick. Without this function the backend
has one device, that of `create({})`.
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
    ModelConfig,
    Origin,
    PreparedModel,
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
from nnrt_hdi.backend.startable import FirstEnd, RunEnd, StartableModel, ended

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
    "ended",
    "load_backend",
    "require_backend",
    "require_description",
]
