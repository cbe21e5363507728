"""When an idle kernel gives its GPU back: what counts as work, when it is warned, and the words. Pure.

One `IdleRelease` belongs to one kernel that runs, from its start or its joining on; the proxy drops it with
the kernel. It is told whatever may be work, and asked at `next_at` what is to be done. With the time 0 (off)
it asks for nothing, and knows all the same since when the kernel is idle. Times are `time.monotonic()`, in
texts also `clock`, the same moment in seconds since the epoch: what is shown stays in the notebook.
"""

from __future__ import annotations

from enum import Enum

from bitfusion_client.clock_time import clock_time, elapsed_text
from bitfusion_client.request.durations import format_duration_short
from bitfusion_kernel.gpu.notice_box import boxed

WARNED_FROM = 0.8
"""The part of the time after which the warning comes, but for the next two."""

SHORTEST_WARNING, LONGEST_WARNING = 30.0, 300.0
"""Seconds between warning and release. The first is kept in any case, also by a loop that stood still."""

LOOK_EVERY, LOOK_AT_THE_END = 30.0, 5.0
"""Seconds between two looks at the kernel's processes, before the warning at most and after it."""


class Work(Enum):
    """What counts as work, in words."""

    START = "the kernel's start"
    CELL = "a cell"
    SUBSHELL = "a cell in a subshell"
    COMM = "a message of a widget (comm)"
    OUTPUT = "output of a background thread"
    PROCESSES = "a thread or child process that computes"
    KEEP = "a request to keep it"


class Step(Enum):
    """What is to be done now."""

    NOTHING = "nothing"
    WARN = "warn"
    RELEASE = "release"


class IdleRelease:
    """Decides for one kernel.

    Attributes:
        after: The setting, in seconds; 0 if it is off.
        last: What worked last, or works now.
        idle_since: When it was over; while something is in work, when the work before it was.
    """

    def __init__(self, after: float, now: float) -> None:
        self.after = after
        self.last = Work.START
        self.idle_since = now
        self._in_work = False
        self._warned_at: float | None = None
        self._released = False

    # -- what the proxy tells ----------------------------------------------------------------------

    def touched(self, what: Work, now: float) -> bool:
        """Something has worked at this moment. Whether a warning that was given is void by that.

        While something is `in_work`, that counts, and not what it outputs or computes.
        """
        if self._in_work or self._released:
            return False
        self.last, self.idle_since = what, now
        return self._cancel()

    def in_work(self, what: Work | None, now: float) -> bool:
        """What is in work from now on; None: nothing more. Whether a warning that was given is void by that.

        To be told whenever it changes, or may have: the same once more does no harm.
        """
        if self._released:
            return False
        if what is not None:
            self.last, self._in_work = what, True
        elif self._in_work:
            self.idle_since, self._in_work = now, False
        return self._cancel() if what is not None else False

    def _cancel(self) -> bool:
        warned, self._warned_at = self._warned_at is not None, None
        return warned

    # -- what the proxy does -----------------------------------------------------------------------

    @property
    def next_at(self) -> float | None:
        """When `step` has something to do unless something works; None: not before."""
        if not self.after or self._in_work or self._released:
            return None
        return self._warn_at if self._warned_at is None else self.release_at

    def step(self, now: float) -> Step:
        """What is to be done now, once each: after WARN comes RELEASE, unless something has worked."""
        next_at = self.next_at
        if next_at is None or now < next_at:
            return Step.NOTHING
        if self._warned_at is None:
            self._warned_at = now
            return Step.WARN
        self._released = True
        return Step.RELEASE

    @property
    def look_every(self) -> float:
        """For `SupervisorLink.watch`, after each change: it is looked more often once a warning was given."""
        if not self.after or self._released:
            return 0.0
        return LOOK_AT_THE_END if self._warned_at is not None else min(LOOK_EVERY, self.after / 10)

    @property
    def release_at(self) -> float:
        """When the GPU is given back unless something works; of no meaning while something does."""
        at = self.idle_since + self.after
        return at if self._warned_at is None else max(at, self._warned_at + SHORTEST_WARNING)

    @property
    def _warn_at(self) -> float:
        lead = min(max(self.after * (1 - WARNED_FROM), SHORTEST_WARNING), LONGEST_WARNING)
        return self.idle_since + self.after - lead

    # -- in words ------------------------------------------------------------------------------------

    def warning(self, now: float, clock: float) -> dict[str, str]:
        """The display of a warning, with the time left: a MIME bundle. May be made anew as time goes by."""
        left = max(0.0, self.release_at - now)
        at = clock_time(clock + left, clock, seconds=True)
        as_of = clock_time(clock, clock, seconds=True)
        details = [
            f"Idle for {elapsed_text(now - self.idle_since)} (last activity: {self.last.value}); "
            f"idle_release is {self._setting}.",
            "Its variables are lost with it. To keep both, run any cell.",
        ]
        headline = f"This kernel gives its GPU back at {at}, in {elapsed_text(left)} (as of {as_of})"
        return boxed(headline, details, colour="#d9822b")

    def kept(self, clock: float) -> dict[str, str]:
        """The same display when something has worked since."""
        at = clock_time(clock, clock, seconds=True)
        return boxed(f"This kernel kept its GPU: at {at} work resumed ({self.last.value})", [])

    def released(self, now: float, clock: float) -> dict[str, str]:
        """The same display when the GPU has been given back."""
        idle = elapsed_text(now - self.idle_since)
        details = [
            f"It was idle for {idle} (last activity: {self.last.value}); idle_release is {self._setting}.",
            "Its variables are lost. The next cell takes a GPU again and starts from an empty namespace.",
        ]
        at = clock_time(clock, clock, seconds=True)
        return boxed(f"This kernel gave its GPU back at {at}", details, colour="#d9822b")

    def status(self, now: float, clock: float) -> str:
        """For `%bitfusion`, in one line: what works or has worked last, and what follows."""
        if self._in_work:
            return f"works: {self.last.value}"
        since = clock_time(clock - (now - self.idle_since), clock)
        text = f"idle for {elapsed_text(now - self.idle_since)}, since {since}; last work: {self.last.value}"
        if not self.after:
            return text
        if self._released:
            return f"{text}; its GPU is given back"
        at = clock_time(clock + max(0.0, self.release_at - now), clock)
        return f"{text}; gives its GPU back at {at} unless it works (idle_release {self._setting})"

    @property
    def _setting(self) -> str:
        return format_duration_short(self.after)
