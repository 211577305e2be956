"""Even shares of the device's time, on a device that is simulated: one run after another, on a clock of its own."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jain import jain_index

from nnrt_device_service.scheduling.fair_queue import FairQueue, Flow

LENGTHS_S = st.sampled_from([0.001, 0.01, 0.1, 1.0])


class Device:
    """One slot, and who has had it for how long."""

    def __init__(self) -> None:
        self.queue: FairQueue[Flow] = FairQueue()
        self.now = 1e6
        self.had: dict[Flow, float] = {}

    def wait(self, flow: Flow, runs: int = 1) -> None:
        for _ in range(runs):
            self.queue.enqueue(flow, self.now)

    def run_next(
        self, length_s: Callable[[Flow], float], meanwhile: Callable[[Flow], object] = lambda flow: None
    ) -> Flow:
        """One run, to its end; whose it was. `meanwhile` is called in its middle."""
        flow = self.queue.next(self.now)
        self.queue.start(flow, self.now)
        self.queue.dequeue(flow, self.now)
        length = length_s(flow)
        self.now += length / 2
        meanwhile(flow)
        self.now += length / 2
        self.queue.stop(flow, self.now)
        self.had[flow] = self.had.get(flow, 0.0) + length
        return flow


@given(st.lists(st.tuples(LENGTHS_S, st.integers(1, 4)), min_size=2, max_size=6))
def test_nobody_gets_ahead_by_more_than_a_run(clients: Sequence[tuple[float, int]]) -> None:
    """Of flows that always have a run waiting when the next one starts, whatever their runs take."""
    device = Device()
    length_of = {Flow(): length_s for length_s, _ in clients}
    for flow, (_, waiting) in zip(length_of, clients, strict=True):
        device.wait(flow, waiting)
        device.had[flow] = 0.0
    for _ in range(100):
        device.run_next(length_of.__getitem__, device.wait)
        assert max(device.had.values()) - min(device.had.values()) <= max(length_of.values()) + 1e-6


@given(st.lists(st.tuples(st.integers(0, 5), LENGTHS_S), min_size=1, max_size=60))
def test_everybody_is_served(arrivals: Sequence[tuple[int, float]]) -> None:
    """Whoever comes when: each run that waits has its turn once, and then nobody waits."""
    device, flows = Device(), [Flow() for _ in range(6)]
    served = dict.fromkeys(flows, 0)
    coming = list(arrivals)
    device.wait(flows[0])
    while device.queue:
        length_s = coming[-1][1] if coming else 0.5

        def arrive(_: Flow) -> None:
            if coming:
                device.wait(flows[coming.pop()[0]])

        served[device.run_next(lambda _, length_s=length_s: length_s, arrive)] += 1  # type: ignore[misc]
    wanted = [number for number, _ in arrivals]
    assert [served[flow] for flow in flows] == [wanted.count(at) + (at == 0) for at in range(6)]
    assert not any(flow.waiting or flow.running for flow in flows)


@pytest.mark.parametrize("at_a_time", [1, 2, 10])
def test_an_endless_row_of_newcomers_holds_up_nobody(at_a_time: int) -> None:
    """Each comes, has one run and is never seen again: who stays keeps half of an even share at least."""
    device, steady = Device(), Flow()
    device.wait(steady, runs=1000)
    for _ in range(at_a_time):
        device.wait(Flow())
    for _ in range(500):
        if device.run_next(lambda _: 0.01) is not steady:
            device.wait(Flow())
    assert device.had[steady] >= 0.45 * 5.0 / (1 + at_a_time)


def test_one_run_at_a_time_is_enough_for_an_even_share() -> None:
    """A client that sends a run when it has read the result of the last, beside one that always has some waiting."""
    device, single, many = Device(), Flow(), Flow()
    device.wait(many, runs=300)

    def send_next(_: Flow) -> None:
        if not (single.waiting or single.running):
            device.wait(single)

    for _ in range(200):
        device.run_next(lambda _: 0.01, send_next)
    assert jain_index([device.had[single], device.had[many]]) >= 0.99


def test_idling_saves_nothing_up() -> None:
    """A client that comes after an hour in which others shared the device has the same share as they, from then on."""
    device = Device()
    early, other, late = Flow(), Flow(), Flow()
    for flow in (early, other, late):
        device.wait(flow, runs=2000)
        device.run_next(lambda _: 1.0)
    for _ in range(late.waiting):
        device.queue.dequeue(late, device.now)
    for _ in range(1000):
        device.run_next(lambda _: 1.0)
    device.had.clear()
    device.wait(late, runs=2000)
    for _ in range(30):
        device.run_next(lambda _: 1.0)
    assert jain_index([device.had[flow] for flow in (early, other, late)]) >= 0.99


def test_a_run_that_began_before_counts_from_the_moment_others_wait() -> None:
    """A client that had the device for an hour while nobody wanted it owes for none of it."""
    device = Device()
    lonely, late = Flow(), Flow()
    device.wait(lonely, runs=100)
    device.run_next(lambda _: 3600.0)
    device.wait(late, runs=100)
    device.had.clear()
    for _ in range(20):
        device.run_next(lambda _: 0.01)
    assert jain_index(list(device.had.values())) >= 0.99


def test_coming_back_is_no_way_to_get_more() -> None:
    """A flow that leaves after each run, and comes back while the next one is on the device, is as far as before."""
    device, steady, jumpy = Device(), Flow(), Flow()
    device.wait(steady, runs=1000)
    device.wait(jumpy)

    def come_back(_: Flow) -> None:
        if not jumpy.waiting:
            device.wait(jumpy)

    for _ in range(200):
        if device.run_next(lambda flow: 0.01 if flow is steady else 0.05, come_back) is jumpy:
            device.queue.dequeue(jumpy, device.now)
    assert jain_index([device.had[steady], device.had[jumpy]]) >= 0.95


def test_a_run_on_the_device_saves_nothing_up() -> None:
    """Of three slots one flow had one for long, and wanted no more: when it does, it has the same share as others."""
    device, modest, other = Device(), Flow(), Flow()
    queue = device.queue
    device.wait(other, runs=300)
    queue.start(modest, device.now)
    for _ in range(100):
        for _ in range(2):
            assert queue.next(device.now) is other
            queue.start(other, device.now)
            queue.dequeue(other, device.now)
        device.now += 1.0
        for _ in range(2):
            queue.stop(other, device.now)
    device.wait(modest, runs=100)
    queue.stop(modest, device.now)
    for _ in range(20):
        device.run_next(lambda _: 1.0)
    assert jain_index([device.had[modest], device.had[other]]) >= 0.98


def test_waiting_in_vain_costs_others_nothing() -> None:
    """A client that waits and gives up, time and again, leaves the others no debt towards newcomers."""
    device, steady, fickle, late = Device(), Flow(), Flow(), Flow()
    device.wait(steady, runs=300)

    for _ in range(200):
        device.run_next(lambda _: 1.0, lambda _: device.wait(fickle))
        device.queue.dequeue(fickle, device.now)
    device.wait(late, runs=100)
    device.had.clear()
    for _ in range(20):
        device.run_next(lambda _: 1.0)
    assert jain_index([device.had[steady], device.had[late]]) >= 0.98
