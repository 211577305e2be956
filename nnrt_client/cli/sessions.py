"""Model sessions of commands that run a model."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from nnrt_client.build.build_task import describe_note
from nnrt_client.build.options import Options
from nnrt_client.build.way import Way
from nnrt_client.cli.options import Devices, FixedInputs, open_fixed
from nnrt_client.cli.printing import build_bar, one_line, print_line
from nnrt_client.model.model import Model
from nnrt_client.model_session.load import load
from nnrt_client.model_session.model_session import ModelSession
from nnrt_client.model_session.opened_model import Source, is_onnx
from nnrt_client.model_session.packed import described_specs
from nnrt_client.model_session.partition.fallback import CPU, Fallback
from nnrt_client.model_session.pool import PooledSession
from nnrt_client.session.device import Device
from nnrt_client.settings import Settings
from nnrt_hdi.enums import PerformanceMode
from nnrt_hdi.tensor import UNKNOWN_DIM, Array, Shape, TensorSpec

Arrays = Mapping[str, Array]


def open_session(
    model: Path,
    devices: Devices,
    settings: Settings,
    fixed: FixedInputs,
    ways: Sequence[Way],
    fallback: Fallback | None,
    options: Options,
    gather: Callable[[Sequence[TensorSpec]], Arrays],
    *,
    cache: bool,
) -> tuple[ModelSession, Arrays]:
    """Load a command's model on its devices and return the session with the inputs of its runs.

    `gather` returns the inputs for the model's specs. It is called before the build, except for an ONNX file, whose
    specs are known only afterwards.
    """
    if fallback is None and Way.PARTITION in ways:
        raise click.UsageError(f"--way partition has this host run some operators; give --fallback {CPU} as well")
    source: Source | Model = model
    arrays: Arrays | None = None
    shapes = fixed.shapes if options.batching is None else _with_open_rows(fixed.shapes)
    more: dict[str, Any] = {"shapes": shapes, "constants": fixed.constants}
    if not is_onnx(model):
        found = open_fixed(model, fixed)
        source, arrays, more = found.source, gather(found.inputs), {}
    with ExitStack() as stack:
        with build_bar() as progress:
            more |= {"ways": ways or None, "fallback": fallback, "cache": cache, "progress": progress}
            more |= devices.load_arguments
            session = stack.enter_context(load_with_options(source, options=options, settings=settings, **more))
        if arrays is None:
            arrays = gather(described_specs(session.inputs, session.values))
        stack.pop_all()
    return session, arrays


def _with_open_rows(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shapes with an open first dimension: with batching each run has its own number of rows."""
    return {name: (UNKNOWN_DIM, *shape[1:]) for name, shape in shapes.items()}


def load_with_options(
    source: Source | Model, device: str | Device | Sequence[str] | None, options: Options, **more: Any
) -> ModelSession:
    """Call `load` with a command's options."""
    return load(
        source,
        device,
        float16=bool(options.float16),
        performance_mode=PerformanceMode(options.performance_mode or PerformanceMode.NONE),
        extensions=options.extensions,
        batching=options.batching,
        **more,
    )


def device_label(session: ModelSession) -> str:
    """Return the device's name for messages, or the number of devices of a pool."""
    if isinstance(session, PooledSession):
        return f"{len(session.devices)} devices"
    return session.device.name


def describe_way(session: ModelSession) -> dict[str, Any]:
    """Return how the device got the model and its notes on operators, as --json prints them."""
    report = session.report
    passed_over = {str(way): why for way, why in report.passed_over.items()}
    return {"way": str(session.way), "passed_over": passed_over, "notes": dict(report.notes)}


def print_way(session: ModelSession) -> None:
    """Print the ways that failed before the chosen one, and the device's notes on operators."""
    for way, why in session.report.passed_over.items():
        print_line(f"it went as {session.way}; not as {way}: {one_line(why)}")
    for note, count in session.report.notes.items():
        print_line(one_line(describe_note(note, count)))
