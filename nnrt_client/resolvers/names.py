"""Names that resolve to addresses of daemons: SCHEME://AUTHORITY/PATH?OPTION=VALUE&OPTION=VALUE."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from typing_extensions import Self

from nnrt_client.resolvers.resolver import Resolver
from nnrt_client.settings import Settings
from nnrt_hdi.errors import InvalidParameter, Unsupported

ENTRY_POINT_GROUP = "nnrt.resolvers"
_MOST_S = 86_400.0


def is_name(text: str) -> bool:
    """Return whether a text is a name. Otherwise it is an address: HOST:PORT, unix:PATH, or another one of gRPC."""
    return "://" in text and not text.startswith("unix:")


@dataclass(frozen=True, slots=True)
class Name:
    """Name that resolves to addresses, split into its parts, with %-escapes decoded."""

    # The whole name.
    text: str
    scheme: str
    authority: str
    # Without the leading slash.
    path: str
    options: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Split a name into its parts. Raise InvalidParameter if it is invalid."""
        try:
            parts = urlsplit(text, allow_fragments=False)
            options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError as error:
            raise InvalidParameter(f"it is no name: {error}; use SCHEME:///PATH?OPTION=VALUE", place=text) from error
        return cls(text, parts.scheme, unquote(parts.netloc), unquote(parts.path).removeprefix("/"), options)

    def error(self, what: str) -> InvalidParameter:
        """Return an error about this name."""
        return InvalidParameter(what, place=self.text)

    def allow_options(self, *allowed: str) -> None:
        """Raise InvalidParameter if the name has any other option."""
        if unknown := sorted(self.options.keys() - set(allowed)):
            raise self.error(f"{self.scheme} has no option {unknown[0]!r}; use {' or '.join(allowed) or 'none'}")

    def seconds(self, option: str, default: float) -> float:
        """Return the value of an option in seconds. Raise InvalidParameter unless it is above 0 and at most a day."""
        given = self.options.get(option)
        if given is None:
            return default
        try:
            value = float(given)
        except ValueError:
            value = math.nan
        if not 0 < value <= _MOST_S:
            raise self.error(f"{option} is {given!r}; use a number of seconds above 0, of at most a day")
        return value


def resolver_for(text: str, settings: Settings) -> Resolver:
    """Make the resolver of a name, by the entry point of its scheme.

    Raises InvalidParameter for an invalid name, and Unsupported if a package is missing.
    """
    # Not at the top: addresses don't need this.
    from importlib.metadata import entry_points

    name = Name.parse(text)
    points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name.scheme not in points:
        raise name.error(
            f"no resolver knows the scheme {name.scheme!r}; there are {', '.join(sorted(points)) or 'none'}, and what"
            " one needs comes with the extra of its name, for example pip install 'nnrt[mdns]'"
        )
    point = points[name.scheme]
    try:
        resolver: Resolver = point.load()(name, settings)
    except ModuleNotFoundError as error:
        owner = point.dist.name if point.dist else "nnrt"
        raise Unsupported(
            f"it needs the package {error.name}; pip install '{owner}[{name.scheme}]'", place=text
        ) from error
    return resolver
