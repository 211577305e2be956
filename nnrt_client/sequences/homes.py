"""Choice of the device on which a sequence lives."""

import math
import time
from abc import ABC, abstractmethod

from nnrt_client.pool.dispatcher import PoolDispatcher
from nnrt_client.pool.replica import Replica
from nnrt_client.pool.supply import Supply
from nnrt_client.run.dispatcher import Dispatcher
from nnrt_client.run.model_dispatcher import ModelDispatcher
from nnrt_client.session.latch import Latch
from nnrt_hdi.errors import NnrtError, OperationForbidden, UnavailableDevice, Unsupported


class Homes(ABC):
    """Devices that have the model of a sequence."""

    # Whether a sequence whose device is lost may go on on another one.
    has_others = False

    @abstractmethod
    def choose(self) -> ModelDispatcher:
        """Return the dispatcher of a device.

        Raises:
            UnavailableDevice: No device has the model.
        """

    def is_leaving(self, dispatcher: ModelDispatcher) -> bool:
        """Return whether a device gets no more runs, for example because its daemon ends soon."""
        return False

    def count_failure(self, dispatcher: ModelDispatcher) -> None:
        """Count an operation that a device failed."""


class OneHome(Homes):
    """The only device that has the model."""

    def __init__(self, dispatcher: ModelDispatcher) -> None:
        self._dispatcher = dispatcher

    def choose(self) -> ModelDispatcher:
        return self._dispatcher


class PooledHomes(Homes):
    """Devices of a pool, or the device to which a lost model is loaded again."""

    has_others = True

    def __init__(self, supply: Supply, patience_s: float) -> None:
        """Choose from a supply. `patience_s` is how long to wait while it has no replica."""
        self._supply = supply
        self._patience_s = patience_s

    def choose(self) -> ModelDispatcher:
        until = time.monotonic() + self._patience_s
        while (replica := self._supply.choose()) is None:
            if not self._supply.is_open:
                raise (self._supply.end_reason or OperationForbidden("the session is closed")).copy()
            if time.monotonic() >= until:
                raise UnavailableDevice(f"no device of the pool has the model, since {self._patience_s:g} s")
            waiting = _Waiting(until)
            self._supply.park(waiting)
            waiting.wait()
        dispatcher = replica.dispatcher
        if not isinstance(dispatcher, ModelDispatcher):
            raise _no_sequences()
        return dispatcher

    def is_leaving(self, dispatcher: ModelDispatcher) -> bool:
        return self._replica_of(dispatcher) is None

    def count_failure(self, dispatcher: ModelDispatcher) -> None:
        if (replica := self._replica_of(dispatcher)) is not None:
            self._supply.count_failure(replica)

    def _replica_of(self, dispatcher: ModelDispatcher) -> Replica | None:
        for replica in self._supply.serving:
            if replica.dispatcher is dispatcher:
                return replica
        return None


class _Waiting:
    """Sequence that waits for a replica."""

    def __init__(self, waits_until: float) -> None:
        self.waits_until = waits_until
        self._resumed = Latch()
        self._error: BaseException | None = None

    def wait(self) -> None:
        """Wait until there may be a replica, or the time is over; raise the error with which the supply failed."""
        left_s = self.waits_until - time.monotonic()
        self._resumed.wait(None if left_s == math.inf else max(left_s, 0.0))
        if (error := self._error) is not None:
            raise error.copy() if isinstance(error, NnrtError) else error

    def resume(self) -> None:
        self._resumed.set()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._resumed.set()


def homes_of(dispatcher: Dispatcher) -> Homes:
    """Return the devices of an executor's model; raise Unsupported for a model that is cut into parts."""
    if isinstance(dispatcher, ModelDispatcher):
        return OneHome(dispatcher)
    if isinstance(dispatcher, PoolDispatcher):
        return PooledHomes(dispatcher.supply, dispatcher.patience_s)
    raise _no_sequences()


def _no_sequences() -> Unsupported:
    return Unsupported("the model is cut into parts for several devices, which have no sequences; load it on one")
