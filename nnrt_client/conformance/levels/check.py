"""Checks: trials written as functions, for everything that a daemon must do besides computing right answers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nnrt_client.conformance.case import Level
from nnrt_client.conformance.outcome import RIGHT, Outcome, Verdict, outcome_from_error, quote_error
from nnrt_client.conformance.target import Breach, Target
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import NnrtError


class NotOffered(Exception):
    """The device doesn't offer what a check tests; the message says what."""


@dataclass(frozen=True, slots=True)
class Check:
    """Trial that calls a function, which returns on success and raises Breach or NotOffered otherwise."""

    level: Level
    name: str
    function: Callable[[Target], None]
    node_types: tuple[NodeType, ...] = ()
    data_type: DataType | None = None
    family: str = ""
    is_quick: bool = True

    def run(self, target: Target) -> Outcome:
        """Run the function. An unexpected NnrtError is a failure of the daemon."""
        try:
            self.function(target)
        except NotOffered as reason:
            return Outcome(Verdict.REFUSED, str(reason))
        except Breach as broken:
            return Outcome(Verdict.WRONG, str(broken))
        except NnrtError as error:
            return outcome_from_error(error)
        return RIGHT


def make_checks(level: Level, *functions: Callable[[Target], None]) -> list[Check]:
    """Return the checks of a level, named after their functions."""
    return [Check(level, f"{level.value}/{function.__name__}", function) for function in functions]


def require(is_so: object, what: str) -> None:
    """Raise Breach with this message unless the condition holds."""
    if not is_so:
        raise Breach(what)


@contextmanager
def expect_refusal(what: str, *kinds: type[NnrtError]) -> Iterator[None]:
    """Raise Breach unless the block raises one of these errors with a message."""
    wanted = " or ".join(kind.code.name for kind in kinds)
    try:
        yield
    except kinds as error:
        require(error.message, f"{what} is refused with {error.code.name} and no message; say what would be right")
        return
    except NnrtError as error:
        raise Breach(f"{what} is refused with {quote_error(error)}; it is to be refused with {wanted}") from error
    raise Breach(f"{what} is taken; it is to be refused with {wanted}")
