"""A runtime that was given names."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from daemon_process import DaemonProcess
from onnx import parser
from waiting import until

import nnrt_client
from nnrt_client import AddressChange, DeviceStatus, OperationForbidden, Runtime, Settings, UnavailableDevice
from nnrt_client.onnxruntime import InferenceSession
from resolvers.name_server import NameServer

StartDaemon = Callable[..., DaemonProcess]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "devices"


def test_addresses_and_names_in_their_order(path: Path) -> None:
    path.write_text("b:2\na:1\n")
    with Runtime(["c:3", f"file://{path}", "a:1"]) as runtime:
        assert runtime.addresses == ("c:3", "b:2", "a:1")


def test_devices_come_and_go(start_daemon: StartDaemon, path: Path) -> None:
    first, second = start_daemon("--name", "first"), start_daemon("--name", "second")
    path.write_text(f"{first.address}\n")
    with Runtime([f"file://{path}?every=0.01"]) as runtime:
        (device,) = runtime.devices()
        path.write_text(f"{second.address}\n")
        until(lambda: runtime.addresses == (second.address,))
        assert [found.address for found in runtime.devices()] == [second.address]
        assert runtime.find(first.address) is None
        assert device.status() is DeviceStatus.AVAILABLE  # Who uses it goes on.
        path.write_text(f"{second.address}\n{first.address}\n")
        until(lambda: len(runtime.addresses) == 2)
        assert runtime.devices()[1] is device


def test_a_dead_device_that_is_gone_is_not_kept(start_daemon: StartDaemon, path: Path) -> None:
    daemon = start_daemon()
    path.write_text(f"{daemon.address}\n")
    with Runtime([f"file://{path}?every=0.01"], Settings(reconnect_timeout_s=0)) as runtime:
        device = runtime.device()
        daemon.kill()
        path.write_text("")
        until(lambda: not runtime.addresses and not device.is_connected)
        assert runtime.devices() == []
        assert not runtime._has_seen(device.name)


def test_the_device_behind_a_name(start_daemon: StartDaemon, shared_daemon: DaemonProcess, path: Path) -> None:
    daemon = start_daemon("--name", "listed")
    path.write_text(f"{daemon.address}\n")
    with Runtime([shared_daemon.address, f"file://{path}"]) as runtime:
        assert runtime.device(f"file://{path}").address == daemon.address
        assert runtime.device().address == shared_daemon.address


def test_a_listener_hears_what_changes(path: Path) -> None:
    path.write_text("a:1\n")
    heard: list[AddressChange] = []
    with Runtime([f"file://{path}?every=0.01"]) as runtime:
        end = runtime.watch(heard.append)
        assert heard == [AddressChange(("a:1",), ())]
        path.write_text("b:2\nc:3\n")
        until(lambda: heard[-1].removed, lambda: heard)
        assert heard[1:] in (
            [AddressChange(("b:2", "c:3"), ("a:1",))],
            [AddressChange(("b:2", "c:3"), ()), AddressChange((), ("a:1",))],
        )
        end()
        del heard[:]
        path.write_text("d:4\n")
        until(lambda: runtime.addresses == ("d:4",))
    assert not heard
    with pytest.raises(OperationForbidden, match="the runtime is closed"):
        runtime.watch(heard.append)


def test_a_listener_that_fails_stops_nobody(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_text("a:1\n")
    heard: list[AddressChange] = []
    with Runtime([f"file://{path}?every=0.01"]) as runtime:
        runtime.watch(lambda _: [][0])
        runtime.watch(heard.append)
        path.write_text("a:1\nb:2\n")
        until(lambda: len(heard) == 2)
    assert caplog.text.count("a listener to addresses failed") == 2


def test_a_listener_may_close_the_runtime(path: Path) -> None:
    path.write_text("a:1\n")
    runtime = Runtime([f"file://{path}?every=0.01"])
    changes: list[AddressChange] = []

    def close(change: AddressChange) -> None:
        if change.removed:
            runtime.close()
            changes.append(change)

    runtime.watch(close)
    path.write_text("")
    until(lambda: changes)


def test_why_there_is_no_device(path: Path) -> None:
    with Runtime([f"file://{path}"]) as runtime, pytest.raises(UnavailableDevice) as raised:
        runtime.device()
    assert str(raised.value) == f"device at file://{path}: the file can't be read: No such file or directory"
    path.write_text("")
    with (
        Runtime([f"file://{path}"]) as runtime,
        pytest.raises(UnavailableDevice, match="no address is behind it: the file has none"),
    ):
        runtime.device()


def test_names_in_the_environment(shared_daemon: DaemonProcess, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(f"{shared_daemon.address}\n")
    monkeypatch.setenv("NNRT_DEVICES", f"file://{path}, 127.0.0.1:1")
    with Runtime() as runtime:
        assert runtime.addresses == (shared_daemon.address, "127.0.0.1:1")
        assert runtime.device().address == shared_daemon.address


def test_connect_takes_a_name(shared_daemon: DaemonProcess, path: Path) -> None:
    path.write_text(f"{shared_daemon.address}\n")
    try:
        assert nnrt_client.connect(f"file://{path}").device().address == shared_daemon.address
    finally:
        nnrt_client.disconnect()


def test_an_inference_session_takes_a_name(onnxruntime_daemon: DaemonProcess, path: Path) -> None:
    path.write_text(f"{onnxruntime_daemon.address}\n")
    model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]> m (float[2] x) => (float[2] y) { y = Relu(x) }')
    provider = ("NnrtExecutionProvider", {"device": f"file://{path}"})
    session = InferenceSession(model.SerializeToString(), providers=[provider])
    (output,) = session.run(None, {"x": np.array([-1, 1], np.float32)})
    assert output.tolist() == [0.0, 1.0]


def test_load_takes_a_name(shared_daemon: DaemonProcess) -> None:
    model = nnrt_client.Model()
    x = model.input((2,), name="x")
    model.specify_inputs_and_outputs([x], [model.apply(nnrt_client.OperationType.RELU, x)])
    model.finish()
    host, port = shared_daemon.address.split(":")
    with NameServer() as server:
        server.say("fleet.test", "A", host)
        with nnrt_client.load(model, f"dns://{server.address}/fleet.test:{port}") as session:
            (output,) = session.run([[-1.0, 1.0]]).values()
    assert output.tolist() == [0.0, 1.0]
