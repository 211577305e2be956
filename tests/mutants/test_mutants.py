"""The conformance kit finds a sample of the defects; `make mutants` tries all."""

import re

import pytest
from daemon_process import DaemonProcess
from part import part

from mutants.defects import DEFECTS
from mutants.prove import PAGE, finding, only_changes_answers

pytestmark = pytest.mark.slow

OF_ANSWERS = [name for name, defect in DEFECTS.items() if only_changes_answers(defect)]
# One defect per decorator that puts defects into the backend, and per level that is code.
OTHERS = ("unknown-extensions-accepted", "one-context-for-all-models", "anything-restored", "zero-divisor-ends-it")


@pytest.mark.parametrize("name", [*part(OF_ANSWERS, str, lambda name: [DEFECTS[name].kind]), *OTHERS])
def test_the_kit_catches_what_is_wrong_and_no_more(name: str) -> None:
    found, defect = finding(name, whole=False), DEFECTS[name]
    assert bool(found.caught_by) is not bool(defect.left_open), f"{name}: {defect.what} {found}"


def test_every_defect_says_what_is_wrong_in_a_sentence() -> None:
    assert [defect.name for defect in DEFECTS.values() if not defect.what.endswith(".")] == []


def test_the_page_lists_every_defect() -> None:
    listed = re.findall(r"^\| .*\(`([a-z0-9-]+)`\) \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(DEFECTS), "the table is out of date; make mutants"


def test_a_daemon_with_an_unknown_defect_names_those_there_are() -> None:
    with pytest.raises(RuntimeError, match=r"there is no defect 'none'; there are .*softmax-of-the-last-dimension"):
        DaemonProcess("--backend", "mutant", "--option", "defect=none")
