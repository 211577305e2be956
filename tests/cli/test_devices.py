"""`nnrt devices`, and what is wrong use of any command."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from daemon_process import DaemonProcess

from cli.command import NOBODY, nnrt
from nnrt_device_service.cli import main as nnrt_device


def test_devices_shows_each_address(start_daemon: Callable[..., DaemonProcess], tmp_path: Path) -> None:
    """Names and addresses in one piece, so that they can be copied; one daemon may have several."""
    unix = f"unix:{tmp_path}/{'x' * 20}"
    daemon = start_daemon("--listen", unix, "--name", "a-device-with-a-long-name")
    result = nnrt("devices", *daemon.addresses)
    assert result.exit_code == 0
    assert result.output.count("a-device-with-a-long-name_nnrt_v2_1") == 2
    assert daemon.address in result.output
    assert unix in result.output


def test_devices_as_json(shared_daemon: DaemonProcess) -> None:
    result = nnrt("devices", "--json", shared_daemon.address)
    (device,) = json.loads(result.stdout)
    assert device["name"] == "reference_nnrt_v2_1"
    assert device["type"] == "CPU"
    assert device["vendor"] == "nnrt"
    assert device["status"] == "AVAILABLE"
    assert device["load"]["sessions"] >= 1
    assert device["load"]["draining"] is False
    assert device["capabilities"] == ["float16_precision", "priority", "dynamic_input", "model_cache", "profiling"]


def test_devices_from_the_environment(shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNRT_DEVICES", f" {shared_daemon.address} ,{shared_daemon.address}")
    result = nnrt("devices")
    assert result.exit_code == 0
    assert result.output.count("reference_nnrt_v2_1") == 1


def test_devices_that_do_not_answer(shared_daemon: DaemonProcess, caplog: pytest.LogCaptureFixture) -> None:
    result = nnrt("devices", NOBODY, shared_daemon.address)
    assert result.exit_code == 1
    assert "reference_nnrt_v2_1" in result.output
    assert f"no device at {NOBODY}" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["devices", "--timeout", "0", NOBODY], "0.0 is not in the range x>0"),
        (["device"], "No such command 'device'"),
        (["run", "model"], "there is no device; give --device, or set NNRT_DEVICES"),
        (
            ["run", "model", "--device", "name"],
            "'name' is no address, such as HOST:PORT or unix:PATH; to find a device by its",
        ),
        (["bench", "model", "--device", NOBODY, "--concurrency", "0:4"], "'0:4' is not START[:END[:STEP]]"),
        (["bench", "model", "--device", NOBODY, "--concurrency", "4:2"], "'4:2' is not START[:END[:STEP]]"),
        (["bench", "model", "--device", NOBODY, "--shape", "x=1,a"], "'1,a' is no shape"),
        (["compare", "model", "--device", NOBODY], "--device is given 1 times; give two devices"),
    ],
)
def test_wrong_use(arguments: list[str], message: str) -> None:
    result = nnrt(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_backends_lists_what_is_installed() -> None:
    result = CliRunner().invoke(nnrt_device, ["backends"])
    assert result.exit_code == 0
    assert "reference" in result.output
    assert "available" in result.output
