"""The names an application may rely on. A change here is a change of the interface: say so in the changelog."""

import dataclasses
import enum
import inspect
import re
import typing
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import nnrt_client

PUBLIC = """
    AddressChange Batches Batching Bindings BuildReport CanaryState Capabilities Compilation CompressionStatistics
    ConnectionFailed DataType DescribedModel Device DeviceCounters DeviceInfo DeviceLoad DeviceState DeviceStatus
    DeviceType Durations DynamicShape Earlier Executor Fallback Format FuseType Hedging IdentityCounters InvalidFile
    InvalidParameter InvalidPath LegacyTensor LoadOptions Loop LoopEnd Member MemberState Memory Model ModelSession
    ModelTensor NamedOutputs NnrtError NullPointer OperationFailed OperationForbidden OperationType Origin
    OutOfMemory OutputTooSmall PadMode PartReport PartitionReport PerformanceMode Pool PoolReport PooledSession
    Priority Progress QuantParam ReloadedSession Residency ResidentTensor ReturnCode RunFuture RunResult RunTensor
    RunTimes Runtime SaveCacheFailed Sequence Settings State Support Telemetry Tensor TensorDesc TensorType TimedOut
    UnavailableDevice Unsupported ValueType Way connect disconnect from_onnx greedy load sample uniforms
    wait_until_cached
"""
EXPORTED: dict[str, Any] = {name: getattr(nnrt_client, name) for name in nnrt_client.__all__}
# Python 3.10 takes aliases such as Callable[[int], str] for classes.
CLASSES = {name: found for name, found in EXPORTED.items() if inspect.isclass(found) and not typing.get_origin(found)}
FUNCTIONS = {name: found for name, found in EXPORTED.items() if inspect.isfunction(found)}

# Names that stand in annotations where their modules can't import them.
_NAMES = vars(nnrt_client)
_MADE_BY = re.compile(r"\bMade\b[^.]*\bby\b")
# Where a reader looks for subject, verb and object, these leave out the first two.
_NO_SENTENCE = re.compile(r"(What|Who|Where|Whether|When|Why|How|Which|The same)\b")
_MOST_ENTRIES = 24


def test_public_names() -> None:
    assert nnrt_client.__all__ == PUBLIC.split()
    assert nnrt_client.__version__ == version("nnrt")


def test_sections_of_public_docstrings_are_linted() -> None:
    """Ruff checks Args and Returns where public names are defined; pyproject.toml lists these modules."""
    root = Path(nnrt_client.__path__[0]).parent
    linted = next(line for line in (root / "pyproject.toml").read_text().splitlines() if line.endswith('= ["DOC"]'))
    modules = {inspect.getmodule(found) for found in (*CLASSES.values(), *FUNCTIONS.values())}
    names = {module.__name__.replace(".", "/") for module in modules if module}
    assert not [name for name in names if not re.search(rf"[{{,]{name}(/__init__)?[,}}]", linted)]


def test_the_package_has_few_rooms() -> None:
    (root,) = nnrt_client.__path__
    entries = [entry.name for entry in Path(root).iterdir() if entry.name != "__pycache__"]
    assert len(entries) <= _MOST_ENTRIES, sorted(entries)


@pytest.mark.parametrize("name", [*CLASSES, *FUNCTIONS])
def test_what_is_public_says_what_it_does(name: str) -> None:
    """Each public class, function, method and property has a docstring, which begins with a sentence."""
    silent = [place for place, text in docstrings(name) if not text]
    assert not silent
    assert not [place for place, text in docstrings(name) if _NO_SENTENCE.match(text)]


@pytest.mark.parametrize("name", [*CLASSES, *FUNCTIONS])
def test_what_stands_in_a_public_signature_is_exported(name: str) -> None:
    exported = set(CLASSES.values())
    hidden = {
        f"{place}: {found.__module__}.{found.__qualname__}"
        for place, annotation in annotations(name)
        for found in classes_in(annotation)
        if found.__module__.split(".")[0].startswith("nnrt_") and found not in exported
    }
    assert not hidden


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class has of our own classes."""
    seen = set()
    for kind in owner.__mro__:
        if kind.__module__.split(".")[0].startswith("nnrt_"):
            for name, member in vars(kind).items():
                if name not in seen and not name.startswith("_"):
                    seen.add(name)
                    yield name, getattr(member, "__func__", member)


def functions(name: str) -> Iterator[tuple[str, Any]]:
    """An exported function; of an exported class the methods, the getters, and the constructor unless it is ours."""
    found = EXPORTED[name]
    if not inspect.isclass(found):
        yield name, found
        return
    for attribute, member in members(found):
        getter = member.fget if isinstance(member, property) else member
        if inspect.isfunction(getter):
            yield f"{name}.{attribute}", getter
    if inspect.isfunction(found.__init__) and not _MADE_BY.search(inspect.getdoc(found) or ""):
        yield f"{name}()", found.__init__


def docstrings(name: str) -> Iterator[tuple[str, str]]:
    """The docstrings of an exported name and its members; that of a method may be the one it overrides."""
    found = EXPORTED[name]
    yield name, found.__doc__ or ""
    for place, function in functions(name):
        if not place.endswith("()"):
            member = getattr(found, place.rpartition(".")[2]) if inspect.isclass(found) else function
            yield place, inspect.getdoc(member) or ""


def annotations(name: str) -> Iterator[tuple[str, Any]]:
    found = EXPORTED[name]
    if inspect.isclass(found) and not issubclass(found, enum.Enum):
        for field, annotation in typing.get_type_hints(found, localns=_NAMES).items():
            if not field.startswith("_"):
                yield f"{name}.{field}", annotation
        assert dataclasses.is_dataclass(found) or not hasattr(found, "__dataclass_fields__")
    for place, function in functions(name):
        for annotation in typing.get_type_hints(function, localns=_NAMES).values():
            yield place, annotation


def classes_in(annotation: Any) -> Iterator[type]:
    """The classes that an annotation names, with what they hold."""
    origin = typing.get_origin(annotation)
    if inspect.isclass(annotation) and origin is None:
        yield annotation
    elif inspect.isclass(origin):
        yield origin
    for part in typing.get_args(annotation):
        for item in part if isinstance(part, list) else [part]:
            yield from classes_in(item)
