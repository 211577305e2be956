"""Enums and their members under C's names. `make c-files` writes `constants.pyi`, which type checkers read."""

from nnrt_client import enums

# Prefixes of the names of members in C, by enum.
PREFIXES = {
    "ReturnCode": "OH_NN_",
    "DataType": "OH_NN_",
    "Format": "OH_NN_FORMAT_",
    "FuseType": "OH_NN_FUSED_",
    "DeviceType": "OH_NN_",
    "PerformanceMode": "OH_NN_PERFORMANCE_",
    "Priority": "OH_NN_PRIORITY_",
    "OperationType": "OH_NN_OPS_",
    "TensorType": "OH_NN_",
}
_RENAMED = {"OH_NN_OTHER": "OH_NN_OTHERS"}

globals().update({f"OH_NN_{name}": getattr(enums, name) for name in PREFIXES})
globals().update(
    {
        _RENAMED.get(prefix + member.name, prefix + member.name): member
        for name, prefix in PREFIXES.items()
        for member in getattr(enums, name)
    }
)
