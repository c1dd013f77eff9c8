"""Writes the blocking Admin from the asyncio one: the same methods, signatures and words, without `async`.

    .venv/bin/python scripts/blocking_admin.py

Run it after a change of `client/admin/admin.py`; a test holds the two together. It is source that people and type
checkers can read, not something put together at run time.
"""

import ast
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src" / "headwater" / "client"
ASYNC_ADMIN = SOURCES / "admin" / "admin.py"
BLOCKING_ADMIN = SOURCES / "blocking" / "admin.py"

_OWN = ("__init__", "__aenter__", "__aexit__", "close", "from_config")
"""What the base class has in its own way."""

_HEAD = '''\
"""The blocking Admin. Written by `scripts/blocking_admin.py` from `client/admin/admin.py`: change that one instead."""

'''


def blocking_source(source: str) -> str:
    """The module that belongs to this asyncio module, not yet formatted."""
    tree = ast.parse(source)
    admin = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Admin")
    methods = [_method(node) for node in admin.body if isinstance(node, ast.AsyncFunctionDef) and _is_public(node)]
    body = "\n\n".join(methods)
    imports = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    base = "from headwater.client.blocking.admin_thread import AdminThread"
    words = f'"""{_docstring(admin)}"""'
    return f"{_HEAD}{chr(10).join([*imports, base])}\n\nclass Admin(AdminThread):\n    {words}\n\n{body}\n"


def _is_public(node: ast.AsyncFunctionDef) -> bool:
    return not node.name.startswith("_") and node.name not in _OWN


def _docstring(node: ast.AsyncFunctionDef | ast.ClassDef) -> str:
    return (ast.get_docstring(node, clean=False) or "").replace("await admin.", "admin.").replace("async with", "with")


def _method(node: ast.AsyncFunctionDef) -> str:
    found = node.args
    signature = ast.unparse(found)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    passed = [argument.arg for argument in (*found.posonlyargs, *found.args)][1:]
    passed += [f"*{found.vararg.arg}"] if found.vararg else []
    passed += [f"{argument.arg}={argument.arg}" for argument in found.kwonlyargs]
    passed += [f"**{found.kwarg.arg}"] if found.kwarg else []
    call = f"return self._io.run(self._client.{node.name}({', '.join(passed)}))"
    return f'    def {node.name}({signature}){returns}:\n        """{_docstring(node)}"""\n        {call}'


def formatted(source: str) -> str:
    """As ruff writes it, without imports that nothing uses."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    name = ["--stdin-filename", str(BLOCKING_ADMIN)]
    for command in ([ruff, "check", "--fix-only", "--select", "F401,I", *name, "-"], [ruff, "format", *name, "-"]):
        source = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    return source


def main() -> None:
    """Writes the module anew."""
    BLOCKING_ADMIN.write_text(formatted(blocking_source(ASYNC_ADMIN.read_text("utf-8"))), "utf-8")
    print(f"written: {BLOCKING_ADMIN.relative_to(SOURCES.parents[2])}")


if __name__ == "__main__":
    main()
