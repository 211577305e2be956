"""Links that are lost or wait, and what that means for runs on them and on others."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from gate import Gate
from tensor_runs import compiled
from waiting import until

from nnrt_client import Settings, Tensor, TensorDesc, TimedOut
from nnrt_client.enums import DataType
from nnrt_client.run.cancelling import Canceller
from nnrt_client.run.link import LocalLink
from nnrt_client.session.io_loop import io_loop

DEADLINE_S = 20.0
SMALL = np.arange(4, dtype=np.float32)
# Memory is shared with the daemon for tensors of these sizes, more for the second one.
LARGE, LARGER = np.zeros(1 << 13, np.float32), np.zeros(1 << 17, np.float32)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def test_a_tensor_is_the_daemons_until_its_run_has_stopped(
    start_daemon: StartDaemon, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its link was lost: the run whose time is over ends when the daemon says so, and writes no more."""
    links, told, send = list[LocalLink](), list[int](), LocalLink.send

    def noted(link: LocalLink, runs: Any) -> None:
        links.append(link)
        send(link, runs)

    monkeypatch.setattr(LocalLink, "send", noted)
    monkeypatch.setattr(Canceller, "cancel", lambda canceller, run_id: told.append(run_id))
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate.path}")
    with ExitStack() as closing, ThreadPoolExecutor(1) as threads:
        device, executor = compiled(closing, daemon.address, settings=Settings(verdict_timeout_s=5.0))
        target = closing.enter_context(Tensor(device, TensorDesc(DataType.FLOAT32, SMALL.shape)))
        gate.shut()
        run = threads.submit(executor.run_sync, [SMALL], [target], timeout_ms=300)
        until(lambda: "run started with" in daemon.log())
        links[-1].end()
        until(lambda: told)
        has_turned = threading.Event()
        io_loop().call(has_turned.set)
        assert has_turned.wait(DEADLINE_S)
        assert not run.done()
        gate.release(run.done)
        with pytest.raises(TimedOut):
            run.result(DEADLINE_S)


def test_a_daemon_that_stands_still_holds_up_no_other(start_daemon: StartDaemon, shared_daemon: DaemonProcess) -> None:
    """Memory is to be shared with it for a run that nobody waits for: that waits for its answer, the loop doesn't."""
    stopped = start_daemon("--heartbeat-timeout-s", "120")
    settings = Settings(verdict_timeout_s=120.0, heartbeat_timeout_s=120.0)
    with ExitStack() as closing:
        _, there = compiled(closing, stopped.address, settings=settings)
        _, here = compiled(closing, shared_daemon.address)
        np.testing.assert_array_equal(there.submit([LARGE]).result(DEADLINE_S)[0], LARGE)
        stopped.stop()
        try:
            waiting = there.submit([LARGER])
            for _ in range(3):
                np.testing.assert_array_equal(here.submit([SMALL]).result(DEADLINE_S)[0], SMALL)
        finally:
            stopped.send(signal.SIGCONT)
        np.testing.assert_array_equal(waiting.result(DEADLINE_S)[0], LARGER)
