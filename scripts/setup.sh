#!/usr/bin/env bash
# Make .venv ready: `setup.sh demo` with what the demo needs, `setup.sh dev` with everything.
# `setup.sh any-llm` makes .venv-any-llm beside it, for the tests of that extra; they call it themselves.
# A second call finds its stamp and ends at once. PYTHON=/path/to/python chooses the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:?usage: setup.sh demo|dev|any-llm}
lock=requirements/$what.txt
python=.venv/bin/python
unfinished=.venv/unfinished

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

stamp() { # what a finished .venv was made of
    printf '%s\n' "$PWD"
    cat "requirements/$1.txt" pyproject.toml
}

is_ready() { stamp "$1" | cmp -s - ".venv/$1.stamp" && "$python" -c '' 2>/dev/null; }

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    die "no Python 3.11 or newer among: ${PYTHON:-python3.13, python3.12, python3.11, python3, python}." \
        "Install one (Debian 12 or newer: apt-get install python3 python3-venv; macOS: brew install python@3.13)," \
        "or name it: make test PYTHON=/path/to/python3"
}

has_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_install() {
    local output
    say "installing Debian packages: $*"
    output=$({ apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"; } 2>&1) ||
        { say "apt-get failed: $(tail -n 1 <<<"$output")" && return 1; }
}

make_venv() {
    local base version
    base=$(find_python)
    version=$("$base" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    rm -rf .venv
    if ! "$base" -m venv .venv >/dev/null 2>&1; then
        # Debian ships ensurepip, without which there is no pip in a venv, in a package of its own.
        has_apt && apt_install "python$version-venv" || true
        rm -rf .venv
        "$base" -m venv .venv >/dev/null 2>&1 || {
            rm -rf .venv
            die "$base cannot make a virtual environment. On Debian and Ubuntu: apt-get install python$version-venv"
        }
    fi
    say "made .venv with Python $version"
}

install_python_packages() {
    if [ -e "$unfinished" ] || ! is_new_enough "$python" || ! "$python" -m pip --version >/dev/null 2>&1; then
        make_venv
    fi
    # Until this file is gone again, the next call starts over: pip takes half a package for a whole one.
    touch "$unfinished"
    say "installing $(grep -c '==' "$lock") locked Python packages, minutes at the first time"
    local pip=("$python" -m pip --disable-pip-version-check --no-input install --quiet --quiet)
    "${pip[@]}" --require-hashes -r "$lock" ||
        die "pip could not install $lock (see above). Nothing runs without these packages; try again with a network"
    "${pip[@]}" --no-deps --no-build-isolation -e . || die "pip could not install the project itself (see above)"
    stamp "$what" >".venv/$what.stamp"
    rm -f "$unfinished"
}

install_debian_packages() {
    local missing=() name
    command -v chromium >/dev/null || missing+=(chromium)
    # Without a font the browser draws boxes.
    ls /usr/share/fonts/truetype/dejavu >/dev/null 2>&1 || missing+=(fonts-dejavu-core)
    [ ${#missing[@]} -gt 0 ] || return 0
    if has_apt && apt_install "${missing[@]}"; then
        return 0
    fi
    say "could not install ${missing[*]} (that takes Debian or Ubuntu, and root)."
    say "The tests that look at the page in a browser need a command named chromium and will fail without it."
}

make_any_llm() { # the project itself is not installed there: its tests put src on the path
    local venv=.venv-any-llm made
    if cat <(echo "$PWD") "$lock" | cmp -s - "$venv/stamp" && "$venv/bin/python" -c '' 2>/dev/null; then
        return
    fi
    say "making $venv with $(grep -c '==' "$lock") locked Python packages"
    made=$(mktemp -d "$venv.XXXXXX")
    trap "rm -rf '$made'" EXIT
    "$python" -m venv --without-pip "$made"
    "$python" -m pip --python "$made/bin/python" --disable-pip-version-check --no-input \
        install --quiet --quiet --no-compile --require-hashes -r "$lock" || die "pip could not install $lock (see above)"
    cat <(echo "$PWD") "$lock" >"$made/stamp"
    rm -rf "$venv"
    mv "$made" "$venv" # whole or not at all
}

if [ "$what" = any-llm ]; then
    make_any_llm
    exit
fi
if ! is_ready "$what" && { [ "$what" = dev ] || ! is_ready dev; }; then
    install_python_packages
fi
if [ "$what" = dev ]; then
    install_debian_packages
fi
