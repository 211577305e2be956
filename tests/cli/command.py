"""The command `nnrt`, run in this process or as a child process."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import warm
from click.testing import CliRunner, Result

from nnrt_client import Model
from nnrt_client.cli import main

NOBODY = "127.0.0.1:1"
_DEADLINE_S = 60


def nnrt(*arguments: object) -> Result:
    """Run the command in this process; return its output and exit code."""
    result = CliRunner().invoke(main, [*map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def json_output(*arguments: object, exit_code: int = 0) -> Any:
    """Run the command with --json, and return the document that it prints."""
    result = nnrt(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def refused(exit_code: int, *arguments: object) -> str:
    """Run a command that must fail, and return its error line."""
    result = nnrt(*arguments)
    assert result.exit_code == exit_code, result.output
    assert result.stdout == ""
    *before, line = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert not before or exit_code == 2
    return line


def saved(model: Model, path: Path) -> Path:
    model.save(path)
    return path


def process(*arguments: object, columns: int = 100, **options: Any) -> "subprocess.Popen[bytes]":
    """Start the command as a child process, for a terminal of `columns` columns."""
    return warm.Popen(
        [sys.executable, "-m", "nnrt_client", *map(str, arguments)],
        env={**os.environ, "TERM": "xterm", "COLUMNS": str(columns)},
        **{"stdout": subprocess.PIPE, **options},
    )


def on_terminal(*arguments: object, columns: int = 80) -> list[str]:
    """Run the command on a pseudo-terminal, and return the lines that it shows, without escape sequences."""
    terminal, end = os.openpty()
    with (
        os.fdopen(terminal, "rb", buffering=0) as reader,
        process(*arguments, columns=columns, stdout=end, stderr=subprocess.DEVNULL) as command,
    ):
        os.close(end)
        shown = b""
        try:
            while part := reader.read(1 << 16):
                shown += part
        except OSError:  # Reading fails like this after the command has closed the terminal.
            pass
        command.wait(_DEADLINE_S)
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown.decode()).splitlines()
