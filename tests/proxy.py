"""TCP proxy that simulates network failures: it resets connections, withholds bytes, and refuses connections."""

import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType

from typing_extensions import Self

_CHUNK_BYTES = 1 << 16
_JOIN_S = 10.0


class _Pair:
    """Client's connection, and the proxy's connection to the daemon for it."""

    def __init__(self, proxy: "Proxy", client: socket.socket, daemon: socket.socket) -> None:
        self._proxy = proxy
        self._sockets = (client, daemon)
        self._lock = threading.Lock()
        self._is_open = True
        self.flows = threading.Event()
        self.flows.set()
        self.threads = [
            threading.Thread(target=self._pump, args=(client, daemon, False), name="proxy up"),
            threading.Thread(target=self._pump, args=(daemon, client, True), name="proxy down"),
        ]
        for thread in self.threads:
            thread.start()

    def cut(self) -> None:
        """Reset both connections; data in transit is lost."""
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
            for end in self._sockets:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RD)  # Wakes the thread that reads.
        self.flows.set()

    def _pump(self, source: socket.socket, sink: socket.socket, is_reply: bool) -> None:
        with suppress(OSError):
            while (data := source.recv(_CHUNK_BYTES)) and self._is_open:
                if self._proxy.takes_for_cut(len(data), is_reply):
                    break
                self.flows.wait()
                if not self._is_open:
                    break
                if is_reply:  # Counted before the client receives the data and a test reads the counter.
                    self._proxy.received_bytes += len(data)
                else:
                    self._proxy.sent_bytes += len(data)
                sink.sendall(data)
        self.cut()
        sink.close()


class Proxy:
    """Forwards connections to a daemon's address, HOST:PORT or unix:PATH. A context manager."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._pairs: list[_Pair] = []
        self._new_flow = True
        self._cuts_at_reply = False
        # Number of the client's bytes to forward before all data is withheld, or None.
        self._until_hold: int | None = None
        self.sent_bytes = self.received_bytes = 0
        self._port = 0
        self.accept()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        self.cut()
        for pair in self._pairs:
            for thread in pair.threads:
                thread.join(_JOIN_S)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def accept(self) -> None:
        """Accept new connections."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, args=(self._listener,), name="proxy")
        self._accepting.start()

    def refuse(self) -> None:
        """Refuse new connections; existing ones stay open."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(_JOIN_S)

    def cut(self) -> None:
        """Reset all connections, and withhold nothing on later ones."""
        self._until_hold = None
        for pair in list(self._pairs):
            pair.cut()

    def cut_at_reply(self) -> None:
        """Reset all connections at the daemon's next data, which is lost."""
        self._cuts_at_reply = True

    def hold_after(self, sent_bytes: int) -> None:
        """Withhold all data on the existing connections after the client has sent `sent_bytes` more bytes."""
        self._until_hold = sent_bytes

    def swallow(self, *, new: bool) -> None:
        """Withhold all data on the existing connections, and with `new` also on later ones."""
        self._new_flow = not new
        for pair in list(self._pairs):
            pair.flows.clear()

    def flow(self) -> None:
        """Forward the withheld data, and all later data."""
        self._new_flow = True
        for pair in list(self._pairs):
            pair.flows.set()

    def takes_for_cut(self, size_bytes: int, is_reply: bool) -> bool:
        """Reset or hold all connections if it is time to; return whether they were reset."""
        cuts = False
        with self._lock:
            if is_reply:
                cuts, self._cuts_at_reply = self._cuts_at_reply, False
            elif self._until_hold is not None:
                self._until_hold -= size_bytes
                if self._until_hold <= 0:
                    self._until_hold = None
                    self.swallow(new=False)
        if cuts:
            self.cut()
        return cuts

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                daemon = self._connected()
            except OSError:
                client.close()
                continue
            pair = _Pair(self, client, daemon)
            if not self._new_flow:
                pair.flows.clear()
            self._pairs.append(pair)

    def _connected(self) -> socket.socket:
        path = self._target.removeprefix("unix:")
        if path != self._target:
            unix = socket.socket(socket.AF_UNIX)
            try:
                unix.connect(path)
            except OSError:
                unix.close()
                raise
            return unix
        host, _, port = self._target.rpartition(":")
        return socket.create_connection((host, int(port)))
