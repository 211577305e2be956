"""Measure everything, print the tables, and write docs/performance.md: `make bench`."""

import datetime
import os
from pathlib import Path

# Before numpy is imported: the reference kernels are compared with one thread of ONNX Runtime.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import c_calls
import caches
import carriers
import counting
import fairness
import graphs
import joined_runs
import kernels
import loading
import many_clients
import onnx_networks
import peers
import resident
import same_host
import small_run
import stateful
import tls
import traced_runs
import transfers
from report import machine

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"


def main() -> None:
    reports = [
        *small_run.measure(),
        *counting.measure(),
        *traced_runs.measure(),
        *same_host.measure(),
        *many_clients.measure(),
        *joined_runs.measure(),
        *peers.measure(),
        *carriers.measure(),
        *resident.measure(),
        *stateful.measure(),
        *fairness.measure(),
        *caches.measure(),
        *kernels.measure(),
        *graphs.measure(),
        *onnx_networks.measure(),
        *loading.measure(),
        *transfers.measure(),
        *tls.measure(),
        *c_calls.measure(),
    ]
    for report in reports:
        report.show()
    day = datetime.datetime.now(datetime.timezone.utc).date()
    page = [
        "# Performance",
        "",
        f"Written by `make bench` on {day} ({machine()}).",
        "",
        "Times depend on the machine and on what else it does. Compare the ratios: both sides are measured in one run.",
        "Where a row has two figures and their ratio, all three are of the round whose ratio is the median.",
        "",
        *(report.markdown() for report in reports),
    ]
    PAGE.write_text("\n".join(page))


if __name__ == "__main__":
    main()
