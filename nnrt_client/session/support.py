"""The question to a device which of a model's operators it runs."""

from typing import Any, Protocol

from nnrt_client.settings import Settings
from nnrt_hdi import wire
from nnrt_hdi.backend import Support
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.graph import Graph
from nnrt_hdi.v2 import device_pb2


class Caller(Protocol):
    """A session, or a build that has one."""

    @property
    def settings(self) -> Settings:
        """Bounds of the session."""

    def call(self, name: str, request: Any, timeout_s: float) -> Any:
        """Make one RPC with one reply."""


def ask_supported(caller: Caller, graph: Graph) -> list[Support]:
    """Ask, per node, whether the device runs it. Sends no weights.

    Raises OperationFailed for another number of answers.
    """
    reply = caller.call(
        "NnrtDevice.GetSupportedOperation",
        device_pb2.GetSupportedOperationRequest(model=wire.model_message(graph)),
        caller.settings.request_timeout_s,
    )
    answers = wire.supports(reply)
    if len(answers) != len(graph.nodes):
        raise OperationFailed(f"the device gave {len(answers)} answers about {len(graph.nodes)} nodes")
    return answers
