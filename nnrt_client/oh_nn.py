"""NNRt's application interface as in C: 75 functions with NNRt's names, which return codes.

This is a thin layer over the object API, for C programs that are ported line by line and for tests of NNRt's behaviour.
docs/reference/c-functions.md lists for each function the equivalent in the object API. The conventions:

- Arguments come in C's order, without the out-pointers. A C (pointer, length) or (array, count) pair is one buffer or
  sequence. None stands for every null pointer.
- A function with out-pointers returns (code, value, ...). A function that returns a pointer in C returns a handle or
  None.
- A scalar has the shape [1].
- Handles are opaque. A handle that was destroyed counts as a null pointer.
- Devices are those of the process-wide runtime: see `nnrt_client.connect`. A device id of 0 is the first one.
- `last_error()` returns the message of the last error.

    model = OH_NNModel_Construct()
    desc = OH_NNTensorDesc_Create()
    if OH_NNTensorDesc_SetShape(desc, [1, 4]) != OH_NN_SUCCESS:
        print(last_error())
"""

from typing import TYPE_CHECKING

from nnrt_client.c_interface import callbacks, constants, handles, structs
from nnrt_client.c_interface.adapter import FUNCTIONS
from nnrt_client.c_interface.adapter import last_error as last_error
from nnrt_client.c_interface.callbacks import *
from nnrt_client.c_interface.constants import *
from nnrt_client.c_interface.functions.devices import *
from nnrt_client.c_interface.functions.tensors import *
from nnrt_client.c_interface.functions.models import *
from nnrt_client.c_interface.functions.compilations import *
from nnrt_client.c_interface.functions.executors import *
from nnrt_client.c_interface.functions.api_9 import *
from nnrt_client.c_interface.handles import *
from nnrt_client.c_interface.structs import *

if not TYPE_CHECKING:  # Type checkers find the names in the imports.
    __all__ = [
        "last_error",
        *callbacks.__all__,
        *handles.__all__,
        *structs.__all__,
        *(name for name in vars(constants) if name.startswith("OH_NN_")),
        *(function.name for function in FUNCTIONS),
    ]
