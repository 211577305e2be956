"""ONNX models as models: `nnrt_client.from_onnx`. The only place that knows onnx, which is an extra."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from typing import TYPE_CHECKING

from nnrt_client.tensors.frozen import Constants
from nnrt_hdi.errors import NnrtError, OutOfMemory, Unsupported

if TYPE_CHECKING:
    from nnrt_client.model.model import Model
    from nnrt_client.model.program import Program


def from_onnx(
    model: str | PathLike[str] | bytes,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Constants | None = None,
) -> "Model":
    """The model of an ONNX file, finished: given by its path, or as the bytes of a file without external data.

        model = from_onnx("resnet50.onnx", shapes={"data": (1, 3, 224, 224)})

    Operator sets from 7 on are imported; see docs/reference/onnx.md for what becomes of each operator. Inputs and
    outputs keep their names, images their layout NCHW. Dimensions that are not known in the file are -1, unless
    `shapes` fixes them.
    `constants` freeze inputs, by name: they are no inputs of the model then, and what follows from them is computed
    now, such as the branch that an If takes.

    Raises InvalidPath where the file or its external data are missing or not accessible, InvalidFile where they are
    broken or values have other types than declared, InvalidParameter for `shapes` and `constants` that don't fit,
    OutOfMemory for a model that makes huge constants, and Unsupported for one that can't be imported: the error lists
    every node that is in the way, with the reason. Needs the extra `nnrt[onnx]`; Unsupported without.
    """
    with reading(model):
        from nnrt_client.onnx_import.file import OnnxFile
        from nnrt_client.onnx_import.importer import imported

        return imported(OnnxFile(model), shapes or {}, constants or {})


def program_from_onnx(
    model: str | PathLike[str] | bytes,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Constants | None = None,
) -> "Program":
    """The ONNX file itself, for a device that takes such files as they are.

    `shapes` settle dimensions of inputs, -1 leaving one open; `constants` are inputs that always have these values.
    Raises InvalidPath, InvalidFile, InvalidParameter and OutOfMemory as `from_onnx` does. Needs the extra `nnrt[onnx]`;
    Unsupported without.
    """
    with reading(model):
        from nnrt_client.onnx_import.file import OnnxFile
        from nnrt_client.onnx_import.program import program_of

        return program_of(OnnxFile(model), shapes or {}, constants or {})


@contextmanager
def reading(model: str | PathLike[str] | bytes) -> Iterator[None]:
    """Say of errors which file they are about."""
    try:
        import onnx  # noqa: F401  (an extra, which most clients don't have)
    except ImportError as error:
        raise Unsupported("ONNX models need the package onnx; install nnrt[onnx]") from error
    place = repr(fspath(model)) if isinstance(model, str | PathLike) else "the ONNX model"
    try:
        yield
    except NnrtError as error:
        raise error.at(place) from error
    except MemoryError as error:
        raise OutOfMemory("there is no memory for it", place=place) from error
