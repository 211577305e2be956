"""Unreachable devices, and clients that start before their daemons."""

from pathlib import Path

import numpy as np
import pytest
from blocked_call import BlockedCall
from conftest import StartDaemon
from networks import identity_model

from nnrt_client import InvalidParameter, ModelSession, OperationFailed, UnavailableDevice, load
from pool.conftest import Fleet

ONE = np.ones(1, np.float32)
NOBODY, NOBODY_ELSE = "127.0.0.1:1", "127.0.0.1:2"
# Longer than any test.
LONG_S = 600.0


def loaded(device: str | list[str], wait_s: float = 0.0) -> ModelSession:
    return load(identity_model(), device, wait_s=wait_s)


@pytest.mark.parametrize("wait_s", [0, 0.05])
@pytest.mark.parametrize("device", [NOBODY, [NOBODY], [NOBODY, NOBODY_ELSE]], ids=["one", "list of one", "list"])
def test_each_address_and_its_reason(device: str | list[str], wait_s: float) -> None:
    with pytest.raises(UnavailableDevice) as raised:
        loaded(device, wait_s)
    for address in [device] if isinstance(device, str) else device:
        assert address in str(raised.value)
    assert str(raised.value).count("no daemon answers") == (1 if isinstance(device, str) else len(device))


def test_a_name_without_addresses(tmp_path: Path) -> None:
    with pytest.raises(UnavailableDevice, match=r"file:///.*: the file can't be read"):
        loaded(f"file://{tmp_path / 'names'}")


def test_a_device_that_nobody_has(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """All daemons answer, so waiting would not help."""
    (daemon,) = fleet(1)
    monkeypatch.setenv("NNRT_DEVICES", daemon.address)
    with pytest.raises(OperationFailed, match=r"no device 'other' answers at .*; left out: none"):
        loaded("other", LONG_S)


@pytest.mark.parametrize("kind", ["address", "list", "name"])
def test_a_client_that_starts_before_its_daemon(start_daemon: StartDaemon, tmp_path: Path, kind: str) -> None:
    address, names = f"unix:{tmp_path / 'd'}", tmp_path / "names"
    devices = {"address": address, "list": [address, NOBODY], "name": f"file://{names}"}
    call = BlockedCall(lambda: loaded(devices[kind], LONG_S))  # type: ignore[arg-type]
    call.require_blocked()
    start_daemon(listen=address)
    if kind == "name":
        call.require_blocked()
        names.write_text(f"{address}\n")
    call.wait()
    assert call.error is None
    with call.result as session:
        assert session.run([ONE])


def test_a_device_that_refuses_the_model_is_not_waited_for(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "nothing")
    with pytest.raises(OperationFailed, match="the device does not run ADD_FUSION"):
        loaded([daemon.address], LONG_S)


@pytest.mark.parametrize("wait_s", [-1, "1", True, float("nan")])
@pytest.mark.parametrize("device", [NOBODY, [NOBODY]], ids=["one", "list"])
def test_what_is_no_time_to_wait(device: str | list[str], wait_s: float) -> None:
    with pytest.raises(InvalidParameter, match=r"wait_s is .*; use a number of seconds, 0 or more"):
        loaded(device, wait_s)
