"""Lowering of a graph to an ONNX model, node by node."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx

from nnrt_hdi.enums import ActivationType, NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, OutOfMemory, Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.ops.activation import FUSABLE
from nnrt_hdi.ops.quantized import RealView, Scaling, real_spec
from nnrt_hdi.tensor import TensorSpec
from nnrt_onnx_lowering.assertions import Assertions
from nnrt_onnx_lowering.builder import Onnx, external_tensor
from nnrt_onnx_lowering.compositions import Composition, Compositions
from nnrt_onnx_lowering.engine import AnyDType, Engine
from nnrt_onnx_lowering.lowering import LOWERINGS
from nnrt_onnx_lowering.lowering.lowering import Call, Lowering
from nnrt_onnx_lowering.quantized import clamped, dequantize, quantize
from nnrt_onnx_lowering.signedness import convert_integers, flipped
from nnrt_onnx_lowering.value import FLOAT32, AnyArray, Value

HALF = np.dtype(np.float16)
# The largest message that protobuf serializes.
MOST_WHOLE_BYTES = (1 << 31) - 1

# Operators that can return NaN for numbers. NNRt quantizes NaN as the number 0; ONNX has no rule for it.
UNDEFINED = frozenset(
    {
        NodeType.DIV_FUSION,
        NodeType.FUSED_BATCH_NORM,
        NodeType.INSTANCE_NORM,
        NodeType.L2_NORMALIZE_FUSION,
        NodeType.LAYER_NORM_FUSION,
        NodeType.LOG,
        NodeType.MOD,
        NodeType.POW_FUSION,
        NodeType.REAL_DIV,
        NodeType.REDUCE_FUSION,
        NodeType.RSQRT,
        NodeType.SQRT,
    }
)


# Returns the location of a weight, as ONNX names it, and the offset of its first byte there.
Place = Callable[[str, AnyArray], tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Lowered:
    """ONNX model of a graph, and what a backend needs to run it.

    Small constants are embedded in `model`. The elements of the others are in `weights`, contiguous, by the names of
    their initializers, whose location is "weights". An engine that takes weights by name gets `model` and `weights`,
    which has to live as long as the engine reads it. Other engines use the models of `whole` or `placed`.

    `inputs` are the names of the model's inputs in the order of the graph's. `outputs` are the names of its outputs:
    the graph's in their order, then those for assertions. Pass all of them to `assertions.checked`, which returns the
    graph's.
    """

    model: onnx.ModelProto
    weights: Mapping[str, AnyArray]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    assertions: Assertions

    def whole(self) -> onnx.ModelProto:
        """Return the model with all weights embedded.

        Raises:
            OutOfMemory: The model is larger than 2 GiB, the most that ONNX serializes.
        """
        size = self.model.ByteSize() + sum(array.nbytes for array in self.weights.values())
        if size > MOST_WHOLE_BYTES:
            raise OutOfMemory(f"the model has {size} bytes; whole it may have {MOST_WHOLE_BYTES}: place its weights")
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for tensor in self._external_tensors(model):
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
            tensor.raw_data = self.weights[tensor.name].tobytes()
        return model

    def placed(self, place: Place) -> onnx.ModelProto:
        """Return the model with weights in a file, or wherever the engine looks for them.

        Args:
            place: Returns location and offset of a weight, given its name and elements.
        """
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for tensor in self._external_tensors(model):
            array = self.weights[tensor.name]
            tensor.CopyFrom(external_tensor(tensor.name, array, *place(tensor.name, array)))
        return model

    def _external_tensors(self, model: onnx.ModelProto) -> list[onnx.TensorProto]:
        return [tensor for tensor in model.graph.initializer if tensor.name in self.weights]


def lower(graph: Graph, engine: Engine, *, float16: bool = False) -> Lowered:
    """Return the ONNX model of a graph, in operators that an engine takes.

    The model has inputs and outputs of the same data types and shapes as the graph. Each unknown dimension gets a name
    of its own. Quantized nodes become real ones between DequantizeLinear and QuantizeLinear.

    Args:
        graph: An inferred graph (`nnrt_hdi.ops.inferred_graph`) with the data of all constants.
        engine: The engine that is to run the model.
        float16: Whether FLOAT32 tensors inside of the model are rounded to FLOAT16 (`ModelConfig.enable_float16`). An
            engine that computes in FLOAT16 (`computes_float16`) then needs half of the memory.

    Raises:
        Unsupported: ONNX or the engine can't express a node, for instance because its construction depends on a value
            that only a run knows. The error has the node's place.
    """
    return _Lowering(graph, engine, float16).lower()


class _Lowering:
    """Lowering of one graph: quantized tensors get the types of the engine's kernels, except inputs and outputs."""

    def __init__(self, given: Graph, engine: Engine, float16: bool) -> None:
        self._interface = given
        self._graph = convert_integers(engine.integers, given)
        self._engine = engine
        self._op = Onnx(engine)
        self._float16 = float16
        self._values: dict[int, Value] = {}

    def lower(self) -> Lowered:
        graph, op = self._graph, self._op
        for index in graph.inputs:
            spec = self._interface.tensors[index]
            self._values[index] = self._as_stored_input(op.input(spec.numpy_dtype, spec.shape), graph.tensors[index])
        for index, constant in graph.constants.items():
            self._values[index] = self._constant(index, constant.data, constant.shape_value)
        assertions = Assertions.from_graph(graph)
        outputs = (*graph.outputs, *assertions.tensors)
        compositions = Compositions(graph, outputs, self._engine)
        for index in graph.order:
            if index not in compositions.needed:
                continue
            op.place = graph.place(index)
            try:
                if composition := compositions.by_node.get(index):
                    self._compose(composition)
                else:
                    self._lower(index)
            except NnrtError as error:
                raise error.at(graph.place(index)) from error
        op.place = ""
        model = op.model([(self._as_declared(at), graph.tensors[at].shape) for at in outputs])
        inputs, given = (tuple(info.name for info in infos) for infos in (model.graph.input, model.graph.output))
        return Lowered(model, op.weights, inputs, given, assertions)

    def _constant(self, index: int, data: AnyArray | None, small: AnyArray | None) -> Value:
        spec = self._graph.tensors[index]
        stored = self._stored_type(spec)
        if data is None:
            raise InvalidParameter("its data is not here", place=self._graph.tensor_place(index))
        return replace(self._op.constant(data).cast(stored), elements=small)

    def _as_declared(self, index: int) -> Value:
        """Return an output in the type that the graph declares."""
        spec = self._interface.tensors[index]
        value = self._values[index]
        return flipped(value) if _has_other_type(value, spec) else value.cast(spec.numpy_dtype)

    def _as_stored_input(self, value: Value, spec: TensorSpec) -> Value:
        """Return an input in the type in which the model stores it."""
        if not _has_other_type(value, spec):
            return value.cast(self._stored_type(spec))
        return replace(flipped(value), shape=value.shape, rank=value.rank)

    def _stored_type(self, spec: TensorSpec) -> AnyDType:
        """Return the type in which the model stores a tensor: FLOAT16 for FLOAT32 if `float16` is set."""
        return HALF if self._float16 and spec.numpy_dtype == FLOAT32 else spec.numpy_dtype

    def _compute_type(self, dtype: AnyDType) -> AnyDType:
        """Return the type in which the engine computes with elements stored as `dtype`."""
        return FLOAT32 if dtype == HALF and not self._engine.computes_float16 else dtype

    def _as_stored(self, result: Value, spec: TensorSpec) -> Value:
        """Cast a result to the stored type, unless it has the type in which the engine computes."""
        stored = self._stored_type(spec)
        return result if result.dtype == self._compute_type(stored) else result.cast(stored)

    def _unify(self, call: Call, operands: Sequence[Value]) -> Sequence[Value]:
        """Return the operands of a node that only moves elements, with one type for all that are stored as FLOAT16.

        If some of these were computed in FLOAT32, all are cast to FLOAT32.
        """
        halves = [self._stored_type(spec) == HALF for spec in call.inputs]
        types = {x.dtype for x, is_half in zip(operands, halves, strict=True) if is_half}
        if len(types) < 2:
            return operands
        return [x.cast(FLOAT32) if is_half else x for x, is_half in zip(operands, halves, strict=True)]

    def _compose(self, composition: Composition) -> None:
        """Lower a composition, unless another of its output nodes has caused that already."""
        if composition.outputs[0] in self._values:
            return
        results = composition.make(self._op, [self._values[at] for at in composition.inputs])
        for at, result in zip(composition.outputs, results, strict=True):
            spec = self._graph.tensors[at]
            self._values[at] = self._as_stored(result, spec).with_inferred(spec.rank, spec.shape)

    def _lower(self, index: int) -> None:
        node, tensors = self._graph.nodes[index], self._graph.tensors
        inputs = tuple(tensors[at] for at in node.inputs)
        outputs = tuple(tensors[at] for at in node.outputs)
        if all(0 in spec.shape and not spec.is_dynamic for spec in outputs) and node.type is not NodeType.ASSERT:
            for at, spec in zip(node.outputs, outputs, strict=True):
                self._values[at] = self._op.constant(np.empty(spec.shape, self._stored_type(spec)))
            return
        operator, rule = OPERATORS[node.type], LOWERINGS.get(node.type)
        if rule is None:
            raise Unsupported(f"{node.type.name} can't be expressed in ONNX")
        attrs = SimpleNamespace(**operator.bind(node.attrs))
        operands = [self._values[at] for at in node.inputs]
        view = operator.real_view(inputs, outputs)
        stored = self._stored_type(outputs[0])
        call = Call(node.type, attrs, inputs, outputs, stored if rule.moves else self._compute_type(stored))
        results = self._lower_real(rule, call, operands, view) if view else self._lower_plain(rule, call, operands)
        for at, spec, result in zip(node.outputs, outputs, results, strict=True):
            self._values[at] = result.with_inferred(spec.rank, spec.shape)

    def _lower_plain(self, rule: Lowering, call: Call, operands: Sequence[Value]) -> list[Value]:
        """Lower a node that computes with the elements of its operands as they are, and return its results."""
        given = self._unify(call, operands) if rule.moves else [x.cast(self._compute_type(x.dtype)) for x in operands]
        results = self._call(rule, call, given)
        return [self._as_stored(result, spec) for result, spec in zip(results, call.outputs, strict=True)]

    def _lower_real(self, rule: Lowering, call: Call, operands: Sequence[Value], view: RealView) -> list[Value]:
        """Lower a node that computes with the real numbers of its quantized operands, and return its results."""
        outputs = tuple(map(_real_spec, call.outputs, view.outputs))
        inputs = tuple(map(_real_spec, call.inputs, view.inputs))
        attrs, activation_type = _without_activation(call.attrs)
        real_call = Call(call.node_type, attrs, inputs, outputs, outputs[0].numpy_dtype)
        real = [
            self._dequantized(x, scaling, at, call) if scaling else x.cast(self._compute_type(x.dtype))
            for at, (x, scaling) in enumerate(zip(operands, view.inputs, strict=True))
        ]
        computed = self._call(rule, real_call, real)
        if call.node_type in UNDEFINED:
            computed = [self._op.Where(self._op.IsNaN(y), 0, y) if y.dtype.kind == "f" else y for y in computed]
        results = zip(computed, view.outputs, call.outputs, strict=True)
        quantized = [
            quantize(self._op, y, scaling, spec.numpy_dtype, spec.rank) if scaling else self._as_stored(y, spec)
            for y, scaling, spec in results
        ]
        scaling = view.outputs[0]
        if scaling and activation_type is not ActivationType.NO_ACTIVATION:
            quantized[0] = clamped(self._op, quantized[0], scaling, activation_type, call.outputs[0].rank)
        return quantized

    def _dequantized(self, x: Value, scaling: Scaling, at: int, call: Call) -> Value:
        """Return the real numbers of a quantized operand. Rank and shape stay known."""
        rules = OPERATORS[call.node_type].operands
        accepts = rules[min(at, len(rules) - 1)].accepts
        is_weight = accepts.channel_axis is not None or accepts.is_bias or _is_weight_of_product(x, at, call)
        return replace(dequantize(self._op, x, scaling, is_weight=is_weight), rank=x.rank, shape=x.shape)

    def _call(self, rule: Lowering, call: Call, operands: Sequence[Value]) -> Sequence[Value]:
        result: Any = rule.function(self._op, call, *operands)
        return result if isinstance(result, tuple) else (result,)


def _is_weight_of_product(x: Value, at: int, call: Call) -> bool:
    """Return whether x is a constant matrix whose columns may each have a scale, as in QLinearMatMul."""
    is_right = call.node_type is NodeType.MATMUL_FUSION and at == 1 and not call.attrs.transpose_b
    return is_right and x.data is not None and x.rank == 2


def _without_activation(attrs: SimpleNamespace) -> tuple[SimpleNamespace, ActivationType]:
    """Return the attributes without a fused activation, and the activation.

    The caller applies the activation to the quantized elements, because nothing may come between an integer kernel
    and the quantization of its result. The result is the same: rounding keeps the order of numbers. An ACTIVATION
    node keeps its activation.
    """
    kind = getattr(attrs, "activation_type", None)
    if kind not in FUSABLE or hasattr(attrs, "approximate"):
        return attrs, ActivationType.NO_ACTIVATION
    return SimpleNamespace(**{**vars(attrs), "activation_type": ActivationType.NO_ACTIVATION}), kind


def _has_other_type(value: Value, spec: TensorSpec) -> bool:
    """Return whether a quantized value is UINT8 where its spec says INT8, or the other way round."""
    return spec.is_quantized and spec.item_size == 1 and value.dtype != spec.numpy_dtype


def _real_spec(spec: TensorSpec, scaling: Scaling | None) -> TensorSpec:
    return real_spec(spec) if scaling else spec
