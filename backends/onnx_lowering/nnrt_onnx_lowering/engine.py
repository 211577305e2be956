"""The lowering asks these things of the engine that is to run its models."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import helper

from nnrt_hdi.enums import DataType

AnyDType = np.dtype[Any]

# The highest one in which ONNX Runtime's optimizations of quantized models don't break UINT8 ones.
OPSET = 20
# The domain of MatMulNBits, the one operator that isn't of ONNX itself.
MICROSOFT = "com.microsoft"
OPSETS = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
IR_VERSION = 10


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of ONNX with operands of these data types, None in the place of one that is left out."""

    type: str
    operands: tuple[AnyDType | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""

    @property
    def kind(self) -> tuple[object, ...]:
        """All that an answer about it depends on: attributes that are numbers say how it computes, not whether."""
        texts = tuple(sorted(value for value in self.attrs.values() if isinstance(value, str)))
        return self.domain, self.type, texts, self.operands, self.outputs

    def model(self) -> onnx.ModelProto:
        """A model of it alone, for an engine that has to be tried. Its operands are inputs of any shape."""
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
    """The data types of 8 bits, INT8 or UINT8, that the integer kernels of an engine take; None for both."""

    activations: DataType | None = None
    weights: DataType | None = None


class Engine(Protocol):
    """An engine that runs ONNX models, as the lowering sees it. A class that names it as its base has the defaults."""

    # Its name in messages to the client: "ONNX Runtime has no Mod kernel for INT8".
    name: str
    # FLOAT16 is computed as such; else in FLOAT32, and rounded where a tensor is kept or leaves the model.
    computes_float16: bool = True
    # Quantized tensors inside of a model come in these types. What the model reads and gives stays as it is declared.
    integers: IntegerTypes = IntegerTypes()

    def takes(self, operator: Operator) -> bool:
        """Tell if it computes an operator with operands of these types.

        Where it doesn't, the operands are cast to types that hold their elements, if it takes one of these, and what
        is lowered as a whole is lowered node by node. Asked for each operator that is lowered: answers that take long
        are worth keeping, by `Operator.kind`.
        """
        ...


def names(text: str) -> frozenset[str]:
    """Names of ONNX operators, as a set."""
    return frozenset(text.split())
