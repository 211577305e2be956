"""Which lines count as lines of code."""

import pytest
from lines_of_code import count


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", 0),
        ("# why\n\n", 0),
        ('"""What it is."""\n', 0),
        ('"""What\n\nit is."""\nX = 1  # one\n', 1),
        ('def f() -> str:\n    """Return it."""\n    return """a\n    b"""\n', 3),
        ("x = (\n    1,\n    # two\n    2,\n)\n", 4),
        ("a = 1; b = 2\n", 1),
        ('"a" "b"\n', 1),
    ],
)
def test_lines_with_code_are_counted(text: str, lines: int) -> None:
    assert count(text) == lines
