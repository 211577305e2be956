"""The whole suite on every Python, with the oldest and with the newest of what the project needs: `make matrix`.

A Python that PATH doesn't have is skipped, and the summary says so. `make matrix NOX_ARGS='--list'` lists the sessions,
`make matrix NOX_ARGS='--session "tests-3.12(oldest)" -- tests/client'` runs a part of one.
"""

import nox
from packaging.requirements import Requirement

PROJECT = nox.project.load_toml("pyproject.toml")
# The first that has wheels for a Python, where that is newer than what pyproject.toml asks for.
FIRST_WHEELS = {
    "3.12": {"numpy": "1.26.0", "pillow": "10.1.0"},
    "3.13": {"numpy": "2.1.0", "pillow": "10.4.0"},
    "3.14": {"grpcio": "1.75.1", "numpy": "2.3.2", "onnxruntime": "1.24.1", "pillow": "12.0.0"},
}

nox.needs_version = ">=2025.5.1"
nox.options.error_on_missing_interpreters = False
nox.options.reuse_venv = "yes"
nox.options.stop_on_first_error = False


def floors(python: str) -> list[str]:
    """Pin each requirement of pyproject.toml to the least version that it takes."""
    extras = PROJECT["project"]["optional-dependencies"]
    pins = []
    chosen = ("dns", "images", "keys", "mdns", "metrics", "onnxruntime")
    for line in [*PROJECT["project"]["dependencies"], *(line for extra in chosen for line in extras[extra])]:
        needed = Requirement(line)
        (least,) = (bound.version for bound in needed.specifier if bound.operator == ">=")
        pins.append(f"{needed.name}=={FIRST_WHEELS.get(python, {}).get(needed.name, least)}")
    return pins


@nox.session(python=[*nox.project.python_versions(PROJECT), "3.14"])
@nox.parametrize("needs", [nox.param("oldest", id="oldest"), nox.param("newest", id="newest")])
def tests(session: nox.Session, needs: str) -> None:
    """Run the suite, or the files that are given behind `--`."""
    pins = floors(str(session.python)) if needs == "oldest" else ["--upgrade", "--upgrade-strategy=eager"]
    session.install("--editable", ".[test]", *pins)
    session.run("pytest", "-q", "-n", "auto", "--maxprocesses", "4", "--dist", "worksteal", *session.posargs)
