"""Bodies of HTTP: read within bounds of bytes and time, and compressed both ways."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import Buffer

from nnrt_client.serving.intake import Held
from nnrt_hdi.errors import InvalidParameter

# Bytes that are inflated before others get their turn.
_PIECE_BYTES = 1 << 20
# Bytes in each second that a client must send, after its first `read_s` seconds.
_LEAST_RATE = 64 << 10
# Smaller bodies are not worth compressing, and larger ones are compressed beside the loop, and not copied.
_LEAST_BYTES, _QUICK_BYTES = 1 << 10, 1 << 18
# The quickest: tensors gain little from more.
_LEVEL = 1
_TWO_LENGTHS = "the headers content-length and transfer-encoding are given; use one of them"
# What zlib calls the formats that HTTP has.
_FORMATS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


class OneLength:
    """Refuses requests that tell the length of their body in two ways, which a proxy in front may read differently."""

    def __init__(self, app: ASGIApp) -> None:
        """Take the application that gets the other requests."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        app = self._app
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            app = JSONResponse({"error": _TWO_LENGTHS}, HTTPStatus.BAD_REQUEST, {"connection": "close"})
        await app(scope, receive, send)


async def read_body(request: Request, held: Held, read_s: float) -> Buffer:
    """Return the body of a request, inflated.

    Raises:
        TooLarge: It has too many bytes.
        Busy: All requests together have too many.
        InvalidParameter: It is not compressed as it says.
        HTTPException: It is compressed in an unknown way, or the client is too slow.
        ClientDisconnect: The client went away.
    """
    parts = _parts(request, read_s)
    if (encoding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        return await _inflated(parts, encoding, held)
    length = None if "transfer-encoding" in request.headers else int(request.headers.get("content-length", 0))
    if length is not None:
        held.take(length)
    body = bytearray()
    async for part in parts:
        if length is None:
            held.take(len(part))
        elif len(part) == length:
            return part
        body += part
    return body


async def _parts(request: Request, read_s: float) -> AsyncIterator[bytes]:
    """Yield the body as it comes. It must come at a least rate, after the first `read_s` seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + read_s
    is_more = True
    while is_more:
        try:
            message = await asyncio.wait_for(request.receive(), deadline - loop.time())
        except asyncio.TimeoutError:
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, "the body comes too slowly") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part, is_more = message.get("body", b""), message.get("more_body", False)
        deadline += len(part) / _LEAST_RATE
        if part:
            yield part


async def _inflated(parts: AsyncIterator[bytes], encoding: str, held: Held) -> Buffer:
    if encoding not in _FORMATS:
        known = ", ".join(_FORMATS)
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the content encoding is {encoding!r}; use {known}")
    body, inflating = bytearray(), zlib.decompressobj(_FORMATS[encoding])
    try:
        async for part in parts:
            held.take(len(part))
            left = part
            while left and not inflating.eof:
                piece = inflating.decompress(left, _PIECE_BYTES)
                held.take(len(piece))
                body += piece
                left = inflating.unconsumed_tail
                await asyncio.sleep(0)
            if inflating.unused_data or left:
                raise InvalidParameter(f"bytes follow the end of the {encoding} body")
        # What is left is less than a piece, as all bytes have been read.
        piece = inflating.flush()
        held.take(len(piece))
        body += piece
    except zlib.error as error:
        raise InvalidParameter(f"the body is no {encoding}: {error}") from error
    if not inflating.eof:
        raise InvalidParameter(f"the {encoding} body has no end")
    return body


class BodyOfParts(Response):
    """Response whose body has several parts, which are put together only if they are small."""

    def __init__(self, parts: Sequence[Buffer], headers: dict[str, str], media_type: str) -> None:
        """Create it from the parts of the body."""
        views = [memoryview(part).cast("B") for part in parts]
        size = sum(len(view) for view in views)
        self.parts = views if size > _QUICK_BYTES else [memoryview(b"".join(views))]
        super().__init__(None, headers=headers, media_type=media_type)
        self.headers["content-length"] = str(size)

    async def compress(self, accepted: str) -> None:
        """Compress the body if that is worth it and a client that sent `accepted` takes it."""
        offered = [one.partition(";")[0].strip().lower() for one in accepted.split(",") if "q=0" not in one]
        encoding = next((one for one in offered if one in _FORMATS), None)
        size = sum(len(part) for part in self.parts)
        if encoding is None or size < _LEAST_BYTES:
            return
        if size <= _QUICK_BYTES:
            self.parts = [_compressed(self.parts, encoding)]
        else:
            self.parts = [await asyncio.to_thread(_compressed, self.parts, encoding)]
        self.headers["content-encoding"] = encoding
        self.headers["content-length"] = str(len(self.parts[0]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        left = len(self.parts)
        for part in self.parts:
            left -= 1
            await send({"type": "http.response.body", "body": part, "more_body": left > 0})


def _compressed(parts: Sequence[memoryview], encoding: str) -> memoryview:
    compressing = zlib.compressobj(_LEVEL, zlib.DEFLATED, _FORMATS[encoding])
    pieces = [compressing.compress(part) for part in parts]
    return memoryview(b"".join((*pieces, compressing.flush())))
