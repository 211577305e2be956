"""Declarations of operations, one expression per operation.

    operation(
        OperationType.MATMUL,
        NodeType.MATMUL_FUSION,
        boolean("transpose_a", TensorType.MATMUL_TRANSPOSE_A),
        boolean("transpose_b", TensorType.MATMUL_TRANSPOSE_B),
        activation(TensorType.MATMUL_ACTIVATION_TYPE),
        inputs=2,
    )

The parameters (see `nnrt_client.model.operations.parameter`) fill the attributes of HDI's struct, under the names that
`nnrt_hdi.ops` gives them. `fixed` are attributes that the operation always has. `derive` computes the attributes that
follow from the operands, and refuses calls that are wrong although their counts and parameters are right. The attribute
of a parameter that is left out stays absent, and `nnrt_hdi.ops` defines what that means.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NoReturn, Protocol

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations.parameter import Parameter
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.graph import AttrValue
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.ops.operands import INTEGERS
from nnrt_hdi.tensor import Array, TensorSpec

# Most inputs or outputs that an operation may have.
MANY = 200

Range = tuple[int, int]


class Tensor(Protocol):
    """View of a model's tensor for declarations. Only parameters and constants have data."""

    @property
    def type(self) -> TensorType: ...
    @property
    def spec(self) -> TensorSpec: ...
    @property
    def data(self) -> Array | None: ...


@dataclass(frozen=True, slots=True)
class Call:
    """Operands of a call, its number of outputs (None if not known yet) and its attributes, for `derive`."""

    inputs: tuple[Tensor, ...]
    outputs: int | None
    attrs: Mapping[str, AttrValue]

    def integer(self, attr: str, default: int) -> int:
        """Return an integer attribute, or the default if it is absent."""
        value = self.attrs.get(attr, default)
        if not isinstance(value, int):
            raise TypeError(f"{attr} is {value!r}, no integer")
        return value


Derive = Callable[[Call], Mapping[str, AttrValue]]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """Declaration of an OperationType: its operands and parameters, and the node that it becomes.

    `node_name` is the first half of a node's default name. `sets_quant_type` says whether a quantized first output
    makes the node's QuantType ALL.
    """

    type: OperationType
    node_type: NodeType
    parameters: tuple[Parameter, ...]
    inputs: Range
    outputs: Range
    fixed: Mapping[str, AttrValue]
    derive: Derive | None
    node_name: str
    sets_quant_type: bool
    _keywords: Mapping[str, Parameter] = field(init=False, repr=False)
    # Per tensor type, the parameters that a tensor of this type may set, those with this type as their first one first.
    _candidates: Mapping[TensorType, Sequence[Parameter]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        keywords = {parameter.keyword: parameter for parameter in self.parameters}
        object.__setattr__(self, "_keywords", MappingProxyType(keywords))
        candidates = {
            type_: sorted(
                (parameter for parameter in self.parameters if type_ in parameter.tensor_types),
                key=lambda parameter: parameter.tensor_types.index(type_),
            )
            for type_ in self.tensor_types
        }
        object.__setattr__(self, "_candidates", MappingProxyType(candidates))

    @property
    def tensor_types(self) -> frozenset[TensorType]:
        """Types of the parameter tensors that the operation takes."""
        return frozenset(type_ for parameter in self.parameters for type_ in parameter.tensor_types)

    def is_index(self, position: int) -> bool:
        """Return whether an input takes only integers: an axis, a shape, a permutation."""
        rules = OPERATORS[self.node_type].operands
        accepted = rules[min(position, len(rules) - 1)].accepts.data_types
        return bool(accepted) and accepted <= INTEGERS

    def parameter(self, keyword: str) -> Parameter:
        """Return the parameter with this keyword; raise InvalidParameter, with the known keywords, if there is none."""
        try:
            return self._keywords[keyword]
        except KeyError as error:
            known = ", ".join(self._keywords) or "none"
            raise InvalidParameter(f"it has no parameter {keyword!r}; it has {known}", place=self.type.name) from error

    def attributes(
        self,
        inputs: Sequence[Tensor],
        outputs: int | None,
        parameters: Sequence[Tensor],
    ) -> dict[str, AttrValue]:
        """Check a call and compute the attributes of its node; raise InvalidParameter for a wrong call.

        The checks have NNRt's order: the numbers of inputs, outputs and parameters, then each parameter in the given
        order (the last one counts if it is given twice), then `derive`.
        """
        self._check_count("inputs", len(inputs), self.inputs)
        if outputs is not None:
            self._check_count("outputs", outputs, self.outputs)
        self._check_count("parameters", len(parameters), (0, len(self.parameters)))
        attrs = dict(self.fixed)
        for tensor in parameters:
            parameter = self._parameter_of(tensor)
            try:
                attrs[parameter.attr] = parameter.read(tensor.spec, tensor.data, inputs[0].spec)
            except NnrtError as error:
                raise error.at(f"{self.type.name} {parameter.place}") from error
        for parameter in self.parameters:
            if parameter.required and parameter.attr not in attrs:
                raise InvalidParameter("it is missing; give it", place=f"{self.type.name} {parameter.place}")
        if self.derive:
            try:
                attrs.update(self.derive(Call(tuple(inputs), outputs, attrs)))
            except NnrtError as error:
                raise error.at(self.type.name) from error
        return attrs

    def _check_count(self, what: str, count: int, allowed: Range) -> None:
        least, most = allowed
        if least <= count <= most:
            return
        operands = ", ".join(rule.name for rule in OPERATORS[self.node_type].operands)
        names = f" ({operands})" if what == "inputs" else ""
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise InvalidParameter(f"it has {count} {what}; give {wanted}{names}", place=self.type.name)

    def _parameter_of(self, tensor: Tensor) -> Parameter:
        """Return the parameter that a tensor sets: by its type, or by its element count if that leaves several."""
        candidates = self._candidates.get(tensor.type)
        if not candidates:
            known = ", ".join(parameter.tensor_types[0].name for parameter in self.parameters) or "no parameters"
            raise InvalidParameter(f"a parameter tensor is {tensor.type.name}; it takes {known}", place=self.type.name)
        if len(candidates) == 1:
            return candidates[0]
        count = 0 if tensor.spec.is_dynamic else tensor.spec.element_count
        if fitting := [parameter for parameter in candidates if count in parameter.counts]:
            return fitting[0]
        wanted = " or ".join(f"{parameter.expected_count} ({parameter.keyword})" for parameter in candidates)
        raise InvalidParameter(f"it has {count} values; give {wanted}", place=f"{self.type.name} {candidates[0].place}")


def operation(
    type: OperationType,
    node_type: NodeType,
    *parameters: Parameter,
    inputs: int | Range = 1,
    outputs: int | Range = 1,
    fixed: Mapping[str, AttrValue] | None = None,
    derive: Derive | None = None,
    node_name: str = "",
    sets_quant_type: bool = True,
) -> Operation:
    """Declare an operation.

    `inputs` and `outputs` are counts: a number, or (least, most). The default of `node_name` is the type in camel case.
    """
    return Operation(
        type=type,
        node_type=node_type,
        parameters=parameters,
        inputs=_range(inputs),
        outputs=_range(outputs),
        fixed=MappingProxyType(dict(fixed or {})),
        derive=derive,
        node_name=node_name or type.name.title().replace("_", ""),
        sets_quant_type=sets_quant_type,
    )


def refuse(message: str) -> NoReturn:
    """Raise InvalidParameter from a `derive` function; `Operation.attributes` adds the operation's name."""
    raise InvalidParameter(message)


def _range(count: int | Range) -> Range:
    return (count, count) if isinstance(count, int) else count
