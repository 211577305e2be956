"""State of a session's connection to its daemon, which the session's keeper changes."""

import logging
import threading
from collections.abc import Callable

from nnrt_client.session import fork
from nnrt_client.session.channel import Channel
from nnrt_client.session.compression import Compressor
from nnrt_client.session.daemon_clock import DaemonClock
from nnrt_client.session.latch import Changes, Latch
from nnrt_client.settings import Settings
from nnrt_client.tracing.tracer import Metadata
from nnrt_hdi import wire
from nnrt_hdi.backend import DeviceState
from nnrt_hdi.compression import FEATURE
from nnrt_hdi.errors import ConnectionFailed, NnrtError
from nnrt_hdi.files.model_store import FEATURE as STORE_FEATURE
from nnrt_hdi.v2 import session_pb2

_log = logging.getLogger(__name__)

# Message of a session that this process has closed.
CLOSED = "the session was closed, with its runtime or device; make a new runtime"


class ConnectionState(fork.LockOwner):
    """State of a session's connection: attached to a channel, waiting for another one, or over."""

    # The daemon's first message in the session.
    welcome: session_pb2.Welcome

    def __init__(self, address: str, settings: Settings) -> None:
        self.address = address
        # Names the daemon in messages.
        self.place = f"daemon at {address}"
        self.settings = settings
        self._patience_s = settings.reconnect_timeout_s + settings.verdict_timeout_s
        self.death: NnrtError | None = None
        self.state = DeviceState()
        self.clock = DaemonClock()
        # None unless both sides compress chunks.
        self.compressor: Compressor | None = None
        self.metadata: Metadata = ()
        # How often the session has changed its channel, and whether it is attached to one now.
        self.attachment = 0
        self.is_attached = False
        self.is_closing = False
        # Whether the interpreter is exiting. From then on a lost channel doesn't end the session.
        self.is_leaving = False
        self._channel: Channel | None = None
        self._changes = Changes()
        self._over = Latch()
        self._on_death: list[Callable[[NnrtError], None]] = []
        self._on_attached: list[Callable[[], None]] = []
        super().__init__()

    def _make_locks(self) -> None:
        self._lock = threading.RLock()

    def _enter_child(self, reason: NnrtError) -> None:
        self._on_death.clear()
        self._on_attached.clear()
        self._changes = Changes()
        self.is_attached = False
        self.death = self.death or reason.at(self.place)
        self._over.set()

    @property
    def is_alive(self) -> bool:
        return self.death is None

    def require_alive(self) -> None:
        """Raise the error that the session ended with, if it has ended."""
        if self.death is not None:
            raise self.death.copy()

    @property
    def keeps_models(self) -> bool:
        """True if the daemon stores the models that it compiles."""
        return STORE_FEATURE in self.welcome.features

    # ---- called by the keeper

    def begin(self, channel: Channel, welcome: session_pb2.Welcome) -> bool:
        """Attach the session to its first channel, on which the daemon has sent its welcome.

        Return False if the session is over already.
        """
        with self._lock:
            if self.death is not None:
                return False
            self._channel = channel
            self.welcome = welcome
            self.metadata = ((wire.SESSION_METADATA, welcome.session_id),)
            if FEATURE in welcome.features:
                self.compressor = Compressor()
            self.is_attached = True
        self._changes.announce()
        return True

    def attach(self, channel: Channel) -> None:
        """Continue the session on another channel, and cancel only the calls of the channel before."""
        with self._lock:
            lost, self._channel = self._channel, channel
            self.attachment += 1
            self.is_attached = self.death is None
        self._changes.announce()
        if lost is not None:
            lost.close()
        if self.death is not None:
            channel.close()
        _log.info("%s: found again, nothing is lost", self.place)
        for listener in list(self._on_attached):
            listener()

    def detach(self, why: str) -> None:
        """Mark the channel as lost, so that calls wait for another one."""
        self.is_attached = False
        self._changes.announce()
        _log.info("%s: %s", self.place, why)

    # ---- waiting and listening

    def on_death(self, listener: Callable[[NnrtError], None]) -> None:
        """Call `listener` once when the session ends; at once if it has ended."""
        with self._lock:
            if self.death is None:
                self._on_death.append(listener)
                return
        listener(self.death)

    def on_attached(self, listener: Callable[[], None]) -> None:
        """Call `listener` each time the session is attached to another channel."""
        self._on_attached.append(listener)

    def wait_over(self, timeout_s: float) -> bool:
        """Wait until the session ends, for `timeout_s` at most, and return whether it has ended."""
        return self._over.wait(timeout_s)

    def _await_verdict(self, since: int) -> NnrtError | None:
        """Wait until it is known whether the channel of attachment `since` is lost.

        Return the session's death, if the session is over.
        """
        # If the channel is lost, the session's stream breaks at about the same moment.
        self._changes.wait_for(
            lambda: self.death is not None or self.attachment != since or not self.is_attached,
            self.settings.verdict_timeout_s,
        )
        self._changes.wait_for(lambda: self.death is not None or self.is_attached, self._patience_s)
        return self.death.copy() if self.death else None

    def _await_attached(self, name: str) -> int:
        """Wait until the session is attached, and return the number of the attachment; raise the session's death."""
        if not self.is_attached:
            self._changes.wait_for(lambda: self.death is not None or self.is_attached, self._patience_s)
            self.require_alive()
            if not self.is_attached:
                raise ConnectionFailed(f"the connection is lost ({name} was not begun)", place=self.place)
        return self.attachment
