"""Check of code structure against limits: import cycles, threads, sizes of classes and modules: `make house`.

The limits are in pyproject.toml, under `[tool.nnrt.house]`. tests/house_exceptions.toml lists what exceeded its limit
when the limit was introduced, with a number that may only decrease: `python tests/house.py --lower` writes it.
"""

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lines_of_code import NOT_COUNTED, PRODUCT
from rich.console import Console
from rich.table import Table
from source_files import ROOT, source_files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_EXCEPTIONS = ROOT / "tests" / "house_exceptions.toml"
_STARTS_THREAD = {"Thread", "Timer", "ThreadPoolExecutor", "start_thread"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Sources = Mapping[str, str]  # Text of each module by its path from the root.
Graph = Mapping[str, set[str]]


def sources(*packages: str) -> Sources:
    """Return the texts of the packages' modules, without generated code."""
    paths = [path.relative_to(ROOT) for path in source_files() if path.suffix == ".py"]
    kept = [path for path in paths if path.parts[0] in packages and not NOT_COUNTED.intersection(path.parts)]
    return {path.as_posix(): (ROOT / path).read_text() for path in sorted(kept)}


def module_name(path: str) -> str:
    """Return the name by which a module is imported.

    Each folder of backends/ is its own root.
    """
    parts = Path(path).with_suffix("").parts
    parts = parts[2:] if parts[0] == "backends" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(texts: Sources) -> Graph:
    """Return the modules that each module imports, including imports for types only and within functions."""
    paths = {module_name(path): path for path in texts}
    return {name: set(_imported(name, path, texts[path], paths)) - {name} for name, path in paths.items()}


def _imported(name: str, path: str, text: str, known: Mapping[str, str]) -> Iterator[str]:
    package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield from [each for each in (f"{base}.{alias.name}", base) if each in known][:1]


def circles(graph: Graph) -> list[list[str]]:
    """Return the import cycles: sets of modules that all reach each other, the largest first."""
    reached = {start: _reached(graph, start) for start in graph}
    found = {frozenset({start, *(end for end in reached[start] if start in reached[end])}) for start in graph}
    return sorted((sorted(circle) for circle in found if len(circle) > 1), key=lambda circle: (-len(circle), circle))


def _reached(graph: Graph, start: str) -> set[str]:
    found, ahead = set[str](), [start]
    while ahead:
        new = graph[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def methods(texts: Sources) -> Counter[str]:
    """Return the number of methods of each class. A property with a setter counts once."""
    return Counter(
        {
            f"{path} {kind.name}": len({each.name for each in kind.body if isinstance(each, _FUNCTIONS)})
            for path, text in texts.items()
            for kind in ast.walk(ast.parse(text))
            if isinstance(kind, ast.ClassDef)
        }
    )


def starts_of_threads(texts: Sources) -> Counter[str]:
    """Return the number of calls in each module that start a thread or create a thread pool."""
    called = ((path, _called(node)) for path, text in texts.items() for node in ast.walk(ast.parse(text)))
    return Counter(path for path, name in called if name in _STARTS_THREAD)


def _called(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name
    return None


def private_uses(folder: str) -> Counter[str]:
    """Return the number of uses of other objects' private attributes, for each module of a folder."""
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--ignore-noqa", "--exit-zero", "-q", "--no-cache"]
    found = subprocess.run(
        [*ruff, "--select", "SLF001", "--output-format", "json", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return Counter(Path(each["filename"]).relative_to(ROOT).as_posix() for each in json.loads(found))


class House:
    """Measured numbers with their limits."""

    def __init__(self, bounds: Mapping[str, int], exceptions: Mapping[str, Mapping[str, int]]) -> None:
        """Take the limits by name, and the exceptions by name and by module or class."""
        self.table = Table("number", "today", "at most", "where", title="the house")
        self.excesses: list[str] = []
        self.exceptions: dict[str, dict[str, int]] = {}
        self._bounds = bounds
        self._granted = exceptions

    def row(self, name: str, number: int, where: str = "") -> None:
        """Add a number of the whole product."""
        self.table.add_row(name, f"{number:,}", f"{self._bounds[name]:,}", where)
        if number > self._bounds[name]:
            self.excesses.append(f"{name}: {number:,}, at most {self._bounds[name]:,}: {where}")

    def rows(self, name: str, numbers: Counter[str]) -> None:
        """Add a number of each module or class; numbers above the limit need an exception."""
        bound, granted = self._bounds[name], self._granted.get(name, {})
        above = {where: number for where, number in numbers.most_common() if number > bound}
        where, largest = max(numbers.items(), key=lambda item: item[1], default=("", 0))
        self.table.add_row(name, f"{largest:,}", f"{bound:,}", where)
        if granted or above:
            self.table.add_row(
                f"  in all {len(above)} exceptions", f"{sum(above.values()):,}", f"{sum(granted.values()):,}"
            )
        for where, number in above.items():
            if number > (limit := max(granted.get(where, 0), bound)):
                self.excesses.append(f"{name}: {where} has {number:,}, at most {limit:,}")
        self.exceptions[name] = {
            where: min(number, above[where]) for where, number in sorted(granted.items()) if where in above
        }


def counted(bounds: Mapping[str, int], exceptions: Mapping[str, Mapping[str, int]]) -> House:
    """Measure this tree."""
    house = House(bounds, exceptions)
    product = sources(*PRODUCT)
    graph = import_graph(product)
    for package in PRODUCT:
        names = {module_name(path) for path in product if path.startswith(f"{package}/")}
        found = circles({name: graph[name] & names for name in names})
        members = [", ".join(name.removeprefix(f"{package}.") for name in circle) for circle in found]
        house.row(f"circles in {package}", len(found), "; ".join(members[1:]))
        house.row(f"largest circle in {package}", max(map(len, found), default=0), "".join(members[:1]))
    starts = starts_of_threads({path: text for path, text in product.items() if path.startswith("nnrt_client/")})
    house.row("places in nnrt_client that start threads", starts.total(), f"in {len(starts)} modules")
    house.rows("methods of a class", methods(product))
    house.rows("lines of a module", Counter({path: text.count("\n") for path, text in product.items()}))
    house.rows("private attributes used in tests", private_uses("tests"))
    return house


def main(arguments: Sequence[str]) -> int:
    """Print the table, and return 1 if a limit is exceeded."""
    bounds = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["nnrt"]["house"]
    exceptions = tomllib.loads(_EXCEPTIONS.read_text())
    house = counted(bounds, exceptions)
    if "--lower" in arguments:
        _EXCEPTIONS.write_text("\n".join(_written(house.exceptions)))
    Console().print(house.table)
    for excess in house.excesses:
        print(excess, file=sys.stderr)
    return bool(house.excesses)


def _written(exceptions: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    yield "# What is above a bound of [tool.nnrt.house] in pyproject.toml, and how far. The numbers only go down."
    for name, numbers in exceptions.items():
        yield from ("", f'["{name}"]', *(f'"{where}" = {number}' for where, number in numbers.items()))
    yield ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
