"""One question, three means in order of cost: intervals and divisors, small examples, z3."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.ir import expr as ex

from ..report import Verdict
from .functions import Functions, Plain
from .grouped import ungrouped
from .probe import probe
from .question import Binder, Question, conjuncts
from .ranges import holds_cheaply, interval, interval_env
from .solver import Solver, in_range

# In units of the solver, half a microsecond each or less: enough for nearly everything that holds, and the most ever
# spent.
_SHORT, _LONG = 400_000, 2_000_000


@dataclass(frozen=True, slots=True)
class Decision:
    """`model` gives sizes and binder values of a counterexample, `missing` says why nothing was decided."""

    verdict: Verdict
    how: str = ""
    model: dict[str, int] = field(default_factory=dict[str, int])
    missing: str = ""


# What holds, holds in every kernel: after an edit most questions of a kernel are those that it had before.
_PROVED: dict[Question, Decision] = {}
_MOST_PROVED = 20_000
_MODELS = 12


def _remember(question: Question, decision: Decision) -> Decision:
    if decision.verdict == "proved":
        if len(_PROVED) >= _MOST_PROVED:
            _PROVED.clear()
        _PROVED[question] = decision
    return decision


class Decider:
    """Decides the questions of one kernel. `effort` bounds each call to z3, in its own units.

    `functions` are the kernel's index tensors with what is assumed of them.
    """

    def __init__(
        self,
        effort: int = _LONG,
        cancelled: Callable[[], bool] | None = None,
        functions: Functions | None = None,
    ) -> None:
        self.functions = functions or Functions()
        self._solver: Solver | None = None
        self._effort = effort
        self.cancelled = cancelled or (lambda: False)
        self._known: dict[Question, Decision] = {}
        self._quickly: dict[Question, Decision] = {}
        self._shown: dict[Question, bool] = {}
        self._models: deque[dict[str, int]] = deque(maxlen=_MODELS)
        self._weaker: dict[ex.Expr, list[Question]] = {}

    def decide(self, question: Question) -> Decision:
        """Proved, refuted with a model that was evaluated, or unknown.

        A model holds elements of index tensors under their `item_key`, all of those that matter.
        """
        if not question.has_items:
            return self._decide_plain(question)
        weaker = question.without_items()
        if weaker is not None and self.proves(weaker):
            return self._decide_plain(weaker)
        plain = self.functions.plain(question)
        decision = self._decide_plain(plain.question)
        return self._with_tables(plain, decision) if decision.verdict == "refuted" else decision

    def _with_tables(self, plain: Plain, decision: Decision) -> Decision:
        """The decision with whole index tensors that satisfy every contract and hold the elements of its model."""
        model = decision.model
        known: dict[str, int] = {}
        for term in plain.terms:
            if all(ex.names(i) <= model.keys() for i in term.index) and term.name in model:
                known[ex.item_key(term.tensor, (ex.evaluate(i, model) for i in term.index))] = model[term.name]
        names = {t.name for t in plain.terms}
        model = {n: v for n, v in model.items() if n not in names}
        tensors = self.functions.related(sorted({t.tensor for t in plain.terms}))
        needed = sorted({e.name for t in tensors for s in self.functions.extents[t] for e in ex.walk(s)
                         if isinstance(e, ex.Size)})  # fmt: skip
        model = {**{n: 1 for n in needed}, **model}
        table = self.functions.entries(tensors, model, known)
        if table is None:
            return Decision("unknown", missing="the index tensors of the example found are too large to be tried")
        found = self._z3().solve(table, self._effort).model
        if found is None:
            return Decision("unknown", missing="no index tensors that satisfy all assumptions show it")
        return Decision("refuted", decision.how, {**model, **{b.name: found[b.name] for b in table.binders}})

    def _decide_plain(self, question: Question) -> Decision:
        decision = self._cached(question.focused)
        if decision.verdict == "refuted" and question.focused != question:
            # What was left out may make the situation impossible.
            decision = self._cached(question)
        return decision

    def proves(self, question: Question) -> bool:
        """True if the claim is shown with little effort; False says nothing."""
        if question not in self._shown:
            self._shown[question] = self._shows(question)
        return self._shown[question]

    def _shows(self, question: Question) -> bool:
        if question.has_items:
            weaker = question.without_items()
            if weaker is not None and self.proves(weaker):
                return True
            question = self.functions.plain(question).question
        plain, _ = _canonical(question.focused)
        known = self._known.get(plain)
        if known is None:
            known = self._quick(plain)
            if known.verdict == "proved":
                self._known[plain] = known
        return known.verdict == "proved"

    def possible(self, question: Question) -> bool | None:
        """Whether some values satisfy all facts of a question without elements; None: not known."""
        if probe(question, points=400, milliseconds=4.0) is not None:
            return True
        for effort in (min(_SHORT, self._effort), self._effort):
            answer = self._z3().solve(question, effort, minimize=False).answer
            if answer in ("holds", "fails"):
                return answer == "fails"
        return None

    def knows(self, question: Question) -> bool:
        """True if the claim has been proved already, or follows from claims that have; nothing is solved."""
        plain, _ = _canonical(question.focused)
        return not question.has_items and (self._implied(plain) or self._cheaply(plain)) is not None

    def complete(self, model: dict[str, int], sizes: Sequence[str], facts: Sequence[ex.Expr]) -> dict[str, int]:
        """`model` with small values for the sizes it lacks, such that all facts about sizes hold.

        A size that no fact mentions is 1. Falls back to the model as it is when nothing fits.
        """
        absent = [s for s in sizes if s not in model]
        if not absent:
            return model
        fixed: dict[str, ex.Expr] = {n: ex.Int(v) for n, v in model.items()}
        rest = tuple(ex.substitute(f, fixed) for f in facts)
        open_ = tuple(f for f in rest if ex.names(f) and not any(isinstance(e, ex.Var) for e in ex.walk(f)))
        question = Question(ex.Int(0), open_)
        found = probe(question) if open_ else {}
        if found is None:
            found = self._z3().solve(question, self._effort).model or {}
        return {**{s: 1 for s in absent}, **found, **model}

    def _z3(self) -> Solver:
        if self._solver is None:
            self._solver = Solver()
        return self._solver

    def _cached(self, question: Question) -> Decision:
        plain, names = _canonical(question)
        known = self._known.get(plain)
        if known is None:
            known = self._known[plain] = self._decide(plain)
        model = {names.get(n, n): v for n, v in known.model.items()}
        return Decision(known.verdict, known.how, model, known.missing)

    def _quick(self, question: Question) -> Decision:
        """With little effort: proved, refuted by a model that is not checked yet, or unknown."""
        quick = self._quickly.get(question) or _PROVED.get(question)
        if quick is None:
            quick = self._implied(question) or self._try(question)
            self._quickly[question] = quick
            _remember(question, quick)
            if quick.how == "z3" and quick.verdict == "proved":
                for part in conjuncts(question.claim):
                    self._weaker.setdefault(part, []).append(question)
        return quick

    def _implied(self, question: Question) -> Decision | None:
        """Proved where each part of the claim was proved from some of the facts, for some of the binders."""

        def weaker(known: Question) -> bool:
            return all(b in question.binders for b in known.binders) and all(f in question.facts for f in known.facts)

        parts = conjuncts(question.claim)
        if all(any(weaker(known) for known in self._weaker.get(part, ())) for part in parts):
            return Decision("proved", "z3")
        return None

    def _try(self, question: Question) -> Decision:
        without = ungrouped(question)
        asked = question if without is None else without[0]
        if (cheap := self._cheaply(asked)) is not None:
            return cheap
        if any(_breaks(question, m) for m in self._models):
            return Decision("refuted", "z3")
        reason = ""
        attempts = [(attempt, asked) for attempt in _forms(asked)]
        attempts += [(attempt, question) for attempt in _forms(question)] if without is not None else []
        for attempt, of in attempts:
            if self.cancelled():
                return Decision("unknown", missing="cancelled")
            reply = self._z3().solve(attempt, min(_SHORT, self._effort), minimize=False)
            reason = reply.reason
            if reply.answer == "holds":
                return Decision("proved", "z3")
            if reply.model is not None:
                model = reply.model if attempt is of else _with_sizes(of, reply.model)
                if without is not None and of is asked:
                    model = without[1](model)
                if attempt is question or _breaks(question, model):
                    # What shows one claim to be wrong often shows another to be, at the same place.
                    self._models.appendleft(model)
                    return Decision("refuted", "z3")
        return Decision("unknown", missing=reason)

    def _cheaply(self, question: Question) -> Decision | None:
        """Proved without a solver, or None."""
        without = ungrouped(question)
        asked = question if without is None else without[0]
        how = holds_cheaply(asked)
        # (An interval of an expression with a zero divisor means nothing.)
        return Decision("proved", how) if how and self._divisors_positive(asked) else None

    def _decide(self, question: Question) -> Decision:
        # Most claims hold, and then a short proof is cheapest. Small examples are for the others.
        quick = self._quick(question)
        if quick.verdict == "proved":
            return quick
        model = probe(question)
        if model is not None:
            return self._refuted(question, model, "small sizes")
        reason = quick.missing
        for attempt in (question,) if quick.verdict == "refuted" else _forms(question):
            if self.cancelled():
                return Decision("unknown", missing="cancelled")
            reply = self._z3().solve(attempt, self._effort)
            reason = reply.reason
            if reply.answer == "holds":
                return _remember(question, Decision("proved", "z3"))
            if reply.model is not None and attempt is question:
                return self._refuted(question, reply.model, "z3")
        return Decision("unknown", missing=reason)

    def _divisors_positive(self, question: Question) -> bool:
        env = interval_env(question)
        for e in ex.walk(question.claim):
            if isinstance(e, ex.Bin) and e.op in ("//", "%", "cdiv"):
                low = interval(e.rhs, env)[0]
                if low is None or low < 1:
                    return False
        return True

    def _refuted(self, question: Question, model: dict[str, int], how: str) -> Decision:
        """A model counts only if the expressions themselves evaluate to a violation, and no untracked value is
        involved.
        """
        free = [b for b in question.binders if b.kind == "free" and b.name in question.relevant]
        if free:
            labels = ", ".join(sorted({f"'{b.label}'" for b in free}))
            return Decision("unknown", missing=f"it depends on {labels}, whose value is not tracked here")
        env = {name: model.get(name, 1) for name in (*question.sizes, *(b.name for b in question.binders))}
        if not in_range(question, env):
            return Decision("unknown", missing="only sizes too large to launch break it")
        try:
            facts = all(ex.evaluate(f, env) for f in question.facts)
        except ex.EvaluationError:
            facts = False
        try:
            broken = not ex.evaluate(question.claim, env)
        except ex.EvaluationError:
            broken = True
        if not (facts and broken and _within(question, env)):
            return Decision("unknown", missing="the solver's example does not evaluate to a violation")
        return Decision("refuted", how, env)


def _with_sizes(question: Question, model: dict[str, int]) -> dict[str, int]:
    """A model of the more general question with sizes for its counts of tiles."""
    sizes = {**model}
    for count, size in _counts(question).items():
        assert isinstance(count, ex.Bin) and isinstance(count.lhs, ex.Size) and isinstance(count.rhs, ex.Int)
        sizes[count.lhs.name] = model.get(size.name, 1) * count.rhs.value
    return sizes


def _breaks(question: Question, model: Mapping[str, int]) -> bool:
    """True if sizes and binder values, 1 where the model has none, satisfy the facts and break the claim."""
    env = {name: model.get(name, 1) for name in (*question.sizes, *(b.name for b in question.binders))}
    try:
        return (
            in_range(question, env)
            and all(ex.evaluate(f, env) for f in question.facts)
            and not ex.evaluate(question.claim, env)
            and _within(question, env)
        )
    except ex.EvaluationError:
        return False


def _within(question: Question, env: dict[str, int]) -> bool:
    for b in question.binders:
        if not b.bounded:
            continue
        try:
            lo, hi = ex.evaluate(b.lo, env), ex.evaluate(b.hi, env)
        except ex.EvaluationError:
            return False
        if env[b.name] not in range(lo, hi, b.step):
            return False
    return True


def _canonical(question: Question) -> tuple[Question, dict[str, str]]:
    """The question with binders numbered, so that roles that compute alike ask the same; and the names back."""
    env: dict[str, ex.Expr] = {b.name: ex.Var(f"${i}") for i, b in enumerate(question.binders)}
    binders = tuple(
        Binder(
            f"${i}", b.label, b.kind, ex.substitute(b.lo, env), ex.substitute(b.hi, env), b.step
        )
        for i, b in enumerate(question.binders)
    )  # fmt: skip
    facts = tuple(ex.substitute(f, env) for f in question.facts)
    names = {f"${i}": b.name for i, b in enumerate(question.binders)}
    return Question(ex.substitute(question.claim, env), facts, binders), names


def _forms(question: Question) -> tuple[Question, ...]:
    """The question and, before it, a more general one that is easier to prove."""
    wider = _generalized(question)
    return (question,) if wider is None else (wider, question)


def _counts(question: Question) -> dict[ex.Expr, ex.Size]:
    """Each tile count `cdiv(size, constant)` that is the only one of its size, with a symbol for it."""
    counts = {
        e
        for part in question.expressions()
        for e in ex.walk(part)
        if isinstance(e, ex.Bin)
        and e.op == "cdiv"
        and isinstance(e.lhs, ex.Size)
        and isinstance(e.rhs, ex.Int)
        and e.lhs.least >= 1
    }
    chosen: dict[ex.Expr, ex.Size] = {}
    for count in counts:
        size = count.lhs
        if isinstance(size, ex.Size) and sum(c.lhs == size for c in counts) == 1:
            chosen[count] = ex.Size(f"tiles of {size.name}")
    return chosen


def _generalized(question: Question) -> Question | None:
    """The question with each tile count `cdiv(size, constant)` as a symbol of its own; None if nothing changes.

    Proving it for every count of at least 1 proves the original, and it is two to three times faster. Facts
    that speak of such a size otherwise are dropped, which only makes it harder; a claim that does rules it out.
    """
    chosen = _counts(question)
    if not chosen:
        return None
    gone = {c.lhs.name for c in chosen if isinstance(c, ex.Bin) and isinstance(c.lhs, ex.Size)}

    def change(e: ex.Expr) -> ex.Expr:
        if e in chosen:
            return chosen[e]
        match e:
            case ex.Bin(op, lhs, rhs):
                return ex.Bin(op, change(lhs), change(rhs))
            case ex.Not(arg):
                return ex.Not(change(arg))
            case _:
                return e

    claim = change(question.claim)
    binders = tuple(
        b if not b.bounded else type(b)(b.name, b.label, b.kind, change(b.lo), change(b.hi), b.step, b.span)
        for b in question.binders
    )
    rest = [claim, *(e for b in binders if b.bounded for e in (b.lo, b.hi))]
    if any(ex.names(e) & gone for e in rest):
        return None
    facts = tuple(f for f in map(change, question.facts) if not ex.names(f) & gone)
    return Question(claim, facts, binders)
