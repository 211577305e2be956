"""The daemon's log: what it says of failed requests, how it looks, and that clients can't fill it."""

import json
import logging
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import warm
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from waiting import DEADLINE_S, until

from nnrt_client import (
    Compilation,
    Executor,
    InvalidParameter,
    NnrtError,
    OperationFailed,
    Runtime,
    Settings,
    UnavailableDevice,
)
from nnrt_client.session.device import session_of
from nnrt_device_service.host.log_formats import JsonFormatter, TextFormatter
from nnrt_device_service.host.log_handler import LINES_A_SECOND, LINES_A_SECOND_OF_ALL, OTHERS, LineLimit
from nnrt_device_service.settings import LimitReached
from nnrt_hdi import wire
from nnrt_hdi.v2 import prepared_model_pb2

ONE = np.ones(1, np.float32)
EACH_CARRIER = pytest.mark.parametrize("share_memory", [True, False], ids=["local socket", "gRPC"])


def events(daemon: DaemonProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.log().splitlines()]


def event_of(daemon: DaemonProcess, error: NnrtError) -> dict[str, Any]:
    """The one event of the request that failed with this."""
    found = until(lambda: [event for event in events(daemon) if event.get("request") == error.request_id])
    assert len(found) == 1, found
    return found[0]


def failing(closing: ExitStack, daemon: DaemonProcess, settings: Settings) -> Executor:
    """An executor whose runs the backend fails to make."""
    runtime = closing.enter_context(Runtime([daemon.address], settings))
    compilation = closing.enter_context(Compilation(identity_model(), runtime.device()))
    compilation.add_extension_config("fault", b"run")
    compilation.build()
    return closing.enter_context(Executor(compilation))


@EACH_CARRIER
def test_a_failed_run_leads_to_its_event(start_daemon: StartDaemon, closing: ExitStack, share_memory: bool) -> None:
    daemon = start_daemon("--backend", "faulty", "--log-format", "json")
    executor = failing(closing, daemon, Settings(share_memory=share_memory))
    with pytest.raises(UnavailableDevice) as failed:
        executor.run_sync([ONE])
    error = failed.value
    assert re.fullmatch("[0-9a-f]{8}", error.request_id)
    assert str(error).endswith(f" (request {error.request_id})")
    event = event_of(daemon, error)
    assert event["log.level"] == "error"
    assert event["error.type"] == "RuntimeError"
    assert "DMA fault" in event["error.stack_trace"]
    assert (event["identity"], event["device"], event["error.code"]) == (
        "host 127.0.0.1",
        "faulty",
        "UNAVAILABLE_DEVICE",
    )
    assert re.fullmatch("[0-9a-f]{8}", event["session"])
    assert event["model"] >= 1
    assert event["run"] >= 1
    assert event["message"].startswith("the local socket" if share_memory else "PreparedModel/RunStream")
    with pytest.raises(UnavailableDevice) as other:
        executor.submit([ONE]).result(DEADLINE_S)
    assert event_of(daemon, other.value)["session"] == event["session"]
    assert other.value.request_id != error.request_id


def test_a_failed_call_leads_to_its_event(start_daemon: StartDaemon, closing: ExitStack) -> None:
    """A refusal has no traceback, a compilation that fails in the backend has one."""
    daemon = start_daemon("--backend", "faulty", "--log-format", "json")
    runtime = closing.enter_context(Runtime([daemon.address]))
    compilation = closing.enter_context(Compilation(identity_model(), runtime.device()))
    compilation.add_extension_config("fault", b"prepare exits")
    with pytest.raises(OperationFailed) as failed:
        compilation.build()
    event = event_of(daemon, failed.value)
    assert event["log.level"] == "error"
    assert "Traceback" in event["error.stack_trace"]
    with pytest.raises(UnavailableDevice) as refused:
        unknown_model(runtime)
    event = event_of(daemon, refused.value)
    assert (event["log.level"], event["model"]) == ("info", 99)
    assert "error.stack_trace" not in event


def test_one_session_has_one_name(start_daemon: StartDaemon, closing: ExitStack) -> None:
    """It is the beginning of its id, which a client can tell as well."""
    daemon = start_daemon("--backend", "faulty", "--log-format", "json", "--audit-log", "-")
    executor = failing(closing, daemon, Settings())
    with pytest.raises(UnavailableDevice) as failed:
        executor.run_sync([ONE])
    opened = next(event for event in events(daemon) if event.get("event") == "session opened")
    assert opened["session"] == event_of(daemon, failed.value)["session"]
    assert daemon.log().count(opened["session"]) >= 2


def test_text_for_people(start_daemon: StartDaemon, closing: ExitStack) -> None:
    daemon = start_daemon("--backend", "faulty")
    executor = failing(closing, daemon, Settings())
    with pytest.raises(UnavailableDevice) as failed:
        executor.run_sync([ONE])
    lines = until(lambda: [line for line in daemon.log().splitlines() if failed.value.request_id in line])
    assert len(lines) == 1
    assert 'identity="host 127.0.0.1" session=' in lines[0]
    assert lines[0].endswith(f" request={failed.value.request_id}")
    assert "\n  Traceback (most recent call last):\n" in daemon.log()


def unknown_model(runtime: Runtime) -> None:
    """Ask for a run of a model that there isn't. Raises UnavailableDevice."""
    request = prepared_model_pb2.GetInputDimRangesRequest(model_id=99)
    session_of(runtime.device()).call("PreparedModel.GetInputDimRanges", request, DEADLINE_S)


def test_a_client_cannot_fill_the_log(start_daemon: StartDaemon) -> None:
    """Each line is there or counted, and others' lines are there."""
    daemon = start_daemon("--log-format", "json")
    failures = 5 * LINES_A_SECOND
    with Runtime([daemon.address]) as runtime:
        for _ in range(failures):
            with pytest.raises(UnavailableDevice):
                unknown_model(runtime)

    def left_out() -> int:
        said = [re.match(r"(\d+) lines about", event["message"]) for event in events(daemon)]
        return sum(int(match[1]) for match in said if match)

    def written() -> int:
        return sum("was answered" in event["message"] for event in events(daemon))

    until(lambda: left_out() + written() == failures, lambda: (left_out(), written()))
    assert left_out() > 0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_bounds_of_lines() -> None:
    """Nobody's lines hide errors, nor those of others; all together are bounded, too."""
    clock = Clock()
    bound = LineLimit(clock)
    assert bound.take_left_out() == {}
    written = [bound.admit("alice", is_error=False) for _ in range(LINES_A_SECOND + 2)]
    assert written == [True] * LINES_A_SECOND + [False] * 2
    assert bound.admit("alice", is_error=True)
    assert bound.admit("bob", is_error=False)
    assert bound.take_left_out() == {}, "the second is not over"
    clock.now += 1
    assert bound.take_left_out() == {"alice": 2}
    crowd = [bound.admit(f"user {number}", is_error=False) for number in range(LINES_A_SECOND_OF_ALL + 1)]
    assert crowd.count(False) == 1
    assert bound.admit("alice", is_error=True), "nobody hides errors"
    assert bound.take_left_out(is_last=True) == {f"user {LINES_A_SECOND_OF_ALL}": 1}
    for number in range(2 * LINES_A_SECOND_OF_ALL):
        bound.admit(f"user {number}", is_error=False)
    told = bound.take_left_out(is_last=True)
    assert (len(told), told[OTHERS]) == (LINES_A_SECOND + 1, LINES_A_SECOND_OF_ALL - LINES_A_SECOND)


@pytest.mark.parametrize("formatter", [TextFormatter, JsonFormatter])
def test_no_text_looks_like_another_event(formatter: Callable[[], logging.Formatter]) -> None:
    forged = "x\n2026-01-01 00:00:00,000 INFO root: everything is fine\x1b[2J"
    try:
        raise ValueError(forged)
    except ValueError as error:
        record = logging.makeLogRecord({"msg": "%s", "args": (forged,), "identity": forged, "exc_info": _info(error)})
    said = formatter().format(record)
    assert not any(line.startswith("2026-01-01") for line in said.splitlines())
    assert "\x1b" not in said


def _info(error: BaseException) -> tuple[type[BaseException], BaseException, Any]:
    return type(error), error, error.__traceback__


def test_errors_keep_their_request() -> None:
    error = wire.error_from_detail(wire.error_detail(InvalidParameter("m", place="p").of_request("3f2a91c0")))
    assert str(error) == "p: m (request 3f2a91c0)"
    assert (error.message, error.place, error.request_id) == ("m", "p", "3f2a91c0")
    assert str(error.at("q").copy()) == "q: p: m (request 3f2a91c0)"
    limit = LimitReached("m", "--queued-runs").of_request("3f2a91c0")
    assert (limit.setting, limit.at("p").request_id) == ("--queued-runs", "3f2a91c0")
    assert InvalidParameter("m").request_id == ""


@pytest.mark.slow
def test_a_daemon_that_cannot_serve_says_so_in_its_format() -> None:
    command = [sys.executable, "-m", "nnrt_device_service", "serve", "--log-format", "json", "--listen", "nowhere"]
    refused = warm.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert refused.returncode == 1
    (event,) = map(json.loads, refused.stderr.splitlines())
    assert event["log.level"] == "critical"
    assert "use HOST:PORT or unix:PATH" in event["message"]
