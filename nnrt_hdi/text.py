"""Text of others, made safe where people read it."""


def escape_for_terminal(text: str) -> str:
    """The text on one line, which does nothing to a terminal.

    Control characters, and those that turn the direction of writing, are spelled out.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )
