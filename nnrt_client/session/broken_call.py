"""Description of how an RPC, or a connection of the local socket, ended without a reply."""

from dataclasses import dataclass

import grpc
from typing_extensions import Self

from nnrt_hdi import wire
from nnrt_hdi.errors import NnrtError

_CUT_OFF = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


@dataclass(frozen=True, slots=True)
class BrokenCall:
    """Reason why a call ended without a reply."""

    # Message of gRPC or of the operating system.
    details: str
    # The daemon's error, or one made from gRPC's status. None if the connection was cut off for an unknown reason.
    error: NnrtError | None = None
    # Whether `error` names its cause: the daemon sent it, or a link made it. False if it is made from gRPC's status.
    is_specific: bool = False
    # Whether the RPC exceeded its deadline.
    is_late: bool = False

    @classmethod
    def from_rpc_error(cls, error: grpc.RpcError) -> Self:
        """Describe how an RPC ended, from gRPC's error.

        This removes the error's traceback, which would keep frames and messages alive as long as the call object does.
        """
        error.__traceback__ = None
        details = error.details() or ""
        if (detail := wire.error_detail_of(error)) is not None:
            return cls(details, detail, is_specific=True)
        status = error.code()
        if status in _CUT_OFF:
            return cls(details)
        return cls(details, wire.error_of_status(error), is_late=status is grpc.StatusCode.DEADLINE_EXCEEDED)

    @property
    def is_cut_off(self) -> bool:
        """True if the reason is unknown: the connection was cut off."""
        return self.error is None


class CutOff(Exception):
    """Error of a connection that ended before a whole reply was read."""

    def __init__(self, broken: BrokenCall) -> None:
        super().__init__(broken.details)
        self.broken = broken
