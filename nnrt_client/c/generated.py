"""Writes what of the shared library follows from tables in Python: `make c-files`. With --check, fail if it differs.

`functions.inc` has the functions of the library, from `functions.py`; `neural_network_runtime_type.h` the enums, with
the tensors that each operation reads, from the declarations of operations; `constants.pyi` the names of `oh_nn`'s
constants.
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

# Enums by C's names, and what they are.
_ENUMS = {
    "OH_NN_PerformanceMode": "How fast a device works.",
    "OH_NN_Priority": "Which runs go first.",
    "OH_NN_ReturnCode": "What functions return.",
    "OH_NN_FuseType": "Activations that an operation may end with; as a parameter an int8_t.",
    "OH_NN_Format": "Orders of the dimensions of a tensor.",
    "OH_NN_DeviceType": "Kinds of devices.",
    "OH_NN_DataType": "Types of elements.",
    "OH_NN_OperationType": "Operations, with the tensors that each one reads.",
    "OH_NN_TensorType": "What a tensor is to its operation.",
}
_CODES = {
    "SUCCESS": "It is done.",
    "FAILED": "It went wrong in a way that no other code says.",
    "INVALID_PARAMETER": "An argument is null, or isn't what is needed.",
    "MEMORY_ERROR": "Memory is short.",
    "OPERATION_FORBIDDEN": "Not in this state.",
    "NULL_PTR": "A null pointer is where none may be.",
    "INVALID_FILE": "A file is damaged, or isn't what it was taken for.",
    "UNAVALIDABLE_DEVICE": "Never returned. Deprecated since 11.",
    "INVALID_PATH": "A directory isn't there, or can't be used.",
    "TIMEOUT": "It took longer than it was given. Since 11.",
    "UNSUPPORTED": "The device doesn't do that. Since 11.",
    "CONNECTION_EXCEPTION": "The daemon can't be reached. Since 11.",
    "SAVE_CACHE_EXCEPTION": "The cache can't be written. Since 11.",
    "DYNAMIC_SHAPE": "A dimension isn't known. Since 11.",
    "UNAVAILABLE_DEVICE": "The device is at fault, or its daemon has died. Since 11.",
}

_BEGIN = """\
/**
 * @file neural_network_runtime_type.h
 *
 * Types, enums and structs of NNRt. Written by nnrt_client/c/generated.py.
 */
#ifndef NEURAL_NETWORK_RUNTIME_NEURAL_NETWORK_RUNTIME_TYPE_H
#define NEURAL_NETWORK_RUNTIME_NEURAL_NETWORK_RUNTIME_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Handle of a model. */
typedef struct OH_NNModel OH_NNModel;
/** Handle of a compilation. */
typedef struct OH_NNCompilation OH_NNCompilation;
/** Handle of an executor. */
typedef struct OH_NNExecutor OH_NNExecutor;
/** Handle of quantization parameters. Since 11. */
typedef struct NN_QuantParam NN_QuantParam;
/** Handle of a tensor's description. Since 11. */
typedef struct NN_TensorDesc NN_TensorDesc;
/** Handle of a tensor. Since 11. */
typedef struct NN_Tensor NN_Tensor;
"""
_END = """
/** Indices of tensors. */
typedef struct OH_NN_UInt32Array {
    /** The first one; null only where there are none. */
    uint32_t *data;
    /** Their number. */
    uint32_t size;
} OH_NN_UInt32Array;

/** Quantization parameters of an OH_NN_Tensor. Deprecated since 11: use NN_QuantParam. */
typedef struct OH_NN_QuantParam {
    /** The number of elements of each array: 1, or one for each channel. */
    uint32_t quantCount;
    /** Bits, each 8. */
    const uint32_t *numBits;
    /** Scales: an element q stands for the number (q - zeroPoint) * scale. */
    const double *scale;
    /** Zero points. */
    const int32_t *zeroPoint;
} OH_NN_QuantParam;

/** A tensor's description. Deprecated since 11: use NN_TensorDesc. */
typedef struct OH_NN_Tensor {
    /** The type of its elements. */
    OH_NN_DataType dataType;
    /** The number of its dimensions; 0 for a scalar. */
    uint32_t dimensionCount;
    /** Its dimensions, -1 for one that only a run decides; null for a scalar. */
    const int32_t *dimensions;
    /** Its quantization parameters; null where it is not quantized. */
    const OH_NN_QuantParam *quantParam;
    /** What it is to its operation. */
    OH_NN_TensorType type;
} OH_NN_Tensor;

/** Memory that a device reads and writes where it is. Deprecated since 11: use NN_Tensor. */
typedef struct OH_NN_Memory {
    /** The first byte. */
    void *const data;
    /** The number of bytes. */
    const size_t length;
} OH_NN_Memory;

/**
 * Called when a run has ended that OH_NNExecutor_RunAsync has begun. Since 11.
 *
 * @param userData      what OH_NNExecutor_RunAsync was given.
 * @param errCode       how it ended; if it is not OH_NN_SUCCESS the outputs hold anything.
 * @param outputTensor  the NN_Tensor that OH_NNExecutor_RunAsync was given; the array is valid until the return.
 * @param outputCount   their number.
 */
typedef void (*NN_OnRunDone)(void *userData, OH_NN_ReturnCode errCode, void *outputTensor[], int32_t outputCount);

/**
 * Called when the daemon has died while a run was under way. Since 11.
 *
 * @param userData  what OH_NNExecutor_RunAsync was given.
 */
typedef void (*NN_OnServiceDied)(void *userData);

#ifdef __cplusplus
}
#endif

#endif
"""


def types() -> str:
    """The header of types."""
    lines = [_BEGIN.rstrip()]
    for name, what in _ENUMS.items():
        enum: type[IntEnum] = getattr(constants, name)
        lines += ["", f"/** {what} */", "typedef enum {"]
        for constant, member in vars(constants).items():
            if isinstance(member, enum):
                lines += [*_comment(member), f"    {constant} = {member.value},"]
        lines += [f"}} {name};"]
    return "\n".join([*lines, _END])


def names() -> str:
    """The names of constants for type checkers."""
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
    """The functions of the library."""
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
    """Explain a member whose name doesn't say what it means."""
    if isinstance(member, enums.ReturnCode):
        paragraphs = [_CODES[member.name]]
    elif isinstance(member, enums.OperationType):
        paragraphs = list(_of_operation(_OPERATIONS[member]))
    elif isinstance(member, TensorType):
        paragraphs = list(_of_parameter(member))
    else:
        return
    lines = [line for text in paragraphs for line in wrap(text, _WIDTH - 7, break_on_hyphens=False)]
    if len(lines) == 1 and len(lines[0]) < _WIDTH - 10:
        yield f"    /** {lines[0]} */"
    else:
        yield from ("    /**", *(f"     * {line}" for line in lines), "     */")


def _of_operation(operation: Operation) -> Iterator[str]:
    operator = OPERATORS[operation.node_type]
    yield " ".join(operator.doc.split())
    least, most = operation.inputs
    count = f"{least}" if least == most else f"{least} or more" if most == MANY else f"{least} to {most}"
    yield f"Inputs ({count}): {', '.join(rule.name for rule in operator.operands)}."
    if operation.parameters:
        told = (f"{parameter.tensor_types[0].name}" for parameter in operation.parameters)
        yield f"Parameters: {', '.join(f'OH_NN_{name}' for name in told)}."


def _of_parameter(tensor_type: TensorType) -> Iterator[str]:
    if tensor_type is TensorType.TENSOR:
        yield "An input, an output, or a constant."
        return
    for operation in _OPERATIONS.values():
        for parameter in operation.parameters:
            if tensor_type in parameter.tensor_types:
                yield f"Of {operation.type.name}: {_shown(parameter)}."


def _shown(parameter: Parameter) -> str:
    kinds = " or ".join(data_type.name for data_type in parameter.data_types)
    counts = " or ".join(map(str, parameter.counts)) or "any number of"
    members = ", ".join(f"{member.value} {member.name}" for member in parameter.enum or ())
    return (
        f"{parameter.keyword}, {counts} {kinds}{f' ({members})' if members else ''}"
        f"{'; it has no default' if parameter.required else ''}"
    )


def main() -> None:
    """Write the files, or compare them."""
    made = {TYPES: types(), FUNCTIONS: functions(), CONSTANTS: names()}
    if "--check" in sys.argv:
        if stale := [path.name for path, text in made.items() if path.read_text() != text]:
            sys.exit(f"{', '.join(stale)}: not what the tables say; run `make c-files`")
        return
    for path, text in made.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
