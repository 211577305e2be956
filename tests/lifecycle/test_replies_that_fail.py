"""Replies whose reading goes wrong: the run ends with an error of ours, and whoever reads goes on."""

import inspect
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from daemon_process import DaemonProcess
from grpc import _channel as grpc_channel
from networks import identity_model
from part import step
from relay import Relay
from tensor_runs import compiled

import nnrt_client
from nnrt_client import Executor, NnrtError, Settings
from nnrt_client.run.session_dispatcher import SessionDispatcher
from nnrt_client.session.device import session_of
from nnrt_client.session.io_loop import io_loop

DEADLINE_S = 20.0
# A reply of that many floats comes in chunks.
LARGE = 1 << 20
# One of that many comes in three: the first, one between, the last.
_CHUNKED = 5 << 17
# More than a session has streams.
_MANY = 16
_OURS = str(Path(nnrt_client.__file__).parent)
# They begin what runs in a thread, and resume what makes requests.
_OUTSIDE = (threading.__file__, grpc_channel.__file__)


def require_all_streams(executor: Executor, elements: int = 4) -> None:
    """More runs at once than there are streams end, each with its own answer."""
    arrays = [np.full(elements, number, np.float32) for number in range(_MANY)]
    for array, run in zip(arrays, [executor.submit([array]) for array in arrays], strict=True):
        np.testing.assert_array_equal(run.result(DEADLINE_S)[0], array)


class Shortage:
    """No memory is left once, for a function of the client that other threads than this one are about to enter."""

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._main = threading.get_ident()
        self.is_armed = self.came = False

    def trace(self, frame: FrameType, event: str, argument: object) -> None:
        # What a thread begins with is not counted, nor a generator, which takes no memory as it is resumed or closed:
        # what gRPC resumes ends by an exception just then before Python 3.12, whatever it would catch.
        if (
            self.is_armed
            and event == "call"
            and frame.f_code.co_filename.startswith(_OURS)
            and not frame.f_code.co_flags & inspect.CO_GENERATOR
            and frame.f_back is not None
            and frame.f_back.f_code.co_filename not in _OUTSIDE
            and threading.get_ident() != self._main
        ):
            self._calls -= 1
            if self._calls == 0:
                self.came = True
                del frame  # Who is called with the frame that it interrupts is a signal handler.
                raise MemoryError


@pytest.mark.slow
@pytest.mark.parametrize("elements", [4, _CHUNKED], ids=["small", "chunked"])
@pytest.mark.parametrize("share_memory", [True, False], ids=["local", "grpc"])
def test_no_memory_is_left_as_a_reply_is_read(shared_daemon: DaemonProcess, share_memory: bool, elements: int) -> None:
    """Wherever that shows: the run ends, with its result or an error, and later runs are as they were."""
    array = np.arange(elements, dtype=np.float32)
    settings = Settings(share_memory=share_memory, verdict_timeout_s=0.1)
    # Each point takes a session of its own.
    for calls in count(1, step(2 if elements < _CHUNKED else 5)):
        shortage = Shortage(calls)
        with ExitStack() as closing:
            threading.settrace(shortage.trace)
            try:
                _, executor = compiled(closing, shared_daemon.address, identity_model(), settings)
                io_loop().call(sys.settrace, shortage.trace)
                require_all_streams(executor)  # Threads that read begin, and are traced as long as they live.
            finally:
                threading.settrace(None)
            shortage.is_armed = True
            runs = [executor.submit([array]) for _ in range(3)]
            for run in runs:
                with suppress(NnrtError):
                    np.testing.assert_array_equal(run.result(DEADLINE_S)[0], array)
            shortage.is_armed = False
            io_loop().call(sys.settrace, None)
            require_all_streams(executor)
        if not shortage.came:
            break
    assert calls > 1, "no thread but this one did anything"


@pytest.mark.parametrize("replies", [0, 1])
@pytest.mark.parametrize("way", ["run_sync", "submit"])
def test_a_stream_that_ends_without_a_reply(shared_daemon: DaemonProcess, way: str, replies: int) -> None:
    """Or in the middle of one, though nothing is said of a failure."""
    with Relay(shared_daemon.address) as relay, ExitStack() as closing:
        _, executor = compiled(closing, relay.address, settings=Settings(share_memory=False))
        relay.ends["RunStream"] = replies, True
        require_failure(executor, way)
        relay.ends.clear()
        require_all_streams(executor)


@pytest.mark.parametrize("replies", [0, 1])
@pytest.mark.parametrize("way", ["run_sync", "submit"])
@pytest.mark.parametrize("share_memory", [True, False], ids=["local", "grpc"])
def test_a_kept_reply_that_does_not_come(
    shared_daemon: DaemonProcess, share_memory: bool, way: str, replies: int
) -> None:
    """It is fetched when it is too long for a packet, or its stream was lost; that call ends without it."""
    with Relay(shared_daemon.address) as relay, ExitStack() as closing:
        _, executor = compiled(closing, relay.address, settings=Settings(share_memory=share_memory))
        relay.ends = {"RunStream": (0, False), "AwaitRun": (replies, True)}
        require_failure(executor, way)
        relay.ends.clear()
        require_all_streams(executor)


def test_a_session_ends_as_a_reply_begins_to_be_fetched(
    shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for its runs comes before the thread has started that fetches it."""
    start, waited = threading.Thread.start, list[str]()

    def start_late(thread: threading.Thread) -> None:
        if thread.name == "nnrt-errand":
            session_of(device).part(SessionDispatcher).wait_ended(0.0)
            waited.append(thread.name)
        start(thread)

    array = np.zeros(LARGE, np.float32)
    with Relay(shared_daemon.address) as relay, ExitStack() as closing:
        device, executor = compiled(closing, relay.address, settings=Settings(share_memory=False))
        relay.ends["RunStream"] = 0, False
        monkeypatch.setattr(threading.Thread, "start", start_late)
        run = executor.submit([array])
        np.testing.assert_array_equal(run.result(DEADLINE_S)[0], array)
        assert waited


def require_failure(executor: Executor, way: str) -> None:
    """A run ends with an error of ours."""
    array = np.zeros(LARGE, np.float32)
    with ThreadPoolExecutor(1) as thread:
        run: Any = executor.submit([array]) if way == "submit" else thread.submit(executor.run_sync, [array])
        try:
            error = run.exception(DEADLINE_S)
        finally:
            executor.close() if not run.done() else None  # Or the thread would wait for ever.
    assert isinstance(error, NnrtError), repr(error)
