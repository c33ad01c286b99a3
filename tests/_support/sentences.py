"""What a test compares with a snapshot: a line of an output, without values that vary."""

__all__ = ["line_with", "masked"]


def masked(text: str, **values: object) -> str:
    """Return `text` with each value, such as a folder or a port, replaced by its name."""
    for name, value in values.items():
        assert str(value) in text, f"{name} is {value}, which is not in {text!r}"
        text = text.replace(str(value), name)
    return text


def line_with(words: str, text: str) -> str:
    """Return the only line of `text` that has `words` in it."""
    lines = [line for line in text.splitlines() if words in line]
    assert len(lines) == 1, f"{len(lines)} lines have {words!r}:\n{text}"
    return lines[0]
