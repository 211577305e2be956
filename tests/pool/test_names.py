"""A pool whose devices are found by names: it follows what the names say."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from networks import identity_model as identity
from waiting import until

from nnrt_client import Pool, Runtime, load
from pool.conftest import Fleet
from pool.load import Load, states

ONE = np.ones(1, np.float32)


def write(path: Path, *lines: str) -> None:
    """Replace a file of names as an operator's tools do."""
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(f"{line}\n" for line in lines))
    fresh.replace(path)


def test_what_names_gain_and_lose(fleet: Fleet, tmp_path: Path) -> None:
    """A new device gets a replica, and one that is gone no more runs; no run fails."""
    first, second, third = fleet(3)
    names = tmp_path / "names"
    write(names, first.address, second.address)
    with Pool([f"file://{names}"]) as pool, pool.load(identity()) as session:
        with Load(session, threads=2) as running:
            running.wait_for_runs()
            write(names, second.address, third.address)
            until(lambda: {device.address for device in session.devices} == {second.address, third.address})
            until(lambda: states(pool) == {second.address: "ready", third.address: "ready"}, pool.members)
            running.wait_for_runs()
            assert all(member.runs for member in pool.members())
        assert not running.errors


def test_a_spare_device_does_not_replace_what_works(fleet: Fleet, tmp_path: Path) -> None:
    first, second, third = fleet(3)
    names = tmp_path / "names"
    write(names, first.address, second.address)
    with load(identity(), f"file://{names}", replicas=2) as session:
        before = session.devices
        write(names, first.address, second.address, third.address)
        until(lambda: states(session.pool).get(third.address) == "spare")  # type: ignore[attr-defined]
        assert session.devices == before
        session.run([ONE])


def test_a_name_stands_for_all_its_devices(fleet: Fleet, tmp_path: Path) -> None:
    daemons = fleet(2)
    names = tmp_path / "names"
    write(names, *(daemon.address for daemon in daemons))
    with load(identity(), f"file://{names}") as session:
        assert {device.address for device in session.devices} == {daemon.address for daemon in daemons}
        session.run([ONE])


@pytest.mark.parametrize("on_death", ["raise", "reload"])
def test_a_name_of_a_runtime_that_is_given_stands_for_one_device(
    fleet: Fleet, tmp_path: Path, on_death: Literal["raise", "reload"]
) -> None:
    """Of those behind it, whatever else the runtime has."""
    other, wanted = fleet(2)
    names = tmp_path / "names"
    write(names, wanted.address)
    with (
        Runtime([other.address, f"file://{names}"]) as runtime,
        load(identity(), f"file://{names}", runtime=runtime, on_death=on_death) as session,
    ):
        assert session.device.address == wanted.address
        session.run([ONE])
