"""The runtime that a process shares, and what finding a device costs."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from waiting import until

from nnrt_client import (
    Executor,
    InvalidParameter,
    OperationFailed,
    OperationForbidden,
    Runtime,
    Settings,
    UnavailableDevice,
    connect,
    disconnect,
)
from nnrt_client.session.process_runtime import process_runtime

# How long a stopped daemon counts as living. Long, so that who asks it would wait.
PATIENT = Settings(heartbeat_timeout_s=60, query_timeout_s=60)


@pytest.fixture(autouse=True)
def disconnected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NNRT_DEVICES", raising=False)
    yield
    disconnect()


def test_environment_names_the_devices(shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    assert process_runtime().devices() == []
    disconnect()
    monkeypatch.setenv("NNRT_DEVICES", shared_daemon.address)
    (device,) = process_runtime().devices()
    assert device.address == shared_daemon.address
    assert process_runtime() is process_runtime()


def test_connect_replaces(shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNRT_DEVICES", shared_daemon.address)
    first = connect(shared_daemon.address)
    assert process_runtime() is first
    device = first.device()
    second = connect()
    assert process_runtime() is second
    assert not device.is_connected
    with pytest.raises(OperationForbidden, match="closed"):
        first.devices()
    assert second.device().id == device.id
    disconnect()
    disconnect()
    assert process_runtime() is not second


def exits(program: str, address: str) -> subprocess.CompletedProcess[str]:
    return warm.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NNRT_DEVICES": address},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
def test_interpreter_exits(shared_daemon: DaemonProcess) -> None:
    """Nothing is closed, destroyed or disconnected."""
    ran = exits("from nnrt_client.oh_nn import *; print(OH_NNTensor_Create(0, None), OH_NNDevice_GetName(0)[1])",
                shared_daemon.address)  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "None reference_nnrt_v2_1\n", "")


RUNNING = """
import numpy as np
from nnrt_client.oh_nn import *
model, desc = OH_NNModel_Construct(), OH_NNTensorDesc_Create()
OH_NNTensorDesc_SetDataType(desc, OH_NN_FLOAT32)
OH_NNTensorDesc_SetShape(desc, [4])
OH_NNModel_AddTensorToModel(model, desc)
OH_NNModel_AddTensorToModel(model, desc)
OH_NNModel_AddOperation(model, OH_NN_OPS_RELU, [], [0], [1])
OH_NNModel_SpecifyInputsAndOutputs(model, [0], [1])
OH_NNModel_Finish(model)
compilation = OH_NNCompilation_Construct(model)
OH_NNCompilation_Build(compilation)
executor = OH_NNExecutor_Construct(compilation)
OH_NNExecutor_SetOnRunDone(executor, print)
tensors = [OH_NNTensor_Create(0, desc)], [OH_NNTensor_Create(0, desc)]
print(OH_NNExecutor_RunAsync(executor, *tensors, 60_000, "user data").name)
"""


def test_interpreter_exits_while_a_run_is_in_flight(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "slow")
    ran = exits(RUNNING, daemon.address)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "SUCCESS\n", "")


# ---- finding devices


def test_a_known_device_is_not_asked(start_daemon: StartDaemon) -> None:
    """A stopped daemon would not answer."""
    daemon = start_daemon()
    with Runtime([daemon.address], PATIENT) as runtime:
        (device,) = runtime.devices()
        daemon.stop()
        ways: list[Any] = [0, device.id, device.name, device.address]
        assert [runtime.device(which) for which in ways] == [device] * 4
        daemon.kill()


def test_the_first_device_is_the_first_of_the_list(start_daemon: StartDaemon) -> None:
    """A dead one leaves it; when it returns, it has its id and its place again."""
    first, second = start_daemon("--name", "first"), start_daemon("--name", "second")
    with Runtime([first.address, second.address]) as runtime:
        ids = [device.id for device in runtime.devices()]
        assert runtime.device().id == runtime.device(ids[0]).id == ids[0]
        first.kill()
        assert [device.id for device in runtime.devices()] == ids[1:]
        assert runtime.device().id == ids[1]
        with pytest.raises(UnavailableDevice):
            runtime.device(ids[0])
        assert runtime.find(ids[0]) is None
        assert runtime._has_seen(ids[0])
        start_daemon("--name", "first", listen=first.address)
        assert [device.id for device in runtime.devices()] == ids
        assert runtime.device().id == ids[0]


def test_the_first_may_come_late(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """At its first start or at a later one: then it is device 0, and until then who finds the second asks nobody."""
    second = start_daemon("--name", "second")
    address = f"unix:{tmp_path}/d"
    for settings in (Settings(look_again_s=0.05), replace(PATIENT, look_again_s=3600)):
        with Runtime([address, second.address], settings) as runtime:
            assert runtime.device().name == "second_nnrt_v2_1"
            if settings.look_again_s > 1:
                second.stop()
                assert runtime.device().name == "second_nnrt_v2_1"
                second.send(signal.SIGCONT)
                continue
            for _ in range(2):
                first = start_daemon("--name", "first", listen=address)
                until(lambda: runtime.device().address == address, runtime.devices)
                first.kill()
                until(lambda: runtime.device().address == second.address, runtime.devices)


def test_why_there_is_no_such_device(start_daemon: StartDaemon) -> None:
    """For each address."""
    twins = [start_daemon("--name", "twin").address for _ in range(2)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        silent = f"127.0.0.1:{port}"
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody = f"127.0.0.1:{closed.getsockname()[1]}"
        addresses = [nobody, silent, "no.such.host.invalid:1", "127.0.0.1", "127.0.0.1:500610", *twins]
        with Runtime(addresses, Settings(connect_timeout_s=1)) as runtime:
            with pytest.raises(OperationFailed) as refused:
                runtime.device("other")
            said = str(refused.value)
    assert said.startswith(f"no device 'other' answers at {', '.join(addresses)}; devices there: twin_nnrt_v2_1")
    for address, why in (
        (nobody, r"no daemon answers there \(connection refused\); start one there .*, or give another address"),
        (silent, r"no answer within 1 s \(opening a session\)"),
        ("no.such.host.invalid:1", r"(its host is not found \(.*\); check the name.*|no answer within 1 s .*)"),
        ("127.0.0.1", "it has no port; give 127.0.0.1:PORT, or unix:PATH"),
        ("127.0.0.1:500610", "its port is 500610; use 1..65535"),
        (twins[1], f"the device at {twins[0]} has the same name"),
    ):
        assert re.search(rf"[:,] {address} \({why}\)", said), said


@pytest.mark.parametrize("address", ["127.0.0.1:500610", "127.0.0.1:65536", "[::1]:65536", "127.0.0.1:0"])
def test_ports_that_no_host_has(address: str) -> None:
    """gRPC would take the port modulo 65536; the only address is named once."""
    with Runtime([address]) as runtime, pytest.raises(InvalidParameter) as refused:
        runtime.device()
    port = address.rpartition(":")[2]
    assert str(refused.value) == f"device at {address}: its port is {port}; use 1..65535"


@pytest.mark.parametrize("addresses", ["127.0.0.1:50051", b"127.0.0.1:50051", 50051, [50051]])
def test_addresses_that_are_no_list_of_texts(addresses: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"Runtime: the addresses are .*; give a list of texts"):
        Runtime(addresses)


@pytest.mark.parametrize("seconds", ["a", None, 0, -1, float("nan"), float("inf"), [1]])
def test_settings_that_are_no_seconds(seconds: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"Settings: build_timeout_s is .*; use a number of seconds above 0"):
        Settings(build_timeout_s=seconds)


def test_settings_that_are_none() -> None:
    with pytest.raises(InvalidParameter, match="Runtime: the settings are 5; give Settings"):
        Runtime([], 5)  # type: ignore[arg-type]


def test_objects_of_another_kind(shared_daemon: DaemonProcess) -> None:
    """They are refused by the error that everything else is refused with."""
    with pytest.raises(InvalidParameter, match="the compilation is None; give a Compilation"):
        Executor(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="the device is None; give a Device"):
        identity_model().supported_operations(None)  # type: ignore[arg-type]
    with Runtime([shared_daemon.address]) as runtime:
        for junk in (None, 1.5, [0], np.zeros(2)):
            with pytest.raises(InvalidParameter, match=r"Runtime: the device is .*; give a name, an address or an id"):
                runtime.device(junk)  # type: ignore[arg-type]
        assert runtime.device(np.uint64(runtime.device().id)) is runtime.device()


def test_the_second_of_a_name_is_ignored(start_daemon: StartDaemon) -> None:
    daemons = [start_daemon("--name", "twin") for _ in range(2)]
    with Runtime([daemon.address for daemon in daemons]) as runtime:
        (device,) = runtime.devices()
        assert device.address == daemons[0].address
        daemons[0].kill()
        assert runtime.devices()[0].address == daemons[1].address
        assert runtime.device(device.id).address == daemons[1].address
