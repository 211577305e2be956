"""Watch of a folder."""

import logging
from collections.abc import Callable
from pathlib import Path

_log = logging.getLogger(__name__)

# Milliseconds for which changes are gathered, at most and in a step.
_GATHER_MS, _STEP_MS = 400, 50


async def watch(folder: Path, on_change: Callable[[], object]) -> None:
    """Call a function soon after each change below a folder, until the task is cancelled.

    It returns where the host can't tell, such as when a user's watches are spent; who calls it looks itself now and
    then, also because no host tells what others change on a file server.
    """
    try:
        from watchfiles import awatch  # Not at the top: an extra.

        async for _ in awatch(folder, watch_filter=None, debounce=_GATHER_MS, step=_STEP_MS):
            on_change()
    except (ImportError, OSError) as error:
        _log.warning("changes of %s can't be watched, and are looked for now and then: %s", folder, error)
