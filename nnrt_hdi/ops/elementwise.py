"""Functions of one operand, element by element."""

from dataclasses import replace
from typing import Annotated

from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.operands import INTEGERS, Logical, int_values
from nnrt_hdi.ops.operator import Accepts, Operand, operator, refuse
from nnrt_hdi.tensor import TensorSpec, data_type_from_number


@operator(NodeType.CAST)
def cast(x: Logical, type_: Annotated[Operand, Accepts(INTEGERS, max_rank=1)]) -> TensorSpec:
    """y = x in the data type whose number is in type: 1 (BOOL) to 12 (FLOAT64), or HDI's 30 to 44.

    Real numbers lose their fraction on the way to integers, integers keep their low bits, and as BOOL all but
    0 is true. What a real number beyond an integer type's range becomes is not defined.
    """
    numbers = int_values(type_, "it decides the output's data type")
    if len(numbers) != 1:
        refuse(f"{type_} has {len(numbers)} elements; give one data type")
    return replace(x.spec, data_type=data_type_from_number(numbers[0]))
