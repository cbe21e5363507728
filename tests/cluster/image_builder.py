"""Builds this project's Containerfiles without docker, without a registry and without anything left running.

Each instruction that changes files makes a layer, found again in the cache by what went into it: a second
build takes a fraction of a second. The images that a file begins with stand for public ones, see
`base_images`. What a RUN needs of this machine to fetch packages comes from `image_machine`.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.cluster.containerfile import (
    Containerfile,
    ContainerfileError,
    Instruction,
    Stage,
    expand,
    is_sent,
    pairs,
    parse,
)
from tests.cluster.image_files import (
    DEFAULT_PATH,
    BuiltImage,
    BuiltLayer,
    Entry,
    empty_layer,
    key_of,
    make_layer,
)
from tests.cluster.image_machine import machine_settings
from tests.support.machine import scaled

_GENERATION = 2
"""Raised when this builder makes other layers of the same instructions."""

_RUN_LIMIT_S = 1200.0

Say = Callable[[str], None]
Base = Callable[[str], BuiltImage]


class BuildFailed(Exception):
    """Which instruction of which file failed, and the last that it said."""


@dataclass(frozen=True)
class _State:
    """An image while it is built, after some of its instructions."""

    layers: tuple[BuiltLayer, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    cwd: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """For `$NAME` in instructions: a variable of the image wins over an argument."""
        return {**self.arguments, **self.env}

    @property
    def key(self) -> str:
        return self.layers[-1].key

    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = {"Env": [f"{name}={value}" for name, value in self.env.items()]}
        if self.user:
            config["User"] = self.user
        if self.cwd:
            config["WorkingDir"] = self.cwd
        if self.entrypoint:
            config["Entrypoint"] = list(self.entrypoint)
        if self.command:
            config["Cmd"] = list(self.command)
        if self.ports:
            config["ExposedPorts"] = {port if "/" in port else f"{port}/tcp": {} for port in self.ports}
        if self.labels:
            config["Labels"] = dict(self.labels)
        return config

    @classmethod
    def of(cls, image: BuiltImage) -> _State:
        config = image.config
        return cls(
            layers=image.layers,
            env={word.partition("=")[0]: word.partition("=")[2] for word in config.get("Env", ())},
            user=config.get("User", ""),
            cwd=config.get("WorkingDir", ""),
            entrypoint=tuple(config.get("Entrypoint", ())),
            command=tuple(config.get("Cmd", ())),
            ports=tuple(config.get("ExposedPorts", ())),
            labels=config.get("Labels", {}),
        )


def build(
    path: Path,
    context: Path,
    name: str,
    base: Base,
    arguments: Mapping[str, str] | None = None,
    say: Say = print,
) -> BuiltImage:
    """The image that a Containerfile describes, from the cache as far as it has been built before.

    Args:
        path: The Containerfile; what lies beside it as `Containerfile.dockerignore` limits what is copied.
        context: The folder that COPY takes files from.
        name: Of the image, with a tag.
        base: Gives the image that a FROM names; raises ContainerfileError for those it does not know.
        arguments: As `docker build --build-arg`.
        say: Is told each instruction that isn't in the cache, before it runs.

    Raises:
        ContainerfileError: The file says something that cannot be built here.
        BuildFailed: A command in it failed.
    """
    began = time.monotonic()
    file = parse(path.read_text(), str(path))
    given = dict(arguments or {})
    declared = {
        word.partition("=")[0]
        for stage in file.stages
        for each in stage.instructions
        if each.name == "ARG"
        for word in each.words
    }
    if unknown := given.keys() - file.arguments.keys() - declared:
        raise ContainerfileError(f"{path}: it has no ARG {', '.join(sorted(unknown))}")
    ignore = Path(f"{path}.dockerignore")
    lines = ignore.read_text().splitlines() if ignore.exists() else []
    work = _Build(file, context, lines, given, base, say)
    state = work.run()
    return BuiltImage(name, state.layers, state.config(), time.monotonic() - began)


class _Build:
    def __init__(
        self,
        file: Containerfile,
        context: Path,
        ignore: list[str],
        given: Mapping[str, str],
        base: Base,
        say: Say,
    ) -> None:
        self._file = file
        self._context = context
        self._ignore = ignore
        self._given = given
        self._base = base
        self._say = say
        self._stages: dict[str, _State] = {}
        self._globals = {**file.arguments, **{name: given[name] for name in file.arguments if name in given}}

    def run(self) -> _State:
        state = _State()
        for number, stage in enumerate(self._file.stages):
            state = self._stage(stage)
            self._stages[str(number)] = state
            if stage.name:
                self._stages[stage.name] = state
        return state

    def _stage(self, stage: Stage) -> _State:
        name = expand(stage.base, self._globals)
        if name in self._stages:
            state = replace(self._stages[name], arguments={})
        elif name == "scratch":
            state = _State(layers=(empty_layer(),))
        else:
            state = _State.of(self._base(name))
        for instruction in stage.instructions:
            state = _STEPS[instruction.name](self, state, instruction)
        return state

    def _wrong(self, instruction: Instruction, what: str) -> ContainerfileError:
        return ContainerfileError(f"{self._file.name}, line {instruction.line}: {what}")

    def _arg(self, state: _State, instruction: Instruction) -> _State:
        arguments = dict(state.arguments)
        for word in instruction.words:
            name, _, default = word.partition("=")
            value = expand(default, state.variables) or self._globals.get(name, "")
            arguments[name] = self._given.get(name, value)
        return replace(state, arguments=arguments)

    def _env(self, state: _State, instruction: Instruction) -> _State:
        values = {name: expand(value, state.variables) for name, value in pairs(instruction).items()}
        return replace(state, env={**state.env, **values})

    def _label(self, state: _State, instruction: Instruction) -> _State:
        values = {name: expand(value, state.variables) for name, value in pairs(instruction).items()}
        return replace(state, labels={**state.labels, **values})

    def _user(self, state: _State, instruction: Instruction) -> _State:
        return replace(state, user=expand(instruction.words[0], state.variables))

    def _workdir(self, state: _State, instruction: Instruction) -> _State:
        folder = os.path.join(state.cwd or "/", expand(instruction.words[0], state.variables))
        layer = self._unpacked(state, instruction, folder, _tar([]))
        return replace(state, layers=(*state.layers, layer), cwd=folder)

    def _expose(self, state: _State, instruction: Instruction) -> _State:
        ports = tuple(expand(word, state.variables) for word in instruction.words)
        return replace(state, ports=(*state.ports, *ports))

    def _entrypoint(self, state: _State, instruction: Instruction) -> _State:
        return replace(state, entrypoint=_argv(instruction), command=())  # docker's: a base's CMD goes

    def _cmd(self, state: _State, instruction: Instruction) -> _State:
        return replace(state, command=_argv(instruction))

    def _run_words(self, state: _State, instruction: Instruction) -> _State:
        argv = _argv(instruction)
        env = {**state.arguments, **state.env}
        key = key_of(_GENERATION, "RUN", state.key, argv, sorted(env.items()), state.user, state.cwd)

        def make(files: Path) -> None:
            self._tell(instruction)
            machine = machine_settings()
            # The image's own variables win.
            whole = {"PATH": DEFAULT_PATH, **machine.env, **env}
            said = self._enter(instruction, _entry(state, files, argv=argv, env=whole, binds=machine.binds))
            files.with_name("output").write_bytes(said)

        return replace(state, layers=(*state.layers, make_layer(key, make)))

    def _copy(self, state: _State, instruction: Instruction) -> _State:
        words = [expand(word, state.variables) for word in instruction.words]
        flags = {name: expand(value, state.variables) for name, value in instruction.flags.items()}
        place = os.path.join(state.cwd or "/", words[-1])
        stage = flags.get("from")
        if stage is None:
            content = self._from_context(instruction, words[:-1])
            return self._put(state, instruction, place, flags, content)
        if stage not in self._stages:
            known = ", ".join(self._stages) or "none"
            raise self._wrong(instruction, f"--from={stage}: stages before it are {known}")
        # Its files are looked at only when they are copied.
        source = self._stages[stage]
        key = key_of(_GENERATION, "COPY", state.key, source.key, words, sorted(flags.items()), state.cwd)

        def make(files: Path) -> None:
            content = self._from_stage(instruction, source, words[:-1])
            folder, tar = self._archive(state, instruction, place, flags, content)
            self._enter(instruction, _entry(state, files, unpack=folder), tar)

        return replace(state, layers=(*state.layers, make_layer(key, make)))

    def _put(
        self, state: _State, instruction: Instruction, place: str, flags: Mapping[str, str], content: _Content
    ) -> _State:
        folder, tar = self._archive(state, instruction, place, flags, content)
        return replace(state, layers=(*state.layers, self._unpacked(state, instruction, folder, tar)))

    def _archive(
        self, state: _State, instruction: Instruction, place: str, flags: Mapping[str, str], content: _Content
    ) -> tuple[str, bytes]:
        """The folder to unpack in, and the tar."""
        folder = place
        if not place.endswith("/") and not content.is_folder:
            if len(content.entries) != 1:
                raise self._wrong(instruction, f"several files are copied, so {place} must end in /")
            folder, content.entries[0][0].name = os.path.split(place)
        owner = _owner(flags.get("chown", ""), state)
        for entry, _ in content.entries:
            entry.uid, entry.gid = owner
            if "chmod" in flags:
                entry.mode = int(flags["chmod"], 8)
        return folder, _tar(content.entries)

    def _from_context(self, instruction: Instruction, sources: list[str]) -> _Content:
        content = _Content()
        for source in sources:
            pattern = source.strip("/")
            if ".." in Path(pattern).parts:
                raise self._wrong(instruction, f"{source} lies outside of the build's folder")
            found = [path for path in sorted(self._context.glob(pattern)) if self._is_sent(path)]
            if not found:
                raise self._wrong(
                    instruction,
                    f"there is no {source} in {self._context}, or its .dockerignore leaves it out",
                )
            for path in found:
                content.add(path, self._is_sent)
        return content

    def _is_sent(self, path: Path) -> bool:
        if path.is_dir():
            return any(self._is_sent(each) for each in path.iterdir())
        return is_sent(str(path.relative_to(self._context)), self._ignore)

    def _from_stage(self, instruction: Instruction, source: _State, paths: list[str]) -> _Content:
        places = [os.path.join("/", path) for path in paths]
        with tempfile.TemporaryDirectory() as root:
            layers = [str(layer.files) for layer in (empty_layer(), *source.layers)]
            text = self._enter(instruction, Entry(layers=layers, root=root, pack=places))
        content = _Content()
        with tarfile.open(fileobj=io.BytesIO(text)) as tar:
            for entry in tar:
                file = tar.extractfile(entry) if entry.isfile() else None
                entry.pax_headers = {}
                content.is_folder = content.is_folder or entry.name == "."
                content.entries.append((entry, file.read() if file else b""))
        return content

    def _unpacked(self, state: _State, instruction: Instruction, folder: str, tar: bytes) -> BuiltLayer:
        key = key_of(_GENERATION, "COPY", state.key, folder, hashlib.sha256(tar).hexdigest())

        def make(files: Path) -> None:
            self._enter(instruction, _entry(state, files, unpack=folder), tar)

        return make_layer(key, make)

    def _enter(self, instruction: Instruction, entry: Entry, given: bytes = b"") -> bytes:
        """What it said, or packed. Raises BuildFailed."""
        with tempfile.TemporaryFile() as output:
            said = subprocess.PIPE if entry.pack is not None else output
            try:
                done = subprocess.run(
                    entry.words(), input=given, stdout=said, stderr=output, timeout=scaled(_RUN_LIMIT_S)
                )
            except subprocess.TimeoutExpired as expired:
                raise self._failed(instruction, f"it took over {expired.timeout:.0f} s", output) from None
            if done.returncode != 0:
                raise self._failed(instruction, f"it ended with {done.returncode}", output)
            output.seek(0)
            return done.stdout if entry.pack is not None else output.read()

    def _failed(self, instruction: Instruction, why: str, output: Any) -> BuildFailed:
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()[-15:]
        words = " ".join(instruction.words)[:200]
        told = "\n".join(
            [f"{self._file.name}, line {instruction.line}: {instruction.name} {words}: {why}", *lines]
        )
        return BuildFailed(told)

    def _tell(self, instruction: Instruction) -> None:
        words = " ".join(instruction.words)
        self._say(f"images: {self._file.name}, line {instruction.line}: {instruction.name} {words[:90]} …")


_STEPS: dict[str, Callable[[_Build, _State, Instruction], _State]] = {
    "ARG": _Build._arg,
    "CMD": _Build._cmd,
    "COPY": _Build._copy,
    "ENTRYPOINT": _Build._entrypoint,
    "ENV": _Build._env,
    "EXPOSE": _Build._expose,
    "LABEL": _Build._label,
    "RUN": _Build._run_words,
    "USER": _Build._user,
    "WORKDIR": _Build._workdir,
}


class _Content:
    """What a COPY puts below its last word: entries of a tar and their bytes."""

    def __init__(self) -> None:
        self.entries: list[tuple[tarfile.TarInfo, bytes]] = []
        self.is_folder = False

    def add(self, path: Path, is_sent: Callable[[Path], bool]) -> None:
        """A file by its last name; of a folder what lies below it, as docker has it."""
        if not path.is_dir():
            self._add(path, path.name)
            return
        self.is_folder = True
        for each in sorted(path.rglob("*")):
            if is_sent(each):
                self._add(each, str(each.relative_to(path)))

    def _add(self, path: Path, name: str) -> None:
        with tarfile.open(fileobj=io.BytesIO(), mode="w") as tar:
            entry = tar.gettarinfo(path, name)
        entry.uname = entry.gname = ""
        entry.mtime = 0
        self.entries.append((entry, path.read_bytes() if entry.isfile() else b""))


def _tar(entries: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry, content in entries:
            if entry.islnk() or entry.isreg():
                entry.type, entry.size = (tarfile.LNKTYPE, 0) if entry.islnk() else (entry.type, len(content))
            tar.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def _owner(words: str, state: _State) -> tuple[int, int]:
    """Of `--chown`: numbers, or names that the image's own files know."""
    user, _, group = words.partition(":")
    number = _number(user, "etc/passwd", state)
    return number, _number(group, "etc/group", state) if group else number


def _number(name: str, file: str, state: _State) -> int:
    if not name:
        return 0
    if name.isdigit():
        return int(name)
    for layer in reversed(state.layers):
        path = layer.files / file
        if path.is_file():
            for line in path.read_text().splitlines():
                fields = line.split(":")
                if fields[0] == name:
                    return int(fields[2])
            break
    raise ContainerfileError(f"--chown={name}: the image knows no such name")


def _argv(instruction: Instruction) -> tuple[str, ...]:
    return instruction.words if instruction.is_exec else ("/bin/sh", "-c", instruction.words[0])


def _entry(state: _State, files: Path, **more: Any) -> Entry:
    """In the layers so far, with changes in `files`; folders beside it for overlayfs."""
    work, root = files.with_name("work"), files.with_name("root")
    for folder in (work, root):
        folder.mkdir(exist_ok=True)
    return Entry(
        layers=[str(layer.files) for layer in state.layers],
        root=str(root),
        upper=str(files),
        work=str(work),
        user=state.user,
        cwd=state.cwd,
        optional_binds=True,
        **more,
    )
