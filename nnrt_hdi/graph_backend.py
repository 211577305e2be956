"""Base of backends that compute a graph node by node, with the same models from a graph and from an export."""

import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from nnrt_hdi.backend import Backend, ModelConfig, PreparedModel
from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError, OutOfMemory, Unsupported
from nnrt_hdi.files.exported_graph import read_exported
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import inferred_graph
from nnrt_hdi.part import Part

ModelT = TypeVar("ModelT", bound=PreparedModel)


class GraphBackend(Backend, Generic[ModelT]):
    """Backend whose models are made of an inferred graph.

    Models export it by `nnrt_hdi.files.exported_graph.export_parts`, as the kind `exports`. The backend knows no
    extensions.
    """

    exports: str
    # The most bytes of a run's results at a time.
    run_bytes = sys.maxsize

    @abstractmethod
    def model(self, graph: Graph, config: ModelConfig, enable_float16: bool) -> ModelT:
        """Return the model of an inferred graph, whose nodes are supported. `config` counts for the rest."""

    def start(self, run_bytes: int, *, accepts_programs: bool) -> None:
        self.run_bytes = run_bytes

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> ModelT:
        self._refuse_extensions(config)
        self._require_supported(graph)
        model = self.model(inferred_graph(graph), config, config.enable_float16)
        progress(1.0)
        return model

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> ModelT:
        """Load an exported model.

        Raises:
            InvalidFile: The parts aren't a model that this backend exported.
            OutOfMemory: The model is too large for the daemon or the device.
        """
        self._refuse_extensions(config)
        graph, enable_float16 = read_exported(self.exports, parts)
        try:
            self._require_supported(graph)
            return self.model(graph, config, enable_float16)
        except (InvalidFile, OutOfMemory):
            raise
        except NnrtError as error:
            raise InvalidFile(error.message, place=error.place) from error

    def _require_supported(self, graph: Graph) -> None:
        for index, support in enumerate(self.supported(graph)):
            if not support.supported:
                raise Unsupported(support.reason, place=graph.place(index))

    def _refuse_extensions(self, config: ModelConfig) -> None:
        for name in config.extensions:
            backend = self.describe().backend_name
            raise InvalidParameter(f"the {backend} backend knows no extension {name!r}; leave extensions empty")
