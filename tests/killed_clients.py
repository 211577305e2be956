"""Clients that are killed at random moments, and what their daemon holds afterwards.

A few dozen of them are a test; `benchmarks/kill_clients.py` kills a thousand. Run as a script it makes and kills them:
they are forked from a process that has everything imported and nothing of gRPC begun, so each costs little.
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

from nnrt_client import Compilation, DataType, Device, Executor, ResidentTensor, Runtime, Tensor, TensorDesc
from nnrt_client.session.device import session_of
from nnrt_hdi.v2 import device_pb2, local_socket_pb2

# How long a client lives at most; it takes about half of that until it has all that it holds.
LIFE_S = 0.8
AT_A_TIME = 6
ELEMENTS = 1 << 18
WEIGHTS = 1 << 18
IN_FLIGHT = 16
LEASE_S = 1.0
# When the lease of the last client is over everything is back within this.
BACK_S = 5.0
# Between two counts while clients are killed.
LOOK_S = 0.01
# What the threads and caches of a daemon that has served many may differ by.
SPARE_THREADS = 8
# Each of malloc's arenas keeps some MiB for the next message (nnrt_device_service/host/allocator.py).
SPARE_BYTES = 64 << 20


class Holdings(NamedTuple):
    """Counts of what a daemon holds."""

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
        """Tell if nothing is left of those that came since; threads and memory may be about the same."""
        return (
            all(now <= then for now, then in zip(self[:4], before[:4], strict=True))
            and self.threads <= before.threads + SPARE_THREADS
            and self.resident_bytes <= before.resident_bytes + SPARE_BYTES
        )


@dataclass(frozen=True, slots=True)
class Aftermath:
    """Counts of a daemon before so many clients were killed, right after the last of them, and in the end."""

    before: Holdings
    most: Holdings
    after: Holdings
    back_after_s: float

    @property
    def is_clean(self) -> bool:
        return self.after.is_back_at(self.before)


def kill_clients(daemon: DaemonProcess, observer: Observer, count: int, seed: int = 0) -> Aftermath:
    """Kill so many clients of a daemon with a lease of LEASE_S; raises where one ended by itself."""
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
    killed_at = time.monotonic()
    while not (after := Holdings.of(daemon, observer)).is_back_at(before):
        if time.monotonic() > killed_at + LEASE_S + BACK_S:
            break
        os.sched_yield()
    return Aftermath(before, most, after, time.monotonic() - killed_at - LEASE_S)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}


# ---- what they are doing when they are killed; none of these returns


def with_tensors(device: Device) -> None:
    """Runs between Tensors, one after another."""
    x, y = (Tensor(device, TensorDesc(DataType.FLOAT32, (ELEMENTS,))) for _ in range(2))
    executor = _built(device)
    while True:
        executor.run_sync([x], [y])


def with_many_runs(device: Device) -> None:
    """Has many runs under way, of arrays that go through shared memory."""
    x, executor = [np.ones(ELEMENTS, np.float32)], _built(device)
    under_way = deque(executor.submit(x) for _ in range(IN_FLIGHT))
    while True:
        under_way.popleft().result()
        under_way.append(executor.submit(x))


def with_resident_tensors(device: Device) -> None:
    """Runs between tensors in the daemon, and makes more of them."""
    executor, kept = _built(device), []
    while True:
        kept += [ResidentTensor(device, TensorDesc(DataType.FLOAT32, (ELEMENTS,))) for _ in range(2)]
        kept[0].write(np.ones(ELEMENTS, np.float32))
        executor.run_sync([kept[0]], [kept[-1]])
        if len(kept) > IN_FLIGHT:
            signal.pause()


def half_attached(device: Device) -> None:
    """Has buffers of the daemon, and connections to the local socket that have said nothing, or whose they are."""
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
    """Uploads constants and compiles, again and again."""
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
    """Fork clients of each kind in turn, each with a moment at which it is killed; whether all lived until then."""
    moments, living, is_well = np.random.default_rng(seed), 0, True
    for number in range(count):
        # By the kernel, with a signal that nobody handles: no line of the client's runs after it, as with SIGKILL.
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
