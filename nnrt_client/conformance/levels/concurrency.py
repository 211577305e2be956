"""Level `concurrency`: many clients at once, runs that must stop, and memory that changes during a run."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import numpy as np

from nnrt_client.conformance.case import Level
from nnrt_client.conformance.cases.draft import Draft
from nnrt_client.conformance.levels.check import Check, NotOffered, make_checks, require
from nnrt_client.conformance.levels.long_model import find_long_model
from nnrt_client.conformance.levels.residents import (
    gives_no_memory_with_bytes_of_others,
    keeps_each_output_apart,
    keeps_tensors_on_the_device,
    replaces_states_in_place,
)
from nnrt_client.conformance.levels.stopped_runs import (
    begins_no_run_that_was_cancelled,
    outlives_clients_that_go,
    starts_nothing_late,
    stops_cancelled_runs,
    stops_runs_at_their_deadline,
)
from nnrt_client.conformance.levels.subjects import Subject, prepared_subject, require_answer, subjects
from nnrt_client.conformance.target import Connection, Target, first_reason
from nnrt_client.tensors.tensor import Tensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import NnrtError, UnavailableDevice
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array, TensorSpec

_CLIENTS = 8
_RUNS, _TURNS = 12, 6
# Differences between the inputs of the long runs, and so between their answers.
_SHIFTS = np.arange(4, dtype=np.float32)
_ROUNDS = 3


def serves_many_clients_of_one_model(target: Target) -> None:
    """Check that eight clients, each in its own session, run one model and get the answers to their own inputs."""
    _run_in_clients(target, lambda connection, client: _ask(connection, subjects(connection)[0], client))


def serves_many_clients_of_several_models(target: Target) -> None:
    """Check that eight clients can run different models at the same time."""

    def client_of(connection: Connection, client: int) -> None:
        taken = subjects(connection)
        _ask(connection, taken[client % len(taken)], client)

    _run_in_clients(target, client_of)


def compiles_for_many_clients(target: Target) -> None:
    """Check that eight clients can compile different models at the same time and run what they compiled."""

    def client_of(connection: Connection, client: int) -> None:
        taken = subjects(connection)
        for turn in range(_TURNS):
            subject = taken[(client + turn) % len(taken)]
            with connection.prepare(subject.graph) as prepared:
                given = subject.question(client * _TURNS + turn)
                require_answer(subject, given, prepared.run([given]), "when it is compiled beside others")

    _run_in_clients(target, client_of)


def serves_many_clients_of_dynamic_models(target: Target) -> None:
    """Check that eight clients can run one model, each run with another number of rows."""
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

    _run_in_clients(target, client_of)


def runs_one_prepared_model_in_many_threads(target: Target) -> None:
    """Check that runs of one prepared model can overlap."""
    with target.session() as connection:
        subject, prepared = prepared_subject(connection)
        questions = [subject.question(seed) for seed in range(_CLIENTS * _RUNS)]
        with prepared:
            futures = [prepared.executor.submit([given]) for given in questions]
            for given, future in zip(questions, futures, strict=True):
                require_answer(subject, given, list(future.result()), "beside other runs of the same model")


def keeps_runs_apart_that_overlap(target: Target) -> None:
    """Check that long overlapping runs of one prepared model give the answers to their own inputs."""
    with target.session() as connection:
        model = find_long_model(connection)
        with model.prepared:
            what = f"a run of {model.nodes} nodes gives another answer beside {len(_SHIFTS) - 1} with other inputs"
            for _ in range(_ROUNDS):  # Repeated, because an error may depend on the order in which runs end.
                futures = [model.prepared.executor.submit([model.given + shift]) for shift in _SHIFTS]
                for shift, future in zip(_SHIFTS, futures, strict=True):
                    (output,) = future.result()
                    require(np.array_equal(output, model.wanted + shift), what)


def keeps_sessions_apart_that_share_a_model(target: Target) -> None:
    """Check that sessions with the same model don't see each other's runs, and that one outlives the other's close."""
    with target.session() as first, target.session() as second:
        subject, mine = prepared_subject(first)
        with second.prepare(subject.graph) as others:
            with mine:
                for seed in range(_RUNS):
                    for prepared, question in ((mine, 0), (others, seed), (mine, 0)):
                        given = subject.question(question)
                        require_answer(subject, given, prepared.run([given]), "after a run of another session")
            given = subject.question(_RUNS)
            require_answer(subject, given, others.run([given]), "after another session has released the same model")


def _ask(connection: Connection, subject: Subject, client: int) -> None:
    with connection.prepare(subject.graph) as prepared:
        for run in range(_RUNS):
            given = subject.question(client * _RUNS + run)
            require_answer(subject, given, prepared.run([given]), f"for client {client} beside {_CLIENTS - 1} others")


def _run_in_clients(target: Target, ask: Callable[[Connection, int], None]) -> None:
    """Call `ask` in eight threads at once, each with a session of its own."""
    barrier = threading.Barrier(_CLIENTS)

    def client_of(client: int) -> None:
        with target.session() as connection:
            with suppress(threading.BrokenBarrierError):
                barrier.wait(target.settings.connect_timeout_s)
            ask(connection, client)

    with ThreadPoolExecutor(_CLIENTS, thread_name_prefix="nnrt-conformance") as threads:
        for outcome in [threads.submit(client_of, client) for client in range(_CLIENTS)]:
            outcome.result()


def writes_outputs_into_tensors(target: Target) -> None:
    """Check that outputs go into the memory that the client provides, and nowhere else."""
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
    """Yield each small model with its static graph, and with its dynamic graph if the device takes that."""
    for subject in subjects(connection):
        yield subject, subject.graph
        if not first_reason(connection.supported(subject.dynamic.graph)):
            yield subject, subject.dynamic.graph


def _make_room(subject: Subject, tensor: Tensor) -> None:
    tensor.numpy()[...] = subject.graph.output_specs[0].numpy_dtype.type(77)


def bears_inputs_that_change(target: Target) -> None:
    """Check that a client that changes an input in shared memory during a run harms only itself.

    Its runs may get wrong numbers or errors; the daemon and other clients must keep working.
    """
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
    """Run a model many times while another thread switches its input between two arrays."""
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
    """Return supported models whose input is an index or a divisor, each with a valid and an invalid input."""
    rows = np.arange(1 << 12, dtype=np.float32).reshape(-1, 4)
    indices = np.arange(1 << 14, dtype=np.int32) % len(rows)
    far = np.full_like(indices, np.iinfo(np.int32).max)
    picks, divides = Draft("gather"), Draft("division")
    index = picks.input_of(TensorSpec(DataType.INT32, indices.shape))
    gather = picks.graph(
        picks.node(NodeType.GATHER, picks.constant(rows), index, picks.constant(np.array(0, np.int64)))
    )
    dividend = np.full(1 << 14, np.iinfo(np.int32).min, np.int32)
    divisor = divides.input_of(TensorSpec(DataType.INT32, dividend.shape))
    division = divides.graph(divides.node(NodeType.DIV_FUSION, divides.constant(dividend), divisor))
    ones = np.ones_like(dividend)
    several = [(gather, indices, far), (gather, indices, -far), (division, ones, ones * 0), (division, ones, -ones)]
    return [each for each in several if not first_reason(connection.supported(each[0]))]


def _tensor(connection: Connection, subject: Subject) -> Tensor:
    return Tensor(connection.device, TensorDesc._from_spec(subject.graph.output_specs[0]))


def checks() -> list[Check]:
    """Return the checks of the level."""
    return make_checks(
        Level.CONCURRENCY,
        serves_many_clients_of_one_model,
        serves_many_clients_of_several_models,
        compiles_for_many_clients,
        serves_many_clients_of_dynamic_models,
        runs_one_prepared_model_in_many_threads,
        keeps_runs_apart_that_overlap,
        keeps_sessions_apart_that_share_a_model,
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
