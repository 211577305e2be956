"""How a model reaches a daemon: asked for, what it lacks of the bytes sent, asked for again."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from nnrt_client.build import Build
from nnrt_client.connection import Connection
from nnrt_client.savings import Compressor
from nnrt_hdi import wire
from nnrt_hdi.backend import ModelConfig, Support
from nnrt_hdi.chunks import CHUNK_BYTES
from nnrt_hdi.container import Part
from nnrt_hdi.errors import ConnectionFailed, OperationFailed
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES, Graph
from nnrt_hdi.graph_file import constant_parts
from nnrt_hdi.limits import REQUEST_ID_BYTES
from nnrt_hdi.v2 import device_pb2, model_pb2, prepared_model_pb2

_ATTEMPTS = 3
# Connections that a build may lose; each costs no more than what was on the way.
_LOSSES = 3


def ask_supported(connection: Connection | Build, graph: Graph) -> list[Support]:
    """Per node, whether the device runs it. Sends no weights."""
    reply = connection.call(
        connection.device.GetSupportedOperation,
        device_pb2.GetSupportedOperationRequest(model=wire.model_message(graph)),
        connection.settings.request_timeout_s,
        "NnrtDevice.GetSupportedOperation",
    )
    return wire.supports(reply)


def prepare(build: Build, graph: Graph, config: ModelConfig) -> Any:
    """Have a model compiled; the PreparedModelInfo. Uploads the constants that the daemon lacks.

    Raises whatever the daemon refuses with, and UnavailableDevice or ConnectionFailed if it goes away
    meanwhile.
    """
    request = device_pb2.PrepareModelRequest(model=wire.model_message(graph), config=wire.model_config_message(config))
    return _prepared(build, build.device.PrepareModel, request, constant_parts(graph), "NnrtDevice.PrepareModel")


def restore(build: Build, parts: Sequence[Part], config: ModelConfig) -> Any:
    """Have what a device exported loaded again; the PreparedModelInfo."""
    method = build.device.PrepareModelFromModelCache
    return _restored(build, method, parts, config, "NnrtDevice.PrepareModelFromModelCache")


def load_offline(build: Build, parts: Sequence[Part], config: ModelConfig) -> Any:
    """Have an offline model loaded; the PreparedModelInfo."""
    return _restored(build, build.device.PrepareOfflineModel, parts, config, "NnrtDevice.PrepareOfflineModel")


def _restored(build: Build, method: Callable[..., Any], parts: Sequence[Part], config: ModelConfig, what: str) -> Any:
    request = device_pb2.PrepareFromBuffersRequest(
        buffers=map(_buffer, parts), config=wire.model_config_message(config)
    )
    return _prepared(build, method, request, {part.sha256: part for part in parts}, what)


def _prepared(build: Build, method: Callable[..., Any], request: Any, parts: Mapping[bytes, Part], what: str) -> Any:
    """Ask until it is prepared; who gives up before leaves nothing in the daemon."""
    request.request_id = secrets.token_bytes(REQUEST_ID_BYTES)
    connection = build.connection
    try:
        return _asked(build, method, request, parts, what)
    except BaseException:
        connection.tell(connection.models.Release, prepared_model_pb2.ReleaseRequest(request_id=request.request_id))
        raise


def _asked(build: Build, method: Callable[..., Any], request: Any, parts: Mapping[bytes, Part], what: str) -> Any:
    """Each time the daemon says what it lacks it is sent that."""
    connection = build.connection
    attempts = losses = 0
    # The first answer names what is missing. The second can name more only if the daemon had to drop something.
    while attempts < _ATTEMPTS:
        try:
            uploads = connection.uploads
            reply = _ask(build, method, request, what)
            if reply.HasField("prepared"):
                return reply.prepared
            with build.holding(connection.uploading):
                try:
                    if connection.uploads == uploads:  # Else another build has sent something since, perhaps the same.
                        attempts += 1
                        _upload(build, _wanted(parts, reply.missing.constants, connection.place))
                finally:
                    connection.uploads += 1  # Now, for who asked meanwhile was told of less than has arrived.
        except ConnectionFailed:  # The session lives on, with what has arrived: ask again what is missing.
            losses += 1
            if losses > _LOSSES:
                raise
    raise OperationFailed("it asks for the same bytes again and again", place=connection.place)


def _ask(build: Build, method: Callable[..., Any], request: Any, what: str) -> Any:
    answer = None
    with closing(build.stream(method, request, what)) as replies:
        for reply in replies:  # To the end of the stream: the daemon takes back a model whose client stops listening.
            if reply.HasField("progress"):
                build.progress(reply.progress.stage, reply.progress.fraction)
            else:
                answer = reply
    if answer is None:
        raise OperationFailed(f"it ended {what} without an answer", place=build.connection.place)
    return answer


def _wanted(parts: Mapping[bytes, Part], missing: Iterable[Any], place: str) -> list[tuple[Part, int]]:
    """What to send, each from where to go on."""
    try:
        return [(parts[entry.sha256], entry.received_bytes) for entry in missing]
    except KeyError as error:
        raise OperationFailed("it asks for bytes that are no part of the model", place=place) from error


def _upload(build: Build, wanted: Sequence[tuple[Part, int]]) -> None:
    """Send parts from where the daemon says, in chunks."""
    failures: list[BaseException] = []
    chunk_bytes = min(CHUNK_BYTES, build.connection.welcome.limits.message_bytes or CHUNK_BYTES)

    def chunks() -> Iterator[Any]:
        try:
            yield from _chunks(wanted, chunk_bytes, build.progress, build.connection.compressor)
        except BaseException as error:  # In a thread of gRPC's, which would tell only that there was one.
            failures.append(error)

    build.call(build.device.UploadConstants, chunks(), build.remaining_s(), "NnrtDevice.UploadConstants")
    if failures:
        raise failures[0]


def _chunks(
    wanted: Sequence[tuple[Part, int]],
    chunk_bytes: int,
    progress: Callable[[str, float], None],
    compressor: Compressor | None,
) -> Iterator[Any]:
    total = sum(part.data.nbytes - received for part, received in wanted)
    sent = 0
    for part, received in wanted:
        size = part.data.nbytes
        # An empty part is one empty chunk.
        for start in range(received, max(size, 1), chunk_bytes):
            piece = part.data[start : start + chunk_bytes]
            chunk = device_pb2.ConstantChunk(sha256=part.sha256, size_bytes=size, offset=start)
            if compressor is not None and (packed := compressor.packed(piece)) is not None:
                chunk.data, chunk.expanded_bytes = packed, len(piece)
            else:
                chunk.data = bytes(piece)
            yield chunk
            sent += len(piece)
            progress("uploading", sent / total if total else 1.0)


def _buffer(part: Part) -> Any:
    """Small ones travel inline, as constants do."""
    if part.data.nbytes <= INLINE_CONSTANT_BYTES:
        return model_pb2.SharedBuffer(inline=bytes(part.data))
    return model_pb2.SharedBuffer(constant=model_pb2.ConstantRef(sha256=part.sha256, size_bytes=part.data.nbytes))
