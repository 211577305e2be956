"""Clients that are killed at random moments, and a check that their daemon frees all they used.

A test kills a few dozen; `benchmarks/kill_clients.py` kills a thousand. Run as a script, this module forks the clients
from a process that has imported everything and started nothing of gRPC, so that each client costs little.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import warm
from daemon_process import DaemonProcess
from networks import identity_model, weighted_model
from observer import Observer
from waiting import until

from nnrt_client import Compilation, DataType, Device, Executor, ResidentTensor, Runtime, Tensor, TensorDesc
from nnrt_client.session.device import session_of
from nnrt_hdi.v2 import device_pb2, local_socket_pb2

# Longest life of a client; it needs about half of this to allocate everything.
LIFE_S = 0.8
AT_A_TIME = 6
ELEMENTS = 1 << 18
WEIGHTS = 1 << 18
IN_FLIGHT = 16
LEASE_S = 1.0
# Time after the last client's lease within which the daemon must have freed everything.
BACK_S = 5.0
# Time between two measurements while clients are killed.
LOOK_S = 0.05
# Threads that a daemon may keep after many clients.
SPARE_THREADS = 8
# Memory that it may keep: each of malloc's arenas keeps some MiB (nnrt_device_service/host/allocator.py).
SPARE_BYTES = 64 << 20


class Holdings(NamedTuple):
    """Resources that a daemon uses."""

    sessions: int
    held_bytes: int
    descriptors: int
    mappings: int
    threads: int
    resident_bytes: int

    @classmethod
    def of(cls, daemon: DaemonProcess, observer: Observer) -> "Holdings":
        state = observer.state()
        process = Path(f"/proc/{daemon.pid}")
        return cls(
            sessions=state.sessions,
            held_bytes=state.held_bytes,
            descriptors=daemon.descriptor_count(),
            mappings=process.joinpath("maps").read_text().count("/memfd:"),
            threads=len(list(process.joinpath("task").iterdir())),
            resident_bytes=daemon.memory_bytes(),
        )

    def is_back_at(self, before: "Holdings") -> bool:
        """Return whether the daemon uses no more than before; threads and memory may have grown a little."""
        return (
            all(now <= then for now, then in zip(self[:4], before[:4], strict=True))
            and self.threads <= before.threads + SPARE_THREADS
            and self.resident_bytes <= before.resident_bytes + SPARE_BYTES
        )


@dataclass(frozen=True, slots=True)
class Aftermath:
    """Resources of a daemon before clients were killed, their maximum meanwhile, and after the last lease."""

    before: Holdings
    most: Holdings
    after: Holdings
    back_after_s: float

    @property
    def is_clean(self) -> bool:
        return self.after.is_back_at(self.before)


def kill_clients(daemon: DaemonProcess, observer: Observer, count: int, seed: int = 0) -> Aftermath:
    """Kill `count` clients of a daemon with a lease of LEASE_S. Raises RuntimeError if a client ends by itself."""
    before = Holdings.of(daemon, observer)
    with warm.Popen([sys.executable, __file__, daemon.address, str(count), str(seed)], env=_environment()) as zygote:
        most = before
        while zygote.poll() is None:
            now = Holdings.of(daemon, observer)
            most = Holdings(*map(max, most, now))
            with suppress(subprocess.TimeoutExpired):
                zygote.wait(LOOK_S)
    if zygote.returncode:
        raise RuntimeError("a client ended before it was killed; see what it wrote")
    killed_at, after = time.monotonic(), before

    def is_over() -> bool:
        nonlocal after
        after = Holdings.of(daemon, observer)
        return after.is_back_at(before) or time.monotonic() > killed_at + LEASE_S + BACK_S

    until(is_over)
    return Aftermath(before, most, after, time.monotonic() - killed_at - LEASE_S)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}


# ---- what clients do when they are killed; none of these functions returns


def with_tensors(device: Device) -> None:
    """Run the model between Tensors, again and again."""
    x, y = (Tensor(device, TensorDesc(DataType.FLOAT32, (ELEMENTS,))) for _ in range(2))
    executor = _built(device)
    while True:
        executor.run_sync([x], [y])


def with_many_runs(device: Device) -> None:
    """Keep many runs in flight, with arrays that go through shared memory."""
    x, executor = [np.ones(ELEMENTS, np.float32)], _built(device)
    under_way = deque(executor.submit(x) for _ in range(IN_FLIGHT))
    while True:
        under_way.popleft().result()
        under_way.append(executor.submit(x))


def with_resident_tensors(device: Device) -> None:
    """Run the model on ResidentTensors, and allocate more of them."""
    executor, kept = _built(device), []
    while True:
        kept += [ResidentTensor(device, TensorDesc(DataType.FLOAT32, (ELEMENTS,))) for _ in range(2)]
        kept[0].write(np.ones(ELEMENTS, np.float32))
        executor.run_sync([kept[0]], [kept[-1]])
        if len(kept) > IN_FLIGHT:
            signal.pause()


def half_attached(device: Device) -> None:
    """Allocate buffers, and open connections to the local socket that send nothing, or only the session's id."""
    connection = session_of(device)
    sockets = []
    for says_whose in (False, True, True):
        side = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        side.connect(b"\0" + connection.welcome.local_socket)
        sockets.append(side)
        if says_whose:
            attach = {"session_id": connection.welcome.session_id}
            side.send(local_socket_pb2.LocalRequest(attach=attach).SerializeToString())
            request = device_pb2.AllocateBufferRequest(length=ELEMENTS)
            connection.call("NnrtDevice.AllocateBuffer", request, 5)
    signal.pause()


def building(device: Device) -> None:
    """Upload constants and compile, again and again."""
    seed = 0
    while True:
        seed += 1
        Compilation(weighted_model(WEIGHTS, seed), device).build()


KINDS = (with_tensors, with_many_runs, with_resident_tensors, half_attached, building)


def _built(device: Device) -> Executor:
    compilation = Compilation(identity_model(elements=ELEMENTS), device)
    compilation.build()
    return Executor(compilation)


# ---- as a script


def kill_many(address: str, count: int, seed: int) -> bool:
    """Fork clients of each kind in turn; return whether each lived until it was killed at its moment."""
    moments, living, is_well = np.random.default_rng(seed), 0, True
    for number in range(count):
        # The kernel kills the client by a signal without a handler: as with SIGKILL, no more of its code runs.
        life_s = moments.uniform(0.001, LIFE_S)
        if not os.fork():
            signal.setitimer(signal.ITIMER_REAL, life_s)
            _live(address, number)
        living += 1
        while living == AT_A_TIME or (number == count - 1 and living):
            _, status = os.wait()
            living -= 1
            is_well = is_well and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
    return is_well


def _live(address: str, number: int) -> None:
    try:
        KINDS[number % len(KINDS)](Runtime([address]).device())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


if __name__ == "__main__":
    raise SystemExit(not kill_many(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
