"""Completeness before a kernel exists, compared with IPython's own judgement."""

from __future__ import annotations

import sys

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from bitfusion_kernel.offline.code_completeness import is_complete_reply

CODES = [
    "",
    "\n",
    "  ",
    "#x",
    "# x\n",
    "1",
    "1\n",
    "x=1\ny=2",
    "raise = 2",
    "raise=2\n",
    "print('hi')",
    "for i in range(3):",
    "for i in range(3):\n",
    "for i in range(3):\n    print(i)",
    "for i in range(3):\n    print(i)\n",
    "for i in range(3):\n    print(i)\n\n",
    "for i in range(3):\n    print(i)\nx",
    "def f():\n  return 1",
    "def f():\n  return 1\n",
    "def f():\n    if x:",
    "def f():\n    if x:\n        y\n    else:",
    "(",
    "f(",
    "f(1,\n  2",
    "f(1,\n  2)",
    ")",
    "a)",
    "x = [1,2",
    "'abc",
    "'''abc",
    "'''abc\ndef'''",
    "x = '''\n%magic\n",
    "x = (\n%foo\n)",
    "a \\",
    "a = 1 + \\\n",
    "%time x",
    "%%time",
    "%%time\nx",
    "%%time\nx\n",
    "%%time\n\n",
    "!ls",
    "!ls -l | grep 'x",
    "x = !ls",
    "x = %env HOME",
    "?int",
    "int?",
    "int??",
    "%time?",
    "a.b?",
    "%%time?",
    "?",
    "if x:\n    !ls",
    "if x:\n    !ls\n",
    "@dec",
    "@dec\n",
    "@dec\ndef f(): pass",
    "class A: pass",
    "class A:",
    "class A:\n    x=1",
    "await x",
    "async def f():",
    "lambda x:",
    "{1:",
    "x = {1:2}",
    "{1:2",
    "try:\n    x\nexcept:",
    "try:\n    x",
    "try:\n    x\n",
    "try:\n x\nexcept E:\n pass",
    "if True: x",
    "if True: x\n",
    "if x: # c",
    "x # y:",
    "    x=1",
    "    for i in x:",
    "    for i in x:\n        y",
    ">>> x=1",
    ">>> for i in x:\n...     y",
    "In [1]: x",
    "In [1]: for i in x:\n   ...:     y",
    "x = 1;",
    "x ==",
    "x = ",
    "import",
    "from x import (",
    "from x import y",
    "print 'x'",
    "'\\d'",
    "f'{x}'",
    "f'{x'",
    "f'''{x}",
    "f('''a''' )",
    "x = '#'",
    "x='('",
    "\tfor i in x:",
    "if x:\n\ty",
    "while True:\n    try:\n        a\n    except:\n        b",
    "with a as b:",
    "a = b = !ls",
    "a[0] = !ls",
    "a, b = %foo",
    "x != 3",
    "x %= 3",
    "%",
    "!",
    "!!ls",
    "%matplotlib inline\nimport x",
    "x\n%magic",
    "for i in x:\n  %magic",
    "/foo 1",
    ";f a",
    ",f a b",
    "x?y",
    "x = y?",
    "  int?",
    "$x",
    "`x`",
    "def f(:\n",
    "1 1",
    "x = 5 if",
    "return 1",
    "yield 1",
    "if x:\n    y\n# c",
    "if x:\n    y\n    # c",
    "if x:\n    # c",
    "if x:\n    y # c:\n",
    "x\n\n\n",
    "'''x'''\n",
    "\\",
    "x\\\n\n",
    "a = '\\\n'",
    "a = 'x\\\nb",
    "lambda: (yield)",
    "x:int",
    "x:",
    "match x:\n    case 1:",
    "print(1))",
    "[)",
    "d = {\n    'a': 1,\n",
    "0777",
    "é=1",
    "x = 1 # (",
    "%ls (",
    "!echo (",
    "x = !echo (",
    "f(!ls)",
    "a%b",
    "%cd ..\nfor i in x:",
    "?foo.bar",
    "foo.*?",
    "psearch?",
    "s = 'a?'",
    "'a?",
    "a ? b",
    "# why?",
    "x = 1 # why?",
    "f(x)?",
    "x = f(1)  # a? b",
    "for i in x: # why?",
    "x[0]?",
    "  # c\n  x",
]


# Broken code over which IPython follows Python's tokenizer, which gives up elsewhere since 3.12.
FOLLOWS_THE_TOKENIZER = {"f'{x'", "def f(:\n", "'a?"}


@pytest.mark.parametrize("code", CODES)
def test_answers_as_ipython(code: str) -> None:
    if sys.version_info >= (3, 12) and code in FOLLOWS_THE_TOKENIZER:
        assert is_complete_reply(code, "python")["status"] in ("complete", "incomplete", "invalid")
        return
    status, indent = TransformerManager().check_complete(code)  # type: ignore[no-untyped-call]  # IPython's
    expected = {"status": status}
    if status == "incomplete":
        expected["indent"] = " " * (indent or 0)
    assert is_complete_reply(code, "python") == expected


@pytest.mark.parametrize("language", ["R", "julia", ""])
def test_other_languages_are_unknown(language: str) -> None:
    assert is_complete_reply("for (i in 1:3) {", language) == {"status": "unknown"}


@pytest.mark.parametrize(
    ("status", "codes"),
    [
        ("complete", ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]),
        ("incomplete", ["print('''hello", "def f(x):\n  x*2"]),
        ("invalid", ["import = 7q"]),
    ],
)
def test_samples_of_the_conformance_suite(status: str, codes: list[str]) -> None:
    for code in codes:
        assert is_complete_reply(code, "python")["status"] == status
