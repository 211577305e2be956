"""Level `death`: requests that would crash a daemon that doesn't check them.

The daemon must answer them and keep working.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from nnrt_client.conformance.case import Level
from nnrt_client.conformance.cases.one_node import graph_of, spec
from nnrt_client.conformance.levels.check import Check, NotOffered
from nnrt_client.conformance.levels.streams import Stream, run_frame, run_request
from nnrt_client.conformance.levels.subjects import COLUMNS, prepared_subject, require_answer, subjects
from nnrt_client.conformance.target import Connection, Target, first_reason
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.tensor import Array, TensorSpec, data_type_of
from nnrt_hdi.v2 import model_pb2, prepared_model_pb2

_HUGE = 2**31 - 1
Operand = Array | TensorSpec


def _check_survival(ask: Callable[[Connection], None], target: Target) -> None:
    """Send a request, ignore its error, and check that the device still computes.

    The kit itself checks that the daemon is still alive.
    """
    with target.session() as connection, suppress(NnrtError):
        ask(connection)
    with target.session() as connection:
        try:
            subject, prepared = prepared_subject(connection)
        except NotOffered:
            return
        with prepared:
            given = subject.question(1)
            require_answer(subject, given, prepared.run([given]), "after that")


def _prepare_and_run(graph: Graph, inputs: Sequence[Array], connection: Connection) -> None:
    if first_reason(connection.supported(graph)):
        with suppress(NnrtError):
            connection.prepare(graph).close()
        return
    with connection.prepare(graph) as prepared:
        prepared.run(inputs)


def _node(
    node_type: NodeType,
    operands: Sequence[Operand],
    result: TensorSpec | Sequence[TensorSpec],
    attrs: Mapping[str, Any],
) -> Graph:
    """Return a graph of one node; operands that are specs become its inputs, arrays its constants."""
    pairs = [
        (each, None) if isinstance(each, TensorSpec) else (spec(each.shape, data_type_of(each.dtype)), each)
        for each in operands
    ]
    return graph_of(node_type, pairs, attrs, *([result] if isinstance(result, TensorSpec) else result))


def _f(*shape: int) -> TensorSpec:
    return TensorSpec(DataType.FLOAT32, shape)


def _i(*shape: int) -> TensorSpec:
    return TensorSpec(DataType.INT32, shape)


def _hostile_nodes() -> Iterator[tuple[str, Graph, list[Array]]]:
    """Yield nodes that can't be computed, each with a name and the inputs of a run."""
    least, few = np.iinfo(np.int32).min, np.arange(6, dtype=np.float32).reshape(2, 3)
    minus, zeros = np.full(8, -1, np.int32), np.zeros(8, np.int32)
    lows = np.full(8, least, np.int32)
    for name, node_type in (
        ("divided", NodeType.DIV_FUSION),
        ("modulo", NodeType.MOD),
        ("floor_divided", NodeType.REAL_DIV),
    ):
        for divisor_name, divisor in (("zero", zeros), ("minus_one", minus)):
            graph = _node(node_type, [_i(8), _i(8)], _i(8), {})
            yield f"smallest_{name}_by_{divisor_name}", graph, [lows, divisor]
            yield f"smallest_{name}_by_constant_{divisor_name}", _node(node_type, [_i(8), divisor], _i(8), {}), [lows]
    axis = np.array(0, np.int64)
    for index in (_HUGE, -_HUGE, least, 2, -3):
        indices = np.full(4, index, np.int32)
        yield f"gather_of_{index}", _node(NodeType.GATHER, [few, _i(4), axis], _f(4, 3), {}), [indices]
        graph = _node(NodeType.GATHER, [_f(2, 3), indices, axis], _f(4, 3), {})
        yield f"gather_of_constant_{index}", graph, [few]
        places = np.full((4, 1), index, np.int32)
        shape = np.array([2, 3], np.int64)
        graph = _node(NodeType.SCATTER_ND, [_i(4, 1), _f(4, 3), shape], _f(2, 3), {})
        yield f"scatter_to_{index}", graph, [places, np.ones((4, 3), np.float32)]
    false = np.array([True, False])
    boolean = TensorSpec(DataType.BOOL, (2,))
    yield "assertion_that_fails", _node(NodeType.ASSERT, [boolean, _f(2, 3)], boolean, {}), [false, few]
    none, best = np.array([0], np.int64), [_f(2, 0), _i(2, 0)]
    for columns in (0, 3):
        graph = _node(NodeType.TOPK_FUSION, [_f(2, columns), none], best, {})
        yield f"best_none_of_{columns}", graph, [few[:, :columns].copy()]
    for count in (_HUGE, -1, least):
        sizes = np.array([count, count], np.int64)
        open_result = _f(-1, -1)
        yield f"tile_{count}_times", _node(NodeType.TILE_FUSION, [_f(2, 3), sizes], open_result, {}), [few]
        yield (
            f"broadcast_to_{count}",
            _node(NodeType.BROADCAST_TO, [_f(1, 1)], open_result, {"shape": (count, count)}),
            [few[:1, :1]],
        )
        value = np.array([1.5], np.float32)
        yield f"fill_of_{count}", _node(NodeType.FILL, [_f(1), sizes], open_result, {}), [value]
        graph = _node(NodeType.RESHAPE, [_f(2, 3), TensorSpec(DataType.INT64, (2,))], open_result, {})
        yield f"reshape_to_{count}", graph, [few, sizes]
        widths = np.array([[count, count], [count, count]], np.int64)
        yield f"pad_by_{count}", _node(NodeType.PAD_FUSION, [_f(2, 3), widths], open_result, {}), [few]
    image, kernel, bias = (np.ones(shape, np.float32) for shape in ((1, 5, 5, 2), (3, 3, 3, 2), (3,)))
    for field in ("stride", "dilation", "kernel_size"):
        for number in (0, -1, _HUGE):
            attrs = {"kernel_size": (3, 3), "stride": (1, 1), "dilation": (1, 1)} | {field: (number, number)}
            graph = _node(NodeType.CONV2D_FUSION, [_f(1, 5, 5, 2), kernel, bias], _f(1, -1, -1, 3), attrs)
            yield f"convolution_with_{field}_{number}", graph, [image]
    for number in (0, -1, _HUGE):
        attrs = {"kernel_size": (number, number), "strides": (number, number)}
        yield f"pooling_of_{number}", _node(NodeType.AVGPOOL_FUSION, [_f(1, 5, 5, 2)], _f(1, -1, -1, 2), attrs), [image]
    deep = np.zeros((1,) * 32, np.float32)
    order = np.arange(32, dtype=np.int64)[::-1].copy()
    yield (
        "transposed_in_32_dimensions",
        _node(NodeType.TRANSPOSE, [_f(*deep.shape), order], _f(*deep.shape), {}),
        [deep],
    )
    nothing = np.zeros((0, 3), np.float32)
    yield "greatest_of_nothing", _node(NodeType.ARGMAX_FUSION, [_f(0, 3)], _i(3), {"axis": 0}), [nothing]
    yield (
        "product_of_nothing",
        _node(NodeType.MATMUL_FUSION, [_f(0, 3), _f(3, 0)], _f(0, 0), {}),
        [nothing, nothing.T.copy()],
    )


def _deep_chain(connection: Connection) -> None:
    """Run a chain of ten thousand nodes."""
    subject = subjects(connection)[0]
    length = 10_000
    node = subject.graph.nodes[0]
    x = subject.graph.input_specs[0]
    constants = dict(subject.graph.constants)
    first = 1 + len(constants)
    nodes = tuple(
        Node(node.type, (0 if at == 0 else first + at - 1, *constants), (first + at,), node.attrs)
        for at in range(length)
    )
    tensors = (x, *(subject.graph.tensors[at] for at in constants), *([x] * length))
    graph = Graph(tensors, nodes, (0,), (first + length - 1,), constants, "deep")
    with connection.prepare(graph) as prepared:
        prepared.run([subject.question(1)])


def _run_of_wild_requests(connection: Connection) -> None:
    """Send invalid requests of runs."""
    subject, prepared = prepared_subject(connection)
    given = subject.question(1)
    with prepared:
        requests = [
            run_request(prepared, [given] * 1000),
            run_request(prepared, [given], outputs=[model_pb2.IOTensor()] * 1000),
            run_request(prepared, [given], traceparent="\xff" * 100),
            prepared_model_pb2.RunRequest(model_id=prepared.handle.model_id, inputs=[model_pb2.IOTensor()] * 100_000),
        ]
        for dims in ([2**31 - 1] * 4, [-1, -1], [0] * 32, [-(2**31)], [1] * 1000, [COLUMNS]):
            request = run_request(prepared, [given])
            del request.inputs[0].dimensions[:]
            request.inputs[0].dimensions.extend(dims)
            requests.append(request)
        for region in (
            model_pb2.BufferRegion(buffer_id=2**63, offset=2**63, data_size=2**63),
            model_pb2.BufferRegion(buffer_id=0, offset=0, data_size=2**64 - 1),
        ):
            request = run_request(prepared, [given])
            request.inputs[0].data.region.CopyFrom(region)
            requests.append(request)
        for request in requests:
            with suppress(NnrtError):
                connection.call("PreparedModel.Run", request)
        sound = run_frame(prepared, [given])
        for frame in (sound[:-8], sound[:20], b"\xff" * 100, sound * 40, sound[:24] + b"\xff" * (len(sound) - 24)):
            with Stream(connection) as stream, suppress(NnrtError):
                stream.send(frame)
                stream.await_reply()


def checks() -> Iterator[Check]:
    """Yield the checks of the level."""
    for name, graph, inputs in _hostile_nodes():
        function = partial(_check_survival, partial(_prepare_and_run, graph, inputs))
        yield Check(Level.DEATH, f"death/{name}", function, (graph.nodes[0].type,), graph.tensors[0].data_type)
    for name, ask in (("chain_of_10000_nodes", _deep_chain), ("wild_requests", _run_of_wild_requests)):
        yield Check(Level.DEATH, f"death/{name}", partial(_check_survival, ask))
