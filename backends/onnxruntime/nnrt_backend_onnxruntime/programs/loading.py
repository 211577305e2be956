"""Loading of programs, from the parts that a client sent to a session of ONNX Runtime.

A program isn't compiled for the cache: `export` returns its parts again, after a header that says so.
"""

import logging
from collections.abc import Callable, Sequence
from hashlib import sha256

import onnx
from nnrt_onnx_lowering.value import AnyArray
from onnxruntime import GraphOptimizationLevel

from nnrt_backend_onnxruntime.deadlines import Deadlines
from nnrt_backend_onnxruntime.in_place import in_place_of_nodes
from nnrt_backend_onnxruntime.model import translated_error
from nnrt_backend_onnxruntime.programs.analysis import analyse_model
from nnrt_backend_onnxruntime.programs.divisions import guard_divisions
from nnrt_backend_onnxruntime.programs.interface import (
    are_inferred,
    declares_inner_shapes,
    input_specs,
    output_specs,
    take_output_ranks,
    without_inner_shapes,
)
from nnrt_backend_onnxruntime.programs.opening import Opening
from nnrt_backend_onnxruntime.programs.program_model import ProgramModel
from nnrt_backend_onnxruntime.programs.sizes import Sizes
from nnrt_backend_onnxruntime.programs.skeleton import inline_functions, parse_model, require_sound
from nnrt_backend_onnxruntime.programs.tensors import take_tensors
from nnrt_backend_onnxruntime.programs.trials import Refused, Trials
from nnrt_backend_onnxruntime.providers import ProviderDevice
from nnrt_backend_onnxruntime.session import NO_FOLDING, open_session, session_options
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.errors import InvalidFile, NnrtError, OperationFailed, OutOfMemory, Unsupported
from nnrt_hdi.files.container import is_packed, kind_of, packed, unpacked
from nnrt_hdi.packed_values import PackedSpec
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import TensorSpec

FORMAT = "onnx"

_KIND = "onnxruntime program"
# A key of the header: ONNX Runtime crashes when it optimizes the program.
_UNOPTIMIZED = "as_it_is"
# Characters of ONNX Runtime's message for a client; the reason is often at its end.
_MOST_QUOTED = 1000
# Names of ONNX Runtime's error classes.
_BROKEN = ("InvalidGraph", "InvalidProtobuf")

_log = logging.getLogger(__name__)


def load_program(
    parts: Sequence[Part],
    config: ModelConfig,
    device: ProviderDevice,
    deadlines: Deadlines,
    progress: Callable[[float], None],
    trials: Trials | None,
    *,
    is_optimized: bool = True,
    is_tried: bool = False,
) -> ProgramModel:
    """Load an ONNX model.

    Args:
        parts: The model, then the parts with data of its tensors.
        config: The client's configuration of the model.
        device: The device.
        deadlines: Ends runs at their deadlines.
        progress: Called with the fraction done.
        trials: Tries the opening and the runs in another process; None to skip this.
        is_optimized: Whether ONNX Runtime optimizes the model.
        is_tried: Whether the opening has been tried before.

    Raises:
        InvalidFile: The model is damaged or not allowed.
        Unsupported: ONNX Runtime or this daemon can't run the model.
        OutOfMemory: Tensors are too large.
    """
    if not parts:
        raise InvalidFile("it has no parts; the first is the model")
    if config.enable_float16:
        raise Unsupported("an ONNX file is computed in its own data types; leave float16 out")
    model = parse_model(parts[0].data)
    require_sound(model)
    model = inline_functions(model)
    weights = take_tensors(model, parts[1:], config.max_tensor_bytes)
    progress(0.25)
    inputs, ranks = input_specs(model), take_output_ranks(model)
    with Opening(weights, device, config, trials, lambda: progress(0.5), is_optimized, is_tried) as opening:
        opening.begin(model.SerializeToString(), {})  # Most models are opened with these settings in the end.
        known = analyse_model(model, compute)
        sizes = Sizes(known, config.max_tensor_bytes)
        guard_divisions(known.divisions, opset_of(model))
        if not known.folding_is_bounded:
            _log.info("too much of a model, or an unknown amount, follows from constants: it is computed in each run")
        entries = {} if known.folding_is_bounded else NO_FOLDING
        try:
            session = opening.session(model.SerializeToString(), entries)
            outputs = output_specs(session, ranks)
            if declares_inner_shapes(model) and not are_inferred(outputs, known.outputs):
                session = opening.session(without_inner_shapes(model).SerializeToString(), entries)
                outputs = _log_differences(outputs, output_specs(session, ranks))
        except OperationFailed as error:
            raise _refusal(error) from error
    progress(1.0)
    source = _source_of(parts, config, opening.is_optimized)
    shared = in_place_of_nodes(model.graph, [spec.name for spec in inputs], [spec.name for spec in outputs])
    # The client must not change strings after they were checked.
    read_in_place = frozenset(at for at in shared.inputs if not isinstance(inputs[at], PackedSpec))
    about = {} if opening.is_optimized else {_UNOPTIMIZED: True}
    kept = [Part.of(b"".join(packed(_KIND, about, ()))), *parts]
    return ProgramModel(
        session,
        inputs,
        outputs,
        read_in_place,
        sizes,
        weights,
        kept,
        config.max_tensor_bytes,
        deadlines,
        opening.reopen,
        None if trials is None else trials.first_runs(source, known.is_never_empty),
        opening.try_run,
    )


def is_program(parts: Sequence[Part]) -> bool:
    """Return whether these are parts that a program exported."""
    return bool(parts) and is_packed(parts[0].data) and kind_of(parts[0].data) == _KIND


def may_be_program(parts: Sequence[Part]) -> bool:
    """Return whether these parts are an ONNX file or an exported program, and not a compiled model."""
    return not parts or not is_packed(parts[0].data) or is_program(parts)


def restore_program(
    parts: Sequence[Part], config: ModelConfig, device: ProviderDevice, deadlines: Deadlines, trials: Trials | None
) -> ProgramModel:
    """Load an exported program. Raises InvalidFile if the parts aren't one."""
    if not config.accepts_programs:
        raise Unsupported("it holds an ONNX file, which this daemon doesn't take as it is (--accept-programs)")
    about, _ = unpacked(_KIND, parts[0].data)
    is_optimized = not (about.get(_UNOPTIMIZED) or config.crashes)
    try:
        return load_program(
            parts[1:],
            config,
            device,
            deadlines,
            lambda fraction: None,
            trials,
            is_optimized=is_optimized,
            is_tried=config.is_own,
        )
    except Unsupported as error:
        raise InvalidFile(error.message, place=error.place) from error


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's operator set, or 0 if the model has none."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def compute(model: onnx.ModelProto) -> Sequence[AnyArray]:
    """Compute the outputs of a small model without inputs."""
    here = ProviderDevice("cpu", 0, threads=1)
    options = session_options(here, ModelConfig())
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(open_session(model.SerializeToString(), {}, options, here, {}).run(None, {}))


def _source_of(parts: Sequence[Part], config: ModelConfig, is_optimized: bool) -> bytes:
    """Return the SHA-256 of all that determines what ONNX Runtime does in a run."""
    settings = repr((config.mode, sorted(config.extensions.items()), is_optimized)).encode()
    return sha256(b"".join([*(part.sha256 for part in parts), settings])).digest()


def _log_differences(declared: Sequence[TensorSpec], outputs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """Return the outputs as the nodes determine them, and log where the file declares others.

    Exporters write the lengths of their example into the file.
    """
    for given, found in zip(declared, outputs, strict=True):
        if given != found:
            _log.warning("output %r is %s with the shapes in the file, and %s without", given.name, given, found)
    return outputs


def _refusal(error: OperationFailed) -> NnrtError:
    """Return the error for the client when ONNX Runtime doesn't load its model."""
    cause = error if error.__cause__ is None else error.__cause__
    if isinstance(cause, Exception) and isinstance(known := translated_error(cause), OutOfMemory):
        return known
    kind = error.kind if isinstance(error, Refused) else type(cause).__name__
    refusal = InvalidFile if kind in _BROKEN else Unsupported
    return refusal(repr(error.message[:_MOST_QUOTED])[1:-1])
