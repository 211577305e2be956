"""Profiles of runs, by ONNX Runtime's own profiler."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Protocol, TypeVar

from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import OperationFailed, OutOfMemory
from nnrt_hdi.operator_times import Besides, OperatorTime
from nnrt_hdi.tensor import Array

# The longest profile that is read. A profile has some 200 bytes for each execution of an operator.
_MOST_BYTES = 32 << 20
# The ending of node names in a profile.
_ENDING = "_kernel_time"

# Opens another session of a model, which writes its profile to a file whose path begins with this text.
Reopen = Callable[[str], Any]


class Profiled(Protocol):
    """Model whose runs can be profiled: it runs a session of ONNX Runtime."""

    session: Any

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        """Run the model (see `PreparedModel.run`)."""


ModelT = TypeVar("ModelT", bound=Profiled)


def profile_run(
    model: ModelT,
    reopen: Reopen,
    inputs: Sequence[Array],
    cancellation: Cancellation,
    outputs: Sequence[Array | None],
) -> tuple[list[Array], list[OperatorTime]]:
    """Run a model in a separate session with a profiler, and return its outputs and each operator's time.

    Times count from this call. They include the opening of the session and a first run, which allocates memory.

    Args:
        model: The model.
        reopen: Opens another session of it.
        inputs: The inputs of the run.
        cancellation: Ends the run.
        outputs: Where the outputs go, as in `PreparedModel.run`.

    Returns:
        The outputs and the times.

    Raises:
        OutOfMemory: The profile is too long.
        OperationFailed: The profile can't be read.
        NnrtError: The run failed.
    """
    began_ns = time.perf_counter_ns()
    with tempfile.TemporaryDirectory(prefix="nnrt-profile-") as folder:
        twin = copy(model)
        with cancellation.compiling():
            twin.session = reopen(str(Path(folder, "run")))
        opened_ns = time.perf_counter_ns()
        try:
            twin.run(inputs, cancellation)
            ran_ns = time.perf_counter_ns()
            results = twin.run(inputs, cancellation, outputs)
        finally:
            file = Path(twin.session.end_profiling())
        if (size_bytes := file.stat().st_size) > _MOST_BYTES:
            raise OutOfMemory(f"the profile of the run has {size_bytes} bytes; at most {_MOST_BYTES} are read")
        text = file.read_text(errors="replace")
    times: list[OperatorTime] = [
        Besides("", "open a session to profile", 0, opened_ns - began_ns),
        Besides("", "run once before", opened_ns - began_ns, ran_ns - opened_ns),
    ]
    try:  # ONNX Runtime doesn't escape names.
        times += _operators(json.loads(text), ran_ns - began_ns)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OperationFailed(f"ONNX Runtime's profile of the run can't be read: {error!r}") from error
    return results, times


def _operators(events: Sequence[Mapping[str, Any]], began_ns: int) -> Iterator[OperatorTime]:
    """Yield the operators of the last run in a profile, which began at `began_ns`."""
    run_us = max(event["ts"] for event in events if event.get("name") == "model_run")
    for event in sorted(events, key=lambda event: int(event.get("ts", 0))):
        name = event.get("name", "")
        if event.get("cat") == "Node" and event["ts"] >= run_us and name.endswith(_ENDING):
            since_ns, took_ns = 1000 * int(event["ts"] - run_us), 1000 * max(int(event["dur"]), 0)
            operator = str(event["args"]["op_name"])
            yield OperatorTime(name.removesuffix(_ENDING), operator, began_ns + since_ns, took_ns)
