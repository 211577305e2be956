"""Soak test: mixed use of one daemon from many threads for minutes; reports work done, errors and memory.

PYTHONPATH=tests python benchmarks/soak.py [--seconds 180]
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from daemon_process import DaemonProcess
from harness import Report
from mixed_use import THREADS, MixedUse

from nnrt_client import Runtime

MIB = 1 << 20
# Fraction of the time after which memory is recorded: caches and pools are full by then.
WARM = 0.25


def soak(daemon: DaemonProcess, work: MixedUse, seconds: float) -> list[str]:
    """Run the load, print a report, and return the errors found."""
    sizes: list[tuple[int, int]] = []

    def watch(fraction: float) -> None:
        if fraction >= WARM:
            sizes.append((resident_bytes(), daemon.memory_bytes()))

    work.run(seconds, watch)
    work.close()
    report = Report(f"{THREADS} threads, {seconds:g} s", "", ("what", "count"))
    for what, count in sorted(work.done.items()):
        report.add(what.replace("_", " "), f"{count:,}")
    report.add("wrong, lost or hanging", str(len(work.wrong)))
    for what, series in zip(("client", "daemon"), zip(*sizes, strict=True), strict=False):
        half = max(len(series) // 2, 1)
        halves = (f"{statistics.mean(part) / MIB:.1f}" for part in (series[:half], series[half:] or series))
        report.add(f"memory of the {what}, MiB, first and second half", ", ".join(halves))
    report.show()
    return work.wrong


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    daemon = DaemonProcess()
    try:
        with Runtime([daemon.address]) as runtime, tempfile.TemporaryDirectory() as cache:
            wrong = soak(daemon, MixedUse(runtime, Path(cache), arguments.seed), arguments.seconds)
    finally:
        daemon.kill()
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
