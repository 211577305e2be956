"""Supply: interface through which runs get replicas of a model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from nnrt_client.pool.parking import Waiting
from nnrt_client.pool.replica import Replica
from nnrt_client.run.dispatcher import Targets
from nnrt_client.run.signature import Inputs, Signature
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import NnrtError


class Supply(Closable, ABC):
    """Base of supplies, which have the replicas of one model. Any thread may choose a replica for a run."""

    # Constructors set these attributes.
    is_open: bool
    # Why the supply has ended.
    end_reason: NnrtError | None
    # If no device has a replica: the reasons, by address.
    missing: Mapping[str, NnrtError]
    # Inputs and outputs of the model, once there is a replica.
    signature: Signature
    # Calls a function in a thread for callbacks. Callbacks of the application may keep all of these threads busy.
    call_back: Callable[..., object]
    # Calls a function in a thread for starting runs.
    begin_soon: Callable[[Callable[[], object]], object]

    @property
    @abstractmethod
    def serving(self) -> tuple[Replica, ...]:
        """Replicas that get runs."""

    @abstractmethod
    def choose(self) -> Replica | None:
        """Return the replica that will likely finish a run first, or None if none gets runs."""

    def choose_another(self, tried: Iterable[Replica]) -> Replica | None:
        """Return a replica that is not in `tried`. If there is none, return the same as `choose`."""
        return self.choose()

    def count_run(self, replica: Replica, seconds: float, queued_s: float = 0.0) -> None:
        """Count a run that the device did not fail. It took `seconds`, `queued_s` of them in the device's queue."""

    def count_failure(self, replica: Replica) -> None:
        """Count a run that the device failed."""

    def offer(self, inputs: Inputs, outputs: Targets | None, unwanted: Sequence[int]) -> None:
        """Pass a run for trials of ejected replicas to copy."""

    @abstractmethod
    def park(self, run: Waiting) -> None:
        """Queue a run until there is a replica or the run is late.

        Raises:
            NnrtError: No replica will come soon: UnavailableDevice, or the error with which daemons refuse the client.
        """

    @abstractmethod
    def enter_child(self, reason: NnrtError) -> None:
        """End the supply in a forked child. Take no lock, because the parent's threads may have locked it."""
