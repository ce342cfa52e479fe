"""Elements of index tensors in questions: uninterpreted functions under the data contracts of a kernel.

A question that mentions `OFFSETS[e]` is turned into one about plain integers: each distinct element becomes a symbol of
its own (kind `data`), and what is known of elements becomes facts about those symbols:

- equal indices give equal elements;
- each contract, at the indices that occur: its bound variables are matched with them, and what it says is guarded by
  "every index in it is inside its dimension";
- a contract `T[i] <= T[i + 1]` (or `<`) says more than its instances: by induction over the dimension, T grows from any
  index inside to any later one.

All of it follows from the contracts, so what is proved of the plain question holds of the original. The reverse needs a
whole table for each tensor that satisfies the contracts: `entries` states that for fixed sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir

from .question import Binder, Question, conjunction

# More symbols or instances than these make a question harder than they help.
_MOST_TERMS, _MOST_INSTANCES, _ROUNDS = 48, 160, 2


@dataclass(frozen=True, slots=True)
class Term:
    """One element as it occurs: its tensor, its indices without elements in them, and its symbol."""

    tensor: str
    index: tuple[ex.Expr, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Plain:
    """A question without elements, and the terms that its `data` symbols stand for."""

    question: Question
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Functions:
    """The index tensors of a kernel: extents by name, least and greatest values of their elements, contracts."""

    extents: Mapping[str, tuple[ex.Expr, ...]] = field(default_factory=dict[str, tuple[ex.Expr, ...]])
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    contracts: tuple[ir.Contract, ...] = ()

    @staticmethod
    def of(kernel: ir.Kernel) -> Functions:
        """Those of a kernel."""
        integers = [p for p in kernel.params if p.type.dtype.kind in ("int", "uint")]
        return Functions(
            {p.name: p.type.shape for p in integers},
            {p.name: p.type.dtype.range for p in integers},
            kernel.contracts,
        )

    def plain(self, question: Question) -> Plain:
        """The question about integers alone."""
        work = _Abstraction(self)
        claim = work.replaced(question.claim)
        facts = [work.replaced(f) for f in question.facts]
        binders = [
            b if not b.bounded else Binder(
                b.name, b.label, b.kind, work.replaced(b.lo), work.replaced(b.hi), b.step, b.span
            )
            for b in question.binders
        ]  # fmt: skip
        facts += work.knowledge()
        return Plain(Question(claim, tuple(facts), _placed(binders, work.terms)), tuple(work.terms.values()))

    def entries(self, tensors: Sequence[str], sizes: Mapping[str, int], known: Mapping[str, int]) -> Question | None:
        """The contracts over every element of `tensors` at fixed sizes, as facts about symbols named like `T[3]`.

        `known` fixes some of them. Its claim is false, so a model of it is a table for each tensor. None when that
        would be too much.
        """
        shapes = {t: self.shape(t, sizes) for t in tensors}
        if any(s is None for s in shapes.values()):
            return None
        cells = {t: list(product(*map(range, s or ()))) for t, s in shapes.items()}
        if sum(map(len, cells.values())) > _MOST_INSTANCES:
            return None
        fixed: dict[str, ex.Expr] = {n: ex.Int(v) for n, v in sizes.items()}
        facts: list[ex.Expr] = []
        for contract in self.contracts:
            if not any(i.tensor in shapes for i in ex.items(contract.expr)):
                continue
            found = self._instances(contract, fixed, shapes)
            if found is None or len(facts) + len(found) > 40 * _MOST_INSTANCES:
                return None
            facts += found
        names: list[str] = []
        for tensor in tensors:
            low, high = self.ranges[tensor]
            for cell in cells[tensor]:
                name = ex.item_key(tensor, cell)
                names.append(name)
                facts += [ex.Bin("<=", ex.Int(low), ex.Var(name)), ex.Bin("<=", ex.Var(name), ex.Int(high))]
                if name in known:
                    facts.append(ex.Bin("==", ex.Var(name), ex.Int(known[name])))
        return Question(ex.Int(0), tuple(facts), tuple(Binder(n, n, "data") for n in names))

    def shape(self, tensor: str, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
        """The extents at these sizes."""
        try:
            return tuple(ex.evaluate(e, sizes) for e in self.extents[tensor])
        except ex.EvaluationError:
            return None

    def related(self, tensors: Sequence[str]) -> list[str]:
        """`tensors` and those that contracts connect them with."""
        found = set(tensors)
        groups = [{i.tensor for i in ex.items(c.expr)} for c in self.contracts]
        changed = True
        while changed:
            changed = False
            for group in groups:
                if group & found and not group <= found:
                    found |= group
                    changed = True
        return sorted(found)

    def _instances(
        self, contract: ir.Contract, fixed: dict[str, ex.Expr], shapes: Mapping[str, tuple[int, ...] | None]
    ) -> list[ex.Expr] | None:
        """The contract at every value of its variables that keeps all indices inside."""
        reach = max((n for s in shapes.values() for n in s or ()), default=0)
        if (2 * reach + 1) ** len(contract.variables) > 20_000:
            return None
        found: list[ex.Expr] = []
        for values in product(range(-reach, reach + 1), repeat=len(contract.variables)):
            env = fixed | {v: ex.Int(n) for v, n in zip(contract.variables, values, strict=True)}
            text = _concrete(ex.substitute(contract.expr, env), shapes)
            if text is not None and text != ex.Int(1):
                found.append(text)
        return found


def _concrete(e: ex.Expr, shapes: Mapping[str, tuple[int, ...] | None]) -> ex.Expr | None:
    """`e` with elements at constant indices as symbols; None where an index is outside or not constant."""
    match e:
        case ex.Item(tensor, index):
            shape = shapes.get(tensor)
            cell = [i.value for i in index if isinstance(i, ex.Int)]
            if shape is None or len(cell) < len(index):
                return None
            inside = all(0 <= i < n for i, n in zip(cell, shape, strict=True))
            return ex.Var(ex.item_key(tensor, cell)) if inside else None
        case ex.Bin(op, lhs, rhs):
            left, right = _concrete(lhs, shapes), _concrete(rhs, shapes)
            return None if left is None or right is None else ex.binary(op, left, right)
        case ex.Not(arg):
            inner = _concrete(arg, shapes)
            return None if inner is None else ex.negate(inner)
        case _:
            return e


class _Abstraction:
    """Replaces elements by symbols and collects what is known of them."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.terms: dict[str, Term] = {}

    def replaced(self, e: ex.Expr) -> ex.Expr:
        match e:
            case ex.Item(tensor, index):
                return ex.Var(self._term(tensor, tuple(self.replaced(i) for i in index)).name)
            case ex.Bin(op, lhs, rhs):
                return ex.binary(op, self.replaced(lhs), self.replaced(rhs))
            case ex.Not(arg):
                return ex.negate(self.replaced(arg))
            case _:
                return e

    def _term(self, tensor: str, index: tuple[ex.Expr, ...]) -> Term:
        name = f"{tensor}[{', '.join(map(ex.show, index))}]"
        return self.terms.setdefault(name, Term(tensor, index, name))

    def knowledge(self) -> list[ex.Expr]:
        """Facts about the elements that occur. May add further ones, which contracts connect them with."""
        facts: dict[ex.Expr, None] = {}
        relevant = set(self.functions.related([t.tensor for t in self.terms.values()]))
        contracts = [c for c in self.functions.contracts if any(i.tensor in relevant for i in ex.items(c.expr))]
        for contract in contracts:
            if not contract.variables:
                facts.update(dict.fromkeys(self._instance(contract, {})))
        # That a tensor grows is said of all pairs of elements that occur, and more elements would say no more.
        growing = {tensor: strict for c in contracts for tensor, strict in _grows(c)}
        others = [c for c in contracts if not any(True for _ in _grows(c))]
        for _ in range(_ROUNDS):
            before = len(self.terms)
            for contract in others:
                for env in self._matches(contract) if contract.variables else ():
                    if len(facts) < _MOST_INSTANCES and len(self.terms) < _MOST_TERMS:
                        facts.update(dict.fromkeys(self._instance(contract, env)))
            if len(self.terms) == before:
                break
        for a, b in combinations(self.terms.values(), 2):
            if a.tensor == b.tensor:
                facts.update(dict.fromkeys(self._pair(a, b, growing.get(a.tensor))))
        for term in self.terms.values():
            low, high = self.functions.ranges.get(term.tensor, (None, None))
            if low is not None and high is not None:
                symbol = ex.Var(term.name)
                facts |= dict.fromkeys((ex.Bin("<=", ex.Int(low), symbol), ex.Bin("<=", symbol, ex.Int(high))))
        return list(facts)

    def _instance(self, contract: ir.Contract, env: Mapping[str, ex.Expr]) -> Iterator[ex.Expr]:
        """`contract` with `env` for its variables, wherever every index in it is inside."""
        body = ex.substitute(contract.expr, env)
        inside = conjunction(
            part
            for item in ex.items(body)
            for i, extent in zip(item.index, self.functions.extents[item.tensor], strict=True)
            for part in self.inside(self.replaced(i), extent)
        )
        claim = self.replaced(body)
        yield claim if inside == ex.Int(1) else ex.binary("or", ex.negate(inside), claim)

    def inside(self, index: ex.Expr, extent: ex.Expr) -> Iterator[ex.Expr]:
        """Conditions for an index to be inside a dimension, without those that evidently hold."""
        if not (isinstance(index, ex.Size) or (isinstance(index, ex.Int) and index.value >= 0)):
            yield ex.binary("<=", ex.Int(0), index)
        evident = extent == ex.Bin("+", index, ex.Int(1)) or (
            index == ex.Int(0) and (isinstance(extent, ex.Size) or (extent.__class__ is ex.Bin and _positive(extent)))
        )
        if not evident:
            yield ex.binary("<", index, extent)

    def _matches(self, contract: ir.Contract) -> Iterator[dict[str, ex.Expr]]:
        """Values of the bound variables for which an element of the contract is one that occurs."""
        choices: dict[str, dict[ex.Expr, None]] = {v: {} for v in contract.variables}
        for item in ex.items(contract.expr):
            for term in list(self.terms.values()):
                if term.tensor != item.tensor:
                    continue
                for pattern, index in zip(item.index, term.index, strict=True):
                    match = _solved(pattern, index, contract.variables)
                    if match is not None:
                        choices[match[0]][match[1]] = None
        for values in product(*(list(choices[v]) for v in contract.variables)):
            yield dict(zip(contract.variables, values, strict=True))

    def _pair(self, a: Term, b: Term, strict: bool | None) -> Iterator[ex.Expr]:
        """What two elements of one tensor have to do with each other. `strict`: it grows; None: nothing known."""
        one, other = ex.Var(a.name), ex.Var(b.name)
        same = conjunction(ex.binary("==", i, j) for i, j in zip(a.index, b.index, strict=True))
        if same != ex.Int(0):
            yield ex.binary("or", ex.negate(same), ex.Bin("==", one, other))
        if strict is None or len(a.index) != 1:
            return
        extent = self.functions.extents[a.tensor][0]
        for (i, x), (j, y) in (((a.index[0], one), (b.index[0], other)), ((b.index[0], other), (a.index[0], one))):
            guard = conjunction((*self.inside(i, extent), *self.inside(j, extent), ex.binary("<=", i, j)))
            least = ex.Bin("<=", ex.add(x, ex.sub(j, i)), y) if strict else ex.Bin("<=", x, y)
            if guard != ex.Int(0):
                yield ex.binary("or", ex.negate(guard), least)


def _grows(contract: ir.Contract) -> Iterator[tuple[str, bool]]:
    """(tensor, strict) for a contract `T[i + c] <= T[i + c + 1]`, which then holds along the whole dimension."""
    match contract.expr:
        case ex.Bin("<" | "<=" as op, ex.Item(tensor, (first,)), ex.Item(other, (second,))) if tensor == other:
            if len(contract.variables) == 1 and _linear(second) is not None and _linear(first) is not None:
                (name, low), (same, high) = _linear(first) or ("", 0), _linear(second) or ("", 0)
                if name == same == contract.variables[0] and high == low + 1:
                    yield tensor, op == "<"
        case _:
            return


def _linear(e: ex.Expr) -> tuple[str, int] | None:
    """(v, c) for `v + c`."""
    match e:
        case ex.Var(name):
            return name, 0
        case ex.Bin("+", ex.Var(name), ex.Int(c)) | ex.Bin("+", ex.Int(c), ex.Var(name)):
            return name, c
        case ex.Bin("-", ex.Var(name), ex.Int(c)):
            return name, -c
        case _:
            return None


def _solved(pattern: ex.Expr, index: ex.Expr, variables: Sequence[str]) -> tuple[str, ex.Expr] | None:
    """(v, value) such that `pattern` with `value` for v is `index`, for a pattern `v + c`."""
    found = _linear(pattern)
    if found is None or found[0] not in variables:
        return None
    name, offset = found
    match index:
        case ex.Bin("+", base, ex.Int(c)) if c == offset:
            return name, base
        case ex.Bin("+", base, ex.Int(c)):
            return name, ex.add(base, ex.Int(c - offset)) if c > offset else ex.sub(base, ex.Int(offset - c))
        case ex.Int(value):
            return name, ex.Int(value - offset)
        case _:
            return name, ex.sub(index, ex.Int(offset)) if offset >= 0 else ex.add(index, ex.Int(-offset))


def _positive(e: ex.Expr) -> bool:
    match e:
        case ex.Size():
            return True
        case ex.Int(value):
            return value > 0
        case ex.Bin("+" | "*", lhs, rhs):
            return _positive(lhs) and _positive(rhs)
        case _:
            return False


def _placed(binders: list[Binder], terms: Mapping[str, Term]) -> tuple[Binder, ...]:
    """The binders, with a `data` symbol for each term ahead of the first whose bounds need it."""
    waiting = dict(terms)
    result: list[Binder] = []
    for b in binders:
        needed = ex.names(b.lo) | ex.names(b.hi) if b.bounded else frozenset[str]()
        for name in [n for n in waiting if n in needed]:
            result.append(Binder(name, name, "data"))
            del waiting[name]
        result.append(b)
    return (*result, *(Binder(n, n, "data") for n in waiting))
