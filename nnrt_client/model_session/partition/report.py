"""Report of a model that was cut into parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nnrt_client.build.build_task import BuildReport


@dataclass(frozen=True, slots=True)
class PartReport:
    """Report of one part of a model: where it runs, what it computes, and why the device doesn't run it."""

    # The device's name; None for a part that runs in the client.
    device: str | None
    # Number of nodes by ONNX operator.
    operators: Mapping[str, int]
    # Names of its nodes.
    nodes: Sequence[str]
    inputs: Sequence[str]
    outputs: Sequence[str]
    # Bytes that go between the client and the device in each run; None if sizes are known only during a run.
    crossing_bytes: int | None
    # Why each node runs in the client.
    reasons: Sequence[str] = ()

    @property
    def node_count(self) -> int:
        """Number of ONNX nodes."""
        return sum(self.operators.values())

    def __str__(self) -> str:
        listed = ", ".join(f"{count} {name}" if count > 1 else name for name, count in self.operators.items())
        crossing = "" if self.crossing_bytes is None else f", {self.crossing_bytes:,} bytes cross"
        where = self.device or "in the client"
        why = "".join(f"\n  {reason}" for reason in dict.fromkeys(self.reasons))
        return f"{where}: {listed or 'constants'}{crossing}{why}"


@dataclass(frozen=True, slots=True)
class PartitionReport(BuildReport):
    """Report of a build in parts: the sum of the builds of the device's parts, and a report of each part.

    `parts` are in the order in which they run.
    """

    parts: Sequence[PartReport] = ()

    def __str__(self) -> str:
        listed = "".join(f"\n{number}. {part}" for number, part in enumerate(self.parts, 1))
        # Not super(): a dataclass with slots is another class than the one that this is written in.
        return f"{BuildReport.__str__(self)}, in {len(self.parts)} parts:{listed}"
