"""Markdown, as the reports write it."""


def table(head, lines, text=(0, )):
    """text: the columns that stand to the left, of which numbers are none."""
    rule = ["---" if i in text else "--:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule] + lines) + "\n"
