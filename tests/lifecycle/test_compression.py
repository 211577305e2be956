"""Compression for slow links: nothing but the bytes on the way changes, and they are counted."""

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from conftest import MakeTensor
from daemon_process import DaemonProcess
from networks import identity_model
from proxy import Proxy
from tensor_runs import compiled

from nnrt_client import CompressionStatistics, InvalidParameter, Model, OperationType, Settings
from nnrt_client.session import channel
from nnrt_client.session.device import session_of

DEFLATE = Settings(compression="deflate")
rng = np.random.default_rng(0)
# 100 KB would travel in the message; 3 MB is several chunks.
SIZES = [25_000, 750_001]


@pytest.fixture(scope="module", params=["no local socket", "local socket"])
def daemon(request: pytest.FixtureRequest) -> Iterator[DaemonProcess]:
    daemon = DaemonProcess(*(["--no-shared-memory"] if request.param == "no local socket" else []))
    yield daemon
    daemon.kill()


@pytest.fixture(scope="module")
def remote_daemon() -> Iterator[DaemonProcess]:
    daemon = DaemonProcess("--no-shared-memory")
    yield daemon
    daemon.kill()


@pytest.fixture
def proxy(remote_daemon: DaemonProcess) -> Iterator[Proxy]:
    with Proxy(remote_daemon.address) as proxy:
        yield proxy


@pytest.mark.slow
@pytest.mark.parametrize("count", SIZES)
def test_runs(closing: ExitStack, proxy: Proxy, tensor: MakeTensor, count: int) -> None:
    """Arrays and Tensors, several at a time."""
    device, executor = compiled(closing, proxy.address, settings=DEFLATE)
    x = (np.arange(count) % 100).astype(np.float32)
    before, sent, received = device.compression_statistics, proxy.sent_bytes, proxy.received_bytes
    for run in [executor.submit([x]) for _ in range(3)]:
        np.testing.assert_array_equal(run.result(20)[0], x)
    source, target = tensor(device, [count]), tensor(device, [-1], x.nbytes)
    source.numpy()[:] = x
    executor.run_sync([source], [target])
    np.testing.assert_array_equal(target.numpy(), x)
    plain_bytes = device.compression_statistics.plain_bytes - before.plain_bytes
    wire_bytes = device.compression_statistics.wire_bytes - before.wire_bytes
    assert plain_bytes == 4 * 2 * x.nbytes
    on_the_wire = proxy.sent_bytes - sent + proxy.received_bytes - received
    assert wire_bytes < on_the_wire < 1.2 * wire_bytes + 50_000 < plain_bytes / 2
    assert (
        device.compression_statistics.saved_bytes
        == device.compression_statistics.plain_bytes - device.compression_statistics.wire_bytes
    )


def test_what_can_not_be_compressed(closing: ExitStack, proxy: Proxy) -> None:
    """Travels as it is."""
    device, executor = compiled(closing, proxy.address, identity_model(), DEFLATE)
    x = np.frombuffer(rng.bytes(1_000_000), np.float32)
    x = np.nan_to_num(x)
    (result,) = executor.run_sync([x])
    np.testing.assert_array_equal(result, x)
    assert device.compression_statistics.plain_bytes >= 2 * x.nbytes
    assert 0 <= device.compression_statistics.saved_bytes < x.nbytes / 2


@pytest.mark.slow
def test_constants(closing: ExitStack, proxy: Proxy) -> None:
    model = Model()
    x = model.input((1,), name="x")
    weights = np.zeros(500_000, np.float32)
    weights[::1000] = rng.random(500, np.float32)
    y = model.apply(OperationType.ADD, x, weights)
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    device, executor = compiled(closing, proxy.address, model, DEFLATE)
    assert proxy.sent_bytes < weights.nbytes / 10
    assert device.compression_statistics.saved_bytes > 0.9 * weights.nbytes
    np.testing.assert_array_equal(executor.run_sync([np.zeros(1, np.float32)])[0], weights)


@pytest.mark.parametrize("count", SIZES)
def test_off_by_default(closing: ExitStack, proxy: Proxy, count: int) -> None:
    device, executor = compiled(closing, proxy.address)
    x = np.zeros(count, np.float32)
    sent, received = proxy.sent_bytes, proxy.received_bytes
    executor.run_sync([x])
    assert proxy.sent_bytes - sent > x.nbytes and proxy.received_bytes - received > x.nbytes
    assert device.compression_statistics == CompressionStatistics(0, 0)


def test_a_daemon_that_does_not_know_it(closing: ExitStack, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets everything as it is."""
    monkeypatch.setattr(channel, "FEATURE", "unknown")
    device, executor = compiled(closing, proxy.address, settings=DEFLATE)
    sent, x = proxy.sent_bytes, np.zeros(SIZES[1], np.float32)
    np.testing.assert_array_equal(executor.run_sync([x])[0], x)
    assert proxy.sent_bytes - sent > x.nbytes and device.compression_statistics == CompressionStatistics(0, 0)


@pytest.mark.slow
def test_runs_on_the_same_host(closing: ExitStack, daemon: DaemonProcess) -> None:
    """Are not compressed on the local socket."""
    device, executor = compiled(closing, daemon.address, settings=DEFLATE)
    x = np.zeros(SIZES[1], np.float32)
    np.testing.assert_array_equal(executor.run_sync([x])[0], x)
    has_local_socket = bool(session_of(device).welcome.local_socket)
    # Of an output whose size was not known before there is no memory; it is fetched over gRPC.
    assert device.compression_statistics.plain_bytes == (x.nbytes if has_local_socket else 2 * x.nbytes)
    assert (device.compression_statistics.saved_bytes == 0) == has_local_socket


def test_settings() -> None:
    with pytest.raises(InvalidParameter, match="Settings: compression is 'zip'; use 'none' or 'deflate'"):
        Settings(compression="zip")
