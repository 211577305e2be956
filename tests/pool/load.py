"""Load on a session of a pool, and states of its members."""

import threading
from abc import ABC, abstractmethod
from collections import Counter
from types import TracebackType
from typing import Any

import numpy as np
from daemon_process import DaemonProcess
from typing_extensions import Self
from waiting import until

from nnrt_client import ModelSession, NnrtError, Pool

JOIN_S = 60.0
# Pause of a thread between two runs.
_BETWEEN_S = 0.002


def addresses(daemons: list[DaemonProcess]) -> list[str]:
    """Return the daemons' addresses."""
    return [daemon.address for daemon in daemons]


class RunningThreads(ABC):
    """Threads that run a session repeatedly. A context manager, whose end stops them."""

    def __init__(self, threads: int) -> None:
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(threads)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(JOIN_S)
            assert not thread.is_alive(), "a run does not end"

    def _pause(self) -> bool:
        """Pause for a moment; return whether to go on."""
        return not self._over.wait(_BETWEEN_S)

    @abstractmethod
    def _run(self, number: int) -> None:
        """Run the session until `_goes_on` returns false."""


class Load(RunningThreads):
    """Threads that run an identity, and check each result."""

    def __init__(self, session: ModelSession, threads: int = 4, timeout_ms: int | None = None) -> None:
        super().__init__(threads)
        self._session = session
        self._timeout_ms = timeout_ms
        self.errors: list[BaseException] = []
        self.counts: Counter[int] = Counter()

    @property
    def total(self) -> int:
        """Number of runs that have succeeded."""
        return sum(self.counts.values())

    def wait_for_runs(self, runs: int = 100) -> None:
        """Wait until `runs` more runs have ended."""
        wanted = self.total + runs
        until(lambda: self.total >= wanted or self.errors)

    def _run(self, number: int) -> None:
        while self._pause():
            given = np.array([number, self.counts[number]], np.float32)
            try:
                (output,) = self._given_back(given)
            except NnrtError as error:
                self.errors.append(error)
                return
            if not np.array_equal(output, given):
                self.errors.append(AssertionError(f"{output} for {given}"))
            self.counts[number] += 1

    def _given_back(self, given: Any) -> Any:
        """Run the identity: half of the threads call `run`, the others `submit`."""
        if threading.current_thread() in self._threads[::2]:
            return self._session.run([given], timeout_ms=self._timeout_ms).values()
        return self._session.submit([given], timeout_ms=self._timeout_ms).result().values()


def states(pool: Pool) -> dict[str, str]:
    """Return the states of a pool's members by address."""
    return {member.address: member.state.value for member in pool.members()}


def wait_for_states(pool: Pool, *wanted: str) -> None:
    """Wait until the members, in order, are in these states."""
    until(lambda: tuple(states(pool).values()) == wanted, pool.members)
