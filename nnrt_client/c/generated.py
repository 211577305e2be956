"""Generator of the shared library's files, run by `make c-files`. With --check it fails if they are out of date.

It writes three files: `functions.inc`, the functions of the library, from `functions.py`; the enum members in
`neural_network_runtime_type.h`, with the operands of each operation; and `constants.pyi`, the constants of `oh_nn`.
"""

import re
import sys
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from textwrap import wrap

from nnrt_client import enums
from nnrt_client.c.functions import SIGNATURES, Signature
from nnrt_client.c_interface import constants
from nnrt_client.enums import TensorType
from nnrt_client.model.operations import FAMILIES
from nnrt_client.model.operations.operation import MANY, Operation
from nnrt_client.model.operations.parameter import Parameter
from nnrt_hdi.ops import OPERATORS

HERE = Path(__file__).resolve().parent
TYPES = HERE / "include" / "neural_network_runtime" / "neural_network_runtime_type.h"
FUNCTIONS = HERE / "functions.inc"
CONSTANTS = HERE.parent / "c_interface" / "constants.pyi"
_WIDTH = 120
_NAME = re.compile(r"(\w+)(?:\[\])?$")
_OPERATIONS = {operation.type: operation for family in FAMILIES.values() for operation in family}

# Enum of the header. Group 1 is its name.
_ENUM = re.compile(r"typedef enum \{\n(?:    .*\n)*\} (OH_NN_\w+);")
_CODES = {
    "SUCCESS": "The call succeeded.",
    "FAILED": "The call failed for a reason that has no code of its own.",
    "INVALID_PARAMETER": "An argument is null or invalid.",
    "MEMORY_ERROR": "There is not enough memory.",
    "OPERATION_FORBIDDEN": "The object's state doesn't allow the call.",
    "NULL_PTR": "A null pointer is where none is allowed.",
    "INVALID_FILE": "A file is damaged, or of another kind.",
    "UNAVALIDABLE_DEVICE": "Never returned. Deprecated since 11.",
    "INVALID_PATH": "A file or directory doesn't exist, or can't be used.",
    "TIMEOUT": "The call or the run exceeded its timeout. Since 11.",
    "UNSUPPORTED": "The device doesn't support the call. Since 11.",
    "CONNECTION_EXCEPTION": "The daemon can't be reached. Since 11.",
    "SAVE_CACHE_EXCEPTION": "The cache can't be written. Since 11.",
    "DYNAMIC_SHAPE": "A dimension is unknown. Since 11.",
    "UNAVAILABLE_DEVICE": "The device has failed, or its daemon has died. Since 11.",
}


def types() -> str:
    """Return the header of types with the current members of its enums."""
    return _ENUM.sub(_enum, TYPES.read_text())


def _enum(found: re.Match[str]) -> str:
    enum: type[IntEnum] = getattr(constants, found[1])
    lines = ["typedef enum {"]
    for constant, member in vars(constants).items():
        if isinstance(member, enum):
            lines += [*_comment(member), f"    {constant} = {member.value},"]
    return "\n".join([*lines, f"}} {found[1]};"])


def names() -> str:
    """Return `constants.pyi`."""
    lines = [
        "# Written by nnrt_client/c/generated.py.",
        "from nnrt_client import enums",
        "",
        "PREFIXES: dict[str, str]",
    ]
    for name in constants.PREFIXES:
        enum: type[IntEnum] = getattr(enums, name)
        members = (constant for constant, member in vars(constants).items() if isinstance(member, enum))
        lines += ["", f"OH_NN_{name} = enums.{name}", *(f"{member}: enums.{name}" for member in members)]
    return "\n".join(lines) + "\n"


def functions() -> str:
    """Return `functions.inc`."""
    lines = ["/* Written by nnrt_client/c/generated.py. */", *map(_function, range(len(SIGNATURES)), SIGNATURES)]
    return "\n".join(lines) + "\n"


def _function(index: int, signature: Signature) -> str:
    parameters = ", ".join(signature.declared) or "void"
    names = ", ".join(match[1] for text in signature.declared if (match := _NAME.search(text)))
    tail = f"{signature.name}, ({parameters}), ({names}))"
    if signature.returns == "void":
        return f"NOTHING({index}, {tail}"
    if signature.returns == "OH_NN_ReturnCode":
        return f"CODE({index}, {tail}"
    return f"POINTER({index}, {signature.returns}, {tail}"


def _comment(member: IntEnum) -> Iterator[str]:
    """Yield the lines of the comment on an enum member, or none if the member needs no comment."""
    if isinstance(member, enums.ReturnCode):
        paragraphs = [_CODES[member.name]]
    elif isinstance(member, enums.OperationType):
        paragraphs = list(_operation_comment(_OPERATIONS[member]))
    elif isinstance(member, TensorType):
        paragraphs = list(_parameter_comment(member))
    else:
        return
    lines = [line for text in paragraphs for line in wrap(text, _WIDTH - 7, break_on_hyphens=False)]
    if len(lines) == 1 and len(lines[0]) < _WIDTH - 10:
        yield f"    /** {lines[0]} */"
    else:
        yield from ("    /**", *(f"     * {line}" for line in lines), "     */")


def _operation_comment(operation: Operation) -> Iterator[str]:
    operator = OPERATORS[operation.node_type]
    yield " ".join(operator.doc.split())
    least, most = operation.inputs
    count = f"{least}" if least == most else f"{least} or more" if most == MANY else f"{least} to {most}"
    yield f"Inputs ({count}): {', '.join(rule.name for rule in operator.operands)}."
    if operation.parameters:
        tensor_types = (f"{parameter.tensor_types[0].name}" for parameter in operation.parameters)
        yield f"Parameters: {', '.join(f'OH_NN_{name}' for name in tensor_types)}."


def _parameter_comment(tensor_type: TensorType) -> Iterator[str]:
    if tensor_type is TensorType.TENSOR:
        yield "Input, output or constant."
        return
    for operation in _OPERATIONS.values():
        for parameter in operation.parameters:
            if tensor_type in parameter.tensor_types:
                yield f"Of {operation.type.name}: {_parameter_text(parameter)}."


def _parameter_text(parameter: Parameter) -> str:
    kinds = " or ".join(data_type.name for data_type in parameter.data_types)
    counts = " or ".join(map(str, parameter.counts)) or "any number of"
    members = ", ".join(f"{member.value} {member.name}" for member in parameter.enum or ())
    return (
        f"{parameter.keyword}, {counts} {kinds}{f' ({members})' if members else ''}"
        f"{'; it has no default' if parameter.required else ''}"
    )


def main() -> None:
    """Write the files, or compare them with --check."""
    made = {TYPES: types(), FUNCTIONS: functions(), CONSTANTS: names()}
    if "--check" in sys.argv:
        if stale := [path.name for path, text in made.items() if path.read_text() != text]:
            sys.exit(f"{', '.join(stale)}: not what the tables say; run `make c-files`")
        return
    for path, text in made.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
