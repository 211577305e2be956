"""Runs of one bucket that have come on several connections of the local socket."""

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from nnrt_device_service.device import Device
from nnrt_device_service.runs.batches import batches_of
from nnrt_device_service.runs.run import Run
from nnrt_device_service.scheduling.joinable import Bucket
from nnrt_device_service.transport.local.served import HandOver, Served
from nnrt_hdi.batching import Batching


@runtime_checkable
class Joins(Served, Protocol):
    """A connection whose runs are joined with those of others."""

    def begin_joined(self) -> Sequence[Run]:
        """Begin the runs that are to be joined, and give those that could."""

    def end_joined(self, tried: Collection[Run] = ()) -> bool:
        """Answer those of the runs that have been tried together, and those that could not begin; whether the
        connection goes on."""


class LocalBatch:
    """Answers the runs of one bucket together. See `Joint`."""

    def __init__(self, device: Device, batching: Batching) -> None:
        self._executing = device.executing
        self._scheduler = device.scheduler
        self._batching = batching

    def answer(self, connections: Sequence[Served], hand_over: HandOver) -> Collection[Served]:
        ours = [connection for connection in connections if isinstance(connection, Joins)]  # All of them.
        waiting = {run: connection for connection in ours for run in connection.begin_joined()}
        ended = dict.fromkeys([connection for connection in ours if not connection.end_joined()])
        for batch in batches_of(list(waiting), self._batching.max_size):
            hand_over(self._usual_ns(batch))
            self._executing.execute_together(batch)
            # Those first that have been computed: the others are now, one after another.
            for connection in dict.fromkeys(waiting[run] for run in sorted(batch, key=lambda run: not run.has_ended)):
                if not connection.end_joined(batch):
                    ended[connection] = None
        return ended

    def _usual_ns(self, runs: Sequence[Run]) -> int | None:
        """Give each run's share of the time that all usually take; None where they may have to wait."""
        usual_ns = runs[0].usual_ns
        may_wait = self._batching.max_delay_us or not self._scheduler.has_free_slot
        return None if may_wait or usual_ns is None else usual_ns // len(runs)


class Joints:
    """Finds what answers the runs of a bucket."""

    def __init__(self, device: Device) -> None:
        self._device = device
        # They live as long as the bucket.
        self._batches: WeakKeyDictionary[Bucket, LocalBatch] = WeakKeyDictionary()

    def of(self, bucket: Bucket) -> LocalBatch:
        """Find what answers the runs of this bucket."""
        return self._batches.setdefault(bucket, LocalBatch(self._device, bucket.batching))
