"""Declaration of how ONNX operators are imported: a function's signature is the schema, its body adds operations.

    @onnx_operator("Elu", since=7)
    def elu(op: NodeBuilder, x: Value, *, alpha: float = 1.0) -> Value:
        '''max(x, 0) + alpha (exp(min(x, 0)) - 1), of EXP and CLIP.'''
        ...

* The parameters between `op` and `*` are the inputs, in order. An optional input has the default None, or the type
  `Value | None` if required inputs follow it. `*parts` takes any number of inputs.
* The parameters after `*` are the attributes, under ONNX's names, with type and default; an attribute without a default
  is required. Attributes that many operators share are the fields of one dataclass, such as `window: Window`. The
  importer refuses a node with an attribute that is not listed. A trailing underscore avoids Python's keywords.
* `since` and `until` are the first and the last version of the operator set that the function supports. If the
  signature changed between versions, each form has a function. `domain` is ONNX's own by default, or MICROSOFT.
* The body calls `op.apply(OperationType.X, ...)` and returns the values of the outputs, in order. A model that reads
  further outputs is refused. `refuse` raises Unsupported for a node that can't be mapped. The docstring's first
  paragraph says what the operator becomes; docs/reference/onnx.md lists it.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from nnrt_hdi.ops.signature import Signature

FIRST_OPSET = 7
# Domain of the operators that ONNX Runtime adds, and that its tools write.
MICROSOFT = "com.microsoft"
LAST_OPSET = 1 << 30

Function = Callable[..., Any]
FunctionT = TypeVar("FunctionT", bound=Function)


@dataclass(frozen=True, slots=True)
class OnnxOperator:
    """Import of an operator, for some versions of its operator set.

    Attributes:
        is_quantizable: it becomes one operation that takes `op.quant`, so its operands and its output may be quantized.
        moves: it only moves the elements of its first input.
        fuses: it calls `op.activation` to fuse the activation that follows.
    """

    domain: str
    name: str
    since: int
    until: int
    doc: str
    family: str
    function: Function
    is_quantizable: bool
    moves: bool
    fuses: bool

    @property
    def signature(self) -> Signature:
        """Signature of the function without its first parameter."""
        return _signature(self.function)


@cache
def _signature(function: Function) -> Signature:
    """Return the signature of an operator's function, when a file first needs it: most files need few of them."""
    return Signature.of(function, skipped=1)


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

    Operators with the same signature can share one function, which reads `op.type`. `doc` has a text for each of them.
    """

    def declare(function: FunctionT) -> FunctionT:
        family = function.__module__.rpartition(".")[2]
        text = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
        first = since or (1 if domain else FIRST_OPSET)
        for name in names:
            versions = OPERATORS.setdefault((domain, name), [])
            if any(other.since <= until and first <= other.until for other in versions):
                raise TypeError(f"{name} is declared twice for one version")
            how = doc[name] if doc else text
            versions.append(
                OnnxOperator(domain, name, first, until, how, family, function, is_quantizable, moves, fuses)
            )
        return function

    return declare


def find_operator(domain: str, name: str, opset: int) -> OnnxOperator | None:
    """Return the import of an operator in this version of its operator set, or None if none is declared."""
    versions = OPERATORS.get((domain, name), ())
    return next((operator for operator in versions if operator.since <= opset <= operator.until), None)
