"""Which way a model goes to its device: the first that works."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from nnrt_client.build.build_result import Refused
from nnrt_client.build.way import Way
from nnrt_client.model_session.partition.fallback import Fallback
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import UNKNOWN_DIM

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Taken(Generic[T]):
    """The way that was taken, what came of it, and why those before it weren't."""

    way: Way
    result: T
    passed_over: Mapping[Way, str]


def chosen_ways(ways: Iterable[Way | str], possible: Iterable[Way], fallback: Fallback | None) -> list[Way]:
    """The ways to try, in their order; in parts comes last, where `fallback` asks for it and `ways` doesn't say.

    Raises InvalidParameter for one that isn't known, where none is possible, and for parts without a fallback.
    """
    known = ", ".join(repr(way.value) for way in Way)
    can = [way for way in possible if fallback is not None or way is not Way.PARTITION]
    try:
        asked = [Way(way) for way in ([ways] if isinstance(ways, str) else ways)]
    except (ValueError, TypeError) as error:
        raise InvalidParameter(f"the ways are {ways!r}; use some of {known}") from error
    named = f"the ways are {[way.value for way in asked]}"
    if fallback is None and Way.PARTITION in asked:
        raise InvalidParameter(f'{named}; in parts some of its operators run on this host: give fallback="cpu" as well')
    if fallback is not None:
        asked.append(Way.PARTITION)
    chosen = [way for way in dict.fromkeys(asked) if way in can]
    if not chosen:
        raise InvalidParameter(f"{named}; this model can go as {' or '.join(map(str, can))} only")
    return chosen


def growing_input(graph: Graph) -> str | None:
    """The name of an input that comes back longer, as the cache of a decoder does, or None. Each run of such a model
    has shapes of its own."""
    given, results = {*graph.inputs}, {*graph.outputs}
    for node in graph.nodes:
        if node.type is NodeType.CONCAT and not results.isdisjoint(node.outputs):
            axis = node.attrs.get("axis", 0)
            assert isinstance(axis, int)
            for at in given.intersection(node.inputs):
                if graph.tensors[at].shape[axis] == UNKNOWN_DIM:
                    return graph.tensors[at].name
    return None


def first_way(chosen: Iterable[Way], attempts: Mapping[Way, Callable[[], T]]) -> Taken[T]:
    """Try ways until one works. Raises the error of the only one, or one that has the reasons of all."""
    refusals: dict[Way, NnrtError] = {}
    for way in chosen:
        try:
            return Taken(way, attempts[way](), {other: str(error) for other, error in refusals.items()})
        except NnrtError as error:
            if not _is_refusal(error):
                raise
            refusals[way] = error
    first = next(iter(refusals.values()))
    if len(refusals) == 1:
        raise first
    reasons = "\n".join(f"as {way}: {error}" for way, error in refusals.items())
    raise type(first)(f"it can't be loaded in any way\n{reasons}") from first


def _is_refusal(error: NnrtError) -> bool:
    """Tell if an error is about the model on this device, and not about the file, the options or the connection."""
    return isinstance(error, Unsupported) or isinstance(error.__cause__, Refused)
