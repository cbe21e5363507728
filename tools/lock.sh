#!/bin/bash
# Writes requirements/*.txt: exact versions with hashes for every supported Python, one file a purpose.
# Needs uv. `tools/lock.sh` keeps the versions there are, `tools/lock.sh --upgrade` takes the newest
# that pyproject.toml allows.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p requirements
compile() {
    "${UV:-uv}" pip compile pyproject.toml --quiet --universal --python-version 3.10 --generate-hashes \
        --no-emit-index-url --annotation-style line --custom-compile-command "make lock" "$@"
}
# The tests need everything; the other files are parts of theirs, so all fit into one environment.
compile "$@" --group test --extra lab --extra demo --extra form --extra controller -o requirements/test.txt
part() {
    local file=requirements/$1.txt
    shift
    rm -f "$file"
    compile -c requirements/test.txt -o "$file" "$@"
}
part kernel --group build
part demo --group build --extra demo
part lab --group build --extra lab
part packages --group packages --extra form --extra controller
part lint --group lint
# What the controller's image holds: that extra alone, without the kernel's packages.
rm -f requirements/controller.txt
"${PYTHON:-python3}" -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["controller"], sep="\n")' |
    "${UV:-uv}" pip compile - --quiet --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
        --annotation-style line --custom-compile-command "make lock" -c requirements/test.txt \
        -o requirements/controller.txt
