"""Text of others, where people read it."""


def shown(text: str) -> str:
    """Text on one line that can't steer a terminal.

    Control characters, and those that turn the direction of writing, are spelled out.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )
