"""The language ONNX operators are imported in: a function signature is the schema, its body the operations.

    @onnx_operator("Elu", since=7)
    def elu(call: Call, x: Value, *, alpha: float = 1.0) -> Value:
        '''max(x, 0) + alpha (exp(min(x, 0)) - 1), of EXP and CLIP.'''
        ...

* The parameters after `call` and before `*` are the inputs, in order; one that may be missing has the default None, and
  `*parts` takes any number.
* Parameters behind `*` are the attributes, under ONNX's names, with the type they must have and their default; without
  one they are required. An attribute that is not there is refused: none is ever left out silently. An underscore at the
  end of a name keeps it apart from Python's own words.
* `since` and `until` are the first and the last version of the operator set that it is for; a form that changed has a
  function for each.
* The body calls `call.apply(OperationType.X, ...)`, and returns the values of the outputs, in order; those behind them
  are outputs that can't be had. It refuses what can't be mapped with `refuse`. The docstring's first line says in
  docs/onnx.md what the operator becomes.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from nnrt_hdi.errors import Unsupported

FIRST_OPSET = 7
LAST_OPSET = 1 << 30

Function = Callable[..., Any]
FunctionT = TypeVar("FunctionT", bound=Function)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One declared attribute."""

    parameter: str
    type: Any
    default: Any


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function that stands for an operator takes."""

    function: Function
    inputs: tuple[str, ...]
    required: int
    is_variadic: bool
    attributes: Mapping[str, Attribute]

    @classmethod
    def of(cls, function: Function, skipped: int = 0) -> "Signature":
        """The signature, but for the first parameters, which are no inputs."""
        hints = get_type_hints(function)
        inputs, required, is_variadic = [], 0, False
        attributes = {}
        for name, parameter in list(inspect.signature(function).parameters.items())[skipped:]:
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                attributes[name.rstrip("_")] = Attribute(name, hints[name], parameter.default)
                continue
            inputs.append(name)
            is_variadic |= parameter.kind is inspect.Parameter.VAR_POSITIONAL
            required += parameter.default is inspect.Parameter.empty and not is_variadic
        return cls(function, tuple(inputs), required, is_variadic, attributes)

    def bind(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes by parameter, with defaults. Refuses inputs and attributes that it doesn't take."""
        given = sum(value is not None for value in inputs[: self.required])
        if given < self.required:
            refuse(f"it has no input {self.inputs[[*inputs, None].index(None)]!r}; give it")
        if len(inputs) > len(self.inputs) and not self.is_variadic:
            refuse(f"it has {len(inputs)} inputs; at most {len(self.inputs)} are mapped ({', '.join(self.inputs)})")
        for name, value in attributes.items():
            if name not in self.attributes:
                refuse(f"its attribute {name} = {value!r:.80} is not mapped")
        return {
            attribute.parameter: _typed(name, attributes[name], attribute.type)
            if name in attributes
            else _absent(name, attribute)
            for name, attribute in self.attributes.items()
        }


@dataclass(frozen=True, slots=True)
class OnnxOperator:
    """How an operator of these versions of an operator set is imported.

    `is_quantizable` says that it becomes one operation, which takes `call.quant`, so that operands and output may as
    well be quantized; `moves`, that the elements of its first input only get other places; `fuses`, that it asks for
    the activation that follows.
    """

    domain: str
    name: str
    since: int
    until: int
    doc: str
    family: str
    signature: Signature
    is_quantizable: bool
    moves: bool
    fuses: bool


OPERATORS: dict[tuple[str, str], list[OnnxOperator]] = {}


def onnx_operator(
    *names: str,
    since: int = FIRST_OPSET,
    until: int = LAST_OPSET,
    doc: Mapping[str, str] | None = None,
    domain: str = "",
    is_quantizable: bool = False,
    moves: bool = False,
    fuses: bool = False,
) -> Callable[[FunctionT], FunctionT]:
    """Declare how operators are imported; see the module's docstring.

    Several that take and give the same have one function, which asks `call.type`, and each its own `doc`.
    """

    def declare(function: FunctionT) -> FunctionT:
        family = function.__module__.rpartition(".")[2]
        text = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
        signature = Signature.of(function, skipped=1)
        for name in names:
            versions = OPERATORS.setdefault((domain, name), [])
            if any(other.since <= until and since <= other.until for other in versions):
                raise TypeError(f"{name} is declared twice for one version")
            how = doc[name] if doc else text
            versions.append(
                OnnxOperator(domain, name, since, until, how, family, signature, is_quantizable, moves, fuses)
            )
        return function

    return declare


def operator_of(domain: str, name: str, opset: int) -> OnnxOperator | None:
    """How an operator of this version of its set is imported; None where nothing is declared."""
    versions = OPERATORS.get((domain, name), ())
    return next((operator for operator in versions if operator.since <= opset <= operator.until), None)


def refuse(message: str) -> NoReturn:
    """Say why the node at hand can't be imported; whoever asked adds its name."""
    raise Unsupported(message)


def _absent(name: str, attribute: Attribute) -> Any:
    if attribute.default is inspect.Parameter.empty:
        refuse(f"its attribute {name} is missing; give it")
    return attribute.default


def _typed(name: str, value: Any, declared: Any) -> Any:
    """The value, if it has the declared type."""
    if not _has_type(value, declared):
        refuse(f"its attribute {name} is {value!r:.80}, which has another type than ONNX says")
    return value


def _has_type(value: object, declared: Any) -> bool:
    if declared is Any:
        return True
    if get_origin(declared) is tuple:
        return isinstance(value, tuple) and all(_has_type(part, get_args(declared)[0]) for part in value)
    if get_origin(declared) is np.ndarray:
        return isinstance(value, np.ndarray)
    if get_args(declared):
        return any(_has_type(value, part) for part in get_args(declared))
    return isinstance(value, declared)
