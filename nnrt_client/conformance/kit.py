"""Kit: the list of trials, and their outcomes on a device, one after another."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain

from nnrt_client.conformance.case import Level
from nnrt_client.conformance.levels import caches, concurrency, contract, death, sequences
from nnrt_client.conformance.levels.answers import Answers
from nnrt_client.conformance.levels.check import Check
from nnrt_client.conformance.outcome import Outcome, Verdict, outcome_from_error
from nnrt_client.conformance.target import DaemonGone, Target
from nnrt_client.conformance.trial import Trial
from nnrt_hdi.enums import DataType, ReturnCode
from nnrt_hdi.errors import NnrtError

_log = logging.getLogger(__name__)

_CHECKS: dict[Level, Callable[[], Iterable[Trial]]] = {
    Level.CONTRACT: contract.checks,
    Level.CONCURRENCY: concurrency.checks,
    Level.SEQUENCES: sequences.checks,
    Level.CACHES: caches.checks,
    Level.DEATH: death.checks,
}

# Data types to which `--quick` restricts levels with many cases.
_QUICK_DATA_TYPES = {Level.VALUES: (DataType.FLOAT32, DataType.INT32), Level.QUANTIZED: (DataType.INT8,)}


def trials(levels: Collection[Level] = (), only: Sequence[str] = (), *, quick: bool = False) -> list[Trial]:
    """Return the trials of these levels, or of all levels if none is given, in order.

    Args:
        levels: Levels to select.
        only: Names or patterns, of which a trial must match one.
        quick: Select only the trials that together take about a minute.
    """
    every = chain.from_iterable(_trials_of(level) for level in Level if not levels or level in levels)
    return [trial for trial in every if (_is_quick(trial) or not quick) and _is_named(trial.name, only)]


@cache
def _trials_of(level: Level) -> tuple[Trial, ...]:
    """Return all trials of a level."""
    from nnrt_client.conformance.cases import cases  # Slow to import, and other commands don't need it.

    return (*_CHECKS.get(level, tuple)(), *map(Answers, cases(level)))


def _is_quick(trial: Trial) -> bool:
    """Return whether `--quick` includes the trial."""
    return trial.is_quick and trial.data_type in _QUICK_DATA_TYPES.get(trial.level, (trial.data_type,))


def levels_in_full(wanted: Sequence[Trial]) -> frozenset[Level]:
    """Return the levels of which `wanted` contains all trials."""
    counts = Counter(trial.level for trial in wanted)
    return frozenset(level for level in Level if counts[level] and counts[level] == len(_trials_of(level)))


def _is_named(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Result:
    """Trial with its outcome and duration."""

    trial: Trial
    outcome: Outcome
    seconds: float = 0.0


@dataclass(slots=True)
class Kit:
    """Runner of trials on a target, each in sessions of its own. A daemon that ends spoils only the current trial."""

    target: Target
    # Why the remaining trials can't run; empty while they can.
    gone: str = field(default="", init=False)
    _is_stopped: bool = field(default=False, init=False)

    def results(self, wanted: Sequence[Trial]) -> Iterator[Result]:
        """Run the trials in order and yield their results. Once the daemon is gone, the other trials are UNTRIED."""
        for trial in wanted:
            if self._is_stopped:
                return
            if self.gone:
                yield Result(trial, Outcome(Verdict.UNTRIED, self.gone))
                continue
            began = time.monotonic()
            outcome = self._outcome(trial)
            if not self._is_stopped:
                yield Result(trial, outcome, time.monotonic() - began)

    def stop(self) -> None:
        """End `results` after the current trial. Any thread may call it."""
        self._is_stopped = True

    def _outcome(self, trial: Trial) -> Outcome:
        try:
            outcome = trial.run(self.target)
        except NnrtError as error:
            outcome = outcome_from_error(error)
        except Exception as error:  # For example, a reply that the client can't parse.
            _log.exception("%s raised an unexpected error", trial.name)
            outcome = Outcome(Verdict.FAILED, f"it can't be tried: {error!r}")
        try:
            survived = self.target.has_survived()
            if survived and outcome.code is ReturnCode.TIMEOUT:
                self._require_free()
        except DaemonGone as gone:
            self.gone = str(gone)
            return Outcome(Verdict.CRASHED, _add_reason(outcome, self.gone))
        if survived:
            return outcome
        return Outcome(Verdict.CRASHED, _add_reason(outcome, "the daemon ended, and came back as another instance"))

    def _require_free(self) -> None:
        """Raise DaemonGone if the device is stuck on a late run, because then all other trials would be late too."""
        check = Check(Level.CONTRACT, "contract/computes_small_models", contract.computes_small_models)
        if check.run(self.target).code is ReturnCode.TIMEOUT:
            raise DaemonGone("the device is stuck: it runs nothing any more")


def _add_reason(outcome: Outcome, what: str) -> str:
    return f"{what} ({outcome.reason})" if outcome.reason else what
