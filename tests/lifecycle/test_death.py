"""A daemon that is killed, stopped or hangs: every call ends in time, exactly once, with the right error."""

import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocked_call import BlockedCall
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model, weighted_model
from observer import Observer
from recorder import Recorder
from waiting import until

from nnrt_client import Compilation, Device, Executor, Runtime, Settings, UnavailableDevice
from nnrt_client.session.device import session_of

ONE = np.ones(1, np.float32)
LONG_MS = 600_000
# With these settings the client notices a death only by the broken connection.
DEAF_TO_SILENCE = Settings(heartbeat_timeout_s=600)

HEARTBEAT_S = 1.0
RECONNECT_S = 0.5
IMPATIENT = Settings(heartbeat_timeout_s=HEARTBEAT_S, reconnect_timeout_s=RECONNECT_S)


def built(device: Device) -> Compilation:
    compilation = Compilation(identity_model(), device)
    compilation.build()
    return compilation


def large_upload(device: Device, begun: threading.Event) -> None:
    """Build a model with more weights than the socket buffers hold."""
    Compilation(weighted_model(1 << 24), device).build(lambda stage, _: begun.set() if stage == "uploading" else None)


# ---- killed


@pytest.mark.parametrize("listens_to_death", [True, False])
def test_kill_ends_every_asynchronous_run_exactly_once(start_daemon: StartDaemon, listens_to_death: bool) -> None:
    """Whether a run is on the device, queued in the daemon or in the client, it gets exactly one callback."""
    daemon = start_daemon("--backend", "slow", "--concurrent-runs", "2")
    recorder = Recorder()
    runs = [(executor, run) for executor in range(3) for run in range(10)]
    with (
        Runtime([daemon.address], DEAF_TO_SILENCE) as runtime,
        ExitStack() as stack,
        built(runtime.device()) as compilation,
    ):
        executors = [
            recorder.watch(stack.enter_context(Executor(compilation)), died=listens_to_death) for _ in range(3)
        ]
        for user_data in runs:
            executors[user_data[0]].run_async([ONE], timeout_ms=LONG_MS, user_data=user_data)
        with Observer(daemon.address) as observer:
            observer.wait_for(lambda state: (state.running, state.queued) == (2, 4))
        daemon.kill()
        recorder.wait(len(runs))
    if listens_to_death:
        assert recorder.died == dict.fromkeys(runs, 1)
        assert not recorder.done
    else:
        assert not recorder.died
        assert {type(recorder.error(user_data)) for user_data in runs} == {UnavailableDevice}


def test_an_executor_that_is_closed_at_the_death_of_its_daemon(start_daemon: StartDaemon) -> None:
    """The run ends as a death, even if a callback of the death closes the executor first."""
    daemon = start_daemon("--backend", "slow")
    with Runtime([daemon.address], DEAF_TO_SILENCE) as runtime:
        device = runtime.device()
        executors = list[Executor]()
        session_of(device).on_death(lambda _: executors[0].close())
        executors.append(Executor(built(device)))
        future = executors[0].submit([ONE])
        with Observer(daemon.address) as observer:
            observer.wait_for(lambda state: state.running == 1)
        daemon.kill()
        with pytest.raises(UnavailableDevice):
            future.result(LONG_MS / 1000)


def blocked_run(daemon: DaemonProcess, device: Device) -> BlockedCall:
    executor = Executor(built(device))
    call = BlockedCall(lambda: executor.run_sync([ONE]))
    with Observer(daemon.address) as observer:
        observer.wait_for(lambda state: state.running == 1)
    return call


def blocked_build(daemon: DaemonProcess, device: Device) -> BlockedCall:
    begun = threading.Event()
    call = BlockedCall(lambda: Compilation(identity_model(), device).build(lambda stage, _: begun.set()))
    assert begun.wait(10)
    return call


def blocked_upload(daemon: DaemonProcess, device: Device) -> BlockedCall:
    begun = threading.Event()
    call = BlockedCall(lambda: large_upload(device, begun))
    assert begun.wait(10)
    daemon.stop()
    return call


def blocked_status(daemon: DaemonProcess, device: Device) -> BlockedCall:
    daemon.stop()
    return BlockedCall(device.status)


Block = Callable[[DaemonProcess, Device], BlockedCall]


@pytest.mark.parametrize(
    ("backend", "block"),
    [
        pytest.param("slow", blocked_run, id="run"),
        pytest.param("compiling", blocked_build, id="build"),
        pytest.param("slow", blocked_upload, id="upload"),
        pytest.param("slow", blocked_status, id="status"),
    ],
)
def test_kill_ends_a_blocked_call_at_once(start_daemon: StartDaemon, backend: str, block: Block) -> None:
    """Every waiting call raises UnavailableDevice."""
    daemon = start_daemon("--backend", backend)
    with Runtime([daemon.address], DEAF_TO_SILENCE) as runtime:
        call = block(daemon, runtime.device())
        call.require_blocked()
        daemon.kill()
        call.wait()
    assert type(call.error) is UnavailableDevice


def test_everything_old_stays_dead(start_daemon: StartDaemon) -> None:
    """After a death old handles always raise UnavailableDevice, even when the daemon is back."""
    daemon = start_daemon("--backend", "cached")
    recorder = Recorder()
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        compilation = built(device)
        executor = recorder.watch(Executor(compilation))
        executor.run_sync([ONE])
        daemon.kill()
        for restarted in (False, True):
            if restarted:
                start_daemon("--backend", "cached", listen=daemon.address)
                assert runtime.device() is device
            for call in (
                lambda: executor.run_sync([ONE]),
                lambda: executor.submit([ONE]).result(),
                lambda: executor.run_async([ONE], timeout_ms=LONG_MS, user_data="never called back"),
                lambda: executor.input_dim_range(0),
                lambda: Executor(compilation),
            ):
                with pytest.raises(UnavailableDevice):
                    call()
        executor.close()
        compilation.close()
        compilation.close()
    assert recorder.count == 0


def test_device_of_a_dead_daemon_is_unavailable(start_daemon: StartDaemon) -> None:
    """A dead device raises UnavailableDevice rather than a bad address, and isn't listed until it is back."""
    daemon = start_daemon()
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        daemon.kill()
        with pytest.raises(UnavailableDevice):
            device.status()
        with pytest.raises(UnavailableDevice):
            built(device)
        assert runtime.devices() == []
        start_daemon(listen=daemon.address)
        assert runtime.devices() == [device]
        assert device.is_connected


@pytest.mark.parametrize("listen", ["unix", "tcp"])
def test_rebuilt_after_a_restart(start_daemon: StartDaemon, tmp_path: Path, listen: str) -> None:
    """A Device, and even an unbuilt Compilation, work with the next daemon at the address."""
    daemon = start_daemon(listen=f"unix:{tmp_path}/d" if listen == "unix" else "127.0.0.1:0")
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        old_instance = session_of(device).welcome.instance_id
        unbuilt = Compilation(identity_model(), device)
        daemon.kill()
        with pytest.raises(UnavailableDevice):
            unbuilt.build()
        start_daemon(listen=daemon.address)
        unbuilt.build()
        with unbuilt, Executor(unbuilt) as executor:
            np.testing.assert_array_equal(executor.run_sync([ONE * 3]), [ONE * 3])
        assert session_of(device).welcome.instance_id != old_instance


def test_rebuilt_on_another_daemon(start_daemon: StartDaemon) -> None:
    """The runtime's other device isn't affected, and takes over."""
    first, second = start_daemon("--name", "first"), start_daemon("--name", "second")
    with Runtime([first.address, second.address]) as runtime:
        device, other = runtime.devices()
        with built(device) as compilation, built(other) as spare, Executor(compilation) as executor:
            first.kill()
            with pytest.raises(UnavailableDevice):
                executor.run_sync([ONE])
            assert runtime.device() is other
            with Executor(spare) as survivor, built(other) as again, Executor(again) as rebuilt:
                np.testing.assert_array_equal(survivor.run_sync([ONE]), [ONE])
                np.testing.assert_array_equal(rebuilt.run_sync([ONE]), [ONE])


def test_another_device_at_the_address_is_not_taken_for_the_old_one(start_daemon: StartDaemon) -> None:
    """A Device stands for one device: another device at its address is refused."""
    daemon = start_daemon("--name", "old")
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        daemon.kill()
        start_daemon("--name", "new", listen=daemon.address)
        with pytest.raises(UnavailableDevice, match="new_nnrt_v2_1 answers in its place"):
            built(device)


def test_three_kills(start_daemon: StartDaemon) -> None:
    """At random moments: nothing hangs, nothing is lost, and no callback comes twice."""
    rng = np.random.default_rng(0)
    for kill in range(3):
        daemon = start_daemon()
        recorder = Recorder()
        with Runtime([daemon.address], DEAF_TO_SILENCE) as runtime, built(runtime.device()) as compilation:
            executors = [recorder.watch(Executor(compilation)) for _ in range(2)]
            blocked = BlockedCall(partial(run_until_it_raises, executors[0].run_sync))
            runs = range(int(rng.integers(1, 60)))
            accepted = []
            for run in runs:
                executors[run % 2].run_async([np.ones(1 << 14, np.float32)], timeout_ms=LONG_MS, user_data=run)
                accepted.append(run)
            daemon.process.kill()
            recorder.wait(len(accepted))
            blocked.wait()
            for executor in executors:
                executor.close()
        daemon.kill()
        assert type(blocked.error) is UnavailableDevice
        for run in accepted:
            assert (len(recorder.done[run]), recorder.died[run]) in ((1, 0), (0, 1)), f"kill {kill}, run {run}"
            assert all(error is None for _, error in recorder.done[run])


def run_until_it_raises(run: Callable[[Any], Any]) -> None:
    while True:
        run([ONE])


# ---- silent: the process exists, its sockets are open, but it doesn't answer


def silent_run(device: Device) -> BlockedCall:
    executor = Executor(built(device))
    return BlockedCall(lambda: executor.run_sync([ONE]))


def silent_asynchronous_run(device: Device) -> BlockedCall:
    recorder = Recorder()
    executor = recorder.watch(Executor(built(device)))
    executor.run_async([ONE], timeout_ms=LONG_MS, user_data="run")

    def wait() -> None:
        recorder.wait(1)
        assert (dict(recorder.died), dict(recorder.done)) == ({"run": 1}, {})
        raise UnavailableDevice("on_service_died was called")

    return BlockedCall(wait)


def silent_build(device: Device) -> BlockedCall:
    begun = threading.Event()
    call = BlockedCall(lambda: Compilation(identity_model(), device).build(lambda *_: begun.set()))
    begun.wait(2)  # A hanging daemon never starts the call.
    return call


def silent_upload(device: Device) -> BlockedCall:
    begun = threading.Event()
    call = BlockedCall(lambda: large_upload(device, begun))
    assert begun.wait(10)
    return call


@pytest.mark.parametrize(
    ("backend", "start"),
    [
        pytest.param("slow", silent_run, id="run"),
        pytest.param("slow", silent_asynchronous_run, id="asynchronous run"),
        pytest.param("compiling", silent_build, id="build"),
        pytest.param("slow", silent_upload, id="upload"),
    ],
)
def test_stopped_daemon_is_noticed(
    start_daemon: StartDaemon, backend: str, start: Callable[[Device], BlockedCall]
) -> None:
    """A call ends within the heartbeat timeout and reconnection time; after SIGCONT the daemon frees the session."""
    daemon = start_daemon("--backend", backend, "--lease-s", "0.2")
    with Runtime([daemon.address], IMPATIENT) as runtime:
        device = runtime.device()
        call = start(device)
        daemon.stop()
        call.wait()
        assert type(call.error) is UnavailableDevice
        daemon.send(signal.SIGCONT)
        with Observer(daemon.address) as observer:
            observer.wait_until_empty()
        assert runtime.devices() == [device]


def test_nobody_welcomes(start_daemon: StartDaemon) -> None:
    """A server accepts the connection, but never answers: another program, or a stopped daemon, which later goes on."""
    daemon = start_daemon()
    daemon.stop()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        addresses = [f"127.0.0.1:{mute.getsockname()[1]}", daemon.address]
        with Runtime(addresses, Settings(connect_timeout_s=0.3)) as runtime:
            with pytest.raises(UnavailableDevice) as refused:
                runtime.device()
            assert str(refused.value).count("no answer within 0.3 s (opening a session)") == 2
    daemon.send(signal.SIGCONT)
    with Runtime([daemon.address]) as runtime, Observer(daemon.address) as observer:
        built(runtime.device()).close()
        observer.wait_for(lambda state: state.sessions == 2)


def test_closing_while_a_device_is_looked_for_again(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """The daemon is dead, and the server at its address doesn't answer: only the caller waits for that."""
    path = tmp_path / "d"
    daemon = start_daemon(listen=f"unix:{path}")
    with Runtime([daemon.address], Settings(connect_timeout_s=1.5)) as runtime, socket.socket(socket.AF_UNIX) as mute:
        device = runtime.device()
        ended = threading.Event()
        session_of(device).on_death(lambda reason: ended.set())
        daemon.kill()
        assert ended.wait(10)
        path.unlink()
        mute.bind(str(path))
        mute.listen()
        call = BlockedCall(device.status)
        call.require_blocked()
        runtime.close()
        closed_at = time.monotonic()
        assert type(call.wait().error) is UnavailableDevice
        assert closed_at < call.ended_at


def test_closing_while_the_daemon_is_stopped(start_daemon: StartDaemon) -> None:
    """A runtime can be closed before the silence is noticed, whatever is in flight."""
    daemon = start_daemon("--backend", "slow")
    with Runtime([daemon.address], DEAF_TO_SILENCE) as runtime:
        device = runtime.device()
        calls = [silent_run(device), silent_upload(device)]
        daemon.stop()
        for call in calls:
            call.require_blocked()
        BlockedCall(runtime.close).wait()
        for call in calls:
            assert type(call.wait().error) is UnavailableDevice
    daemon.kill()


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(silent_run, id="run"),
        pytest.param(silent_asynchronous_run, id="asynchronous run"),
        pytest.param(silent_build, id="build"),
    ],
)
def test_hung_daemon_is_noticed(
    start_daemon: StartDaemon, tmp_path: Path, start: Callable[[Device], BlockedCall]
) -> None:
    """A backend that holds the interpreter's lock stops every beat, although gRPC's own threads still answer pings."""
    sign = tmp_path / "hangs"
    daemon = start_daemon("--backend", "hanging", "--option", f"sign={sign}")
    with Runtime([daemon.address], IMPATIENT) as runtime, Runtime([daemon.address], IMPATIENT) as other:
        device, hanger = runtime.device(), Executor(built(other.device()))
        call = None if start is silent_build else start(device)
        trigger = BlockedCall(lambda: hanger.run_sync([ONE]))
        if call is None:
            until(sign.exists)
            call = start(device)
        call.wait()
        trigger.wait()
    assert type(call.error) is UnavailableDevice
    assert type(trigger.error) is UnavailableDevice


def test_silence_is_the_clients_own_to_define(start_daemon: StartDaemon) -> None:
    """A client with a longer heartbeat timeout survives a pause that ends another client's session."""
    daemon = start_daemon()
    with (
        Runtime([daemon.address], IMPATIENT) as hasty,
        Runtime([daemon.address], Settings(heartbeat_timeout_s=60)) as patient,
    ):
        device, kept = hasty.device(), patient.device()
        daemon.stop()
        with pytest.raises(UnavailableDevice, match=r"silent for .*heartbeat_timeout_s is 1"):
            device.status()
        daemon.send(signal.SIGCONT)
        with built(kept) as compilation, Executor(compilation) as executor:
            np.testing.assert_array_equal(executor.run_sync([ONE]), [ONE])
