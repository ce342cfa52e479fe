"""Statements on shared memory by ordinary threads: loads, stores, cp.async, proxy fences and syncs.

Threads of a role move at their own pace between syncs. So an ordinary store or a finished cp.async shows up for others
at the next sync of the role, and an ordinary load may still be reading until then; both are pending uses of the stage.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.interpret.machine import Events, Group, Pending, Process, Tile
from tilewright.interpret.memory import Region, Stage, Use, first_true
from tilewright.interpret.numeric import Array
from tilewright.interpret.operands import Operands, StepRun
from tilewright.interpret.provenance import loaded
from tilewright.interpret.schedule import Action
from tilewright.interpret.tags import Tag
from tilewright.ir import nodes as ir
from tilewright.problem import Related


def compile_step(stmt: ir.Stmt, operands: Operands) -> StepRun | None:
    """The step of a statement of this module; None for any other."""
    match stmt:
        case ir.SharedLoad():
            return _shared_load(stmt, operands)
        case ir.SharedStore():
            return _shared_store(stmt, operands)
        case ir.CpAsync():
            return _cp_async(stmt, operands)
        case ir.CpCommit():
            return _cp_commit
        case ir.CpWait(pending=pending):
            return lambda process: _cp_wait(process, pending)
        case ir.FenceAsync():
            return _fence
        case ir.Sync():
            return _sync
        case _:
            return None


def begin_read(process: Process, stage: Stage, region: Region, *, asynchronous: bool, queue: object) -> int:
    """Check a read of part of a stage, and note it. Returns its completion token (0 without happens-before).

    Raises Violation for undefined or torn contents, for a write in flight, and for a missing proxy fence.
    """
    if (writer := stage.busy(stage.writers, region)) is not None:
        raise process.violation(
            "race", f"{stage.name} is read before {writer.action.what} is complete", related=_seen(writer.action)
        )
    token = _order(process, stage, region, write=False, asynchronous=asynchronous, queue=queue)
    versions = stage.version[region]
    lowest, highest = int(versions.min()), int(versions.max())
    if lowest == 0:
        element = first_true(stage.version == 0)
        raise process.violation(
            "uninitialized", f"{stage.name} is read, but its element {element} was never written", element=element
        )
    if lowest != highest:
        raise process.violation(
            "stale", f"{stage.name} is read while it holds parts of two tiles: one part is from an earlier write"
        )
    if asynchronous and stage.any_unfenced and stage.unfenced[region].any():
        raise process.violation(
            "proxy",
            f"the asynchronous proxy reads {stage.name}, but no fence_async followed by a sync stands between the "
            "ordinary write and this read",
            element=first_true(stage.unfenced),
        )
    return token


def begin_write(process: Process, stage: Stage, region: Region, *, asynchronous: bool, queue: object) -> int:
    """Check that part of a stage may be overwritten, and note it. Returns its completion token."""
    if (reader := stage.busy(stage.readers, region)) is not None:
        raise process.violation(
            "race",
            f"{stage.name} is overwritten while {reader.action.what} may still read it",
            related=_seen(reader.action),
        )
    if (writer := stage.busy(stage.writers, region)) is not None:
        raise process.violation(
            "race",
            f"{stage.name} is overwritten while {writer.action.what} is still writing it",
            related=_seen(writer.action),
        )
    token = _order(process, stage, region, write=True, asynchronous=asynchronous, queue=queue)
    stage.spoil(region)
    return token


def _order(process: Process, stage: Stage, region: Region, *, write: bool, asynchronous: bool, queue: object) -> int:
    ordering = process.machine.ordering
    if ordering is None:
        return 0
    found = ordering.conflict(stage, region, process.knowledge, write=write, asynchronous=asynchronous)
    verb = "overwritten" if write else "read"
    if found is not None:
        kind, earlier = found
        if kind == "proxy":
            raise process.violation(
                "proxy",
                f"{stage.name} is {verb} by the asynchronous proxy without a fence_async and a sync after "
                f"{earlier.what}",
                related=(Related(earlier.span, f"{earlier.what} is here"),),
            )
        raise process.violation(
            "race",
            f"{stage.name} is {verb} here, but nothing orders that after {earlier.what}",
            related=(Related(earlier.span, f"{earlier.what} is here"),),
        )
    what = f"{'the write' if write else 'the read'} by {_name(process)}"
    return ordering.record(
        stage, region, write=write, asynchronous=asynchronous, queue=queue, what=what, span=process.stmt.span
    )


def _seen(action: Action) -> tuple[Related, ...]:
    return (Related(action.span, f"{action.what} was issued here"),)


def _name(process: Process) -> str:
    return f"{type(process.stmt).__name__} of {process.label or 'the program'}"


def publish(group: Group) -> None:
    """What a barrier over the threads of a group does, once all have arrived."""
    unfenced: dict[int, tuple[Stage, Region, int]] = {}
    for member in group.members:
        finish(member)
        for stage, region, version in member.fenced:
            stage.fenced(region, version)
        member.fenced.clear()
        # From here on every member knows these writes, so a fence of any of them counts; overwritten ones are moot.
        unfenced |= {id(write): write for write in member.unfenced if _is_current(*write)}
    for member in group.members:
        member.unfenced = list(unfenced.values())
    ordering = group.members[0].machine.ordering
    if ordering is not None:
        ordering.sync([m.knowledge for m in group.members])


def _is_current(stage: Stage, region: Region, version: int) -> bool:
    return int(stage.version[tuple(part.start for part in region)]) == version


def finish(process: Process) -> None:
    """Complete what other threads of the process may still be doing."""
    for action in process.until_sync:
        if not action.done:
            action.run()
            action.done = True
    process.until_sync.clear()


def _sync(process: Process) -> Events | None:
    group = process.group
    if len(group.members) == 1:
        publish(group)
        return None
    return _rendezvous(process, group)


def _rendezvous(process: Process, group: Group) -> Events:
    group.arrived += 1
    if group.arrived == len(group.members):
        publish(group)
        group.arrived = 0
        group.generation += 1
        return
    before = group.generation
    process.waiting = "the other warpgroups at a sync"
    yield lambda: group.generation != before


def _fence(process: Process) -> None:
    process.fenced += process.unfenced
    process.unfenced = []
    if process.machine.ordering is not None:
        process.machine.ordering.fence(process.knowledge)


def _shared_load(stmt: ir.SharedLoad, operands: Operands) -> StepRun:
    stage_of = operands.stage(stmt.src)

    def run(process: Process) -> None:
        stage = stage_of(process)
        region = stage.whole
        token = begin_read(process, stage, region, asynchronous=False, queue=process)
        process.knowledge.local |= token
        reading = Action(_nothing, _name(process), process.stmt.span)
        stage.readers.append(Use(region, reading))
        process.until_sync.append(reading)
        data, tag = stage.seen(stmt.src.transposed)
        process.assign(stmt.dst, Tile(data.copy(), tag))

    return run


def _shared_store(stmt: ir.SharedStore, operands: Operands) -> StepRun:
    stage_of = operands.stage(stmt.dst)

    def run(process: Process) -> None:
        stage, tile = stage_of(process), process.tile(stmt.src)
        process.written += 1
        region = process.share(stage.shape)
        if region is None:
            return
        process.knowledge.local |= begin_write(process, stage, region, asynchronous=False, queue=process)
        # The warpgroups of a role write their parts of one tile under one number.
        version = process.machine.version((process.role, process.written, stage.name))
        values, stage.tag = tile.data[region], tile.tag

        def complete() -> None:
            stage.put(region, values, version, generic=True)

        writing = Action(complete, _name(process), process.stmt.span)
        stage.writers.append(Use(region, writing))
        process.until_sync.append(writing)
        process.unfenced.append((stage, region, version))

    return run


def _cp_async(stmt: ir.CpAsync, operands: Operands) -> StepRun:
    stage_of, place_of, view = operands.stage(stmt.dst), operands.place(stmt.view), stmt.view
    decided = operands.decided(stmt.view)
    name = view.tensor

    def run(process: Process) -> None:
        stage, (tensor, origin) = stage_of(process), place_of(process)
        if any(o < 0 for o in origin):
            raise process.violation(
                "bounds", f"the tile of {name} starts at {origin}, before its first element", element=origin
            )
        tag = loaded(process, tensor, origin, view.tile_shape, view.lead, decided)
        copy_async(process, stage, tag, lambda: tensor.read(origin, view.shape, 0.0).reshape(view.tile_shape))

    return run


def copy_async(process: Process, stage: Stage, tag: Tag | None, read: Callable[[], Array]) -> None:
    """Begin a copy of what `read` gives into a stage; it is complete when a wait for its group says so."""
    process.written += 1
    region = process.share(stage.shape)
    if region is None:
        return
    token = begin_write(process, stage, region, asynchronous=False, queue=None)
    version = process.machine.version((process.role, process.written, stage.name))
    stage.tag = tag
    visible = Action(_nothing, _name(process), process.stmt.span)
    stage.writers.append(Use(region, visible))
    copying = process.machine.actions.issue(
        Action(lambda: stage.put(region, read()[region], version, generic=True), _name(process), process.stmt.span)
    )
    process.open_copies.append(Pending(copying, token, None, (stage, region, version), visible))


def _cp_commit(process: Process) -> None:
    process.copies.append(process.open_copies)
    process.open_copies = []


def _cp_wait(process: Process, pending: int) -> Events | None:
    finished: list[Pending] = []
    while len(process.copies) > pending:
        finished += process.copies.popleft()
    if any(not p.action.done for p in finished):
        return _blocked_cp_wait(process, finished)
    _take_copies(process, finished)
    return None


def _blocked_cp_wait(process: Process, finished: list[Pending]) -> Events:
    process.waiting = "its cp.async copies"
    yield lambda: all(p.action.done for p in finished)
    _take_copies(process, finished)


def _take_copies(process: Process, finished: list[Pending]) -> None:
    """The copies are complete for the threads that issued them; others see them after the next sync."""
    for copy in finished:
        process.knowledge.local |= copy.token
        if copy.use is not None and copy.written is not None:
            process.until_sync.append(copy.use)
            process.unfenced.append(copy.written)


def _nothing() -> None:
    """A pending use without an effect of its own."""
