"""ONNX files that a daemon takes as they are: any operator, any shape, equal to ONNX Runtime in process."""

import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from onnx import TensorProto, helper, numpy_helper
from program_models import CASES, Case, external, in_process, parsed, weights

from nnrt_client import InvalidParameter, InvalidPath, Origin, Runtime, TimedOut, Unsupported, Way, load

PROGRAM = (Way.PROGRAM,)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_onnx_runtime_in_process(onnxruntime_daemon: DaemonProcess, case: Case) -> None:
    with load(case.file, onnxruntime_daemon.address, ways=PROGRAM) as session:
        assert session.way is Way.PROGRAM
        for feed in case.feeds:
            outputs = session.run(feed)
            for output, wanted in zip(outputs.values(), in_process(case.file, feed), strict=True):
                np.testing.assert_array_equal(output, wanted)


def test_products_of_eight_bits_are_added_exactly(onnxruntime_daemon: DaemonProcess) -> None:
    """On processors without VNNI, too, where ONNX Runtime adds products of UINT8 and INT8 in 16 bits unless told."""
    x, w = np.full((2, 64), 255, "u1"), np.full((64, 3), 127, "i1")
    model = parsed(
        "f (uint8[N, 64] x) => (int32[N, 3] y, int64[2, K] z) { y = MatMulInteger (x, w) z = NonZero (x) }",
        numpy_helper.from_array(w, "w"),
    )
    with load(model.SerializeToString(), onnxruntime_daemon.address, ways=PROGRAM) as session:
        np.testing.assert_array_equal(session.run({"x": x})["y"], x.astype(int) @ w)


def test_large_weights_beside_the_model_are_sent_once(onnxruntime_daemon: DaemonProcess, tmp_path: Path) -> None:
    path = external(tmp_path, 64, 512)
    feed = {"x": np.ones((3, 64), "f4")}
    with Runtime([onnxruntime_daemon.address]) as runtime, load(path, runtime=runtime) as first:
        assert first.report.sent_bytes > 64 * 512 * 4
        np.testing.assert_array_equal(first.run(feed)["y"], in_process(str(path), feed)[0])
        # Of other shapes, with the same weights.
        with load(path, runtime=runtime, shapes={"x": (3, 64)}) as second:
            assert second.report.sent_bytes < 1024
            assert [desc.shape for desc in second.inputs] == [(3, 64)]
            np.testing.assert_array_equal(second.run(feed)["y"], first.run(feed)["y"])


def test_weights_are_read_only_beside_the_model(onnxruntime_daemon: DaemonProcess, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    path = external(tmp_path / "inner", 8, 8)
    (tmp_path / "inner" / "weights").rename(tmp_path / "weights")
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        entry.value = "../weights" if entry.key == "location" else entry.value
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InvalidPath, match="not a file in the directory of the model"):
        load(path, onnxruntime_daemon.address, ways=PROGRAM)


def test_a_restarted_daemon_has_it_in_its_store(start_daemon: StartDaemon, tmp_path: Path) -> None:
    arguments = ("--backend", "onnxruntime", "--store-dir", str(tmp_path / "store"))
    path, feed = external(tmp_path, 64, 512), {"x": np.ones((2, 64), "f4")}
    daemon = start_daemon(*arguments)
    with load(path, daemon.address) as session:
        assert session.report.origin is Origin.COMPILED
        wanted = session.run(feed)["y"].copy()
    daemon.send(signal.SIGTERM)  # It finishes what is being written.
    daemon.wait()
    with load(path, start_daemon(*arguments).address) as session:
        assert session.report.origin is Origin.STORED
        assert session.report.sent_bytes < 1024
        np.testing.assert_array_equal(session.run(feed)["y"], wanted)


def test_inputs_with_values_are_no_inputs(onnxruntime_daemon: DaemonProcess) -> None:
    """As in files of IR version 3, where every weight is among the inputs."""
    model = parsed("f (float[N, 8] x) => (int64[2, K] y) { m = MatMul (x, w) y = NonZero (m) }", weights("w", 8, 8))
    model.graph.input.append(helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [8, 8]))
    model.ir_version = 3
    model.opset_import[0].version = 13
    with load(model.SerializeToString(), onnxruntime_daemon.address, ways=PROGRAM) as session:
        assert [desc.name for desc in session.inputs] == ["x"]


def test_a_dimension_of_minus_one_is_not_known(onnxruntime_daemon: DaemonProcess) -> None:
    model = parsed("f (float[2] x) => (int64[1, K] y) { y = NonZero (x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    with load(model.SerializeToString(), onnxruntime_daemon.address, ways=PROGRAM) as session:
        assert [desc.shape for desc in session.inputs] == [(-1,)]
        assert session.run([np.array([0, 1, 1], "f4")])["y"].tolist() == [[1, 2]]


def test_nodes_may_stand_in_any_order(onnxruntime_daemon: DaemonProcess) -> None:
    """As ONNX Runtime takes them."""
    model = parsed("f (float[2] x) => (int64[1, K] y) { a = Neg (x) b = Abs (a) y = NonZero (b) }")
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(nodes[::-1])
    with load(model.SerializeToString(), onnxruntime_daemon.address, ways=PROGRAM) as session:
        assert session.run([np.array([0, -1], "f4")])["y"].tolist() == [[1]]


def test_a_shape_settles_dimensions(onnxruntime_daemon: DaemonProcess) -> None:
    model = parsed("f (float[2, N] x) => (int64[2, K] y) { y = NonZero (x) }")
    address, file = onnxruntime_daemon.address, model.SerializeToString()
    with load(file, address, ways=PROGRAM, shapes={"x": (2, 3)}) as session:
        assert [desc.shape for desc in session.inputs] == [(2, 3)]
    with pytest.raises(InvalidParameter, match=r"\[3, 3\] is given for input 'x', which has the shape \[2, \?\]"):
        load(file, address, ways=PROGRAM, shapes={"x": (3, 3)})
    with pytest.raises(InvalidParameter, match=r"there is no input 'z'.* there are \['x'\]"):
        load(file, address, ways=PROGRAM, shapes={"z": (3, 3)})


def test_an_input_without_rank_is_given_one(onnxruntime_daemon: DaemonProcess) -> None:
    model = parsed("f (float[2] x) => (int64[2, K] y) { y = NonZero (x) }")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    address, file = onnxruntime_daemon.address, model.SerializeToString()
    with pytest.raises(
        Unsupported, match="input 'x': the file does not say how many dimensions it has; give its shape"
    ):
        load(file, address, ways=PROGRAM)
    with load(file, address, ways=PROGRAM, shapes={"x": (2, -1)}) as session:
        assert [desc.shape for desc in session.inputs] == [(2, -1)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("f (seq(float[]) x) => (seq(float[]) y) { y = Identity (x) }", r"input 'x': it is sequence"),
        ("f (bfloat16[N] x) => (bfloat16[N] y) { y = Identity (x) }", r"input 'x': it is tensor\(bfloat16\)"),
        ("f (float[N] x) => (bfloat16[N] y) { y = Cast <to = 16> (x) }", r"output 'y': it is tensor\(bfloat16\)"),
    ],
)
def test_what_is_no_tensor_of_nnrt_stays_inside(onnxruntime_daemon: DaemonProcess, text: str, said: str) -> None:
    with pytest.raises(Unsupported, match=said + ".*; cut the model so that such values stay inside of it"):
        load(parsed(text).SerializeToString(), onnxruntime_daemon.address, ways=PROGRAM)


def test_a_run_ends_at_its_deadline(onnxruntime_daemon: DaemonProcess) -> None:
    endless = parsed(
        """
        f (float[2] x) => (float[2] y) {
            most = Constant <value = int64 {4611686018427387904}> ()
            yes = Constant <value = bool {1}> ()
            y = Loop (most, yes, x) <body = one (int64 at, bool was, float[2] sum) => (bool more, float[2] next) {
                more = Identity (was)
                next = Sin (sum)
            }>
        }
        """
    )
    with (
        load(endless.SerializeToString(), onnxruntime_daemon.address, ways=PROGRAM) as session,
        pytest.raises(TimedOut),
    ):
        session.run([np.ones(2, "f4")], timeout_ms=200)


def test_a_wrong_input_is_refused(onnxruntime_daemon: DaemonProcess) -> None:
    file = parsed("f (float[2, N] x) => (int64[2, K] y) { y = NonZero (x) }").SerializeToString()
    with load(file, onnxruntime_daemon.address, ways=PROGRAM) as session, pytest.raises(InvalidParameter):
        session.run([np.ones((3, 3), "f4")])


def test_tied_and_small_weights_share_a_part(onnxruntime_daemon: DaemonProcess) -> None:
    """300 weights, which as parts of their own would be too many."""
    names = [f"w{at}" for at in range(300)]
    tensors = [numpy_helper.from_array(np.full((16, 32), at, "f4"), name) for at, name in enumerate(names)]
    body = "s = Sum (" + ", ".join(["x", *names]) + ") y = NonZero (s)"
    model = parsed(f"f (float[16, 32] x) => (int64[2, K] y) {{ {body} }}", *tensors)
    with load(model.SerializeToString(), onnxruntime_daemon.address, ways=PROGRAM) as session:
        output = session.run([np.full((16, 32), -sum(range(300)), "f4")])["y"]
        assert output.shape == (2, 0)


@pytest.mark.parametrize("is_input", [False, True])
def test_weights_that_nobody_reads_are_left_out(onnxruntime_daemon: DaemonProcess, is_input: bool) -> None:
    model = parsed("f (float[N, 64] x) => (float[N, 64] y) { y = MatMul (x, w) }", weights("w", 64, 64))
    model.graph.initializer.append(weights("spare", 64, 64))
    if is_input:
        model.graph.input.append(helper.make_tensor_value_info("spare", onnx.TensorProto.FLOAT, [64, 64]))
    file, feed = model.SerializeToString(), {"x": np.ones((2, 64), "f4")}
    with load(file, onnxruntime_daemon.address, ways=PROGRAM) as session:
        np.testing.assert_array_equal(session.run(feed)["y"], in_process(file, feed)[0])


def test_a_shape_that_an_exporter_declares_inside_is_a_hint(onnxruntime_daemon: DaemonProcess) -> None:
    """Exporters write down the lengths of their example where the model computes others."""
    model = parsed(
        """
        flat (float[N, M] x) => (float[A, B] y) {
            shape = Shape (x)
            size = ReduceProd (shape)
            r = Reshape (x, size)
            column = Constant <value = int64[1] {1}> ()
            y = Unsqueeze (r, column)
        }
        """
    )
    model.graph.value_info.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, [6]))
    said = onnxruntime_daemon.log().count("with the shapes in the file")
    with load(model.SerializeToString(), onnxruntime_daemon.address, ways=PROGRAM) as session:
        assert session.outputs[0].shape == (-1, 1)
        for shape in (2, 3), (4, 5):
            x = np.ones(shape, "f4")
            assert session.run({"x": x})["y"].shape == (x.size, 1)
    assert onnxruntime_daemon.log().count("with the shapes in the file") == said + 1


@pytest.mark.parametrize("way", [Way.OPERATORS, Way.PROGRAM])
def test_a_declared_shape_of_an_output_is_a_hint(onnxruntime_daemon: DaemonProcess, way: Way) -> None:
    model = parsed("f (float[2, 3] x) => (float[2, 5] y) { y = Relu (x) }")
    with load(model.SerializeToString(), onnxruntime_daemon.address, ways=[way]) as session:
        assert session.outputs[0].shape == (2, 3)
        assert session.run({"x": np.ones((2, 3), "f4")})["y"].shape == (2, 3)
