"""Models in parts, some on the device and some here: the same numbers as ONNX Runtime alone gives."""

import copy
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import cut_models
import numpy as np
import onnx
import pytest
from conftest import StartDaemon
from cut_models import convolved
from daemon_process import DaemonProcess
from hypothesis import given as example
from hypothesis import settings
from hypothesis import strategies as st
from observer import Observer
from onnx import TensorProto, helper
from onnx_models import AnyArray, Graph, run_onnxruntime
from part import examples
from runs_left import runs_left
from shared_memory import held, wait_until_held
from test_torch_networks import EXPORTS, fed
from test_torch_networks import SIZES as EXPORT_SIZES
from typing_extensions import Self

from nnrt_client import DataType, Device, ModelSession, OutputTooSmall, Runtime, Settings, Way, load, wait_until_cached
from nnrt_client.model_session.opened_model import Source
from nnrt_client.model_session.partition.fallback import Fallback
from nnrt_client.model_session.partition.report import PartitionReport, PartReport
from nnrt_client.onnx_import import node_import
from nnrt_client.onnx_import.folding import fold_node
from nnrt_client.onnx_import.operators.operator import OnnxOperator, find_operator
from nnrt_client.session.session import Session
from nnrt_client.tensors.device_buffer import DeviceBuffer
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_client.tensors.tensor import Tensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_client.tracing.choice import use_tracer
from nnrt_client.tracing.tracer import SessionTracer, Site, Tracer
from nnrt_hdi.backend import Origin
from nnrt_hdi.errors import (
    InvalidParameter,
    OperationFailed,
    OperationForbidden,
    TimedOut,
    UnavailableDevice,
    Unsupported,
)

CONTEXT: ContextVar[str] = ContextVar("CONTEXT")
# Times to turn in the model `loop_in_the_middle`, in the client.
FOR_EVER = np.array(2**40, np.int64)
SIZES = {"n": 3, "h": 9, "w": 7}


def feeds(model: onnx.ModelProto, seed: int, **sizes: int) -> dict[str, AnyArray]:
    rng = np.random.default_rng(seed)
    given: dict[str, AnyArray] = {}
    for info in model.graph.input:
        type_ = info.type.tensor_type
        shape = [(SIZES | sizes)[dim.dim_param] if dim.dim_param else dim.dim_value for dim in type_.shape.dim]
        is_float = type_.elem_type == onnx.TensorProto.FLOAT
        given[info.name] = rng.standard_normal(shape, np.float32) if is_float else np.array(3, np.int64)
    return given


def cut(source: Source, device: str | Device, fallback: str | Fallback | None = "cpu", **options: Any) -> ModelSession:
    """Load a model as operators, or in parts; ONNX Runtime's daemon would take the file as it is."""
    return load(source, device, ways="operators", fallback=fallback, **{"cache": False, **options})


def parts_of(session: ModelSession) -> Sequence[PartReport]:
    report = session.report
    assert isinstance(report, PartitionReport)
    return report.parts


def require_same(outputs: dict[str, AnyArray], model: onnx.ModelProto, given: dict[str, AnyArray]) -> None:
    for (name, output), expected in zip(outputs.items(), run_onnxruntime(model, given), strict=True):
        assert output.dtype == expected.dtype, name
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("make", cut_models.MODELS, ids=[make.__name__ for make in cut_models.MODELS])
def test_equal_to_onnxruntime(each_daemon: DaemonProcess, make: Callable[[], onnx.ModelProto]) -> None:
    model = make()
    with cut(model.SerializeToString(), each_daemon.address) as session:
        for seed, size in enumerate((3, 1, 5)):
            given = feeds(model, seed, n=size)
            require_same(session.run(given), model, given)
        assert len(parts_of(session)) > 1
        several = [feeds(model, seed) for seed in range(8)]
        for given, future in [(given, session.submit(given)) for given in several]:
            require_same(future.result(60), model, given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("detector-torchscript", "Sigmoid"),
        ("lstm-torchscript", "LSTM"),
        ("quantized_cnn-dynamo", "QuantizeLinear"),
        ("transformer-torchscript", "Shape"),
        ("transformer-dynamo", "Softmax"),
    ],
)
def test_exports_without_an_operator(
    onnxruntime_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch, name: str, operator: str
) -> None:
    """Torch's exports in many parts, as if NNRt lacked an operator."""

    def known(domain: str, asked: str, opset: int) -> OnnxOperator | None:
        return None if asked == operator else find_operator(domain, asked, opset)

    monkeypatch.setattr(node_import, "find_operator", known)
    monkeypatch.setattr(node_import, "schema_function", lambda *_: None)
    monkeypatch.setattr(
        node_import, "fold_node", lambda node, *rest: None if node.op_type == operator else fold_node(node, *rest)
    )
    path = EXPORTS / f"{name}.onnx"
    model = onnx.load(path)
    step = 0.011 if name.startswith("quantized") else 0  # Where a half is rounded the other way.
    with cut(path, onnxruntime_daemon.address, fallback=Fallback(smallest_part=1)) as session:
        assert len(parts_of(session)) > 4
        for sizes in EXPORT_SIZES[name.partition("-")[0]]:
            given = fed(model, sizes)
            for mine, theirs in zip(session.run(given).values(), run_onnxruntime(model, given), strict=True):
                assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4 + step)


def test_parts_run_on_behalf_of_others(shared_daemon: DaemonProcess) -> None:
    """Those on the device count for the identity that the run is for."""
    model = cut_models.of_another_domain()
    with cut(model.SerializeToString(), shared_daemon.address) as session:
        session.run(feeds(model, 1), on_behalf_of="caller-of-parts")
        counted = {each.identity: each for each in session.device.counters().identities}
    assert counted["caller-of-parts"].runs == {"done": 2}


def test_behind_an_operator_of_another_domain(shared_daemon: DaemonProcess) -> None:
    """The device runs what comes behind it, too."""
    model = cut_models.of_another_domain()
    with cut(model.SerializeToString(), shared_daemon.address) as session:
        assert [list(part.operators) for part in parts_of(session)] == [
            ["MatMul", "Add"],
            ["com.microsoft.Inverse"],
            ["MatMul"],
        ]


def test_what_only_the_device_reads_stays_there(each_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in one buffer of its size, which later runs use again; a larger run needs a larger one. When the session is
    closed nothing is left."""
    model, taken = cut_models.excitation(), []

    class Counted(DeviceBuffer):
        def __init__(self, session: Session, room_bytes: int) -> None:
            taken.append(room_bytes)
            super().__init__(session, room_bytes)

    monkeypatch.setattr("nnrt_client.tensors.resident_tensor.DeviceBuffer", Counted)
    with Observer(each_daemon.address) as observer:
        before = observer.state().held_bytes
        with cut(model.SerializeToString(), each_daemon.address) as session:
            (first, _, last) = parts_of(session)
            for size in (2, 2, 1, 3, 3):
                given = feeds(model, size, n=size)
                require_same(session.run(given), model, given)
            assert taken == [2 * 4 * 4 * 32 * 32, 3 * 4 * 4 * 32 * 32]
            assert set(first.outputs) & set(last.inputs)
        observer.wait_for(lambda state: state.held_bytes == before)


def test_what_the_device_reads_is_shared_with_it(each_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime writes it into memory that runs use again, where the device reads it."""
    model, taken = cut_models.diamond(), []

    class Counted(Tensor):
        @classmethod
        def with_size(cls, device: Device, desc: TensorDesc, size_bytes: int) -> Self:
            taken.append(size_bytes)
            return super().with_size(device, desc, size_bytes)

    monkeypatch.setattr("nnrt_client.model_session.partition.build.Tensor", Counted)
    with cut(model.SerializeToString(), each_daemon.address) as session:
        for size in (2, 2, 1, 3, 3):
            given = feeds(model, size, n=size)
            require_same(session.run(given), model, given)
    assert taken == [2 * 4 * 16 * 16 * 4, 3 * 4 * 16 * 16 * 4]


def test_dimensions_that_are_not_what_their_names_say(each_daemon: DaemonProcess) -> None:
    """The file says that as many rows are found as there are, but there are more, or fewer: what is kept for what is
    made of them is too small, or of another shape."""
    graph = Graph()
    rows = graph.op("MatMul", graph.input("x", ["n", 8]), graph.constant(cut_models.weights(8, 8)))
    found = graph.op("NonZero", graph.op("Greater", rows, graph.constant(np.array(0, np.float32))))
    (index, _) = graph.op("Split", found, outputs=2, axis=0, num_outputs=2)
    flat = graph.op("Reshape", index, graph.constant(np.array([-1], np.int64)))
    chosen = graph.op("MatMul", graph.op("Gather", rows, flat), graph.constant(cut_models.weights(8, 8)))
    strength = graph.op("Acos", graph.op("Tanh", graph.op("ReduceMean", chosen)))
    model = graph.model(graph.op("MatMul", graph.op("Mul", chosen, strength), graph.constant(cut_models.weights(8, 4))))
    wrong = copy.deepcopy(model)
    wrong.graph.value_info.append(helper.make_tensor_value_info(found, TensorProto.INT64, [2, "n"]))
    wrong.graph.value_info.append(helper.make_tensor_value_info(chosen, TensorProto.FLOAT, ["n", 8]))
    with cut(wrong.SerializeToString(), each_daemon.address) as session:
        for size in (600, 1, 600):
            given = feeds(model, size, n=size)
            assert len(run_onnxruntime(model, given)[0]) != size
            require_same(session.run(given), model, given)


def test_the_report(each_daemon: DaemonProcess) -> None:
    """Which operators run where, why, and what crosses in each run: by hand, 1 x 4 x 8 x 8 floats of 4 bytes."""
    graph = Graph()
    x = convolved(graph, graph.input("x", [1, 4, 8, 8]))
    model = graph.model(convolved(graph, cut_models.strange(graph, x)))
    with cut(model.SerializeToString(), each_daemon.address) as session:
        report = session.report
        assert isinstance(report, PartitionReport)
        first, second, third = report.parts
        assert (first.device, second.device, third.device) == (session.device.name, None, session.device.name)
        assert first.operators == {"Conv": 1, "Tanh": 1, "Mul": 1}
        assert second.operators == {"Acos": 1}
        assert (first.crossing_bytes, second.crossing_bytes, third.crossing_bytes) == (2048, 0, 2048)
        assert second.inputs == first.outputs
        (reason,) = second.reasons
        assert "Acos node" in reason
        assert all(text in str(report) for text in ("3 parts", session.device.name, "in the client: Acos", reason))


def test_small_parts_are_not_worth_the_trip(shared_daemon: DaemonProcess) -> None:
    """Seven light operators stay here, eight don't, nor fewer where the caller says so; one convolution never does."""
    graph = Graph()
    x = cut_models.strange(graph, convolved(graph, graph.input("x", ["n", 4, 8, 8])))
    x = graph.op("Transpose", *[chain(graph, x, 6)], perm=[0, 2, 3, 1])
    small = graph.model(x)
    graph = Graph()
    large = graph.model(chain(graph, cut_models.strange(graph, convolved(graph, graph.input("x", [1, 4, 8, 8]))), 8))
    for model, fallback, expected in ((small, "cpu", 2), (small, Fallback(smallest_part=7), 3), (large, "cpu", 3)):
        with cut(model.SerializeToString(), shared_daemon.address, fallback=fallback) as session:
            assert len(parts_of(session)) == expected
            given = feeds(model, 1)
            require_same(session.run(given), model, given)
    graph = Graph()
    light = graph.model(cut_models.strange(graph, chain(graph, graph.input("x", [1, 4, 8, 8]), 3)))
    with pytest.raises(
        Unsupported, match=r"(?s)no part of it that is worth the trip:.*it has 5 such operators, and smallest_part is 8"
    ):
        cut(light.SerializeToString(), shared_daemon.address)


def chain(graph: Graph, x: str, length: int) -> str:
    for _ in range(length):
        x = graph.op("Sigmoid", x)
    return x


def test_off_unless_it_is_asked_for(shared_daemon: DaemonProcess) -> None:
    data = cut_models.diamond().SerializeToString()
    with pytest.raises(Unsupported, match="Acos"):
        load(data, shared_daemon.address, cache=False)
    with pytest.raises(InvalidParameter, match='use "cpu"'):
        cut(data, shared_daemon.address, fallback="gpu")
    with pytest.raises(InvalidParameter, match="smallest_part is 0"):
        Fallback(smallest_part=0)


def test_it_comes_last(onnxruntime_daemon: DaemonProcess) -> None:
    """A device that takes the file as it is gets it so; the report says why other ways weren't taken."""
    model = cut_models.diamond()
    with load(model.SerializeToString(), onnxruntime_daemon.address, fallback="cpu") as session:
        assert session.way is Way.PROGRAM
    with cut(model.SerializeToString(), onnxruntime_daemon.address) as session:
        assert session.way is Way.PARTITION
        assert "Acos node" in session.report.passed_over[Way.OPERATORS]
        assert str(session.report).startswith("as partition compiled in")


def test_a_model_that_runs_as_a_whole_is_not_cut(shared_daemon: DaemonProcess) -> None:
    graph = Graph()
    model = graph.model(convolved(graph, graph.input("x", ["n", 4, 8, 8])))
    with cut(model.SerializeToString(), shared_daemon.address) as session:
        assert not isinstance(session.report, PartitionReport)


def test_what_the_device_refuses(start_daemon: StartDaemon) -> None:
    """A device that runs no Sub but all else: only the Sub is here. It computes the identity, as no other would."""
    graph = Graph()
    x = graph.input("x", [1, 4, 8, 8])
    y = graph.op("Sub", graph.op("Conv", x, graph.constant(np.ones((4, 4, 1, 1), "f4"))), x)
    model = graph.model(graph.op("Conv", y, graph.constant(np.ones((4, 4, 1, 1), "f4"))))
    picky = start_daemon("--backend", "picky")
    with cut(model.SerializeToString(), picky.address) as session:
        assert [part.operators for part in parts_of(session)] == [{"Conv": 1}, {"Sub": 1}, {"Conv": 1}]
        assert "the picky backend runs no SUB" in parts_of(session)[1].reasons[0]
        (output,) = session.run(feeds(model, 1)).values()
        assert not output.any()


def test_shapes(shared_daemon: DaemonProcess) -> None:
    """They reach all parts."""
    model = cut_models.unsupported_in_the_middle()
    with cut(model.SerializeToString(), shared_daemon.address, shapes={"x": (2, 4, 8, -1)}) as session:
        assert session.inputs[0].shape == (2, 4, 8, -1)
        given = feeds(model, 1, n=2, h=8, w=5)
        require_same(session.run(given), model, given)
    with cut(model.SerializeToString(), shared_daemon.address, shapes={"x": (2, 4, 8, 5)}) as session:
        assert parts_of(session)[0].crossing_bytes == 2 * 2 * 4 * 8 * 5 * 4
        require_same(session.run(given), model, given)


class Noting(Tracer, SessionTracer):
    """Notes in which context runs of parts begin."""

    def __init__(self) -> None:
        self.contexts: list[str] = []

    def of_session(self, site: Site) -> SessionTracer:
        return self

    def begin_run(self) -> None:
        self.contexts.append(CONTEXT.get("none"))


def test_parts_are_run_in_the_context_of_the_run(shared_daemon: DaemonProcess) -> None:
    """Else traces could not tell what they are part of: later parts are begun by threads that end earlier ones."""
    model, tracer = cut_models.unsupported_in_the_middle(), Noting()
    with use_tracer(tracer), cut(model.SerializeToString(), shared_daemon.address) as session:
        given, before = feeds(model, 1), CONTEXT.set("application")
        submitted = session.submit(given)
        CONTEXT.reset(before)
        require_same(submitted.result(60), model, given)
        require_same(session.run(given), model, given)
    on_device = sum(part.device is not None for part in parts_of(session))
    assert on_device > 1
    assert tracer.contexts == ["application"] * on_device + ["none"] * on_device


def test_constants(shared_daemon: DaemonProcess) -> None:
    """What is frozen is no input, of no part."""
    model = cut_models.loop_in_the_middle()
    given = feeds(model, 1)
    with cut(model.SerializeToString(), shared_daemon.address, constants={"times": 3}) as session:
        assert [desc.name for desc in session.inputs] == ["x"]
        require_same(session.run({"x": given["x"]}), model, given)


def test_external_data(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    """Weights beside the model's file: of parts on the device, of those here, and of the body of a loop."""
    model = cut_models.loop_in_the_middle()
    (body,) = [node.attribute[0].g for node in model.graph.node if node.op_type == "Loop"]
    given = feeds(model, 1)
    expected = copy.deepcopy(model)
    (tmp_path / "own").write_bytes(body.initializer[0].raw_data)
    onnx.external_data_helper.set_external_data(body.initializer[0], "own")
    body.initializer[0].ClearField("raw_data")
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="weights")
    with cut(tmp_path / "m.onnx", shared_daemon.address) as session:
        require_same(session.run(given), expected, given)


def test_caches(restoring_daemon: DaemonProcess, tmp_path: Path) -> None:
    """Each part on the device has its own."""
    model = cut_models.unsupported_in_the_middle()
    for origin in (Origin.COMPILED, Origin.RESTORED):
        with cut(model.SerializeToString(), restoring_daemon.address, cache=tmp_path) as session:
            assert session.report.origin is origin
            given = feeds(model, 1)
            require_same(session.run(given), model, given)
            assert wait_until_cached(20)
    assert len(list(tmp_path.glob("*.nnrtmodel"))) == 2


def test_inputs_that_do_not_fit(shared_daemon: DaemonProcess) -> None:
    model = cut_models.two_towers()
    x = np.zeros((1, 4, 8, 8), np.float32)
    with cut(model.SerializeToString(), shared_daemon.address) as session:
        with pytest.raises(InvalidParameter, match="the model's are"):
            session.run({"x": x})
        with pytest.raises(InvalidParameter, match=r"input 1 'z'.*float32\[1, 4, 8\]"):
            session.run({"x": x, "z": x[..., 0]})
        with pytest.raises(InvalidParameter, match="float64"):
            session.run({"x": x, "z": x.astype(np.float64)})
        with pytest.raises(InvalidParameter, match="timeout_ms is 0"):
            session.run({"x": x, "z": x}, timeout_ms=0)
        given = {"x": x, "z": x}
        require_same(session.run(given), model, given)
    with pytest.raises(OperationForbidden, match="closed"):
        session.run({"x": x, "z": x})


def test_a_part_that_fails_here(shared_daemon: DaemonProcess) -> None:
    """In ONNX Runtime, which says why; the next run is not concerned."""
    graph = Graph()
    first = convolved(graph, graph.input("x", ["n", 4, 8, 8]))
    index = graph.input("index", [1], np.int64)
    model = graph.model(graph.op("Gather", graph.op("Acos", graph.op("Tanh", first)), index, axis=1))
    with cut(model.SerializeToString(), shared_daemon.address) as session:
        x = np.zeros((1, 4, 8, 8), np.float32)
        with pytest.raises(OperationFailed, match=r"part 2 of it, in the client.*indices element out of data bounds"):
            session.run({"x": x, "index": np.array([9], np.int64)})
        assert session.run({"x": x, "index": np.array([1], np.int64)})


def test_a_deadline_ends_a_part_here(shared_daemon: DaemonProcess) -> None:
    model = cut_models.loop_in_the_middle()
    with cut(model.SerializeToString(), shared_daemon.address) as session:
        given = feeds(model, 1)
        with pytest.raises(TimedOut, match="100 ms"):
            session.run({**given, "times": FOR_EVER}, timeout_ms=100)
        require_same(session.run(given, timeout_ms=60_000), model, given)


def test_cancelling_and_closing_end_a_part_here(shared_daemon: DaemonProcess) -> None:
    model = cut_models.loop_in_the_middle()
    with Observer(shared_daemon.address) as observer:
        before = observer.state().held_bytes
        with cut(model.SerializeToString(), shared_daemon.address) as session:
            given = feeds(model, 1)
            future = session.submit({**given, "times": FOR_EVER})
            assert future.cancel()
            assert future.cancelled()
            with pytest.raises(CancelledError):
                future.result(60)
            require_same(session.run(given), model, given)
            future = session.submit({**given, "times": FOR_EVER})
        with pytest.raises(OperationFailed, match="closed"):
            future.result(60)
        observer.wait_for(lambda state: state.held_bytes == before)


def test_a_callback_has_the_result(shared_daemon: DaemonProcess) -> None:
    """It need not wait for a future that it is called with."""
    model = cut_models.loop_in_the_middle()
    given = feeds(model, 1)
    outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with cut(model.SerializeToString(), shared_daemon.address) as session:
        session.submit(given).add_done_callback(lambda future: outcomes.put((future.done(), future.result(10))))
        is_done, outputs = outcomes.get(timeout=20)
    assert is_done
    assert outputs


def test_a_deadline_and_a_cancellation_end_a_part_on_the_device(start_daemon: StartDaemon) -> None:
    """The slow backend's runs end only so."""
    graph = Graph()
    model = graph.model(cut_models.strange(graph, convolved(graph, graph.input("x", [1, 4, 8, 8]))))
    slow = start_daemon("--backend", "slow")
    given = feeds(model, 1)
    with cut(model.SerializeToString(), slow.address) as session:
        with pytest.raises(TimedOut):
            session.run(given, timeout_ms=100)
        with Observer(slow.address) as observer:
            future = session.submit(given)
            observer.wait_for(lambda state: state.running == 1)
            assert future.cancel()
            observer.wait_for(lambda state: state.running == 0)


def test_a_death_ends_a_run(start_daemon: StartDaemon) -> None:
    """That on the device, and later ones."""
    graph = Graph()
    model = graph.model(cut_models.strange(graph, convolved(graph, graph.input("x", [1, 4, 8, 8]))))
    slow = start_daemon("--backend", "slow")
    with cut(model.SerializeToString(), slow.address) as session:
        future = session.submit(feeds(model, 1))
        with Observer(slow.address) as observer:
            observer.wait_for(lambda state: state.running == 1)
        slow.kill()
        with pytest.raises(UnavailableDevice):
            future.result(60)
        with pytest.raises(UnavailableDevice):
            session.run(feeds(model, 1))


# ---- outputs that go to tensors


def bound_model() -> onnx.ModelProto:
    """Outputs of a part on the device that others read, of a part here, of the last part, and an input."""
    graph = Graph()
    x = graph.input("x", ["n", 4, 8, 8])
    first = convolved(graph, x)
    here = cut_models.strange(graph, first)
    return graph.model(first, here, convolved(graph, here), x)


def tensors_like(session: ModelSession, expected: Sequence[AnyArray], kind: Any, closing: ExitStack) -> dict[str, Any]:
    names = [desc.name for desc in session.outputs]
    return {
        name: closing.enter_context(kind(session.device, TensorDesc(DataType.FLOAT32, one.shape)))
        for name, one in zip(names, expected, strict=True)
    }


@pytest.mark.parametrize("kind", [Tensor, ResidentTensor], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("share_memory", [True, False], ids=["local", "grpc"])
def test_outputs_go_to_tensors(
    onnxruntime_daemon: DaemonProcess, closing: ExitStack, kind: Any, share_memory: bool
) -> None:
    """Whichever part they come from; one that nobody gives a tensor for comes as an array."""
    model = bound_model()
    given = feeds(model, 1, n=2)
    expected = run_onnxruntime(model, given)
    settings = Settings(share_memory=share_memory)
    with cut(model.SerializeToString(), onnxruntime_daemon.address, settings=settings) as session:
        assert [part.device is None for part in parts_of(session)] == [False, True, False]
        bound = tensors_like(session, expected, kind, closing)
        for outputs in (session.run(given, outputs=bound), session.submit(given, outputs=bound).result(60)):
            for (name, tensor), numbers in zip(bound.items(), expected, strict=True):
                assert outputs[name] is tensor
                np.testing.assert_allclose(tensor.numpy(), numbers, rtol=1e-4, atol=1e-4)
        first, *others = bound
        outputs = session.run(given, outputs={first: None, others[0]: bound[others[0]]})
        assert isinstance(outputs[first], np.ndarray)
        assert not runs_left()


def test_a_tensor_is_read_before_it_is_written(each_daemon: DaemonProcess, closing: ExitStack) -> None:
    """It is input and output of a run, and parts that come later read it too."""
    model = bound_model()
    x = feeds(model, 1, n=2)["x"]
    with cut(model.SerializeToString(), each_daemon.address) as session:
        first, _, last, passed = (desc.name for desc in session.outputs)
        state = closing.enter_context(ResidentTensor(session.device, TensorDesc(DataType.FLOAT32, x.shape)))
        for name in (first, last, passed):
            state.write(x)
            expected = dict(zip([desc.name for desc in session.outputs], run_onnxruntime(model, {"x": x}), strict=True))
            outputs = session.run({"x": state}, outputs={**dict.fromkeys(expected), name: state})
            assert outputs[name] is state
            np.testing.assert_allclose(state.numpy(), expected.pop(name), rtol=1e-4, atol=1e-4)
            for other, numbers in expected.items():
                np.testing.assert_allclose(outputs[other], numbers, rtol=1e-4, atol=1e-4)


def test_what_a_part_on_the_device_writes_does_not_travel(
    each_daemon: DaemonProcess, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that one part reads and writes stays where it is."""
    graph = Graph()
    x = graph.input("x", [1, 4, 8, 8])
    y = graph.op("Add", convolved(graph, x), graph.input("state", [1, 4, 8, 8]))
    model = graph.model(y, cut_models.strange(graph, y))
    given = feeds(model, 1)
    with cut(model.SerializeToString(), each_daemon.address) as session:
        state = closing.enter_context(ResidentTensor(session.device, TensorDesc(DataType.FLOAT32, (1, 4, 8, 8))))
        state.write(given["state"])
        written: list[object] = []
        monkeypatch.setattr(DeviceBuffer, "write", lambda *_: written.append(None))
        (name, _) = (desc.name for desc in session.outputs)
        session.run({"x": given["x"], "state": state}, outputs={name: state})
        assert not written
        np.testing.assert_allclose(state.numpy(), run_onnxruntime(model, given)[0], rtol=1e-4, atol=1e-4)


def test_output_tensors_that_do_not_fit(each_daemon: DaemonProcess, closing: ExitStack) -> None:
    """The error has the shapes of all outputs, so that the next run fits."""
    model = bound_model()
    given = feeds(model, 1, n=3)
    expected = run_onnxruntime(model, given)
    with cut(model.SerializeToString(), each_daemon.address) as session:
        for kind in (Tensor, ResidentTensor):
            for name in (desc.name for desc in session.outputs):
                desc = TensorDesc(DataType.FLOAT32, (-1, 4, 8, 8))
                make = Tensor.with_size if kind is Tensor else ResidentTensor
                small = closing.enter_context(make(session.device, desc, 1024))
                with pytest.raises(OutputTooSmall, match=name) as raised:
                    session.run(given, outputs={name: small})
                assert raised.value.shapes == tuple(one.shape for one in expected)
        other = closing.enter_context(Tensor(session.device, TensorDesc(DataType.INT32, (3, 4, 8, 8))))
        with pytest.raises(InvalidParameter, match="its data type is INT32"):
            session.run(given, outputs={name: other})
        other.close()
        with pytest.raises(InvalidParameter, match="closed"):
            session.run(given, outputs={name: other})


@pytest.mark.parametrize("end", ["timeout", "cancel", "close", "death"])
def test_a_run_that_ends_early_writes_nothing_later(start_daemon: StartDaemon, closing: ExitStack, end: str) -> None:
    """It holds its tensors until the device has stopped, and no longer."""
    graph = Graph()
    model = graph.model(cut_models.strange(graph, y := convolved(graph, graph.input("x", [1, 4, 8, 8]))), y)
    slow = start_daemon("--backend", "slow")
    with cut(model.SerializeToString(), slow.address) as session, Observer(slow.address) as observer:
        _, name = (desc.name for desc in session.outputs)
        before = held()
        tensor = closing.enter_context(Tensor(session.device, TensorDesc(DataType.FLOAT32, (1, 4, 8, 8))))
        future = session.submit(feeds(model, 1), outputs={name: tensor}, timeout_ms=100 if end == "timeout" else None)
        if end != "timeout":
            observer.wait_for(lambda state: state.running == 1)
        if end == "cancel":
            assert future.cancel()
        elif end == "close":
            session.close()
            assert "closed" in str(future.exception(60))
        elif end == "death":
            slow.kill()
            assert isinstance(future.exception(60), UnavailableDevice)
        else:
            assert isinstance(future.exception(60), TimedOut)
        tensor.close()
        wait_until_held(before)
        if end != "death":
            observer.wait_for(lambda state: state.running == 0)


def test_named_by_a_way(shared_daemon: DaemonProcess) -> None:
    """Parts come where `ways` has them, last without; either way `fallback` asks for them."""
    data = cut_models.diamond().SerializeToString()
    for ways in (["operators", "partition"], ["partition"], "partition"):
        with load(data, shared_daemon.address, ways=ways, fallback="cpu", cache=False) as session:
            assert session.way is Way.PARTITION
            assert (Way.OPERATORS in session.report.passed_over) == ("operators" in ways)
        with pytest.raises(InvalidParameter, match=r'some of its operators run on this host.* give fallback="cpu"'):
            load(data, shared_daemon.address, ways=ways, cache=False)


@st.composite
def small_graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Operators that the device has and others that it hasn't, at random, on tensors of one shape."""
    graph = Graph()
    values = [graph.input("x", ["n", 6])]
    for _ in range(draw(st.integers(2, 10))):
        first, second = (draw(st.sampled_from(values[-4:])) for _ in range(2))
        kind = draw(st.sampled_from(["Add", "Sub", "MatMul", "Tanh", "Acos", "Acos", "Identity"]))
        if kind == "Acos":
            values.append(cut_models.strange(graph, first))
        elif kind == "MatMul":
            product = graph.op("MatMul", first, graph.constant(cut_models.weights(6, 6)))
            values.append(graph.op("Tanh", product))
        else:
            values.append(graph.op(kind, first, second) if kind in ("Add", "Sub") else graph.op(kind, first))
    read = {name for node in graph.nodes for name in node.input}
    return graph.model(*(name for name in values[1:] if name not in read))


@pytest.mark.slow
@settings(max_examples=examples(25))
@example(model=small_graphs())
def test_random_graphs(onnxruntime_daemon: DaemonProcess, model: onnx.ModelProto) -> None:
    """Whatever is cut, and however: no part waits for itself, each node runs once, and the numbers are the same."""
    with Runtime([onnxruntime_daemon.address]) as runtime:
        data = model.SerializeToString()
        try:
            session = cut(data, runtime.device(0), fallback=Fallback(smallest_part=1))
        except Unsupported as error:
            assert "no part of it" in str(error)
            return
        with session:
            for size in (2, 1):
                given = feeds(model, size, n=size)
                require_same(session.run(given), model, given)
            if isinstance(session.report, PartitionReport):
                names = [name for part in session.report.parts for name in part.nodes]
                assert len(names) == len(set(names))
                known = {"x"}
                for part in session.report.parts:
                    assert set(part.inputs) <= known
                    known.update(part.outputs)
                assert all("Acos" not in part.operators for part in session.report.parts if part.device)
