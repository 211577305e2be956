"""Home of a sequence: the daemon in which its values are."""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Items
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import numpy as np

from nnrt_client.run.descriptions import NOWHERE, SEQUENCE, Described, RunInSequence, tensor_message
from nnrt_client.run.model_dispatcher import ModelDispatcher
from nnrt_client.run.result import RunResult
from nnrt_client.run.signature import Signature
from nnrt_client.session.errands import call_in_worker
from nnrt_client.session.release import release
from nnrt_client.session.session import Session
from nnrt_hdi.errors import ConnectionFailed, InvalidParameter, NnrtError, OperationFailed, TimedOut, Unsupported
from nnrt_hdi.sequences import FEATURE, MAX_MS, Keeping
from nnrt_hdi.signals import raised_by_handler
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import prepared_model_pb2, sequence_pb2
from nnrt_hdi.wire.values import ArrivingValues, value_messages, whole_value

# Values up to this size, together, travel with a loop; larger ones are written before.
_INLINE_BYTES = 256 << 10
# Seconds that the end of a loop may take to arrive after the loop's own limit.
_END_S = 10.0

Keepings = tuple[tuple[int, Keeping], ...]


class LoopedRun(NamedTuple):
    """Run of a loop or a queue: of a model whose inputs are values, and whose outputs become values."""

    signature: Signature
    # Number of the value of each input.
    reads: Items[int]
    keepings: Keepings
    # Values to write before the run, and numbers of those to deliver after it.
    values: Mapping[int, Array]
    delivered: Items[int] = ()
    stop: int = 0


class Limits(NamedTuple):
    """Limits of a loop."""

    steps: int = 1
    bytes: int = 0
    ms: int = 0


class Home:
    """Values of a sequence in one daemon. One thread at a time uses it, except `stop`.

    Errors are those of the daemon. After one that leaves open whether the daemon has done the operation, `is_certain`
    is false, and nothing more can be done here.
    """

    def __init__(self, dispatcher: ModelDispatcher, copy_of: "Home | None" = None) -> None:
        """Make a sequence, with the values of another one. Its first run or loop opens it in the daemon.

        Raises:
            Unsupported: The daemon has no sequences.
            UnavailableDevice: The daemon has died.
        """
        self.dispatcher = dispatcher
        self.session: Session = dispatcher.signature.session
        if FEATURE not in self.session.welcome.features:
            raise Unsupported("the daemon is too old for sequences; install this version of nnrt there")
        self.id = next(self.session.sequence_ids)
        self.is_certain = True
        self._operation = 0
        # Values that travel with the operation that opens the sequence.
        self._unwritten: dict[int, Array] = {}
        if copy_of is not None:
            copy_of._open()
            self._write({}, copy_of.id)

    @property
    def is_alive(self) -> bool:
        """True as long as operations may succeed here."""
        return self.is_certain and self.session.is_alive

    def write(self, values: Mapping[int, Array]) -> None:
        """Write values by number."""
        if not self._operation:
            self._unwritten.update(values)
        elif values:
            self._write(values)

    def read(self, numbers: Items[int]) -> dict[int, Array]:
        """Return copies of values by number."""
        self._open()
        request = sequence_pb2.SequenceRead(sequence_id=self.id, numbers=numbers)
        return call_in_worker(self._read, request)

    def _read(self, request: sequence_pb2.SequenceRead) -> dict[int, Array]:
        with closing(self.session.stream("Sequences.Read", request, self._request_s)) as messages:
            return arrived(messages, self.session.place)

    def run(
        self,
        given: Items[Any],
        keepings: Keepings,
        unwanted: Items[int],
        timeout_ms: int | None,
        on_behalf_of: str | None,
    ) -> RunResult[Any]:
        """Send a run and wait until it ends."""
        self._open()
        run = self.dispatcher.new_run()
        run.sequence = RunInSequence(self.id, self._operation, keepings)
        try:
            result = self.dispatcher.run(given, None, timeout_ms, unwanted, on_behalf_of, run)
        except BaseException as error:
            self._note(error)
            raise
        self._operation += 1
        return result

    def request(self, runs: Iterable[LoopedRun], limits: Limits, on_behalf_of: str | None) -> sequence_pb2.LoopRequest:
        """Return the request of a loop, which is the next operation. Write values that are too long for it."""
        if sum(array.nbytes for array in self._unwritten.values()) > _INLINE_BYTES:
            self._open()
        write = sequence_pb2.SequenceWrite(
            sequence_id=self.id,
            operation=self._operation,
            values=[whole_value(*item) for item in self._unwritten.items()],
        )
        return sequence_pb2.LoopRequest(
            write=write,
            runs=[_run_message(run, on_behalf_of or "") for run in runs],
            max_steps=limits.steps,
            max_bytes=limits.bytes,
            max_ms=limits.ms,
        )

    def loop(self, request: sequence_pb2.LoopRequest) -> Iterator[sequence_pb2.LoopReply]:
        """Yield the replies of a loop, for a thread that receives no signals."""
        timeout_s = (request.max_ms or MAX_MS) / 1000 + _END_S
        try:
            with closing(self.session.stream("Sequences.Loop", request, timeout_s)) as replies:
                for reply in replies:
                    if reply.HasField("end"):
                        self._operation, self._unwritten = self._operation + 1, {}
                    yield reply
        except BaseException as error:
            self._note(error)
            raise

    def loop_silently(self, request: sequence_pb2.LoopRequest) -> None:
        """Let the device make a loop that delivers nothing, and wait until it has ended."""
        call_in_worker(lambda: list(self.loop(request)))

    def stop(self, operation: int) -> None:
        """Ask the daemon to end a loop after its step. A daemon that is gone has ended it."""
        request = sequence_pb2.StopLoopRequest(sequence_id=self.id, operation=operation)
        release(self.session, "Sequences.Stop", request)

    def release(self) -> None:
        """Ask the daemon to free the values. A daemon that is gone has freed them already."""
        if self._operation or not self.is_certain:
            release(self.session, "Sequences.Release", sequence_pb2.ReleaseSequenceRequest(sequence_id=self.id))

    @property
    def _request_s(self) -> float:
        return self.session.settings.request_timeout_s

    def _open(self) -> None:
        if not self._operation:
            self._write(self._unwritten)
            self._unwritten = {}

    def _write(self, values: Mapping[int, Array], copy_of: int = 0) -> None:
        try:
            self.session.call("Sequences.Write", self._write_messages(values, copy_of), self._request_s)
        except BaseException as error:
            self._note(error)
            raise
        self._operation += 1

    def _write_messages(self, values: Mapping[int, Array], copy_of: int) -> Iterator[sequence_pb2.SequenceWrite]:
        most = self.session.welcome.limits.message_bytes
        yield sequence_pb2.SequenceWrite(sequence_id=self.id, operation=self._operation, copy_of=copy_of)
        for at, array in values.items():
            for message in value_messages(at, array, most):
                yield sequence_pb2.SequenceWrite(values=[message])

    def _note(self, error: BaseException) -> None:
        """Note whether the operation may have been done in spite of an error."""
        is_decided = isinstance(error, NnrtError) and not isinstance(error, TimedOut | ConnectionFailed)
        if not is_decided or raised_by_handler(error) or not self.session.is_alive:
            self.is_certain = False


def _run_message(run: LoopedRun, on_behalf_of: str) -> sequence_pb2.LoopRun:
    signature, keepings = run.signature, dict(run.keepings)
    description = prepared_model_pb2.RunDescription(
        model_id=signature.model_id,
        inputs=[prepared_model_pb2.TensorDescription(place=SEQUENCE, value=at) for at in run.reads],
        outputs=[
            tensor_message(Described(form.data_type, np.dtype(np.uint8), (), 0, NOWHERE, keeping=keepings.get(at)))
            for at, form in enumerate(signature.output_forms)
        ],
        on_behalf_of=on_behalf_of,
    )
    return sequence_pb2.LoopRun(
        values=[whole_value(*item) for item in run.values.items()],
        description=description,
        delivered=run.delivered,
        stop=run.stop,
    )


def arrived(messages: Iterable[sequence_pb2.SequenceValue], place: str) -> dict[int, Array]:
    """Return the values in messages by number.

    Raise OperationFailed, with the place, if the messages are invalid, and what reading them raises.
    """
    values = ArrivingValues()
    for message in messages:
        with _invalid_at(place):
            values.take([message])
    with _invalid_at(place):
        return values.arrays()


@contextmanager
def _invalid_at(place: str) -> Iterator[None]:
    try:
        yield
    except InvalidParameter as error:
        raise OperationFailed(error.message, place=place) from error
