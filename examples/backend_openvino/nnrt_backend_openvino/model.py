"""Compiled models, their runs and their export."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import openvino
from nnrt_onnx_lowering import Lowered

from nnrt_backend_openvino.indices import index_checks
from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.errors import InvalidFile
from nnrt_hdi.files.container import packed, unpacked
from nnrt_hdi.files.graph_file import packed_graph, unpacked_graph
from nnrt_hdi.graph import Graph
from nnrt_hdi.graph_model import GraphModel
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import Array, writable_view

KIND = "openvino model"
# Maximum number of input shapes whose programs are kept. Compiling a program takes longer than most runs.
MOST_KINDS = 8
# The longest time that OpenVINO waits in one call, in milliseconds.
LONGEST_WAIT_MS = 2**31 - 1


class Program:
    """Model that OpenVINO compiled for known shapes, and the infer requests of its runs."""

    def __init__(self, compiled: Any, graph: Graph, lowered: Lowered, blob: bytes = b"") -> None:
        """Wrap a compiled model.

        `blob` is the export from which OpenVINO has imported the model, or empty. `exported` returns it unchanged,
        because OpenVINO can't import the export of an imported model.
        """
        self._compiled = compiled
        self._blob = blob
        self._checks = [(graph.inputs.index(check.tensor), check) for check in index_checks(graph)]
        present = {name for port in compiled.inputs for name in port.get_names()}
        # OpenVINO drops inputs that no node reads.
        self._read = [(at, name) for at, name in enumerate(lowered.inputs) if name in present]
        self._assertions = lowered.assertions
        self._idle: list[Any] = []

    def run(self, inputs: Sequence[Array], cancellation: Cancellation) -> list[Array]:
        """Run the model, and return its outputs in new arrays. A scalar comes as a vector of one element."""
        for at, check in self._checks:
            check.require(inputs[at])
        with self._request(cancellation) as request:
            for at, name in self._read:
                request.set_tensor(name, openvino.Tensor(writable_view(inputs[at]), shared_memory=True))
            request.start_async()
            take_back = cancellation.on_cancel(request.cancel)
            try:
                _wait(request, cancellation)
            finally:
                take_back()
            results = [np.array(request.get_output_tensor(at).data) for at in range(len(self._compiled.outputs))]
        return self._assertions.checked(results)

    def exported(self) -> Part:
        return Part.of(self._blob or self._compiled.export_model().getvalue())

    @contextmanager
    def _request(self, cancellation: Cancellation) -> Iterator[Any]:
        """Provide an infer request for one run.

        A request whose run was cancelled isn't reused: another thread may still be cancelling it.
        """
        request = self._idle.pop() if self._idle else self._compiled.create_infer_request()
        yield request
        if not cancellation.is_cancelled:
            self._idle.append(request)


class OpenVinoModel(GraphModel[Program]):
    """Model that runs a program for the shapes of its inputs."""

    def __init__(self, graph: Graph, config: ModelConfig, compile_known: Callable[[Graph], Program]) -> None:
        super().__init__(graph, config.max_tensor_bytes, compile_known, most_kinds=MOST_KINDS)
        self._graph = graph
        self._float16 = config.enable_float16

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        cancellation.check()
        specs = self.sizes(inputs).outputs
        if all(0 in spec.shape for spec in specs):
            return [np.empty(spec.shape, spec.numpy_dtype) for spec in specs]
        results = self.prepared(inputs, cancellation).run(inputs, cancellation)
        return [result.reshape(spec.shape) for result, spec in zip(results, specs, strict=True)]

    def export(self) -> list[Part]:
        """Return the graph, from which programs for other shapes are compiled, and the program if there is only one.

        The first part has the digests of the others, so that no part can be exchanged alone.
        """
        parts = [Part.of(b"".join(packed_graph(self._graph)))]
        if not self.varies:
            parts.append(self.prepared(()).exported())
        about = {"float16": self._float16, "parts": [part.sha256.hex() for part in parts]}
        return [Part.of(b"".join(packed(KIND, about, []))), *parts]


def read_exported(parts: Sequence[Part]) -> tuple[Graph, bool, bytes]:
    """Return what `export` wrote: the graph, whether it computes in FLOAT16, and the program, or b"" without a program.

    The function can't check the content of the program.

    Raises:
        InvalidFile: OpenVinoModel.export hasn't written these parts.
    """
    if len(parts) not in (2, 3):
        raise InvalidFile(f"there are {len(parts)} parts; a model of the openvino backend has 2 or 3")
    about, _ = unpacked(KIND, parts[0].data)
    if about.get("parts") != [part.sha256.hex() for part in parts[1:]] or not isinstance(about.get("float16"), bool):
        raise InvalidFile("its first part is that of other parts")
    return unpacked_graph(parts[1].data), about["float16"], bytes(parts[2].data) if len(parts) == 3 else b""


def _wait(request: Any, cancellation: Cancellation) -> None:
    """Wait until a run has ended. Raises the error of its cancellation, or OpenVINO's."""
    remaining = cancellation.remaining
    if remaining is not None and not request.wait_for(min(int(remaining * 1000) + 1, LONGEST_WAIT_MS)):
        cancellation.expire()
    try:
        request.wait()
    except RuntimeError:
        cancellation.check()
        raise
