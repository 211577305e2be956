"""The language ONNX operators are imported in: a function signature is the schema, its body the operations.

    @onnx_operator("Elu", since=7)
    def elu(op: NodeBuilder, x: Value, *, alpha: float = 1.0) -> Value:
        '''max(x, 0) + alpha (exp(min(x, 0)) - 1), of EXP and CLIP.'''
        ...

* The parameters after `op` and before `*` are the inputs, in order; one that may be missing has the default None, or,
  where others stand behind it, the type `Value | None`, and `*parts` takes any number.
* Parameters behind `*` are the attributes, under ONNX's names, with the type they must have and their default; without
  one they are required. Those that many operators have are the fields of one dataclass, such as `window: Window`. An
  attribute that is not there is refused: none is ever left out silently. An underscore at the end of a name keeps it
  apart from Python's own words.
* `since` and `until` are the first and the last version of the operator set that it is for; a form that changed has a
  function for each. `domain` is the set: ONNX's own if it is left out, or MICROSOFT.
* The body calls `op.apply(OperationType.X, ...)`, and returns the values of the outputs, in order; those behind them
  are outputs that can't be had. It refuses what can't be mapped with `refuse`. The docstring's first line says in
  docs/reference/onnx.md what the operator becomes.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from nnrt_hdi.ops.signature import Signature

FIRST_OPSET = 7
# The operators that ONNX Runtime adds, and its tools write.
MICROSOFT = "com.microsoft"
LAST_OPSET = 1 << 30

Function = Callable[..., Any]
FunctionT = TypeVar("FunctionT", bound=Function)


@dataclass(frozen=True, slots=True)
class OnnxOperator:
    """The import of an operator of these versions of an operator set.

    `is_quantizable` says that it becomes one operation, which takes `op.quant`, so that operands and output may as
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
    since: int | None = None,
    until: int = LAST_OPSET,
    doc: Mapping[str, str] | None = None,
    domain: str = "",
    is_quantizable: bool = False,
    moves: bool = False,
    fuses: bool = False,
) -> Callable[[FunctionT], FunctionT]:
    """Declare how operators are imported; see the module's docstring.

    Several that take and give the same have one function, which asks `op.type`, and each its own `doc`.
    """

    def declare(function: FunctionT) -> FunctionT:
        family = function.__module__.rpartition(".")[2]
        text = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
        signature = Signature.of(function, skipped=1)
        first = since or (1 if domain else FIRST_OPSET)
        for name in names:
            versions = OPERATORS.setdefault((domain, name), [])
            if any(other.since <= until and first <= other.until for other in versions):
                raise TypeError(f"{name} is declared twice for one version")
            how = doc[name] if doc else text
            versions.append(
                OnnxOperator(domain, name, first, until, how, family, signature, is_quantizable, moves, fuses)
            )
        return function

    return declare


def operator_of(domain: str, name: str, opset: int) -> OnnxOperator | None:
    """The import of an operator of this version of its set; None where none is declared."""
    versions = OPERATORS.get((domain, name), ())
    return next((operator for operator in versions if operator.since <= opset <= operator.until), None)
