"""Access log: a JSON line for each call."""

import asyncio
from collections.abc import Mapping
from typing import Any

from nnrt_client.serving.call import Call
from nnrt_hdi.access.json_lines import JsonLines, time_now

# Lines are written this long after their calls, many at a time.
_PAUSE_S = 0.1
# Lines that may wait. Further ones are lost, and counted.
_MOST_WAITING = 1 << 16
# Characters of what a client chose.
_LONGEST = 128


class AccessLog:
    """Access log. Only the server's loop uses it; other threads write, because a disk may block."""

    def __init__(self, path: str) -> None:
        """Open the file, or standard error for `-`. Raises InvalidPath."""
        self._file = JsonLines(path, "--access-log")
        self._lines: list[Mapping[str, Any]] = []
        self._lost = 0
        self._writing: asyncio.Task[None] | None = None

    def write(self, call: Call, took_ns: int) -> None:
        """Write the line of a call that has ended."""
        if len(self._lines) >= _MOST_WAITING:
            self._lost += 1
            return
        self._lines.append(
            {
                "time": time_now(),
                "face": call.face,
                "call": call.name,
                "peer": call.peer,
                "identity": None if call.identity is None else str(call.identity),
                "model": call.model[:_LONGEST],
                "version": call.version[:_LONGEST],
                "request": call.id[:_LONGEST],
                "status": call.status,
                "ms": round(took_ns / 1e6, 3),
                "in_bytes": call.in_bytes,
                "out_bytes": call.out_bytes,
            }
        )
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def close(self) -> None:
        """Write what is left, and close the file."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])
        await asyncio.to_thread(self._file.write, *self._taken())
        self._file.close()

    async def _write(self) -> None:
        while self._lines:
            await asyncio.sleep(_PAUSE_S)
            # Not cut off by a cancellation: the thread would go on, beside that of `close`.
            await asyncio.shield(asyncio.to_thread(self._file.write, *self._taken()))
        self._writing = None

    def _taken(self) -> list[Mapping[str, Any]]:
        """Return the lines that wait, which then don't any more."""
        lines, self._lines = self._lines, []
        if self._lost:
            lines.append({"event": "lines lost", "count": self._lost})
            self._lost = 0
        return lines
