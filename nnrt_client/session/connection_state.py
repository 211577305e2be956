"""State of a session's connection to its daemon. The session's Keeper changes it."""

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
    """State of a session's connection: attached to a channel, detached until it has another one, or ended."""

    # The daemon's first message in the session.
    welcome: session_pb2.Welcome

    def __init__(self, address: str, settings: Settings) -> None:
        self.address = address
        # How error messages name the daemon.
        self.place = f"daemon at {address}"
        self.settings = settings
        self._patience_s = settings.reconnect_timeout_s + settings.verdict_timeout_s
        self.death: NnrtError | None = None
        self.state = DeviceState()
        self.clock = DaemonClock()
        # None unless both sides compress chunks.
        self.compressor: Compressor | None = None
        self.metadata: Metadata = ()
        # Number of times that the session has changed its channel, and whether it has one now.
        self.attachment = 0
        self.is_attached = False
        self.is_closing = False
        # Whether the interpreter is exiting. If so, the loss of the channel doesn't end the session.
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
        """Raise the error with which the session has ended, if it has."""
        if self.death is not None:
            raise self.death.copy()

    @property
    def keeps_models(self) -> bool:
        """True if the daemon stores the models that it compiles."""
        return STORE_FEATURE in self.welcome.features

    # ---- called by the keeper

    def begin(self, channel: Channel, welcome: session_pb2.Welcome) -> bool:
        """Attach the session to its first channel, on which the daemon has sent Welcome.

        Return False if the session has ended already.
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
        """Attach the session to another channel, and close the former one with its RPCs."""
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
        """Mark the channel as lost, so that new RPCs wait for another one."""
        self.is_attached = False
        self._changes.announce()
        _log.info("%s: %s", self.place, why)

    # ---- waiting and listening

    def on_death(self, listener: Callable[[NnrtError], None]) -> None:
        """Call `listener` once, when the session ends, or at once if it has ended."""
        with self._lock:
            if self.death is None:
                self._on_death.append(listener)
                return
        listener(self.death)

    def on_attached(self, listener: Callable[[], None]) -> None:
        """Call `listener` each time the session attaches to another channel."""
        self._on_attached.append(listener)

    def wait_over(self, timeout_s: float) -> bool:
        """Wait until the session ends, for at most `timeout_s`. Return whether it has ended."""
        return self._over.wait(timeout_s)

    def _await_verdict(self, since: int) -> NnrtError | None:
        """Wait until the channel of attachment `since` is known to be lost or to work.

        If it is lost, wait also until the session has another channel or ends. Return the session's death, or None.
        """
        # If the connection is lost, the session's stream breaks at about the same moment as the RPC.
        self._changes.wait_for(
            lambda: self.death is not None or self.attachment != since or not self.is_attached,
            self.settings.verdict_timeout_s,
        )
        self._changes.wait_for(lambda: self.death is not None or self.is_attached, self._patience_s)
        return self.death.copy() if self.death else None

    def _await_attached(self, name: str) -> int:
        """Wait until the session is attached, and return the attachment's number.

        Raise ConnectionFailed if that takes too long, or the error that ended the session.
        """
        if not self.is_attached:
            self._changes.wait_for(lambda: self.death is not None or self.is_attached, self._patience_s)
            self.require_alive()
            if not self.is_attached:
                raise ConnectionFailed(f"the connection is lost ({name} was not begun)", place=self.place)
        return self.attachment
