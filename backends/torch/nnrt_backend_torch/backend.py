"""Backend of one device that torch computes on."""

import sys
from collections.abc import Callable, Sequence

import torch

from nnrt_backend_torch.device import TorchDevice
from nnrt_backend_torch.kernels import KERNELS
from nnrt_backend_torch.model import KIND, TorchModel
from nnrt_backend_torch.options import Options, processors
from nnrt_backend_torch.stream import NativeStream, Stream
from nnrt_hdi.backend import Backend, Capabilities, DeviceInfo, ModelConfig, Support
from nnrt_hdi.enums import DataType, DeviceType
from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError, OutOfMemory, Unsupported
from nnrt_hdi.files.exported_graph import read_exported
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.ops import inferred_graph
from nnrt_hdi.part import Part


class TorchBackend(Backend):
    """Backend of one device of torch."""

    def __init__(self, options: Options) -> None:
        device = options.device
        self._run_bytes = sys.maxsize
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

    def start(self, run_bytes: int, *, accepts_programs: bool) -> None:
        self._run_bytes = run_bytes

    def fault(self) -> str:
        return self._device.stream.fault

    def close(self) -> None:
        self._device.stream.close()

    def supported(self, graph: Graph) -> list[Support]:
        """Return the support of each node: whether there is a kernel for its type, and its data types on the device."""
        return [Support(self._lack(graph, node)) for node in graph.nodes]

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> TorchModel:
        _refuse_extensions(config)
        self._require_supported(graph)
        model = self._model(inferred_graph(graph), config, config.enable_float16)
        progress(1.0)
        return model

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> TorchModel:
        """Load an exported model.

        Raises:
            InvalidFile: The parts aren't a model that this backend exported.
            OutOfMemory: The model is too large for the daemon or the device.
        """
        _refuse_extensions(config)
        graph, enable_float16 = read_exported(KIND, parts)
        try:
            self._require_supported(graph)
            return self._model(graph, config, enable_float16)
        except (InvalidFile, OutOfMemory):
            raise
        except NnrtError as error:
            raise InvalidFile(error.message, place=error.place) from error

    def _model(self, graph: Graph, config: ModelConfig, enable_float16: bool) -> TorchModel:
        return TorchModel(graph, self._device, config.max_tensor_bytes, self._run_bytes, enable_float16)

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

    def _require_supported(self, graph: Graph) -> None:
        for index, support in enumerate(self.supported(graph)):
            if not support.supported:
                raise Unsupported(support.reason, place=graph.place(index))


def _refuse_extensions(config: ModelConfig) -> None:
    for name in config.extensions:
        raise InvalidParameter(f"the torch backend knows no extension {name!r}; leave extensions empty")
