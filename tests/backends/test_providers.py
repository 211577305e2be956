"""The provider that a daemon computes with, as an operator chooses it."""

import os
import subprocess
import sys

import onnx
import onnxruntime
import pytest
import warm
from daemon_process import DaemonProcess
from nnrt_backend_onnxruntime.providers import PROVIDERS, ProviderDevice
from nnrt_backend_onnxruntime.session import open_session, session_options
from onnx import helper

from nnrt_client import Runtime
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.errors import OperationFailed


def nnrt_device(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return warm.run(
        [sys.executable, "-m", "nnrt_device_service", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
def test_flags_choose_provider_and_device() -> None:
    daemon = DaemonProcess("--backend", "onnxruntime", "--provider", "cpu", "--device-index", "0")
    try:
        with Runtime([daemon.address]) as runtime:
            info = runtime.device().info
            assert (info.device_name, info.backend_name) == ("onnxruntime-cpu", "onnxruntime")
            assert info.backend_version.startswith(onnxruntime.__version__)
    finally:
        daemon.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["onnxruntime", "--provider", "qnn"], "provider 'qnn' is not in this ONNX Runtime"),
        (["onnxruntime", "--provider", "gpu"], "there is no provider 'gpu'; present: "),
        (["onnxruntime", "--device-index", "3"], "device_index is 3, but cpu has one device; use 0"),
        (["onnxruntime", "--device-index", "-1"], "option device_index is '-1'; use a number of 0 or more"),
        (["reference", "--provider", "cuda"], "the reference backend has no option 'provider'"),
        (["reference", "--device-index", "0"], "the reference backend has no option 'device_index'"),
    ],
)
def test_what_is_not_there_is_an_error(arguments: list[str], message: str) -> None:
    """One line, at once, and nothing else is used in its place."""
    ended = nnrt_device("serve", "--backend", *arguments)
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"Error: {message}")


@pytest.mark.slow
def test_the_environment_says_it_too() -> None:
    ended = nnrt_device("serve", NNRT_DEVICE_BACKEND="onnxruntime", NNRT_DEVICE_PROVIDER="qnn")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "provider 'qnn' is not in this ONNX Runtime" in ended.stderr


@pytest.mark.slow
def test_a_flag_and_an_option_that_disagree() -> None:
    ended = nnrt_device("serve", "--backend", "onnxruntime", "--option", "provider=cpu", "--provider", "qnn")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Invalid value for --provider: it is 'qnn' and option provider 'cpu'; give one of them" in ended.stderr


@pytest.mark.slow
def test_backends_shows_the_providers() -> None:
    listed = nnrt_device("backends")
    assert listed.returncode == 0
    (row,) = (line.split() for line in listed.stdout.splitlines() if line.split()[:1] == ["onnxruntime"])
    assert row[1:7] == ["available", "onnxruntime-cpu", "by", "nnrt", "CPU", onnxruntime.__version__]
    assert "cpu" in [name.strip("(,)") for name in row[7:]]


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("cpu", [("CPUExecutionProvider", {})]),
        ("cuda", [("CUDAExecutionProvider", {"device_id": "1"}), ("CPUExecutionProvider", {})]),
        (
            "tensorrt",
            [
                ("TensorrtExecutionProvider", {"device_id": "1"}),
                ("CUDAExecutionProvider", {"device_id": "1"}),
                ("CPUExecutionProvider", {}),
            ],
        ),
        ("webgpu", [("WebGpuExecutionProvider", {"deviceId": "1"}), ("CPUExecutionProvider", {})]),
        ("coreml", [("CoreMLExecutionProvider", {}), ("CPUExecutionProvider", {})]),
    ],
)
def test_the_device_reaches_every_provider_that_has_several(
    provider: str, expected: list[tuple[str, dict[str, str]]]
) -> None:
    assert ProviderDevice(provider, 1, threads=1).providers() == expected


def test_options_of_a_client_reach_the_provider() -> None:
    chosen = ProviderDevice("tensorrt", 2, threads=1).providers({"provider.trt_fp16_enable": b"True"})
    assert chosen[0] == ("TensorrtExecutionProvider", {"trt_fp16_enable": "True", "device_id": "2"})
    assert chosen[1] == ("CUDAExecutionProvider", {"device_id": "2"})


def test_what_a_provider_compiles_is_not_exported() -> None:
    """ONNX Runtime refuses to write down a model with compiled nodes."""
    assert {name for name in PROVIDERS if ProviderDevice(name, 0, threads=1).can_export} >= {"cpu", "cuda"}
    assert not ProviderDevice("tensorrt", 0, threads=1).can_export


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="CUDA is there")
@pytest.mark.filterwarnings("ignore:Specified provider 'CUDAExecutionProvider' is not in available:UserWarning")
def test_a_session_that_would_run_on_the_cpu_instead_is_an_error() -> None:
    """ONNX Runtime itself only warns of a provider that it can't have, and takes the next one."""
    device = ProviderDevice("cuda", 0, threads=1)
    kinds = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "graph", kinds[:1], kinds[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(OperationFailed, match=r"did not start; it would have run on \['CPUExecutionProvider'\]"):
        open_session(model.SerializeToString(), {}, session_options(device, ModelConfig()), device, {})
