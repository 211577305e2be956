"""Runs of this process that have not ended."""

import gc

from nnrt_client.run.run import Run


def runs_left() -> list[Run]:
    """Return all runs in this process that are still registered as in flight."""
    return [each for each in gc.get_objects() if isinstance(each, Run) and each in each.registry]
