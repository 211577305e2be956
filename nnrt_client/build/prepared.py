"""Models that a daemon has prepared for a client."""

import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, TypeVar

from nnrt_client.build.build_task import BuildTask
from nnrt_client.session.fork import LockOwner
from nnrt_client.session.release import release, release_buffer
from nnrt_client.session.session import Session
from nnrt_client.tensors.device_buffer import joined
from nnrt_hdi import wire
from nnrt_hdi.closable import Closable
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import (
    NnrtError,
    OperationFailed,
    OperationForbidden,
)
from nnrt_hdi.files.compiled import MAX_PARTS
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import TensorSpec
from nnrt_hdi.v2 import prepared_model_pb2

PartT = TypeVar("PartT")


class PreparedHandle(LockOwner):
    """Model that a daemon has prepared for this client.

    It counts its users, such as the compilation and its executors; the last one to release it frees the model.
    """

    def __init__(self, session: Session, info: Any, priority: Priority) -> None:
        self.session = session
        self.priority = priority
        self.model_id: int = info.model_id
        self.origin = wire.origin(info.origin)
        # Notes of the device on the model's nodes (`Support.note`), each with the number of nodes.
        self.notes: Mapping[str, int] = dict(info.notes)
        super().__init__()
        self._users = 1
        self._parts: dict[object, Any] = {}
        try:
            self.inputs: tuple[TensorSpec, ...] = tuple(wire.end_spec(tensor) for tensor in info.inputs)
            self.outputs: tuple[TensorSpec, ...] = tuple(wire.end_spec(tensor) for tensor in info.outputs)
        except NnrtError:
            self.release()
            raise

    def _make_locks(self) -> None:
        self._lock = threading.RLock()

    def retain(self) -> "PreparedHandle":
        """Add a user and return the handle; raise OperationForbidden after the last user has released it."""
        with self._lock:
            if not self._users:
                raise OperationForbidden("the compilation is closed; make a new one")
            self._users += 1
        return self

    def part(self, make: Callable[[Session], PartT]) -> PartT:
        """Return the object that `make` makes on first use; the handle keeps it for all executors of the model.

        If it is a Closable, the handle closes it in the end.
        """
        with self._lock:
            if make not in self._parts:
                self._parts[make] = make(self.session)
            return self._parts[make]  # type: ignore[no-any-return]  # `make` returned it.

    def release(self) -> None:
        """Remove a user; after the last one, ask the daemon to release the model.

        A daemon that is gone has released it already.
        """
        with self._lock:
            self._users -= 1
            if self._users:
                return
        for part in self._parts.values():
            if isinstance(part, Closable):
                part.close()
        release(self.session, "PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=self.model_id))

    def export(self, build: BuildTask) -> list[Part]:
        """Fetch the parts of the compiled model, from which the device can restore it."""
        build.progress("storing", 0.0)
        reply = build.call(
            "PreparedModel.ExportModelCache",
            prepared_model_pb2.ExportModelCacheRequest(model_id=self.model_id),
            build.remaining_s(),
        )
        buffers = list(reply.buffers)
        try:
            return self._read_all(build, buffers)
        finally:
            for buffer_id in {buffer.region.buffer_id for buffer in buffers if buffer.HasField("region")}:
                release_buffer(self.session, buffer_id)

    def _read_all(self, build: BuildTask, buffers: list[Any]) -> list[Part]:
        if not 1 <= len(buffers) <= MAX_PARTS:
            place = build.session.place
            raise OperationFailed(f"it exports {len(buffers)} parts; a compiled model has 1..{MAX_PARTS}", place=place)
        parts = []
        for number, buffer in enumerate(buffers):
            parts.append(Part.of(_read(build, buffer.region) if buffer.HasField("region") else buffer.inline))
            # The rest of the stage is writing the file.
            build.progress("storing", (number + 1) / (len(buffers) + 1))
        return parts


def _read(build: BuildTask, region: Any) -> bytearray:
    with closing(build.stream("NnrtDevice.ReadBuffer", region)) as chunks:
        return joined(chunks, region, build.session.place)
