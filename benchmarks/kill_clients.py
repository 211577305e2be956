"""Stress test that kills clients of one daemon at random moments and checks that it frees all their memory.

    PYTHONPATH=tests python benchmarks/kill_clients.py

tests/killed_clients.py says what the clients do.
"""

import argparse

from daemon_process import DaemonProcess
from harness import Report
from killed_clients import BACK_S, LEASE_S, Aftermath, Holdings, kill_clients
from observer import Observer

MIB = 1 << 20
# Clients killed before the measurement, while thread and memory pools still grow.
WARM_UP = 60


def table(count: int, aftermath: Aftermath) -> Report:
    back_s = max(aftermath.back_after_s, 0.0)
    title = f"{count} clients killed: all freed {back_s:.1f} s after the last lease (limit: {BACK_S:g} s)"
    report = Report(title, "", ("resource in use", "before", "maximum", "after"))
    for name, *numbers in zip(Holdings._fields, aftermath.before, aftermath.most, aftermath.after, strict=True):
        if name.endswith("_bytes"):
            report.add(name.removesuffix("_bytes").replace("_", " ") + " MiB", *(f"{n / MIB:.1f}" for n in numbers))
        else:
            report.add(name, *map(str, numbers))
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=1000, help="how many clients to kill (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments of the kills (default 0)")
    options = parser.parse_args()
    daemon = DaemonProcess("--lease-s", str(LEASE_S))
    try:
        with Observer(daemon.address) as observer:
            kill_clients(daemon, observer, WARM_UP, options.seed)
            aftermath = kill_clients(daemon, observer, options.clients, options.seed + 1)
    finally:
        daemon.kill()
    table(options.clients, aftermath).show()
    raise SystemExit(not aftermath.is_clean or "Traceback" in daemon.log())


if __name__ == "__main__":
    main()
