"""Activation functions. All but PRELU become an ACTIVATION node, which names the function."""

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations.operation import Call, Operation, operation
from nnrt_client.model.operations.parameter import Parameter, boolean, number
from nnrt_hdi.enums import ActivationType, NodeType
from nnrt_hdi.graph import AttrValue


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


def _prelu(call: Call) -> dict[str, AttrValue]:
    """Set `channel_shared` if one weight serves all channels. HDI requires it, but NNRt's own client never sets it."""
    return {"channel_shared": True} if call.inputs[1].spec.shape == (1,) else {}


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
    operation(
        OperationType.PRELU,
        NodeType.PRELU_FUSION,
        inputs=2,
        derive=_prelu,
        node_name="PRelu",
        sets_quant_type=False,
    ),
)
