"""Tokens, which say who a client is."""

import secrets
from hashlib import sha256
from pathlib import Path

from nnrt_device_service.access.access_file import new_entry
from nnrt_device_service.access.identity import Identity
from nnrt_device_service.access.new_file import write_new

_TOKEN_BYTES = 32


def issue_token(folder: Path, access: Path, identity: Identity, replaces: bool = False) -> Path:
    """The file of a new token of an identity, which is in the access file before anybody has the token.

    For who is the only writer of both. Raises InvalidPath for a token that is there, InvalidFile as `new_entry`.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    path = folder / f"{identity.name}.token"
    with new_entry(access, identity, "token", sha256(token.encode()).hexdigest(), replaces):
        write_new(path, f"{token}\n".encode(), is_private=True, replaces=replaces)
    return path
