"""Features of the processor, on which the models that ONNX Runtime optimizes depend."""

import hashlib
import platform
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from nnrt_onnx_lowering import IntegerTypes

from nnrt_hdi.enums import DataType

# Instructions that multiply 8-bit integers and add the products in 32 bits.
_WIDE_SUMS = frozenset({"amx_int8", "avx512_vnni", "avx_vnni", "avx_vnni_int8"})


@dataclass(frozen=True, slots=True)
class IntegerKernels(IntegerTypes):
    """Fast and exact integer kernels of ONNX Runtime. `entries` are entries of a session's configuration."""

    entries: Mapping[str, str] = field(default_factory=dict)


def integer_kernels(flags: AbstractSet[str]) -> IntegerKernels:
    """Return the integer kernels of a processor with these features.

    On x86 they take UINT8 activations; for INT8 ones ONNX Runtime has only plain loops. INT8 weights need VNNI or AMX:
    other processors add the products in 16 bits, which overflows. There ONNX Runtime is configured to convert the
    weights to UINT8, for which it has slower kernels without overflow. ARM's dot product takes either type.
    """
    if "sse2" in flags:
        if _WIDE_SUMS.isdisjoint(flags):
            return IntegerKernels(DataType.UINT8, None, _entries(int8=False, precise=True))
        return IntegerKernels(DataType.UINT8, DataType.INT8, _entries(int8=False, precise=False))
    has_dot_product = "asimddp" in flags
    return IntegerKernels(None, None, _entries(int8=has_dot_product, precise=not has_dot_product))


def _entries(*, int8: bool, precise: bool) -> Mapping[str, str]:
    return {"session.qdqisint8allowed": str(int(int8)), "session.x64quantprecision": str(int(precise))}


@cache
def features() -> frozenset[str]:
    """Return the extensions of the instruction set, as Linux names them; an empty set where they can't be read."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return frozenset()
    lines = cpuinfo.read_text(errors="replace").splitlines()
    found = (line.partition(":")[2] for line in lines if line.startswith(("flags", "Features")))
    return frozenset(next(found, "").split())


def identity() -> str:
    """Return the kind of processor and a digest of its features: optimized models depend on its vector units."""
    return f"{platform.machine()} {hashlib.sha256(' '.join(sorted(features())).encode()).hexdigest()[:16]}"
