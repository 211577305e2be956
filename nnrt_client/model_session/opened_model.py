"""Models in files of any kind: saved models, offline models, and ONNX."""

import os
import reprlib
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from typing_extensions import Buffer

from nnrt_client.model import file as model_file
from nnrt_client.model.model import Model, model_of, parts_of
from nnrt_client.tensors.frozen import Constants, frozen_array, require_known
from nnrt_hdi.errors import InvalidFile, InvalidParameter, OutOfMemory
from nnrt_hdi.files import compiled, container, graph_file
from nnrt_hdi.files.compiled import CompiledModel
from nnrt_hdi.files.graph_file import unpacked_graph
from nnrt_hdi.graph import Constant, Graph
from nnrt_hdi.ops.inference import inferred_graph
from nnrt_hdi.tensor import TensorSpec, format_shape

Shapes = Mapping[str, Sequence[int]]
Source = str | os.PathLike[str] | Buffer

ONNX_SUFFIX = ".onnx"
# Tag and wire type of `ir_version`, the first field of an ONNX model.
_ONNX_BEGINNING = b"\x08"
_HEAD_BYTES = len(container.MAGIC)


class Kind(Enum):
    """Kind of a model's file."""

    SAVED = "saved model"
    OFFLINE = "offline model"
    ONNX = "ONNX model"


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """Model from a file: an offline model has `compiled` and its `data`, any other a `model`."""

    kind: Kind
    size_bytes: int
    model: Model | None = None
    compiled: CompiledModel | None = None
    data: Buffer = b""

    @property
    def source(self) -> Model | Buffer:
        """Model or bytes, for `load`."""
        return self.data if self.model is None else self.model

    @property
    def graph(self) -> Graph | None:
        """Operators of the model; None for an offline model, whose operators are not known."""
        return parts_of(self.model).graph if self.model else None

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs of a run."""
        graph = self.graph
        return graph.input_specs if graph else self._described.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Outputs of a run."""
        graph = self.graph
        return graph.output_specs if graph else self._described.outputs

    @property
    def _described(self) -> CompiledModel:
        assert self.compiled is not None
        return self.compiled


def open_model(
    source: Source,
    shapes: Shapes | None = None,
    *,
    constants: Constants | None = None,
    is_offline_shaped: bool = False,
) -> OpenedModel:
    """Open the model in a file, or in its bytes, of whichever kind it is.

    `shapes` settle unknown dimensions of inputs. `constants` freeze inputs, by name, which the model then doesn't have.
    The inputs and shapes of an offline model are fixed, so this raises InvalidParameter if `constants` or `shapes` are
    given for one, unless `is_offline_shaped` says to ignore shapes. Raises InvalidPath if the file is missing or not
    accessible, InvalidFile if it is damaged or no model, InvalidParameter for shapes and constants that don't fit,
    Unsupported for a model that can't be imported.
    """
    if not isinstance(source, str | os.PathLike):
        view = _view(source)
        if is_onnx(source):
            return _import(onnx_source(source), view.nbytes, shapes, constants)
        return _open_container(view, view.nbytes, shapes, constants, is_offline_shaped)
    path = Path(source)
    with model_file.name_path_in_errors(path):
        head, size_bytes = _read_beginning(path)
        if not _is_onnx(head, path):
            try:
                return _open_container(container.read(path), size_bytes, shapes, constants, is_offline_shaped)
            except MemoryError as error:
                raise OutOfMemory("there is no memory for it") from error
    # The import reads the file itself, because weights may lie beside it, and names it in errors.
    return _import(path, size_bytes, shapes, constants)


def settle(graph: Graph, shapes: Shapes | None, constants: Constants | None) -> Graph:
    """Set shapes of a graph's inputs, and make other inputs constants; raise InvalidParameter if they don't fit."""
    graph = with_constants(graph, constants) if constants else graph
    return with_shapes(graph, shapes) if shapes else graph


def with_constants(graph: Graph, constants: Constants) -> Graph:
    """Make inputs of a graph constants, and infer the graph's shapes; raise InvalidParameter if they don't fit."""
    tensors = list(graph.tensors)
    inputs = {tensors[index].name: index for index in graph.inputs}
    require_known(constants, list(inputs))
    if len(constants) == len(inputs):
        raise InvalidParameter(f"constants names all inputs, {list(inputs)}; leave one for the runs")
    frozen: dict[int, Constant] = {}
    for name, value in constants.items():
        spec = tensors[inputs[name]]
        array = frozen_array(name, value, spec.numpy_dtype, spec.shape)
        tensors[inputs[name]] = spec.with_shape(array.shape)
        frozen[inputs[name]] = Constant.of(array)
    left = tuple(index for index in graph.inputs if index not in frozen)
    changed = replace(graph, tensors=tuple(tensors), inputs=left, constants={**graph.constants, **frozen})
    return inferred_graph(changed)


def is_onnx(source: Source) -> bool:
    """Return whether a file, or its bytes, are an ONNX model; raise as `open_model` if they are no model at all."""
    if not isinstance(source, str | os.PathLike):
        return _is_onnx(_view(source)[:_HEAD_BYTES].tobytes())
    with model_file.name_path_in_errors(Path(source)):
        return _is_onnx(_read_beginning(Path(source))[0], Path(source))


def onnx_source(source: Source) -> Path | bytes:
    """Return an ONNX model as the importer takes it: as a path or as bytes."""
    if isinstance(source, str | os.PathLike):
        return Path(source)
    return source if isinstance(source, bytes) else _view(source).tobytes()


def with_shapes(graph: Graph, shapes: Shapes) -> Graph:
    """Set shapes of a graph's inputs, and infer the other shapes; raise InvalidParameter if they don't fit."""
    tensors = list(graph.tensors)
    inputs = {tensors[index].name: index for index in graph.inputs}
    for name, shape in shapes.items():
        if name not in inputs:
            raise InvalidParameter(f"there is no input {name!r}, for which a shape is given; there are {list(inputs)}")
        spec = tensors[inputs[name]]
        if not spec.accepts(shape):
            raise InvalidParameter(f"{format_shape(shape)} is given for input {name!r}, which is {spec}")
        tensors[inputs[name]] = spec.with_shape(shape)
    return inferred_graph(graph.with_tensors(tensors))


def _view(source: Buffer) -> memoryview:
    try:
        return memoryview(source)
    except TypeError as error:
        raise InvalidParameter(f"the model is {source!r:.80}; give a path, or the bytes of a file") from error


def _read_beginning(path: Path) -> tuple[bytes, int]:
    """Return the first bytes of a file, and its size; raise OSError, and InvalidFile if it is no regular file."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # A pipe would let a reader wait for ever.
        raise InvalidFile("it is no regular file")
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES), status.st_size


def _is_onnx(head: bytes, path: Path | None = None) -> bool:
    """Return whether a file that begins with `head` is an ONNX model; raise InvalidFile if it is of no known kind."""
    if container.is_packed(head):
        return False
    if head.startswith(_ONNX_BEGINNING) or (path is not None and path.suffix == ONNX_SUFFIX):
        return True
    raise InvalidFile("it is neither an ONNX model nor a saved or offline model of nnrt")


def _import(source: Path | bytes, size_bytes: int, shapes: Shapes | None, constants: Constants | None) -> OpenedModel:
    # Not at the top: only ONNX models need this.
    from nnrt_client.onnx_import import import_onnx

    return OpenedModel(Kind.ONNX, size_bytes, import_onnx(source, shapes, constants))


def _open_container(
    data: Buffer, size_bytes: int, shapes: Shapes | None, constants: Constants | None, is_offline_shaped: bool
) -> OpenedModel:
    kind = container.kind_of(data)
    if kind == graph_file.KIND:
        graph = settle(unpacked_graph(data), shapes, constants)
        return OpenedModel(Kind.SAVED, size_bytes, model_of(graph))
    if kind == compiled.KIND:
        if constants:
            raise InvalidParameter("an offline model was compiled with the inputs it has; give no constants")
        if shapes and not is_offline_shaped:
            raise InvalidParameter("an offline model has the shapes it was compiled for; give none")
        return OpenedModel(Kind.OFFLINE, size_bytes, None, CompiledModel.unpacked(data), data)
    raise InvalidFile(f"it is of kind {reprlib.repr(kind)}, which is no model")
