"""Activation functions, alone or fused behind another operator."""

from typing import Annotated

from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.ops.operands import FLOATS, SIGNED_INTEGERS, Real, require_channels, same_data_type
from nnrt_hdi.ops.operator import Accepts, Operand, operator, refuse
from nnrt_hdi.tensor import UNKNOWN_DIM, TensorSpec

# Functions that map integers to integers. All others need real numbers.
INTEGER_FUNCTIONS = frozenset(
    {
        ActivationType.NO_ACTIVATION,
        ActivationType.RELU,
        ActivationType.RELU6,
        ActivationType.RELU1,
        ActivationType.ABS,
    }
)
# The activations that NNRt's FuseType can fuse behind another operator.
FUSABLE = frozenset({ActivationType.NO_ACTIVATION, ActivationType.RELU, ActivationType.RELU6})


@operator(NodeType.ACTIVATION, quantized=True)
def activation(
    x: Annotated[Operand, Accepts(FLOATS | SIGNED_INTEGERS)],
    *,
    activation_type: ActivationType = ActivationType.NO_ACTIVATION,
    alpha: float = 0.0,
    min_val: float = 0.0,
    max_val: float = 0.0,
    approximate: bool = False,
) -> TensorSpec:
    """y = f(x) element by element, where activation_type names f.

    NO_ACTIVATION x; RELU max(x, 0); SIGMOID 1 / (1 + exp(-x)); RELU6 min(max(x, 0), 6); ELU x if x > 0 else alpha
    (exp(x) - 1); LEAKY_RELU x if x >= 0 else alpha x; ABS |x|; RELU1 min(max(x, -1), 1); SOFTSIGN x / (1 + |x|);
    SOFTPLUS log(1 + exp(x)); TANH tanh(x); SELU 1.0507 (x if x > 0 else 1.67326 (exp(x) - 1)); HSWISH x min(max(x + 3,
    0), 6) / 6; HSIGMOID min(max((x + 3) / 6, 0), 1); THRESHOLDRELU min(max(x, 0), alpha); LINEAR x; HARD_TANH
    min(max(x, min_val), max_val); SIGN the sign of x; SWISH x sigmoid(x); GELU x Phi(x), or with `approximate` the tanh
    form 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). NNRt's documents differ about GELU: some print 0.5 x (1 +
    tanh(x / 2)), one x Phi(x). This operator and the frameworks compute the latter.
    """
    if activation_type is ActivationType.UNKNOWN:
        refuse("activation_type is UNKNOWN; name a function")
    if activation_type is ActivationType.GELU and x.stands_for_real:
        refuse(f"{x.name} is quantized, which GELU does not take (NNRt); dequantize it first")
    if x.data_type not in FLOATS and activation_type not in INTEGER_FUNCTIONS:
        refuse(f"{activation_type.name} of {x.data_type.name} is not defined; use a floating-point type")
    if activation_type is ActivationType.HARD_TANH and min_val > max_val:
        refuse(f"min_val {min_val} is above max_val {max_val}; swap them")
    return x.spec


@operator(NodeType.LEAKY_RELU, quantized=True)
def leaky_relu(x: Real, *, negative_slope: float = 0.0) -> TensorSpec:
    """y = x if x >= 0 else negative_slope x."""
    return x.spec


@operator(NodeType.PRELU_FUSION, quantized=True)
def prelu(
    x: Real,
    weight: Annotated[Operand, Accepts(FLOATS, min_rank=1, max_rank=1)],
    *,
    channel_shared: bool | None = None,
) -> TensorSpec:
    """y = x if x > 0 else weight x, with one weight for all elements or one for each channel.

    Channels are the last dimension, or dimension 1 of an NCHW tensor. A weight for each channel needs an x with two
    dimensions or more. The length of weight decides which case applies; channel_shared must agree with it.
    """
    same_data_type(x, weight)
    count = weight.shape[0]
    if channel_shared and count not in (1, UNKNOWN_DIM):
        refuse(f"channel_shared is true but {weight} has {count} elements; give 1")
    if count not in (1, UNKNOWN_DIM):
        if x.rank < 2:
            refuse(f"{weight} has {count} elements but {x} has no channels; give 1")
        require_channels(x.shape[x.spec.channel_axis], weight)
    return x.spec


def require_fusable(activation_type: ActivationType, data_type: DataType) -> None:
    """Refuse an activation that can't be fused behind an operator with a result of this type."""
    if activation_type not in FUSABLE:
        refuse(f"activation_type is {activation_type.name}; only RELU and RELU6 can be fused, add a node for others")
    if data_type is DataType.BOOL and activation_type is not ActivationType.NO_ACTIVATION:
        refuse(f"{activation_type.name} of BOOL is not defined; use no activation")
