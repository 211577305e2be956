"""Application on a host: it runs a model on devices, and obeys commands from its standard input.

python application.py SETTINGS ADDRESS...

    load REPLICAS   load the model with REPLICAS replicas in a pool; 0: onto the first device, without a pool
    run [ELEMENTS]  run the model once, and return the outcome
    begin THREADS [ELEMENTS]  start threads that run the model repeatedly
    ran COUNT       wait until COUNT more runs have ended
    attached        wait until the session has a connection to the device
    lost            wait until the session has lost its connection
    dead            wait until the session has ended
    resumed         return how often the session has been attached again
    ready COUNT     wait until COUNT devices of the pool have the model
    runs            return the number of successful runs on each device of the pool
    end             stop the threads, and return the number of runs with each outcome

The application answers each command with a line of JSON.
"""

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from networks import identity_model
from waiting import until

import nnrt_client
from nnrt_client.session.device import session_of

# Pause of a thread between two runs.
_BETWEEN_S = 0.01


class Application:
    """Model session that executes the commands."""

    def __init__(self, settings: dict[str, Any], addresses: list[str]) -> None:
        self._runtime = nnrt_client.Runtime(addresses, nnrt_client.Settings(**settings))
        self._session: Any = None
        self._threads: list[threading.Thread] = []
        self._is_over = threading.Event()
        self._ended = threading.Condition()
        self._counts: Counter[str] = Counter()
        self._total = 0

    def load(self, replicas: int) -> dict[str, Any]:
        how: dict[str, Any] = {"replicas": replicas} if replicas else {}
        self._session = nnrt_client.load(identity_model(), runtime=self._runtime, **how)
        return {}

    def run(self, elements: int = 1) -> dict[str, Any]:
        return {"outcome": self._outcome(elements)}

    def begin(self, threads: int, elements: int = 1) -> dict[str, Any]:
        self._is_over.clear()
        self._counts.clear()
        self._threads = [threading.Thread(target=self._work, args=(elements,)) for _ in range(threads)]
        for thread in self._threads:
            thread.start()
        return {}

    def ran(self, count: int) -> dict[str, Any]:
        with self._ended:
            goal = self._total + count
            assert self._ended.wait_for(lambda: self._total >= goal, 60), f"only {self._total} of {goal} runs ended"
        return {}

    def attached(self) -> dict[str, Any]:
        until(lambda: session_of(self._session.device).is_attached)
        return {}

    def lost(self) -> dict[str, Any]:
        until(lambda: not session_of(self._session.device).is_attached)
        return {}

    def dead(self) -> dict[str, Any]:
        until(lambda: not self._session.device.is_connected)
        return {}

    def resumed(self) -> dict[str, Any]:
        return {"times": session_of(self._session.device).attachment}

    def ready(self, count: int) -> dict[str, Any]:
        until(lambda: self._states().count("ready") == count, self._states)
        return {}

    def runs(self) -> dict[str, Any]:
        return {member.address: member.runs for member in self._session.pool.members()}

    def end(self) -> dict[str, Any]:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        return dict(self._counts)

    def close(self) -> None:
        self.end()
        if self._session is not None:
            self._session.close()
        self._runtime.close()

    def _states(self) -> list[str]:
        return [member.state.value for member in self._session.pool.members()]

    def _work(self, elements: int) -> None:
        while not self._is_over.wait(_BETWEEN_S):
            outcome = self._outcome(elements)
            with self._ended:
                self._total += 1
                self._counts[outcome] += 1
                self._ended.notify_all()

    def _outcome(self, elements: int) -> str:
        """Run the model once; return "right", "wrong", or the name of the error."""
        given = np.random.default_rng().random(elements, "f4")
        try:
            (result,) = self._session.run([given], timeout_ms=50_000).values()
        except nnrt_client.NnrtError as error:
            return type(error).__name__
        return "right" if np.array_equal(result, given) else "wrong"


def lines() -> Iterator[list[str]]:
    for line in sys.stdin:
        yield line.split()


def main() -> None:
    application = Application(json.loads(sys.argv[1]), sys.argv[2:])
    try:
        for command, *numbers in lines():
            try:
                answer = getattr(application, command)(*map(int, numbers))
            except nnrt_client.NnrtError as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)
    finally:
        application.close()


if __name__ == "__main__":
    main()
