"""One client's session: it owns what the client made and frees it when the client goes."""

import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count

from nnrt_device_service.access.counters import Usage
from nnrt_device_service.access.identity import ANYBODY, Identity
from nnrt_device_service.host.peer import Peer
from nnrt_device_service.host.steps import take_each
from nnrt_device_service.memory.buffers import BufferPool
from nnrt_device_service.memory.chunked_inputs import ChunkedInputs
from nnrt_device_service.memory.constants import ConstantPool
from nnrt_device_service.memory.freeing import Freeing
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.memory.shared_files import FilePool
from nnrt_device_service.scheduling.flows import Account
from nnrt_device_service.sessions.calls import Calls
from nnrt_device_service.sessions.descriptions import Descriptions
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.run_registry import RunRegistry
from nnrt_device_service.settings import LimitReached, Settings
from nnrt_hdi.backend import Cancellation, Origin, PreparedModel
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import OperationForbidden, UnavailableDevice, UnknownHandle
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import TensorSpec

_log = logging.getLogger(__name__)

# What of a session holds bytes, as metrics name it.
HELD_KINDS = ("buffers", "constants", "models", "replies")
_LABEL_LENGTH = 8

# Models that a session may build at a time without any being checked twice.
_MOST_CHECKED = 4
# Of the compilations that were given up, the latest so many are remembered, for they may still end.
_REMEMBERED_REQUESTS = 1024


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model in a session, ready to run."""

    model_id: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    origin: Origin
    # As in CheckedModel.
    notes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A graph that the device runs, and the notes of its nodes with how many have each."""

    graph: Graph
    notes: Mapping[str, int]


class Session:
    """Models, buffers, uploads and runs of one client."""

    # Of runs, and of compilations. Given when the client has said whose it is; no call can name the session before.
    account: Account
    compilations: Account

    def __init__(
        self,
        settings: Settings,
        client: str,
        freeing: Freeing,
        held: MemoryBudget | None = None,
        identity: Identity = ANYBODY,
        usage: Usage | None = None,
    ) -> None:
        """`freeing` closes its models, `held` bounds what all sessions hold together, `usage` counts what those of the
        identity do."""
        self.id = secrets.token_bytes(16)
        # What it is called where its id, which is a secret, must not stand: too little of it to guess the rest.
        self.label = self.id.hex()[:_LABEL_LENGTH]
        # Called with it and the cause when it ends.
        self.on_end: Callable[[Session, str], object] = lambda session, cause: None
        # Called when it has ended.
        self.on_closed: Callable[[], object] = lambda: None
        self.client = client
        self.usage = usage or Usage()
        # Settled when its client opens or resumes it.
        self.identity = identity
        # Whether its client asks for that; what it sends compressed is taken in any case.
        self.wants_compression = False
        # The process at the other end of the local socket, once it has attached itself.
        self.local_peer: Peer | None = None
        self.last_heard = time.monotonic()
        self.budget = MemoryBudget(settings.session_bytes, held)
        self.constants = ConstantPool(self.budget)
        self.buffers = BufferPool(self.budget, settings.session_buffers)
        self.files = FilePool(self.budget)
        self.chunked_inputs = ChunkedInputs(self.budget)
        self.runs = RunRegistry(self.budget)
        self.descriptions = Descriptions(self.budget)
        self._settings = settings
        self._freeing = freeing
        self._lock = threading.Lock()
        # Whether anything may begin in it, and whether it has been freed.
        self.is_open = True
        self._is_closed = False
        self._model_ids = count(1)
        # By their ids, to look one up; `add_model` and `release_model` change it.
        self.models: dict[int, LoadedModel] = {}
        # What they take besides uploaded constants.
        self._model_bytes = 0
        self.prepared_by: dict[bytes, Prepared] = {}
        self._given_up: dict[bytes, None] = {}
        # The latest models that were found sound and lack constants, by the digests they were asked for by.
        self._checked: OrderedDict[bytes, CheckedModel] = OrderedDict()
        # Of the runs and compilations under way, which end with the session: whoever adds one looks at `is_open`
        # afterwards.
        self.cancellations: set[Cancellation] = set()
        self.calls = Calls(settings)

    @property
    def names(self) -> dict[str, object]:
        """What lines of the log call it, and whose it is."""
        return {"session": self.label, "identity": str(self.identity)}

    def attach(self, peer: Peer) -> None:
        """The process that the session's local socket leads to.

        Raises OperationForbidden for another one later, and for another user's than the session's.
        """
        with self._lock:
            if self.identity.user_id not in (None, peer.user_id):
                raise OperationForbidden(f"the session is of user {self.identity.user_id}, not of {peer.user_id}")
            if self.local_peer not in (None, peer):
                raise OperationForbidden("another process is attached to this session's local socket")
            self.local_peer = peer

    def held_by_kind(self) -> dict[str, int]:
        """The bytes of its budget that are in use, as far as something of a kind holds them."""
        models = self._model_bytes + self.descriptions.held_bytes
        sizes = (self.buffers.held_bytes, self.constants.held_bytes, models, self.runs.held_bytes)
        return dict(zip(HELD_KINDS, sizes, strict=True))

    def touch(self) -> None:
        """The client has given a sign of life."""
        self.last_heard = time.monotonic()

    # ---- models

    def add_model(
        self,
        prepared: PreparedModel,
        on_closed: Callable[[], object],
        priority: Priority = Priority.NONE,
        size_bytes: int = 0,
        is_signable: bool = False,
    ) -> int:
        """Own a prepared model, made of so many bytes; its id. Raises OutOfMemory beyond the limit, UnavailableDevice
        after the end."""
        loaded = LoadedModel(prepared, self._freeing, on_closed, priority, size_bytes, is_signable)
        try:
            with self._lock:
                self._require_open()
                if len(self.models) >= self._settings.session_models:
                    raise LimitReached(
                        f"this session has {len(self.models)} prepared models, its limit;"
                        " release one, or raise the daemon's --session-models",
                        "--session-models",
                    )
                model_id = next(self._model_ids)
                self.models[model_id] = loaded
        except BaseException:
            loaded.release()
            raise
        return model_id

    def discard(self, prepared: PreparedModel, undo: ExitStack) -> None:
        """Close a model that nobody gets, and only then undo what was done for it."""
        with self._freeing.awaited():
            LoadedModel(prepared, self._freeing, undo.pop_all().close).release()

    def hold_for_model(self, size_bytes: int, undo: ExitStack) -> None:
        """Count the bytes that a model takes besides uploaded constants, until `undo`. Raises OutOfMemory."""
        self.budget.reserve(size_bytes)
        undo.callback(self._let_go_of_model, size_bytes)
        with self._lock:
            self._model_bytes += size_bytes

    def _let_go_of_model(self, size_bytes: int) -> None:
        self.budget.release(size_bytes)
        with self._lock:
            self._model_bytes -= size_bytes

    def model(self, model_id: int) -> LoadedModel:
        """The model of an id. Raises UnknownHandle."""
        if (loaded := self.models.get(model_id)) is None:
            raise UnknownHandle(f"this session has no model {model_id}")
        return loaded

    def keep_checked(self, digest: bytes, checked: CheckedModel) -> None:
        """Keep a model that was found sound until its client has sent the constants and asks again."""
        with self._lock:
            self._checked[digest] = checked
            if len(self._checked) > _MOST_CHECKED:
                self._checked.popitem(last=False)

    def take_checked(self, digest: bytes) -> CheckedModel | None:
        """Give, and forget, the model of this digest that was found sound."""
        with self._lock:
            return self._checked.pop(digest, None)

    def release_model(self, model_id: int) -> None:
        """Forget a model, if it exists."""
        with self._lock:
            loaded = self.models.pop(model_id, None)
            self.prepared_by = {key: made for key, made in self.prepared_by.items() if made.model_id != model_id}
        if loaded:
            loaded.release()
            self.descriptions.forget(loaded)
            self.buffers.release_all_of(model_id)

    def adopt_exported(self, model_id: int, parts: Sequence[memoryview]) -> list[int]:
        """Buffers that hold what a model exported, at most as long as the session holds the model."""
        buffer_ids = self.buffers.adopt_all(parts, owner=model_id)
        if model_id not in self.models:
            self.buffers.release_all_of(model_id)
            raise UnknownHandle("the model has been released")
        return buffer_ids

    def release_buffer(self, buffer_id: int) -> None:
        """Forget a buffer or a file, if it exists."""
        self.buffers.release(buffer_id)
        self.files.release(buffer_id)

    def remember(self, request_id: bytes, made: Prepared) -> None:
        """Which compilation made a model, for a client that asks again because it lost the answer, or gives it up."""
        with self._lock:
            if request_id and made.model_id in self.models:
                self.prepared_by[request_id] = made
            is_given_up = request_id in self._given_up
        if is_given_up:
            self.release_model(made.model_id)

    def give_up(self, request_id: bytes) -> None:
        """Release what a compilation has made, or is about to make."""
        with self._lock:
            made = self.prepared_by.get(request_id)
            self._given_up[request_id] = None
            while len(self._given_up) > _REMEMBERED_REQUESTS:
                del self._given_up[next(iter(self._given_up))]
        if made:
            self.release_model(made.model_id)

    # ---- its end

    def end(self) -> None:
        """Let nothing more begin, end the calls and connections under way, and cancel the runs; waits for nothing.
        Idempotent."""
        with self._lock:
            self.is_open = False
        endings = self.calls.break_off(for_good=True)
        # Calls first: to its client a run cut off is a death, not a run that the device cancelled.
        cancels = [cancellation.cancel for cancellation in list(self.cancellations)]
        take_each((*endings, *cancels), f"ending the session of client {self.client}")

    def close(self, cause: str = "closed") -> None:
        """Free everything; what is the backend's, soon. Runs in flight are cancelled; what they use is freed when they
        end. Idempotent.

        Raises nothing: what goes wrong is logged, and the rest is freed.
        """
        self.end()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            models, self.models = self.models, {}
        steps: tuple[Callable[[], object], ...] = (
            partial(self.on_end, self, cause),
            self.on_closed,
            self.runs.close,
            *(loaded.release for loaded in models.values()),
            self.descriptions.close,
            self.buffers.close,
            self.files.close,
            self.constants.clear,
            self.budget.close,
        )
        take_each(steps, f"ending the session of client {self.client}")

    def _require_open(self) -> None:
        if not self.is_open:
            raise UnavailableDevice("the session has ended")
