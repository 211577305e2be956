"""Several devices that an application uses as one: placement, balancing, and what becomes of daemons."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from blocked_call import BlockedCall
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import convolution_model, identity_model
from observer import Observer
from waiting import until

from nnrt_client import (
    Device,
    InvalidFile,
    InvalidParameter,
    Model,
    OperationFailed,
    OperationForbidden,
    OperationType,
    Pool,
    Runtime,
    Tensor,
    TimedOut,
    UnavailableDevice,
    load,
)
from nnrt_client.model_session.pool import replicas_of
from pool.conftest import Fleet
from pool.load import Load, addresses, states, wait_for_states

ONE = np.ones(1, np.float32)
# Runs that a pool of this patience doesn't make end at once.
IMPATIENT_S = 0.2

Run = Callable[[], object]


def sub_model() -> Model:
    model = Model()
    x = model.input((1,), name="x")
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.SUB, x, ONE)])
    model.finish()
    return model


# ---- the face of a session


def test_a_session_of_a_pool_has_the_face_of_any(fleet: Fleet) -> None:
    daemons = fleet(2)
    given = np.random.default_rng(0).standard_normal((3, 8, 8, 1), np.float32)
    with (
        load(convolution_model(), daemons[0].address) as single,
        load(convolution_model(), addresses(daemons)) as session,
    ):
        assert (session.inputs, session.outputs) == (single.inputs, single.outputs)
        assert {device.address for device in session.devices} == set(addresses(daemons))
        assert session.device in session.devices
        (expected,) = single.run({"image": given}).values()
        for outputs in (
            session.run({"image": given}),
            session.submit({"image": given}).result(),
            asyncio.run(session.run_async({"image": given})),
        ):
            (output,) = outputs.values()
            np.testing.assert_array_equal(output, expected)
            assert outputs.times is not None
        (name,) = session.run({"image": given})
        assert session.run({"image": given}, outputs=[name], writable=True)[name].flags.writeable


def test_pools_share_a_runtime_and_a_pool_has_several_models(fleet: Fleet) -> None:
    daemons = fleet(2)
    with Runtime(addresses(daemons)) as runtime:
        with Pool(runtime=runtime) as pool, Pool(runtime=runtime) as other:
            first, second = pool.load(identity_model()), pool.load(convolution_model(), replicas=1)
            third = other.load(identity_model(), replicas=1)
            assert [len(session.devices) for session in (first, second, third)] == [2, 1, 1]
            assert sum(member.replicas for member in pool.members()) == 3
            second.close()
            until(lambda: sum(member.replicas for member in pool.members()) == 2)
            first.run([ONE])
        for session in (first, third):
            with pytest.raises(OperationForbidden, match="the pool is closed; make a new one"):
                session.run([ONE])
        assert len(runtime.devices()) == 2


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"replicas": 0}, "replicas is 0; use a whole number of 1 or more"),
        ({"replicas": True}, "replicas is True"),
        ({"retries": -1}, "retries is -1; use a whole number of 0 or more"),
    ],
)
def test_what_can_not_be_asked_for(shared_daemon: DaemonProcess, asked: dict[str, int], why: str) -> None:
    with Pool([shared_daemon.address]) as pool, pytest.raises(InvalidParameter, match=why):
        pool.load(identity_model(), **asked)  # type: ignore[arg-type]


# ---- placement


def test_replicas_are_placed_by_the_model(fleet: Fleet) -> None:
    """Every client comes to the same devices, where stores have the model; and different models to different ones."""
    daemons = fleet(4)
    places = set()
    for size in range(12):
        model = identity_model(elements=size + 1)
        with load(model, addresses(daemons), replicas=1) as session:
            place = session.device.address
        with load(model, addresses(daemons[::-1]), replicas=1) as session:
            assert session.device.address == place
        places.add(place)
    assert len(places) > 1


def test_devices_that_refuse_are_passed_over(fleet: Fleet, start_daemon: StartDaemon) -> None:
    (daemon,) = fleet(1)
    picky = start_daemon("--backend", "picky")
    with Pool([picky.address, daemon.address, "127.0.0.1:1"]) as pool, pool.load(sub_model(), replicas=2) as session:
        assert [device.address for device in session.devices] == [daemon.address]
        assert set(session.report.replicas) == {daemon.address}
        assert set(session.report.refused) == {picky.address, "127.0.0.1:1"}
        assert "the picky backend runs no SUB" in session.report.refused[picky.address]
        assert states(pool) == {picky.address: "spare", daemon.address: "ready", "127.0.0.1:1": "gone"}


def test_no_device_takes_the_model(start_daemon: StartDaemon) -> None:
    first, second = (start_daemon("--backend", "picky") for _ in range(2))
    with pytest.raises(OperationFailed, match="the picky backend runs no SUB"):
        load(sub_model(), [first.address])
    with pytest.raises(
        OperationFailed,
        match=f"no device takes the model: {first.address}: .* runs no SUB.*; {second}".replace(
            str(second), second.address
        ),
    ):
        load(sub_model(), [first.address, second.address])
    with pytest.raises(UnavailableDevice, match=r"127.0.0.1:1: no daemon answers.*; 127.0.0.1:2: no daemon answers"):
        load(sub_model(), ["127.0.0.1:1", "127.0.0.1:2"])


def test_a_daemon_with_two_addresses_has_one_replica(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon("--listen", f"unix:{tmp_path / 'd'}")
    assert len(daemon.addresses) == 2
    with load(identity_model(), daemon.addresses) as session:
        assert len(session.devices) == 1


def test_same_numbers(fleet: Fleet, start_daemon: StartDaemon) -> None:
    """The largest group of one backend and version takes part, whatever else there is, or comes."""
    fast, *daemons = start_daemon("--backend", "onnxruntime"), *fleet(2)
    everywhere = [fast.address, *addresses(daemons)]
    with Pool(everywhere) as pool:
        with pool.load(identity_model(), same_numbers=True) as session:
            assert {device.address for device in session.devices} == set(addresses(daemons))
        with pool.load(identity_model()) as session:
            assert {device.address for device in session.devices} == set(everywhere)


# ---- balancing


def test_runs_are_spread(fleet: Fleet) -> None:
    daemons = fleet(3, "--backend", "steady", "--option", "seconds=0.02")
    with Pool(addresses(daemons)) as pool, pool.load(identity_model()) as session:
        futures = [session.submit([ONE * number]) for number in range(30)]
        for number, future in enumerate(futures):
            assert [output.tolist() for output in future.result().values()] == [[number]]
        members = pool.members()
        assert sum(member.runs for member in members) == 30
        assert min(member.runs for member in members) >= 5
        assert all(member.latency_s and member.latency_s >= 0.02 for member in members)


def test_a_slow_device_gets_fewer_runs(fleet: Fleet, start_daemon: StartDaemon) -> None:
    daemons = fleet(2, "--backend", "steady", "--option", "seconds=0.001")
    slow = start_daemon("--backend", "steady", "--option", "seconds=0.05")
    with Pool([*addresses(daemons), slow.address]) as pool, pool.load(identity_model()) as session:
        with Load(session, threads=2) as running:
            running.wait_for_runs(200)
        runs = {member.address: member.runs for member in pool.members()}
    of_the_others = [runs[daemon.address] for daemon in daemons]
    assert runs[slow.address] < sum(of_the_others) / len(of_the_others) / 2  # One of them may be late once as well.


# ---- daemons that end


def test_a_kill_under_load_fails_no_run(fleet: Fleet) -> None:
    """What was under way is made again, another device takes the replica, and the first one is taken back."""
    daemons = fleet(3)
    with Pool(addresses(daemons)) as pool, pool.load(identity_model(), replicas=2) as session:
        with Load(session) as running:
            for _ in range(3):
                running.wait_for_runs()
                victim = next(one for one in daemons if one.address == session.device.address)
                victim.kill()
                until(lambda: len(session.devices) == 2)
                running.wait_for_runs()
                daemons[daemons.index(victim)] = DaemonProcess(
                    "--name", f"d{daemons.index(victim)}", listen=victim.address
                )
                until(lambda: sorted(states(pool).values()) == ["ready", "ready", "spare"], pool.members)
        assert not running.errors
    for daemon in daemons:
        daemon.kill()


def test_a_drain_under_load_fails_no_run(fleet: Fleet) -> None:
    """The daemon ends what it has; new runs go elsewhere."""
    daemons = fleet(3, "--backend", "steady", "--option", "seconds=0.01")
    with Pool(addresses(daemons)) as pool, pool.load(identity_model()) as session:
        with Load(session, threads=6) as running:
            for daemon in daemons[:2]:
                running.wait_for_runs()
                daemon.send(signal.SIGTERM)
                assert daemon.wait() == 0
            running.wait_for_runs()
        assert not running.errors
        wait_for_states(pool, "gone", "gone", "ready")


def test_all_die_and_one_returns(fleet: Fleet, start_daemon: StartDaemon) -> None:
    """A run waits for it."""
    daemons = fleet(2)
    with Pool(addresses(daemons)) as pool, pool.load(identity_model(), patience_s=60) as session:
        for daemon in daemons:
            daemon.kill()
        until(lambda: not session.devices)
        waits = BlockedCall(lambda: session.run([ONE]))
        submitted = session.submit([ONE * 2])
        waits.require_blocked()
        start_daemon("--name", "d1", listen=daemons[1].address)
        assert [output.tolist() for output in waits.wait().result.values()] == [[1]]
        assert [output.tolist() for output in submitted.result(20).values()] == [[2]]
        wait_for_states(pool, "gone", "ready")


def test_none_returns(fleet: Fleet) -> None:
    """Runs wait as long as they are told to, or until their deadline."""
    daemons = fleet(2)
    with Pool(addresses(daemons)) as pool:
        session = pool.load(identity_model(), patience_s=IMPATIENT_S)
        patient = pool.load(identity_model(), patience_s=600)
        for daemon in daemons:
            daemon.kill()
        runs: list[Run] = [
            lambda: session.run([ONE]),
            lambda: session.submit([ONE]).result(),
            lambda: patient.run([ONE], timeout_ms=300),
            lambda: patient.submit([ONE], timeout_ms=300).result(),
        ]
        for run in runs:
            with pytest.raises(UnavailableDevice):
                run()
        with pytest.raises(UnavailableDevice, match="no device of the pool has the model"):
            session.run([ONE])
        waits = BlockedCall(lambda: patient.run([ONE]))
        submitted = patient.submit([ONE])
        waits.require_blocked()
        patient.close()
        assert type(waits.wait().error) is OperationFailed
        with pytest.raises(OperationFailed, match="the session was closed"):
            submitted.result(20)


def test_a_refusal_of_the_model_is_none_of_the_client(fleet: Fleet) -> None:
    """Of whatever kind it is: other devices may come, so runs wait for them."""
    (daemon,) = fleet(1)

    def refuse(device: Device, require_wanted: Callable[[], None]) -> NoReturn:
        raise InvalidFile("the weights are damaged")

    with Pool([daemon.address]) as pool, pool.load(identity_model(), patience_s=IMPATIENT_S) as session:
        replicas_of(session).roster.loads._place = refuse
        daemon.kill()
        until(lambda: not session.devices)
        fleet(1)
        until(lambda: "the weights are damaged" in str(session.report.refused))
        runs: list[Run] = [lambda: session.run([ONE]), lambda: session.submit([ONE]).result(20)]
        for run in runs:
            with pytest.raises(
                UnavailableDevice, match=r"no device of the pool has the model.*the weights are damaged"
            ):
                run()


# ---- runs that are made once


def test_errors_of_a_run_are_not_retried(fleet: Fleet) -> None:
    daemons = fleet(2, "--backend", "slow")
    with Pool(addresses(daemons)) as pool, pool.load(identity_model()) as session:
        with pytest.raises(InvalidParameter):
            session.run([np.ones(1, np.int32)])
        with pytest.raises(InvalidParameter):
            session.submit([np.ones(1, np.int32)])
        runs: list[Run] = [
            lambda: session.run([ONE], timeout_ms=50),
            lambda: session.submit([ONE], timeout_ms=50).result(),
        ]
        for run in runs:
            with pytest.raises(TimedOut):
                run()
        assert sum(member.runs for member in pool.members()) == 2
        assert not any(member.failures for member in pool.members())


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_run_that_devices_fail_is_retried_so_often(fleet: Fleet, retries: int) -> None:
    daemons = fleet(2, "--backend", "faulty")
    with (
        Pool(addresses(daemons)) as pool,
        pool.load(identity_model(), retries=retries, extensions={"fault": b"run"}) as session,
    ):
        runs: list[Run] = [lambda: session.run([ONE]), lambda: session.submit([ONE]).result()]
        for number, run in enumerate(runs, 1):
            with pytest.raises(UnavailableDevice, match="the device failed to run"):
                run()
            assert sum(member.failures for member in pool.members()) == number * (retries + 1)


def test_runs_with_tensors_are_made_once(fleet: Fleet) -> None:
    daemons = fleet(2, "--backend", "slow")
    with (
        load(identity_model(elements=1), addresses(daemons)) as session,
        Tensor(session.device, session.inputs[0]) as tensor,
    ):
        futures = [session.submit([tensor]) for _ in range(2)]
        for daemon in daemons:
            with Observer(daemon.address) as observer:
                observer.wait_for(lambda state: state.running == 1)
            daemon.kill()
        for future in futures:
            with pytest.raises(UnavailableDevice):
                future.result(20)


def test_a_run_that_is_cancelled_ends_on_its_device(fleet: Fleet) -> None:
    (daemon,) = fleet(1, "--backend", "slow")

    async def cancelled() -> None:
        task = asyncio.create_task(session.run_async([ONE]))
        await asyncio.sleep(0)
        with Observer(daemon.address) as observer:
            observer.wait_for(lambda state: state.running == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            observer.wait_for(lambda state: state.running == 0)

    with load(identity_model(), [daemon.address]) as session:
        asyncio.run(cancelled())
        future = session.submit([ONE])
        assert future.cancel()
        assert future.cancelled()


def test_closing_ends_runs(fleet: Fleet) -> None:
    daemons = fleet(2, "--backend", "slow")
    with Pool(addresses(daemons)) as pool:
        session = pool.load(identity_model())
        calls = [BlockedCall(lambda: session.run([ONE])) for _ in range(2)]
        submitted = session.submit([ONE])
        for call in calls:
            call.require_blocked()
        session.close()
        assert [type(call.wait().error) for call in calls] == [OperationFailed] * 2
        with pytest.raises(OperationFailed, match="closed"):
            submitted.result(20)
        with pytest.raises(OperationForbidden):
            session.run([ONE])
        for daemon in daemons:
            with Observer(daemon.address) as observer:
                observer.wait_for(lambda state: (state.running, state.queued) == (0, 0))
