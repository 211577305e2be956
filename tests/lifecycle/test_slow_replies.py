"""A reply whose chunks stop coming: the end of its run doesn't wait for them, and nothing is written afterwards."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from daemon_process import DaemonProcess
from handlers import raised_when
from relay import Relay
from runs_left import runs_left
from tensor_runs import LONG_MS, compiled
from waiting import until

from nnrt_client import (
    ConnectionFailed,
    DataType,
    OperationFailed,
    OperationForbidden,
    Settings,
    Tensor,
    TensorDesc,
    TimedOut,
    UnavailableDevice,
)
from nnrt_client.run import chunked_reply
from nnrt_client.session.device import session_of
from nnrt_hdi.chunks import Assembly

DEADLINE_S = 20.0
ONE = np.ones(1, np.float32)
# Large enough for chunks.
LARGE = np.ones(1 << 20, np.float32)


class SlowRun:
    """Run whose reply stops in the middle, and a way to end it."""

    def __init__(self, closing: ExitStack, daemon: DaemonProcess, call: str, into: str) -> None:
        """Begin the run; `call` is the RPC that carries the reply, into arrays or tensors."""
        self.relay = closing.enter_context(Relay(daemon.address))
        self.device, self.executor = compiled(closing, self.relay.address, settings=Settings(share_memory=False))
        self.targets: list[Tensor] | None = None
        if into == "tensors":
            desc = TensorDesc(DataType.FLOAT32, LARGE.shape)
            self.targets = [closing.enter_context(Tensor(self.device, desc))]
        if call == "AwaitRun":
            self.relay.ends["RunStream"] = 0, False
        self.relay.pauses[call] = 1
        self._begun = threading.Event()
        closing.enter_context(patch.object(chunked_reply, "Assembly", self._assembly))

    def _assembly(self, arrays: list[Any]) -> Assembly:
        self._begun.set()
        return Assembly(arrays)

    def is_read(self) -> bool:
        """Return whether the client has read the beginning of the reply."""
        return self._begun.is_set()

    def begin(self) -> Any:
        return self.executor.submit([LARGE], self.targets, timeout_ms=LONG_MS)

    def require(self, error: type[BaseException] | tuple[type[BaseException], ...], end: Callable[[], object]) -> None:
        future = self.begin()
        until(self.is_read)
        end()
        with pytest.raises(error):
            future.result(DEADLINE_S)

    def its_deadline(self) -> None:
        future = self.begin()
        until(self.is_read)
        (run,) = runs_left()
        run.limit(50)
        self.executor.submit([ONE], timeout_ms=100)  # The client checks all runs at this run's deadline.
        with pytest.raises(TimedOut):
            future.result(DEADLINE_S)

    def who_cancels(self) -> None:
        future = self.begin()
        until(self.is_read)
        (run,) = runs_left()
        assert future.cancel()
        assert run.ended.wait(DEADLINE_S)

    def who_closes_the_executor(self) -> None:
        self.require(OperationFailed, self.executor.close)

    def who_closes_the_session(self) -> None:
        self.require((UnavailableDevice, ConnectionFailed), session_of(self.device).close)

    def a_handler(self) -> None:
        error = TimeoutError("of the handler")
        with raised_when(self.is_read, error), pytest.raises(TimeoutError, match="of the handler"):
            self.executor.run_sync([LARGE], self.targets)

    def an_event_loop(self) -> None:
        async def awaited() -> None:
            waiting = asyncio.wrap_future(future)
            while not self.is_read():
                await asyncio.sleep(0)
            await asyncio.wait_for(waiting, 0)

        future = self.begin()
        (run,) = runs_left()
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(awaited())
        assert run.ended.wait(DEADLINE_S)


CLOSING = SlowRun.who_closes_the_executor, SlowRun.who_closes_the_session


@pytest.mark.parametrize("call", ["RunStream", "AwaitRun"])
@pytest.mark.parametrize("into", ["arrays", "tensors"])
@pytest.mark.parametrize(
    "end",
    [
        SlowRun.its_deadline,
        SlowRun.who_cancels,
        SlowRun.who_closes_the_executor,
        SlowRun.who_closes_the_session,
        SlowRun.a_handler,
        SlowRun.an_event_loop,
    ],
)
def test_nobody_waits_for_the_rest(
    shared_daemon: DaemonProcess, closing: ExitStack, end: Callable[[SlowRun], None], into: str, call: str
) -> None:
    run = SlowRun(closing, shared_daemon, call, into)
    end(run)
    for target in run.targets or ():
        target.numpy()[:] = -8
    run.relay.pauses.clear()
    run.relay.ends.clear()
    run.relay.may_go_on.set()
    with pytest.raises((OperationForbidden, UnavailableDevice)) if end in CLOSING else nullcontext():
        np.testing.assert_array_equal(run.executor.run_sync([ONE])[0], ONE)
    for target in run.targets or ():
        np.testing.assert_array_equal(target.numpy(), -8)
