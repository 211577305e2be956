"""From the parts that a client sent to a session of ONNX Runtime.

What is kept of a program is the program: `export` gives its parts again, behind a header that says so.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import onnx
from onnxruntime import GraphOptimizationLevel

from nnrt_backend_onnxruntime.builder import AnyArray
from nnrt_backend_onnxruntime.deadlines import Deadlines
from nnrt_backend_onnxruntime.in_place import in_place_of_nodes
from nnrt_backend_onnxruntime.model import translated
from nnrt_backend_onnxruntime.programs.divisions import guard
from nnrt_backend_onnxruntime.programs.foresight import foreseen
from nnrt_backend_onnxruntime.programs.interface import (
    are_inferred,
    declares_inner_shapes,
    input_specs,
    output_specs,
    take_output_ranks,
    without_inner_shapes,
)
from nnrt_backend_onnxruntime.programs.program_model import ProgramModel
from nnrt_backend_onnxruntime.programs.sizes import Sizes
from nnrt_backend_onnxruntime.programs.skeleton import inlined, parsed, quoted, require_sound
from nnrt_backend_onnxruntime.programs.tensors import take_tensors
from nnrt_backend_onnxruntime.providers import ProviderDevice
from nnrt_backend_onnxruntime.session import open_session, session_options
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.errors import InvalidFile, NnrtError, OperationFailed, OutOfMemory, Unsupported
from nnrt_hdi.files.container import is_packed, kind_of, packed, unpacked
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import TensorSpec

FORMAT = "onnx"

_KIND = "onnxruntime program"
_NO_FOLDING = {"optimization.disable_specified_optimizers": "ConstantFolding"}
# Of the names of ONNX Runtime's classes of errors.
_BROKEN = ("InvalidGraph", "InvalidProtobuf")

_log = logging.getLogger(__name__)


def load_program(
    parts: Sequence[Part],
    config: ModelConfig,
    device: ProviderDevice,
    deadlines: Deadlines,
    progress: Callable[[float], None],
) -> ProgramModel:
    """Load an ONNX model; the first part is it, the others hold data of its tensors.

    Raises InvalidFile, Unsupported or OutOfMemory for one that may not, or can't, be run here.
    """
    if not parts:
        raise InvalidFile("it has no parts; the first is the model")
    if config.enable_float16:
        raise Unsupported("an ONNX file is computed in its own data types; leave float16 out")
    model = parsed(parts[0].data)
    require_sound(model)
    model = inlined(model)
    weights = take_tensors(model, parts[1:], config.max_tensor_bytes)
    progress(0.25)
    inputs, ranks = input_specs(model), take_output_ranks(model)
    known = foreseen(model, compute)
    sizes = Sizes(known, config.max_tensor_bytes)
    guard(known.divisions, opset_of(model))
    if not known.folding_is_bounded:
        _log.info("a model computes too much from constants, or nobody knows how much: it does so in each run")
    entries = {} if known.folding_is_bounded else _NO_FOLDING

    def opened(model: onnx.ModelProto) -> Any:
        options = session_options(device, config, entries)
        try:
            return open_session(model.SerializeToString(), weights, options, device, config.extensions)
        except OperationFailed as error:
            raise _refusal(error) from error

    session = opened(model)
    outputs = output_specs(session, ranks)
    if declares_inner_shapes(model) and not are_inferred(outputs, known.outputs):
        session = opened(without_inner_shapes(model))
        outputs = _inferred(outputs, output_specs(session, ranks))
    progress(1.0)
    shared = in_place_of_nodes(model.graph, [spec.name for spec in inputs], [spec.name for spec in outputs])
    kept = [Part.of(b"".join(packed(_KIND, {}, ()))), *parts]
    return ProgramModel(
        session, inputs, outputs, shared.inputs, sizes, weights, kept, config.max_tensor_bytes, deadlines
    )


def is_program(parts: Sequence[Part]) -> bool:
    """Tell if these are the parts that a program exported."""
    return bool(parts) and is_packed(parts[0].data) and kind_of(parts[0].data) == _KIND


def restored_program(
    parts: Sequence[Part], config: ModelConfig, device: ProviderDevice, deadlines: Deadlines
) -> ProgramModel:
    """Load what a program exported. Raises InvalidFile for what is none."""
    if not config.accepts_programs:
        raise Unsupported("it holds an ONNX file, which this daemon doesn't take as it is (--accept-programs)")
    unpacked(_KIND, parts[0].data)
    try:
        return load_program(parts[1:], config, device, deadlines, lambda fraction: None)
    except Unsupported as error:
        raise InvalidFile(error.message, place=error.place) from error


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's operators, 0 where there is none."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def compute(model: onnx.ModelProto) -> Sequence[AnyArray]:
    """Compute what a small model without inputs gives."""
    here = ProviderDevice("cpu", 0, threads=1)
    options = session_options(here, ModelConfig())
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(open_session(model.SerializeToString(), {}, options, here, {}).run(None, {}))


def _inferred(declared: Sequence[TensorSpec], outputs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """The outputs as they follow from the nodes alone: exporters write down the lengths of their example."""
    for said, found in zip(declared, outputs, strict=True):
        if said != found:
            _log.warning("output %r is %s by what the file declares inside, and %s without", said.name, said, found)
    return outputs


def _refusal(error: OperationFailed) -> NnrtError:
    """Make the error that a client is told where ONNX Runtime doesn't take its model."""
    cause = error.__cause__
    if isinstance(cause, Exception) and isinstance(known := translated(cause), OutOfMemory):
        return known
    kind = InvalidFile if type(cause).__name__ in _BROKEN else Unsupported
    return kind(quoted(error.message)[1:-1])
