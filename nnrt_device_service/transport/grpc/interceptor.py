"""Conversion of exceptions to gRPC statuses, so that servicers need no `try` for it."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from nnrt_device_service.host.log_context import call_context
from nnrt_device_service.runs.failures import report_error
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.wire import rich_status
from nnrt_hdi.wire.run_messages import read_message, serialized

_log = logging.getLogger(__name__)

OUR_SERVICES = "/nnrt_hdi.v2."


# Called with the context and the method of a call of our services, and with the error that the client gets.
OnError = Callable[[Any, str, NnrtError], None]


class ErrorInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Interceptor that answers every failed call of our services with a rich status, and logs the calls."""

    def __init__(self, on_error: OnError) -> None:
        self._on_error = on_error

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = continuation(details)
        if handler is None or not details.method.startswith(OUR_SERVICES):
            return handler
        method = details.method.removeprefix(OUR_SERVICES)
        arity, translated = arity_of(handler), _translated_stream if handler.response_streaming else _translated
        return handler._replace(**{arity: translated(getattr(handler, arity), method, self._on_error)})


class CodecInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Interceptor that reads and writes run streams with `run_messages`, which copies less than protobuf."""

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = continuation(details)
        if handler is None or details.method not in _RUN_STREAMS:
            return handler
        read = read_message if handler.request_streaming else handler.request_deserializer
        return handler._replace(request_deserializer=read, response_serializer=serialized)


def arity_of(handler: Any) -> str:
    """Return the name of the attribute in which a gRPC handler has its function, such as `unary_stream`."""
    request, reply = handler.request_streaming, handler.response_streaming
    return f"{'stream' if request else 'unary'}_{'stream' if reply else 'unary'}"


_RUN_STREAMS = {f"{OUR_SERVICES}PreparedModel/RunStream", f"{OUR_SERVICES}PreparedModel/AwaitRun"}


def _translated(behavior: Callable[[Any, Any], Any], method: str, on_error: OnError) -> Callable[[Any, Any], Any]:
    def call(request: Any, context: Any) -> Any:
        with _translating(context, method, on_error):
            return behavior(request, context)

    return call


def _translated_stream(
    behavior: Callable[[Any, Any], Any], method: str, on_error: OnError
) -> Callable[[Any, Any], Iterator[Any]]:
    def call(request: Any, context: Any) -> Iterator[Any]:
        with _translating(context, method, on_error):
            yield from behavior(request, context)

    return call


@contextmanager
def _translating(context: Any, method: str, on_error: OnError) -> Iterator[None]:
    _log.debug("%s from %s", method, context.peer())
    with call_context():
        try:
            yield
        except (grpc.RpcError, GeneratorExit):
            raise  # The client is gone: gRPC ends the handler itself.
        except BaseException as error:  # With SystemExit from a backend's code gRPC would never end the call.
            error_sent = report_error(error, method)
            on_error(context, method, error_sent)
            context.abort_with_status(rich_status(error_sent))
