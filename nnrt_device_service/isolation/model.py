"""Model in a process of its own."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from nnrt_device_service.isolation.channel import Channel, ModelFault, ProcessEnded, Progress
from nnrt_device_service.isolation.messages import EXPORT, NUMBERS, PROFILE, RUN, SIZES, remember
from nnrt_device_service.isolation.process import ModelProcess, ending
from nnrt_device_service.isolation.source import Source, in_time
from nnrt_hdi.backend import Cancellation, DimRange, PreparedModel
from nnrt_hdi.errors import NnrtError, UnavailableDevice, UnknownHandle, Unsupported
from nnrt_hdi.files.graph_file import read_end_spec
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES
from nnrt_hdi.operator_times import Besides, OperatorTime
from nnrt_hdi.part import Part
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import Array

_log = logging.getLogger(__name__)

# A model whose processes ended so often within so many seconds gets none until they are over.
MOST_ENDS = 20
WINDOW_S = 60.0
_POLL_S = 0.25
ResultT = TypeVar("ResultT")


class IsolatedModel(PreparedModel):
    """Model that a process computes. If the process ends, its run fails, and the next run starts another one."""

    def __init__(self, source: Source, progress: Progress, *, is_program: bool) -> None:
        """Make the model, which closes its source in the end.

        Args:
            source: What the model is made of.
            progress: As for `Backend.prepare`.
            is_program: Whether it is a program.

        Raises:
            NnrtError: What `Source.make` raises.
        """
        self._source = source
        self.process, self._description = source.make(progress)
        self.inputs, self.outputs = self._description.inputs, self._description.outputs
        self.kept_bytes = self._description.kept_bytes
        self.device_bytes = self._description.device_bytes
        # The process gets a copy of every input anyway.
        self.reads_in_place = frozenset(range(len(self.inputs)))
        self._known_bytes = sum(spec.known_bytes for spec in self.outputs)
        self._is_program = is_program
        self._sizes: dict[Any, Sizes] = {}
        self._lock = threading.Lock()
        # Set once the process that a run starts is ready, or is not to be had.
        self._starting: threading.Event | None = None
        self._is_closed = False
        # Turn of calls that are repeated.
        self._repeating = threading.Semaphore()
        # When processes ended, of time.monotonic().
        self._ends: deque[float] = deque(maxlen=MOST_ENDS)

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        return self._run(RUN, inputs, cancellation, outputs)[0]

    def profile(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> tuple[list[Array], list[OperatorTime]]:
        results, times = self._run(PROFILE, inputs, cancellation, outputs)
        return results, _understood(lambda: [_time(*each) for each in times or ()])

    def _run(
        self, kind: int, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None]
    ) -> tuple[list[Array], Any]:
        try:
            return self._call(
                lambda channel: channel.run(kind, inputs, cancellation, outputs, self._known_bytes, len(self.outputs)),
                cancellation,
                inputs,
            )
        except NnrtError:
            cancellation.check()  # The reason of a cancellation is known here.
            raise
        finally:
            # Not before: a run whose process was killed for another one must not count as stuck.
            cancellation.elsewhere = None

    def sizes(self, inputs: Sequence[Array]) -> Sizes:
        # As in `RunKinds`, a few integers may decide shapes; but not those of a program before its run.
        key: tuple[Any, ...] = tuple([array.shape for array in inputs])
        if not self._is_program:
            few = (array for array in inputs if array.dtype.kind != "f" and array.nbytes <= INLINE_CONSTANT_BYTES)
            key += tuple(array.tobytes() for array in few)
        if (sizes := self._sizes.get(key)) is None:
            if (answer := self._ask_sizes(inputs)) is None:
                return super().sizes(inputs)

            def read() -> Sizes:
                outputs, numbers = answer
                return Sizes(
                    tuple(map(read_end_spec, outputs)), **{name: max(int(numbers[name]), 0) for name in NUMBERS}
                )

            sizes = remember(self._sizes, key, _understood(read))
        return sizes

    def _ask_sizes(self, inputs: Sequence[Array]) -> Any:
        """Return what the process says of a run, or None if it has ended.

        This starts no process: the run that follows does, and can be cancelled meanwhile.
        """
        process, channel = self.process, None
        if not process.is_ready:
            return None
        try:
            channel = process.take()
            return channel.ask(SIZES, progress=in_time(self._source.sizes_s), inputs=inputs)[0]
        except ProcessEnded as error:
            self._failure(process, error, inputs)
            return None
        finally:
            if channel is not None:
                process.put(channel)

    def export(self) -> list[Part]:
        limit = in_time(self._source.most_s)
        listed, new = self._call(lambda channel: channel.ask(EXPORT, progress=limit), Cancellation())

        def parts() -> list[Part]:
            found, rest = [], memoryview(new)
            for size, number in listed:
                if number is None:
                    found.append(Part.of(rest[:size]))
                    rest = rest[size:]
                else:
                    found.append(self._source.parts[number])
            return found

        return _understood(parts)

    def input_ranges(self) -> list[DimRange]:
        ranges = self._description.ranges
        return super().input_ranges() if ranges is None else list(ranges)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self.process.close()
        self._source.close()

    def _call(
        self, call: Callable[[Channel], ResultT], cancellation: Cancellation, inputs: Sequence[Array] = ()
    ) -> ResultT:
        """Return what a call of the process returns; start another process first if there is none.

        A call is repeated once if the process has ended and nobody knows that this call is at fault. Such calls take
        turns, so that they show which one is.
        """
        is_repeated = False
        try:
            while True:
                process = self.process
                if not process.is_ready:
                    process = self._started(cancellation)
                channel = None
                try:
                    channel = process.take()
                    return call(channel)
                except ProcessEnded as error:
                    failure = self._failure(process, error, inputs)
                    if not error.had_ended and (is_repeated or isinstance(failure, Unsupported)):
                        raise failure from error
                except ModelFault as error:
                    _log.error("the process of a model says: %s", error)
                    raise
                finally:
                    if channel is not None:
                        process.put(channel)
                cancellation.check()
                while not (is_repeated or (is_repeated := self._repeating.acquire(timeout=_POLL_S))):
                    cancellation.check()
        finally:
            if is_repeated:
                self._repeating.release()

    def _failure(self, process: ModelProcess, error: ProcessEnded, inputs: Sequence[Array]) -> NnrtError:
        """Note that a process has ended, or must end, and return the error of a run in it."""
        status = process.note_end()
        how = process.ended_for or str(error) or ending(status)
        with self._lock:
            is_first = not self._ends or self._ends[-1] < process.began_at
            if is_first:
                self._ends.append(time.monotonic())
        if is_first:
            _log.error("the process of a model has ended (%s); the next run starts another one", how)
        place = f"a run with inputs of the shapes {', '.join(str(list(array.shape)) for array in inputs)}"
        if not process.is_at_fault(status):
            return UnavailableDevice(f"the process of the model has ended ({how}); run it again", place=place)
        return Unsupported(
            f"the device crashes on it ({how}); run it with inputs of other shapes (without a dimension of 0), export"
            " the model in another way, or have the daemon use another version of the device's library",
            place=place,
        )

    def _started(self, cancellation: Cancellation) -> ModelProcess:
        """Start a process, or wait until another run has done so, and return it."""
        with cancellation.compiling():
            while True:
                with self._lock:
                    if self._is_closed:
                        raise UnknownHandle("the model has been released")
                    if self.process.is_ready:
                        return self.process
                    if (waited_for := self._starting) is None:
                        starting = self._starting = threading.Event()
                        break
                waited_for.wait(_POLL_S)
                cancellation.check()
            try:
                return self._start(cancellation)
            finally:
                self._starting = None
                starting.set()

    def _start(self, cancellation: Cancellation) -> ModelProcess:
        if len(self._ends) == MOST_ENDS and time.monotonic() - self._ends[0] < WINDOW_S:
            # No NnrtError: who loads the model from now on gets another one.
            raise RuntimeError(f"{MOST_ENDS} processes of the model have ended within {WINDOW_S:g} s")
        self.process.note_end()  # Before its end can't be asked for any more.
        self.process.close()
        process, description = self._source.make(lambda fraction: cancellation.check())
        with self._lock:
            is_same = not self._is_closed and description == self._description
            if is_same:
                self.process = process
        if not is_same:
            process.close()
            raise UnavailableDevice("the model is another one after its process was started again; load it again")
        return process


def _understood(read: Callable[[], ResultT]) -> ResultT:
    """Return what `read` makes of an answer. Raise UnavailableDevice if the process has answered nonsense."""
    try:
        return read()
    except (LookupError, TypeError, ValueError, OverflowError, NnrtError) as error:
        raise UnavailableDevice(f"the process of the model gave a wrong answer ({type(error).__name__})") from error


def _time(kind: str, name: str, operator: str, began_ns: int, took_ns: int) -> OperatorTime:
    made = Besides if kind == Besides.__name__ else OperatorTime
    return made(str(name), str(operator), int(began_ns), int(took_ns))
