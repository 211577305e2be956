"""Store of compiled models: look-up, writing, eviction."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from nnrt_hdi.errors import InvalidFile, InvalidPath, NnrtError
from nnrt_hdi.files.compiled import CompiledModel
from nnrt_hdi.files.store_directory import SHOWN_KEY, Entry, Recipe, StoreDirectory, parts_beside, touch
from nnrt_hdi.files.whole_parts import WholeParts

_log = logging.getLogger(__name__)

# In Welcome.features: the daemon has a store, so clients need not keep what it compiles.
FEATURE = "model-store"


class ModelStore:
    """Compiled models of all processes that share a directory.

    Trouble with files is no error for callers: a model that can't be read counts as missing, one that can't be written
    is not kept, and the log says so.
    """

    def __init__(self, path: Path, quota_bytes: int, *, place: str, quota: str) -> None:
        """Open a store. `place` and `quota` name the directory and the setting of its size in messages.

        Raises:
            InvalidPath: The directory can't be used.
        """
        self._directory = StoreDirectory(path.absolute())
        self._whole = WholeParts(self._directory.path)
        self._quota_bytes = quota_bytes
        self._quota = quota
        try:
            self._directory.make()
            with self._directory.locked(at_once=True):
                self._make_room(0, {})
        except TimeoutError:  # Another process writes a large model, and makes room before.
            _log.info("the model store is not tidied up, for somebody writes to it")
        except (OSError, InvalidPath) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise InvalidPath(
                f"it can't be the model store: {why}; name a directory that this user may make or write to", place=place
            ) from error

    def find(self, key: str) -> Entry | None:
        """Return the entry of a model, or None."""
        return self._directory.entry(key)

    def load(self, entry: Entry, *, in_files: bool = False) -> CompiledModel | None:
        """Load a model, which counts as a use; return None if it has gone meanwhile.

        Large parts are checked and mapped by `WholeParts`; with `in_files` they stay unchecked in their files (see
        `Entry.model_in_files`). A damaged model is removed.
        """
        try:
            compiled = entry.model_in_files() if in_files else entry.model(self._whole)
        except FileNotFoundError:  # Just evicted.
            return None
        except (OSError, InvalidFile) as error:
            self.remove(entry.key, str(error))
            return None
        touch(entry.path)
        return compiled

    def damage(self) -> str:
        """Return which mapped file was shortened; empty if none."""
        return self._whole.damage()

    def keep(self, compiled: CompiledModel, check: Callable[[], object] = lambda: None) -> bool:
        """Write a model; evict the least recently used ones to make room. Return whether the store has it now.

        `check` is called repeatedly; an exception ends the writing and leaves nothing.
        """
        key = Recipe.of(compiled).key
        beside = parts_beside(compiled)
        try:
            file_bytes = sum(memoryview(piece).nbytes for piece in compiled.packed(beside))
        except NnrtError as error:
            _log.warning("model %s is not stored: %s", key[:SHOWN_KEY], error)
            return False
        size_bytes = file_bytes + sum(beside.values())
        if size_bytes > self._quota_bytes:
            _log.warning(
                "model %s is not stored: it has %d bytes, %s is %d",
                key[:SHOWN_KEY],
                size_bytes,
                self._quota,
                self._quota_bytes,
            )
            return False
        try:
            self._directory.make()  # Somebody may have removed the directory.
            with self._directory.locked(check):
                self._make_room(file_bytes, beside)
                try:
                    self._directory.write(key, compiled, check)
                except BaseException:
                    self._directory.remove_unused_parts()
                    raise
        except (OSError, InvalidPath) as error:
            _log.warning("model %s is not stored: %s", key[:SHOWN_KEY], error)
            return False
        _log.info("stored model %s, %d bytes", key[:SHOWN_KEY], size_bytes)
        return True

    def remove(self, key: str, why: str) -> None:
        """Remove a model that can't be used."""
        _log.warning("the stored model %s is removed and will be compiled again: %s", key[:SHOWN_KEY], why)
        entry = self._directory.entry(key)
        try:
            if entry:
                entry.remove()
                entry.remove_damaged_parts()
        except OSError as error:
            _log.warning("the stored model %s can't be removed: %s", key[:SHOWN_KEY], error)

    def _make_room(self, file_bytes: int, parts: Mapping[bytes, int]) -> None:
        """Evict models until there is room for a file and its new parts."""
        self._directory.remove_unused_parts()
        entries = self._directory.entries()
        users = Counter(
            sha256 for parts_of_one in (parts, *(entry.parts for entry in entries)) for sha256 in parts_of_one
        )
        sizes = {sha256: size for entry in entries for sha256, size in entry.parts.items()} | dict(parts)
        used_bytes = file_bytes + sum(sizes.values()) + sum(entry.file_bytes for entry in entries)
        evicted: list[Entry] = []
        for entry in entries:
            if used_bytes <= self._quota_bytes:
                break
            entry.remove()
            evicted.append(entry)
            users.subtract(entry.parts.keys())
            freed = [size for sha256, size in entry.parts.items() if not users[sha256]]
            used_bytes -= entry.file_bytes + sum(freed)
            _log.info("evicted model %s, %d bytes, from the model store", entry.key[:SHOWN_KEY], entry.size_bytes)
        if evicted:
            self._directory.remove_unused_parts()
