"""Batches of runs that came on several connections of the local socket."""

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from nnrt_device_service.device import Device
from nnrt_device_service.runs.batches import cut_batches
from nnrt_device_service.runs.run import Run
from nnrt_device_service.scheduling.joinable import Bucket
from nnrt_device_service.transport.local.served import HandOver, ServedConnection
from nnrt_hdi.batching import Batching


@runtime_checkable
class JoiningConnection(ServedConnection, Protocol):
    """Connection whose runs can be computed together with those of other connections."""

    def begin_joined(self) -> Sequence[Run]:
        """Begin the runs that are to join a batch, and return those without an error."""

    def end_joined(self, tried: Collection[Run] = ()) -> bool:
        """Answer the runs in `tried`, which a batch has tried, and those that failed to begin.

        Returns whether the connection goes on.
        """


class LocalBatcher:
    """Batcher of the runs of one bucket. See `Batcher`."""

    def __init__(self, device: Device, batching: Batching) -> None:
        self._executing = device.executing
        self._scheduler = device.scheduler
        self._batching = batching

    def answer(self, connections: Sequence[ServedConnection], hand_over: HandOver) -> Collection[ServedConnection]:
        ours = [connection for connection in connections if isinstance(connection, JoiningConnection)]
        waiting = {run: connection for connection in ours for run in connection.begin_joined()}
        ended = dict.fromkeys([connection for connection in ours if not connection.end_joined()])
        for batch in cut_batches(list(waiting), self._batching.max_size):
            hand_over(self._usual_ns(batch))
            self._executing.execute_together(batch)
            # Connections with computed runs come first: `end_joined` computes the other runs one after another.
            for connection in dict.fromkeys(waiting[run] for run in sorted(batch, key=lambda run: not run.has_ended)):
                if not connection.end_joined(batch):
                    ended[connection] = None
        return ended

    def _usual_ns(self, runs: Sequence[Run]) -> int | None:
        """Return the usual time per run of a batch, or None if the runs may have to wait.

        The batch is taken to last as long as one run usually does.
        """
        usual_ns = runs[0].usual_ns
        may_wait = self._batching.max_delay_us or not self._scheduler.has_free_slot
        return None if may_wait or usual_ns is None else usual_ns // len(runs)


class LocalBatchers:
    """Batchers of all buckets, made when first needed."""

    def __init__(self, device: Device) -> None:
        self._device = device
        # A batcher lives as long as its bucket.
        self._batches: WeakKeyDictionary[Bucket, LocalBatcher] = WeakKeyDictionary()

    def find(self, bucket: Bucket) -> LocalBatcher:
        """Return the batcher of a bucket, a new one if there is none."""
        return self._batches.setdefault(bucket, LocalBatcher(self._device, bucket.batching))
