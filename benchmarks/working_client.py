"""Client process of a benchmark, which runs its model on request for a given time.

    python benchmarks/working_client.py ADDRESS OPTIONS

OPTIONS is a JSON object with fields of `Options`. The client writes the line "ready" when it has built its model. Then
it reads numbers of seconds, one per line. For each it runs its model for that long and writes a JSON list: the number
of completed runs, their median µs, and the elapsed seconds. The client uses public names only, so that it can measure
any version of the packages that PYTHONPATH selects.
"""

import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from nnrt_client import (
    Batching,
    Compilation,
    DataType,
    Device,
    Executor,
    FuseType,
    Model,
    OperationType,
    Runtime,
    Settings,
    Tensor,
    TensorDesc,
)

# Layer widths of the dense network, from input to output.
WIDTHS = (256, 512, 512, 10)


@dataclass(frozen=True)
class Options:
    """Model of a client, "identity" or "dense", and how the client runs it.

    `elements` is the input size of the identity, `tensors` selects Tensors instead of arrays, and `batching` is the
    maximum batch size (0: none). Each of `threads` keeps `in_flight` runs in flight. With one in flight, only the main
    thread runs the model, with `run_sync`.
    """

    model: str = "identity"
    elements: int = 256
    tensors: bool = False
    share_memory: bool = True
    batching: int = 0
    threads: int = 1
    in_flight: int = 1


def finished(model: Model, x: Any, y: Any) -> Model:
    """Finish a model with the input x and the output y, and return it."""
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def identity(elements: int = 256) -> Model:
    """Build y = x + 0 for float32, the model with the least work."""
    model = Model()
    x = model.input((elements,), name="x")
    return finished(model, x, model.apply(OperationType.ADD, x, np.zeros(1, np.float32)))


def dense(*widths: int, rows: int = -1) -> Model:
    """Build a network of dense layers of these widths, with RELU between them."""
    rng = np.random.default_rng(0)
    model = Model()
    x = y = model.input((rows, widths[0]), name="x")
    for inner, outer in pairwise(widths):
        weight = rng.standard_normal((outer, inner), np.float32) / np.float32(inner**0.5)
        fuse = FuseType.NONE if outer == widths[-1] else FuseType.RELU
        y = model.apply(OperationType.FULL_CONNECTION, y, weight, np.zeros(outer, np.float32), activation=fuse)
    return finished(model, x, y)


@contextmanager
def executor_of(
    model: Model,
    at: str | Device,
    settings: Settings | None = None,
    batching: Batching | None = None,
) -> Iterator[Executor]:
    """Build a model on a device, or on the device of the daemon at an address, and yield its executor."""
    with ExitStack() as stack:
        device = at if isinstance(at, Device) else stack.enter_context(Runtime([at], settings)).device()
        compilation = stack.enter_context(Compilation(model, device))
        compilation.set_batching(batching)
        compilation.build()
        yield stack.enter_context(Executor(compilation))


def repeat(run: Callable[[], object], window_s: float) -> list[float]:
    """Call `run` for `window_s` seconds, at least once, and return the seconds of each call."""
    stamps = [time.perf_counter()]
    while len(stamps) == 1 or stamps[-1] < stamps[0] + window_s:
        run()
        stamps.append(time.perf_counter())
    return [end - begin for begin, end in pairwise(stamps)]


def repeat_in_flight(executor: Executor, x: Sequence[Any], in_flight: int, window_s: float) -> list[float]:
    """Keep `in_flight` runs in flight for `window_s` seconds and return the seconds between the ends of runs."""
    under_way = deque(executor.submit(x) for _ in range(in_flight))

    def one_more() -> None:
        under_way.popleft().result()
        under_way.append(executor.submit(x))

    times = repeat(one_more, window_s)
    for run in under_way:
        run.result()
    return times


def work_on_request(work: Callable[[float], Sequence[float]]) -> None:
    """Read durations from standard input, work for each and write a report, until the input ends.

    `work` gets the seconds and returns the seconds of each run.
    """
    work(0)
    print("ready", flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        times = work(float(line))
        passed = time.perf_counter() - began
        print(json.dumps([len(times), statistics.median(times) * 1e6, passed]), flush=True)


def main(address: str, options: Options) -> None:
    """Build the model at the daemon's address, and run it on request."""
    shape = (1, WIDTHS[0]) if options.model == "dense" else (options.elements,)
    model = dense(*WIDTHS) if options.model == "dense" else identity(options.elements)
    # Many clients connect at the same time.
    settings = Settings(share_memory=options.share_memory, connect_timeout_s=60)
    batching = Batching(options.batching) if options.batching else None
    with (
        Runtime([address], settings) as runtime,
        executor_of(model, runtime.device(), batching=batching) as executor,
        ThreadPoolExecutor(options.threads) as threads,
        ExitStack() as stack,
    ):
        given: list[list[Any]] = [[np.ones(shape, np.float32)]]
        if options.tensors:
            desc = TensorDesc(DataType.FLOAT32, shape)
            given = [[stack.enter_context(Tensor(runtime.device(), desc))] for _ in range(2)]
            given[0][0].numpy()[:] = 1

        def work(window_s: float) -> list[float]:
            if options.in_flight == 1:
                return repeat(lambda: executor.run_sync(*given), window_s)
            arguments = executor, given[0], options.in_flight, window_s
            working = [threads.submit(repeat_in_flight, *arguments) for _ in range(options.threads)]
            return [seconds for each in working for seconds in each.result()]

        work_on_request(work)


if __name__ == "__main__":
    main(sys.argv[1], Options(**json.loads(sys.argv[2])))
