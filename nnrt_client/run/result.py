"""Results of runs, and the error of outputs that are too small."""

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
    """The outputs of a run in the model's order: read-only arrays, or the tensors that were given for them.

    `shapes` has the shape of each output, `times` where the time of the run went (None where the run was made of
    others, of parts of the model).
    """

    __slots__ = ("_shapes", "_stamps")

    def __init__(self, outputs: Iterable[OutputT], shapes: Iterable[Shape] | None = None) -> None:
        """Without shapes they are those of the outputs."""
        list.__init__(self, outputs)
        self._shapes = shapes
        self._stamps: Stamps | None = None

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape of each output."""
        if self._shapes is not None:
            return tuple(self._shapes)
        return tuple(output.shape for output in self)  # type: ignore[attr-defined]  # They are arrays.

    @property
    def _queued_s(self) -> float:
        """Seconds that the run waited for others of its device, as far as the daemon says."""
        return self._stamps.told[1] / 1e9 if self._stamps is not None else 0.0

    def _hand_on(self, began_ns: int) -> None:
        """Count as the run's what was done for it before it began, such as attempts that failed, and what the thread
        that waited for it has done since."""
        if (stamps := self._stamps) is not None:
            stamps.began_ns = began_ns
            if stamps.woken_ns:
                stamps.woken_ns = perf_counter_ns()

    def _wake(self) -> None:
        """Have the one who waited for it go on now, whoever was told of its end before."""
        if self._stamps is not None:
            self._stamps.woken_ns = perf_counter_ns()

    @property
    def times(self) -> RunTimes | None:
        """Nanoseconds of the run's parts; None where it was made of others."""
        return self._stamps.times() if self._stamps is not None else None

    @property
    def began_ns(self) -> int:
        """Time when the run began, on the clock of time.perf_counter_ns; 0 where it was made of others."""
        return self._stamps.began_ns if self._stamps is not None else 0


def never_sent(death: NnrtError) -> NnrtError:
    """The death of a session, for a run that the daemon never got: nothing of it was computed."""
    error = death.copy()
    error.__dict__["_is_of_unsent"] = True
    return error


def is_of_unsent(error: NnrtError) -> bool:
    """Tell if an error is one of `never_sent`."""
    return "_is_of_unsent" in error.__dict__


class OutputTooSmall(InvalidParameter, code=ReturnCode.INVALID_PARAMETER, status="INVALID_ARGUMENT"):
    """An output has no room in the tensor that was given for it. `shapes` are those of all outputs of the run."""

    def __init__(self, message: str, *, place: str = "", shapes: Sequence[Shape] = ()) -> None:
        super().__init__(message, place=place)
        self.shapes: tuple[Any, ...] = tuple(shapes)
