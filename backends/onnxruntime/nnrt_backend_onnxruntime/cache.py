"""Compiled models as bytes: the result of compiling, and the conditions under which another host can use it.

    part 0   what the model was compiled for, and the SHA-256 of the other parts
    part 1   the graph without its large constants: data types, and the shapes that follow from the inputs' shapes
    part 2   the optimized ONNX model
    part 3   its large constants, one after the other

Anybody may have written the bytes. So ONNX Runtime gets no model that names a file, has functions, or has an operator
that is not on this module's list.
"""

import json
import math
import mmap
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError
from nnrt_onnx_lowering import Assertions, Lowered
from nnrt_onnx_lowering.builder import EMBEDDED_BYTES, WEIGHTS
from nnrt_onnx_lowering.engine import names
from nnrt_onnx_lowering.value import AnyArray
from onnx import helper
from typing_extensions import Buffer

from nnrt_backend_onnxruntime import processor
from nnrt_backend_onnxruntime.deadlines import Deadlines
from nnrt_backend_onnxruntime.in_place import in_place_of
from nnrt_backend_onnxruntime.model import OnnxModel
from nnrt_backend_onnxruntime.programs.analysis import analyse_model
from nnrt_backend_onnxruntime.programs.divisions import RISKY, guard_divisions
from nnrt_backend_onnxruntime.programs.loading import compute, opset_of
from nnrt_backend_onnxruntime.programs.sizes import Sizes
from nnrt_backend_onnxruntime.programs.skeleton import require_typed
from nnrt_backend_onnxruntime.providers import ProviderDevice
from nnrt_backend_onnxruntime.session import open_session, release_memory, session_options
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.errors import InvalidFile, NnrtError, OperationFailed, SaveCacheFailed, Unsupported
from nnrt_hdi.files.container import packed, unpacked
from nnrt_hdi.files.graph_file import packed_graph, unpacked_graph
from nnrt_hdi.graph import Graph
from nnrt_hdi.mapped_files import MappedFile
from nnrt_hdi.ops import inferred_graph
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import NUMPY_DTYPES, TensorSpec

KIND = "onnxruntime model"
MODEL_FILE = "model.onnx"

# ONNX's own operators, and those of ONNX Runtime that the lowering and the optimizations create. Other operators could
# do anything, such as load an engine from a file.
_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft", "com.microsoft.nchwc"})
_FUSED = names(
    """
    BiasGelu BiasSoftmax BiasSplitGelu ConvTransposeWithDynamicPads DynamicQuantizeLSTM DynamicQuantizeMatMul
    FastGelu FusedConv FusedGemm FusedMatMul FusedMatMulActivation Gelu GroupNorm MatMulInteger16
    MatMulIntegerToFloat MatMulNBits MulInteger NhwcFusedConv NhwcMaxPool QGemm QLinearAdd QLinearAveragePool
    QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid
    QLinearSoftmax QLinearWhere QuickGelu DequantizeLinear QuantizeLinear SkipLayerNormalization
    SkipSimplifiedLayerNormalization TransposeMatMul
    """
)


def exporter(
    device: ProviderDevice,
    graph: Graph,
    input_count: int,
    lowered: Lowered,
    config: ModelConfig,
    entries: Mapping[str, str],
    level: Any,
) -> Callable[[], list[Part]]:
    """Return a function that returns the compiled model in parts.

    Args:
        device: The device that the model is compiled for.
        graph: The graph, whose large constants are inputs after those of a run.
        input_count: The number of inputs of a run.
        lowered: The ONNX model of the graph.
        config: The client's configuration of the model.
        entries: Further entries of the session's configuration.
        level: The optimization level with which ONNX Runtime could load the model.
    """

    def export() -> list[Part]:
        model, weights = _optimize(device, lowered, config, entries, level)
        parts = [Part.of(data) for data in (b"".join(packed_graph(graph)), model, weights)]
        about = {
            "made_for": _binding(device),
            "inputs": input_count,
            "parts": [part.sha256.hex() for part in parts],
        }
        return [Part.of(b"".join(packed(KIND, about, ()))), *parts]

    return export


def restore(parts: Sequence[Part], config: ModelConfig, device: ProviderDevice, deadlines: Deadlines) -> OnnxModel:
    """Load a model that was exported, without optimizing it again.

    Raises:
        InvalidFile: The parts aren't a model that this host can use.
        OutOfMemory: A tensor of the model is known to become too large.
    """
    about = _read_header(parts, device)
    graph, input_count = _read_graph(about, parts[1].data)
    constants = parts[3].data
    model = _parse_model(bytes(parts[2].data), constants.nbytes)
    weights = dict(_external_weights(model, constants))
    # ONNX Runtime sees only what was checked; another parser may find more in the bytes.
    model.DiscardUnknownFields()
    try:
        sizes = _infer_sizes(model, config)
        session = _open(model, weights, device, config)
    except OperationFailed as error:
        raise InvalidFile(f"ONNX Runtime does not take it: {error.message}") from error
    except Unsupported as error:
        raise InvalidFile(error.message, place=error.place) from error
    _require_interface(session, graph, input_count)
    most, shared = config.max_tensor_bytes, in_place_of(model, graph, input_count)
    reopen = partial(_open, model, weights, device, config)
    return OnnxModel(session, graph, input_count, weights, most, deadlines, lambda: list(parts), reopen, shared, sizes)


def _open(
    model: onnx.ModelProto,
    weights: Mapping[str, AnyArray],
    device: ProviderDevice,
    config: ModelConfig,
    profile: str = "",
) -> Any:
    """Open a session of an exported model, without optimizing it again."""
    options = session_options(device, config, profile=profile)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return open_session(model.SerializeToString(), weights, options, device, config.extensions)


def _optimize(
    device: ProviderDevice, lowered: Lowered, config: ModelConfig, entries: Mapping[str, str], level: Any
) -> tuple[bytes, Buffer]:
    """Return the model as ONNX Runtime optimizes it, and its large constants."""
    with tempfile.TemporaryDirectory(prefix="nnrt-onnxruntime-") as folder:
        options = session_options(device, config, entries)
        options.graph_optimization_level = level
        options.intra_op_num_threads = 1  # The session never runs.
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.optimized_model_filepath = str(Path(folder, MODEL_FILE))
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", WEIGHTS)
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_min_size_in_bytes", str(EMBEDDED_BYTES)
        )
        try:
            open_session(lowered.model.SerializeToString(), lowered.weights, options, device, config.extensions)
        except OperationFailed as error:
            left = shutil.disk_usage(folder).free
            raise SaveCacheFailed(
                f"ONNX Runtime can't write the model to {tempfile.gettempdir()!r}, where {left} bytes are left;"
                f" make room there, or set TMPDIR ({error.message})"
            ) from error
        finally:
            release_memory()
        return Path(folder, MODEL_FILE).read_bytes(), _map_file(Path(folder, WEIGHTS))


def _map_file(path: Path) -> Buffer:
    """Return the content of a file as a mapping, or b"" where the file is missing or empty.

    The file disappears with the mapping, as its folder is deleted. Its pages can be reclaimed where memory is short.
    """
    if not path.exists() or not path.stat().st_size:
        return b""
    with path.open("rb") as file:
        return MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ)


def _binding(device: ProviderDevice) -> dict[str, Any]:
    """Return the properties that a host must share with the one that compiled a model."""
    return {
        "onnxruntime": onnxruntime.__version__,
        "build": onnxruntime.get_build_info(),
        "provider": device.provider,
        "device": _hardware(device),
        "processor": processor.identity(),
    }


def _hardware(device: ProviderDevice) -> str:
    """Return the kind of accelerator as far as ONNX Runtime reports it, because a compiled model depends on it."""
    devices = [
        f"{found.ep_name} {found.device.vendor} {found.device.vendor_id} {found.device.device_id}"
        for found in onnxruntime.get_ep_devices()
        if not device.is_cpu and found.ep_name != "CPUExecutionProvider"
    ]
    return "; ".join(sorted(devices))


def _read_header(parts: Sequence[Part], device: ProviderDevice) -> Mapping[str, Any]:
    """Return the content of the header.

    Raises:
        InvalidFile: The other parts aren't those that were written with it, or the model was compiled for other hosts.
    """
    if len(parts) != 4:
        raise InvalidFile(f"it has {len(parts)} parts; a model of this backend has 4")
    about, _ = unpacked(KIND, parts[0].data)
    made_for, here = about.get("made_for"), _binding(device)
    if made_for != here:
        raise InvalidFile(f"it was made for {_quoted(made_for)}; this is {_quoted(here)}: compile the model again")
    if about.get("parts") != [part.sha256.hex() for part in parts[1:]]:
        raise InvalidFile("its parts are not those that were written; it is damaged")
    return about


def _quoted(binding: Any) -> str:
    return json.dumps(binding)[:512]


def _read_graph(about: Mapping[str, Any], part: memoryview) -> tuple[Graph, int]:
    """Return the graph, and the number of its inputs that a run gets."""
    unpacked_part = unpacked_graph(part)
    try:
        graph = inferred_graph(unpacked_part)
    except NnrtError as error:
        raise InvalidFile(f"its graph is not sound: {error}") from error
    count, most = about.get("inputs"), len(graph.inputs)
    if not isinstance(count, int) or not 0 <= count <= most:
        raise InvalidFile(f"it has {count!r} inputs, its graph {most}")
    return graph, count


def _parse_model(data: bytes, weights_bytes: int) -> onnx.ModelProto:
    """Return the model if all its operators are known and the elements of all tensors are in the parts."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise InvalidFile(f"its model is no ONNX: {error}") from error
    if model.functions or model.training_info or model.graph.sparse_initializer or model.graph.quantization_annotation:
        raise InvalidFile("its model has functions, training or sparse tensors; compiled models have none")
    for node in model.graph.node:
        _check_node(node)
    for tensor in model.graph.initializer:
        _find_elements(tensor, weights_bytes)
    return model


def _check_node(node: onnx.NodeProto) -> None:
    if node.domain not in _DOMAINS or (node.domain == "com.microsoft" and node.op_type not in _FUSED):
        raise InvalidFile(f"its model has the operator {node.domain}.{node.op_type}; compiled models don't")
    for attribute in node.attribute:
        require_typed(node, attribute)
        if attribute.HasField("g") or attribute.graphs or attribute.HasField("sparse_tensor"):
            raise InvalidFile(f"its model has a graph inside {node.op_type}; compiled models don't")
        for tensor in (attribute.t, *attribute.tensors):
            if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
                raise InvalidFile(f"an attribute of {node.op_type} is in a file; compiled models name none")


def _infer_sizes(model: onnx.ModelProto, config: ModelConfig) -> Sizes | None:
    """Infer the sizes of the tensors of a foreign model, and replace divisions by -1, which could end this process.

    Raises:
        OutOfMemory: A tensor is too large.
        InvalidFile: The nodes are out of order, or an input has no rank.
        Unsupported: The model's operator set is too old to replace its divisions.
    """
    if config.is_own and not _may_divide(model):
        return None
    known = analyse_model(model, compute)
    guard_divisions(known.divisions, opset_of(model))
    if config.is_own:
        return None
    if len(known.inputs) != len(model.graph.input):
        raise InvalidFile("its model does not say how many dimensions its inputs have; compiled models do")
    return Sizes(known, config.max_tensor_bytes)


def _may_divide(model: onnx.ModelProto) -> bool:
    """Return whether the model may divide by -1. Most models divide by constants, or not at all."""
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    divisors = [node.input[1] for node in model.graph.node if node.op_type == "Div" and len(node.input) == 2]
    return any(types.get(name, 0) in RISKY for name in divisors)


def _external_weights(model: onnx.ModelProto, data: memoryview) -> Iterator[tuple[str, AnyArray]]:
    """Yield the large constants by name, as views of the bytes."""
    for tensor in model.graph.initializer:
        place = _find_elements(tensor, len(data))
        if place is not None:
            dtype, count, offset = place
            try:
                yield tensor.name, np.frombuffer(data, dtype, count, offset).reshape(tuple(tensor.dims))
            except ValueError as error:
                raise InvalidFile(f"its tensor {tensor.name!r} has no possible shape: {error}") from error


def _find_elements(tensor: onnx.TensorProto, weights_bytes: int) -> tuple[np.dtype[Any], int, int] | None:
    """Return data type, count and offset of a tensor's elements in the weights, or None if they are in the model."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        if tensor.external_data:
            raise InvalidFile(f"its tensor {tensor.name!r} is in a file; compiled models name none")
        return None
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if entries.get("location") != WEIGHTS:
        raise InvalidFile(f"its tensor {tensor.name!r} is in the file {entries.get('location')!r}; only in {WEIGHTS!r}")
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
        offset, length = int(entries.get("offset", "0")), int(entries["length"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidFile(f"its tensor {tensor.name!r} doesn't say where its elements are") from error
    if dtype not in NUMPY_DTYPES.values():
        raise InvalidFile(f"its tensor {tensor.name!r} has the data type {tensor.data_type}, which NNRt doesn't have")
    count = math.prod(tensor.dims)
    if min((*tensor.dims, 0)) < 0 or length != count * dtype.itemsize:
        raise InvalidFile(f"its tensor {tensor.name!r} {list(tensor.dims)} has {length} bytes")
    if not 0 <= offset <= weights_bytes - length or offset % dtype.itemsize:
        raise InvalidFile(f"its tensor {tensor.name!r} is at {offset}, outside of the weights, or not aligned")
    return dtype, count, offset


def _require_interface(session: Any, graph: Graph, input_count: int) -> None:
    """Refuse a model whose inputs and outputs differ from its graph's."""
    looked_at = [graph.tensors[at] for at in Assertions.from_graph(graph).tensors]
    for kind, entries, specs in (
        ("inputs", session.get_inputs(), graph.input_specs[:input_count]),
        ("outputs", session.get_outputs(), (*graph.output_specs, *looked_at)),
    ):
        given = [(entry.type, len(entry.shape)) for entry in entries]
        wanted = [(_type_name(spec), spec.rank) for spec in specs]
        if given != wanted:
            raise InvalidFile(f"its model has the {kind} {given}; its graph has {wanted}")


def _type_name(spec: TensorSpec) -> str:
    names = {"float32": "float", "float64": "double"}
    name = spec.numpy_dtype.name
    return f"tensor({names.get(name, name)})"
