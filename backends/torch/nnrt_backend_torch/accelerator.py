"""Backend of an accelerator: runs are enqueued on a stream, and what clients keep lies in the device's memory."""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from nnrt_backend_torch.backend import TorchBackend
from nnrt_backend_torch.buffers import TorchBuffer, tensor_in
from nnrt_backend_torch.errors import out_of_memory
from nnrt_backend_torch.kernels.kernel import DTYPES
from nnrt_backend_torch.model import HOST, TorchModel
from nnrt_backend_torch.options import Options
from nnrt_backend_torch.pinning import Pinning, cuda_register
from nnrt_backend_torch.stream import Collect, Stream
from nnrt_hdi.backend import Cancellation, ModelConfig, RunEnd, StartableModel, Telemetry
from nnrt_hdi.device_buffers import DeviceRegion
from nnrt_hdi.graph import Graph
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.steps import RunSteps
from nnrt_hdi.tensor import Array

# Runs on the stream at a time: the next one is enqueued while one computes.
ENQUEUED_RUNS = 3


class AcceleratorModel(StartableModel, TorchModel):
    """Model whose runs are enqueued on the device's stream, and end when the device has computed them.

    Inputs travel to the device, and outputs back, on the same stream, so that all work is in order.
    """

    takes_device_buffers = True

    def __init__(
        self,
        graph: Graph,
        device: torch.device,
        max_tensor_bytes: int,
        run_bytes: int,
        enable_float16: bool,
        stream: Stream,
        pinning: Pinning | None,
    ) -> None:
        """Prepare a graph.

        Args:
            graph: As for TorchModel, like the next four.
            device: The device.
            max_tensor_bytes: The most bytes of a tensor.
            run_bytes: The most bytes of a run's results at a time.
            enable_float16: Whether FLOAT32 tensors become FLOAT16.
            stream: The stream of the device.
            pinning: Registers memory that is shared with clients; None if the device gains nothing from that.
        """
        self._stream = stream
        self._pinning = pinning
        with stream.current():
            super().__init__(graph, device, max_tensor_bytes, run_bytes, enable_float16)

    def start(
        self,
        inputs: Sequence[Array],
        cancellation: Cancellation,
        outputs: Sequence[Array | None],
        on_end: Callable[[RunEnd], None],
    ) -> None:
        kind = self.prepared(inputs, cancellation)
        self._stream.enqueue(partial(self._enqueued, kind, inputs, cancellation, outputs), on_end)

    def profile(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> tuple[list[Array], list[OperatorTime]]:
        with self._stream.current():
            return super().profile(inputs, cancellation, outputs)

    def _enqueued(
        self, kind: RunSteps, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None]
    ) -> Collect:
        """Give the device the work of a run, and return the function that gives its outputs afterwards."""
        with torch.inference_mode():
            given = [
                self._taken(index, array, self._device) for index, array in zip(self._graph.inputs, inputs, strict=True)
            ]
            results = self._computed(kind, kind.steps, given, cancellation)
            regions = outputs or [None] * len(results)
            if any(isinstance(array, DeviceRegion) for array in (*inputs, *regions)):
                # A region that is written may overlap an input that a result is a view of.
                taken = {tensor.untyped_storage().data_ptr() for tensor in given}
                results = [
                    result.clone() if result.untyped_storage().data_ptr() in taken else result for result in results
                ]
            sent = [
                self._sent(index, result, region)
                for index, result, region in zip(self._graph.outputs, results, regions, strict=True)
            ]
        return lambda: [tensor.numpy() if isinstance(tensor, torch.Tensor) else tensor for tensor in sent]

    def _taken(self, index: int, array: Array, device: torch.device) -> torch.Tensor:
        if isinstance(array, DeviceRegion):
            return tensor_in(array).to(self._stored_as[index])
        if self._pinning is not None:
            self._pinning.pin(array)
        return super()._taken(index, array, device)

    def _sent(self, index: int, result: torch.Tensor, region: Array | None) -> torch.Tensor | Array:
        """Let the device write an output to its region, or to new memory of the host; return where it will be."""
        if isinstance(region, DeviceRegion):
            tensor_in(region).copy_(result)
            return region
        if region is not None:
            if self._pinning is not None:
                self._pinning.pin(region)
            torch.from_numpy(region).copy_(result, non_blocking=True)
            return region
        dtype = DTYPES[self._graph.tensors[index].data_type]
        is_pinned = self._device.type == "cuda"
        try:
            tensor = torch.empty(result.shape, dtype=dtype, device=HOST, pin_memory=is_pinned)
        except RuntimeError as error:
            raise out_of_memory(error) or error from error
        return tensor.copy_(result, non_blocking=True)


class AcceleratorBackend(TorchBackend):
    """Backend of a device that has memory of its own and computes while the host goes on."""

    concurrent_runs = ENQUEUED_RUNS

    def __init__(self, options: Options) -> None:
        """Create the backend."""
        super().__init__(options)
        self._stream = Stream(options.device)
        self._pinning = Pinning(cuda_register) if options.device.type == "cuda" else None

    def fault(self) -> str:
        return self._stream.fault

    def allocate(self, size_bytes: int) -> TorchBuffer:
        return TorchBuffer(size_bytes, self._device, self._stream)

    def telemetry(self) -> Telemetry | None:
        free, total = torch.accelerator.get_memory_info(self._device)
        about = Telemetry(memory_used_bytes=total - free, memory_total_bytes=total)
        return _measured_by_nvml(self._device, about) if self._device.type == "cuda" else about

    def close(self) -> None:
        self._stream.close()

    def _model(self, graph: Graph, config: ModelConfig, enable_float16: bool) -> AcceleratorModel:
        return AcceleratorModel(
            graph,
            self._device,
            config.max_tensor_bytes,
            self._run_bytes,
            enable_float16,
            self._stream,
            self._pinning,
        )


def _measured_by_nvml(device: torch.device, memory: Telemetry) -> Telemetry:
    """Add what NVIDIA's or AMD's library of measurements says, where its package is installed."""
    try:
        return Telemetry(
            temperature_celsius=torch.cuda.temperature(device),
            power_watts=torch.cuda.power_draw(device) / 1e3,
            memory_used_bytes=memory.memory_used_bytes,
            memory_total_bytes=memory.memory_total_bytes,
            clock_hertz=torch.cuda.clock_rate(device) * 1e6,
            utilization=torch.cuda.utilization(device) / 100,
        )
    except (ImportError, RuntimeError):
        return memory
