"""Many runs of several clients on a simulated accelerator: none is lost, mixed up, or out of order."""

from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from networks import identity_model
from part import examples

from nnrt_client import Compilation, Executor, OperationFailed, OutOfMemory, Runtime, UnavailableDevice
from started.signs import FAILS_EVERY, REFUSED_EVERY

CLIENTS, IN_FLIGHT, SLOTS = 4, 32, 8
RUNS = examples(100_000) // CLIENTS
ELEMENTS = 256
# Memory for fewer runs than there are slots.
MEMORY_BYTES = (SLOTS - 2) * ELEMENTS * 4
DEADLINE_S = 100.0


@pytest.mark.slow
def test_no_run_is_lost_or_out_of_order(start_daemon: StartDaemon) -> None:
    options = {"memory": MEMORY_BYTES, "runs": SLOTS, "seed": 1}
    flags = [text for name, value in options.items() for text in ("--option", f"{name}={value}")]
    daemon = start_daemon("--backend", "simulated", *flags)
    with ThreadPoolExecutor(CLIENTS) as threads:
        counts = list(threads.map(outcomes, [daemon.address] * CLIENTS))
    wanted = Counter(map(outcome_of, range(1, RUNS + 1)))
    for count in counts:
        del count["full"]
        assert count == wanted


def outcome_of(number: int) -> str:
    if number % FAILS_EVERY == 0:
        return "fault"
    return "refused" if number % REFUSED_EVERY == 0 else "right"


def outcomes(address: str) -> Counter[str]:
    """Run all numbers, some at a time, and again where the device was full; return how many ended in which way."""
    ended: Counter[str] = Counter()
    with (
        Runtime([address]) as runtime,
        Compilation(identity_model(), runtime.device()) as compilation,
    ):
        compilation.build()
        with Executor(compilation) as executor:
            left, under_way = list(range(RUNS, 0, -1)), dict[Future[Any], int]()
            while left or under_way:
                while left and len(under_way) < IN_FLIGHT:
                    number = left.pop()
                    under_way[executor.submit([np.full(ELEMENTS, number, np.float32)])] = number
                done, _ = wait(under_way, DEADLINE_S, FIRST_COMPLETED)
                assert done, "no run ends any more"
                for future in done:
                    number = under_way.pop(future)
                    outcome = ended_as(future, number)
                    ended[outcome] += 1
                    if outcome == "full":
                        left.append(number)
    return ended


def ended_as(future: "Future[Any]", number: int) -> str:
    error = future.exception()
    if error is not None:
        outcomes = {OutOfMemory: "full", OperationFailed: "refused", UnavailableDevice: "fault"}
        return next(outcome for kind, outcome in outcomes.items() if type(error) is kind)
    return "right" if (future.result()[0] == number).all() else "mixed up"
