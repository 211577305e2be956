"""Table of networks of all families compared with ONNX Runtime in this process: import, accuracy, speed.

    python benchmarks/export_networks.py            writes them to build/networks, once; needs torch
    PYTHONPATH=tests:tests/onnx_import python benchmarks/network_table.py --write

`make networks` does both. `--only resnet` selects networks, `--check` measures nothing.
"""

import argparse
import datetime
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from harness import ROOT, Report, alternate, device_daemon, in_rounds, machine, median_us, pair_cells, seconds
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx_networks import in_process_session

from nnrt_client import ModelSession, NnrtError, load

FOLDER = Path("build/networks")
PAGE = ROOT / "docs/reference/networks.md"
COLUMNS = ("network", "exporter", "format", "imported as", "equal within", "in process ms", "ms", "ratio", "load ratio")
FAMILIES = (
    "classification",
    "vision transformers",
    "detection",
    "OCR",
    "images",
    "texts",
    "speech and series",
    "others",
)
FORMATS = ("fp32", "fp16", "QDQ", "QOperator", "dynamic int8")
ABOUT = """\
Networks of all families, defined in [benchmarks/families](../../benchmarks/families) with random weights, exported from
torch by both of its exporters, and written in other formats by ONNX Runtime's own tools. `nnrt_client.load` loads each
file unchanged, with the dimensions open that an application would leave open, on a daemon of this host with the
onnxruntime backend. Each network runs in two sizes, compared with ONNX Runtime in the client's process: the same file
and the same number of threads, which don't spin while they wait (the backend's default).

- **imported as**: NNRt's operators, which any device may run; a program, which is the unchanged file and runs on ONNX
  Runtime; or the reason why not.
- **equal within**: largest difference to ONNX Runtime in process, relative to the largest element of the output; in
  quantization steps for outputs that are dequantized from integers.
- **in process ms**, **ms**, **ratio**: latency in process, latency on the daemon, and the second divided by the first,
  of the round with the median ratio of several alternating rounds. In runs below a millisecond the way to another
  process and back takes most of the time.
- **load ratio**: time of `load` without a cache divided by the time to open an ONNX Runtime session in process, median
  of alternating rounds.

`make networks` measures it again.
"""
THREADS = os.cpu_count() or 1
ROUNDS = 7
LOAD_ROUNDS = 3
ROUND_S = 0.03
MOST_RUNS = 30
# Relative to the largest element. With other int8 kernels results differ by single steps, which add up.
TOLERANCES = {"fp32": 1e-3, "fp16": 2e-2}
INT8_TOLERANCE = 0.1

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Exported:
    """ONNX file that export_networks.py wrote, with its .npz file."""

    path: Path

    @cached_property
    def about(self) -> dict[str, str]:
        """Family, network, exporter and format."""
        return {name: str(array) for name, array in self._under("about").items()}

    @cached_property
    def feeds(self) -> list[Arrays]:
        """Inputs of each run."""
        runs = [self._under(str(run)) for run in range(2)]
        return [run for run in runs if run]

    @cached_property
    def constants(self) -> dict[str, int]:
        """Inputs for which an application always gives the same value."""
        return {
            name.partition(" ")[2]: int(value) for name, value in self.about.items() if name.startswith("constant ")
        }

    @cached_property
    def steps(self) -> dict[str, float]:
        """Quantization step of each output that is dequantized from integers."""
        graph = onnx.load(self.path).graph
        scales = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        outputs = {info.name for info in graph.output}
        return {
            node.output[0]: float(scales[node.input[1]].max())
            for node in graph.node
            if node.op_type == "DequantizeLinear" and node.output[0] in outputs and node.input[1] in scales
        }

    def _under(self, folder: str) -> dict[str, NDArray[Any]]:
        with np.load(self.path.with_suffix(".npz")) as arrays:
            return {name.partition("/")[2]: arrays[name] for name in arrays.files if name.startswith(f"{folder}/")}


class Different(Exception):
    """The two sides compute different results."""


def compare(network: Exported, ours: Arrays, theirs: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """Return the largest difference between the two sides' outputs, in two units.

    The units are the largest element of the output, and its quantization step. Raises Different if the difference
    exceeds the tolerance.
    """
    tolerance = TOLERANCES.get(network.about["format"], INT8_TOLERANCE)
    largest = steps = 0.0
    for (name, mine), other in zip(ours.items(), theirs, strict=True):
        if (mine.shape, mine.dtype) != (other.shape, other.dtype):
            raise Different(f"{name} is {mine.dtype}{list(mine.shape)}, in process {other.dtype}{list(other.shape)}")
        if not other.size:
            continue
        apart = float(np.abs(mine.astype("f8") - other).max())
        scale = float(np.abs(other.astype("f8")).max()) or 1.0
        if not apart <= tolerance * scale:
            raise Different(f"{name} differs by {apart:.3g} where the largest element is {scale:.3g}")
        largest = max(largest, apart / scale)
        steps = max(steps, apart / network.steps.get(name, np.inf))
    return largest, steps


def network_cells(network: Exported, address: str, *, is_measured: bool) -> list[str]:
    """Return the last cells of a network's row: how it was imported, the difference, and the times.

    Raises NnrtError if the import fails, and Different if the results differ.
    """
    local = in_process_session(network.path, THREADS)
    open_remote = partial(load, network.path, address, constants=network.constants, cache=False)
    with open_remote() as remote:
        varying = [{name: run[name] for name in run if name not in network.constants} for run in network.feeds]
        both = zip(varying, network.feeds, strict=True)
        differences = [compare(network, remote.run(ours), local.run(None, dict(theirs))) for ours, theirs in both]
        largest, steps = (max(values) for values in zip(*differences, strict=True))
        equal = (
            f"{steps:.0f} step{'s' * (round(steps) != 1)}"
            if network.steps
            else "0"
            if largest == 0
            else f"{largest:.0e}"
        )
        if not is_measured:
            return [_way(remote), equal, "", "", "", ""]
        here = partial(local.run, None, dict(network.feeds[0]))
        there = partial(remote.run, varying[0])
        count = max(1, min(MOST_RUNS, int(ROUND_S / (median_us(here, 3) / 1e6))))
        cells = pair_cells(alternate(here, there, count, ROUNDS), scale=1e-3)
        way = _way(remote)
    loads = in_rounds(
        {
            "here": partial(seconds, partial(in_process_session, network.path, THREADS)),
            "there": partial(seconds, lambda: open_remote().close()),
        },
        LOAD_ROUNDS,
    )
    return [way, equal, *cells[:3], pair_cells(zip(loads["here"], loads["there"], strict=True))[2]]


def _way(session: ModelSession) -> str:
    return str(session.way)


def measure(networks: Sequence[Exported], *, is_measured: bool = True) -> list[Report]:
    """Return one table per family."""
    reports: dict[str, Report] = {}
    with device_daemon("127.0.0.1:0", "--backend", "onnxruntime", "--option", f"threads={THREADS}") as (address, _):
        for network in networks:
            about = network.about
            family = about["family"]
            report = reports.setdefault(family, Report(family[0].upper() + family[1:], "", COLUMNS))
            try:
                cells = network_cells(network, address, is_measured=is_measured)
            except (NnrtError, Different) as error:
                kind = "**differs**" if isinstance(error, Different) else "refused"
                first, *rest = str(error).replace(f"{str(network.path)!r}: ", "").split("\n")
                reason = rest[0].strip() if rest else first
                cells = [f"{kind}: {reason}".replace("|", "/"), "", "", "", "", ""]
            report.add(about["network"], about["exporter"], about["format"], *cells)
            print(" | ".join(report.rows[-1]), file=sys.stderr, flush=True)
    return list(reports.values())


def summary(rows: Sequence[Sequence[str]]) -> Report:
    """Return a table that counts, for each format, the files by outcome, such as imported as operators, or refused."""
    kinds = list(dict.fromkeys(_kind(row) for row in rows))
    report = Report("Summary", "", ("format", "files", *kinds))
    for form in FORMATS:
        of_form = [_kind(row) for row in rows if row[2] == form]
        report.add(form, str(len(of_form)), *(str(of_form.count(kind)) for kind in kinds))
    return report


def _kind(row: Sequence[str]) -> str:
    return row[3].partition(":")[0].strip("*")


def write(reports: Sequence[Report]) -> None:
    """Write the page with the summary, and one page for each family."""
    rows = [row for report in reports for row in report.rows]
    day = datetime.datetime.now(datetime.timezone.utc).date()
    where = f"{machine()}, ONNX Runtime {version('onnxruntime')}, {THREADS} threads"
    counts = f"{len(rows)} files of {len({row[0] for row in rows})} networks"
    made = f"Written by `make networks` on {day} ({where}): {counts}."
    families = {report.title: report.title.lower().replace(" ", "-") for report in reports}
    links = [f"- [{title}](networks/{name}.md)" for title, name in families.items()]
    marks = ["", "<!-- pages: networks/* -->", ""]
    PAGE.write_text("\n".join(["# Networks", "", ABOUT, made, "", summary(rows).markdown(), *links, *marks]))
    for report in reports:
        text = f"# {report.title}\n\n[Networks](../networks.md) says what the columns mean.\n\n{report.table()}"
        (PAGE.parent / "networks" / f"{families[report.title]}.md").write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where export_networks.py has written the networks")
    parser.add_argument("--only", default="", help="take only files whose names contain this text")
    parser.add_argument("--check", action="store_true", help="compare the results, and measure no times")
    parser.add_argument("--write", action="store_true", help=f"write docs/reference/{PAGE.name}")
    given = parser.parse_args()
    paths = [path.with_suffix(".onnx") for path in sorted(given.folder.glob("*.npz")) if given.only in path.name]
    if not paths:
        sys.exit(
            f"there are no networks in {given.folder}; where nnrt[torch,onnxruntime] is installed, write them with"
            f" python benchmarks/export_networks.py {given.folder}"
        )
    networks = sorted(map(Exported, paths), key=lambda network: FAMILIES.index(network.about["family"]))
    reports = measure(networks, is_measured=not given.check)
    rows = [row for report in reports for row in report.rows]
    for report in (*reports, summary(rows)):
        report.show()
    if given.write:
        write(reports)


if __name__ == "__main__":
    main()
