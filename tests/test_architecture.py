"""The imports of the packages follow the arrow dsl <- analysis <- agent <- server."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Each package, its folder, and the packages of ours that it may import.
PACKAGES: dict[str, tuple[str, frozenset[str]]] = {
    "tilewright_reference": ("dsl", frozenset()),
    "tilewright": ("dsl", frozenset({"tilewright_reference"})),
    "tilewright_analysis": ("analysis", frozenset({"tilewright_reference", "tilewright"})),
    "tilewright_agent": ("agent", frozenset({"tilewright_reference", "tilewright", "tilewright_analysis"})),
    "tilewright_server": (
        "server",
        frozenset({"tilewright_reference", "tilewright", "tilewright_analysis", "tilewright_agent"}),
    ),
}
OPTIONAL = ("torch", "triton", "anthropic", "distributed", "mcp")  # what the extras bring
PROTOCOL = frozenset({"pygls", "lsprotocol"})
WORKER_NEEDS = frozenset({"torch", "triton", "numpy", "tilewright_reference"})
NOT_ON_A_GPU_MACHINE = ("tree_sitter", "tree_sitter_python", "z3", "pygls", "lsprotocol", "rich")


def imported_modules(source: str, module: str, *, top_level_only: bool = False) -> Iterator[tuple[str, int]]:
    """Yield the absolute dotted name and the line of each import of `source`.

    `module` is the dotted name of the package that holds the source; relative imports count from it.
    With `top_level_only`, imports inside functions are left out: they run when called, not when imported.
    """
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                yield node.module or "", node.lineno
            else:
                base = module.split(".")[: len(module.split(".")) - node.level + 1]
                yield ".".join([*base, node.module] if node.module else base), node.lineno
        if top_level_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        pending.extend(ast.iter_child_nodes(node))


def modules_of(package: str) -> list[Path]:
    return sorted((ROOT / PACKAGES[package][0] / package).rglob("*.py"))


def holder(package: str, path: Path) -> str:
    """Return the dotted name of the package that holds the module at `path`."""
    return ".".join(path.relative_to(ROOT / PACKAGES[package][0]).parent.parts)


def against_the_arrow(package: str, source: str, module: str) -> list[str]:
    foreign = PACKAGES.keys() - PACKAGES[package][1] - {package}
    return [
        f"line {line}: {package} must not import {name}"
        for name, line in imported_modules(source, module)
        if name.partition(".")[0] in foreign
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_follow_the_arrow(package: str) -> None:
    modules = modules_of(package)
    assert modules, f"no module of {package} found"
    wrong = [
        f"{path.relative_to(ROOT)}, {problem}"
        for path in modules
        for problem in against_the_arrow(package, path.read_text(encoding="utf-8"), holder(package, path))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "source",
    [
        "import tilewright_server",
        "import tilewright_agent.worker as w",
        "from tilewright_analysis import check_unit",
        "def f():\n    from tilewright_analysis.checks import grid",
        "if TYPE_CHECKING:\n    import tilewright_analysis",
    ],
)
def test_an_import_against_the_arrow_is_seen(source: str) -> None:
    assert against_the_arrow("tilewright", source, "tilewright")


def test_relative_imports_count_from_the_package_that_holds_the_module() -> None:
    source = "from . import a\nfrom ..ir import b\nfrom .c.d import e"
    assert [name for name, _ in imported_modules(source, "tilewright.layout")] == [
        "tilewright.layout.c.d",
        "tilewright.ir",
        "tilewright.layout",
    ]


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "tilewright_server"])
def test_protocol_types_stay_in_the_server(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}, line {line}: {name}"
        for path in modules_of(package)
        for name, line in imported_modules(path.read_text(encoding="utf-8"), holder(package, path))
        if name.partition(".")[0] in PROTOCOL
    ]
    assert not wrong, "the core has plain values; convert at the edge:\n" + "\n".join(wrong)


def import_without(missing: tuple[str, ...], statement: str) -> subprocess.CompletedProcess[str]:
    """Run an import statement in a fresh interpreter in which the `missing` packages cannot be found."""
    program = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {missing!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        f"{statement}\n"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


def test_the_base_install_needs_no_extra() -> None:
    statement = f"import {', '.join(PACKAGES)}\nimport tilewright_server.cli"
    result = import_without(OPTIONAL, statement)
    assert result.returncode == 0, result.stderr


def test_a_missing_package_fails_the_import() -> None:
    result = import_without(("numpy",), "import numpy")
    assert result.returncode != 0
    assert "No module named 'numpy'" in result.stderr


def worker_modules() -> list[Path]:
    """Return the modules of our own that importing the worker runs, the worker first."""
    folder = ROOT / PACKAGES["tilewright_agent"][0]
    found: list[Path] = []
    pending = ["tilewright_agent.worker", "tilewright_agent"]
    while pending:
        stem = folder / pending.pop(0).replace(".", "/")
        path = next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()), None)
        if path is None or path in found:
            continue
        found.append(path)
        source, package = path.read_text(encoding="utf-8"), holder("tilewright_agent", path)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = next(imported_modules(ast.unparse(node), package))[0]
                pending += [base, *(f"{base}.{alias.name}" for alias in node.names)]
        pending += [
            name
            for name, _ in imported_modules(source, package, top_level_only=True)
            if name.startswith("tilewright_agent")
        ]
    return found


def test_the_worker_needs_only_torch_and_triton() -> None:
    allowed = WORKER_NEEDS | sys.stdlib_module_names | {"tilewright_agent"}
    modules = worker_modules()
    assert modules[0].stem == "worker" or modules[0].parent.name == "worker", "tilewright_agent.worker is missing"
    wrong = [
        f"{path.relative_to(ROOT)}, line {line}: {name}"
        for path in modules
        for name, line in imported_modules(
            path.read_text(encoding="utf-8"), holder("tilewright_agent", path), top_level_only=True
        )
        if name.partition(".")[0] not in allowed
    ]
    assert not wrong, "a GPU machine has torch and triton only:\n" + "\n".join(wrong)


def test_the_worker_starts_on_a_machine_without_the_verifier() -> None:
    result = import_without(NOT_ON_A_GPU_MACHINE, "import tilewright_agent.worker")
    assert result.returncode == 0, result.stderr


def test_only_the_process_that_verifies_loads_the_solver() -> None:
    program = "import sys; import tilewright_server.server, tilewright_analysis.report; print('z3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
