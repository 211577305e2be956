"""Intel's CPUs, GPUs and NPUs for NNRt, with OpenVINO."""

from nnrt_backend_openvino.backend import create, devices

__all__ = ["create", "devices"]
