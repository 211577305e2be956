"""Client of a server of models, for those who look after it."""

from collections.abc import Sequence
from typing import Any

import grpc

from nnrt_client.serving.grpc.reflection import SERVICE
from nnrt_client.serving.wire import open_inference_pb2 as pb
from nnrt_client.session.credentials import (
    channel_credentials,
    diagnose_handshake,
    name_options,
    speaks_tls,
    token_metadata,
)
from nnrt_client.settings import Settings
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import ConnectionFailed, NnrtError, OperationFailed, OperationForbidden, UnavailableDevice
from nnrt_hdi.ports import port_number

# Largest answer, with the state of thousands of models.
_MOST_BYTES = 64 << 20
_ERRORS: dict[grpc.StatusCode, type[NnrtError]] = {
    grpc.StatusCode.UNAUTHENTICATED: ConnectionFailed,
    grpc.StatusCode.PERMISSION_DENIED: OperationForbidden,
    grpc.StatusCode.UNAVAILABLE: UnavailableDevice,
    grpc.StatusCode.DEADLINE_EXCEEDED: UnavailableDevice,
}


class ServerClient(Closable):
    """Connection to a server of models. A context manager."""

    def __init__(self, address: str, settings: Settings) -> None:
        """Prepare the connection to HOST:PORT. Raises NnrtError for an address or credentials that can't be used."""
        self._address = address
        self._settings = settings
        if port_number(address.rpartition(":")[2]) is None:
            raise ConnectionFailed("use HOST:PORT, as in 127.0.0.1:8001", place=f"server at {address!r}")
        self._token = token_metadata(address, settings)
        options = (("grpc.max_receive_message_length", _MOST_BYTES), *name_options(settings))
        if speaks_tls(address, settings):
            self._channel = grpc.secure_channel(address, channel_credentials(settings), options)
        else:
            self._channel = grpc.insecure_channel(address, options)

    def index(self) -> Sequence[Any]:
        """Return the state of every version of every model. Raises NnrtError if the server doesn't answer."""
        models: Sequence[Any] = self._call(
            "RepositoryIndex", pb.RepositoryIndexRequest(), pb.RepositoryIndexResponse
        ).models
        return models

    def statistics(self) -> Sequence[Any]:
        """Return the counters of the versions that take requests. Raises NnrtError if the server doesn't answer."""
        counted: Sequence[Any] = self._call(
            "ModelStatistics", pb.ModelStatisticsRequest(), pb.ModelStatisticsResponse
        ).model_stats
        return counted

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _call(self, name: str, request: Any, kind: Any) -> Any:
        call = self._channel.unary_unary(f"/{SERVICE}/{name}", type(request).SerializeToString, kind.FromString)
        try:
            return call(request, timeout=self._settings.query_timeout_s, metadata=self._token)
        except grpc.RpcError as error:
            reached: Any = error
            why = "" if reached.code() not in _ERRORS else diagnose_handshake(self._address, self._settings)
            raise _ERRORS.get(reached.code(), OperationFailed)(
                why or reached.details(), place=f"server at {self._address}"
            ) from error
