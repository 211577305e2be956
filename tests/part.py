"""Pytest plugin that runs a sample of long tables of cases; `pytest --whole` and `make nightly` run all.

A module marked `table` has tests with many similar cases. The plugin chooses one in ONE_IN of them from a seed, and as
many more as needed to cover every subject: each operator, each C function, each family of files or names, and each
value that many cases share, such as a backend or a data type. A test that loops over a table itself calls `part`.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings

from nnrt_hdi.enums import NodeType

# Another seed gives another sample.
SEED = 1
ONE_IN = 5
# A value that this many cases share is a subject.
_MANY = 2 * ONE_IN
# Number of examples of a property test that sets none.
_EXAMPLES = 100
# A test with fewer cases runs them all.
_LONG = 5 * ONE_IN

CaseT = TypeVar("CaseT")
_is_whole = False


def part(
    cases: Iterable[CaseT], name: Callable[[CaseT], str], subjects: Callable[[CaseT], Iterable[Hashable]]
) -> list[CaseT]:
    """Choose the sample of a table. It depends on the cases' names only, so it is the same in every process."""
    cases = list(cases)
    if _is_whole:
        return cases
    met: set[Hashable] = set()
    chosen = set()
    for draw, at in sorted((_draw(name(case)), at) for at, case in enumerate(cases)):
        if draw % ONE_IN == 0 or not met.issuperset(subjects(cases[at])):
            chosen.add(at)
            met.update(subjects(cases[at]))
    return [case for at, case in enumerate(cases) if at in chosen]


def examples(whole: int) -> int:
    """Return the number of examples of a property test, of which `whole` is the number under `--whole`."""
    return whole if _is_whole else whole // ONE_IN


def step(whole: int) -> int:
    """Return the step of a walk through all moments of something, of which `whole` is the one under `--whole`."""
    return whole if _is_whole else 2 * whole + 1


def subject_of(value: object) -> str:
    """Return the operator or C function that a parameter stands for, or an empty string."""
    if isinstance(value, NodeType):
        return value.name
    for name in ("node_type", "op_type", "function"):
        if hasattr(value, name):
            return str(getattr(value, name))
    return ""


def calls_of(metafunc: pytest.Metafunc) -> list[Any]:
    """Return pytest's list of a test's cases before they become items, from which a caller may remove some."""
    calls: list[Any] = metafunc._calls
    return calls


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="run all cases of long tables, in place of a part")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    global _is_whole
    _is_whole = config.getoption("--whole")
    settings.register_profile("part", settings.get_profile("nnrt"), max_examples=examples(_EXAMPLES))
    settings.load_profile("nnrt" if _is_whole else "part")


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Remove the cases outside the sample before they become items."""
    yield
    calls = calls_of(metafunc)
    if metafunc.definition.get_closest_marker("table") is not None and len(calls) >= _LONG:
        shared = Counter(value for call in calls for value in call.indices.items())
        calls[:] = part(
            calls,
            lambda call: f"{metafunc.definition.nodeid}[{call.id}]",
            lambda call: [*_subjects(call.params), *(v for v in call.indices.items() if shared[v] >= _MANY)],
        )


def _subjects(params: dict[str, object]) -> Iterator[Hashable]:
    for name, value in params.items():
        if isinstance(value, (str, Path)):
            yield name, Path(value).stem.partition("-")[0]
        elif isinstance(value, tuple):
            yield from ((name, *each) for each in enumerate(value) if isinstance(each[1], (str, Enum)))
        elif subject := subject_of(value):
            yield name, subject


def _draw(name: str) -> int:
    return int.from_bytes(sha256(f"{SEED} {name}".encode()).digest()[:8], "big")
