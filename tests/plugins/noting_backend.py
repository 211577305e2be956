"""Backend that supports every node, with a note about some."""

from collections.abc import Mapping

from storing_backend import StoringBackend

from nnrt_hdi.backend import Backend, Support
from nnrt_hdi.enums import DataType
from nnrt_hdi.graph import Graph


class _NotingBackend(StoringBackend):
    def supported(self, graph: Graph) -> list[Support]:
        return [
            Support(note="computed in FLOAT32" if graph.tensors[node.inputs[0]].data_type is DataType.FLOAT16 else "")
            for node in graph.nodes
        ]


def create(options: Mapping[str, str]) -> Backend:
    """Create a backend with a note on each node that reads FLOAT16."""
    return _NotingBackend(device_name="noting")
