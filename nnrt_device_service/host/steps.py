"""Sequence of steps that continues after a failed step."""

import logging
from collections.abc import Callable, Iterable

_log = logging.getLogger(__name__)


def take_each(steps: Iterable[Callable[[], object]], doing: str) -> None:
    """Call all steps in order and log the exceptions they raise. `doing` names the sequence in the log."""
    for step in steps:
        try:
            step()
        except Exception:
            _log.exception("a step of %s failed; the others are taken all the same", doing)
