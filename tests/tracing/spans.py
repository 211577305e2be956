"""Spans for tests, from this process or from a daemon's file."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

# Tolerance for clocks that are read one after another.
_SLACK_NS = 50_000


@dataclass(frozen=True)
class Spanned:
    """One span; its times are nanoseconds of the wall clock."""

    name: str
    trace_id: str
    id: str
    parent_id: str
    kind: str
    began_ns: int
    ended_ns: int
    status: str
    attributes: Mapping[str, Any]
    events: list[Mapping[str, Any]]

    @property
    def took_ns(self) -> int:
        return self.ended_ns - self.began_ns


def _from_json(span: Mapping[str, Any]) -> Spanned:
    def number(text: str) -> str:
        return text.removeprefix("0x")

    def ns(text: str) -> int:
        since = datetime.fromisoformat(text.replace("Z", "+00:00")) - datetime.fromisoformat(
            "1970-01-01T00:00:00+00:00"
        )
        return (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000

    context, parent_id = span["context"], span["parent_id"]
    return Spanned(
        span["name"],
        number(context["trace_id"]),
        number(context["span_id"]),
        number(parent_id) if parent_id else "",
        span["kind"],
        ns(span["start_time"]),
        ns(span["end_time"]),
        span["status"]["status_code"],
        span["attributes"],
        span["events"],
    )


def in_memory(spans: Iterable[ReadableSpan]) -> list[Spanned]:
    return [_from_json(json.loads(span.to_json())) for span in spans]


def in_file(path: Path) -> list[Spanned]:
    return [_from_json(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


class Tree:
    """Spans of one or several traces."""

    def __init__(self, *spans: Spanned) -> None:
        self.spans = sorted(spans, key=lambda span: span.began_ns)
        self._by_id = {span.id: span for span in spans}

    def named(self, name: str) -> list[Spanned]:
        return [span for span in self.spans if span.name == name]

    def the(self, name: str) -> Spanned:
        (span,) = self.named(name)
        return span

    def parent_of(self, span: Spanned) -> Spanned:
        return self._by_id[span.parent_id]

    def children_of(self, span: Spanned) -> list[Spanned]:
        return [each for each in self.spans if each.parent_id == span.id]

    def require_sound(self) -> None:
        """Check that each child lies within its parent, and belongs to the same trace."""
        for child in self.spans:
            if parent := self._by_id.get(child.parent_id):
                assert child.trace_id == parent.trace_id
                assert child.began_ns >= parent.began_ns - _SLACK_NS, (child, parent)
                assert child.ended_ns <= parent.ended_ns + _SLACK_NS, (child, parent)

    def require_whole(self, parent: Spanned) -> None:
        """Check that a span's children cover it but for 5 %, and that those of one process don't overlap."""
        children = self.children_of(parent)
        assert 0.95 <= sum(child.took_ns for child in children) / parent.took_ns <= 1.05, (parent, children)
        made_here = [child for child in children if child.kind == "SpanKind.INTERNAL"]
        for child, later in pairwise(made_here):
            assert child.ended_ns <= later.began_ns + _SLACK_NS, (child, later)

    def __iter__(self) -> Iterator[Spanned]:
        return iter(self.spans)
