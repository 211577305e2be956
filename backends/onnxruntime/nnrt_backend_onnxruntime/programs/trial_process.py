"""Process in which a program is tried: it opens one session, may run it once, and exits."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from nnrt_hdi.forking import Work, limit_resources, read_request

# The limits of a trial: seconds of processor time per thread; bytes of address space, plus this multiple of the bytes
# that the trial gets.
MOST_CPU_S = 120
ROOM_BYTES = 1 << 30
ROOM_SHARE = 8
# The exit status if ONNX Runtime refuses the model. The reply has the class of its error and the message before it.
REFUSED = 3
MAX_MESSAGE_BYTES = 4096
# The address space of each thread of ONNX Runtime, for its stack and the C library's heap.
_THREAD_BYTES = 160 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """Request of a trial. In the memory the model and the arrays follow it."""

    device: Any
    config: Any
    entries: Mapping[str, str]
    is_optimized: bool
    model_bytes: int
    # Name, data type, shape and offset of each array. Of an array of strings the memory has the packed form, and the
    # shape is that of its bytes.
    weights: Sequence[tuple[str, str, tuple[int, ...], int]]
    # The inputs of a run to try too, or None to try only the opening; the memory in bytes that a run may take.
    inputs: Sequence[tuple[str, str, tuple[int, ...], int]] | None = None
    run_bytes: int = 0


def prepare(argument: str) -> Work:
    """Load ONNX Runtime in the process that forks; the entry of its ForkServer."""
    from nnrt_backend_onnxruntime.session import release_memory

    release_memory()  # Opens a session, because the first one of a process takes longest.
    import_module("nnrt_backend_onnxruntime.model")  # The forked processes need it too.
    return _run_trial


def _run_trial(descriptors: Sequence[int]) -> int:
    """Open the requested session, run it if requested, and return the exit status."""
    memory, reply = descriptors
    logging.disable()
    try:
        _open_and_run(memory)
    except Exception as error:
        os.write(reply, f"{type(error).__name__} {error}".encode(errors="replace")[:MAX_MESSAGE_BYTES])
        return REFUSED
    return 0


def _open_and_run(memory: int) -> None:
    import numpy as np
    from onnxruntime import GraphOptimizationLevel

    from nnrt_backend_onnxruntime.model import translated_error
    from nnrt_backend_onnxruntime.session import create_session, session_options
    from nnrt_hdi.errors import OutOfMemory
    from nnrt_hdi.packed_values import STRINGS, ValueType

    request: Request
    request, data = read_request(memory)
    options = session_options(request.device, request.config, request.entries)
    if request.inputs is None:
        options.intra_op_num_threads = 1
    threads = options.intra_op_num_threads
    room_bytes = ROOM_BYTES + ROOM_SHARE * os.fstat(memory).st_size + request.run_bytes + (threads - 1) * _THREAD_BYTES
    limit_resources(room_bytes, MOST_CPU_S * threads)
    if not request.is_optimized:
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL

    def array(dtype: str, shape: tuple[int, ...], offset: int) -> Any:
        if np.dtype(dtype).hasobject:
            return ValueType(STRINGS).unpack(np.ndarray(shape, np.uint8, data, offset))
        return np.ndarray(shape, dtype, data, offset)

    weights, inputs = (
        {name: array(dtype, shape, offset) for name, dtype, shape, offset in arrays or ()}
        for arrays in (request.weights, request.inputs)
    )
    model = bytes(data[: request.model_bytes])
    try:
        session = create_session(model, weights, options, request.device, request.config.extensions)
    except Exception as error:
        unoptimized = GraphOptimizationLevel.ORT_DISABLE_ALL
        if isinstance(translated_error(error), OutOfMemory) or options.graph_optimization_level == unoptimized:
            raise
        options.graph_optimization_level = unoptimized  # As `open_session` does.
        session = create_session(model, {}, options, request.device, request.config.extensions)
    if request.inputs is not None:
        session.run(None, inputs)
