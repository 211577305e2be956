"""A pooled session whose number of replicas changes."""

import numpy as np
import pytest
from networks import convolution_model, identity_model
from waiting import until

from nnrt_client import InvalidParameter, ModelSession, OperationFailed, OperationForbidden, Pool, load
from pool.conftest import Fleet
from pool.load import Load, addresses, states

ONE = np.ones(1, np.float32)


def test_no_run_fails_while_replicas_come_and_go(fleet: Fleet) -> None:
    daemons = fleet(3, "--backend", "steady", "--option", "seconds=0.002")
    with Pool(addresses(daemons)) as pool, pool.load(identity_model(), replicas=1) as session:
        with Load(session) as running:
            for replicas, many in ((3, 3), (1, 1), (None, 3), (2, 2), (1, 1)):
                session.resize(replicas)
                until(lambda many=many: len(session.devices) == many, pool.members)  # type: ignore[misc]
                running.wait_for_runs(30)
        assert not running.errors
        until(lambda: sum(member.replicas for member in pool.members()) == 1, pool.members)
        assert sorted(states(pool).values()) == ["ready", "spare", "spare"]


def test_devices_are_chosen_by_the_model(fleet: Fleet) -> None:
    """A replica that joins is where `load` would have placed it."""
    daemons = fleet(4)
    with Pool(addresses(daemons)) as pool:
        for size in range(4):
            model = identity_model(elements=size + 1)
            with load(model, addresses(daemons), replicas=2) as session:
                places = {device.address for device in session.devices}
            with pool.load(model, replicas=1) as session:
                session.resize(2)
                until(lambda session=session: len(session.devices) == 2)  # type: ignore[misc]
                assert {device.address for device in session.devices} == places


def test_what_can_not_be_asked_for(fleet: Fleet) -> None:
    with Pool(addresses(fleet(1))) as pool:
        session = pool.load(convolution_model())
        with pytest.raises(InvalidParameter, match="replicas is 0; use a whole number of 1 or more"):
            session.resize(0)
        session.close()
        with pytest.raises(OperationForbidden, match="the session is closed"):
            session.resize(1)


def test_a_device_is_warmed_up_before_runs_go_there(fleet: Fleet) -> None:
    """One where that fails doesn't get the model."""
    daemons = fleet(3)
    warmed = []

    def warm_up(session: ModelSession) -> None:
        session.run([ONE])
        warmed.append(session.device.address)
        if session.device.address == daemons[1].address:
            raise OperationFailed("it is too cold")

    with Pool(addresses(daemons)) as pool, pool.load(identity_model(), warm_up=warm_up) as session:
        assert sorted(warmed) == sorted(addresses(daemons))
        assert {device.address for device in session.devices} == {daemons[0].address, daemons[2].address}
        assert "it is too cold" in session.report.refused[daemons[1].address]
        with pool.load(identity_model(), replicas=1, warm_up=warm_up) as resized:
            before = len(warmed)
            resized.resize(2)
            until(lambda: len(resized.devices) == 2)
            assert len(warmed) > before
