"""The names an application may rely on. A change here is a change of the interface: say so in the changelog."""

import nnrt_client

PUBLIC = """
    Bindings BuildReport Capabilities Compilation ConnectionFailed DataType Device DeviceStatus DeviceType DynamicShape
    Executor Format FuseType InvalidFile InvalidParameter InvalidPath LegacyTensor Memory Model ModelTensor NnrtError
    NullPointer OperationFailed OperationForbidden OperationType Origin OutOfMemory PadMode PerformanceMode Priority
    QuantParam ResidentTensor ReturnCode RunTimes Runtime SaveCacheFailed Savings Session Settings Support Tensor
    TensorDesc TensorType TimedOut UnavailableDevice Unsupported connect disconnect from_onnx load
"""


def test_public_names() -> None:
    assert nnrt_client.__all__ == PUBLIC.split()
    assert all(hasattr(nnrt_client, name) for name in nnrt_client.__all__)
