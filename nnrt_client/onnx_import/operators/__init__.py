"""The ONNX operators that are imported, in the module of their family, which is called as in the other rooms.

Operators are declared in the language of `nnrt_client.onnx_import.operators.operator`.
"""

from nnrt_hdi.ops import FAMILIES, family_modules

family_modules(__name__, (*FAMILIES, "microsoft"))
