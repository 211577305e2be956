"""Acme's accelerator for NNRt."""

from nnrt_backend_acme.backend import create

__all__ = ["create"]
