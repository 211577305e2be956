"""All samples, family by family."""

from nnrt_client.conformance.cases.sample import samples_of
from nnrt_hdi.ops import FAMILIES, family_modules

# The levels with quantized tensors test the operators of this family.
_WITHOUT_SAMPLES = "quantization"
_MODULES = family_modules(__package__, [name for name in FAMILIES if name != _WITHOUT_SAMPLES])
SAMPLES = [sample for name, module in _MODULES.items() for sample in samples_of(name, module.rows())]
