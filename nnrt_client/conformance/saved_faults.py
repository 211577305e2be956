"""Files of the first faults: models, inputs, right answers and the commands that reproduce them."""

import re
import shlex
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.conformance.advice import advice
from nnrt_client.conformance.case import Case
from nnrt_client.conformance.kit import Result
from nnrt_client.conformance.levels.answers import Answers
from nnrt_client.conformance.outcome import Verdict
from nnrt_client.conformance.report import Report
from nnrt_client.conformance.shrinking import shrink
from nnrt_client.conformance.target import Target
from nnrt_client.model import file as model_file
from nnrt_client.model.model import Model
from nnrt_client.run.names import distinct_names
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.files import container
from nnrt_hdi.graph import Graph

_NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


def save_faults(report: Report, directory: Path, address: str, target: Target) -> Iterator[Path]:
    """Write the first fault of each operator and check to a directory of its own, and yield that directory.

    For a wrong model of several nodes it also has the smallest part found that is still wrong. Raises OSError.
    """
    for result in report.first_faults().values():
        folder = directory / _NOT_IN_FILE_NAMES.sub("-", result.trial.name)
        folder.mkdir(parents=True, exist_ok=True)
        where, name = shlex.quote(address), shlex.quote(result.trial.name)
        lines = [*_fault_lines(result), "", f"nnrt conformance {where} --only {name}"]
        if isinstance(result.trial, Answers):
            case = result.trial.case
            for number, run in enumerate(case.runs, 1):
                lines += _save_run(folder, str(number), case.graph, run.inputs, run.wanted, address)
            if result.outcome.verdict is Verdict.WRONG:
                lines += _save_part(case, folder, address, target)
        container.write(folder / "fault.txt", ["\n".join([*lines, ""]).encode()])
        yield folder


def _save_part(case: Case, folder: Path, address: str, target: Target) -> list[str]:
    """Write the smallest part of a case that is still wrong, and return the lines about it for fault.txt."""
    try:
        with target.session() as connection:
            found = next(filter(None, (shrink(case, run, connection) for run in case.runs)), None)
    except NnrtError:  # The daemon has ended.
        return []
    if found is None:
        return []
    nodes = ", ".join(map(found.graph.place, range(len(found.graph.nodes))))
    kept = _save_run(folder, "part", found.graph, found.inputs, found.right, address)
    return ["", f"one by one the device computes all nodes rightly, and these together wrongly: {nodes}", *kept]


def _save_run(
    folder: Path,
    suffix: str,
    graph: Graph,
    inputs: Sequence[NDArray[Any]],
    expected: Sequence[NDArray[Any]] | None,
    address: str,
) -> list[str]:
    """Write a model, its inputs, and the expected outputs, if there are any, to files with this suffix.

    Returns the command that runs the model, in a list; an empty list if applications can't build such a model.
    """
    model, given = folder / f"model-{suffix}.nnrt", folder / f"inputs-{suffix}.npz"
    model_file.write(model, graph)
    _write_arrays(given, distinct_names("input", [spec.name for spec in graph.input_specs]), inputs)
    if expected is not None:
        _write_arrays(folder / f"right-{suffix}.npz", [f"output{at}" for at in range(len(expected))], expected)
    try:
        Model.load(model)
    except NnrtError:  # Some nodes are no operations that an application can add.
        return []
    paths = (shlex.quote(str(path)) for path in (model, given, folder / f"answers-{suffix}"))
    return ["nnrt run {} --device {where} --input {} -o {}".format(*paths, where=shlex.quote(address))]


def _write_arrays(path: Path, names: Sequence[str], arrays: Sequence[NDArray[Any]]) -> None:
    data = BytesIO()
    named: dict[str, Any] = dict(zip(names, arrays, strict=True))
    np.savez(data, **named)
    container.write(path, [data.getvalue()])


def _fault_lines(result: Result) -> list[str]:
    outcome = result.outcome
    lines = [f"{result.trial.name}: {outcome.verdict.value}", outcome.reason, advice(result)]
    if isinstance(result.trial, Answers):
        lines.append(f"right is what {result.trial.case.oracle} gives; tolerance: {result.trial.case.tolerance.reason}")
    return lines
