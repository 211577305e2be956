"""Cases of the levels that consist of cases (see `Case`)."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain

from nnrt_client.conformance.case import Case, Level
from nnrt_client.conformance.cases.float16 import float16
from nnrt_client.conformance.cases.graphs import graphs
from nnrt_client.conformance.cases.operators import operators
from nnrt_client.conformance.cases.optimizations import optimizations
from nnrt_client.conformance.cases.quantized import quantized
from nnrt_client.conformance.cases.quantized_by_hand import quantized_by_hand
from nnrt_client.conformance.cases.values import values

_LEVELS: dict[Level, Sequence[Callable[[], Iterator[Case]]]] = {
    Level.OPERATORS: (operators,),
    Level.VALUES: (values,),
    Level.QUANTIZED: (quantized, quantized_by_hand),
    Level.FLOAT16: (float16,),
    Level.GRAPHS: (graphs, optimizations),
}


@cache
def cases(level: Level) -> tuple[Case, ...]:
    """Return the cases of a level in a stable order; none for a level that is code.

    Cached, as making them is slow.
    """
    return tuple(chain.from_iterable(make() for make in _LEVELS.get(level, ())))
