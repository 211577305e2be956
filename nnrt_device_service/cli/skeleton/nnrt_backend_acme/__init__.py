"""NNRt backend for Acme's accelerator."""

from nnrt_backend_acme.backend import create

__all__ = ["create"]
