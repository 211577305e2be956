"""A lost connection to a daemon that lives: everything goes on. One to a daemon that doesn't: that is its death."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from blocked_call import BlockedCall
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model, weighted_model
from observer import Observer
from proxy import Proxy
from recorder import Recorder
from waiting import until

from nnrt_client import (
    Compilation,
    ConnectionFailed,
    Device,
    Executor,
    Runtime,
    Settings,
    TimedOut,
    UnavailableDevice,
)
from nnrt_client.session.address import Address
from nnrt_client.session.device import session_of

ONE = np.ones(1, np.float32)
LONG_MS = 600_000
DEADLINE_S = 20.0
# A lost connection is found again while a test lasts; what depends on a shorter time sets it.
PATIENT = Settings(reconnect_timeout_s=DEADLINE_S)
IMPATIENT = Settings(reconnect_timeout_s=0.3)
LONG_LEASE = ("--lease-s", "60")


def built(device: Device) -> Compilation:
    compilation = Compilation(identity_model(), device)
    compilation.build()
    return compilation


@contextmanager
def executor_behind(proxy: Proxy, settings: Settings = PATIENT) -> Iterator[Executor]:
    with (
        Runtime([proxy.address], settings) as runtime,
        built(runtime.device()) as compilation,
        Executor(compilation) as executor,
    ):
        yield executor


def wait_for_attachment(device: Device, count: int) -> None:
    """Wait until the session has been found again that many times in all."""
    connection = session_of(device)
    until(lambda: connection.attachment >= count)


def open_until(gate: Path, wanted: Callable[[], bool]) -> None:
    """Let through whatever comes to the gate."""

    def opened() -> bool:
        with suppress(OSError):  # Nobody is there.
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        return wanted()

    until(opened)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A run of the backend `gated` ends when this is opened for writing and closed."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def gated(start_daemon: StartDaemon, gate: Path, *arguments: str) -> DaemonProcess:
    return start_daemon("--backend", "gated", "--option", f"gate={gate}", *LONG_LEASE, *arguments)


# ---- found again


def test_cut_while_idle(start_daemon: StartDaemon) -> None:
    """Models, executors and device go on; nothing was built or opened again."""
    daemon = start_daemon(*LONG_LEASE)
    with Proxy(daemon.address) as proxy, Runtime([proxy.address], PATIENT) as runtime:
        device = runtime.device()
        with built(device) as compilation, Executor(compilation) as executor:
            connection = session_of(device)
            for cut in range(3):
                np.testing.assert_array_equal(executor.run_sync([ONE * cut]), [ONE * cut])
                proxy.cut()
                wait_for_attachment(device, cut + 1)
                assert device.is_connected
                assert runtime.devices() == [device]
            assert session_of(device) is connection


@pytest.mark.parametrize("runs", [1, 9], ids=["running", "queued there and here"])
def test_cut_under_runs(start_daemon: StartDaemon, gate: Path, runs: int) -> None:
    """Each ends once, with its own result."""
    daemon = gated(start_daemon, gate)
    recorder = Recorder()
    with Proxy(daemon.address) as proxy, executor_behind(proxy) as executor, Observer(daemon.address) as observer:
        recorder.watch(executor)
        for run in range(runs):
            executor.run_async([ONE * run], timeout_ms=LONG_MS, user_data=run)
        observer.wait_for(lambda state: (state.running, state.queued) == (1, min(runs - 1, 5)))
        proxy.cut()
        open_until(gate, lambda: recorder.count == runs)
        assert not recorder.died
        for run in range(runs):
            np.testing.assert_array_equal(recorder.outputs(run), [ONE * run])
    # Each was started once.
    for run in range(runs):
        assert daemon.log().count(f"run started with {float(run)}") == 1


def test_cut_again_and_again_under_one_run(start_daemon: StartDaemon, gate: Path) -> None:
    daemon = gated(start_daemon, gate)
    with Proxy(daemon.address) as proxy, Runtime([proxy.address], PATIENT) as runtime:
        device = runtime.device()
        with built(device) as compilation, Executor(compilation) as executor, Observer(daemon.address) as observer:
            run = executor.submit([ONE * 3])
            observer.wait_for(lambda state: state.running == 1)
            for cut in range(1, 4):
                proxy.cut()
                wait_for_attachment(device, cut)
            gate.write_bytes(b"")
            np.testing.assert_array_equal(run.result(DEADLINE_S), [ONE * 3])
            assert len(daemon.log().split("run started")) == 2


def test_reply_lost_on_the_way(start_daemon: StartDaemon, gate: Path) -> None:
    """The daemon has sent it, and sends it again."""
    daemon = gated(start_daemon, gate)
    with Proxy(daemon.address) as proxy, executor_behind(proxy) as executor, Observer(daemon.address) as observer:
        run = executor.submit([ONE * 3])
        observer.wait_for(lambda state: state.running == 1)
        proxy.cut_at_reply()
        gate.write_bytes(b"")
        np.testing.assert_array_equal(run.result(DEADLINE_S), [ONE * 3])
        # What was kept for it is given up when the client has it.
        observer.wait_for(lambda state: state.held_bytes <= 6144)  # The model and its plan.
        assert len(daemon.log().split("run started")) == 2


def test_lost_in_silence(start_daemon: StartDaemon, gate: Path) -> None:
    """Nothing comes through on the old connection, and nothing breaks it; a new one takes over the session."""
    daemon = gated(start_daemon, gate)
    settings = Settings(heartbeat_timeout_s=0.5, reconnect_timeout_s=DEADLINE_S)
    with (
        Proxy(daemon.address) as proxy,
        executor_behind(proxy, settings) as executor,
        Observer(daemon.address) as observer,
    ):
        run = executor.submit([ONE * 3])
        observer.wait_for(lambda state: state.running == 1)
        proxy.swallow(new=False)
        gate.write_bytes(b"")
        np.testing.assert_array_equal(run.result(DEADLINE_S), [ONE * 3])
        assert observer.state().sessions == 2


def test_streams_lost_in_silence(start_daemon: StartDaemon) -> None:
    """The daemon doesn't count those that nobody can end any more."""
    daemon = start_daemon("--session-streams", "4", *LONG_LEASE)
    settings = Settings(heartbeat_timeout_s=0.5, reconnect_timeout_s=DEADLINE_S)
    with Proxy(daemon.address) as proxy, Runtime([proxy.address], settings) as runtime:
        device = runtime.device()
        with built(device) as compilation, Executor(compilation) as executor:
            for silence in range(4):
                runs = [executor.submit([ONE * run]) for run in range(20)]
                for run, ended in enumerate(runs):
                    np.testing.assert_array_equal(ended.result(DEADLINE_S), [ONE * run])
                proxy.swallow(new=False)
                wait_for_attachment(device, silence + 1)


@pytest.mark.parametrize("shares_memory", [True, False])
def test_cut_during_an_upload(start_daemon: StartDaemon, shares_memory: bool) -> None:
    """It goes on where it was cut off."""
    daemon = start_daemon(*LONG_LEASE)
    weights = 1 << 21
    cuts: list[float] = []
    settings = replace(PATIENT, share_memory=shares_memory)
    with Proxy(daemon.address) as proxy, Runtime([proxy.address], settings) as runtime:

        def cut_half_way(stage: str, fraction: float) -> None:
            if stage == "uploading" and fraction > 0.6 and not cuts:
                # What the progress tells is on its way; at least this must have gone through.
                until(lambda: shares_memory or proxy.sent_bytes > weights)
                cuts.append(fraction)
                proxy.cut()

        with Compilation(weighted_model(weights), runtime.device()) as compilation:
            compilation.build(cut_half_way)
            with Executor(compilation) as executor:
                executor.run_sync([ONE])
            assert cuts
            assert compilation.report is not None
            assert compilation.report.sent_bytes < 1.9 * 4 * weights
        assert proxy.sent_bytes < 1.9 * 4 * weights


def test_cut_during_a_build(start_daemon: StartDaemon, gate: Path) -> None:
    """It is asked for again, and one model is what is left."""
    daemon = start_daemon("--backend", "building", "--option", f"gate={gate}", *LONG_LEASE)
    with Proxy(daemon.address) as proxy, Runtime([proxy.address], PATIENT) as runtime:
        device = runtime.device()
        with Compilation(identity_model(), device) as compilation:
            begun = threading.Event()
            build = BlockedCall(lambda: compilation.build(lambda stage, _: begun.set()))
            assert begun.wait(DEADLINE_S)
            proxy.cut()
            wait_for_attachment(device, 1)
            open_until(gate, lambda: compilation.is_built)
            assert build.wait().error is None
            with Executor(compilation) as executor:
                np.testing.assert_array_equal(executor.run_sync([ONE]), [ONE])
                until(lambda: daemon.log().count("model closed") == daemon.log().count("compiled with") - 1)


def test_cut_in_a_callback(start_daemon: StartDaemon) -> None:
    """A callback may cut the branch it sits on, and run on."""
    daemon = start_daemon(*LONG_LEASE)
    results: list[Any] = []
    ended = threading.Event()
    with Proxy(daemon.address) as proxy, Runtime([proxy.address], PATIENT) as runtime:
        device = runtime.device()
        with built(device) as compilation, Executor(compilation) as executor:

            def on_run_done(run: int, outputs: Any, error: Any) -> None:
                proxy.cut()
                wait_for_attachment(device, 1)
                results.extend((error, executor.run_sync([ONE * run])))
                ended.set()

            executor.set_on_run_done(on_run_done)
            executor.run_async([ONE], timeout_ms=LONG_MS, user_data=7)
            assert ended.wait(DEADLINE_S)
    assert results[0] is None
    np.testing.assert_array_equal(results[1], [ONE * 7])


def test_calls_wait_for_the_verdict(start_daemon: StartDaemon) -> None:
    """Calls and runs begun while nobody knows whether the daemon lives are made when it has been found."""
    daemon = start_daemon(*LONG_LEASE)
    with Proxy(daemon.address) as proxy, Runtime([proxy.address], PATIENT) as runtime:
        device = runtime.device()
        with built(device) as compilation, Executor(compilation) as executor:
            proxy.swallow(new=True)
            proxy.cut()
            connection = session_of(device)
            until(lambda: not connection.is_attached)
            status, run = BlockedCall(device.status), executor.submit([ONE * 4])
            status.require_blocked()
            assert not run.done()
            proxy.flow()
            assert status.wait().error is None
            np.testing.assert_array_equal(run.result(DEADLINE_S), [ONE * 4])


def test_timeout_while_the_connection_is_lost(start_daemon: StartDaemon) -> None:
    """It is kept; and the daemon hears that the run is over when it is found again."""
    daemon = start_daemon("--backend", "slow", *LONG_LEASE)
    with Proxy(daemon.address) as proxy, executor_behind(proxy) as executor, Observer(daemon.address) as observer:
        limited, endless = executor.submit([ONE], timeout_ms=1000), executor.submit([ONE])
        observer.wait_for(lambda state: (state.running, state.queued) == (1, 1))
        proxy.swallow(new=True)
        proxy.cut()
        assert isinstance(limited.exception(DEADLINE_S), TimedOut)
        assert endless.cancel()
        proxy.flow()
        observer.wait_for(lambda state: (state.running, state.queued) == (0, 0))


def test_cuts_under_load(start_daemon: StartDaemon) -> None:
    """At moments that vary: every run ends once, with its own result or ConnectionFailed, and the session lives."""
    daemon = start_daemon(*LONG_LEASE)
    recorder = Recorder()
    rng = np.random.default_rng(0)
    results = 0
    with Proxy(daemon.address) as proxy, executor_behind(proxy) as executor:
        recorder.watch(executor)
        for cut in range(6):
            runs = [(cut, run) for run in range(40)]
            for run in runs:
                executor.run_async([np.full(1 << 10, run[1], np.float32)], timeout_ms=LONG_MS, user_data=run)
            recorder.wait(cut * 40 + int(rng.integers(1, 30)))
            proxy.cut()
            recorder.wait((cut + 1) * 40)
        assert not recorder.died
        for (_, number), ((outputs, error),) in recorder.done.items():
            if error is None:
                assert outputs is not None
                assert (outputs[0] == number).all()
                results += 1
            else:
                assert type(error) is ConnectionFailed
    assert results > 100


# ---- not found again


def test_nobody_listens(start_daemon: StartDaemon) -> None:
    """A refused connection is a death at once, however long one would wait for an answer."""
    daemon = start_daemon("--backend", "slow", "--lease-s", "0.2")
    recorder = Recorder()
    with (
        Observer(daemon.address) as observer,
        Proxy(daemon.address) as proxy,
        executor_behind(proxy, Settings(reconnect_timeout_s=60)) as executor,
    ):
        recorder.watch(executor).run_async([ONE], timeout_ms=LONG_MS, user_data="run")
        observer.wait_for(lambda state: state.running == 1)
        proxy.refuse()
        proxy.cut()
        recorder.wait(1)
        assert (dict(recorder.died), dict(recorder.done)) == ({"run": 1}, {})
        with pytest.raises(UnavailableDevice, match="nobody listens there any more"):
            executor.run_sync([ONE])
        # The daemon lives on, and frees everything when the lease is over.
        observer.wait_until_empty()
        until(lambda: "model closed" in daemon.log())
    assert daemon.log().count("model closed") == 1
    assert "has not come back; its session is over" in daemon.log()


def test_no_answer_within_the_grace_time(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--backend", "slow", "--lease-s", "0.2")
    with (
        Observer(daemon.address) as observer,
        Proxy(daemon.address) as proxy,
        Runtime([proxy.address], IMPATIENT) as runtime,
    ):
        device = runtime.device()
        deaths: SimpleQueue[Exception] = SimpleQueue()
        session_of(device).on_death(deaths.put)
        run = Executor(built(device)).submit([ONE])
        observer.wait_for(lambda state: state.running == 1)
        proxy.swallow(new=True)
        proxy.cut()
        assert type(run.exception(DEADLINE_S)) is UnavailableDevice
        assert "did not answer again within 0.3 s" in str(run.exception())
        observer.wait_until_empty()
        # The run ends with the session; who listens to that is told just after.
        assert "did not answer again within 0.3 s" in str(deaths.get(timeout=DEADLINE_S))
        proxy.flow()
        assert runtime.device() is device
        built(device).close()
        assert deaths.empty()


def test_found_too_late(start_daemon: StartDaemon) -> None:
    """The daemon lives, but the lease was over: everything it held is gone."""
    daemon = start_daemon("--lease-s", "0.1")
    with (
        Observer(daemon.address) as observer,
        Proxy(daemon.address) as proxy,
        executor_behind(proxy) as executor,
    ):
        proxy.swallow(new=True)
        proxy.cut()
        observer.wait_until_empty()
        proxy.cut()
        proxy.flow()
        with pytest.raises(
            UnavailableDevice, match="no such session; it ended, or the daemon was restarted: load the model again"
        ):
            executor.run_sync([ONE])


def test_no_lease(start_daemon: StartDaemon) -> None:
    """A lost connection is a death at once, where the daemon keeps nothing or the client looks for nobody."""
    for lease, settings in (("0", PATIENT), ("60", Settings(reconnect_timeout_s=0))):
        daemon = start_daemon("--lease-s", lease)
        with Proxy(daemon.address) as proxy, executor_behind(proxy, settings) as executor:
            proxy.cut()
            with pytest.raises(UnavailableDevice, match="it is gone: the connection broke"):
                while True:
                    executor.run_sync([ONE])


def test_another_instance_answers(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """It is not taken for the old one, whose runs end with its death."""
    address = f"unix:{tmp_path}/d"
    daemon = start_daemon("--backend", "slow", listen=address)
    recorder = Recorder()
    with Proxy(address) as proxy, Runtime([proxy.address], PATIENT) as runtime:
        device = runtime.device()
        executor = recorder.watch(Executor(built(device)))
        for run in range(10):
            executor.run_async([ONE], timeout_ms=LONG_MS, user_data=run)
        daemon.kill()
        assert recorder.count == 0  # The proxy takes connections for it, so it may come back.
        start_daemon("--backend", "slow", listen=address)
        recorder.wait(10)
        assert recorder.died == dict.fromkeys(range(10), 1)
        assert not recorder.done
        built(device).close()


def test_closing_while_the_connection_is_lost(start_daemon: StartDaemon) -> None:
    """Nothing waits for the verdict any longer."""
    daemon = start_daemon("--backend", "slow", "--lease-s", "0.2")
    with Proxy(daemon.address) as proxy, Runtime([proxy.address], PATIENT) as runtime:
        device = runtime.device()
        executor = Executor(built(device))
        run = executor.submit([ONE])
        proxy.swallow(new=True)
        proxy.cut()
        until(lambda: not session_of(device).is_attached)
        BlockedCall(runtime.close).wait()
        assert type(run.exception(DEADLINE_S)) is UnavailableDevice


# ---- who listens


def test_endpoints(tmp_path: Path) -> None:
    """A refusal is certain; everything else is not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        # On one of the addresses of a name is enough.
        for address in (f"127.0.0.1:{port}", f"localhost:{port}"):
            assert not Address(address).refuses(DEADLINE_S)
    for address in (f"127.0.0.1:{port}", f"unix:{tmp_path}/nobody"):
        assert Address(address).refuses(DEADLINE_S)
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"{tmp_path}/d")
        assert Address(f"unix:{tmp_path}/d").refuses(DEADLINE_S)
        unix.listen()
        assert not Address(f"unix:{tmp_path}/d").refuses(DEADLINE_S)
    for only_grpc_knows in ("dns:///localhost:1", "unix-abstract:x", "no.such.host.invalid:1", "host"):
        assert not Address(only_grpc_knows).refuses(DEADLINE_S)
