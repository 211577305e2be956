"""Replies of runs, parsed from frames."""

import struct
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.v2 import prepared_model_pb2
from nnrt_hdi.wire.packet import REPLY_MARK, Bytes, frames_of, padded, reply_head


class Reply:
    """Frame of a reply: its head and its outcome."""

    __slots__ = ("data", "outcome", "run_id", "tensors_at", "times")

    def __init__(self, data: Bytes) -> None:
        """Parse a frame. Raise InvalidParameter if it is not one complete reply frame."""
        try:
            mark, size, self.run_id, *times, outcome_bytes = reply_head.unpack_from(data)
        except struct.error as error:
            raise InvalidParameter(f"a reply has {len(data)} bytes; its head has {reply_head.size}") from error
        if mark != REPLY_MARK or size != len(data):
            raise InvalidParameter(f"a reply of {len(data)} bytes begins with {mark:#x} and says that it has {size}")
        self.data = data
        # In the order of the contract's RunTimes, with `served_ns` last.
        self.times: Sequence[int] = times
        # Outcome of the run; None for a success whose outputs are as the description says.
        self.outcome: prepared_model_pb2.RunOutcome | None = None
        if outcome_bytes:
            self._read_outcome(outcome_bytes)

    def _read_outcome(self, outcome_bytes: int) -> None:
        end = reply_head.size + outcome_bytes
        if end > len(self.data):
            raise InvalidParameter(f"a reply of {len(self.data)} bytes says that its outcome ends at {end}")
        try:
            self.outcome = prepared_model_pb2.RunOutcome.FromString(bytes(self.data[reply_head.size : end]))
        except DecodeError as error:
            raise InvalidParameter(f"the outcome of a run can't be decoded: {error}") from error
        # Offset of the first inline tensor behind the outcome.
        self.tensors_at = padded(end)


def replies_in(packet: Bytes) -> list[Reply]:
    """Return the replies of a packet. Raise InvalidParameter unless it consists of reply frames."""
    if int.from_bytes(packet[4:8], "little") == len(packet):  # One frame, as for most runs.
        return [Reply(packet)]
    return [Reply(packet[begin:end]) for begin, end in frames_of(REPLY_MARK, packet)]
