"""Lossless compression of what travels in chunks, for slow links. Clients say in Hello.features that they want it."""

import zlib

from nnrt_hdi.chunks import CHUNK_BYTES
from nnrt_hdi.errors import InvalidParameter

# In Hello.features and Welcome.features: chunks may be compressed, either way.
FEATURE = "deflate"
# Of a message's tensors what is beyond this follows in chunks, where these may be compressed.
INLINE_BYTES = 1024
# A slow link is still faster than the better levels.
_LEVEL = 1


def compressed(piece: memoryview) -> bytes | None:
    """The piece as a zlib stream (RFC 1950), None where that would not be shorter."""
    packed = zlib.compress(piece, _LEVEL)
    return packed if len(packed) < piece.nbytes else None


def expanded(data: memoryview | bytes, expanded_bytes: int) -> memoryview | bytes:
    """The content of a chunk that is to have so many bytes when it is not compressed; 0: it isn't compressed.

    Raises InvalidParameter for anything else than a zlib stream of that length, and takes no memory for more.
    """
    if not expanded_bytes:
        return data
    if expanded_bytes > CHUNK_BYTES:
        raise InvalidParameter(f"a chunk is to have {expanded_bytes} bytes; compress at most {CHUNK_BYTES} at a time")
    stream = zlib.decompressobj()
    try:
        # One more byte than there may be, for at a limit that is just reached the end isn't looked for.
        whole = stream.decompress(data, expanded_bytes + 1)
    except zlib.error as error:
        raise InvalidParameter(f"a compressed chunk is damaged: {error}") from error
    if len(whole) != expanded_bytes or not stream.eof or stream.unused_data:
        raise InvalidParameter(f"a compressed chunk is not one of {expanded_bytes} bytes, as it says")
    return whole
