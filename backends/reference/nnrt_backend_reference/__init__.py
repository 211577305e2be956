"""The reference backend: every operator as a few readable lines of numpy, correct before fast."""

from nnrt_backend_reference.backend import ReferenceBackend, create

__all__ = ["ReferenceBackend", "create"]
