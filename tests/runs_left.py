"""The runs of this process that have not ended."""

import gc
from typing import Any

from nnrt_client.model_session.partition.partitioned_run import PartitionedRun
from nnrt_client.pool.pooled_run import PooledRun
from nnrt_client.run.run import Run


def runs_left() -> list[Any]:
    """Find the runs, of one executor or of several, that somebody still keeps as under way."""
    return [each for each in gc.get_objects() if _is_left(each)]


def _is_left(each: object) -> bool:
    match each:
        case Run():
            return each in each.registry
        case PartitionedRun() | PooledRun():
            return not each.ended.is_set
    return False
