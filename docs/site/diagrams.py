"""Diagrams of the site: Mermaid's text, drawn as SVG when the site is built, in the colours of the page around it."""

import re
from typing import Any

from mmdr import _mmdr as mermaid

_DRAWER = "mermaid-rs-renderer"
# The drawer's colours, and the variables of assets/diagrams.css that stand for them in light and in dark.
_COLOURS = {
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
_COLOUR = re.compile("|".join(_COLOURS))


def draw(source: str, language: str, css_class: str, options: Any, md: Any, **_: Any) -> str:
    """Return a Mermaid block as HTML; `pymdownx.superfences` calls this for each block of the language `mermaid`.

    Raises:
        ValueError: The text is no Mermaid diagram.
    """
    svg = mermaid.render(source, _DRAWER)
    svg = _COLOUR.sub(lambda colour: f"var(--diagram-{_COLOURS[colour[0]]})", svg)
    return f'<div class="diagram">{svg}</div>'
