"""A device prepares what it says it supports, and runs what it prepares.

Small random graphs of all operators that are declared, about half of them wrong somewhere.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from daemon_process import DaemonProcess
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from model_draft import Draft
from part import examples
from random_values import is_int_lists, random_array, random_attribute, random_quantization
from raw_client import RawClient, attacked_daemon

from nnrt_device_service.device import Device
from nnrt_device_service.models.compilations import Progress
from nnrt_device_service.models.requests import Build
from nnrt_device_service.settings import Settings
from nnrt_hdi import wire
from nnrt_hdi.backend import (
    Backend,
    Capabilities,
    DeviceInfo,
    ModelConfig,
    PreparedModel,
    Support,
)
from nnrt_hdi.enums import DataType, DeviceType, Format, NodeType
from nnrt_hdi.errors import NnrtError, Unsupported
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.ops import OPERATORS, infer_node
from nnrt_hdi.ops.operator import OperandRule
from nnrt_hdi.tensor import NUMPY_DTYPES, UNKNOWN_DIM, Array, TensorSpec
from nnrt_hdi.v2 import prepared_model_pb2

EXAMPLES = examples(300)
# How often a node that can't be is drawn again before it is left in.
ATTEMPTS = 8

Value = tuple[TensorSpec, Array | None]


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with attacked_daemon("--tensor-bytes", str(1 << 20)) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def client(daemon: DaemonProcess) -> Iterator[RawClient]:
    with RawClient(daemon.address) as client:
        yield client


@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(seed=st.integers(0, 2**32))
@pytest.mark.slow
def test_supported_prepared_and_run_agree(client: RawClient, seed: int) -> None:
    rng = Random(seed)  # noqa: S311
    draft = RandomGraph(rng).draft
    supports = client.supported(draft.message)
    reasons = [support.reason for support in supports if not support.supported]
    try:
        prepared = prepare(client, draft)
    except NnrtError as error:
        event("refused")
        assert error.message in reasons
        assert "unexpectedly" not in error.message
        return
    assert not reasons
    event("prepared")
    for _ in range(2):
        check_run(client, prepared, rng)
    client.call("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=prepared.model_id))


def prepare(client: RawClient, draft: Draft) -> Any:
    """The prepared model, after sending those of its constants that are not in the session yet."""
    outcome = client.prepare(draft.message)
    missing = {entry.sha256 for entry in outcome.missing.constants}
    if missing:
        client.upload(*{data for data in draft.uploads if draft.digest(data) in missing})
        outcome = client.prepare(draft.message)
    return outcome.prepared


def check_run(client: RawClient, prepared: Any, rng: Random) -> None:
    """Inputs that fit give outputs that fit, or an error that somebody raised on purpose."""
    inputs = [
        random_array(rng, [rng.randint(0, 3) if dim == UNKNOWN_DIM else dim for dim in spec.shape], spec.data_type)
        for spec in map(wire.tensor_spec, prepared.inputs)
    ]
    try:
        outputs = client.run(prepared.model_id, *inputs)
    except NnrtError as error:
        event("run refused")
        assert "the daemon failed with" not in error.message
        return
    event("run")
    for spec, output in zip(map(wire.tensor_spec, prepared.outputs), outputs, strict=True):
        assert output.dtype == spec.numpy_dtype
        assert spec.accepts(output.shape)


class RandomGraph:
    """A draft that has grown by a few nodes, most of which can be."""

    def __init__(self, rng: Random) -> None:
        self.draft = Draft()
        self._rng = rng
        self._values: dict[int, Value] = {}
        for _ in range(rng.randint(1, 4)):
            self._grow()
        read = {index for node in self.draft.nodes for index in node.input_index}
        written = [index for node in self.draft.nodes for index in node.output_index]
        self.draft.message.output_index.extend(index for index in written if index not in read or rng.random() < 0.2)

    def _grow(self) -> None:
        rng = self._rng
        operator = OPERATORS[rng.choice(sorted(OPERATORS))]
        operands: list[tuple[int | None, Value]] = []
        attrs: dict[str, Any] = {}
        outputs: tuple[TensorSpec, ...] = (TensorSpec(DataType.FLOAT32, ()),)
        for _ in range(ATTEMPTS):
            data_type = rng.choice([DataType.FLOAT32, DataType.FLOAT32, *NUMPY_DTYPES])
            operands = self._operands(operator.operands, data_type)
            attrs = {
                name: random_attribute(rng, rule) for name, rule in operator.attributes.items() if rng.random() < 0.6
            }
            try:
                outputs = infer_node(Node(operator.node_type, (), (), attrs), [value for _, value in operands])
                break
            except NnrtError:
                outputs = (TensorSpec(DataType.UNKNOWN, (UNKNOWN_DIM,) * rng.randint(0, 4)),)
                if rng.random() < 0.05:
                    break
        indices = [self._index(*operand) for operand in operands]
        written = [self._declared(spec) for spec in outputs]
        self.draft.node(operator.node_type, indices, written, **self._message_attrs(operator.node_type, attrs))

    def _operands(self, rules: Sequence[OperandRule], data_type: DataType) -> list[tuple[int | None, Value]]:
        """Existing tensors by index, or values that become tensors if they are used."""
        rng = self._rng
        wanted: list[OperandRule] = []
        for rule in rules:
            if rule.optional and rng.random() < 0.3:
                break
            wanted.extend([rule] * (rng.randint(1, 3) if rule.variadic else 1))
        operands: list[tuple[int | None, Value]] = []
        # With one length for all dimensions, matrices and windows fit each other more often.
        lengths = rng.choice([[1], [1], [2], [3], [0, 1, 1, 2, 2, 3, 4]])
        like = [rng.choice(lengths) for _ in range(rng.randint(0, 4))]
        for rule in wanted:
            fitting = [
                index for index, (spec, _) in self._values.items() if fits(rule, spec) and spec.data_type is data_type
            ]
            if fitting and rng.random() < 0.5:
                index = rng.choice(fitting)
                operands.append((index, self._values[index]))
                like = [abs(dim) for dim in self._values[index][0].shape]
            else:
                operands.append((None, self._new_value(rule, data_type, like, lengths)))
        return operands

    def _new_value(self, rule: OperandRule, data_type: DataType, like: Sequence[int], lengths: Sequence[int]) -> Value:
        rng, accepts = self._rng, rule.accepts
        if accepts.data_types and data_type not in accepts.data_types:
            data_type = rng.choice(sorted(accepts.data_types))
        shape = list(like) if rng.random() < 0.9 else [rng.randint(0, 4) for _ in range(rng.randint(0, 5))]
        if rng.random() < 0.02:
            shape = [300]
        most = 4 if accepts.max_rank is None else accepts.max_rank
        shape = shape[len(shape) - most :] if len(shape) > most else shape
        shape += [rng.choice(lengths) for _ in range(accepts.min_rank - len(shape))]
        layout = rng.choice([Format.NONE, Format.NHWC, Format.NCHW]) if len(shape) == 4 else Format.NONE
        quant = random_quantization(rng, data_type)
        if rng.random() < 0.5:
            array = random_array(rng, shape, data_type)
            return TensorSpec(data_type, tuple(shape), layout, quant), array
        dims = tuple(UNKNOWN_DIM if rng.random() < 0.15 else dim for dim in shape)
        return TensorSpec(data_type, dims, layout, quant), None

    def _index(self, index: int | None, value: Value) -> int:
        if index is not None:
            return index
        spec, array = value
        fields = message_fields(spec)
        if array is None:
            index = self.draft.input(spec.shape, spec.data_type, **fields)
        else:
            index = self.draft.constant(array, **fields)
        self._values[index] = spec, array if array is not None and array.nbytes <= 1024 else None
        return index

    def _declared(self, spec: TensorSpec) -> int:
        """A tensor declared as what it is, or less, or (seldom) otherwise."""
        rng = self._rng
        shape = [UNKNOWN_DIM if rng.random() < 0.1 else dim for dim in spec.shape]
        if shape and rng.random() < 0.02:
            shape[0] += 1
        data_type = DataType.UNKNOWN if rng.random() < 0.3 else spec.data_type
        quant = random_quantization(rng, data_type)
        index = self.draft.tensor(shape, data_type, **message_fields(TensorSpec(data_type, (), quant=quant)))
        self._values[index] = replace(spec, quant=spec.quant or quant), None
        return index

    def _message_attrs(self, node_type: NodeType, attrs: dict[str, Any]) -> dict[str, Any]:
        lists = {name for name, rule in OPERATORS[node_type].attributes.items() if is_int_lists(rule)}
        return {
            name: [{"values": entry} for entry in value] if name in lists else value for name, value in attrs.items()
        }


def fits(rule: OperandRule, spec: TensorSpec) -> bool:
    accepts = rule.accepts
    most = 32 if accepts.max_rank is None else accepts.max_rank
    return (not accepts.data_types or spec.data_type in accepts.data_types) and accepts.min_rank <= spec.rank <= most


def message_fields(spec: TensorSpec) -> dict[str, Any]:
    """Parts of a spec are said only where it has them."""
    fields: dict[str, Any] = {} if spec.format is Format.NONE else {"format": spec.format}
    if spec.quant:
        fields["quant_params"] = wire.tensor_message(spec).quant_params
    return fields


# ---- devices that can do less


class _FixedShapes(Backend):
    """Runs everything, but not with unknown dimensions."""

    def describe(self) -> DeviceInfo:
        return DeviceInfo("fixed", "test", DeviceType.OTHER, Capabilities(dynamic_input=False), "fixed", "0")

    def supported(self, graph: Graph) -> list[Support]:
        return [Support() for _ in graph.nodes]

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        raise AssertionError("a graph it can't take came through")


def test_a_device_without_dynamic_inputs() -> None:
    draft = Draft()
    fixed, unknown = draft.input([2]), draft.input([-1])
    draft.node(NodeType.SOFTMAX, [fixed], [draft.output([2])])
    draft.node(NodeType.SOFTMAX, [unknown], [draft.output([-1])])
    graph, limits = wire.graph(draft.message), Settings()
    device = Device(_FixedShapes(), limits)
    session = device.sessions.open("test", lambda: None)
    device.open_account(session, "somebody")
    assert [support.supported for support in device.models.supported(session, graph, Progress())] == [True, False]
    with pytest.raises(
        Unsupported, match=r"it is .*\?.*needs every dimension of an input, so fix its shape"
    ) as refusal:
        device.models.prepare(wire.SentModel(draft.message), Build(session, ModelConfig(), Progress()))
    assert refusal.value.place == f"tensor {unknown}"
    assert refusal.value.message == device.models.supported(session, graph, Progress())[1].reason
