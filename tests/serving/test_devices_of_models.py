"""Devices of served models: replicas, scaling, daemons that die, and more models than fit."""

import queue
import shutil
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
from conftest import StartDaemon
from daemon_process import DaemonProcess
from metrics.scraping import LISTEN, scraped, value
from waiting import until

from serving.conftest import StartServer
from serving.repositories import SOON, Client, Requests, add_version


def test_a_killed_daemon_costs_no_request(start_server: StartServer, start_daemon: StartDaemon, tmp_path: Path) -> None:
    """A daemon that comes back gets its replicas."""
    models = tmp_path / "models"
    add_version(models, "m", 1)
    daemons = [start_daemon("--name", f"d{number}", listen=f"unix:{tmp_path / str(number)}") for number in range(2)]
    server = start_server(models, "--device", daemons[1].address, *SOON, device=daemons[0].address)
    with Client(server) as client:
        assert client.replicas("m") == 2
        with Requests(server, "m") as requests:
            for number in range(2):
                requests.wait_for_more()
                daemons[number].kill()
                until(lambda: client.replicas("m") == 1)
                requests.wait_for_more()
                start_daemon("--name", f"d{number}", listen=daemons[number].address)
                until(lambda: client.replicas("m") == 2)
        assert not requests.errors


def test_models_are_loaded_when_a_device_comes(
    start_server: StartServer, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    add_version(models, "m", 1)
    address = f"unix:{tmp_path / 'daemon'}"
    server = start_server(models, *SOON, device=address)
    with Client(server) as client:
        assert client.states("m") == {"1": "LOADING"}
        assert not client.triton.is_server_ready()
        with pytest.raises(triton.InferenceServerException, match="version 1: it is loading: "):
            client.ask("m")
        daemon = start_daemon(listen=address)
        until(client.triton.is_server_ready, client.index)
        assert client.ask("m") == "1"
        daemon.kill()
        until(lambda: not client.triton.is_server_ready())


def test_replicas_follow_the_settings(start_server: StartServer, start_daemon: StartDaemon, tmp_path: Path) -> None:
    models = tmp_path / "models"
    add_version(models, "m", 1)
    settings = models / "m" / "model.toml"
    settings.write_text("replicas = 1")
    first, second = (start_daemon("--name", f"d{number}") for number in range(2))
    settings_of_other = models / "other" / "model.toml"
    add_version(models, "other", 1)
    settings_of_other.write_text(f'devices = ["{second.address}"]')
    server = start_server(models, "--device", second.address, *SOON, device=first.address)
    with Client(server) as client, Requests(server, "m") as requests:
        assert (client.replicas("m"), client.replicas("other")) == (1, 1)
        settings.write_text("replicas = 2")
        until(lambda: client.replicas("m") == 2)
        requests.wait_for_more()
        settings.write_text("replicas = 1")
        until(lambda: client.replicas("m") == 1)
        requests.wait_for_more()
        settings_of_other.write_text('devices = ["10.0.0.1:1"]')
        until(lambda: ("other", "") in client.index())
        assert f"use '{first.address}' or '{second.address}'" in client.index()["other", ""][1]
        assert client.ask("other") == "1"
    assert not requests.errors
    assert server.log().count("model 'm' version 1 is ready") == 1


def test_replicas_follow_the_requests(start_server: StartServer, start_daemon: StartDaemon, tmp_path: Path) -> None:
    models = tmp_path / "models"
    add_version(models, "m", 1)
    (models / "m" / "model.toml").write_text(
        "replicas = { least = 1, most = 2 }\nscale = { requests = 2, up_after_s = 0.5, down_after_s = 0.5 }"
    )
    slow = ("--backend", "steady", "--option", "seconds=0.05")
    first, second = (start_daemon("--name", f"d{number}", *slow) for number in range(2))
    server = start_server(models, "--device", second.address, *SOON, device=first.address)
    with Client(server) as client:
        assert client.replicas("m") == 1
        with Requests(server, "m", threads=6, adds=False) as requests:
            until(lambda: client.replicas("m") == 2)
            requests.wait_for_more()
        until(lambda: client.replicas("m") == 1)
    assert not requests.errors


def test_requests_end_where_they_began(start_server: StartServer, start_daemon: StartDaemon, tmp_path: Path) -> None:
    """A version that is replaced or removed is freed after its requests."""
    models = tmp_path / "models"
    add_version(models, "m", 1)
    daemon = start_daemon("--backend", "steady", "--option", "seconds=1")
    server = start_server(models, *SOON, device=daemon.address)
    ended: queue.SimpleQueue[tuple[triton.InferResult | None, object]] = queue.SimpleQueue()
    x = triton.InferInput("x", [1, 1], "FP32")
    x.set_data_from_numpy(np.ones((1, 1), np.float32))
    with Client(server) as client:
        client.triton.async_infer("m", [x], lambda result, error: ended.put((result, error)))
        add_version(models, "m", 2)
        until(lambda: client.states("m") == {"1": "UNLOADING", "2": "READY"}, client.index)
        client.triton.async_infer("m", [x], lambda result, error: ended.put((result, error)))
        shutil.rmtree(models / "m")
        until(lambda: client.states("m") == {"2": "UNLOADING"}, client.index)
        with pytest.raises(triton.InferenceServerException, match="it is unloading"):
            client.ask("m")
        for version in "12":
            result, error = ended.get(timeout=30)
            assert error is None
            assert result is not None
            assert result.get_response().model_version == version
        until(lambda: not client.index())
    assert server.stop() == 0
    assert "ERROR" not in server.log()


@pytest.mark.slow
def test_more_models_than_fit(start_server: StartServer, start_daemon: StartDaemon, tmp_path: Path) -> None:
    """All are served; what no request has used for longest leaves the device."""
    models = tmp_path / "models"
    many, weights = 30, 25_000
    for number in range(many):
        add_version(models, f"m{number}", number + 1, weights=weights)
    size = weights * 4
    daemon: DaemonProcess = start_daemon(
        *("--store-dir", str(tmp_path / "store"), "--resident-bytes", str(3 * size + size // 2)),
        *("--session-models", str(many)),
        *LISTEN,
    )
    server = start_server(models, device=daemon.address)
    with Client(server) as client:
        assert set(client.states().values()) == {"READY"}
        assert client.triton.is_server_ready()
        for number in (*range(many), *range(0, many, 7)):
            assert client.ask(f"m{number}") == str(number + 1)
    assert server.log().count("is ready on") == many
    assert value(scraped(daemon), "nnrt_device_evicted_models_total") >= many - 3
