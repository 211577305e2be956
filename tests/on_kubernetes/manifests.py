"""Manifests of the chart in deploy/helm, rendered by Helm."""

import json
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HELM = ROOT / "deploy" / "helm"
CHART = HELM / "nnrt"
RELEASE, NAMESPACE = "fleet", "cameras"
Manifest = dict[str, Any]

# Helm is a library in Go, which would have threads and signal handlers of its own in the tests' process.
_RENDER = """
import json, sys
import helm_python
chart, values, name, namespace = json.load(sys.stdin)
try:
    rendered = helm_python.Chart.load(chart).render(values, name=name, namespace=namespace)
    report = helm_python.lint(chart, values, strict=True, namespace=namespace, kube_version="v1.30.0")
    json.dump({"rendered": rendered, "errors": report["errors"]}, sys.stdout)
except helm_python.HelmError as error:
    json.dump({"rendered": {}, "errors": [str(error)]}, sys.stdout)
"""

SERVE = {"serve": {"enabled": True, "models": {"claim": "models"}, "accessSecret": "callers"}}
GPUS = yaml.safe_load((HELM / "nvidia.yaml").read_text())
# Values of fleets, by what they are.
FLEETS: dict[str, tuple[Manifest, ...]] = {
    "daemons": (),
    "a server": (SERVE,),
    "GPUs": (GPUS, SERVE),
    "a store on the host": ({"device": {"store": {"hostPath": "/var/lib/nnrt"}}},),
    "no TLS": ({"tls": {"enabled": False}}, SERVE),
    "everybody by certificate": (SERVE, {"serve": {"clientCertificates": True, "accessSecret": ""}}),
    "everybody by token": (
        {"device": {"clientCertificates": False, "accessSecret": "clients"}},
        {**SERVE, "serve": {**SERVE["serve"], "tokenSecret": "server"}},
    ),
    "models from afar": ({"serve": {**SERVE["serve"], "models": {"url": "s3://bucket/models", "secret": "keys"}}},),
    "certificates of others": (SERVE, {"tls": {"certManager": {"issuer": {"name": "ours", "kind": "ClusterIssuer"}}}}),
    "all": (
        GPUS,
        {
            "image": {"tag": "1.2.3", "pullSecrets": ["registry"]},
            "device": {
                "accessSecret": "clients",
                "environment": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel-collector.observability.svc:4317"},
                "tolerations": [{"operator": "Exists"}],
                "store": {"storageClass": "fast"},
            },
            "networkPolicy": {"namespaces": ["apps"], "egress": [{"ports": [{"port": 4317}]}]},
            "podMonitor": {"enabled": True},
            "resolvers": [{"name": "app", "namespace": "apps"}],
        },
        SERVE,
        {
            "serve": {
                "autoscaling": {"enabled": True},
                "nodeSelector": {"kind": "cpu"},
                "tolerations": [{"operator": "Exists"}],
                "hosts": ["models.example.com"],
                "environment": {"NNRT_TRACE": 1},
            },
        },
    ),
}


def merged(*values: Manifest) -> Manifest:
    """Return the values of several files, of which the later ones count."""
    result: Manifest = {}
    for each in values:
        for key, value in each.items():
            known = result.get(key)
            result[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return result


def fleet(name: str) -> list[Manifest]:
    """Return the manifests of one of FLEETS."""
    return rendered(merged(*FLEETS[name]))


def rendered(values: Manifest) -> list[Manifest]:
    """Return the manifests that Helm makes of the chart with these values, in which it must find no mistake."""
    templates, errors = _render(json.dumps(values))
    assert errors == []
    return [
        manifest
        for name, text in templates.items()
        if not name.endswith(".txt")
        for manifest in yaml.safe_load_all(text)
        if manifest
    ]


def refusal(values: Manifest) -> str:
    """Return why Helm doesn't take these values."""
    _, errors = _render(json.dumps(values))
    return "\n".join(errors)


@cache
def _render(values: str) -> tuple[dict[str, str], list[str]]:
    if find_spec("helm_python") is None:
        pytest.skip("needs Helm, to render what is in deploy/helm: `pip install helm-python-sdk`")
    given = json.dumps([str(CHART), json.loads(values), RELEASE, NAMESPACE])
    result = subprocess.run([sys.executable, "-c", _RENDER], input=given, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    return answer["rendered"], answer["errors"]


def one(manifests: list[Manifest], *kinds: str, of: str = "") -> Manifest:
    """Return the only manifest of these kinds, or the one of a part of the release: device or serve."""
    name = f"{RELEASE}-{of}"
    (found,) = (
        manifest
        for manifest in manifests
        if manifest["kind"] in kinds and (not of or manifest["metadata"]["name"] == name)
    )
    return found
