"""Runs of a program with new shapes: ONNX Runtime may crash the process that tries them, but not the daemon."""

import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from daemon_process import DaemonProcess
from empty_programs import CRASHING, ENDLESS, GRU, LATE, EmptyCase, faulty, ones, require_only_its_run_fails
from nnrt_backend_onnxruntime.deadlines import Deadlines
from nnrt_backend_onnxruntime.programs import first_runs
from nnrt_backend_onnxruntime.programs.first_runs import FirstRuns
from nnrt_backend_onnxruntime.programs.loading import load_program
from nnrt_backend_onnxruntime.programs.trials import Trial, Trials
from nnrt_backend_onnxruntime.providers import ProviderDevice
from program_models import AnyArray, in_process, parsed, weights
from waiting import DEADLINE_S, until

from nnrt_client import TimedOut, Unsupported, Way, load
from nnrt_device_service.scheduling.run_watch import CompileWatch, RunWatch
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.part import Part

CPU = ProviderDevice("cpu", 0, threads=1)
PROGRAM = (Way.PROGRAM,)
# Not all shapes in it are known.
UNKNOWN = parsed("f (float[N, M] x) => (int64[2, K] y) { y = NonZero (x) }")


@faulty
@pytest.mark.parametrize("case", CRASHING, ids=lambda case: case.name)
def test_a_daemon_outlives_it(onnxruntime_daemon: DaemonProcess, case: EmptyCase) -> None:
    if case.signal == "SIGFPE" and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("this processor divides integers by 0")
    require_only_its_run_fails(onnxruntime_daemon, case)


@faulty
def test_what_never_ends_ends_with_its_run(onnxruntime_daemon: DaemonProcess) -> None:
    with load(ENDLESS.model.SerializeToString(), onnxruntime_daemon.address, ways=PROGRAM) as session:
        with pytest.raises(TimedOut):
            session.run(ENDLESS.fatal, timeout_ms=500)
        assert session.run(ENDLESS.harmless)["y"].shape == (1, 1, 3, 3)


class CountingTrials(Trials):
    """Trials that record the shapes that were tried."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[list[tuple[int, ...]]] = []

    def begin(self, *arguments: Any, inputs: Mapping[str, AnyArray] | None = None, **options: Any) -> Trial:
        if inputs is not None:
            self.runs.append([array.shape for array in inputs.values()])
        return super().begin(*arguments, inputs=inputs, **options)


@pytest.fixture(scope="module")
def trials() -> Iterator[CountingTrials]:
    with closing(CountingTrials()) as trials:
        trials.start()
        yield trials


@pytest.fixture
def loaded(trials: CountingTrials) -> Iterator[Callable[[onnx.ModelProto], PreparedModel]]:
    trials.runs.clear()
    trials.known_runs.clear()
    with closing(Deadlines()) as deadlines:
        yield lambda model: load_program(
            [Part.of(model.SerializeToString())], ModelConfig(), CPU, deadlines, lambda fraction: None, trials
        )


Loaded = Callable[[onnx.ModelProto], PreparedModel]


def run(model: PreparedModel, *shapes: tuple[int, ...]) -> list[AnyArray]:
    return model.run([np.ones(shape, "f4") for shape in shapes], Cancellation())


def test_a_kind_is_tried_once(loaded: Loaded, trials: CountingTrials) -> None:
    """For all clients that load the program."""
    for _ in range(2):
        model = loaded(UNKNOWN)
        for _ in range(2):
            run(model, (2, 3))
            run(model, (4, 30))
            run(model, (2, 0))
            run(model, (5, 0))
    assert trials.runs == [[(2, 3)], [(2, 0)]]


def test_smaller_and_much_larger_ones_are_another_kind(loaded: Loaded, trials: CountingTrials) -> None:
    model = loaded(UNKNOWN)
    for rows in (4, 64, 65, 3, 5, 1, 2):
        run(model, (rows, 1))
    assert trials.runs == [[(rows, 1)] for rows in (4, 65, 3, 1)]


def test_where_no_tensor_can_be_empty_nothing_is_tried(loaded: Loaded, trials: CountingTrials) -> None:
    model = loaded(GRU)
    for steps in (1, 500, 2):
        run(model, (steps, 2, 4))
    assert not trials.runs


@faulty
def test_what_crashed_is_not_tried_again(loaded: Loaded, trials: CountingTrials) -> None:
    for _ in range(2):
        model = loaded(LATE)
        for _ in range(2):
            run(model, (3, 2, 4))
            with pytest.raises(Unsupported, match=r"a run with inputs of the shapes \[1, 2, 4\]: ONNX Runtime"):
                run(model, (1, 2, 4))
    assert trials.runs == [[(3, 2, 4)], [(1, 2, 4)]]


def test_what_only_fails_says_why(loaded: Loaded, trials: CountingTrials) -> None:
    model = loaded(parsed("f (float[N, M] x, float[K, L] z) => (int64[2, Q] y) { m = MatMul (x, z) y = NonZero (m) }"))
    for _ in range(2):
        with pytest.raises(OperationFailed, match="running MatMul node"):
            run(model, (2, 3), (4, 5))
    run(model, (2, 3), (3, 5))
    run(model, (2, 3), (3, 5))
    assert len(trials.runs) == 3


def test_a_trial_has_room_beside_the_run(loaded: Loaded) -> None:
    model, inputs = loaded(UNKNOWN), [np.ones((100, 1000), "f4")]
    before = model.sizes(inputs).peak_bytes
    model.run(inputs, Cancellation())
    assert before - model.sizes(inputs).peak_bytes >= inputs[0].nbytes


def test_multiply_adds_follow_from_shapes(loaded: Loaded) -> None:
    """A product of unknown shapes counts as none."""
    model = loaded(
        parsed(
            """f (float[N, 8] x, float[N, 2, 5, 7] image, int64[2] size) => (float[A, B] y) {
                k = MatMul (w, w)
                a = Gemm <transA = 1> (x, x)
                c = Conv <group = 2> (image, taps)
                d = ConvTranspose <group = 2> (image, taps)
                u = Reshape (x, size)
                b = MatMul (u, k)
                e = ReduceSum <keepdims = 0> (c)
                f = ReduceSum <keepdims = 0> (d)
                g = MatMul (a, k)
                h = Add (e, f)
                i = Add (g, h)
                y = Concat <axis = 0> (b, i)
            }""",
            weights("w", 8, 8),
            weights("taps", 2, 1, 1, 3),
        )
    )
    for rows in (5, 6):
        inputs = [np.ones((rows, 8), "f4"), np.ones((rows, 2, 5, 7), "f4"), np.array((rows, 8))]
        wanted = 8 * 8 * 8 + 8 * 8 * rows + rows * 5 * 5 * 6 + rows * 5 * 7 * 6 + 8 * 8 * 8
        assert model.sizes(inputs).multiply_adds == wanted
        model.run(inputs, Cancellation())
        assert model.sizes(inputs).multiply_adds == wanted


@faulty
def test_a_run_that_is_cancelled_waits_for_no_trial(loaded: Loaded, trials: CountingTrials) -> None:
    """Neither for its own trial nor for another run's."""
    model = loaded(ENDLESS.model)
    inputs, cancellations = list(ENDLESS.fatal.values()), [Cancellation(), Cancellation()]
    ended: list[int] = []

    def wait(index: int) -> None:
        with pytest.raises(OperationFailed, match="cancelled"):
            model.run(inputs, cancellations[index])
        ended.append(index)

    threads = [threading.Thread(target=wait, args=(index,)) for index in range(2)]
    threads[0].start()
    until(lambda: trials.runs)
    threads[1].start()
    for index in (1, 0):
        cancellations[index].cancel()
        threads[index].join()
    assert ended == [1, 0]
    assert len(trials.runs) == 1


@faulty
def test_what_took_too_long_is_remembered(
    loaded: Loaded, trials: CountingTrials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with more time may try again."""
    monkeypatch.setattr(first_runs, "_LEAST_S", 0.0)
    model, inputs = loaded(ENDLESS.model), list(ENDLESS.fatal.values())
    for given_s, is_tried in ((0.2, True), (0.1, False), (0.4, True)):
        trials.runs.clear()
        with pytest.raises(
            TimedOut, match="longer than it was given" if is_tried else "had not run it after 0 s; give"
        ):
            model.run(inputs, Cancellation(time.monotonic() + given_s))
        assert bool(trials.runs) == is_tried


SHAPES = ((2, 3),)


def try_nothing() -> None:
    """Trial that ends well without running anything."""


def test_trials_count_as_compilations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of compilations applies, because a trial opens the program again; a later run may try once more."""
    monkeypatch.setattr(first_runs, "_LEAST_S", 0.0)
    kinds, run_watch = FirstRuns(is_never_empty=False), RunWatch(0.001, 0.0, CompileWatch(600.0, 0.0))
    compile_watch = RunWatch(0.0, 0.0, CompileWatch(1e-9, 0.0))

    def look(watch: RunWatch, cancellation: Cancellation) -> None:
        watch.end_overdue([cancellation])
        cancellation.check()

    for _ in range(2):
        late = Cancellation()
        with pytest.raises(TimedOut, match="--max-compile-s"):
            kinds.require(SHAPES, partial(look, compile_watch, late), late)
    long = Cancellation()
    long.began_ns = time.perf_counter_ns() - 10**9
    kinds.require(SHAPES, partial(look, run_watch, long), long)
    assert kinds.is_known(SHAPES)


def test_waiting_for_the_trial_of_another_counts_as_compiling() -> None:
    kinds, waiting = FirstRuns(is_never_empty=False), Cancellation(time.monotonic())

    def try_it() -> None:
        with pytest.raises(TimedOut):
            kinds.require(SHAPES, pytest.fail, waiting)

    kinds.require(SHAPES, try_it, Cancellation())
    assert waiting.on_device_s < 0  # Only what it has compiled.


def test_runs_of_a_known_kind_wait_for_no_trial() -> None:
    kinds, cancellation = FirstRuns(is_never_empty=False), Cancellation(time.monotonic() + DEADLINE_S)
    kinds.require(SHAPES, try_nothing, Cancellation())
    kinds.require(((0, 3),), lambda: kinds.require(SHAPES, pytest.fail, cancellation), Cancellation())


def test_a_kind_that_is_renewed_is_kept() -> None:
    kinds = FirstRuns(is_never_empty=False)
    for number in range(64):
        kinds.require(kind_of(number), try_nothing, Cancellation())
    larger = ((1, 1, 1, 1, 1, 1, 20),)
    kinds.require(kind_of(0), pytest.fail, Cancellation())
    kinds.require(larger, try_nothing, Cancellation())
    kinds.require(kind_of(64), try_nothing, Cancellation())
    assert kinds.is_known(larger)
    assert not kinds.is_known(kind_of(1))


def kind_of(number: int) -> tuple[tuple[int, ...]]:
    """Return one of 128 different sets of shapes."""
    return (tuple(1 - (number >> bit & 1) for bit in range(7)),)


def test_an_lstm_of_operators_has_no_batch(onnxruntime_daemon: DaemonProcess) -> None:
    """The model sums the LSTM's outputs, because outputs that are all empty are never computed."""
    model = parsed(
        """
        f (float[T, B, 4] x) => (float[1, 5] z) {
            y = LSTM <hidden_size = 5> (x, w, r)
            axes = Constant <value = int64[2] {0, 2}> ()
            z = ReduceSum <keepdims = 0> (y, axes)
        }
        """,
        weights("w", 1, 20, 4),
        weights("r", 1, 20, 5),
    )
    with load(model.SerializeToString(), onnxruntime_daemon.address, ways=[Way.OPERATORS]) as session:
        for feed in (ones(x=(5, 2, 4)), ones(x=(5, 0, 4))):
            wanted = 0.0 if not feed["x"].size else in_process(model.SerializeToString(), feed)[0]
            np.testing.assert_allclose(session.run(feed)["z"], np.broadcast_to(wanted, (1, 5)), rtol=1e-5)
