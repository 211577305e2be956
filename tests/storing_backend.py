"""Backend whose compiled models can be stored: it exports its graph, and runs what it has restored."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nnrt_hdi.backend import (
    Backend,
    Cancellation,
    Capabilities,
    DeviceInfo,
    ModelConfig,
    PreparedModel,
    Support,
)
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import InvalidFile
from nnrt_hdi.files.graph_file import packed_graph, unpacked_graph
from nnrt_hdi.graph import Graph
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import Array

_log = logging.getLogger(__name__)

INFO = DeviceInfo("storing", "test", DeviceType.OTHER, Capabilities(True, True, True, True, True), "storing", "1")


class StoringModel(PreparedModel):
    """Model that computes the sum of the input and all constants, whatever its nodes are."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.inputs, self.outputs = graph.input_specs, graph.output_specs

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        result = inputs[0]
        for constant in self._graph.constants.values():
            assert constant.data is not None
            result = np.add(result, constant.data)
        return [result]

    def export(self) -> Sequence[Part]:
        return [Part.of(b"".join(packed_graph(self._graph)))]

    def close(self) -> None:
        _log.info("closed a model")


class StoringBackend(Backend):
    """Backend that records its compilations and restorations."""

    def __init__(self, gate: Path | None = None, **about: str) -> None:
        """Create the backend; `about` replaces parts of INFO.

        With `gate`, a compilation waits until a test has opened and closed this FIFO for writing.
        """
        self.gate = gate
        self._info = replace(INFO, **about)  # type: ignore[arg-type]
        self._lock = threading.Lock()
        self.compiled: list[ModelConfig] = []
        self.restored: list[ModelConfig] = []

    def describe(self) -> DeviceInfo:
        return self._info

    def supported(self, graph: Graph) -> list[Support]:
        return [Support() for _ in graph.nodes]

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        _log.info("compiled a model")
        with self._lock:
            self.compiled.append(config)
        progress(0.5)
        if self.gate:
            self.gate.read_bytes()
        return StoringModel(graph)

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        if len(parts) != 1:
            raise InvalidFile(f"it has {len(parts)} parts; a model of this backend has 1")
        graph = unpacked_graph(parts[0].data)
        with self._lock:
            self.restored.append(config)
        _log.info("restored a model")
        return StoringModel(graph)


def create(options: Mapping[str, str]) -> Backend:
    """Create the backend with the option `gate`, a FIFO (see StoringBackend)."""
    gate = options.get("gate")
    return StoringBackend(Path(gate) if gate else None)
