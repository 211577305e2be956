"""Query of the operators of a model that a device supports."""

from typing import Any, Protocol

from nnrt_client.settings import Settings
from nnrt_hdi import wire
from nnrt_hdi.backend import Support
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.graph import Graph
from nnrt_hdi.v2 import device_pb2


class Caller(Protocol):
    """Session, or build with a session, that makes RPCs."""

    @property
    def settings(self) -> Settings:
        """Settings of the session."""

    def call(self, name: str, request: Any, timeout_s: float) -> Any:
        """Make one RPC and return its reply."""


def ask_supported(caller: Caller, graph: Graph) -> list[Support]:
    """Ask the device which nodes of a graph it supports, without sending weights. Return one answer per node.

    Raises OperationFailed if the number of answers is wrong.
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
