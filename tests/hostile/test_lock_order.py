"""A daemon's locks are taken in one order, and nothing is waited for, sent or called of a backend under one."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count, islice
from pathlib import Path

import lock_watch
import pytest
from access.conftest import Access
from batching.conftest import dense_model, rows
from daemon_process import DaemonProcess
from grpc import RpcError
from lock_watch import ORDER, PROBLEM, Watch, WatchedCondition, WatchedLock
from metrics.scraping import LISTEN, scraped
from mixed_use import MixedUse
from raw_client import RawClient, chunks
from waiting import until

from nnrt_client import Compilation, Executor, Runtime, Settings
from nnrt_hdi.device_buffers import DeviceBuffer
from nnrt_hdi.errors import NnrtError

DEADLINE_S = 30.0
_UPLOADS = 8
# Locks that are taken in two orders, and waits under them.
_SEEDED = """
import threading, time
class Pool:
    def __init__(self):
        self.lock = threading.Lock()
class Budget:
    def __init__(self):
        self.changed = threading.Condition()
pool, budget = Pool(), Budget()
with pool.lock, budget.changed:
    budget.changed.wait(0)
with budget.changed, pool.lock:
    time.sleep(0)
from nnrt_device_service.memory.memory_budget import MemoryBudget
with pool.lock:
    MemoryBudget(1 << 20).reserve(1)
"""


@contextmanager
def watched_daemon(*flags: str) -> Iterator[DaemonProcess]:
    """A daemon that has nothing to tell of its locks when it ends after the block."""
    daemon = DaemonProcess(*flags, through=(sys.executable, lock_watch.__file__))
    try:
        yield daemon
        daemon.send(signal.SIGTERM)
        assert daemon.wait() == 0
        log = daemon.log()
        assert f"{ORDER}SessionRegistry > MemoryBudget" in log, "nobody watches"
        assert PROBLEM not in log, log
    finally:
        daemon.kill()


@pytest.mark.parametrize("backend", ["reference", "starting", "onnxruntime"])
@pytest.mark.slow
def test_everything_at_once(backend: str, tmp_path: Path) -> None:
    """Builds, caches, runs, cancellations and deadlines by both ways, beside clients that upload too much and go."""
    with watched_daemon("--backend", backend, "--held-bytes", str(4 << 20), "--lease-s", "0.1") as daemon:
        uploaders = [threading.Thread(target=upload_too_much, args=(daemon, first), daemon=True) for first in range(2)]
        for thread in uploaders:
            thread.start()
        for shares in (True, False):
            with Runtime([daemon.address], Settings(share_memory=shares)) as runtime:
                use = MixedUse(runtime, tmp_path)
                try:
                    use.run(0.5)
                finally:
                    use.close()
                assert not use.wrong
        for thread in uploaders:
            thread.join(DEADLINE_S)
        assert not any(thread.is_alive() for thread in uploaders), "an upload hangs"


def upload_too_much(daemon: DaemonProcess, first: int) -> None:
    """By sessions of which some say goodbye, and some are just gone."""
    constants = (number.to_bytes(4, "little") * (64 << 10) for number in count(first, 2))
    for attempt in range(_UPLOADS):
        with suppress(NnrtError, RpcError), RawClient(daemon.address) as client:
            client.call("NnrtDevice.UploadConstants", *(c for data in islice(constants, 10) for c in chunks(data)))
            if attempt % 2:
                client.channel.close()


def test_joined_runs_metrics_and_a_line_taken_out(tmp_path: Path) -> None:
    access = Access(tmp_path)
    alice = access.add("alice", "restore")
    with watched_daemon("--access", str(access.path), *LISTEN, "--batch", "16:100") as daemon:
        with Runtime([daemon.address], alice) as runtime, Compilation(dense_model(), runtime.device()) as compilation:
            compilation.build()
            device = runtime.device()
            with Executor(compilation) as executor:
                runs = [executor.submit([rows(seed)]) for seed in range(100)]
                scraped(daemon)
                assert len([run.result(DEADLINE_S) for run in runs]) == len(runs)
                access.write([])
                until(lambda: not device.is_connected)
        scraped(daemon)


def test_what_is_told() -> None:
    told: list[str] = []
    watch = Watch(told.append)
    pool, budget = WatchedLock(watch, "pool"), WatchedLock(watch, "budget", is_reentrant=True)
    changed = WatchedCondition(watch, budget)
    with budget, budget, changed:
        changed.wait(0)  # For one's own lock, which is given up meanwhile.
        watch.before(pool)
    assert told == [f"{ORDER}budget > pool"]
    with pool:
        taken_in_order(budget)
        watch.forbid("sending")
        watch.before(pool)
        watch.before(WatchedLock(watch, "pool"))
    assert [line.split("\n")[0] for line in told[1:]] == [
        f"{ORDER}pool > budget",
        f"{PROBLEM}pool > budget > pool may deadlock",
        f"{PROBLEM}sending under pool",
        f"{PROBLEM}pool is taken again by the thread that has it",
        f"{PROBLEM}two locks pool are held at a time",
    ]
    assert "test_what_is_told" in told[2] and "taken_in_order" in told[2], "the places of both"


def taken_in_order(lock: WatchedLock) -> None:
    with lock:
        pass


def test_a_whole_process() -> None:
    """Only locks of the daemon's own modules count."""
    seeded = "import lock_watch, os; lock_watch.watch_all(lock_watch.Watch(print))\n"
    for room in ("strange", "nnrt_device_service.seeded"):
        seeded += f"exec({_SEEDED!r}, {{'__name__': {room!r}}})\n"
    environment = {**os.environ, "PYTHONPATH": str(Path(lock_watch.__file__).parent)}
    said = subprocess.run([sys.executable, "-c", seeded], env=environment, capture_output=True, text=True, check=True)
    assert [line for line in said.stdout.splitlines() if line.startswith((ORDER, PROBLEM))] == [
        f"{ORDER}Pool > Budget",
        f"{PROBLEM}waiting for Budget under Pool, Budget",
        f"{ORDER}Budget > Pool",
        f"{PROBLEM}Budget > Pool > Budget may deadlock",
        f"{PROBLEM}time.sleep under Budget, Pool",
        f"{PROBLEM}MemoryBudget.reserve under Pool",
        f"{ORDER}Pool > MemoryBudget",
    ]


class _Memory(DeviceBuffer):
    def read(self, offset: int, target: memoryview) -> None:
        pass

    def write(self, offset: int, data: memoryview) -> None:
        pass

    def close(self) -> None:
        pass


class _OtherMemory(_Memory):
    """A kind of its own, whose base is guarded already."""

    def read(self, offset: int, target: memoryview) -> None:
        pass


def test_a_subclass_of_what_is_guarded_is_guarded() -> None:
    said = list[str]()
    watch = Watch(said.append)
    for kind in (_Memory, _OtherMemory):
        memory = lock_watch._guarded(watch, kind())
    with WatchedLock(watch, "Pool"):
        memory.read(0, memoryview(b""))
    assert any("the backend's read" in each for each in said)
