"""What a daemon counts, by identity, and who may see it."""

from contextlib import ExitStack

import numpy as np
import pytest
from cli.command import nnrt
from conftest import StartDaemon
from networks import identity_model
from waiting import until

from access.conftest import Access, start
from nnrt_client import (
    Compilation,
    Device,
    DeviceCounters,
    DeviceLoad,
    Durations,
    Executor,
    IdentityCounters,
    NnrtError,
    OutOfMemory,
    ResidentTensor,
    Runtime,
    Settings,
    TensorDesc,
    TimedOut,
    Unsupported,
)
from nnrt_client.enums import DataType
from nnrt_client.session.device import session_of
from nnrt_device_service.access.counters import MOST_AWAY, Counters
from nnrt_hdi import wire
from nnrt_hdi.access.identity import Identity
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.v2 import device_pb2

ONE = np.ones(1, np.float32)
MIB = 1 << 20
SHARES = pytest.mark.parametrize("shares_memory", [True, False], ids=["one-host", "grpc"])


def own(device: Device) -> IdentityCounters:
    """The only identity that is seen."""
    (counters,) = device.counters().identities
    return counters


@SHARES
def test_what_an_identity_has_had(
    start_daemon: StartDaemon, access: Access, closing: ExitStack, shares_memory: bool
) -> None:
    """Runs by outcome, models by origin, device time and bytes; of itself alone, unless it administers the daemon."""
    a, b, administrator = (access.add(*who) for who in (("a", "compile"), ("b", "observe"), ("c", "administer")))
    daemon = start(start_daemon, access, "--backend", "slow", "--session-bytes", str(8 * MIB))

    def device_of(settings: Settings) -> Device:
        settings = Settings(token_file=settings.token_file, share_memory=shares_memory)
        return closing.enter_context(Runtime([daemon.address], settings)).device()

    device = device_of(a)
    compilation = closing.enter_context(Compilation(identity_model(), device))
    compilation.build()
    executor = closing.enter_context(Executor(compilation))
    with pytest.raises(TimedOut):
        executor.run_sync([ONE], timeout_ms=50)
    run = executor.submit([ONE])
    until(lambda: daemon.log().count("run started") == 2)
    run.cancel()
    until(lambda: sum(own(device).runs.values()) == 2, lambda: own(device))
    desc = TensorDesc(DataType.UINT8, [5 * MIB])
    held = closing.enter_context(ResidentTensor(device, desc))
    held.write(np.zeros(5 * MIB, np.uint8))
    with pytest.raises(OutOfMemory), ResidentTensor(device, desc) as more:
        more.write(np.zeros(5 * MIB, np.uint8))
    counted = own(device)
    assert (counted.identity, counted.sessions, counted.opened_sessions) == ("a", 1, 1)
    # The client stops a run whose time is over as well, and may be first.
    late = counted.runs.get("timed_out", 0)
    assert counted.runs == ({"timed_out": 1, "cancelled": 1} if late else {"cancelled": 2})
    assert counted.models == {"COMPILED": 1}
    assert counted.errors == {"--session-bytes": 1, **({"TIMEOUT": 1} if late else {})}
    assert counted.run_s > 0 and counted.compile_s > 0
    assert counted.held_bytes >= 5 * MIB and counted.connections >= 1
    with pytest.raises(NnrtError), Compilation(identity_model(), device_of(b)) as refused:
        refused.build()
    everybody = {each.identity: each for each in device_of(administrator).counters().identities}
    assert list(everybody) == ["a", "b", "c", ""]
    assert set(everybody["b"].errors) == {"OPERATION_FORBIDDEN"}
    assert everybody["a"].runs == counted.runs


@SHARES
def test_runs_that_are_done(start_daemon: StartDaemon, shares_memory: bool) -> None:
    daemon = start_daemon()
    with (
        Runtime([daemon.address], Settings(share_memory=shares_memory)) as runtime,
        Compilation(identity_model(), runtime.device()) as compilation,
    ):
        compilation.build()
        with Executor(compilation) as executor:
            for _ in range(7):
                executor.run_sync([ONE])
        counted, others = runtime.device().counters().identities
        assert counted.runs == {"done": 7}
        assert (counted.in_bytes, counted.out_bytes) == (7 * ONE.nbytes, 7 * ONE.nbytes)
        parts = (counted.queued, counted.copied, counted.computed)
        assert [each.count for each in (*parts, counted.served)] == [7] * 4
        assert sum(each.total_s for each in parts) == pytest.approx(counted.served.total_s)
        assert 0 < counted.computed.quantile_s(0.01) <= counted.served.quantile_s(0.99)
        assert (others.identity, others.runs) == ("", {})


def test_nanoseconds_come_over_the_wire_as_they_are() -> None:
    """None is cut off on the way to seconds and back."""
    for total_ns in range(1, 2000):
        sent = IdentityCounters("ann", queued=Durations((0, 1), total_ns / 1e9), run_s=total_ns / 1e9)
        message = wire.counters_message(DeviceCounters(1.0, (sent,)))
        assert message.identities[0].queued.total_ns == message.identities[0].run_ns == total_ns
        assert wire.counters(message).identities[0].queued == sent.queued


def test_the_load_of_a_device(start_daemon: StartDaemon) -> None:
    """What is still on the device counts, and never less of it than before."""
    daemon = start_daemon("--backend", "slow", "--concurrent-runs", "2", "--queued-runs", "5", "--run-bytes", str(MIB))
    with (
        Runtime([daemon.address]) as runtime,
        Compilation(identity_model(), runtime.device()) as compilation,
    ):
        compilation.build()
        with Executor(compilation) as executor, ResidentTensor(runtime.device(), TensorDesc(DataType.UINT8, [MIB])):
            run = executor.submit([ONE])
            until(lambda: "run started" in daemon.log())
            first = runtime.device().counters()
            second = runtime.device().counters()
            run.cancel()
            until(lambda: not load(runtime.device()).running)
            third = runtime.device().counters()
    told = [each.load for each in (first, second, third)]
    assert all(each is not None for each in told)
    assert [(each.slots, each.queued_limit, each.run_limit_bytes) for each in told if each] == [(2, 5, MIB)] * 3
    assert [each.running for each in told if each] == [1, 1, 0]
    assert told[0] and told[0].sessions == 1 and MIB <= told[0].held_bytes["buffers"] < told[0].held_limit_bytes
    for seconds in (
        [each.load.busy_s for each in (first, second, third) if each.load],
        [each.identities[0].run_s for each in (first, second, third)],
    ):
        assert 0 < seconds[0] < seconds[1] <= seconds[2]


def load(device: Device) -> DeviceLoad:
    told = device.counters().load
    assert told is not None
    return told


def test_time_that_was_told_is_never_less() -> None:
    """A run counts a moment longer while it is looked at than when it has ended: numbers that may only grow must not
    shrink by that, in whichever line they are."""
    counters = Counters()
    usage = counters.open(Identity("host", "a"))
    usage.runs.busy_ns = 1000
    looked_at = counters.snapshot(None, under_way_ns={usage.runs: 50}).identities[0].run_s
    busy_s = counters.busy_s({usage.runs: 50})
    assert counters.snapshot(None).identities[0].run_s == looked_at == busy_s == counters.busy_s({}) == 1050e-9
    counters.close(usage)
    for number in range(MOST_AWAY):
        counters.close(counters.open(Identity("host", str(number))))
    assert counters.snapshot(None).identities[-1].run_s == looked_at


def test_durations() -> None:
    """By hand: one below 2 ns, two from 4 to 8, one from 8 to 16."""
    durations = Durations((0, 1, 0, 2, 1), 24e-9)
    assert durations.count == 4
    assert durations.mean_s == pytest.approx(6e-9)
    assert durations.quantile_s(0.25) == pytest.approx(2e-9)
    assert durations.quantile_s(0.5) == pytest.approx(6e-9)
    assert durations.quantile_s(1.0) == pytest.approx(16e-9)
    assert (durations - Durations((0, 1), 1e-9)).counts == (0, 0, 0, 2, 1)
    assert (durations + Durations((0, 1, 0, 0, 0, 5), 1e-6)).counts == (0, 2, 0, 2, 1, 5)
    assert (Durations().mean_s, Durations().quantile_s(0.99)) == (0.0, 0.0)


def test_durations_that_no_daemon_can_have_measured() -> None:
    """One that lies gives wrong numbers, no errors."""
    message = device_pb2.GetCountersReply()
    message.identities.add().served.counts.extend([0] * 5000 + [1])
    (told,) = wire.counters(message).identities
    assert told.served.quantile_s(0.99) == 0.0
    message.identities[0].served.counts[:] = [2**64 - 1] * 65
    (told,) = wire.counters(message).identities
    assert 100 * 365 * 86400 < told.served.quantile_s(0.99) < 1000 * 365 * 86400


def test_a_daemon_that_does_not_count(start_daemon: StartDaemon) -> None:
    """An earlier one has no such feature."""
    daemon = start_daemon()
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        del session_of(device).welcome.features[:]
        with pytest.raises(Unsupported):
            device.counters()


def test_on_the_command_line(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with Runtime([daemon.address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        shown = nnrt("devices", daemon.address, "--counters").output
        assert "2 sessions" in shown and "1 COMPILED" in shown and "(others)" in shown


def test_identities_without_end() -> None:
    """The latest are counted by themselves, and what the others had is not lost."""
    counters = Counters()
    stays = counters.open(Identity("host", "stays"))
    for number in range(MOST_AWAY + 10):
        usage = counters.open(Identity("host", str(number)))
        usage.count_error(InvalidParameter("nothing"))
        usage.count_run(1, 2, 3, in_bytes=4, out_bytes=5)
        usage.runs.busy_ns += 1000
        counters.close(usage)
    counters.find(Identity("host", "never here")).count_error(InvalidParameter("nothing"))
    told = counters.snapshot(None).identities
    assert len(told) == MOST_AWAY + 2
    assert told[0].identity == "host stays"
    assert (told[1].identity, told[-1].identity) == ("host 10", "")
    assert told[-1].errors == {"INVALID_PARAMETER": 11}
    assert told[-1].opened_sessions == 10
    assert (told[-1].runs, told[-1].in_bytes, told[-1].out_bytes) == ({"done": 10}, 40, 50)
    assert told[-1].served == Durations((0, 0, 0, 10), 60e-9)
    assert told[-1].run_s == pytest.approx(10e-6)
    counters.close(stays)
    back = counters.open(Identity("host", "5"))
    assert (back.opened_sessions, back.sessions) == (1, 1)
