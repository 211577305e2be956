"""Activation functions that ignore an attribute, a limit, or NaN."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from nnrt_backend_reference.kernels import activation
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import FunctionT, entry, function, kernel, with_attrs
from nnrt_hdi.enums import ActivationType, Format, NodeType

Function = Callable[..., Any]


def activations(*types: ActivationType) -> Callable[[FunctionT], FunctionT]:
    """Replace activation functions, alone and fused."""
    return entry(activation.FUNCTIONS, *types, node_types=(NodeType.ACTIVATION,))


@function(activation.relu, NodeType.ACTIVATION)
def relu_without_nan(right: Function, x: AnyArray) -> Any:
    """RELU computes x > 0 ? x : 0, which turns NaN into 0."""
    return np.where(x > 0, x, x.dtype.type(0))


@activations(ActivationType.SIGMOID)
def sigmoid_by_quotient_of_powers(right: Function, x: AnyArray, attrs: SimpleNamespace) -> Any:
    """A sigmoid computes exp(x) / (1 + exp(x)), which is NaN from x = 89 on."""
    power = np.exp(x)
    return np.asarray(power / (1 + power))


@activations(ActivationType.HSIGMOID)
def hard_sigmoid_of_onnx(right: Function, x: AnyArray, attrs: SimpleNamespace) -> Any:
    """The slope of a hard sigmoid is 0.2, ONNX's default, not 1/6."""
    return np.clip(0.2 * x + 0.5, 0, 1)


@activations(ActivationType.GELU)
def gelu_always_by_tanh(right: Function, x: AnyArray, attrs: SimpleNamespace) -> Any:
    """GELU always computes the tanh approximation."""
    return right(x, SimpleNamespace(approximate=True))


@activations(ActivationType.GELU)
def gelu_never_by_tanh(right: Function, x: AnyArray, attrs: SimpleNamespace) -> Any:
    """GELU never computes the tanh approximation: the attribute approximate is ignored."""
    return right(x, SimpleNamespace(approximate=False))


@activations(ActivationType.ELU)
def elu_with_alpha_one(right: Function, x: AnyArray, attrs: SimpleNamespace) -> Any:
    """The alpha of an ELU is ignored."""
    return right(x, SimpleNamespace(alpha=1.0))


@kernel(NodeType.LEAKY_RELU)
def leaky_by_a_hundredth(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The slope of a leaky RELU is always 0.01."""
    return right(with_attrs(call, negative_slope=0.01), x)


@kernel(NodeType.PRELU_FUSION)
def prelu_by_the_last_dimension(right: Kernel, call: Call, x: AnyArray, weight: AnyArray) -> Any:
    """In NCHW, too, a PRELU's slopes run along the last dimension, if it is as long as the channels."""
    fits = weight.size > 1 and x.ndim == 4 and call.inputs[0].format is Format.NCHW and x.shape[-1] == weight.size
    return np.where(x > 0, x, weight.reshape(-1) * x) if fits else right(call, x, weight)


@kernel(NodeType.PRELU_FUSION)
def prelu_with_the_first_slope(right: Kernel, call: Call, x: AnyArray, weight: AnyArray) -> Any:
    """All channels get the first channel's slope."""
    return right(call, x, weight.reshape(-1)[:1])


@activations(ActivationType.HARD_TANH)
def hard_tanh_between_ones(right: Function, x: AnyArray, attrs: SimpleNamespace) -> Any:
    """min_val and max_val are ignored."""
    return np.clip(x, -1, 1)


@activations(ActivationType.SOFTPLUS)
def softplus_that_overflows(right: Function, x: AnyArray, attrs: SimpleNamespace) -> Any:
    """A softplus computes log(1 + exp(x)), which is infinite from x = 89 on."""
    return np.log1p(np.exp(x))


@activations(ActivationType.THRESHOLDRELU)
def threshold_of_onnx(right: Function, x: AnyArray, attrs: SimpleNamespace) -> Any:
    """Elements above the threshold pass, as in ONNX, instead of those below."""
    return np.where(x > attrs.alpha, x, 0)


@activations(ActivationType.SIGN)
def sign_of_zero(right: Function, x: AnyArray, attrs: SimpleNamespace) -> Any:
    """The sign of 0 is 1."""
    return np.where(x == 0, x.dtype.type(1), np.sign(x))


@activations(ActivationType.HSWISH)
def hard_swish_without_its_end(right: Function, x: AnyArray, attrs: SimpleNamespace) -> Any:
    """The factor of a hard swish has no upper limit."""
    return np.asarray(x * np.maximum(x + 3, 0) / 6)


@activations(ActivationType.TANH)
def tanh_by_a_fraction(right: Function, x: AnyArray, attrs: SimpleNamespace) -> Any:
    """tanh is a rational approximation of low degree, exact to two digits."""
    return np.clip(x * (27 + x * x) / (27 + 9 * x * x), -1, 1)
