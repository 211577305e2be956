"""Signatures of caches: what daemons with the same key exported needs no right to be restored."""

import hmac
import logging
import os
import stat
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from nnrt_hdi.errors import InvalidFile
from nnrt_hdi.files.compiled import MAX_PARTS
from nnrt_hdi.part import Part

_log = logging.getLogger(__name__)

_MAGIC = b"nnrt cache signature 1\n"
_LEAST_KEY_BYTES, _MOST_KEY_BYTES = 32, 1 << 16


class CacheKey:
    """Signs the parts of a cache, as one part more."""

    def __init__(self, path: Path, kind: object) -> None:
        """`kind` says which devices can load each other's caches. Raises InvalidFile."""
        place = f"--cache-key {str(path)!r}"
        try:
            with path.open("rb") as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
                    raise InvalidFile("others than its owner may use it; chmod 600", place=place)
                self._key = file.read(_MOST_KEY_BYTES)
        except OSError as error:
            raise InvalidFile(f"it can't be read: {error.strerror}", place=place) from error
        if len(self._key) < _LEAST_KEY_BYTES:
            raise InvalidFile(
                f"it has {len(self._key)} bytes; use {_LEAST_KEY_BYTES} random ones: head -c 32 /dev/urandom",
                place=place,
            )
        self._kind = repr(kind).encode()

    def signed(self, parts: Sequence[Part]) -> Sequence[Part]:
        """The parts with their signature behind them."""
        if len(parts) >= MAX_PARTS:
            _log.warning("a cache of %d parts has no room for a signature", len(parts))
            return parts
        return [*parts, Part.of(_MAGIC + self._digest(parts))]

    def has_signed(self, parts: Sequence[Part]) -> bool:
        """Tell whether the last of these parts is a signature of the others by this key."""
        return hmac.compare_digest(bytes(parts[-1].data), _MAGIC + self._digest(parts[:-1]))

    def _digest(self, parts: Sequence[Part]) -> bytes:
        signed = b"".join((_MAGIC, sha256(self._kind).digest(), *(part.sha256 for part in parts)))
        return hmac.digest(self._key, signed, sha256)


def is_signature(part: Part) -> bool:
    """Tell whether a part is the signature of those before it, by whatever key."""
    # Nothing longer is, which would be copied to be compared.
    return part.data.nbytes == len(_MAGIC) + sha256().digest_size and bytes(part.data[: len(_MAGIC)]) == _MAGIC
