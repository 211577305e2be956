"""Keeper of a session: it reads the session's stream, notices silence and reconnects to the daemon."""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable

import grpc

from nnrt_client.session.address import Address
from nnrt_client.session.broken_call import BrokenCall
from nnrt_client.session.channel import Channel
from nnrt_client.session.connection_state import CLOSED, ConnectionState
from nnrt_client.session.credentials import diagnose_handshake
from nnrt_client.session.io_loop import IoLoop, io_loop
from nnrt_client.session.latch import Latch
from nnrt_hdi import wire
from nnrt_hdi.errors import ConnectionFailed, NnrtError, UnavailableDevice
from nnrt_hdi.v2 import session_pb2

_log = logging.getLogger(__name__)

# Beats per heartbeat timeout, so that one may be late before the daemon counts as silent.
_BEATS_PER_TIMEOUT = 4
_MIN_INTERVAL_S = 0.02
# Pauses between attempts to reconnect. Each is twice as long as the one before.
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
# Number of unexpected errors in a row in the keeper's thread after which the session ends.
_MOST_FAILURES = 3
# The system's words where nobody listens.
_NOBODY = ("connection refused", "no such file or directory")
_HUNG_UP = "it hung up, as a daemon does that is shut down"
_AGAIN = (
    'load the model again, there or elsewhere; a pool or on_death="reload" does so by itself'
    " (see docs/reference/errors.md)"
)


class Keeper:
    """Keeper of a session's channel: it connects, reads the stream, and connects again when the channel is lost.

    The keeper's thread connects and reads. The event loop sends beats and watches for silence.
    """

    def __init__(self, session: ConnectionState, end: Callable[[NnrtError], None]) -> None:
        """Create the keeper of a session. It calls `end` with the error that ends the session."""
        self._session = session
        self._end = end
        self._settings = session.settings
        self._why_lost = ""
        self._interval_s = session.settings.connect_timeout_s
        self._has_begun = False
        # The channel that the thread reads, and the time until which the daemon must send something on it.
        self._listening: tuple[Channel | None, float] = None, math.inf
        self._ended = Latch()
        self._loop: IoLoop | None = None
        # Only the loop uses these: the timer of its next check, the time of its last one, and the time until which it
        # ignores silence.
        self._timer: asyncio.TimerHandle | None = None
        self._looked_at = self._tolerant_until = 0.0

    def start(self) -> None:
        """Start the keeper's thread, which opens the session."""
        threading.Thread(target=self._keep, name=f"nnrt-session {self._session.address}", daemon=True).start()

    def close(self) -> None:
        """Close the channel that the thread reads, because the session has ended."""
        self._wake()
        channel, _ = self._listening
        if channel is not None:
            channel.close()

    def wait_ended(self, timeout_s: float) -> None:
        """Wait until the keeper's thread has stopped reading."""
        self._ended.wait(timeout_s)

    def _keep(self) -> None:
        """Read the session's channel, and reconnect when it is lost, until an error ends the session."""
        session = self._session
        death: NnrtError | None = None
        failures = 0
        while death is None and not session.is_leaving:
            attachment = session.attachment
            try:
                death = self._recover() if self._has_begun else self._begin()
            except Exception as error:  # Such as no descriptor. Go on, because only this thread ends the session.
                _log.exception("%s: looking after the session failed", session.place)
                self._why_lost = f"looking after it failed: {error!r}"
                self.close()
                failures = failures + 1 if attachment == session.attachment else 1
                if failures > _MOST_FAILURES or not self._has_begun:
                    death = UnavailableDevice(f"{self._why_lost}; load the model again", place=session.place)
        self._ended.set()
        if death is not None:
            self._end(death)

    def _begin(self) -> NnrtError | None:
        """Open the session and read its channel. Return the same as `_listen`."""
        try:
            channel = Channel(self._session.address, self._settings)
        except NnrtError as error:
            return error
        self._listening = channel, math.inf
        if not self._session.is_alive:
            channel.close()
        return self._listen(channel)

    def _listen(self, channel: Channel) -> NnrtError | None:
        """Read the session's stream to its end.

        Returns:
            The error that ends the session, or None if only the channel is lost.
        """
        session = self._session
        try:
            for reply in channel.replies:
                if reply.HasField("welcome"):
                    if death := self._take_welcome(channel, reply.welcome):
                        return death
                elif reply.HasField("beat"):
                    self._take_beat(channel, reply.beat)
                self._listening = channel, time.monotonic() + self._settings.heartbeat_timeout_s
        except grpc.RpcError as error:
            if session.is_closing:
                return UnavailableDevice(CLOSED, place=session.place)
            broken = BrokenCall.from_rpc_error(error)
            if not self._has_begun:
                if broken.is_specific and broken.error is not None:
                    return broken.error
                wrong = diagnose_handshake(session.address, self._settings)
                return ConnectionFailed(wrong or _why_unreached(broken.details), place=session.place)
            if broken.is_specific and broken.error is not None:
                return UnavailableDevice(f"it is gone: {broken.error.message}", place=session.place)
            if session.is_attached:
                broke = _HUNG_UP if broken.details == "CANCELLED" else f"the connection broke: {broken.details}"
                self._why_lost = channel.given_up or broke
            return None
        if session.is_leaving:
            return None
        ending = CLOSED if session.is_closing else f"it ended the session; {_AGAIN}"
        return UnavailableDevice(ending, place=session.place)

    def _take_beat(self, channel: Channel, beat: session_pb2.Beat) -> None:
        """Store the device's state and the daemon's clock from the answer to a beat."""
        session, heard_ns = self._session, time.perf_counter_ns()
        session.state = wire.device_state(beat.state)
        sent_ns = channel.pop_sent_ns(beat.sequence)
        if beat.clock_ns and sent_ns is not None:
            session.clock.learn(sent_ns, beat.clock_ns, heard_ns)
            if not session.clock.is_known:
                channel.beat()

    def _take_welcome(self, channel: Channel, welcome: session_pb2.Welcome) -> NnrtError | None:
        """Begin or resume the session on a channel on which the daemon has sent Welcome.

        Returns:
            The error that ends the session, or None if it goes on.
        """
        session = self._session
        if not self._has_begun:
            timeout_s = min(self._settings.heartbeat_timeout_s, welcome.heartbeat_timeout_ms / 1000)
            self._interval_s = max(timeout_s / _BEATS_PER_TIMEOUT, _MIN_INTERVAL_S)
            self._listening = channel, time.monotonic() + self._settings.heartbeat_timeout_s
            self._loop = io_loop()
            self._address = Address(session.address)
            if not session.begin(channel, welcome):
                return session.death
            self._has_begun = True
            self._wake()
        elif welcome.session_id != session.welcome.session_id:
            channel.say_goodbye()
            return UnavailableDevice(f"it is gone: another one answers in its place; {_AGAIN}", place=session.place)
        else:
            session.attach(channel)
            self._wake()
        return None

    def _recover(self) -> NnrtError | None:
        """Try to resume the session on new channels, and read the first one that works.

        Returns:
            The same as `_listen`.
        """
        session = self._session
        grace_s = self._settings.reconnect_timeout_s if session.welcome.lease_ms else 0.0
        until = time.monotonic() + grace_s
        session.detach(self._why_lost)
        attachment, pause_s = session.attachment, _FIRST_PAUSE_S
        while (remaining_s := until - time.monotonic()) > 0:
            try:
                channel = Channel(session.address, self._settings, session.welcome.session_id, remaining_s)
            except ConnectionFailed:
                if session.wait_over(pause_s):
                    break
                continue
            except NnrtError as error:
                return UnavailableDevice(f"it can't be found again: {error}", place=session.place)
            self._listening = channel, until
            self._wake()
            if not session.is_alive:
                channel.close()
                break
            death = self._listen(channel)
            if death is not None or session.attachment != attachment:
                return death
            channel.close()
            if self._address.refuses(remaining_s):
                return UnavailableDevice(
                    f"it is gone: {self._why_lost}, and nobody listens there any more; {_AGAIN}", place=session.place
                )
            session.wait_over(max(min(pause_s, until - time.monotonic()), 0.0))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        if not grace_s:
            return UnavailableDevice(f"it is gone: {self._why_lost}; {_AGAIN}", place=session.place)
        return UnavailableDevice(
            f"{self._why_lost}; it did not answer again within {grace_s:g} s (reconnect_timeout_s) and counts as dead;"
            f" {_AGAIN}",
            place=session.place,
        )

    def _wake(self) -> None:
        """Ask the loop to check the channel now."""
        if self._loop is not None:
            self._loop.call(self._look)

    # ---- in the loop

    def _look(self) -> None:
        """Send a beat, give up a channel that is silent, and schedule the next check."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._loop is None or not self._session.is_alive:
            return
        pause_s = self._interval_s
        try:
            pause_s = min(pause_s, self._look_once(time.monotonic()))
        except Exception:  # For example, no memory is left.
            _log.exception("%s: the watch over its channel failed", self._session.place)
        self._timer = self._loop.events.call_later(pause_s, self._look)

    def _look_once(self, now: float) -> float:
        """Check the channel once. Return the seconds until it will have been silent for too long."""
        timeout_s = self._settings.heartbeat_timeout_s
        if self._looked_at and now - self._looked_at > 2 * self._interval_s:
            # This process was stopped, so it could not read what the daemon sent.
            self._tolerant_until = now + timeout_s
        self._looked_at = now
        channel, until = self._listening
        if channel is None or channel.given_up:
            return math.inf
        if self._session.is_attached:
            channel.beat()
        if (remaining_s := max(until, self._tolerant_until) - now) <= 0:
            silence_s = now - until + timeout_s
            channel.give_up(f"it has been silent for {silence_s:.1f} s (heartbeat_timeout_s is {timeout_s:g})")
            return math.inf
        return remaining_s


def _why_unreached(details: str) -> str:
    """Say why gRPC reached no daemon, and what to do, from its error's details."""
    # They end with the system's own words about the last address that was tried.
    cause = details.rpartition(": ")[2].rstrip("]")
    cause = cause[:1].lower() + cause[1:]
    if details.startswith(("errors resolving", "DNS resolution failed")):
        return f"its host is not found ({cause}); check the name, or give an IP address"
    start = "; start one there with `nnrt-device serve --listen HOST:PORT`, or give another address"
    return f"no daemon answers there ({cause}){start if cause in _NOBODY else ''}"
