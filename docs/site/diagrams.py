"""Sphinx directive `mermaid`: draws a Mermaid diagram as SVG when the site is built, in the colors of the page."""

import re
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from mmdr import _mmdr as mermaid

_DRAWER = "mermaid-rs-renderer"
# Colors of the renderer, and the variables of assets/diagrams.css that replace them in light and dark mode.
_COLORS = {
    "#0F172A": "text",
    "#64748B": "line",
    "#94A3B8": "border",
    "#CBD5E1": "group-border",
    "#F1F5F9": "group",
    "#F8FAFC": "box",
    "#FDBA74": "note-border",
    "#FFF7ED": "note",
    "#FFFFFF": "page",
}
_COLOR = re.compile("|".join(_COLORS))


class Mermaid(Directive):  # type: ignore[misc]
    """Directive whose content is the text of a Mermaid diagram."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the drawing as HTML. Raises an error of the page if the text is no diagram."""
        try:
            svg = mermaid.render("\n".join(self.content), _DRAWER)
        except ValueError as error:
            raise self.error(f"this is no Mermaid diagram: {error}") from error
        svg = _COLOR.sub(lambda color: f"var(--diagram-{_COLORS[color[0]]})", svg)
        return [nodes.raw("", f'<div class="diagram">{svg}</div>', format="html")]


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("mermaid", Mermaid)
    return {"parallel_read_safe": True}
