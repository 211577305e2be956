"""Results of runs, and the error for output tensors that are too small."""

from collections.abc import Iterable, Sequence
from time import perf_counter_ns
from typing import Any, TypeVar

from nnrt_client.run.stamps import Stamps
from nnrt_hdi.enums import ReturnCode
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.run_times import RunTimes
from nnrt_hdi.tensor import Shape

OutputT = TypeVar("OutputT")


class RunResult(list[OutputT]):
    """Outputs of a run in the model's order: read-only arrays, or the tensors that were given for them.

    `shapes` has the shape of each output. `times` has the durations of the run's stages; it is None for a run that
    consisted of runs of parts of the model.
    """

    __slots__ = ("_shapes", "_stamps")

    def __init__(self, outputs: Iterable[OutputT], shapes: Iterable[Shape] | None = None) -> None:
        """Create a result. Without `shapes`, it takes the shapes from the outputs."""
        list.__init__(self, outputs)
        self._shapes = shapes
        self._stamps: Stamps | None = None

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Shape of each output."""
        if self._shapes is not None:
            return tuple(self._shapes)
        return tuple(output.shape for output in self)  # type: ignore[attr-defined]  # They are arrays.

    @property
    def _queued_s(self) -> float:
        """Seconds that the run waited in the daemon's queue, or 0 if unknown."""
        return self._stamps.reply_times[1] / 1e9 if self._stamps is not None else 0.0

    def _hand_on(self, began_ns: int) -> None:
        """Extend the run's times: they begin with the first of several attempts, at `began_ns`, and end now."""
        if (stamps := self._stamps) is not None:
            stamps.began_ns = began_ns
            if stamps.woken_ns:
                stamps.woken_ns = perf_counter_ns()

    def _wake(self) -> None:
        """Record that the waiting thread or callback continues now."""
        if self._stamps is not None:
            self._stamps.woken_ns = perf_counter_ns()

    @property
    def device_times(self) -> Sequence[int] | None:
        """Nanoseconds in which the run waited for the device, copied inputs, computed, and copied outputs.

        They are part of `times`, and cost less. None for a run that consisted of other runs.
        """
        return None if self._stamps is None else self._stamps.reply_times[1:5]

    @property
    def times(self) -> RunTimes | None:
        """Durations of the run's stages in nanoseconds, or None for a run that consisted of other runs."""
        return self._stamps.times() if self._stamps is not None else None

    @property
    def began_ns(self) -> int:
        """Time when the run began (time.perf_counter_ns()); 0 for a run that consisted of other runs."""
        return self._stamps.began_ns if self._stamps is not None else 0


def never_sent(death: NnrtError) -> NnrtError:
    """Return a copy of the error that ended the session, marked as the error of a run that the daemon never got."""
    error = death.copy()
    error.__dict__["_is_of_unsent"] = True
    return error


def is_of_unsent(error: NnrtError) -> bool:
    """Return whether `never_sent` made this error, so that the daemon never got the run."""
    return "_is_of_unsent" in error.__dict__


class OutputTooSmall(InvalidParameter, code=ReturnCode.INVALID_PARAMETER, status="INVALID_ARGUMENT"):
    """Error of a run whose output doesn't fit into the tensor given for it. `shapes` has the shapes of all outputs."""

    def __init__(self, message: str, *, place: str = "", shapes: Sequence[Shape] = ()) -> None:
        super().__init__(message, place=place)
        self.shapes: tuple[Any, ...] = tuple(shapes)
