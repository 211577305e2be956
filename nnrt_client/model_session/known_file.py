"""ONNX files that `load` has read before: what became of them, without the weights, in the user's cache.

So the next process needs neither onnx nor the file's contents: it asks the daemon for the model by the digests of its
weights, and reads the file only if the daemon lacks some.

    <digest>.nnrtfile           SHA-256 of a file, by its state (`Fingerprint`)
    <size>-<digest>.nnrtfile    what a file of that size became, by its SHA-256, the options and this package's version

Each is a container, in which no bit changes unnoticed. One that is damaged counts as missing.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from operator import index
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import ArrayLike

from nnrt_client.build.upload import buffer_message
from nnrt_client.model.model import Model, model_of, parts_of
from nnrt_client.model.program import Program
from nnrt_client.model_session.background_write import BackgroundWrite, writes_under_way
from nnrt_client.model_session.model_cache import cache_directory
from nnrt_client.model_session.opened_model import Shapes, is_onnx
from nnrt_client.onnx_import.declared import DeclaredTensor, Header
from nnrt_client.tensors.frozen import Constants
from nnrt_hdi import __version__, wire
from nnrt_hdi.errors import InvalidFile, NnrtError, Unsupported
from nnrt_hdi.files.atomic_write import atomic_write
from nnrt_hdi.files.container import packed, read, unpacked
from nnrt_hdi.files.file_part import OpenFile
from nnrt_hdi.files.fingerprint import Fingerprint, digest_of
from nnrt_hdi.files.store_directory import StoreDirectory, touch
from nnrt_hdi.part import AbsentPart, Part
from nnrt_hdi.tensor import flat_bytes
from nnrt_hdi.v2 import device_pb2, model_pb2

_log = logging.getLogger(__name__)

T = TypeVar("T")
# What a file became: entries of a record's manifest, and a message.
Became = Callable[[], tuple[dict[str, Any], bytes]]

SUFFIX = ".nnrtfile"
_KIND = "known file"
# Owner in the names of unfinished records. A crash leaves some, which count as records.
_OWNER = "file"
# Bounds of all records. The least recently used ones make room.
MAX_RECORDS = 512
MAX_BYTES = 128 << 20
# A file that was written this recently may be written again without a new time.
_SETTLED_NS = 2_000_000_000


class KnownFile:
    """ONNX file with the options of its load, as the cache knows it."""

    def __init__(self, path: Path, shapes: Shapes | None, constants: Constants | None, records: "Records") -> None:
        """Refer to a file. Raise OSError if it can't be found, TypeError or ValueError for options of wrong types."""
        self._path = path
        self._records = records
        self._began_ns = time.time_ns()
        self._state = Fingerprint.of(path.stat())
        self._options = (
            {name: [index(dim) for dim in shape] for name, shape in (shapes or {}).items()},
            {name: _described(value) for name, value in (constants or {}).items()},
        )

    def model(self) -> Model | None:
        """Return the model that the file became, without weights; None if unknown.

        Raises Unsupported if the import refused the file.
        """
        return self._recall("model", lambda data: model_of(wire.graph(model_pb2.Model.FromString(data))))

    def program(self) -> Program | None:
        """Return the program that the file became, without large parts; None if unknown."""
        return self._recall("program", _program)

    def keep_model(self, read: Callable[[dict[str, Fingerprint]], Model]) -> Model:
        """Read the model, and keep it without weights. `read` sets the states of files with external data."""
        beside: dict[str, Fingerprint] = {}
        try:
            model = read(beside)
        except Unsupported as error:
            refusal = {"refusal": [error.message, error.place.removeprefix(repr(str(self._path)))]}
            self._keep("model", beside, lambda: (refusal, b""))
            raise
        graph = parts_of(model).graph
        self._keep("model", beside, lambda: ({}, wire.model_message(graph).SerializeToString()))
        return model

    def keep_program(self, read: Callable[[dict[str, Fingerprint]], Program]) -> Program:
        """Read the program, and keep it without large parts, as `keep_model` does."""
        beside: dict[str, Fingerprint] = {}
        program = read(beside)
        message = device_pb2.PrepareFromBuffersRequest(
            buffers=map(buffer_message, program.parts), program_format=program.format
        )
        self._keep("program", beside, lambda: ({}, message.SerializeToString()))
        return program

    def header(self, read: Callable[[], Header]) -> Header:
        """Return the file's header: as it is known, or else as `read` returns it, which is kept."""
        if (header := self._recall("header", _header)) is not None:
            return header
        header = read()
        self._keep("header", {}, lambda: ({}, json.dumps(asdict(header)).encode()))
        return header

    def write(self, kind: str, beside: dict[str, Fingerprint], about: dict[str, Any], message: bytes) -> None:
        """Write what the file became, unless it may have changed while it was read. Raise OSError or NnrtError."""
        sha256 = self._sha256()
        if sha256 is None or Fingerprint.of(self._path.stat()) != self._state:
            return
        if not all(map(self._is_settled, beside.values())):
            return
        self._records.write(self._name(kind, sha256), {**about, "beside": beside}, message)

    def _recall(self, kind: str, parse: Callable[[bytes], T]) -> T | None:
        try:
            known = self._records.read(self._state_name) or self._records.has_size(self._state.size_bytes)
            if not known or (sha256 := self._sha256()) is None:
                return None
            name = self._name(kind, sha256)
            if (record := self._records.read(name)) is None:
                return None
            about, message = record
            directory = self._path.parent.resolve()
            if any(Fingerprint.of((directory / at).stat()) != tuple(state) for at, state in about["beside"].items()):
                return None
            if "refusal" not in about:
                return parse(message)
        except (OSError, NnrtError, DecodeError, LookupError, TypeError, ValueError) as error:
            _log.info("%s is read again: %s", self._path, error)
            return None
        reason, place = about["refusal"]
        raise Unsupported(reason, place=f"{str(self._path)!r}{place}")

    def _keep(self, kind: str, beside: dict[str, Fingerprint], became: Became) -> None:
        if self._is_settled(self._state):
            FileWrite(self, kind, beside, became)

    def _is_settled(self, state: Fingerprint) -> bool:
        return max(state.written_ns, state.changed_ns) < self._began_ns - _SETTLED_NS

    def _sha256(self) -> str | None:
        """Return the SHA-256 of the file in its state, and keep it; None if the file has another state now."""
        if (record := self._records.read(self._state_name)) is not None:
            return str(record[0]["sha256"])
        file = OpenFile(self._path)
        _, digest = digest_of(file.descriptor)
        if Fingerprint.of(os.fstat(file.descriptor)) != self._state:
            return None
        if self._is_settled(self._state):
            self._records.write(self._state_name, {"sha256": digest.hex()}, b"")
        return digest.hex()

    @property
    def _state_name(self) -> str:
        return _digest(self._state)

    def _name(self, kind: str, sha256: str) -> str:
        # Another version of these packages may import the file otherwise.
        package = find_spec("onnx")
        origins = [__file__, package.origin if package else None]
        states = [Fingerprint.of(Path(origin).stat()) for origin in origins if origin]
        return f"{self._state.size_bytes}-{_digest(kind, sha256, self._options, __version__, states)}"


def known_file(
    model: object, shapes: Shapes | None, constants: Constants | None, cache: bool | str | os.PathLike[str]
) -> KnownFile | None:
    """Return what the cache knows of an ONNX file; None if the model is none, or the cache can't know it."""
    if cache is False or not isinstance(model, str | os.PathLike):
        return None
    try:
        if not is_onnx(model):
            return None
        return KnownFile(Path(model), shapes, constants, Records(cache_directory() if cache is True else Path(cache)))
    except (OSError, NnrtError, AttributeError, TypeError, ValueError) as error:  # Reading the file says why.
        _log.debug("what becomes of %s is not kept: %s", model, error)
        return None


class FileWrite(BackgroundWrite):
    """Write of what a file became, by a thread that also hashes the file."""

    def __init__(self, file: KnownFile, kind: str, beside: dict[str, Fingerprint], became: Became) -> None:
        self._file = file
        self._kind = kind
        self._beside = beside
        self._became = became
        # Each may hash the same file, whose SHA-256 this one then finds.
        self._earlier = [write.ended for write in writes_under_way() if isinstance(write, FileWrite)]
        super().__init__()

    def _write(self) -> None:
        about, message = self._became()
        del self._became  # It refers to the weights.
        for ended in self._earlier:
            ended.wait()
        try:
            self._file.write(self._kind, self._beside, about, message)
        except (OSError, NnrtError) as error:
            _log.info("what became of the file is not kept: %s", error)


class Records:
    """Records of a cache directory."""

    def __init__(self, directory: Path) -> None:
        """Open the directory, or make it. Raise OSError, and InvalidPath if others may write to it."""
        self._path = directory.absolute()
        StoreDirectory(self._path).make()

    def has_size(self, size: int) -> bool:
        """Return whether there is a record of what a file of that size became."""
        return any(self._path.glob(f"{size}-*{SUFFIX}"))

    def read(self, name: str) -> tuple[dict[str, Any], bytes] | None:
        """Return a record, which counts as a use; None if there is none that is whole."""
        path = self._path / f"{name}{SUFFIX}"
        try:
            about, parts = unpacked(_KIND, read(path))
        except FileNotFoundError:
            return None
        except (OSError, InvalidFile) as error:
            _log.info("%s is not used: %s", path, error)
            return None
        touch(path)
        return about, b"".join(bytes(part.data) for part in parts)

    def write(self, name: str, about: Mapping[str, Any], message: bytes) -> None:
        """Write a record, and remove the least recently used ones that are too many. Raise OSError."""
        with atomic_write(self._path / f"{name}{SUFFIX}", _OWNER, 0o600, is_synced=False) as file:
            for piece in packed(_KIND, about, [Part.of(message)]):
                file.write(piece)
        self.remove(MAX_RECORDS, MAX_BYTES)

    def remove(self, kept: int = 0, kept_bytes: int = 0) -> None:
        """Remove the least recently used records until only so many are left. Raise OSError."""
        records = []
        for entry in os.scandir(self._path):
            if entry.name.endswith(SUFFIX) or entry.name.startswith(f".nnrt-{_OWNER}-"):
                with suppress(FileNotFoundError):
                    records.append((entry.stat(follow_symlinks=False), entry.path))
        for status, path in sorted(records, key=lambda record: record[0].st_mtime_ns, reverse=True):
            kept, kept_bytes = kept - 1, kept_bytes - status.st_size
            if kept < 0 or kept_bytes < 0:
                with suppress(FileNotFoundError):
                    Path(path).unlink()


def _header(data: bytes) -> Header:
    about = json.loads(data)
    for name in ("inputs", "outputs", "optional_inputs"):
        about[name] = tuple(map(_declared, about[name]))
    return Header(**about)


def _declared(tensor: dict[str, Any]) -> DeclaredTensor:
    """Return a tensor whose tuples JSON has made lists."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in tensor.items()}
    return DeclaredTensor(**values)


def _program(data: bytes) -> Program:
    request = device_pb2.PrepareFromBuffersRequest.FromString(data)
    return Program(
        request.program_format,
        [
            AbsentPart(buffer.constant.sha256, buffer.constant.size_bytes)
            if buffer.HasField("constant")
            else Part.of(buffer.inline)
            for buffer in request.buffers
        ],
    )


def _described(value: ArrayLike) -> tuple[str, bool, tuple[int, ...], str]:
    """Describe a constant. Plain numbers fit other types than typed ones do."""
    is_typed, array = isinstance(value, np.ndarray | np.generic), np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError("its elements are objects")
    return array.dtype.name, is_typed, array.shape, hashlib.sha256(flat_bytes(np.ascontiguousarray(array))).hexdigest()


def _digest(*key: object) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
