"""Loops of a kernel: over ranges, unrolled, and with a condition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tree_sitter import Node

from tilewright.frontend.elaborate import Elaborator
from tilewright.frontend.fault import Fault
from tilewright.frontend.tree import child, need, parts, text
from tilewright.frontend.values import RangeValue, Unusable, Value, describe
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int, Var
from tilewright.ir.types import ScalarType
from tilewright.problem import Problem
from tilewright.source import Span

# What may stand in a loop of which nobody knows how often it runs: everything that is done when it is done.
_UNCOUNTED = (
    ir.Assign, ir.Compute, ir.Load, ir.Store, ir.Gather, ir.Scatter, ir.Atomic, ir.Mma, ir.For, ir.If, ir.While,
    ir.Tag, ir.ExpectTags,
)  # fmt: skip


class Loops(Elaborator):
    """Elaborates `for` and `while`."""

    # -------------------------------------------------------------------------------- counted

    def for_statement(self, node: Node) -> None:
        loop = self.evaluate(need(node, "right"))
        if not isinstance(loop, RangeValue):
            raise self.fault(
                "TW005",
                f"a loop runs over range, tw.static_range, tw.pipeline, tw.tiles or tw.programs, not {describe(loop)}",
                need(node, "right"),
            )
        if (alternative := child(node, "alternative")) is not None:
            raise self.fault("TW005", "'else' after a loop is not supported", alternative)
        left, body = need(node, "left"), need(node, "body")
        targets = parts(left) if left.type in ("pattern_list", "tuple_pattern") else [left]
        wanted = len(loop.counts) if loop.kind == "tiles" else 1
        if len(targets) != wanted or any(t.type != "identifier" for t in targets):
            raise self.fault("TW003", f"this loop gives {wanted} value{'s' * (wanted > 1)}, not {len(targets)}", left)
        if loop.kind == "static":
            self.static_loop(loop, targets[0], body)
            return
        span = self.span(node)
        first: ir.Expr | None = None
        step, counter = -loop.step, ""
        if loop.kind == "range" and loop.step < 0:
            # Counted upwards: the variable is the start less so many steps.
            first = (
                loop.lo
                if isinstance(loop.lo, Int | ex.Size)
                else self.stored(loop.lo, f"{text(targets[0])}_start", node)
            )
            turns = ex.cdiv(ex.sub(first, loop.hi), Int(step))
            loop = replace(loop, lo=Int(0), hi=turns, step=1)
            counter = self.unique(f"{text(targets[0])}_turn", ScalarType())
        variables = tuple(self.new_name(text(t), ScalarType()) for t in targets)
        before = dict(self.names)
        for t, v in zip(targets, variables, strict=True):
            self.names[text(t)] = Var(v)
        inside = frozenset(text(t) for t in targets)
        self.loop_depth += 1
        with self.filling() as filled:
            if first is not None:
                self.emit(ir.Assign(variables[0], ex.sub(first, ex.mul(Var(counter), Int(step))), span=span))
                variables = (counter,)
            self.run_block(body)
        self.loop_depth -= 1
        self.leave_loop(before, inside, node)
        self.emit(self.loop_statement(loop, variables, tuple(filled), span))

    def loop_statement(self, loop: RangeValue, variables: tuple[str, ...], body: ir.Block, span: Span) -> ir.Stmt:
        match loop.kind:
            case "range":
                return ir.For(variables[0], loop.lo, loop.hi, loop.step, body, loop.unroll, span=span)
            case "pipeline":
                roles = "split" if loop.roles == "split" else "single"
                order = "compute" if loop.first == "compute" else "load"
                bounds = variables[0], loop.lo, loop.hi, loop.step
                return ir.Pipeline(*bounds, loop.stages, roles, body, order, loop.consumers, loop.turns, span=span)
            case "tiles":
                return ir.Tiles(variables, loop.counts, loop.order, loop.persistent, body, span=span)
            case _:
                return ir.Programs(variables[0], loop.hi, loop.persistent, body, span=span)

    def static_loop(self, loop: RangeValue, target: Node, body: Node) -> None:
        if not (isinstance(loop.lo, Int) and isinstance(loop.hi, Int)):
            raise self.fault("TW006", "tw.static_range needs bounds known at compile time", target)
        values = range(loop.lo.value, loop.hi.value, loop.step)
        if len(values) > 1024:
            raise self.fault("TW006", f"tw.static_range of {len(values)} iterations: at most 1024 are unrolled", target)
        self.static_depth += 1
        for value in values:
            self.names[text(target)] = Int(value)
            self.run_block(body)
        self.static_depth -= 1

    def leave_loop(self, before: Mapping[str, Value], variables: frozenset[str], node: Node) -> None:
        """After a loop, names bound only inside it may have no value, and carried names must have kept their type."""
        for name, value in list(self.names.items()):
            if name in variables:
                self.names[name] = before.get(
                    name, Unusable("is the variable of a loop that has ended", span=self.span(node))
                )
            elif name not in before:
                if not (isinstance(value, Unusable) and value.silent):
                    self.names[name] = Unusable(
                        "is assigned only inside a loop, which may run zero times; assign it before the loop",
                        span=self.span(node),
                    )
            elif value != before[name] and not isinstance(value, Unusable) and not isinstance(before[name], Unusable):
                self.problems.append(
                    self.fault(
                        "TW003",
                        f"'{name}' is {self.describe_typed(before[name])} before the loop and "
                        f"{self.describe_typed(value)} after an iteration; a name keeps its type through a loop",
                        node,
                    ).problem
                )
                self.names[name] = Unusable("changed its type in a loop", silent=True)

    # -------------------------------------------------------------------------------- with a condition

    def while_statement(self, node: Node) -> None:
        """The loads of the condition are repeated at the end of each turn, into the same variables."""
        condition, body = need(node, "condition"), need(node, "body")
        if (alternative := child(node, "alternative")) is not None:
            raise self.fault("TW005", "'else' after a loop is not supported", alternative)
        first = len(self.block)
        cond = self.test(condition)
        loads = self.block[first:]
        if isinstance(cond, Int):
            if not cond.value:
                return
            raise self.fault(
                "TW005", "this loop never ends: its condition is always true, and there is no 'break'; say in the "
                "condition when it goes on", condition,
            )  # fmt: skip
        self.changing |= {s.dst for s in ir.walk(tuple(loads)) if isinstance(s, ir.Assign)}
        before = dict(self.names)
        self.loop_depth += 1
        with self.filling() as filled:
            self.run_block(body)
            self.check_uncounted(tuple(filled))
            if loads and not any(isinstance(v, Unusable) and v.silent for v in self.names.values()):
                self.repeat(condition, tuple(loads))
        self.loop_depth -= 1
        self.leave_loop(before, frozenset(), node)
        turn = self.unique("turn", ScalarType())
        self.emit(ir.While(cond, tuple(filled), turn, span=self.span(condition)))

    def test(self, node: Node) -> ir.Expr:
        """The condition of a `while`."""
        return self.scalar_condition(
            node, "a 'while' needs a scalar condition: comparisons of integers, such as the elements that "
            "tw.load(T[i]) reads; what tiles hold does not decide how often a loop runs",
        )  # fmt: skip

    def repeat(self, condition: Node, loads: ir.Block) -> None:
        """The loads of the condition once more, as its names stand now."""
        begin = len(self.block)
        self.test(condition)
        again = tuple(self.block[begin:])
        names = {
            new.dst: old.dst
            for new, old in zip(_assigns(again), _assigns(loads), strict=True)
            if new.dst != old.dst
        }  # fmt: skip
        for new in names:
            del self.types[new]
            self.loaded_scalars.discard(new)
        del self.block[begin:]
        env: dict[str, ir.Expr] = {new: Var(old) for new, old in names.items()}

        def renamed(stmt: ir.Stmt) -> ir.Block | None:
            match stmt:
                case ir.Assign(dst=dst, value=value):
                    return (replace(stmt, dst=names.get(dst, dst), value=ex.substitute(value, env)),)
                case ir.If(cond=cond):
                    return (replace(stmt, cond=ex.substitute(cond, env)),)
                case _:
                    return None

        self.block.extend(ir.rewrite(again, renamed))

    def check_uncounted(self, body: ir.Block) -> None:
        """Refuse what has to be counted: copies, barriers, grids."""
        for stmt in ir.walk(body):
            bulk = isinstance(stmt, ir.Load | ir.Store) and stmt.via not in ("auto", *ir.REGISTER_WAYS)
            if not isinstance(stmt, _UNCOUNTED) or bulk:
                raise Fault(Problem(
                    "TW005", "grids, pipelines, asynchronous copies, shared memory and barriers cannot stand inside of "
                    "a 'while': nothing tells how often it runs, so stages and phases cannot be counted; find the "
                    "bounds with the 'while', and do this in a 'for' behind it", stmt.span,
                ))  # fmt: skip


def _assigns(block: ir.Block) -> list[ir.Assign]:
    return [s for s in ir.walk(block) if isinstance(s, ir.Assign)]
