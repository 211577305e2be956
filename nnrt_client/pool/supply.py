"""Where runs get their replicas from."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from nnrt_client.pool.parking import Waiting
from nnrt_client.pool.replica import Replica
from nnrt_client.run.dispatcher import Targets
from nnrt_client.run.signature import Inputs, Signature
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import NnrtError


class Supply(Closable, ABC):
    """The replicas of one model, of which any thread chooses one for a run."""

    # Set by constructors.
    is_open: bool
    # Why it isn't.
    end_reason: NnrtError | None
    # Why devices have no replica, by address, where there is none.
    missing: Mapping[str, NnrtError]
    # Inputs and outputs of the model, as soon as there is a replica.
    signature: Signature
    # Has a thread for callbacks call something. The application may keep them all waiting.
    call_back: Callable[..., object]
    # Has a thread call something that begins runs.
    begin_soon: Callable[[Callable[[], object]], object]

    @property
    @abstractmethod
    def serving(self) -> tuple[Replica, ...]:
        """Those that get runs."""

    @abstractmethod
    def choose(self) -> Replica | None:
        """The replica that is likely to make a run the soonest; None where there is none that gets runs."""

    def choose_another(self, tried: Iterable[Replica]) -> Replica | None:
        """One that has not been tried, if there is one; else as `choose`."""
        return self.choose()

    def ran(self, replica: Replica, seconds: float, queued_s: float = 0.0) -> None:
        """Count a run that has ended as it should, after some seconds, of which it waited some for other runs."""

    def failed(self, replica: Replica) -> None:
        """Count a run that the device has failed."""

    def offer(self, inputs: Inputs, outputs: Targets | None, unwanted: Sequence[int]) -> None:
        """Offer a run that has been made, for a trial of a device that gets none."""

    @abstractmethod
    def park(self, run: Waiting) -> None:
        """Have a run go on when there is a replica, or when its time is over. Raises UnavailableDevice, or what devices
        refuse the client with, where it is no use to wait."""

    @abstractmethod
    def enter_child(self, reason: NnrtError) -> None:
        """End after a fork, whoever held locks before."""
