"""Command `nnrt-device new-backend`."""

import re
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

import click

from nnrt_hdi.backend import backend_names

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_MOST_NAME_LENGTH = 40


@click.command()
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="Where to write the package; by default nnrt-backend-NAME, here. It must not exist.",
)
def new_backend(name: str, directory: Path | None) -> None:
    """Write a package for a backend called NAME: it computes a few operators with numpy, and its tests pass.

    It is left to you to replace numpy with the accelerator, and to add the operators that the accelerator runs.
    """
    _require_free(name)
    directory = directory or Path(f"nnrt-backend-{name.replace('_', '-')}")
    try:
        directory.mkdir(parents=True)
        written = list(_write(name, directory))
    except FileExistsError as error:
        raise click.ClickException(f"{directory} is there already; name another --directory") from error
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    for path in written:
        click.echo(path)
    click.echo(f"\nnext: pip install -e '{directory}[test]' && pytest {directory}; its README.md says how to go on")


def _require_free(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > _MOST_NAME_LENGTH:
        raise click.UsageError(
            f"{name!r} is no name for a backend; use lower-case letters, digits and single underscores between them, at"
            f" most {_MOST_NAME_LENGTH}, a letter first"
        )
    if name in backend_names():
        raise click.UsageError(f"there is a backend {name!r} already; `nnrt-device backends` lists them")


def _write(name: str, directory: Path) -> Iterator[Path]:
    """Copy the skeleton, renamed to `name`, and yield the written paths."""
    with as_file(files("nnrt_device_service.cli") / "skeleton") as skeleton:
        for source in sorted(skeleton.rglob("*")):
            if source.is_dir() or source.parent.name == "__pycache__":
                continue
            path = directory / _renamed(name, str(source.relative_to(skeleton)))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_renamed(name, source.read_text(encoding="utf-8")), encoding="utf-8")
            yield path


def _renamed(name: str, text: str) -> str:
    """Return a text of the skeleton with the backend's name in place of acme, also in classes and distribution."""
    names = {
        "nnrt-backend-acme": f"nnrt-backend-{name.replace('_', '-')}",
        "Acme": "".join(word.capitalize() for word in name.split("_")),
        "acme": name,
    }
    return re.sub("|".join(names), lambda found: names[found[0]], text)
