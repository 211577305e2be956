"""Count of the lines of code of each room: `make sz`.

A line counts if it has a token that is neither a comment nor part of a docstring. The budgets are in pyproject.toml,
under `[tool.nnrt.lines-of-code]`. They go down, or up with a reason in the commit that raises them.
"""

import io
import sys
import token
import tokenize
from collections import Counter
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from source_files import ROOT, source_files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PRODUCT = ("nnrt_client", "nnrt_device_service", "nnrt_hdi", "backends")
# Packages that handle runs and models.
CORE = {
    *(f"nnrt_client/{name}" for name in ("pool", "run", "session", "tensors")),
    *(f"nnrt_device_service/{name}" for name in ("memory", "models", "runs", "scheduling", "sessions", "transport")),
    "nnrt_hdi/wire",
}
# Generated code, and the template of `nnrt-device new-backend`.
NOT_COUNTED = {"v2", "skeleton"}
_NO_CODE = {token.NEWLINE, token.NL, token.COMMENT, token.INDENT, token.DEDENT, token.ENDMARKER}


def count(text: str) -> int:
    """Return the number of lines with code in a module's text."""
    lines: set[int] = set()
    statement: list[tokenize.TokenInfo] = []
    for each in tokenize.generate_tokens(io.StringIO(text).readline):
        if each.type in (token.NEWLINE, token.ENDMARKER):
            is_docstring = len(statement) == 1 and statement[0].type == token.STRING
            if not is_docstring:
                lines.update(line for part in statement for line in range(part.start[0], part.end[0] + 1))
            statement.clear()
        elif each.type not in _NO_CODE:
            statement.append(each)
    return len(lines)


def rooms() -> Mapping[str, int]:
    """Return the lines of code of each room, by the path of its folder; a package's own modules are `PACKAGE/*.py`."""
    found: Counter[str] = Counter()
    for path in source_files():
        package, *folders = path.relative_to(ROOT).parent.parts or ("",)
        if package in PRODUCT and path.suffix == ".py" and not NOT_COUNTED.intersection(folders):
            found["/".join([package, *folders[:1]]) if folders else f"{package}/*.py"] += count(path.read_text())
    return found


def main() -> int:
    """Print the table, and return 1 if a budget is exceeded."""
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["nnrt"]["lines-of-code"]
    counted = rooms()
    totals = {"core": sum(lines for room, lines in counted.items() if room in CORE), "product": sum(counted.values())}
    table = Table("room", "core", "lines of code", "at most")
    for room, lines in sorted(counted.items()):
        table.add_row(room, "*" if room in CORE else "", f"{lines:,}", "")
    table.add_section()
    for name, lines in totals.items():
        table.add_row(name, "", f"{lines:,}", f"{budgets[name]:,}")
    Console().print(table)
    too_many = {name: lines for name, lines in totals.items() if lines > budgets[name]}
    for name, lines in too_many.items():
        print(
            f"the {name} has {lines:,} lines of code, {lines - budgets[name]:,} more than its budget in pyproject.toml;"
            " delete some, or raise the budget and say why in the commit",
            file=sys.stderr,
        )
    return bool(too_many)


if __name__ == "__main__":
    sys.exit(main())
