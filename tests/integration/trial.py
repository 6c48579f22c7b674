"""Lines as people type them, with what they should see; and their mistakes, with the sentence each gets.

A line with an expectation is an expression, and the expectation another one. A mistake is an expression that has to raise: an error whose
text has the sentence, and neither a traceback nor more lines than somebody reads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

Line = str | tuple[str, str]
LONGEST = 20


def type_lines(names: dict[str, Any], lines: Sequence[Line]) -> list[str]:
    """Type one after the other, into `names`; returns what went another way than it should."""
    wrong = []
    for line in lines:
        try:
            if isinstance(line, str):
                exec(line, names)
            elif (saw := eval(line[0], names)) != (wanted := eval(line[1], names)):
                wrong.append(f"{line[0]}\n    saw {saw!r}, not {wanted!r}")
        except Exception as e:
            wrong.append(f"{line if isinstance(line, str) else line[0]}\n    {type(e).__name__}: {str(e)[:2000]}")
    return wrong


def make_mistakes(
    names: dict[str, Any],
    mistakes: Sequence[tuple[str, str]],
    errors: type[Exception] | tuple[type[Exception], ...] = Exception,
    heading: str = "",
) -> list[str]:
    """Make each mistake; returns those that were taken, or answered otherwise. Capital names in braces stand for their value in `names`.

    `heading`: a pattern of all that may stand before a sentence of ours, where another program hands it on.
    """
    wrong = []
    for text, sentence in mistakes:
        for name in (name for name in names if name.isupper()):
            sentence = sentence.replace(f"{{{name}}}", str(names[name]))
        try:
            eval(text, names)
            wrong.append(f"{text}\n    was taken")
        except Exception as e:
            said = str(e)
            plainly = isinstance(e, errors) and "Traceback" not in said
            if heading and "tidewheel.errors" in said and not re.match(rf"{heading}[^\n]*{re.escape(sentence)}", said):
                wrong.append(f"{text}\n    does not begin with {sentence}, but: {said[:2000]}")
            elif not plainly or sentence not in said or len(said.split("=== Streaming Query ===")[0].splitlines()) > LONGEST:
                wrong.append(f"{text}\n    said {type(e).__name__}: {said[:2000]}\n    not {sentence}")
    return wrong
