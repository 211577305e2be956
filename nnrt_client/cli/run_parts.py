"""Show where the time of runs went, to people and to programs."""

from collections.abc import Sequence
from typing import Any

from nnrt_client.cli.printing import print_line, print_table
from nnrt_hdi.run_times import RunTimes

_BAR = 16
# How many parts a line names that says what most of the time went into.
_NAMED = 3

MEANINGS = {
    "waited": "waiting for a stream",
    "packed": "packing inputs",
    "outbound": "on the way to the daemon",
    "handled": "reading and answering there",
    "queued": "waiting for a slot there",
    "copied_in": "copying inputs there",
    "computed": "computing",
    "copied_out": "copying outputs there",
    "inbound": "on the way back",
    "unpacked": "unpacking outputs",
    "woken": "waking the caller",
}


def parts_ms(times: RunTimes) -> dict[str, float]:
    """Milliseconds of each part, by the names of MEANINGS."""
    return {part: round(nanoseconds / 1e6, 6) for part, nanoseconds in zip(MEANINGS, times, strict=True)}


def described_times(times: RunTimes) -> dict[str, Any]:
    """Describe the times for --json."""
    return {**times._asdict(), "total_ns": times.total_ns, "slowest": times.slowest}


def print_times(times: RunTimes) -> None:
    """Print a line for each part with a bar, and which part it was that made the run slow."""
    shares = times.shares()
    longest = max(shares.values()) or 1.0
    rows = [
        (_spoken(part), f"{ms:.3f}", percent(shares[part]), bar(shares[part] / longest), MEANINGS[part])
        for part, ms in parts_ms(times).items()
    ]
    print_table(("part", "ms", "share", "", "what it is"), rows, right=("ms", "share"))
    slowest = times.slowest
    print_line(f"slowest part: {_spoken(slowest)}, {percent(shares[slowest])} of {times.total_ns / 1e6:.3f} ms")


def said_shares(times: RunTimes) -> str:
    """Name the parts that took most, with their shares."""
    shares = sorted(times.shares().items(), key=lambda item: -item[1])[:_NAMED]
    return ", ".join(f"{_spoken(part)} {percent(share)}" for part, share in shares if share >= 0.01)


def mean_times(times: Sequence[RunTimes]) -> RunTimes:
    """Mean of each part over some runs."""
    return RunTimes._make(round(sum(part) / len(times)) for part in zip(*times, strict=True))


def _spoken(part: str) -> str:
    return part.replace("_", " ")


def percent(share: float) -> str:
    """A share as people read it."""
    return f"{100 * share:.0f} %"


def bar(share: float) -> str:
    """A share as a bar."""
    return "█" * round(_BAR * share) or "▏"
