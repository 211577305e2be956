"""Everything at once with one daemon, from many threads, for minutes: what was done, what went wrong, the memory."""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from daemon_process import DaemonProcess
from mixed_use import THREADS, MixedUse
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from nnrt_client import Runtime

MIB = 1 << 20
# Memory counts from here on, when every cache and pool has been filled.
WARM = 0.25


def resident_bytes() -> int:
    """Memory of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
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


def soak(daemon: DaemonProcess, work: MixedUse, seconds: float) -> list[str]:
    """Do it, print what came of it, and return what went wrong."""
    sizes: dict[str, list[int]] = {"client": [], "daemon": []}
    with Progress(transient=True) as progress:
        task = progress.add_task("soaking", total=1.0)
        work.run(seconds, watching(daemon, sizes, lambda fraction: progress.update(task, completed=fraction)))
    work.close()
    table = Table("what", "count", title=f"{THREADS} threads, {seconds:g} s")
    for what, count in sorted(work.done.items()):
        table.add_row(what.replace("_", " "), f"{count:,}")
    table.add_row("wrong, lost or hanging", str(len(work.wrong)))
    for what, series in sizes.items():
        if series:
            half = len(series) // 2 or 1
            first, second = (sum(part) / len(part) / MIB for part in (series[:half], series[half:] or series))
            table.add_row(f"memory of the {what}, MiB, first and second half", f"{first:.1f}, {second:.1f}")
    Console().print(table)
    return work.wrong


def watching(
    daemon: DaemonProcess, sizes: dict[str, list[int]], show: Callable[[float], None]
) -> Callable[[float], None]:
    def watch(fraction: float) -> None:
        show(fraction)
        if fraction >= WARM:
            sizes["client"].append(resident_bytes())
            sizes["daemon"].append(daemon.memory_bytes())

    return watch


if __name__ == "__main__":
    main()
