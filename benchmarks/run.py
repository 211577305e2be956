"""Measure, print the tables, and write docs/reference/performance/*.md: `make bench`.

    PYTHONPATH=tests:tests/onnx_import:examples/generate python benchmarks/run.py [--only GROUP ...] [--brief]
    python benchmarks/run.py --only small --against OTHER_CHECKOUT

| group | what its tables say |
|---|---|
| small | 1 KB and 600 KB on one host, compared with a Connection and a gRPC echo; 1 KB over TCP, compared with a unary
          call and bare streams; 600 KB and 64 MB with Tensors and with arrays; 64 MB over TCP, compared with manual
          transfers |
| memory | a daemon with one model in eight sessions, compared with one session, and after all have closed it; daemon
          and client, compared with the model's weights |
| residency | 16 clients of 20 models, of which 5 fit: hits beside an ideal LRU, latencies beside a daemon with room |
| loading | loads of one file by stage, cold and known, compared with ONNX Runtime in process; fifty clients that load
            the same model at once, compared with one |
| crowds | 8 clients x 16 in flight compared with one client; 60 clients with 8; batching; KServe's server (`make peers`
           installs it) |
| model_servers | `nnrt serve` beside KServe and MLServer (`make peers` installs them), and beside a session |
| shapes | runs of 10 and of 200 nodes with unseen shapes; a decoder with a growing cache |
| sequences | state on the device, loops without the client, slots, survival |
| stateful | a recurrent network, step by step |
| options | what a canary, TLS and traces cost a run |
| kernels | kernels of the reference backend, compared with ONNX Runtime |
| onnx_networks | ResNet-50 and other networks, compared with ONNX Runtime in process, for one client and for eight |

Other measurements have commands of their own:

| command | prints |
|---|---|
| `make bench-fleet` (fleets.py) | pools of daemons during restarts and crashes |
| `make networks` (network_table.py) | networks of all families, compared with ONNX Runtime in process |
| frames.py | the number of Python frames of a small run |
| kill_daemons.py, kill_clients.py | hangs, crashes and leaks after processes are killed |
| soak.py | errors and memory of a daemon under mixed use for minutes |
| soak_models.py | the same while clients of more models than fit come, go and are killed |

With --only, nothing is written. With --brief, few rounds are measured, which only shows that a benchmark works.
"""

import argparse
import datetime
import importlib
import os
from pathlib import Path

# Set before NumPy is imported: the reference kernels are compared with ONNX Runtime on one thread.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import harness

PAGES = harness.ROOT / "docs/reference/performance"
# Title of each group's page.
GROUPS = {
    "small": "Small and large runs",
    "memory": "Memory",
    "residency": "More models than fit",
    "loading": "Loading",
    "crowds": "Many clients",
    "model_servers": "A server of models",
    "shapes": "Unseen shapes",
    "stateful": "State from step to step",
    "sequences": "Sequences",
    "options": "Options",
    "kernels": "Reference kernels",
    "onnx_networks": "Networks in process and behind a daemon",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=GROUPS, default=[*GROUPS], help="measure only these groups; write nothing"
    )
    parser.add_argument("--brief", action="store_true", help="measure few rounds; write nothing")
    parser.add_argument("--large", action="store_true", help="load a model of 2 GB, too")
    parser.add_argument("--against", type=Path, help="compare small runs with another checkout's")
    given = parser.parse_args()
    harness.is_brief, harness.is_large = given.brief, given.large
    if given.against:
        importlib.import_module("against").compare(given.against).show()
        return
    for group in given.only:
        reports = []
        for report in importlib.import_module(group).measure():
            report.show()
            reports.append(report)
        if given.only == [*GROUPS] and not given.brief:
            write(group, reports)


def write(group: str, reports: list[harness.Report]) -> None:
    """Write the group's page."""
    day = datetime.datetime.now(datetime.timezone.utc).date()
    page = [
        f"# {GROUPS[group]}",
        "",
        f"Written by `make bench` on {day} ({harness.machine()}). [Performance](../performance.md) explains it.",
        "",
        *(report.markdown() for report in reports),
    ]
    (PAGES / f"{group}.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
