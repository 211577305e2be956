"""Networks whose nodes ONNX Runtime fuses, through the onnxruntime backend and in ONNX Runtime in this process.

    python tests/onnx_import/fusion_networks.py FOLDER --large
    PYTHONPATH=tests:tests/onnx_import python benchmarks/fusions.py FOLDER

The first command needs torch (the extra `nnrt[torch]`), the second doesn't. Any folder of ONNX files will do.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from onnx_models import AnyArray
from onnx_networks import executor_on, in_process_session, in_turns, median_s
from report import Report, pair_cells
from small_run import device_daemon

from nnrt_client import Runtime

ROUNDS = 15
RUNS_PER_ROUND = 5
# What dimensions are that a file leaves open.
SIZE = 480


def feeds_of(session: Any) -> dict[str, AnyArray]:
    """Random inputs: numbers, and few words or a mask where integers are asked for."""
    rng = np.random.default_rng(5)
    feeds: dict[str, Any] = {}
    for entry in session.get_inputs():
        shape = [dim if isinstance(dim, int) else SIZE if at else 1 for at, dim in enumerate(entry.shape)]
        if entry.type == "tensor(float)":
            feeds[entry.name] = rng.standard_normal(shape, np.float32)
        else:
            feeds[entry.name] = np.ones(shape, np.int64)
    return feeds


def measure(folder: Path, threads: int) -> Report:
    report = Report(
        "Networks whose nodes are fused",
        f"One run at a time with {threads} threads, through the onnxruntime backend in shared memory and in ONNX"
        f" Runtime in the client's process: {ROUNDS} rounds of {RUNS_PER_ROUND} runs taken in turns; the"
        " ratio is the median of the rounds' ratios, with their quartiles.",
        ("network", "in process ms", "remote ms", "ratio", "quartiles"),
    )
    serving = ("--backend", "onnxruntime", "--option", f"threads={threads}")
    with device_daemon("127.0.0.1:0", *serving) as (address, _), Runtime([address]) as runtime:
        for path in sorted(folder.glob("*.onnx")):
            session = in_process_session(path, threads)
            feeds = feeds_of(session)
            with executor_on(runtime.device(), path) as executor:
                here, there = partial(session.run, None, feeds), partial(executor.run_sync, list(feeds.values()))
                pairs = in_turns(
                    partial(median_s, here, RUNS_PER_ROUND), partial(median_s, there, RUNS_PER_ROUND), ROUNDS
                )
            report.add(path.stem, *pair_cells(pairs, ".3f", 1e3))
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    measure(given.folder, given.threads).show()
