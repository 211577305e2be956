"""From an ONNX file to a session that is ready, in a process of its own: on a device, and with ONNX Runtime itself.

    PYTHONPATH=tests:tests/onnx_import python benchmarks/loading.py

The ways are measured in turns. Each load is a new process, and each first load finds a new daemon.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import onnx
from onnx_networks import NETWORKS, spread
from report import Report
from small_run import device_daemon

ROUNDS = 3

# Seconds to a session, of which its imports are a part; the bytes of its peak memory above what importing took; what
# was sent; and from where the model came.
_MEASURED = """
import json, os, sys, time
began = time.perf_counter()

def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
"""
_ON_A_DEVICE = """
from nnrt_client import load, wait_until_cached
imported = peak_bytes()
session = load(sys.argv[1], sys.argv[2], cache=json.loads(sys.argv[3]))
seconds, report = time.perf_counter() - began, session.report
peak = peak_bytes() - imported
wait_until_cached()
session.close()
print(json.dumps([seconds, peak, report.sent_bytes, report.origin.value]))
"""
_IN_PROCESS = """
import onnxruntime
imported = peak_bytes()
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.intra_op_num_threads = os.cpu_count()
options.add_session_config_entry("session.intra_op.allow_spinning", "0")
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
print(json.dumps([time.perf_counter() - began, peak_bytes() - imported, 0, ""]))
"""

Measured = Sequence[Any]


def measure() -> list[Report]:
    report = Report(
        "From an ONNX file to a session",
        "Each in a process of its own, whose imports count: with ONNX Runtime in process, and by `load`, over TCP"
        " loopback, on a daemon that was just started, and once more on the same. That keeps what it compiles in a"
        f" store, or leaves it to the user's cache. Medians of {ROUNDS} rounds taken in turns; the ratio is the median"
        " of the rounds' ratios to in process, with their quartiles. Sent is what the client sends; the peaks are those"
        " of the memory of the client and of the daemon, which may be storing still, mapped files included, above what"
        " they had before, in sizes of the ONNX file.",
        ("network", "MB", "way", "ms", "ratio", "quartiles", "sent MB", "client's peak", "daemon's peak"),
    )
    with tempfile.TemporaryDirectory() as name:
        for network, build in NETWORKS.items():
            path = Path(name, "model.onnx")
            onnx.save(build(), path)
            _measure_network(network, path, report)
    return [report]


def _measure_network(network: str, path: Path, report: Report) -> None:
    size_bytes = path.stat().st_size
    rounds = [_round(path) for _ in range(ROUNDS)]
    for way in rounds[0]:
        seconds, peaks, sent, _, daemon_peaks = zip(*(each[way] for each in rounds), strict=True)
        ratios = (each[way][0] / each["in process"][0] for each in rounds)
        cells = [f"{statistics.median(seconds) * 1e3:.0f}", *spread(ratios, 2), f"{sent[0] / 1e6:.2f}"]
        multiples = [f"{statistics.median(each) / size_bytes:.1f}" for each in (peaks, daemon_peaks)]
        report.add(network, f"{size_bytes / 1e6:.0f}", way, *cells, *multiples)


def _round(path: Path) -> dict[str, Measured]:
    """Each way once."""
    ways: dict[str, Measured] = {"in process": [*_measured(_IN_PROCESS, path), 0]}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        serving = ("127.0.0.1:0", "--backend", "onnxruntime")
        storing = stack.enter_context(device_daemon(*serving, "--store-dir", f"{folder}/store"))
        plain = stack.enter_context(device_daemon(*serving))
        for name, daemon, cache, second in (
            ("the daemon's store", storing, False, "stored"),
            ("the user's cache", plain, f"{folder}/cache", "restored"),
        ):
            for turn, origin in (("first", "compiled"), ("again", second)):
                idle_bytes = _peak_bytes(daemon[1])
                measured = _measured(_ON_A_DEVICE, path, daemon[0], json.dumps(cache))
                assert measured[3] == origin, measured
                ways[f"{name}: {turn}"] = [*measured, _peak_bytes(daemon[1]) - idle_bytes]
    return ways


def _measured(script: str, *arguments: object) -> Measured:
    command = [sys.executable, "-c", _MEASURED + script, *map(str, arguments)]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    answer: Measured = json.loads(result.stdout)
    return answer


def _peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    for report in measure():
        report.show()
