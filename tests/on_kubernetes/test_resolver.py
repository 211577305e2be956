"""Pods behind a Kubernetes service, listed and watched."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from resolvers.watching import watched
from waiting import until

from nnrt_client import InvalidParameter, Runtime, Settings, load
from nnrt_client.resolvers.names import resolver_for
from on_kubernetes.api_server import ApiServer, Slice, endpoint, slice_of

pytest.importorskip("kubernetes.client", reason="needs Kubernetes' client: `make engines` has it")

NAME = "k8s:///nnrt/nnrt-device:50051"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with ApiServer() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.write_config(tmp_path)))
        yield server


def test_pods_come_and_go(server: ApiServer) -> None:
    server.apply(slice_of(endpoint("10.1.0.2", ready=True)))
    with watched(NAME) as told:
        told.wait_for("10.1.0.2:50051")
        until(lambda: server.watches)
        server.apply(slice_of(endpoint("10.1.0.2", ready=True), endpoint("10.1.0.3", ready=True)))
        told.wait_for("10.1.0.2:50051", "10.1.0.3:50051")
        server.apply(slice_of(endpoint("10.1.0.3", ready=True)))
        told.wait_for("10.1.0.3:50051")
        server.delete()
        told.wait_for()
        server.apply(slice_of(endpoint("10.1.0.4", ready=True)))
        told.wait_for("10.1.0.4:50051")
    assert len(server.watches) == 1


def test_a_service_without_pods_is_an_answer(server: ApiServer) -> None:
    with watched(NAME) as told:
        told.wait_for()
    assert not told.failures


def test_other_services_are_others(server: ApiServer) -> None:
    server.apply(slice_of(endpoint("10.1.0.9"), name="other-x", service="other"))
    with watched(NAME) as told:
        told.wait_for()
        until(lambda: server.watches)
        server.apply(slice_of(endpoint("10.1.0.8"), name="other-x", service="other"))
        server.apply(slice_of(endpoint("10.1.0.2")))
        told.wait_for("10.1.0.2:50051")
    assert told.lists == [(), ("10.1.0.2:50051",)]


def test_only_pods_that_are_ready_and_stay(server: ApiServer) -> None:
    """A terminating pod may be reported as ready if the service publishes unready addresses; unknown means ready."""
    server.apply(
        slice_of(
            endpoint("10.1.0.1", ready=False, serving=False),
            endpoint("10.1.0.2", ready=True, terminating=True),
            endpoint("10.1.0.3", ready=False, serving=True, terminating=True),
            endpoint("10.1.0.4"),
            endpoint("10.1.0.5", ready=True, serving=True, terminating=False),
        )
    )
    with watched(NAME) as told:
        told.wait_for("10.1.0.4:50051", "10.1.0.5:50051")


def test_a_service_of_several_slices(server: ApiServer) -> None:
    server.apply(slice_of(endpoint("10.1.0.1"), name="a")).apply(slice_of(endpoint("10.1.0.2"), name="b"))
    with watched(NAME) as told:
        told.wait_for("10.1.0.1:50051", "10.1.0.2:50051")
        until(lambda: server.watches)
        server.delete("a")
        told.wait_for("10.1.0.2:50051")


def test_a_pod_of_both_families_is_one(server: ApiServer) -> None:
    server.apply(slice_of(endpoint("fd00::1", "a"), endpoint("fd00::2", "b"), name="six", family="IPv6"))
    with watched(NAME) as told:
        told.wait_for("[fd00::1]:50051", "[fd00::2]:50051")
        until(lambda: server.watches)
        server.apply(slice_of(endpoint("10.1.0.1", "a"), name="four"))
        told.wait_for("10.1.0.1:50051", "[fd00::2]:50051")


@pytest.mark.parametrize("port", [":50051", ":nnrt", ""])
def test_the_port_by_number_or_name(server: ApiServer, port: str) -> None:
    ports = {"nnrt": 50051} if not port else {"nnrt": 50051, "health": 50052}
    server.apply(slice_of(endpoint("10.1.0.1"), ports=ports))
    with watched(f"k8s:///nnrt/nnrt-device{port}") as told:
        told.wait_for("10.1.0.1:50051")


@pytest.mark.parametrize("port", [":80", ":grpc", ""])
def test_a_port_that_there_is_not_is_said(server: ApiServer, port: str) -> None:
    server.apply(slice_of(endpoint("10.1.0.1"), ports={"nnrt": 50051, "health": 50052}))
    with watched(f"k8s:///nnrt/nnrt-device{port}") as told:
        until(lambda: told.failures)
    assert "50052 (health), 50051 (nnrt)" in told.failures[0].message
    assert not told.lists


def test_what_happened_during_a_break_is_told(server: ApiServer) -> None:
    """The watch continues from the last known version, without listing again."""
    server.apply(slice_of(endpoint("10.1.0.1")))
    with watched(NAME) as told:
        told.wait_for("10.1.0.1:50051")
        until(lambda: server.watches)
        server.bookmark()
        server.break_off()
        server.apply(slice_of(endpoint("10.1.0.2")))
        told.wait_for("10.1.0.2:50051")
        assert server.watches == [101, 111]
        assert len(server.asked) == 3
    assert not told.failures


@pytest.mark.parametrize("refuses", [False, True], ids=["told", "refused"])
def test_a_version_that_is_forgotten_is_listed_again(server: ApiServer, refuses: bool) -> None:
    server.refuses_forgotten = refuses
    server.apply(slice_of(endpoint("10.1.0.1")))
    with watched(NAME) as told:
        told.wait_for("10.1.0.1:50051")
        until(lambda: server.watches)
        server.delete()
        server.apply(slice_of(endpoint("10.1.0.2"), name="another"))
        told.wait_for("10.1.0.2:50051")
        server.is_silent = True  # The watch misses changes from here on.
        server.delete("another")
        server.apply(slice_of(endpoint("10.1.0.3")))
        server.compact()
        server.is_silent = False
        server.break_off()
        told.wait_for("10.1.0.3:50051")
    assert not told.failures


def test_a_silent_connection_is_left(server: ApiServer) -> None:
    server.apply(slice_of(endpoint("10.1.0.1")))
    with watched(f"{NAME}?every=0.5") as told:
        told.wait_for("10.1.0.1:50051")
        server.is_silent = True
        server.apply(slice_of(endpoint("10.1.0.2")))
        until(lambda: len(server.watches) > 1)
        server.is_silent = False
        told.wait_for("10.1.0.2:50051")
    assert not told.failures


def test_an_outage_keeps_the_addresses(server: ApiServer) -> None:
    server.apply(slice_of(endpoint("10.1.0.1")))
    with watched(NAME) as told:
        told.wait_for("10.1.0.1:50051")
        until(lambda: server.watches)
        with server.out_of_order():
            until(lambda: told.failures)
            server.apply(slice_of(endpoint("10.1.0.2")))
        told.wait_for("10.1.0.2:50051")
    (failure,) = told.failures
    assert "503 Service Unavailable" in failure.message
    assert told.lists == [("10.1.0.1:50051",), ("10.1.0.2:50051",)]


def test_a_right_that_is_missing_is_said(server: ApiServer) -> None:
    server.refusal = (403, "Forbidden")
    with watched(NAME) as told:
        until(lambda: told.failures)
    assert "Role NAME-resolver" in told.failures[0].message


def test_a_server_that_is_gone(server: ApiServer) -> None:
    server.close()
    with watched(NAME) as told:
        until(lambda: told.failures)
    assert "can't be asked" in told.failures[0].message


def test_close_ends_a_watch(server: ApiServer) -> None:
    """`close` ends a watch that waits for a silent server."""
    resolver = resolver_for(NAME, Settings())
    resolver.watch(lambda _: None)
    until(lambda: server.watches)
    resolver.close()
    assert not any(thread.name == f"nnrt-names {resolver.name}" for thread in threading.enumerate())


@pytest.mark.parametrize(
    "name",
    [
        "k8s:///nnrt-device:50051",
        "k8s:///",
        "k8s://nnrt/nnrt-device:1",
        "k8s:///NNRT/x:1",
        "k8s:///a/b/c:1",
        "k8s:///a/b?x=1",
    ],
)
def test_what_names_no_service(server: ApiServer, name: str) -> None:
    with pytest.raises(InvalidParameter):
        resolver_for(name, Settings())


def test_no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    with pytest.raises(InvalidParameter, match="no cluster is known"):
        resolver_for(NAME, Settings())


def test_a_runtime_has_the_pods_of_a_service(server: ApiServer, start_daemon: StartDaemon) -> None:
    """A runtime treats pods like any other addresses."""
    first, second = start_daemon("--name", "first"), start_daemon("--name", "second")
    server.apply(slice_for(first))
    with Runtime(["k8s:///nnrt/nnrt-device:nnrt"]) as runtime:
        assert [device.address for device in runtime.devices()] == [first.address]
        server.apply(slice_for(second))
        until(lambda: runtime.addresses == tuple(sorted([first.address, second.address])), lambda: runtime.addresses)
        with load(identity_model(), "second_nnrt_v2_1", runtime=runtime) as session:
            np.testing.assert_array_equal(next(iter(session.run([np.ones(1, "f4")]).values())), [1])


def slice_for(daemon: DaemonProcess) -> Slice:
    host, _, port = daemon.address.rpartition(":")
    return slice_of(endpoint(host, f"pod-{port}"), name=f"slice-{port}", ports={"nnrt": int(port)})
