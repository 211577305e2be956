"""Sessions: from a model file to results in one step, with an automatic cache."""

import asyncio
import importlib
import logging
import sys
import weakref
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import convolution_model, identity_model, weighted_model
from waiting import until

from nnrt_client import (
    Compilation,
    DataType,
    Executor,
    InvalidParameter,
    Model,
    OperationFailed,
    OperationForbidden,
    OperationType,
    Origin,
    Priority,
    Runtime,
    Settings,
    Tensor,
    TensorDesc,
    UnavailableDevice,
    load,
    wait_until_cached,
)
from nnrt_client.model.model import model_of, parts_of
from nnrt_hdi.files.store_directory import SUFFIX

IMAGES = np.random.default_rng(5).standard_normal((2, 8, 8, 1), np.float32)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NNRT_DEVICES", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def computed(model: Model, address: str) -> list[np.ndarray]:
    """Compute the expected outputs with a Compilation and an Executor."""
    with Runtime([address]) as runtime, Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            return executor.run_sync([IMAGES])


@pytest.mark.parametrize("cache", [False, True], ids=["without a cache", "with one"])
def test_the_weights_are_not_kept_here(onnxruntime_daemon: DaemonProcess, cache: bool) -> None:
    """The client frees the weights when the device has the model and the cache is written."""
    model = weighted_model(4096)
    kept = weakref.ref(model)
    with load(model, onnxruntime_daemon.address, cache=cache):
        del model
        until(lambda: kept() is None)


def caches(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "nnrt" / "models").rglob(f"*{SUFFIX}"))


def origin(model: object, address: str, **options: object) -> Origin:
    with load(model, address, **options) as session:  # type: ignore[arg-type]
        wait_until_cached()
        return session.report.origin


# ---- running


def test_runs_by_name(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    model = convolution_model()
    model.save(tmp_path / "model")
    with load(tmp_path / "model", shared_daemon.address) as session:
        assert session.inputs == (TensorDesc(DataType.FLOAT32, (-1, 8, 8, 1), name="image"),)
        (name,) = (desc.name for desc in session.outputs)
        outputs = session.run({"image": IMAGES})
        assert list(outputs) == [name]
        np.testing.assert_array_equal(outputs[name], computed(model, shared_daemon.address)[0])
        np.testing.assert_array_equal(session.submit([IMAGES]).result()[name], outputs[name])
        assert session.device.name == "reference_nnrt_v2_1"
        assert repr(session) == f"<ModelSession on reference_nnrt_v2_1: image -> {name}>"


def test_any_source(shared_daemon: DaemonProcess, restoring_daemon: DaemonProcess, tmp_path: Path) -> None:
    """A path, bytes or a model object, compiled or not, give the same results."""
    model = convolution_model()
    model.save(tmp_path / "model")
    with Runtime([restoring_daemon.address]) as runtime, Compilation(model, runtime.device()) as compilation:
        compilation.build()
        offline = compilation.export_cache()
    (expected,) = computed(model, restoring_daemon.address)
    for source in (tmp_path / "model", str(tmp_path / "model"), (tmp_path / "model").read_bytes(), model, offline):
        with load(source, restoring_daemon.address) as session:
            (output,) = session.run({"image": IMAGES}).values()
            np.testing.assert_array_equal(output, expected)
    (tmp_path / "offline").write_bytes(offline)
    for source, place in ((offline, ""), (tmp_path / "offline", f" '{tmp_path}/offline'")):
        with pytest.raises(
            OperationFailed, match=rf"offline model{place}: it was made for restoring.*\(nnrt compile\)"
        ):
            load(source, shared_daemon.address)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("shape", r"load\(\) has no option 'shape'; did you mean 'shapes'\?"),
        ("setings", "did you mean 'settings'"),
        ("foo", r"load\(\) has no option 'foo'; there are device, .*, batching, pin$"),
    ],
)
def test_options_that_do_not_exist(option: str, said: str) -> None:
    options: dict[str, Any] = {option: None}
    with pytest.raises(TypeError, match=said):
        load(identity_model(), "127.0.0.1:1", **options)


def test_the_package_ray_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "nnrt_client.ray", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"nnrt_client.ray needs the package ray; pip install 'nnrt\[ray\]'"):
        importlib.import_module("nnrt_client.ray")


def test_numbers_become_what_the_model_takes(shared_daemon: DaemonProcess) -> None:
    """Lists and scalars are converted; an array of another type is an error."""
    with load(identity_model(DataType.INT16), shared_daemon.address) as session:
        (name,) = (desc.name for desc in session.outputs)
        assert session.run({"x": [1, 2, 3]})[name].tolist() == [1, 2, 3]
        with pytest.raises(InvalidParameter, match=r"input 0 'x': it is int64\[1\]"):
            session.run({"x": np.array([1])})
        with pytest.raises(InvalidParameter, match="input 'x'"):
            session.run({"x": [1 << 20]})
        with pytest.raises(InvalidParameter, match=r"inputs are named \['y'\]; the model's are \['x'\]"):
            session.run({"y": [1]})
        with pytest.raises(InvalidParameter, match="2 inputs were given; the model takes 1"):
            session.run([[1], [2]])
        with pytest.raises(InvalidParameter, match=r"inputs are one array, int16\[1\]; give a sequence of arrays"):
            session.run(np.array([1], np.int16))  # type: ignore[arg-type]
        with pytest.raises(InvalidParameter, match="inputs are None; give a sequence of arrays"):
            session.submit(None)  # type: ignore[arg-type]
        with Tensor(session.device, TensorDesc(DataType.INT16, [2])) as tensor:
            np.frombuffer(tensor.data_buffer, np.int16)[:] = 7
            assert session.run([tensor])[name].tolist() == [7, 7]


def test_names_are_different(shared_daemon: DaemonProcess) -> None:
    """Each input and output can be addressed by name, even if the model's names are missing or not unique."""
    model = Model()
    tensors = [model.input((1,)) for _ in range(4)]
    y = model.apply(OperationType.ADD, tensors[0], tensors[1])
    z = model.apply(OperationType.SUB, tensors[2], tensors[3])
    model.specify_inputs_and_outputs(tensors, [y, z])
    model.finish()
    named = zip(parts_of(model).graph.tensors, ("", "x", "x", "input0", "y", "y"), strict=True)
    graph = parts_of(model).graph.with_tensors([replace(spec, name=name) for spec, name in named])
    with load(model_of(graph), shared_daemon.address) as session:
        names = [desc.name for desc in session.inputs]
        assert names == ["input0#", "x", "x#2", "input0"]
        outputs = session.run({name: [float(10**at)] for at, name in enumerate(names)})
        assert {name: output.tolist() for name, output in outputs.items()} == {"y": [11], "y#1": [-900]}
        assert list(outputs) == [desc.name for desc in session.outputs]
        session.inputs[0].name = "mine"
        assert [desc.name for desc in session.inputs] == names


def test_shapes_settle_dimensions(shared_daemon: DaemonProcess) -> None:
    with load(convolution_model(), shared_daemon.address, shapes={"image": (2, 8, 8, 1)}) as session:
        assert session.inputs[0].shape == (2, 8, 8, 1)
        assert session.outputs[0].shape == (2, 10)
        with pytest.raises(InvalidParameter, match="the model takes"):
            session.run({"image": IMAGES[:1]})
    with pytest.raises(InvalidParameter, match="there is no input 'x'"):
        load(convolution_model(), shared_daemon.address, shapes={"x": (1,)})


def test_constants_freeze_inputs(shared_daemon: DaemonProcess) -> None:
    model = Model()
    x, factor = model.input((-1,), name="x"), model.input((1,), name="factor")
    model.specify_inputs_and_outputs([x, factor], [model.apply(OperationType.MUL, x, factor)])
    model.finish()
    for number in (2, 3):
        with load(model, shared_daemon.address, constants={"factor": number}) as session:
            assert [desc.name for desc in session.inputs] == ["x"]
            (y,) = session.run({"x": [1, 2]}).values()
            assert y.tolist() == [number, 2 * number]
    with pytest.raises(InvalidParameter, match=r"constants names \['y'\]"):
        load(model, shared_daemon.address, constants={"y": 1})


# ---- the device


def test_the_device(
    shared_daemon: DaemonProcess, restoring_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device can be the first of NNRT_DEVICES, a name, an address, an id, or a Device of an own runtime."""
    monkeypatch.setenv("NNRT_DEVICES", f"{restoring_daemon.address},{shared_daemon.address}")
    with Runtime() as runtime:
        first, second = runtime.devices()
        for given, expected in (
            (None, first.name),
            (second.name, second.name),
            (second.address, second.name),
            (second.id, second.name),
            (second, second.name),
        ):
            for own in (runtime, None):
                with load(identity_model(), given, runtime=own) as session:
                    assert session.device.name == expected
        first.status()  # The session must not close this runtime.
    with pytest.raises(OperationFailed, match="no device 'nobody' answers"):
        load(identity_model(), "nobody")
    monkeypatch.delenv("NNRT_DEVICES")
    with pytest.raises(OperationFailed, match="set NNRT_DEVICES"):
        load(identity_model())


def test_options_reach_the_device(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "cached")
    with load(
        identity_model(), daemon.address, float16=True, priority=Priority.HIGH, extensions={"layout": b"x"}
    ) as session:
        assert session.run({"x": [1.0]})
    assert "compiled with True NONE HIGH [('layout', b'x')]" in daemon.log()
    with pytest.raises(UnavailableDevice, match="does not have the capability float16_precision"):
        load(identity_model(), start_daemon("--backend", "plain").address, float16=True)


def test_progress(restoring_daemon: DaemonProcess) -> None:
    seen: list[str] = []
    model = weighted_model(10_000, seed=77)
    load(model, restoring_daemon.address, progress=lambda stage, _: seen.append(stage)).close()
    assert list(dict.fromkeys(seen)) == ["checking", "uploading", "compiling"]


# ---- the cache


def test_the_second_time_it_is_restored(restoring_daemon: DaemonProcess, tmp_path: Path) -> None:
    """The cache is per model and options; the caller can disable it or give another directory."""
    model = convolution_model()
    address = restoring_daemon.address
    assert [origin(model, address) for _ in range(2)] == [Origin.COMPILED, Origin.RESTORED]
    assert origin(convolution_model(seed=1), address) is Origin.COMPILED
    assert [origin(model, address, float16=True) for _ in range(2)] == [Origin.COMPILED, Origin.RESTORED]
    assert [origin(model, address, extensions={"a": b"b"}) for _ in range(2)] == [Origin.COMPILED, Origin.RESTORED]
    assert origin(model, address) is Origin.RESTORED
    assert len(caches(tmp_path)) == 4
    assert origin(model, address, cache=False) is Origin.COMPILED
    own = tmp_path / "own"
    assert [origin(model, address, cache=own) for _ in range(2)] == [Origin.COMPILED, Origin.RESTORED]
    assert len(list(own.rglob(f"*{SUFFIX}"))) == 1


def test_a_damaged_cache_is_replaced(
    restoring_daemon: DaemonProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning, because the directory belongs to the session."""
    origin(convolution_model(), restoring_daemon.address)
    (file,) = caches(tmp_path)
    sound = file.read_bytes()
    for damaged in (b"", sound[:-1], sound[:200] + b"?" + sound[201:], b"something else"):
        file.write_bytes(damaged)
        caplog.clear()
        assert origin(convolution_model(), restoring_daemon.address) is Origin.COMPILED
        assert "is removed and will be compiled again" in caplog.text
        assert origin(convolution_model(), restoring_daemon.address) is Origin.RESTORED


def test_a_cache_of_another_version_of_the_backend_is_not_used(start_daemon: StartDaemon) -> None:
    """As after a device update."""
    origins = []
    for version in ("1", "2", "2"):
        daemon = start_daemon("--backend", "restoring", "--option", f"version={version}")
        origins.append(origin(convolution_model(), daemon.address))
    assert origins == [Origin.COMPILED, Origin.COMPILED, Origin.RESTORED]


def test_it_runs_without_a_cache(
    start_daemon: StartDaemon, restoring_daemon: DaemonProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the directory can't be created, the device has no caches, or writing fails."""
    (tmp_path / "file").write_bytes(b"")
    assert origin(convolution_model(), restoring_daemon.address, cache=tmp_path / "file" / "x") is Origin.COMPILED
    assert "compiled models are not kept" in caplog.text
    assert origin(convolution_model(), start_daemon("--backend", "plain").address) is Origin.COMPILED
    assert caches(tmp_path) == []
    refusing = start_daemon("--backend", "restoring", "--option", "refuse=exporting")
    with caplog.at_level(logging.WARNING):
        assert origin(convolution_model(), refusing.address) is Origin.COMPILED
    assert "the model can be used" in caplog.text


def test_relative_homes_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nnrt_client.model_session.model_cache import cache_directory

    assert cache_directory() == tmp_path / "cache" / "nnrt" / "models"
    for relative in ("cache", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert cache_directory() == tmp_path / ".cache" / "nnrt" / "models"


# ---- the end


def test_death_says_to_load_again(start_daemon: StartDaemon) -> None:
    """A run in flight ends with an error, and later ones fail at once; nothing runs on another device."""
    daemon = start_daemon("--backend", "slow")
    with load(identity_model(), daemon.address) as session:
        future = session.submit({"x": [1.0]})
        daemon.kill()
        with pytest.raises(UnavailableDevice, match="load the model again, there or elsewhere; a pool or on_death="):
            future.result(30)
        for _ in range(2):
            with pytest.raises(UnavailableDevice, match="load the model again"):
                session.run({"x": [1.0]})
            with pytest.raises(UnavailableDevice, match="load the model again"):
                session.submit({"x": [1.0]})


def test_close(shared_daemon: DaemonProcess) -> None:
    session = load(identity_model(), shared_daemon.address)
    session.close()
    session.close()
    with pytest.raises(OperationForbidden, match="the session is closed; load the model again"):
        session.run({"x": [1.0]})
    with pytest.raises(OperationForbidden, match="its runtime is closed"):
        session.device.status()


def test_nothing_is_left_of_a_load_that_fails(start_daemon: StartDaemon) -> None:
    """`load` closes the runtime that it created: `leaves_nothing_behind` would find its threads."""
    daemon = start_daemon("--backend", "restoring", "--option", "refuse=compiling")
    with pytest.raises(OperationFailed, match="refuses compiling"):
        load(identity_model(), daemon.address, settings=Settings(heartbeat_timeout_s=3))


def test_futures_are_cancelled_both_ways(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "slow")
    with load(identity_model(), daemon.address) as session:
        cancelled = session.submit({"x": [1.0]})
        assert cancelled.cancel()
        with pytest.raises(CancelledError):
            cancelled.result()
        ended = session.submit({"x": [1.0]})
    with pytest.raises(OperationFailed, match="the executor was closed"):
        ended.result(30)


def test_asyncio_awaits_a_run(shared_daemon: DaemonProcess) -> None:
    async def run() -> object:
        with load(identity_model(), shared_daemon.address) as session:
            outputs = await asyncio.wrap_future(session.submit({"x": [1.0, 2.0]}))
            return [output.tolist() for output in outputs.values()]

    assert asyncio.run(run()) == [[1.0, 2.0]]
