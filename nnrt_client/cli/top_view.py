"""Data of `nnrt top`: devices and their users, from one sample of all daemons."""

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nnrt_client.cli.sampling import Answer, Sample, Sampler
from nnrt_client.cli.work import NOTHING, PRESENT_USE, Work, busy_share, sees_all, total, work_of_all, work_of_each
from nnrt_hdi.backend import Telemetry
from nnrt_hdi.counters import DeviceLoad, IdentityCounters

# Time without an answer after which a daemon is shown as silent.
_SILENT_S = 2.0
NO_SESSION, NOT_ASKED, DRAINING, OUT = "NO SESSION", "...", "DRAINING", "OUT"


@dataclass(frozen=True, slots=True)
class DeviceView:
    """Device, and its work during the last interval."""

    address: str
    answer: Answer | None
    # Seconds without an answer, if more than _SILENT_S; otherwise 0.
    silent_s: float
    # Work of all identities that the daemon reports; None if it has no counters.
    work: Work | None
    # Utilization of its slots, from 0 to 1; None if the daemon doesn't report it.
    busy_share: float | None

    @classmethod
    def of(cls, sample: Sample) -> "DeviceView":
        counters = sample.answer.counters if sample.answer else None
        if counters is None or _is_silent(sample):
            return cls(sample.address, sample.answer, sample.silent_s if _is_silent(sample) else 0.0, None, None)
        work, share = work_of_all(counters, sample.before), busy_share(counters, sample.before)
        return cls(sample.address, sample.answer, 0.0, work, share)

    @property
    def name(self) -> str | None:
        return self.answer.look.device.name if self.answer and self.answer.look.device else None

    @property
    def is_answering(self) -> bool:
        return self.answer is not None and self.answer.look.status is not None and not self.silent_s

    @property
    def status(self) -> str:
        """Name of the DeviceStatus, or NO_SESSION, NOT_ASKED, DRAINING or OUT."""
        if self.answer is None:
            return NO_SESSION if self.silent_s else NOT_ASKED
        status = self.answer.look.status
        if status is None or self.silent_s:
            return NO_SESSION
        state = self.answer.state
        return DRAINING if state.is_draining else OUT if state.out else status.name

    @property
    def why(self) -> str:
        """Reason why the device takes no work; empty if it does."""
        if self.silent_s:
            return f"it has not answered for {self.silent_s:.0f} s"
        return self.answer.look.why if self.answer else ""

    @property
    def load(self) -> DeviceLoad | None:
        """Load of the device, or None if the daemon doesn't answer or doesn't report it."""
        return self.answer.counters.load if self.is_answering and self.answer and self.answer.counters else None

    @property
    def telemetry(self) -> Telemetry:
        """Figures that the device measures of itself; empty if it doesn't answer or measures nothing."""
        reported = self.answer.state.telemetry if self.is_answering and self.answer else None
        return reported or Telemetry()

    @property
    def sees_all(self) -> bool:
        """True if the daemon reports the counters of all identities, or reports none; False if only this client's."""
        return self.answer is None or self.answer.counters is None or sees_all(self.answer.counters)

    def describe(self) -> dict[str, Any]:
        """Return the device as --json prints it."""
        counters = self.answer.counters if self.work and self.answer else None
        return {
            "name": self.name,
            "address": self.address,
            "status": self.status if self.is_answering else None,
            "why": self.why,
            "uptime_s": counters and counters.uptime_s,
            "busy_share": self.busy_share,
            "load": self.load and asdict(self.load),
            "telemetry": asdict(self.telemetry),
            "sees_all": self.sees_all,
            "work": self.work and _describe_work(self.work),
        }


@dataclass(frozen=True, slots=True)
class UserView:
    """Identity, and its work on all devices, during the last interval and since the daemons' starts."""

    identity: str
    work: Work
    since_start: IdentityCounters
    # Share of all users' device time, from 0 to 1.
    share: float
    devices: int

    def describe(self) -> dict[str, Any]:
        """Return the identity as --json prints it."""
        return {
            "identity": self.identity,
            "devices": self.devices,
            "share": self.share,
            "work": _describe_work(self.work),
            "since_start": {name: value for name, value in asdict(self.since_start).items() if name != "identity"},
        }


@dataclass(frozen=True, slots=True)
class View:
    """All devices, each once, and their users, in the order of falling device time."""

    devices: Sequence[DeviceView]
    users: Sequence[UserView]
    # Names that lead to no address, with the reasons.
    failures: Mapping[str, str]

    @classmethod
    def of(cls, sampler: Sampler, given: Collection[str]) -> "View":
        """Return a view of the latest samples.

        A name that leads to no address counts as a failure if the user gave it, or if no device is found at all.
        """
        once = _unique_samples(sampler.samples)
        failures = {name: why for name, why in sampler.failures.items() if name in given or not once}
        return cls([DeviceView.of(sample) for sample in once], _users(once), failures)

    @property
    def are_all_answering(self) -> bool:
        return all(device.is_answering for device in self.devices)

    def describe(self) -> dict[str, Any]:
        """Return the view as --json prints it."""
        return {
            "time": time.time(),
            "devices": [device.describe() for device in self.devices],
            "users": [user.describe() for user in self.users],
            "failures": dict(self.failures),
        }


def _is_silent(sample: Sample) -> bool:
    return sample.silent_s > _SILENT_S


def _unique_samples(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples with each daemon once, even if several addresses lead to it."""
    once: dict[object, Sample] = {}
    for sample in samples:
        once.setdefault((sample.answer and sample.answer.instance_id) or sample.address, sample)
    return list(once.values())


def _users(samples: Sequence[Sample]) -> list[UserView]:
    works: defaultdict[str, list[Work]] = defaultdict(list)
    since_start: defaultdict[str, list[IdentityCounters]] = defaultdict(list)
    for sample in samples:
        if sample.answer is None or sample.answer.counters is None or _is_silent(sample):
            continue
        for identity, work in work_of_each(sample.answer.counters, sample.before).items():
            works[identity].append(work)
        for each in sample.answer.counters.identities:
            since_start[each.identity].append(each)
    together = {identity: Work.sum_of(each) for identity, each in works.items()}
    whole_s = sum(work.counted.run_s for work in together.values())
    views = [
        UserView(
            identity, work, total(since_start[identity]), work.counted.run_s / (whole_s or 1), len(works[identity])
        )
        for identity, work in together.items()
    ]
    there = [view for view in views if view.identity or view.since_start != NOTHING]
    return sorted(there, key=lambda view: (-view.share, -view.since_start.run_s, view.identity))


def _describe_work(work: Work) -> dict[str, Any]:
    counted = {name: value for name, value in asdict(work.counted).items() if name not in (*PRESENT_USE, "identity")}
    return {"seconds": work.seconds, "mean_s": work.mean_s, "p99_s": work.p99_s, **counted}
