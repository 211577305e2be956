"""The pool of one: a model on one device, loaded again by the first run after the death of its daemon."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from nnrt_client.pool.candidate import Candidate
from nnrt_client.pool.outage import Outage
from nnrt_client.pool.replica import GUESSED_S, Loaded, Replica
from nnrt_client.pool.supply import Specs, Supply, Waiting
from nnrt_client.run.base_executor import Targets
from nnrt_client.run.signature import Inputs
from nnrt_client.session.fork import ModuleLock
from nnrt_hdi.errors import NnrtError, OperationFailed, OperationForbidden

# How long to wait for the end of a run whose daemon is dead.
_END_S = 5.0


class OneReplica(Supply):
    """Has no thread: who needs the replica loads it, and for runs that no thread waits for, a thread of its own."""

    def __init__(self, load_again: Callable[[], Loaded]) -> None:
        """Loads the model. Raises what that raises."""
        self._load_again = load_again
        self._replica = _replica(load_again())
        self._loading = ModuleLock()
        self._outage = Outage()
        self._waiting: deque[Waiting] = deque()
        self.is_open = True
        self.end_reason: NnrtError | None = None
        self.missing = {}

    @property
    def loaded(self) -> Loaded:
        """The model on its device, which may be dead."""
        return self._replica.loaded

    @property
    def specs(self) -> Specs:
        """Inputs and outputs of the model."""
        inputs, outputs = self._replica.executor._specs
        return tuple(inputs), tuple(outputs)

    @property
    def is_living(self) -> bool:
        """True while the daemon lives, as far as is known."""
        return self._replica.executor._is_living

    @property
    def serving(self) -> tuple[Replica, ...]:
        """The one, if it lives."""
        return (self._replica,) if self.is_living else ()

    def choose(self) -> Replica | None:
        """The one, if it lives."""
        replica = self._replica
        return replica if replica.executor._is_living else None

    def choose_another(self, tried: Iterable[Replica]) -> Replica | None:
        """There is no other."""
        return self.choose()

    def ran(self, replica: Replica, seconds: float, queued_s: float = 0.0) -> None:
        """It makes no difference."""

    def failed(self, replica: Replica) -> None:
        """It makes no difference: the death of its daemon is what counts."""

    def offer(self, inputs: Inputs, outputs: Targets | None, unwanted: Sequence[int]) -> None:
        """No device is tried."""

    def wait(self, timeout_s: float) -> None:
        """Load the model again, unless another thread was first. Raises UnavailableDevice where that can't be done."""
        with self._loading.itself:
            if not self.is_open:
                raise OperationForbidden("the session is closed; load the model again")
            if self.choose() is None:
                dead, self._replica = self._replica, _replica(self._outage.end(self._load_again))
                for run in list(dead.under_way):  # Each is about to end with what has become of it.
                    run.ended.wait(_END_S)
                dead.loaded.close()

    def park(self, run: Waiting) -> None:
        """Have a thread load the model again. Raises UnavailableDevice while it is not time to try that again."""
        if self.end_reason is not None:
            raise self.end_reason.copy()
        self._outage.require_due()
        self._waiting.append(run)
        threading.Thread(target=self._load_for_waiting, name="nnrt-reload", daemon=True).start()

    def call_back(self, function: Callable[..., object], *arguments: object) -> None:
        """Have a thread for callbacks call this."""
        self.loaded.device._latest.call_back(function, *arguments)

    def begin_soon(self, begin: Callable[[], object]) -> None:
        """Call this: where the daemon is dead, another thread begins."""
        begin()

    def close(self) -> None:
        """End the runs that are under way, and free the model. Idempotent."""
        self.is_open = False
        self.end_reason = self.end_reason or OperationFailed("the session was closed")
        with self._loading.itself:
            self._replica.loaded.close()

    def enter_child(self, reason: NnrtError) -> None:
        """End after a fork."""
        self.end_reason, self.is_open = reason, False

    def _load_for_waiting(self) -> None:
        error: NnrtError | None = None
        try:
            self.wait(0)
        except NnrtError as failure:
            error = failure
        while self._waiting:
            with suppress(IndexError):  # Another thread does the same.
                run = self._waiting.popleft()
                if error is None:
                    run.resume()
                else:
                    run.give_up(error.copy())


def _replica(loaded: Loaded) -> Replica:
    return Replica(Candidate(loaded.device.address), loaded, GUESSED_S)
