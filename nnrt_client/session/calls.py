"""RPCs of a session: each has a name and a deadline, and ends with NNRt's error."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import grpc

from nnrt_client.session.broken_call import BrokenCall
from nnrt_client.session.channel import Channel
from nnrt_client.session.connection_state import ConnectionState
from nnrt_client.session.errands import elsewhere
from nnrt_client.tracing.tracer import Metadata, SessionTracer
from nnrt_hdi.errors import ConnectionFailed, NnrtError, TimedOut

# RPCs that may be made again after their channel was lost, because a second one changes nothing.
_REPEATABLE = {
    "NnrtDevice.GetCounters",
    "NnrtDevice.GetDeviceStatus",
    "NnrtDevice.GetSupportedOperation",
    "NnrtDevice.ReleaseBuffer",
    "PreparedModel.CancelRuns",
    "PreparedModel.ExportModelCache",
    "PreparedModel.GetInputDimRanges",
    "PreparedModel.Release",
}
_TRIES = 3

Guard = Callable[[Any], AbstractContextManager[object]]
# Guard of a call that only the session ends.
unguarded: Guard = nullcontext


class Calls(ConnectionState):
    """Connection on which RPCs are made.

    Every RPC goes through `call`, `stream`, `tell` or `start`, which find it by name ("NnrtDevice.AllocateBuffer"),
    give it a deadline and translate its errors. A `guard` is entered with each call while it is under way. If the guard
    raises an error in place of gRPC's, the caller gets that.
    """

    # None where runs are not traced.
    tracer: SessionTracer | None = None

    def call(self, name: str, request: Any, timeout_s: float, guard: Guard = unguarded) -> Any:
        """Make one RPC and return its reply; make it again if its channel was lost and the RPC may be repeated."""
        with self._traced(name) as metadata:
            return elsewhere(self._call, name, request, timeout_s, guard, metadata)

    def _traced(self, name: str) -> AbstractContextManager[Metadata]:
        return nullcontext(()) if self.tracer is None else self.tracer.calling(name)

    def _call(self, name: str, request: Any, timeout_s: float, guard: Guard, metadata: Metadata) -> Any:
        deadline = time.monotonic() + timeout_s
        tries = _TRIES if name in _REPEATABLE else 1
        while True:
            tries -= 1
            try:
                with self._on_channel(name, timeout_s) as channel:
                    remaining_s = max(deadline - time.monotonic(), 0.0)
                    begun = channel.method(name).future(
                        request, timeout=remaining_s, metadata=(*self.metadata, *metadata)
                    )
                    with channel.cancelling_on_close(begun), guard(begun):
                        return begun.result()
            except ConnectionFailed:
                if not tries or time.monotonic() >= deadline:
                    raise

    def stream(self, name: str, request: Any, timeout_s: float, guard: Guard = unguarded) -> Generator[Any, None, None]:
        """Make one RPC and yield its replies; translate errors while they are read.

        Only for threads that receive no signals.
        """
        with self._traced(name) as metadata, self._on_channel(name, timeout_s) as channel:
            begun = channel.method(name)(request, timeout=timeout_s, metadata=(*self.metadata, *metadata))
            with channel.cancelling_on_close(begun), guard(begun):
                yield from begun

    def tell(self, name: str, request: Any) -> None:
        """Make an RPC whose outcome doesn't matter, if the session is attached; wait a moment for its end."""
        if self.is_attached:
            elsewhere(self._tell, name, request)

    def _tell(self, name: str, request: Any) -> None:
        channel = self._channel
        if channel is None:
            return
        # gRPC raises ValueError where the channel was closed meanwhile.
        with suppress(grpc.RpcError, grpc.FutureTimeoutError, grpc.FutureCancelledError, ValueError):
            begun = channel.method(name).future(request, timeout=self.settings.query_timeout_s, metadata=self.metadata)
            begun.result(self.settings.verdict_timeout_s)

    def start(self, name: str, request: Any) -> Any:
        """Begin an RPC without a deadline; its reader asks `verdict` how it ended.

        This waits for nothing. On a lost channel the call breaks off like one that was begun before. Raises
        UnavailableDevice or ConnectionFailed. Only for threads that receive no signals.
        """
        self.require_alive()
        assert self._channel is not None
        try:
            return self._channel.method(name)(request, metadata=self.metadata)
        except ValueError as error:  # gRPC raises this where the channel was closed meanwhile.
            self.require_alive()
            raise ConnectionFailed("the connection was lost", place=self.place) from error

    @contextmanager
    def _on_channel(self, name: str, timeout_s: float) -> Iterator[Channel]:
        """Yield the channel for a call, once the session is attached, and translate the call's errors."""
        since = self._await_attached(name)
        channel = self._channel
        assert channel is not None
        try:
            yield channel
        except grpc.RpcError as error:
            raise self.verdict(BrokenCall.of(error), name, timeout_s, since) from error
        except (grpc.FutureCancelledError, ValueError) as error:  # The call or its channel was closed.
            if isinstance(error, ValueError) and not channel.is_lost:
                raise
            raise self.verdict(BrokenCall("the connection was lost"), name, timeout_s, since) from error

    def verdict(
        self, broken: BrokenCall, name: str, timeout_s: float | None = None, since: int | None = None
    ) -> NnrtError:
        """Return the error that a failed RPC means: the daemon's own, the session's death, or a lost connection.

        Waits until it is known whether the channel is lost. `since` is the attachment during which the RPC began.
        """
        if broken.is_late and timeout_s is not None:
            return TimedOut(f"no answer within {timeout_s:g} s (deadline of {name})", place=self.place)
        if broken.error is not None:
            return broken.error.copy() if broken.is_told else broken.error.at(self.place)
        return self._await_verdict(self.attachment if since is None else since) or ConnectionFailed(
            f"{name} broke off: {broken.details}", place=self.place
        )
