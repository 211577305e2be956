"""Torch backend: computes graphs with torch, on whatever torch computes on: CPUs, CUDA, ROCm, MPS, XPU."""

from collections.abc import Mapping

from nnrt_hdi.backend import Backend, BackendSkipped, FoundDevice

__all__ = ["create", "devices"]


def create(options: Mapping[str, str]) -> Backend:
    """Return the backend; the entry point's factory. `nnrt_backend_torch.options` has the options."""
    _require_torch()
    from nnrt_backend_torch.found import create

    return create(options)


def devices() -> list[FoundDevice]:
    """Return the devices of this host, for the entry point."""
    _require_torch()
    from nnrt_backend_torch.found import found_devices

    return found_devices()


def _require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise BackendSkipped(f"{error}; install nnrt[torch]") from error
