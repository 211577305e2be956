"""How a model reaches a daemon: asked for, its missing constants sent, asked for again."""

import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

from nnrt_client.connection import Connection
from nnrt_hdi import wire
from nnrt_hdi.backend import ModelConfig, Support
from nnrt_hdi.errors import ConnectionFailed, OperationFailed, TimedOut
from nnrt_hdi.graph import Constant, Graph
from nnrt_hdi.v2 import device_pb2

Progress = Callable[[str, float], None]

CHUNK_BYTES = 1 << 20
_ATTEMPTS = 3
# Connections that a build may lose; each costs no more than what was on the way.
_LOSSES = 3
_REQUEST_ID_BYTES = 16


def ask_supported(connection: Connection, graph: Graph) -> list[Support]:
    """Per node, whether the device runs it. Sends no weights."""
    reply = connection.call(
        connection.device.GetSupportedOperation,
        device_pb2.GetSupportedOperationRequest(model=wire.model_message(graph)),
        connection.settings.request_timeout_s,
        "NnrtDevice.GetSupportedOperation",
    )
    return wire.supports(reply)


def prepare(connection: Connection, graph: Graph, config: ModelConfig, progress: Progress) -> Any:
    """Have a model compiled; the PreparedModelInfo. Uploads the constants that the daemon lacks.

    Raises whatever the daemon refuses with, and UnavailableDevice or ConnectionFailed if it goes away
    meanwhile.
    """
    deadline = time.monotonic() + connection.settings.build_timeout_s
    request = device_pb2.PrepareModelRequest(
        model=wire.model_message(graph),
        config=wire.model_config_message(config),
        request_id=secrets.token_bytes(_REQUEST_ID_BYTES),
    )
    attempts = losses = 0
    # The first answer names what is missing. The second can name more only if the daemon had to drop something.
    while attempts < _ATTEMPTS:
        try:
            uploads = connection.uploads
            reply = _ask(connection, request, progress, _remaining_s(deadline))
            if reply.HasField("prepared"):
                return reply.prepared
            if not connection.uploading.acquire(timeout=_remaining_s(deadline)):
                raise TimedOut("other uploads took all the time (build_timeout_s)", place=connection.place)
            try:
                if connection.uploads == uploads:  # Else another build has sent something since, perhaps the same.
                    attempts += 1
                    upload(connection, graph, reply.missing.constants, progress, _remaining_s(deadline))
            finally:
                connection.uploads += 1  # Now, for who asked meanwhile was told of less than has arrived.
                connection.uploading.release()
        except ConnectionFailed:  # The session lives on, with what has arrived: ask again what is missing.
            losses += 1
            if losses > _LOSSES:
                raise
    raise OperationFailed("it asks for the same constants again and again", place=connection.place)


def upload(connection: Connection, graph: Graph, missing: Any, progress: Progress, timeout_s: float) -> None:
    """Send constants from where the daemon says, in chunks that are views of their memory."""
    constants = {constant.sha256: constant for constant in graph.constants.values()}
    wanted = [(constants[entry.sha256], entry.received_bytes) for entry in missing]
    failures: list[Exception] = []

    def chunks() -> Iterator[Any]:
        try:
            yield from _chunks(wanted, progress)
        except Exception as error:  # In a thread of gRPC's, which would tell only that there was one.
            failures.append(error)

    connection.call(
        connection.device.UploadConstants,
        chunks(),
        timeout_s,
        "NnrtDevice.UploadConstants",
    )
    if failures:
        raise failures[0]


def _remaining_s(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)


def _ask(connection: Connection, request: Any, progress: Progress, timeout_s: float) -> Any:
    replies = connection.stream(
        connection.device.PrepareModel,
        request,
        timeout_s,
        "NnrtDevice.PrepareModel",
    )
    answer = None
    for reply in replies:  # To the end of the stream: the daemon takes back a model whose client stops listening.
        if reply.HasField("progress"):
            progress(reply.progress.stage, reply.progress.fraction)
        else:
            answer = reply
    if answer is None:
        raise OperationFailed("it ended PrepareModel without an answer", place=connection.place)
    return answer


def _chunks(wanted: list[tuple[Constant, int]], progress: Progress) -> Iterator[Any]:
    total = sum(constant.size_bytes - received for constant, received in wanted)
    sent = 0
    for constant, received in wanted:
        assert constant.data is not None  # A client's graph holds its own constants.
        data = constant.data.data.cast("B") if constant.size_bytes else memoryview(b"")
        # An empty constant is one empty chunk.
        for start in range(received, max(constant.size_bytes, 1), CHUNK_BYTES):
            piece = data[start : start + CHUNK_BYTES]
            yield device_pb2.ConstantChunk(
                sha256=constant.sha256, size_bytes=constant.size_bytes, offset=start, data=bytes(piece)
            )
            sent += len(piece)
            progress("uploading", sent / total if total else 1.0)
