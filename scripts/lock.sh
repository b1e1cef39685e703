#!/usr/bin/env bash
# Renew the locked requirements from pyproject.toml: name==version and hashes, nothing else.
# Pins stay as they are where they still fit; `make lock ARGS=--upgrade` takes the newest.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! uv=$(command -v uv || ls .venv/bin/uv 2>/dev/null); then
    bash scripts/setup.sh dev
    .venv/bin/python -m pip install --quiet --disable-pip-version-check uv
    uv=.venv/bin/uv
fi

compile() { # output file, requirements beside those of the project, then what goes in
    local out=$1 more=$2
    shift 2
    printf '%s\n' $more | "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
        --output-file "requirements/$out" pyproject.toml - "$@" >/dev/null
}

# What builds the project itself, in place and without a look at the network (--no-build-isolation).
build='hatchling>=1.27 editables'

compile dev.txt "$build" --extra all --group dev "$@"
# The demo's packages are those of the tests that it needs, in the same versions.
compile demo.txt "$build" --extra cli --extra server --extra speech --extra speech-model --constraint requirements/dev.txt "$@"
# The SDKs in it have pins of their own: an environment of its own, with what runs its tests.
compile any-llm.txt 'anyio pytest>=9.0 pytest-timeout>=2.3' --extra any-llm "$@"
