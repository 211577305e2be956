"""gRPC server that forwards every call to a daemon, and can end, pause or change calls."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import grpc
from typing_extensions import Self

_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_CALLS = 40
# Longer than any test waits.
_PAUSE_S = 60.0


class Relay(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Proxy of the daemon at an address. A context manager."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._threads = ThreadPoolExecutor(_CALLS)
        self._server = grpc.server(self._threads, handlers=[self], options=_OPTIONS)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        # By method name: the number of replies before a call loses one and ends, and whether it ends without an error.
        self.ends: dict[str, tuple[int, bool]] = {}
        # By method name: the number of replies before a call pauses until `may_go_on` is set.
        self.pauses: dict[str, int] = {}
        self.may_go_on = threading.Event()
        # By method name: the function that changes its replies.
        self.forgers: dict[str, Callable[[bytes], bytes]] = {}

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.may_go_on.set()
        self._server.stop(0).wait()
        self._channel.close()
        self._threads.shutdown()

    def service(self, call: Any) -> Any:
        """Return the handler of a call. See grpc.GenericRpcHandler.

        Every call is handled as a stream of requests and replies, because gRPC's transport treats them all alike.
        """

        def handed_on(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            there = self._channel.stream_stream(call.method)(requests, metadata=_metadata(call.invocation_metadata))
            context.add_callback(there.cancel)
            name = call.method.rpartition("/")[2]
            try:
                if name not in self.ends:
                    replies = (self.forgers.get(name, bytes)(reply) for reply in there)
                    if name in self.pauses:
                        yield from islice(replies, self.pauses[name])
                        self.may_go_on.wait(_PAUSE_S)
                    yield from replies
                    return
                count, is_well = self.ends[name]
                yield from islice(there, count)
                next(there, None)  # This reply is lost.
                if not is_well:
                    context.abort(grpc.StatusCode.UNAVAILABLE, "the relay broke it off")
            except grpc.RpcError:
                context.set_trailing_metadata(_metadata(there.trailing_metadata()))
                context.abort(there.code(), there.details())

        return grpc.stream_stream_rpc_method_handler(handed_on)


def _metadata(given: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((key, value) for key, value in given or () if not key.startswith(("grpc-", "user-agent")))
