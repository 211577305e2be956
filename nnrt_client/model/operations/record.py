"""Records of a model's tensors and operations, and their conversion to a graph of the device interface."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import get_args

import numpy as np

from nnrt_client.enums import TensorType
from nnrt_client.model.operations.operation import Operation
from nnrt_client.session.hashing import sha256_of_each
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.enums import DataType, NodeType, QuantType
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES, AttrValue, Constant, Graph, Node
from nnrt_hdi.ops import OPERATORS, infer_node
from nnrt_hdi.ops.quantized import QUANTIZED_TYPES
from nnrt_hdi.tensor import Array, QuantParam, TensorSpec, flat_bytes


@dataclass(slots=True)
class TensorRecord:
    """Tensor of a model, which is data unless its type says that it is a parameter.

    `known` is the tensor's spec, if the caller has it already; only its name may differ.
    """

    desc: TensorDesc
    type: TensorType = TensorType.TENSOR
    data: Array | None = None
    quant: tuple[QuantParam, ...] = ()
    known: InitVar[TensorSpec | None] = None
    # Cache of `spec`, which `rename` and `quantize` clear.
    _spec: TensorSpec | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self, known: TensorSpec | None) -> None:
        if known is not None and known.name == self.desc.name:
            self._spec = known

    @property
    def spec(self) -> TensorSpec:
        """Spec of the tensor in the device interface."""
        if self._spec is None:
            self._spec = self.desc._to_spec(self.quant)
        return self._spec

    def rename(self, name: str) -> None:
        self.desc.name, self._spec = name, None

    def quantize(self, quant: tuple[QuantParam, ...]) -> None:
        """Replace the quantization parameters."""
        self.quant, self._spec = quant, None

    @property
    def shape_value(self) -> Array | None:
        """Data that inference may use, because they are small enough for the daemon to have them, too; else None."""
        return self.data if self.data is not None and self.data.nbytes <= INLINE_CONSTANT_BYTES else None


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """Operation of a model, with the attributes of its node."""

    declared: Operation
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: Mapping[str, AttrValue]
    name: str

    def tensors(self) -> Iterator[int]:
        """Yield the tensors that the operation reads and writes."""
        yield from self.inputs
        yield from self.outputs


@dataclass(frozen=True, slots=True)
class AddedOperation:
    """View of a model's operation: its node type and attributes, and the tensors that it reads and writes."""

    node_type: NodeType
    attrs: Mapping[str, AttrValue]
    inputs: Sequence[TensorRecord]
    outputs: Sequence[TensorRecord]


def infer_outputs(
    declared: Operation,
    attrs: Mapping[str, AttrValue],
    inputs: Sequence[TensorRecord],
    outputs: Sequence[TensorSpec],
    quant: Sequence[tuple[QuantParam, ...]],
    name: str,
) -> tuple[TensorSpec, ...]:
    """Infer the specs of an operation's outputs; `outputs` are the specs that the model declares, or none.

    `quant` are the quantization parameters of outputs that have none yet. Raises InvalidParameter if the specs can't be
    computed or differ from the declared ones.
    """
    operands = [(tensor.spec, tensor.shape_value) for tensor in inputs]
    # If nothing is declared, only the parameters are known: neither shapes nor data types before inference.
    hints = tuple(TensorSpec(DataType.UNKNOWN, (), quant=params) for params in quant)
    try:
        if outputs:
            known = _with_params(outputs, quant)
            return infer_node(Node(declared.node_type, (), (), attrs), operands, known)
        operator = OPERATORS[declared.node_type]
        return _with_params(operator.infer(operands, operator.bind(attrs), hints), quant)
    except NnrtError as error:
        raise error.at(declared.type.name + (f" {name!r}" if name else "")) from error


def _with_params(outputs: Sequence[TensorSpec], quant: Sequence[tuple[QuantParam, ...]]) -> tuple[TensorSpec, ...]:
    """Return the outputs with these quantization parameters, which an output of a quantized type or BOOL may have.

    They have no effect on a BOOL. Raises InvalidParameter for outputs of other types, and for outputs that already
    have other parameters.
    """
    if not quant:
        return tuple(outputs)
    if len(quant) > len(outputs):
        raise InvalidParameter(f"quant is for {len(quant)} outputs; there are {len(outputs)}")
    specs = list(outputs)
    for at, params in enumerate(quant):
        if params and specs[at].quant not in ((), params):
            raise InvalidParameter(f"quant is given for output {at}, which has other parameters already; leave it out")
        if params and specs[at].data_type not in (*QUANTIZED_TYPES, DataType.BOOL):
            raise InvalidParameter(
                f"quant is given for output {at}, which is {specs[at]}; quantize an operand, or use QUANT_DTYPE_CAST"
            )
        if params:
            specs[at] = replace(specs[at], quant=params)
    return tuple(specs)


def lower(
    name: str,
    tensors: Sequence[TensorRecord],
    operations: Sequence[OperationRecord],
    inputs: Sequence[int],
    outputs: Sequence[int],
) -> Graph:
    """Make the graph of a model.

    The graph has only the tensors that are used, in the model's order, and no data of inputs. Raises InvalidParameter,
    with the tensor or operation at fault, if the parts form no graph.
    """
    used = sorted({*inputs, *outputs, *(index for operation in operations for index in operation.tensors())})
    position = {index: new for new, index in enumerate(used)}
    data = {index: array for index in used if index not in inputs and (array := tensors[index].data) is not None}
    digests = sha256_of_each([[flat_bytes(array)] for array in data.values()])
    return Graph(
        tensors=tuple(_named_spec(index, tensors[index]) for index in used),
        nodes=tuple(_node(number, operation, tensors, position) for number, operation in enumerate(operations)),
        inputs=tuple(position[index] for index in inputs),
        outputs=tuple(position[index] for index in outputs),
        constants={
            position[index]: Constant(sha256, array.nbytes, array)
            for (index, array), sha256 in zip(data.items(), digests, strict=True)
        },
        name=name,
    )


def _node(
    number: int, operation: OperationRecord, tensors: Sequence[TensorRecord], position: Mapping[int, int]
) -> Node:
    declared = operation.declared
    is_quantized = declared.sets_quant_type and bool(tensors[operation.outputs[0]].quant)
    return Node(
        declared.node_type,
        tuple(position[index] for index in operation.inputs),
        tuple(position[index] for index in operation.outputs),
        normalize_attrs(declared.node_type, operation.attrs),
        operation.name or f"{declared.node_name}:{number}",
        QuantType.ALL if is_quantized else QuantType.NONE,
    )


def normalize_attrs(node_type: NodeType, attrs: Mapping[str, AttrValue]) -> dict[str, AttrValue]:
    """Return attributes as messages carry them, so that client and daemon have the same graph.

    Real numbers are FLOAT32, and a list without values is absent.
    """
    rules = OPERATORS[node_type].attributes
    return {
        name: _as_float32(value) if float in (rules[name].type, *get_args(rules[name].type)) else value
        for name, value in attrs.items()
        if value != ()
    }


def _as_float32(value: AttrValue) -> AttrValue:
    with np.errstate(over="ignore"):
        rounded: AttrValue = np.asarray(value, np.float32).tolist()
    return tuple(rounded) if isinstance(rounded, list) else rounded


def _named_spec(index: int, tensor: TensorRecord) -> TensorSpec:
    return tensor.desc._to_spec(tensor.quant, name=tensor.desc.name or f"Tensor: {index}")
