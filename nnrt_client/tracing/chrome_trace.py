"""Trace file of runs and builds for Perfetto (ui.perfetto.dev) and Chrome (chrome://tracing).

The format is Chrome's Trace Event Format. The client and each daemon are processes; the stages of runs are slices. Runs
that overlap are on different tracks. Slices of operators are within the stage `computed`.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

from nnrt_client.tracing.tracer import (
    BuildTrace,
    Outcome,
    RunTrace,
    SessionTracer,
    Site,
    Stage,
    Tracer,
)
from nnrt_hdi.files import container
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.run_times import IN_DAEMON, PARTS, RunTimes

_CLIENT = 1


class _Slice(NamedTuple):
    """Slice of the trace: a named interval. Times are of time.perf_counter_ns()."""

    name: str
    began_ns: int
    ended_ns: int
    about: Mapping[str, Any]


class _Group(NamedTuple):
    """Slices of one process. The first slice contains the others."""

    process: str
    slices: Sequence[_Slice]


class ChromeTrace(Tracer):
    """Tracer that collects runs and builds and writes them to a file."""

    def __init__(self) -> None:
        # Whether new runs record their operators.
        self.profiles = False
        # Whether any device of the sessions can profile operators.
        self.could_profile = False
        self._runs: list[tuple[Site, Outcome]] = []
        self._builds: list[tuple[Sequence[Stage], Mapping[str, Any]]] = []

    @property
    def profiled(self) -> list[Outcome]:
        """Runs with recorded operators, once their sessions are closed."""
        return [outcome for _, outcome in self._runs if outcome.operators]

    def of_session(self, site: Site) -> SessionTracer:
        self.could_profile = self.could_profile or site.profiles
        return _Session(self, site)

    def begin_build(self) -> BuildTrace:
        return _Build(self)

    def add_run(self, site: Site, outcome: Outcome) -> None:
        """Keep a run that has ended."""
        self._runs.append((site, outcome))

    def add_build(self, stages: Sequence[Stage], about: Mapping[str, Any]) -> None:
        """Keep a build that has ended."""
        self._builds.append((stages, about))

    def write(self, path: Path) -> None:
        """Write the file, replacing an old one. Raise OSError if that fails."""
        events = list(self._events())
        document = {"displayTimeUnit": "ms", "traceEvents": events}
        container.write(path, [json.dumps(document).encode()])

    def _events(self) -> Iterator[Mapping[str, Any]]:
        groups = [*self._of_builds(), *self._of_runs()]
        zero_ns = min((group.slices[0].began_ns for group in groups), default=0)
        numbers = {"nnrt client": _CLIENT}
        ends: dict[str, list[int]] = defaultdict(list)
        for group in sorted(groups, key=lambda group: group.slices[0].began_ns):
            process = numbers.setdefault(group.process, len(numbers) + 1)
            whole = group.slices[0]
            track = _free_track(ends[group.process], whole)
            for each in group.slices:
                yield {
                    "ph": "X",
                    "name": each.name,
                    "cat": "nnrt",
                    "pid": process,
                    "tid": track,
                    "ts": (each.began_ns - zero_ns) / 1e3,
                    "dur": (each.ended_ns - each.began_ns) / 1e3,
                    "args": dict(each.about),
                }
        for name, process in numbers.items():
            yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}

    def _of_builds(self) -> Iterator[_Group]:
        for stages, about in self._builds:
            whole = _Slice("build", stages[0].began_ns, stages[-1].ended_ns, about)
            yield _Group("nnrt client", [whole, *(_Slice(*stage, {}) for stage in stages)])

    def _of_runs(self) -> Iterator[_Group]:
        for site, outcome in self._runs:
            name, about = f"run {outcome.run_id}", _about(site, outcome)
            if outcome.failure is not None:
                yield _Group("nnrt client", [_Slice(name, outcome.began_ns, outcome.ended_ns, about)])
                continue
            times = outcome.times()
            parts = list(_parts(times, outcome.began_ns))
            within = parts[IN_DAEMON]
            here = [part for part in parts if part not in within]
            ended_ns = outcome.began_ns + times.total_ns
            yield _Group("nnrt client", [_Slice(name, outcome.began_ns, ended_ns, about), *_lasting(here)])
            computed = next(part for part in within if part.name == "computed")
            there = [_Slice(name, within[0].began_ns, within[-1].ended_ns, about), *_lasting(within)]
            yield _Group(f"{site.device} at {site.address}", [*there, *_operators(outcome.operators, computed)])


class _Session(SessionTracer):
    def __init__(self, trace: ChromeTrace, site: Site) -> None:
        self._trace = trace
        self._site = site

    def begin_run(self) -> RunTrace:
        return _Run(self._trace, self._site)


class _Run(RunTrace):
    def __init__(self, trace: ChromeTrace, site: Site) -> None:
        self.began_ns = perf_counter_ns()
        self._trace = trace
        self._site = site
        self.fields = {"profile": True} if trace.profiles and site.profiles else {}

    def end(self, outcome: Outcome) -> None:
        self._trace.add_run(self._site, outcome)


class _Build(BuildTrace):
    def __init__(self, trace: ChromeTrace) -> None:
        super().__init__()
        self._trace = trace

    def end(self, error: BaseException | None, stages: Sequence[Stage] = (), **about: str | int) -> None:
        failed = {} if error is None else {"error": str(error)}
        self._trace.add_build(stages, {**about, **failed})


def _about(site: Site, outcome: Outcome) -> dict[str, Any]:
    about: dict[str, Any] = {
        "device": site.device,
        "address": site.address,
        "session": site.session,
        "run": outcome.run_id,
        "model": outcome.model_id,
        "input_bytes": outcome.input_bytes,
        "output_bytes": outcome.output_bytes,
    }
    return about if outcome.failure is None else {**about, "error": outcome.failure.message}


def _parts(times: RunTimes, began_ns: int) -> Iterator[_Slice]:
    for name, took_ns in zip(PARTS, times, strict=True):
        yield _Slice(name, began_ns, began_ns + took_ns, {})
        began_ns += took_ns


def _lasting(slices: Sequence[_Slice]) -> list[_Slice]:
    return [each for each in slices if each.ended_ns > each.began_ns]


def _operators(operators: Sequence[OperatorTime], computed: _Slice) -> Iterator[_Slice]:
    """Yield the slices of a run's operators, cut to the slice `computed`, because a daemon may report wrong times."""
    for each in operators:
        began_ns = min(computed.began_ns + each.began_ns, computed.ended_ns)
        ended_ns = min(began_ns + each.took_ns, computed.ended_ns)
        yield _Slice(each.operator or each.name, began_ns, ended_ns, {"node": each.name} if each.name else {})


def _free_track(ends: list[int], whole: _Slice) -> int:
    """Return the number of a free track and mark it as used. `ends` has the end of the last slice on each track."""
    for number, ended_ns in enumerate(ends):
        if ended_ns <= whole.began_ns:
            ends[number] = whole.ended_ns
            return number + 1
    ends.append(whole.ended_ns)
    return len(ends)
