"""Parts of a run's latency, printed for people and as JSON."""

from collections.abc import Sequence
from typing import Any

from nnrt_client.cli.printing import print_line, print_table
from nnrt_hdi.run_times import RunTimes

_BAR = 16
# Number of parts that a list of the largest parts names.
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
    """Return the milliseconds of each part, with the names of MEANINGS."""
    return {part: round(nanoseconds / 1e6, 6) for part, nanoseconds in zip(MEANINGS, times, strict=True)}


def describe_times(times: RunTimes) -> dict[str, Any]:
    """Return the times as --json prints them."""
    return {**times._asdict(), "total_ns": times.total_ns, "slowest": times.slowest}


def print_times(times: RunTimes) -> None:
    """Print one line with a bar for each part, and name the slowest part."""
    shares = times.shares()
    longest = max(shares.values()) or 1.0
    rows = [
        (_part_name(part), f"{ms:.3f}", percent(shares[part]), bar(shares[part] / longest), MEANINGS[part])
        for part, ms in parts_ms(times).items()
    ]
    print_table(("part", "ms", "share", "", "what it is"), rows, right=("ms", "share"))
    slowest = times.slowest
    print_line(f"slowest part: {_part_name(slowest)}, {percent(shares[slowest])} of {times.total_ns / 1e6:.3f} ms")


def format_largest_parts(times: RunTimes) -> str:
    """Return the largest parts of a run's latency and their shares as text, such as "computed 62 %, queued 20 %"."""
    shares = sorted(times.shares().items(), key=lambda item: -item[1])[:_NAMED]
    return ", ".join(f"{_part_name(part)} {percent(share)}" for part, share in shares if share >= 0.01)


def mean_times(times: Sequence[RunTimes]) -> RunTimes:
    """Return the mean of each part over some runs."""
    return RunTimes._make(round(sum(part) / len(times)) for part in zip(*times, strict=True))


def _part_name(part: str) -> str:
    return part.replace("_", " ")


def percent(share: float) -> str:
    """Return a fraction as text, such as "35 %"."""
    return f"{100 * share:.0f} %"


def bar(share: float) -> str:
    """Return a bar of block characters for a fraction."""
    return "█" * round(_BAR * share) or "▏"
