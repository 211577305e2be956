"""The level `concurrency`: many clients at a time, runs that are to stop, and memory that changes under way."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial

import numpy as np

from nnrt_client.conformance.case import Level
from nnrt_client.conformance.cases.draft import Draft
from nnrt_client.conformance.levels.check import Check, NotOffered, checks_of, require
from nnrt_client.conformance.levels.long_model import LongModel, long_model, with_long_model
from nnrt_client.conformance.levels.residents import (
    gives_no_memory_with_bytes_of_others,
    keeps_each_output_apart,
    keeps_tensors_on_the_device,
    replaces_states_in_place,
)
from nnrt_client.conformance.levels.streams import Stream, cancel, new_run_id, run_request
from nnrt_client.conformance.levels.subjects import Subject, prepared_subject, require_answer, subjects
from nnrt_client.conformance.outcome import said
from nnrt_client.conformance.target import Broken, Connection, Target, first_reason
from nnrt_client.tensors.tensor import Tensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.counters import FEATURE as COUNTERS
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import NnrtError, TimedOut, UnavailableDevice
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array, TensorSpec

_CLIENTS = 8
_RUNS, _TURNS = 12, 6
_LONG_MS = 600_000
# A busy machine may be late often, not each time.
_TRIES = 20
# Whole runs that a run that seems to have stopped early is compared with: some may be slow.
_CONFIRMATIONS = 3
# Of what a run takes when nobody stops it: when it is told to stop, and when it must have ended.
_STOP_AT, _ENDED_BY = 0.2, 0.6
_MOST_SLOTS = 16
# What the inputs of long runs, and so their answers, differ by.
_SHIFTS = np.arange(4, dtype=np.float32)
_ROUNDS = 3


def serves_many_clients_of_one_model(target: Target) -> None:
    """Eight clients, each with a session of its own, run the same model; each gets the answers to its own inputs."""
    _in_clients(target, lambda connection, client: _ask(connection, subjects(connection)[0], client))


def serves_many_clients_of_several_models(target: Target) -> None:
    """Eight clients run different models at a time."""

    def client_of(connection: Connection, client: int) -> None:
        taken = subjects(connection)
        _ask(connection, taken[client % len(taken)], client)

    _in_clients(target, client_of)


def compiles_for_many_clients(target: Target) -> None:
    """Eight clients have different models compiled at a time, each the one that it runs then."""

    def client_of(connection: Connection, client: int) -> None:
        taken = subjects(connection)
        for turn in range(_TURNS):
            subject = taken[(client + turn) % len(taken)]
            with connection.prepare(subject.graph) as prepared:
                given = subject.question(client * _TURNS + turn)
                require_answer(subject, given, prepared.run([given]), "when it is compiled beside others")

    _in_clients(target, client_of)


def serves_many_clients_of_dynamic_models(target: Target) -> None:
    """Eight clients run one model, each with another number of rows in each run."""
    if not target.info.capabilities.dynamic_input:
        raise NotOffered("the device needs every dimension")

    def client_of(connection: Connection, client: int) -> None:
        subject = subjects(connection)[0].dynamic
        if reason := first_reason(connection.supported(subject.graph)):
            raise NotOffered(reason)
        with connection.prepare(subject.graph) as prepared:
            for run in range(_RUNS):
                given = subject.question(client * _RUNS + run, 1 + (client + run) % _CLIENTS)
                require_answer(subject, given, prepared.run([given]), f"with {len(given)} rows, beside other clients")

    _in_clients(target, client_of)


def runs_one_prepared_model_in_many_threads(target: Target) -> None:
    """Runs of one prepared model overlap."""
    with target.session() as connection:
        subject, prepared = prepared_subject(connection)
        questions = [subject.question(seed) for seed in range(_CLIENTS * _RUNS)]
        with prepared:
            futures = [prepared.executor.submit([given]) for given in questions]
            for given, future in zip(questions, futures, strict=True):
                require_answer(subject, given, list(future.result()), "beside other runs of the same model")


def keeps_runs_apart_that_overlap(target: Target) -> None:
    """Runs of one prepared model that take long are on the device together; each gives the answer to its own inputs."""
    with target.session() as connection:
        model = long_model(connection)
        with model.prepared:
            what = f"a run of {model.nodes} nodes gives another answer beside {len(_SHIFTS) - 1} with other inputs"
            for _ in range(_ROUNDS):  # What is confused depends on which of them ends first.
                futures = [model.prepared.executor.submit([model.given + shift]) for shift in _SHIFTS]
                for shift, future in zip(_SHIFTS, futures, strict=True):
                    (output,) = future.result()
                    require(np.array_equal(output, model.wanted + shift), what)


def _ask(connection: Connection, subject: Subject, client: int) -> None:
    with connection.prepare(subject.graph) as prepared:
        for run in range(_RUNS):
            given = subject.question(client * _RUNS + run)
            require_answer(subject, given, prepared.run([given]), f"for client {client} beside {_CLIENTS - 1} others")


def _in_clients(target: Target, ask: Callable[[Connection, int], None]) -> None:
    """Have eight clients do something at a time."""
    barrier = threading.Barrier(_CLIENTS)

    def client_of(client: int) -> None:
        with target.session() as connection:
            with suppress(threading.BrokenBarrierError):
                barrier.wait(target.settings.connect_timeout_s)
            ask(connection, client)

    with ThreadPoolExecutor(_CLIENTS, thread_name_prefix="nnrt-conformance") as threads:
        for outcome in [threads.submit(client_of, client) for client in range(_CLIENTS)]:
            outcome.result()


def stops_cancelled_runs(target: Target) -> None:
    """A run that is cancelled on the device ends at the next operator, long before it would have ended by itself."""
    with target.session() as connection:
        with_long_model(connection, partial(_stops_cancelled, connection))
        subject, prepared = prepared_subject(connection)
        with prepared:
            given = subject.question(1)
            require_answer(subject, given, prepared.run([given]), "after a run of another model was cancelled")


def _stops_cancelled(connection: Connection, model: LongModel) -> None:
    with Stream(connection) as stream:

        def stopped(after_s: float) -> tuple[NnrtError | None, float]:
            run_id = new_run_id()
            stream.send(run_request(model.prepared, [model.given], run_id=run_id))
            began = _wait(after_s)
            cancel(connection, run_id)
            error, ended = stream.outcome()
            return error, ended - began

        _require_early(model, stopped, "a run that is cancelled")


def stops_runs_at_their_deadline(target: Target) -> None:
    """A run whose time ends on the device ends with TIMEOUT, at the next operator."""
    with target.session() as connection:
        with_long_model(connection, partial(_stops_expired, connection))


def _stops_expired(connection: Connection, model: LongModel) -> None:
    with Stream(connection) as stream:

        def expired(after_s: float) -> tuple[NnrtError | None, float]:
            began = time.monotonic()
            stream.send(run_request(model.prepared, [model.given], timeout_ms=max(int(after_s * 1000), 1)))
            error, ended = stream.outcome()
            if error is not None and not isinstance(error, TimedOut):
                raise Broken(f"a run whose time is over ends with {said(error)}; TIMEOUT is right")
            return error, ended - began

        _require_early(model, expired, "a run whose time is a part of what it takes")
        stream.send(run_request(model.prepared, [model.given], timeout_ms=_LONG_MS))
        stream.await_reply()


def _require_early(model: LongModel, stop: Callable[[float], tuple[NnrtError | None, float]], what: str) -> None:
    """Raise Broken unless a run that is to stop ends with an error well before it would have ended, once at least, and
    each time leaves nothing behind; SeemedLong where whole runs have become too short to tell.

    `stop` gets the seconds after which the run is to stop: a part of what the fastest whole run took so far, for the
    model may have been chosen beside other work, which has ended since.
    """
    latest, whole_s = "", model.took_s
    for _ in range(_TRIES):
        error, took_s = stop(_STOP_AT * whole_s)
        if isinstance(error, UnavailableDevice):
            raise error
        for _ in range(_CONFIRMATIONS):
            whole_s = min(whole_s, model.time_right(f"after {what}"))
            if error is None or took_s >= _ENDED_BY * whole_s:
                break
        else:
            return
        model.require_long(whole_s)
        how = "gives an answer" if error is None else f"ends with {error.code.name}"
        latest = f"{how} after {took_s:.3f} s, of the {whole_s:.3f} s that a whole run of {model.nodes} nodes takes"
    raise Broken(f"{what} {latest}; look at the cancellation between operators at least")


def _wait(seconds: float) -> float:
    """Wait so long; give the time before, on the clock of time.monotonic."""
    began = time.monotonic()
    threading.Event().wait(seconds)
    return began


def starts_nothing_late(target: Target) -> None:
    """A run whose time ends while it waits for the device ends with TIMEOUT, and one that was cancelled while it waits
    never starts."""
    with target.session() as connection:
        if COUNTERS not in connection.session.welcome.features:
            raise NotOffered("the daemon doesn't say how many runs are on the device at a time")
        load = connection.device.counters().load
        if load is None or load.slots > _MOST_SLOTS:
            raise NotOffered("the daemon has no bounded number of runs on the device at a time")
        with_long_model(connection, partial(_starts_nothing_late, connection, load.slots))


def _starts_nothing_late(connection: Connection, slots: int, model: LongModel) -> None:
    for _ in range(_TRIES):
        if _waits_in_vain(connection, model, slots):
            return
    model.require_long(model.time_right("after runs that waited in vain"))
    raise Broken(
        "of two runs that can't have begun before their time was over, or they were cancelled, one gave an answer"
    )


def _waits_in_vain(connection: Connection, model: LongModel, slots: int) -> bool:
    """Fill the device, and see two runs end that wait for it; False where it has been free for them."""
    with ExitStack() as stack:
        fillers = [stack.enter_context(Stream(connection)) for _ in range(slots)]
        ids = [new_run_id() for _ in fillers]
        for stream, run_id in zip(fillers, ids, strict=True):
            stream.send(run_request(model.prepared, [model.given], run_id=run_id))
        _wait(_STOP_AT * model.took_s)
        expired, cancelled = (stack.enter_context(Stream(connection)) for _ in range(2))
        late = new_run_id()
        expired.send(run_request(model.prepared, [model.given], timeout_ms=20))
        cancelled.send(run_request(model.prepared, [model.given], run_id=late))
        in_time = expired.outcome()[0]
        cancel(connection, late)
        in_vain = cancelled.outcome()[0]
        cancel(connection, *ids)
        for stream in fillers:
            stream.outcome()
        if in_time is not None and not isinstance(in_time, TimedOut):
            raise Broken(f"a run whose time is over while it waits ends with {said(in_time)}; TIMEOUT is right")
        return in_time is not None and in_vain is not None


def begins_no_run_that_was_cancelled(target: Target) -> None:
    """A run that is cancelled before it has come doesn't begin; ids that nobody knows are no error."""
    with target.session() as connection:
        subject, prepared = prepared_subject(connection)
        with prepared, Stream(connection) as stream:
            given = subject.question(1)
            run_id = new_run_id()
            require(not list(cancel(connection, run_id)), "a run that has not come is said to be under way")
            stream.send(run_request(prepared, [given], run_id=run_id))
            error, _ = stream.outcome()
            require(error is not None, "a run that was cancelled before it came gives an answer")
            done = new_run_id()
            stream.send(run_request(prepared, [given], run_id=done))
            stream.await_reply()
            cancel(connection, done)
            require_answer(subject, given, prepared.run([given]), "after cancellations")


def outlives_clients_that_go(target: Target) -> None:
    """A client that goes away in the middle of its runs takes them with it, and harms nobody."""
    with target.session() as connection:
        subject, prepared = prepared_subject(connection)
        with prepared:
            with target.session() as leaving:
                model = long_model(leaving)
                future = model.prepared.executor.submit([model.given])
                _wait(_STOP_AT * model.took_s)
            with suppress(NnrtError):
                future.result(target.settings.run_timeout_s)
            given = subject.question(1)
            require_answer(subject, given, prepared.run([given]), "after another client went in the middle of a run")


def writes_outputs_into_tensors(target: Target) -> None:
    """Outputs go into the memory that is given for them, and nowhere else."""
    with target.session() as connection, ExitStack() as stack:
        for subject, graph in _known_and_dynamic(connection):
            prepared = stack.enter_context(connection.prepare(graph))
            x, y, z = (stack.enter_context(_tensor(connection, subject)) for _ in range(3))
            given, other = subject.question(1), subject.question(2)
            x.numpy()[...] = given
            for tensor in (y, z):
                tensor.data_buffer[:] = b"\xff" * len(tensor.data_buffer)
            prepared.executor.run_sync([x], [y])
            require_answer(subject, given, [y.numpy()], "in memory given for it")
            require(np.array_equal(x.numpy(), given), f"a run of {subject.name!r} changes its input")
            x.numpy()[...] = other
            prepared.executor.run_sync([x], [z])
            require_answer(subject, other, [z.numpy()], "in other memory given for it")
            require_answer(subject, given, [y.numpy()], "in memory of an earlier run, which a later one changed")
            _make_room(subject, y)
            prepared.executor.run_sync([x], [y])
            require_answer(subject, other, [y.numpy()], "in memory that was written before")
            prepared.executor.run_sync([z], [y])
            require_answer(subject, subject.answer(other), [y.numpy()], "of an input that was an output")


def _known_and_dynamic(connection: Connection) -> Iterator[tuple[Subject, Graph]]:
    """The small models, each with the graph that says its rows, and with one that doesn't where the device takes it."""
    for subject in subjects(connection):
        yield subject, subject.graph
        if not first_reason(connection.supported(subject.dynamic.graph)):
            yield subject, subject.dynamic.graph


def _make_room(subject: Subject, tensor: Tensor) -> None:
    tensor.numpy()[...] = subject.graph.output_specs[0].numpy_dtype.type(77)


def bears_inputs_that_change(target: Target) -> None:
    """A client that writes to an input in shared memory while a run reads it gets wrong numbers or an error; the daemon
    and everybody else go on."""
    with target.session() as connection:
        for subject in subjects(connection)[:2]:
            _change_under_way(connection, subject.graph, [subject.question(1), subject.question(2)])
        for graph, right, wrong in _dangerous(connection):
            _change_under_way(connection, graph, [right, wrong])
        subject, prepared = prepared_subject(connection)
        with prepared:
            given = subject.question(1)
            require_answer(subject, given, prepared.run([given]), "after inputs that changed under way")


def _change_under_way(connection: Connection, graph: Graph, inputs: Sequence[Array]) -> None:
    """Run a model many times while its input is now the one, now the other."""
    first, second = inputs
    is_over = threading.Event()
    (spec,) = graph.input_specs
    with Tensor(connection.device, TensorDesc._from_spec(spec)) as x, connection.prepare(graph) as prepared:
        x.numpy()[...] = first

        def write() -> None:
            memory = x.numpy()
            while not is_over.is_set():
                memory[...] = second
                memory[...] = first

        writer = threading.Thread(target=write, name="nnrt-conformance-writer")
        writer.start()
        try:
            for _ in range(_RUNS * 4):
                try:
                    prepared.executor.run_sync([x])
                except UnavailableDevice:
                    raise
                except NnrtError:
                    continue
        finally:
            is_over.set()
            writer.join()


def _dangerous(connection: Connection) -> list[tuple[Graph, Array, Array]]:
    """Models whose input decides what is read, of those that the device takes, with a right and a wrong input."""
    rows = np.arange(1 << 12, dtype=np.float32).reshape(-1, 4)
    indices = np.arange(1 << 14, dtype=np.int32) % len(rows)
    far = np.full_like(indices, np.iinfo(np.int32).max)
    picks, divides = Draft("gather"), Draft("division")
    index = picks.given_as(TensorSpec(DataType.INT32, indices.shape))
    gather = picks.graph(
        picks.node(NodeType.GATHER, picks.constant(rows), index, picks.constant(np.array(0, np.int64)))
    )
    dividend = np.full(1 << 14, np.iinfo(np.int32).min, np.int32)
    divisor = divides.given_as(TensorSpec(DataType.INT32, dividend.shape))
    division = divides.graph(divides.node(NodeType.DIV_FUSION, divides.constant(dividend), divisor))
    ones = np.ones_like(dividend)
    several = [(gather, indices, far), (gather, indices, -far), (division, ones, ones * 0), (division, ones, -ones)]
    return [each for each in several if not first_reason(connection.supported(each[0]))]


def _tensor(connection: Connection, subject: Subject) -> Tensor:
    return Tensor(connection.device, TensorDesc._from_spec(subject.graph.output_specs[0]))


def checks() -> list[Check]:
    """The checks of the level."""
    return checks_of(
        Level.CONCURRENCY,
        serves_many_clients_of_one_model,
        serves_many_clients_of_several_models,
        compiles_for_many_clients,
        serves_many_clients_of_dynamic_models,
        runs_one_prepared_model_in_many_threads,
        keeps_runs_apart_that_overlap,
        stops_cancelled_runs,
        stops_runs_at_their_deadline,
        starts_nothing_late,
        begins_no_run_that_was_cancelled,
        outlives_clients_that_go,
        writes_outputs_into_tensors,
        bears_inputs_that_change,
        keeps_tensors_on_the_device,
        keeps_each_output_apart,
        replaces_states_in_place,
        gives_no_memory_with_bytes_of_others,
    )
