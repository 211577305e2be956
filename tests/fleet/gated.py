"""Devices whose runs last until a gate is opened."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import identity_model
from waiting import until

from fleet.fleet_process import fleet_file, ps
from nnrt_client import Compilation, Device, Executor, NnrtError, Runtime

ONE = np.ones(1, np.float32)


def gated_file(gate: Path, **settings: Any) -> Path:
    """The fleet's file, beside the gate: one device `a`."""
    return fleet_file(gate.with_name("fleet.toml"), "a", backend="gated", option=f"gate={gate}", **settings)


@contextmanager
def executor_on(device: Device) -> Iterator[Executor]:
    with Compilation(identity_model(), device) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            yield executor


@contextmanager
def run_under_way(device: dict[str, Any]) -> Iterator[tuple[Executor, Any]]:
    """A run that the device, as `ps` has it, has begun; and its executor."""
    with Runtime(device["addresses"]) as runtime, executor_on(runtime.device()) as executor:
        run = executor.submit([ONE])
        until(lambda: "run started" in Path(device["log"]).read_text())
        yield executor, run


@contextmanager
def stuck(state: Path) -> Iterator[None]:
    """Device `a` doesn't end a run that was to stop; its client stays."""
    with Runtime(ps(state)["a"]["addresses"]) as runtime, executor_on(runtime.device()) as executor:
        with pytest.raises(NnrtError):
            executor.run_sync([ONE], timeout_ms=50)
        yield
