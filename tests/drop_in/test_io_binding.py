"""IOBinding and OrtValue beside ONNX Runtime's own; and what ours keep on the device."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from daemon_process import DaemonProcess
from observer import Observer
from onnx import parser
from waiting import DEADLINE_S

import nnrt_client.onnxruntime as ours
from drop_in.both_runtimes import Call, require_equal, require_same
from drop_in.conftest import sums
from nnrt_client import InvalidParameter, OutOfMemory, ResidentTensor, UnavailableDevice, Unsupported
from nnrt_client.onnxruntime.placed_model import placed_model

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = np.full((2, 3), 10, np.float32)

# A state that grows by a row in each run, as the cache of a transformer does.
GROWING = """
<ir_version: 9, opset_import: ["": 17]>
growing (float[past, 4] state, float[1, 4] row) => (float[present, 4] next, float[4] total)
<int64[1] axis = {0}>
{
    next = Concat<axis = 0>(state, row)
    total = ReduceSum<keepdims = 0>(next, axis)
}
"""


def bound(module: Any, session: Any, x: Any = X, output: Any = None) -> Any:
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_input("y", module.OrtValue.ortvalue_from_numpy(Y))
    binding.synchronize_inputs()
    if output is None:
        binding.bind_output("s")
    else:
        binding.bind_ortvalue_output("s", output)
    return binding


def ran(module: Any, session: Any, binding: Any) -> list[Any]:
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    values = binding.get_outputs()
    return [
        [array.copy() for array in binding.copy_outputs_to_cpu()],  # ONNX Runtime writes there in the next run.
        [(value.shape(), value.data_type(), value.device_name()) for value in values],
        [value.numpy().copy() for value in values],
    ]


def into_a_value(module: Any, session: Any) -> Any:
    value = module.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    return [ran(module, session, bound(module, session, output=value)), value.numpy()]


def into_an_array(module: Any, session: Any) -> Any:
    """The value is over the array, which has the result then."""
    array = np.zeros((2, 3), np.float32)
    binding = bound(module, session, output=module.OrtValue.ortvalue_from_numpy(array))
    session.run_with_iobinding(binding)
    return array


def by_address(module: Any, session: Any) -> Any:
    target, binding = np.zeros((2, 3), np.float32), session.io_binding()
    for name, array in (("x", X), ("y", Y)):
        binding.bind_input(name, "cpu", 0, np.float32, [2, 3], array.ctypes.data)
    binding.bind_output("s", "cpu", 0, np.float32, [2, 3], target.ctypes.data)
    session.run_with_iobinding(binding)
    return target


def twice(module: Any, session: Any) -> Any:
    """Both outputs, the second time with another input, in the same binding."""
    binding = bound(module, session)
    binding.bind_output("p")
    first = ran(module, session, binding)
    binding.bind_cpu_input("x", X + 1)
    return [first, ran(module, session, binding)]


def cleared(module: Any, session: Any, what: str) -> Any:
    binding = bound(module, session)
    getattr(binding, f"clear_binding_{what}")()
    return ran(module, session, binding)


def unknown_output(module: Any, session: Any) -> Any:
    binding = bound(module, session)
    binding.bind_output("q")
    return ran(module, session, binding)


def of_a_value(module: Any, value: Any) -> list[Any]:
    names = "shape data_type element_type device_name tensor_size_in_bytes has_value is_tensor is_sparse_tensor"
    return [*(getattr(value, name)() for name in [*names.split(), "is_tensor_sequence"]), value.numpy()]


def updated(module: Any, array: Any) -> Any:
    value = module.OrtValue.ortvalue_from_numpy(X.copy())
    value.update_inplace(array)
    return value.numpy()


def is_aliased(module: Any) -> list[Any]:
    """Whether a value is over the array that it was made of, and gives it without a copy."""
    array = X.copy()
    value = module.OrtValue.ortvalue_from_numpy(array)
    array[0, 0] = 9
    other = module.OrtValue.from_dlpack(value)
    return [
        value.numpy()[0, 0] == 9,
        value.data_ptr() == array.ctypes.data,
        np.asarray(value).ctypes.data == array.ctypes.data,
        np.asarray(value, np.float64),
        other.data_ptr() == array.ctypes.data,
        module.OrtValue.from_dlpack(value.__dlpack__()).numpy().copy(),
        np.from_dlpack(value).copy(),
        value.__dlpack_device__(),
    ]


CALLS: dict[str, Call] = {
    "bound": lambda module, s: ran(module, s, bound(module, s)),
    "into a value": into_a_value,
    "into an array": into_an_array,
    "by address": by_address,
    "twice": twice,
    "not contiguous": lambda module, s: ran(module, s, bound(module, s, np.asfortranarray(X))),
    "no inputs": lambda module, s: cleared(module, s, "inputs"),
    "no outputs": lambda module, s: cleared(module, s, "outputs"),
    "nothing has run": lambda _, s: s.io_binding().get_outputs(),
    "unknown input": lambda _, s: s.io_binding().bind_cpu_input("q", X),
    "unknown output": unknown_output,
    "double": lambda module, s: ran(module, s, bound(module, s, X.astype(np.float64))),
    "rank": lambda module, s: ran(module, s, bound(module, s, X[0])),
    "rows that do not fit": lambda module, s: ran(module, s, bound(module, s, np.ones((5, 3), np.float32))),
    "a value that does not fit": lambda module, s: ran(
        module,
        s,
        bound(module, s, output=module.OrtValue.ortvalue_from_shape_and_type([5, 3], np.float32)),
    ),
    "a value": lambda module, _: of_a_value(module, module.OrtValue.ortvalue_from_numpy(X)),
    "a value of a type": lambda module, _: of_a_value(
        module, module.OrtValue.ortvalue_from_numpy_with_onnx_type(X, onnx.TensorProto.FLOAT)
    ),
    "a new value": lambda module, _: module.OrtValue.ortvalue_from_shape_and_type([2, 3], np.int64).shape(),
    "by ONNX's number": lambda module, _: module.OrtValue.ortvalue_from_shape_and_type([2], 11).data_type(),
    "an empty value": lambda module, _: of_a_value(
        module, module.OrtValue.ortvalue_from_numpy(np.zeros((1, 0, 2), np.float32))
    ),
    "updated": lambda module, _: updated(module, X + 1),
    "updated by too many": lambda module, _: updated(module, np.zeros((4, 3), np.float32)),
    "over memory": lambda module, _: is_aliased(module),
    "DLPack of booleans": lambda module, _: module.OrtValue.from_dlpack(np.array([True, False])).numpy(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_the_same_call(call: Call, theirs: Any, mine: ours.InferenceSession) -> None:
    require_same(call, theirs, mine)


# ---- on the device


@pytest.fixture
def growing() -> Iterator[ours.InferenceSession]:
    with ours.InferenceSession(parser.parse_model(GROWING).SerializeToString()) as session:
        yield session


def test_values_stay_on_the_device() -> None:
    """What one session gives another reads there; in two places of memory, however often they run."""
    source = sums().SerializeToString()
    with ours.InferenceSession(source) as first, ours.InferenceSession(source) as second:
        value = ours.OrtValue.ortvalue_from_numpy(X, "nnrt")
        assert (value.device_name(), value.shape(), value.data_type()) == ("nnrt", [2, 3], "tensor(float)")
        require_equal(value.numpy(), X)
        for _ in range(6):
            for session in (first, second):
                binding = session.io_binding()
                binding.bind_ortvalue_input("x", value)
                binding.bind_cpu_input("y", Y)
                binding.bind_output("s", "nnrt")
                session.run_with_iobinding(binding)
                (value,) = binding.get_outputs()
                assert value.device_name() == "nnrt"
        require_equal(value.numpy(), X + 12 * Y)
        assert [len(placed_model(session).memory.tensors) for session in (first, second)] == [1, 1]
        require_equal(second.run(["p"], {"x": value, "y": Y}), [(X + 12 * Y) * np.array([1, 2, 3], np.float32)])
        value.update_inplace(X)
        require_equal(value.numpy(), X)
        with pytest.raises(RuntimeError, match="does not match the size"):
            value.update_inplace(X[:1])
        with pytest.raises(InvalidParameter, match="data type"):
            second.run(["p"], {"x": ours.OrtValue.ortvalue_from_numpy(X.astype(np.int64), "nnrt"), "y": Y})


def test_a_value_takes_the_device_of_its_session(
    onnxruntime_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which NNRT_DEVICES need not name: of the first session that reads or writes it."""
    monkeypatch.delenv("NNRT_DEVICES")
    early = ours.OrtValue.ortvalue_from_numpy(X, "nnrt")
    with pytest.raises(Unsupported, match="take numpy"):
        early.__dlpack__()
    early.update_inplace(X + 1)
    providers = [("NnrtExecutionProvider", {"device": onnxruntime_daemon.address})]
    with (
        ours.InferenceSession(sums().SerializeToString(), providers=providers) as session,
        Observer(onnxruntime_daemon.address) as observer,
    ):
        before = observer.state().held_bytes
        late, target = (ours.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "nnrt") for _ in range(2))
        late.update_inplace(Y)
        assert [value.device_name() for value in (early, late)] == ["nnrt", "nnrt"]
        binding = session.io_binding()
        binding.bind_input("x", "nnrt", 0, np.float32, [2, 3], early.data_ptr())
        binding.bind_ortvalue_input("y", late)
        binding.bind_ortvalue_output("s", target)
        session.run_with_iobinding(binding)
        observer.wait_for(lambda state: state.held_bytes >= before + 3 * X.nbytes)
        require_equal(target.numpy(), X + 1 + Y)
        require_equal(session.run(["s"], {"x": early, "y": target}), [2 * X + 2 + Y])
        early.update_inplace(X)
        require_equal(early.numpy(), X)
    with pytest.raises(RuntimeError, match="device_id is 1; 0 devices of NNRT_DEVICES answer"):
        ours.OrtValue.ortvalue_from_numpy(X, "nnrt", 1)


def in_threads(count: int, call: Callable[[], Any]) -> list[Any]:
    """What each of so many threads gives that call at the same time."""
    together = threading.Barrier(count)

    def one(_: int) -> Any:
        together.wait(DEADLINE_S)
        return call()

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def test_threads_that_use_a_value_first(mine: ours.InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one of them moves it, and the others read it when its elements are on the device."""
    value, write = ours.OrtValue.ortvalue_from_numpy(X, "nnrt"), ResidentTensor.write
    moved = []

    def written(self: ResidentTensor, array: Any) -> None:
        moved.append(self)
        require_equal(value.numpy(), X)
        write(self, array)

    monkeypatch.setattr(ResidentTensor, "write", written)
    for result in in_threads(4, lambda: mine.run(["s"], {"x": value, "y": Y})):
        require_equal(result, [X + Y])
    assert len(moved) == 1


def test_a_value_that_could_not_be_moved(mine: ours.InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is still here, with its elements; the next run moves it."""

    def full(*_: object) -> None:
        raise OutOfMemory("the session has no room for it")

    value = ours.OrtValue.ortvalue_from_numpy(X, "nnrt")
    with monkeypatch.context() as patch:
        patch.setattr(ResidentTensor, "write", full)
        with pytest.raises(OutOfMemory, match="no room"):
            mine.run(["s"], {"x": value, "y": Y})
    require_equal(value.numpy(), X)
    value.update_inplace(X + 1)
    require_equal(mine.run(["s"], {"x": value, "y": Y}), [X + 1 + Y])


def test_a_value_for_an_output_sends_no_zeros(mine: ours.InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one that runs read does, or that has been written."""
    target, state = (ours.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "nnrt") for _ in range(2))
    binding = bound(ours, mine, output=target)
    with monkeypatch.context() as patch:
        patch.delattr(ResidentTensor, "write")
        mine.run_with_iobinding(binding)
    require_equal(target.numpy(), X + Y)
    require_equal(mine.run(["s"], {"x": state, "y": Y}), [Y])


def test_a_state_grows_on_the_device(growing: ours.InferenceSession) -> None:
    """Its memory is exchanged for larger as it grows, and is used again otherwise."""
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((24, 1, 4), np.float32)
    state = ours.OrtValue.ortvalue_from_numpy(np.zeros((0, 4), np.float32))
    made = []
    for row in rows:
        binding = growing.io_binding()
        binding.bind_ortvalue_input("state", state)
        binding.bind_cpu_input("row", row)
        binding.bind_output("next", "nnrt")
        binding.bind_output("total")
        growing.run_with_iobinding(binding)
        state, total = binding.get_outputs()
        made.append(len(placed_model(growing).memory.tensors))
    assert (state.device_name(), state.shape(), total.device_name()) == ("nnrt", [24, 4], "cpu")
    require_equal(state.numpy(), rows[:, 0])
    np.testing.assert_allclose(total.numpy(), rows.sum((0, 1)), rtol=1e-4, atol=1e-5)
    assert made[-1] <= 3, made  # One is read, one written, and one was of the binding before.


def test_a_device_without_room_for_a_larger_state(
    growing: ours.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a run fails, and spoils none of those after it."""
    binding = growing.io_binding()

    def total(rows: int) -> float:
        binding.bind_cpu_input("state", np.ones((rows, 4), np.float32))
        binding.bind_cpu_input("row", np.ones((1, 4), np.float32))
        binding.bind_output("next", "nnrt")
        binding.bind_output("total")
        growing.run_with_iobinding(binding)
        (_, sums) = binding.copy_outputs_to_cpu()
        binding.clear_binding_outputs()
        return float(sums[0])

    def full(*_: object) -> None:
        raise OutOfMemory("the session has no room for it")

    assert total(1) == 2
    with monkeypatch.context() as patch:
        patch.setattr(placed_model(growing).memory, "allocate", full)
        with pytest.raises(RuntimeError, match="no room"):
            total(20)
    assert total(20) == 21
    assert total(1) == 2


def test_a_value_that_is_read_is_kept(mine: ours.InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is not used again while a run is under way that nobody waits for."""
    future: Future[Any] = Future()
    monkeypatch.setattr(placed_model(mine), "start", lambda *_: future)
    value = ours.OrtValue.ortvalue_from_numpy(X, "nnrt")
    gone = weakref.ref(value)
    ended: list[str] = []
    mine.run_async(["s"], {"x": value, "y": Y}, lambda _, __, error: ended.append(error), None)
    del value
    gc.collect()
    assert gone() is not None
    future.set_result({"s": X})
    assert ended == [""]
    assert gone() is None


def test_a_state_with_room(growing: ours.InferenceSession) -> None:
    """Two values that the session has made, each read and written in turn: nothing is made in a run."""
    read, written = (growing.create_ortvalue_from_shape_and_type([8, 4], np.float32) for _ in range(2))
    growing.run(["total"], {"state": np.zeros((0, 4), np.float32), "row": X[:1, :1] + np.ones((1, 4), np.float32)})
    read.update_inplace(np.ones((8, 4), np.float32))
    binding = growing.io_binding()
    binding.bind_ortvalue_input("state", read)
    binding.bind_cpu_input("row", np.ones((1, 4), np.float32))
    binding.bind_ortvalue_output("next", written)
    with pytest.raises(RuntimeError, match=r"its memory has 128 bytes; the result \[9, 4\] has 144"):
        growing.run_with_iobinding(binding)
    require_equal(read.numpy(), np.ones((8, 4), np.float32))


def test_addresses_on_the_device(mine: ours.InferenceSession, onnxruntime_daemon: DaemonProcess) -> None:
    with ours.InferenceSession(sums().SerializeToString()) as session:
        source = ours.OrtValue.ortvalue_from_numpy(X, onnxruntime_daemon.address)
        target = session.create_ortvalue_from_shape_and_type([2, 3], np.float32, "nnrt")
        binding = session.io_binding()
        binding.bind_input("x", "nnrt", 0, np.float32, [2, 3], source.data_ptr())
        binding.bind_cpu_input("y", Y)
        binding.bind_output("s", "nnrt", 0, np.float32, [2, 3], target.data_ptr())
        session.run_with_iobinding(binding)
        require_equal(target.numpy(), X + Y)
        with pytest.raises(RuntimeError, match=r"is no data_ptr\(\)"):
            binding.bind_input("x", "nnrt", 0, np.float32, [2, 3], X.ctypes.data)
        with pytest.raises(Unsupported, match="take numpy"):
            source.__dlpack__()


def test_a_value_outlives_its_name_and_not_its_session() -> None:
    session = ours.InferenceSession(sums().SerializeToString())
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("y", Y)
    binding.bind_output("s", "nnrt")
    session.run_with_iobinding(binding)
    (value,) = binding.get_outputs()
    closed = session.close
    del session, binding
    gc.collect()
    require_equal(value.numpy(), X + Y)
    closed()
    with pytest.raises((UnavailableDevice, InvalidParameter)):
        value.numpy()


@pytest.mark.parametrize("device", ["cuda", "dml"])
def test_devices_that_there_are_not(device: str, mine: ours.InferenceSession) -> None:
    for make in (
        lambda: ours.OrtValue.ortvalue_from_numpy(X, device, 0),
        lambda: mine.io_binding().bind_output("s", device),
        lambda: mine.create_ortvalue_from_shape_and_type([1], np.float32, device),
    ):
        with pytest.raises(RuntimeError, match=f"Unsupported device type: {device}; use 'cpu'"):
            make()
    with pytest.raises(RuntimeError, match="device_id is 3; 1 devices of NNRT_DEVICES answer"):
        ours.OrtValue.ortvalue_from_numpy(X, "nnrt", 3)
