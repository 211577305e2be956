"""Daemons that Ray keeps."""

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from networks import identity_model
from waiting import until

from nnrt_client import Runtime, UnavailableDevice, load
from nnrt_hdi.errors import InvalidParameter
from on_ray.clusters import DEVICES, daemons

pytest.importorskip("ray.data", reason="needs Ray: `make engines` has it")

from resolvers.watching import watched

from nnrt_client.ray import DeviceProcess, Fleet, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),  # Ray's own.
    pytest.mark.usefixtures("cluster"),
]


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with start("cameras") as fleet:
        yield fleet


def pids_of(fleet: str) -> dict[str, int]:
    """The daemons' processes, by the names of their devices."""
    names = [f"{fleet}-{index}" for index in range(DEVICES)]
    return {name: pid for pid, arguments in daemons().items() for name in names if name in arguments}


def test_every_device_has_a_daemon(fleet: Fleet) -> None:
    with Runtime([fleet.target]) as runtime:
        assert sorted(device.name for device in runtime.devices()) == ["cameras-0_nnrt_v2_1", "cameras-1_nnrt_v2_1"]
    assert all(address.startswith("127.0.0.1:") for address in fleet.addresses())
    with load(identity_model(), fleet.target) as session:
        np.testing.assert_array_equal(next(iter(session.run([np.ones(1, "f4")]).values())), [1])


def test_a_daemon_that_dies_is_started_again(fleet: Fleet) -> None:
    with watched(fleet.target + "?every=0.1") as told:
        until(lambda: told.lists and len(told.lists[-1]) == DEVICES)
        before = set(told.lists[-1])
        os.kill(pids_of("cameras")["cameras-0"], signal.SIGKILL)
        until(lambda: len(told.lists[-1]) == DEVICES and set(told.lists[-1]) != before, lambda: told.lists)
        assert len(before & set(told.lists[-1])) == DEVICES - 1  # The others stay where they are.


def test_a_daemon_dies_with_its_actor(fleet: Fleet) -> None:
    import ray

    assert len(pids_of("cameras")) == DEVICES
    for actor in fleet._actors:
        ray.kill(actor, no_restart=True)
    until(lambda: not daemons())


def test_a_fleet_ends_with_its_daemons() -> None:
    with start("short"):
        assert len(pids_of("short")) == DEVICES
    assert not daemons()
    with watched("ray:///short") as told:
        told.wait_for()


def test_a_detached_fleet_is_found_again() -> None:
    started = start("night", count=1, detached=True)
    with Fleet.find("night") as found:
        assert found.addresses() == started.addresses()
    with Fleet.find("night") as found:
        assert found.addresses() == ()
    assert not daemons()


def test_names_are_given_once(fleet: Fleet) -> None:
    with pytest.raises(InvalidParameter, match="there is a fleet 'cameras' already"):
        start("cameras")


def test_resources_that_no_node_has() -> None:
    with pytest.raises(InvalidParameter, match="no node has the resources"):
        start("none", resources={"nowhere": 1})


def test_a_network_takes_tls_or_a_word_that_it_may_be_without() -> None:
    """The daemon's own rule, which nothing here weakens."""
    with pytest.raises(UnavailableDevice, match="ended before it was ready"):
        DeviceProcess(listen="0.0.0.0:0")
    with DeviceProcess(["--insecure"], listen="0.0.0.0:0") as process:
        assert process.address.startswith("0.0.0.0:")


def test_a_daemon_that_does_not_start_is_said() -> None:
    with pytest.raises(UnavailableDevice, match="could not be started"):
        start("wrong", serve=["--backend", "nobody"])
