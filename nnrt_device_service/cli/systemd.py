"""Command `nnrt-device systemd`: units for daemons and for the supervisor of a host."""

from pathlib import Path

import click

from nnrt_device_service.fleet.units import UNITS, require_lasting_interpreter, unit, unit_folder
from nnrt_hdi.errors import InvalidPath


@click.group()
def systemd() -> None:
    """Run daemons under systemd."""


@systemd.command()
@click.option("--user", "is_user", is_flag=True, help="For the user's own systemd, not the host's.")
@click.option("--print", "is_printed", is_flag=True, help="Print the units and write nothing.")
@click.option(
    "--file", type=click.Path(dir_okay=False, path_type=Path), help="Fleet file for nnrt-fleet.service; see `up`."
)
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Folder other than systemd's own.")
def install(is_user: bool, is_printed: bool, file: Path | None, folder: Path | None) -> None:
    """Write the units nnrt-device@.service and nnrt-fleet.service, for this interpreter."""
    try:
        require_lasting_interpreter()
    except InvalidPath as error:
        raise click.ClickException(str(error)) from error
    folder = folder or unit_folder(is_user=is_user)
    for name in UNITS:
        text = unit(name, is_user=is_user, fleet_file=file)
        if is_printed:
            click.echo(f"# {name}\n\n{text}")
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        except OSError as error:
            raise click.ClickException(f"{error.filename}: {error.strerror}; --user needs no rights") from error
        click.echo(folder / name)
    if not is_printed:
        systemctl = "systemctl --user" if is_user else "systemctl"
        click.echo(f"next:\n  {systemctl} daemon-reload\n  {systemctl} enable --now nnrt-fleet.service")
