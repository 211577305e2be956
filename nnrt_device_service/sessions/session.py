"""Session of one client: owns the objects that the client made, and frees them when the session ends."""

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
from nnrt_device_service.sessions.payers import ServedIdentities
from nnrt_device_service.sessions.run_registry import RunRegistry
from nnrt_device_service.sessions.sequences import Sequences
from nnrt_device_service.sessions.shared_model import SharedModel
from nnrt_device_service.settings import LimitReached, Settings
from nnrt_hdi.access.identity import ANYBODY, Identity
from nnrt_hdi.backend import Cancellation, Origin
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import OperationForbidden, UnavailableDevice, UnknownHandle
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import TensorSpec

_log = logging.getLogger(__name__)

# Kinds of memory that sessions use, as metrics name them.
MEMORY_KINDS = ("buffers", "constants", "models", "replies", "sequences")
_LABEL_LENGTH = 8

# Most checked models that a session keeps until their missing constants arrive.
_MOST_CHECKED = 4
# Number of latest given-up compilations that are remembered, because they may still end.
_REMEMBERED_REQUESTS = 1024


@dataclass(frozen=True, slots=True)
class Prepared:
    """Reply to a client about a model that is ready to run."""

    model_id: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    origin: Origin
    # Number of nodes for each note, as in CheckedModel.
    notes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """Graph that the device can run, and the device's notes (`Support.note`) with the number of nodes for each."""

    graph: Graph
    notes: Mapping[str, int]


class Session:
    """Session of one client, with its models, buffers, uploads and runs."""

    # Accounts of its runs and of its compilations. `Device.open_account` sets them when the client has named its user;
    # before that no call can name the session.
    account: Account
    compilations: Account
    # Identities on whose behalf its client runs models. Set with the accounts.
    served: ServedIdentities

    def __init__(
        self,
        settings: Settings,
        client: str,
        freeing: Freeing,
        whole_budget: MemoryBudget | None = None,
        identity: Identity = ANYBODY,
        usage: Usage | None = None,
    ) -> None:
        """Make a session.

        `freeing` closes its models. `whole_budget` is the budget of the identity's sessions, `usage` their counters.
        """
        self.id = secrets.token_bytes(16)
        # Name in logs. The id is a secret; these few digits are too few to guess the rest.
        self.label = self.id.hex()[:_LABEL_LENGTH]
        # Called with the session and the cause when it ends.
        self.on_end: Callable[[Session, str], object] = lambda session, cause: None
        # Called when the session has ended.
        self.on_closed: Callable[[], object] = lambda: None
        self.client = client
        self.usage = usage or Usage()
        # Set anew when the client resumes the session.
        self.identity = identity
        # Whether the client asks for compressed replies. What it sends compressed is accepted in any case.
        self.wants_compression = False
        # Process at the other end of the local socket, once it has attached itself.
        self.local_peer: Peer | None = None
        self.last_heard = time.monotonic()
        self.budget = MemoryBudget(settings.session_bytes, whole_budget)
        self.constants = ConstantPool(self.budget, settings.store_dir)
        self.buffers = BufferPool(self.budget, settings.session_buffers)
        self.files = FilePool(self.budget)
        self.chunked_inputs = ChunkedInputs(self.budget)
        self.runs = RunRegistry(self.budget)
        self.descriptions = Descriptions(self.budget)
        self.sequences = Sequences(self.budget)
        self._settings = settings
        self._freeing = freeing
        self._lock = threading.Lock()
        # Whether anything may still begin in the session, and whether `close` has been called.
        self.is_open = True
        self._is_closed = False
        self._model_ids = count(1)
        # By id. To be read only; `add_model` and `release_model` change it.
        self.models: dict[int, LoadedModel] = {}
        # Bytes that models take besides uploaded constants.
        self._model_bytes = 0
        self.prepared_by: dict[bytes, Prepared] = {}
        self._given_up: dict[bytes, None] = {}
        # Latest models that were checked and lack constants, by the digests of their requests.
        self._checked: OrderedDict[bytes, CheckedModel] = OrderedDict()
        # Runs and compilations under way, which end with the session. A thread that adds one must check `is_open`
        # afterwards.
        self.cancellations: set[Cancellation] = set()
        self.calls = Calls(settings)

    @property
    def log_fields(self) -> dict[str, object]:
        """Fields of log entries that name the session and its identity."""
        return {"session": self.label, "identity": str(self.identity)}

    def attach(self, peer: Peer) -> None:
        """Note the process at the other end of the session's local socket.

        Raises OperationForbidden if another process is attached already, or if it belongs to another user.
        """
        with self._lock:
            if self.identity.user_id not in (None, peer.user_id):
                raise OperationForbidden(f"the session is of user {self.identity.user_id}, not of {peer.user_id}")
            if self.local_peer not in (None, peer):
                raise OperationForbidden("another process is attached to this session's local socket")
            self.local_peer = peer

    def bytes_by_kind(self) -> dict[str, int]:
        """Return the bytes of the budget in use, by kind."""
        models = self._model_bytes + self.descriptions.held_bytes
        sizes = (
            self.buffers.held_bytes,
            self.constants.held_bytes,
            models,
            self.runs.held_bytes,
            self.sequences.held_bytes,
        )
        return dict(zip(MEMORY_KINDS, sizes, strict=True))

    def touch(self) -> None:
        """Note that the client gave a sign of life now."""
        self.last_heard = time.monotonic()

    # ---- models

    def add_model(
        self, model: SharedModel, priority: Priority = Priority.NONE, close: Callable[[], object] | None = None
    ) -> int:
        """Take a model that the caller holds, and return its id.

        In the end `close` is called; by default it releases the model. Raises OutOfMemory beyond the limit of models,
        and UnavailableDevice after the end of the session; the model is closed then.
        """
        loaded = LoadedModel(model, self._freeing, close or partial(model.release, self), priority)
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
            loaded.close()
            raise
        return model_id

    def discard(self, close: Callable[[], object], undo: ExitStack | None = None) -> None:
        """Call `close` of a model that is handed to no client, as LoadedModel does, then close `undo`."""
        with self._freeing.await_own():
            self._freeing.expect()
            self._freeing.free("close a model", close, (undo or ExitStack()).pop_all().close)

    def reserve_for_model(self, size_bytes: int, undo: ExitStack) -> None:
        """Reserve a model's bytes besides uploaded constants until `undo` is closed; raise OutOfMemory."""
        self.budget.reserve(size_bytes)
        undo.callback(self._release_model_bytes, size_bytes)
        with self._lock:
            self._model_bytes += size_bytes

    def _release_model_bytes(self, size_bytes: int) -> None:
        self.budget.release(size_bytes)
        with self._lock:
            self._model_bytes -= size_bytes

    def model(self, model_id: int) -> LoadedModel:
        """Return the model of an id; raise UnknownHandle if there is none."""
        if (loaded := self.models.get(model_id)) is None:
            raise UnknownHandle(f"this session has no model {model_id}")
        return loaded

    def keep_checked(self, digest: bytes, checked: CheckedModel) -> None:
        """Keep a checked model until its client has sent the missing constants and asks again."""
        with self._lock:
            self._checked[digest] = checked
            if len(self._checked) > _MOST_CHECKED:
                self._checked.popitem(last=False)

    def take_checked(self, digest: bytes) -> CheckedModel | None:
        """Remove and return the checked model of a digest, or return None."""
        with self._lock:
            return self._checked.pop(digest, None)

    def release_model(self, model_id: int) -> None:
        """Release a model and what belongs to it, if it exists."""
        with self._lock:
            loaded = self.models.pop(model_id, None)
            self.prepared_by = {key: made for key, made in self.prepared_by.items() if made.model_id != model_id}
        if loaded:
            loaded.close()
            self.descriptions.forget(loaded)
            self.buffers.release_all_of(model_id)

    def adopt_exported(self, model_id: int, parts: Sequence[memoryview]) -> list[int]:
        """Make buffers of the parts that a model exported and return their ids. Releasing the model releases them."""
        buffer_ids = self.buffers.adopt_all(parts, owner=model_id)
        if model_id not in self.models:
            self.buffers.release_all_of(model_id)
            raise UnknownHandle("the model has been released")
        return buffer_ids

    def release_buffer(self, buffer_id: int) -> None:
        """Release a buffer or a file, if it exists."""
        self.buffers.release(buffer_id)
        self.files.release(buffer_id)

    def remember(self, request_id: bytes, made: Prepared) -> None:
        """Note which request made a model: its client may repeat a request whose reply was lost, or give it up."""
        with self._lock:
            if request_id and made.model_id in self.models:
                self.prepared_by[request_id] = made
            is_given_up = request_id in self._given_up
        if is_given_up:
            self.release_model(made.model_id)

    def give_up(self, request_id: bytes) -> None:
        """Release the model that the compilation of a request has made, or will make."""
        with self._lock:
            made = self.prepared_by.get(request_id)
            self._given_up[request_id] = None
            while len(self._given_up) > _REMEMBERED_REQUESTS:
                del self._given_up[next(iter(self._given_up))]
        if made:
            self.release_model(made.model_id)

    # ---- its end

    def end(self) -> None:
        """Refuse new work, end calls and connections, and cancel runs and compilations, without waiting.

        Idempotent.
        """
        with self._lock:
            self.is_open = False
        endings = self.calls.break_off(for_good=True)
        # End calls before cancelling runs, so that these runs' clients learn of a lost session, not of a cancellation.
        cancels = [cancellation.cancel for cancellation in list(self.cancellations)]
        take_each((*endings, *cancels), f"ending the session of client {self.client}")

    def close(self, cause: str = "closed") -> None:
        """End the session and free everything that it owns; another thread frees the backend's objects.

        Objects that runs under way use are freed when those runs have ended. Idempotent. Raises nothing: an error is
        logged, and the rest is freed.
        """
        self.end()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._checked.clear()
            models, self.models = self.models, {}
        steps: tuple[Callable[[], object], ...] = (
            partial(self.on_end, self, cause),
            self.on_closed,
            self.runs.close,
            *(loaded.close for loaded in models.values()),
            self.descriptions.close,
            self.sequences.close,
            self.buffers.close,
            self.files.close,
            self.constants.clear,
            self.budget.close,
        )
        take_each(steps, f"ending the session of client {self.client}")

    def _require_open(self) -> None:
        if not self.is_open:
            raise UnavailableDevice("the session has ended")
