"""Command `nnrt run`: run a model once on arrays and images from files."""

import io
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from typing_extensions import Buffer

from nnrt_client.build.options import Options
from nnrt_client.build.way import Way
from nnrt_client.cli.inputs import gather_inputs
from nnrt_client.cli.options import (
    FALLBACK_HELP,
    Devices,
    FixedInputs,
    build_timeout_option,
    building_options,
    cache_option,
    devices_options,
    fallback_options,
    fixed_options,
    input_option,
    json_option,
    model_argument,
    run_timeout_option,
    settings_with,
    way_option,
)
from nnrt_client.cli.printing import print_json, print_line, print_table
from nnrt_client.cli.run_parts import describe_times, print_times
from nnrt_client.cli.run_profile import Profile
from nnrt_client.cli.sessions import describe_way, open_session, print_way
from nnrt_client.model_session.background_write import wait_until_cached
from nnrt_client.model_session.model_session import ModelSession
from nnrt_client.model_session.partition.fallback import Fallback
from nnrt_client.model_session.pool import PooledSession
from nnrt_client.tracing.choice import use_tracer
from nnrt_client.tracing.chrome_trace import ChromeTrace
from nnrt_hdi.files import container
from nnrt_hdi.packed_values import ValueType
from nnrt_hdi.tensor import Array

_NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_FILE_NAME = 100


@click.command()
@model_argument
@devices_options
@input_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Directory for one .npy file per output; .json if that is no tensor of numbers.",
)
@fixed_options
@way_option
@fallback_options(FALLBACK_HELP)
@building_options
@cache_option
@build_timeout_option
@run_timeout_option(600.0)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Write a trace of the run for ui.perfetto.dev; if the device can profile, it contains another run with the"
    " time of each operator.",
)
@click.option(
    "--profile",
    is_flag=True,
    help="Profile another run, if the device can: show the time of each operator and operator type.",
)
@click.option("--times", is_flag=True, help="Show the parts of the run's latency.")
@json_option
def run(
    model: Path,
    devices: Devices,
    given: tuple[str, ...],
    output: Path | None,
    fixed: FixedInputs,
    ways: Sequence[Way],
    fallback: Fallback | None,
    options: Options,
    cache: bool,
    timeout: float,
    run_timeout_ms: int,
    trace: Path | None,
    profile: bool,
    times: bool,
    as_json: bool,
) -> None:
    """Run MODEL once and describe its outputs; with --output save them.

    A PNG becomes UINT8 0..255 or floats 0..1, in the layout of the input, and must have the input's size.
    """
    settings = settings_with(build_timeout_s=timeout)
    if output:
        container.require_place(output / "array.npy" if output.exists() else output)
    if trace:
        container.require_place(trace)
    gather, chrome = partial(gather_inputs, given=given), ChromeTrace()
    with ExitStack() as stack:
        if trace or profile:
            stack.enter_context(use_tracer(chrome))
        session, arrays = open_session(model, devices, settings, fixed, ways, fallback, options, gather, cache=cache)
        stack.enter_context(session)
        started = time.monotonic()
        outputs = session.run(arrays, timeout_ms=run_timeout_ms)
        seconds = time.monotonic() - started
        files = _write_outputs(output, outputs) if output else {}
        kinds = session.values
        rows = [_summary(name, value, kinds.get(name), files.get(name)) for name, value in outputs.items()]
        where, origin = _where(session), session.report.origin.value
        if chrome.could_profile:
            chrome.profiles = True
            session.run(arrays, timeout_ms=run_timeout_ms)
        wait_until_cached()
    if trace:
        chrome.write(trace)
    profiled = Profile(chrome.profiled) if profile and chrome.profiled else None
    shown_times = outputs.times if times else None
    if as_json:
        document = {"device": where, "model": origin, **describe_way(session), "seconds": round(seconds, 6)}
        document |= {"times": describe_times(shown_times)} if shown_times else {}
        document |= {"profile": profiled and profiled.describe()} if profile else {}
        print_json(document | {"outputs": rows})
        return
    columns = ("name", "data_type", "shape", "min", "max", *(["file"] if output else []))
    print_table(columns, [[_cell(row[column]) for column in columns] for row in rows], right=("min", "max"))
    print_line(f"ran on {where} in {seconds * 1e3:.1f} ms; the model was {origin}")
    print_way(session)
    if trace:
        print_line(f"ui.perfetto.dev shows {trace}")
    if profiled:
        profiled.show()
    elif profile:
        print_line(f"the operators' times are not known: {where} can't profile")
    if shown_times:
        print_times(shown_times)
    elif times:
        print_line("the parts of its latency are not known: parts of the model ran on this host")


def _where(session: ModelSession) -> str:
    """Return the name of the device that executed the run."""
    if isinstance(session, PooledSession):
        return next((member.name for member in session.pool.members() if member.runs), session.device.name)
    return session.device.name


def _write_outputs(directory: Path, outputs: Mapping[str, Any]) -> dict[str, Path]:
    """Write each output to a file of its own, which appears only when it is complete.

    Numbers go to .npy files, strings, sequences and maps to .json files.
    """
    directory.mkdir(exist_ok=True)
    files: dict[str, Path] = {}
    for index, (name, value) in enumerate(outputs.items()):
        suffix, data = (".npy", _npy(value)) if _is_of_numbers(value) else (".json", [_json(value)])
        path = directory / f"{_file_name(name, index)}{suffix}"
        while path in files.values():
            path = path.with_name(f"{path.stem}-{index}{suffix}")
        container.write(path, data)
        files[name] = path
    return files


def _file_name(name: str, index: int) -> str:
    """Return a file name without path separators for an output of any name."""
    safe = _NOT_IN_FILE_NAMES.sub("_", name).lstrip(".")[:_LONGEST_FILE_NAME]
    return safe or f"output{index}"


def _npy(array: Array) -> Iterable[Buffer]:
    """Return the bytes of an .npy file, without copying the array's elements."""
    whole = np.ascontiguousarray(array)
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(whole))
    return [head.getvalue(), whole.data]


def _is_of_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and not value.dtype.hasobject


def _json(value: Any) -> bytes:
    return json.dumps(value, default=np.ndarray.tolist, ensure_ascii=False).encode()


def _summary(name: str, value: Any, kind: ValueType | None, file: Path | None) -> dict[str, Any]:
    summary = {
        "name": name,
        "data_type": value.dtype.name.upper() if kind is None else kind.name,
        "shape": list(value.shape) if isinstance(value, np.ndarray) else None,
        "min": value.min().item() if kind is None and value.size else None,
        "max": value.max().item() if kind is None and value.size else None,
    }
    return {**summary, "file": str(file)} if file else summary


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)
