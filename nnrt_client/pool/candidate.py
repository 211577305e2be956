"""The daemons that a pool knows, and whether they take work."""

from collections.abc import Callable

from nnrt_client.pool.backoff import Backoff
from nnrt_client.session.device import Device
from nnrt_client.session.reasons import why_missing
from nnrt_client.session.runtime import Runtime
from nnrt_client.session.session import Session
from nnrt_hdi.errors import NnrtError, UnavailableDevice


class Candidate:
    """An address of a pool, where a device may be that takes replicas. the loop changes it, but for doubts."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.device: Device | None = None
        # The session that was there when it was last asked.
        self.session: Session | None = None
        # What it said when it was last asked if it takes work; None where it has to be asked first.
        self.takes_work: bool | None = None
        # Why it doesn't; None where it does.
        self.error: NnrtError | None = UnavailableDevice("it has not been asked yet")
        # Whether it is among the addresses of the runtime now.
        self.is_listed = True
        self.is_being_asked = False
        # Of replicas that it had.
        self.past_runs = 0
        self.past_failures = 0
        self._backoff = Backoff()

    @property
    def is_up(self) -> bool:
        """True where it takes work, as far as is known. Costs nothing."""
        return bool(self.takes_work) and self.is_connected and not (self.is_draining or self.out)

    @property
    def is_connected(self) -> bool:
        """True while its daemon lives, as far as is known."""
        return self.session is not None and self.session.is_alive

    @property
    def is_draining(self) -> bool:
        """True where its daemon has said that it is shutting down."""
        return self.session is not None and self.session.state.is_draining

    @property
    def out(self) -> str:
        """Why its device takes no work until its canary is right again; empty where it isn't out."""
        return self.session.state.out if self.session is not None and self.session.is_alive else ""

    @property
    def why(self) -> str:
        """Why it took no work when it was last asked; empty where it did."""
        return self.error.reason if self.error else ""

    @property
    def trouble(self) -> NnrtError:
        """Why it takes no work."""
        if self.is_draining and self.is_connected:
            return UnavailableDevice("its daemon is shutting down")
        if self.out:
            return UnavailableDevice(f"the device is out: {self.out}")
        return self.error or UnavailableDevice("it doesn't take work now")

    @property
    def name(self) -> str:
        """Name of the device; empty before it has answered."""
        return self.device.name if self.device is not None else ""

    @property
    def instance(self) -> bytes:
        """Tells this daemon from all others, and from itself before a restart; empty before it has answered."""
        return self.session.welcome.instance_id if self.session is not None else b""

    def doubt(self) -> None:
        """Have it asked again if it takes work, for something went wrong there. Any thread."""
        self.takes_work = None

    def is_due(self, now: float) -> bool:
        """Tell if it is to be asked now."""
        return self.is_to_be_asked and now >= self._backoff.due

    @property
    def is_to_be_asked(self) -> bool:
        """True where it is not known to take work, and nobody asks it yet."""
        return self.is_listed and not self.is_up and not self.is_being_asked

    @property
    def due(self) -> float:
        """When it is to be asked, on the clock of time.monotonic."""
        return self._backoff.due

    def ask(self, runtime: Runtime, on_death: Callable[[NnrtError], None]) -> Callable[[float], None]:
        """Ask it, connecting where need be; give what enters the answer, for the loop to call with the time
        it is. `on_death` is called when the session ends that is found."""
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
