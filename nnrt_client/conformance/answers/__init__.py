"""Shipped answers: outputs that independent code computed with `make answers`, in one file per level.

A file is an .npz without pickles: a JSON index, and the elements of all outputs one after another. Each answer has the
digest of its inputs, so that no case is compared with the answer of another.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi.errors import InvalidFile
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import flat_bytes

AnyArray = NDArray[Any]
Outputs = tuple[AnyArray, ...]


@dataclass(frozen=True, eq=False)
class Answer:
    """Outputs of each run of a case, the code that computed them, and the digest of the inputs.

    The outputs of a run are None if the run must end with an error.
    """

    name: str
    oracle: str
    inputs: str
    runs: tuple[Outputs | None, ...]

    def require_inputs(self, inputs: str) -> None:
        """Raise InvalidFile unless the answer belongs to inputs with this digest."""
        if inputs != self.inputs:
            raise InvalidFile(
                f"the answer {self.name!r} is of inputs {self.inputs}, not of {inputs}; make answers again"
            )


def inputs_digest(graph: Graph, runs: Sequence[Sequence[AnyArray]]) -> str:
    """Return a digest of the types, shapes and elements of all runs' inputs and constants.

    It doesn't depend on which tensors are inputs and which are constants.
    """
    digest = hashlib.sha256()
    constants = {index: np.asarray(constant.data) for index, constant in graph.constants.items()}
    for inputs in runs:
        given = {**constants, **dict(zip(graph.inputs, inputs, strict=True))}
        for _, array in sorted(given.items()):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(flat_bytes(np.ascontiguousarray(array)))
        digest.update(b";")
    return digest.hexdigest()[:16]


def load_answer(level: str, name: str) -> Answer:
    """Return the answer of this name. Raises InvalidFile if none ships."""
    answers = _shipped(level)
    if name not in answers:
        raise InvalidFile(f"no answer {name!r} ships for the level {level}; make answers")
    return answers[name]


@cache
def _shipped(level: str) -> Mapping[str, Answer]:
    file = resources.files(__package__) / f"{level}.npz"
    return unpack(file.read_bytes()) if file.is_file() else {}


def pack(answers: Sequence[Answer]) -> bytes:
    """Return the bytes of a file with these answers, those of one level."""
    index = [
        [answer.name, answer.oracle, answer.inputs, [_described(run) for run in answer.runs]] for answer in answers
    ]
    pieces = [flat_bytes(np.ascontiguousarray(y)) for answer in answers for run in answer.runs for y in run or ()]
    file = io.BytesIO()
    np.savez_compressed(
        file,
        index=np.frombuffer(json.dumps(index, separators=(",", ":")).encode(), np.uint8),
        elements=np.frombuffer(b"".join(pieces), np.uint8),
    )
    return file.getvalue()


def _described(run: Outputs | None) -> list[Any] | None:
    return None if run is None else [[y.dtype.str, list(y.shape)] for y in run]


def unpack(file: bytes) -> dict[str, Answer]:
    """Return the answers in a level's file by name. Raises InvalidFile if it is damaged."""
    try:
        with np.load(io.BytesIO(file), allow_pickle=False) as arrays:
            index, elements = json.loads(arrays["index"].tobytes()), arrays["elements"]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidFile(f"the answers are not those that were made: {error}") from error
    answers, at = {}, 0
    for name, oracle, inputs, described in index:
        runs: list[Outputs | None] = []
        for run in described:
            if run is None:
                runs.append(None)
                continue
            outputs = []
            for dtype, shape in run:
                size = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
                outputs.append(elements[at : at + size].view(dtype).reshape(shape))
                at += size
            runs.append(tuple(outputs))
        answers[name] = Answer(name, oracle, inputs, tuple(runs))
    if at != elements.size:
        raise InvalidFile(f"its index describes {at} bytes, and it has {elements.size}")
    return answers
