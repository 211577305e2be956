"""The kit: which trials there are, and their outcomes on a device one after another."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain

from nnrt_client.conformance.case import Level
from nnrt_client.conformance.levels import caches, concurrency, contract, death
from nnrt_client.conformance.levels.answers import Answers
from nnrt_client.conformance.levels.check import Check
from nnrt_client.conformance.outcome import Outcome, Verdict, failure
from nnrt_client.conformance.target import Gone, Target
from nnrt_client.conformance.trial import Trial
from nnrt_hdi.enums import DataType, ReturnCode
from nnrt_hdi.errors import NnrtError

_log = logging.getLogger(__name__)

_CHECKS: dict[Level, Callable[[], Iterable[Trial]]] = {
    Level.CONTRACT: contract.checks,
    Level.CONCURRENCY: concurrency.checks,
    Level.CACHES: caches.checks,
    Level.DEATH: death.checks,
}

# Where there are many cases, the data types of which `--quick` has them.
_QUICK_DATA_TYPES = {Level.VALUES: (DataType.FLOAT32, DataType.INT32), Level.QUANTIZED: (DataType.INT8,)}


def trials(levels: Collection[Level] = (), only: Sequence[str] = (), *, quick: bool = False) -> list[Trial]:
    """The trials of some levels (all, if none is named), in their order: those whose name is one of `only`, or matches
    it, and with `quick` those for whoever has a minute."""
    every = chain.from_iterable(_trials_of(level) for level in Level if not levels or level in levels)
    return [trial for trial in every if (_is_quick(trial) or not quick) and _is_named(trial.name, only)]


@cache
def _trials_of(level: Level) -> tuple[Trial, ...]:
    """All of a level."""
    from nnrt_client.conformance.cases import cases  # They are many, and no other command needs them.

    return (*_CHECKS.get(level, tuple)(), *map(Answers, cases(level)))


def _is_quick(trial: Trial) -> bool:
    """Tell if there is time for it in a minute."""
    return trial.is_quick and trial.data_type in _QUICK_DATA_TYPES.get(trial.level, (trial.data_type,))


def levels_in_full(wanted: Sequence[Trial]) -> frozenset[Level]:
    """The levels of which these are all trials."""
    counts = Counter(trial.level for trial in wanted)
    return frozenset(level for level in Level if counts[level] and counts[level] == len(_trials_of(level)))


def _is_named(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Result:
    """A trial and what came of it, in so many seconds."""

    trial: Trial
    outcome: Outcome
    seconds: float = 0.0


@dataclass(slots=True)
class Kit:
    """Trials on a target, each in sessions of its own. A daemon that ends costs the trial that it ended in."""

    target: Target
    # Why nothing more is tried; empty while it goes on.
    gone: str = field(default="", init=False)
    _is_stopped: bool = field(default=False, init=False)

    def results(self, wanted: Sequence[Trial]) -> Iterator[Result]:
        """Try one after another. After the daemon is gone for good the others are UNTRIED."""
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
        """Have `results` end after the trial that is under way. Any thread."""
        self._is_stopped = True

    def _outcome(self, trial: Trial) -> Outcome:
        try:
            outcome = trial.tried(self.target)
        except NnrtError as error:
            outcome = failure(error)
        except Exception as error:  # Such as a reply that no client can read.
            _log.exception("%s failed in a way that it doesn't expect", trial.name)
            outcome = Outcome(Verdict.FAILED, f"it can't be tried: {error!r}")
        try:
            survived = self.target.has_survived()
            if survived and outcome.code is ReturnCode.TIMEOUT:
                self._require_free()
        except Gone as gone:
            self.gone = str(gone)
            return Outcome(Verdict.CRASHED, _after(outcome, self.gone))
        if survived:
            return outcome
        return Outcome(Verdict.CRASHED, _after(outcome, "the daemon ended, and came back as another instance"))

    def _require_free(self) -> None:
        """Raise Gone where nothing runs any more, for what was late never ends: all other trials would be late, too."""
        check = Check(Level.CONTRACT, "contract/computes_small_models", contract.computes_small_models)
        if check.tried(self.target).code is ReturnCode.TIMEOUT:
            raise Gone("the device is stuck: it runs nothing any more")


def _after(outcome: Outcome, what: str) -> str:
    return f"{what} ({outcome.reason})" if outcome.reason else what
