"""Functions that import ONNX operators, in a module per family. Families have the same names in the other packages.

`nnrt_client.onnx_import.operators.operator` explains how operators are declared.
"""

from nnrt_hdi.ops import FAMILIES, family_modules

family_modules(__name__, (*FAMILIES, "attention", "microsoft"))
