"""From the definition of one kernel (decorator, parameters, body) to `ir.Kernel`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tree_sitter import Node

from tilewright.frontend.assignments import count_assignments
from tilewright.frontend.operations import Operations, known_target
from tilewright.frontend.tree import child, need, parts, text
from tilewright.frontend.values import AnnotationValue, Builtin, Choices, Tensor, Unusable, Value, describe
from tilewright.ir import expr as ex
from tilewright.ir import nodes as ir
from tilewright.ir.expr import Int
from tilewright.ir.types import GlobalType, ScalarType, TileType, row_major
from tilewright.problem import Problem
from tilewright.source import Span
from tilewright.targets import TARGETS
from tilewright_reference import folded

DEFAULT_TARGET = "sm_80"
DEFAULT_WARPS = 4
WARPS = "warps"
"""The option of `@tw.kernel` that an instance may override like a compile-time argument."""


@dataclass(frozen=True, slots=True)
class Elaborated:
    """The outcome for one kernel. `kernel` is None when it has errors.

    `reference` is the decorator's, with the values of constants in it, or empty.
    """

    kernel: ir.Kernel | None
    problems: tuple[Problem, ...]
    reference: str = ""


def elaborate_kernel(
    node: Node,
    base: int,
    scope: Mapping[str, Value],
    consts: Mapping[str, int | str] | None = None,
    target: str | None = None,
) -> Elaborated:
    """Elaborate a `decorated_definition` node of a syntactically healthy kernel.

    `base` is the byte where the kernel begins; spans are relative to it. `consts` and `target` override the defaults;
    an element type is given by its name (`{"T": "bf16"}`), and `"warps"` is the option of the decorator.
    """
    work = Operations(base, scope)
    function = need(node, "definition")
    name_node = need(function, "name")
    options = _options(work, node)
    given = consts or {}
    work.wanted_types = {name: value for name, value in given.items() if isinstance(value, str)}
    numbers = {name: value for name, value in given.items() if not isinstance(value, str)}
    params, scalars, constants = _parameters(work, need(function, "parameters"), numbers)
    if WARPS in numbers and WARPS not in {c.name for c in constants}:
        work.attempt(name_node, lambda node: setattr(options, "warps", _warps(work, node, numbers.pop(WARPS))))
    body = need(function, "body")
    work.counts = count_assignments(body)
    _variables(work, scalars)
    work.run_block(body)
    known = [c.name for c in constants] + list(work.type_params)
    unknown = sorted(set(numbers) - {c.name for c in constants} | work.wanted_types.keys() - work.type_params.keys())
    if unknown and not (work.problems and unknown[0] in work.wanted_types):
        name = unknown[0]
        kind = "integer" if name in numbers else "element type"
        wrong = f"takes no {kind} for '{name}'" if name in known else f"has no compile-time argument '{name}'"
        work.problems.append(
            work.fault("TW009", f"'{text(name_node)}' {wrong}; it has {', '.join(known) or 'none'}", name_node).problem
        )
    stores = ir.Store | ir.TmaStore | ir.Scatter | ir.Atomic
    if not any(isinstance(s, stores) for s in ir.walk(tuple(work.block))) and not work.problems:
        work.problems.append(
            Problem(
                "TW005",
                f"'{text(name_node)}' stores nothing; write results with tw.store",
                work.span(name_node),
                "warning",
            )
        )
    if not work.problems and (wrong := next(work.stored_index_tensors(), None)) is not None:
        work.problems.append(
            Problem(
                "TW005",
                f"'{text(name_node)}' {wrong[1]} and stores to it as well; what decides where other data lies must not "
                "change while the kernel runs",
                work.span(name_node),
            )
        )
    problems = tuple(work.problems)
    if any(p.severity == "error" for p in problems):
        return Elaborated(None, problems, options.reference)
    params = [work.tensors[p.name] for p in params]
    extents = [e for p in params for e in (*p.type.shape, *p.type.strides)]
    sizes = sorted({e.name for s in extents for e in ex.walk(s) if isinstance(e, ex.Size)})
    sizes += [s.name for s in scalars if not s.dtype.is_float]
    kernel = ir.Kernel(
        text(name_node), target or options.target, options.warps, tuple(params), tuple(constants), tuple(sizes),
        tuple(work.assumptions), tuple(work.block), work.types, work.span(name_node), options.registers,
        tuple(work.contracts), tuple(scalars), tuple(work.type_params.values()),
    )  # fmt: skip
    reference = _folded(options.reference, kernel, scope) if options.reference else ""
    return Elaborated(kernel, problems + tuple(_unbound_sizes(work, kernel)), reference)


def _folded(reference: str, kernel: ir.Kernel, scope: Mapping[str, Value]) -> str:
    """The reference with the values of the constants of the file and of the kernel."""
    values = {n: v.value for n, v in scope.items() if isinstance(v, Int)} | kernel.const_values()
    own = {a.name for a in kernel.arguments} | set(kernel.sizes)
    return folded(reference, {n: v for n, v in values.items() if n not in own})


@dataclass(slots=True)
class _Options:
    target: str = DEFAULT_TARGET
    warps: int = DEFAULT_WARPS
    reference: str = ""
    registers: int | None = None


def _options(work: Operations, node: Node) -> _Options:
    """The arguments of `@tw.kernel(…)`."""
    options = _Options()
    for decorator in (c for c in node.children if c.type == "decorator"):
        inner = parts(decorator)[0]
        if inner.type != "call":
            continue

        def read(argument: Node) -> None:
            if argument.type != "keyword_argument":
                raise work.fault(
                    "TW009", "tw.kernel takes target=, warps=, registers= and reference= by name", argument
                )
            key, value = text(need(argument, "name")), work.evaluate(need(argument, "value"))
            match key:
                case "target" if isinstance(value, str):
                    if not known_target(value):
                        raise work.fault("TW009", f"unknown target '{value}'; known are {', '.join(TARGETS)}", argument)
                    options.target = value
                case "warps" if isinstance(value, Int):
                    options.warps = _warps(work, argument, value.value)
                case "registers" if isinstance(value, Int):
                    if value.value % 8 or not 24 <= value.value <= 248:
                        raise work.fault(
                            "TW602", f"registers= is a multiple of 8 from 24 to 248, not {value.value}", argument
                        )
                    options.registers = value.value
                case "reference" if isinstance(value, str):
                    options.reference = value
                case "target" | "warps" | "registers" | "reference":
                    raise work.fault("TW009", f"{key}= does not take {describe(value)}", argument)
                case "cluster":
                    raise work.fault(
                        "TW009",
                        "clusters are not supported: Gluon of Triton 3.6 launches them, but copies to one block only "
                        "and arrives on barriers of its own block; leave cluster= out",
                        argument,
                    )
                case _:
                    raise work.fault(
                        "TW009",
                        f"tw.kernel has no option '{key}'; it has target, warps, registers, reference",
                        argument,
                    )

        for argument in parts(need(inner, "arguments")):
            work.attempt(argument, read)
    return options


def _warps(work: Operations, node: Node, warps: int) -> int:
    if warps not in (1, 2, 4, 8, 16, 32):
        raise work.fault("TW603", f"a kernel has 1, 2, 4, 8, 16 or 32 warps, not {warps}", node)
    return warps


def _parameters(
    work: Operations, node: Node, overrides: Mapping[str, int]
) -> tuple[list[ir.Param], list[ir.ScalarParam], list[ir.ConstParam]]:
    """Tensor, scalar and compile-time parameters; their names enter the scope."""
    tensors: list[ir.Param] = []
    scalars: list[ir.ScalarParam] = []
    constants: list[ir.ConstParam] = []

    def read(p: Node) -> None:
        if p.type in ("keyword_separator", "positional_separator"):
            return
        name_node = child(p, "name") or (parts(p)[0] if parts(p) else p)
        name, type_node, default = text(name_node), child(p, "type"), child(p, "value")
        work.names[name] = Unusable("has no value", silent=True)
        if type_node is None or p.type not in ("typed_parameter", "typed_default_parameter"):
            raise work.fault(
                "TW003", f"'{name}' needs a type: Global[f16, M, K] for a tensor, Scalar[f32] or Scalar[i32] for a "
                "number that each launch gives, Const for a compile-time value", p,
            )  # fmt: skip
        work.types_read.clear()
        annotation = work.evaluate(parts(type_node)[0])
        for used in work.types_read:
            held = work.type_params[used]
            work.type_params[used] = replace(held, tensors=(*held.tensors, name))
        if annotation == Builtin("Scalar"):
            raise work.fault("TW003", "Scalar needs an element type: Scalar[f32] or Scalar[i32]", type_node)
        if annotation == Builtin("Global"):
            raise work.fault("TW003", "Global needs an element type and extents: Global[f16, M, K]", type_node)
        if not isinstance(annotation, AnnotationValue):
            raise work.fault(
                "TW003", f"a parameter is Global[…], Scalar[…] or Const, not {describe(annotation)}", type_node
            )
        if annotation.kind == "Const":
            constant = _constant(work, p, name, default, overrides)
            constants.append(constant)
            work.names[name] = Int(constant.value)
            return
        if default is not None:
            what = "scalar" if annotation.kind == "Scalar" else "tensor"
            raise work.fault("TW003", f"the {what} '{name}' takes no default", default)
        assert annotation.dtype is not None
        if annotation.kind == "Scalar":
            scalar = ir.ScalarParam(name, annotation.dtype, len(tensors) + len(scalars), work.span(p))
            scalars.append(scalar)
            is_float = annotation.dtype.is_float
            work.types[name] = TileType(annotation.dtype, ()) if is_float else ScalarType()
            work.names[name] = ir.TileRef(name) if is_float else ex.Size(name, ex.LEAST_SCALAR)
            return
        type_ = GlobalType(annotation.dtype, annotation.shape, row_major(annotation.shape))
        param = ir.Param(name, type_, work.span(p))
        tensors.append(param)
        work.tensors[name] = param
        work.names[name] = Tensor(param)

    # Compile-time parameters stand last, and extents of tensors may name them.
    for p in sorted(parts(node), key=lambda p: not _is_constant(p)):
        work.attempt(p, read)
    return tensors, scalars, constants


def _is_constant(parameter: Node) -> bool:
    type_node = child(parameter, "type")
    return type_node is not None and text(type_node).rpartition(".")[2] == "Const"


def _variables(work: Operations, scalars: list[ir.ScalarParam]) -> None:
    """Scalar arguments that the kernel assigns become variables that begin with the argument's value."""
    for scalar in scalars:
        if work.counts[scalar.name]:
            name, value = work.unique(scalar.name, work.types[scalar.name]), work.names[scalar.name]
            work.owners[name] = (work.call_number, scalar.name)
            work.changing.add(name)
            if isinstance(value, ir.TileRef):
                work.emit(ir.Compute(name, "copy", (value,), span=scalar.span))
                work.names[scalar.name] = ir.TileRef(name)
            elif isinstance(value, ex.Size):
                work.emit(ir.Assign(name, value, span=scalar.span))
                work.names[scalar.name] = ex.Var(name)
                work.initial[name] = value


def _constant(
    work: Operations, p: Node, name: str, default: Node | None, overrides: Mapping[str, int]
) -> ir.ConstParam:
    if default is None and name not in overrides:
        raise work.fault("TW006", f"the compile-time argument '{name}' needs a default: {name}: Const = 128", p)
    value = work.evaluate(default) if default is not None else Int(overrides[name])
    if isinstance(value, Choices):
        choices = value.values
    elif isinstance(value, Int):
        choices = (value.value,)
    else:
        raise work.fault("TW006", f"the default of '{name}' is an integer or tw.choice(…), not {describe(value)}", p)
    return ir.ConstParam(name, overrides.get(name, choices[0]), choices[0], choices, work.span(p))


def _unbound_sizes(work: Operations, kernel: ir.Kernel) -> list[Problem]:
    """Sizes that no tensor argument gives a value to."""
    used: dict[str, Span] = {}
    for stmt in ir.walk(kernel.body):
        for value in _expressions(stmt):
            for e in ex.walk(value):
                if isinstance(e, ex.Size):
                    used.setdefault(e.name, stmt.span)
    for assumption in (*kernel.assumptions, *kernel.contracts):
        for e in ex.walk(assumption.expr):
            if isinstance(e, ex.Size):
                used.setdefault(e.name, assumption.span)
    for param in kernel.params:
        for extent in (*param.type.shape, *param.type.strides):
            for name in ex.names(extent):
                used.setdefault(name, param.span)
    # A launch reads sizes off the shapes and strides of its tensors: `M * 2` alone does not tell M.
    extents = [e for p in kernel.params for e in (*p.type.shape, *p.type.strides)]
    bound = {s.name for s in extents if isinstance(s, ex.Size)} | kernel.integers
    return [
        Problem(
            "TW008",
            f"the size '{name}' has no value: no tensor argument has it, by itself, as an extent or stride",
            used[name],
        )
        for name in sorted(set(used) - bound)
    ]


def _expressions(stmt: ir.Stmt) -> list[ir.Expr]:
    found: list[ir.Expr] = []
    for value in ir.operands(stmt):
        if isinstance(value, ir.View):
            found.extend(value.origin)
        elif isinstance(value, ir.BufRef):
            found.append(value.stage)
        elif isinstance(value, ir.BarRef):
            found.append(value.slot)
        elif isinstance(value, Int | ex.Size | ex.Var | ex.Bin | ex.Not | ex.Item):
            found.append(value)
    return found
