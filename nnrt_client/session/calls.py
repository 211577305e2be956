"""RPCs of a session. Each is called by name, has a deadline, and raises NNRt's errors."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import grpc

from nnrt_client.session.broken_call import BrokenCall
from nnrt_client.session.channel import Channel
from nnrt_client.session.connection_state import ConnectionState
from nnrt_client.session.errands import call_in_worker
from nnrt_client.tracing.tracer import Metadata, SessionTracer
from nnrt_hdi.errors import ConnectionFailed, NnrtError, TimedOut

# Idempotent RPCs, which are repeated if their channel is lost.
_REPEATABLE = {
    "NnrtDevice.GetCounters",
    "NnrtDevice.GetDeviceStatus",
    "NnrtDevice.GetSupportedOperation",
    "NnrtDevice.ReleaseBuffer",
    "PreparedModel.CancelRuns",
    "PreparedModel.ExportModelCache",
    "PreparedModel.GetInputDimRanges",
    "PreparedModel.Release",
    "Sequences.Release",
    "Sequences.Stop",
}
_TRIES = 3

Guard = Callable[[Any], AbstractContextManager[object]]
# Guard that does nothing, for calls that only the session cancels.
unguarded: Guard = nullcontext


class Calls(ConnectionState):
    """Connection with methods for RPCs.

    Every RPC goes through `call`, `stream`, `try_call` or `start`, which find it by name
    ("NnrtDevice.AllocateBuffer"), set its deadline and translate its errors. A `guard` is a context manager, entered
    with the gRPC call while that is under way. If the guard raises an error, the caller gets it in place of gRPC's.
    """

    # None if runs are not traced.
    tracer: SessionTracer | None = None

    def call(self, name: str, request: Any, timeout_s: float, guard: Guard = unguarded) -> Any:
        """Make one RPC and return its reply. Repeat an idempotent RPC if its channel is lost."""
        with self._traced(name) as metadata:
            return call_in_worker(self._call, name, request, timeout_s, guard, metadata)

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
        """Make one RPC and yield its replies. Raise NNRt's errors while they are read.

        Only for threads that receive no signals.
        """
        with self._traced(name) as metadata, self._on_channel(name, timeout_s) as channel:
            begun = channel.method(name)(request, timeout=timeout_s, metadata=(*self.metadata, *metadata))
            with channel.cancelling_on_close(begun), guard(begun):
                yield from begun

    def try_call(self, name: str, request: Any) -> None:
        """Make an RPC and ignore its outcome. Do nothing if the session has no channel now.

        This waits for the RPC's end, but no longer than `verdict_timeout_s`.
        """
        if self.is_attached:
            call_in_worker(self._try_call, name, request)

    def _try_call(self, name: str, request: Any) -> None:
        channel = self._channel
        if channel is None:
            return
        # gRPC raises ValueError if the channel was closed meanwhile.
        with suppress(grpc.RpcError, grpc.FutureTimeoutError, grpc.FutureCancelledError, ValueError):
            begun = channel.method(name).future(request, timeout=self.settings.query_timeout_s, metadata=self.metadata)
            begun.result(self.settings.verdict_timeout_s)

    def start(self, name: str, request: Any) -> Any:
        """Start an RPC without a deadline, and return gRPC's call object.

        The thread that reads the call passes gRPC's error to `verdict`. This method doesn't block: on a lost channel,
        the call breaks off later. Only for threads that receive no signals.

        Raises:
            UnavailableDevice: The session has ended.
            ConnectionFailed: The channel was closed meanwhile.
        """
        self.require_alive()
        assert self._channel is not None
        try:
            return self._channel.method(name)(request, metadata=self.metadata)
        except ValueError as error:  # gRPC raises this if the channel was closed meanwhile.
            self.require_alive()
            raise ConnectionFailed("the connection was lost", place=self.place) from error

    @contextmanager
    def _on_channel(self, name: str, timeout_s: float) -> Iterator[Channel]:
        """Wait until the session has a channel, yield it for a call, and translate the call's errors."""
        since = self._await_attached(name)
        channel = self._channel
        assert channel is not None
        try:
            yield channel
        except grpc.RpcError as error:
            raise self.verdict(BrokenCall.from_rpc_error(error), name, timeout_s, since) from error
        except (grpc.FutureCancelledError, ValueError) as error:  # The call or its channel was closed.
            if isinstance(error, ValueError) and not channel.is_lost:
                raise
            raise self.verdict(BrokenCall("the connection was lost"), name, timeout_s, since) from error

    def verdict(
        self, broken: BrokenCall, name: str, timeout_s: float | None = None, since: int | None = None
    ) -> NnrtError:
        """Return NNRt's error for a failed RPC: the daemon's error, the session's death, or ConnectionFailed.

        This waits until it is known whether the channel is lost. `since` is the attachment at which the RPC began.
        """
        if broken.is_late and timeout_s is not None:
            return TimedOut(f"no answer within {timeout_s:g} s (deadline of {name})", place=self.place)
        if broken.error is not None:
            return broken.error.copy() if broken.is_specific else broken.error.at(self.place)
        return self._await_verdict(self.attachment if since is None else since) or ConnectionFailed(
            f"{name} broke off: {broken.details}", place=self.place
        )
