"""Conversion of graphs to ONNX models, for backends whose library runs such models.

    class AcmeEngine(Engine):
        name = "Acme"

        def takes(self, operator: Operator) -> bool:
            return operator.type in acme.OPERATORS

    lowered = lower(inferred_graph(graph), AcmeEngine(), float16=config.enable_float16)
    program = acme.compile(lowered.whole().SerializeToString())

    results = program.run(dict(zip(lowered.inputs, inputs)), lowered.outputs)  # in each run
    outputs = lowered.assertions.checked(results)

docs/guides/backend-on-onnx.md lists what the conversion expects of the engine.
"""

from nnrt_onnx_lowering.assertions import Assertions
from nnrt_onnx_lowering.engine import Engine, IntegerTypes, Operator
from nnrt_onnx_lowering.lowered import Lowered, lower
from nnrt_onnx_lowering.support import NodeSupport

__all__ = ["Assertions", "Engine", "IntegerTypes", "Lowered", "NodeSupport", "Operator", "lower"]
