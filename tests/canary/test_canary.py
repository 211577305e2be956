"""What a canary makes of answers, and its models."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from conftest import StartDaemon
from freed_at_once import freed_at_once
from nnrt_backend_onnxruntime import create as create_onnxruntime
from nnrt_backend_reference import create as create_reference

from nnrt_device_service.health.canary import Canary, ObservedModel, Trial, Verdict, why_wrong
from nnrt_device_service.health.canary_model import candidates, first_supported
from nnrt_device_service.host.threads import Threads
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import Backend, Cancellation, ModelConfig
from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import infer_graph
from nnrt_hdi.tensor import Array

MS = 1_000_000
RIGHT, WRONG, FAILED = Trial(Verdict.RIGHT, "", MS), Trial(Verdict.WRONG, "wrong", MS), Trial(Verdict.FAILED, "failed")
LATE, NO_END = Trial(Verdict.LATE, "late", 9 * MS), Trial(Verdict.LATE, "no end")
MODELS = {model.graph.name: model for model in candidates()}


def inferred(graph: Graph) -> Graph:
    """The graph as backends get it."""
    found = infer_graph(graph)
    found.raise_first_problem()
    return found.graph


# ---- the models


@pytest.mark.parametrize("create", [create_reference, create_onnxruntime], ids=["reference", "onnxruntime"])
@pytest.mark.parametrize("name", MODELS)
def test_devices_have_the_numbers_that_numpy_has(name: str, create: Callable[[dict[str, str]], Backend]) -> None:
    """Exactly, whatever the inputs are; one that is off by one is found."""
    model, backend, random = MODELS[name], create({}), np.random.default_rng(0)
    prepared = backend.prepare(inferred(model.graph), ModelConfig(), lambda fraction: None)
    for _ in range(3):
        given, right = model.question(random)
        (answer,) = prepared.run([given], Cancellation())
        assert why_wrong(answer, right, 0.0) == ""
        assert len(np.unique(right)) > 10
        answer = np.array(answer)
        answer[-1, -1] += 1 if answer[-1, -1] < 100 else -1
        assert why_wrong(answer, right, 0.0).startswith("its canary's answer is wrong: 1 of ")
    prepared.close()
    backend.close()


@pytest.mark.parametrize("name", MODELS)
def test_no_answer_is_rounded(name: str) -> None:
    """Not even the largest that there could be, nor any sum on the way to it."""
    model = MODELS[name]
    (spec,) = model.graph.output_specs
    factor, summand = (
        np.abs(constant.data).astype(np.int64)
        for _, constant in sorted(model.graph.constants.items())
        if constant.data is not None
    )
    most_factor = factor.sum(-1).max() if name.startswith("dense") else factor.max()
    largest = most_factor * model.most + summand.max()
    exact = {DataType.FLOAT32: 1 << 24, DataType.FLOAT16: 1 << 11, DataType.INT8: 127, DataType.INT32: 1 << 31}
    assert largest <= exact[spec.data_type]


def test_the_first_model_that_a_device_takes() -> None:
    def check(graph: Graph) -> Graph:
        if graph.tensors[0].data_type is not DataType.INT8:
            raise Unsupported("it computes INT8 only")
        return inferred(graph)

    assert first_supported(check).graph.name == "dense INT8"


def test_a_device_that_takes_none() -> None:
    def check(graph: Graph) -> Graph:
        raise Unsupported("it computes nothing")

    with pytest.raises(Unsupported, match=r"--canary: the device runs none of .*dense FLOAT32: it computes nothing"):
        first_supported(check)


def test_a_daemon_whose_device_takes_none_does_not_start(start_daemon: StartDaemon) -> None:
    with pytest.raises(RuntimeError, match="--canary: the device runs none of the models"):
        start_daemon("--backend", "nothing", "--canary", "1")


def test_what_is_wrong_with_an_answer() -> None:
    right = np.array([[0, 100]], np.float32)
    assert why_wrong(right, right, 0.0) == ""
    assert "such as 101.0 in place of 100.0" in why_wrong(np.array([[0, 101]], np.float32), right, 0.0)
    assert why_wrong(np.array([[1, 99]], np.float32), right, 0.01) == ""
    assert "2 of 2 numbers, such as nan in place of 0.0" in why_wrong(np.full((1, 2), np.nan, np.float32), right, 1.0)
    assert "is float64[1, 2], not float32[1, 2]" in why_wrong(right.astype(np.float64), right, 1.0)
    assert "is float32[2], not float32[1, 2]" in why_wrong(right[0], right, 1.0)


# ---- its judgement


class Kept:
    """A canary whose trials a test decides, and what it has told the daemon."""

    def __init__(self, settings: Settings) -> None:
        self.told: list[str] = []
        session = Session(settings, "the canary", freed_at_once(), MemoryBudget(1 << 20))
        model = MODELS["dense FLOAT32"]
        compiled = create_reference({}).prepare(inferred(model.graph), ModelConfig(), lambda fraction: None)
        self.has_company = self.is_compiling = False
        prepared = ObservedModel(compiled, lambda: self.has_company, lambda: self.is_compiling)
        # What a run seems to have taken, and what comes before it.
        self.answer_ns = MS
        self.before: Callable[[Cancellation], object] = id

        def run(inputs: Sequence[Array], cancellation: Cancellation) -> tuple[list[Array], int]:
            self.before(cancellation)
            return prepared.run(inputs, cancellation), self.answer_ns

        self.threads = Threads("trial")
        self.canary = Canary(model, prepared, session, run, self.threads, settings, self.told.append, lambda: None)

    def judge(self, *trials: Trial) -> bool:
        """Judge trials; whether the device is out then."""
        for trial in trials:
            self.canary.judge(trial)
        return self.canary.is_out


@contextmanager
def keeping(settings: Settings) -> Iterator[Kept]:
    """A canary with these settings while the block lasts."""
    kept = Kept(settings)
    yield kept
    assert kept.canary.stop()
    kept.threads.close()


@pytest.fixture
def kept() -> Iterator[Kept]:
    with keeping(Settings(canary=1.0)) as kept:
        yield kept


@pytest.mark.parametrize("bad", [WRONG, FAILED, NO_END], ids=["wrong", "failed", "no end"])
def test_one_is_enough_and_two_right_answers_bring_it_back(kept: Kept, bad: Trial) -> None:
    assert not kept.judge(RIGHT)
    assert kept.judge(bad)
    assert kept.canary.state.why == bad.why
    assert kept.judge(RIGHT)
    assert kept.judge(bad, RIGHT)
    assert not kept.judge(RIGHT)
    assert kept.told == [bad.why, ""]
    state = kept.canary.state
    assert (state.why, state.runs) == ("", 6)
    assert state.wrong + state.late + state.failed == 2


def test_late_once_is_chance(kept: Kept) -> None:
    assert not kept.judge(RIGHT, LATE, RIGHT, LATE, RIGHT)
    assert kept.judge(LATE, LATE)
    assert kept.judge(RIGHT, LATE, RIGHT)
    assert not kept.judge(RIGHT)
    assert kept.canary.state.late == 5


def test_it_says_why_it_is_still_out(kept: Kept) -> None:
    assert kept.judge(WRONG, WRONG._replace(why="other numbers"))
    assert kept.canary.state.why == "wrong"
    assert kept.judge(FAILED)
    assert kept.canary.state.why == "failed"
    assert kept.told == ["wrong"]


def test_it_takes_a_small_part_of_the_device(kept: Kept) -> None:
    """However long an answer takes, and however short the interval of the settings is."""
    kept.judge(RIGHT, RIGHT)
    assert kept.canary.pause_s == 1.0
    kept.judge(*[RIGHT._replace(answer_ns=50 * MS)] * 3)
    assert kept.canary.pause_s == 200 * 0.05
    kept.judge(LATE)
    assert kept.canary.pause_s == 50 * 0.05
    kept.judge(WRONG)
    assert kept.canary.pause_s == 100 * 0.05


def test_late_beside_others_is_not_late(kept: Kept) -> None:
    """Nor is that what is usual."""
    for _ in range(6):
        kept.canary.try_once()
    kept.answer_ns, kept.has_company = 500 * MS, True
    kept.canary.try_once()
    kept.canary.try_once()
    state = kept.canary.state
    assert (state.is_out, state.late, state.usual_ns) == (False, 0, MS)
    kept.has_company = False
    kept.canary.try_once()
    kept.canary.try_once()
    assert kept.told == ["its canary takes 500.0 ms, where 1.0 are usual"]


def test_a_run_of_another_may_take_a_while_to_stop_in_the_end() -> None:
    """Such as one that the daemon ends, for its time is over."""
    given_up = threading.Event()

    def wait_for_turn(cancellation: Cancellation) -> None:
        cancellation.on_cancel(given_up.set)
        given_up.wait(0.3)

    with keeping(Settings(canary=0.1, max_run_s=0.1, stuck_s=60.0)) as kept:
        kept.judge(RIGHT)
        kept.before = wait_for_turn
        kept.canary.try_once()
        assert not given_up.is_set()
        assert kept.told == []


@pytest.mark.parametrize("is_compiling", [True, False], ids=["compiles", "computes"])
def test_a_run_of_another_may_compile_for_longer(is_compiling: bool) -> None:
    given_up = threading.Event()

    def wait_for_turn(cancellation: Cancellation) -> None:
        cancellation.on_cancel(given_up.set)
        given_up.wait(0.3 if is_compiling else 30.0)

    with keeping(Settings(canary=0.1, canary_turn_s=0.1)) as kept:
        kept.judge(RIGHT)
        kept.before, kept.is_compiling = wait_for_turn, is_compiling
        kept.canary.try_once()
        assert given_up.is_set() is not is_compiling
        assert bool(kept.told) is not is_compiling


def test_what_is_usual_is_known_from_right_answers(kept: Kept) -> None:
    """The first of all, which warms the device up, left out."""
    kept.judge(
        RIGHT._replace(answer_ns=1000 * MS), RIGHT, RIGHT._replace(answer_ns=3 * MS), WRONG._replace(answer_ns=9)
    )
    kept.judge(RIGHT._replace(answer_ns=5 * MS))
    assert (kept.canary.state.usual_ns, kept.canary.state.last_ns) == (3 * MS, 5 * MS)
