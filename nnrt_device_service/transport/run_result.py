"""What a run gave, and the messages that tell it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from nnrt_device_service.access.counters import Usage
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.settings import LimitReached
from nnrt_device_service.transport.plans import PlannedReply
from nnrt_hdi import wire
from nnrt_hdi.chunks import INLINE_BYTES as MAX_INLINE_BYTES
from nnrt_hdi.chunks import beyond_inline, pieces
from nnrt_hdi.compression import INLINE_BYTES
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import model_pb2, prepared_model_pb2
from nnrt_hdi.wire.run_codec import VIEWED_BYTES, compressed_reply_chunk, reply_chunk, with_tensors
from nnrt_hdi.wire.runs import AnyRegion


class RunResult:
    """The result of a run: its outputs, of which some may be in their regions already, and where its time went."""

    __slots__ = (
        "_chunk",
        "_chunked",
        "_in_bytes",
        "_message_bytes",
        "_model",
        "_outputs",
        "_regions",
        "_run_id",
        "_times",
        "inline_bytes",
        "plan",
    )

    def __init__(
        self,
        run_id: int,
        model: LoadedModel,
        outputs: Sequence[Array],
        regions: Sequence[AnyRegion | None],
        times: tuple[int, int, int, int, int],
        message_bytes: int,
        in_bytes: int,
    ) -> None:
        """`regions` has None for an output that is in none; it is empty where none is. `times` are those of
        `wire.fill_reply`. The inputs had `in_bytes`."""
        self._run_id = run_id
        self._model = model
        self._outputs = outputs
        self._regions = regions
        self._times = times
        # The number of the plan that is kept of it.
        self.plan = 0
        # Those that follow the reply in chunks.
        self._chunked: set[int] = set()
        self._chunk: Callable[[memoryview], bytes] = reply_chunk
        self._message_bytes = message_bytes
        self._in_bytes = in_bytes
        # Length of the outputs that are in no region. From COUNTED_BYTES on they count in the session until they have
        # been sent.
        self.inline_bytes = 0
        for index, array in enumerate(outputs):
            if not regions or regions[index] is None:
                self.inline_bytes += array.nbytes

    def own_outputs(self) -> None:
        """Have outputs that are still to be sent lie in memory of their own, where they are a part of a batch's."""
        regions = self._regions or (None,) * len(self._outputs)
        self._outputs = [
            array.copy() if region is None and array.base is not None else array
            for array, region in zip(self._outputs, regions, strict=True)
        ]

    def count(self, usage: Usage) -> None:
        """The run has ended well."""
        _, queued_ns, copied_in_ns, computed_ns, copied_out_ns = self._times
        out_bytes = 0
        for array in self._outputs:
            out_bytes += array.nbytes
        usage.count_run(queued_ns, copied_in_ns + copied_out_ns, computed_ns, self._in_bytes, out_bytes)

    def fit(self, *, in_chunks: bool, compressed: bool = False) -> None:
        """Have no message be too long. Raises OutOfMemory where that takes chunks and they aren't wanted."""
        if in_chunks and compressed:
            self._chunk = compressed_reply_chunk
            self._cut(min(INLINE_BYTES, self._message_bytes))
        elif in_chunks:
            self._cut(self._message_bytes)
        elif self.inline_bytes > self._message_bytes:
            raise LimitReached(
                f"the outputs have {self.inline_bytes} bytes, a message at most {self._message_bytes};"
                " take large outputs in chunks, or have them written to a buffer",
                "--message-bytes",
            )

    def _cut(self, inline_bytes: int) -> None:
        if self.inline_bytes <= min(inline_bytes, MAX_INLINE_BYTES):
            return
        regions = self._regions or (None,) * len(self._outputs)
        pairs = zip(self._outputs, regions, strict=True)
        self._chunked = beyond_inline((array.nbytes if region is None else 0 for array, region in pairs), inline_bytes)

    def messages(self) -> Iterator[prepared_model_pb2.RunReply | bytes]:
        """The RunReply, with outputs inline that are in no region and not too long, and the chunks of the others."""
        yield self.message()
        if self._chunked:
            outputs = (np.ascontiguousarray(self._outputs[index]) for index in sorted(self._chunked))
            yield from map(self._chunk, pieces(outputs, self._message_bytes))

    def message(self) -> prepared_model_pb2.RunReply | bytes:
        """The RunReply."""
        reply = prepared_model_pb2.RunReply()
        if not self._chunked and self.inline_bytes < VIEWED_BYTES:
            self.fill(reply)
            return reply
        self.fill_without_outputs(reply)
        return with_tensors(reply, [self._tensor(*output) for output in enumerate(self._outputs)])

    def fill(self, reply: prepared_model_pb2.RunReply) -> None:
        """Make an empty message the RunReply, with all outputs inline that are in no region."""
        wire.fill_reply(reply, self._run_id, self._times, self._model.outputs, self._outputs, self._regions)
        if self.plan:
            reply.plan = self.plan

    def fill_without_outputs(self, reply: prepared_model_pb2.RunReply) -> None:
        """Make an empty message the RunReply, but for the outputs."""
        wire.fill_reply(reply, self._run_id, self._times)

    def _tensor(self, index: int, array: Array) -> tuple[model_pb2.IOTensor, Array | None]:
        spec = self._model.outputs[index].spec
        if self._regions and (region := self._regions[index]) is not None:
            return wire.io_region_message(spec, array.shape, array.nbytes, region), None
        if index in self._chunked:
            return wire.io_chunked_message(spec, array), None
        return wire.io_bare_message(spec, array), np.ascontiguousarray(array)


class ToldResult(RunResult):
    """One whose reply tells what the operators took, and is itself told of when it is made."""

    __slots__ = ("on_reply", "operators")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.operators: Sequence[OperatorTime] = ()
        self.on_reply: Callable[[prepared_model_pb2.RunReply], object] | None = None

    def fill(self, reply: prepared_model_pb2.RunReply) -> None:
        super().fill(reply)
        self._tell(reply)

    def fill_without_outputs(self, reply: prepared_model_pb2.RunReply) -> None:
        super().fill_without_outputs(reply)
        self._tell(reply)

    def _tell(self, reply: prepared_model_pb2.RunReply) -> None:
        wire.add_operator_times(reply, self.operators, self._message_bytes)
        if (on_reply := self.on_reply) is not None:
            self.on_reply = None  # One that is kept may be made again.
            on_reply(reply)


# A run's end as its carrier may ask for it again: what it gave, or a message that is made already.
Reply = RunResult | PlannedReply | prepared_model_pb2.RunReply


def error_reply(run_id: int, error: NnrtError) -> prepared_model_pb2.RunReply:
    """The reply of a run that gave nothing."""
    return prepared_model_pb2.RunReply(run_id=run_id, error=wire.error_detail(error))


def messages_of(reply: Reply) -> Iterator[prepared_model_pb2.RunReply | bytes]:
    """The messages of a reply."""
    return iter((reply,)) if isinstance(reply, prepared_model_pb2.RunReply) else reply.messages()
