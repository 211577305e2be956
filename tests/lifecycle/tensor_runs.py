"""Executors to run with tensors, and how such runs are refused."""

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
    """The device there, and an executor of the model on it; the identity of any length if none is given."""
    device = closing.enter_context(Runtime([address], settings)).device()
    compilation = closing.enter_context(Compilation(model or identity_model(), device))
    compilation.build()
    return device, closing.enter_context(Executor(compilation))


def refused(executor: Executor, inputs: Any, outputs: Any) -> type[NnrtError]:
    """The error of a run that is refused, the same by every way to run, with nothing called back."""
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
