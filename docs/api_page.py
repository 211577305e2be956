"""Write docs/api.md from what `nnrt_client.oh_nn` declares: `make docs`. With --check, fail if the page is not that.

The table comes from the functions' signatures, their first lines, and what they name as their counterpart.
"""

import inspect
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from nnrt_client import oh_nn  # noqa: F401  (it declares the functions)
from nnrt_client.c_interface.adapter import FUNCTIONS, Function

PAGE = Path(__file__).resolve().parent / "api.md"

INTRODUCTION = """\
# NNRt's functions in Python

<!-- Written by `make docs` from the declarations; `make docs-check` fails if it is out of date. -->

`nnrt_client` has two faces. The object API (`Model`, `Compilation`, `Executor`, `Tensor`, ...) raises typed errors and
is what new programs use. `nnrt_client.oh_nn` has the {count} functions of NNRt's C interface under their own names, for
programs that are ported line by line; it is a thin layer over the object API and behaves as NNRt's documents say.

## Conventions

- **Arguments** come in C's order, without the out-pointers. A C (pointer, length) or (array, count) pair is one
  buffer or one sequence. `None` stands for every null pointer.
- **Results**: a function without out-pointers returns its code, an `OH_NN_ReturnCode`; one with out-pointers `(code,
  value, ...)`; one that returns a pointer, that or `None`; a `void` one returns nothing. None of them raises.
- **Handles** (`OH_NNModel`, `NN_Tensor`, ...) are opaque. `Destroy` takes the handle itself and makes it a null handle:
  whatever it is given to later answers `OH_NN_INVALID_PARAMETER`. So does a handle of another kind.
- **Scalars** have the shape `[1]`, for a tensor can't be made of a desc without dimensions: executors say so of inputs
  and outputs, and runs of what they have written. An output may be declared `[1]` where the operator gives a scalar,
  and without a shape where it gives `[1]`; either is `[1]` then to the operations that read it.
- **Constants** have C's names: `OH_NN_SUCCESS`, `OH_NN_FLOAT32`, `OH_NN_OPS_ADD`. They are members of the object API's
  enums. Functions take plain numbers, too.
- **Structs** of API 9 (`OH_NN_Tensor`, `OH_NN_QuantParam`, `OH_NN_UInt32Array`) are dataclasses with C's fields, but
  without the counts. Where C wants an `OH_NN_UInt32Array`, any sequence of integers will do.
- **Callbacks** are called as `on_run_done(user_data, code, outputs)`, with the very list that `RunAsync` was given, and
  `on_service_died(user_data)`.
- **Devices** are those of one runtime that the process shares: at the addresses in `NNRT_DEVICES`, or those given to
  `nnrt_client.connect("127.0.0.1:50051", ...)`. Device id 0 is the first of them.
- **Why a call failed** says `oh_nn.last_error()`: the error behind this thread's last code but `OH_NN_SUCCESS`, or last
  `None`. It is logged, too, at level DEBUG.

```python
from nnrt_client.oh_nn import *

desc = OH_NNTensorDesc_Create()
OH_NNTensorDesc_SetDataType(desc, OH_NN_FLOAT32)
if OH_NNTensorDesc_SetShape(desc, [2, 3]) != OH_NN_SUCCESS:
    print(last_error())
tensor = OH_NNTensor_Create(0, desc)
code, size = OH_NNTensor_GetSize(tensor)
print(code.name, size)
OH_NNTensor_Destroy(tensor)
OH_NNTensorDesc_Destroy(desc)
```

[examples/oh_nn_add.py](../examples/oh_nn_add.py) builds a model, compiles and runs it that way.

## The {count} functions
"""

# What the names of the functions begin with, in the order they are declared.
GROUPS = {
    "OH_NNDevice": "Device",
    "OH_NNTensorDesc": "Tensor description",
    "OH_NNTensor": "Tensor",
    "OH_NNQuantParam": "Quantization parameters",
    "OH_NNModel": "Model",
    "OH_NNCompilation": "Compilation",
    "OH_NNExecutor": "Executor",
}


def page() -> str:
    return INTRODUCTION.format(count=len(FUNCTIONS)) + "\n".join(_tables()) + "\n"


def _tables() -> Iterator[str]:
    for title, group in groupby(FUNCTIONS, key=_group):
        yield from ("", f"### {title}", "", "| function | returns | object API | |", "|---|---|---|---|")
        for function in group:
            yield _row(function)


def _group(function: Function) -> str:
    return "API 9, deprecated since API 11" if function.is_legacy else GROUPS[function.name.rpartition("_")[0]]


def _row(function: Function) -> str:
    parameters = ", ".join(inspect.signature(function.call).parameters)
    instead = ", ".join(f"`{name}`" for name in function.counterpart.split(", ")) if function.counterpart else "–"
    note = " ".join((inspect.getdoc(function.call) or "").split())
    return f"| `{function.name}({parameters})` | {function.returns} | {instead} | {note} |"


def main() -> None:
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        raise SystemExit("docs/api.md is not what the declarations say; run `make docs`")


if __name__ == "__main__":
    main()
