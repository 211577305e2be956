"""The one place where exceptions become gRPC statuses. No servicer has a `try` for it."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from nnrt_hdi.errors import NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.wire import rich_status
from nnrt_hdi.wire.run_codec import REQUEST_READERS, serialized

_log = logging.getLogger(__name__)

OUR_SERVICES = "/nnrt_hdi.v2."


def as_nnrt_error(error: BaseException, method: str) -> NnrtError:
    """The error to tell the client. One that nobody raised on purpose is logged, and only its kind told."""
    if isinstance(error, NnrtError):
        return error
    if isinstance(error, MemoryError):
        _log.error("%s found no memory: %s", method, error)
        return OutOfMemory("the daemon's host has not enough memory for it; ask for less", place=method)
    _log.error("%s failed unexpectedly", method, exc_info=error)
    return OperationFailed(f"the daemon failed with {type(error).__name__}; its log has the details", place=method)


# Called with the context and the method of a call of ours, and with the error that it is answered with.
OnError = Callable[[Any, str, NnrtError], None]


class ErrorInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Gives every failed call of our services a rich status, and logs the calls."""

    def __init__(self, on_error: OnError) -> None:
        self._on_error = on_error

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = continuation(details)
        if handler is None or not details.method.startswith(OUR_SERVICES):
            return handler
        method = details.method.removeprefix(OUR_SERVICES)
        arity = ("stream" if handler.request_streaming else "unary") + (
            "_stream" if handler.response_streaming else "_unary"
        )
        behavior = getattr(handler, arity)
        translated = _translated_stream if handler.response_streaming else _translated
        make_handler = getattr(grpc, f"{arity}_rpc_method_handler")
        return make_handler(
            translated(behavior, method, self._on_error),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


class CodecInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Reads and writes the messages of runs as `run_codec` does it."""

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler, read = continuation(details), REQUEST_READERS.get(details.method)
        if handler is None or read is None:
            return handler
        return handler._replace(request_deserializer=read, response_serializer=serialized)


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
    try:
        yield
    except grpc.RpcError:
        raise  # The client is gone: gRPC's own way out of a handler.
    except (Exception, SystemExit) as error:  # To gRPC a call in which code of a backend exits would never end.
        told = as_nnrt_error(error, method)
        _log.debug("%s answered %s: %s", method, told.code.name, told)
        on_error(context, method, told)
        context.abort_with_status(rich_status(told))
