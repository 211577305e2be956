"""Foreign text, made safe to show."""


def escape_for_terminal(text: str) -> str:
    """Return the text on one line, harmless for a terminal.

    Control characters, and characters that change the direction of writing, are spelled out.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )
