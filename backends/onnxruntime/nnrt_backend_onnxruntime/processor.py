"""The features of the processor, on which the models that ONNX Runtime optimizes depend."""

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from nnrt_hdi.enums import DataType
from nnrt_hdi.graph import Graph


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


def integer_kernels(graph: Graph) -> Mapping[str, str]:
    """The entries of a session's configuration that choose exact integer kernels for a quantized graph.

    Processors without VNNI add products of 8 bits in 16, which overflow. Weights of UINT8 instead of INT8 keep ONNX
    Runtime from these instructions, but go with UINT8 images only; INT8 ones are computed in FLOAT32 there.
    """
    has_wide_sums = not {"avx512_vnni", "avx_vnni", "asimddp"}.isdisjoint(features())
    quantized = {
        spec.data_type for at, spec in enumerate(graph.tensors) if spec.is_quantized and at not in graph.constants
    }
    is_int8 = quantized == {DataType.INT8} and has_wide_sums
    return {"session.qdqisint8allowed": str(int(is_int8)), "session.x64quantprecision": str(int(not is_int8))}
