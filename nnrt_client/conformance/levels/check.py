"""Trials that are code: what a daemon has to do besides giving right answers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nnrt_client.conformance.case import Level
from nnrt_client.conformance.outcome import RIGHT, Outcome, Verdict, failure, said
from nnrt_client.conformance.target import Broken, Target
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import NnrtError


class NotOffered(Exception):
    """There is nothing to check: the device doesn't offer it, which the message says."""


@dataclass(frozen=True, slots=True)
class Check:
    """A trial that is a function: it returns where all is well, and raises Broken or NotOffered."""

    level: Level
    name: str
    function: Callable[[Target], None]
    node_types: tuple[NodeType, ...] = ()
    data_type: DataType | None = None
    family: str = ""
    is_quick: bool = True

    def tried(self, target: Target) -> Outcome:
        """Try it. An error that the function doesn't expect is a failure of the daemon's."""
        try:
            self.function(target)
        except NotOffered as reason:
            return Outcome(Verdict.REFUSED, str(reason))
        except Broken as broken:
            return Outcome(Verdict.WRONG, str(broken))
        except NnrtError as error:
            return failure(error)
        return RIGHT


def checks_of(level: Level, *functions: Callable[[Target], None]) -> list[Check]:
    """The checks of a level, named as their functions are."""
    return [Check(level, f"{level.value}/{function.__name__}", function) for function in functions]


def require(is_so: object, what: str) -> None:
    """Raise Broken with these words unless it is so."""
    if not is_so:
        raise Broken(what)


@contextmanager
def refused(what: str, *kinds: type[NnrtError]) -> Iterator[None]:
    """Raise Broken unless the block raises one of these errors, with a message."""
    wanted = " or ".join(kind.code.name for kind in kinds)
    try:
        yield
    except kinds as error:
        require(error.message, f"{what} is refused with {error.code.name} and no message; say what would be right")
        return
    except NnrtError as error:
        raise Broken(f"{what} is refused with {said(error)}; it is to be refused with {wanted}") from error
    raise Broken(f"{what} is taken; it is to be refused with {wanted}")
