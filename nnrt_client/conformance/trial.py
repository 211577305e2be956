"""Trials that the kit runs on a device, one after another."""

from typing import Protocol

from nnrt_client.conformance.case import Level
from nnrt_client.conformance.outcome import Outcome
from nnrt_client.conformance.target import Target
from nnrt_hdi.enums import DataType, NodeType


class Trial(Protocol):
    """Case with its answers, or a check. The name begins with the level."""

    @property
    def name(self) -> str: ...

    @property
    def level(self) -> Level: ...

    @property
    def family(self) -> str: ...

    @property
    def node_types(self) -> tuple[NodeType, ...]: ...

    @property
    def data_type(self) -> DataType | None:
        """Data type that the trial tests, if any."""

    @property
    def is_quick(self) -> bool:
        """True if `--quick` includes the trial."""

    def run(self, target: Target) -> Outcome:
        """Run the trial in sessions of its own. Raises NnrtError if the daemon has ended."""
