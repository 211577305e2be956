"""What is applied to a cluster: right by the API's schemas, and in accord with the daemon and the server of models."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
import yaml

from nnrt_client.cli import main as nnrt
from nnrt_client.settings import TLS_CA_VARIABLE, TLS_CERT_VARIABLE, TLS_KEY_VARIABLE, TLS_SERVER_NAME_VARIABLE
from nnrt_client.settings import Settings as ClientSettings
from nnrt_device_service.settings import Settings, variable_of
from nnrt_device_service.transport.server import ALIVE
from nnrt_hdi import __version__
from on_kubernetes.manifests import (
    CHART,
    FLEETS,
    NAMESPACE,
    RELEASE,
    SERVE,
    Manifest,
    fleet,
    merged,
    one,
    refusal,
    rendered,
)

# The first that has all that is used here without a feature gate, and the last but one that the schemas know.
VERSIONS = ("1.30", "1.36")
OTLP_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
# Of theirs the schemas are not the API's.
_OPERATORS = ("cert-manager.io/", "monitoring.coreos.com/")
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


@pytest.fixture(params=FLEETS)
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    return fleet(request.param)


def workloads(manifests: list[Manifest]) -> list[Any]:
    return [each["spec"] for each in manifests if each["kind"] in ("DaemonSet", "Deployment", "StatefulSet")]


def daemons(manifests: list[Manifest]) -> Any:
    return one(manifests, "DaemonSet", "StatefulSet")["spec"]


def container_of(workload: Any) -> Any:
    (container,) = workload["template"]["spec"]["containers"]
    return container


def environment(manifests: list[Manifest]) -> dict[str, str]:
    settings = one(manifests, "ConfigMap")
    container = container_of(daemons(manifests))
    assert container["envFrom"] == [{"configMapRef": {"name": settings["metadata"]["name"]}}]
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


def test_schemas_tell_a_mistake() -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="needs the API's schemas: `make engines` has them")
    policy = one(fleet("daemons"), "NetworkPolicy")
    wrong = {**policy, "spec": {**policy["spec"], "ingres": []}}
    with pytest.raises(schemas.ValidationError, match="ingres"):
        schemas.validate(wrong, VERSIONS[0], strict=True)


def test_the_version_is_that_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_every_value_is_used_and_described() -> None:
    """The defaults, their schema and the templates have the same values."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    described = set(leaves_of(schema))
    assert set(paths(values, described)) == described - {"global"}
    for path in described - {"global"}:
        assert f".{path.rpartition('.')[2]}" in templates, path
    for used in set(re.findall(r"\.Values\.([\w.]+)", templates)):
        assert any(f"{path}.".startswith(f"{used}.") or used.startswith(f"{path}.") for path in described), used


def leaves_of(schema: Any, path: str = "") -> list[str]:
    """Return the values of a schema whose content is free, by their paths; those of one object end with its path."""
    inner = schema.get("properties", {}) if schema.get("additionalProperties") is False else {}
    if not inner or path.endswith("issuer"):
        return [path]
    return [leaf for name, each in inner.items() for leaf in leaves_of(each, f"{path}.{name}".lstrip("."))]


def paths(values: Any, leaves: set[str], path: str = "") -> list[str]:
    if path in leaves or not isinstance(values, dict) or path.endswith("resources"):
        return [path]
    return [each for name, inner in values.items() for each in paths(inner, leaves, f"{path}.{name}".lstrip("."))]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"device": {"kind": "Deployment"}}, "device/kind"),
        ({"device": {"gpus": 1}}, "gpus"),
        ({"device": {"clientCertificates": False}}, "nobody would be kept out"),
        ({"serve": {"enabled": True, "accessSecret": "callers"}}, "takes its models from one place"),
        (merged(SERVE, {"serve": {"models": {"url": "s3://bucket/models"}}}), "takes its models from one place"),
        (merged(SERVE, {"serve": {"accessSecret": ""}}), "wouldn't know its callers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_values_are_refused(values: Manifest, why: str) -> None:
    assert why in refusal(values)


def test_the_certificates_are_for_the_names_that_are_asked_for() -> None:
    """Clients connect to IP addresses, and so expect one name of all daemons."""
    manifests = fleet("all")
    certificates = {each["metadata"]["name"]: each["spec"] for each in manifests if each["kind"] == "Certificate"}
    asked = environment_of_server(manifests)[TLS_SERVER_NAME_VARIABLE]
    endpoint = one(manifests, "PodMonitor", of="device")["spec"]["podMetricsEndpoints"][0]
    assert certificates[f"{RELEASE}-device"]["dnsNames"] == [asked] == [endpoint["tlsConfig"]["serverName"]]
    assert f"{RELEASE}-serve.{NAMESPACE}.svc" in certificates[f"{RELEASE}-serve"]["dnsNames"]
    assert "models.example.com" in certificates[f"{RELEASE}-serve"]["dnsNames"]
    assert certificates[f"{RELEASE}-client"]["usages"] == ["digital signature", "client auth"]
    issuers = {certificates[f"{RELEASE}-{part}"]["issuerRef"]["name"] for part in ("device", "serve", "client")}
    assert issuers == {f"{RELEASE}-authority"}


def test_every_secret_is_made_or_named(manifests: list[Manifest]) -> None:
    """By a certificate, or by who installs."""
    made = {each["spec"]["secretName"] for each in manifests if each["kind"] == "Certificate"}
    named = {"callers", "clients", "server"}
    for workload in workloads(manifests):
        for volume in workload["template"]["spec"]["volumes"]:
            if "secret" in volume:
                assert volume["secret"]["secretName"] in made | named


def environment_of_server(manifests: list[Manifest]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container_of(one(manifests, "Deployment")["spec"])["env"]}


def test_a_server_uses_its_certificate() -> None:
    given = environment_of_server(fleet("a server"))
    known = {entry.metadata.get("variable") for entry in fields(ClientSettings)}
    assert {name for name in given if name.startswith("NNRT_")} <= known
    assert {TLS_CA_VARIABLE, TLS_CERT_VARIABLE, TLS_KEY_VARIABLE} <= given.keys()


def test_a_server_has_the_options_of_its_command(manifests: list[Manifest]) -> None:
    for deployment in (each for each in manifests if each["kind"] == "Deployment"):
        container = container_of(deployment["spec"])
        program, name, folder = container["command"]
        assert (program, folder) == ("nnrt", "/models")
        command = nnrt.get_command(click.Context(nnrt), name)
        if command is None:
            pytest.skip("needs the command `nnrt serve`")
        known = {option for parameter in command.params for option in parameter.opts}
        assert {argument.partition("=")[0] for argument in container["args"]} <= known


def test_a_server_may_find_the_daemons() -> None:
    manifests = fleet("all")
    role, binding = one(manifests, "Role"), one(manifests, "RoleBinding")
    assert role["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    pod = one(manifests, "Deployment")["spec"]["template"]["spec"]
    assert [(each["name"], each["namespace"]) for each in binding["subjects"]] == [
        (pod["serviceAccountName"], NAMESPACE),
        ("app", "apps"),
    ]
    assert pod["automountServiceAccountToken"] is True
    (device,) = (each for each in container_of(one(manifests, "Deployment")["spec"])["args"] if "--device" in each)
    service = one(manifests, "Service", of="device")
    assert device == f"--device=k8s:///{NAMESPACE}/{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"


def test_models_from_afar_are_copied(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="needs fsspec: `make engines` has it")
    (tmp_path / "bucket" / "digits" / "1").mkdir(parents=True)
    (tmp_path / "bucket" / "digits" / "1" / "model.onnx").write_bytes(b"model")
    values = merged(*FLEETS["models from afar"], {"serve": {"models": {"url": f"file://{tmp_path}/bucket"}}})
    (copy,) = one(rendered(values), "Deployment")["spec"]["template"]["spec"]["initContainers"]
    python, *arguments, folder = copy["command"]
    assert (python, folder) == ("python", "/models")
    subprocess.run([sys.executable, *arguments, str(tmp_path / "models")], check=True, timeout=60)
    assert (tmp_path / "models" / "digits" / "1" / "model.onnx").read_bytes() == b"model"


def test_a_fleet_that_scales_says_no_number_of_servers() -> None:
    """Each upgrade would set it back."""
    assert "replicas" in one(fleet("a server"), "Deployment")["spec"]
    deployment, scaler = (one(fleet("all"), kind) for kind in ("Deployment", "HorizontalPodAutoscaler"))
    assert "replicas" not in deployment["spec"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]


def test_a_daemon_of_a_gpu_gets_one(manifests: list[Manifest]) -> None:
    """On nodes that take nothing else; the device plugin counts by limits."""
    limits = container_of(daemons(manifests))["resources"]["limits"]
    gpus = {name: count for name, count in limits.items() if "/" in name}
    has_cuda = environment(manifests).get("NNRT_DEVICE_PROVIDER") == "cuda"
    assert gpus == ({"nvidia.com/gpu": 1} if has_cuda else {})
    tolerated = [each["key"] for each in daemons(manifests)["template"]["spec"].get("tolerations", []) if "key" in each]
    assert tolerated == list(gpus)
    assert "memory" in limits


def test_settings_are_the_daemons(manifests: list[Manifest]) -> None:
    known = {variable_of(entry.name) for entry in fields(Settings)} | {OTLP_ENDPOINT}
    given = environment(manifests)
    assert given.keys() | {entry["name"] for entry in container_of(daemons(manifests))["env"]} <= known
    assert all(isinstance(value, str) for value in given.values())


def test_large_numbers_are_written_out() -> None:
    values = {"device": {"settings": {"store_bytes": 1 << 40, "canary": 0.5}}}
    given = environment(rendered(values))
    assert (given["NNRT_DEVICE_STORE_BYTES"], given["NNRT_DEVICE_CANARY"]) == ("1099511627776", "0.5")


def test_who_may_use_a_daemon() -> None:
    """Whoever has a certificate of the authority, or a line in the access file; without TLS everybody."""
    guards = {"NNRT_DEVICE_TLS_CLIENT_CA", "NNRT_DEVICE_ACCESS", "NNRT_DEVICE_INSECURE"}
    assert environment(fleet("daemons")).keys() & guards == {"NNRT_DEVICE_TLS_CLIENT_CA"}
    assert environment(fleet("everybody by token")).keys() & guards == {"NNRT_DEVICE_ACCESS"}
    assert environment(fleet("no TLS")).keys() & guards == {"NNRT_DEVICE_INSECURE"}


def test_ports_are_those_that_the_daemon_listens_on(manifests: list[Manifest]) -> None:
    container, settings = container_of(daemons(manifests)), environment(manifests)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["nnrt"] == port_of(settings["NNRT_DEVICE_LISTEN"])
    assert ports["health"] == port_of(settings["NNRT_DEVICE_HEALTH_LISTEN"])
    assert {container[probe]["grpc"]["port"] for probe in PROBES} == {ports["health"]}
    asked = {probe: container[probe]["grpc"].get("service", "") for probe in PROBES}
    assert asked == {"startupProbe": ALIVE, "readinessProbe": "", "livenessProbe": ALIVE}
    assert ports.get("metrics") == (port_of(settings.get("NNRT_DEVICE_METRICS_LISTEN", ":0")) or None)
    (service_port,) = one(manifests, "Service", of="device")["spec"]["ports"]
    assert service_port["targetPort"] == "nnrt"


def test_ports_are_those_that_the_server_listens_on() -> None:
    manifests = fleet("all")
    container = container_of(one(manifests, "Deployment")["spec"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    options = dict(argument.lstrip("-").split("=", 1) for argument in container["args"] if "=" in argument)
    assert ports == {name: port_of(options[name]) for name in ("http", "grpc", "metrics")}
    targets = [port["targetPort"] for port in one(manifests, "Service", of="serve")["spec"]["ports"]]
    assert targets == ["http", "grpc"]


def test_probes_can_ask_a_server() -> None:
    """By HTTPS, of which the kubelet checks nothing; it has no certificate of its own to show."""
    asked = container_of(one(fleet("a server"), "Deployment")["spec"])
    ready = {"port": "http", "scheme": "HTTPS", "path": "/v2/health/ready"}
    assert asked["readinessProbe"]["httpGet"] == ready
    assert {asked[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe")} == {"/v2/health/live"}
    plain = container_of(one(fleet("no TLS"), "Deployment")["spec"])
    assert plain["readinessProbe"]["httpGet"] == {**ready, "scheme": "HTTP"}
    closed = container_of(one(fleet("everybody by certificate"), "Deployment")["spec"])
    assert all(closed[probe]["tcpSocket"] == {"port": "http"} for probe in PROBES)


def test_who_may_reach_what(manifests: list[Manifest]) -> None:
    """The server and named namespaces reach the daemons, Prometheus the metrics, everybody the server."""
    is_watched = any(each["kind"] == "PodMonitor" for each in manifests)
    for policy in (each for each in manifests if each["kind"] == "NetworkPolicy"):
        is_server = policy["metadata"]["name"].endswith("-serve")
        first, *others = policy["spec"]["ingress"]
        assert ("from" not in first) == is_server
        assert [port["port"] for port in first["ports"]] == (["http", "grpc"] if is_server else ["nnrt"])
        assert [port["port"] for rule in others for port in rule["ports"]] == ["metrics"] * is_watched
        assert all(rule["from"] for rule in others)


def test_a_daemon_reaches_its_collector_and_nobody_else() -> None:
    assert one(fleet("daemons"), "NetworkPolicy", of="device")["spec"]["egress"] == []
    manifests = fleet("all")
    (rule,) = one(manifests, "NetworkPolicy", of="device")["spec"]["egress"]
    assert rule["ports"] == [{"port": urlsplit(environment(manifests)[OTLP_ENDPOINT]).port}]
    first, *_ = one(manifests, "NetworkPolicy", of="device")["spec"]["ingress"]
    (namespace,) = (each["namespaceSelector"]["matchLabels"] for each in first["from"] if "namespaceSelector" in each)
    assert namespace == {"kubernetes.io/metadata.name": "apps"}


def test_a_drain_has_its_time(manifests: list[Manifest]) -> None:
    """Neither the end of the grace period nor the liveness probe cuts it off."""
    drain_s = float(environment(manifests)["NNRT_DEVICE_DRAIN_TIMEOUT_S"])
    for workload in workloads(manifests):
        before_s = container_of(workload)["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert workload["template"]["spec"]["terminationGracePeriodSeconds"] > before_s + drain_s


def test_a_longer_drain_has_its_time() -> None:
    manifests = rendered({"device": {"settings": {"drain_timeout_s": 300}}})
    test_a_drain_has_its_time(manifests)


def test_everything_selects_its_part(manifests: list[Manifest]) -> None:
    for part in ("device", "serve"):
        name = f"{RELEASE}-{part}"
        ours = {each["kind"]: each["spec"] for each in manifests if each["metadata"]["name"] == name and "spec" in each}
        for workload in (ours[kind] for kind in ("DaemonSet", "Deployment", "StatefulSet") if kind in ours):
            labels = workload["template"]["metadata"]["labels"]
            assert workload["selector"]["matchLabels"] == labels
            assert ours["Service"]["selector"] == labels
            assert ours["PodDisruptionBudget"]["selector"]["matchLabels"] == labels
            assert ours["NetworkPolicy"]["podSelector"]["matchLabels"] == labels
            assert ours.get("PodMonitor", {}).get("selector", {"matchLabels": labels}) == {"matchLabels": labels}


def test_a_pod_may_do_nothing_but_serve(manifests: list[Manifest]) -> None:
    """What Pod Security calls restricted, and a root that nobody writes to."""
    for workload in workloads(manifests):
        pod = workload["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        context = container_of(workload)["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
    assert daemons(manifests)["template"]["spec"]["automountServiceAccountToken"] is False


def test_every_file_of_the_settings_is_mounted(manifests: list[Manifest]) -> None:
    for workload in workloads(manifests):
        container = container_of(workload)
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        given = environment(manifests) if "envFrom" in container else environment_of_server(manifests)
        said = [*given.values(), *(each.rpartition("=")[2] for each in container.get("args", []))]
        for path in (each for each in said if re.match(r"/(etc|var)/", each)):
            assert {path, str(Path(path).parent)} & mounts.keys()  # In a directory that others could write.
        pod = workload["template"]["spec"]
        claims = [claim["metadata"]["name"] for claim in workload.get("volumeClaimTemplates", [])]
        assert sorted([volume["name"] for volume in pod["volumes"]] + claims) == sorted(mounts.values())


def test_a_budget_is_one_that_the_workload_takes(manifests: list[Manifest]) -> None:
    """Of pods whose controller has no scale, such as a DaemonSet's, it counts only minAvailable as a number."""
    budget = one(manifests, "PodDisruptionBudget", of="device")["spec"]
    if one(manifests, "DaemonSet", "StatefulSet")["kind"] == "DaemonSet":
        assert "maxUnavailable" not in budget
        assert isinstance(budget["minAvailable"], int)
    else:
        assert "minAvailable" not in budget
