"""The attempts to have one run made: on which replicas, how often, and until when."""

import math
import time
from dataclasses import dataclass

from nnrt_client.pool.replica import Replica
from nnrt_client.pool.supply import Supply
from nnrt_client.run.result import is_of_unsent
from nnrt_hdi.errors import (
    ConnectionFailed,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    OutOfMemory,
    TimedOut,
    UnavailableDevice,
)

DEVICES_FAILURES = (UnavailableDevice, ConnectionFailed)


@dataclass(frozen=True, slots=True)
class Rule:
    """How often a run is made again that devices have failed, and how long it waits for one that has the model."""

    retries: int
    patience_s: float


class Attempts:
    """Decides what follows a failed attempt.

    A run is pure: where a device fails it, or its daemon dies before it has answered, it is made on another one. Errors
    of the run itself are not: they would come again.
    """

    def __init__(self, supply: Supply, rule: Rule, began: float, timeout_ms: int | None, has_tensors: bool) -> None:
        """`began` on the clock of time.monotonic. What has tensors is not made again: they may be being written."""
        self._supply = supply
        self._left = rule.retries
        self._patience_s = rule.patience_s
        self._began = began
        self._deadline = math.inf if timeout_ms is None else began + timeout_ms / 1000
        self.has_tensors = has_tensors
        self._tried: dict[Replica, NnrtError] = {}
        self._had_no_room = False

    @property
    def remaining_ms(self) -> int | None:
        """What is left of the time of the run; None without a limit."""
        if self._deadline == math.inf:
            return None
        return max(math.ceil((self._deadline - time.monotonic()) * 1000), 1)

    @property
    def waits_until(self) -> float:
        """How long to wait for a replica that gets runs."""
        return min(self._deadline, time.monotonic() + self._patience_s)

    def allow(self, replica: Replica, error: NnrtError) -> bool:
        """Count a failed attempt; tell if there may be another one."""
        supply = self._supply
        self._tried[replica] = error.copy()  # Without the frames that it knows, and the inputs that they hold.
        if isinstance(error, TimedOut):
            supply.ran(replica, time.monotonic() - self._began)
        if not supply.is_open or self.has_tensors:
            return False
        if replica.is_left and isinstance(error, OperationForbidden | OperationFailed):
            return True  # It was closed just then.
        if isinstance(error, OutOfMemory):
            had_no_room, self._had_no_room = self._had_no_room, True
            return not had_no_room and any(one not in self._tried for one in supply.serving)
        if not isinstance(error, DEVICES_FAILURES):
            return False
        supply.failed(replica)
        if not is_of_unsent(error):
            self._left -= 1
        return self._left >= 0 and time.monotonic() < self._deadline

    def next(self) -> Replica | None:
        """The replica for the next attempt; None where there is none that gets runs."""
        return self._supply.choose_another(self._tried)

    def given_up(self) -> NnrtError:
        """Say why no attempt is made any more."""
        if self._supply.end_reason is not None:
            return self._supply.end_reason.copy()
        tried = "; ".join(f"{replica.candidate.address}: {error}" for replica, error in self._tried.items())
        missing = "; ".join(f"{address}: {error}" for address, error in self._supply.missing.items())
        return UnavailableDevice(
            f"no device of the pool has the model, since {time.monotonic() - self._began:.1f} s; the run was tried on"
            f" {tried or 'none'}; why they don't have it: {missing or '`Pool.members` says it'}"
        )
