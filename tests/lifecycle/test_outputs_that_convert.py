"""Outputs of a started run that can't be converted: its future ends all the same, for whoever waits."""

import asyncio
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from daemon_process import DaemonProcess
from tensor_runs import compiled

from nnrt_client import OutOfMemory


@pytest.mark.parametrize("by", ["result", "wrap_future"])
def test_outputs_that_can_not_be_converted(cached_daemon: DaemonProcess, closing: ExitStack, by: str) -> None:
    def convert(result: Any) -> Any:
        raise MemoryError

    async def awaited() -> None:
        await asyncio.wait_for(asyncio.wrap_future(future), 20)

    _, executor = compiled(closing, cached_daemon.address)
    future = executor._submit([np.zeros(4, np.float32)], None, None, convert)
    with pytest.raises(OutOfMemory):
        if by == "result":
            future.result(20)
        else:
            asyncio.run(awaited())
