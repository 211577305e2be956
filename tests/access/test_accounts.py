"""What identities have had adds up to what the device has done, as the backend itself measures it."""

from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from metrics.scraping import LISTEN, scraped
from networks import identity_model
from numpy.typing import NDArray
from sums import Sums
from waiting import until

from access.conftest import Access, start
from nnrt_client import (
    Compilation,
    Device,
    DeviceCounters,
    DeviceLoad,
    Executor,
    OperationFailed,
    Runtime,
    TimedOut,
    UnavailableDevice,
)

RUNS = {"ada": 3, "bob": 4, "eve": 5}
COMPILE_S, RUN_S, FOR_EVER_S = 1.0, 0.15, 60.0
TOLERANCE = 0.02


def taking(seconds: float) -> list[NDArray[np.float32]]:
    """The inputs of a run that takes so long."""
    return [np.full(1, seconds, np.float32)]


def load_of(counters: DeviceCounters) -> DeviceLoad:
    assert counters.load is not None
    return counters.load


def end_badly(device: Device, executor: Executor) -> None:
    """Runs that fail, that run out of time, and that are cancelled, each while it is on the device."""
    with pytest.raises(UnavailableDevice):
        executor.run_sync(taking(-RUN_S))
    with pytest.raises(TimedOut):
        executor.run_sync(taking(FOR_EVER_S), timeout_ms=400)
    run = executor.submit(taking(FOR_EVER_S))
    before_s = load_of(device.counters()).busy_s
    until(lambda: load_of(device.counters()).busy_s > before_s + RUN_S)
    run.cancel()
    with pytest.raises(CancelledError):
        run.result()
    until(lambda: not load_of(device.counters()).running)


def give_up_building(device: Device) -> None:
    """A compilation that is cancelled while the device is at it."""
    (before,) = device.counters().identities
    with Compilation(identity_model(elements=2), device) as compilation, ThreadPoolExecutor(1) as thread:
        building = thread.submit(compilation.build)
        until(lambda: device.counters().identities[0].compile_s > before.compile_s + RUN_S)
        compilation.cancel()
        with pytest.raises(OperationFailed):
            building.result()


@pytest.mark.slow
@pytest.mark.parametrize("shares_memory", [True, False], ids=["one-host", "grpc"])
def test_they_add_up(
    start_daemon: StartDaemon, access: Access, closing: ExitStack, tmp_path: Path, shares_memory: bool
) -> None:
    """Three identities, two slots: all that an identity can have of a device."""
    sums = Sums(tmp_path / "sums")
    people = {name: access.add(name, "compile") for name in (*RUNS, "root")}
    access.write([line.replace("root compile", "root administer") for line in access.path.read_text().splitlines()])
    options = ("--option", f"file={tmp_path / 'sums'}", "--option", f"compile_s={COMPILE_S}", "--concurrent-runs", "2")
    daemon = start(start_daemon, access, "--backend", "accounting", *options, *LISTEN, "--metrics-identities")

    def device_of(name: str) -> Device:
        settings = replace(people[name], share_memory=shares_memory)
        return closing.enter_context(Runtime([daemon.address], settings)).device()

    devices = {name: device_of(name) for name in people}

    def work(name: str) -> Executor:
        compilation = closing.enter_context(Compilation(identity_model(), devices[name]))
        compilation.build()
        executor = closing.enter_context(Executor(compilation))
        for run in [executor.submit(taking(RUN_S)) for _ in range(RUNS[name])]:
            run.result()
        return executor

    with ThreadPoolExecutor() as at_once:
        executors = dict(zip(RUNS, at_once.map(work, RUNS), strict=True))
    for name, executor in executors.items():
        end_badly(devices[name], executor)
    give_up_building(devices["ada"])
    until(lambda: sums.count(Sums.COMPILATIONS) == len(RUNS) + 1)

    told = devices["root"].counters()
    by_name = {each.identity: each for each in told.identities}
    run_s, compile_s = (sums.seconds(what) for what in (Sums.RUNS, Sums.COMPILATIONS))
    assert sum(each.run_s for each in told.identities) == pytest.approx(run_s, rel=TOLERANCE)
    assert sum(each.compile_s for each in told.identities) == pytest.approx(compile_s, rel=TOLERANCE)
    assert load_of(told).busy_s == pytest.approx(sum(each.run_s for each in told.identities))
    for name, runs in RUNS.items():
        ended = dict(by_name[name].runs)
        assert (ended.pop("done"), ended.pop("failed")) == (runs, 1)
        assert sum(ended.values()) == 2  # The client stops a run whose time is over as well, and may be first.
        assert by_name[name].in_bytes == by_name[name].out_bytes == 4 * runs
        assert by_name[name].run_s > (runs + 1) * RUN_S + 0.4
        (own,) = devices[name].counters().identities
        # The end of the build that was given up may be counted as an error in between.
        assert own == replace(by_name[name], connections=own.connections, errors=own.errors)
        assert by_name[name].errors.items() <= own.errors.items()
    busy = {
        sample.labels["identity"]: sample.value
        for sample in scraped(daemon)["nnrt_device_busy_seconds"].samples
        if sample.value
    }
    assert busy == pytest.approx({name: by_name[name].run_s for name in RUNS})
