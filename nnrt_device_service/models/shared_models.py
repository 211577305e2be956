"""Compiled models that sessions share: made once, held by each session that uses them, closed with the last."""

import threading
import time
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from types import TracebackType

from typing_extensions import Self

from nnrt_device_service.memory.memory_budget import LEAST_BYTES
from nnrt_device_service.models.compilations import GIVEN_UP, Progress
from nnrt_device_service.models.requests import Build
from nnrt_device_service.models.residency import Residency
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.sessions.shared_model import SharedModel
from nnrt_hdi.backend import Cancellation, PreparedModel
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import NnrtError, TimedOut, Unsupported

# Seconds after which a waiting call looks again whether its client still wants the model.
_POLL_S = 0.5
# Seconds without a byte after which a session that was asked for constants no longer leads.
UPLOAD_PAUSE_S = 2.0
# Seconds that other sessions wait for its upload in all, and for its turn: its queue isn't theirs.
_UPLOAD_S = 60.0
_QUEUE_S = 30.0
_LARGE_BYTES = 4 << 20
# What the model itself causes. Any other error may be due to the session that led, so another session tries again.
_ERRORS_FOR_ALL = (Unsupported, TimedOut)


class Making:
    """Work on a model that isn't there yet. One session leads and makes the model, and others wait for it.

    As a context manager it ends the work, unless the leading session has been asked for constants.
    """

    def __init__(self, models: "SharedModels", key: Hashable, session: Session) -> None:
        self._models = models
        self.residency = models.residency
        self.key = key
        self.session = session
        # Cancelled when neither the leading client nor a waiting one wants the model any more.
        self.cancellation = Cancellation(reason=GIVEN_UP)
        self.is_over = threading.Event()
        self.waiting = 0
        self.has_lead_left = False
        self.model: SharedModel | None = None
        # Room on the device that is reserved for it, until it is made.
        self.reserved_bytes = 0
        self._work = ExitStack()
        self.error: NnrtError | None = None
        # When the leading session was asked for constants, of time.monotonic(); None while it makes the model.
        self.asked_at: float | None = None
        self._began_at = self._led_at = time.monotonic()
        self._asks_for_constants = self._is_at_work = False
        self._forget_lead: Callable[[], None] = lambda: None

    @property
    def is_abandoned(self) -> bool:
        """True if the leading session doesn't send the constants that it was asked for, or waits long for its turn."""
        asked_at, now = self.asked_at, time.monotonic()
        if asked_at is None:
            return not self._is_at_work and now - self._led_at > _QUEUE_S
        latest = max(asked_at, self.session.constants.written_at)
        return not self.session.is_open or now - latest > UPLOAD_PAUSE_S or now - self._began_at > _UPLOAD_S

    def lead(self, progress: Progress) -> Self:
        """Let a client make the model, or go on. If the client leaves and nobody waits, the work is cancelled."""
        if self.cancellation.is_cancelled:
            self.cancellation = Cancellation(reason=GIVEN_UP)
        self.asked_at, self.has_lead_left = None, False
        self._led_at, self._is_at_work = time.monotonic(), False
        self._forget_lead = progress.cancellation.on_cancel(self._on_lead_left)
        return self

    def await_constants(self) -> None:
        """Let the other sessions wait, after the block, for the constants that the leading one is asked for."""
        self._asks_for_constants = True

    def begin_work(self, size_bytes: int) -> None:
        """Note that the device makes the model, the leading session having its turn, and make room for it.

        Raises as `Residency.reserve`.
        """
        self._is_at_work = True
        self.residency.reserve(size_bytes, self.cancellation)
        self.reserved_bytes = max(size_bytes, LEAST_BYTES)
        self._work.enter_context(self.residency.unsettled())

    def make(self, make: Callable[[], PreparedModel]) -> PreparedModel:
        """Let the backend make the model, as `Residency.make` does."""
        return self.residency.make(make, self.reserved_bytes)

    def end_work(self) -> None:
        """Release the room if the model was not made. Idempotent."""
        if size_bytes := self.reserved_bytes:
            self.reserved_bytes = 0
            self.residency.budget.release(size_bytes)
        self._work.close()

    def finish(self, model: SharedModel) -> None:
        """Give the model to the waiting sessions, and to those that ask from now on."""
        self._models.publish(self, model)

    def _on_lead_left(self) -> None:
        self.has_lead_left = True
        self._models.cancel_unwanted(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        forget, self._forget_lead = self._forget_lead, lambda: None  # It refers to this object.
        forget()
        self.end_work()
        asks, self._asks_for_constants = self._asks_for_constants, False
        if asks and error is None and not self.cancellation.is_cancelled:
            self.asked_at = time.monotonic()  # Last: from now on the session may lead in another thread.
            return
        if isinstance(error, _ERRORS_FOR_ALL):
            self.error = error.copy()  # The error itself refers to frames, and they to the model.
        self._models.end(self)


class SharedModels:
    """Compiled models of a device, and those that are being made, by what they are made of."""

    def __init__(self, share: str, residency: Residency) -> None:
        """Make an empty set. `share` is --share-models."""
        self._share = share
        self.residency = residency
        self._lock = threading.Lock()
        self._models: dict[Hashable, SharedModel] = {}
        self._makings: dict[Hashable, Making] = {}
        # Number of large models made, exported and closed so far, after each of which malloc keeps free memory.
        self.changes = 0

    def find(self, build: Build, made_of: Hashable) -> SharedModel | Making:
        """Return a model, held for the caller, or work on it that the caller leads from now on.

        `made_of` decides the model, with the priority; None if nobody can share it. While another session makes the
        model, this waits and reports progress. Raises the error of a model that the device doesn't run.
        """
        session, progress = build.session, build.progress
        key = self._key(made_of, session, build.config.priority) or object()
        waits_for_uploads = True
        while True:
            with self._lock:
                model = self._models.get(key)
                if model is not None and not model.is_faulty and model.hold():
                    return model
                making = self._makings.get(key)
                if making is not None and making.asked_at is not None and making.session is session:
                    return making.lead(progress)
                if making is not None and (making.is_abandoned or (making.asked_at and not waits_for_uploads)):
                    making = None
                if making is None:
                    making = self._makings[key] = Making(self, key, session)
                    return making.lead(progress)
                making.waiting += 1
            try:
                while not (making.is_over.wait(_POLL_S) or making.is_abandoned):
                    progress("compiling", 0.0)
            except BaseException:
                self._leave(making)
                raise
            if making.model is not None:
                return making.model
            self._leave(making)
            waits_for_uploads = making.is_over.is_set()  # A session that trickles can't keep others waiting.
            if making.error is not None:
                raise making.error.copy()

    def _key(self, made_of: Hashable, session: Session, priority: Priority) -> Hashable:
        """Return what sessions find a model by: what it is made of, its priority, who may share it; None: nothing."""
        if self._share == "none" or made_of is None:
            return None
        return made_of, priority, str(session.identity) if self._share == "identity" else ""

    def add_key(self, model: SharedModel, made_of: Hashable, session: Session) -> None:
        """Let sessions find a model, which the caller holds, by something else that it could be made of."""
        key = self._key(made_of, session, model.config.priority)
        with self._lock:
            if key is not None and not model.is_faulty and key not in self._models:
                self._models[key] = model
                model.keys.append(key)

    def _leave(self, making: Making) -> None:
        """Stop waiting; release a model that was made meanwhile."""
        with self._lock:
            making.waiting -= 1
            model = making.model
        if model is None:
            self.cancel_unwanted(making)
        else:
            making.session.discard(model.release)

    def cancel_unwanted(self, making: Making) -> None:
        """Cancel the work on a model that no client wants any more."""
        if making.has_lead_left and not making.waiting:
            making.cancellation.cancel()

    def publish(self, making: Making, model: SharedModel) -> None:
        """Hold a model for the sessions that wait for it, and give it to those that ask from now on."""
        with self._lock:
            model.hold(making.waiting)
            making.model = model
            former = self._models.get(making.key)
            if former is None or former.is_faulty:
                self._models[making.key] = model
                model.keys.append(making.key)
            model.on_closed = self._forget
        reserved_bytes, making.reserved_bytes = making.reserved_bytes, 0
        self.residency.add(model, reserved_bytes)
        self.note_change(model)
        self.end(making)

    def note_change(self, model: SharedModel) -> None:
        """Note that a model has been made, exported or closed."""
        self.changes += model.size_bytes >= _LARGE_BYTES

    def _forget(self, model: SharedModel) -> None:
        with self._lock:
            for key in model.keys:
                if self._models.get(key) is model:
                    del self._models[key]
        self.residency.forget(model)
        self.note_change(model)

    def forget_abandoned(self) -> None:
        """Forget the work of sessions that don't send the constants that they were asked for."""
        with self._lock:
            self._makings = {key: making for key, making in self._makings.items() if not making.is_abandoned}

    def end(self, making: Making) -> None:
        """Wake the sessions that wait for a model. Idempotent."""
        with self._lock:
            if self._makings.get(making.key) is making:
                del self._makings[making.key]
        making.is_over.set()
