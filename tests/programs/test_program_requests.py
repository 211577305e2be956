"""What daemons say to requests for programs that `load` doesn't make."""

import onnx
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from program_models import parsed, weights

from nnrt_client import Compilation, Executor, InvalidFile, InvalidParameter, Runtime, Unsupported, load
from nnrt_client.build import upload
from nnrt_client.build.build_task import BuildTask
from nnrt_client.build.compilation import compilation_of
from nnrt_client.onnx_import import program_from_onnx
from nnrt_client.session.device import session_of
from nnrt_hdi import wire
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.v2 import device_pb2, model_pb2

FILE = parsed("f (float[N, 32] x) => (int64[2, K] y) { m = MatMul (x, w) y = NonZero (m) }", weights("w", 32, 32))


def test_its_cache_is_the_program(start_daemon: StartDaemon) -> None:
    """Which a daemon that takes none refuses as such a file, under whatever name it comes."""
    program = program_from_onnx(FILE.SerializeToString())
    addresses = [start_daemon("--backend", "onnxruntime").address]
    addresses.append(start_daemon("--backend", "onnxruntime", "--name", "other", "--accept-programs", "never").address)
    with Runtime(addresses) as runtime:
        takes, refuses = runtime.devices()
        with compilation_of(program, takes) as compilation:
            compilation.build()
            cache = compilation.export_cache()
        with Compilation.for_cache(takes) as compilation:
            compilation.import_cache(cache)
            compilation.build()
            assert compilation.report is not None and compilation.report.sent_bytes < 1024, "its parts are there"
            with Executor(compilation) as executor:
                assert [desc.name for desc in (executor.input_desc(0), executor.output_desc(0))] == ["x", "y"]
        with Compilation.from_offline_buffer(cache, refuses) as compilation, pytest.raises(NnrtError) as caught:
            compilation.build()
        assert "--accept-programs" in str(caught.value)


def test_a_daemon_that_takes_none_says_which_flag(start_daemon: StartDaemon) -> None:
    with Runtime([start_daemon("--backend", "onnxruntime", "--accept-programs", "never").address]) as runtime:
        build = BuildTask()
        build.connect(session_of(runtime.device()))
        with pytest.raises(Unsupported, match=r"--accept-programs never.*; start it with --accept-programs always"):
            upload.load_program(build, program_from_onnx(FILE.SerializeToString()), ModelConfig())


@pytest.mark.parametrize(
    ("buffers", "kind", "said"),
    [
        (
            [model_pb2.SharedBuffer(region=model_pb2.BufferRegion(buffer_id=1))],
            InvalidParameter,
            "buffer 0.*by its digest",
        ),
        ([model_pb2.SharedBuffer()], InvalidParameter, "buffer 0.*by its digest"),
        ([model_pb2.SharedBuffer(inline=b"x")] * 101, InvalidParameter, "101 buffers"),
        ([], InvalidFile, "no parts"),
        ([model_pb2.SharedBuffer(inline=b"x")], InvalidFile, "no ONNX model"),
    ],
)
def test_requests_that_are_none(
    onnxruntime_daemon: DaemonProcess, buffers: list[model_pb2.SharedBuffer], kind: type[NnrtError], said: str
) -> None:
    request = device_pb2.PrepareFromBuffersRequest(
        buffers=buffers, config=wire.model_config_message(ModelConfig()), program_format="onnx"
    )
    with Runtime([onnxruntime_daemon.address]) as runtime:
        build = BuildTask()
        build.connect(session_of(runtime.device()))
        with pytest.raises(kind, match=said):
            list(build.stream("NnrtDevice.PrepareOfflineModel", request))


def test_another_format(onnxruntime_daemon: DaemonProcess, shared_daemon: DaemonProcess) -> None:
    part = [model_pb2.SharedBuffer(inline=b"x")]
    request = device_pb2.PrepareFromBuffersRequest(buffers=part, program_format="tflite")
    for address, said in ((onnxruntime_daemon.address, "it takes 'onnx'"), (shared_daemon.address, "it takes none")):
        with Runtime([address]) as runtime:
            build = BuildTask()
            build.connect(session_of(runtime.device()))
            with pytest.raises(Unsupported, match=f"takes no files of the format 'tflite'; {said}"):
                list(build.stream("NnrtDevice.PrepareOfflineModel", request))


def test_a_data_type_that_there_is_not(onnxruntime_daemon: DaemonProcess) -> None:
    """It is the device that says so."""
    model = onnx.ModelProto()
    model.CopyFrom(FILE)
    model.graph.initializer.add(name="q", data_type=99, dims=[1000], float_data=[1.0] * 1000)
    with pytest.raises(Unsupported, match="'q'"):
        load(model.SerializeToString(), onnxruntime_daemon.address, ways=["program"])
