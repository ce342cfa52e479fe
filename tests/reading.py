"""Reading kernels from text, for tests of the front end and of what follows it."""

from tilewright.frontend import Module, parse_module
from tilewright.source import SourceText

HEADER = """import tilewright as tw
from tilewright import Const, Global, f16, f32

M, N, K = tw.sizes("M", "N", "K")
"""


def read(text: str | bytes) -> Module:
    """The module that a text or the bytes of a file are read as."""
    data = text.encode() if isinstance(text, str) else text
    return parse_module(SourceText(data, "test.py"))
