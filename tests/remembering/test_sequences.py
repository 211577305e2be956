"""Sequences: runs whose state stays on the device."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from waiting import until

from nnrt_client import (
    Compilation,
    Earlier,
    Executor,
    InvalidParameter,
    Model,
    ModelSession,
    OperationForbidden,
    OperationType,
    OutOfMemory,
    Runtime,
    Sequence,
    Settings,
    State,
    UnavailableDevice,
    load,
)
from remembering.models import UP_TO_16, WIDTH, counting_model, growing_model, rows


@pytest.fixture(params=[True, False], ids=["local", "remote"])
def growing(each_daemon: DaemonProcess, request: pytest.FixtureRequest) -> Iterator[ModelSession]:
    settings = Settings(share_memory=request.param)
    with load(growing_model(), each_daemon.address, settings=settings) as session:
        yield session


@pytest.fixture
def reference(shared_daemon: DaemonProcess) -> Iterator[ModelSession]:
    with load(growing_model(), shared_daemon.address) as session:
        yield session


def test_state_grows_on_the_device(growing: ModelSession) -> None:
    with growing.sequence() as sequence:
        xs = [rows(seed, count=1 + seed % 2) for seed in range(5)]
        for at, x in enumerate(xs, 1):
            (y,) = sequence.run({"x": x}).values()
            np.testing.assert_allclose(y, np.concatenate(xs[:at], 1).sum(1), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(sequence.read()["past"], np.concatenate(xs, 1))


def test_output_wanted_is_delivered_and_kept(growing: ModelSession) -> None:
    with growing.sequence() as sequence:
        sequence.run({"x": rows(1)})
        given = sequence.run({"x": rows(2)}, outputs=["present"])
        assert list(given) == ["present"]
        np.testing.assert_array_equal(given["present"], sequence.read("past")["past"])


def test_large_output_that_is_delivered_is_kept_apart_from_shared_memory(each_daemon: DaemonProcess) -> None:
    with load(counting_model(), each_daemon.address) as session, session.sequence() as one, session.sequence() as other:
        states = np.zeros((2, 4096, WIDTH), np.float32)
        for sequence, state in zip((one, other), states, strict=True):
            sequence.write({"state": state})
        for turn in range(1, 4):
            for at, sequence in enumerate((one, other)):
                x = np.full((4096, WIDTH), 10 * turn + at, np.float32)
                states[at] = states[at] / 2 + x
                # Nobody holds the outputs, so the next run has its own in the same memory.
                np.testing.assert_array_equal(sequence.run({"x": x}, outputs=["new_state"])["new_state"], states[at])
        for sequence, state in zip((one, other), states, strict=True):
            np.testing.assert_array_equal(sequence.read()["state"], state)


def test_initial_values_and_writes(growing: ModelSession) -> None:
    past = rows(7, count=3)
    with growing.sequence({"past": past}) as sequence:
        np.testing.assert_allclose(sequence.run({"x": rows(1)})["y"], (past.sum(1) + rows(1)[0]), rtol=1e-5, atol=1e-6)
        sequence.write({"past": rows(3)})
        np.testing.assert_allclose(sequence.run({"x": rows(1)})["y"], rows(3)[0] + rows(1)[0], rtol=1e-5, atol=1e-6)


def test_large_values_travel_in_pieces(growing: ModelSession) -> None:
    past = np.random.default_rng(0).standard_normal((1, 500_000, WIDTH), np.float32)
    with growing.sequence({"past": past}) as sequence:
        np.testing.assert_array_equal(sequence.read()["past"], past)


def test_forks_part_and_share_what_they_have(growing: ModelSession) -> None:
    with growing.sequence({"past": rows(7, count=100)}) as sequence:
        with sequence.fork() as fork:
            one = sequence.run({"x": rows(1)})["y"]
            other = fork.run({"x": rows(2)})["y"]
            np.testing.assert_allclose(one - other, rows(1)[0] - rows(2)[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(sequence.read()["past"][:, 100:], rows(1))


def test_state_is_appended_and_cut_to_a_window(each_daemon: DaemonProcess) -> None:
    model = Model()
    x, past = model.input((1, -1, WIDTH), name="x"), model.input((1, -1, WIDTH), name="past")
    doubled = model.apply(OperationType.ADD, x, x, name="entry")
    total = model.apply(OperationType.REDUCE_SUM, past, np.array([1]), keep_dims=False, name="y")
    model.specify_inputs_and_outputs([x, past], [total, doubled])
    model.finish()
    state = State("past", axis=1, appends=True, window=3)
    with (
        load(model, each_daemon.address) as session,
        session.sequence({"past": rows(0, 2)}, states={"entry": state}) as sequence,
    ):
        expected = rows(0, 2)
        for seed in range(1, 6):
            y = sequence.run({"x": rows(seed, seed)})["y"]
            np.testing.assert_allclose(y, expected.sum(1), rtol=1e-5, atol=1e-6)
            expected = np.concatenate([expected, 2 * rows(seed, seed)], 1)[:, -3:]
            np.testing.assert_array_equal(sequence.read()["past"], expected)


def test_queue_of_dependent_runs_is_one_call(growing: ModelSession) -> None:
    with growing.sequence() as sequence:
        runs = [{"x": rows(seed)} for seed in range(20)]
        given = [outputs["y"] for outputs in sequence.queue(runs)]
        np.testing.assert_allclose(given, np.cumsum([rows(seed)[0] for seed in range(20)], 0), rtol=1e-4, atol=1e-5)
        assert list(sequence.queue([])) == []


def test_queue_takes_earlier_outputs(each_daemon: DaemonProcess) -> None:
    with load(counting_model(), each_daemon.address) as session, session.sequence() as sequence:
        x = np.ones((1, WIDTH), np.float32)
        given = [each["y"][0, 0] for each in sequence.queue([{"x": x}, {"x": Earlier("y")}, {"x": Earlier("y")}])]
        assert given == [2.0, 3.5, 5.75]  # 1 + 1; 0.5 + 2 + 1; 1.25 + 3.5 + 1
        with pytest.raises(InvalidParameter, match="no value 'z'"):
            sequence.queue([{"x": Earlier("z")}])


def test_failed_run_changes_nothing(growing: ModelSession) -> None:
    with growing.sequence() as sequence, growing.sequence() as other:
        sequence.run({"x": rows(1)})
        other.run({"x": rows(9)})
        with pytest.raises(InvalidParameter, match="CONCAT"):
            sequence.run({"x": np.concatenate([rows(1), rows(2)])})
        with pytest.raises(InvalidParameter, match=r"run 1: .*CONCAT"):
            list(sequence.queue([{"x": rows(3)}, {"x": np.concatenate([rows(1), rows(2)])}, {"x": rows(4)}]))
        np.testing.assert_allclose(sequence.run({"x": rows(2)})["y"], rows(1)[0] + rows(2)[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(other.run({"x": rows(2)})["y"], rows(9)[0] + rows(2)[0], rtol=1e-5, atol=1e-6)


def test_threads_take_turns(growing: ModelSession) -> None:
    with growing.sequence() as sequence, ThreadPoolExecutor(8) as threads:
        one = np.ones((1, 1, WIDTH), np.float32)
        given = threads.map(lambda _: float(sequence.run({"x": one})["y"][0, 0]), range(64))
        assert sorted(given) == list(range(1, 65))


def test_state_on_an_executor(shared_daemon: DaemonProcess) -> None:
    with Runtime([shared_daemon.address]) as runtime, Compilation(growing_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor, Sequence(executor, {"present": "past"}) as sequence:
            sequence.run({"x": rows(1)})
            assert sequence.run({"x": rows(2)}, outputs=[]) == {}
            assert sequence.read()["past"].shape == (1, 2, WIDTH)


def test_names_that_do_not_exist(reference: ModelSession) -> None:
    for states in ({"presen": "past"}, {"present": "pas"}, {"y": "past"}):
        with pytest.raises(InvalidParameter):
            reference.sequence(states=states)
    with pytest.raises(InvalidParameter, match="besides the states"), reference.sequence() as sequence:
        sequence.run({"x": rows(1), "past": rows(2)})
    with reference.sequence() as sequence:
        with pytest.raises(InvalidParameter, match="no output 'z'"):
            sequence.run({"x": rows(1)}, outputs=["z"])
        with pytest.raises(InvalidParameter, match="no value 'z'"):
            sequence.read("z")
        with pytest.raises(InvalidParameter, match="the model takes"):
            sequence.write({"past": np.zeros((1, 2), np.float32)})


def test_model_without_states_says_how_to_name_them(shared_daemon: DaemonProcess) -> None:
    model = Model()
    x = model.input((1, WIDTH), name="x")
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.ABS, x, name="y")])
    model.finish()
    with load(model, shared_daemon.address) as session, pytest.raises(InvalidParameter, match="`states`"):
        session.sequence()


def test_closed_sequence_and_session(reference: ModelSession) -> None:
    sequence = reference.sequence()
    sequence.close()
    sequence.close()
    with pytest.raises(OperationForbidden, match="closed"):
        sequence.run({"x": rows(1)})


def test_sequences_are_bounded_by_memory(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--session-bytes", "1000000")
    with load(growing_model(), daemon.address) as session:
        made = []
        with pytest.raises(OutOfMemory, match="session-bytes"):
            while True:
                made.append(session.sequence({"past": rows(1, 500)}))
                made[-1].run({"x": rows(1)})
        count = len(made)
        assert count > 20
        np.testing.assert_allclose(made[0].run({"x": rows(2)}, outputs=["y"])["y"].shape, (1, WIDTH))
        for sequence in made:
            sequence.close()
        with session.sequence({"past": rows(1, 500)}) as sequence:
            sequence.run({"x": rows(1)})


def test_death_of_the_daemon_ends_a_sequence_of_one_device(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with load(growing_model(), daemon.address) as session:
        sequence = session.sequence()
        sequence.run({"x": rows(1)})
        daemon.kill()
        with pytest.raises(UnavailableDevice):
            sequence.run({"x": rows(1)})
        sequence.close()


def test_rows_of_sequences_are_computed_together(onnxruntime_daemon: DaemonProcess) -> None:
    with (
        load(counting_model(), onnxruntime_daemon.address, batching=UP_TO_16) as session,
        ThreadPoolExecutor(8) as pool,
    ):
        sequences = [session.sequence() for _ in range(8)]
        inputs = [np.full((1, WIDTH), at, np.float32) for at in range(8)]

        def generate(at: int) -> list[float]:
            return [float(sequences[at].run({"x": inputs[at]})["y"][0, 0]) for _ in range(10)]

        for at, given in enumerate(pool.map(generate, range(8))):
            state, expected = 0.0, []
            for _ in range(10):
                state = state / 2 + at
                expected.append(state + 1)
            assert given == expected
        (counted,) = (session.device.counters().load,)
        assert counted is not None and counted.batches is not None and counted.batches.runs > 20
        for sequence in sequences:
            sequence.close()


def test_rows_that_others_have_left_are_freed(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--heartbeat-timeout-s", "2")
    with load(counting_model(), daemon.address, batching=UP_TO_16) as session, ThreadPoolExecutor(8) as pool:
        sequences = [session.sequence() for _ in range(8)]
        list(pool.map(lambda sequence: sequence.run({"x": np.ones((1, WIDTH), np.float32)}), sequences))
        for sequence in sequences[1:]:
            sequence.close()

        def held_bytes() -> int:
            load_now = session.device.counters().load
            assert load_now is not None
            return load_now.held_bytes["sequences"]

        until(lambda: held_bytes() < 8000)  # What one sequence and its value take.
        (y,) = sequences[0].run({"x": np.ones((1, WIDTH), np.float32)}).values()
        assert y[0, 0] == 2.5
        sequences[0].close()
        assert held_bytes() == 0
