"""Backend that exports, restores and runs models, and waits or fails at a chosen stage."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from nnrt_backend_reference import create as create_reference
from wrapping import Progress, WrappedBackend, WrappedModel

from nnrt_hdi.backend import Backend, Capabilities, DeviceInfo, ModelConfig, PreparedModel
from nnrt_hdi.enums import DeviceType
from nnrt_hdi.errors import InvalidFile, OperationFailed
from nnrt_hdi.files.graph_file import packed_graph, unpacked_graph
from nnrt_hdi.graph import Graph
from nnrt_hdi.part import Part

# Beginning of a file from this vendor's tools; a graph follows.
VENDOR_MAGIC = b"vendor: "


class _Model(WrappedModel):
    def __init__(self, backend: "_Restoring", graph: Graph) -> None:
        super().__init__(backend.right.prepare(graph, ModelConfig(), lambda fraction: None))
        self._backend, self._graph = backend, graph

    def export(self) -> list[Part]:
        self._backend.meet("exporting")
        return [Part.of(b"small"), Part.of(b"".join(packed_graph(self._graph)))]


class _Restoring(WrappedBackend):
    """Backend with the options `version`, `refuse`, `wait` and `gate`.

    `refuse` and `wait` name a stage: compiling, exporting or restoring. Waiting ends when a test has opened and closed
    the FIFO `gate` for writing.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(create_reference({}))
        self._options = options

    def meet(self, stage: str) -> None:
        """Wait or fail at a stage, if the options ask for it."""
        if self._options.get("wait") == stage:
            Path(self._options["gate"]).read_bytes()
        if self._options.get("refuse") == stage:
            raise OperationFailed(f"the restoring backend refuses {stage}")

    def describe(self) -> DeviceInfo:
        version = self._options.get("version", "1")
        return DeviceInfo(
            "restoring", "test", DeviceType.OTHER, Capabilities(True, True, True, True, True), "restoring", version
        )

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        if self._options.get("wait") == "compiling":
            while True:  # `progress` raises when the client gives up.
                progress(0.5)
                threading.Event().wait(0.02)
        self.meet("compiling")
        progress(1.0)
        return _Model(self, graph)

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        self.meet("restoring")
        if len(parts) == 1 and bytes(parts[0].data).startswith(VENDOR_MAGIC):
            return _Model(self, unpacked_graph(parts[0].data[len(VENDOR_MAGIC) :]))
        if len(parts) != 2 or bytes(parts[0].data) != b"small":
            raise InvalidFile("this is no model of the restoring backend")
        return _Model(self, unpacked_graph(parts[1].data))


def restoring(options: Mapping[str, str]) -> Backend:
    return _Restoring(options)
