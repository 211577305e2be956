"""Sphinx extension that suppresses warnings about references to names that exist but have no page."""

import pkgutil
from typing import Any

from docutils import nodes
from sphinx.environment import BuildEnvironment

_OURS = ("nnrt_client", "nnrt_hdi", "nnrt_device_service", "nnrt_backend", "nnrt_onnx_lowering")


def keep_plain(app: Any, environment: BuildEnvironment, node: Any, content: nodes.Node) -> nodes.Node | None:
    """Return the name as plain text if it exists or isn't ours, or None to let Sphinx warn."""
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
    """Register the function that Sphinx calls for references without a target."""
    app.connect("missing-reference", keep_plain)
    return {"parallel_read_safe": True}
