#!/usr/bin/env python3
"""Lets both verifiers judge many altered copies of evidence, and says where they differ.

    differential.py --verifier target/debug/onrecord-verify [--count N] [--seed S] [FOLDER…]

Each FOLDER has `trust.txt` and evidence beside it (`*.tar`, `*.turn-proof.json`, with `ledger.tar` as the own
copy and `receipts.ndjson` where they are there); the golden vectors are altered too. Of the vectors the keys
are known, so that the attacker can also be the store: statements and frames are changed in their meaning and
signed again, and everything after them made anew. A seed, the file and the number of the case name a case.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import verify

VECTORS = Path(__file__).parent.parent / "vectors"


@dataclass(frozen=True)
class Case:
    file: Path
    trust: Path | None
    args: tuple[str, ...] = ()


def main() -> int:
    parser = argparse.ArgumentParser(description="Differences between the two verifiers.")
    parser.add_argument("--verifier", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100, help="alterations of each file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one kind of alteration")
    parser.add_argument("folders", type=Path, nargs="*")
    given = parser.parse_args()
    judge = Judge(given.verifier)
    with ThreadPoolExecutor(os.cpu_count()) as both:
        jobs = [both.submit(judge.compare, *job) for job in altered(judge, given)]
        for job in jobs:
            job.result()
    print(f"{judge.compared} compared, {len(judge.differences)} differ;", dict(judge.codes.most_common()))
    for difference in judge.differences[:200]:
        print(f"  {difference}")
    if not judge.differences:
        shutil.rmtree(judge.scratch)
    return 1 if judge.differences else 0


def altered(judge: Judge, given: argparse.Namespace) -> Iterator[tuple[Case, bytes, str]]:
    """Each case as it is, and with so many alterations."""
    for case in [*golden(), *(case for folder in given.folders for case in evidence(folder))]:
        data = case.file.read_bytes()
        yield case, data, "as it is"
        for number in range(given.count):
            chance = random.Random(f"{given.seed}/{case.file.name}/{case.args}/{number}")
            if case.trust and chance.random() < 0.15 and given.only in (None, "trust"):
                yield judge.with_trust(case, trust_line(chance, case.trust.read_text())), data, f"trust {number}"
                continue
            choices = alterations(case, data)
            if given.only:
                choices = [c for c in choices if c.__name__ == given.only]
            if not choices:
                continue
            alter = chance.choice(choices)
            yield case, alter(chance, case, data), f"{alter.__name__} {number}"


def golden() -> Iterator[Case]:
    trust, seal_only = VECTORS / "trust.txt", VECTORS / "trust-seal-key-only.txt"
    ledger = ("--ledger", str(VECTORS / "ledger/ledger.tar"))
    for run in ("minimal", "rich", "interrupted"):
        file = next((VECTORS / run).glob("*.tar"))
        yield Case(file, trust, ("--full",))
        yield Case(file, trust, ledger if run != "interrupted" else ())
        yield Case(file, seal_only)
        yield Case(file, None)
    opened = next((VECTORS / "open").glob("*.tar"))
    receipts = ("--receipts", str(VECTORS / "open/receipts.ndjson"))
    yield from (Case(opened, trust, receipts), Case(opened, trust, ledger), Case(opened, None))
    for name in ("ledger.tar", "ledger-4.tar"):
        yield from (Case(VECTORS / "ledger" / name, t) for t in (trust, None, seal_only))
    for turn in (VECTORS / "rich").glob("*.turn-proof.json"):
        yield from (Case(turn, trust), Case(turn, seal_only), Case(turn, trust, ("--full",)))


def evidence(folder: Path) -> Iterator[Case]:
    """What a server has just given out."""
    trust, ledger, receipts = folder / "trust.txt", folder / "ledger.tar", folder / "receipts.ndjson"
    for file in sorted([*folder.glob("*.tar"), *folder.glob("*.turn-proof.json")]):
        yield Case(file, trust)
        if file != ledger and file.suffix == ".tar":
            yield Case(file, trust, ("--ledger", str(ledger))) if ledger.exists() else Case(file, None)
            if receipts.exists():
                yield Case(file, trust, ("--receipts", str(receipts)))


class Judge:
    """Both verdicts of a file, and whether they are the same."""

    def __init__(self, verifier: Path) -> None:
        self.verifier, self.compared, self.differences = verifier, 0, list[str]()
        self.codes: Counter[str] = Counter()
        self.scratch, self.names = Path(tempfile.mkdtemp(prefix="second-opinion-")), itertools.count()

    def compare(self, case: Case, data: bytes, what: str) -> None:
        """Judges in any thread. What they differ about is kept."""
        file = self.scratch / f"{next(self.names)}"
        file.write_bytes(data)
        ours, theirs = self.first(case, file), self.second(case, file)
        self.compared += 1
        self.codes[str(ours["code"])] += 1
        if ours == theirs:
            file.unlink()
        else:
            trust = case.trust.name if case.trust else "no trust"
            self.differences.append(
                f"{case.file.parent.name}/{case.file.name[:12]} {trust} {' '.join(case.args)[-24:]} {what}: first {ours}, second {theirs} ({file})"
            )

    def with_trust(self, case: Case, text: str) -> Case:
        file = self.scratch / f"trust-{next(self.names)}.txt"
        file.write_text(text)
        return Case(case.file, file, case.args)

    def first(self, case: Case, file: Path) -> dict[str, Any]:
        """By the verifier that is shipped. A folder of configuration without a trust file keeps it from finding one."""
        trust = ["--trust", str(case.trust)] if case.trust else []
        environment = {"XDG_CONFIG_HOME": str(self.scratch), "HOME": str(self.scratch)}
        command = [self.verifier, "--json", *trust, *case.args, file]
        done = subprocess.run(command, capture_output=True, env=environment, check=False)
        try:
            report = json.loads(done.stdout)["verdict"]
        except (ValueError, KeyError):
            return {"exit_code": done.returncode, "code": done.stderr.decode()[-200:]}
        return {"exit_code": done.returncode, **{k: report[k] for k in ("code", "first_bad_seq") if report.get(k) is not None}}

    def second(self, case: Case, file: Path) -> dict[str, Any]:
        args = iter(case.args)
        given = {a: True if a == "--full" else Path(next(args)) for a in args}
        ledger, receipts = given.get("--ledger"), given.get("--receipts")
        try:
            return verify.verify_files(file, case.trust, ledger, receipts, "--full" in given).verdict()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a difference
            return {"code": f"{type(error).__name__}: {error}"}


# What an outsider can do: any bytes, any members, and a manifest made again.


def alterations(case: Case, data: bytes) -> list[Callable[[random.Random, Case, bytes], bytes]]:
    known = VECTORS in case.file.parents
    if data[:1] == b"{":
        return [one_byte, turn_json]
    if data[:10] == b"checkpoint":
        return [one_byte, cut] + ([ledger_entry, ledger_order] if known else [])
    return [one_byte, one_byte_forged, drop_member, cut, line_edit] + ([store_frame, store_seal, store_export, store_ledger] if known else [])


def one_byte(chance: random.Random, case: Case, data: bytes) -> bytes:
    """One byte. Half of the time one that is not of the padding, which is most of a small archive."""
    at = chance.randrange(len(data))
    while chance.random() < 0.9 and data[at] == 0:
        at = chance.randrange(len(data))
    byte = chance.choice([data[at] ^ (1 << chance.randrange(8)), chance.choice(b'09azAZ "\\{}[],:\n\r\t\0\xc3'), data[at] + 1 & 255])
    return data[:at] + bytes([byte]) + data[at + 1 :]


def one_byte_forged(chance: random.Random, case: Case, data: bytes) -> bytes:
    members = unpack(data)
    name = chance.choice([n for n in members if members[n]])
    members[name] = one_byte(chance, case, members[name])
    return pack(with_manifest(members))


def drop_member(chance: random.Random, case: Case, data: bytes) -> bytes:
    members = unpack(data)
    for name in chance.sample(list(members), chance.choice([1, 1, 1, 2])):
        del members[name]
    return pack(with_manifest(members) if chance.random() < 0.3 else members)


def cut(chance: random.Random, case: Case, data: bytes) -> bytes:
    at = chance.randrange(len(data))
    at -= at % 512 if chance.random() < 0.7 else 0
    return chance.choice([data[:at], data + bytes(512), data[:at] + data[at + 512 :], data + b"x"])


def line_edit(chance: random.Random, case: Case, data: bytes) -> bytes:
    """A line of one of the lists left out, twice, moved, cut or empty; the manifest is made again or not."""
    members = unpack(data)
    name = chance.choice([n for n in members if n.endswith(("ndjson", "sha256", "proof")) and members[n]])
    lines = members[name].splitlines(keepends=True)
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    line = lines[at]
    edit = chance.randrange(6)
    if edit == 0:
        del lines[at]
    elif edit == 1:
        lines.insert(other, line)
    elif edit == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif edit == 3:
        lines[at] = line[: chance.randrange(len(line))]
    elif edit == 4:
        lines.insert(at, b"\n")
    else:
        lines[at] = mutate_json_line(chance, line)
    members[name] = b"".join(lines)
    return pack(with_manifest(members) if chance.random() < 0.6 and name != "MANIFEST.sha256" else members)


def trust_line(chance: random.Random, text: str) -> str:
    """A trust file with a line or a part of a line left out, twice, elsewhere or changed."""
    lines = text.splitlines(keepends=True)
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    parts = lines[at].split(" ")
    place, edit = chance.randrange(len(parts)), chance.randrange(8)
    if edit == 0:
        del lines[at]
    elif edit == 1:
        lines.insert(other, lines[at])
    elif edit == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif edit == 3:
        del parts[place]
    elif edit == 4:
        parts.insert(place, chance.choice(["more", "0", "01", "w1", "any", "none", "until", "\t", "", "\u00a0", "#"]))
    elif edit == 5:
        parts[place] = chance.choice(["all", "2", "3", "0", "w2", "w1", "none", "both", "until", "99999999999999999999", "-1", "\r\n", "\n"])
    elif edit == 6:
        position = chance.randrange(len(parts[place])) if parts[place] else 0
        parts[place] = parts[place][:position] + chance.choice(["", "A", "+", "=", "\t", "é", "\x0b"]) + parts[place][position + 1 :]
    else:
        lines.insert(at, chance.choice(["\n", " \n", "  # x\n", "\t\n", "\ufeff", "log\n", "quorum none\n", "time-anchor 5\n", "group g all w1\nquorum g\n", "\r\n", "group g 1 w1 w1\n"]))
    if edit in (3, 4, 5, 6):
        lines[at] = " ".join(parts)
    return "".join(lines)


def turn_json(chance: random.Random, case: Case, data: bytes) -> bytes:
    return mutate_json_line(chance, data)


def mutate_json_line(chance: random.Random, line: bytes) -> bytes:
    try:
        value = json.loads(line)
    except ValueError:
        return line[:-1] + b" \n"
    mutate(chance, value)
    try:
        return rfc8785.dumps(value) + (b"\n" if line.endswith(b"\n") else b"")
    except rfc8785.CanonicalizationError:
        return line


def mutate(chance: random.Random, value: Any) -> None:
    """Changes the meaning of one member somewhere in a JSON value."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        if isinstance(node, (dict, list)):
            for key in list(node) if isinstance(node, dict) else range(len(node)):
                places.append((node, key))
                walk(node[key])

    walk(value)
    if not places:
        return
    parent, key = chance.choice(places)
    old = parent[key]
    edit = chance.randrange(10)
    if edit <= 2:
        del parent[key]
    elif edit == 3 and isinstance(parent, dict):
        parent[chance.choice(["more", "tier", "run", "kept", "commits", "scope", "keyid", "at", "turn", "role", "reason", "previous"])] = chance.choice(ODD)
    elif edit == 4 and isinstance(parent, list):
        parent.insert(key, old)
    elif edit == 5 and isinstance(old, str) and old:
        at = chance.randrange(len(old))
        parent[key] = old[:at] + chance.choice(["", "0", "a", "Z", " ", "\n", "é", "\u0085", "\u2028", "+", "/", "~", "\x7f"]) + old[at + 1 :]
    elif edit == 6 and isinstance(old, int) and not isinstance(old, bool):
        parent[key] = old + chance.choice([-1, 1, 0.5, 255, 256, 2**40])
    elif edit == 7 and isinstance(parent, list):
        chance.shuffle(parent)
    elif edit == 8:
        node, place = chance.choice(places)
        parent[key] = json.loads(json.dumps(node[place]))
    else:
        parent[key] = chance.choice(ODD)


ODD = [None, True, False, 0, 1, -1, 1.5, 2**53 - 1, "", "x", "0" * 64, [], {}, [1], {"a": 1}, "2026-02-30T00:00:00.000000Z",
       "0000-02-29T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z", "full", "revoked", "added", "set", "t_7f3k9q2m4x8w", ["0" * 64], "x" * 300]  # fmt: skip


# What the store can do: it has the keys.


def signing_key(label: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"onrecord test key: {label}".encode()).digest())


def keyid_of(key: Ed25519PrivateKey) -> str:
    return verify.sha256(key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hex()


SEALERS = {keyid_of(signing_key(label)): signing_key(label) for label in ("seal", "seal 2", "other seal")}


def resign(envelope: bytes, change: Callable[[Any], None]) -> bytes:
    """The envelope with its statement changed, signed by whom it was signed by."""
    outer = json.loads(envelope)
    statement = json.loads(base64.b64decode(outer["payload"]))
    keyid = outer["signatures"][0]["keyid"]
    change(statement)
    try:
        payload = rfc8785.dumps(statement)
    except rfc8785.CanonicalizationError:
        return envelope
    signed = b"DSSEv1 28 application/vnd.in-toto+json %d " % len(payload) + payload
    signature = SEALERS[keyid].sign(signed)
    outer["payload"] = base64.b64encode(payload).decode()
    outer["signatures"][0]["sig"] = base64.b64encode(signature).decode()
    return rfc8785.dumps(outer)


def finish(members: dict[str, bytes]) -> bytes:
    """Manifest and export made again, as the store would."""
    members = with_manifest(members)
    if "MANIFEST.sha256" in members and "export.dsse.json" in members:
        digest = verify.sha256(members["MANIFEST.sha256"]).hex()

        def subject(statement: Any) -> None:
            if isinstance(statement.get("subject"), list) and statement["subject"] and "digest" in statement["subject"][0]:
                statement["subject"][0]["digest"]["sha256"] = digest

        members["export.dsse.json"] = resign(members["export.dsse.json"], subject)
    return pack(members)


def store_frame(chance: random.Random, case: Case, data: bytes) -> bytes:
    """A frame is changed, the chain linked again, the run sealed again; turns are not counted again."""
    members = unpack(data)
    frames = [json.loads(line) for line in members["frames.ndjson"].splitlines()]
    at = chance.randrange(len(frames))
    if chance.random() < 0.8:
        mutate(chance, frames[at])
    elif chance.random() < 0.5:
        del frames[at]
    else:
        frames.insert(chance.randrange(len(frames)), frames[at])
    renumber, hashes, lines, turn = chance.random() < 0.8, list[bytes](), list[bytes](), list[bytes]()
    for frame in frames:
        if isinstance(frame, dict):
            if hashes and renumber and "prev" in frame:
                frame["prev"] = hashes[-1].hex()
            if renumber and frame.get("kind") == "turn_end" and isinstance(frame.get("body"), dict) and chance.random() < 0.9:
                frame["body"].update({k: v for k, v in (("count", len(turn)), ("root", verify.merkle_root(turn).hex())) if k in frame["body"]})
        try:
            lines.append(rfc8785.dumps(frame))
        except rfc8785.CanonicalizationError:
            return data
        hashes.append(verify.leaf_hash(lines[-1]))
        if isinstance(frame, dict):
            turn = [] if frame.get("kind") == "turn_end" else turn + ([hashes[-1]] if "turn" in frame else [])
    members["frames.ndjson"] = b"".join(line + b"\n" for line in lines)
    if "seal.dsse.json" in members:

        def state(statement: Any) -> None:
            said = statement["predicate"]
            said.update(size=len(lines), head=hashes[-1].hex(), root=verify.merkle_root(hashes).hex())
            statement["subject"][0]["digest"]["sha256"] = verify.sha256(members["frames.ndjson"]).hex()
            kinds = Counter(f["kind"] for f in frames if isinstance(f, dict) and isinstance(f.get("kind"), str))
            said["kinds"] = dict(kinds)

        members["seal.dsse.json"] = resign(members["seal.dsse.json"], state)
    return finish(members)


def store_seal(chance: random.Random, case: Case, data: bytes) -> bytes:
    members = unpack(data)
    if "seal.dsse.json" in members:
        members["seal.dsse.json"] = resign(members["seal.dsse.json"], lambda s: mutate(chance, s))
    return finish(members)


def store_export(chance: random.Random, case: Case, data: bytes) -> bytes:
    members = unpack(data)
    if "export.dsse.json" in members:
        members["export.dsse.json"] = resign(members["export.dsse.json"], lambda s: mutate(chance, s))
    return pack(members)


def store_ledger(chance: random.Random, case: Case, data: bytes) -> bytes:
    """All statements of the bundle stand in a ledger made anew, one of them changed or in another place."""
    members = unpack(data)
    lines = [json.loads(line) for line in members["ledger.ndjson"].splitlines()]
    placed = [[index_of(line["proof"].encode()), line["entry"].encode()] for line in lines]
    sealed = "seal.dsse.json" in members and "seal.tlog-proof" in members
    if sealed:
        placed.append([index_of(members["seal.tlog-proof"]), members["seal.dsse.json"]])
    victim = chance.choice(placed)
    if chance.random() < 0.7:
        victim[1] = resign(victim[1], lambda s: mutate(chance, s))
    else:
        victim[0] = max(0, victim[0] + chance.choice([-2, -1, 1, 2, 5]))
    size = max(index for index, _ in placed) + 1 + chance.randrange(2)
    entries = [b"another %d" % i for i in range(size)]
    for index, entry in placed:
        entries[index] = entry
    own = Ledger(json.loads(members["frames.ndjson"].splitlines()[0])["body"]["ledger"], entries, signed_at(members))
    if sealed:
        index, members["seal.dsse.json"] = placed.pop()
        members["seal.tlog-proof"] = own.proof(index)
    if chance.random() < 0.3:
        placed.sort(key=lambda pair: pair[0])
    text = [rfc8785.dumps({"entry": entry.decode(), "proof": own.proof(index).decode()}) for index, entry in placed]
    members["ledger.ndjson"] = b"".join(line + b"\n" for line in text)
    return finish(members)


def index_of(proof: bytes) -> int:
    return int(proof.splitlines()[1].split()[1])


def signed_at(members: dict[str, bytes]) -> int:
    """A time of witnesses that suits the seal: that which stands in its proof."""
    proof = members.get("seal.tlog-proof")
    if proof is None:
        return 1_786_270_000
    signed = base64.b64decode(proof.splitlines()[-1].split(b" ")[2])
    return int.from_bytes(signed[4:12], "big")


def ledger_entry(chance: random.Random, case: Case, data: bytes) -> bytes:
    entries = entries_of(data)
    at = chance.randrange(len(entries))
    entries[at] = resign(entries[at], lambda s: mutate(chance, s))
    return Ledger("evidence.example/t/9d2v6c1p8h4z", entries, 1_786_271_872).tar()


def ledger_order(chance: random.Random, case: Case, data: bytes) -> bytes:
    entries = entries_of(data)
    at, other = chance.randrange(len(entries)), chance.randrange(len(entries))
    edit = chance.randrange(4)
    if edit == 0:
        entries.insert(other, entries[at])
    elif edit == 1:
        entries[at], entries[other] = entries[other], entries[at]
    elif edit == 2:
        del entries[at]
    else:
        entries = entries[:at]
    return Ledger("evidence.example/t/9d2v6c1p8h4z", entries, 1_786_271_872).tar()


def entries_of(data: bytes) -> list[bytes]:
    return [e for name, body in unpack(data).items() if name.startswith("tile/entries") for e in verify.split_entries(body)]


class Ledger:
    """A ledger of any entries, with checkpoint, proofs and tiles by the keys of the vectors."""

    def __init__(self, origin: str, entries: list[bytes], time: int) -> None:
        self.origin, self.entries, self.time = origin, entries, time
        self.leaves = [verify.leaf_hash(entry) for entry in entries]

    def checkpoint(self) -> bytes:
        root = base64.b64encode(verify.merkle_root(self.leaves)).decode()
        text = f"{self.origin}\n{len(self.entries)}\n{root}\n".encode()
        keys = json.loads((VECTORS / "keys.json").read_bytes())
        log = "log" if self.origin.endswith("9d2v6c1p8h4z") else "other log"
        lines = [(self.origin, signing_key(log).sign(text))]
        for number in (1, 2):
            message = b"cosignature/v1\ntime %d\n" % self.time + text
            lines.append((f"witness.example/w{number}", self.time.to_bytes(8, "big") + signing_key(f"witness {number}").sign(message)))
        signed = [f"— {name} {base64.b64encode(bytes.fromhex(keys[name].split('+')[1]) + s).decode()}\n" for name, s in lines]
        return text + b"\n" + "".join(signed).encode()

    def proof(self, index: int) -> bytes:
        path = [base64.b64encode(node).decode() + "\n" for node in inclusion_path(self.leaves, index)]
        return f"c2sp.org/tlog-proof@v1\nindex {index}\n{''.join(path)}\n".encode() + self.checkpoint()

    def tar(self) -> bytes:
        plan, members = list(verify.tiles(len(self.entries))), {"checkpoint": self.checkpoint()}
        for level, name, width in plan:
            start = int(name.split(".")[0].replace("x", "").replace("/", "")) * 256
            step = 256**level
            nodes = [verify.merkle_root(self.leaves[i * step : (i + 1) * step]) for i in range(start, start + width)]
            members[f"tile/{level}/{name}"] = b"".join(nodes)
        for level, name, width in plan:
            if level == 0:
                start = int(name.split(".")[0].replace("x", "").replace("/", "")) * 256
                some = self.entries[start : start + width]
                members[f"tile/entries/{name}"] = b"".join(len(e).to_bytes(2, "big") + e for e in some)
        return pack(members)


def inclusion_path(leaves: list[bytes], index: int) -> list[bytes]:
    """RFC 9162, 2.1.3.1."""
    if len(leaves) <= 1:
        return []
    k = 1 << (len(leaves) - 1).bit_length() - 1
    if index < k:
        return [*inclusion_path(leaves[:k], index), verify.merkle_root(leaves[k:])]
    return [*inclusion_path(leaves[k:], index - k), verify.merkle_root(leaves[:k])]


# Archives.


def unpack(data: bytes) -> dict[str, bytes]:
    return dict(verify.tar_members(data))


def pack(members: dict[str, bytes]) -> bytes:
    blocks = [verify.tar_header(n.encode(), len(b)) + b + bytes(-len(b) % 512) for n, b in members.items()]
    return b"".join(blocks) + bytes(1024)


def with_manifest(members: dict[str, bytes]) -> dict[str, bytes]:
    if "MANIFEST.sha256" not in members:
        return members
    before = [n for n in members if n not in ("MANIFEST.sha256", "export.dsse.json")]
    text = "".join(f"{verify.sha256(members[n]).hex()}  {n}\n" for n in before)
    return {**members, "MANIFEST.sha256": text.encode()}


if __name__ == "__main__":
    sys.exit(main())
