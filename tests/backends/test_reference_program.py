"""Runs of the reference backend: what it refuses, when it stops, whose memory its outputs are."""

import gc
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from loaded import loaded
from nnrt_backend_reference import create
from nnrt_backend_reference.kernels import KERNELS
from numpy.typing import NDArray

from nnrt_hdi import __version__
from nnrt_hdi.backend import Cancellation, Capabilities, ModelConfig, PreparedModel
from nnrt_hdi.enums import ActivationType, DataType, DeviceType, Format, NodeType, PadMode
from nnrt_hdi.errors import InvalidParameter, OperationFailed, OutOfMemory, TimedOut, Unsupported
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import MAX_DIM, TensorSpec, data_type_of

AnyArray = NDArray[Any]
N = NodeType
TANH = {"activation_type": ActivationType.TANH}


def f32(*shape: int) -> TensorSpec:
    return TensorSpec(DataType.FLOAT32, shape)


def of_constant(values: AnyArray) -> TensorSpec:
    return TensorSpec(data_type_of(values.dtype), values.shape)


def chain(length: int, shape: tuple[int, ...] = (2, 3)) -> Graph:
    """tanh of tanh of ... of the input."""
    nodes = [Node(N.ACTIVATION, (index,), (index + 1,), TANH, f"tanh{index}") for index in range(length)]
    return Graph((f32(*shape),) * (length + 1), tuple(nodes), (0,), (length,))


def prepare(graph: Graph, **config: Any) -> PreparedModel:
    return loaded("reference").prepare(graph, ModelConfig(**config), lambda _: None)


def run(graph: Graph, *inputs: AnyArray, **config: Any) -> list[AnyArray]:
    return prepare(graph, **config).run(inputs, Cancellation())


class CancelledAfter(Cancellation):
    """Counts the checks, and cancels at one of them."""

    def __init__(self, checks: int) -> None:
        super().__init__()
        self.checks_left = checks

    def check(self) -> None:
        if self.checks_left == 0:
            self.cancel()
        self.checks_left -= 1
        super().check()


# ---- the device ------------------------------------------------------------------------------------------------------


def test_description() -> None:
    info = loaded("reference").describe()
    assert (info.device_name, info.vendor_name, info.device_type) == ("reference", "nnrt", DeviceType.CPU)
    assert info.capabilities == Capabilities(True, False, True, True, True, profiling=True), "all but performance modes"
    assert info.backend_version == __version__


def test_options() -> None:
    assert create({"name": "left"}).describe().device_name == "left"
    with pytest.raises(InvalidParameter, match="no option 'speed'; it has name"):
        create({"speed": "11"})


def test_there_is_a_kernel_for_every_operator() -> None:
    assert set(KERNELS) == set(OPERATORS)


def test_unknown_extension() -> None:
    with pytest.raises(InvalidParameter, match="no extension 'turbo'"):
        prepare(chain(1), extensions={"turbo": b""})


def test_node_type_without_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(KERNELS, N.ACTIVATION)
    (support,) = loaded("reference").supported(chain(1))
    assert support.reason == "the reference backend has no ACTIVATION kernel"
    with pytest.raises(Unsupported, match="node 0 'tanh0': the reference backend has no ACTIVATION kernel"):
        prepare(chain(1))


def test_constant_that_is_not_here() -> None:
    graph = Graph((f32(2), f32(2)), (Node(N.ACTIVATION, (0,), (1,), TANH),), (), (1,), {0: Constant(b"", 8)})
    with pytest.raises(InvalidParameter, match="its data is not here"):
        prepare(graph)


# ---- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checks", [0, 1, 4])
def test_cancellation_stops_before_the_next_operator(checks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    tanh = KERNELS[N.ACTIVATION]

    def counted(*arguments: Any) -> Any:
        ran.append(1)
        return tanh(*arguments)

    monkeypatch.setitem(KERNELS, N.ACTIVATION, counted)
    model = prepare(chain(5))
    with pytest.raises(OperationFailed, match="cancelled"):
        model.run([np.zeros((2, 3), np.float32)], CancelledAfter(checks))
    assert len(ran) == checks


def test_nothing_starts_after_the_deadline() -> None:
    with pytest.raises(TimedOut):
        prepare(chain(1)).run([np.zeros((2, 3), np.float32)], Cancellation(deadline=0.0))


# ---- memory ----------------------------------------------------------------------------------------------------------


def outer_product(rows: int, columns: int) -> Graph:
    specs = f32(rows, 1), f32(1, columns), f32(rows, columns)
    return Graph(specs, (Node(N.ADD_FUSION, (0, 1), (2,), name="outer"),), (0, 1), (2,))


def test_too_large_tensor_is_refused_when_it_is_prepared() -> None:
    with pytest.raises(
        OutOfMemory, match=r"ADD_FUSION node 0 'outer': FLOAT32\[1000000, 1000000\] needs 4000000000000"
    ):
        prepare(outer_product(10**6, 10**6))


def test_too_large_tensor_is_refused_when_it_would_be_made() -> None:
    model = prepare(outer_product(-1, -1), max_tensor_bytes=1 << 10)
    inputs = np.ones((16, 1), np.float32), np.ones((1, 16), np.float32)
    assert model.run(inputs, Cancellation())[0].nbytes == 1 << 10
    with pytest.raises(OutOfMemory, match="at most 1024 are allowed"):
        model.run([*inputs[:1], np.ones((1, 17), np.float32)], Cancellation())


def test_too_large_padding_is_refused() -> None:
    """A far stride makes a small output of a gigantic padded image."""
    far = 2**30
    attrs = {"stride": (far, far), "pad_list": (far, 0, far, 0)}
    one = f32(1, 1, 1, 1)
    graph = Graph(
        (one, one, f32(1), f32(1, 2, 2, 1)), (Node(N.CONV2D_FUSION, (0, 1, 2), (3,), attrs),), (0, 1, 2), (3,)
    )
    pixel = np.ones((1, 1, 1, 1), np.float32)
    with pytest.raises(OutOfMemory, match="CONV2D_FUSION node 0"):
        run(graph, pixel, pixel, np.ones(1, np.float32))


def test_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any) -> Any:
        raise MemoryError("no")

    monkeypatch.setitem(KERNELS, N.ACTIVATION, exhausted)
    with pytest.raises(OutOfMemory, match="ACTIVATION node 0 'tanh0': no"):
        run(chain(1), np.zeros((2, 3), np.float32))


@pytest.mark.slow
def test_intermediates_are_freed_after_their_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[AnyArray]] = []
    counts: list[int] = []

    def watched(_: Any, x: AnyArray) -> AnyArray:
        gc.collect()
        counts.append(sum(ref() is not None for ref in alive))
        result = np.tanh(x)
        alive.append(weakref.ref(result))
        return result

    monkeypatch.setitem(KERNELS, N.ACTIVATION, watched)
    run(chain(6), np.zeros((2, 3), np.float32))
    assert max(counts) == 1


# ---- whose memory it is ----------------------------------------------------------------------------------------------


def view_graph(*outputs: int) -> Graph:
    """Tensors: 0 input, 1 constant, 2 and 4 both squeezed, 3 is 2 squeezed again, 5 computed, 6 is 5 squeezed."""
    specs = f32(1, 4), f32(1, 3), f32(4), f32(4), f32(3), f32(1, 4), f32(4)
    nodes = (
        *(Node(N.SQUEEZE, (source,), (target,)) for source, target in ((0, 2), (2, 3), (1, 4), (5, 6))),
        Node(N.ACTIVATION, (0,), (5,), TANH),
    )
    return Graph(specs, nodes, (0,), outputs, {1: Constant.of(np.ones((1, 3), np.float32))})


def test_outputs_share_no_memory() -> None:
    graph = view_graph(0, 2, 3, 4, 1, 5, 6)
    model = prepare(graph)
    x = np.arange(4, dtype=np.float32).reshape(1, 4)
    outputs = model.run([x], Cancellation())
    for output in outputs:
        output[...] = -1
    np.testing.assert_array_equal(x, [[0, 1, 2, 3]])
    again = model.run([x], Cancellation())
    np.testing.assert_array_equal(again[1], [0, 1, 2, 3])
    np.testing.assert_array_equal(again[3], [1, 1, 1])
    for index, output in enumerate(again):
        assert output.flags.c_contiguous
        assert output.flags.writeable
        assert not any(np.shares_memory(output, other) for other in (*again[:index], x))


def test_outputs_are_contiguous() -> None:
    order = np.array([1, 0])
    graph = Graph(
        (f32(2, 3), of_constant(order), f32(3, 2)),
        (Node(N.TRANSPOSE, (0, 1), (2,)),),
        (0,),
        (2,),
        {1: Constant.of(order)},
    )
    (output,) = run(graph, np.ones((2, 3), np.float32))
    assert output.flags.c_contiguous


def test_inputs_may_be_read_only() -> None:
    x = np.ones((2, 3), np.float32)
    x.flags.writeable = False
    np.testing.assert_allclose(run(chain(1), x)[0], np.tanh(x), rtol=1e-6)


# ---- shapes known only at run time -----------------------------------------------------------------------------------


def small_network(batch: int, height: int, width: int) -> Graph:
    """Convolution, pooling, flattening to a shape that is computed, and a dense layer."""
    random = np.random.default_rng(7)
    weight, bias = random.normal(size=(4, 3, 3, 3)).astype("f4"), random.normal(size=4).astype("f4")
    dense, target = random.normal(size=(5, 4)).astype("f4"), np.array([0, -1], np.int32)
    image = TensorSpec(DataType.FLOAT32, (batch, height, width, 3), Format.NHWC)
    unknown = -1 if batch < 0 else batch
    constants = {1: weight, 2: bias, 5: target, 7: dense}
    specs = {
        0: image,
        3: f32(unknown, -1, -1, 4),
        4: f32(unknown, 1, 1, 4),
        6: f32(unknown, -1),
        8: f32(unknown, 5),
        **{index: of_constant(array) for index, array in constants.items()},
    }
    nodes = (
        Node(N.CONV2D_FUSION, (0, 1, 2), (3,), {"pad_mode": PadMode.SAME, "stride": (2, 2)}),
        Node(N.AVGPOOL_FUSION, (3,), (4,), {"global": True}),
        Node(N.RESHAPE, (4, 5), (6,)),
        Node(N.FULL_CONNECTION, (6, 7), (8,)),
    )
    return Graph(
        tuple(specs[index] for index in range(9)),
        nodes,
        (0,),
        (8,),
        {index: Constant.of(array) for index, array in constants.items()},
    )


def image(batch: int, height: int, width: int) -> AnyArray:
    return np.random.default_rng(3).normal(size=(batch, height, width, 3)).astype(np.float32)


@pytest.mark.parametrize("size", [(1, 8, 8), (3, 5, 9), (0, 8, 8), (2, 1, 1)])
def test_dynamic_model_gives_what_a_fixed_one_gives(size: tuple[int, int, int]) -> None:
    dynamic = prepare(small_network(-1, -1, -1))
    assert dynamic.outputs[0].shape == (-1, 5)
    (output,) = dynamic.run([image(*size)], Cancellation())
    np.testing.assert_array_equal(output, run(small_network(*size), image(*size))[0])


def test_input_ranges() -> None:
    (limits,) = prepare(small_network(2, -1, -1)).input_ranges()
    assert limits.min_dims == (2, 0, 0, 3)
    assert limits.max_dims == (2, MAX_DIM, MAX_DIM, 3)


def test_real_shapes_that_do_not_fit_are_refused() -> None:
    model = prepare(outer_like(f32(-1), f32(-1), f32(-1)))
    with pytest.raises(InvalidParameter, match=r"ADD_FUSION node 0 'outer': a \[3\] and b \[2\] do not broadcast"):
        model.run([np.ones(3, np.float32), np.ones(2, np.float32)], Cancellation())


def test_result_that_contradicts_its_declaration_is_refused() -> None:
    model = prepare(outer_like(f32(-1), f32(-1), f32(4)))
    with pytest.raises(InvalidParameter, match=r"output is declared \[4\] but is \[2\]"):
        model.run([np.ones(2, np.float32), np.ones(2, np.float32)], Cancellation())


def outer_like(a: TensorSpec, b: TensorSpec, y: TensorSpec) -> Graph:
    return Graph((a, b, y), (Node(N.ADD_FUSION, (0, 1), (2,), name="outer"),), (0, 1), (2,))


@pytest.mark.parametrize(
    ("node_type", "index", "wanted"),
    [
        (N.RESHAPE, [3, 2], [[1, 2], [3, 4], [5, 6]]),
        (N.TRANSPOSE, [1, 0], [[1, 4], [2, 5], [3, 6]]),
        (N.PAD_FUSION, [[0, 0], [1, 0]], [[0, 1, 2, 3], [0, 4, 5, 6]]),
        (N.REDUCE_FUSION, [0], [2.5, 3.5, 4.5]),
    ],
)
@pytest.mark.parametrize("is_declared", [False, True])
def test_indices_known_only_at_run_time(
    node_type: NodeType, index: Sequence[Any], wanted: Sequence[Any], is_declared: bool
) -> None:
    """The operand that decides the shape is an input; a shape that is only declared is checked against it."""
    indices, result = np.array(index), np.array(wanted, np.float32)
    y = f32(*result.shape) if is_declared else f32(*[-1] * result.ndim)
    graph = Graph((f32(2, 3), of_constant(indices), y), (Node(node_type, (0, 1), (2,)),), (0, 1), (2,))
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(graph, x, indices)[0], result)
    if is_declared and node_type is N.PAD_FUSION:
        with pytest.raises(InvalidParameter, match=r"declared \[2, 4\] but is \[2, 3\]"):
            run(graph, x, indices * 0)


# ---- many runs at once -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [small_network(-1, -1, -1), small_network(2, 9, 9)], ids=["dynamic", "fixed"])
def test_runs_at_once_do_not_disturb_each_other(graph: Graph) -> None:
    model = prepare(graph)
    images = [np.full((2, 9, 9, 3), value, np.float32) for value in range(40)]
    wanted = [model.run([x], Cancellation())[0] for x in images]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda x: model.run([x], Cancellation())[0], images))
    np.testing.assert_array_equal(results, wanted)
