"""Supply of replicas for runs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from nnrt_client.pool.parking import Waiting
from nnrt_client.pool.replica import Replica
from nnrt_client.run.dispatcher import Targets
from nnrt_client.run.signature import Inputs, Signature
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import NnrtError


class Supply(Closable, ABC):
    """Base of what supplies the replicas of one model. Any thread chooses one for a run."""

    # Set by constructors.
    is_open: bool
    # Why the supply has ended.
    end_reason: NnrtError | None
    # Why devices have no replica, by address, if there is none.
    missing: Mapping[str, NnrtError]
    # Inputs and outputs of the model, once there is a replica.
    signature: Signature
    # Calls a function in a thread for callbacks. The application may keep all of these busy.
    call_back: Callable[..., object]
    # Calls a function in a thread that starts runs.
    begin_soon: Callable[[Callable[[], object]], object]

    @property
    @abstractmethod
    def serving(self) -> tuple[Replica, ...]:
        """Replicas that get runs."""

    @abstractmethod
    def choose(self) -> Replica | None:
        """Return the replica that will likely finish a run first, or None if none gets runs."""

    def choose_another(self, tried: Iterable[Replica]) -> Replica | None:
        """Return a replica that has not been tried, if there is one; else as `choose`."""
        return self.choose()

    def ran(self, replica: Replica, seconds: float, queued_s: float = 0.0) -> None:
        """Count a successful run: its seconds, and those of them in the device's queue."""

    def failed(self, replica: Replica) -> None:
        """Count a run that the device failed."""

    def offer(self, inputs: Inputs, outputs: Targets | None, unwanted: Sequence[int]) -> None:
        """Offer a run to copy for the trial of an ejected device."""

    @abstractmethod
    def park(self, run: Waiting) -> None:
        """Let a run wait until there is a replica or the run is late.

        Raises:
            NnrtError: Waiting is no use: UnavailableDevice, or the error with which devices refuse the client.
        """

    @abstractmethod
    def enter_child(self, reason: NnrtError) -> None:
        """End in a forked child, whoever held locks."""
