"""Hooks of the site's build: tables and pages made from declarations, and links that leave `docs/`.

A page asks for a table with a line `<!-- generate: NAME -->`; `TABLES` says which module makes it.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

SITE = Path(__file__).resolve().parent
DOCS, ROOT = SITE.parent, SITE.parents[1]
# MkDocs loads this file by its path; the modules beside it, and the operators' samples, are imported by name.
sys.path[:0] = [str(SITE), str(ROOT / "tests")]

import function_tables  # noqa: E402  (the path comes first)
import onnx_tables  # noqa: E402
import operator_pages  # noqa: E402
import setting_tables  # noqa: E402

TABLES: dict[str, Callable[[], str]] = {
    "c-functions": function_tables.tables,
    "daemon-settings": setting_tables.daemon_settings,
    "onnx-by-body": onnx_tables.by_body,
    "onnx-counts": onnx_tables.counts,
    "onnx-not-imported": onnx_tables.not_imported,
    "onnx-operators": onnx_tables.operators,
    "operator-enums": operator_pages.enums,
    "operator-index": operator_pages.index,
}
_MARK = re.compile(r"^<!-- generate: ([\w-]+) -->$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add one page for each family of operators."""
    for family, text in operator_pages.pages().items():
        files.append(File.generated(config, f"reference/operators/{family}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Put tables in the place of their marks, and show links to files that are not part of the site as paths."""
    markdown = _MARK.sub(lambda mark: _table(mark[1], page), markdown)
    return _LINK.sub(lambda link: _link(link, page), markdown)


def _table(name: str, page: Page) -> str:
    if name not in TABLES:
        raise PluginError(f"{page.file.src_uri}: no table is named {name!r}; there are {', '.join(sorted(TABLES))}")
    return TABLES[name]()


def _link(link: re.Match[str], page: Page) -> str:
    """Return a link within the site as it is, and one to another file of the repository as its path."""
    found = ((DOCS / page.file.src_uri).parent / link[2]).resolve()
    if found.is_relative_to(DOCS) and not found.is_dir():
        return link[0]
    if not found.exists():
        raise PluginError(f"{page.file.src_uri}: the link {link[2]!r} leads to no file of the repository")
    path = found.relative_to(ROOT)
    return f"`{path}`" if link[1].strip("`") in (str(path), path.name) else f"{link[1]} (`{path}`)"
