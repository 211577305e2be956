"""Session that only asks a daemon for its device's state."""

import queue
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

import grpc
from typing_extensions import Self
from waiting import until

from nnrt_hdi.v2 import session_pb2, session_pb2_grpc


class Observer:
    """Raw session with a daemon, which closes it if it asks nothing for too long. A context manager."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        stub = session_pb2_grpc.DeviceSessionStub(self._channel)
        self._call = stub.Open(iter(self._requests.get, None), timeout=120)
        self._requests.put(session_pb2.SessionRequest(hello=session_pb2.Hello(client_name="observer")))
        self.welcome = next(self._call).welcome

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.put(session_pb2.SessionRequest(goodbye=session_pb2.Goodbye()))
        self._requests.put(None)
        with suppress(grpc.RpcError):  # The daemon may be gone.
            for _ in self._call:  # Reads to the end, so that the daemon has received the goodbye.
                pass
        self._channel.close()

    def state(self) -> Any:
        """Return the current DeviceState."""
        self._requests.put(session_pb2.SessionRequest(beat=session_pb2.Beat()))
        return next(self._call).beat.state

    def wait_for(self, wanted: Callable[[Any], bool]) -> Any:
        """Ask until `wanted` is true of the DeviceState, and return that state."""
        states: list[Any] = []

        def is_wanted() -> bool:
            states.append(self.state())
            return wanted(states[-1])

        until(is_wanted, lambda: states[-1])
        return states[-1]

    def wait_until_empty(self) -> None:
        """Wait until no other session, run or memory is left."""
        self.wait_for(lambda state: (state.sessions, state.running, state.queued, state.held_bytes) == (1, 0, 0, 0))
