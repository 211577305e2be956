"""Tables of NNRt's C functions, made from the declarations in `nnrt_client.oh_nn`.

A row has a function's signature, its counterpart in the object API, and its docstring.
"""

import inspect
from collections.abc import Iterator
from itertools import groupby

from nnrt_client import oh_nn  # noqa: F401  (it declares the functions)
from nnrt_client.c_interface.adapter import FUNCTIONS, Function

# Prefixes of the functions' names, each with the title of its table, in the order of the declarations.
GROUPS = {
    "OH_NNDevice": "Device",
    "OH_NNTensorDesc": "Tensor description",
    "OH_NNTensor": "Tensor",
    "OH_NNQuantParam": "Quantization parameters",
    "OH_NNModel": "Model",
    "OH_NNCompilation": "Compilation",
    "OH_NNExecutor": "Executor",
}


def tables() -> str:
    """Return one table for each kind of handle, in the order of the declarations."""
    return "\n".join(_tables())


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
