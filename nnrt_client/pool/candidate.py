"""Daemons that a pool knows, and whether they take work."""

from collections.abc import Callable

from nnrt_client.pool.backoff import Backoff
from nnrt_client.session.device import Device
from nnrt_client.session.reasons import why_missing
from nnrt_client.session.runtime import Runtime
from nnrt_client.session.session import Session
from nnrt_hdi.errors import NnrtError, UnavailableDevice


class Candidate:
    """Address of a pool where a device may take replicas. Only the loop changes it, except `doubt`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.device: Device | None = None
        # The session when the daemon was last asked.
        self.session: Session | None = None
        # The latest answer whether the daemon takes work; None: ask first.
        self.takes_work: bool | None = None
        # Why the daemon takes no work, or None.
        self.error: NnrtError | None = UnavailableDevice("it has not been asked yet")
        # Whether the runtime lists the address now.
        self.is_listed = True
        self.is_being_asked = False
        # Runs of replicas that it had.
        self.past_runs = 0
        self.past_failures = 0
        self._backoff = Backoff()

    @property
    def is_up(self) -> bool:
        """True if the daemon takes work, as far as known; costs nothing."""
        return bool(self.takes_work) and self.is_connected and not (self.is_draining or self.out)

    @property
    def is_connected(self) -> bool:
        """True if the daemon lives, as far as known."""
        return self.session is not None and self.session.is_alive

    @property
    def is_draining(self) -> bool:
        """True if the daemon has said that it drains."""
        return self.session is not None and self.session.state.is_draining

    @property
    def out(self) -> str:
        """Why the canary has taken the device out; empty if it hasn't."""
        return self.session.state.out if self.session is not None and self.session.is_alive else ""

    @property
    def why(self) -> str:
        """Why the daemon took no work when it was last asked; empty if it did."""
        return self.error.reason if self.error else ""

    @property
    def trouble(self) -> NnrtError:
        """Error that says why the daemon takes no work."""
        if self.is_draining and self.is_connected:
            return UnavailableDevice("its daemon is shutting down")
        if self.out:
            return UnavailableDevice(f"the device is out: {self.out}")
        return self.error or UnavailableDevice("it doesn't take work now")

    @property
    def name(self) -> str:
        """Name of the device; empty before the daemon has answered."""
        return self.device.name if self.device is not None else ""

    @property
    def instance(self) -> bytes:
        """Id of this process of the daemon, new after each restart; empty before it has answered."""
        return self.session.welcome.instance_id if self.session is not None else b""

    def doubt(self) -> None:
        """Let the pool ask again whether the daemon takes work, because something went wrong there; from any thread."""
        self.takes_work = None

    def is_due(self, now: float) -> bool:
        """Return whether the daemon must be asked now."""
        return self.is_to_be_asked and now >= self._backoff.due

    @property
    def is_to_be_asked(self) -> bool:
        """True if the daemon must be asked, and nobody is asking it."""
        return self.is_listed and not self.is_up and not self.is_being_asked

    @property
    def due(self) -> float:
        """Time of time.monotonic() at which to ask the daemon."""
        return self._backoff.due

    def ask(self, runtime: Runtime, on_death: Callable[[NnrtError], None]) -> Callable[[float], None]:
        """Ask whether the daemon takes work, and connect if needed.

        Args:
            runtime: The runtime that has the sessions.
            on_death: Called when the session that is found ends.

        Returns:
            A function that stores the answer; the loop calls it with the present time.
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
                self._backoff.failed(now)
            else:
                self.device, self.session, self.error = device, session, None
                self._backoff.succeeded()

        return enter
