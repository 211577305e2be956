"""Sessions of the commands that run a model."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from nnrt_client.build.options import Options
from nnrt_client.build.way import Way
from nnrt_client.cli.options import Settled, opened
from nnrt_client.cli.printing import build_bar, one_line, print_line
from nnrt_client.model_session.load import load, open_session
from nnrt_client.model_session.model_session import ModelSession
from nnrt_client.model_session.opened_model import is_onnx
from nnrt_client.model_session.ways import chosen_ways
from nnrt_client.session.runtime import Runtime
from nnrt_hdi.enums import PerformanceMode
from nnrt_hdi.tensor import Array, TensorSpec

Arrays = Mapping[str, Array]


def ready_session(
    model: Path,
    device: str | None,
    runtime: Runtime,
    settled: Settled,
    ways: Sequence[Way],
    options: Options,
    gather: Callable[[Sequence[TensorSpec]], Arrays],
    *,
    cache: bool,
) -> tuple[ModelSession, Arrays]:
    """Have a device ready to run the model of a command, in the first of these ways that works, or of all.

    `gather` gives the inputs of its runs: before anything is built, if they are known before.
    """
    if not is_onnx(model):
        chosen_ways(ways or [Way.OPERATORS], [Way.OPERATORS])
        found = opened(model, settled)
        arrays = gather(found.inputs)
        with build_bar() as progress:
            return open_session(found, device, options, runtime=runtime, cache=cache, progress=progress), arrays
    with ExitStack() as stack:
        with build_bar() as progress:
            session = (partial(load, ways=ways) if ways else load)(
                model,
                device,
                shapes=settled.shapes,
                constants=settled.constants,
                cache=cache,
                progress=progress,
                runtime=runtime,
                float16=bool(options.float16),
                performance_mode=PerformanceMode(options.mode or PerformanceMode.NONE),
                extensions=options.extensions,
            )
        stack.enter_context(session)
        arrays = gather([desc._to_spec() for desc in session.inputs])
        stack.pop_all()
    return session, arrays


def described_way(session: ModelSession) -> dict[str, Any]:
    """How the device got the model, for --json."""
    return {"way": str(session.way), "passed_over": {str(way): why for way, why in session.report.passed_over.items()}}


def print_way(session: ModelSession) -> None:
    """Say in which way the model went, where it did not go in the first."""
    for way, why in session.report.passed_over.items():
        print_line(f"it went as {session.way}; not as {way}: {one_line(why)}")
