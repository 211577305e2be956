"""How long `nnrt-device up` takes to have four devices ready, beside the start of one daemon.

    PYTHONPATH=tests python benchmarks/host_start.py

The daemons compute with the reference backend. One alone and four under a supervisor are started in turns.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from daemon_process import DaemonProcess
from report import Report

DEVICES = 4
ROUNDS = 7


def measure() -> list[Report]:
    report = Report(
        "Start of a host",
        f"From the command to the line that says ready. {ROUNDS} times in turns, medians.",
        ("", "seconds", "fastest", "slowest"),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.toml"
        path.write_text('[defaults]\nbackend = "reference"\n' + "".join(f"[device.d{i}]\n" for i in range(DEVICES)))
        alone, together, beyond = [], [], []
        for _ in range(ROUNDS):
            alone.append(_one_daemon())
            together.append(_a_host(path))
            beyond.append(together[-1] - alone[-1])
    for name, times in (("one daemon", alone), (f"`up` on {DEVICES} devices", together), ("difference", beyond)):
        report.add(name, *(f"{time_s:.2f}" for time_s in (statistics.median(times), min(times), max(times))))
    return [report]


def _one_daemon() -> float:
    began = time.perf_counter()
    daemon = DaemonProcess("--backend", "reference")
    taken = time.perf_counter() - began
    daemon.kill()
    return taken


def _a_host(path: Path) -> float:
    command = [sys.executable, "-m", "nnrt_device_service", "up", str(path), "--one-shot"]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as host:
        assert host.stdout is not None
        assert any(line.startswith(f"ready: {DEVICES} devices") for line in host.stdout)  # Reads no further.
        taken = time.perf_counter() - began
        host.terminate()
    return taken


if __name__ == "__main__":
    for each in measure():
        each.show()
