"""Command that prints compiler and linker flags for the C library.

cc program.c $(python -m nnrt_client.c --cflags --libs)
"""

from pathlib import Path

import click

from nnrt_client.c import INCLUDE, LIB, LIBRARY


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--cflags", is_flag=True, help="Flags for the compiler.")
@click.option("--libs", is_flag=True, help="Flags for the linker, with a run path to the library.")
@click.option("--pkg-config", "pkg_config", is_flag=True, help="The directory for PKG_CONFIG_PATH.")
@click.option("--cmake", is_flag=True, help="The directory for CMAKE_PREFIX_PATH.")
def main(cflags: bool, libs: bool, pkg_config: bool, cmake: bool) -> None:
    """Print compiler and linker flags, or directories, for libneural_network_runtime and its headers."""
    if not LIBRARY.exists():
        raise click.ClickException(
            f"{LIBRARY} isn't there: nnrt was installed where there was no C compiler; install one, and then nnrt again"
        )
    flags = []
    if cflags:
        flags.append(f"-I{INCLUDE}")
    if libs:
        flags.append(f"-L{LIB} -Wl,-rpath,{LIB} -lneural_network_runtime")
    if pkg_config:
        flags.append(str(LIB / "pkgconfig"))
    if cmake:
        flags.append(str(LIB.parent))
    click.echo(" ".join(flags) or str(Path(LIBRARY)))


if __name__ == "__main__":
    main(prog_name="python -m nnrt_client.c")
