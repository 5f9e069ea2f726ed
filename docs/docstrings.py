"""Docstrings for the site: formulas become MathML, which browsers draw by themselves, and examples code blocks.

mkdocs.yml names this file; mkdocstrings hands every object that it has read to `ForTheSite`.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object
from latex2mathml.converter import convert

BLOCK = re.compile(r"^(?P<indent> *)\.\. math::(?P<body>.*\n(?:(?P=indent)[ ]+\S.*(?:\n|\Z)|[ ]*\n)*)", re.M)
INLINE = re.compile(r":math:`([^`]+)`")
EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n[ ]*\S.*)*", re.M)


def rewritten(text: str) -> str:
    """A docstring with its formulas as MathML and its examples in fences; the rest stays as it is."""
    return EXAMPLE.sub(_fenced, INLINE.sub(lambda found: _mathml(found[1], "inline"), BLOCK.sub(_block, text)))


def _block(found: re.Match[str]) -> str:
    body = " ".join(found["body"].split())
    if "&" in body or r"\\" in body:
        body = rf"\begin{{split}} {body} \end{{split}}"
    return f"\n{found['indent']}{_mathml(body, 'block')}\n\n"


def _mathml(latex: str, display: str) -> str:
    return str(convert(" ".join(latex.split()).replace(r"\texttt", r"\text"), display=display))


def _fenced(found: re.Match[str]) -> str:
    indent = found["indent"]
    return f"\n{indent}```pycon\n{found[0]}\n{indent}```\n"


class ForTheSite(Extension):
    """Rewrites the docstring of every module, class, function and attribute."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for each object after its members were read."""
        if obj.docstring is not None:
            obj.docstring.value = rewritten(obj.docstring.value)
