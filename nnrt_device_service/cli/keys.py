"""Command `nnrt-device keys`: certificates and tokens for a fleet."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nnrt_device_service.access.tokens import issue_token
from nnrt_device_service.cli.table import new_table, print_table
from nnrt_hdi.access.access_file import new_entry
from nnrt_hdi.access.identity import NAME, ROLES, Identity, Role
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.files.new_file import only_writer_of

if TYPE_CHECKING:
    from nnrt_device_service.access.keys import Authority

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_ACCESS = "access"


class _Commands(click.Group):
    """Command group that prints an NnrtError or OSError as one line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except NnrtError as error:
            raise click.ClickException(str(error)) from error
        except OSError as error:
            raise click.ClickException(f"{error.filename}: {error.strerror}") from error


@click.group(cls=_Commands)
def keys() -> None:
    """Make certificates and tokens for daemons and clients, in the fleet's folder."""


def _checked_name(_: click.Context, __: click.Parameter, name: str) -> str:
    if not NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r} is no name; use letters, digits and ._@-")
    return name


_folder = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
_name = click.argument("name", callback=_checked_name)
_role = click.option("--role", type=click.Choice(ROLES), required=True, help="What the client may do.")
_days = click.option(
    "--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long the certificate is valid."
)
_replace = click.option("--replace", "replaces", is_flag=True, help="Replace existing files.")


@keys.command()
@_folder
@click.option("--host", "hosts", multiple=True, required=True, help="Host or address of the daemon. May be repeated.")
@_days
@_replace
def server(folder: Path, hosts: tuple[str, ...], days: int, replaces: bool) -> None:
    """Make a daemon's certificate, and the fleet's certificate authority if FOLDER has none."""
    with only_writer_of(folder):
        authority = _authority(folder)
        certificate, key = authority.issue_server(re.sub(r"[^A-Za-z0-9._-]", "_", hosts[0]), hosts, days, replaces)
    _print_written(
        [
            *_authority_rows(authority),
            (certificate, "the daemon's certificate", "--tls-cert"),
            (key, "its key, for nobody else", "--tls-key"),
        ],
        f"nnrt-device keys token {folder} NAME --role compile",
        f"nnrt-device serve --listen {_example_address(hosts[0])} --tls-cert {certificate} --tls-key {key}"
        f" --access {folder / _ACCESS}",
    )


@keys.command()
@_folder
@_name
@_role
@_days
@_replace
def client(folder: Path, name: str, role: str, days: int, replaces: bool) -> None:
    """Make a client's certificate and enter it in FOLDER/access."""
    identity = Identity("name", name, Role[role.upper()])
    with only_writer_of(folder), new_entry(folder / _ACCESS, identity, "certificate", name, replaces=True):
        authority = _authority(folder)
        certificate, key = authority.issue_client(name, days, replaces)
    _print_written(
        [
            *_authority_rows(authority),
            (certificate, f"the certificate of {name}", "NNRT_TLS_CERT"),
            (key, "its key, for nobody else", "NNRT_TLS_KEY"),
            (folder / _ACCESS, f"now with {name}, role {role}", "--access"),
        ],
        f"NNRT_TLS_CA={folder / 'ca.pem'} NNRT_TLS_CERT={certificate} NNRT_TLS_KEY={key} nnrt devices HOST:PORT",
    )


@keys.command()
@_folder
@_name
@_role
@_replace
def token(folder: Path, name: str, role: str, replaces: bool) -> None:
    """Make a client's token and enter it in FOLDER/access."""
    with only_writer_of(folder):
        path = issue_token(folder, folder / _ACCESS, Identity("name", name, Role[role.upper()]), replaces)
    _print_written(
        [
            (path, f"the token of {name}, for nobody else", "NNRT_TOKEN_FILE"),
            (folder / _ACCESS, f"now with {name}, role {role}", "--access"),
        ],
        f"NNRT_TLS_CA={folder / 'ca.pem'} NNRT_TOKEN_FILE={path} nnrt devices HOST:PORT",
    )


def _authority(folder: Path) -> "Authority":
    try:
        from nnrt_device_service.access.keys import Authority
    except ImportError as error:
        raise click.ClickException("certificates need the package cryptography; install nnrt[keys]") from error
    return Authority(folder)


def _authority_rows(authority: "Authority") -> list[tuple[Path, str, str]]:
    if not authority.is_new:
        return []
    return [
        (authority.folder / "ca.pem", "the fleet's authority, for every client", "NNRT_TLS_CA"),
        (authority.folder / "ca-key.pem", "its key: who has it lets in anybody", ""),
    ]


def _example_address(host: str) -> str:
    return f"[{host}]:50051" if ":" in host else f"{host}:50051"


def _print_written(written: list[tuple[Path, str, str]], *next_commands: str) -> None:
    """Print the written files and the next commands."""
    table = new_table()
    for column in ("written", "what it is", "for"):
        table.add_column(column)
    for path, what, use in written:
        table.add_row(str(path), what, use)
    print_table(table)
    click.echo("next:")
    for command in next_commands:
        click.echo(f"  {command}")
