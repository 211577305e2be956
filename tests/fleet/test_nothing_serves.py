"""While no device serves, no daemon waits for its turn to be started again."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from fleet.fleet_process import ps, wait_for
from nnrt_device_service.fleet import backoff
from nnrt_device_service.fleet.control import ask
from nnrt_device_service.fleet.spec import DeviceSpec
from nnrt_device_service.fleet.state_directory import StateDirectory
from nnrt_device_service.fleet.supervisor import Supervisor

pytestmark = pytest.mark.slow

SPECS = [DeviceSpec(name, ("--backend=reference",)) for name in "ab"]


def test_one_is_started_at_once(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a wait of an hour before any other start: when the last one is killed, and when it is drained."""
    monkeypatch.setattr(backoff, "FIRST_S", 3600.0)

    async def source() -> list[DeviceSpec]:
        return SPECS

    async def wait(name: str, **wanted: object) -> None:
        await asyncio.to_thread(wait_for, state, name, **wanted)

    async def kill(name: str, **then: object) -> None:
        os.kill((await asyncio.to_thread(ps, state))[name]["pid"], signal.SIGKILL)
        await wait(name, **then)

    async def scenario() -> int:
        are_ready = asyncio.Event()
        supervisor = Supervisor(source, StateDirectory(state), on_ready=lambda _: are_ready.set())
        running = asyncio.create_task(supervisor.run())
        await are_ready.wait()
        await kill("a", state="backing off")
        await kill("b", state="backing off", restarts=1)
        await wait("a", state="ready", restarts=1)
        await asyncio.to_thread(drain, "a")
        await wait("b", state="ready", restarts=1)
        await kill("b", state="ready", restarts=2)
        supervisor.stop()
        return await running

    def drain(name: str) -> list[dict[str, Any]] | None:
        return ask(StateDirectory(state).control, {"do": "drain", "names": [name]}, print)

    assert asyncio.run(scenario()) == 0
