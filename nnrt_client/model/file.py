"""Files of finished models, which have the graph with its constants, see `nnrt_hdi.files.graph_file`."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path

from nnrt_client.model.operations import OPERATIONS, Operation
from nnrt_client.model.operations.record import OperationRecord, TensorRecord
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import InvalidFile, InvalidPath, NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.files import container
from nnrt_hdi.files.graph_file import packed_graph, unpacked_graph
from nnrt_hdi.graph import Graph, Node, quoted_name

# Errors of the path, and not of the disk.
_PATH_ERRORS = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def write(path: str | PathLike[str], graph: Graph) -> None:
    """Write a graph into a file, which appears only when it is complete; raise InvalidPath or OperationFailed."""
    with name_path_in_errors(path):
        container.write(Path(path), packed_graph(graph))


def read(path: str | PathLike[str]) -> Graph:
    """Read the graph in a file; raise InvalidPath, InvalidFile, OutOfMemory or OperationFailed."""
    with name_path_in_errors(path):
        try:
            return unpacked_graph(container.read(Path(path)))
        except MemoryError as error:
            raise OutOfMemory("there is no memory for it") from error


def records(graph: Graph) -> tuple[list[TensorRecord], list[OperationRecord]]:
    """Convert a graph's tensors and nodes to records of a model; raise InvalidFile if a model can't have them."""
    try:
        tensors = [TensorRecord(TensorDesc._from_spec(spec), quant=spec.quant) for spec in graph.tensors]
    except NnrtError as error:
        raise InvalidFile(error.message, place=error.place) from error
    for index, constant in graph.constants.items():
        tensors[index].data = constant.data
    operations = [
        OperationRecord(_operation_of(node), node.inputs, node.outputs, node.attrs, node.name) for node in graph.nodes
    ]
    return tensors, operations


def _operation_of(node: Node) -> Operation:
    """Return the operation that becomes this node: the first one whose fixed attributes the node has."""
    candidates = [operation for operation in OPERATIONS.values() if operation.node_type is node.type]
    for operation in candidates:
        if len(candidates) == 1 or operation.fixed.items() <= node.attrs.items():
            return operation
    raise InvalidFile(f"no operation becomes its node {node.type.name}{quoted_name(node.name)}")


@contextmanager
def name_path_in_errors(path: str | PathLike[str]) -> Iterator[None]:
    """Convert errors of the operating system to NNRt's, and name the path in all errors."""
    try:
        yield
    except OSError as error:
        kind = InvalidPath if isinstance(error, _PATH_ERRORS) else OperationFailed
        raise kind(error.strerror or str(error), place=repr(fspath(path))) from error
    except NnrtError as error:
        raise error.at(repr(fspath(path))) from error
