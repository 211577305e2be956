"""Activation functions: all become an ACTIVATION node, which names the function."""

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.operations.operation import Operation, operation
from nnrt_client.operations.parameter import Parameter, boolean, number
from nnrt_hdi.enums import ActivationType, NodeType


def _activation(
    type: OperationType, function: ActivationType, *parameters: Parameter, sets_quant_type: bool = True
) -> Operation:
    return operation(
        type,
        NodeType.ACTIVATION,
        *parameters,
        fixed={"activation_type": function},
        sets_quant_type=sets_quant_type,
    )


OPERATIONS = (
    _activation(OperationType.RELU, ActivationType.RELU),
    _activation(OperationType.RELU6, ActivationType.RELU6),
    _activation(OperationType.SIGMOID, ActivationType.SIGMOID),
    _activation(OperationType.TANH, ActivationType.TANH),
    _activation(OperationType.HSWISH, ActivationType.HSWISH),
    _activation(OperationType.HARD_SIGMOID, ActivationType.HSIGMOID),
    _activation(OperationType.SWISH, ActivationType.SWISH, sets_quant_type=False),
    _activation(OperationType.ABS, ActivationType.ABS, sets_quant_type=False),
    _activation(
        OperationType.LEAKY_RELU,
        ActivationType.LEAKY_RELU,
        number("alpha", TensorType.LEAKY_RELU_NEGATIVE_SLOPE),
        sets_quant_type=False,
    ),
    _activation(
        OperationType.GELU,
        ActivationType.GELU,
        boolean("approximate", TensorType.GELU_APPROXIMATE),
        sets_quant_type=False,
    ),
)
