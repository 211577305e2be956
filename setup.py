"""Build libneural_network_runtime where there is a compiler; everything else is in pyproject.toml."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

SOURCE = Path("nnrt_client", "c", "library.c")
LIBRARY = Path("nnrt_client", "c", "lib", "libneural_network_runtime.so")
FLAGS = "-std=gnu11 -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden"
# Programs look for it by its name, wherever they were linked with it; it is never unloaded, for Python goes on in it.
LINKED = f"-Wl,-soname,{LIBRARY.name} -Wl,-z,nodelete"


def compiler() -> list[str]:
    """Return the command of the compiler; empty if there is none, or the library is not built here."""
    command = shlex.split(os.environ.get("CC", "cc"))
    return command if sys.platform == "linux" and shutil.which(command[0]) else []


class BuildWithLibrary(build_py):
    """Copies the packages, and compiles the library among them. One serves all versions of Python."""

    def run(self) -> None:
        super().run()
        if not compiler():
            self.announce("there is no C compiler: the library for C is left out", level=3)
            return
        target = LIBRARY if self.editable_mode else Path(self.build_lib, LIBRARY)
        target.parent.mkdir(parents=True, exist_ok=True)
        sources = [f"-I{SOURCE.parent / 'include'}", str(SOURCE), "-o", str(target), "-ldl", "-lpthread"]
        if subprocess.run([*compiler(), *FLAGS.split(), *LINKED.split(), *sources]).returncode:  # noqa: S603
            target.unlink(missing_ok=True)
            self.announce("the C compiler failed: the library for C is left out", level=4)


class Package(Distribution):
    """Is of this platform where the library is in it."""

    def has_ext_modules(self) -> bool:
        return bool(compiler())


class WheelOfPlatform(bdist_wheel):
    """Names the platform, where there is one to name, and no version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return "py3", "none", platform


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelOfPlatform}, distclass=Package)
