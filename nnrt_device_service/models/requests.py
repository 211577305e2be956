"""Requests of clients for models, and the reserving of their parts in sessions."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from nnrt_device_service.memory.constants import MissingConstants
from nnrt_device_service.memory.device_memory import DeviceRange
from nnrt_device_service.models.compilations import Progress
from nnrt_device_service.sessions.session import Prepared, Session
from nnrt_device_service.sessions.shared_model import SharedModel
from nnrt_hdi.backend import ModelConfig, Origin, PreparedModel
from nnrt_hdi.batching import Batching
from nnrt_hdi.files.store_directory import Recipe
from nnrt_hdi.graph import Constant, Graph
from nnrt_hdi.part import Part

Buffers = Sequence[Constant | bytes | memoryview | DeviceRange]
# Outcome of a request: a model, or the constants that the client must upload first.
Outcome = Prepared | MissingConstants
# Notes about nodes of a model, with the number of nodes.
Notes = Mapping[str, int]


class Request(Protocol):
    """Client's request for a compiled model, as far as the store must know it."""

    @property
    def digest(self) -> bytes:
        """SHA-256 of everything in the request that decides what is compiled."""

    def named_constants(self) -> Sequence[Constant]:
        """Return the constants that clients upload. Called only for models in the store."""


class ModelRequest(Request, Protocol):
    """Client's request for a model of operators. A model in the store needs neither the graph nor its checks."""

    def graph(self) -> Graph:
        """Return the graph, without the data of constants that clients upload."""


@dataclass(frozen=True, slots=True)
class Program:
    """Client's request for a program: a model file in the device's own format."""

    format: str
    buffers: Sequence[Constant | bytes]

    @property
    def digest(self) -> bytes:
        """SHA-256 of the format and all buffers."""
        digests = [entry.sha256 if isinstance(entry, Constant) else sha256(entry).digest() for entry in self.buffers]
        return sha256(b"\0".join((b"program", self.format.encode(), b"".join(digests)))).digest()

    def named_constants(self) -> Sequence[Constant]:
        """Return the buffers that clients upload."""
        return [entry for entry in self.buffers if isinstance(entry, Constant)]


@dataclass(frozen=True, slots=True)
class Build:
    """Parameters of making one model: session, config, progress reports, batching and the store's recipe."""

    session: Session
    config: ModelConfig
    progress: Progress
    # Batching that the client asks for.
    batching: Batching | None = None
    request: Request | None = None
    recipe: Recipe | None = None

    @property
    def is_signable(self) -> bool:
        """True if the model is made of NNRt's operators only. A program is code from the client."""
        return self.request is not None and not isinstance(self.request, Program)

    def add_made(
        self,
        prepared: PreparedModel,
        origin: Origin,
        publish: Callable[[SharedModel], object],
        undo: ExitStack,
        size_bytes: int,
        notes: Notes,
        *,
        is_signed: bool = False,
        uploads: Sequence[bytes] = (),
        is_stored: bool = False,
    ) -> Prepared:
        """Add a model that this build has made of `size_bytes` bytes, as `add`, after `publish` has shared it.

        `is_signed`: the model was restored from a cache that this daemon has signed as made of NNRt's operators.
        `uploads`: digests of constants of the session that the model may use. `is_stored`: it came from the store.

        Closes the model and raises OutOfMemory if the session has no memory for what the model keeps of runs.
        """
        try:
            if prepared.kept_bytes:
                self.session.reserve_for_model(prepared.kept_bytes, undo)
            is_signable = self.is_signable or is_signed
            whole = self.session.budget.root
            model = SharedModel(prepared, self.config, size_bytes, notes, is_signable, whole, uploads)
        except BaseException:
            self.session.discard(prepared.close, undo)
            raise
        publish(model)
        try:
            return self.add(model, origin, undo)
        finally:
            if is_stored:  # Last: a model that left before the session counts it would count as if it were there.
                model.recipe = self.recipe

    def add(self, model: SharedModel, origin: Origin, undo: ExitStack) -> Prepared:
        """Add a model, which the caller holds, to the session and return its description.

        When the session closes the model, or at once if it has no memory for it, it stops holding the model, and calls
        `undo` if it has not the same model under another id.
        """
        session, prepared = self.session, model.prepared
        if origin is not Origin.SHARED:
            model.use(session, undo, made_it=True)
        elif not model.join(session):
            try:  # The model counts in the budget of all sessions already.
                session.budget.reserve(model.held_bytes, is_shared=True)
            except BaseException:
                session.discard(model.release, undo)
                raise
            undo.callback(session.budget.release, model.held_bytes, is_shared=True)
            model.use(session, undo)
        model_id = session.add_model(model, self.config.priority)
        session.usage.count_model(origin.name)
        return Prepared(model_id, prepared.inputs, prepared.outputs, origin, model.notes)


def reserved_parts(
    session: Session, buffers: Buffers, undo: ExitStack, *, is_checked: bool = True
) -> list[Part] | MissingConstants:
    """Return the buffers as parts that the session keeps until `undo`, or the constants that are missing."""
    named = [buffer for buffer in buffers if isinstance(buffer, Constant)]
    # Count the copies: many buffers may name the same memory.
    copied_bytes = sum(len(buffer) for buffer in buffers if not isinstance(buffer, Constant))
    found = session.constants.acquire_all(named, is_checked=is_checked)
    if isinstance(found, MissingConstants):
        return found
    undo.callback(session.constants.release, [constant.sha256 for constant in named])
    session.reserve_for_model(copied_bytes, undo)
    return [
        Part(found[buffer.sha256].data, buffer.sha256) if isinstance(buffer, Constant) else Part.of(bytes(buffer))
        for buffer in buffers
    ]
