"""State of a server, which both of its faces use."""

from dataclasses import dataclass

from nnrt_client.serving.calls import Calls
from nnrt_client.serving.errors import NotReady, UnknownModel
from nnrt_client.serving.inference import Inference
from nnrt_client.serving.intake import Intake
from nnrt_client.serving.repository.repository import Repository
from nnrt_client.serving.shared_memory import SharedMemory

NAME = "nnrt"
# Of shared memory at the end.
EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
    "system_shared_memory",
)


@dataclass(frozen=True, slots=True)
class ServerState:
    """Models, inference, shared memory, intake and calls of a server. Only its loop uses it."""

    repository: Repository
    inference: Inference
    memory: SharedMemory
    intake: Intake
    calls: Calls

    @property
    def extensions(self) -> tuple[str, ...]:
        """Names of the protocol's extensions that the server offers."""
        return EXTENSIONS if self.memory.is_offered else EXTENSIONS[:-1]

    def is_model_ready(self, model: str, version: str) -> bool:
        """Return whether a request for the model would be computed now; also False for an unknown model."""
        try:
            self.require_ready(model, version)
        except (UnknownModel, NotReady):
            return False
        return True

    def require_ready(self, model: str, version: str) -> None:
        """Return if a request for the model would be computed now. Raises UnknownModel, or NotReady with the reason."""
        chosen = self.repository.choose(model, version)
        if not chosen.session.devices:
            raise NotReady("no device has it now", place=chosen.place)
