"""Reference backend: each operator in a few readable lines of numpy, where correctness comes before speed."""

from nnrt_backend_reference.backend import ReferenceBackend, create

__all__ = ["ReferenceBackend", "create"]
