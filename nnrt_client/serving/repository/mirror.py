"""Mirror: a folder on this host that is kept like a place elsewhere, such as an object store."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from nnrt_client.model_session.model_cache import cache_directory
from nnrt_hdi.errors import InvalidPath, Unsupported

# Facts of a file elsewhere that change with its content; each kind of place has some of them.
_FACTS = ("ETag", "etag", "md5Hash", "content_md5", "mtime", "LastModified", "last_modified", "modified", "created")
_MOST_FILES = 100_000
_MOST_DEPTH = 8
# Files of the mirror itself. Names of models don't begin with a point.
_LOCK, _STATE, _PART = ".lock", ".state.json", ".part"

# Size and facts of each file, by its path.
State = dict[str, list[str]]


def is_remote(models: str) -> bool:
    """Return whether the place of a repository is a URL rather than a folder."""
    return "://" in models


class Mirror:
    """Mirror of a URL that fsspec takes. One thread at a time uses it."""

    def __init__(self, url: str, folder: Path | None = None) -> None:
        """Create it. Without a folder, it is one in the user's cache.

        Raises:
            Unsupported: There is no package for such URLs.
            InvalidPath: The URL or the folder can't be used.
        """
        self._place = f"repository {url!r}"
        try:
            from fsspec.core import url_to_fs  # Not at the top: an extra.

            self._files, self._root = url_to_fs(url)
        except ImportError as error:
            raise Unsupported(f"{error}; install nnrt[serving-remote]", place=self._place) from error
        except Exception as error:  # Each kind of place has errors of its own.
            raise InvalidPath(f"it can't be used: {error!r}", place=self._place) from error
        name = hashlib.sha256(url.encode()).hexdigest()[:16]
        self.folder = folder or cache_directory().parent / "repositories" / name
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidPath(f"{self.folder} can't be made: {error.strerror}", place=self._place) from error

    def update(self) -> None:
        """Fetch what is new there, and delete what is gone.

        Raises:
            InvalidPath: The place can't be read; the folder has what it had, and perhaps some of what is new.
        """
        try:
            with self._locked():
                known, there = self._read_state(), self._list()
                kept = {path: facts for path, facts in known.items() if there.get(path) == facts and self._has(path)}
                for path in sorted(there.keys() - kept.keys()):
                    self._fetch(path)
                    kept[path] = there[path]
                    self._write_state(kept)
                self._delete_others(there)
                self._write_state(kept)
        except InvalidPath:
            raise
        except Exception as error:
            raise InvalidPath(f"it can't be read: {error!r}", place=self._place) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep out other servers of this host that have the same repository."""
        with (self.folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _list(self) -> State:
        self._files.invalidate_cache()
        found: Mapping[str, Any] = self._files.find(self._root, detail=True)
        if not found and not self._files.exists(self._root):
            raise InvalidPath("there is nothing", place=self._place)
        if len(found) > _MOST_FILES:
            raise InvalidPath(f"it has more than {_MOST_FILES} files", place=self._place)
        root = PurePosixPath(self._root)
        listed: State = {}
        for path, facts in found.items():
            parts = PurePosixPath(path).relative_to(root).parts
            if 0 < len(parts) <= _MOST_DEPTH and not any(part.startswith(".") or "\\" in part for part in parts):
                listed["/".join(parts)] = [str(facts.get(name)) for name in ("size", *_FACTS)]
        return listed

    def _fetch(self, path: str) -> None:
        part, target = self.folder / _PART, self.folder / path
        self._files.get_file(f"{self._root}/{path}", str(part))
        target.parent.mkdir(parents=True, exist_ok=True)
        part.replace(target)

    def _has(self, path: str) -> bool:
        return (self.folder / path).is_file()

    def _delete_others(self, kept: State) -> None:
        for directory, _, names in os.walk(self.folder, topdown=False):
            for name in names:
                path = Path(directory, name)
                relative = path.relative_to(self.folder)
                if relative.as_posix() not in kept and not relative.parts[0].startswith("."):
                    path.unlink()
            with suppress(OSError):  # Not empty.
                Path(directory).rmdir()

    def _read_state(self) -> State:
        try:
            state: State = json.loads((self.folder / _STATE).read_text())
        except (OSError, ValueError):
            return {}
        return state

    def _write_state(self, state: State) -> None:
        part = self.folder / _PART
        part.write_text(json.dumps(state))
        part.replace(self.folder / _STATE)
