"""Canary of a device: a small model with a known answer, which the daemon runs at an interval."""

import logging
import math
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nnrt_device_service.health.canary_model import CanaryModel
from nnrt_device_service.host.threads import Threads, start_thread
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings
from nnrt_hdi.access.identity import Identity
from nnrt_hdi.backend import CanaryState, Cancellation, PreparedModel
from nnrt_hdi.errors import NnrtError, OperationFailed, OutOfMemory
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import Array

_log = logging.getLogger(__name__)

# An answer is late if it takes this many times the usual time, and --canary-late-ms more than the usual time.
_SLOWER = 4
# Runs of a trial while answers are late. The fastest counts, because the host may be busy.
_RUNS = 5
# Trials needed to know the usual time of an answer, and latest trials whose median is the usual time.
_LEARNING, _KNOWN = 4, 64
# One late trial may be chance; two in a row suspend the device.
_LATE_IN_A_ROW = 2
# Divisors of the period while the device is suspended, and after a late trial.
_OUT_SOONER, _DOUBT_SOONER = 2, 4
# Right answers in a row after which the device resumes.
_RIGHT_IN_A_ROW = 2
# The canary uses at most 1/_SHARE of the device's time.
_SHARE = 200
# Least time limit of a run on the device, and limit of the first run, for which the device may have to warm up.
_LEAST_S, _WARM_UP_S = 0.5, 60.0
# Checks of an unfinished run within its time limit.
_LOOKS = 4
_END_S = 1.0


class Verdict(Enum):
    """Result of a trial."""

    RIGHT = "right"
    WRONG = "wrong"
    LATE = "late"
    FAILED = "failed"


class Trial(NamedTuple):
    """Trial of the device: the verdict, and the reason if it isn't right."""

    verdict: Verdict
    why: str = ""
    # Device time of the answer; 0 if there was no answer, or its time means nothing.
    answer_ns: int = 0


# Identity to which the device time of trials is accounted.
CANARY = Identity("daemon", "canary")


class ObservedModel(PreparedModel):
    """Prepared model that notes whether its latest run shared the device with other runs."""

    def __init__(
        self, prepared: PreparedModel, is_shared: Callable[[], bool], is_compiling: Callable[[], bool]
    ) -> None:
        """Wrap a prepared model.

        Args:
            prepared: The model.
            is_shared: Returns whether other runs are on the device beside a run of this model.
            is_compiling: Returns whether any run on the device compiles, and may therefore take longer than a run.
        """
        self.inputs, self.outputs = prepared.inputs, prepared.outputs
        self.reads_in_place = prepared.reads_in_place
        self.is_shared = is_shared
        self.is_compiling = is_compiling
        self.was_shared = False
        self._prepared = prepared

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        self.was_shared = self.is_shared()
        results = self._prepared.run(inputs, cancellation, outputs)
        self.was_shared = self.was_shared or self.is_shared()
        return results

    def sizes(self, inputs: Sequence[Array]) -> Sizes:
        return self._prepared.sizes(inputs)

    def close(self) -> None:
        self._prepared.close()


# Function that runs the model as for any client; returns the outputs and the nanoseconds of computing.
Execute = Callable[[Sequence[Array], Cancellation], tuple[Sequence[Array], int]]


class Canary:
    """Canary that runs trials on a device, suspends a faulty device and resumes it.

    The device is suspended as soon as an answer is wrong, fails, doesn't come or is late twice in a row, and resumes
    after two right answers in a row. A late answer takes much longer than those of earlier trials. Other runs can delay
    a healthy device's answer: time in which the run waits for its turn, or shares the device, counts only if it exceeds
    the time that any run may take.
    """

    def __init__(
        self,
        model: CanaryModel,
        prepared: ObservedModel,
        session: Session,
        execute: Execute,
        threads: Threads,
        settings: Settings,
        suspend: Callable[[str], object],
        on_change: Callable[[], object],
    ) -> None:
        """Set up the canary; `start` begins the trials.

        Args:
            model: The model and its right answers.
            prepared: The model, prepared on the device.
            session: The canary's session, which `stop` closes.
            execute: Runs `prepared` in `session`.
            threads: Threads for the runs.
            settings: Interval and limits.
            suspend: Suspends the device for a reason, or resumes it if the reason is empty. Called before `state`
                changes.
            on_change: Called after `state` has changed.
        """
        self._model = model
        self._prepared = prepared
        self._session = session
        self._execute = execute
        self._threads = threads
        self._interval_s = settings.canary
        self._late_s = settings.canary_late_ms / 1e3
        self._turn_s = settings.canary_turn_s or _longest_run_s(settings)
        self._tolerance = settings.canary_tolerance
        self._suspend = suspend
        self._on_change = on_change
        self._random = np.random.default_rng()
        self._state = CanaryState()
        self._changed_at = time.monotonic()
        self._usual: deque[int] = deque(maxlen=_KNOWN)
        # Consecutive late, and consecutive right, trials.
        self._late = self._right = 0
        # Verdict for which the device is suspended.
        self._suspended_by = Verdict.RIGHT
        # Run that was abandoned, and may still be on the device.
        self._abandoned: Future[Any] | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_out(self) -> bool:
        return self._state.is_out

    @property
    def state(self) -> CanaryState:
        """State of the canary now. Any thread may read it."""
        return replace(self._state, for_s=time.monotonic() - self._changed_at)

    @property
    def _period_s(self) -> float:
        """Seconds between trials: the setting, or more if the model takes long."""
        return max(self._interval_s, self._state.usual_ns / 1e9 * _SHARE)

    @property
    def pause_s(self) -> float:
        """Seconds until the next trial: fewer while the device is suspended or was late."""
        return self._period_s / (_OUT_SOONER if self.is_out else _DOUBT_SOONER if self._late else 1)

    def start(self) -> None:
        """Run trials until the usual time is known or the device is suspended, then go on in a thread.

        Raises OutOfMemory if no thread can be started.
        """
        for _ in range(_LEARNING + 1):
            if not self.is_out:
                self.try_once()
        self._thread = start_thread(self._watch, "canary")

    def stop(self) -> bool:
        """End the trials and return whether none is on the device any more. Idempotent."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_END_S)
        self._session.close()
        return self._abandoned is None or bool(wait([self._abandoned], _END_S).done)

    def _watch(self) -> None:
        while not self._stopped.wait(self.pause_s):
            try:
                self.try_once()
            except Exception:  # A lack of memory, for example. The next trial may succeed.
                _log.exception("the canary could not be run")

    def try_once(self) -> None:
        """Run a trial now, unless an abandoned run is still on the device."""
        if self._abandoned is not None and not self._abandoned.done():
            return
        self._abandoned = None
        try:
            trial = self._run_trial()
        except (OutOfMemory, MemoryError) as error:  # A limit of the host or daemon, no fault of the device.
            _log.warning("the canary could not be run: %s", error)
            return
        if not self._stopped.is_set():
            self.judge(trial)

    def judge(self, trial: Trial) -> None:
        """Count a trial, and suspend or resume the device if the trial decides that."""
        is_right, is_late = trial.verdict is Verdict.RIGHT, trial.verdict is Verdict.LATE
        self._late = self._late + 1 if is_late else 0
        self._right = self._right + 1 if is_right else 0
        if is_right and trial.answer_ns and self._state.runs:  # The first run warms up.
            self._usual.append(trial.answer_ns)
        former = self._state
        self._state = replace(
            former,
            runs=former.runs + 1,
            wrong=former.wrong + (trial.verdict is Verdict.WRONG),
            late=former.late + is_late,
            failed=former.failed + (trial.verdict is Verdict.FAILED),
            last_ns=trial.answer_ns or former.last_ns,
            usual_ns=int(statistics.median(self._usual)) if self._usual else 0,
        )
        has_answered = trial.answer_ns > 0
        if former.is_out:
            if self._right >= _RIGHT_IN_A_ROW:
                self._change("")
            elif not is_right and trial.verdict is not self._suspended_by:
                self._suspended_by = trial.verdict
                self._state = replace(self._state, why=trial.why)
        elif not is_right and not (is_late and has_answered and self._late < _LATE_IN_A_ROW):
            self._suspended_by = trial.verdict
            self._change(trial.why)

    def _change(self, why: str) -> None:
        """Suspend the device for a reason, or resume it if the reason is empty."""
        self._suspend(why)
        for_s, self._changed_at = time.monotonic() - self._changed_at, time.monotonic()
        self._state = replace(self._state, is_out=bool(why), why=why)
        if why:
            _log.error("the device is out until its canary is right again: %s", why)
        else:
            _log.warning("the device is back, after %.1f s", for_s)
        self._on_change()

    def _run_trial(self) -> Trial:
        """Run the model, up to _RUNS times while its answers are late. Raises OutOfMemory or MemoryError."""
        trials = []
        for _ in range(_RUNS):
            trials.append(self._run_once())
            if trials[-1].verdict is not Verdict.LATE or not trials[-1].answer_ns:
                return trials[-1]
        return min(trials, key=lambda trial: trial.answer_ns)

    def _run_once(self) -> Trial:
        given, right = self._model.question(self._random)
        cancellation = Cancellation()
        ending = self._threads.submit(partial(self._execute, [given], cancellation))
        if why := self._await_end(ending, cancellation):
            self._abandoned = ending
            cancellation.cancel(OperationFailed(why))
            return Trial(Verdict.LATE, why)
        try:
            (answer,), answer_ns = ending.result()
        except (OutOfMemory, MemoryError):
            raise
        except Exception as error:
            if not self.is_out:  # Log one failure, not each of the trials that follow.
                _log.error("the canary failed", exc_info=error)
            cause = f": {error}" if isinstance(error, NnrtError) else f" with {type(error).__name__}"
            return Trial(Verdict.FAILED, f"its canary failed{cause}")
        if why := why_wrong(answer, right, self._tolerance):
            return Trial(Verdict.WRONG, why, answer_ns)
        usual_ns = self._state.usual_ns
        if len(self._usual) >= _LEARNING and answer_ns > max(usual_ns * _SLOWER, usual_ns + self._late_s * 1e9):
            if self._prepared.was_shared:
                return Trial(Verdict.RIGHT)
            why = f"its canary takes {answer_ns / 1e6:.1f} ms, where {usual_ns / 1e6:.1f} are usual"
            return Trial(Verdict.LATE, why, answer_ns)
        return Trial(Verdict.RIGHT, answer_ns=answer_ns)

    def _await_end(self, ending: Future[Any], cancellation: Cancellation) -> str:
        """Wait until a run ends; return why to stop waiting, or an empty string if the run has ended.

        Adds up the intervals between checks instead of reading a clock, so that time in which this process itself stood
        still doesn't count.
        """
        longest_s = max(self._period_s / 2, _LEAST_S) if self._state.runs else _WARM_UP_S
        look_s = min(longest_s, self._turn_s) / _LOOKS
        alone_s, beside_others_s, is_on_device = 0.0, 0.0, False
        while not self._stopped.is_set() and alone_s < longest_s and beside_others_s < self._turn_s:
            if wait([ending], look_s).done:
                return ""
            is_on_device = cancellation.began_ns is not None
            if is_on_device and not self._prepared.is_shared():
                alone_s += look_s
            elif not self._prepared.is_compiling():
                beside_others_s += look_s
        if is_on_device:
            return f"its canary doesn't end, after {alone_s + beside_others_s:.1f} s"
        return f"its canary gets no turn: no other run has ended for {beside_others_s:.1f} s"


def _longest_run_s(settings: Settings) -> float:
    """Return the seconds that a run may be on the device, including the time to stop it."""
    return settings.max_run_s + settings.stuck_s if settings.max_run_s else math.inf


def why_wrong(answer: Array, right: Array, tolerance: float) -> str:
    """Return what is wrong with an answer, or an empty string.

    Numbers may differ by `tolerance` times the largest right number.
    """
    if (answer.shape, answer.dtype) != (right.shape, right.dtype):
        return f"its canary's answer is {answer.dtype}{list(answer.shape)}, not {right.dtype}{list(right.shape)}"
    allowed = tolerance * float(np.abs(right).max())
    # The negated comparison makes NaN wrong, too.
    is_off = ~(np.abs(answer.astype(np.float64) - right.astype(np.float64)) <= allowed)
    if not is_off.any():
        return ""
    first = tuple(np.argwhere(is_off)[0])
    return (
        f"its canary's answer is wrong: {int(is_off.sum())} of {right.size} numbers, such as {answer[first]} in place"
        f" of {right[first]}"
    )
