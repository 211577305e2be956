"""What operators refuse, in the module of their family."""

from . import activation, arithmetic, convolution, elementwise, linear, normalization, reduction, shape

CASES = [
    case
    for family in (activation, arithmetic, convolution, elementwise, linear, normalization, reduction, shape)
    for case in family.CASES
]
