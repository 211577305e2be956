"""Upload of a model: the client asks the daemon for it, sends the bytes that the daemon lacks, and asks again."""

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from nnrt_client.build.build_task import BuildTask
from nnrt_client.model.program import Program
from nnrt_client.session.compression import Compressor
from nnrt_client.session.session import Session
from nnrt_hdi import wire
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.batching import Batching
from nnrt_hdi.chunks import CHUNK_BYTES, cut_sizes
from nnrt_hdi.chunks import FEATURE as CHUNKS_FEATURE
from nnrt_hdi.errors import (
    ConnectionFailed,
    InvalidFile,
    InvalidParameter,
    OperationFailed,
    OutOfMemory,
    Unsupported,
)
from nnrt_hdi.files.file_part import FEATURE as FILES_FEATURE
from nnrt_hdi.files.file_part import FilePart
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES, Graph
from nnrt_hdi.limits import REQUEST_ID_BYTES
from nnrt_hdi.mapped_files import reading
from nnrt_hdi.part import AbsentPart, Part
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.tensor import flat_bytes
from nnrt_hdi.v2 import device_pb2, model_pb2, prepared_model_pb2

_log = logging.getLogger(__name__)

_ATTEMPTS = 3
# Connections that a build may lose. Each costs no more than the bytes that were under way.
_LOSSES = 3
# Most bytes that are sent to a new daemon without asking whether it takes the model: asking costs more.
_UNASKED_BYTES = 8 << 20
# From so many bytes on, constants go through shared memory to a daemon on this host. Fewer fit into a few messages.
_LEAST_SHARED_BYTES = 4 << 20
# Size of that shared memory. Each filling needs an RPC: with less memory, the RPCs would cost more than the copying.
_WINDOW_BYTES = 16 << 20
# Bytes per region that the daemon reads from a file itself.
_READ_BYTES = 8 << 20


class WeightsWanted(Exception):
    """The daemon lacks weights of which this client has only the digests."""


def compile_graph(build: BuildTask, graph: Graph, config: ModelConfig, batching: Batching | None = None) -> Any:
    """Ask the daemon to compile a graph, upload the constants that it lacks, and return its PreparedModelInfo.

    Raises the daemon's error, UnavailableDevice or ConnectionFailed if the daemon goes away meanwhile, and
    WeightsWanted if it lacks constants that have no data here.
    """
    request = device_pb2.PrepareModelRequest(
        model=wire.model_message(graph),
        config=wire.model_config_message(config),
        batching=wire.batching_message(batching),
    )
    parts = (
        AbsentPart(constant.sha256, constant.size_bytes)
        if constant.data is None
        else Part(flat_bytes(constant.data), constant.sha256)
        for constant in graph.constants.values()
    )
    return _ask_until_prepared(build, "NnrtDevice.PrepareModel", request, {part.sha256: part for part in parts})


def restore(build: BuildTask, parts: Sequence[Part], config: ModelConfig, batching: Batching | None = None) -> Any:
    """Ask the daemon to restore a compiled model that its device exported, and return its PreparedModelInfo.

    With `batching`, the caller must have checked that the source model computes rows independently of each other.
    """
    return _restore(build, "NnrtDevice.PrepareModelFromModelCache", parts, config, batching=batching)


def load_offline(build: BuildTask, parts: Sequence[Part], config: ModelConfig) -> Any:
    """Ask the daemon to load an offline model, and return its PreparedModelInfo."""
    return _restore(build, "NnrtDevice.PrepareOfflineModel", parts, config)


def load_program(build: BuildTask, program: Program, config: ModelConfig, batching: Batching | None = None) -> Any:
    """Ask the daemon to load a model file in the device's own format, and return its PreparedModelInfo."""
    return _restore(build, "NnrtDevice.PrepareOfflineModel", program.parts, config, program.format, batching)


def _restore(
    build: BuildTask,
    name: str,
    parts: Sequence[Part],
    config: ModelConfig,
    program_format: str = "",
    batching: Batching | None = None,
) -> Any:
    request = device_pb2.PrepareFromBuffersRequest(
        buffers=map(buffer_message, parts),
        config=wire.model_config_message(config),
        program_format=program_format,
        batching=wire.batching_message(batching),
    )
    return _ask_until_prepared(build, name, request, {part.sha256: part for part in parts})


def _ask_until_prepared(build: BuildTask, name: str, request: Any, parts: Mapping[bytes, Part]) -> Any:
    """Ask until the daemon has prepared the model; if that fails, ask it to release the model."""
    request.request_id = secrets.token_bytes(REQUEST_ID_BYTES)
    request.pin = build.is_pinned
    session = build.session
    try:
        return _ask_and_upload(build, name, request, parts)
    except BaseException:
        session.try_call("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(request_id=request.request_id))
        raise


def _ask_and_upload(build: BuildTask, name: str, request: Any, parts: Mapping[bytes, Part]) -> Any:
    """Ask the daemon for the model, and upload the parts that it lacks, until it has prepared the model."""
    session = build.session
    attempts = losses = 0
    # The first answer names what is missing. The second can name more only if the daemon had to drop something.
    while attempts < _ATTEMPTS:
        try:
            uploads = session.uploads
            wanted = _surely_missing(session, parts)
            if not wanted:
                reply = _ask(build, name, request)
                if reply.HasField("prepared"):
                    return reply.prepared
                wanted = _wanted(parts, reply.missing.constants, session.place)
            with build.locking(session.uploading):
                try:
                    if session.uploads == uploads:  # Else another build has uploaded since, perhaps the same parts.
                        attempts += 1
                        if attempts == 1:
                            wanted = _let_daemon_read(build, wanted)
                        if wanted:
                            _upload(build, wanted)
                finally:
                    session.uploads += 1  # Only now: answers that other builds got during the upload are outdated.
        except (ConnectionFailed, InvalidParameter) as error:
            # The session goes on and keeps what has arrived, so the build asks again what is missing. Bytes that were
            # under way at the loss may arrive after the answer. Then the daemon expects other bytes than it answered.
            losses += isinstance(error, ConnectionFailed) or losses > 0
            if not 0 < losses <= _LOSSES:
                raise
    raise OperationFailed("it asks for the same bytes again and again", place=session.place)


def _surely_missing(session: Session, parts: Mapping[bytes, Part]) -> list[tuple[Part, int]]:
    """Return the parts to send before asking, as `_wanted` does, or an empty list.

    The client sends parts unasked only if the daemon surely lacks them and they are so small that sending them in vain
    costs less than a question.
    """
    if session.uploads or session.keeps_models:
        return []
    large = [part for part in parts.values() if part.size_bytes > INLINE_CONSTANT_BYTES]
    if any(isinstance(part, AbsentPart) for part in large):
        return []
    return [(part, 0) for part in large] if sum(part.size_bytes for part in large) <= _UNASKED_BYTES else []


def _ask(build: BuildTask, name: str, request: Any) -> Any:
    answer = None
    with closing(build.stream(name, request)) as replies:
        for reply in replies:  # The daemon releases a model whose client stops reading.
            if reply.HasField("progress"):
                build.progress(reply.progress.stage, reply.progress.fraction)
            else:
                answer = reply
    if answer is None:
        raise OperationFailed(f"it ended {name} without an answer", place=build.session.place)
    return answer


def _wanted(parts: Mapping[bytes, Part], missing: Iterable[Any], place: str) -> list[tuple[Part, int]]:
    """Pair the parts to send with the bytes of each that have arrived; raise OperationFailed for unknown parts."""
    try:
        wanted = [(parts[entry.sha256], entry.received_bytes) for entry in missing]
    except KeyError as error:
        raise OperationFailed("it asks for bytes that are no part of the model", place=place) from error
    if any(isinstance(part, AbsentPart) for part, _ in wanted):
        raise WeightsWanted
    return wanted


def _let_daemon_read(build: BuildTask, wanted: list[tuple[Part, int]]) -> list[tuple[Part, int]]:
    """Let a daemon on this host read the parts in files itself, and return the parts that the client must send.

    If the daemon can't read files, or these are small or not in memory, the client must send all parts. If the daemon
    has failed to read them, this returns no parts, because the daemon names all parts that it still lacks in its next
    answer.
    """
    session = build.session
    in_files = [(part, received) for part, received in wanted if isinstance(part, FilePart)]
    total = sum(part.size_bytes - received for part, received in in_files)
    local_socket = session.local_socket
    if local_socket is None or FILES_FEATURE not in session.welcome.features or total < _LEAST_SHARED_BYTES:
        return wanted
    if not all(part.is_in_memory(received) for part, received in in_files):
        return wanted
    build.progress("uploading", 0.0)
    try:
        chunks = [
            device_pb2.ConstantChunk(
                sha256=part.sha256,
                size_bytes=part.size_bytes,
                offset=offset,
                region={
                    "buffer_id": buffer_id,
                    "offset": part.start + offset,
                    "data_size": min(_READ_BYTES, part.size_bytes - offset),
                },
            )
            for part, received in in_files
            for buffer_id in (local_socket.share_file(part.file),)
            for offset in range(received, part.size_bytes, _READ_BYTES)
        ]
        chunks[0].more.extend(chunks[1:])
        build.call("NnrtDevice.UploadConstants", iter(chunks[:1]), build.remaining_s())
    except (InvalidFile, InvalidParameter, OutOfMemory, Unsupported) as error:
        build.check()
        _log.info("the daemon does not read the file itself: %s", error)
        return []
    build.sent_bytes += total
    rest = [(part, received) for part, received in wanted if not isinstance(part, FilePart)]
    if not rest:
        build.progress("uploading", 1.0)
    return rest


def _upload(build: BuildTask, wanted: Sequence[tuple[Part, int]]) -> None:
    """Send parts: through shared memory if they are large and the daemon is on this host, else over gRPC."""
    session = build.session
    build.progress("uploading", 0.0)
    total = sum(part.size_bytes - received for part, received in wanted)
    if CHUNKS_FEATURE in session.welcome.features and session.local_socket is not None and total >= _LEAST_SHARED_BYTES:
        try:
            memory = session.local_socket.staging.take(_WINDOW_BYTES)
            buffer_id = session.local_socket.buffer_of(memory)
        except (OutOfMemory, ConnectionFailed) as error:  # Perhaps the session has no room for a buffer.
            _log.info("constants travel over gRPC: %s", error)
        else:
            _upload_through_memory(build, wanted, memory, buffer_id, total)
            return
    _upload_over_grpc(build, wanted)


def _upload_through_memory(
    build: BuildTask, wanted: Sequence[tuple[Part, int]], memory: SharedMemory, buffer_id: int, total: int
) -> None:
    """Send parts through memory that the daemon has mapped, one filling after another."""
    message, filled, sent = None, 0, 0

    def send() -> None:
        build.call("NnrtDevice.UploadConstants", iter((message,)), build.remaining_s())
        build.sent_bytes += filled
        build.progress("uploading", sent / total)

    for part, received in wanted:
        for offset, size in _pieces(part, 0, received):
            if filled + size > _WINDOW_BYTES:
                send()
                message, filled = None, 0
            part.fill(memory.view[filled : filled + size], offset)
            region = model_pb2.BufferRegion(buffer_id=buffer_id, offset=filled, data_size=size)
            chunk = device_pb2.ConstantChunk(
                sha256=part.sha256, size_bytes=part.size_bytes, offset=offset, region=region
            )
            if message is None:
                message = chunk
            else:
                message.more.append(chunk)
            filled += size
            sent += size
    send()


def _upload_over_grpc(build: BuildTask, wanted: Sequence[tuple[Part, int]]) -> None:
    failures: list[BaseException] = []
    message_bytes = build.session.welcome.limits.message_bytes

    def chunks() -> Iterator[Any]:
        try:
            yield from _chunks(wanted, message_bytes, build.progress, build.session.compressor)
        except BaseException as error:  # In a thread of gRPC, which reports only that there was an error.
            failures.append(error)

    messages = _pack(chunks(), message_bytes) if CHUNKS_FEATURE in build.session.welcome.features else chunks()
    build.call("NnrtDevice.UploadConstants", messages, build.remaining_s())
    if failures:
        raise failures[0]


def _chunks(
    wanted: Sequence[tuple[Part, int]],
    message_bytes: int,
    progress: Callable[[str, float], None],
    compressor: Compressor | None,
) -> Iterator[Any]:
    total = sum(part.size_bytes - received for part, received in wanted)
    sent = 0
    for part, received in wanted:
        for offset, size in _pieces(part, message_bytes, received):
            piece = part.piece(offset, size)
            chunk = device_pb2.ConstantChunk(sha256=part.sha256, size_bytes=part.size_bytes, offset=offset)
            with reading(piece):
                if compressor is not None and (packed := compressor.compress(piece)) is not None:
                    chunk.data, chunk.expanded_bytes = packed, len(piece)
                else:
                    chunk.data = bytes(piece)
            yield chunk
            sent += size
            progress("uploading", sent / total if total else 1.0)


def _pieces(part: Part, message_bytes: int, received: int) -> Iterable[tuple[int, int]]:
    """Cut the rest of a part into pieces, each an offset and a size. An empty part has one empty piece."""
    return cut_sizes(part.size_bytes, message_bytes, received) if part.size_bytes else ((0, 0),)


def _pack(chunks: Iterator[Any], message_bytes: int) -> Iterator[Any]:
    """Put short chunks together into messages."""
    most_bytes = min(CHUNK_BYTES, message_bytes // 2)
    message, size_bytes = None, 0
    for chunk in chunks:
        size_bytes += chunk.ByteSize()
        if message is None or size_bytes > most_bytes:
            if message is not None:
                yield message
            message, size_bytes = chunk, chunk.ByteSize()
        else:
            message.more.append(chunk)
    if message is not None:
        yield message


def buffer_message(part: Part) -> Any:
    """Return the message for a part: with its bytes if it is as small as inline constants, else with a reference."""
    if part.size_bytes <= INLINE_CONSTANT_BYTES:
        return model_pb2.SharedBuffer(inline=bytes(part.data))
    return model_pb2.SharedBuffer(constant=model_pb2.ConstantRef(sha256=part.sha256, size_bytes=part.size_bytes))
