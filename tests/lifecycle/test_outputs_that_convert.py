"""Outputs of a started run that can't be converted: its future ends all the same, for whoever waits."""

import asyncio
import threading
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from daemon_process import DaemonProcess
from tensor_runs import compiled

from nnrt_client import OutOfMemory

DEADLINE_S = 20.0


@pytest.mark.parametrize("by", ["result", "wrap_future"])
def test_outputs_that_can_not_be_converted(cached_daemon: DaemonProcess, closing: ExitStack, by: str) -> None:
    def convert(result: Any) -> Any:
        raise MemoryError

    async def awaited() -> None:
        await asyncio.wait_for(asyncio.wrap_future(future), DEADLINE_S)

    _, executor = compiled(closing, cached_daemon.address)
    future = executor._submit([np.zeros(4, np.float32)], None, None, convert)
    with pytest.raises(OutOfMemory):
        if by == "result":
            future.result(DEADLINE_S)
        else:
            asyncio.run(awaited())


@pytest.mark.parametrize("by", ["result", "exception"])
def test_who_waits_is_the_first_to_convert(cached_daemon: DaemonProcess, closing: ExitStack, by: str) -> None:
    """And learns the same as those who come later, while the thread that has read the reply is still at it."""
    here, is_over = threading.get_ident(), threading.Event()
    closing.callback(is_over.set)

    def convert(result: Any) -> Any:
        assert threading.get_ident() == here or is_over.wait(DEADLINE_S)
        raise MemoryError

    _, executor = compiled(closing, cached_daemon.address)
    future = executor._submit([np.zeros(4, np.float32)], None, None, convert)
    for _ in range(2):
        if by == "result":
            with pytest.raises(OutOfMemory):
                future.result(DEADLINE_S)
        else:
            assert isinstance(future.exception(DEADLINE_S), OutOfMemory)
        is_over.set()
