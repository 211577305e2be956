"""The language operators are declared in: a function signature is the schema, its body the rules.

    @operator(NodeType.SOFTMAX)
    def softmax(x: Real, *, axis: Ints = ()) -> TensorSpec:
        '''y = exp(x) / sum(exp(x)) along axis (empty: the last).'''
        normalized_axis(axis[0] if axis else -1, x.rank)
        return x.spec

* Parameters before `*` are the operands, in order. Their annotation, an `Annotated[Operand, Accepts(...)]`, says which
  data types, ranks and quantization the operator takes; `| None` with a default of None makes an operand optional, and
  `*parts` takes any number.
* Parameters behind `*` are the attributes of HDI's struct, under their snake_case names, with the type they must have
  and the value an absent one means; without a default it is required.
* An underscore at the end of a name (`global_`, `type_`) keeps it apart from Python's own words and is not part of it.
* A parameter named `declared`, if there is one, gets the specs that the model declares for the outputs.
* The body checks what the annotations can't say (`require`), and returns the spec of the output, or a tuple of specs.
  Dimensions may be -1: what can be known must be computed, what can't stays -1.

The function is called with what is known: while a model is built, when a device is asked, and, for dynamic models, with
the real shapes before each kernel.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import AttrValue
from nnrt_hdi.tensor import Array, QuantParam, Shape, TensorSpec, format_shape

Ints = tuple[int, ...]
Floats = tuple[float, ...]
IntLists = tuple[tuple[int, ...], ...]
Infer = Callable[..., TensorSpec | tuple[TensorSpec, ...]]
InferT = TypeVar("InferT", bound=Infer)


@dataclass(frozen=True, slots=True)
class Operand:
    """What inference knows of an operand: its spec always, its elements where they are a small constant."""

    name: str
    spec: TensorSpec
    value: Array | None = None

    @property
    def data_type(self) -> DataType:
        return self.spec.data_type

    @property
    def shape(self) -> Shape:
        return self.spec.shape

    @property
    def rank(self) -> int:
        return self.spec.rank

    @property
    def format(self) -> Format:
        return self.spec.format

    @property
    def quant(self) -> tuple[QuantParam, ...]:
        return self.spec.quant

    def __str__(self) -> str:
        return f"{self.name} {self.spec}"


@dataclass(frozen=True, slots=True)
class Accepts:
    """What an operand may be. Empty `data_types` means any; `quantized` allows quantization parameters."""

    data_types: frozenset[DataType] = frozenset()
    min_rank: int = 0
    max_rank: int | None = None
    quantized: bool = False

    def check(self, operand: Operand) -> None:
        if self.data_types and operand.data_type not in self.data_types:
            allowed = ", ".join(sorted(data_type.name for data_type in self.data_types))
            refuse(f"{operand.name} is {operand.data_type.name}; use one of {allowed}")
        if operand.quant and not self.quantized:
            refuse(f"{operand.name} is quantized, which this operator does not compute; dequantize it first")
        if operand.rank < self.min_rank or (self.max_rank is not None and operand.rank > self.max_rank):
            refuse(f"{operand.name} has rank {operand.rank} (shape {format_shape(operand.shape)}); use {self.ranks}")

    @property
    def ranks(self) -> str:
        if self.max_rank == self.min_rank:
            return f"rank {self.min_rank}"
        if self.max_rank is None:
            return f"rank {self.min_rank} or more"
        return f"rank {self.min_rank}..{self.max_rank}"


@dataclass(frozen=True, slots=True)
class OperandRule:
    """One declared operand."""

    name: str
    accepts: Accepts
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class AttributeRule:
    """One declared attribute: its type (bool, int, float, str, an enum or a tuple of them) and default."""

    name: str
    parameter: str
    type: Any
    default: Any

    def bind(self, value: AttrValue) -> Any:
        """The value in its declared type. Raises InvalidParameter."""
        is_enum = isinstance(self.type, type) and issubclass(self.type, IntEnum)
        if is_enum:
            try:
                return self.type(value)
            except ValueError:
                known = ", ".join(f"{member.value} ({member.name})" for member in self.type)
                refuse(f"{self.name} is {value!r}; use one of {known}")
        if not _has_type(value, self.type):
            refuse(f"{self.name} is {value!r}; use {_type_name(self.type)}")
        return value

    def absent(self) -> Any:
        """What it means that the attribute is not given. Refuses where the operator can't do without."""
        if self.default is inspect.Parameter.empty:
            refuse(f"{self.name} is missing; give {_type_name(self.type)}")
        return self.default


@dataclass(frozen=True, slots=True)
class Operator:
    """The declaration of one NodeType."""

    node_type: NodeType
    family: str
    doc: str
    operands: tuple[OperandRule, ...]
    attributes: Mapping[str, AttributeRule]
    takes_declared: bool
    function: Infer

    def bind(self, attrs: Mapping[str, AttrValue]) -> dict[str, Any]:
        """All attributes by parameter, in their declared types, defaults for absent ones. Raises InvalidParameter."""
        for name in attrs:
            if name not in self.attributes:
                known = ", ".join(self.attributes) or "none"
                refuse(f"it has no attribute {name!r}; it has {known}")
        return {
            rule.parameter: rule.bind(attrs[name]) if name in attrs else rule.absent()
            for name, rule in self.attributes.items()
        }

    def infer(
        self,
        operands: Sequence[tuple[TensorSpec, Array | None] | None],
        attrs: Mapping[str, Any],
        declared: tuple[TensorSpec, ...] = (),
    ) -> tuple[TensorSpec, ...]:
        """Check operands and bound attributes against the declaration and compute what the outputs are.

        `operands` are specs with the elements where they may be looked at. Raises InvalidParameter.
        """
        bound = self._bind_operands(operands)
        extra = {"declared": declared} if self.takes_declared else {}
        result = self.function(*bound, **attrs, **extra)
        return result if isinstance(result, tuple) else (result,)

    def _bind_operands(self, given: Sequence[tuple[TensorSpec, Array | None] | None]) -> list[Operand | None]:
        self._check_count(len(given))
        bound: list[Operand | None] = []
        for position, pair in enumerate(given):
            rule = self.operands[min(position, len(self.operands) - 1)]
            if pair is None:
                bound.append(None)
                continue
            name = f"{rule.name}[{position - len(self.operands) + 1}]" if rule.variadic else rule.name
            operand = Operand(name, *pair)
            rule.accepts.check(operand)
            bound.append(operand)
        return bound

    def _check_count(self, count: int) -> None:
        least = sum(not rule.optional for rule in self.operands)
        most = None if any(rule.variadic for rule in self.operands) else len(self.operands)
        if count < least or (most is not None and count > most):
            wanted = f"{least} or more" if most is None else f"{least}" if least == most else f"{least} to {most}"
            names = ", ".join(rule.name for rule in self.operands)
            refuse(f"it has {count} inputs; give {wanted} ({names})")


OPERATORS: dict[NodeType, Operator] = {}


def operator(node_type: NodeType) -> Callable[[InferT], InferT]:
    """Declare the operator of a node type; see the module's docstring."""

    def declare(function: InferT) -> InferT:
        if node_type in OPERATORS:
            raise TypeError(f"{node_type.name} is declared twice")
        hints = get_type_hints(function, include_extras=True)
        operands: list[OperandRule] = []
        attributes: dict[str, AttributeRule] = {}
        takes_declared = False
        for name, parameter in inspect.signature(function).parameters.items():
            if name == "declared":
                takes_declared = True
            elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                attribute = name.rstrip("_")
                attributes[attribute] = AttributeRule(attribute, name, hints[name], parameter.default)
            else:
                variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
                optional = parameter.default is None
                operands.append(OperandRule(name.rstrip("_"), _accepts(hints[name]), optional, variadic))
        OPERATORS[node_type] = Operator(
            node_type=node_type,
            family=function.__module__.rpartition(".")[2],
            doc=inspect.getdoc(function) or "",
            operands=tuple(operands),
            attributes=attributes,
            takes_declared=takes_declared,
            function=function,
        )
        return function

    return declare


def refuse(message: str) -> NoReturn:
    """Say that the node at hand is wrong; the place is added by whoever asked."""
    raise InvalidParameter(message)


def require(condition: bool, message: str) -> None:
    """Refuse unless the condition holds. For messages that are costly to make, use `if` and `refuse`."""
    if not condition:
        refuse(message)


def _accepts(hint: Any) -> Accepts:
    if get_origin(hint) is Annotated:
        return next((extra for extra in get_args(hint)[1:] if isinstance(extra, Accepts)), Accepts())
    return next((_accepts(part) for part in get_args(hint) if get_origin(part) is Annotated), Accepts())


def _has_type(value: object, declared: Any) -> bool:
    if get_origin(declared) is tuple:
        item = get_args(declared)[0]
        return isinstance(value, tuple) and all(_has_type(part, item) for part in value)
    if declared is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if declared is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if get_args(declared):
        return any(_has_type(value, part) for part in get_args(declared))
    return isinstance(value, declared)


def _type_name(declared: Any) -> str:
    if get_origin(declared) is tuple:
        return f"a list of {_type_name(get_args(declared)[0])}"
    names = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}
    return names.get(declared) or " or ".join(_type_name(part) for part in get_args(declared) if part is not type(None))
