#!/bin/sh
# Makes .venv with the headwater command, its development tools and the compiled hot loops.
# Needs Python 3.11 or newer and a C compiler (without one the hot loops run as plain Python). Finds uv or installs it.
set -eu
cd "$(dirname "$0")/.."

if command -v uv >/dev/null 2>&1; then
    uv=uv
elif [ -x .uv/bin/uv ]; then
    uv=.uv/bin/uv
else
    echo "setup: no uv on PATH; installing it into .uv"
    python3 -m venv .uv
    .uv/bin/python -m pip install --quiet --disable-pip-version-check uv
    uv=.uv/bin/uv
fi

# The hot loops are compiled in place and only where they changed; uv would compile all of them at every change.
HEADWATER_PURE=1 "$uv" sync --quiet --locked --all-extras --all-groups
.venv/bin/python setup.py --quiet build_ext --inplace
