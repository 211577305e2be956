"""Which devices there are on this host, where no file says it."""

import json
import sys
from typing import Any

import pytest
from nnrt_backend_onnxruntime import providers
from nnrt_backend_onnxruntime.devices import device_count, devices

from fleet.fleet_process import nnrt_device
from nnrt_device_service.fleet.discovery import host_name, specs_of
from nnrt_hdi.errors import UnavailableDevice


def backend(name: str, *devices: tuple[str, str], driver: str = "") -> dict[str, Any]:
    """Return what is listed of a backend, whose devices end with the number that a driver gives them."""
    listed = [
        {
            "name": device,
            "device_type": kind,
            "options": {"index": device[-1]},
            "hardware": driver and f"{driver}:{device[-1]}",
        }
        for device, kind in devices
    ]
    return {"name": name, "devices": listed}


def test_every_accelerator_and_no_cpu() -> None:
    listed = [backend("acme", ("npu-0", "ACCELERATOR"), ("npu-1", "ACCELERATOR")), backend("reference", ("cpu", "CPU"))]
    assert [spec.name for spec in specs_of(listed)] == ["npu-0", "npu-1"]
    assert specs_of(listed)[1].arguments == ("--backend=acme", f"--name={host_name()}-npu-1", "--option=index=1")


def test_the_reference_backend_is_the_last_choice() -> None:
    reference, other = backend("reference", ("reference", "CPU")), backend("zeta", ("cpu", "CPU"))
    assert [spec.arguments[0] for spec in specs_of([reference, other])] == ["--backend=zeta"]
    assert [spec.arguments[0] for spec in specs_of([reference])] == ["--backend=reference"]
    with pytest.raises(UnavailableDevice, match="no backend works here"):
        specs_of([backend("zeta")])


def test_names_differ() -> None:
    """Two backends may call their devices alike."""
    listed = [backend("acme", ("gpu-0", "GPU")), backend("zeta", ("gpu-0", "GPU"), ("gpu-1", "GPU"))]
    assert [spec.name for spec in specs_of(listed)] == ["acme-gpu-0", "zeta-gpu-0", "gpu-1"]


def test_a_device_that_several_backends_find(caplog: pytest.LogCaptureFixture) -> None:
    """The first of them serves it, the others those that nobody else finds."""
    acme = backend("acme", ("gpu-0", "GPU"), driver="cuda")
    zeta = backend("zeta", ("gpu-0", "GPU"), ("gpu-1", "GPU"), driver="cuda")
    others = backend("ours", ("npu-0", "ACCELERATOR")), backend("theirs", ("gpu-0", "GPU"), driver="hip")
    specs = specs_of([acme, *others, zeta])
    assert [(spec.name, spec.arguments[0]) for spec in specs] == [
        ("acme-gpu-0", "--backend=acme"),
        ("npu-0", "--backend=ours"),
        ("theirs-gpu-0", "--backend=theirs"),
        ("gpu-1", "--backend=zeta"),
    ]
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "gpu-0 of the backend zeta is passed over: it is cuda:0, which the backend acme serves"
    ]


@pytest.mark.slow
def test_each_device_gets_one_daemon() -> None:
    """The output says whose is passed over."""
    done = nnrt_device("up", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if "shared-0" in line] == ["shared-0"]
    assert "--backend=late" in done.stdout
    assert "--backend=plain" not in done.stdout
    assert "shared-0 of the backend plain is passed over: it is test:0, which the backend late serves" in done.stderr


@pytest.mark.slow
def test_backends_list_their_devices() -> None:
    """ONNX Runtime by its entry point, others have the one that they make."""
    done = nnrt_device("backends", "--json")
    assert done.returncode == 0, done.stderr
    listed = {each["name"]: each for each in json.loads(done.stdout)}
    cpu = {"name": "cpu", "device_type": "CPU", "options": {"provider": "cpu"}, "hardware": ""}
    assert cpu in listed["onnxruntime"]["devices"]
    reference = {"name": "reference", "device_type": "CPU", "options": {}, "hardware": ""}
    assert listed["reference"]["devices"] == [reference]
    assert listed["skipped"]["devices"] == []
    assert listed["skipped"]["skipped"] == "there is no such accelerator"
    assert "the vendor's mistake" in listed["broken"]["broken"]


def test_each_kind_of_device_is_served_by_one_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a build for CUDA lists its providers; libraries for the CPU are no devices."""
    present = ["tensorrt", "cuda", "migraphx", "dnnl", "qnn", "cpu"]
    monkeypatch.setattr(providers, "present_providers", lambda: present)
    assert providers.accelerators() == ["cuda", "migraphx", "qnn"]


def test_devices_of_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its index. A driver that isn't there has none."""
    assert device_count("libno-such-driver.so", "start", "count") == 0
    assert device_count("libc.so.6", "no_such_function", "count") == 0
    monkeypatch.setattr(sys.modules[devices.__module__], "accelerators", lambda: ["cuda"])
    monkeypatch.setattr(sys.modules[devices.__module__], "device_count", lambda *driver: 2)
    assert [(device.name, device.options, device.hardware) for device in devices()] == [
        ("cuda-0", {"provider": "cuda", "device_index": "0"}, "cuda:0"),
        ("cuda-1", {"provider": "cuda", "device_index": "1"}, "cuda:1"),
        ("cpu", {"provider": "cpu"}, ""),
    ]
