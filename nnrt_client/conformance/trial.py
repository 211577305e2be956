"""Trials: what the kit tries on a device, one after another."""

from typing import Protocol

from nnrt_client.conformance.case import Level
from nnrt_client.conformance.outcome import Outcome
from nnrt_client.conformance.target import Target
from nnrt_hdi.enums import DataType, NodeType


class Trial(Protocol):
    """A case with its answers, or a check that is code. The name begins with the level."""

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
        """That which it is about; None where it is about none."""

    @property
    def is_quick(self) -> bool:
        """Tell if `--quick` has it."""

    def tried(self, target: Target) -> Outcome:
        """Try it, in sessions of its own. Raises NnrtError where the daemon is gone."""
