"""Executors for runs with tensors, and errors of such runs."""

from contextlib import ExitStack
from typing import Any

import pytest
from networks import identity_model
from recorder import Recorder

from nnrt_client import Compilation, Device, Executor, Model, NnrtError, Runtime, Settings

LONG_MS = 600_000


def compiled(
    closing: ExitStack,
    address: str,
    model: Model | None = None,
    settings: Settings = Settings(),  # noqa: B008
) -> tuple[Device, Executor]:
    """Build a model on the daemon at an address; return the device and an executor.

    Without a model it is the identity of any length.
    """
    device = closing.enter_context(Runtime([address], settings)).device()
    compilation = closing.enter_context(Compilation(model or identity_model(), device))
    compilation.build()
    return device, closing.enter_context(Executor(compilation))


def refused(executor: Executor, inputs: Any, outputs: Any) -> type[NnrtError]:
    """Return the error of a refused run; all three ways to run must raise it, without a callback."""
    recorder = Recorder()
    recorder.watch(executor)
    errors = []
    for run in (
        lambda: executor.run_sync(inputs, outputs),
        lambda: executor.submit(inputs, outputs),
        lambda: executor.run_async(inputs, outputs, timeout_ms=LONG_MS, user_data="run"),
    ):
        with pytest.raises(NnrtError) as caught:
            run()
        errors.append(type(caught.value))
    assert len(set(errors)) == 1
    assert recorder.count == 0
    return errors[0]
