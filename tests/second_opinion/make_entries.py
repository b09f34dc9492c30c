#!/usr/bin/env python3
"""Writes the vectors about entries of a ledger that are younger than the others: flags, queries, `with`, `reason` and `tiers`.

It shares no code with verify.py, and none with the product. Ed25519 gives the same signature each time, so that it writes the same
bytes as are there: `git diff` says whether it does. tests/vectors/keys.json says how the test keys are made.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

VECTORS = Path(__file__).parent.parent / "vectors"
TENANT = "t_7f3k9q2m4x8w"
ORIGIN = "evidence.example/t/9d2v6c1p8h4z"
SEALED, HELD, OPEN = "01K7Q4Z8V2N5R3T6Y9B1C0D4E8", "01K7Q52D6WZX9M4H7P0S3V8G1A", "01K7Q53Q0BT5J2N9R6F8W1C4KM"
ABSENT = object()
Json = dict[str, Any]


def main() -> None:
    good, bad = list(valid()), list(invalid())
    cases = [{"name": name, "envelope": envelope(*said)} for name, *said in good]
    cases += [{"name": name, "envelope": envelope(*said), "code": "statement"} for name, *said in bad]
    (VECTORS / "statements/entries.json").write_text(json.dumps(cases, indent=1) + "\n")

    before = ledger_entries()
    marks = [envelope(*said) for said in story()]
    archive("ledger/ledger-marks.tar", before + marks)
    by_name = {case["name"]: case["envelope"] for case in cases}
    for name in ("erasure-tiers-one", "flag-of-tenant", "query-of-frames", "release-with-nobody", "hold-reason-number"):
        archive(f"tampered/ledger-{name}.tar", [*before, by_name[name]])
    # Neither a flag nor the release of another's matter ends a hold.
    kept = marks[: len(STORY_UNTIL_RELEASE)]
    archive("tampered/ledger-erased-under-flag.tar", [*before, *kept, envelope(*erasure(90, tiers=[1, 2]))])


# ---- What is said ----------------------------------------------------------------------------------------------

def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def of_run(run: str) -> Json:
    return {"digest": {"sha256": digest(f"onrecord/genesis/1\n{TENANT}\n{run}\n")}, "name": run}


def of_tenant() -> Json:
    return {"digest": {"sha256": digest(TENANT)}, "name": TENANT}


def question(text: str = '{"count":true,"nonce":"0123456789abcdefghijklmnop","resource":"runs"}') -> Json:
    return {"digest": {"sha256": digest(text)}, "name": "query.json"}


def time(second: int) -> str:
    return f"2026-08-09T11:{12 + second // 60:02}:{second % 60:02}.000000Z"


KEEPER = {"id": "u_keeper", "type": "human"}
COUNSEL = {"id": "u_counsel", "type": "human"}


def flag(second: int = 0, run: Any = OPEN, subject: Json | None = None, **members: Any) -> tuple[str, Json, Json]:
    said = {"action": "set", "at": time(second), "by": KEEPER, "flag": "incident", "run": run} | members
    return "flag", leave_out(said), subject or of_run(run)


def query(second: int = 0, subject: Json | None = None, **members: Any) -> tuple[str, Json, Json]:
    said = {"at": time(second), "by": KEEPER, "purpose": "case-2026-20", "resource": "runs"} | members
    return "query", leave_out(said), subject or question()


def hold(second: int = 0, run: str | None = OPEN, subject: Json | None = None, **members: Any) -> tuple[str, Json, Json]:
    said = {"action": "set", "at": time(second), "by": KEEPER, "matter": "case-2026-20"} | members
    if run:
        said |= {"run": run}
    return "hold", leave_out(said), subject or (of_run(run) if run else of_tenant())


def erasure(second: int = 0, **members: Any) -> tuple[str, Json, Json]:
    """Of the run that had a tier erased before: what it names of the frames stays the same."""
    said = next(said for name, said in map(spoken, ledger_entries()) if name == "erasure")
    said = {key: value for key, value in said.items() if key not in ("signer", "suite", "tenant", "tier")}
    return "erasure", leave_out(said | {"at": time(second), "reason": "window"} | members), of_run(said["run"])


def leave_out(said: Json) -> Json:
    return {key: value for key, value in said.items() if value is not ABSENT}


def valid() -> Any:
    yield "flag-set", *flag()
    yield "flag-set-with-all", *flag(incident="INC-17", reason="case-2026-20")
    yield "flag-cleared", *flag(action="cleared")
    yield "flag-of-a-sealed-run", *flag(run=SEALED)
    yield "flag-empty-texts", *flag(flag="", incident="", reason="")
    yield "flag-more-members", *flag(colour="red")
    yield "query", *query()
    yield "query-of-a-tool", *query(by={"id": "nightly", "type": "tool"}, resource="payload-records")
    yield "query-more-members", *query(rows=17)
    yield "hold-reason", *hold(reason="case-2026-20")
    yield "hold-of-tenant-reason", *hold(run=None, reason="case-2026-20")
    yield "release-by-two", *hold(action="released", **{"with": COUNSEL})
    yield "release-by-two-with-reason", *hold(action="released", reason="settled", **{"with": COUNSEL})
    # Nothing is concluded from it.
    yield "set-by-two", *hold(**{"with": COUNSEL})
    yield "release-by-one-twice", *hold(action="released", **{"with": KEEPER})


def invalid() -> Any:
    yield "flag-of-tenant", *flag(subject=of_tenant())
    yield "flag-of-other-run", *flag(subject=of_run(SEALED))
    yield "flag-of-frames", *flag(subject={**of_run(OPEN), "name": "frames.ndjson"})
    yield "flag-without-run", *flag(run=ABSENT, subject=of_run(OPEN))
    yield "flag-without-name", *flag(flag=ABSENT)
    yield "flag-without-time", *flag(at=ABSENT)
    yield "flag-without-actor", *flag(by=ABSENT)
    yield "flag-action-other", *flag(action="released")
    yield "flag-name-number", *flag(flag=17)
    yield "flag-incident-null", *flag(incident=None)
    yield "flag-incident-list", *flag(incident=["INC-17"])
    yield "flag-reason-null", *flag(reason=None)
    yield "flag-reason-number", *flag(reason=17)
    yield "flag-actor-type-other", *flag(by={"id": "u_keeper", "type": "person"})
    yield "flag-actor-more", *flag(by={**KEEPER, "name": "K."})
    yield "flag-actor-empty", *flag(by={**KEEPER, "id": ""})
    yield "query-of-frames", *query(subject={**question(), "name": "frames.ndjson"})
    yield "query-of-tenant", *query(subject=of_tenant())
    yield "query-without-purpose", *query(purpose=ABSENT)
    yield "query-without-resource", *query(resource=ABSENT)
    yield "query-resource-list", *query(resource=["runs"])
    yield "query-purpose-null", *query(purpose=None)
    yield "query-without-actor", *query(by=ABSENT)
    yield "query-time-local", *query(at="2026-08-09T11:12:00.000000+01:00")
    yield "hold-reason-null", *hold(reason=None)
    yield "hold-reason-number", *hold(reason=17)
    yield "hold-reason-object", *hold(reason={"code": "case"})
    yield "release-with-null", *hold(action="released", **{"with": None})
    yield "release-with-nobody", *hold(action="released", **{"with": {}})
    yield "release-with-name", *hold(action="released", **{"with": "u_counsel"})
    yield "release-with-empty-id", *hold(action="released", **{"with": {**COUNSEL, "id": ""}})
    yield "release-with-type-other", *hold(action="released", **{"with": {**COUNSEL, "type": "lawyer"}})
    yield "release-with-more", *hold(action="released", **{"with": {**COUNSEL, "name": "C."}})
    yield "release-with-two", *hold(action="released", **{"with": [KEEPER, COUNSEL]})
    yield "erasure-of-nothing", *erasure()
    yield "erasure-tiers-empty", *erasure(tiers=[])
    yield "erasure-tiers-one", *erasure(tiers=[2])
    yield "erasure-tiers-descending", *erasure(tiers=[2, 1])
    yield "erasure-tiers-twice", *erasure(tiers=[1, 1, 2])
    yield "erasure-tiers-fourth", *erasure(tiers=[1, 4])
    yield "erasure-tiers-negative", *erasure(tiers=[-1, 2])
    yield "erasure-tiers-words", *erasure(tiers=["1", "2"])
    yield "erasure-tiers-null", *erasure(tier=2, tiers=None)
    yield "erasure-tier-and-tiers", *erasure(tier=1, tiers=[1, 2])
    yield "erasure-tiers-and-commits", *erasure(tiers=[1, 2], commits=[digest("a payload")])


STORY_UNTIL_RELEASE = [
    hold(0, run=HELD, reason="case-2026-20"),
    flag(1, run=HELD, flag="case-2026-20", incident="INC-17", reason="case-2026-20"),
    query(2),
    flag(3, run=HELD, flag="case-2026-20", action="cleared", incident="INC-17"),
]


def story() -> list[tuple[str, Json, Json]]:
    """A hold that two people release, with flags and questions in between, and what may be erased after it."""
    released = hold(5, run=HELD, action="released", **{"with": COUNSEL})
    return [*STORY_UNTIL_RELEASE, flag(4, run=SEALED), released, query(6, resource="frames"), erasure(90, tiers=[1, 2])]


# ---- How it is written -----------------------------------------------------------------------------------------

def secret(label: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"onrecord test key: {label}".encode()).digest())


def envelope(name: str, said: Json, subject: Json) -> str:
    """A statement under the tenant's second key, which is in force at the end of its ledger."""
    key = secret("seal 2")
    spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    keyid = hashlib.sha256(spki).hexdigest()
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "predicate": {**said, "signer": {"keyid": keyid}, "suite": "onrecord-v1", "tenant": TENANT},
        "predicateType": f"https://onrecord.dev/attestation/{name}/v1",
        "subject": [subject],
    }
    kind, payload = "application/vnd.in-toto+json", rfc8785.dumps(statement)
    sig = key.sign(b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload))
    signature = {"keyid": keyid, "sig": base64.b64encode(sig).decode()}
    shell = {"payload": base64.b64encode(payload).decode(), "payloadType": kind, "signatures": [signature]}
    return rfc8785.dumps(shell).decode()


def spoken(entry: str) -> tuple[str, Json]:
    statement = json.loads(base64.b64decode(json.loads(entry)["payload"]))
    return statement["predicateType"].split("/")[-2], statement["predicate"]


def ledger_entries() -> list[str]:
    """The entries of the ledger that is there, which has one tile."""
    with tarfile.open(VECTORS / "ledger/ledger.tar") as tar:
        names = [name for name in tar.getnames() if name.startswith("tile/entries/")]
        (tile,) = [tar.extractfile(name).read() for name in names]
    entries = []
    while tile:
        end = 2 + int.from_bytes(tile[:2], "big")
        entries.append(tile[2:end].decode())
        tile = tile[end:]
    return entries


def root_of(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + root_of(leaves[:split]) + root_of(leaves[split:])).digest()


def checkpoint(leaves: list[bytes]) -> bytes:
    """Signed by the log and by both witnesses."""
    text = f"{ORIGIN}\n{len(leaves)}\n{base64.b64encode(root_of(leaves)).decode()}\n"
    keys = json.loads((VECTORS / "keys.json").read_text())
    seen = 1786276800 + len(leaves)
    lines = [(ORIGIN, secret("log").sign(text.encode()))]
    for label in ("1", "2"):
        cosigned = secret(f"witness {label}").sign(f"cosignature/v1\ntime {seen}\n{text}".encode())
        lines.append((f"witness.example/w{label}", struct.pack(">Q", seen) + cosigned))
    note = text + "\n"
    for name, sig in lines:
        key_id = bytes.fromhex(keys[name].split("+")[1])
        note += f"\N{EM DASH} {name} {base64.b64encode(key_id + sig).decode()}\n"
    return note.encode()


def archive(path: str, entries: list[str]) -> None:
    """A whole ledger of less than a tile."""
    leaves = [hashlib.sha256(b"\0" + entry.encode()).digest() for entry in entries]
    tile = b"".join(struct.pack(">H", len(entry)) + entry.encode() for entry in entries)
    size = len(entries)
    members = {
        "checkpoint": checkpoint(leaves),
        f"tile/0/000.p/{size}": b"".join(leaves),
        f"tile/entries/000.p/{size}": tile,
    }
    with tarfile.open(VECTORS / path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    # tarfile fills its last record up with zeros; a bundle ends with two blocks of them.
    whole = (VECTORS / path).read_bytes().rstrip(b"\0")
    blocks = -(-len(whole) // 512)
    (VECTORS / path).write_bytes(whole.ljust((blocks + 2) * 512, b"\0"))


if __name__ == "__main__":
    main()
