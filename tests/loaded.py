"""Backends in the tests' process, each loaded once: finding plugins takes longer than many tests."""

from functools import cache

from nnrt_hdi.backend import Backend, load_backend


@cache
def loaded(name: str) -> Backend:
    """Return the backend of that name, without options."""
    return load_backend(name)
