"""What clients ask to have made, and what their sessions hold then: parts of models, and models."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from nnrt_device_service.memory.constants import MissingConstants
from nnrt_device_service.memory.device_memory import DevicePlace
from nnrt_device_service.models.compilations import Progress
from nnrt_device_service.sessions.session import Prepared, Session
from nnrt_hdi.backend import ModelConfig, Origin, PreparedModel
from nnrt_hdi.batching import Batching
from nnrt_hdi.files.store_directory import Recipe
from nnrt_hdi.graph import Constant, Graph
from nnrt_hdi.part import Part

Buffers = Sequence[Constant | bytes | memoryview | DevicePlace]
# What becomes of a request: a model, or what its client is to upload first.
Outcome = Prepared | MissingConstants
# About nodes of a model, and how many have each.
Notes = Mapping[str, int]


class Request(Protocol):
    """What a client asks to have compiled, as far as the store must know it."""

    @property
    def digest(self) -> bytes:
        """SHA-256 of all that decides what is compiled."""

    def named_constants(self) -> Sequence[Constant]:
        """The constants that are to be uploaded. Asked only for what has been compiled before."""


class ModelRequest(Request, Protocol):
    """A model as a client asks for it. What the store has needs neither the graph nor its checks."""

    def graph(self) -> Graph:
        """The graph, without the data of those constants that are to be uploaded."""


@dataclass(frozen=True, slots=True)
class Program:
    """A model file in a format of the device's own, as a client asks for it."""

    format: str
    buffers: Sequence[Constant | bytes]

    @property
    def digest(self) -> bytes:
        """SHA-256 of the format and of every buffer."""
        digests = [entry.sha256 if isinstance(entry, Constant) else sha256(entry).digest() for entry in self.buffers]
        return sha256(b"\0".join((b"program", self.format.encode(), b"".join(digests)))).digest()

    def named_constants(self) -> Sequence[Constant]:
        """The buffers that are to be uploaded."""
        return [entry for entry in self.buffers if isinstance(entry, Constant)]


@dataclass(frozen=True, slots=True)
class Build:
    """The making of a model: whose it is, how it is to be, and who learns how far it is; what the store knows it by."""

    session: Session
    config: ModelConfig
    progress: Progress
    # With which runs of others its runs are to be computed.
    batching: Batching | None = None
    request: Request | None = None
    recipe: Recipe | None = None
    # How many compilations had ended before the store was asked.
    ended: int = 0

    @property
    def is_signable(self) -> bool:
        """Whether what is compiled follows from NNRt's operators alone. A program is code of who brings it."""
        return self.request is not None and not isinstance(self.request, Program)

    def add(
        self, prepared: PreparedModel, origin: Origin, undo: ExitStack, size_bytes: int, is_signable: bool, notes: Notes
    ) -> Prepared:
        """Give a model to the session, with what to undo when the model is closed: at once where it isn't taken."""
        if prepared.kept_bytes:
            try:
                self.session.hold_for_model(prepared.kept_bytes, undo)
            except BaseException:
                self.session.discard(prepared, undo)
                raise
        on_closed = undo.pop_all().close
        model_id = self.session.add_model(prepared, on_closed, self.config.priority, size_bytes, is_signable)
        self.session.usage.count_model(origin.name)
        return Prepared(model_id, prepared.inputs, prepared.outputs, origin, notes)


def reserved_parts(
    session: Session, buffers: Buffers, undo: ExitStack, *, is_checked: bool = True
) -> list[Part] | MissingConstants:
    """The buffers as parts, kept in the session until `undo`; or what of them isn't here."""
    named = [buffer for buffer in buffers if isinstance(buffer, Constant)]
    # Each may name the same gigabyte, so the copies count.
    copied_bytes = sum(len(buffer) for buffer in buffers if not isinstance(buffer, Constant))
    held = session.constants.hold_all(named, is_checked=is_checked)
    if isinstance(held, MissingConstants):
        return held
    undo.callback(session.constants.release, [constant.sha256 for constant in named])
    session.hold_for_model(copied_bytes, undo)
    return [
        Part(held[buffer.sha256].data, buffer.sha256) if isinstance(buffer, Constant) else Part.of(bytes(buffer))
        for buffer in buffers
    ]
