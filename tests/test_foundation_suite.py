"""The suite's own promises: a test that leaves something behind fails, and says what."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.support.processes import read_process
from tests.support.waiting import wait_until

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A small suite with this suite's conftest, run in a process of its own."""
    tests = pytester.mkdir("tests")
    shutil.copy(ROOT / "tests" / "conftest.py", tests)
    pytester.makeini("[pytest]\npythonpath = .\nfilterwarnings = error\ntimeout = 60\nleftovers_limit = 0.3")
    return pytester


def run(suite: pytest.Pytester, body: str, *options: str) -> pytest.RunResult:
    (suite.path / "tests" / "test_it.py").write_text(body)
    return suite.runpytest_subprocess("-p", "no:cacheprovider", *options)


def test_a_process_left_behind_is_an_error_and_is_ended(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        "import os\n"
        "def test_leaves():\n"
        "    os.posix_spawn('/bin/sleep', ['sleep', '47.11'], os.environ, setsid=True)\n"
        "def test_next():\n    pass\n",
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*the test left behind:*", "*process *: sleep 47.11*"])
    assert result.ret == 1


def test_a_private_folder_left_behind_is_an_error(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        "import os\n"
        "def test_leaves():\n    os.mkdir(os.environ['XDG_RUNTIME_DIR'] + '/bitfusion-x', 0o700)\n",
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*private folder: bitfusion-x*"])


def test_what_has_ended_or_is_of_a_wider_fixture_is_not_left_behind(
    suite: pytest.Pytester,
) -> None:
    result = run(
        suite,
        "import subprocess, pytest\n"
        "@pytest.fixture(scope='module')\n"
        "def server():\n"
        "    with subprocess.Popen(['sleep', '47']) as process:\n"
        "        yield process\n"
        "        process.kill()\n"
        "def test_one(server):\n    subprocess.run(['true'], check=True)\n"
        "def test_two(server):\n    assert server.poll() is None\n",
    )
    result.assert_outcomes(passed=2)
    assert result.ret == 0


def test_a_lease_left_behind_is_an_error(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        "import subprocess\n"
        "from pathlib import Path\n"
        "import bitfusion_pool\n"
        "COMMAND = Path(bitfusion_pool.__file__).parent / 'bin' / 'bitfusion'\n"
        "def test_leaves():\n"
        "    command = [COMMAND, 'request_gpus', '-n', '1', '-f', 'allocation']\n"
        "    subprocess.run(command, check=True)\n",
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*lease: * of request_gpus"])


@pytest.mark.parametrize(
    ("ci", "outcomes"), [("true", {"failed": 1, "errors": 1}), ("false", {"skipped": 2})]
)
@pytest.mark.parametrize("workers", [[], ["-n1"]], ids=["one process", "workers"])
def test_a_skipped_test_is_a_failure_in_ci(
    suite: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    ci: str,
    outcomes: dict[str, int],
    workers: list[str],
) -> None:
    monkeypatch.setenv("CI", ci)
    result = run(
        suite,
        "import pytest\n"
        "@pytest.mark.skip(reason='no such device')\ndef test_marked():\n    pass\n"
        "def test_skips():\n    pytest.skip('no such device')\n"
        "@pytest.mark.xfail(reason='known')\ndef test_known():\n    assert False\n",
        *workers,
    )
    result.assert_outcomes(**outcomes, xfailed=1)


def test_a_skipped_module_is_a_failure_in_ci(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    result = run(suite, "import pytest\npytest.importorskip('no_such_module')\n")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*Skipped tests are failures where CI=true*no_such_module*"])


@pytest.mark.long
def test_what_a_worker_that_died_left_behind_is_found_and_ended(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        "import os\n"
        "def test_dies():\n"
        "    os.posix_spawn('/bin/sleep', ['sleep', '47.12'], os.environ, setsid=True)\n"
        "    os._exit(1)\n",
        "-n1",
    )
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(["*worker 'gw0' crashed*"])
    result.stdout.fnmatch_lines(
        [
            "left behind by the whole run:",
            "*tests that did not run: a test process died*",
            "*process *: sleep 47.12",
        ]
    )
    wait_until(lambda: not processes_with_command("sleep 47.12"))


@pytest.mark.long
def test_workers_share_neither_folders_nor_the_mark(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        "import os, pytest\n"
        "@pytest.mark.parametrize('number', range(2))\n"
        "def test_place(number):\n"
        "    names = 'BITFUSION_TEST_SUITE XDG_RUNTIME_DIR BITFUSION_POOL_DIR JUPYTER_DATA_DIR'.split()\n"
        "    places = [os.environ[name] for name in names]\n"
        "    assert all(os.environ['PYTEST_XDIST_WORKER'] + '/' in place for place in places), places\n",
        "-n2",
    )
    result.assert_outcomes(passed=2)


def test_the_tests_of_a_group_run_in_one_worker(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        "import os, pathlib, pytest, time\n"
        "def note(name):\n"
        "    with pathlib.Path(name).open('a') as file:\n"
        "        print(os.environ['PYTEST_XDIST_WORKER'], file=file)\n"
        "@pytest.mark.parametrize('number', range(8))\n"
        "@pytest.mark.xdist_group('one')\n"
        "def test_grouped(number):\n    note('grouped')\n"
        "@pytest.mark.parametrize('number', range(8))\n"
        "def test_other(number):\n    note('others'); time.sleep(0.2)\n",
        "-n3",
    )
    result.assert_outcomes(passed=16)
    assert len(set((suite.path / "grouped").read_text().split())) == 1
    assert len(set((suite.path / "others").read_text().split())) >= 2


def test_one_case_of_each_test_is_left_and_not_always_the_first(suite: pytest.Pytester) -> None:
    body = (
        "import pytest\n"
        "@pytest.mark.parametrize('kind', ['plain', 'ours'])\n"
        "@pytest.mark.parametrize('number', range(4))\n"
        "class TestTable:\n"
        "    def test_one(self, kind, number): pass\n"
        "    def test_two(self, kind, number): pass\n"
        "    def test_three(self, kind, number): pass\n"
        "@pytest.mark.parametrize('number', [pytest.param(1, marks=pytest.mark.skip), 2])\n"
        "def test_marked(number): pass\n"
        "def test_alone(): pass\n"
    )
    for workers in ([], ["-n2"]):
        result = run(suite, body, "--one-case=tests/", "-v", "-m", "not skip", *workers)
        result.assert_outcomes(passed=5, deselected=0 if workers else 21 + 1)
        assert {"plain", "ours"} <= set(re.findall(r"plain|ours", result.stdout.str()))
    run(suite, body, "--one-case=tests/other/", "-m", "not skip").assert_outcomes(passed=24 + 2, deselected=1)


def test_a_run_without_any_test_fails(suite: pytest.Pytester) -> None:
    for workers in ([], ["-n1"]):
        assert run(suite, "", *workers).ret == pytest.ExitCode.NO_TESTS_COLLECTED


def processes_with_command(command: str) -> list[str]:
    found = map(read_process, (int(name) for name in os.listdir("/proc") if name.isdigit()))
    return [process.command for process in found if process is not None and process.command == command]
