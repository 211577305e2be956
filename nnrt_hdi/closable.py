"""A base of all that is closed by hand or by `with`."""

from abc import ABC, abstractmethod
from types import TracebackType

from typing_extensions import Self


class Closable(ABC):
    """A context manager that closes itself."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Let go of all that it holds. Idempotent."""
