"""Signatures of NNRt's 75 C functions, parsed from the headers, in the headers' order."""

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nnrt_client import oh_nn
from nnrt_client.c import INCLUDE
from nnrt_client.c.addresses import addresses
from nnrt_client.c.parameters import (
    Bytes,
    CType,
    Elements,
    FileName,
    Function,
    Handles,
    Indices,
    LegacyTensor,
    Number,
    Object,
    OutElements,
    OutNumber,
    OutRange,
    OutText,
    Parameter,
    TakenObject,
    Text,
)
from nnrt_client.c_interface.constants import PREFIXES


@dataclass(frozen=True, slots=True)
class Signature:
    """Signature of a C function."""

    name: str
    # For example "OH_NN_ReturnCode", "void", or "NN_Tensor *".
    returns: str
    parameters: Sequence[Parameter]

    @property
    def python(self) -> Callable[..., Any]:
        """Function of `oh_nn` with this name."""
        function: Callable[..., Any] = getattr(oh_nn, self.name)
        return function

    @property
    def types(self) -> list[CType]:
        return [type_ for parameter in self.parameters for type_ in parameter.types]

    @property
    def declared(self) -> list[str]:
        """Declarations of the parameters."""
        return [text for parameter in self.parameters for text in parameter.declared]

    @property
    def prototype(self) -> str:
        """Declaration in C."""
        gap = "" if self.returns.endswith("*") else " "
        return f"{self.returns}{gap}{self.name}({', '.join(self.declared) or 'void'})"


_RunDone = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int32)
_ServiceDied = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _wrap_run_done(function: Any) -> Callable[..., object]:
    def call(user_data: int, code: int, outputs: Sequence[Any]) -> None:
        handles = (ctypes.c_void_p * len(outputs))(*(None if one is None else addresses.get(one) for one in outputs))
        function(user_data, int(code), ctypes.addressof(handles), len(outputs))

    return call


def _wrap_service_died(function: Any) -> Callable[..., object]:
    def call(user_data: int) -> None:
        function(user_data)

    return call


_NUMBERS: dict[str, CType] = {
    "bool": ctypes.c_bool,
    "double": ctypes.c_double,
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "size_t": ctypes.c_size_t,
    "uint32_t": ctypes.c_uint32,
    **{f"OH_NN_{name}": ctypes.c_int for name in PREFIXES},
}
_NUMBER = rf"({'|'.join(_NUMBERS)})"

# Kinds of parameters, by a pattern for the beginning of their declaration. The first match counts.
_KINDS: dict[str, Callable[..., Parameter]] = {
    r"NN_OnRunDone (\w+)": lambda name: Function(name, "NN_OnRunDone", _RunDone, _wrap_run_done),
    r"NN_OnServiceDied (\w+)": lambda name: Function(name, "NN_OnServiceDied", _ServiceDied, _wrap_service_died),
    r"const OH_NN_UInt32Array \*(\w+)": Indices,
    r"const OH_NN_Tensor \*(\w+)": LegacyTensor,
    r"const char \*\*(\w+)": OutText,
    r"const char \*(\w*Path)": FileName,
    r"const char \*(\w+)": Text,
    r"size_t \*\*(\w+), size_t \*\*(\w+), size_t \*(\w+)": OutRange,
    rf"(const )?{_NUMBER} \*\*(\w+), {_NUMBER} \*(\w+)": lambda const, kind, name, counter, count: OutElements(
        name, _NUMBERS[kind], f"{const or ''}{kind}", count, _NUMBERS[counter], counter
    ),
    r"NN_Tensor \*(\w+)\[\], size_t (\w+)": Handles,
    r"((?:const )?void) \*(\w+), (?:const )?size_t (\w+)": lambda kind, name, count: Bytes(name, count, kind),
    rf"const {_NUMBER} \*(\w+), size_t (\w+)": lambda kind, name, count: Elements(name, _NUMBERS[kind], kind, count),
    r"(\w+) \*\*(\w+)": lambda kind, name: TakenObject(name, kind),
    rf"{_NUMBER} \*(\w+)": lambda kind, name: OutNumber(name, _NUMBERS[kind], kind),
    rf"{_NUMBER} (\w+)": lambda kind, name: Number(name, _NUMBERS[kind], kind),
    r"void \*(\w+)": lambda name: Number(name, ctypes.c_void_p, "void *"),
    r"((?:const )?\w+) \*(\w+)": lambda kind, name: Object(name, kind),
}
_DECLARATION = re.compile(r"^(\w+(?: \*| ))(OH_NN\w+)\(([^;]*)\);", re.MULTILINE)


def _parameters(declared: str) -> Iterator[Parameter]:
    """Parse the parameters of a C function, whose text is "void" if there are none."""
    while declared != "void":
        kind, found = next((kind, found) for begin, kind in _KINDS.items() if (found := re.match(begin, declared)))
        yield kind(*found.groups())
        declared = declared[found.end() :].removeprefix(", ") or "void"


SIGNATURES = tuple(
    Signature(name, returns.strip(), tuple(_parameters(" ".join(declared.split()))))
    for header in ("neural_network_core.h", "neural_network_runtime.h")
    for returns, name, declared in _DECLARATION.findall((INCLUDE / "neural_network_runtime" / header).read_text())
)
