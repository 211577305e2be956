"""Choice of the first way that works in which a model goes to its device."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from nnrt_client.build.build_result import Refused
from nnrt_client.build.way import Way
from nnrt_client.model_session.partition.fallback import Fallback
from nnrt_hdi.errors import InvalidParameter, NnrtError, Unsupported

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Taken(Generic[T]):
    """Way that was taken, its result, and why the ways before it were not taken."""

    way: Way
    result: T
    passed_over: Mapping[Way, str]


def choose_ways(ways: Iterable[Way | str], possible: Iterable[Way], fallback: Fallback | None) -> list[Way]:
    """Return the ways to try, in order; with a `fallback`, partition is the last if `ways` doesn't name it.

    Raises InvalidParameter for an unknown way, if no way is possible, and for partition without a fallback.
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


def try_ways(ways: Iterable[Way], attempts: Mapping[Way, Callable[[], T]]) -> Taken[T]:
    """Try ways until one works. If none does, raise the error of the only way, or one with the reasons of all ways."""
    refusals: dict[Way, NnrtError] = {}
    for way in ways:
        try:
            return Taken(way, attempts[way](), {other: str(error) for other, error in refusals.items()})
        except NnrtError as error:
            if not _is_refusal(error):
                raise
            refusals[way] = error
    first = next(iter(refusals.values()))
    if len({error.message for error in refusals.values()}) == 1:
        raise first
    reasons = "\n".join(f"as {way}: {error}" for way, error in refusals.items())
    raise type(first)(f"it can't be loaded in any way (see docs/reference/errors.md)\n{reasons}") from first


def _is_refusal(error: NnrtError) -> bool:
    """Return whether the device refused the model, rather than the file, options or connection being at fault."""
    return isinstance(error, Unsupported) or isinstance(error.__cause__, Refused)
