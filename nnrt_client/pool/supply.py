"""Where runs get their replicas from."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from nnrt_client.pool.replica import Replica
from nnrt_client.run.base_executor import Targets
from nnrt_client.run.signature import Inputs
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.signals import raised_by_handler
from nnrt_hdi.tensor import TensorSpec

Specs = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]


class Waiting(Protocol):
    """A run that waits for a replica, in no thread."""

    waits_until: float

    def resume(self) -> None:
        """Go on: there is a replica, or it is time to fail."""

    def give_up(self, reason: BaseException) -> bool:
        """End with this error. False where it was over already."""


def resume_all(waiting: deque[Waiting], error: NnrtError | None = None) -> None:
    """Have all go on, or end with a copy of the error. Any number of threads may do so at a time."""
    while waiting:
        try:
            run = waiting.popleft()
        except IndexError as empty:  # Another thread has them.
            if raised_by_handler(empty):
                raise
            return
        if error is None:
            run.resume()
        else:
            run.give_up(error.copy())


class Supply(Closable, ABC):
    """The replicas of one model, of which any thread chooses one for a run."""

    # Set by constructors.
    is_open: bool
    # Why it isn't.
    end_reason: NnrtError | None
    # Why devices have no replica, by address, where there is none.
    missing: Mapping[str, NnrtError]

    @property
    @abstractmethod
    def specs(self) -> Specs | None:
        """Inputs and outputs of the model; None before the first replica."""

    @property
    @abstractmethod
    def is_living(self) -> bool:
        """False where the next run has to load the model first."""

    @property
    @abstractmethod
    def serving(self) -> tuple[Replica, ...]:
        """Those that get runs."""

    @abstractmethod
    def choose(self) -> Replica | None:
        """The replica that is likely to make a run the soonest; None where there is none that gets runs."""

    @abstractmethod
    def choose_another(self, tried: Iterable[Replica]) -> Replica | None:
        """One that has not been tried, if there is one; else as `choose`."""

    @abstractmethod
    def ran(self, replica: Replica, seconds: float, queued_s: float = 0.0) -> None:
        """Count a run that has ended as it should, after some seconds, of which it waited some for other runs."""

    @abstractmethod
    def failed(self, replica: Replica) -> None:
        """Count a run that the device has failed."""

    @abstractmethod
    def offer(self, inputs: Inputs, outputs: Targets | None, unwanted: Sequence[int]) -> None:
        """Offer a run that has been made, for a trial of a device that gets none."""

    @abstractmethod
    def wait(self, timeout_s: float) -> None:
        """Wait for a replica that gets runs, or for the end, so long at most. Raises UnavailableDevice, or what devices
        refuse the client with, where it is no use to wait."""

    @abstractmethod
    def park(self, run: Waiting) -> None:
        """Have a run go on when there is a replica, or when its time is over. Raises as `wait`."""

    @abstractmethod
    def call_back(self, function: Callable[..., object], *arguments: object) -> None:
        """Have a thread for callbacks call this. The application may keep them all waiting."""

    @abstractmethod
    def begin_soon(self, begin: Callable[[], object]) -> None:
        """Have a thread call this that begins runs."""

    @abstractmethod
    def enter_child(self, reason: NnrtError) -> None:
        """End after a fork, whoever held locks before."""
