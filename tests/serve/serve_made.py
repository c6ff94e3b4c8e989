"""A run with names that bite, and a server of it in a thread."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedotp.classifier import open_classifiers
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import run
from fedotp.serve import make_server
from fedotp.serve._server import Server
from runs.toy_run import make_config, make_inputs

EVIL = "<img src=x onerror=alert(1)>"
COLOURS = {"red": (200, 30, 30), EVIL: (30, 200, 30), "blue": (30, 30, 200)}


def make_run(folder: Path, **sections: Any) -> RunDirectory:
    """Two clients, three classes, one of them with a name that is markup."""
    federation = {"rounds": 2, "participation": 1.0, "holdout_clients": 0}
    partition = {"n_clients": 2, "alpha": 0.5}
    inputs = make_inputs(folder, COLOURS)
    config = make_config(inputs, partition=partition, federation=federation, evaluation={"clients": 0}, **sections)
    return run(config, folder / "run")


@dataclass(frozen=True)
class Answer:
    """What a request brought back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Served:
    """A server that answers."""

    server: Server

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """One request, its headers as given: `Host` too."""
        connection = http.client.HTTPConnection(self.host, timeout=30)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host="Host" in sent, skip_accept_encoding=True)
        for name, value in sent.items():
            connection.putheader(name, value)
        if body is not None and "Content-Length" not in sent:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        found = Answer(answer.status, dict(answer.getheaders()), answer.read())
        connection.close()
        return found

    def upload(self, content: bytes) -> str:
        answer = self.ask("POST", "/api/images", content)
        assert answer.status == 200, answer.body
        return answer.json["id"]

    def look(
        self,
        image: str,
        client: str,
        label: str | None = None,
        mass: float | None = None,
        dial: float | str | None = None,
        prior: float | None = None,
    ) -> Answer:
        question = {"image": image, "client": client, "label": label, "mass": mass, "dial": dial, "prior": prior}
        return self.ask("POST", "/api/look", json.dumps(question).encode())


@contextmanager
def served(path: Path, **options: Any) -> Iterator[Served]:
    """The page of a run or a bundle, on a free port."""
    server = make_server(open_classifiers(path, **options), host="127.0.0.1", port=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield Served(server)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
