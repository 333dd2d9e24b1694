#!/bin/sh
# The image's contents, from the pinned wheels alone: build.sh PREFIX. The Dockerfile runs it, and so do tests/image,
# which say with which PYTHON. The same sources and the same Python make the same bytes at the same place.
set -eu
prefix=$1 python=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1 # what is imported on the way would stay, with the time at which it was compiled
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The tools that build our wheel stay out of the image that runs it.
"$python" -m venv "$scratch/tools"
tools=$scratch/tools/bin/python
"$tools" -m pip install --quiet --require-hashes --only-binary :all: --no-deps --requirement "$here/build.txt"
(cd "$here/../.." && "$tools" -m hatchling build --target wheel --directory "$scratch/wheel") >/dev/null

"$python" -m venv --without-pip "$prefix"
into() { "$tools" -m pip --python "$prefix/bin/python" install --quiet --no-deps --no-compile "$@"; }
into --require-hashes --only-binary :all: --requirement "$here/runtime.txt"
into --no-index --find-links "$scratch/wheel" slicewarden # not by its path, which would be remembered
"$tools" -m pip --python "$prefix/bin/python" check >/dev/null

rm -r "$prefix"/lib/python3*/site-packages/kubernetes/aio # the client once more, for asyncio: half of all there is
# Nothing is ever written there again, so that no cache need be held against its source.
"$prefix/bin/python" -m compileall -qq --invalidation-mode unchecked-hash "$prefix/lib"
chmod -R a+rX,a-w "$prefix"
