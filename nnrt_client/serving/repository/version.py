"""Version of a model: what takes requests, and the load that will replace it."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from nnrt_client.serving.errors import NotReady
from nnrt_client.serving.repository.folder import Labels
from nnrt_client.serving.repository.loader import Loader, Source
from nnrt_client.serving.repository.model_settings import ModelSettings
from nnrt_client.serving.repository.scaling import Scaler
from nnrt_client.serving.repository.served_version import ServedVersion
from nnrt_hdi.errors import ConnectionFailed, NnrtError, OperationFailed, OutOfMemory, TimedOut, UnavailableDevice

_log = logging.getLogger(__name__)

# Errors that say nothing of the model's files; NotReady is among them. Such a version still counts as one to come.
_OF_DEVICES = (UnavailableDevice, ConnectionFailed, TimedOut)
# Longest pauses before a failed load is tried again, by kinds of errors, of which the first that fits counts. After
# others, files must change. OperationFailed may join the reasons of several devices.
_PAUSES_S: tuple[tuple[type[NnrtError], float], ...] = (
    (NotReady, math.inf),
    (UnavailableDevice, 2.0),
    (ConnectionFailed, 2.0),
    (TimedOut, 2.0),
    (OutOfMemory, 30.0),
    (OperationFailed, 30.0),
)
_FIRST_PAUSE_S = 0.1


class State(Enum):
    """State of a version, in the protocol's words."""

    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Entry:
    """Line of the index: a version, its state, and why it is not ready, or what is wrong with its newer files."""

    model: str
    version: str
    state: State
    reason: str = ""


class Version:
    """Version of a model. Only the server's loop uses it.

    A load goes on beside the requests of what was loaded before, which then ends its requests and is freed.
    """

    def __init__(self, model: str, number: int, loader: Loader, on_change: Callable[[], object]) -> None:
        """Create it. `on_change` is called after a load, and when something was freed."""
        self.number = number
        # What takes requests.
        self.served: ServedVersion | None = None
        # Why the latest load failed, or the files can't be loaded; and as clients are told that.
        self.error: NnrtError | None = None
        self._reason = ""
        # The load that is under way.
        self.load: asyncio.Task[None] | None = None
        self._model = model
        self._loader = loader
        self._on_change = on_change
        self._tried: Source | None = None
        self._loaded: Source | None = None
        self._retry_at = math.inf
        # Failures in a row with the same files.
        self._failures = 0
        self._is_wanted = True
        # Whether files that may still be written are waited for.
        self._waits = False
        self._scaler: Scaler | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def place(self) -> str:
        """Name of the version in messages."""
        return f"model {self._model!r} version {self.number}"

    @property
    def is_pending(self) -> bool:
        """True if the version may become ready although its files don't change."""
        return self.load is not None or self._waits or (self.served is None and isinstance(self.error, _OF_DEVICES))

    @property
    def is_over(self) -> bool:
        """True if nobody wants the version, and no device has anything of it any more."""
        return not self._is_wanted and self.load is None and self.served is None and not self._leaving

    @property
    def tasks(self) -> set["asyncio.Task[None]"]:
        """The load and the ends of former loads that are under way."""
        return self._leaving | ({self.load} if self.load is not None else set())

    @property
    def entry(self) -> Entry:
        """Line of the index."""
        state = State.UNAVAILABLE
        if self.served is not None:
            state = State.READY
        elif self._is_wanted and self.is_pending:
            state = State.LOADING
        elif not self._is_wanted and self.tasks:
            state = State.UNLOADING
        return Entry(self._model, str(self.number), state, self._reason)

    def has_failed(self, source: Source) -> bool:
        """Return whether a load from these files failed, and would again."""
        return source == self._tried and self.error is not None and not isinstance(self.error, _OF_DEVICES)

    def follow(self, source: Source, settings: ModelSettings, labels: Labels, quiet_in_s: float) -> float:
        """Begin a load if these files need one and have been quiet; return in how many seconds to call this again."""
        self._is_wanted, self._waits = True, False
        if source.error is not None:
            if self._tried != source:
                self._tried = source
                self._fail(source.error, source)
            return math.inf
        if source == self._tried and (left_s := self._retry_at - time.monotonic()) > 0:
            return left_s
        if self.load is not None:
            return math.inf
        if self.served is not None and source == self._loaded:  # A mistake was taken back.
            self.error, self._reason, self._tried = None, "", source
            return math.inf
        if quiet_in_s > 0:
            self._waits = True
            return quiet_in_s
        if source != self._tried:
            self._failures = 0
        self._tried, self._retry_at = source, math.inf
        self.load = asyncio.create_task(self._load(source, settings, labels))
        return math.inf

    def forget_failure(self) -> None:
        """Load it again with the next `follow` if the latest load failed."""
        if self.error is not None:
            self._tried = None

    def set(self, settings: ModelSettings, labels: Labels) -> None:
        """Apply settings that need no load."""
        if self.served is not None:
            former, self.served.settings, self.served.labels = self.served.settings, settings, labels
            if (former.replicas, former.scale) != (settings.replicas, settings.scale):
                self._scaler = Scaler(settings.scale) if settings.scale else None
                self._resize(settings.first_replicas)

    def scale(self, now: float) -> None:
        """Change the number of replicas if the requests under way want that."""
        if self.served is None or self._scaler is None:
            return
        if self._scaler.step(self.served.under_way, len(self.served.session.devices), now):
            _log.info("%s: %s replicas are wanted", self.place, self._scaler.replicas)
            self._resize(self._scaler.replicas)

    def retire(self) -> None:
        """End its requests, and free it."""
        self._is_wanted = self._waits = False
        if self.load is None:
            self._leave()

    def abandon(self) -> None:
        """End a load without waiting for the devices."""
        if self.load is not None:
            self.load.cancel()

    async def _load(self, source: Source, settings: ModelSettings, labels: Labels) -> None:
        began = time.monotonic()
        try:
            session = await self._loader.load(source, settings)
        except NnrtError as error:
            self._fail(error, source)
        except Exception as error:
            _log.exception("%s", self.place)
            self._fail(OperationFailed(f"it could not be loaded: {error!r}"), source)
        else:
            self._leave()
            self.error, self._reason, self._tried, self._loaded = None, "", source, source
            self.served = ServedVersion(self._model, str(self.number), session, settings, labels)
            self._scaler = Scaler(settings.scale) if settings.scale else None
            devices = ", ".join(device.name for device in session.devices)
            _log.info("%s is ready on %s after %.1f s", self.place, devices, time.monotonic() - began)
            if not self._is_wanted:
                self._leave()
        finally:
            self.load = None
        self._on_change()

    def _fail(self, error: NnrtError, source: Source) -> None:
        before, self._reason = self._reason, str(error).replace(f"{source.found.folder}/", "")
        self.error = error.copy()
        if before != self._reason:
            rest = "; what was loaded before goes on" if self.served is not None else ""
            _log.warning("%s can't be loaded: %s%s", self.place, self._reason, rest)
        most_s = next((most_s for kind, most_s in _PAUSES_S if isinstance(error, kind)), math.inf)
        if most_s < math.inf:
            self._retry_at = time.monotonic() + min(_FIRST_PAUSE_S * 2 ** min(self._failures, 16), most_s)
            self._failures += 1

    def _leave(self) -> None:
        if self.served is not None:
            task = asyncio.create_task(self._drain(self.served))
            self.served = self._tried = None
            self._leaving.add(task)
            task.add_done_callback(self._left)

    async def _drain(self, served: ServedVersion) -> None:
        # No longer than the time limit of its requests.
        await served.drained()
        await asyncio.to_thread(served.close)

    def _left(self, task: "asyncio.Task[None]") -> None:
        self._leaving.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s was not freed", self.place, exc_info=error)
        self._on_change()

    def _resize(self, replicas: int | None) -> None:
        assert self.served is not None
        resized = asyncio.ensure_future(asyncio.to_thread(self.served.session.resize, replicas))
        resized.add_done_callback(self._resized)

    def _resized(self, resized: "asyncio.Future[None]") -> None:
        if not resized.cancelled() and (error := resized.exception()) is not None:
            _log.warning("%s keeps its number of replicas: %s", self.place, error)


def not_ready(entry: Entry) -> NotReady:
    """Return the error for a request to a version that takes none."""
    reason = f": {entry.reason}" if entry.reason else ""
    return NotReady(
        f"it is {entry.state.value.lower()}{reason}", place=f"model {entry.model!r} version {entry.version}"
    )
