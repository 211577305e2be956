"""Inputs of a command's runs, which are array files, images, or random."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from nnrt_client.cli.images import SUFFIX as IMAGE_SUFFIX
from nnrt_client.cli.images import image_array
from nnrt_client.run.names import distinct_names
from nnrt_hdi.errors import InvalidFile, InvalidParameter, InvalidPath
from nnrt_hdi.packed_values import PackedSpec
from nnrt_hdi.tensor import UNKNOWN_DIM, Array, TensorSpec, format_shape
from nnrt_hdi.text import escape_for_terminal

Shape = tuple[int, ...]

# Magic bytes of .npy and .npz files.
_BEGINNINGS = (b"\x93NUMPY", b"PK")


def gather_inputs(
    inputs: Sequence[TensorSpec],
    given: Sequence[str],
    shapes: Mapping[str, Shape] | None = None,
    seed: int | None = None,
    *,
    takes_one: bool = False,
) -> dict[str, Array]:
    """Return an array for each input of a model: from the --input options, or random if there is a seed.

    Args:
        inputs: Specs of the model's inputs.
        given: Values of the --input options.
        shapes: Values of the --shape options, by input.
        seed: Seed of random arrays; None if every input must be given.
        takes_one: Whether open dimensions without a --shape become 1, which a line on stderr reports; otherwise they
            are an error.

    Raises:
        UsageError: an option doesn't fit the model.
        InvalidPath, InvalidFile, InvalidParameter: a file doesn't fit its input.
    """
    names = distinct_names("input", [spec.name for spec in inputs])
    specs = {name: replace(spec, name=name) for name, spec in zip(names, inputs, strict=True)}
    arrays: dict[str, Array] = {}
    for option in given:
        for name, array in _read(option, specs).items():
            _require_known(option, name, specs)
            if name in arrays:
                raise click.UsageError(f"--input {option}: there is an array for {name!r} already")
            arrays[name] = array
    missing = [name for name in specs if name not in arrays]
    if missing and seed is None:
        raise click.UsageError(f"inputs without an array: {', '.join(missing)}; give each by --input NAME=FILE")
    unknown = set(shapes or ()) - set(specs)
    if unknown:
        raise click.UsageError(f"--shape names {', '.join(sorted(unknown))}; the inputs are {', '.join(specs)}")
    random = np.random.default_rng(seed)
    for name in missing:
        spec, shape = specs[name], (shapes or {}).get(name)
        if isinstance(spec, PackedSpec):
            raise click.UsageError(f"input {name!r} is {spec}; give its array by --input {name}=FILE")
        if takes_one and shape is None and spec.is_dynamic:
            shape = tuple(1 if dim == UNKNOWN_DIM else dim for dim in spec.shape)
            text = f"input {name!r} is {spec}: its open dimensions are 1; --shape {name}=... gives others"
            click.echo(escape_for_terminal(text), err=True)
        arrays[name] = _random(spec, shape, random)
    return {name: arrays[name] for name in specs}


def _read(option: str, specs: Mapping[str, TensorSpec]) -> dict[str, Array]:
    """Return the arrays that one --input option names."""
    name, separator, rest = option.partition("=")
    path = Path(rest if separator else option)
    if path.exists() and not path.is_file():  # Opening a pipe may block for ever.
        raise InvalidPath("it is no regular file", place=f"{path}")
    if path.suffix == ".npz":
        if separator:
            raise click.UsageError(f"--input {option}: an .npz file names its inputs itself; leave {name}= out")
        return _load_arrays(path)
    if not separator:
        if len(specs) != 1:
            raise click.UsageError(f"--input {option}: say for which input, NAME={option}: {', '.join(specs)}")
        (name,) = specs
    _require_known(option, name, specs)
    if path.suffix == IMAGE_SUFFIX:
        return {name: image_array(path, specs[name])}
    return {name: next(iter(_load_arrays(path).values()))}


def _require_known(option: str, name: str, specs: Mapping[str, TensorSpec]) -> None:
    if name not in specs:
        raise click.UsageError(f"--input {option}: there is no input {name!r}; there are {', '.join(specs)}")


def _load_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of an .npz file by name, or that of an .npy file under "". Never unpickles."""
    with path.open("rb") as file:
        head = file.read(len(_BEGINNINGS[0]))
    if not head.startswith(_BEGINNINGS):  # NumPy's own error would be about pickles.
        raise InvalidFile(
            f"it is no array file, or damaged: it begins with {head!r}; give an .npy, .npz or .png file",
            place=f"{path}",
        )
    try:
        # Mapped: a damaged header that claims a huge array takes no memory.
        with np.errstate(over="ignore"):
            loaded: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return dict(loaded)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # NumPy parses headers with Python's parser, which raises errors of many kinds.
        raise InvalidFile(f"it is no array file, or damaged: {error}", place=f"{path}") from error


def _random(spec: TensorSpec, shape: Shape | None, random: np.random.Generator) -> Array:
    """Return random elements: floats 0..1, any 8-bit integers, other types 0 or 1, which are valid indices."""
    if shape is None and spec.is_dynamic:
        raise click.UsageError(
            f"input {spec.name!r} is {spec}; give its array by --input, or its shape by --shape {spec.name}=..."
        )
    if shape is not None and not spec.accepts(shape):
        raise InvalidParameter(f"{format_shape(shape)} is given for input {spec.name!r}, which is {spec}")
    dtype, dims = spec.numpy_dtype, spec.shape if shape is None else shape
    if dtype.kind == "f":
        return random.random(dims, np.float32).astype(dtype, copy=False)
    if dtype.kind in "iu" and dtype.itemsize == 1:
        bounds = np.iinfo(dtype.name)
        return random.integers(bounds.min, bounds.max, dims, dtype, endpoint=True)
    return random.integers(0, 2, dims, np.int64).astype(dtype)
