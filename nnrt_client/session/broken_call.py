"""End of a call, or of a connection beside gRPC, that gave no reply."""

from dataclasses import dataclass

import grpc
from typing_extensions import Self

from nnrt_hdi import wire
from nnrt_hdi.errors import NnrtError

_CUT_OFF = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


@dataclass(frozen=True, slots=True)
class BrokenCall:
    """End of a call that gave no reply."""

    # The text of gRPC or of the operating system.
    details: str
    # The daemon's own error, or the meaning of its status. None if the connection was cut off, which can have any
    # cause.
    error: NnrtError | None = None
    # Whether the daemon itself sent `error`.
    is_told: bool = False
    is_late: bool = False

    @classmethod
    def of(cls, error: grpc.RpcError) -> Self:
        """Describe how an RPC ended, from gRPC's error.

        The error loses its traceback: it is the call itself, and would keep frames and messages alive.
        """
        error.__traceback__ = None
        details = error.details() or ""
        if (detail := wire.error_detail_of(error)) is not None:
            return cls(details, detail, is_told=True)
        status = error.code()
        if status in _CUT_OFF:
            return cls(details)
        return cls(details, wire.error_of_status(error), is_late=status is grpc.StatusCode.DEADLINE_EXCEEDED)

    @property
    def is_cut_off(self) -> bool:
        """True if nothing says why the call ended."""
        return self.error is None


class CutOff(Exception):
    """Error of a connection that ended in the middle of a message."""

    def __init__(self, broken: BrokenCall) -> None:
        super().__init__(broken.details)
        self.broken = broken
