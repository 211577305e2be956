"""The way that `load` takes: the first that works, of those that are asked for."""

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from onnx import numpy_helper
from program_models import parsed

from nnrt_client import (
    InvalidParameter,
    Model,
    NnrtError,
    OperationFailed,
    OperationType,
    Runtime,
    Unsupported,
    Way,
    load,
)

FINDS = parsed("f (float[2, N] x) => (int64[2, K] y) { y = NonZero (x) }").SerializeToString()
ADDS = parsed("f (float[2] x) => (float[2] y) { y = Add (x, x) }").SerializeToString()


def test_operators_come_first(onnxruntime_daemon: DaemonProcess) -> None:
    with load(ADDS, onnxruntime_daemon.address) as session:
        assert session.way is Way.OPERATORS
        assert session.report.passed_over == {}


def test_what_operators_cannot_say_goes_as_a_program(onnxruntime_daemon: DaemonProcess) -> None:
    with load(FINDS, onnxruntime_daemon.address) as session:
        assert session.way is session.report.way is Way.PROGRAM
        assert "NonZero node" in session.report.passed_over[Way.OPERATORS]
        assert str(session.report).startswith("as program compiled in ")


def test_a_limit_is_said_once(start_daemon: StartDaemon) -> None:
    """Where both ways fail for one reason, that is the error."""
    model = parsed("f (float[2, 1000] x) => (float[2, 1000] y) { y = Add (x, big) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((2, 1000), "f4"), "big"))
    daemon = start_daemon("--backend", "onnxruntime", "--session-bytes", "5000")
    with pytest.raises(
        OperationFailed, match=r"^\d+ more bytes pass .*--session-bytes \(see docs/reference/errors.md\)"
    ):
        load(model.SerializeToString(), daemon.address)


def test_the_end_of_a_long_reason_is_not_cut_off(onnxruntime_daemon: DaemonProcess) -> None:
    wrong = parsed("f (float[2] x) => (float[2] y) { y = StringNormalizer (x) }").SerializeToString()
    with pytest.raises(
        NnrtError, match=r"Type 'tensor\(float\)' of input parameter \(x\) of operator \(Str.* is invalid"
    ):
        load(wrong, onnxruntime_daemon.address, ways="program")


def test_the_caller_sets_the_order(onnxruntime_daemon: DaemonProcess) -> None:
    with load(ADDS, onnxruntime_daemon.address, ways=["program", "operators"]) as session:
        assert session.way is Way.PROGRAM
        assert session.run([np.ones(2, "f4")])["y"].tolist() == [2, 2]


def test_one_error_has_the_reasons_of_all_ways(shared_daemon: DaemonProcess) -> None:
    with pytest.raises(Unsupported) as caught:
        load(FINDS, shared_daemon.address)
    _, *reasons = str(caught.value).splitlines()
    assert reasons[0].startswith("as operators: the ONNX model: ")
    assert reasons[-1].startswith("as program: ") and "--accept-programs" in reasons[-1]


def test_the_only_way_has_an_error_of_its_own(onnxruntime_daemon: DaemonProcess) -> None:
    with pytest.raises(Unsupported, match=r"^the ONNX model: 1 part of it can't be imported"):
        load(FINDS, onnxruntime_daemon.address, ways="operators")


def test_ways_that_are_none(runtime: Runtime) -> None:
    with pytest.raises(InvalidParameter, match="use some of 'operators', 'program', 'partition'"):
        load(ADDS, runtime=runtime, ways=("offline",))
    with pytest.raises(InvalidParameter, match=r"the ways are \[\]; this model can go as operators or program only"):
        load(ADDS, runtime=runtime, ways=())
    model = Model()
    x = model.input((2,), name="x")
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.RELU, x)])
    model.finish()
    with pytest.raises(InvalidParameter, match=r"the ways are \['program'\]; this model can go as operators only"):
        load(model, runtime=runtime, ways=["program"])


def test_float16_is_for_operators(onnxruntime_daemon: DaemonProcess) -> None:
    with pytest.raises(Unsupported, match="as program: an ONNX file is computed in its own data types; leave float16"):
        load(FINDS, onnxruntime_daemon.address, float16=True)


def test_a_daemon_that_others_reach_takes_none(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "onnxruntime", "--insecure", listen="0.0.0.0:0")
    address = f"127.0.0.1:{daemon.address.rpartition(':')[2]}"
    with Runtime([address]) as runtime:
        assert runtime.device().capabilities.program_formats == ()
    with pytest.raises(Unsupported, match="--accept-programs"):
        load(FINDS, address, ways="program")


@pytest.mark.parametrize(
    ("listen", "accept", "formats"),
    [
        ("127.0.0.1:0", "auto", ("onnx",)),
        ("[::1]:0", "auto", ("onnx",)),
        ("0.0.0.0:0", "always", ("onnx",)),
        ("127.0.0.1:0", "never", ()),
    ],
)
def test_who_runs_the_daemon_decides(
    start_daemon: StartDaemon, listen: str, accept: str, formats: tuple[str, ...]
) -> None:
    daemon = start_daemon("--backend", "onnxruntime", "--insecure", "--accept-programs", accept, listen=listen)
    with Runtime([daemon.address.replace("0.0.0.0", "127.0.0.1")]) as runtime:  # noqa: S104
        assert runtime.device().capabilities.program_formats == formats
