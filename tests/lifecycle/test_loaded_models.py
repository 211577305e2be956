"""Models, constants and buffers that a session holds in the daemon, freed exactly once and never under a run."""

import os
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from blocked_call import BlockedCall
from freed_at_once import freed_at_once, loaded_alone, lone_model
from storing_backend import StoringBackend
from waiting import until

from nnrt_device_service.device import Device
from nnrt_device_service.memory.buffers import BufferPool
from nnrt_device_service.memory.constants import ConstantPool, MissingConstants, uploaded_digests
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.runs.run import Run
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.registry import SessionRegistry
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings
from nnrt_hdi import shared_memory
from nnrt_hdi.backend import Cancellation, PreparedModel
from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import (
    InvalidFile,
    InvalidParameter,
    OperationFailed,
    OutOfMemory,
    UnavailableDevice,
    UnknownHandle,
)
from nnrt_hdi.graph import Constant, Graph
from nnrt_hdi.tensor import Array, TensorSpec

DEADLINE_S = 20.0
KIB = 1024


class Prepared(PreparedModel):
    """Counts how often it was closed."""

    inputs = outputs = ()

    def __init__(self) -> None:
        self.closed = 0

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        assert not self.closed
        return list(inputs)

    def close(self) -> None:
        self.closed += 1


class Times:
    """Counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


# ---- models


def test_a_released_model_keeps_nothing_of_its_backend() -> None:
    """Whoever still has it: plans, and replies that nobody has fetched."""
    prepared = Prepared()
    held, released = weakref.ref(prepared), loaded_alone(prepared)
    del prepared
    released.close()
    assert held() is None
    with pytest.raises(UnknownHandle, match="has been released"):
        released.shared.prepared.run([], Cancellation())


def test_what_runs_of_a_model_usually_take() -> None:
    """The longest time, but for one run alone; in the end no more than they do take."""
    model = loaded_alone(Prepared())
    usual_ns = []
    for computed_ns in [100_000, 9_000_000, 120_000, 4_000_000, 5_000_000, *[100_000] * 200]:
        model.acquire(Cancellation())
        model.release(computed_ns)
        usual_ns.append(model.usual_ns)
    assert usual_ns[:5] == [100_000, 100_000, 120_000, 120_000, 4_000_000]
    assert usual_ns[5:] == sorted((each for each in usual_ns[5:] if each), reverse=True)
    assert usual_ns[-1] == 100_000


def test_model_is_closed_after_its_last_run() -> None:
    """Released during a run it lives on until that ends."""
    prepared, on_closed = Prepared(), Times()
    loaded = loaded_alone(prepared, on_closed)
    with loaded.used(Cancellation()) as used:
        assert used.shared.prepared is prepared
        with loaded.kept():
            loaded.close()
        assert (prepared.closed, on_closed.count) == (0, 0)
    assert [prepared.closed, on_closed.count] == [1, 1]
    with pytest.raises(UnknownHandle), loaded.used(Cancellation()):
        pytest.fail("it was closed")


def test_model_released_in_a_crowd_of_runs() -> None:
    """It is closed once, and never under a run."""
    for _ in range(50):
        prepared, on_closed = Prepared(), Times()
        loaded = loaded_alone(prepared, on_closed)

        def run(prepared: Prepared = prepared, loaded: LoadedModel = loaded) -> None:
            with suppress(UnknownHandle):
                for _ in range(20):
                    with loaded.used(Cancellation()):
                        assert not prepared.closed
                        os.sched_yield()
                        assert not prepared.closed

        with ThreadPoolExecutor(4) as pool:
            runs = [pool.submit(run) for _ in range(4)]
            loaded.close()
            for ended in runs:
                ended.result(DEADLINE_S)
        assert prepared.closed == on_closed.count == 1


def test_session_closed_under_a_run() -> None:
    """The run is cancelled and keeps its model until it has ended."""
    session, prepared, cancellation = Session(Settings(), "client", freed_at_once()), Prepared(), Cancellation()
    model_id = session.add_model(lone_model(prepared))
    with session.model(model_id).used(Cancellation()):
        session.cancellations.add(cancellation)
        session.close()
        assert cancellation.is_cancelled
        assert prepared.closed < 1
    assert prepared.closed == 1
    with pytest.raises(UnknownHandle):
        session.model(model_id)


def test_nothing_begins_in_a_closed_session() -> None:
    """A model that was ready too late is closed; a run that came too late is cancelled."""
    device, prepared = Device(StoringBackend(), Settings()), Prepared()
    session = device.sessions.open("client", lambda: None)
    device.open_account(session, "user")
    session.close()
    with pytest.raises(UnavailableDevice):
        session.add_model(lone_model(prepared))
    assert device.freeing.await_queued(DEADLINE_S)
    assert prepared.closed == 1
    run = Run(session, 0, Cancellation())
    run.model = loaded_alone(prepared)
    device.executing.execute(run)
    assert isinstance(run.error, OperationFailed) and "cancelled" in str(run.error)
    assert not (device.scheduler.running or session.cancellations)
    with pytest.raises(UnavailableDevice), session.calls.count_stream(lambda: None):
        pytest.fail("it was opened")
    assert device.close(DEADLINE_S)


def test_streams_end_before_runs_are_cancelled() -> None:
    """So that a client whose session is ended never hears of a run that the device cancelled."""
    session, order, cancellation = Session(Settings(), "client", freed_at_once()), list[str](), Cancellation()
    cancellation.on_cancel(lambda: order.append("run"))
    with session.calls.count_stream(lambda: order.append("stream")):
        session.cancellations.add(cancellation)
        session.close()
    assert order == ["stream", "run"]


def test_a_run_that_is_awaited_while_its_session_ends() -> None:
    """Its client hears that the session is over, likewise."""
    session, cancellation = Session(Settings(), "client", freed_at_once()), Cancellation()
    session.cancellations.add(cancellation)
    run = Run(session, 1, cancellation)
    session.runs.begin(run)
    cancellation.on_cancel(lambda: session.runs.finish(run, b"cancelled"))
    awaiting = BlockedCall(lambda: session.runs.reply_of(run.id, lambda: True))
    until(lambda: session.runs.awaiters)
    session.close()
    assert isinstance(awaiting.wait().error, UnknownHandle), awaiting.result


@pytest.mark.slow
def test_stream_waits_for_one_that_is_ending() -> None:
    """The limit counts those that stay, not those on their way out."""
    session = Session(Settings(session_streams=1), "client", freed_at_once())
    opened, may_end = threading.Event(), threading.Event()

    def first() -> None:
        with session.calls.count_stream(lambda: None):
            opened.set()
            may_end.wait(DEADLINE_S)

    def second() -> None:
        with session.calls.count_stream(lambda: None):
            pass

    with ThreadPoolExecutor(2) as pool:
        ending = pool.submit(first)
        assert opened.wait(DEADLINE_S)
        with pytest.raises(OutOfMemory, match="1 streams open, its limit"):
            second()
        waiting = pool.submit(second)
        assert not waiting.done()
        may_end.set()
        waiting.result(DEADLINE_S)
        ending.result(DEADLINE_S)


def test_closing_a_session_twice_at_once() -> None:
    """By its stream's end and by the watch, for example."""
    sessions = SessionRegistry(Settings(), 1 << 40, freed_at_once())
    for _ in range(50):
        session, prepared = sessions.open("client", lambda: None), Prepared()
        session.add_model(lone_model(prepared))
        session.buffers.allocate(KIB)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _, session=session: sessions.close(session), range(4)))
        assert prepared.closed == 1
        assert session.budget.used_bytes == 0
    assert (len(sessions), sessions.budget.used_bytes) == (0, 0)


# ---- constants


def constant(seed: int, size_bytes: int = 4 * KIB) -> tuple[Constant, bytes]:
    data = np.random.default_rng(seed).standard_normal(size_bytes // 4, np.float32)
    return Constant.of(data), data.tobytes()


def graph_of(*constants: Constant) -> Graph:
    """A graph that hands its input through and holds constants, by digest."""
    specs = tuple(TensorSpec(DataType.FLOAT32, (entry.size_bytes // 4,)) for entry in constants)
    by_digest = {index: Constant(entry.sha256, entry.size_bytes) for index, entry in enumerate(constants)}
    through = len(specs)
    specs = (*specs, TensorSpec(DataType.FLOAT32, (1,)))
    return Graph(tensors=specs, nodes=(), inputs=(through,), outputs=(through,), constants=by_digest)


def send(pool: ConstantPool, what: Constant, data: bytes) -> bool:
    half = len(data) // 2
    first = pool.write(what.sha256, len(data), 0, data[:half])
    return pool.write(what.sha256, len(data), half, data[half:]) and not first


def test_constant_stays_while_it_is_used() -> None:
    """Those that no model uses make room, the oldest first; those in use don't."""
    budget = MemoryBudget(3 * 4 * KIB)
    pool = ConstantPool(budget)
    (used, used_data), (old, old_data), (young, young_data) = (constant(seed) for seed in range(3))
    for entry, data in ((used, used_data), (old, old_data), (young, young_data)):
        assert send(pool, entry, data)
    graph = graph_of(used, used)
    held = pool.acquire(graph)
    assert isinstance(held, Graph)
    np.testing.assert_array_equal(held.constants[0].data, np.frombuffer(used_data, np.float32))
    new, new_data = constant(3)
    assert send(pool, new, new_data)
    missing = pool.acquire(graph_of(used, old, young, new))
    assert missing == MissingConstants({old.sha256: 0})
    larger, larger_data = constant(4, 12 * KIB)
    with pytest.raises(OutOfMemory):
        send(pool, larger, larger_data)
    pool.release(uploaded_digests(graph))
    assert send(pool, larger, larger_data)
    assert budget.used_bytes == 12 * KIB
    pool.clear()
    assert budget.used_bytes == 0


def test_cleared_pool_leaves_models_their_data() -> None:
    """A run that goes on after its session's end reads what it had."""
    pool = ConstantPool(MemoryBudget(1 << 20))
    entry, data = constant(0)
    send(pool, entry, data)
    graph = graph_of(entry)
    held = pool.acquire(graph)
    assert isinstance(held, Graph)
    pool.clear()
    np.testing.assert_array_equal(held.constants[0].data, np.frombuffer(data, np.float32))
    pool.release(uploaded_digests(graph))


def test_wrong_bytes_are_dropped() -> None:
    """And their memory is free again."""
    budget = MemoryBudget(1 << 20)
    pool = ConstantPool(budget)
    entry, data = constant(0)
    with pytest.raises(InvalidFile):
        send(pool, entry, data[:-1] + b"\x7f")
    assert budget.used_bytes == 0
    with pytest.raises(InvalidParameter, match="do not follow"):
        pool.write(entry.sha256, len(data), 8, data[8:])
    assert send(pool, entry, data)


def test_pool_in_a_crowd() -> None:
    """Uploads, uses and evictions at once: data are right while held, and the budget comes out even."""
    budget = MemoryBudget(8 * 4 * KIB)
    pool = ConstantPool(budget)
    constants = [constant(seed) for seed in range(12)]
    locks = [threading.Lock() for _ in constants]  # As in a client: one upload of a constant at a time.

    def client(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(100):
            index = int(rng.integers(len(constants)))
            entry, data = constants[index]
            graph = graph_of(entry)
            with locks[index]:
                held = pool.acquire(graph)
                while isinstance(held, MissingConstants):
                    send(pool, entry, data)
                    held = pool.acquire(graph)
            os.sched_yield()
            np.testing.assert_array_equal(held.constants[0].data, np.frombuffer(data, np.float32))
            pool.release(uploaded_digests(graph))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(client, range(4)))
    assert 0 < budget.used_bytes <= 8 * 4 * KIB
    pool.clear()
    assert budget.used_bytes == 0


# ---- buffers


def test_buffer_released_under_a_run() -> None:
    """Whoever has a view of it keeps its memory; new views are refused."""
    budget = MemoryBudget(1 << 20)
    pool = BufferPool(budget)
    buffer_id = pool.allocate(4 * KIB)
    view = pool.region(buffer_id, KIB, 2 * KIB)
    assert isinstance(view, memoryview)
    assert bytes(view) == bytes(2 * KIB)
    pool.release(buffer_id)
    pool.release(buffer_id)
    assert budget.used_bytes == 0
    view[:4] = b"work"
    assert bytes(view[:4]) == b"work"
    with pytest.raises(UnknownHandle, match=f"no buffer {buffer_id}"):
        pool.region(buffer_id, 0, 1)


def test_a_buffer_that_is_allocated_while_its_session_ends() -> None:
    """It is refused, and leaves no memory and no descriptor behind."""
    budget = MemoryBudget(1 << 20)
    pool = BufferPool(budget, most_shared=1)
    pool.close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(UnavailableDevice, match="the session has ended"):
        pool.allocate(KIB, to_share=True)
    assert (budget.used_bytes, len(list(Path("/proc/self/fd").iterdir()))) == (0, before)


def test_buffers_that_are_just_being_shared_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may be shared are, however many are asked for at a time; one that fails gives its place back."""
    budget = MemoryBudget(1 << 20)
    pool = BufferPool(budget, most_shared=1)

    def mapped(fd: int, size_bytes: int) -> memoryview:
        with pytest.raises(OutOfMemory, match="shares 1 buffers, its limit"):
            pool.adopt(fd, size_bytes)
        if size_bytes > KIB:
            raise InvalidParameter("the memory is too short")
        return memoryview(bytearray(size_bytes))

    monkeypatch.setattr(shared_memory, "mapped", mapped)
    with pytest.raises(InvalidParameter):
        pool.adopt(0, 2 * KIB)
    for _ in range(2):
        pool.release(pool.adopt(0, KIB))
    assert budget.used_bytes == 0


def test_regions_are_checked() -> None:
    """Up to the last byte and no further."""
    pool = BufferPool(MemoryBudget(1 << 20))
    buffer_id = pool.allocate(10)
    assert pool.region(buffer_id, 0, 10).nbytes == 10
    assert pool.region(buffer_id, 10, 0).nbytes == 0
    for offset, size in ((0, 11), (10, 1), (1 << 64, 1), (1, 1 << 64)):
        with pytest.raises(InvalidParameter, match="pass the end; it has 10 bytes"):
            pool.region(buffer_id, offset, size)


def test_buffers_in_a_crowd() -> None:
    """Ids are never given twice, and the budget comes out even."""
    budget = MemoryBudget(64 * KIB)
    pool = BufferPool(budget)
    seen, lock = set[int](), threading.Lock()

    def client(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(200):
            try:
                buffer_id = pool.allocate(int(rng.integers(KIB, 32 * KIB)))
            except OutOfMemory:
                continue
            with lock:
                assert buffer_id not in seen
                seen.add(buffer_id)
            os.sched_yield()
            pool.release(buffer_id)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(client, range(6)))
    assert budget.used_bytes == 0
