"""The calls that are made in a session: each names its RPC, has a deadline, and ends with NNRt's error."""

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

# Calls that may be made again when their channel was lost, for to the daemon twice is once.
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
# The guard of a call that nobody but the session ends.
unguarded: Guard = nullcontext


class Calls(ConnectionState):
    """A connection on which RPCs are made.

    Every RPC goes through `call`, `stream`, `tell` or `start`: they name it ("NnrtDevice.AllocateBuffer"), give it a
    deadline and translate what goes wrong. A `guard` is entered with each call while it is under way; what it raises in
    place of gRPC's error is what the caller gets.
    """

    # None where nobody is told of runs.
    tracer: SessionTracer | None = None

    def call(self, name: str, request: Any, timeout_s: float, guard: Guard = unguarded) -> Any:
        """Make one RPC with one reply; make it again if its channel was lost and the RPC may be repeated."""
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
                    with channel.holding(begun), guard(begun):
                        return begun.result()
            except ConnectionFailed:
                if not tries or time.monotonic() >= deadline:
                    raise

    def stream(self, name: str, request: Any, timeout_s: float, guard: Guard = unguarded) -> Generator[Any, None, None]:
        """Make one RPC with many replies, translated while they are read. For threads of ours."""
        with self._traced(name) as metadata, self._on_channel(name, timeout_s) as channel:
            begun = channel.method(name)(request, timeout=timeout_s, metadata=(*self.metadata, *metadata))
            with channel.holding(begun), guard(begun):
                yield from begun

    def tell(self, name: str, request: Any) -> None:
        """Make an RPC whose outcome doesn't matter, if the session is attached; waits a moment for it."""
        if self.is_attached:
            elsewhere(self._tell, name, request)

    def _tell(self, name: str, request: Any) -> None:
        channel = self._channel
        if channel is None:
            return
        # ValueError is gRPC's way to say that the channel was closed meanwhile.
        with suppress(grpc.RpcError, grpc.FutureTimeoutError, grpc.FutureCancelledError, ValueError):
            begun = channel.method(name).future(request, timeout=self.settings.query_timeout_s, metadata=self.metadata)
            begun.result(self.settings.verdict_timeout_s)

    def start(self, name: str, request: Any) -> Any:
        """Begin a call that lasts as long as the caller likes; whoever reads it asks `verdict` about its end.

        Waits for nothing; on a channel that is lost the call breaks off like one begun before. Raises
        UnavailableDevice, or ConnectionFailed. For threads of ours.
        """
        self.require_alive()
        assert self._channel is not None
        try:
            return self._channel.method(name)(request, metadata=self.metadata)
        except ValueError as error:  # gRPC's way to say that the channel was closed meanwhile.
            self.require_alive()
            raise ConnectionFailed("the connection was lost", place=self.place) from error

    @contextmanager
    def _on_channel(self, name: str, timeout_s: float) -> Iterator[Channel]:
        """Give a call its channel, and turn its failure into NNRt's. Waits before it while a verdict is out."""
        since = self._await_attached(name)
        channel = self._channel
        assert channel is not None
        try:
            yield channel
        except grpc.RpcError as error:
            raise self.verdict(BrokenCall.of(error), name, timeout_s, since) from error
        except (grpc.FutureCancelledError, ValueError) as error:  # The call, or its channel, was closed.
            if isinstance(error, ValueError) and not channel.is_lost:
                raise
            raise self.verdict(BrokenCall("the connection was lost"), name, timeout_s, since) from error

    def verdict(
        self, broken: BrokenCall, name: str, timeout_s: float | None = None, since: int | None = None
    ) -> NnrtError:
        """Tell what a failed RPC means: what the daemon says, or the daemon's death, or trouble on the way.

        Waits until it is decided what becomes of the channel. `since` is the attachment during which the RPC began.
        """
        if broken.is_late and timeout_s is not None:
            return TimedOut(f"no answer within {timeout_s:g} s (deadline of {name})", place=self.place)
        if broken.error is not None:
            return broken.error.copy() if broken.is_told else broken.error.at(self.place)
        return self._sentence(self.attachment if since is None else since) or ConnectionFailed(
            f"{name} broke off: {broken.details}", place=self.place
        )
