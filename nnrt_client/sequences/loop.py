"""Loop of a sequence: steps that the device makes by itself, whose values come as an iterator."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Literal

from numpy.typing import NDArray
from typing_extensions import Self

from nnrt_client.sequences.home import Home, Limits, arrived
from nnrt_client.sequences.log import LoggedLoop
from nnrt_client.sequences.plan import LoopPlan
from nnrt_client.sequences.residence import Residence
from nnrt_client.session.errands import start_in_worker
from nnrt_hdi import wire
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.signals import raised_by_handler, suppressed
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import sequence_pb2

EndReason = Literal["stopped", "steps", "bytes", "time", "asked", "failed"]
_REASONS: Mapping[int, EndReason] = {0: "stopped", 1: "steps", 2: "bytes", 3: "time", 4: "asked", 5: "failed"}


@dataclass(frozen=True, slots=True)
class LoopEnd:
    """End of a loop.

    `reason`: "stopped" by the value `stop`; a limit: "steps", "bytes" or "time"; "asked", by `Loop.close`; "failed".
    `steps` are the complete steps, `delivered_bytes` those of delivered values, `took_s` the seconds on the device.
    """

    reason: EndReason
    steps: int
    delivered_bytes: int
    took_s: float


_Message = sequence_pb2.DeliveredValues | sequence_pb2.LoopEnd | NnrtError


class Loop(Iterator[dict[str, NDArray[Any]]], Closable):
    """Values of a loop's steps by name, as they come. `end` says why it has ended, once it has.

    It is the sequence's operation until it has ended: `close`, or another operation of the sequence, ends it after the
    step that the device is making.
    """

    end: LoopEnd | None = None
    """Why the loop has ended; None before."""

    # Set by `_begun`.
    _residence: Residence
    _plan: LoopPlan
    _values: Mapping[int, Array]
    _limits: Limits
    _names: Mapping[int, str]
    _home: Home
    _operation: int
    _inbox: "SimpleQueue[_Message]"
    # Steps of the latest request that have come, and how many of them were delivered before.
    _came = 0
    _known = 0
    # Steps, bytes and seconds of requests before the latest one, which have ended because their devices left.
    _former_steps = 0
    _former_bytes = 0
    _former_s = 0.0
    # Whether the device was asked to end the loop, and whether only because it leaves.
    _is_asked = False
    _is_moving = False
    _is_over = False

    @classmethod
    def _begun(
        cls,
        residence: Residence,
        plan: LoopPlan,
        values: Mapping[int, Array],
        limits: Limits,
        names: Mapping[int, str],
    ) -> Self:
        """Start a loop of a sequence. `values` are written first; `names` are those of the values to deliver.

        Returns:
            The loop.

        Raises:
            NnrtError: The device doesn't compile the glue, or can't be reached.
        """
        self = cls.__new__(cls)
        self._residence, self._plan, self._values, self._limits, self._names = residence, plan, values, limits, names
        self._start()
        return self

    def __next__(self) -> dict[str, NDArray[Any]]:
        """Wait for the next step.

        Returns:
            Its values by name.

        Raises:
            NnrtError: The loop has failed. The steps before have been made.
        """
        while not self._is_over:
            message = self._inbox.get()
            if isinstance(message, sequence_pb2.DeliveredValues):
                self._came += 1
                if self._came > self._known:
                    self._leave_in_time()
                    return self._named(message)
            elif isinstance(message, NnrtError):
                self._fail(message)
            else:
                self._take_end(message)
        raise StopIteration

    def close(self) -> None:
        """End the loop after the step under way. Steps that have not been taken are dropped, and so is an error.

        Idempotent.
        """
        with suppressed(NnrtError):
            self.rest()

    def rest(self) -> list[dict[str, NDArray[Any]]]:
        """End the loop after the step under way.

        Returns:
            The values of the steps that have not been taken.

        Raises:
            NnrtError: As `__next__`.
        """
        if not self._is_over and not self._is_asked:
            self._is_asked = True
            self._home.stop(self._operation)
        return list(self)

    def _start(self) -> None:
        """Send the request: to the device where the sequence lives, or to another one if that is lost."""
        plan, residence = self._plan, self._residence

        def begin(home: Home) -> tuple[Home, sequence_pb2.LoopRequest]:
            runs = plan.runs(home.dispatcher)
            home.write(self._values)
            return home, home.request(runs, self._limits, residence.on_behalf_of)

        self._home, request = residence.do(begin)
        self._operation, self._inbox = request.write.operation, SimpleQueue()
        if not start_in_worker(partial(_read, self._home, request, self._inbox)):
            raise OutOfMemory("no thread is left that could read the loop's values")

    def _leave_in_time(self) -> None:
        """Ask the device to end the loop if it gets no more runs; the loop goes on elsewhere."""
        if not self._is_asked and self._residence.is_leaving(self._home):
            self._is_asked = self._is_moving = True
            self._home.stop(self._operation)

    def _fail(self, error: NnrtError) -> None:
        """Begin again on another device after an error, or raise it."""
        if not self._residence.may_move(self._home, error):
            self._is_over = True
            raise error
        self._begin_again()

    def _begin_again(self) -> None:
        self._known, self._came = max(self._known, self._came), 0
        if self._is_moving:
            self._is_asked = self._is_moving = False
        elif self._is_asked:  # No more steps than have come.
            self._limits = self._limits._replace(steps=max(self._known, 1))
        self._start()

    def _take_end(self, message: sequence_pb2.LoopEnd) -> None:
        residence, limits, reason = self._residence, self._limits, _REASONS[message.reason]
        error = wire.error_from_detail(message.error) if message.HasField("error") else None
        if error is not None and residence.may_move(self._home, error):
            self._begin_again()
            return
        residence.known |= set(self._values)
        if message.steps:
            residence.known |= self._plan.made
        if residence.log is not None:
            residence.log.add(LoggedLoop(self._values, self._plan, message.steps))
        self._former_steps += message.steps
        self._former_bytes += message.bytes
        self._former_s += message.took_ns / 1e9
        if self._is_moving and reason == "asked":
            self._is_asked = self._is_moving = False
            self._came = self._known = 0
            self._limits = limits._replace(steps=limits.steps - message.steps)
            self._values = {}
            self._start()
            return
        self.end = LoopEnd(reason, self._former_steps, self._former_bytes, self._former_s)
        self._is_over = True
        if error is not None:
            raise error

    def _named(self, message: sequence_pb2.DeliveredValues) -> dict[str, NDArray[Any]]:
        arrays = arrived(message.values, self._home.session.place)
        if set(arrays) != set(self._names):
            raise OperationFailed("other values came than were to be delivered", place=self._home.session.place)
        return {self._names[number]: array for number, array in arrays.items()}


def _read(home: Home, request: sequence_pb2.LoopRequest, inbox: "SimpleQueue[_Message]") -> None:
    """Put what a loop delivers, and its end or error, into an inbox. A thread that receives no signals calls this."""
    last: _Message = OperationFailed("the loop's replies have no end", place=home.session.place)
    try:
        for reply in home.loop(request):
            for delivered in reply.delivered:
                inbox.put(delivered)
            if reply.HasField("end"):
                last = reply.end
        inbox.put(last)
    except NnrtError as error:
        inbox.put(error)
    except BaseException as error:
        if raised_by_handler(error):
            raise
        inbox.put(OperationFailed(f"the loop's replies could not be read: {error!r}", place=home.session.place))
