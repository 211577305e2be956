"""Signatures of caches, by which a daemon trusts exports of its own and of daemons with the same key."""

import hmac
import logging
import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from nnrt_device_service.settings import Settings
from nnrt_hdi.errors import InvalidFile, InvalidPath, Unsupported
from nnrt_hdi.files.compiled import MAX_PARTS
from nnrt_hdi.files.new_file import write_new
from nnrt_hdi.part import Part

_log = logging.getLogger(__name__)

_MAGIC = b"nnrt cache signature 1\n"
# Name of the key's file in the directory of a store.
_KEY_FILE = ".nnrt-cache-key"
_LEAST_KEY_BYTES, _MOST_KEY_BYTES = 32, 1 << 16


class Signatures:
    """Signer and verifier of caches. A signature is one more part of a cache.

    Without a secret nothing is signed. If signatures `are_needed`, because the backend can't inspect caches, programs'
    caches are signed, too, with a signature of another kind.
    """

    def __init__(self, secret: bytes | None, kind: object, *, are_needed: bool) -> None:
        """Set the secret. `kind` is part of each signature: devices of one kind can load each other's caches."""
        self.are_needed = are_needed
        self._secret = secret
        self._kind = kind

    @property
    def has_secret(self) -> bool:
        """True if there is a secret."""
        return bool(self._secret)

    def sign(self, parts: Sequence[Part], *, is_program: bool) -> Sequence[Part]:
        """Return the parts of an export, followed by a signature if it is to have one.

        Raises Unsupported if signatures are needed and the export has no room for another part.
        """
        if not self._secret or (is_program and not self.are_needed):
            return parts
        if len(parts) < MAX_PARTS:
            return [*parts, Part.of(self._signature(parts, self._secret, is_program))]
        if self.are_needed:
            raise Unsupported(
                f"the backend exports {len(parts)} parts, and one of {MAX_PARTS} is for the daemon's signature"
            )
        _log.warning("a cache of %d parts has no room for a signature", len(parts))
        return parts

    def is_graph_signed(self, parts: Sequence[Part]) -> bool:
        """Return whether this daemon's key has signed these parts as a model of NNRt's operators."""
        return self._has_signed(parts, is_program=False)

    def is_program_signed(self, parts: Sequence[Part]) -> bool:
        """Return whether this daemon's key has signed these parts as a model of a program."""
        return self.are_needed and self._has_signed(parts, is_program=True)

    def _has_signed(self, parts: Sequence[Part], *, is_program: bool) -> bool:
        if not self._secret or not has_signature(parts):
            return False
        return hmac.compare_digest(bytes(parts[-1].data), self._signature(parts[:-1], self._secret, is_program))

    def _signature(self, parts: Sequence[Part], secret: bytes, is_program: bool) -> bytes:
        kind = repr((self._kind, "program") if is_program else self._kind).encode()
        signed = b"".join((_MAGIC, sha256(kind).digest(), *(part.sha256 for part in parts)))
        return _MAGIC + hmac.digest(secret, signed, sha256)


def find_secret(settings: Settings, *, is_needed: bool, has_store: bool) -> bytes | None:
    """Return the secret that signs exports, or None.

    The secret in --cache-key takes precedence. Without that option, and if a secret is needed, the store's secret is
    used, or a new one if there is no store. Raises InvalidFile.
    """
    if settings.cache_key:
        return read_secret(Path(settings.cache_key), f"--cache-key {settings.cache_key!r}")
    if not is_needed:
        return None
    return shared_secret(Path(settings.store_dir)) if has_store else new_secret()


def read_secret(path: Path, place: str) -> bytes:
    """Read the secret in a file. Raises InvalidFile, whose message names the file as `place`."""
    try:
        with path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
                raise InvalidFile("others than its owner may use it; chmod 600", place=place)
            secret = file.read(_MOST_KEY_BYTES)
    except OSError as error:
        raise InvalidFile(f"it can't be read: {error.strerror}", place=place) from error
    if len(secret) < _LEAST_KEY_BYTES:
        raise InvalidFile(
            f"it has {len(secret)} bytes; use {_LEAST_KEY_BYTES} random ones: head -c 32 /dev/urandom", place=place
        )
    return secret


def shared_secret(directory: Path) -> bytes:
    """Return the secret of all daemons that share a store's directory; the first one makes it. Raises InvalidFile."""
    path = directory / _KEY_FILE
    place = f"--store-dir {str(directory)!r}: {_KEY_FILE}"
    if not path.exists():
        try:
            with suppress(InvalidPath):  # Another daemon has made it first.
                write_new(path, new_secret(), is_private=True)
        except OSError as error:
            raise InvalidFile(f"it can't be written: {error.strerror}", place=place) from error
    return read_secret(path, place)


def new_secret() -> bytes:
    """Return a new random secret."""
    return secrets.token_bytes(_LEAST_KEY_BYTES)


def has_signature(parts: Sequence[Part]) -> bool:
    """Return whether the last part is a signature, made with any key."""
    return bool(parts) and is_signature(parts[-1])


def is_signature(part: Part) -> bool:
    """Return whether a part is a signature, made with any key."""
    # Check the size first, so that no large part is copied for the comparison.
    return part.data.nbytes == len(_MAGIC) + sha256().digest_size and bytes(part.data[: len(_MAGIC)]) == _MAGIC
