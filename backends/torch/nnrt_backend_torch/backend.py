"""Backend of one device that torch computes on."""

import torch

from nnrt_backend_torch.device import TorchDevice
from nnrt_backend_torch.kernels import KERNELS
from nnrt_backend_torch.model import KIND, TorchModel
from nnrt_backend_torch.options import Options
from nnrt_backend_torch.stream import NativeStream, Stream
from nnrt_hdi.backend import Capabilities, DeviceInfo, ModelConfig, Support
from nnrt_hdi.enums import DataType, DeviceType
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.graph_backend import GraphBackend
from nnrt_hdi.host_limits import processors


class TorchBackend(GraphBackend[TorchModel]):
    """Backend of one device of torch."""

    exports = KIND

    def __init__(self, options: Options) -> None:
        device = options.device
        is_cpu = device.type == "cpu"
        threads = 1
        # Torch has these settings once for the process, which has one device.
        if is_cpu:
            torch.set_num_threads(options.threads)
            threads = max(1, processors() // options.threads)
            # One run more than there are processors for: it waits while the tensors of another are copied.
            self.concurrent_runs = threads + 1
        stream = Stream(str(device), None if is_cpu else NativeStream(device), threads)
        self._device = TorchDevice(device, stream, compiles=options.compile)
        torch.backends.cuda.matmul.allow_tf32 = options.tf32
        torch.backends.cudnn.allow_tf32 = options.tf32
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        hardware = "" if is_cpu else f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
        self._info = DeviceInfo(
            device_name=options.name or f"torch-{str(device).replace(':', '-')}",
            vendor_name="nnrt",
            device_type=DeviceType.CPU if is_cpu else DeviceType.GPU,
            capabilities=Capabilities(
                float16_precision=True, priority=True, dynamic_input=True, model_cache=True, profiling=True
            ),
            backend_name="torch",
            backend_version=f"{torch.__version__}{hardware}",
        )

    def describe(self) -> DeviceInfo:
        return self._info

    def fault(self) -> str:
        return self._device.stream.fault

    def close(self) -> None:
        self._device.stream.close()

    def supported(self, graph: Graph) -> list[Support]:
        """Return the support of each node: whether there is a kernel for its type, and its data types on the device."""
        return [Support(self._lack(graph, node)) for node in graph.nodes]

    def model(self, graph: Graph, config: ModelConfig, enable_float16: bool) -> TorchModel:
        return TorchModel(graph, self._device, config.max_tensor_bytes, self.run_bytes, enable_float16)

    def _lack(self, graph: Graph, node: Node) -> str:
        """Return why the device doesn't compute a node; empty if it does."""
        if node.type not in KERNELS:
            return f"the torch backend has no {node.type.name} kernel"
        specs = [graph.tensors[index] for index in (*node.inputs, *node.outputs)]
        # Quantized nodes are computed in FLOAT64.
        needs_double = any(spec.data_type is DataType.FLOAT64 or spec.is_quantized for spec in specs)
        if self._device.torch_device.type == "mps" and needs_double:
            return "MPS has no FLOAT64, in which FLOAT64 and quantized tensors are computed; use another device"
        return ""
