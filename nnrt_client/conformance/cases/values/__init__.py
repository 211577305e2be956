"""Values for which mostly correct code fails."""

from collections.abc import Iterator

from nnrt_client.conformance.case import Case
from nnrt_client.conformance.cases.values import other_readings, places, real_functions, real_numbers, whole_numbers


def values() -> Iterator[Case]:
    """Yield the cases of the level "values"."""
    for kind in (whole_numbers, real_functions, real_numbers, places, other_readings):
        for trap in kind.traps():
            yield trap.case()
    yield from other_readings.with_float16()
