"""A client as a process, to be killed and stopped. Run as a script, this module is that client."""

import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

import numpy as np
import warm
from typing_extensions import Self

from nnrt_client import Compilation, Device, Executor, Model, Runtime
from nnrt_client.session.device import session_of
from nnrt_hdi.v2 import device_pb2

_EXIT_S = 20.0
BUFFER_BYTES = 1 << 20
WEIGHTS = 1 << 20


class ClientProcess:
    """Client of the daemon at an address, in the state that `what` names. A context manager that kills it."""

    def __init__(self, address: str, what: str) -> None:
        self.process = warm.Popen(
            [sys.executable, __file__, address, what],
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(Path(__file__).parents[1])},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"  # End of file if it fails.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(_EXIT_S)

    def kill(self) -> None:
        """Kill the client, and wait until it has ended. Idempotent."""
        self.process.kill()
        self.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _ready() -> None:
    print("ready", flush=True)


def _build(device: Device) -> Executor:
    from networks import weighted_model

    compilation = Compilation(weighted_model(WEIGHTS), device)
    compilation.build()
    return Executor(compilation)


def idle(device: Device) -> None:
    """Keep a model with weights, and a buffer, and wait."""
    executor = _build(device)
    request = device_pb2.AllocateBufferRequest(length=BUFFER_BYTES)
    session_of(device).call("NnrtDevice.AllocateBuffer", request, 5)
    _ready()
    signal.pause()
    executor.close()


def run(device: Device) -> None:
    """Keep more runs in flight than the device runs at a time."""
    executor = _build(device)
    futures = [executor.submit([np.ones(1, np.float32)]) for _ in range(10)]
    _ready()
    for future in futures:
        future.result()


def upload(device: Device) -> None:
    """Stop in the middle of uploading a constant."""
    from networks import weighted_model

    def stop_half_way(stage: str, fraction: float) -> None:
        if stage == "uploading" and fraction > 0.5:
            _ready()
            threading.Event().wait()

    Compilation(weighted_model(WEIGHTS), device).build(stop_half_way)


def built_model() -> Model:
    """Return the model that `build` builds."""
    from networks import weighted_model

    return weighted_model(10)


def build(device: Device) -> None:
    """Waits for a model that is being compiled."""
    Compilation(built_model(), device).build(lambda stage, _: _ready() if stage == "compiling" else None)


def leave(device: Device) -> None:
    """End without closing anything."""
    executor = _build(device)
    executor.submit([np.ones(1, np.float32)])
    _ready()


if __name__ == "__main__":
    address, what = sys.argv[1:]
    runtime = Runtime([address])
    {"idle": idle, "run": run, "upload": upload, "build": build, "leave": leave}[what](runtime.device())
