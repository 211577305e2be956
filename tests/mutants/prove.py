"""Prove that the conformance kit finds defects, and say which trial finds each.

`make mutants` writes the table into caught.md beside this file. A defect names the part of the kit that concerns it.
What this part catches, the whole kit catches; what it misses is tried with all other trials. The right backend is
tried, too, and so are changes that the contract permits: the kit must not report these.

A defect that only changes answers is tried in this process first, with the kit's own cases and judgement, because a
daemon would not change the answers. All other defects are tried in a daemon each.
"""

import argparse
import multiprocessing
import os
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from daemon_process import DaemonProcess

from mutants.defect import Defect, mutant
from mutants.defects import DEFECTS
from mutants.in_process import outcome_of
from nnrt_client import Settings
from nnrt_client.cli.printing import step_bar
from nnrt_client.conformance.kit import Kit, Result, trials
from nnrt_client.conformance.levels.answers import Answers
from nnrt_client.conformance.outcome import Outcome
from nnrt_client.conformance.target import Target
from nnrt_client.conformance.trial import Trial

PAGE = Path(__file__).parent / "caught.md"
# Time limit of a run, a build or a call. The right backend needs less than a tenth of it.
_BOUND_S = 20.0
_SETTINGS = Settings(build_timeout_s=_BOUND_S, run_timeout_s=_BOUND_S, request_timeout_s=_BOUND_S)
_RIGHT = "the right backend"
# More workers slow each other down, and the kit reports no slow device.
_WORKERS = 2
# Levels that are code and have no cases. Defects of these kinds change more than answers.
_CODE = {"contract", "concurrency", "sequences", "caches", "death"}
_SEED = 17
# Error text of a daemon that refuses a backend before the kit can try it.
_DESCRIBED = "describe()"


@dataclass(frozen=True)
class Finding:
    """The kit's verdict on a defect: the trial that catches it, or an empty string, with its verdict and reason."""

    name: str
    caught_by: str = ""
    verdict: str = ""
    reason: str = ""

    @classmethod
    def of(cls, name: str, trial: Trial, outcome: Outcome) -> "Finding":
        return cls(name, trial.name, outcome.verdict.value, outcome.reason)


def only_changes_answers(defect: Defect) -> bool:
    """Return whether cases alone find the defect, so that no daemon is needed."""
    return defect.kind not in _CODE and (not defect.levels or not _CODE.issuperset(defect.levels))


def concerning(defect: Defect, every: Sequence[Trial]) -> list[Trial]:
    """Return the trials of a defect's levels with one of its nodes, or the quick trials if it names no nodes.

    They are in random order: neighbours are similar, and often miss the same defects.
    """
    levels, node_types = defect.levels, {*defect.node_types}
    part = [
        trial
        for trial in every
        if (not levels or trial.level.value in levels)
        and (not node_types.isdisjoint(trial.node_types) if node_types else trial.is_quick)
    ]
    random.Random(_SEED).shuffle(part)  # noqa: S311
    return part


def finding(name: str, *, whole: bool = True, daemons: bool = False) -> Finding:
    """Try a defect until a trial fails: first those that concern it, then all others.

    A change that the contract permits is tried with the first ones only. With `daemons` nothing is tried in this
    process.
    """
    defect, every = DEFECTS[name], _every()
    part = concerning(defect, every)
    if only_changes_answers(defect) and not daemons:
        found = _in_process(name, part)
        if found.caught_by or defect.left_open:
            return found
    rest = [trial for trial in every if trial not in part] if whole and not defect.left_open else []
    try:
        daemon = DaemonProcess("--backend", "mutant", "--option", f"defect={name}")
    except RuntimeError as refused:
        if _DESCRIBED not in str(refused):
            raise
        return Finding(name, _DESCRIBED, "refused by the daemon", str(refused))
    try:
        fault = next(_faults(daemon, [*part, *rest]), None)
    finally:
        daemon.kill()
    return Finding.of(name, fault.trial, fault.outcome) if fault else Finding(name)


def _in_process(name: str, part: Sequence[Trial]) -> Finding:
    """Return the first failed trial of a backend with a defect, tried in this process."""
    with mutant(name) as backend:
        for trial in part:
            if isinstance(trial, Answers):
                outcome = outcome_of(trial.case, backend)
                if outcome.verdict.is_fault:
                    return Finding.of(name, trial, outcome)
    return Finding(name)


def alarms() -> list[Finding]:
    """Return the failed trials of the whole kit on a daemon of the right backend."""
    daemon = DaemonProcess("--backend", "mutant")
    try:
        return [Finding.of(_RIGHT, fault.trial, fault.outcome) for fault in _faults(daemon, _every())]
    finally:
        daemon.kill()


def _faults(daemon: DaemonProcess, wanted: Sequence[Trial]) -> Iterator[Result]:
    with Target(daemon.address, _SETTINGS, return_s=0.0) as target:
        for result in Kit(target).results(wanted):
            if result.outcome.verdict.is_fault:
                yield result


@cache
def _every() -> list[Trial]:
    return trials()


@dataclass(frozen=True)
class Proof:
    """Findings about defects, and false alarms about the right backend."""

    findings: Sequence[Finding]
    alarms: Sequence[Finding]

    @property
    def missed(self) -> list[Finding]:
        """Defects that no trial catches."""
        return [found for found in self.findings if not found.caught_by and not DEFECTS[found.name].left_open]

    @property
    def too_strict(self) -> list[Finding]:
        """Changes that the contract permits, but the kit reports."""
        return [found for found in self.findings if found.caught_by and DEFECTS[found.name].left_open]

    @property
    def is_whole(self) -> bool:
        """True if the kit catches every defect, and reports nothing else."""
        return not (self.missed or self.too_strict or self.alarms)

    def summary(self) -> str:
        """Return the numbers of caught and missed defects and of false alarms, in sentences."""
        count, caught, missed = (
            len(self.findings),
            sum(bool(found.caught_by) for found in self.findings),
            len(self.missed),
        )
        return (
            f"Of {count} defects {caught} are caught ({caught / max(count, 1):.1%}), and {missed} missed;"
            f" {count - caught - missed} change what the contract leaves open."
            f" The right backend raises {len(self.alarms)} alarms."
        )

    def table(self) -> str:
        """Return the summary and a table of the defects by kind, with the trial that catches each."""
        kinds: defaultdict[str, list[Finding]] = defaultdict(list)
        for found in self.findings:
            kinds[DEFECTS[found.name].kind].append(found)
        lines = [self.summary()]
        for kind, of_kind in sorted(kinds.items()):
            caught = sum(bool(found.caught_by) for found in of_kind)
            lines += ["", f"**{kind}** ({caught} of {len(of_kind)})", "", "| defect | caught by |", "|---|---|"]
            lines += map(_row, of_kind)
        return "\n".join(lines) + "\n"


def _row(found: Finding) -> str:
    defect = DEFECTS[found.name]
    by = f"`{found.caught_by}`: {found.verdict}" if found.caught_by else "**nothing**"
    if defect.left_open:
        by += f": {defect.left_open}"
    return f"| {defect.what.replace('|', chr(92) + '|')} (`{found.name}`) | {by} |"


def proof(wanted: Sequence[str], workers: int, *, whole: bool, daemons: bool, with_right: bool) -> Proof:
    """Try defects in parallel, and the right backend meanwhile."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn) as pool, step_bar(len(wanted)) as steps:
        right = pool.submit(alarms) if with_right else None
        tried = [pool.submit(finding, name, whole=whole, daemons=daemons) for name in wanted]
        for future in as_completed(tried):
            steps.begin(future.result().name)
            steps.end()
        return Proof([future.result() for future in tried], right.result() if right else [])


def write(text: str) -> None:
    """Write the page of all defects."""
    PAGE.write_text(f"# Defects that the conformance kit finds\n\nWritten by `make mutants`.\n\n{text}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="PATTERN", help="try defects, or kinds, that are named so")
    parser.add_argument("--part", action="store_true", help="try the part that concerns a defect, and no more")
    parser.add_argument("--daemons", action="store_true", help="try each defect in a daemon of its own")
    parser.add_argument("--workers", type=int, default=min(_WORKERS, os.cpu_count() or 1), help="try so many at a time")
    parser.add_argument("--write", action="store_true", help=f"write the table into tests/mutants/{PAGE.name}")
    given = parser.parse_args()
    wanted = [
        name
        for name, defect in DEFECTS.items()
        if not given.only or any(fnmatchcase(text, pattern) for pattern in given.only for text in (name, defect.kind))
    ]
    if given.write and given.only:
        parser.error("the page has the table of all defects; leave out --only, or --write")
    with_right = not (given.only or given.part)
    made = proof(wanted, given.workers, whole=not given.part, daemons=given.daemons, with_right=with_right)
    print(made.table())
    for fault in (*made.missed, *made.too_strict, *made.alarms):
        print(f"AT FAULT: {fault.name}: {fault.caught_by or 'nothing catches it'} {fault.reason}")
    if given.write:
        write(made.table())
    return int(not made.is_whole)


if __name__ == "__main__":
    sys.exit(main())
