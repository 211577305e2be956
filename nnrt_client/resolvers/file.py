"""Resolver of file:///PATH: a file with one address per line, in which # begins a comment."""

import os
import time
from pathlib import Path

from nnrt_client.resolvers.names import Name
from nnrt_client.resolvers.resolver import PollingResolver
from nnrt_client.settings import Settings
from nnrt_hdi.errors import ConnectionFailed
from nnrt_hdi.files.fingerprint import Fingerprint

_EVERY_S = 0.2
# A file that hasn't changed for this long counts as complete.
_SETTLED_S = 0.5
_MOST_BYTES = 1 << 20


class FileResolver(PollingResolver):
    """Resolver that reads addresses from a file, in their order.

    Another process may be writing the file meanwhile. So until the file has not changed for a while, only lines with a
    line end count, and missing addresses are kept.
    """

    if_empty = ": the file has none; write one on a line, HOST:PORT or unix:PATH"

    def __init__(self, name: str, path: Path, every_s: float) -> None:
        super().__init__(name, every_s + _SETTLED_S)
        self._path = path
        self._every_s = every_s
        self._stamp: Fingerprint | None = None
        self._changed_at = 0.0
        self._listed: tuple[str, ...] | None = None

    def _ask(self) -> tuple[tuple[str, ...], float]:
        try:
            with self._path.open("rb") as file:
                stamp = Fingerprint.of(os.fstat(file.fileno()))
                text = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise ConnectionFailed(f"the file can't be read: {error.strerror}", place=self.name) from error
        if len(text) > _MOST_BYTES:
            raise ConnectionFailed(f"the file is longer than {_MOST_BYTES} bytes; is it a list?", place=self.name)
        now = time.monotonic()
        if stamp != self._stamp:
            self._stamp, self._changed_at = stamp, now
        # Also true for a file that was last written long before this resolver first read it.
        is_settled = max(now - self._changed_at, time.time() - stamp.written_ns / 1e9) >= _SETTLED_S
        if is_settled:
            self._listed = _addresses(text)
        else:
            whole_lines = text[: text.rfind(b"\n") + 1]
            self._listed = tuple(dict.fromkeys((*(self._listed or ()), *_addresses(whole_lines))))
        return self._listed, self._every_s


def _addresses(text: bytes) -> tuple[str, ...]:
    lines = (line.partition("#")[0].strip() for line in text.decode(errors="replace").splitlines())
    return tuple(line for line in lines if line)


def create(name: Name, _: Settings) -> FileResolver:
    """Make the resolver of a name. Raise InvalidParameter for an invalid name."""
    name.allow_options("every")
    if name.authority or not name.path:
        raise name.error("it names no file of this host; use file:///PATH, with three slashes")
    return FileResolver(name.text, Path("/", name.path), name.seconds("every", _EVERY_S))
