"""Pages that stand alone: no script, and nothing from elsewhere."""

import html
from collections.abc import Sequence

from nnrt_hdi.text import escape_for_terminal

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882; --accent: #2a78d6; --mark: #e0803a; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; padding: 0 1.5rem; max-width: 90rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem; text-align: left;
  border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
  td.number, th.number { text-align: right; white-space: nowrap; }
tr:target { background: #fc06; } summary { cursor: pointer; font-weight: 600; margin-top: 1.5rem; }
.frame { overflow: auto; max-height: 85vh; border: 1px solid var(--line); border-radius: 6px; }
svg { display: block; } svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
a { color: var(--accent); } svg a { text-decoration: none; color: inherit; }
.note { color: #888; }
"""


def escaped(text: object) -> str:
    """Foreign text for a page, in an element or an attribute."""
    return html.escape(escape_for_terminal(str(text)), quote=True)


def page(title: str, body: str, style: str = "") -> str:
    """A whole page. Everything in `body` is escaped already."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        # Should something foreign get through all the same, it finds neither scripts nor a network.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escaped(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n<body>\n"
        f"<h1>{escaped(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], ids: Sequence[str] = ()) -> str:
    """A table; numbers stand on the right."""
    numbers = [all(isinstance(row[at], int | float) for row in rows) for at in range(len(columns))]
    kinds = [' class="number"' if is_number else "" for is_number in numbers]
    head = "".join(f"<th{kind}>{escaped(column)}</th>" for kind, column in zip(kinds, columns, strict=True))
    lines = []
    for at, row in enumerate(rows):
        cells = "".join(f"<td{kind}>{escaped(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        lines.append(f'<tr id="{escaped(ids[at])}">{cells}</tr>' if ids else f"<tr>{cells}</tr>")
    return f"<table>\n<tr>{head}</tr>\n" + "\n".join(lines) + "\n</table>"
