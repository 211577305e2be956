"""Interface that the lowering needs of an engine that runs its models."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import helper

from nnrt_hdi.enums import DataType

AnyDType = np.dtype[Any]

# The highest opset in which ONNX Runtime's optimizations of quantized models don't break UINT8 ones.
OPSET = 20
# The domain of MatMulNBits, the only operator that isn't part of ONNX itself.
MICROSOFT = "com.microsoft"
OPSETS = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
IR_VERSION = 10


@dataclass(frozen=True, slots=True)
class Operator:
    """ONNX operator with the data types of its operands; None stands for an operand that is left out."""

    type: str
    operands: tuple[AnyDType | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""

    @property
    def kind(self) -> tuple[object, ...]:
        """Key of the properties on which support depends. Numeric attributes change results, not support."""
        texts = tuple(sorted(value for value in self.attrs.values() if isinstance(value, str)))
        return self.domain, self.type, texts, self.operands, self.outputs

    def model(self) -> onnx.ModelProto:
        """Return a model of this operator alone, whose operands are inputs of any shape.

        Loading it shows whether an engine without a list of operators supports this one.
        """
        names = [f"x{number}" if dtype else "" for number, dtype in enumerate(self.operands)]
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), None)
            for name, dtype in zip(names, self.operands, strict=True)
            if dtype
        ]
        results = [f"y{number}" for number in range(self.outputs)]
        node = helper.make_node(self.type, names, results, domain=self.domain or None, **self.attrs)
        graph = helper.make_graph([node], "operator", inputs, [*map(helper.make_empty_tensor_value_info, results)])
        return helper.make_model(graph, opset_imports=OPSETS, ir_version=IR_VERSION)


@dataclass(frozen=True, slots=True)
class IntegerTypes:
    """8-bit types, INT8 or UINT8, that the engine's integer kernels take; None where they take both."""

    activations: DataType | None = None
    weights: DataType | None = None


class Engine(Protocol):
    """Engine that runs ONNX models. A subclass inherits the defaults."""

    # The name in messages to the client: "ONNX Runtime has no Mod kernel for INT8".
    name: str
    # Whether the engine computes FLOAT16 itself. Else the model computes in FLOAT32 and rounds tensors that it keeps or
    # outputs.
    computes_float16: bool = True
    # The types of quantized tensors inside of a model. Inputs and outputs keep the types of the graph.
    integers: IntegerTypes = IntegerTypes()

    def takes(self, operator: Operator) -> bool:
        """Return whether the engine computes an operator with operands of these types.

        If not, the lowering casts the operands to wider types that the engine takes, and lowers a composition node by
        node. The lowering calls this for each operator: an engine that needs long to answer should cache answers by
        `Operator.kind`.
        """
        ...


def names(text: str) -> frozenset[str]:
    """Return a set of the names in a text, separated by white space."""
    return frozenset(text.split())
