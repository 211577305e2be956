"""Sphinx's extension that tells names without a page from names that don't exist: only the latter are warnings."""

import pkgutil
from typing import Any

from docutils import nodes
from sphinx.environment import BuildEnvironment

_OURS = ("nnrt_client", "nnrt_hdi", "nnrt_device_service", "nnrt_backend", "nnrt_onnx_lowering")


def keep_plain(app: Any, environment: BuildEnvironment, node: Any, content: nodes.Node) -> nodes.Node | None:
    """Return the name without a link where it is other people's or exists; None leaves Sphinx its warning."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py":
        return None
    return content if not target.startswith(_OURS) or _exists(target) else None


def _exists(path: str) -> bool:
    try:
        return pkgutil.resolve_name(path) is not None
    except (AttributeError, ImportError):
        return False


def setup(app: Any) -> dict[str, bool]:
    """Register what happens to a reference that Sphinx doesn't find."""
    app.connect("missing-reference", keep_plain)
    return {"parallel_read_safe": True}
