"""Manifests of deploy/kubernetes, rendered by kubectl."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "kubernetes"
Manifest = dict[str, Any]

# Components that a fleet's kustomization may combine. Each combination is rendered in its own copy.
COMBINATIONS: dict[str, tuple[str, ...]] = {
    "base": (),
    "per-device": ("per-device",),
    "store-on-host": ("store-on-host",),
    "cert-manager": ("cert-manager",),
    "prometheus": ("prometheus",),
    "per-device and cert-manager": ("per-device", "cert-manager"),
    "store-on-host and cert-manager": ("store-on-host", "cert-manager"),
    "per-device, cert-manager and prometheus": ("per-device", "cert-manager", "prometheus"),
    "nvidia-gpu": ("nvidia-gpu",),
    "traces": ("traces",),
    "nvidia-gpu before per-device": ("nvidia-gpu", "per-device"),
    "all but store-on-host": ("per-device", "nvidia-gpu", "cert-manager", "prometheus", "traces"),
}


def rendered(folder: Path) -> list[Manifest]:
    """Return the manifests of a kustomization."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("needs kubectl, to render what is in deploy/kubernetes")
    result = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return [manifest for manifest in yaml.safe_load_all(result.stdout) if manifest]


def combined(components: tuple[str, ...], folder: Path, namespace: str = "nnrt") -> list[Manifest]:
    """Return the manifests of the base with these components, rendered in a copy of the folder."""
    shutil.copytree(DEPLOY, folder / "kubernetes")
    fleet = folder / "kubernetes" / "fleet"
    fleet.mkdir()
    lines = [f"namespace: {namespace}", "resources: [../base]", "components:"]
    (fleet / "kustomization.yaml").write_text(
        "\n".join([*lines, *(f"  - ../components/{name}" for name in components)])
    )
    return rendered(fleet)


def one(manifests: list[Manifest], *kinds: str) -> Manifest:
    """Return the only manifest of these kinds."""
    (found,) = (manifest for manifest in manifests if manifest["kind"] in kinds)
    return found
