"""Backend that restores any file without checks, like one whose library has its own file format."""

import logging
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from storing_backend import INFO, StoringBackend, StoringModel

from nnrt_hdi.backend import Backend, ModelConfig, PreparedModel
from nnrt_hdi.files.graph_file import packed_graph, unpacked_graph
from nnrt_hdi.graph import Graph
from nnrt_hdi.part import Part

_log = logging.getLogger(__name__)

FORMAT = "packed graph"


class _BlobModel(StoringModel):
    def __init__(self, graph: Graph, count: int) -> None:
        super().__init__(graph)
        self._blob = pickle.dumps(b"".join(packed_graph(graph)))
        self._count = count

    def export(self) -> Sequence[Part]:
        return [Part.of(self._blob)] * self._count


class _BlobBackend(StoringBackend):
    has_opaque_exports = True

    def __init__(self, count: int) -> None:
        capabilities = replace(INFO.capabilities, program_formats=(FORMAT,))
        super().__init__(device_name="blob", backend_name="blob", capabilities=capabilities)  # type: ignore[arg-type]
        self._count = count

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        return _BlobModel(graph, self._count)

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        _log.info("restoring what is_own=%s", config.is_own)
        return _BlobModel(unpacked_graph(pickle.loads(parts[0].data)), self._count)  # noqa: S301

    def load_program(
        self, format: str, parts: Sequence[Part], config: ModelConfig, progress: Callable[[float], None]
    ) -> PreparedModel:
        return _BlobModel(unpacked_graph(parts[0].data), self._count)


def create(options: Mapping[str, str]) -> Backend:
    """Create the backend; its models export `parts` parts, 1 by default."""
    return _BlobBackend(int(options.get("parts", 1)))
