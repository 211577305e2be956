"""What is applied to a cluster: right by the API's schemas, and in accord with the daemon."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from nnrt_device_service.settings import Settings, variable_of
from nnrt_device_service.transport.server import ALIVE
from on_kubernetes.manifests import COMBINATIONS, DEPLOY, Manifest, combined, one, rendered

# The first that has all that is used here without a feature gate, and the last but one that the schemas know.
VERSIONS = ("1.30", "1.36")
# Of theirs the schemas are not the API's.
OTLP_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_OPERATORS = ("cert-manager.io/", "monitoring.coreos.com/")


@pytest.fixture(params=COMBINATIONS, scope="module")
def manifests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    return combined(COMBINATIONS[request.param], tmp_path_factory.mktemp("fleet"))


def workload(manifests: list[Manifest]) -> Any:
    return one(manifests, "DaemonSet", "StatefulSet")["spec"]


def daemon(manifests: list[Manifest]) -> Any:
    (container,) = workload(manifests)["template"]["spec"]["containers"]
    return container


def environment(manifests: list[Manifest]) -> dict[str, str]:
    settings = one(manifests, "ConfigMap")
    assert daemon(manifests)["envFrom"] == [{"configMapRef": {"name": settings["metadata"]["name"]}}]
    data: dict[str, str] = settings["data"]
    return data


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def require_valid(manifests: list[Manifest]) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="needs the API's schemas: `make engines` has them")
    for manifest in manifests:
        if not manifest["apiVersion"].startswith(_OPERATORS):
            for version in VERSIONS:
                schemas.validate(manifest, version, strict=True)


def test_they_are_what_the_api_takes(manifests: list[Manifest]) -> None:
    require_valid(manifests)


def test_the_example_is_what_the_api_takes() -> None:
    manifests = rendered(DEPLOY / "example")
    require_valid(manifests)
    pod = workload(manifests)["template"]["spec"]
    images = {container["image"] for container in [*pod["containers"], *pod.get("initContainers", [])]}
    assert images == {"registry.example.com/nnrt:0.1.0"}
    assert {manifest["metadata"].get("namespace", "nnrt") for manifest in manifests} == {"nnrt"}
    assert environment(manifests)["NNRT_DEVICE_PROVIDER"] == "cpu"  # With all that the base says.
    assert environment(manifests)["NNRT_DEVICE_LISTEN"]


def test_schemas_tell_a_mistake(manifests: list[Manifest]) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="needs the API's schemas: `make engines` has them")
    policy = one(manifests, "NetworkPolicy")
    wrong = {**policy, "spec": {**policy["spec"], "ingres": []}}
    with pytest.raises(schemas.ValidationError, match="ingres"):
        schemas.validate(wrong, VERSIONS[0], strict=True)


def test_the_namespace_is_what_the_fleet_says(tmp_path: Path) -> None:
    """Nothing else knows one; the certificate is for the name that Prometheus expects, in any."""
    manifests = combined(COMBINATIONS["all but store-on-host"], tmp_path, namespace="cameras")
    assert {manifest["metadata"]["namespace"] for manifest in manifests} == {"cameras"}
    assert "nnrt.svc" not in str(manifests)
    (names,) = (each["spec"]["dnsNames"] for each in manifests if "dnsNames" in each.get("spec", {}))
    (endpoint,) = one(manifests, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert names == [endpoint["tlsConfig"]["serverName"]]


def test_a_daemon_of_a_gpu_gets_one(manifests: list[Manifest]) -> None:
    """On nodes that take nothing else; the device plugin counts by limits."""
    limits = daemon(manifests)["resources"]["limits"]
    gpus = {name: count for name, count in limits.items() if "/" in name}
    has_cuda = environment(manifests).get("NNRT_DEVICE_PROVIDER") == "cuda"
    assert gpus == ({"nvidia.com/gpu": 1} if has_cuda else {})
    tolerated = [each["key"] for each in workload(manifests)["template"]["spec"].get("tolerations", [])]
    assert tolerated == list(gpus)


def test_a_daemon_reaches_its_collector_and_nobody_else(manifests: list[Manifest]) -> None:
    """By the name service."""
    egress = one(manifests, "NetworkPolicy")["spec"]["egress"]
    settings = environment(manifests)
    assert (OTLP_ENDPOINT in settings) == (settings.get("NNRT_DEVICE_TRACES") == "true") == bool(egress)
    if egress:
        collector = urlsplit(settings[OTLP_ENDPOINT])
        assert collector.hostname is not None
        (namespace,) = (each["to"][0]["namespaceSelector"]["matchLabels"].values() for each in egress[1:])
        assert collector.hostname.split(".")[1:] == [*namespace, "svc"]
        assert [port["port"] for each in egress for port in each["ports"]] == [53, 53, collector.port]


def test_settings_are_the_daemons(manifests: list[Manifest]) -> None:
    known = {variable_of(entry.name) for entry in fields(Settings)} | {OTLP_ENDPOINT}
    assert environment(manifests).keys() | {entry["name"] for entry in daemon(manifests)["env"]} <= known


def test_ports_are_those_that_the_daemon_listens_on(manifests: list[Manifest]) -> None:
    container, settings = daemon(manifests), environment(manifests)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["nnrt"] == port_of(settings["NNRT_DEVICE_LISTEN"])
    assert ports["health"] == port_of(settings["NNRT_DEVICE_HEALTH_LISTEN"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["grpc"]["port"] == ports["health"]
    asked = {probe: container[probe]["grpc"].get("service", "") for probe in ("startupProbe", "readinessProbe")}
    assert asked == {"startupProbe": ALIVE, "readinessProbe": ""}
    (service_port,) = one(manifests, "Service")["spec"]["ports"]
    assert service_port["targetPort"] == "nnrt"
    open_ports = ["nnrt"]
    if address := settings.get("NNRT_DEVICE_METRICS_LISTEN"):
        assert ports["metrics"] == port_of(address)
        (endpoint,) = one(manifests, "PodMonitor")["spec"]["podMetricsEndpoints"]
        open_ports.append(endpoint["port"])
    ingress = one(manifests, "NetworkPolicy")["spec"]["ingress"]
    assert [port["port"] for entry in ingress for port in entry["ports"]] == open_ports


def test_a_drain_has_its_time(manifests: list[Manifest]) -> None:
    """Neither the end of the grace period nor the liveness probe cuts it off."""
    drain_s = float(environment(manifests)["NNRT_DEVICE_DRAIN_TIMEOUT_S"])
    container = daemon(manifests)
    before_s = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert workload(manifests)["template"]["spec"]["terminationGracePeriodSeconds"] > before_s + drain_s
    assert container["livenessProbe"]["grpc"]["service"] == ALIVE


def test_everything_selects_the_daemons(manifests: list[Manifest]) -> None:
    labels = workload(manifests)["template"]["metadata"]["labels"]
    assert workload(manifests)["selector"]["matchLabels"] == labels
    assert one(manifests, "Service")["spec"]["selector"] == labels
    assert one(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert one(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    for monitor in (each for each in manifests if each["kind"] == "PodMonitor"):
        assert monitor["spec"]["selector"]["matchLabels"] == labels


def test_a_pod_may_do_nothing_but_serve(manifests: list[Manifest]) -> None:
    """What Pod Security calls restricted, and a root that nobody writes to."""
    pod = workload(manifests)["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    context = daemon(manifests)["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True


def test_every_file_of_the_settings_is_mounted(manifests: list[Manifest]) -> None:
    container = daemon(manifests)
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    paths = [value for value in environment(manifests).values() if value.startswith("/")]
    assert len(paths) == 4
    for path in paths:
        assert str(Path(path).parent) in mounts  # A directory of the mount's own would be writable for others.
    pod = workload(manifests)["template"]["spec"]
    claims = [claim["metadata"]["name"] for claim in workload(manifests).get("volumeClaimTemplates", [])]
    assert sorted([volume["name"] for volume in pod["volumes"]] + claims) == sorted(mounts.values())


def test_a_budget_is_one_that_the_workload_takes(manifests: list[Manifest]) -> None:
    """Of pods whose controller has no scale, such as a DaemonSet's, it counts only minAvailable as a number."""
    budget = one(manifests, "PodDisruptionBudget")["spec"]
    if one(manifests, "DaemonSet", "StatefulSet")["kind"] == "DaemonSet":
        assert "maxUnavailable" not in budget
        assert isinstance(budget["minAvailable"], int)
    else:
        assert "minAvailable" not in budget


def test_copies_of_the_image_are_of_paths_that_there_are() -> None:
    containerfile = DEPLOY.parent / "Containerfile"
    copies = [line.split()[1:-1] for line in containerfile.read_text().splitlines() if re.match(r"COPY (?!--)", line)]
    sources = [source for copied in copies for source in copied]
    assert {"pyproject.toml", "nnrt_hdi", "backends"} <= set(sources)
    for source in sources:
        assert (DEPLOY.parents[1] / source).exists(), source
