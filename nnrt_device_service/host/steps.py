"""Steps of which each is to be taken, whatever becomes of the others."""

import logging
from collections.abc import Callable, Iterable

_log = logging.getLogger(__name__)


def take_each(steps: Iterable[Callable[[], object]], doing: str) -> None:
    """Take all steps; what one raises is logged."""
    for step in steps:
        try:
            step()
        except Exception:
            _log.exception("a step of %s failed; the others are taken all the same", doing)
