"""Lossless compression of chunks for slow links. Clients ask for it in Hello.features."""

import zlib

from nnrt_hdi.chunks import CHUNK_BYTES
from nnrt_hdi.errors import InvalidParameter

# In Hello.features and Welcome.features: chunks may be compressed in both directions.
FEATURE = "deflate"
# With compression, tensors beyond this size follow in chunks.
INLINE_BYTES = 1024
# Better levels are slower than a slow link.
_LEVEL = 1


def compressed(piece: memoryview) -> bytes | None:
    """Return the piece as a zlib stream (RFC 1950), or None if that would not be shorter."""
    packed = zlib.compress(piece, _LEVEL)
    return packed if len(packed) < piece.nbytes else None


def expanded(data: memoryview | bytes, expanded_bytes: int) -> memoryview | bytes:
    """Return the content of a chunk; `expanded_bytes` is its length without compression, 0 if it isn't compressed.

    Raises:
        InvalidParameter: The data is no zlib stream of that length. No more memory than that is allocated.
    """
    if not expanded_bytes:
        return data
    if expanded_bytes > CHUNK_BYTES:
        raise InvalidParameter(f"a chunk is to have {expanded_bytes} bytes; compress at most {CHUNK_BYTES} at a time")
    stream = zlib.decompressobj()
    try:
        # One byte more than allowed: at the exact limit zlib doesn't look for the end.
        whole = stream.decompress(data, expanded_bytes + 1)
    except zlib.error as error:
        raise InvalidParameter(f"a compressed chunk is damaged: {error}") from error
    if len(whole) != expanded_bytes or not stream.eof or stream.unused_data:
        raise InvalidParameter(f"a compressed chunk is not one of {expanded_bytes} bytes, as it says")
    return whole
