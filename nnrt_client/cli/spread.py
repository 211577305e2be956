"""Distribution of a benchmark's runs over the devices of a pool."""

from collections.abc import Sequence
from typing import Any

from nnrt_client.cli.printing import print_table
from nnrt_client.model_session.model_session import ModelSession
from nnrt_client.model_session.pool import PooledSession


class Spread:
    """Counts of runs by load and device; empty if the session has a single device."""

    def __init__(self, session: ModelSession) -> None:
        self._pool = session.pool if isinstance(session, PooledSession) else None
        self._before = self._counts()
        # Number of runs of each device, per load.
        self.loads: list[dict[str, int]] = []

    def end_load(self) -> None:
        """Store the counts of the load that has just ended."""
        now = self._counts()
        if now:
            self.loads.append({device: runs - self._before.get(device, 0) for device, runs in now.items()})
        self._before = now

    def describe(self, kind: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the counts as --json prints them."""
        return [{kind: row[kind], "runs": runs} for row, runs in zip(rows, self.loads, strict=False)]

    def print(self, title: str, kind: str, rows: Sequence[dict[str, Any]]) -> None:
        """Print a table with one line per load and device."""
        cells = [
            [f"{row[kind]:g}", device, str(runs), f"{100 * runs / max(sum(load.values()), 1):.0f} %"]
            for row, load in zip(rows, self.loads, strict=False)
            for device, runs in load.items()
        ]
        if cells:
            print_table([title, "device", "runs", "share"], cells, right=[title, "runs", "share"])

    def _counts(self) -> dict[str, int]:
        members = [] if self._pool is None else self._pool.members()
        names = [member.name for member in members]
        return {member.name if names.count(member.name) == 1 else member.address: member.runs for member in members}
