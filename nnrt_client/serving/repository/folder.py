"""Folder of a repository: the models, versions and files that lie in it now.

    MODEL/model.toml            settings, which may be missing
    MODEL/VERSION/model.onnx    or one other file of any kind that `load` takes

Names of models have letters, digits and ._-; versions are whole numbers. Everything else is left alone.
"""

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG

from nnrt_client.model_session.opened_model import ONNX_SUFFIX
from nnrt_client.serving.repository import settings_file
from nnrt_client.serving.repository.model_settings import ModelSettings
from nnrt_client.serving.repository.paths import read_bounded, require_inside
from nnrt_hdi.errors import InvalidFile, InvalidPath, NnrtError
from nnrt_hdi.files import container
from nnrt_hdi.files.fingerprint import Fingerprint

_log = logging.getLogger(__name__)

MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_USUAL_FILE = "model.onnx"
# Most files of a version, and bytes of a file with labels.
_MOST_FILES = 4096
_MOST_LABEL_BYTES = 16 << 20

Prints = tuple[tuple[str, Fingerprint], ...]
Labels = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class FoundVersion:
    """Version in the folder. Two are equal if the files are the same and unchanged."""

    number: int
    folder: Path
    prints: Prints
    # Time of the latest change of a file (time.time()).
    changed_at: float = field(compare=False)
    # Names of the files, and of those that are models.
    names: tuple[str, ...] = field(compare=False, default=())
    models: tuple[str, ...] = field(compare=False, default=())
    # Why it can't be used.
    error: NnrtError | None = field(compare=False, default=None)

    def file(self, name: str) -> Path:
        """Return the model's file: the named one, or without a name `model.onnx` or the only one. Raises NnrtError."""
        if self.error is not None:
            raise self.error.copy()
        models = [name] if name in self.names else [] if name else self.models
        if len(models) == 1:
            return self.folder / models[0]
        what = "there are several models" if models else f"there is no file {name!r}" if name else "there is no model"
        others = f", but {list(models or self.names)}" if self.names else ""
        raise InvalidPath(f"{what}{others}; put one there, or name it by `file` in {settings_file.FILE}")


@dataclass(frozen=True, slots=True)
class FoundModel:
    """Model in the folder."""

    name: str
    # None if `error` says what is wrong with them.
    settings: ModelSettings | None
    labels: Labels
    # Of the files that belong to the settings.
    prints: Prints
    changed_at: float
    # None if the folder can't be read, as `error` says.
    versions: Mapping[int, FoundVersion] | None
    error: NnrtError | None = None


class Folder:
    """Folder with models. One thread at a time uses it."""

    def __init__(self, root: Path, devices: Sequence[str]) -> None:
        """Take a folder. `devices` are those that models may name."""
        self.root = root
        self._devices = devices
        # What was read last for each model, with the files that it was read from.
        self._known: dict[str, tuple[tuple[Path, ...], FoundModel]] = {}
        self._left_alone: set[str] = set()

    def scan(self) -> Mapping[str, FoundModel]:
        """Return the models that are there now, by name. Raises InvalidPath if the folder can't be read."""
        try:
            names = _folders(self.root)
        except OSError as error:
            raise InvalidPath(f"it can't be read: {error.strerror}", place=f"repository {str(self.root)!r}") from error
        for name in names:
            if not MODEL_NAME.fullmatch(name) and not name.startswith(".") and name not in self._left_alone:
                self._left_alone.add(name)
                _log.warning("folder %r is left alone; names of models have letters, digits and ._-", name)
        found = {name: self._model(name) for name in names if MODEL_NAME.fullmatch(name)}
        for name in self._known.keys() - found.keys():
            del self._known[name]
        return found

    def _model(self, name: str) -> FoundModel:
        folder = self.root / name
        try:
            self._require_inside(folder)
            found = self._settings(name, folder)
            return self._with_versions(found, folder)
        except (NnrtError, OSError) as error:  # The latter if it vanishes meanwhile.
            told = error if isinstance(error, NnrtError) else InvalidPath(f"it can't be read: {error.strerror}")
            return FoundModel(name, None, {}, (), 0.0, None, told)

    def _settings(self, name: str, folder: Path) -> FoundModel:
        """Return the model with its settings, without versions. Files that are unchanged aren't read again."""
        path = folder / settings_file.FILE
        paths, known = self._known.get(name, ((path,), None))
        prints, changed_at = print_files(folder, paths)
        if known is not None and known.prints == prints:
            return known
        settings, labels, error = ModelSettings(), {}, None
        try:
            if prints:
                self._require_inside(path)
                settings = settings_file.read_settings(path, self.root, self._devices)
                labels = {output: _read_labels(one) for output, one in settings.labels.items()}
        except NnrtError as wrong:
            error = wrong
        paths = (path, *settings.labels.values())
        prints, changed_at = print_files(folder, paths)
        found = FoundModel(name, None if error else settings, labels, prints, changed_at, None, error)
        self._known[name] = paths, found
        return found

    def _with_versions(self, found: FoundModel, folder: Path) -> FoundModel:
        numbers = [number for name in _folders(folder) if (number := settings_file.version_number(name)) is not None]
        versions = {number: self._version(folder / str(number), number) for number in sorted(numbers)}
        return FoundModel(
            found.name, found.settings, found.labels, found.prints, found.changed_at, versions, found.error
        )

    def _require_inside(self, path: Path) -> None:
        """Raise InvalidPath if the last part of a path is a link that leads out of the repository."""
        if path.is_symlink():
            require_inside(path, path.parent, self.root)

    def _version(self, folder: Path, number: int) -> FoundVersion:
        prints: Prints = ()
        changed_at = 0.0
        try:
            self._require_inside(folder)
            paths = list(_files(folder))
            prints, changed_at = print_files(folder, paths)
            for path in paths:
                self._require_inside(path)
            names = tuple(path.name for path in sorted(folder.iterdir()) if S_ISREG(path.stat().st_mode))
            return FoundVersion(number, folder, prints, changed_at, names, _models(folder, names))
        except (NnrtError, OSError) as error:
            told = error if isinstance(error, NnrtError) else InvalidPath(f"it can't be read: {error.strerror}")
            return FoundVersion(number, folder, prints, changed_at, error=told)


def _folders(folder: Path) -> list[str]:
    """Return the names of the folders in a folder. What can't be looked at counts, so that it is told why."""
    return sorted(path.name for path in folder.iterdir() if _is_folder(path))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return True


def print_version(folder: Path) -> Prints:
    """Return the fingerprints of the files of a version. Raises NnrtError or OSError if they can't be read."""
    return print_files(folder, _files(folder))[0]


def print_files(folder: Path, paths: Iterable[Path]) -> tuple[Prints, float]:
    """Return the fingerprints of the files that are there, and the time of the latest change."""
    prints = []
    for path in paths:
        try:
            prints.append((str(path.relative_to(folder)), Fingerprint.of(path.stat())))
        except FileNotFoundError:
            continue
    return tuple(prints), max((one.changed_ns / 1e9 for _, one in prints), default=0.0)


def _files(folder: Path) -> Iterator[Path]:
    count = 0
    for directory, _, names in os.walk(folder):
        for name in sorted(names):
            count += 1
            if count > _MOST_FILES:
                raise InvalidPath(f"it has more than {_MOST_FILES} files")
            yield Path(directory, name)


def _models(folder: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the files that are models; that of `model.onnx` alone if it is there."""
    return (_USUAL_FILE,) if _USUAL_FILE in names else tuple(name for name in names if _is_model(folder / name))


def _is_model(path: Path) -> bool:
    if path.suffix == ONNX_SUFFIX:
        return True
    with path.open("rb") as file:
        return container.is_packed(file.read(len(container.MAGIC)))


def _read_labels(path: Path) -> tuple[str, ...]:
    try:
        return tuple(read_bounded(path, _MOST_LABEL_BYTES).decode().splitlines())
    except UnicodeDecodeError as error:
        raise InvalidFile(f"it is no text: {error}", place=repr(path.name)) from error
