"""NNRt backend for Intel's CPUs, GPUs and NPUs, with OpenVINO."""

from nnrt_backend_openvino.backend import create, devices

__all__ = ["create", "devices"]
