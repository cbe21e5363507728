"""The pages about Kubeflow as a script: their blocks, and a reader who runs them.

The tests that run it are `test_docs_kubeflow` (an API server, pods on paper), `test_guide_on_a_node` (a real
node) and that of `bitfusion-identity`. What a reader has and a test has not is bridged by small programs on
PATH: `docker`, and Python with `kubeflow-bitfusion`, which check what they are given. With the machine's own
Python a reader makes an environment, and installs and calls what the guide says.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.cluster.cluster import Cluster
from tests.support.documents import reader_blocks
from tests.support.machine import scaled
from tests.support.run_blocks import ran
from tests.support.waiting import Deadline
from tests.tools.clones import clone
from tests.tools.played_builder import write_programs

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (
    *("how-to/install-step-by-step", "tutorials/kubeflow-pool"),
    *("how-to/access-for-a-namespace", "how-to/many-profiles", "how-to/quotas"),
    *("how-to/verify", "how-to/clients-for-images", "how-to/policy", "how-to/upgrade", "how-to/remove"),
    *("how-to/cert-manager", "how-to/webhook-port", "how-to/openshift", "how-to/api-server-only"),
    *("how-to/standalone", "how-to/architectures", "how-to/registry-password", "how-to/network-policies"),
    *("how-to/memory-sizes", "how-to/hide-node-gpus", "how-to/device-plugin"),
    *("how-to/vmware", "how-to/vmware-injector", "how-to/queue", "how-to/autoscaling"),
)
"""The pages whose commands are run as one reader's."""
REGISTRY = "registry.example.com/team"
PROFILE = "team-vision"
"""The namespace that the guide's reader has."""
NAMES = "Before you begin"
"""The heading under which registry and namespace are named; it comes before all others."""
IMAGES, INSTALL, FORM, PROFILE_STEP, NOTEBOOK, CELL = (
    *("1. Images", "2. Controller and injector", "3. The form", "4. A profile"),
    *("5. A notebook", "6. The first GPU cell"),
)
POOL_IMAGE, POOL, POOL_INSTALL, NAMESPACE = (
    "1. The pool's image",
    "2. A pool",
    "3. Controller, injector and identity",
    "4. A namespace",
)
POOL_FORM, UNITS, POOL_NOTEBOOK, POOL_CELL = (
    *("5. The form", "6. Units"),
    *("7. A notebook", "8. The first GPU cell"),
)
"""Steps of the pool's guide."""
VMWARE, VMWARE_INJECTOR = "Use VMware's product in Kubeflow", "Keep VMware's injector"
QUEUE, TWO_WAIT, NO_QUEUE = "Install", "Try it", "Remove the queue"
ACCESS, NO_ACCESS = "Give a namespace access to the pool", "Take the access away"
ALL_PROFILES, QUOTAS = "Serve many profiles", "Limit what a namespace takes of a pool"
ARCHITECTURES = "Build images for nodes of several architectures"
PASSWORD = "Pull from a private registry"
VERIFY, CLIENTS, POLICY, UPGRADE = (
    *("Check the installation", "Choose the client for an image"),
    *("Refuse wrong sizes without a webhook", "Upgrade"),
)
CERTIFICATES, STANDALONE = "Use certificates of cert-manager", "Install without the Kubeflow platform"
REMOVE, REMOVE_TRIAL = "Remove everything from a cluster", "Remove the pool"

_DOCKER = """\
#!/bin/bash
set -eu
echo "docker $*" >> "$BRIDGE/docker.log"
if [ "$1 $2 ${3-} ${5-}" = "buildx build --platform --push" ]; then
    set -- build "${@:6}"
fi
case "$1" in
build)
    [ "$2 $4 ${@: -1}" = "-f -t ." ]
    [ -f "$3" ]
    grep -E '^COPY ' "$3" | grep -v -e --from= | while read -r _ source _; do ls $source > /dev/null; done
    ;;
push) grep -q -F -e "-t $2 " "$BRIDGE/docker.log" ;;
*) exit 1 ;;
esac
"""
_PYTHON = """\
#!/bin/bash
set -eu
case "$*" in
"-m venv "*) mkdir -p "$3/bin" && touch "$3/bin/activate" ;;
"-m pip install .[form]") ;;
"-m pip wheel --no-deps --wheel-dir dist .")
    mkdir -p dist && touch dist/kubeflow_bitfusion-0.1.0-py3-none-any.whl
    ;;
*) exit 1 ;;
esac
"""
_KUBECTL = """\
#!/bin/bash
# Waits last as long as this machine needs.
exec {kubectl} "${{@/#--timeout=2m/--timeout={limit_s}s}}"
"""
BASH = ("bash",)
_OF_A_CHECKOUT = (
    *("requirements", "examples", "bitfusion_client", "bitfusion_pods", "bitfusion_pool"),
    "bitfusion_device_plugin",
)
_OF_PIP = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT", "REQUESTS_CA")
_KEPT = re.compile(r"^(?:[A-Z]+=(?!\$\()|[a-z]+\(\) \{|\. ).*\n", re.MULTILINE)
"""What a shell still knows in later blocks; what a command prints is asked for once, where it stands."""
_FILE = re.compile(r"# (my-[\w-]+(?:/[\w-]+)?\.yaml)\n")


class Block(NamedTuple):
    """A block of commands under a heading, and what the guide says they print; None if it does not say.

    One of YAML that begins with a file's name is a part of that file, as it then reads.
    """

    heading: str
    commands: str
    printed: str | None
    language: str = "sh"


class Build(NamedTuple):
    """A `docker build`: which file, under which name, with which arguments."""

    file: str
    name: str
    arguments: Mapping[str, str]


def blocks(*headings: str, page: Path | None = None) -> list[Block]:
    """In the order of the pages, or of another page; those under these headings, or all."""
    texts = [each.read_text() for each in ([page] if page else _pages())]
    found: list[Block] = []
    heading = ""
    pending: str | None = None
    for match in re.finditer(
        r"^#+ ([^\n]*)$|^```(\w*)\n(.*?)^```$", "".join(texts), re.MULTILINE | re.DOTALL
    ):
        if match[1]:
            heading, pending = match[1], None
            continue
        if match[2] == "yaml":
            if _FILE.match(match[3]):
                found.append(Block(heading, match[3], None, "yaml"))
            continue  # other files: tests of their own give them to whom they are for
        assert match[2] in ("sh", "python", "text"), f"a block of kind {match[2]!r} under {heading}"
        if match[2] == "text":
            if pending is None and page is not None:
                continue  # a sample by itself
            assert pending is not None, f"an output without commands under {heading}"
            found[-1] = found[-1]._replace(printed=match[3])
            pending = None
        else:
            pending = match[3]
            found.append(Block(heading, pending, None, match[2]))
    return [block for block in found if not headings or block.heading in headings]


def _pages() -> list[Path]:
    return [DOCS / f"{name}.md" for name in PAGES]


def places(*headings: str) -> list[str]:
    """Where commands of the pages stand under these headings, for the mark `runs`."""
    pages = {f"docs/{name}.md" for name in PAGES}
    return sorted(
        {
            f"{each.page}#{each.heading}"
            for each in reader_blocks()
            if each.page in pages and each.heading in headings
        }
    )


def yaml_block(word: str) -> str:
    """The one YAML file of the pages that has this word."""
    text = "".join(each.read_text() for each in _pages())
    every = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (found,) = (each for each in every if word in each)
    return str(found)


def table(page: str, heading: str) -> list[list[str]]:
    """The rows of the table under a heading of a page, without its head."""
    section = (DOCS / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return rows[2:]


class Reader:
    """Runs blocks in a folder that has what a checkout has, as a cluster admin."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        limit_s: float = 60,
        shell: Sequence[str] = BASH,
        own_python: bool = False,
        cloned: bool = False,
    ) -> None:
        """A cluster's kubeconfig, and a new folder for the checkout and the programs that bridge.

        Args:
            cluster: Whose admin the reader is.
            folder: Where the reader's files lie.
            limit_s: How long a block may take on a calm machine.
            shell: The command of a bash or zsh.
            own_python: The machine's own Python is used, and pip asks the package index.
            cloned: The folder is a clone, in which `make images` builds as `played_builder` has it.
        """
        self.limit_s = limit_s
        self.words = shell
        self.folder = folder / "checkout"
        self.bridge = folder / "bridge"
        self.bridge.mkdir()
        if cloned:
            clone(self.folder)
        else:
            shutil.copytree(ROOT / "manifests", self.folder / "manifests")
        if own_python:
            skipped = shutil.ignore_patterns(".*", "build", "dist", "tests", "manifests", "__pycache__")
            shutil.copytree(ROOT, self.folder, ignore=skipped, dirs_exist_ok=True)
        elif not cloned:
            for name in _OF_A_CHECKOUT:
                (self.folder / name).symlink_to(ROOT / name)
        form = [sys.executable, "-c", "import sys; from kubeflow_bitfusion.cli import main; sys.exit(main())"]
        kubectl = shlex.quote(str(cluster.binaries.path("kubectl")))
        for name, text in (
            ("docker", _DOCKER),
            ("kubectl", _KUBECTL.format(kubectl=kubectl, limit_s=round(scaled(120)))),
            ("python3", _PYTHON),
            ("kubeflow-bitfusion", f'#!/bin/sh\nPYTHONPATH={ROOT} exec {shlex.join(form)} "$@"\n'),
        )[: 2 if own_python else 4]:
            (self.bridge / name).write_text(text)
            (self.bridge / name).chmod(0o755)
        if cloned:
            write_programs(self.bridge)
        passed = ("BITFUSION_TEST", *(_OF_PIP if own_python else ()))
        self.environment = {
            **{name: value for name, value in os.environ.items() if name.upper().startswith(passed)},
            "PATH": f"{self.bridge}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "KUBECONFIG": str(cluster.kubeconfig),
            "BRIDGE": str(self.bridge),
            "SEEN": str(self.bridge / "docker.json"),
            "LC_ALL": "C.UTF-8",
        }
        self.variables = ""
        if not cloned:
            self.follow(NAMES)

    def follow(self, *headings: str) -> None:
        """Run every block under these headings."""
        for heading in headings:
            mine = blocks(heading)
            assert mine, f"no commands under {heading}"
            for block in mine:
                self.run(block)

    def run(self, block: Block, fails: bool = False) -> str:
        """Run one and compare what it prints, which is returned. Of YAML, edit the file that it names.

        It must succeed, unless it `fails`, or the page shows a refusal.
        """
        if block.language == "yaml":
            return self._edit(block.commands)
        assert block.language == "sh"
        refused = fails or (block.printed or "").startswith(("The request is invalid", "Error: "))
        changes_nothing = refused or "--dry-run=server" in block.commands
        # The apiserver takes a moment to learn of a webhook, of its certificate's authority, and of a policy.
        deadline = Deadline(10)
        while True:
            done = self.shell(block.commands)
            ends_well = (done.returncode != 0) == refused
            prints_so = block.printed is None or matches(block.printed, done.stdout.rstrip() + "\n")
            if (ends_well and prints_so) or not changes_nothing or deadline.passed:
                break
        print(f"$ {block.commands}{done.stdout}")
        assert ends_well, f"under {block.heading}:\n{block.commands}{done.stdout}"
        assert prints_so, f"expected:\n{block.printed}\nprinted:\n{done.stdout}"
        self.variables += "".join(_KEPT.findall(block.commands))
        return done.stdout

    def _edit(self, part: str) -> str:
        """As a person with an editor does: the parts of these names then read so, or a whole list."""
        ran(part)
        named = _FILE.match(part)
        assert named is not None
        file, new = self.folder / named[1], yaml.safe_load(part)
        if isinstance(new, dict):
            old = yaml.safe_load(file.read_text()) if file.exists() else {}
            file.parent.mkdir(exist_ok=True)
            patches = [*old.get("patches", []), *new.get("patches", [])]
            new = {**old, **new, **({"patches": patches} if patches else {})}
        file.write_text(yaml.safe_dump(new, sort_keys=False))
        return ""

    def shell(self, commands: str) -> subprocess.CompletedProcess[str]:
        """Run commands with the variables that blocks have set, whatever becomes of them."""
        ran(commands)
        return subprocess.run(
            [*self.words, "-eu", "-o", "pipefail", "-c", self.variables + commands],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=scaled(self.limit_s),
        )

    def pushed(self) -> list[Build]:
        """The images that were pushed, each as it was built."""
        log = self.bridge / "docker.log"
        lines = [shlex.split(line)[1:] for line in log.read_text().splitlines()] if log.exists() else []
        built = {build.name: build for build in map(_build, lines) if build is not None}
        return [built[words[1]] for words in lines if words[0] == "push"]


def _build(words: list[str]) -> Build | None:
    if words[0] != "build":
        return None
    given = [words[at + 1].partition("=") for at, word in enumerate(words) if word == "--build-arg"]
    return Build(
        words[words.index("-f") + 1],
        words[words.index("-t") + 1],
        {name: value for name, _, value in given},
    )


def matches(pattern: str, text: str) -> bool:
    """Whether a text is as the guide prints it: … stands for anything, a line of it alone for any lines."""
    wanted = []
    for line in pattern.splitlines():
        words = r"\s+".join(r".*?".join(map(re.escape, word.split("…"))) for word in line.split())
        wanted.append(r"(?:.*\n)*?" if line.strip() == "…" else rf"\s*{words}[ \t]*\n")
    return re.fullmatch("".join(wanted), text) is not None
