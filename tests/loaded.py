"""The backends in the process of the tests, each made once: to look for plug-ins takes longer than many a test."""

from functools import cache

from nnrt_hdi.backend import Backend, load_backend


@cache
def loaded(name: str) -> Backend:
    """The backend of that name, without options."""
    return load_backend(name)
