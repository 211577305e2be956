"""Clients that upload more than a daemon holds stop nobody else."""

import os
import signal
import threading
import time
from collections.abc import Hashable
from contextlib import suppress
from itertools import count, islice
from pathlib import Path

import pytest
from conftest import StartDaemon
from raw_client import RawClient, chunks

from nnrt_device_service.memory.constants import ConstantPool
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.memory.shared_files import FileRegion, SharedFile
from nnrt_hdi.errors import NnrtError

DEADLINE_S = 10.0


def test_memory_is_reclaimed_without_the_lock_of_a_pool() -> None:
    """A budget asks others for memory while a pool begins an upload; any of them may need that pool meanwhile."""
    budget = MemoryBudget(2 << 10)
    pool = ConstantPool(budget)
    budget.reserve(2 << 10)
    served: list[bool] = []

    def give_back() -> bool:
        served.append(serves_another_thread(pool))
        budget.release(2 << 10)
        return True

    budget.on_shortage(give_back)
    pool.write(b"x" * 32, 100, 0, b"y")
    assert served == [True]


def test_a_file_is_waited_for_without_the_lock_of_a_pool(tmp_path: Path) -> None:
    """It is the client's own, and so may its file system be."""
    pool, served = ConstantPool(MemoryBudget(2 << 10)), list[bool]()

    class SlowFile(SharedFile):
        def write_back(self, state: Hashable) -> None:
            served.append(serves_another_thread(pool))
            super().write_back(state)

        def state(self) -> Hashable:
            served.append(serves_another_thread(pool))
            return "known"

        def read(self, memory: memoryview, start: int) -> None:
            served.append(serves_another_thread(pool))
            super().read(memory, start)

    path = tmp_path / "file"
    path.write_bytes(b"y")
    with path.open("rb") as file:
        region = FileRegion(SlowFile(file.fileno(), os.getuid()), 0, 1)
    pool.write(b"x" * 32, 100, 0, region)
    assert served == [True] * 4


def serves_another_thread(pool: ConstantPool) -> bool:
    other = threading.Thread(target=pool.pause, args=([b"x" * 32],), daemon=True)
    other.start()
    other.join(DEADLINE_S)
    return not other.is_alive()


@pytest.mark.slow
def test_two_clients_that_upload_too_much_stop_nobody(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--held-bytes", str(256 << 10))
    until = time.monotonic() + 3

    def attack(first: int) -> None:
        constants = (number.to_bytes(4, "little") * 512 for number in count(first, 2))
        with suppress(NnrtError), RawClient(daemon.address) as client:
            while time.monotonic() < until:
                sent = [chunk for data in islice(constants, 200) for chunk in chunks(data)]
                with suppress(NnrtError):
                    client.call("NnrtDevice.UploadConstants", *sent)

    threads = [threading.Thread(target=attack, args=(first,), daemon=True) for first in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 + DEADLINE_S)
    assert not any(thread.is_alive() for thread in threads), "an upload hangs"
    with RawClient(daemon.address) as client:
        client.call("NnrtDevice.UploadConstants", *chunks(bytes(4000)))
    daemon.send(signal.SIGTERM)
    assert daemon.wait() == 0
