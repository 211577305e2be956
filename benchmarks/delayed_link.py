"""Link with a delay: a TCP proxy that hands on what it gets after a while, however much comes meanwhile."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CHUNK_BYTES = 1 << 16


@contextmanager
def delayed_link(address: str, delay_s: float) -> Iterator[str]:
    """Yield the address of a link to `address` on which bytes take `delay_s` in each direction."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="delayed link")
    thread.start()
    host, _, port = address.rpartition(":")

    async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            loop.call_later(delay_s, writer.write, data)
        loop.call_later(delay_s, writer.close)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            there_reader, there_writer = await asyncio.open_connection(host, int(port))
            await asyncio.gather(hand_on(reader, there_writer), hand_on(there_reader, writer), return_exceptions=True)

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(connect, "127.0.0.1", 0)

    async def end(server: asyncio.Server) -> None:
        server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    finally:
        asyncio.run_coroutine_threadsafe(end(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
