# Functions that the scripts of packaging/ share; source it after scripts/lib.sh.
# shellcheck shell=bash

# tools_from_pypi WHAT FOLDER REQUIREMENTS: makes a virtual environment with what the file REQUIREMENTS names, unless it is
# there. WHAT names that in a message.
tools_from_pypi() {
  ! cmp -s "$3" "$2/done" || return 0
  step "$1" make_environment "$2" "$3" || die 1 "could not install what $3 names" \
    "is the network up, and python3-venv installed? then run it again"
}

make_environment() { # what pip's settings of this user say about places is not for us
  rm -rf "$1"
  python3 -m venv "$1" || return
  env -u PIP_TARGET -u PIP_PREFIX -u PIP_USER -u PYTHONPATH "$1/bin/python" -m pip install \
    --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: -r "$2" || return
  cp "$2" "$1/done"
}
