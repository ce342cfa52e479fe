"""Edits of a kernel's text: each changes one thing that decides where data goes, when, or in which type.

Formulas are left alone: that a kernel computes x + y where x - y was meant, nothing but its specification can tell.

The text is read by Python's own parser, not by ours: an edit may be one that our front end refuses. Each operator
yields (name, replacement); `mutants` puts the replacement into the file and gives the new text.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

# Statements without a result, each of which orders something or moves something.
EFFECTS = frozenset((
    "wait", "arrive", "expect", "fence_async", "sync", "cp_commit", "cp_wait", "wgmma_wait", "tma_load", "tma_store",
    "tma_store_wait", "cp_async", "store_shared", "store", "assume", "tcgen05_mma", "tcgen05_commit",
))  # fmt: skip
# Calls whose arguments are scalars, or hold scalars in these positions.
SCALAR_CALLS = frozenset(("cdiv", "min", "max", "range", "tiles", "programs", "pipeline", "assume", "expect", "wait"))


@dataclass(frozen=True)
class Mutant:
    """One edit: its name, the line it stands on, and the text of the file with it."""

    operator: str
    line: int
    text: str


def mutants(text: str, kernel: str) -> Iterator[Mutant]:
    """Every single edit of `kernel` and of the helpers of scalars in the file, each text once."""
    tree = ast.parse(text)
    seen = {ast.unparse(tree)}
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or (function.name != kernel and not _is_scalar(function)):
            continue
        scope = _Scope(function)
        for name, node, old, new in _edits(function, scope):
            edited = ast.unparse(copy.deepcopy(tree, {id(old): new}))
            if edited not in seen:
                seen.add(edited)
                yield Mutant(name, getattr(node, "lineno", function.lineno), edited + "\n")


Edit = tuple[str, ast.AST, object, object]  # name, place, what is replaced, by what


def _edits(function: ast.FunctionDef, scope: _Scope) -> Iterator[Edit]:
    for node in ast.walk(function):
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                yield from _block(node, block)
        if isinstance(node, ast.expr):
            for name, new in (*_expression(node, scope), *_call(node, scope)):
                yield name, node, node, new


# -------------------------------------------------------------------------------- statements


def _block(node: ast.AST, block: list[ast.stmt]) -> Iterator[Edit]:
    for i, stmt in enumerate(block):
        before, after = block[:i], block[i + 1 :]
        name = _effect(stmt)
        if name:
            yield f"{name} deleted", stmt, block, before + after or [ast.Pass()]
            if name != "assume":
                yield f"{name} twice", stmt, block, [*before, stmt, stmt, *after]
        if isinstance(stmt, ast.If):
            yield "branch always taken", stmt, block, [*before, *stmt.body, *after]
            yield "branch never taken", stmt, block, [*before, *stmt.orelse, *after] or [ast.Pass()]
        if isinstance(stmt, ast.AugAssign):
            yield "step deleted", stmt, block, before + after or [ast.Pass()]
            yield "step twice", stmt, block, [*before, stmt, stmt, *after]
        if name and after and (_effect(after[0]) or _moves(after[0])):
            yield f"{name} after the next statement", stmt, block, [*before, after[0], stmt, *after[1:]]
        elif after and _effect(after[0]) and _moves(stmt):
            yield f"{_effect(after[0])} before the last statement", stmt, block, [*before, after[0], stmt, *after[1:]]
        if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name) and _carries(node, stmt):
            yield "update of a carried value deleted", stmt, block, before + after or [ast.Pass()]


def _effect(stmt: ast.stmt) -> str:
    """The name of a call that stands as a statement; empty for anything else."""
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
        name = _name(stmt.value)
        return name if name in EFFECTS else ""
    return ""


def _moves(stmt: ast.stmt) -> bool:
    """True for `acc = tw.wgmma(…)` and the like, which may change places with what orders them."""
    value = stmt.value if isinstance(stmt, ast.Assign) else None
    return isinstance(value, ast.Call) and _name(value) in ("wgmma", "load_shared", "load_tensor")


def _carries(node: ast.AST, stmt: ast.Assign) -> bool:
    """True for an assignment in a loop to a name that the loop read before."""
    if not isinstance(node, ast.For) or not isinstance(stmt.value, ast.Name):
        return False
    name = stmt.targets[0]
    assert isinstance(name, ast.Name)
    return any(isinstance(n, ast.Name) and n.id == name.id for n in ast.walk(node) if n is not name)


# -------------------------------------------------------------------------------- expressions


def _expression(node: ast.expr, scope: _Scope) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for new in _FLIPPED.get(type(op), ()):
                yield "comparison", ast.Compare(left, [new()], [right])
            yield "bound one more", ast.Compare(left, [op], [_plus(right, 1)])
            yield "bound one less", ast.Compare(left, [op], [_plus(right, -1)])
        case ast.BinOp(left=left, op=op, right=right) if scope.scalar(node):
            match op:
                case ast.FloorDiv():
                    yield "quotient one more", _plus(node, 1)
                    yield "quotient for remainder", ast.BinOp(left, ast.Mod(), right)
                case ast.Mod():
                    yield "modulus one more", ast.BinOp(left, op, _plus(right, 1))
                    yield "remainder for quotient", ast.BinOp(left, ast.FloorDiv(), right)
                case ast.BitXor():
                    yield "phase not flipped", left
                case ast.Mult():
                    yield "factor one more", ast.BinOp(left, op, _plus(right, 1))
                    yield "factor dropped", left
                case ast.Add() | ast.Sub():
                    other = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
                    yield "sign", ast.BinOp(left, other, right)
                    yield "term dropped", left
                case _:
                    pass
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            for factor, rest in ((right, left), (left, right)):
                if _is_exponential(factor):
                    yield "rescale dropped", rest
                    yield "rescale twice", ast.BinOp(node, ast.Mult(), factor)
        case ast.BinOp(left=left, op=ast.Div(), right=right) if scope.scalar(right):
            for length in scope.lengths:
                yield "length of the tile for a size", ast.BinOp(left, ast.Div(), ast.Constant(length))
        case ast.BinOp(left=left, op=ast.Div(), right=ast.Call() as right) if _name(right) == "sum":
            yield "not normalized", left
        case ast.Name(id=name) if scope.tile_variable(node):
            for other in scope.tiles - {name}:
                yield f"{other} for {name}", ast.Name(other)
        case _:
            pass


_FLIPPED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}


def _call(node: ast.expr, scope: _Scope) -> Iterator[tuple[str, ast.expr]]:
    """Edits of a call, or of the index of a ring."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in scope.rings:
        stages = ast.Constant(scope.rings[node.value.id])
        yield f"next stage of {node.value.id}", _with_index(node, ast.BinOp(_plus(node.slice, 1), ast.Mod(), stages))
        if not isinstance(node.slice, ast.Constant):
            yield f"stage 0 of {node.value.id}", _with_index(node, ast.Constant(0))
    if not isinstance(node, ast.Call):
        return
    name, args = _name(node), node.args
    match name, args:
        case "wait", [bar, parity]:
            yield "parity flipped", _with(node, bar, ast.BinOp(parity, ast.BitXor(), ast.Constant(1)))
            yield "parity constant", _with(node, bar, ast.Constant(0))
        case "expect", [bar, size]:
            yield "half the bytes", _with(node, bar, ast.BinOp(size, ast.FloorDiv(), ast.Constant(2)))
            yield "more bytes", _with(node, bar, _plus(size, 16))
        case (("wgmma_wait" | "cp_wait" | "tma_store_wait"), [count]):
            yield "one more pending", _with(node, _plus(count, 1))
            if not (isinstance(count, ast.Constant) and count.value == 0):
                yield "one less pending", _with(node, _plus(count, -1))
        case "cdiv", [a, b]:
            yield "rounded down", ast.BinOp(a, ast.FloorDiv(), b)
        case (("min" | "max"), [_, _]) if isinstance(node.func, ast.Name):
            yield "min for max", ast.Call(ast.Name("max" if name == "min" else "min"), args, [])
            yield "cap dropped", args[0]
            yield "the other bound", args[1]
        case (("range" | "pipeline"), [low, high, step]):
            yield "starts late", _with(node, _sum(low, step), high, step)
            yield "ends early", _with(node, low, ast.BinOp(high, ast.Sub(), step), step)
            yield "ends late", _with(node, low, _sum(high, step), step)
            yield "tail left out", _with(node, low, _floor(high, step), step)
            yield "every second tile", _with(node, low, high, ast.BinOp(step, ast.Mult(), ast.Constant(2)))
        case "range", [high]:
            yield "starts late", _with(node, ast.Constant(1), high)
            yield "ends early", _with(node, _plus(high, -1))
        case "barrier", [_]:
            for word in node.keywords:
                if word.arg == "arrivals":
                    yield "one arrival more", _keyword(node, "arrivals", _plus(word.value, 1))
        case (("tiles" | "programs"), _):
            for i, count in enumerate(args):
                yield "one tile more", _with(node, *args[:i], _plus(count, 1), *args[i + 1 :])
                yield "one tile less", _with(node, *args[:i], _plus(count, -1), *args[i + 1 :])
        case "tile", [ast.Tuple(elts=origin), ast.Tuple(elts=extent)]:
            for i, length in enumerate(extent):
                for what, distance in (("one tile on", length), ("one element on", ast.Constant(1))):
                    moved = [*origin[:i], _sum(origin[i], distance), *origin[i + 1 :]]
                    yield f"axis {i} {what}", _with(node, ast.Tuple(moved), args[1])
            if len(origin) == 2:
                yield "origin swapped", _with(node, ast.Tuple(origin[::-1]), args[1])
        case (("mma" | "wgmma"), [a, b, acc]):
            yield "operands swapped", _with(node, b, a, acc)
        case "where", [_, a, b]:
            yield "mask dropped", a
            yield "mask inverted", _with(node, args[0], b, a)
        case (("exp" | "exp2"), [ast.BinOp(left=left, op=ast.Sub(), right=right) as difference]):
            yield "exponent of the other sign", _with(node, ast.BinOp(right, ast.Sub(), left))
            yield "nothing subtracted", _with(node, difference.left)
        case (("maximum" | "minimum"), [a, b]):
            other = "minimum" if name == "maximum" else "maximum"
            yield f"{other} for {name}", ast.Call(ast.Attribute(ast.Name("tw"), other), args, node.keywords)
            yield "extreme of the first alone", a
            yield "extreme of the second alone", b
        case (("zeros" | "full"), [ast.Name(id="f32"), *rest]):
            yield "half precision", _with(node, ast.Name("f16"), *rest)
        case _:
            pass
    yield from _words(node)


def _words(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    for word in node.keywords:
        match word.arg:
            case "other":
                yield "other deleted", ast.Call(node.func, node.args, [w for w in node.keywords if w is not word])
                yield "other one", _keyword(node, "other", ast.Constant(1.0))
                infinity = ast.UnaryOp(ast.USub(), ast.Attribute(ast.Name("tw"), "inf"))
                zero = isinstance(word.value, ast.Constant) and word.value.value == 0
                yield "other neutral for the other", _keyword(node, "other", infinity if zero else ast.Constant(0.0))
            case "axis":
                other = 0 if isinstance(word.value, ast.Constant) and word.value.value else 1
                yield "other axis", _keyword(node, "axis", ast.Constant(other))
            case "persistent":
                yield "not persistent", ast.Call(node.func, node.args, [w for w in node.keywords if w is not word])
            case "order":
                yield "row by row", ast.Call(node.func, node.args, [w for w in node.keywords if w is not word])
            case "stages":
                yield "one stage less", _keyword(node, "stages", _plus(word.value, -1))
            case _:
                pass


def _is_exponential(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _name(node) in ("exp", "exp2")


# -------------------------------------------------------------------------------- scope


class _Scope:
    """Which names of a function are scalars, tile coordinates and rings."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.tiles: set[str] = set()
        self.rings: dict[str, int] = {}
        self.tile_names: set[str] = set()
        arguments = {a.arg: a for a in (*function.args.args, *function.args.kwonlyargs)}
        consts = {
            a.arg: d.value
            for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
            if isinstance(d, ast.Constant)
        }
        tensors = {
            n for n, a in arguments.items() if a.annotation is not None and "Global" in ast.unparse(a.annotation)
        }
        self.tile_names |= tensors
        shapes = [n.args[1] for n in ast.walk(function) if isinstance(n, ast.Call) and _name(n) == "tile"]
        extents = [e for shape in shapes for e in getattr(shape, "elts", ())]
        known = [consts.get(e.id) if isinstance(e, ast.Name) else getattr(e, "value", None) for e in extents]
        # Extents of the tiles that hold rows.
        self.lengths = sorted({n for n in known if isinstance(n, int) and n > 1})
        counters: set[str] = set()
        for node in ast.walk(function):
            if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and _name(node.iter) != "tiles":
                counters |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
            if isinstance(node, ast.Call) and _name(node) == "tile" and node.args:
                self.tiles |= {n.id for n in ast.walk(node.args[0]) if isinstance(n, ast.Name)}
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                made, targets = _name(node.value), [n.id for n in ast.walk(node.targets[0]) if isinstance(n, ast.Name)]
                if made in ("shared", "barrier"):
                    self.tile_names |= set(targets)
                    first = node.value.args[1] if made == "shared" else node.value.args[0]
                    ring = isinstance(first, ast.Tuple) and len(first.elts) == 3
                    count = first.elts[0] if isinstance(first, ast.Tuple) else first
                    value = consts.get(count.id) if isinstance(count, ast.Name) else getattr(count, "value", None)
                    if isinstance(value, int) and (ring or made == "barrier"):
                        self.rings[targets[0]] = value
        changed = True
        while changed:  # a name is a tile if anything assigned to it is one
            changed = False
            for node in ast.walk(function):
                value = getattr(node, "value", None)
                if (
                    isinstance(node, ast.Assign | ast.AugAssign)
                    and isinstance(value, ast.expr)
                    and not self.scalar(value)
                ):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    found = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
                    changed |= not found <= self.tile_names
                    self.tile_names |= found
        # Coordinates of the tile that a program works on: not those that run within it, sizes or constants.
        self.tiles -= self.tile_names | counters | {n for n in self.tiles if n.isupper()}

    def scalar(self, node: ast.expr) -> bool:
        """True when the value of an expression is a scalar integer."""
        for part in ast.walk(node):
            match part:
                case ast.Name(id=name) if name in self.tile_names:
                    return False
                case ast.Call() if _name(part) not in ("cdiv", "min", "max", "grouped_tile"):
                    return False
                case ast.Call(func=ast.Attribute()) if _name(part) in ("min", "max"):
                    return False
                case ast.Attribute() if part.attr not in ("cdiv",):
                    return False
                case ast.Constant(value=float()) | ast.Subscript():
                    return False
                case _:
                    pass
        return True

    def tile_variable(self, node: ast.Name) -> bool:
        """True for a use of a tile coordinate."""
        return node.id in self.tiles and isinstance(node.ctx, ast.Load)


def _is_scalar(function: ast.FunctionDef) -> bool:
    """True for a helper that computes scalars alone, such as the map from programs to tiles."""
    calls = [n for n in ast.walk(function) if isinstance(n, ast.Call)]
    floats = [n for n in ast.walk(function) if isinstance(n, ast.Constant) and isinstance(n.value, float)]
    is_kernel = any("kernel" in ast.unparse(d) for d in function.decorator_list)
    return not is_kernel and not floats and all(_name(c) in ("min", "max", "cdiv") for c in calls)


def _name(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _plus(node: ast.expr, amount: int) -> ast.expr:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return ast.Constant(node.value + amount)
    op = ast.Add() if amount >= 0 else ast.Sub()
    return ast.BinOp(node, op, ast.Constant(abs(amount)))


def _sum(a: ast.expr, b: ast.expr) -> ast.expr:
    return b if isinstance(a, ast.Constant) and a.value == 0 else ast.BinOp(a, ast.Add(), b)


def _floor(a: ast.expr, b: ast.expr) -> ast.expr:
    return ast.BinOp(ast.BinOp(a, ast.FloorDiv(), b), ast.Mult(), b)


def _with(call: ast.Call, *args: ast.expr) -> ast.Call:
    return ast.Call(call.func, list(args), call.keywords)


def _keyword(call: ast.Call, name: str, value: ast.expr) -> ast.Call:
    return ast.Call(call.func, call.args, [ast.keyword(w.arg, value) if w.arg == name else w for w in call.keywords])


def _with_index(node: ast.Subscript, index: ast.expr) -> ast.Subscript:
    return ast.Subscript(node.value, index, node.ctx)
