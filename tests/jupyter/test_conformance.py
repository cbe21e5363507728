"""jupyter_kernel_test gives the plain kernel's results, on one kernel and on a new kernel for each test."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from typing import Any, ClassVar

import jupyter_kernel_test
import pytest

from tests.jupyter.conftest import ALL, FIRST_CELL, OURS, START
from tests.jupyter.embedded_pool import Pool
from tests.support.machine import scaled

Message = dict[str, Any]

pytestmark = pytest.mark.usefixtures("kernelspecs", "pool")


class IPyKernelTests(jupyter_kernel_test.KernelTests):  # type: ignore[misc]  # has no type information
    """The samples with which ipykernel tests itself."""

    __test__ = False  # run by the functions below, on kernels of all names
    shown_waits: ClassVar[int] = 0  # cells whose wait was shown

    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples: ClassVar[list[Any]] = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples: ClassVar[list[Any]] = [
        "1",
        "print('hello, world')",
        "def f(x):\n  return x*2\n\n\n",
    ]
    incomplete_code_samples: ClassVar[list[Any]] = ["print('''hello", "def f(x):\n  x*2"]
    invalid_code_samples: ClassVar[list[Any]] = ["import = 7q"]
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result: ClassVar[list[Any]] = [
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    ]
    code_display_data: ClassVar[list[Any]] = [
        {
            "code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))",
            "mime": "text/html",
        },
        {"code": "from IPython.display import Math, display; display(Math('x'))", "mime": "text/latex"},
    ]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"

    def execute_helper(
        self,
        code: str,
        timeout: float = 15,
        silent: bool = False,
        store_history: bool = True,
        stop_on_error: bool = True,
    ) -> tuple[Message, list[Message]]:
        """As the suite's own, but made for slow machines: longer limits, and a wait may have been shown."""
        options = {"silent": silent, "store_history": store_history, "stop_on_error": stop_on_error}
        msg_id = self.kc.execute(code=code, **options)
        messages: list[Message] = []
        while not (messages and messages[-1]["content"].get("execution_state") == "idle"):
            message = self.kc.get_iopub_msg(timeout=scaled(timeout))
            # Asked once a second until the kernel answered: the last of them may be served after that.
            if message["parent_header"].get("msg_type") == "kernel_info_request":
                continue
            jupyter_kernel_test.validate_message(message, message["msg_type"], msg_id)
            messages.append(message)
            if shows_wait(message):
                self.on_wait()
        reply = self.get_non_kernel_info_reply(timeout=scaled(timeout))
        jupyter_kernel_test.validate_message(reply, "execute_reply", msg_id)
        cell = without_wait(messages)
        IPyKernelTests.shown_waits += len(cell) < len(messages)
        assert cell[0]["content"].get("execution_state") == "busy"
        for message in cell[1:-1]:
            assert message["msg_type"] != "status"
            assert message["content"].get("code", code) == code
        return reply, [message for message in cell[1:-1] if message["msg_type"] != "execute_input"]

    def on_wait(self) -> None:
        """A cell shows that it waits."""


def shows_wait(message: Message) -> bool:
    """Whether it is the first display of a wait."""
    display_id = message["content"].get("transient", {}).get("display_id")
    return message["msg_type"] == "display_data" and str(display_id).startswith("bitfusion-wait-")


def without_wait(messages: list[Message]) -> list[Message]:
    """The messages of a cell without the wait that was shown after its `busy`, and cleared, if one was."""
    if messages[0]["msg_type"] != "status" or not shows_wait(messages[1]):
        return messages
    cleared = [message["msg_type"] for message in messages].index("clear_output")
    assert {message["msg_type"] for message in messages[2:cleared]} <= {"update_display_data"}
    return [messages[0], *messages[cleared + 1 :]]


TESTS = unittest.defaultTestLoader.getTestCaseNames(IPyKernelTests)

# With no GPU asked for there is no interpreter to ask; these get valid empty answers until the first cell.
EMPTY_BEFORE_FIRST_CELL = {"test_completion", "test_inspect"}


class StartedKernelTests(IPyKernelTests):
    """On a kernel that has run a cell: until its interpreter is there, others answer for it."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.kc.execute_interactive("pass", timeout=scaled(30))


def run_suite(kernel_name: str, tests: Sequence[str], base: type[Any] = IPyKernelTests) -> dict[str, str]:
    """The outcome of each test on one kernel: "passed", or why not."""
    case: Any = type("Suite", (base,), {"kernel_name": kernel_name})
    result = unittest.TestResult()
    unittest.TestSuite(case(test) for test in tests).run(result)
    outcomes = dict.fromkeys(tests, "passed")
    for kind in ("skipped", "failures", "errors"):
        for test, text in getattr(result, kind):
            name = getattr(getattr(test, "test_case", test), "_testMethodName", "setUpClass")
            outcomes[name] = f"{kind}: {text}"
    return outcomes


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ALL)
def test_whole_suite_passes_on_one_kernel(name: str) -> None:
    outcomes = run_suite(name, TESTS)
    failed = {
        test: outcome for test, outcome in outcomes.items() if not outcome.startswith(("passed", "skipped"))
    }
    assert not failed, "\n".join(f"{test}: {outcome}" for test, outcome in failed.items())


@pytest.mark.long
@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("name", OURS)
def test_each_test_passes_on_a_kernel_of_its_own(name: str, test: str) -> None:
    starting = name == START and test in EMPTY_BEFORE_FIRST_CELL
    outcome = run_suite(name, [test], StartedKernelTests if starting else IPyKernelTests)[test]
    if name == FIRST_CELL and test in EMPTY_BEFORE_FIRST_CELL:
        assert outcome.startswith("failures: "), "answers where there is nobody to answer?"
        assert "but not the first:\n'zip'" in outcome or "False is not true" in outcome
    else:
        assert outcome in ("passed", "skipped: History range not supported")


@pytest.mark.parametrize("name", OURS)
def test_a_cell_that_showed_its_wait_passes(name: str, pool: Pool) -> None:
    IPyKernelTests.shown_waits = 0
    with pool.held() as holder:
        held = type("Held", (IPyKernelTests,), {"on_wait": lambda _: pool.end(holder)})
        assert run_suite(name, ["test_clear_output"], held)["test_clear_output"] == "passed"
    assert IPyKernelTests.shown_waits == 1
