"""Runs in the backend's own Python, 3.7 on: loads the backend and the hook as gunicorn does, and answers.

Arguments: the backend's folder, the hook's file ("" for none). Standard input: a JSON list of [body,
defaults]; standard output: JSON of the answers and of the log's lines. Only the worker's log is a stand-in.
"""

import importlib
import importlib.util
import json
import sys
from typing import List  # noqa: UP035  # the oldest backend's Python 3.7 has no list[str]


class Log:
    def __init__(self) -> None:
        self.lines: List[List[str]] = []  # noqa: UP006

    def info(self, text: str, *values: object) -> None:
        self.lines.append(["info", text % values])

    def warning(self, text: str, *values: object) -> None:
        self.lines.append(["warning", text % values])


class Worker:
    log = Log()


def main(folder: str, hook: str) -> None:
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    entrypoint = importlib.import_module("entrypoint")

    if hook:
        spec = importlib.util.spec_from_file_location("__config__", hook)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["__config__"] = module
        spec.loader.exec_module(module)
        module.post_worker_init(Worker)
        module.post_worker_init(Worker)  # a second call must not wrap twice
    answers = [
        entrypoint.answer(body, entrypoint.DEFAULTS if defaults is None else defaults)
        for body, defaults in json.load(sys.stdin)
    ]
    packages = sorted(name for name in sys.modules if name.partition(".")[0] in ("yaml", "jupyter_ext"))
    json.dump({"answers": answers, "log": Worker.log.lines, "packages": packages}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
