"""A Git repository that is served over HTTP on loopback, as a Git server does."""

import os
import subprocess
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

IDENTITY = {f"GIT_{role}_{key}": "test@example.com" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
"""Whoever commits here."""


class Repository:
    """A repository with a branch `main`, whose commits are served at `url` until it is closed."""

    def __init__(self, folder: Path) -> None:
        """Make an empty repository in a new folder, and serve it."""
        self.folder = folder
        folder.mkdir()
        self._git("init", "--quiet", "--initial-branch=main")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _backend(folder.parent))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """The URL of the repository, without a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_port}/{self.folder.name}/.git"

    def read(self, name: str) -> str:
        """The text of a file as it is committed; empty where there is none."""
        file = self.folder / name
        return file.read_text("utf-8") if file.exists() else ""

    def commit(self, files: Mapping[str, str | None]) -> str:
        """Write these files, or delete those that are None; return the new commit's hash."""
        for name, text in files.items():
            file = self.folder / name
            if text is None:
                file.unlink()
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, "utf-8")
        self._git("add", "--all")
        self._git("commit", "--quiet", f"--message={', '.join(files)}")
        return self._git("rev-parse", "HEAD").strip()

    def close(self) -> None:
        """Serve it no longer."""
        self._server.shutdown()
        self._server.server_close()

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env={**_environment(self.folder), **IDENTITY},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout


def _environment(folder: Path) -> dict[str, str]:
    """Nothing of the user's own settings of Git."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}


def _backend(root: Path) -> type[BaseHTTPRequestHandler]:
    """Return a handler that answers by `git http-backend` (RFC 3875) for the repositories below a folder."""

    class Backend(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

        def log_message(self, *_: Any) -> None:
            """Write nothing."""

        def _answer(self, body: bytes) -> None:
            path, _, query = self.path.partition("?")
            variables = {
                **_environment(root),
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            }
            command = ["git", "http-backend"]
            done = subprocess.run(command, env=variables, input=body, capture_output=True, check=True)
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode("ascii").splitlines())
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Backend
