"""Candidates: daemons of a pool, and whether each takes work."""

from collections.abc import Callable

from nnrt_client.pool.backoff import Backoff
from nnrt_client.session.device import Device
from nnrt_client.session.reasons import why_missing
from nnrt_client.session.runtime import Runtime
from nnrt_client.session.session import Session
from nnrt_hdi.errors import NnrtError, UnavailableDevice


class Candidate:
    """Daemon of a pool, at one address, whose device may get replicas. Only the loop changes it, except `doubt`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.device: Device | None = None
        # The session when the daemon was last asked.
        self.session: Session | None = None
        # Whether the daemon took work when it was last asked; None: it must be asked again.
        self.takes_work: bool | None = None
        # Why the daemon takes no work, or None.
        self.error: NnrtError | None = UnavailableDevice("it has not been asked yet")
        # Whether the runtime lists the address now.
        self.is_listed = True
        self.is_being_asked = False
        # Counts of its former replicas' runs.
        self.past_runs = 0
        self.past_failures = 0
        self._backoff = Backoff()

    @property
    def is_up(self) -> bool:
        """True if the daemon takes work, as of its last answer and heartbeat. This makes no RPC."""
        return bool(self.takes_work) and self.is_connected and not (self.is_draining or self.suspension_reason)

    @property
    def is_connected(self) -> bool:
        """True if the daemon lives, as far as the session knows."""
        return self.session is not None and self.session.is_alive

    @property
    def is_draining(self) -> bool:
        """True if the daemon has reported that it is draining."""
        return self.session is not None and self.session.state.is_draining

    @property
    def suspension_reason(self) -> str:
        """Reason why the daemon's canary has suspended the device; empty if it hasn't."""
        return self.session.state.out if self.session is not None and self.session.is_alive else ""

    @property
    def why(self) -> str:
        """Reason why the daemon took no work when it was last asked; empty if it did."""
        return self.error.reason if self.error else ""

    @property
    def trouble(self) -> NnrtError:
        """Error with the reason why the daemon takes no work now."""
        if self.is_draining and self.is_connected:
            return UnavailableDevice("its daemon is shutting down")
        if self.suspension_reason:
            return UnavailableDevice(f"the device is out: {self.suspension_reason}")
        return self.error or UnavailableDevice("it doesn't take work now")

    @property
    def name(self) -> str:
        """Name of the device; empty before the daemon has answered."""
        return self.device.name if self.device is not None else ""

    @property
    def instance(self) -> bytes:
        """Id of the daemon's process, new after each restart; empty before the daemon has answered."""
        return self.session.welcome.instance_id if self.session is not None else b""

    def doubt(self) -> None:
        """Make the pool ask the daemon again whether it takes work, after an error. Any thread may call this."""
        self.takes_work = None

    def is_due(self, now: float) -> bool:
        """Return whether the daemon must be asked now."""
        return self.is_to_be_asked and now >= self._backoff.due

    @property
    def is_to_be_asked(self) -> bool:
        """True if the daemon must be asked whether it takes work, and is not being asked."""
        return self.is_listed and not self.is_up and not self.is_being_asked

    @property
    def due(self) -> float:
        """Time (time.monotonic()) at which to ask the daemon."""
        return self._backoff.due

    def ask(self, runtime: Runtime, on_death: Callable[[NnrtError], None]) -> Callable[[float], None]:
        """Ask the daemon whether it takes work, and connect to it if needed. Not called by the loop.

        Args:
            runtime: The runtime that has the sessions.
            on_death: Called when the session with the daemon ends.

        Returns:
            A function that stores the answer. The loop calls it with the present time.
        """
        device: Device | None = None
        session: Session | None = None
        error: NnrtError | None = None
        try:
            look = runtime._look(self.address)
            device, error = look.device, look.error
            session = None if device is None or error is not None else device._session()
        except NnrtError as failure:
            error = why_missing(failure)
        if session is not None and session is not self.session:
            session.on_death(on_death)

        def enter(now: float) -> None:
            self.is_being_asked = False
            self.takes_work = session is not None
            if session is None:
                self.error = error
                self._backoff.record_failure(now)
            else:
                self.device, self.session, self.error = device, session, None
                self._backoff.record_success()

        return enter
