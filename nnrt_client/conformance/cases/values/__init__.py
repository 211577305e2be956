"""Cases with unusual values, for which a device may be wrong although it is right for most values."""

from collections.abc import Iterator

from nnrt_client.conformance.case import Case
from nnrt_client.conformance.cases.values import ambiguity, positions, real_functions, real_numbers, whole_numbers


def values() -> Iterator[Case]:
    """Yield the cases of the level "values"."""
    for kind in (whole_numbers, real_functions, real_numbers, positions, ambiguity):
        for trap in kind.traps():
            yield trap.case()
    yield from ambiguity.with_float16()
