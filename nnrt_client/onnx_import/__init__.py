"""Import of ONNX files: `nnrt_client.from_onnx`.

Only this package imports onnx, which is an extra.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from typing import TYPE_CHECKING

from nnrt_client.tensors.frozen import Constants
from nnrt_hdi.errors import NnrtError, OutOfMemory, Unsupported
from nnrt_hdi.files.fingerprint import Fingerprint

if TYPE_CHECKING:
    from nnrt_client.model.model import Model
    from nnrt_client.model.program import Program


def from_onnx(
    model: str | PathLike[str] | bytes,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Constants | None = None,
) -> "Model":
    """Import an ONNX file as a finished model.

        model = from_onnx("resnet50.onnx", shapes={"data": (1, 3, 224, 224)})

    Operator sets 7 and later are supported; docs/reference/onnx.md lists the operations that each operator becomes.
    Inputs and outputs keep their names; images keep the layout NCHW. Needs the extra `nnrt[onnx]`.

    Args:
        model: path of the file, or the bytes of a file without external data.
        shapes: shapes of inputs by name, -1 for an unknown dimension. Dimensions that neither the file nor `shapes`
            fixes are -1.
        constants: values of inputs that never change, by name. The model has no such inputs; what depends only on them,
            such as the branch of an If, is computed at import.

    Returns:
        The model, finished.

    Raises:
        InvalidPath: the file or its external data are missing or not accessible.
        InvalidFile: the file is damaged, or declares another type for a value than its nodes compute.
        InvalidParameter: `shapes` or `constants` don't fit the inputs.
        OutOfMemory: computing the model's constants would take too much memory.
        Unsupported: the file has nodes that can't be imported, which the error lists with the reasons; or the package
            onnx is not installed.
    """
    return import_onnx(model, shapes, constants, is_mapped=False)


def import_onnx(
    model: str | PathLike[str] | bytes,
    shapes: Mapping[str, Sequence[int]] | None,
    constants: Constants | None,
    beside: dict[str, Fingerprint] | None = None,
    *,
    is_mapped: bool = True,
) -> "Model":
    """Import an ONNX file as `from_onnx` does. `beside` and `is_mapped` are those of `OnnxFile`."""
    with locate_errors(model):
        from nnrt_client.onnx_import.file import OnnxFile
        from nnrt_client.onnx_import.importer import import_file

        return import_file(OnnxFile(model, beside, is_mapped=is_mapped), shapes or {}, constants or {})


def program_from_onnx(
    model: str | PathLike[str] | bytes,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Constants | None = None,
    beside: dict[str, Fingerprint] | None = None,
    is_mapped: bool = False,
) -> "Program":
    """Read an ONNX file as a program, for a device that executes ONNX files without import.

    Args:
        model: path of the file, or the bytes of a file without external data.
        shapes: shapes of inputs by name, -1 for an unknown dimension.
        constants: values of inputs that never change, by name.
        beside: takes the states of the files with its external data, by location.
        is_mapped: whether large data stay in the files (see `OnnxFile`).

    Returns:
        The program, for `Compilation`.

    Raises:
        InvalidPath: the file or its external data are missing or not accessible.
        InvalidFile: the file is damaged.
        InvalidParameter: `shapes` or `constants` don't fit the inputs.
        OutOfMemory: there is no memory for the file.
        Unsupported: the package onnx, of the extra `nnrt[onnx]`, is not installed.
    """
    with locate_errors(model):
        from nnrt_client.onnx_import.file import OnnxFile
        from nnrt_client.onnx_import.program import make_program

        return make_program(OnnxFile(model, beside, is_mapped=is_mapped), shapes or {}, constants or {})


@contextmanager
def locate_errors(model: str | PathLike[str] | bytes) -> Iterator[None]:
    """Add the file's name to the errors of the block. Raise Unsupported if onnx is not installed."""
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
