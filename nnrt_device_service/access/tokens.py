"""Tokens, which say who a client is."""

import secrets
from hashlib import sha256
from pathlib import Path

from nnrt_device_service.access.new_file import write_new

_TOKEN_BYTES = 32


def issue_token(folder: Path, name: str, replaces: bool = False) -> tuple[Path, str]:
    """The file of a new token, and the SHA-256 by which a daemon knows it."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    path = folder / f"{name}.token"
    write_new(path, f"{token}\n".encode(), is_private=True, replaces=replaces)
    return path, sha256(token.encode()).hexdigest()
