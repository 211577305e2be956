"""Helpers for a supervised device whose runs last until a gate opens."""

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
    """Write a fleet file with one device, `a`, next to the gate."""
    return fleet_file(gate.with_name("fleet.toml"), "a", backend="gated", option=f"gate={gate}", **settings)


@contextmanager
def executor_on(device: Device) -> Iterator[Executor]:
    with Compilation(identity_model(), device) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            yield executor


@contextmanager
def run_under_way(device: dict[str, Any]) -> Iterator[tuple[Executor, Any]]:
    """Yield an executor and its run, which the device of this row of `ps` has begun."""
    with Runtime(device["addresses"]) as runtime, executor_on(runtime.device()) as executor:
        run = executor.submit([ONE])
        until(lambda: "run started" in Path(device["log"]).read_text())
        yield executor, run


@contextmanager
def stuck(state: Path) -> Iterator[None]:
    """Make a run of device `a` time out without ending, and keep its client connected."""
    with Runtime(ps(state)["a"]["addresses"]) as runtime, executor_on(runtime.device()) as executor:
        with pytest.raises(NnrtError):
            executor.run_sync([ONE], timeout_ms=50)
        yield
