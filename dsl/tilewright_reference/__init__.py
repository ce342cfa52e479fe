"""References of kernels as data: read, checked and evaluated without running anybody's code.

A package of its own, with nothing but the standard library (NumPy where it is asked for), because a worker on another
machine carries it while the language stays here.
"""

from tilewright_reference.language import FUNCTIONS, Backend, BadReference, Reference, folded, parse_reference

__all__ = ["FUNCTIONS", "Backend", "BadReference", "Reference", "folded", "parse_reference"]
