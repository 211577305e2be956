"""What `nnrt top` knows of devices and of those who use them, from one look at all daemons."""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nnrt_client.cli.sampling import Answer, Sample
from nnrt_client.cli.work import HELD_NOW, NOTHING, Work, sees_all, total, work_of_all, work_of_each
from nnrt_hdi.counters import IdentityCounters

# So long a daemon may take to answer before that is shown.
_SILENT_S = 2.0
NO_SESSION, NOT_ASKED, DRAINING = "NO SESSION", "...", "DRAINING"


@dataclass(frozen=True, slots=True)
class DeviceView:
    """A device, and its work since the look before."""

    address: str
    answer: Answer | None
    # For everybody, or for this client's identity where the daemon tells of no other; None where it doesn't count.
    work: Work | None
    sees_all: bool
    silent_s: float

    @classmethod
    def of(cls, sample: Sample) -> "DeviceView":
        answer = sample.answer
        counters = answer.counters if answer else None
        is_silent = sample.silent_s > _SILENT_S
        work = None
        if counters is not None and not is_silent:
            work = work_of_all(counters, sample.before)
        sees = counters is not None and sees_all(counters)
        return cls(sample.address, answer, work, sees, sample.silent_s if is_silent else 0.0)

    @property
    def name(self) -> str | None:
        return self.answer.look.device.name if self.answer and self.answer.look.device else None

    @property
    def is_answering(self) -> bool:
        return self.answer is not None and self.answer.look.status is not None and not self.silent_s

    @property
    def status(self) -> str:
        """Name of the DeviceStatus, or what is known in its place."""
        if self.answer is None:
            return NOT_ASKED
        if not self.is_answering:
            return NO_SESSION
        status = self.answer.look.status
        return DRAINING if self.answer.state.is_draining or status is None else status.name

    @property
    def why(self) -> str:
        """Why it takes no work; empty where it does."""
        if self.silent_s:
            return f"it has not answered for {self.silent_s:.0f} s"
        return self.answer.look.why if self.answer else ""

    def described(self) -> dict[str, Any]:
        """The device for --json."""
        answer = self.answer if self.is_answering else None
        return {
            "name": self.name,
            "address": self.address,
            "status": self.status if answer else None,
            "why": self.why,
            "load": answer
            and {
                "running": answer.state.running,
                "queued": answer.state.queued,
                "held_bytes": answer.state.held_bytes,
                "sessions": answer.state.sessions,
            },
            "uptime_s": answer.counters.uptime_s if answer and answer.counters else None,
            "sees_all": self.sees_all,
            "work": self.work and _described(self.work),
        }


@dataclass(frozen=True, slots=True)
class UserView:
    """An identity, and what it has had of all devices: since the look before, and since their starts."""

    identity: str
    work: Work
    since_start: IdentityCounters
    # Part of the time that all had, from 0 to 1.
    share: float
    devices: int

    def described(self) -> dict[str, Any]:
        """The identity for --json."""
        return {
            "identity": self.identity,
            "devices": self.devices,
            "share": self.share,
            "work": _described(self.work),
            "since_start": asdict(self.since_start),
        }


@dataclass(frozen=True, slots=True)
class View:
    """All devices, each once, and all who use them, those first who have had most of the devices' time."""

    devices: Sequence[DeviceView]
    users: Sequence[UserView]

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "View":
        once = _each_once(samples)
        return cls([DeviceView.of(sample) for sample in once], _users(once))

    @property
    def are_all_answering(self) -> bool:
        return all(device.is_answering for device in self.devices)

    def described(self) -> dict[str, Any]:
        """The view for --json."""
        return {
            "time": time.time(),
            "devices": [device.described() for device in self.devices],
            "users": [user.described() for user in self.users],
        }


def _each_once(samples: Sequence[Sample]) -> list[Sample]:
    """Samples, without those of the same daemon at another address."""
    once: dict[object, Sample] = {}
    for sample in samples:
        once.setdefault((sample.answer and sample.answer.instance_id) or sample.address, sample)
    return list(once.values())


def _users(samples: Sequence[Sample]) -> list[UserView]:
    works: defaultdict[str, list[Work]] = defaultdict(list)
    since_start: defaultdict[str, list[IdentityCounters]] = defaultdict(list)
    for sample in samples:
        if sample.answer is None or sample.answer.counters is None:
            continue
        for identity, work in work_of_each(sample.answer.counters, sample.before).items():
            works[identity].append(work)
        for each in sample.answer.counters.identities:
            since_start[each.identity].append(each)
    together = {identity: Work.together(each) for identity, each in works.items()}
    whole = sum(work.on_device for work in together.values())
    views = [
        UserView(
            identity, work, total(since_start[identity]), work.on_device / whole if whole else 0.0, len(works[identity])
        )
        for identity, work in together.items()
        if identity or total(since_start[identity]) != NOTHING
    ]
    return sorted(views, key=lambda view: (-view.share, -view.since_start.run_s, view.identity))


def _described(work: Work) -> dict[str, Any]:
    return {
        "seconds": work.seconds,
        **{name: value for name, value in asdict(work.counted).items() if name not in (*HELD_NOW, "identity")},
    }
