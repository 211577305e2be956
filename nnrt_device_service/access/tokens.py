"""Tokens, by which clients prove their identities."""

import secrets
from hashlib import sha256
from pathlib import Path

from nnrt_hdi.access.access_file import new_entry
from nnrt_hdi.access.identity import Identity
from nnrt_hdi.files.new_file import write_new

_TOKEN_BYTES = 32


def issue_token(folder: Path, access: Path, identity: Identity, replaces: bool = False) -> Path:
    """Make a token for an identity, enter it in the access file, write it to a file and return that file's path.

    The entry comes first, so that a token in use is always known. The caller must be the only writer of `folder` and of
    the access file. Raises InvalidPath if the token's file exists and `replaces` is false, and InvalidFile as
    `new_entry` does.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    path = folder / f"{identity.name}.token"
    with new_entry(access, identity, "token", sha256(token.encode()).hexdigest(), replaces):
        write_new(path, f"{token}\n".encode(), is_private=True, replaces=replaces)
    return path
