"""Helpers for compilations with caches, on the test backend `restoring`, which exports and restores models."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from conftest import StartDaemon
from networks import convolution_model

from nnrt_client import Compilation, Device, Executor, Model, Origin, Runtime
from nnrt_client.build.cache import FILE_NAME

IMAGES = np.random.default_rng(5).standard_normal((2, 8, 8, 1), np.float32)


@contextmanager
def other_device(start_daemon: StartDaemon, *arguments: str) -> Iterator[Device]:
    with Runtime([start_daemon(*arguments).address]) as runtime:
        yield runtime.device()


def cached(directory: Path, version: int = 1, model: Model | None = None) -> Callable[[Device], Compilation]:
    """Return a function that creates a compilation with a cache on a device, and doesn't build it."""

    def on(device: Device) -> Compilation:
        compilation = Compilation(model or convolution_model(), device)
        compilation.set_cache(directory, version)
        return compilation

    return on


def origin(compilation: Compilation) -> Origin | None:
    """Build a compilation, and return whether it was compiled or restored."""
    with compilation:
        compilation.build()
        return compilation.origin


def outputs(compilation: Compilation) -> bytes:
    """Run the built compilation on the images, and return the outputs' bytes."""
    with Executor(compilation) as executor:
        return b"".join(output.tobytes() for output in executor.run_sync([IMAGES]))


def cache_file(directory: Path, device: Device) -> Path:
    return directory / f"{device.id:016x}" / FILE_NAME


def write_cache(directory: Path, device: Device, version: int = 1, model: Model | None = None) -> Path:
    assert origin(cached(directory, version, model)(device)) is Origin.COMPILED
    return cache_file(directory, device)
