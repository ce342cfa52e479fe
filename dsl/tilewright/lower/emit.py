"""Statements as Gluon statements, one function of the generated module at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tilewright.divisibility import divisor, kernel_divisors, vector_elements
from tilewright.dtypes import f8e4m3
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.types import SharedType, TensorMemoryType, TileType
from tilewright.layout import SharedLayout, Swizzled, default_blocked
from tilewright.lower.errors import LoweringError
from tilewright.lower.points import RELAXED, accesses, pointers
from tilewright.lower.products import Products
from tilewright.lower.scalars import Scalars, check_literals
from tilewright.lower.text import Names, Writer, comment
from tilewright.lower.tiles import Access, Constants, Hoisted, access, compute_text, number
from tilewright.source import Span
from tilewright.targets import TARGETS

Descriptor = tuple[str, tuple[int, ...], SharedLayout]
"""A bulk-copy descriptor: tensor, box, layout of the shared tile."""


@dataclass
class Module:
    """What the functions of one module share."""

    kernel: ir.Kernel
    text: str
    names: Names = field(default_factory=Names)
    descriptors: dict[Descriptor, str] = field(default_factory=dict[Descriptor, str])

    def __post_init__(self) -> None:
        self.constants = Constants(self.names, native_float8=_converts_to_float8(self.kernel.target))
        self.divisors = kernel_divisors(self.kernel)
        self.tiles = {n: t for n, t in self.kernel.types.items() if isinstance(t, TileType)}

    def descriptor(self, view: ir.View, buffer: SharedType) -> str:
        """The name of the descriptor that copies `view` from or to `buffer`."""
        layout = buffer.layout
        if view.lead and isinstance(layout, Swizzled):
            # The box has the fixed dimensions, with extent 1; rows lie as in the tile without them.
            layout = replace(layout, rank=len(view.shape))
        key = (view.tensor, view.shape, layout)
        if key not in self.descriptors:
            self.descriptors[key] = self.names.fresh(f"{view.tensor}_desc")
        return self.descriptors[key]


def _converts_to_float8(target: str) -> bool:
    """Whether a target has `cvt` to the 8-bit floats (PTX ISA, cvt: sm_89 and newer)."""
    arch = TARGETS[target].arch
    return isinstance(arch, int) and arch >= f8e4m3.least


class FunctionEmitter:
    """Writes the body of one function: the kernel itself, or one role of it."""

    def __init__(self, module: Module, block: ir.Block, warps: int, nonnegative: frozenset[str]) -> None:
        self.module, self.warps, self.block = module, warps, block
        self.names, self.kernel = module.names, module.kernel
        self.scalars = Scalars(self.names, nonnegative)
        self.out = Writer()
        self.hoisted = Hoisted(module.names)
        self.defined: set[str] = set()
        self.products = Products()
        self.rest: ir.Block = ()
        self._commented = -1

    def emit(self) -> Writer:
        """The body, one level deep."""
        with self.out.indented():
            self._block(self.block)
        result = Writer()
        with result.indented():
            for value, name in self.hoisted.values.items():
                result.line(f"{name} = {value}")
        result.append(self.out)
        return result

    def _block(self, block: ir.Block) -> None:
        before = len(self.out.lines)
        for i, stmt in enumerate(block):
            self.rest = block[i + 1 :]
            with self.out.at(stmt.span):
                first = len(self.out.lines)
                self._statement(stmt)
                if len(self.out.lines) > first:
                    self._comment(first, stmt)
        if len(self.out.lines) == before:
            self.out.line("pass")

    def _comment(self, line: int, stmt: ir.Stmt) -> None:
        """The kernel's own line behind the first line made from it; for what an expansion added, why it did."""
        data, start = self.module.text.encode(), stmt.span.start
        if stmt.note and not isinstance(stmt, ir.For | ir.While | ir.Programs | ir.If):
            self.out.lines[line] += f"  # {comment(stmt.note)}"
        elif data and stmt.span.end > start:
            number_ = data.count(b"\n", 0, start)
            if number_ != self._commented:
                self._commented = number_
                begin = data.rfind(b"\n", 0, start) + 1
                text = data[begin:].split(b"\n", 1)[0].decode("utf-8", "replace")
                self.out.lines[line] += f"  # {number_ + 1}: {comment(text)}"

    # ------------------------------------------------------------------------------------------- statements

    def _statement(self, stmt: ir.Stmt) -> None:
        line, names, text = self.out.line, self.names, self.scalars.text
        for expression in _expressions(stmt):
            check_literals(expression, stmt.span)
        self.products.check(stmt)
        match stmt:
            case ir.Assign(value=ex.Item() as item):
                line(f"{names(stmt.dst)} = {self._element(item.tensor, item.index)}")
                self.defined.add(stmt.dst)
            case ir.Assign():
                line(f"{names(stmt.dst)} = {text(stmt.value)}")
                self.defined.add(stmt.dst)
            case ir.Compute():
                self._own_warps(stmt.dst, stmt.span)
                value = compute_text(stmt, self.module.tiles, names, self.scalars, self.module.constants)
                line(f"{names(stmt.dst)} = {value}")
                self.defined.add(stmt.dst)
            case ir.Load():
                self._own_warps(stmt.dst, stmt.span)
                self._load(stmt)
                self.defined.add(stmt.dst)
            case ir.Store():
                self._store(stmt)
            case ir.Gather() | ir.CpGather() | ir.Scatter():
                self._points(stmt)
            case ir.Atomic():
                self._atomic(stmt)
            case ir.Mma():
                function = f"{self._cdna}.mfma" if stmt.instr == "mfma" else "mma_v2"
                line(f"{names(stmt.dst)} = {function}({names(stmt.a)}, {names(stmt.b)}, {names(stmt.acc)})")
                self.defined.add(stmt.dst)
            case ir.For():
                self._for(stmt)
            case ir.While():
                self._while(stmt)
            case ir.Programs():
                self._programs(stmt)
            case ir.If():
                self._if(stmt)
            case ir.SharedLoad() | ir.TensorLoad():
                self._own_warps(stmt.dst, stmt.span)
                tile = self.module.tiles[stmt.dst]
                assert tile.layout is not None
                line(f"{names(stmt.dst)} = {self._stage(stmt.src)}.load({self.module.constants.layout(tile.layout)})")
                self.defined.add(stmt.dst)
            case ir.SharedStore():
                line(f"{self._stage(stmt.dst)}.store({names(stmt.src)})")
            case ir.CpAsync():
                self._cp_async(stmt)
            case _:
                self._synchronization(stmt)

    def _synchronization(self, stmt: ir.Stmt) -> None:
        line, text = self.out.line, self.scalars.text
        match stmt:
            case ir.BarrierWait():
                line(f"mbarrier.wait({self._slot(stmt.bar)}, {text(stmt.parity)})")
            case ir.BarrierArrive():
                line(f"mbarrier.arrive({self._slot(stmt.bar)}, count=1)")
            case ir.BarrierExpect():
                line(f"mbarrier.expect({self._slot(stmt.bar)}, {text(stmt.bytes)})")
            case ir.TmaLoad():
                name = self.module.descriptor(stmt.view, self._shared(stmt.dst))
                bar, stage = self._slot(stmt.bar), self._box(stmt.dst, stmt.view)
                line(f"tma.async_copy_global_to_shared({name}, {self._origin(stmt.view)}, {bar}, {stage})")
            case ir.TmaStore():
                name = self.module.descriptor(stmt.view, self._shared(stmt.src))
                stage = self._box(stmt.src, stmt.view)
                line(f"tma.async_copy_shared_to_global({name}, {self._origin(stmt.view)}, {stage})")
            case ir.TmaStoreWait():
                line(f"tma.store_wait(pendings={stmt.pending})")
            case ir.CpCommit():
                line("async_copy.commit_group()")
            case ir.CpWait():
                line(f"async_copy.wait_group({stmt.pending})")
            case ir.Wgmma():
                acc, dst = self.names(stmt.acc), self.names(stmt.dst)
                self._own_warps(stmt.dst, stmt.span)
                left = self.names(stmt.a.name) if isinstance(stmt.a, ir.TileRef) else self._stage(stmt.a)
                line(f"{dst} = warpgroup_mma({left}, {self._stage(stmt.b)}, {acc}, is_async=True)")
                self.defined.add(stmt.dst)
                self.products.issue(stmt.dst, stmt.span)
            case ir.Tcgen05():
                operands = ", ".join(self._stage(ref) for ref in (stmt.a, stmt.b, stmt.acc))
                again = self.scalars.condition(stmt.accumulate)
                line(f"tcgen05_mma({operands}, use_acc={again}, mbarriers=[{self._slot(stmt.bar)}])")
            case ir.Tcgen05Commit():
                line(f"tcgen05_commit({self._slot(stmt.bar)})")
            case ir.WgmmaWait():
                results = [self.names(n) for n in self.products.wait(stmt.pending, self.rest) if n in self.defined]
                if results:
                    deps = ", ".join(results)
                    comma = "," if len(results) == 1 else ""
                    line(f"{deps} = warpgroup_mma_wait(num_outstanding={stmt.pending}, deps=({deps}{comma}))")
            case ir.FenceAsync():
                line("fence_async_shared()")
            case ir.Sync(auto=auto):
                if not auto:
                    line("gl.thread_barrier()")
            case _:
                raise LoweringError(f"{type(stmt).__name__} cannot stand inside a block", stmt.span)

    def _for(self, stmt: ir.For) -> None:
        """A loop; where iterations stand in a row, those first, and then what is left of them, one by one."""
        var, step, lo, text = self.names(stmt.var), stmt.step, stmt.lo, self.scalars.text
        run = step * stmt.unroll
        if stmt.unroll > 1:
            trips = ex.binary("max", ex.Int(0), ex.cdiv(ex.sub(stmt.hi, lo), ex.Int(step)))
            end = ex.add(lo, ex.mul(ex.floordiv(trips, ex.Int(stmt.unroll)), ex.Int(run)))
            first, number_ = self.names.fresh(f"{var}_first"), self.names.fresh(f"{var}_of")
            self.out.line(f"for {first} in range({text(lo)}, {text(end)}, {run}):")
            with self.out.indented():
                self.out.line(f"for {number_} in gl.static_range({stmt.unroll}):")
                with self.out.indented():
                    self.out.line(f"{var} = {first} + {number_} * {step}")
                self._inner(stmt.body)
            if divisor(ex.sub(stmt.hi, lo), self.module.divisors) % run == 0:
                return
            lo = end
        self.out.line(f"for {var} in range({text(lo)}, {text(stmt.hi)}, {step}):")
        self._inner(stmt.body)

    def _while(self, stmt: ir.While) -> None:
        # Without a barrier before it, reductions across warps gave wrong results with Triton 3.6 (ARCHITECTURE.md).
        self.out.line("gl.thread_barrier()")
        self.out.line(f"while {self.scalars.condition(stmt.cond)}:")
        if not all(isinstance(s, ir.Assign | ir.If | ir.For | ir.While) for s in ir.walk(stmt.body)):
            self.out.line("    gl.thread_barrier()")
        self._inner(stmt.body)
        self.out.line("gl.thread_barrier()")

    def _inner(self, body: ir.Block) -> None:
        before = set(self.defined)
        self.products.enter(body, before)
        with self.out.indented():
            self._block(body)
        self.products.leave(before)
        self.defined = before

    def _programs(self, stmt: ir.Programs) -> None:
        var = self.names(stmt.var)
        if stmt.persistent:
            count = self.scalars.text(stmt.count)
            self.out.line(f"for {var} in range(gl.program_id(0), {count}, gl.num_programs(0)):")
            self._inner(stmt.body)
        else:
            self.out.line(f"{var} = gl.program_id(0)")
            self._block(stmt.body)

    def _if(self, stmt: ir.If) -> None:
        condition = self.scalars.condition(stmt.cond)
        if not stmt.orelse and all(isinstance(s, ir.BarrierArrive | ir.Sync) for s in stmt.then):
            # A predicate instead of a branch keeps the loop one basic block.
            for inner in stmt.then:
                with self.out.at(inner.span):
                    if isinstance(inner, ir.BarrierArrive):
                        self.out.line(f"mbarrier.arrive({self._slot(inner.bar)}, count=1, pred={condition})")
                    elif isinstance(inner, ir.Sync) and not inner.auto:
                        self.out.line("gl.thread_barrier()")
            return
        self.out.line(f"if {condition}:")
        before, products = set(self.defined), self.products.copy()
        with self.out.indented():
            self._block(stmt.then)
        after_then, self.defined = self.defined, set(before)
        after_products, self.products = self.products, products
        if stmt.orelse:
            self.out.line("else:")
            with self.out.indented():
                self._block(stmt.orelse)
        self.defined &= after_then
        self.products.join(after_products)

    def _element(self, tensor: str, at: tuple[ex.Expr, ...]) -> str:
        """The load of one element; of an integer as a scalar of 32 bits."""
        type_, text = self.kernel.param(tensor).type, self.scalars.text
        place, masks = [self.names(tensor)], list[str]()
        for index, stride, extent in zip(at, type_.strides, type_.shape, strict=True):
            if index != ex.Int(0):
                factor = text(stride, 10) if isinstance(stride, ex.Int) else self.scalars.wide(stride)
                scale = "" if stride == ex.Int(1) else f" * ({factor})"
                place.append(f"{text(index, 9 + bool(scale))}{scale}")
            # As for tiles: an index that does not exist must not touch foreign memory.
            masks.append(f"({text(index, 8)} < {text(extent, 8)})")
            if not self.scalars.is_nonnegative(index):
                masks.append(f"({text(index, 8)} >= 0)")
        cast = "" if type_.dtype.is_float or type_.dtype.name == "i32" else ".to(gl.int32)"
        return f"gl.load({' + '.join(place)}, mask={' & '.join(masks)}, other=0){cast}"

    def _load(self, stmt: ir.Load) -> None:
        tile, dst = self.module.tiles[stmt.dst], self.names(stmt.dst)
        if not stmt.view.tile_shape:
            self.out.line(f"{dst} = {self._element(stmt.view.tensor, stmt.view.origin)}")
            return
        where = self._access(stmt.view, tile, stmt.span)
        load = [f"{dst} = gl.load", where.pointers]
        if stmt.via == "buffer":
            load = [f"{dst} = {self._cdna}.buffer_load", where.base, where.narrow]
        if stmt.other is None:
            self._call(*load)
            return
        other = number(stmt.other) if tile.dtype.is_float else str(int(stmt.other))
        with self._inside_first(stmt.view, lambda: self._call(*load)):
            self._call(*load, f"mask={where.mask}", f"other={other}")

    def _points(self, stmt: ir.Gather | ir.CpGather | ir.Scatter) -> None:
        """A load, copy, store or update through a tile of pointers."""
        where = pointers(stmt, self.kernel.param(stmt.tensor), self.names, self.scalars, self.hoisted)
        if isinstance(stmt, ir.Gather):
            self._own_warps(stmt.dst, stmt.span)
            self.defined.add(stmt.dst)
        stage = self._stage(stmt.dst) if isinstance(stmt, ir.CpGather) else ""
        self._call(*accesses(stmt, where, stage, self.names, self.module.tiles))

    def _store(self, stmt: ir.Store) -> None:
        src = self.names(stmt.src)
        where = self._access(stmt.view, self.module.tiles[stmt.src], stmt.span)
        store = ["gl.store", where.pointers, src]
        if stmt.via == "buffer":
            store = [f"{self._cdna}.buffer_store", src, where.base, where.narrow]
        with self._inside_first(stmt.view, lambda: self._call(*store)):
            self._call(*store, f"mask={where.mask}")

    @property
    def _cdna(self) -> str:
        """The module of Gluon with the instructions of the target's generation."""
        return f"cdna{TARGETS[self.kernel.target].cdna}"

    def _atomic(self, stmt: ir.Atomic) -> None:
        where = self._access(stmt.view, self.module.tiles[stmt.src], stmt.span)
        mask = where.mask if stmt.mask is None else f"{self.names(stmt.mask)} & ({where.mask})"
        self._call(f"gl.atomic_{stmt.op}", where.pointers, self.names(stmt.src), f"mask={mask}", *RELAXED)

    @contextmanager
    def _inside_first(self, view: ir.View, unmasked: Callable[[], None]) -> Generator[None]:
        """What is written inside takes a mask; where a mask costs wide accesses, tiles inside the tensor go without.

        A mask splits a vector of elements unless it is known to hold all or none of them.
        """
        param, known = self.kernel.param(view.tensor), self.module.divisors
        masked = vector_elements(view, param, known, masked=True)
        if masked == vector_elements(view, param, known, masked=False):
            yield
            return
        inside: ex.Expr | None = None
        for origin, extent, size in zip(view.origin, view.shape, param.type.shape, strict=True):
            bounds = [ex.binary("<=", ex.add(origin, ex.Int(extent)), size)]
            if not self.scalars.is_nonnegative(origin):
                bounds.append(ex.binary("<=", ex.Int(0), origin))
            for bound in bounds:
                inside = bound if inside is None else ex.binary("and", inside, bound)
        assert inside is not None
        self.out.line(f"if {self.scalars.condition(inside)}:")
        with self.out.indented():
            unmasked()
        self.out.line("else:")
        with self.out.indented():
            yield

    def _cp_async(self, stmt: ir.CpAsync) -> None:
        buffer, param = self._shared(stmt.dst), self.kernel.param(stmt.view.tensor)
        width = 128 // vector_elements(stmt.view, param, self.module.divisors, masked=True)
        layout = default_blocked(buffer.shape, width, self.warps)
        where = self._access(stmt.view, TileType(buffer.dtype, buffer.shape, layout), stmt.span)
        arguments = self._stage(stmt.dst), where.pointers, f"mask={where.mask}"
        self._call("async_copy.async_copy_global_to_shared", *arguments)

    # --------------------------------------------------------------------------------------------- operands

    def _access(self, view: ir.View, tile: TileType, span: Span) -> Access:
        if tile.shape != view.tile_shape or tile.layout is None:
            raise LoweringError(f"the view has shape {list(view.tile_shape)}, but the tile is {tile}", span)
        param = self.kernel.param(view.tensor)
        if len(param.type.shape) != len(view.shape):
            raise LoweringError(
                f"a view of rank {len(view.shape)} of '{param.name}', which has rank {len(param.type.shape)}", span
            )
        return access(view, param, tile.layout, self.names, self.scalars, self.module.constants, self.hoisted)

    def _call(self, function: str, *arguments: str) -> None:
        """A call on one line if it fits, else one argument a line."""
        one = f"{function}({', '.join(arguments)})"
        if len(one) <= 100:
            self.out.line(one)
            return
        self.out.line(f"{function}(")
        with self.out.indented():
            for argument in arguments:
                self.out.line(f"{argument},")
        self.out.line(")")

    def _stage(self, ref: ir.BufRef) -> str:
        name = self.names(ref.buffer)
        buffer = self.kernel.types[ref.buffer]
        assert isinstance(buffer, SharedType | TensorMemoryType)
        stage = f"{name}.index({self.scalars.text(ref.stage)})" if buffer.ring else name
        return f"{stage}.permute([1, 0])" if ref.transposed else stage

    def _box(self, ref: ir.BufRef, view: ir.View) -> str:
        """The stage in the shape of the box of a bulk copy, which has the fixed dimensions of its tensor too."""
        stage = self._stage(ref)
        return f"{stage}.reshape({list(view.shape)})" if view.lead else stage

    def _slot(self, ref: ir.BarRef) -> str:
        return f"{self.names(ref.barrier)}.index({self.scalars.text(ref.slot)})"

    def _origin(self, view: ir.View) -> str:
        return "[" + ", ".join(self.scalars.text(e) for e in view.origin) + "]"

    def _shared(self, ref: ir.BufRef) -> SharedType:
        buffer = self.kernel.types[ref.buffer]
        assert isinstance(buffer, SharedType)
        return buffer

    def _own_warps(self, name: str, span: Span) -> None:
        tile = self.module.tiles[name]
        if tile.layout is not None and tile.layout.warps != self.warps:
            raise LoweringError(
                f"'{name}' has a layout for {tile.layout.warps} warps ({tile.layout}), but {self.warps} warps run this",
                span,
            )


def _expressions(stmt: ir.Stmt) -> Iterator[ex.Expr]:
    """Scalar operands of a statement."""
    for value in ir.operands(stmt):
        match value:
            case ex.Int() if isinstance(stmt, ir.Compute):
                pass  # takes the type of the tile, which the front end has compared it with
            case ex.Int() | ex.Size() | ex.Var() | ex.Bin() | ex.Not() | ex.Item():
                yield value
            case ir.View():
                yield from value.origin
            case ir.BufRef():
                yield value.stage
            case ir.BarRef():
                yield value.slot
            case _:
                pass
