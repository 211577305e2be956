"""Failures of commands, which print one line and set an exit code."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from nnrt_client.cli.printing import one_line
from nnrt_hdi.errors import NnrtError

INTERRUPTED = 130


class Commands(click.Group):
    """Group of commands that print a failure as one line on standard error, never as a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (NnrtError, OSError, MemoryError) as error:
            raise click.ClickException(_failure_line(error)) from error
        except KeyboardInterrupt as error:
            click.echo("interrupted", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from error


@contextmanager
def exit_on_failure(code: int) -> Iterator[None]:
    """Exit with this code, instead of the usual one, when the block fails."""
    try:
        yield
    except (NnrtError, OSError, MemoryError) as error:
        click.echo(f"Error: {_failure_line(error)}", err=True)
        raise click.exceptions.Exit(code) from error


def _failure_line(error: NnrtError | OSError | MemoryError) -> str:
    """Return the line that reports a failure.

    Raises the error itself if it is a closed pipe: then click exits quietly, because nobody reads the output.
    """
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, NnrtError):
        return one_line(str(error))
    if error.errno == errno.EPIPE:
        raise error
    return one_line(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
