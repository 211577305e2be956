"""Whole programs as C has them, on two backends: outputs that are scalars, empty, dynamic and quantized.

What is expected is worked out by hand.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from daemon_process import DaemonProcess

from nnrt_client import oh_nn
from nnrt_client.oh_nn import *
from oh_nn.callbacks import MINUTE_MS, Callbacks
from oh_nn.program import AnyArray, Program, contents
from oh_nn.world import World, legacy, ok, value

X = np.array([[1, 2, 3], [4, 5, 9]], np.float32)
AXES = np.array([0, 1], np.int32)


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    daemons = {backend: DaemonProcess("--backend", backend) for backend in ("reference", "onnxruntime", "picky")}
    yield {backend: daemon.address for backend, daemon in daemons.items()}
    for daemon in daemons.values():
        daemon.kill()


@pytest.fixture(params=("reference", "onnxruntime"))
def program(world: World, request: pytest.FixtureRequest) -> Program:
    world.connect(request.param)
    return Program(world)


def mean_of(program: Program, shape: Sequence[int] = (2, 3), declared: Sequence[int] | None = (1,)) -> Program:
    """The mean of all elements."""
    x, y = program.tensor(shape), program.tensor(declared)
    program.add(OH_NN_OPS_REDUCE_MEAN, [x, program.constant(AXES)], [y])
    program.build([x], [y])
    return program


def only(results: Sequence[AnyArray]) -> tuple[tuple[int, ...], list[float]]:
    """The shape and the elements of the only output."""
    (result,) = results
    return result.shape, result.reshape(-1).tolist()


@pytest.mark.parametrize("declared", ((1,), None), ids=("as [1]", "without a shape"))
@pytest.mark.parametrize("shape", ((2, 3), (-1, 3)), ids=str)
def test_scalar_output(program: Program, shape: Sequence[int], declared: Sequence[int] | None) -> None:
    mean_of(program, shape, declared)
    assert value(OH_NNExecutor_GetOutputShape(program.executor, 0)) == (1,)
    assert only(program.run(X)) == ((1,), [4])
    assert only(program.run(X + 1)) == ((1,), [5])


@pytest.mark.parametrize("format", (OH_NN_FORMAT_NHWC, OH_NN_FORMAT_NCHW), ids=("NHWC", "NCHW"))
def test_scalar_of_an_image(program: Program, format: int) -> None:
    """Tensors of API 9 are all NHWC, whatever their rank."""
    x, y = program.tensor((1, 2, 3, 1), format=format), program.tensor((1,), format=format)
    program.add(OH_NN_OPS_REDUCE_MAX, [x, program.constant(np.arange(4, dtype=np.int32))], [y])
    program.build([x], [y])
    assert only(program.run(X.reshape(1, 2, 3, 1))) == ((1,), [9])


def test_scalar_between_operations(program: Program) -> None:
    """What is declared [1] is [1] to who reads it: CONCAT takes no scalars."""
    x, total, rank = program.tensor((2, 3)), program.tensor((1,)), program.tensor((1,), OH_NN_INT32)
    number, both = program.tensor((1,)), program.tensor((2,))
    program.add(OH_NN_OPS_REDUCE_SUM, [x, program.constant(AXES)], [total])
    program.add(OH_NN_OPS_RANK, [x], [rank])
    program.add(OH_NN_OPS_CAST, [rank, program.constant(np.array(OH_NN_FLOAT32, np.int32))], [number])
    program.add(OH_NN_OPS_CONCAT, [total, number], [both])
    program.build([x], [both, total])
    both_, total_ = program.run(X)
    assert (both_.tolist(), total_.tolist()) == ([24, 2], [24])


@pytest.mark.parametrize("declared", ((1,), None), ids=("as [1]", "without a shape"))
def test_scalar_input(program: Program, declared: Sequence[int] | None) -> None:
    x, y = program.tensor(declared), program.tensor((1,))
    program.add(OH_NN_OPS_NEG, [x], [y])
    program.build([x], [y])
    ranges = OH_NNExecutor_GetInputDimRange(program.executor, 0)
    assert ranges == (OH_NN_SUCCESS, (1,), (1,))
    assert only(program.run(np.array([2], np.float32))) == ((1,), [-2])


def test_scalar_of_an_asynchronous_run(program: Program) -> None:
    mean_of(program)
    callbacks = Callbacks(program.executor)
    output = program.output(0)
    ok(OH_NNExecutor_RunAsync(program.executor, [program.input(0, X)], [output], MINUTE_MS, "mine"))
    assert callbacks.only() == ("done", "mine", OH_NN_SUCCESS, [output])
    assert only([contents(output)]) == ((1,), [4])


def test_scalar_as_the_input_of_another_model(program: Program) -> None:
    """The tensor that one run has written is given to the next."""
    mean_of(program)
    middle, result = program.output(0), program.output(0)
    ok(OH_NNExecutor_RunSync(program.executor, [program.input(0, X)], [middle]))
    negated = Program(program.world)
    x, y = negated.tensor(None), negated.tensor(None)
    negated.add(OH_NN_OPS_NEG, [x], [y])
    negated.build([x], [y])
    ok(OH_NNExecutor_RunSync(negated.executor, [middle], [result]))
    assert only([contents(result)]) == ((1,), [-4])


@pytest.mark.parametrize("dimensions", ([], [1]), ids=str)
@pytest.mark.parametrize("declared", ([], [1]), ids=str)
def test_scalars_of_api_9(program: Program, declared: list[int], dimensions: list[int]) -> None:
    model = program.model
    for shape in (declared, declared):
        ok(OH_NNModel_AddTensor(model, legacy(shape)))
    program.add(OH_NN_OPS_NEG, [0], [1])
    program.build([0], [1])
    room = bytearray(4)
    ok(OH_NNExecutor_SetInput(program.executor, 0, legacy(dimensions), np.array([2], np.float32)))
    ok(OH_NNExecutor_SetOutput(program.executor, 0, room))
    ok(OH_NNExecutor_Run(program.executor))
    assert np.frombuffer(room, np.float32).tolist() == [-2]
    assert value(OH_NNExecutor_GetOutputShape(program.executor, 0)) == (1,)


def test_scalar_of_a_model_from_a_cache(program: Program) -> None:
    mean_of(program)
    room = bytearray(1 << 16)
    size = value(OH_NNCompilation_ExportCacheToBuffer(program.compilation, room))
    compilation = program.world.for_cache()
    ok(OH_NNCompilation_ImportCacheFromBuffer(compilation, bytes(room[:size])))
    ok(OH_NNCompilation_Build(compilation))
    program.executor = program.world.executor(compilation=compilation)
    assert only(program.run(X)) == ((1,), [4])


def test_quantized_outputs(program: Program) -> None:
    """(x - 3) 0.5 added to itself, and the largest of it as a scalar; both in steps of 1 from -2."""
    quant, wide = (0.5, 3), (1.0, -2)
    x = program.tensor((2, 3), OH_NN_INT8, quant=quant)
    doubled, largest = program.tensor((2, 3), OH_NN_INT8, quant=wide), program.tensor((1,), OH_NN_INT8, quant=wide)
    program.add(OH_NN_OPS_ADD, [x, x], [doubled])
    program.add(OH_NN_OPS_REDUCE_MAX, [doubled, program.constant(AXES)], [largest])
    program.build([x], [doubled, largest])
    sums, most = program.run(np.array([[3, 4, 5], [7, -1, 13]], np.int8))
    assert (sums.tolist(), most.tolist()) == ([[-2, -1, 0], [2, -6, 8]], [8])
    assert sums.dtype == most.dtype == np.int8


def test_dynamic_output(program: Program) -> None:
    x, y = program.tensor((-1, 3)), program.tensor((-1, 3))
    program.add(OH_NN_OPS_RELU, [x], [y])
    program.build([x], [y])
    assert value(OH_NNExecutor_GetOutputShape(program.executor, 0)) == (-1, 3)
    for rows in (2, 5, 1):
        given = np.arange(-2, rows * 3 - 2, dtype=np.float32).reshape(rows, 3)
        (result,) = program.run(given)
        np.testing.assert_array_equal(result, np.maximum(given, 0))


def test_output_that_elements_decide(program: Program) -> None:
    """The k largest, k being an input of the run: none of them is an output, too."""
    x, k = program.tensor((5,)), program.tensor((1,), OH_NN_INT8)
    largest, places = program.tensor((-1,)), program.tensor((-1,), OH_NN_INT32)
    program.add(OH_NN_OPS_TOP_K, [x, k], [largest, places])
    program.build([x, k], [largest, places])
    x_ = np.array([3, 9, 1, 7, 5], np.float32)
    for count, expected in ((2, ([9, 7], [1, 3])), (0, ([], [])), (5, ([9, 7, 5, 3, 1], [1, 3, 4, 0, 2]))):
        results = program.run(x_, np.array([count], np.int8))
        assert tuple(result.tolist() for result in results) == expected
        assert all(result.shape == (count,) for result in results)


def test_output_that_is_always_empty(program: Program) -> None:
    """No dimension is declared 0; the operator says so."""
    x, y = program.tensor((2, 3)), program.tensor((-1, 3))
    begin, size = (program.constant(np.array(numbers, np.int32)) for numbers in ([1, 0], [0, 3]))
    program.add(OH_NN_OPS_SLICE, [x, begin, size], [y])
    program.build([x], [y])
    assert value(OH_NNExecutor_GetOutputShape(program.executor, 0)) == (0, 3)
    (result,) = program.run(X)
    assert result.shape == (0, 3)


def test_axes_named_twice(program: Program) -> None:
    """Of a fold, and of a squeeze by its parameter."""
    x, total, gone = program.tensor((2, 3)), program.tensor((2, 1)), program.tensor((2,))
    keep = program.constant(np.array(True), OH_NN_REDUCE_SUM_KEEP_DIMS)
    axes = program.constant(np.array([1, -1], np.int64), OH_NN_SQUEEZE_AXIS)
    program.add(OH_NN_OPS_REDUCE_SUM, [x, program.constant(np.array([1, -1], np.int32))], [total], [keep])
    program.add(OH_NN_OPS_SQUEEZE, [total], [gone], [axes])
    program.build([x], [total, gone])
    total_, gone_ = program.run(X)
    assert (total_.tolist(), gone_.tolist()) == ([[6], [18]], [6, 18])


def test_detections_of_halves(program: Program) -> None:
    """FLOAT16 throughout, of boxes that say more than four numbers; how many were found is a [1] of its own."""
    shapes = {"boxes": (1, 2, 6), "scores": (1, 2, 1), "anchors": (2, 4)}
    x = [program.tensor(shape, OH_NN_FLOAT16) for shape in shapes.values()]
    y = [program.tensor(shape, OH_NN_FLOAT16) for shape in ((1, 2, 4), (1, 2), (1, 2), (1,))]
    parameters: dict[int, AnyArray] = {
        OH_NN_DETECTION_POST_PROCESS_SCALE: np.ones(4, np.float32),
        OH_NN_DETECTION_POST_PROCESS_NMS_IOU_THRESHOLD: np.array(0.5, np.float32),
        OH_NN_DETECTION_POST_PROCESS_MAX_DETECTIONS: np.array(2, np.int64),
        OH_NN_DETECTION_POST_PROCESS_NUM_CLASSES: np.array(1, np.int64),
    }
    given = [program.constant(array, tensor_type) for tensor_type, array in parameters.items()]
    program.add(OH_NN_OPS_DETECTION_POST_PROCESS, x, y, given)
    program.build(x, y)
    boxes, scores = np.zeros((1, 2, 6), np.float16), np.array([[[0.25], [0.5]]], np.float16)
    anchors = np.array([[4, 4, 2, 2], [4, 4, 2, 4]], np.float16)  # They overlap by half, which is not too much.
    results = program.run(boxes, scores, anchors)
    assert {result.dtype for result in results} == {np.dtype(np.float16)}
    assert [result.tolist() for result in results] == [[[[3, 2, 5, 6], [3, 3, 5, 5]]], [[0, 0]], [[0.5, 0.25]], [2]]


@pytest.mark.parametrize(("declared", "runs"), (((1,), False), (None, True)), ids=("as [1]", "without a shape"))
def test_device_that_can_not_make_it_one(world: World, declared: Sequence[int] | None, runs: bool) -> None:
    """One that runs no RESHAPE, by which a scalar is made [1]: the answer is about the operation that the model has."""
    world.connect("picky")
    program = Program(world)
    x, y = program.tensor((2, 3)), program.tensor(declared)
    program.add(OH_NN_OPS_REDUCE_MEAN, [x, program.constant(AXES)], [y])
    ok(OH_NNModel_SpecifyInputsAndOutputs(program.model, [x], [y]))
    ok(OH_NNModel_Finish(program.model))
    assert value(OH_NNModel_GetAvailableOperations(program.model, 0)) == (runs,)
    if not runs:
        assert OH_NNCompilation_Build(world.compilation(program.model)) == OH_NN_FAILED
        assert "REDUCE_FUSION node 0 'ReduceMean:0': the picky backend runs no RESHAPE" in str(oh_nn.last_error())


@pytest.mark.parametrize("declared", ((2,), (1, 1), (-1,)), ids=str)
def test_output_declared_as_what_it_is_not(program: Program, declared: Sequence[int]) -> None:
    x, y = program.tensor((2, 3)), program.tensor(declared)
    program.add(OH_NN_OPS_REDUCE_MEAN, [x, program.constant(AXES)], [y])
    ok(OH_NNModel_SpecifyInputsAndOutputs(program.model, [x], [y]))
    ok(OH_NNModel_Finish(program.model))
    assert value(OH_NNModel_GetAvailableOperations(program.model, 0)) == (False,)
    compilation = program.world.compilation(program.model)
    assert OH_NNCompilation_Build(compilation) == OH_NN_FAILED
    assert "is declared" in str(oh_nn.last_error()) and "but is []" in str(oh_nn.last_error())
