"""Daemon with a canary, whose device computes wrongly when a test asks for it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import grpc
from conftest import StartDaemon
from grpc_health.v1 import health_pb2, health_pb2_grpc
from networks import identity_model
from waiting import until

from nnrt_client import CanaryState, Compilation, Device, Executor

INTERVAL_S = 0.2
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class FaultyDaemon:
    """Daemon with a canary, on a device with an injected fault."""

    def __init__(
        self,
        start_daemon: StartDaemon,
        directory: Path,
        *arguments: str,
        options: Mapping[str, object] | None = None,
        listen: str = "127.0.0.1:0",
        fault: str = "",
    ) -> None:
        self._fault = directory / "fault"
        self.switch(fault)
        named = {"fault": self._fault, **(options or {})}
        self.process = start_daemon(
            *("--backend", "injected", "--canary", str(INTERVAL_S)),
            *(word for name, value in named.items() for word in ("--option", f"{name}={value}")),
            *arguments,
            listen=listen,
        )
        self.address = self.process.address

    def switch(self, fault: str) -> None:
        """Inject this fault into all later runs; an empty string ends the fault."""
        written = self._fault.with_suffix(".new")
        written.write_text(fault)
        written.replace(self._fault)  # Replaces the file atomically.

    def health(self, name: str = "") -> int:
        """Return the status that the health service reports for a name."""
        with grpc.insecure_channel(self.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            status: int = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=20).status
            return status


def canary_of(device: Device) -> CanaryState:
    """Return the state of the device's canary."""
    state = device.canary()
    assert state is not None
    return state


def until_out(device: Device) -> CanaryState:
    """Wait until the canary has taken the device out of service."""
    until(lambda: canary_of(device).is_out, device.canary)
    return canary_of(device)


def until_back(device: Device) -> CanaryState:
    """Wait until the device is in service again."""
    until(lambda: not canary_of(device).is_out, device.canary)
    return canary_of(device)


@contextmanager
def executor_on(device: Device) -> Iterator[Executor]:
    """Yield an executor of the identity model."""
    with Compilation(identity_model(), device) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            yield executor
