"""Loops: runs that the device makes without the client."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from daemon_process import DaemonProcess

from nnrt_client import (
    Batching,
    DataType,
    Earlier,
    InvalidParameter,
    Model,
    ModelSession,
    OperationType,
    Settings,
    load,
)
from remembering.models import UP_TO_16, WIDTH, counting_model

ONES = np.ones((1, WIDTH), np.float32)


def feeding(limit: float, part: float = 1.0) -> Model:
    """Build glue that makes a part of y the next x, counts in `step`, and stops when all of y are above the limit."""
    glue = Model("feeding")
    y, step = glue.input((-1, WIDTH), name="y"), glue.input((1,), DataType.INT64, name="step")
    following = glue.apply(OperationType.ADD, step, np.array([1]), name="step_made")
    x = glue.apply(OperationType.MUL, y, np.array(part, np.float32), name="x")
    stop = glue.apply(OperationType.GREATER, y, np.array(limit, np.float32), name="stop")
    glue.specify_inputs_and_outputs([y, step], [x, following, stop])
    glue.finish()
    return glue


def expected(count: int, part: float = 1.0) -> list[float]:
    """Return y of each step of `counting_model` with `feeding`."""
    state, x, given = 0.0, 1.0, []
    for _ in range(count):
        state = state / 2 + x
        given.append(state + 1)
        x = part * given[-1]
    return given


@pytest.fixture(params=[True, False], ids=["local", "remote"])
def counting(each_daemon: DaemonProcess, request: pytest.FixtureRequest) -> Iterator[ModelSession]:
    settings = Settings(share_memory=request.param)
    with load(counting_model(), each_daemon.address, settings=settings) as session:
        yield session


@pytest.fixture
def reference(shared_daemon: DaemonProcess) -> Iterator[ModelSession]:
    with load(counting_model(), shared_daemon.address) as session:
        yield session


START = {"x": ONES, "step": np.array([0])}


def test_glue_makes_the_next_input(counting: ModelSession) -> None:
    with counting.sequence() as sequence:
        loop = sequence.loop(START, glue=feeding(1e9), deliver=["y"], max_steps=30)
        given = [float(values["y"][0, 0]) for values in loop]
        np.testing.assert_allclose(given, expected(30), rtol=1e-5)
        assert loop.end is not None and (loop.end.reason, loop.end.steps) == ("steps", 30)
        assert loop.end.delivered_bytes == 30 * 4 * WIDTH
        (y,) = sequence.run({"x": np.full((1, WIDTH), given[-1], np.float32)}).values()
        np.testing.assert_allclose(y[0, 0], expected(31)[-1], rtol=1e-5)


def test_states_have_the_names_of_their_outputs_too(counting: ModelSession) -> None:
    """Where glue reads them, and as earlier outputs in a queue."""
    glue = Model()
    new = glue.input((-1, WIDTH), name="new_state")
    glue.specify_inputs_and_outputs([new], [glue.apply(OperationType.ADD, new, new, name="x")])
    glue.finish()
    with counting.sequence() as sequence:
        loop = sequence.loop({"x": ONES}, glue=glue, deliver=["new_state"], max_steps=3)
        assert [values["new_state"][0, 0] for values in loop] == [1.0, 2.5, 6.25]
        np.testing.assert_array_equal(sequence.read("new_state")["new_state"], 6.25 * ONES)
        queue = sequence.queue([{"x": ONES}, {"x": Earlier("new_state")}])
        assert [outputs["y"][0, 0] for outputs in queue] == [5.125, 7.1875]


def test_glue_stops_the_loop(counting: ModelSession) -> None:
    with counting.sequence() as sequence:
        limit = (expected(5)[-1] + expected(4)[-1]) / 2
        loop = sequence.loop(START, glue=feeding(limit), deliver=["y", "state", "step_made"], max_steps=1000)
        steps = list(loop)
        assert loop.end is not None and (loop.end.reason, loop.end.steps) == ("stopped", 5)
        assert [int(values["step_made"][0]) for values in steps] == [1] * 5
        np.testing.assert_array_equal(steps[-1]["state"] + 1, steps[-1]["y"])


def test_limits_of_bytes_and_time(reference: ModelSession) -> None:
    with reference.sequence() as sequence:
        loop = sequence.loop(START, glue=feeding(1e30), deliver=["y"], max_steps=1 << 20, max_bytes=100)
        assert len(list(loop)) == 7  # of 16 bytes each
        assert loop.end is not None and (loop.end.reason, loop.end.delivered_bytes) == ("bytes", 112)
        loop = sequence.loop({"x": ONES}, deliver=["y"], max_steps=1 << 20, max_ms=50)
        list(loop)
        assert loop.end is not None and loop.end.reason == "time"
        assert loop.end.took_s >= 0.05


def test_closing_a_loop_leaves_the_state_of_its_last_step(counting: ModelSession) -> None:
    with counting.sequence() as sequence:
        loop = sequence.loop(START, glue=feeding(1e30, 0.25), deliver=["state"], max_steps=1 << 20)
        next(loop)
        *_, last = loop.rest()
        assert loop.end is not None and loop.end.reason == "asked"
        np.testing.assert_array_equal(sequence.read()["state"], last["state"])
        assert loop.rest() == []


def test_loops_that_are_closed_at_once(reference: ModelSession) -> None:
    for at in range(30):
        with reference.sequence() as sequence:
            loop = sequence.loop(START, glue=feeding(1e30, 0.25), deliver=["y"], max_steps=1 << 20)
            if at % 2:
                loop.close()
                assert loop.end is not None and loop.end.reason == "asked"
            sequence.run({"x": ONES})


def test_failure_of_a_first_loop_leaves_the_sequence_usable(counting: ModelSession) -> None:
    three = np.ones((3, WIDTH), np.float32)
    with counting.sequence({"state": three[:2]}) as sequence:
        with pytest.raises(InvalidParameter, match="step 0, run 0"):
            list(sequence.loop({**START, "x": three}, glue=feeding(1e30), deliver=["y"], max_steps=3))
        assert set(sequence.read()) == {"state"}
        with pytest.raises(InvalidParameter, match="no value 'y'"):
            sequence.read("y")
        assert sequence.run({"x": three[:2]})["y"][0, 0] == 2.5


def test_next_operation_ends_a_loop(reference: ModelSession) -> None:
    with reference.sequence() as sequence:
        loop = sequence.loop(START, glue=feeding(1e30, 0.25), deliver=["state"], max_steps=1 << 20)
        next(loop)
        sequence.run({"x": ONES})
        assert loop.end is not None and loop.end.reason == "asked"


def test_sequences_and_sessions_close_under_loops(reference: ModelSession, shared_daemon: DaemonProcess) -> None:
    sequence = reference.sequence()
    next(sequence.loop(START, glue=feeding(1e30, 0.25), deliver=["y"], max_steps=1 << 20))
    sequence.close()
    with load(counting_model(), shared_daemon.address) as session:
        other = session.sequence()
        next(other.loop(START, glue=feeding(1e30, 0.25), deliver=["y"], max_steps=1 << 20))


def test_step_that_fails_is_named(counting: ModelSession) -> None:
    glue = Model()
    y = glue.input((-1, WIDTH), name="y")
    x = glue.apply(OperationType.CONCAT, y, y, axis=0, name="x")  # x gets twice as many rows, which state has not
    glue.specify_inputs_and_outputs([y], [x])
    glue.finish()
    two = np.ones((2, WIDTH), np.float32)
    with counting.sequence({"state": two}) as sequence:
        loop = sequence.loop({"x": two}, glue=glue, deliver=["y"], max_steps=10)
        next(loop)
        with pytest.raises(InvalidParameter, match="step 1, run 0"):
            list(loop)
        np.testing.assert_array_equal(sequence.read()["state"], two * 1.5)
        np.testing.assert_array_equal(sequence.run({"x": two})["y"], two * 2.75)


def test_step_of_one_run_whose_stop_is_no_bool_changes_nothing(shared_daemon: DaemonProcess) -> None:
    model = Model()
    state = model.input((1, WIDTH), name="state")
    new = model.apply(OperationType.ADD, state, state, name="new_state")
    model.specify_inputs_and_outputs([state], [new, model.apply(OperationType.ABS, new, name="stop")])
    model.finish()
    with load(model, shared_daemon.address) as session, session.sequence({"state": ONES}) as sequence:
        with pytest.raises(InvalidParameter, match="must be BOOL"):
            list(sequence.loop({}, deliver=[], max_steps=3))
        np.testing.assert_array_equal(sequence.read()["state"], ONES)


def test_loops_that_cannot_be_made(reference: ModelSession) -> None:
    with reference.sequence() as sequence:
        for steps in (0, -1, (1 << 20) + 1, True, 1.5):
            with pytest.raises(InvalidParameter, match="max_steps"):
                sequence.loop(START, glue=feeding(1), deliver=["y"], max_steps=steps)  # type: ignore[arg-type]
        with pytest.raises(InvalidParameter, match="no value 'step'"):
            sequence.loop({"x": ONES}, glue=feeding(1), deliver=["y"], max_steps=1)
        with pytest.raises(InvalidParameter, match="no value 'x'"):
            sequence.loop({}, deliver=["y"], max_steps=1)
        with pytest.raises(InvalidParameter, match="no value 'z'"):
            sequence.loop(START, glue=feeding(1), deliver=["z"], max_steps=1)
        with pytest.raises(InvalidParameter, match="the model takes"):
            list(sequence.loop({**START, "step": np.zeros(1)}, glue=feeding(1), deliver=["y"], max_steps=1))
        assert len(list(sequence.loop(START, deliver=["y"], max_steps=3))) == 3


@pytest.mark.parametrize("batching", [None, UP_TO_16], ids=["alone", "in batches"])
def test_many_loops_at_once(each_daemon: DaemonProcess, batching: Batching | None) -> None:
    with load(counting_model(), each_daemon.address, batching=batching) as session:
        require_equal_loops(session)
        counted = session.device.counters().load
        assert counted is not None
        if batching is not None:
            assert counted.batches is not None and counted.batches.rows > 40


def require_equal_loops(counting: ModelSession) -> None:
    glue, given = feeding(1e30), dict[int, list[float]]()

    def generate(at: int) -> None:
        with counting.sequence() as sequence:
            given[at] = [
                float(step["y"][0, 0]) for step in sequence.loop(START, glue=glue, deliver=["y"], max_steps=40)
            ]

    threads = [threading.Thread(target=generate, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert len(given) == 8
    for one in given.values():
        np.testing.assert_allclose(one, expected(40), rtol=1e-5)
