"""Classes that libraries import from the module in which ONNX Runtime defines them."""

from nnrt_client.onnxruntime.inference_session import InferenceSession
from nnrt_client.onnxruntime.io_binding import IOBinding
from nnrt_client.onnxruntime.ort_value import OrtValue

__all__ = ["IOBinding", "InferenceSession", "OrtValue"]
