"""While no device serves, no daemon waits for its turn to be started again."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fleet.fleet_process import PLUGINS, ps, wait_for
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

    async def scenario() -> None:
        await kill(state, "a", state="backing off")
        await kill(state, "b", state="backing off", restarts=1)
        await wait(state, "a", state="ready", restarts=1)
        await asyncio.to_thread(drain, "a")
        await wait(state, "b", state="ready", restarts=1)
        await kill(state, "b", state="ready", restarts=2)

    def drain(name: str) -> list[dict[str, Any]] | None:
        return ask(StateDirectory(state).control, {"do": "drain", "names": [name]}, print)

    assert asyncio.run(supervise(state, SPECS, scenario)) == 0


def test_one_whose_device_is_out_does_not_serve(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So another one is started when it goes out."""
    monkeypatch.setattr(backoff, "FIRST_S", 3600.0)
    fault = tmp_path / "fault"
    ill = ("--backend=injected", f"--option=fault={fault}", "--canary=0.2", "--canary-late-ms=30000")
    specs = [DeviceSpec("a", ill, environment=(("PYTHONPATH", PLUGINS),)), SPECS[1]]

    async def scenario() -> None:
        await kill(state, "b", state="backing off")
        fault.write_text("crash")
        await wait(state, "b", state="ready", restarts=1)

    assert asyncio.run(supervise(state, specs, scenario)) == 0


async def supervise(state: Path, specs: list[DeviceSpec], scenario: Callable[[], Awaitable[None]]) -> int:
    """Run a scenario while a supervisor of this process looks after the devices; its exit code."""

    async def source() -> list[DeviceSpec]:
        return specs

    are_ready = asyncio.Event()
    supervisor = Supervisor(source, StateDirectory(state), on_ready=lambda _: are_ready.set())
    running = asyncio.create_task(supervisor.run())
    await are_ready.wait()
    try:
        await scenario()
    finally:
        supervisor.stop()
        code = await running
    return code


async def wait(directory: Path, name: str, /, **wanted: object) -> None:
    await asyncio.to_thread(wait_for, directory, name, **wanted)


async def kill(directory: Path, name: str, /, **then: object) -> None:
    os.kill((await asyncio.to_thread(ps, directory))[name]["pid"], signal.SIGKILL)
    await wait(directory, name, **then)
