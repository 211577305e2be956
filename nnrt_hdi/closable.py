"""Base class of objects that `close` or a `with` block closes."""

from abc import ABC, abstractmethod
from types import TracebackType

from typing_extensions import Self


class Closable(ABC):
    """Context manager that closes itself."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release everything. Idempotent."""
