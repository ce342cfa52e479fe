"""What a target cannot do, said before the compiler is asked: it would abort, or accept it silently.

Each rule names the statement and what to change. Sources: PTX ISA (operand shapes and types), and what Triton 3.6 was
seen to do with each case.
"""

from __future__ import annotations

from tilewright import matrix
from tilewright.divisibility import kernel_divisors, vector_elements
from tilewright.infer.rules import wgmma_operand
from tilewright.ir import nodes as ir
from tilewright.ir.stages import seen
from tilewright.ir.types import BarrierType, GlobalType, SharedType, TensorMemoryType, TileType
from tilewright.layout import LayoutError, Mfma, Swizzled, Wgmma
from tilewright.lines import copied_at_once
from tilewright.lower.errors import LoweringError
from tilewright.source import Span
from tilewright.targets import TARGETS, TENSOR_MEMORY_COLUMNS, TENSOR_MEMORY_ROWS, Feature, Target

_NEEDS: tuple[tuple[tuple[type[ir.Stmt], ...], Feature, str], ...] = (
    ((ir.TmaLoad, ir.TmaStore, ir.TmaStoreWait), "tma", "bulk tensor copies (TMA)"),
    ((ir.Wgmma, ir.WgmmaWait), "wgmma", "wgmma"),
    (
        (ir.AllocTensor, ir.Tcgen05, ir.Tcgen05Commit, ir.TensorLoad),
        "tcgen05",
        "tensor memory and tcgen05",
    ),
    ((ir.CpAsync, ir.CpGather, ir.CpCommit, ir.CpWait), "cp_async", "cp.async"),
    ((ir.AllocBarrier, ir.BarrierWait, ir.BarrierArrive, ir.BarrierExpect), "mbarrier", "mbarriers"),
    # Arrivals of a role and register budgets are lowered to instructions of sm_90.
    ((ir.Roles, ir.BarrierExpect, ir.BarrierArrive, ir.FenceAsync), "setmaxnreg", "roles and transaction barriers"),
)


def check(kernel: ir.Kernel) -> Target:
    """The target of an explicit kernel with layouts. Raises LoweringError for the first thing it cannot do."""
    if not ir.is_explicit(kernel):
        raise LoweringError("policy statements are left; expand the kernel before lowering it", kernel.span)
    target = TARGETS.get(kernel.target)
    if target is None:
        raise LoweringError(f"unknown target '{kernel.target}'; there are {', '.join(TARGETS)}", kernel.span)
    for name in (kernel.name, *(a.name for a in kernel.arguments), *kernel.sizes):
        if not name.isidentifier():
            raise LoweringError(f"{name!r} is no identifier", kernel.span)
    _check_warps(kernel, target)
    _check_types(kernel, target)
    for stmt in ir.walk(kernel.body):
        if isinstance(stmt, ir.Load | ir.Store) and stmt.via == "buffer" and not target.has("buffer_load"):
            raise LoweringError(f"{target.name} has no buffer loads and stores (AMD has)", stmt.span)
        for kinds, feature, what in _NEEDS:
            if isinstance(stmt, kinds) and not target.has(feature):
                having = ", ".join(t.name for t in TARGETS.values() if t.has(feature))
                raise LoweringError(f"{target.name} has no {what}; targets with them: {having}", stmt.span)
        _check_statement(stmt, kernel, target)
    _check_shared(kernel, target)
    _check_tensor_memory(kernel)
    return target


def total_warps(kernel: ir.Kernel) -> int:
    """Warps of a block: with several roles, the workers' warps are padded to whole warpgroups (Triton 3.6)."""
    roles = next((s.roles for s in kernel.body if isinstance(s, ir.Roles)), ())
    if len(roles) < 2:
        return kernel.warps
    return -(-sum(role.warps for role in roles) // 4) * 4


def shared_bytes(kernel: ir.Kernel) -> int:
    """Shared memory that the kernel itself allocates, each buffer rounded up to its alignment of 1024 or 16 bytes."""
    total = 0
    for stmt in ir.walk(kernel.body):
        match stmt:
            case ir.AllocShared(dst=name):
                buffer = kernel.types[name]
                assert isinstance(buffer, SharedType)
                total += -(-buffer.stage_bytes * buffer.stages // 16) * 16
            case ir.AllocBarrier(dst=name):
                barrier = kernel.types[name]
                assert isinstance(barrier, BarrierType)
                total += -(-8 * barrier.slots // 16) * 16
            case _:
                pass
    return total


def tensor_columns(kernel: ir.Kernel) -> int:
    """Columns of tensor memory that a block allocates: a power of two from 32 on (PTX ISA, tcgen05.alloc), or 0."""
    used = sum(t.columns for t in kernel.types.values() if isinstance(t, TensorMemoryType))
    return max(32, 1 << (used - 1).bit_length()) if used else 0


def _check_warps(kernel: ir.Kernel, target: Target) -> None:
    groups = [stmt for stmt in ir.walk(kernel.body) if isinstance(stmt, ir.Roles)]
    if len(groups) > 1 or (groups and groups[0] not in kernel.body):
        raise LoweringError("a kernel has its roles in one place, at the top level of its body", groups[-1].span)
    counts = [(kernel.warps, kernel.span)]
    if groups:
        roles = groups[0].roles
        counts += [(role.warps, role.span) for role in roles]
        if roles[0].warps != kernel.warps:
            raise LoweringError(
                f"the first role, '{roles[0].name}', runs on the kernel's {kernel.warps} warps, but asks for "
                f"{roles[0].warps}",
                roles[0].span,
            )
    for warps, span in counts:
        if warps < 1 or warps & (warps - 1):
            raise LoweringError(f"{warps} warps: the number of warps is a power of two", span)
    threads = total_warps(kernel) * target.warp_size
    if threads > target.threads_per_block:
        raise LoweringError(f"{threads} threads a block; {target.name} allows {target.threads_per_block}", kernel.span)


def _check_types(kernel: ir.Kernel, target: Target) -> None:
    for name, type_ in kernel.types.items():
        where = _definition(kernel, name)
        if (
            isinstance(type_, TileType | SharedType)
            and (least := type_.dtype.least)
            and not (target.arch >= least if isinstance(target.arch, int) else _only_moved(kernel, name, target))
        ):
            having = ", ".join(t.name for t in TARGETS.values() if isinstance(t.arch, int) and t.arch >= least)
            raise LoweringError(f"{target.name} cannot convert to {type_.dtype}; {having} can", where)
        if isinstance(type_, TileType | SharedType):
            for extent in type_.shape:
                if extent < 1 or extent & (extent - 1):
                    raise LoweringError(f"'{name}' is {type_}: extent {extent} is not a power of two", where)
        if isinstance(type_, SharedType):
            try:
                type_.layout.linear(type_.shape)
            except LayoutError as error:
                raise LoweringError(f"shared buffer '{name}': {error}", where) from error
        if isinstance(type_, TileType) and type_.shape and type_.layout is None:
            raise LoweringError(f"'{name}' has no layout; run `infer_layouts` before lowering", where)
        if isinstance(type_, TileType) and type_.layout is not None and type_.layout.warp_size != target.warp_size:
            raise LoweringError(
                f"'{name}' has a layout for warps of {type_.layout.warp_size} lanes ({type_.layout}); those of "
                f"{target.name} have {target.warp_size}",
                where,
            )


def _only_moved(kernel: ir.Kernel, name: str, target: Target) -> bool:
    """Whether nothing converts a tile of 8-bit floats, on a target that multiplies them but does not convert."""
    return target.cdna >= 4 and not any(
        isinstance(s, ir.Compute) and s.op in ("cast", "full") and name in (s.dst, *(_names(s.args)))
        for s in ir.walk(kernel.body)
    )


def _names(args: tuple[ir.Operand, ...]) -> list[str]:
    return [a.name for a in args if isinstance(a, ir.TileRef)]


def _check_shared(kernel: ir.Kernel, target: Target) -> None:
    used = shared_bytes(kernel)
    if used > target.shared_per_block:
        raise LoweringError(
            f"the kernel's buffers take {used} bytes of shared memory; {target.name} has {target.shared_per_block} "
            "for a block: use fewer stages or smaller tiles",
            kernel.span,
        )


def _check_tensor_memory(kernel: ir.Kernel) -> None:
    used = sum(t.columns for t in kernel.types.values() if isinstance(t, TensorMemoryType))
    if used > TENSOR_MEMORY_COLUMNS:
        raise LoweringError(
            f"the accumulators take {used} columns of tensor memory; a block has {TENSOR_MEMORY_COLUMNS}", kernel.span
        )


def _definition(kernel: ir.Kernel, name: str) -> Span:
    for stmt in ir.walk(kernel.body):
        if getattr(stmt, "dst", None) == name:
            return stmt.span
    return kernel.span


def _check_statement(stmt: ir.Stmt, kernel: ir.Kernel, target: Target) -> None:
    match stmt:
        case ir.Wgmma():
            _check_wgmma(stmt, kernel)
        case ir.Tcgen05():
            _check_tcgen05(stmt, kernel)
        case ir.Mma():
            _check_mma(stmt, kernel, target)
        case ir.TmaLoad(view=view, dst=ref) | ir.TmaStore(view=view, src=ref):
            _check_tma(view, _shared(kernel, ref), stmt, kernel)
        case ir.CpAsync():
            _check_cp_async(stmt, kernel)
        case ir.CpGather():
            _check_cp_gather(stmt, kernel)
        case ir.BarrierExpect(bytes=amount) if not hasattr(amount, "value"):
            raise LoweringError("the bytes that a barrier expects must be a compile-time constant", stmt.span)
        case _:
            pass


def _check_wgmma(stmt: ir.Wgmma, kernel: ir.Kernel) -> None:
    a = kernel.types[stmt.a.name] if isinstance(stmt.a, ir.TileRef) else _shared(kernel, stmt.a)
    b, acc = _shared(kernel, stmt.b), kernel.types[stmt.dst]
    assert isinstance(a, TileType | SharedType) and isinstance(acc, TileType)
    if problem := matrix.problem("wgmma", TARGETS[kernel.target], a.dtype, b.dtype, acc.dtype):
        raise LoweringError(problem, stmt.span)
    depth = matrix.nvidia_depth(a.dtype)
    (m, k), (k2, n) = a.shape, b.shape
    if k != k2 or acc.shape != (m, n) or k % depth or m % 64 or n % 8:
        raise LoweringError(
            f"wgmma of {a} and {b} into {acc}: M must be a multiple of 64, N of 8, and K equal and a multiple of "
            f"{depth}",
            stmt.span,
        )
    if isinstance(stmt.a, ir.TileRef) and isinstance(acc.layout, Wgmma):
        wanted = wgmma_operand(acc.layout, a.dtype)
        if a.layout != wanted:
            raise LoweringError(f"operand A of wgmma in registers has the layout {wanted}, not {a.layout}", stmt.span)
    for ref in (stmt.a, stmt.b):
        if isinstance(ref, ir.BufRef) and not isinstance(layout := _shared(kernel, ref).layout, Swizzled):
            raise LoweringError(
                f"wgmma reads '{ref.buffer}' from shared memory in one of the swizzles of TMA (tw.swizzled), not "
                f"{layout}",
                stmt.span,
            )
    for ref, operand, along in ((stmt.a, a, False), (stmt.b, b, True)):
        # K is the last axis of a and the first of b; registers have no order in memory.
        if not isinstance(ref, ir.BufRef) or not isinstance(operand, SharedType):
            continue
        assert isinstance(operand.layout, Swizzled)
        if not operand.layout.bytes:
            raise LoweringError(
                f"wgmma reads rows of at least 32 bytes; those of '{ref.buffer}' have no swizzle", stmt.span
            )
        if matrix.both_along_k(a.dtype) and operand.layout.transposed != along:
            raise LoweringError(matrix.K_CONTIGUOUS.format(name=ref.buffer, dtype=operand.dtype), stmt.span)


def _check_tcgen05(stmt: ir.Tcgen05, kernel: ir.Kernel) -> None:
    a, b, acc = _shared(kernel, stmt.a), _shared(kernel, stmt.b), kernel.types[stmt.acc.buffer]
    assert isinstance(acc, TensorMemoryType)
    if problem := matrix.problem("tcgen05", TARGETS[kernel.target], a.dtype, b.dtype, acc.dtype):
        raise LoweringError(problem, stmt.span)
    (m, k), (k2, n) = a.shape, b.shape
    if k != k2 or acc.shape != (m, n) or m not in TENSOR_MEMORY_ROWS or n % 16 or n > 256 or k % 16:
        raise LoweringError(
            f"tcgen05 of {a} and {b} into {acc}: M must be 64 or 128, N a multiple of 16 up to 256, and K "
            "equal and a multiple of 16",
            stmt.span,
        )
    for ref, operand in ((stmt.a, a), (stmt.b, b)):
        if not isinstance(operand.layout, Swizzled):
            raise LoweringError(
                f"tcgen05 reads '{ref.buffer}' from shared memory in one of the swizzles of TMA (tw.swizzled), not "
                f"{operand.layout}",
                stmt.span,
            )


def _check_mma(stmt: ir.Mma, kernel: ir.Kernel, target: Target) -> None:
    name = stmt.instr
    if name == "auto" or not target.has(name):
        having = ", ".join(t.name for t in TARGETS.values() if name != "auto" and t.has(name))
        raise LoweringError(f"{target.name} has no {name}; targets with it: {having}", stmt.span)
    a, b, acc = kernel.types[stmt.a], kernel.types[stmt.b], kernel.types[stmt.dst]
    assert isinstance(a, TileType) and isinstance(b, TileType) and isinstance(acc, TileType)
    problem = matrix.problem(name, target, a.dtype, b.dtype, acc.dtype)
    if problem := problem or matrix.precision_problem(name, a.dtype, stmt.precision):
        raise LoweringError(problem, stmt.span)
    (m, k), (k2, n) = a.shape, b.shape
    rows, columns, depth = 16, 8, matrix.nvidia_depth(a.dtype)
    if isinstance(acc.layout, Mfma):
        rows, columns, depth = acc.layout.instr
    if k != k2 or acc.shape != (m, n) or m % rows or n % columns or k % depth:
        raise LoweringError(
            f"{name} of {a} and {b} into {acc}: M must be a multiple of {rows}, N of {columns}, and K equal and a "
            f"multiple of {depth}",
            stmt.span,
        )


def _check_tma(view: ir.View, buffer: SharedType, stmt: ir.Stmt, kernel: ir.Kernel) -> None:
    param = kernel.param(view.tensor)
    if buffer.shape != view.tile_shape or buffer.dtype != param.type.dtype:
        raise LoweringError(
            f"a bulk copy moves a tile as it is, but the view is {param.type.dtype}{list(view.tile_shape)} and the "
            f"buffer "
            f"{buffer}",
            stmt.span,
        )
    if not isinstance(buffer.layout, Swizzled) or buffer.layout.transposed:
        raise LoweringError(
            f"a bulk copy writes rows in one of the swizzles of TMA (tw.swizzled), not {buffer.layout}", stmt.span
        )
    if len(view.shape) not in range(1, 6):
        raise LoweringError(f"a bulk copy has 1 to 5 dimensions, not {len(view.shape)}", stmt.span)
    *_, width = view.shape
    row = width * buffer.dtype.bytes
    if row % 16:
        raise LoweringError(
            f"a bulk copy moves rows of a multiple of 16 bytes; {width} elements of {buffer.dtype} are {row}",
            stmt.span,
        )
    if not _contiguous(param.type):
        raise LoweringError(
            f"a bulk copy needs a contiguous last dimension; '{view.tensor}' has a stride there", stmt.span
        )


def _check_cp_async(stmt: ir.CpAsync, kernel: ir.Kernel) -> None:
    buffer, param = _shared(kernel, stmt.dst), kernel.param(stmt.view.tensor)
    if buffer.shape != stmt.view.tile_shape or buffer.dtype != param.type.dtype:
        raise LoweringError(
            f"cp.async moves a tile as it is, but the view is {param.type.dtype}{list(stmt.view.tile_shape)} and the "
            f"buffer {buffer}",
            stmt.span,
        )
    size = param.type.dtype.bytes
    if not _contiguous(param.type):
        raise LoweringError(
            f"cp.async copies at least 4 contiguous bytes, but '{param.name}' has a stride in its last dimension",
            stmt.span,
        )
    if size * vector_elements(stmt.view, param, kernel_divisors(kernel), masked=True) < 4:
        raise LoweringError(
            f"cp.async copies at least 4 bytes at multiples of 4, all inside or all outside the tensor, but rows of "
            f"'{param.name}' ({param.type.dtype}) may begin and end at any multiple of {size} bytes: assume that the "
            f"row length is a multiple of {16 // size} (16 bytes, the widest copy)",
            stmt.span,
        )


def _check_cp_gather(stmt: ir.CpGather, kernel: ir.Kernel) -> None:
    buffer, param = _shared(kernel, stmt.dst), kernel.param(stmt.tensor)
    if buffer.dtype != param.type.dtype:
        raise LoweringError(f"cp.async copies elements as they are, but '{param.name}' holds {param.type.dtype} and "
                            f"'{stmt.dst.buffer}' {buffer.dtype}", stmt.span)  # fmt: skip
    size = param.type.dtype.bytes
    if size * copied_at_once(kernel, stmt, kernel_divisors(kernel)) < 4:
        raise LoweringError(
            f"cp.async copies at least 4 contiguous bytes at multiples of 4, all of them or none, but the elements of "
            f"'{param.name}' ({param.type.dtype}) that this takes are not known to lie together: the index of the last "
            f"dimension counts along the last axis of the tile from a multiple of {16 // size}, the row length is a "
            f"multiple of {16 // size} (16 bytes, the widest copy; assume it), and a mask along that axis compares "
            "that index with a multiple of it",
            stmt.span,
        )


def _contiguous(tensor: GlobalType) -> bool:
    return not tensor.strides or getattr(tensor.strides[-1], "value", None) == 1


def _shared(kernel: ir.Kernel, ref: ir.BufRef) -> SharedType:
    try:
        return seen(kernel.types, ref)
    except LayoutError as error:
        raise LoweringError(f"'{ref.buffer}': {error}", _definition(kernel, ref.buffer)) from error
