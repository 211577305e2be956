"""What lines of the log are about, where the code that writes them doesn't know: the call that a thread works for."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

FIELDS = ("device", "identity", "session", "model", "run", "request")
"""What a line may be about, each under the one name that it has in all lines."""

_about: ContextVar[Mapping[str, object]] = ContextVar("about", default=MappingProxyType({}))


def about() -> Mapping[str, object]:
    """What this thread's lines are about."""
    return _about.get()


def say_about(fields: Mapping[str, object]) -> None:
    """Have this thread's lines be about that too, until its `one_call` ends."""
    _about.set({**_about.get(), **fields})


@contextmanager
def one_call() -> Iterator[None]:
    """A call in whose lines `say_about` has its effect."""
    former = _about.get()
    try:
        yield
    finally:
        _about.set(former)
