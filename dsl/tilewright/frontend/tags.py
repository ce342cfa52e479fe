"""Tags: `tw.tag`, `tw.expect` of a condition, and the functions over elements that they take.

The lambdas are read, never called: their parameters number the elements of tiles, and `x[i, j].NAME` mentions a tag.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

from tree_sitter import Node

from tilewright.frontend.elaborate import SCALARS
from tilewright.frontend.tensor_memory import TensorMemoryOperations
from tilewright.frontend.tree import child, need, parts, text
from tilewright.frontend.values import Lambda, SharedBuffer, Tagged, Value, describe
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir import tagging
from tilewright.ir.expr import Int, Var
from tilewright.ir.stages import seen
from tilewright.ir.types import SharedType, TileType

_MOST_PARAMETERS = 6


class TagOperations(TensorMemoryOperations):
    """Operations that speak of tags and compute nothing."""

    def op_tag(self, node: Node, x: Value, /, **tags: Value) -> Value:
        """`y = tw.tag(x, name=lambda i, j: …)`; of a stage of shared memory a statement by itself."""
        holder = self.holder(node, x)
        if holder is None:
            raise self.fault("TW003", f"tw.tag takes a tile or a stage of shared memory, not {describe(x)}", node)
        if not tags:
            raise self.fault("TW005", "tw.tag needs a tag: tw.tag(x, NAME=lambda i, j: …)", node)
        shape = self.holder_shape(holder)
        exprs: list[ex.Expr] = []
        uses: tuple[ir.TagUse, ...] = ()
        for name, value in tags.items():
            expr, uses = self.over_elements(node, value, f"the tag {name}", uses, len(shape))
            exprs.append(expr)
        values, uses = tagging.in_order(exprs, uses)
        self.check_inside(node, uses, shape)
        first = next(v for v in tags.values() if isinstance(v, Lambda))
        stmt = ir.Tag(
            holder, tuple(zip(tags, values, strict=True)), uses, first.parameters, span=self.span(node)
        )  # fmt: skip
        self.own_tags |= tags.keys()
        if isinstance(holder, ir.BufRef):
            self.emit(stmt)
            return None
        return Tagged(ir.TileRef(holder), stmt)

    def op_expect(self, node: Node, bar: Value, bytes: Value = None) -> Value:
        """`tw.expect(lambda i, j: …)` of tags, or the announcement of bytes on a barrier."""
        if not isinstance(bar, Lambda):
            if bytes is None:
                raise self.fault(
                    "TW003",
                    "tw.expect takes a condition on tags, tw.expect(lambda i, j: …), or a barrier and its bytes, not "
                    f"{describe(bar)} alone",
                    node,
                )
            return super().op_expect(node, bar, bytes)
        if bytes is not None:
            raise self.fault("TW005", "a condition on tags is the only argument of tw.expect", node)
        expr, uses = self.over_elements(node, bar, "the expectation", (), None)
        (cond,), uses = tagging.in_order((expr,), uses)
        if not uses:
            raise self.fault("TW005", "this expectation mentions no tag, such as x[i, j].M", node)
        bare = {e.name for u in uses for e in u.index if isinstance(e, Var)}
        for number, name in enumerate(bar.parameters):
            if f"~{number}" not in bare:
                raise self.fault(
                    "TW003",
                    f"nothing says which values '{name}' takes: use it by itself as an index, x[{name}, …]",
                    node,
                )
        self.emit(ir.ExpectTags(len(bar.parameters), cond, uses, bar.parameters, span=self.span(node)))
        return None

    # -------------------------------------------------------------------------------- lambdas

    def over_elements(
        self, node: Node, value: Value, what: str, uses: tuple[ir.TagUse, ...], rank: int | None
    ) -> tuple[ex.Expr, tuple[ir.TagUse, ...]]:
        """The body of a lambda as an expression, and the mentions so far with those of the body."""
        if not isinstance(value, Lambda):
            raise self.fault(
                "TW003", f"{what} is a function of an element, lambda i, j: …, not {describe(value)}", node
            )
        names = value.parameters
        if rank is not None and len(names) != rank:
            raise self.fault(
                "TW003",
                f"{what} is a function of {len(names)} ind{'ices' if len(names) != 1 else 'ex'}, but the tile has "
                f"{rank} dimension{'s' * (rank != 1)}",
                value.node,
            )
        saved, outer, emitted = self.names, self.uses, len(self.block)
        self.names = {**saved, **{n: tagging.parameter(i) for i, n in enumerate(names)}}
        self.uses = list(uses)
        try:
            result = self.evaluate(need(value.node, "body"))
            found = tuple(self.uses)
        finally:
            self.names, self.uses = saved, outer
        if len(self.block) != emitted:
            del self.block[emitted:]
            raise self.fault("TW005", f"{what} speaks of tags only and computes nothing on tiles", value.node)
        if not isinstance(result, SCALARS):
            hint = ": mention a tag of an element, x[i, j].NAME" if isinstance(result, ir.TileRef) else ""
            raise self.fault("TW003", f"{what} is an integer or a condition, not {describe(result)}{hint}", value.node)
        return result, found

    def read_lambda(self, node: Node) -> Lambda:
        """The lambda with the names of its parameters."""
        parameters = child(node, "parameters")
        names: list[str] = []
        for p in parts(parameters) if parameters is not None else []:
            if p.type != "identifier" or text(p) in names:
                raise self.fault("TW005", f"a function of elements takes plain names of indices, not '{text(p)}'", p)
            names.append(text(p))
        if not 0 < len(names) <= _MOST_PARAMETERS:
            raise self.fault("TW005", f"a function of elements takes 1 to {_MOST_PARAMETERS} indices", node)
        return Lambda(node, tuple(names))

    # -------------------------------------------------------------------------------- mentions

    def attribute(self, node: Node) -> Value:
        """`x[i, j].NAME` and `x.at(warp, lane, register).NAME` inside a lambda; all else as elsewhere."""
        if self.uses is not None:
            found = self.mentioned(node)
            if found is not None:
                return found
        return super().attribute(node)

    def mentioned(self, node: Node) -> Value:
        """The mention of a tag that the node is, or None."""
        owner, tag = need(node, "object"), text(need(node, "attribute"))
        thread = owner.type == "call" and need(owner, "function").type == "attribute"
        if thread:
            function = need(owner, "function")
            if text(need(function, "attribute")) != "at":
                return None
            base, indices = need(function, "object"), parts(need(owner, "arguments"))
        elif owner.type == "subscript":
            base, indices = need(owner, "value"), owner.children_by_field_name("subscript")
        else:
            return None
        holder = self.holder(base, self.evaluate(base))
        if holder is None:
            return None
        shape = self.holder_shape(holder)
        label = text(base)
        index = tuple(self.index(i, label) for i in indices)
        if thread:
            if isinstance(holder, ir.BufRef):
                raise self.fault(
                    "TW003", f"'{label}' is shared memory, which no thread owns; index it, {label}[i, j]", owner
                )
            if len(index) != 3:
                raise self.fault(
                    "TW003", f"{label}.at takes a warp, a lane and a register, not {len(index)} indices", owner
                )
        elif len(index) != len(shape):
            raise self.fault(
                "TW003", f"'{label}' has {len(shape)} dimension{'s' * (len(shape) != 1)}, not {len(index)}", owner
            )
        for axis, (at, extent) in enumerate(zip(index, shape, strict=False)) if not thread else ():
            if isinstance(at, Int) and not 0 <= at.value < extent:
                raise self.fault(
                    "TW003", f"index {at.value} of dimension {axis} of '{label}' is outside 0 … {extent - 1}", owner
                )
        self.check_tag(need(node, "attribute"), tag)
        use = ir.TagUse(holder, tag, index, thread, label)
        assert self.uses is not None
        if use not in self.uses:
            self.uses.append(use)
        return tagging.mention(self.uses.index(use))

    def index(self, node: Node, label: str) -> ex.Expr:
        value = self.evaluate(node)
        if not isinstance(value, SCALARS) or any(not n.startswith("~") for n in ex.names(value)):
            raise self.fault(
                "TW003",
                f"an element of '{label}' is chosen by the parameters of the lambda and constants, not by "
                f"'{text(node)}'",
                node,
            )
        return value

    def check_tag(self, node: Node, tag: str) -> None:
        sizes = {n for p in self.tensors.values() for e in p.type.shape if isinstance(e, ex.Size) for n in (e.name,)}
        known = sizes | self.own_tags
        if tag in known:
            return
        close = get_close_matches(tag, sorted(known), 1, 0.6)
        hint = f"did you mean '{close[0]}'?" if close else "known are " + (", ".join(sorted(known)) or "none")
        raise self.fault(
            "TW002",
            f"no tile carries a tag '{tag}': it is the size of no tensor, and no tw.tag before gives it; {hint}",
            node,
        )

    def holder(self, node: Node, value: Value) -> tagging.Holder | None:
        """What carries tags."""
        match value:
            case ir.TileRef(name=name):
                return name
            case ir.BufRef() if isinstance(self.types[value.buffer], SharedType):
                return value
            case SharedBuffer():
                return self.stage(node, value, "what carries tags")
            case Tagged():
                raise self.fault("TW005", "give the result of tw.tag a name first: x = tw.tag(x, …)", node)
            case _:
                return None

    def holder_shape(self, holder: tagging.Holder) -> tuple[int, ...]:
        kind = seen(self.types, holder) if isinstance(holder, ir.BufRef) else self.types[holder]
        assert isinstance(kind, TileType | SharedType)
        return kind.shape

    def check_inside(self, node: Node, uses: tuple[ir.TagUse, ...], shape: tuple[int, ...]) -> None:
        """Each element of a tile gets its tag from elements that exist."""
        for use in uses:
            if use.thread:
                raise self.fault("TW005", "a tag is a function of elements, x[i, j].NAME, not of threads", node)
            for axis, (at, extent) in enumerate(zip(use.index, self.holder_shape(use.of), strict=True)):
                wrong = tagging.outside(at, shape, extent)
                if wrong is not None:
                    where = use.of if isinstance(use.of, str) else use.of.buffer
                    raise self.fault(
                        "TW003",
                        f"for element {list(wrong[0])} the index {wrong[1]} of dimension {axis} of '{where}' is "
                        f"outside 0 … {extent - 1}",
                        node,
                    )

    # -------------------------------------------------------------------------------- names

    def bind(self, target: Node, value: Value, node: Node) -> None:
        """A tile with tags: the name gets the tile, then the tags."""
        if not isinstance(value, Tagged):
            super().bind(target, value, node)
            return
        if target.type != "identifier":
            raise self.fault("TW005", "the result of tw.tag is given to a plain name", target)
        name = text(target)
        old = value.tile.name
        read = {h for h in tagging.holders(value.stmt) if isinstance(h, str)} - {old}
        bound = self.bind_tile(name, value.tile, node)
        self.names[name] = bound
        if bound.name in read:
            raise self.fault(
                "TW005",
                f"'{name}' gets a new value here, but its tag is a function of the one before; use another name",
                node,
            )
        stmt = tagging.moved(value.stmt, lambda h: bound.name if h == old else h)
        self.emit(replace(stmt, span=value.stmt.span))
