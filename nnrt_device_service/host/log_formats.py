"""Log formats: text for people, JSON for programs."""

import json
import logging
from datetime import datetime, timezone
from typing import Any

from nnrt_device_service.host.log_context import FIELDS, log_fields
from nnrt_hdi.text import escape_for_terminal


class TextFormatter(logging.Formatter):
    """Formatter of text lines with the context fields at their ends, followed by the lines of a traceback."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # logging's name
        fields = (f" {name}={_quoted(str(value))}" for name, value in fields_of(record).items() if name != "device")
        return escape_for_terminal(super().formatMessage(record) + "".join(fields))

    def formatException(self, ei: Any) -> str:  # logging's name
        lines = super().formatException(ei).split("\n")
        # The indent distinguishes these lines from log events.
        return "\n".join(f"  {escape_for_terminal(line)}" for line in lines)


class JsonFormatter(logging.Formatter):
    """Formatter of JSON lines, with the names of the Elastic Common Schema, and `FIELDS` for NNRt's own."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        event: dict[str, object] = {
            "@timestamp": at.replace("+00:00", "Z"),
            "log.level": record.levelname.lower(),
            "log.logger": record.name,
            "message": record.getMessage(),
            "process.pid": record.process,
            "process.thread.name": record.threadName,
            "service.name": "nnrt-device",
            **fields_of(record),
        }
        if code := getattr(record, "error_code", None):
            event["error.code"] = code
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            event["error.type"] = type(error).__name__
            event["error.message"] = str(error)
            event["error.stack_trace"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str)


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Return a record's context fields by name, from the record or else from the thread that logs it."""
    known = log_fields()
    fields = {name: getattr(record, name, known.get(name)) for name in FIELDS}
    return {name: value for name, value in fields.items() if value is not None}


def _quoted(text: str) -> str:
    return text if text and not set(text) & set(' "=') else json.dumps(text, ensure_ascii=False)
