"""Model of the repository: its versions, and the one that a request goes to."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence

from nnrt_client.serving.errors import NotReady, UnknownModel
from nnrt_client.serving.repository.folder import FoundModel, FoundVersion, Labels
from nnrt_client.serving.repository.loader import Loader, Source
from nnrt_client.serving.repository.model_settings import ModelSettings
from nnrt_client.serving.repository.policy import Canary, wanted_versions
from nnrt_client.serving.repository.served_version import ServedVersion
from nnrt_client.serving.repository.version import Entry, State, Version, not_ready
from nnrt_hdi.errors import NnrtError

_log = logging.getLogger(__name__)


class ServedModel:
    """Model and its versions. `update` brings them to what is in the folder. Only the server's loop uses it."""

    def __init__(self, name: str, loader: Loader, quiet_s: float, on_change: Callable[[], object]) -> None:
        """Create it. Files must be unchanged for `quiet_s`; `on_change` is called when `update` should be."""
        self.name = name
        # Versions that take requests, in order.
        self.ready: Mapping[str, ServedVersion] = {}
        self._loader = loader
        self._quiet = _Quiet(quiet_s)
        self._on_change = on_change
        self._settings: ModelSettings | None = None
        self._labels: Labels = {}
        # What is wrong with the settings.
        self._error: NnrtError | None = None
        self._versions: dict[int, Version] = {}
        self._by_number: dict[int, ServedVersion] = {}
        self._canary = Canary({})
        self._is_unloaded = False

    @property
    def place(self) -> str:
        """Name of the model in messages."""
        return f"model {self.name!r}"

    @property
    def is_ready(self) -> bool:
        """True if a version is ready and has a living device."""
        return any(version.session.devices for version in self.ready.values())

    @property
    def is_over(self) -> bool:
        """True if no device has anything of the model any more."""
        return not self._versions

    @property
    def index(self) -> Sequence[Entry]:
        """State of each version, and of the settings if they are wrong."""
        entries = [version.entry for _, version in sorted(self._versions.items())]
        if self._error is not None or not entries:
            entries.append(Entry(self.name, "", State.UNAVAILABLE, self._why()))
        return entries

    # ---- for requests

    def route(self, version: str) -> ServedVersion:
        """Return the version for a request, which may name none. Raises UnknownModel and NotReady."""
        if not version and self._canary.shares and self._by_number:
            return self._by_number[self._canary.next(self._by_number)]
        return self.find(version)

    def find(self, version: str) -> ServedVersion:
        """Return a version, or the newest one without a share of a canary. Raises UnknownModel and NotReady."""
        if not version and self._by_number:
            return self._by_number[self._canary.newest(self._by_number)]
        if version in self.ready:
            return self.ready[version]
        known = {str(number): one for number, one in self._versions.items()}
        if version in known:
            raise not_ready(known[version].entry)
        if version:
            raise UnknownModel(f"there is no version {version!r}; those served are {list(known)}", place=self.place)
        if known:
            raise not_ready(list(known.values())[-1].entry)
        raise NotReady(self._why(), place=self.place)

    # ---- for the repository

    def update(self, found: FoundModel | None, *, is_unloaded: bool = False, hurries: bool = False) -> float:
        """Begin what brings the model to what is in its folder, and return in how many seconds to call this again.

        Args:
            found: What is in the folder; None if the model is gone.
            is_unloaded: Whether it is not to be served nevertheless.
            hurries: Whether files are loaded although they may still be written.
        """
        self._is_unloaded = is_unloaded
        due_s = math.inf
        if found is None or is_unloaded:
            for version in self._versions.values():
                version.retire()
        else:
            due_s = self._set(found, hurries)
            if self._settings is not None and found.versions is not None:
                due_s = min(due_s, self._follow(found.versions, self._settings, hurries))
        self._note()
        return due_s

    def forget_failures(self) -> None:
        """Load again what couldn't be loaded."""
        for version in self._versions.values():
            version.forget_failure()

    def scale(self, now: float) -> None:
        """Change numbers of replicas where the requests under way want that."""
        for version in self._versions.values():
            version.scale(now)

    async def settled(self) -> None:
        """Wait until nothing is being loaded or drained."""
        while tasks := {task for version in self._versions.values() for task in version.tasks}:
            await asyncio.wait(tasks)

    async def tried(self) -> None:
        """Wait until nothing is being loaded."""
        while tasks := {version.load for version in self._versions.values() if version.load is not None}:
            await asyncio.wait(tasks)

    def require_loaded(self) -> None:
        """Raise the reason why the newest version, or the settings, can't be loaded."""
        if self._error is not None:
            raise self._error.at(self.place)
        if not self._versions:
            raise NotReady(self._why(), place=self.place)
        newest = self._versions[max(self._versions)]
        if newest.error is not None:
            raise newest.error.at(newest.place)

    def abandon(self) -> None:
        """End loads without waiting for the devices."""
        for version in self._versions.values():
            version.abandon()

    def _set(self, found: FoundModel, hurries: bool) -> float:
        """Take the settings once they are quiet."""
        quiet_in_s = self._quiet.left_s("settings", found.prints, found.changed_at)
        if quiet_in_s > 0 and not hurries:
            return quiet_in_s
        if found.error is not None and str(found.error) != str(self._error):
            _log.warning("%s%s", found.error.at(self.place), "; the former settings stay" if self._settings else "")
        self._error = found.error
        if found.settings is not None:
            self._settings, self._labels = found.settings, found.labels
            if self._canary.shares != found.settings.canary:
                self._canary = Canary(found.settings.canary)
        return math.inf

    def _follow(self, found: Mapping[int, FoundVersion], settings: ModelSettings, hurries: bool) -> float:
        due_s = math.inf
        sources = {number: Source.of(one, settings) for number, one in found.items()}
        failed = {
            number
            for number, source in sources.items()
            if source.error is not None or (number in self._versions and self._versions[number].has_failed(source))
        }
        wanted = wanted_versions(settings, list(sources), failed)
        for number in wanted:
            one = found[number]
            quiet_in_s = 0.0 if hurries else self._quiet.left_s(number, one.prints, one.changed_at)
            version = self._version(number)
            due_s = min(due_s, version.follow(sources[number], settings, self._labels, quiet_in_s))
        # Until then what is there goes on.
        is_pending = any(self._versions[number].is_pending for number in wanted)
        for number, version in self._versions.items():
            version.set(settings, self._labels)
            if number not in wanted and not is_pending:
                version.retire()
        return due_s

    def _version(self, number: int) -> Version:
        if number not in self._versions:
            self._versions[number] = Version(self.name, number, self._loader, self._on_change)
            self._versions = dict(sorted(self._versions.items()))
        return self._versions[number]

    def _note(self) -> None:
        """Note which versions are ready."""
        self._versions = {number: one for number, one in self._versions.items() if not one.is_over}
        self._by_number = {number: one.served for number, one in self._versions.items() if one.served is not None}
        self.ready = {str(number): one for number, one in self._by_number.items()}

    def _why(self) -> str:
        if self._is_unloaded:
            return "it is not loaded"
        return str(self._error) if self._error is not None else "it has no version yet"


class _Quiet:
    """Tells for how long files have been unchanged."""

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._seen: dict[Hashable, tuple[object, float]] = {}

    def left_s(self, what: Hashable, prints: object, changed_at: float) -> float:
        """Return in how many seconds files count as quiet if they stay as they are.

        The files' own times decide, or if they lie in the future, the time since they were first seen like this.
        """
        known, since = self._seen.get(what, (None, 0.0))
        if known != prints:
            since = time.monotonic()
            self._seen[what] = prints, since
        age_s = max(time.monotonic() - since, time.time() - changed_at)
        return self._quiet_s - age_s
