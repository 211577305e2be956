"""The end of a call, or of a connection beside gRPC, that gave no reply."""

from dataclasses import dataclass

import grpc
from typing_extensions import Self

from nnrt_hdi import wire
from nnrt_hdi.errors import NnrtError

_CUT_OFF = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


@dataclass(frozen=True, slots=True)
class BrokenCall:
    """The end of a call that gave no reply."""

    # What gRPC, or the operating system, says of it.
    details: str
    # The daemon's own word, or what its status means; None where the connection was cut off, which may mean anything.
    error: NnrtError | None = None
    # Whether `error` is the daemon's own word.
    is_told: bool = False
    is_late: bool = False

    @classmethod
    def of(cls, error: grpc.RpcError) -> Self:
        """Take from gRPC's error how an RPC ended. (The error is the call itself, which keeps frames and messages
        alive.)"""
        error.__traceback__ = None
        details = error.details() or ""
        if (told := wire.error_detail_of(error)) is not None:
            return cls(details, told, is_told=True)
        status = error.code()
        if status in _CUT_OFF:
            return cls(details)
        return cls(details, wire.error_of_status(error), is_late=status is grpc.StatusCode.DEADLINE_EXCEEDED)

    @property
    def is_cut_off(self) -> bool:
        """True where nothing says why it ended."""
        return self.error is None


class CutOff(Exception):
    """A connection ended in the middle of what was read from it."""

    def __init__(self, broken: BrokenCall) -> None:
        super().__init__(broken.details)
        self.broken = broken
