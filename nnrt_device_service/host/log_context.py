"""Context of log lines: the call that the current thread works for, which the logging code doesn't know."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

FIELDS = ("device", "identity", "on_behalf_of", "session", "model", "run", "request")
"""Names of the context fields, the same in all log lines."""

_about: ContextVar[Mapping[str, object]] = ContextVar("about", default=MappingProxyType({}))


def log_fields() -> Mapping[str, object]:
    """Return the context fields of the current thread."""
    return _about.get()


def add_log_fields(fields: Mapping[str, object]) -> None:
    """Add context fields to this thread's log lines, until its `call_context` block ends."""
    _about.set({**_about.get(), **fields})


@contextmanager
def call_context() -> Iterator[None]:
    """Remove the context fields that the block has added with `add_log_fields`."""
    former = _about.get()
    try:
        yield
    finally:
        _about.set(former)
