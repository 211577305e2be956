"""The states of a compilation: what may be called when, and what a failed build leaves behind."""

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model, weighted_model

from nnrt_client import (
    Compilation,
    Device,
    Executor,
    InvalidParameter,
    Model,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    OperationType,
    PerformanceMode,
    Priority,
    Runtime,
    Settings,
    TensorDesc,
    UnavailableDevice,
)
from nnrt_client.model.model import parts_of
from nnrt_client.session.device import session_of
from nnrt_hdi import wire
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.v2 import device_pb2

ONE = np.ones(1, np.float32)


@pytest.fixture
def device(runtime: Runtime) -> Device:
    """The reference backend: no performance modes, no extensions."""
    return runtime.device()


@pytest.fixture(scope="module")
def plain_daemon() -> Iterator[DaemonProcess]:
    daemon = DaemonProcess("--backend", "plain")
    yield daemon
    daemon.kill()


@pytest.fixture
def plain(plain_daemon: DaemonProcess) -> Iterator[Device]:
    """Dynamic inputs, no other capability."""
    with Runtime([plain_daemon.address]) as runtime:
        yield runtime.device()


@pytest.fixture(scope="module")
def capable_daemon() -> Iterator[DaemonProcess]:
    """Has every capability, takes any extension, and logs the config it compiles with."""
    daemon = DaemonProcess("--backend", "cached")
    yield daemon
    daemon.kill()


@pytest.fixture
def capable(capable_daemon: DaemonProcess) -> Iterator[Device]:
    with Runtime([capable_daemon.address]) as runtime:
        yield runtime.device()


SETTERS: dict[str, Callable[[Compilation], None]] = {
    "set_device": lambda compilation: compilation.set_device(compilation.device),
    "set_performance_mode": lambda compilation: compilation.set_performance_mode(PerformanceMode.HIGH),
    "set_priority": lambda compilation: compilation.set_priority(Priority.HIGH),
    "enable_float16": lambda compilation: compilation.enable_float16(),
    "neutral": lambda compilation: compilation.set_priority(Priority.NONE),
    "add_extension_config": lambda compilation: compilation.add_extension_config("name", b"value"),
    "set_cache": lambda compilation: compilation.set_cache(tempfile.gettempdir(), 1),
    "import_cache": lambda compilation: compilation.import_cache(b"cache"),
}


@pytest.mark.parametrize("setter", SETTERS.values(), ids=SETTERS)
def test_sealed_after_build(capable: Device, setter: Callable[[Compilation], None]) -> None:
    """Every setter works before a build, and is forbidden after it."""
    setter(Compilation(identity_model(), capable))
    with Compilation(identity_model(), capable) as compilation:
        compilation.build()
        with pytest.raises(OperationForbidden, match="make a new one"):
            setter(compilation)


@pytest.mark.parametrize("setter", SETTERS.values(), ids=SETTERS)
def test_sealed_after_a_failed_build(runtime: Runtime, setter: Callable[[Compilation], None]) -> None:
    """A device that refuses a model has decided: the compilation can't be changed, built or run any more."""
    compilation = Compilation(identity_model(), runtime.device())
    compilation.add_extension_config("unknown", b"1")
    with pytest.raises(InvalidParameter, match="knows no extension 'unknown'"):
        compilation.build()
    assert not compilation.is_built
    with pytest.raises(OperationForbidden):
        setter(compilation)
    with pytest.raises(InvalidParameter):
        compilation.build()
    with pytest.raises(OperationForbidden, match="not built"):
        Executor(compilation)
    compilation.close()


def test_second_build(device: Device) -> None:
    """InvalidParameter, and what was built stays usable."""
    with Compilation(identity_model(), device) as compilation:
        compilation.build()
        with pytest.raises(InvalidParameter, match="make a new one"):
            compilation.build()
        assert compilation.is_built
        with Executor(compilation) as executor:
            np.testing.assert_array_equal(executor.run_sync([ONE]), [ONE])


def test_executor_before_build(device: Device) -> None:
    """There is nothing to run yet."""
    with (
        Compilation(identity_model(), device) as compilation,
        pytest.raises(OperationForbidden, match="build"),
    ):
        Executor(compilation)


def test_unfinished_model(device: Device) -> None:
    """Build refuses it and may be called again when the model is finished."""
    model = Model()
    x = model.input((1,))
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.RELU, x)])
    with Compilation(model, device) as compilation:
        with pytest.raises(InvalidParameter, match=r"call Model\.finish first"):
            compilation.build()
        model.finish()
        compilation.build()


@pytest.mark.parametrize("name", ["set_performance_mode", "set_priority", "enable_float16"])
def test_capability_the_device_lacks(plain: Device, name: str) -> None:
    """UnavailableDevice for anything but the neutral value, which stays accepted; nothing is stored."""
    wanted, neutral = {
        "set_performance_mode": (PerformanceMode.LOW, PerformanceMode.NONE),
        "set_priority": (Priority.LOW, Priority.NONE),
        "enable_float16": (True, False),
    }[name]
    with Compilation(identity_model(), plain) as compilation:
        setter: Callable[[Any], None] = getattr(compilation, name)
        with pytest.raises(UnavailableDevice, match="does not have the capability"):
            setter(wanted)
        setter(neutral)
        compilation.build()


def test_set_device_to_one_that_lacks_a_capability(capable: Device, plain: Device) -> None:
    """Accepted, and OperationForbidden at build; back on the first device it builds."""
    with Compilation(identity_model(), capable) as compilation:
        compilation.set_priority(Priority.HIGH)
        compilation.set_device(plain)
        with pytest.raises(OperationForbidden, match="plain_test_v2_1 does not have the capability priority"):
            compilation.build()
        compilation.set_device(capable)
        compilation.build()


@pytest.mark.parametrize("name", ["set_performance_mode", "set_priority"])
def test_value_outside_the_enum(capable: Device, name: str) -> None:
    """Accepted by the setter, as in NNRt, and InvalidParameter at build."""
    with Compilation(identity_model(), capable) as compilation:
        getattr(compilation, name)(17)
        with pytest.raises(InvalidParameter, match=r"is 17; use one of 0 \(NONE\)"):
            compilation.build()


def test_config_reaches_the_backend(capable: Device, capable_daemon: DaemonProcess) -> None:
    """Every option as it was set; an extension given twice is joined with a bar."""
    with Compilation(identity_model(), capable) as compilation:
        compilation.set_performance_mode(PerformanceMode.EXTREME)
        compilation.set_priority(Priority.MEDIUM)
        compilation.enable_float16()
        compilation.add_extension_config("opLayout", b"conv1")
        compilation.add_extension_config("opLayout", b"conv2")
        compilation.add_extension_config("bytes", b"\x00\xff")
        compilation.build()
    expected = "compiled with True EXTREME MEDIUM [('bytes', b'\\x00\\xff'), ('opLayout', b'conv1|conv2')]"
    assert expected in capable_daemon.log()


@pytest.mark.parametrize(("name", "value"), [("", b"value"), ("name", b"")])
def test_empty_extension(device: Device, name: str, value: bytes) -> None:
    """Neither half may be empty."""
    with Compilation(identity_model(), device) as compilation:
        with pytest.raises(InvalidParameter, match="neither may be empty"):
            compilation.add_extension_config(name, value)
        compilation.build()


def test_transport_failure_leaves_it_buildable(start_daemon: StartDaemon) -> None:
    """Options survive a build that never reached the device."""
    daemon = start_daemon("--backend", "cached")
    with Runtime([daemon.address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.set_priority(Priority.LOW)
        daemon.kill()
        for _ in range(2):
            with pytest.raises(UnavailableDevice):
                compilation.build()
        compilation.add_extension_config("still", b"open")
        again = start_daemon("--backend", "cached", listen=daemon.address)
        compilation.build()
    assert "compiled with False NONE LOW [('still', b'open')]" in again.log()


def test_unsupported_operators_are_all_listed(capable_daemon: DaemonProcess, start_daemon: StartDaemon) -> None:
    """OperationFailed names every node the device doesn't run, each with its reason."""
    picky = start_daemon("--backend", "picky")
    model = Model()
    x = model.input((1,))
    y = model.apply(OperationType.SUB, x, ONE, name="first")
    z = model.apply(OperationType.ADD, y, ONE, name="second")
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.SUB, z, ONE, name="third")])
    model.finish()
    with Runtime([picky.address]) as runtime:
        compilation = Compilation(model, runtime.device())
        answers = [answer.supported for answer in model.supported_operations(runtime.device())]
        assert answers == [False, True, False]
        with pytest.raises(OperationFailed) as refused:
            compilation.build()
    said = str(refused.value)
    for name in ("first", "third"):
        assert f"'{name}': the picky backend runs no SUB" in said
    assert "second" not in said


def test_a_model_that_is_taken_is_sent_once(device: Device) -> None:
    """A client asks what is supported only where a model was refused."""
    model = identity_model()
    with Compilation(model, device) as compilation:
        compilation.build()
        assert compilation.report is not None
        sent = device_pb2.PrepareModelRequest(
            model=wire.model_message(parts_of(model).graph),
            config=wire.model_config_message(ModelConfig()),
            request_id=bytes(16),
        )
        assert compilation.report.sent_bytes == sent.ByteSize()


@pytest.mark.parametrize("takes_several", [True, False], ids=["together", "one by one"])
def test_few_weights_are_sent_unasked(shared_daemon: DaemonProcess, takes_several: bool) -> None:
    """To a daemon that can't have them, in one message; in messages of their own to one that reads only such."""
    model = Model()
    x = y = model.input((1024,), name="x")
    for number in range(3):
        y = model.apply(OperationType.ADD, y, np.full(1024, number, np.float32))
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    with Runtime([shared_daemon.address]) as runtime:
        device = runtime.device()
        if not takes_several:
            session_of(device).welcome.features.remove("chunks")
        with Compilation(model, device) as compilation:
            compilation.build()
            assert compilation.report is not None
            sent_bytes = compilation.report.sent_bytes
    request = device_pb2.PrepareModelRequest(
        model=wire.model_message(parts_of(model).graph),
        config=wire.model_config_message(ModelConfig()),
        request_id=bytes(16),
    )
    chunks = [
        device_pb2.ConstantChunk(sha256=constant.sha256, size_bytes=4096, data=bytes(4096))
        for constant in parts_of(model).graph.constants.values()
    ]
    together = device_pb2.ConstantChunk(more=chunks[1:])
    together.MergeFrom(chunks[0])
    messages = [together] if takes_several else chunks
    assert sent_bytes == sum(message.ByteSize() for message in (request, *messages))


@pytest.mark.parametrize("shares_memory", [True, False])
@pytest.mark.parametrize("session_bytes", [256 << 20, 15_100_000], ids=["roomy", "narrow"])
def test_many_weights(start_daemon: StartDaemon, shares_memory: bool, session_bytes: int) -> None:
    """They arrive as they are, through memory that both have or over gRPC, which needs no room beside them."""
    daemon = start_daemon("--session-bytes", str(session_bytes))
    weights = np.random.default_rng(3).standard_normal((3, 750_000), np.float32)
    model = Model()
    x = y = model.input((1,), name="x")
    for row in weights:
        y = model.apply(OperationType.ADD, y, row)
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.REDUCE_MAX, y, [0])])
    model.finish()
    with (
        Runtime([daemon.address], Settings(share_memory=shares_memory)) as runtime,
        Compilation(model, runtime.device()) as compilation,
    ):
        compilation.build()
        assert compilation.report is not None
        assert compilation.report.sent_bytes > weights.nbytes
        with Executor(compilation) as executor:
            (largest,) = executor.run_sync([np.ones(1, np.float32)])
    np.testing.assert_allclose(largest, 1 + weights.sum(axis=0).max(), rtol=1e-5)


def test_supported_operations_of_an_unfinished_model(device: Device) -> None:
    """It must be finished first."""
    with pytest.raises(OperationForbidden):
        Model().supported_operations(device)


def test_model_and_compilation_may_go(device: Device) -> None:
    """An executor needs neither; what is done to the model after a build changes nothing."""
    model = identity_model()
    compilation = Compilation(model, device)
    compilation.build()
    with Executor(compilation) as executor:
        compilation.close()
        compilation.close()
        with pytest.raises(NnrtError):
            model.add_tensor(TensorDesc())
        del model, compilation
        np.testing.assert_array_equal(executor.run_sync([ONE]), [ONE])


def uploads(daemon: DaemonProcess) -> int:
    """How many uploads the daemon, started with --verbose, has taken."""
    return daemon.log().count("NnrtDevice/UploadConstants from")


def test_second_build_of_a_model_uploads_nothing(start_daemon: StartDaemon) -> None:
    """In one session constants travel once, also for another model that has them, and after a release."""
    daemon = start_daemon("--verbose")
    model = weighted_model(1 << 18)
    with Runtime([daemon.address]) as runtime:
        for build in range(3):
            with Compilation(model, runtime.device()) as compilation:
                progress = Mock()
                compilation.build(progress)
                stages = [stage for (stage, fraction), _ in progress.call_args_list]
                assert ("uploading" in stages) == (build == 0)
                assert uploads(daemon) == 1
        with Compilation(weighted_model(1 << 18), runtime.device()) as same_weights:
            same_weights.build()
        assert uploads(daemon) == 1
        with Compilation(weighted_model(1 << 18, seed=1), runtime.device()) as other_weights:
            other_weights.build()
        assert uploads(daemon) == 2


def test_upload_goes_on_where_it_broke_off(start_daemon: StartDaemon) -> None:
    """A build that fails in the middle of an upload leaves what has arrived; the next sends the rest."""
    daemon = start_daemon("--verbose")
    model = weighted_model(1 << 24)  # 64 MiB.
    sent: list[float] = []

    def fail_half_way(stage: str, fraction: float) -> None:
        if stage == "uploading" and fraction > 0.5:
            raise KeyError("the application's mistake")

    with Runtime([daemon.address]) as runtime, Compilation(model, runtime.device()) as compilation:
        with pytest.raises(KeyError, match="the application's mistake"):
            compilation.build(fail_half_way)
        compilation.build(lambda stage, fraction: sent.append(fraction) if stage == "uploading" else None)
        assert 1 <= len(sent) < 8
        assert sent[-1] == 1.0


def test_one_model_compiled_many_times_at_once(start_daemon: StartDaemon) -> None:
    """Builds of the same model in one session get in nobody's way."""
    daemon = start_daemon("--verbose")
    model = weighted_model(1 << 21)
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()

        def build_and_run(_: int) -> Any:
            with Compilation(model, device) as compilation:
                compilation.build()
                with Executor(compilation) as executor:
                    return executor.run_sync([ONE])[0]

        with ThreadPoolExecutor(8) as pool:
            first, *others = pool.map(build_and_run, range(8))
        for other in others:
            np.testing.assert_array_equal(other, first)


def test_constants_are_not_shared_between_sessions(start_daemon: StartDaemon) -> None:
    """Knowing a digest is no right to the data: each session uploads its own."""
    daemon = start_daemon("--verbose")
    for session in range(2):
        with (
            Runtime([daemon.address]) as runtime,
            Compilation(weighted_model(1 << 18), runtime.device()) as compilation,
        ):
            compilation.build()
        assert uploads(daemon) == session + 1


@pytest.mark.parametrize("built", [False, True])
def test_closed(device: Device, built: bool) -> None:
    """Sealed for good: nobody would close what a build made."""
    compilation = Compilation(identity_model(), device)
    if built:
        compilation.build()
    compilation.close()
    compilation.close()
    assert not compilation.is_built
    with pytest.raises(InvalidParameter, match="the compilation is closed; make a new one"):
        compilation.build()
    for setter in SETTERS.values():
        with pytest.raises(OperationForbidden, match="the compilation is closed; make a new one"):
            setter(compilation)
    with pytest.raises(OperationForbidden, match="closed"):
        compilation.export_cache()
    with pytest.raises(OperationForbidden, match="closed"):
        Executor(compilation)


WRONG_TYPES: dict[str, Callable[[Device], object]] = {
    "a text as model": lambda device: Compilation("model", device),  # type: ignore[arg-type]
    "no device": lambda device: Compilation(identity_model(), None),  # type: ignore[arg-type]
    "a device's name": lambda device: Compilation(identity_model(), device.name),  # type: ignore[arg-type]
    "no other device": lambda device: Compilation(identity_model(), device).set_device(None),  # type: ignore[arg-type]
    "no offline file": lambda device: Compilation.from_offline_file(None, device),  # type: ignore[arg-type]
    "no offline buffer": lambda device: Compilation.from_offline_buffer(None, device),  # type: ignore[arg-type]
    "no cache": lambda device: Compilation.for_cache(device).import_cache(None),  # type: ignore[arg-type]
    "no directory": lambda device: Compilation.for_cache(device).set_cache(None, 1),  # type: ignore[arg-type]
    "a text as value": lambda device: Compilation.for_cache(device).add_extension_config("name", "1"),  # type: ignore[arg-type]
    "bytes as name": lambda device: Compilation.for_cache(device).add_extension_config(b"name", b"1"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("wrong", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_wrong_types(device: Device, wrong: Callable[[Device], object]) -> None:
    with pytest.raises(InvalidParameter, match="give"):
        wrong(device)
