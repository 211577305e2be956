"""Access file: the identities that may use a daemon or a server of models, and their roles.

Each line is one credential of an identity: `NAME ROLE token SHA256`, `NAME ROLE certificate COMMON-NAME` or
`NAME ROLE user UNIX-USER`. Tokens are long and random, so a plain hash of one reveals nothing about it.
"""

import os
import pwd
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from nnrt_hdi.access.identity import NAME, ROLES, Identity, Role
from nnrt_hdi.access.unix_users import SHARED_USER
from nnrt_hdi.access.watched_files import WatchedFiles
from nnrt_hdi.errors import ConnectionFailed, InvalidFile
from nnrt_hdi.files.new_file import write_new

_DIGEST = re.compile(r"[0-9a-f]{64}")
_KINDS = ("token", "certificate", "user")
_MOST_BYTES = 16 << 20
_UNNAMED = ", whom the daemon's --access file doesn't name"
_SHARED = f"the kernel says Unix user {SHARED_USER}, as of all users that the daemon's user namespace doesn't know"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials that a client sent, and those that the transport verified."""

    # Host that the client calls from.
    host: str
    token: bytes = field(default=b"", repr=False)
    # Common name of the client certificate, which TLS has verified.
    certificate: str = ""
    # User id of the client's process, from the kernel.
    user_id: int | None = None

    def identity(self) -> Identity:
        """Return the client's identity for a daemon without an access file, where all clients have all rights."""
        if self.certificate:
            return Identity("certificate", self.certificate)
        if self.user_id not in (None, SHARED_USER):
            return Identity("user", str(self.user_id), user_id=self.user_id)
        return Identity("host", self.host)


@dataclass(frozen=True, slots=True)
class _Entries:
    """Identities of an access file by kind and value of their credentials, and the role of each name."""

    known: dict[tuple[str, str], Identity] = field(default_factory=dict)
    roles: dict[str, Role] = field(default_factory=dict)


class AccessFile:
    """Current content of the access file, which is read again when it changes."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises InvalidFile."""
        self._path = path
        self._files = WatchedFiles([path], lambda: _read(path))

    def identity(self, shown: Credentials) -> Identity:
        """Return the identity that the credentials prove.

        A token takes precedence over a certificate, a certificate over a Unix user. Raises ConnectionFailed if the file
        names no identity with the credential.
        """
        if (found := self.find(shown)) is not None:
            return found
        if shown.token:
            raise ConnectionFailed("the daemon knows no such token (its --access file); look whether it was replaced")
        if shown.certificate:
            known = f"the certificate is of {shown.certificate!r}{_UNNAMED}"
        elif shown.user_id == SHARED_USER:
            known = f"{_SHARED}; it may be anybody{_UNNAMED}"
        elif shown.user_id is not None:
            known = f"the kernel says Unix user {shown.user_id}{_UNNAMED}"
        else:
            known = "the client sent no token (certificates count only if the daemon has --tls-client-ca)"
        raise ConnectionFailed(
            f"{known}; set token_file to your token's (Settings, NNRT_TOKEN_FILE or --token-file), or ask whoever keeps"
            " the daemon's --access file"
        )

    def role_of(self, name: str) -> Role | None:
        """Return the role of the identity of this name, or None if the file doesn't name it."""
        return self._files.content().roles.get(name)

    def find(self, shown: Credentials) -> Identity | None:
        """Return the identity that the credentials prove, or None if the file names none with the credential."""
        known = self._files.content().known
        if shown.token:
            # It is found by a digest, so the time reveals nothing about tokens.
            return known.get(("token", sha256(shown.token).hexdigest()))
        if shown.certificate:
            return known.get(("certificate", shown.certificate))
        if shown.user_id in (None, SHARED_USER):
            return None
        found = known.get(("user", str(shown.user_id)))
        return found and replace(found, user_id=shown.user_id)

    def is_valid(self, identity: Identity) -> bool:
        """Return whether the client's credential still proves this identity, with at least the same role."""
        found = self._files.content().known.get(identity.credential)
        return found is not None and found.is_same(identity) and found.role >= identity.role


@contextmanager
def new_entry(path: Path, identity: Identity, kind: str, value: str, replaces: bool = False) -> Iterator[None]:
    """Add a credential's line to the access file while the block hands out the credential.

    Makes the file if it is missing, and restores it if the block fails. With `replaces` the new line replaces the
    identity's lines of the same kind; these stay valid until the block has ended, so that a crash in the block locks
    out nobody. The caller must be the file's only writer (`only_writer_of`). Raises InvalidFile if the file is or would
    become invalid.
    """
    before = path.read_bytes() if path.exists() else None
    _parsed((before or b"").decode(), path)
    lines = before.decode().splitlines() if before is not None else ["# NAME ROLE KIND VALUE, by `nnrt-device keys`"]
    former = [words for line in lines if (words := line.partition("#")[0].split())[::2] == [identity.name, kind]]
    others = [line for line in lines if line.partition("#")[0].split() not in former] if replaces else lines
    line = f"{identity.name} {identity.role} {kind} {value}"
    still = [f"{identity.name} {identity.role} {kind} {words[3]}" for words in former] if replaces else []
    _write(path, [*others, *still, line])
    try:
        yield
    except BaseException:
        if before is None:
            path.unlink()
        else:
            write_new(path, before, is_private=True, replaces=True)
        raise
    if still:
        _write(path, [*others, line])


def _write(path: Path, lines: Sequence[str]) -> None:
    text = "\n".join([*lines, ""])
    _parsed(text, path)
    write_new(path, text.encode(), is_private=True, replaces=True)


def _read(path: Path) -> _Entries:
    try:
        with path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & stat.S_IWOTH:
                raise InvalidFile("everybody may write to it; chmod o-w", place=str(path))
            data = file.read(_MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                raise InvalidFile(f"it has more than {_MOST_BYTES} bytes; give it fewer lines", place=str(path))
            text = data.decode()
    except OSError as error:
        raise InvalidFile(f"it can't be read: {error.strerror}", place=f"--access {str(path)!r}") from error
    except UnicodeDecodeError as error:
        raise InvalidFile(f"it is no text in UTF-8: {error.reason}", place=str(path)) from error
    return _parsed(text, path)


def _parsed(text: str, path: Path) -> _Entries:
    entries = _Entries()
    for number, line in enumerate(text.splitlines(), 1):
        if words := line.partition("#")[0].split():
            try:
                _enter(entries, words)
            except ValueError as error:
                raise InvalidFile(str(error), place=f"{path} line {number}") from error
    return entries


def _enter(entries: _Entries, words: list[str]) -> None:
    """Add the words of a line to the entries. Raises ValueError that says what is wrong with the line."""
    if len(words) != 4:
        raise ValueError(f"it has {len(words)} words; use NAME ROLE KIND VALUE")
    name, role, kind, value = words
    if not NAME.fullmatch(name):
        raise ValueError(f"the name is {name!r}; use letters, digits and ._@-")
    if role not in ROLES:
        raise ValueError(f"the role is {role!r}; use one of {', '.join(ROLES)}")
    key = kind, _checked(kind, value)
    identity = Identity("name", name, Role[role.upper()], key)
    if entries.roles.setdefault(name, identity.role) != identity.role:
        raise ValueError(f"{name} has the role {str(entries.roles[name])!r} above; give it one")
    if entries.known.setdefault(key, identity) != identity:
        raise ValueError(f"the {kind} is that of {entries.known[key]} above; give it to one of them")


def _checked(kind: str, value: str) -> str:
    match kind:
        case "token":
            if not _DIGEST.fullmatch(value):
                raise ValueError("the token is no SHA-256 in hexadecimal digits; `nnrt-device keys token` writes one")
        case "certificate":
            pass
        case "user":
            user_id = _user_id(value)
            if user_id == SHARED_USER:
                raise ValueError(f"{_SHARED}: give the client a token")
            return str(user_id)
        case _:
            raise ValueError(f"it is known by {kind!r}; use one of {', '.join(_KINDS)}")
    return value


def _user_id(value: str) -> int:
    if value.isdecimal():
        return int(value)
    try:
        return pwd.getpwnam(value).pw_uid
    except KeyError:
        raise ValueError(f"this host has no user {value!r}; give a name or a number") from None
