"""Declaration of operators: the signature of a function is the schema, its body checks rules and infers shapes.

    @operator(NodeType.SOFTMAX)
    def softmax(x: Real, *, axis: Ints = ()) -> TensorSpec:
        '''y = exp(x) / sum(exp(x)) along axis (empty: the last).'''
        normalized_axis(axis[0] if axis else -1, x.rank)
        return x.spec

* Parameters before `*` are the operands, in order. Their annotation, an `Annotated[Operand, Accepts(...)]`, says which
data types, ranks and quantization the operator takes. `| None` with a default of None makes an operand optional, and
`*parts` takes any number of operands.
* Parameters after `*` are the attributes of HDI's struct, under their snake_case names, with their type and the value
of an absent attribute. An attribute without a default is required.
* An underscore at the end of a name (`global_`, `type_`) avoids a conflict with Python's own words and isn't part of
it.
* A parameter named `declared` gets the specs that the model declares for the outputs.
* `@operator(..., quantized=True)` says that the operator is defined on real numbers, so it also takes quantized
tensors: the body gets FLOAT32 specs instead of them (see `nnrt_hdi.ops.quantized`). Operands with
`Accepts(quantized=True)` are only moved: if all quantized tensors of a node have one parameter, their elements stay as
they are.
* The body checks what the annotations can't express (`require`), and returns the spec of the output, or a tuple of
specs. Dimensions may be -1: the body must compute what can be known, and returns -1 for the rest. In dynamic models,
dimensions may be `OpenDim`s instead of integers: calculate with + - * // % and compare. Any other use of the number (an
index, a set) makes inference run again for each length.
* One function may declare several operators with the same operands and results. Then each gets its own documentation:

    @operator(NodeType.SIN, "y = sin(x), x in radians.")
    @operator(NodeType.COS, "y = cos(x), x in radians.")
    def unary_real(x: Real) -> TensorSpec:
        return x.spec

The function is called with what is known: while a model is built, when a device is asked for support, and in dynamic
models before each kernel, with the real shapes.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Any, NoReturn, TypeVar, get_args, get_origin

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import AttrValue
from nnrt_hdi.ops.quantized import (
    QUANTIZED_TYPES,
    RealView,
    Scaling,
    bias_scaling,
    common_params,
    quantized_output,
    real_declaration,
    real_spec,
    scaling_of,
)
from nnrt_hdi.ops.signature import DeclaredAttribute, Signature, type_check
from nnrt_hdi.tensor import Array, TensorSpec, format_shape

Ints = tuple[int, ...]
Floats = tuple[float, ...]
IntLists = tuple[tuple[int, ...], ...]
Infer = Callable[..., TensorSpec | tuple[TensorSpec, ...]]
InferT = TypeVar("InferT", bound=Infer)

# Parameter after `*` that gets the declared specs, and is no attribute.
_DECLARED = "declared"


class Operand:
    """Operand as inference knows it: its spec, and its elements if it is a small constant.

    `stands_for_real` says that the spec is the FLOAT32 spec that replaces a quantized one. The parts of the spec are
    attributes too, because inference reads them all the time.
    """

    __slots__ = ("data_type", "format", "name", "quant", "rank", "shape", "spec", "stands_for_real", "value")

    def __init__(self, name: str, spec: TensorSpec, value: Array | None = None, stands_for_real: bool = False) -> None:
        self.name = name
        self.spec = spec
        self.value = value
        self.stands_for_real = stands_for_real
        self.data_type = spec.data_type
        self.shape = spec.shape
        self.rank = len(spec.shape)
        self.format = spec.format
        self.quant = spec.quant

    def __str__(self) -> str:
        return f"{self.name} {self.spec}"


@dataclass(frozen=True, slots=True)
class Accepts:
    """Rule for an operand: data types (empty: any), ranks, and how it may be quantized.

    `quantized` says that a quantized operand is only moved. `channel_axis` is the dimension of several quantization
    parameters, where it isn't the layout's. `is_bias` says that INT32 elements beside a quantized input and weight, the
    first two operands, are multiples of the product of their scales.
    """

    data_types: frozenset[DataType] = frozenset()
    min_rank: int = 0
    max_rank: int | None = None
    quantized: bool = False
    channel_axis: int | None = None
    is_bias: bool = False

    def check(self, operand: Operand) -> None:
        if self.data_types and operand.data_type not in self.data_types:
            allowed = ", ".join(sorted(data_type.name for data_type in self.data_types))
            refuse(f"{operand.name} is {operand.data_type.name}; use one of {allowed}")
        if operand.rank < self.min_rank or (self.max_rank is not None and operand.rank > self.max_rank):
            refuse(f"{operand.name} has rank {operand.rank} (shape {format_shape(operand.shape)}); use {self.ranks}")

    @property
    def takes_real(self) -> bool:
        """True if the operand may be FLOAT32."""
        return not self.data_types or DataType.FLOAT32 in self.data_types

    @property
    def ranks(self) -> str:
        if self.max_rank == self.min_rank:
            return f"rank {self.min_rank}"
        if self.max_rank is None:
            return f"rank {self.min_rank} or more"
        return f"rank {self.min_rank}..{self.max_rank}"


@dataclass(frozen=True, slots=True)
class OperandRule:
    """Operand of an operator, as a parameter declares it."""

    name: str
    accepts: Accepts
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class Operator:
    """Operator of one NodeType, as a function declares it."""

    node_type: NodeType
    family: str
    doc: str
    operands: tuple[OperandRule, ...]
    attributes: Mapping[str, DeclaredAttribute]
    takes_declared: bool
    quantized: bool
    sees_quantization: bool
    function: Infer
    # Least and largest number of operands; None means no limit.
    _least: int = field(init=False, repr=False)
    _most: int | None = field(init=False, repr=False)
    # Attributes of a node that sets none; None if an attribute is required.
    _defaults: Mapping[str, Any] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        is_variadic = any(rule.variadic for rule in self.operands)
        attributes = self.attributes.values()
        defaults = {attribute.parameter: attribute.default for attribute in attributes}
        has_required = any(attribute.is_required for attribute in attributes)
        object.__setattr__(self, "_least", sum(not rule.optional for rule in self.operands))
        object.__setattr__(self, "_most", None if is_variadic else len(self.operands))
        object.__setattr__(self, "_defaults", None if has_required else defaults)

    def bind(self, attrs: Mapping[str, AttrValue]) -> dict[str, Any]:
        """Return all attributes by parameter, in their declared types, with defaults for absent ones.

        Raises:
            InvalidParameter: An attribute is unknown, missing, or has another type.
        """
        if not attrs and self._defaults is not None:
            return dict(self._defaults)
        for name in attrs:
            if name not in self.attributes:
                known = ", ".join(self.attributes) or "none"
                refuse(f"it has no attribute {name!r}; it has {known}")
        return {
            attribute.parameter: _bound(attribute, attrs[name]) if name in attrs else _absent(attribute)
            for name, attribute in self.attributes.items()
        }

    def infer(
        self,
        operands: Sequence[tuple[TensorSpec, Array | None] | None],
        attrs: Mapping[str, Any],
        declared: tuple[TensorSpec, ...] = (),
    ) -> tuple[TensorSpec, ...]:
        """Check operands and bound attributes, and return the specs of the outputs.

        Args:
            operands: The specs, with the elements of small constants; None for an operand that is left out.
            attrs: The attributes, as `bind` returns them.
            declared: The specs that the model declares for the outputs.

        Raises:
            InvalidParameter: The operands, attributes or declarations don't fit the operator.
        """
        if len(operands) < self._least or (self._most is not None and len(operands) > self._most):
            self._refuse_count(len(operands))
        specs = [pair[0] if pair else None for pair in operands]
        scalings = self._scalings(specs)
        if scalings is None:
            bound = [pair and self._operand(position, *pair) for position, pair in enumerate(operands)]
            for spec in declared:
                if spec.is_quantized and not self.sees_quantization:
                    refuse(
                        f"the output is declared {spec} and quantized, but no operand is; use QUANT_DTYPE_CAST first"
                    )
            return self._call(bound, attrs, declared)
        bound = [
            pair and self._operand(position, *pair, scaling is not None)
            for position, (pair, scaling) in enumerate(zip(operands, scalings, strict=True))
        ]
        declared_real = tuple(map(real_declaration, declared))
        return self._quantized(self._call(bound, attrs, declared_real), declared, specs, scalings)

    def real_view(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> RealView | None:
        """Return the view of an inferred node for backends that compute real numbers, or None.

        None means that the node is not quantized, or only moves elements.

        Args:
            inputs: The specs of the inputs.
            outputs: The specs of the outputs.
        """
        scalings = self._scalings(inputs)
        if scalings is None or (
            self._is_moved and common_params([*self._moved(inputs), *(spec for spec in outputs if spec.is_quantized)])
        ):
            return None
        return RealView(scalings, tuple(scaling_of("output", spec) if spec.is_quantized else None for spec in outputs))

    def takes_quantized(self, rule: OperandRule) -> bool:
        """Return whether an operand may be quantized."""
        return rule.accepts.quantized or (self.quantized and rule.accepts.takes_real) or self.sees_quantization

    def _call(
        self, bound: Sequence[Operand | None], attrs: Mapping[str, Any], declared: tuple[TensorSpec, ...]
    ) -> tuple[TensorSpec, ...]:
        extra = {_DECLARED: declared} if self.takes_declared else {}
        result = self.function(*bound, **attrs, **extra)
        return result if isinstance(result, tuple) else (result,)

    def _rule(self, position: int) -> tuple[OperandRule, str]:
        """Return the rule of an operand, and its name in messages."""
        rule = self.operands[min(position, len(self.operands) - 1)]
        return rule, f"{rule.name}[{position - len(self.operands) + 1}]" if rule.variadic else rule.name

    def _operand(self, position: int, spec: TensorSpec, value: Array | None, is_real: bool = False) -> Operand:
        """Check an operand and return it as the function gets it."""
        rule, name = self._rule(position)
        operand = Operand(name, real_spec(spec), None, True) if is_real else Operand(name, spec, value)
        rule.accepts.check(operand)
        return operand

    @property
    def _is_moved(self) -> bool:
        return any(rule.accepts.quantized for rule in self.operands)

    def _moved(self, specs: Sequence[TensorSpec | None]) -> list[TensorSpec]:
        """Return the specs of the operands that the operator only moves."""
        return [spec for at, spec in enumerate(specs) if spec and self._rule(at)[0].accepts.quantized]

    def _scalings(self, specs: Sequence[TensorSpec | None]) -> tuple[Scaling | None, ...] | None:
        """Return the scaling of each quantized operand, None for others; or None if no operand is quantized.

        Refuses quantized operands that the operator doesn't compute, and parameters that are invalid or missing.
        """
        if self.sees_quantization or not any(spec and spec.quant and spec.is_quantized for spec in specs):
            return None
        scalings: list[Scaling | None] = [None] * len(specs)
        for at, spec in enumerate(specs):
            if spec is None:
                continue
            rule, name = self._rule(at)
            accepts = rule.accepts
            if accepts.is_bias and spec.data_type is DataType.INT32:
                if spec.is_quantized:
                    refuse(f"{name} is INT32 with quantization parameters; leave them out, those of x and weight count")
                scalings[at] = bias_scaling(name, *scalings[:2])
            elif spec.is_quantized:
                if not self.takes_quantized(rule):
                    refuse(f"{name} is quantized, which this operator does not compute; dequantize it first")
                scalings[at] = scaling_of(name, spec, accepts.channel_axis)
            elif spec.data_type in QUANTIZED_TYPES and accepts.takes_real:
                refuse(f"{name} is {spec.data_type.name} without quantization parameters beside quantized operands")
        return tuple(scalings)

    def _quantized(
        self,
        results: Sequence[TensorSpec],
        declared: Sequence[TensorSpec],
        specs: Sequence[TensorSpec | None],
        scalings: Sequence[Scaling | None],
    ) -> tuple[TensorSpec, ...]:
        """Return the specs of the quantized outputs, from `results`, their specs for real numbers.

        If the operator only moves its operands, the outputs keep the parameters that the operands share.
        """
        first = next(spec for spec, scaling in zip(specs, scalings, strict=True) if spec and scaling)
        quant = common_params(self._moved(specs)) if self._is_moved else ()
        said = [*declared, *[None] * (len(results) - len(declared))]
        return tuple(
            quantized_output(result, declaration, first.data_type, quant)
            for result, declaration in zip(results, said, strict=False)
        )

    def _refuse_count(self, count: int) -> NoReturn:
        least, most = self._least, self._most
        wanted = f"{least} or more" if most is None else f"{least}" if least == most else f"{least} to {most}"
        names = ", ".join(rule.name for rule in self.operands)
        refuse(f"it has {count} inputs; give {wanted} ({names})")


OPERATORS: dict[NodeType, Operator] = {}


def operator(
    node_type: NodeType, doc: str = "", *, quantized: bool = False, sees_quantization: bool = False
) -> Callable[[InferT], InferT]:
    """Declare the operator of a node type (see the module).

    Args:
        node_type: The node type.
        doc: The documentation, if the function declares several operators.
        quantized: Whether the operator is defined on real numbers, and so takes quantized tensors.
        sees_quantization: Whether the function gets quantized specs as they are; for operators that convert.
    """

    def declare(function: InferT) -> InferT:
        if node_type in OPERATORS:
            raise TypeError(f"{node_type.name} is declared twice")
        signature = Signature.of(function)
        OPERATORS[node_type] = Operator(
            node_type=node_type,
            family=function.__module__.rpartition(".")[2],
            doc=doc or inspect.getdoc(function) or "",
            operands=tuple(
                OperandRule(operand.name, _accepts(operand.annotation), operand.is_optional, operand.is_variadic)
                for operand in signature.operands
            ),
            attributes={name: rule for name, rule in signature.attributes.items() if name != _DECLARED},
            takes_declared=_DECLARED in signature.attributes,
            quantized=quantized,
            sees_quantization=sees_quantization,
            function=function,
        )
        return function

    return declare


def refuse(message: str) -> NoReturn:
    """Raise InvalidParameter for the current node. The caller adds its place."""
    raise InvalidParameter(message)


def require(condition: bool, message: str) -> None:
    """Refuse the node unless the condition holds. If the message is costly to make, use `if` and `refuse`."""
    if not condition:
        refuse(message)


def _accepts(hint: Any) -> Accepts:
    if get_origin(hint) is Annotated:
        return next((extra for extra in get_args(hint)[1:] if isinstance(extra, Accepts)), Accepts())
    return next((_accepts(part) for part in get_args(hint) if get_origin(part) is Annotated), Accepts())


def _bound(attribute: DeclaredAttribute, value: AttrValue) -> Any:
    """Return the value in its declared type. Refuses other types."""
    declared = attribute.type
    is_enum = isinstance(declared, type) and issubclass(declared, IntEnum)
    if is_enum:
        try:
            return declared(value)
        except ValueError:
            known = ", ".join(f"{member.value} ({member.name})" for member in declared)
            refuse(f"{attribute.name} is {value!r}; use one of {known}")
    if not type_check(declared)(value):
        refuse(f"{attribute.name} is {value!r}; use {_type_name(declared)}")
    return value


def _absent(attribute: DeclaredAttribute) -> Any:
    """Return the default of an absent attribute. Refuses if it is required."""
    if attribute.is_required:
        refuse(f"{attribute.name} is missing; give {_type_name(attribute.type)}")
    return attribute.default


def _type_name(declared: Any) -> str:
    if get_origin(declared) is tuple:
        return f"a list of {_type_name(get_args(declared)[0])}"
    names = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}
    return names.get(declared) or " or ".join(_type_name(part) for part in get_args(declared) if part is not type(None))
