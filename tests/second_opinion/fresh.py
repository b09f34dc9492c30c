#!/usr/bin/env python3
"""Starts a server, lets an agent work on it, and keeps what it gives out: `fresh.py --server onrecord FOLDER`.

FOLDER has afterwards `trust.txt`, `ledger.tar`, `receipts.ndjson`, the `checkpoint` with the log's `log.vkey`, and
bundles and turn proofs of all that bundles may have: turns, payloads withheld, erased and kept by the agent, frames
that the agent signed, a seal key that ended, holds, a run that is still open.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import verify
from check_vectors import hkdf

START_SECONDS = 120
# What the last run has of tiers 2 and 3 expires with its seal: one certificate for both.
POLICY = {"schedules": [{"name": "window", "tiers": {
    "2": {"trigger": "sealed", "ceiling_days": 0}, "3": {"trigger": "sealed", "ceiling_days": 0}}}], "default": "window"}
HOLDS = 130  # set and released, so that the ledger has more entries than a tile


def main() -> int:
    parser = argparse.ArgumentParser(description="Fresh evidence of a server.")
    parser.add_argument("--server", type=Path, required=True)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="second-opinion-") as scratch:
        os.chmod(scratch, 0o755)
        data, port = Path(scratch) / "data", free_port()
        data.mkdir(mode=0o755)
        log = (given.folder / "server.log").open("wb")
        command = [given.server, "serve", "--data-dir", data, "--listen", f"127.0.0.1:{port}"]
        server = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            api = Api(port)
            api.wait(server, given.folder / "server.log")
            api.token = (data / "admin.token").read_text().strip()
            story(api, given.folder)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    return 0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Api:
    """The server, by one connection."""

    def __init__(self, port: int) -> None:
        self.http, self.token = http.client.HTTPConnection("127.0.0.1", port, timeout=60), ""

    def wait(self, server: subprocess.Popen[bytes], log: Path) -> None:
        for _ in range(START_SECONDS * 5):
            try:
                if self.ask("GET", "/health/ready")[0] == 200:
                    return
            except OSError:
                self.http.close()
            if server.poll() is not None:
                break
            time.sleep(0.2)
        sys.exit(f"the server does not start:\n{log.read_text()}")

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        self.http.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self.http.getresponse()
        return answer.status, answer.read()

    def get(self, path: str) -> bytes:
        return self.fine("GET", path)

    def post(self, path: str, body: Any = None) -> Any:
        return json.loads(self.fine("POST", path, {} if body is None else body))

    def fine(self, method: str, path: str, body: Any = None) -> bytes:
        status, answer = self.ask(method, path, body)
        if status >= 300:
            sys.exit(f"{method} {path}: {status} {answer.decode(errors='replace')}")
        return answer


def expire(api: Api) -> None:
    """Has everything expire, and be erased."""
    api.fine("PUT", "/v1/retention/policy", POLICY)
    while api.post("/v1/retention/sweep")["more"]:
        pass


def story(api: Api, folder: Path) -> None:
    def export(name: str, path: str) -> None:
        (folder / name).write_bytes(api.get(path))

    worked, frames = work(api)
    export("whole.tar", f"/v1/runs/{worked}/export?purpose=review")
    export("withheld.tar", f"/v1/runs/{worked}/export?payloads=none")
    export("partly.tar", f"/v1/runs/{worked}/export?purpose=review&withhold=name:prompt,tier:3")
    for turn in (1, 2):
        export(f"turn-{turn}.turn-proof.json", f"/v1/runs/{worked}/turns/{turn}/proof?purpose=review")
    signed = signing_agent(api)
    export("signed.tar", f"/v1/runs/{signed}/export?purpose=review")
    export("signed.turn-proof.json", f"/v1/runs/{signed}/turns/1/proof?payloads=none")
    hold = api.post("/v1/holds", {"matter": "case-1", "reason": "subpoena", "run": worked})["hold"]
    api.post(f"/v1/holds/{hold}/release")
    api.post(f"/v1/runs/{worked}/flags", {"flag": "drift", "incident": "inc-1", "reason": "score-low"})
    commit = frames[2]["payloads"][0]["commit"]
    api.post("/v1/erasures", {"run": worked, "commits": [commit], "reason": "request-1"})
    api.post("/v1/erasures", {"run": worked, "tier": 3, "reason": "window over"})
    export("erased.tar", f"/v1/runs/{worked}/export?purpose=review")
    api.post("/v1/keys/seal/rotation", {"reason": "rotation"})
    after, _ = work(api)
    export("after-rotation.tar", f"/v1/runs/{after}/export?purpose=review")
    export("before-rotation.tar", f"/v1/runs/{worked}/export?purpose=review")
    opened, receipts = open_run(api)
    export("open.tar", f"/v1/runs/{opened}/export?purpose=review")
    lines = [rfc8785.dumps({name: r[name] for name in ("run", "seq", "hash", "at")}) + b"\n" for r in receipts]
    (folder / "receipts.ndjson").write_bytes(b"".join(lines))
    for number in range(HOLDS):
        hold = api.post("/v1/holds", {"matter": f"case-{number + 2}", "run": after})["hold"]
        api.post(f"/v1/holds/{hold}/release")
    expire(api)
    export("expired.tar", f"/v1/runs/{after}/export?purpose=review")
    export("ledger.tar", "/v1/ledger/archive")
    export("trust.txt", "/v1/trust")
    ledger = json.loads(api.get("/v1/ledger"))
    (folder / "checkpoint").write_text(ledger["checkpoint"])
    (folder / "log.vkey").write_text(ledger["verifier_key"])


def work(api: Api) -> tuple[str, list[Any]]:
    """A run of two turns, sealed; and its frames."""
    opening = {"session": {"agent": "coder"}, "payloads": [{"name": "task", "text": "make the build green"}]}
    run = api.post("/v1/runs", opening)["run"]
    frames: list[dict[str, Any]] = [
        {"kind": "turn", "payloads": [{"name": "prompt", "text": "größer: 見て 🎉"}]},
        {
            "kind": "tool_call",
            "key": "call/1",
            "body": {"name": "bash", "cost": 0.1, "tokens": 1e3},
            "payloads": [{"name": "arguments", "json": {"command": "make test", "n": [1.5, -0.0, 1e-7]}}],
            "result": {"body": {"exit": 2}, "payloads": [{"name": "result", "text": "1 test failed\n" * 40, "tier": 3}]},
        },
        {"kind": "turn", "payloads": [{"name": "prompt", "base64": base64.b64encode(bytes(70_000)).decode(), "tier": 0}]},
        {"kind": "observation", "body": {"source": "ci"}, "links": [{"rel": "observed_by", "key": "call/1"}]},
        {"kind": "observation", "turn": None, "payloads": [{"name": "empty", "text": "", "tier": 3}]},
        {"kind": "outcome", "turn": None, "body": {"status": "completed"}},
    ]
    for frame in frames:
        api.post(f"/v1/runs/{run}/frames", frame)
    api.post(f"/v1/runs/{run}/seal")
    return run, [json.loads(line) for line in api.get(f"/v1/runs/{run}/frames").splitlines()]


def open_run(api: Api) -> tuple[str, list[Any]]:
    """A run that goes on, and its receipts."""
    receipts = [api.post("/v1/runs", {"session": {"agent": "coder"}})]
    run = receipts[0]["run"]
    for kind in ("turn", "decision", "model_call"):
        receipts.append(api.post(f"/v1/runs/{run}/frames", {"kind": kind, "payloads": [{"name": "text", "text": kind}]}))
    return run, receipts


def signing_agent(api: Api) -> str:
    """A run whose frames the agent signs; one payload it keeps."""
    key, actor = Ed25519PrivateKey.generate(), "signing coder"
    spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    run = api.post("/v1/runs", {"session": {"agent": actor}})["run"]
    opening = api.get(f"/v1/runs/{run}/frames").splitlines()[0]
    tenant = json.loads(opening)["tenant"]
    proof = base64.b64encode(key.sign(f"onrecord/agent-key/1\n{tenant}\n{actor}\n".encode())).decode()
    api.post("/v1/agent-keys", {"actor": actor, "spki": pem, "proof": proof})
    keyid = verify.sha256(spki).hex()
    asked = [("turn", "prompt", b"find it", True), ("decision", "notes", b"mine", False), ("observation", "seen", b"", True)]
    for n, (kind, name, content, sent) in enumerate(asked, 1):
        dek = secrets.token_bytes(32)
        commit = verify.sha256(b"onrecord/payload/1\n" + hkdf(dek, b"onrecord/salt/1\n", 32) + content).hex()
        payload = {"name": name, "media": "text/plain; charset=utf-8", "size": verify.padded(len(content)), "commit": commit, "tier": 2}
        if not sent:
            payload["kept"] = False
        frame = {
            "onrecord": "frame/1", "tenant": tenant, "run": run, "kind": kind, "key": f"signed/{n}", "turn": 1, "body": {},
            "actor": {"type": "agent", "id": actor, "keyid": keyid}, "payloads": [payload], "submitted": {"keyid": keyid, "n": n},
        }  # fmt: skip
        first = verify.leaf_hash(opening).hex().encode() + b"\n" if n == 1 else b""
        signature = key.sign(b"onrecord/submitted/1\n" + first + rfc8785.dumps(frame))
        posted = {member: frame[member] for member in ("kind", "key", "turn", "actor", "body")}
        posted["submitted"] = {**frame["submitted"], "sig": base64.b64encode(signature).decode()}
        posted["payloads"] = [{**payload, **({"text": content.decode(), "dek": base64.b64encode(dek).decode()} if sent else {})}]
        if sent:
            del posted["payloads"][0]["size"]
        api.post(f"/v1/runs/{run}/frames", posted)
    api.post(f"/v1/runs/{run}/seal")
    return run


if __name__ == "__main__":
    sys.exit(main())
