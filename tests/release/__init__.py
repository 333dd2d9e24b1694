"""The files of a release, made and put to use: `make rehearsal`. It needs PyPI."""
