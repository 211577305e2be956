"""Backend of one OpenVINO device: its description, which nodes it supports, and how it prepares models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import openvino
from nnrt_onnx_lowering import Lowered, NodeSupport, lower

from nnrt_backend_openvino.engine import LATE, OpenVino, answer
from nnrt_backend_openvino.indices import UNSEEN, is_unseen
from nnrt_backend_openvino.model import OpenVinoModel, Program, read_exported
from nnrt_backend_openvino.numbers import keep_nan, keep_order
from nnrt_hdi.backend import Backend, BackendSkipped, Capabilities, DeviceInfo, FoundDevice, ModelConfig, Support
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import InvalidParameter, Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import late_nodes
from nnrt_hdi.part import Part

OPTIONS = ("device", "streams", "name")
DEVICE_TYPES = {"CPU": DeviceType.CPU, "GPU": DeviceType.GPU, "NPU": DeviceType.ACCELERATOR}


def create(options: Mapping[str, str]) -> "OpenVinoBackend":
    """Create the backend of an OpenVINO device; NNRt calls this function through an entry point.

    Args:
        options: `device` (CPU, GPU, GPU.1, NPU, ...; default CPU), `streams`, the number of concurrent runs (default
            1), and `name`, the name of the NNRt device.

    Returns:
        The backend of that device.

    Raises:
        InvalidParameter: An option is unknown or wrong.
        BackendSkipped: OpenVINO doesn't find the device.
    """
    for option in options:
        if option not in OPTIONS:
            raise InvalidParameter(f"the openvino backend has no option {option!r}; it has {', '.join(OPTIONS)}")
    streams = options.get("streams", "1")
    if not (streams.isascii() and streams.isdigit() and 0 < len(streams) < 4 and int(streams)):
        raise InvalidParameter(f"option streams is {streams!r}; use a number of 1 to 999")
    return OpenVinoBackend(options.get("device", "CPU"), int(streams), options.get("name", ""))


def devices() -> list[FoundDevice]:
    """Return the devices of this host, each with the option that selects it."""
    return [
        FoundDevice(f"openvino-{name.lower()}", _device_type(name), {"device": name})
        for name in openvino.Core().available_devices
    ]


class OpenVinoBackend(Backend):
    """Backend of one device."""

    # OpenVINO trusts the content of a compiled program.
    has_opaque_exports = True

    def __init__(self, device: str, streams: int, name: str) -> None:
        """Create the backend. Raises BackendSkipped if OpenVINO doesn't find the device."""
        self._core = openvino.Core()
        present = self._core.available_devices
        if device not in present:
            raise BackendSkipped(f"OpenVINO finds no device {device!r} here, but {', '.join(present) or 'none'}")
        self._device = device
        self.concurrent_runs = streams
        self._engine = OpenVino()
        self._nodes = NodeSupport(self._engine, self._try)
        able = self._core.get_property(device, "OPTIMIZATION_CAPABILITIES")
        self._info = DeviceInfo(
            device_name=name or f"openvino-{device.lower()}",
            vendor_name="intel",
            device_type=_device_type(device),
            capabilities=Capabilities(
                float16_precision="FP16" in able, dynamic_input=True, model_cache="EXPORT_IMPORT" in able
            ),
            backend_name="openvino",
            backend_version=f"{openvino.__version__} ({self._core.get_property(device, 'FULL_DEVICE_NAME').strip()})",
        )

    def describe(self) -> DeviceInfo:
        return self._info

    def supported(self, graph: Graph) -> list[Support]:
        """Return the support of each node.

        The backend compiles a node alone to find its support, unless a rule in engine.py refuses the node.
        """
        late, asked = late_nodes(graph), self._nodes.of(graph)
        return [
            LATE if at in late else UNSEEN if is_unseen(graph, node) else found if found.reason else answer(graph, node)
            for at, (node, found) in enumerate(zip(graph.nodes, asked, strict=True))
        ]

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> OpenVinoModel:
        _refuse_extensions(config)
        model = OpenVinoModel(graph, config, partial(self._compiled, config))
        progress(1.0)
        return model

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> OpenVinoModel:
        """Load a model that a device of this kind has exported. The daemon has checked the model's signature."""
        _refuse_extensions(config)
        graph, enable_float16, blob = read_exported(parts)
        config = replace(config, enable_float16=enable_float16)
        program = partial(self._imported, config, blob) if blob else partial(self._compiled, config)
        return OpenVinoModel(graph, config, program)

    def _imported(self, config: ModelConfig, blob: bytes, graph: Graph) -> Program:
        compiled = self._core.import_model(blob, self._device, self._settings(config))
        return Program(compiled, graph, lower(graph, self._engine), blob)

    def _compiled(self, config: ModelConfig, graph: Graph) -> Program:
        _require_sound(graph)
        lowered = lower(graph, self._engine)
        return Program(self._loaded(lowered, config), graph, lowered)

    def _try(self, nodes: Graph, lowered: Lowered, is_alone: bool) -> None:
        """Compile nodes to find out whether OpenVINO supports them."""
        _require_sound(nodes)
        self._loaded(lowered, ModelConfig())

    def _loaded(self, lowered: Lowered, config: ModelConfig) -> Any:
        """Compile a model with OpenVINO. Raises Unsupported if OpenVINO refuses it."""
        try:
            model = self._core.read_model(lowered.whole().SerializeToString(), b"")
            keep_nan(model)
            keep_order(model)
            return self._core.compile_model(model, self._device, self._settings(config))
        except RuntimeError as error:  # OpenVINO raises no other class; the last line has the reason.
            raise Unsupported(f"OpenVINO does not take it: {str(error).strip().splitlines()[-1]}") from error

    def _settings(self, config: ModelConfig) -> dict[str, str]:
        # By default OpenVINO computes FLOAT32 in BFLOAT16 where the processor can, and INT8 with errors up to 16 steps.
        precision = "f16" if config.enable_float16 else "f32"
        settings = {"INFERENCE_PRECISION_HINT": precision, "NUM_STREAMS": str(self.concurrent_runs)}
        return {**settings, "LP_TRANSFORMS_MODE": "NO"} if self._device == "CPU" else settings


def _device_type(device: str) -> DeviceType:
    return DEVICE_TYPES.get(device.partition(".")[0], DeviceType.OTHER)


def _require_sound(graph: Graph) -> None:
    """Raise Unsupported for a graph that OpenVINO 2026.4 computes wrongly, or that makes it crash.

    The graph has the shapes of a run.
    """
    for at, node in enumerate(graph.nodes):
        if reason := answer(graph, node).reason:
            raise Unsupported(reason, place=graph.place(at))


def _refuse_extensions(config: ModelConfig) -> None:
    for extension in config.extensions:
        raise InvalidParameter(f"the openvino backend knows no extension {extension!r}; leave extensions empty")
