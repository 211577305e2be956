"""The features of the processor, on which the models that ONNX Runtime optimizes depend."""

import hashlib
import platform
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from nnrt_onnx_lowering import IntegerTypes

from nnrt_hdi.enums import DataType

# Instructions that multiply 8 bits and add the products in 32.
_WIDE_SUMS = frozenset({"amx_int8", "avx512_vnni", "avx_vnni", "avx_vnni_int8"})


@dataclass(frozen=True, slots=True)
class IntegerKernels(IntegerTypes):
    """The integer kernels of ONNX Runtime that are fast and exact. `entries` are those of a session's configuration."""

    entries: Mapping[str, str] = field(default_factory=dict)


def integer_kernels(flags: AbstractSet[str]) -> IntegerKernels:
    """The integer kernels of a processor with these features.

    On x86 they take UINT8 activations; for INT8 ones ONNX Runtime has plain loops. INT8 weights need VNNI or AMX:
    without these, products are added in 16 bits, which overflow. There ONNX Runtime is asked to make the weights
    UINT8, for which it has slower kernels that don't. ARM's dot product takes either.
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
    """The extensions of the instruction set, as Linux names them; none where it can't be asked."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return frozenset()
    lines = cpuinfo.read_text(errors="replace").splitlines()
    found = (line.partition(":")[2] for line in lines if line.startswith(("flags", "Features")))
    return frozenset(next(found, "").split())


def identity() -> str:
    """The kind of processor, and a digest of its features: optimized models are made for its vector units."""
    return f"{platform.machine()} {hashlib.sha256(' '.join(sorted(features())).encode()).hexdigest()[:16]}"
