"""Signatures of caches: what a daemon, or another with its key, has exported, and therefore believes."""

import hmac
import logging
import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from nnrt_device_service.access.new_file import write_new
from nnrt_device_service.settings import Settings
from nnrt_hdi.errors import InvalidFile, InvalidPath, Unsupported
from nnrt_hdi.files.compiled import MAX_PARTS
from nnrt_hdi.part import Part

_log = logging.getLogger(__name__)

_MAGIC = b"nnrt cache signature 1\n"
# The file in the directory of a store.
_KEPT = ".nnrt-cache-key"
_LEAST_KEY_BYTES, _MOST_KEY_BYTES = 32, 1 << 16


class Signatures:
    """Signatures that a daemon makes and believes, by what it needs them for: each is one part more of a cache.

    Without a secret it makes none. Where they `are_needed`, it makes one for whatever it exports, of what was made of a
    program, too: these are of another kind.
    """

    def __init__(self, secret: bytes | None, kind: object, *, are_needed: bool) -> None:
        """`kind` says of what the secret is the key: which devices can load each other's caches."""
        self.are_needed = are_needed
        self._secret = secret
        self._kind = kind

    @property
    def are_made(self) -> bool:
        """Tell if there is a secret."""
        return bool(self._secret)

    def signed(self, parts: Sequence[Part], *, is_program: bool) -> Sequence[Part]:
        """The parts of an export, with a signature if there is to be one. Raises Unsupported where it has no room."""
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

    def is_of_graph(self, parts: Sequence[Part]) -> bool:
        """Tell whether these were signed as made of NNRt's operators."""
        return self._has_signed(parts, is_program=False)

    def is_of_program(self, parts: Sequence[Part]) -> bool:
        """Tell whether these were signed as made of a program."""
        return self.are_needed and self._has_signed(parts, is_program=True)

    def _has_signed(self, parts: Sequence[Part], *, is_program: bool) -> bool:
        if not self._secret or not has_signature(parts):
            return False
        return hmac.compare_digest(bytes(parts[-1].data), self._signature(parts[:-1], self._secret, is_program))

    def _signature(self, parts: Sequence[Part], secret: bytes, is_program: bool) -> bytes:
        kind = repr((self._kind, "program") if is_program else self._kind).encode()
        signed = b"".join((_MAGIC, sha256(kind).digest(), *(part.sha256 for part in parts)))
        return _MAGIC + hmac.digest(secret, signed, sha256)


def secret_of(settings: Settings, *, is_needed: bool, has_store: bool) -> bytes | None:
    """The secret that signs exports; None where nothing needs one. Raises InvalidFile."""
    if settings.cache_key:
        return read_secret(Path(settings.cache_key), f"--cache-key {settings.cache_key!r}")
    if not is_needed:
        return None
    return kept_secret(Path(settings.store_dir)) if has_store else new_secret()


def read_secret(path: Path, place: str) -> bytes:
    """The secret in a file, which messages call `place`. Raises InvalidFile."""
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


def kept_secret(directory: Path) -> bytes:
    """The secret of all daemons that share a store's directory, made by the first of them. Raises InvalidFile."""
    path = directory / _KEPT
    place = f"--store-dir {str(directory)!r}: {_KEPT}"
    if not path.exists():
        try:
            with suppress(InvalidPath):  # Another daemon was faster.
                write_new(path, new_secret(), is_private=True)
        except OSError as error:
            raise InvalidFile(f"it can't be written: {error.strerror}", place=place) from error
    return read_secret(path, place)


def new_secret() -> bytes:
    """A secret that nobody else has."""
    return secrets.token_bytes(_LEAST_KEY_BYTES)


def has_signature(parts: Sequence[Part]) -> bool:
    """Tell whether the last of these parts is a signature of the others, by whatever key."""
    return bool(parts) and is_signature(parts[-1])


def is_signature(part: Part) -> bool:
    """Tell whether a part is the signature of those before it, by whatever key."""
    # Nothing longer is, which would be copied to be compared.
    return part.data.nbytes == len(_MAGIC) + sha256().digest_size and bytes(part.data[: len(_MAGIC)]) == _MAGIC
