"""Parses what `bitfusion list_gpus` and `bitfusion health` print: servers, GPUs, health checks.

No log of `list_gpus` is known, its form is known from memory; whatever follows the two numbers of a GPU is
taken as its name.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import dataclass


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """One GPU of a server; memory in MiB. `name` is "" where the client prints none.

    `holders` and `notes` only our own clients print: a text for each task, ``8080 MiB held by ada: …`` or
    ``held by …``, and for whatever else is to be said of the GPU, such as what programs outside the pool use
    of it.
    """

    id: int
    free_mib: int
    total_mib: int
    name: str = ""
    holders: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether the embedded pool simulates it, which its name says."""
        return "simulated" in self.name.lower()


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One server as `list_gpus` shows it; `address` is ``host:port``."""

    index: int
    address: str
    tasks: int
    gpus: tuple[GpuStatus, ...] = ()

    @property
    def tells_holders(self) -> bool:
        """Whether the client has told who holds these GPUs, or nobody does."""
        return not self.tasks or any(gpu.holders for gpu in self.gpus)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One check; `tag` is PASS, INFO, SKIPPED, MARGINAL or FATAL."""

    tag: str
    text: str


@dataclass(frozen=True, slots=True)
class HealthSection:
    """The report for one server (``localhost`` for the client itself).

    Attributes:
        name: ``host:port``.
        checks: Those whose lines were understood.
        totals: How many have which tag, as the client says at the section's end, else counted. Of FATAL and
            MARGINAL never less than there are lines.
        is_whole: Whether it ends with totals, all of them: one that was cut off does not.
    """

    name: str
    checks: tuple[HealthCheck, ...]
    totals: tuple[tuple[str, int], ...]
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class HealthReport:
    """All sections in the order of the output."""

    sections: tuple[HealthSection, ...]

    @property
    def totals(self) -> dict[str, int]:
        """Sums over all sections, by tag."""
        sums: dict[str, int] = {}
        for section in self.sections:
            for tag, count in section.totals:
                sums[tag] = sums.get(tag, 0) + count
        return sums


OVERDUE_WORDS = ": three quarters of its lifetime have passed"
"""Of a token in the stand-in's report, which in a pod should have been renewed by then."""
TAGS = ("PASS", "INFO", "SKIPPED", "MARGINAL", "FATAL")
WRONG_TAGS = ("MARGINAL", "FATAL")


_OF_GPU = "|  |- "
_WAITING = ("- waiting, ", "- waits: ")


def parse_waiting(list_gpus_output: str) -> tuple[str, ...]:
    """Who waits, ``position 1: ada: …``, of GPU pods without a position; empty where nobody is told."""
    lines = map(str.strip, list_gpus_output.splitlines())
    return tuple(line[len(word) :] for line in lines for word in _WAITING if line.startswith(word))


def parse_notes(list_gpus_output: str) -> list[str]:
    """What else our own client of a cluster says, such as what its account may not see."""
    lines = map(str.strip, list_gpus_output.splitlines())
    others = ("- server ", *_WAITING)
    return [line[len("- ") :] for line in lines if line.startswith("- ") and not line.startswith(others)]


def parse_list_gpus(text: str) -> list[ServerStatus]:
    """The servers and their GPUs; lines of other kinds, such as log lines, are skipped."""
    servers: list[tuple[int, str, int, list[GpuStatus]]] = []
    lines_of: list[list[list[str]]] = []  # by server and GPU
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("- server "):
            number, _, rest = line[len("- server ") :].partition(" [")
            address, _, rest = rest.partition("]: running ")
            tasks = rest.partition(" ")[0]
            if address and _whole(number) and _whole(tasks):
                servers.append((int(number), address, int(tasks), []))
                lines_of.append([])
        elif line.startswith("|- GPU ") and servers:
            gpu = _gpu(line[len("|- GPU ") :])
            if gpu is not None:
                servers[-1][3].append(gpu)
                lines_of[-1].append([])
        elif line.startswith(_OF_GPU) and lines_of and lines_of[-1]:
            lines_of[-1][-1].append(line[len(_OF_GPU) :])
    return [
        ServerStatus(index, address, tasks, tuple(map(_with_lines, gpus, said)))
        for (index, address, tasks, gpus), said in zip(servers, lines_of, strict=True)
    ]


def _with_lines(gpu: GpuStatus, lines: list[str]) -> GpuStatus:
    holders = tuple(filter(_is_of_task, lines))
    notes = tuple(line for line in lines if not _is_of_task(line))
    return GpuStatus(gpu.id, gpu.free_mib, gpu.total_mib, gpu.name, holders, notes)


def _is_of_task(line: str) -> bool:
    # by its first words: others chose the names that follow
    size, _, rest = line.partition(" ")
    return line.startswith("held by ") or (_whole(size) and rest.startswith("MiB held by "))


def _gpu(text: str) -> GpuStatus | None:
    number, _, rest = text.partition(": free memory ")
    free, _, rest = rest.partition(" MiB / ")
    total, _, name = rest.partition(" MiB")
    if not (_whole(number) and _whole(free) and _whole(total)):
        return None
    name = name.strip(" ,:-")
    if name.startswith("(") and name.endswith(")"):
        name = name[1:-1]
    return GpuStatus(int(number), int(free), int(total), name)


def parse_health(text: str) -> HealthReport:
    """The sections of a health report; totals that a section does not print are counted."""
    sections: list[tuple[str, list[HealthCheck], dict[str, int]]] = []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("Health report for "):
            name = line[len("Health report for ") :].removeprefix("server: ")
            sections.append((name.strip(), [], {}))
            continue
        if not sections:
            continue
        tag, colon, rest = line.partition(":")
        if colon and tag in TAGS and _whole(rest.strip()):
            sections[-1][2][tag] = int(rest)
            continue
        tag, closed, rest = line.removeprefix("[").partition("]")
        if closed and line.startswith("[") and tag.strip() in TAGS:
            sections[-1][1].append(HealthCheck(tag.strip(), rest.strip()))
    return HealthReport(
        tuple(
            HealthSection(name, tuple(checks), _totals(checks, totals), len(totals) == len(TAGS))
            for name, checks, totals in sections
        )
    )


def _totals(checks: list[HealthCheck], told: dict[str, int]) -> tuple[tuple[str, int], ...]:
    # The document's own report says 17 where 18 lines are: which of them count is the client's matter, unless
    # something is wrong.
    counted = {tag: sum(check.tag == tag for check in checks) for tag in TAGS}
    least = {tag: counted[tag] if tag in WRONG_TAGS else 0 for tag in TAGS}
    return tuple((tag, max(told.get(tag, counted[tag]), least[tag])) for tag in TAGS)


def _whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
