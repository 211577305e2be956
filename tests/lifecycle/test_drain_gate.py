"""The gate that closes when a daemon shuts down."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from nnrt_device_service.scheduling.drain_gate import DrainGate
from nnrt_hdi.errors import UnavailableDevice

DEADLINE_S = 20.0


def test_closed_gate_lets_nobody_in() -> None:
    gate = DrainGate()
    with gate.admit():
        pass
    assert gate.close(0.0)
    assert gate.is_closed
    with pytest.raises(UnavailableDevice, match="shutting down"), gate.admit():
        pytest.fail("it was let in")
    assert gate.close(0.0)


def test_gate_waits_for_those_inside() -> None:
    """Until all are out, or its time is over; whoever is inside stays there."""
    gate = DrainGate()
    with ExitStack() as inside, ThreadPoolExecutor(1) as pool:
        inside.enter_context(gate.admit())
        inside.enter_context(gate.admit())
        assert not gate.close(0.05)
        closing = pool.submit(gate.close, DEADLINE_S)
        inside.pop_all().close()
        assert closing.result(DEADLINE_S)


def test_gate_counts_those_who_fail() -> None:
    gate = DrainGate()
    with pytest.raises(ZeroDivisionError), gate.admit():
        1 / 0  # noqa: B018
    assert gate.close(0.0)


def test_gate_that_closes_in_a_crowd() -> None:
    """Everybody either passed entirely before it closed or was refused."""
    for _ in range(20):
        gate, inside, refused = DrainGate(), set[int](), threading.Semaphore(0)

        def pass_until_refused(
            number: int, gate: DrainGate = gate, inside: set[int] = inside, refused: threading.Semaphore = refused
        ) -> None:
            while True:
                try:
                    with gate.admit():
                        inside.add(number)
                        os.sched_yield()
                        inside.discard(number)
                except UnavailableDevice:
                    refused.release()
                    return

        threads = [threading.Thread(target=pass_until_refused, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        assert gate.close(DEADLINE_S)
        assert not inside
        for thread in threads:
            thread.join()
