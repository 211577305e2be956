"""Graphs of several operators and small networks of each family, which reveal what single nodes don't."""

from collections.abc import Iterator

from nnrt_client.conformance.case import Case
from nnrt_client.conformance.cases.graphs import (
    networks_of_images,
    networks_of_sequences,
    quantized_networks,
    shapes_of_graphs,
)


def graphs() -> Iterator[Case]:
    """Yield the cases of the level "graphs"."""
    for kind in (shapes_of_graphs, networks_of_images, networks_of_sequences, quantized_networks):
        for network in kind.networks():
            yield from network.cases()
