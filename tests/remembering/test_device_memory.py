"""States in a device's own memory."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from opaque_device import OpaqueDevice
from waiting import until

from nnrt_client import Model, OperationType, OutOfMemory, Settings, State, load
from nnrt_client.sequences.states import States
from remembering.models import WIDTH

ONES = np.ones((1, WIDTH), np.float32)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[OpaqueDevice]:
    opaque = OpaqueDevice(tmp_path, "--session-bytes", "1000000")
    yield opaque
    opaque.kill()


def totals_and_entries() -> Model:
    """Build a model that adds x to the state `total`, and makes an `entry` that can be appended to `entries`."""
    model = Model()
    x, total = model.input((1, WIDTH), name="x"), model.input((1, WIDTH), name="total")
    entries = model.input((-1, WIDTH), name="entries")
    new = model.apply(OperationType.ADD, x, total, name="new_total")
    y = model.apply(OperationType.ADD, entries, x, name="y")
    entry = model.apply(OperationType.CONCAT, y, entries, axis=0, name="entry")
    model.specify_inputs_and_outputs([x, total, entries], [new, entry])
    model.finish()
    return model


def adding() -> Model:
    """Build a model that adds x to the state `total`; y is the total."""
    model = Model()
    x, total = model.input((1, WIDTH), name="x"), model.input((1, WIDTH), name="total")
    new = model.apply(OperationType.ADD, x, total, name="new_total")
    model.specify_inputs_and_outputs([x, total], [new, model.apply(OperationType.ABS, new, name="y")])
    model.finish()
    return model


@pytest.mark.parametrize("shares_memory", [True, False])
def test_states_stay_there(device: OpaqueDevice, shares_memory: bool) -> None:
    settings = Settings(share_memory=shares_memory)
    with (
        load(adding(), device.address, settings=settings) as session,
        session.sequence(states={"new_total": "total"}) as sequence,
    ):
        sequence.run({"x": ONES})
        with sequence.fork() as fork:
            device.mark()
            for total in (2.0, 3.0):
                np.testing.assert_array_equal(sequence.run({"x": ONES})["y"], total * ONES)
            assert device.copied() == (0, 0)
            np.testing.assert_array_equal(fork.run({"x": 5 * ONES}, outputs=["new_total"])["new_total"], 6 * ONES)
            np.testing.assert_array_equal(sequence.read()["total"], 3 * ONES)
            assert device.copied() == (2, 0)
            list(fork.queue([{"x": ONES}] * 5, outputs=[]))
            assert device.copied() == (2, 0)


def test_run_whose_states_find_no_room_takes_none_there(device: OpaqueDevice) -> None:
    states: States = {"new_total": "total", "entry": State("entries", axis=0, appends=True)}
    with load(totals_and_entries(), device.address) as session:
        with session.sequence({"entries": ONES}, states=states) as sequence:
            runs = count()
            with pytest.raises(OutOfMemory):
                while next(runs) < 100:
                    sequence.run({"x": ONES})
            for _ in range(3):
                with pytest.raises(OutOfMemory):
                    sequence.run({"x": ONES})
            np.testing.assert_array_equal(sequence.read("total")["total"], (next(runs) - 1) * ONES)
        until(lambda: device.bytes_of("allocate") == device.bytes_of("free"))
