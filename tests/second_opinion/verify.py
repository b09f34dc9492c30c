#!/usr/bin/env python3
"""A second verifier of the evidence format, suite `onrecord-v1`: of a run bundle, a turn proof or a whole ledger.

    verify.py [--trust FILE] [--ledger FILE] [--receipts FILE] [--full] FILE

Written from `docs/spec/` and the vectors, and from none of the Rust code, so that where the two agree it is because
the pages say so. It prints a line of JSON: `exit_code`, the `code` of the first failed check of the gravest status,
`first_bad_seq` where a frame shows it, and all `faults`. It holds whole files in memory, finds no trust file by itself,
and says nothing about meaning. Names, numbers and order of the checks are those of `docs/spec/verification.md`.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

Json = dict[str, Any]
Members = dict[str, bytes]
SUITE, PREDICATES = "onrecord-v1", "https://onrecord.dev/attestation/"
FRAME, ENVELOPE, PROOF = 65_536, 65_535, 65_536  # the most bytes of each
LEDGER_LINE, DISCLOSURE_LINE, MANIFEST_LINE, TURN_PROOF, TRUST = 512 * 1024, 1024, 166, 256 * 1024**2, 1024**2
STATES = ("disclosed", "withheld", "erased", "missing", "not_kept")
KINDS = (
    "session turn turn_end tool_call tool_result model_call model_result gate_result observation decision side_effect"
    " context retrieval memory file_version snapshot outcome session_end"
).split()
STATUS = {"tar": 3, "input": 3, "usage": 3, **dict.fromkeys((
    "member_missing no_trust unsealed signer_unknown ledger_missing witness_quorum time_anchor open_missing"
    " ledger_behind payload_missing erasure_uncertified payload_withheld no_entries turn_open"
).split(), 2)}

class Fault(Exception):
    """A check that failed. `seq` is the frame that shows it; the status follows from the code."""
    def __init__(self, code: str, seq: int | None = None, status: int | None = None) -> None:
        super().__init__(code)
        self.code, self.seq, self.status = code, seq, status or STATUS.get(code, 1)

def check(holds: Any, code: str, seq: int | None = None) -> None:
    if not holds:
        raise Fault(code, seq)

@dataclass
class Report:
    """What was found, in the order of the checks."""
    faults: list[Fault] = field(default_factory=list)
    def fail(self, code: str, seq: int | None = None) -> None:
        self.faults.append(Fault(code, seq))
    def need_member(self, here: bool) -> None:
        """Part of check 1, wherever it is noticed."""
        self.faults[:0] = [] if here else [Fault("member_missing")]
    def attempt(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """What the step returns, or None and its fault in the report."""
        try:
            return step(*arguments)
        except Fault as fault:
            self.faults.append(fault)
            return None
    def holds(self, step: Callable[..., Any], *arguments: Any) -> bool:
        before = len(self.faults)
        self.attempt(step, *arguments)
        return len(self.faults) == before
    def verdict(self) -> Json:
        worst = min(self.faults, key=lambda fault: [3, 1, 2].index(fault.status), default=None)
        found = {"exit_code": worst.status, "code": worst.code} if worst else {"exit_code": 0, "code": "verified"}
        return {**found, "first_bad_seq": worst.seq} if worst and worst.seq is not None else found

def main() -> int:
    parser = argparse.ArgumentParser(description="A second verifier of onrecord evidence.")
    for option in ("--trust", "--ledger", "--receipts", "file"):
        parser.add_argument(option, type=Path)
    parser.add_argument("--full", action="store_true", help="a withheld payload is incomplete")
    report = verify_files(**vars(parser.parse_args()))
    faults = [{"code": fault.code, "status": fault.status, "seq": fault.seq} for fault in report.faults]
    print(json.dumps({**report.verdict(), "faults": faults}))
    return report.verdict()["exit_code"]

def verify_files(file: Path, trust: Path | None, ledger: Path | None, receipts: Path | None, full: bool) -> Report:
    report = Report()
    try:
        pinned = Trust.parse(trust.read_bytes()) if trust else Trust(given=False)
        rules = {"run": is_ulid, "seq": is_natural, "hash": is_hex, "at": is_time}
        lines = lines_of(receipts.read_bytes() if receipts else b"", "usage")
        kept = [canonical(line, FRAME, "usage", **rules) for line in lines]
        own, data = ledger.read_bytes() if ledger else None, file.read_bytes()
    except (OSError, Fault):
        report.fail("usage")
        return report
    # What it is is told by its content.
    report.attempt(check, data, "input")
    if data[:1] == b"{":
        report.attempt(verify_turn, data, pinned, full, report)
    elif data[:11] == b"checkpoint\0":
        report.attempt(verify_ledger, data, pinned, report)
    elif data:
        report.attempt(verify_bundle, data, pinned, own, kept, full, report)
    return report

# ---- Run bundle -------------------------------------------------------------------------------------------------
def verify_bundle(raw: bytes, trust: Trust, ledger: bytes | None, kept: list[Json], full: bool, report: Report) -> None:
    """The ten checks, in their order. What is unusable is looked for before all else, since it is gravest."""
    members = read_bundle(raw)
    own = Report()  # of check 7
    copy = Copy.open(ledger, trust, own) if ledger is not None else None
    # 1. Container. What the manifest misses is told in its place. What a seal lacks has words of its own.
    report.attempt(check, trust.given, "no_trust")
    for name in ("frames.ndjson", "ledger.ndjson", "disclosures.ndjson", "MANIFEST.sha256", "export.dsse.json"):
        report.need_member(name in members)
    # 2. Seal, 3. its proof.
    seal, proof, known = None, None, False
    if report.holds(check, "seal.dsse.json" in members, "unsealed"):
        seal, known = check_seal(members["seal.dsse.json"], trust, report)
    if seal and known:
        proof = check_seal_proof(seal, members.get("seal.tlog-proof"), trust, report)
    # 4. Frames, 5. the seal against them. After a fault there nothing else is held against them.
    run = Chain()
    if "frames.ndjson" in members:
        report.attempt(run.read, members["frames.ndjson"], "seal.dsse.json" in members)
    if any(fault.status == 1 for fault in report.faults):
        report.faults += own.faults
        return
    if seal and run.frames:
        report.attempt(check_seal_frames, seal, run)
    # 6. ledger.ndjson, 7. one's own copy.
    history = History(run, seal, proof, trust)
    history.read(members.get("ledger.ndjson", b""), report)
    report.faults += own.faults
    if copy:
        report.attempt(check_copy, copy, history)
    # 8. Receipts and agents, 9. payloads, 10. manifest and export.
    for receipt in kept:
        seq, hashes = receipt["seq"], run.hashes
        if run.frames and receipt["run"] == run.run and (seq >= len(hashes) or hashes[seq].hex() != receipt["hash"]):
            report.fail("receipt", seq)
    report.attempt(check_submitted, run.frames, trust, run.hashes[:1])
    states, disclosed = check_payloads(members, history, full, report)
    check_manifest(members, run, states, disclosed, trust, report)

GROUPS = (
    r"seal\.dsse\.json seal\.tlog-proof seal\.tsr keys/[0-9a-f]{64}\.pem keys/[0-9a-f]{8}\.vkey frames\.ndjson"
    r" ledger\.ndjson disclosures\.ndjson payloads/[0-9a-f]{64} MANIFEST\.sha256 export\.dsse\.json"
).split()

def read_bundle(data: bytes) -> Members:
    """All members, each once, in the one order that there is."""
    members, last = Members(), (-1, "")
    for name, members[name] in tar_members(data):
        before, last = last, (next((i for i, group in enumerate(GROUPS) if re.fullmatch(group, name)), -1), name)
        check(last > before, "tar")
    return members

def tar_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of each member of a ustar archive of the one allowed form."""
    at = 0
    while (header := data[at : at + 512]) != bytes(512):
        name, digits = header[:100].rstrip(b"\0"), header[124:135]
        check(re.fullmatch(rb"[\x21-\x7e]{1,100}", name) and re.fullmatch(rb"[0-7]{11}", digits), "tar")
        begin, end = at + 512, at + 512 + int(digits, 8)
        at = end + -end % 512
        check(header == tar_header(name, end - begin) and at <= len(data) and not any(data[end:at]), "tar")
        yield name.decode(), data[begin:end]
    check(data[at:] == bytes(1024), "tar")

def tar_header(name: bytes, size: int) -> bytes:
    def block(checksum: bytes) -> bytes:
        start = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + b"%011o\0" % size + b"0" * 11 + b"\0"
        return (start + checksum + b"0").ljust(257, b"\0") + b"ustar\x0000".ljust(255, b"\0")
    return block(b"%06o\0 " % sum(block(b" " * 8)))

def lines_of(data: bytes, code: str) -> Iterator[bytes]:
    """Lines without their line feeds; `code` where the last one has none."""
    *lines, rest = data.split(b"\n")
    yield from lines
    check(not rest, code)

# ---- Statements and the seal ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Statement:
    """An envelope that is well-formed, and what it says; whether it is signed is another question."""
    raw: bytes
    name: str  # NAME of the predicate
    predicate: Json
    subject: tuple[str, str]  # name, SHA-256
    sig: bytes
    signed: bytes  # the bytes under the signature
    keyid = property(lambda self: self.predicate["signer"]["keyid"])
    leaf = property(lambda self: leaf_hash(self.raw))
    @property
    def time(self) -> str:
        """Its time, or nothing where its name is not known, so that its members are not either."""
        known = self.name in PREDICATE_RULES
        return self.predicate["sealed_at" if self.name == "run-seal" else "at"] if known else ""
    @staticmethod
    def parse(raw: bytes) -> Statement:
        """The envelope and the statement's own form; members of the predicate come after the signature."""
        try:
            envelope = canonical(raw, ENVELOPE, "statement", payload=is_base64, payloadType=is_str, signatures=is_list)
            (signature,) = envelope["signatures"]
            payload = base64.b64decode(envelope["payload"])
            statement = canonical(payload, ENVELOPE, "statement")
            need(shape(statement, more=True, _type=is_str, predicateType=is_str, predicate=is_dict, subject=is_list))
            (subject,), predicate = statement["subject"], statement["predicate"]
            kind = re.fullmatch(re.escape(PREDICATES) + "(?s:(.*))/v1", statement["predicateType"])
            need(kind and envelope["payloadType"] == "application/vnd.in-toto+json")
            need(statement["_type"] == "https://in-toto.io/Statement/v1")
            need(shape(signature, keyid=is_hex, sig=base64_of(64)))
            need(shape(subject, name=is_str, digest=lambda value: shape(value, sha256=is_hex, more=True), more=True))
            need(shape(predicate, signer=is_dict, tenant=is_tenant, more=True))
            need(predicate["signer"].get("keyid") == signature["keyid"])
        except ValueError:
            raise Fault("statement") from None
        signed = b"DSSEv1 28 application/vnd.in-toto+json %d " % len(payload) + payload
        of = (subject["name"], subject["digest"]["sha256"])
        return Statement(raw, kind[1], predicate, of, base64.b64decode(signature["sig"]), signed)
    def check_signer(self, trust: Trust, origin: str | None, code: str) -> None:
        """Somebody pinned has to answer for it, in this tenant and ledger: `signer_unknown`, or `code`."""
        if not trust.given:
            return
        check(self.keyid in trust.seal_keys, "signer_unknown")
        (key, tenant, ledger, _), own = trust.seal_keys[self.keyid], self.predicate.get("ledger")
        own = own.get("origin") if isinstance(own, dict) else None
        origin = own if is_origin(own) else origin
        check(tenant == self.predicate["tenant"] and origin in (None, ledger), code)
        check(ed25519_verify(key, self.sig, self.signed), code)
    def check_members(self) -> None:
        """`suite`, then the members that a predicate of this name has to have, and its subject."""
        said = self.predicate
        check(said.get("suite") == SUITE, "suite")
        if self.name in PREDICATE_RULES:
            rules, subject = PREDICATE_RULES[self.name]
            check(shape(said, more=True, **rules) and subject(said, *self.subject), "statement")

def revokes(statement: Statement, keyid: str) -> bool:
    said = [statement.predicate.get(member) for member in ("action", "role", "keyid")]
    return statement.name == "key" and said == ["revoked", "seal", keyid]

def check_seal(raw: bytes, trust: Trust, report: Report) -> tuple[Statement | None, bool]:
    """Check 2: the seal, or None where it is not one; and whether it is not by a stranger."""
    seal = report.attempt(Statement.parse, raw)
    if seal is None:
        return None, False
    known = report.holds(seal.check_signer, trust, None, "seal_signature")
    good = report.holds(seal.check_members) and report.holds(check, seal.name == "run-seal", "statement")
    return (seal if good else None), known

def check_seal_proof(seal: Statement, raw: bytes | None, trust: Trust, report: Report) -> Proof | None:
    """Check 3."""
    report.attempt(check, raw is not None or not trust.asks_ledger, "ledger_missing")
    proof = report.attempt(Proof.parse, raw) if raw is not None else None
    if proof is None:
        return None
    report.faults += proof.faults(seal, seal.predicate["ledger"]["origin"], trust)
    if trust.logs and trust.anchor is not None:
        first, last = (since(seal.time) + timedelta(seconds=after) for after in (-300, trust.anchor))
        timely = {name for name, time in proof.note.cosigned(trust) if first <= since(time) <= last}
        report.attempt(check, trust.satisfied(timely), "time_anchor")
    return proof

def check_seal_frames(seal: Statement, run: Chain) -> None:
    """Check 5."""
    said, first, last = seal.predicate, run.frames[0], run.frames[-1]
    ours = (said["tenant"], said["run"], said["ledger"]["origin"])
    check(ours == (run.tenant, run.run, run.origin), "seal_scope")
    check(said["size"] == len(run.frames), "seal_size")
    check(said["head"] == run.hashes[-1].hex(), "seal_head")
    check(said["root"] == merkle_root(run.hashes).hex(), "seal_root")
    check(seal.subject[1] == sha256(run.file).hex(), "seal_subject")
    kinds = [frame["kind"] for frame in run.frames]
    outcomes = [frame["body"]["status"] for frame in run.frames if frame["kind"] == "outcome"]
    count, erased, missing = (said["payloads"][name] for name in ("count", "erased", "missing"))
    told = (said["run_no"], said["opened_at"], count, said["kinds"], said["outcome"])
    counted = {kind: kinds.count(kind) for kind in set(kinds)}
    check(told == (run.number, first["at"], len(run.payloads), counted, ["unknown", *outcomes][-1]), "seal_summary")
    check((said["completeness"] == "interrupted") == (last["kind"] != "session_end"), "seal_summary")
    check(said["sealed_at"] >= last["at"] and erased + missing <= count, "seal_summary")

# ---- Frames -----------------------------------------------------------------------------------------------------
@dataclass
class Chain:
    """Frames as far as they hold, and what may follow them. `alone` are those of one turn, without the others."""
    alone: bool = False
    file: bytes = b""
    frames: list[Json] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    payloads: dict[str, tuple[int, Json]] = field(default_factory=dict)  # by commitment: seq, payload
    keys: set[str] = field(default_factory=set)
    open_turn: int | None = None
    turns: int = 0
    in_turn: list[bytes] = field(default_factory=list)
    ended: bool = False
    tenant = property(lambda self: self.frames[0]["tenant"])
    run = property(lambda self: self.frames[0]["run"])
    number = property(lambda self: self.frames[0]["body"]["run_no"])
    origin = property(lambda self: self.frames[0]["body"]["ledger"] if self.frames else None)
    def read(self, data: bytes, sealed: bool) -> None:
        """Check 4."""
        self.file = data
        if not data:
            raise Fault("no_frames", None, 1 if sealed else 2)
        for line in lines_of(data, "frames_torn"):
            self.place(line)
    def place(self, line: bytes) -> None:
        """Reads the next frame and checks that it may stand here."""
        value, seq = self.read_one(line)
        before = self.frames[-1] if self.frames else None
        first, scope = before or value, ["tenant", "run", *(["turn"] if self.alone else [])]
        check(all(value.get(name) == first.get(name) for name in scope), "frame_scope", seq)
        next_seq = before["seq"] + 1 if before else 0
        check(value["seq"] >= next_seq if self.alone else value["seq"] == next_seq, "frame_seq", seq)
        if before is None and not self.alone:
            check(value["prev"] == genesis(value["tenant"], value["run"]).hex(), "frame_prev", 0)
        elif before and value["seq"] == next_seq:
            check(value["prev"] == self.hashes[-1].hex(), "frame_prev", before["seq"])
        check(before is None or value["at"] >= before["at"], "frame_time", seq)
        check(self.fits(value) and self.turn_fits(value["kind"], value.get("turn")), "frame_structure", seq)
        leaf = leaf_hash(line)
        if value["kind"] == "turn_end":
            body = {"count": len(self.in_turn), "root": merkle_root(self.in_turn).hex()}
            check(rfc8785.dumps(value["body"]) == rfc8785.dumps(body), "turn_root", seq)
            self.open_turn = None
        elif "turn" in value:
            self.in_turn.append(leaf)
        self.frames.append(value)
        self.hashes.append(leaf)
        self.keys.add(value["key"])
        self.payloads.update((payload["commit"], (value["seq"], payload)) for payload in value.get("payloads", []))
        self.ended = value["kind"] == ("turn_end" if self.alone else "session_end")
    def read_one(self, line: bytes) -> tuple[Json, int | None]:
        """The rules that one frame alone can break, and the number by which its faults are told."""
        seq = self.frames[-1]["seq"] + 1 if self.frames else None if self.alone else 0
        try:
            value = parse_json(line, FRAME)
        except NotJson:
            raise Fault("frame_json", seq) from None
        check(rfc8785.dumps(value) == line, "frame_canonical", seq)
        body = value.get("body")
        suite = body.get("suite") if isinstance(body, dict) else None
        check(value.get("onrecord") == "frame/1" and (value.get("kind") != "session" or suite == SUITE), "suite", seq)
        good = shape(value, **FRAME_RULES) and shape(body, more=True, **BODY_RULES.get(value["kind"], {}))
        check(good, "frame_shape", seq)
        return value, value["seq"] if self.alone else seq
    def fits(self, value: Json) -> bool:
        """`frame_structure`: what needs the neighbours, turns aside."""
        submitted, payloads, seq = value.get("submitted"), value.get("payloads", []), value["seq"]
        names, commits = {p["name"] for p in payloads}, {p["commit"] for p in payloads}
        keyid = submitted["keyid"] if submitted else None
        new = value["key"] not in self.keys and not commits & self.payloads.keys()
        return (
            not self.ended and (value["kind"] == "session") == (seq == 0)
            and keyid == value["actor"].get("keyid") and not (submitted and seq == 0)
            and new and len(names) == len(commits) == len(payloads)
            and all(link.get("seq", -1) < seq for link in value.get("links", []))
        )
    def turn_fits(self, kind: str, turn: int | None) -> bool:
        if kind in ("session", "session_end"):
            return turn is None and self.open_turn is None
        if kind != "turn":
            return turn == self.open_turn if turn is not None else kind != "turn_end"
        if turn is None or self.open_turn is not None or not (self.alone or turn == self.turns + 1):
            return False
        self.open_turn, self.turns, self.in_turn = turn, turn, []
        return True
    def agrees(self, statement: Statement, file: bool = True) -> bool:
        """Whether a statement's STATE is that of these frames; its digest of the file where that can be done."""
        said = statement.predicate
        size, hashes = said["size"], self.hashes[: said["size"]]
        if not self.frames:
            return True
        if not 0 < size <= len(hashes) or (said["head"], said["root"]) != (hashes[-1].hex(), merkle_root(hashes).hex()):
            return False
        text = {1: self.file.partition(b"\n")[0] + b"\n", len(self.frames): self.file}.get(size)
        return statement.name == "erasure" or not file or text is None or statement.subject[1] == sha256(text).hex()

def check_submitted(frames: list[Json], trust: Trust, opening: list[bytes]) -> None:
    """Check 8: agents' signatures. Without `opening`, the hash of frame 0, counting begins anywhere and has gaps."""
    pinned = {actor for actor, _ in trust.agent_keys.values()}
    last: dict[str, int] = {}
    for value in frames:
        submitted, actor, seq = value.get("submitted"), value["actor"]["id"], value["seq"]
        signs = value["actor"]["type"] == "agent" and actor in pinned
        if submitted is None:
            check(not signs or value["kind"] == "session", "submitted", seq)
            continue
        keyid, n = submitted["keyid"], submitted["n"]
        before, last[keyid] = last.get(keyid, 0), n
        check(n == before + 1 if opening else n > before, "submitted", seq)
        owner, key = trust.agent_keys.get(keyid, (None, b""))
        check(owner == (actor if signs else None), "submitted", seq)
        if owner is None or (n == 1 and not opening):
            continue
        said = {name: member for name, member in value.items() if name not in ("seq", "prev", "at")}
        said["submitted"] = {"keyid": keyid, "n": n}
        start = b"onrecord/submitted/1\n" + (opening[0].hex().encode() + b"\n" if n == 1 else b"")
        signature = base64.b64decode(submitted["sig"])
        check(ed25519_verify(key, signature, start + rfc8785.dumps(said)), "submitted", seq)

# ---- Ledger: notes, proofs, entries -----------------------------------------------------------------------------
@dataclass(frozen=True)
class Note:
    """A checkpoint: the text that is signed, what it says, and its signature lines."""
    text: bytes
    origin: str
    size: int
    root: bytes
    signatures: list[tuple[str, bytes]]  # name; key id and signature
    @staticmethod
    def parse(raw: bytes) -> Note:
        try:
            note = raw.decode()
            need(len(raw) <= PROOF and note.endswith("\n") and not re.search(r"[\x00-\x09\x0b-\x1f]", note))
            text, _, rest = note.partition("\n\n")
            origin, size, root = text.split("\n")
            need(origin and base64_of(32)(root) and is_decimal(size))
            signatures = []
            for line in rest.split("\n")[:-1]:
                dash, name, signature = line.split(" ")
                need(dash == "—" and is_name(name) and is_base64(signature))
                signatures.append((name, base64.b64decode(signature)))
            need(1 <= len(signatures) <= 100 and all(len(signature) > 4 for _, signature in signatures))
        except ValueError:
            raise Fault("checkpoint") from None
        return Note((text + "\n").encode(), origin, int(size), base64.b64decode(root), signatures)
    def faults(self, trust: Trust) -> Iterator[Fault]:
        """Signatures of the log and of witnesses. Without `log` lines nobody is asked."""
        if trust.logs and self.origin not in trust.logs:
            yield Fault("signer_unknown")
        elif trust.logs:
            own = [(log.key, signature) for log in trust.logs[self.origin] for signature in self.by(log)]
            if not own or not all(ed25519_verify(key, signature, self.text) for key, signature in own):
                yield Fault("checkpoint_signature")
        for witness in trust.witnesses.values() if trust.logs else ():
            if not all(self.cosigns(witness, sig) for sig in self.by(witness)):
                yield Fault("cosignature")
    def by(self, key: VerifierKey) -> Iterator[bytes]:
        return (signature[4:] for name, signature in self.signatures if (name, signature[:4]) == (key.name, key.id))
    def cosigns(self, witness: VerifierKey, signature: bytes) -> bool:
        time = int.from_bytes(signature[:8], "big")
        signed = b"cosignature/v1\ntime %d\n" % time + self.text
        return time < 2**63 and ed25519_verify(witness.key, signature[8:], signed)
    def cosigned(self, trust: Trust) -> list[tuple[str, int]]:
        """The witnesses' names in the trust file and their times in seconds."""
        signed = ((name, witness, sig) for name, witness in trust.witnesses.items() for sig in self.by(witness))
        return [(name, int.from_bytes(sig[:8], "big")) for name, witness, sig in signed if self.cosigns(witness, sig)]
    def quorum_fault(self, trust: Trust) -> Iterator[Fault]:
        if trust.logs and not trust.satisfied({name for name, _ in self.cosigned(trust)}):
            yield Fault("witness_quorum")

@dataclass(frozen=True)
class Proof:
    """A `.tlog-proof`."""
    index: int
    path: list[bytes]
    note: Note
    @staticmethod
    def parse(raw: bytes) -> Proof:
        try:
            head, blank, checkpoint = raw.decode().partition("\n\n")
            magic, *lines = head.split("\n")
            if lines and lines[0].startswith("extra "):
                need(len(lines[0]) > 6 and is_base64(lines.pop(0)[6:]))
            need(lines and len(raw) <= PROOF and blank and magic == "c2sp.org/tlog-proof@v1")
            word, number = lines[0].split(" ")
            need(word == "index" and is_decimal(number) and len(lines) <= 65 and all(map(base64_of(32), lines[1:])))
        except ValueError:
            raise Fault("proof") from None
        return Proof(int(number), [base64.b64decode(line) for line in lines[1:]], Note.parse(checkpoint.encode()))
    def faults(self, entry: Statement, origin: str | None, trust: Trust) -> Iterator[Fault]:
        """What is wrong with an entry's place in the ledger, in the order of check 3."""
        yield from self.note.faults(trust)
        if inclusion_root(entry.leaf, self.index, self.note.size, self.path) != self.note.root:
            yield Fault("ledger_inclusion")
        if origin not in (None, self.note.origin):
            yield Fault("checkpoint_origin")
        if entry.name == "run-seal":
            if entry.predicate["ledger"]["open_index"] >= self.index:
                yield Fault("ledger_order")
            if trust.ended(entry.keyid, self.index):
                yield Fault("key_revoked")
        yield from self.note.quorum_fault(trust)

@dataclass
class History:
    """What the ledger says about one run, by index, held against its seal and frames."""
    run: Chain
    seal: Statement | None
    proof: Proof | None  # the seal's
    trust: Trust
    entries: list[tuple[Proof, Statement]] = field(default_factory=list)
    opening: int | None = None
    head: int = 0  # frames of the last head
    roots: dict[int, bytes] = field(default_factory=dict)
    time: str = ""
    # The run's ledger, by its seal or else by frame 0.
    origin = property(lambda self: self.seal.predicate["ledger"]["origin"] if self.seal else self.run.origin)
    def read(self, data: bytes, report: Report) -> None:
        """Check 6: lines up to the first failure. Too few witnesses do not end the reading."""
        if self.proof:
            self.roots[self.proof.note.size] = self.proof.note.root
        def read() -> None:
            for line in lines_of(data, "malformed"):
                self.read_line(line, report)
            if self.opening is not None and self.seal:
                check(self.opening == self.seal.predicate["ledger"]["open_index"], "run_open")
        before, holds = len(report.faults), Holds()
        report.attempt(read)
        read_all = all(fault.code == "witness_quorum" for fault in report.faults[before:])
        ended = self.seal and self.proof and self.revoked(self.seal.keyid, self.proof.index)
        report.attempt(check, not ended, "key_revoked")
        report.attempt(check, not any([holds.broken_by(statement) for _, statement in self.entries]), "erasure_held")
        report.attempt(check, self.opening is not None or not (self.trust.asks_ledger and read_all), "open_missing")
    def read_line(self, line: bytes, report: Report) -> None:
        value = canonical(line, LEDGER_LINE, "malformed", entry=is_str, proof=is_str)
        statement = Statement.parse(value["entry"].encode())
        statement.check_signer(self.trust, self.origin, "ledger_statement")
        statement.check_members()
        proof = Proof.parse(value["proof"].encode())
        for fault in proof.faults(statement, self.origin, self.trust):
            if fault.code != "witness_quorum":
                raise fault
            report.faults.append(fault)
        check(self.roots.setdefault(proof.note.size, proof.note.root) == proof.note.root, "split_view")
        check(not self.entries or proof.index > self.entries[-1][0].index, "ledger_order")
        time, self.time = self.time, statement.time or self.time
        check(self.time >= time, "ledger_order")
        ended = self.trust.ended(statement.keyid, proof.index) or self.revoked(statement.keyid, proof.index)
        check(not ended, "key_revoked")
        self.check_beside_seal(statement, proof.index)
        if statement.name in PREDICATE_RULES:
            self.check_said(statement, proof.index)
        self.entries.append((proof, statement))
    def revoked(self, keyid: str, index: int) -> bool:
        return any(revokes(statement, keyid) and proof.index < index for proof, statement in self.entries)
    def check_beside_seal(self, statement: Statement, index: int) -> None:
        """The seal has its place among the lines, though it is none of them. Another one has a code of its own."""
        if self.seal and self.proof and statement.name != "run-seal":
            check(index != self.proof.index, "split_view")
            first, last = sorted([(index, statement.time), (self.proof.index, self.seal.time)])
            check(not statement.time or first[1] <= last[1], "ledger_order")
    def check_said(self, statement: Statement, index: int) -> None:
        said, name, run = statement.predicate, statement.name, self.run
        check(not run.frames or said["tenant"] == run.tenant, "malformed")
        if run.frames and said.get("run", run.run) != run.run and name in RUN_STATEMENTS:
            same_number = name == "run-open" and said["run_no"] == run.number
            raise Fault("second_open" if same_number else "malformed")
        if name == "run-seal" and self.seal:
            check(statement.raw == self.seal.raw and (not self.proof or self.proof.index == index), "second_seal")
        elif name == "run-open":
            check(self.opening is None, "second_open")
            check(self.head == 0, "ledger_order")
            self.opening = index
            check(not run.frames or said["run_no"] == run.number and run.agrees(statement), "run_open")
        elif name == "run-head":
            check(not self.proof or index < self.proof.index, "ledger_order")
            before, self.head = self.head, said["size"]
            check(self.head >= before, "run_head")
        if name in ("run-seal", "run-head", "erasure"):
            check(run.agrees(statement), "run_head")
    def certified(self, line: Json) -> bool:
        """Whether the entry that is named is a certificate of erasure that covers the payload."""
        for proof, statement in self.entries:
            if proof.index == line["index"] and statement.name == "erasure":
                said, tier = statement.predicate, line["payload"]["tier"]
                tiers = said.get("tiers", [said["tier"]] if "tier" in said else [])
                covered = tier in tiers or line["commit"] in said.get("commits", [])
                return covered and line["seq"] < said["size"]
        return False

@dataclass
class Holds:
    """Holds in force: matter, and the run, or None for the whole tenant."""
    active: set[tuple[str, str | None]] = field(default_factory=set)
    def broken_by(self, statement: Statement) -> bool:
        """Follows holds, and says whether this statement is an erasure while one of its run is in force."""
        said = statement.predicate
        if statement.name == "hold":
            (self.active.add if said["action"] == "set" else self.active.discard)((said["matter"], said.get("run")))
        return statement.name == "erasure" and any(run in (None, said["run"]) for _, run in self.active)

# ---- Whole ledger, and one's own copy of it ---------------------------------------------------------------------
def verify_ledger(data: bytes, trust: Trust, report: Report) -> None:
    report.attempt(check, trust.given, "no_trust")
    if copy := Copy.read(data, trust, report):
        ledger = Entries(copy.note.origin, trust)
        for index, raw in enumerate(copy.entries):
            if statement := read_entry(raw, copy.note.origin, trust, report):
                report.attempt(ledger.add, index, statement)
        report.faults += copy.note.quorum_fault(trust)

@dataclass
class Copy:
    """A whole ledger: its checkpoint and its entries as they are, and those that somebody pinned answers for."""
    note: Note
    entries: list[bytes]
    statements: list[tuple[int, Statement]] = field(default_factory=list)
    @staticmethod
    def read(data: bytes, trust: Trust, report: Report) -> Copy | None:
        """Checkpoint, root and tiles. Nothing is read by a size that nobody signed."""
        members = tar_members(data)
        name, body = next(members, ("", b""))
        check(name == "checkpoint", "tar")
        note = Note.parse(body)
        report.attempt(check, trust.logs or not trust.given, "signer_unknown")
        faults = list(note.faults(trust))
        report.faults += faults
        if any(fault.code == "checkpoint_signature" for fault in faults):
            return None
        report.attempt(check, note.size > 0, "no_entries")
        plan = list(tiles(note.size))
        names = [f"tile/{level}/{name}" for level, name, _ in plan]
        names += [f"tile/entries/{name}" for level, name, _ in plan if level == 0]
        found = dict(members)
        check(list(found) == names, "tar")
        entries = [entry for name in names if name.startswith("tile/e") for entry in split_entries(found[name])]
        hashes = [leaf_hash(entry) for entry in entries]
        report.attempt(check, len(entries) == note.size and merkle_root(hashes) == note.root, "ledger_root")
        for level in range(8):
            tile = b"".join(found[f"tile/{level}/{name}"] for of, name, _ in plan if of == level)
            report.attempt(check, tile == b"".join(hashes), "ledger_tile")
            hashes = [merkle_root(hashes[i : i + 256]) for i in range(0, len(hashes) - 255, 256)]
        return Copy(note, entries)
    @staticmethod
    def open(data: bytes, trust: Trust, report: Report) -> Copy | None:
        """One's own copy has to hang together itself. Its faults about other runs are not held against this one."""
        if copy := report.attempt(Copy.read, data, trust, report):
            report.faults += copy.note.quorum_fault(trust)
            answered = ((i, read_entry(e, copy.note.origin, trust, Report())) for i, e in enumerate(copy.entries))
            copy.statements = [(index, statement) for index, statement in answered if statement]
        return copy

def tiles(size: int) -> Iterator[tuple[int, str, int]]:
    """Level, name and width of each hash tile of a tree of this size."""
    for level in range(8):
        nodes = size >> 8 * level
        for index in range((nodes + 255) // 256):
            width = min(256, nodes - 256 * index)
            groups = [f"x{index // 1000**place % 1000:03}" for place in range(6, 0, -1) if index >= 1000**place]
            yield level, "/".join([*groups, f"{index % 1000:03}"]) + (f".p/{width}" if width < 256 else ""), width

def split_entries(tile: bytes) -> Iterator[bytes]:
    """The entries of a tile, each with its length before it. A tile that is cut short has other entries."""
    while tile:
        end = 2 + int.from_bytes(tile[:2], "big")
        yield tile[2:end]
        tile = tile[end:]

def read_entry(raw: bytes, origin: str, trust: Trust, report: Report) -> Statement | None:
    """The statement if somebody pinned answers for it. What is wrong with it is told either way."""
    if statement := report.attempt(Statement.parse, raw):
        answered = report.holds(statement.check_signer, trust, origin, "ledger_statement")
        return statement if report.holds(statement.check_members) and answered else None
    return None

@dataclass
class Entries:
    """The rules over all entries, in the order of the index."""
    origin: str
    trust: Trust
    tenant: str = ""
    time: str = ""
    revoked: set[str] = field(default_factory=set)
    runs: dict[str, SimpleNamespace] = field(default_factory=dict)  # index, number, size, root, sealed
    holds: Holds = field(default_factory=Holds)
    last_seal: dict[str, str] | None = None
    def add(self, index: int, statement: Statement) -> None:
        said, name = statement.predicate, statement.name
        self.tenant = self.tenant or said["tenant"]
        check(said["tenant"] == self.tenant, "ledger_statement")
        before, self.time = self.time, max(self.time, statement.time)
        check(not statement.time or statement.time >= before, "ledger_time")
        ended = statement.keyid in self.revoked or self.trust.ended(statement.keyid, index)
        check(not ended, "key_revoked")
        self.revoked |= {said["keyid"]} if revokes(statement, said.get("keyid", "")) else set()
        check(not self.holds.broken_by(statement), "erasure_held")
        if name == "run-open":
            known = {*self.runs, *(run.number for run in self.runs.values())}
            check(not known & {said["run"], said["run_no"]}, "second_open")
            opened = {"index": index, "number": said["run_no"], "size": 1, "root": said["root"], "sealed": False}
            self.runs[said["run"]] = SimpleNamespace(**opened)
            check(said["run_no"] == len(self.runs), "run_gap")
        elif name in ("run-head", "run-seal", "erasure"):
            check(said["run"] in self.runs, "run_gap")
            self.add_state(statement, self.runs[said["run"]])
    def add_state(self, statement: Statement, run: SimpleNamespace) -> None:
        said, name = statement.predicate, statement.name
        if name == "erasure":
            check(not run.sealed or (said["size"], said["root"]) == (run.size, run.root), "run_head")
            return
        check(not run.sealed, "second_seal" if name == "run-seal" else "ledger_order")
        check(said["size"] > run.size or (said["size"], said["root"]) == (run.size, run.root), "run_head")
        run.size, run.root, run.sealed = said["size"], said["root"], name == "run-seal"
        if name == "run-seal":
            check((said["ledger"]["open_index"], said["run_no"]) == (run.index, run.number), "run_open")
            check(said["ledger"]["origin"] == self.origin, "checkpoint_origin")
            check(said.get("previous") == self.last_seal, "previous_seal")
            self.last_seal = {"run": said["run"], "hash": statement.leaf.hex()}

def check_copy(copy: Copy, history: History) -> None:
    """Check 7."""
    run, seal, proof = history.run, history.seal, history.proof
    check(history.origin in (None, copy.note.origin), "checkpoint_origin")
    leaves = [leaf_hash(entry) for entry in copy.entries]
    for place, statement in history.entries + ([(proof, seal)] if seal and proof else []):
        check(leaves[place.index : place.index + 1] in ([], [statement.leaf]), "split_view")
        size = place.note.size
        check(size > len(leaves) or merkle_root(leaves[:size]) == place.note.root, "split_view")
    name = run.run if run.frames else seal.predicate["run"] if seal else None
    about = [s for _, s in copy.statements if s.name in RUN_STATEMENTS and s.predicate.get("run") == name]
    seals, heads, openings = ([s for s in about if s.name == f"run-{of}"] for of in ("seal", "head", "open"))
    check(not seal or all(s.raw == seal.raw for s in seals) and len(seals) < 2, "second_seal")
    check(all(run.agrees(s, file=False) for s in heads + ([] if seal else seals)), "run_head")
    check(all(s.predicate["head"] == run.hashes[0].hex() for s in openings if run.frames), "run_open")
    check(len(openings) < 2, "second_open")
    holds, rests_on = Holds(), {place.index for place, s in history.entries if s.name == "erasure"}
    check(not any([holds.broken_by(s) and index in rests_on for index, s in copy.statements]), "erasure_held")
    if seal and proof:
        check(not any(revokes(s, seal.keyid) and index < proof.index for index, s in copy.statements), "key_revoked")
    check(proof.index < copy.note.size if proof else seal or openings, "ledger_behind")

# ---- Payloads, manifest, export ---------------------------------------------------------------------------------
def check_payloads(members: Members, history: History, full: bool, report: Report) -> tuple[dict[str, int], set[str]]:
    """Check 9. Returns the number of payloads in each state, and the disclosed ones."""
    def read() -> Iterator[Json]:
        for raw in lines_of(members["disclosures.ndjson"], "disclosures"):
            line = canonical(raw, DISCLOSURE_LINE, "disclosures", **DISCLOSURE)
            yield {**line, "data": members.get(f"payloads/{line['commit']}")}
    known = "disclosures.ndjson" in members and "frames.ndjson" in members
    lines = report.attempt(read_disclosures, read(), history.run) if known else None
    if lines is None:
        return {}, set()
    check_states(lines, history, full, report)
    disclosed = {line["commit"] for line in lines if line["state"] == "disclosed"}
    report.attempt(check, all(name[9:] in disclosed for name in members if name.startswith("payloads/")), "disclosures")
    return {state: sum(line["state"] == state for line in lines) for state in STATES}, disclosed

def read_disclosures(lines: Iterator[Json], run: Chain) -> list[Json]:
    """One line for each payload, in their order, with the members of its state; and the payload beside it."""
    found, payloads = [], iter(run.payloads.items())
    for line in lines:
        extra = {"disclosed": {"salt"}, "erased": {"index"}}.get(line["state"], set())
        commit, (seq, payload) = next(payloads, ("", (0, {})))
        check(line.keys() - {"data"} == {"commit", "state"} | extra and line["commit"] == commit, "disclosures")
        check((line["state"] == "not_kept") == (payload.get("kept") is False), "disclosures", seq)
        found.append({**line, "seq": seq, "payload": payload})
    check(len(found) == len(run.payloads), "disclosures")
    return found

def check_states(lines: list[Json], history: History | None, full: bool, report: Report) -> None:
    """Each code is asked of all payloads before the next one. A turn proof has no history to look up certificates."""
    def opens(line: Json) -> bool:
        salted = b"onrecord/payload/1\n" + bytes.fromhex(line["salt"]) + line["data"]
        return sha256(salted).hex() == line["commit"] and padded(len(line["data"])) == line["payload"]["size"]
    def told(state: str) -> list[Json]:
        return [line for line in lines if line["state"] == state]
    here = [line for line in told("disclosed") if line["data"] is not None]
    missing = [line for line in lines if line["state"] == "missing" or line in told("disclosed") and line not in here]
    for code, bad in (
        ("payload_commit", (line for line in here if not opens(line))),
        ("payload_missing", missing),
        ("erasure_uncertified", (line for line in told("erased") if history and not history.certified(line))),
        ("payload_withheld", told("withheld") if full else []),
    ):
        for line in bad:
            report.fail(code, line["seq"])

def padded(length: int) -> int:
    step = 256 if length + 1 <= 65_536 else 4_096
    return -(-(length + 1) // step) * step

def check_manifest(
    members: Members, run: Chain, states: dict[str, int], disclosed: set[str], trust: Trust, report: Report
) -> None:
    """Check 10."""
    manifest, export = members.get("MANIFEST.sha256"), members.get("export.dsse.json")
    if manifest is not None:
        report.attempt(check_manifest_lines, manifest, members, disclosed, report)
    statement = report.attempt(Statement.parse, export) if export is not None else None
    if statement is None:
        return
    report.attempt(statement.check_signer, trust, run.origin, "export_signature")
    named = report.holds(check, statement.name == "export", "statement")
    if report.holds(statement.check_members) and named:
        said, digest = statement.predicate, statement.subject[1]
        report.attempt(check, manifest is None or digest == sha256(manifest).hex(), "manifest")
        here = not run.frames or (said["tenant"], said["run"]) == (run.tenant, run.run)
        report.attempt(check, here and all(said["payloads"][s] == count for s, count in states.items()), "export")

def check_manifest_lines(manifest: bytes, members: Members, disclosed: set[str], report: Report) -> None:
    """Every member before it, in its order. A name that is not here is missing, unless that was said in other words."""
    said = {"seal.dsse.json", *(f"payloads/{commit}" for commit in disclosed)}
    if any(fault.code in ("unsealed", "ledger_missing") for fault in report.faults):
        said.add("seal.tlog-proof")
    names = []
    for line in lines_of(manifest, "manifest"):
        match = re.fullmatch(rb"([0-9a-f]{64})  ([\x21-\x7e]+)", line)
        check(match and len(line) < MANIFEST_LINE, "manifest")
        name = match[2].decode()
        if name in members:
            names.append(name)
            check(sha256(members[name]).hex() == match[1].decode(), "manifest")
        report.need_member(name in members or name in said)
    check(names == [name for name in members if name not in ("MANIFEST.sha256", "export.dsse.json")], "manifest")

# ---- Turn proof -------------------------------------------------------------------------------------------------
def verify_turn(data: bytes, trust: Trust, full: bool, report: Report) -> None:
    """One turn shown alone."""
    value = canonical(
        data, TURN_PROOF, "input", onrecord=one_of("turn-proof/1"), frames=list_of(is_str, 1), path=list_of(is_hex),
        seal=is_str, proof=Maybe(is_str),
        disclosures=Maybe(list_of(lambda line: shape(line, data=Maybe(is_str), **DISCLOSURE))),
    )
    report.attempt(check, trust.given, "no_trust")
    seal, known = check_seal(value["seal"].encode(), trust, report)
    if seal and known:
        check_seal_proof(seal, value["proof"].encode() if "proof" in value else None, trust, report)
    chain = Chain(alone=True)
    if report.attempt(lambda: [chain.place(text.encode()) for text in value["frames"]]) is None or seal is None:
        return
    said, end = seal.predicate, chain.frames[-1]
    closed = report.holds(check, end["kind"] == "turn_end", "turn_open")
    report.attempt(check, (said["tenant"], said["run"]) == (chain.tenant, chain.run), "seal_scope")
    report.attempt(check_submitted, chain.frames, trust, [])
    root = inclusion_root(chain.hashes[-1], end["seq"], said["size"], [bytes.fromhex(node) for node in value["path"]])
    report.attempt(check, not closed or root == bytes.fromhex(said["root"]), "turn_inclusion", end["seq"])
    def disclosures() -> Iterator[Json]:
        for line in value["disclosures"]:
            has_its_own = (line["state"] == "disclosed") == ("data" in line)
            check(has_its_own and is_base64(line.get("data", "")), "disclosures")
            yield {**line, "data": base64.b64decode(line.get("data", ""))}
    if "disclosures" in value:
        lines = report.attempt(read_disclosures, disclosures(), chain)
    else:  # nothing but commitments is shown
        lines = [{"state": "withheld", "seq": seq} for seq, payload in chain.payloads.values() if "kept" not in payload]
    if lines is not None:
        check_states(lines, None, full, report)

# ---- Trust file -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class VerifierKey:
    """NAME+ID+BASE64: a type byte and a key of Ed25519."""
    name: str
    id: bytes
    key: bytes
    @staticmethod
    def parse(text: str, kind: int) -> VerifierKey:
        name, id, rest = text.split("+", 2)
        need(is_name(name) and base64_of(33)(rest))
        raw = base64.b64decode(rest)
        need(raw[0] == kind and sha256(name.encode() + b"\n" + raw)[:4].hex() == id and is_point(raw[1:]))
        return VerifierKey(name, bytes.fromhex(id), raw[1:])

@dataclass
class Trust:
    """Whose word counts: the lines of a trust file, or `given` False without one."""
    given: bool = True
    logs: dict[str, list[VerifierKey]] = field(default_factory=dict)  # by origin
    witnesses: dict[str, VerifierKey] = field(default_factory=dict)
    groups: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    quorum: str | None = None
    seal_keys: dict[str, tuple[bytes, str, str, float]] = field(default_factory=dict)  # key, tenant, origin, until
    agent_keys: dict[str, tuple[str, bytes]] = field(default_factory=dict)  # by key id: actor, key
    anchor: int | None = None
    # Whether proofs have to be there: not if there are no `log` lines. Without a file nothing is waived.
    asks_ledger = property(lambda self: bool(self.logs) or not self.given)
    @staticmethod
    def parse(data: bytes) -> Trust:
        trust = Trust()
        try:
            need(len(data) <= TRUST)
            for line in data.decode().split("\n"):
                parts = re.split(r"[ \t]+", line.strip(" \t\r"))
                if parts != [""] and not parts[0].startswith("#"):
                    trust.add(parts, line.strip(" \t\r"))
            need(trust.quorum is not None or not (trust.logs or trust.witnesses or trust.groups))
            need(trust.anchor is None or trust.quorum not in (None, "none"))
        except ValueError:
            raise Fault("usage") from None
        return trust
    def add(self, parts: list[str], line: str) -> None:
        match parts:
            case ["log", vkey, *url] if len(url) <= 1:
                key = VerifierKey.parse(vkey, 0x01)
                need(key not in self.logs.setdefault(key.name, []))
                self.logs[key.name].append(key)
            case ["witness", name, vkey, *url] if len(url) <= 1:
                key = VerifierKey.parse(vkey, 0x04)
                need(self.free(name) and key.key not in [witness.key for witness in self.witnesses.values()])
                self.witnesses[name] = key
            case ["group", name, count, *names]:
                need(self.free(name) and len(set(names)) == len(names) and not any(map(self.free, names)))
                needed = {"any": 1, "all": len(names)}.get(count) or int(is_decimal(count) and count)
                need(1 <= needed <= len(names) and "none" not in names)
                self.groups[name] = (needed, names)
            case ["quorum", name]:
                need(self.quorum is None and not self.free(name))
                self.quorum = name
            case ["seal-key", spki, tenant, origin, *until]:
                keyid, raw = read_spki(spki)
                need(is_tenant(tenant) and is_origin(origin) and keyid not in self.seal_keys | self.agent_keys)
                need(not until or (len(until) == 2 and until[0] == "until" and is_decimal(until[1])))
                self.seal_keys[keyid] = (raw, tenant, origin, int(until[1]) if until else float("inf"))
            case ["agent-key", spki, _, *_]:
                keyid, raw = read_spki(spki)
                actor = line.split(spki, 1)[1].strip(" \t")
                need(is_actor_id(actor) and keyid not in self.seal_keys | self.agent_keys)
                self.agent_keys[keyid] = (actor, raw)
            case ["time-anchor", number]:
                need(self.anchor is None and is_decimal(number))
                self.anchor = int(number)
            case _:
                raise ValueError(line)
    def free(self, name: str) -> bool:
        return name != "none" and name not in self.witnesses and name not in self.groups
    def satisfied(self, witnesses: set[str], name: str | None = None) -> bool:
        """Whether these witnesses, by their names here, are a quorum, or content for the group of this name."""
        name = name or self.quorum
        if name in self.groups:
            needed, members = self.groups[name]
            return sum(self.satisfied(witnesses, member) for member in members) >= needed
        return name in (None, "none") or name in witnesses
    def ended(self, keyid: str, index: int) -> bool:
        return keyid in self.seal_keys and index >= self.seal_keys[keyid][3]

def read_spki(text: str) -> tuple[str, bytes]:
    """Key id and raw key of an SPKI in DER, base64."""
    need(base64_of(44)(text))
    der = base64.b64decode(text)
    need(der[:12] == bytes.fromhex("302a300506032b6570032100") and is_point(der[12:]))
    return sha256(der).hex(), der[12:]

# ---- Shapes: what a member may be -------------------------------------------------------------------------------
Rule = Callable[[Any], bool]
@dataclass(frozen=True)
class Maybe:
    """A rule for a member that may be absent."""
    rule: Rule
    def __call__(self, value: Any) -> bool:
        return self.rule(value)

def need(condition: Any) -> None:
    """What a format asks for; the caller says under which name it is missed."""
    if not condition:
        raise ValueError

def shape(value: Any, /, more: bool = False, **rules: Rule) -> bool:
    """Whether an object has these members, and no others unless `more` says so."""
    if not isinstance(value, dict) or not (more or value.keys() <= rules.keys()):
        return False
    return all(rule(value[name]) if name in value else isinstance(rule, Maybe) for name, rule in rules.items())

def text(pattern: str) -> Rule:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None
def one_of(*words: str) -> Rule:
    return lambda value: isinstance(value, str) and value in words
def list_of(rule: Rule, least: int = 0) -> Rule:
    return lambda value: isinstance(value, list) and len(value) >= least and all(map(rule, value))
def object_of(more: bool = False, **rules: Rule) -> Rule:
    return lambda value: shape(value, more, **rules)

def is_base64(value: Any) -> bool:
    """Standard alphabet, padded, unused bits zero."""
    try:
        return isinstance(value, str) and base64.b64encode(base64.b64decode(value, validate=True)).decode() == value
    except ValueError:
        return False
def base64_of(length: int) -> Rule:
    return lambda value: is_base64(value) and len(base64.b64decode(value)) == length

def is_time(value: Any) -> bool:
    """`2026-08-09T11:00:03.750000Z`, of a day and hour that exist."""
    try:
        return text(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")(value) and bool(since(value))
    except ValueError:
        return False

def since(time: str | int) -> timedelta:
    """Time of a text or of seconds since 1970, counted from long before year 0, which Python's calendar has not."""
    if isinstance(time, int):
        return since("1970-01-01T00:00:00.000000Z") + timedelta(seconds=min(time, 10**12))
    year = int(time[:4])
    shifted = datetime.fromisoformat(f"{year % 400 + 2000}{time[4:-1]}")
    return shifted - datetime(1000, 1, 1) + timedelta(days=146_097) * (year // 400)

is_str: Rule = lambda value: isinstance(value, str)
is_dict: Rule = lambda value: isinstance(value, dict)
is_list: Rule = lambda value: isinstance(value, list)
is_natural: Rule = lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0
is_positive: Rule = lambda value: is_natural(value) and value > 0
is_tier: Rule = lambda value: is_natural(value) and value <= 3
is_hex = text("[0-9a-f]{64}")
is_tenant = text("t_[0-9a-z]{12,32}")
is_ulid = text("[0-7][0-9A-HJKMNP-TV-Z]{25}")
is_name = text(r"[^\s+\x00-\x1f]+")  # of a log or witness
is_origin = text(r"(?=.{1,255}$)[\x21-\x2a\x2c-\x7e]+/t/[\x21-\x2a\x2c-\x2e\x30-\x7e]+")
is_actor_id = text(r"[^\x00-\x1f\x7f-\x9f]{1,200}")
is_decimal: Rule = lambda value: text("0|[1-9][0-9]{0,19}")(value) and int(value) < 2**64
OUTCOMES = ("completed", "failed", "cancelled")
is_actor = object_of(
    type=one_of("agent", "human", "system", "tool", "verifier", "importer"), id=is_actor_id, keyid=Maybe(is_hex)
)
RELATIONS = one_of(*"derived_from observed_by selected_by caused verified_by replaced cancelled answers uses".split())
to_frame, to_other_run = object_of(rel=RELATIONS, seq=is_natural), object_of(rel=RELATIONS, run=is_ulid, hash=is_hex)
REDACTION: dict[str, Rule] = {
    "kind": is_str, "rule": is_str, "rules": is_str, "fingerprint": Maybe(is_hex),
    "pointer": Maybe(text(r"(?s)(/([^~/]|~[01])*)*")),
    "range": Maybe(lambda value: list_of(is_natural)(value) and len(value) == 2 and value[0] < value[1]),
}
is_redaction: Rule = lambda value: shape(value, **REDACTION) and ("pointer" in value) != ("range" in value)
is_payload = object_of(
    name=text("[a-z][a-z0-9_.-]{0,63}"), media=text(r"[\x20-\x7e]{1,127}"), commit=is_hex, tier=is_tier,
    size=lambda value: is_positive(value) and value % (256 if value <= 65_536 else 4_096) == 0,
    redactions=Maybe(list_of(is_redaction, 1)), kept=Maybe(lambda value: value is False),
)
FRAME_RULES: dict[str, Rule] = {
    "onrecord": is_str, "tenant": is_tenant, "run": is_ulid, "seq": is_natural, "prev": is_hex, "kind": one_of(*KINDS),
    "key": text(r"[\x20-\x7e]{1,200}"), "at": is_time, "occurred_at": Maybe(is_time), "turn": Maybe(is_positive),
    "actor": is_actor, "body": is_dict, "payloads": Maybe(list_of(is_payload, 1)),
    "links": Maybe(list_of(lambda value: to_frame(value) or to_other_run(value), 1)),
    "trace": Maybe(object_of(trace_id=text("(?!0{32})[0-9a-f]{32}"), span_id=text("(?!0{16})[0-9a-f]{16}"))),
    "submitted": Maybe(object_of(keyid=is_hex, n=is_positive, sig=base64_of(64))),
}
BODY_RULES = {
    "session": {"nonce": is_hex, "run_no": is_positive, "ledger": is_origin}, "outcome": {"status": one_of(*OUTCOMES)}
}
DISCLOSURE = {"commit": is_hex, "state": one_of(*STATES), "salt": Maybe(is_hex), "index": Maybe(is_natural)}
KEY_ROLES = one_of("seal", "agent", "ledger", "witness")
is_told = object_of(more=True, size=is_natural, root=Maybe(is_hex), told_by=is_str)
is_run_hash = object_of(more=True, run=is_ulid, hash=is_hex)
# Members of predicates, which mean the same in all of them but for those that are given below.
MEMBERS: dict[str, Rule] = {
    "run": is_ulid, "size": is_natural, "head": is_hex, "root": is_hex, "run_no": is_positive, "by": is_actor,
    "kinds": lambda value: is_dict(value) and all(k in KINDS and is_natural(n) for k, n in value.items()),
    "outcome": one_of(*OUTCOMES, "unknown"), "completeness": one_of("full", "sampled", "interrupted"),
    "ledger": object_of(more=True, origin=is_origin, open_index=is_natural), "previous": is_run_hash,
    "role": is_str, "keyid": is_hex, "spki": is_base64, "tier": is_tier, "commits": list_of(is_hex, 1), "with": is_actor,
    "tiers": lambda value: list_of(is_tier, 2)(value) and sorted(set(value)) == value,
    "count": is_natural, "entries": is_natural, "version": is_natural, "erasure": is_ulid,
    "decision": one_of("promoted", "rejected"), "evidence": list_of(is_run_hash), "scope": one_of("run"),
    **dict.fromkeys("matter method policy reason purpose release flag incident resource".split(), is_str),
    **dict.fromkeys("at opened_at sealed_at requested_at keys_destroyed_at removed_at".split(), is_time),
    **dict.fromkeys("final_at backups_dead_at".split(), is_time),
}
def counts(*names: str) -> Rule:
    return object_of(more=True, **dict.fromkeys(names, is_natural))
def members(names: str, **others: Rule) -> dict[str, Rule]:
    """Rules by the names of members, those with `?` optional."""
    rules = {name.rstrip("?"): others.get(name.rstrip("?"), MEMBERS.get(name.rstrip("?"))) for name in names.split()}
    return {name: Maybe(rule) if f"{name}?" in names.split() else rule for name, rule in rules.items() if rule}
def called(expected: str, size: Rule = lambda value: True) -> Callable[..., bool]:
    return lambda said, name, digest: name == expected and size(said.get("size"))
def of_run(said: Json, name: str, digest: str) -> bool:
    return (name, digest) == (said["run"], genesis(said["tenant"], said["run"]).hex())
def of_run_or_tenant(said: Json, name: str, digest: str) -> bool:
    tenant = said["tenant"]
    return of_run(said, name, digest) if "run" in said else (name, digest) == (tenant, sha256(tenant.encode()).hex())
def of_key(said: Json, name: str, digest: str) -> bool:
    return name == digest == said["keyid"] == sha256(base64.b64decode(said["spki"])).hex()
def of_run_and_one(*others: str) -> Callable[..., bool]:
    return lambda said, *subject: of_run(said, *subject) and sum(one in said for one in ("commits", *others)) == 1

RUN_STATEMENTS = "run-open run-head run-seal hold flag erasure access export".split()
STATE, always = "run size head root ", lambda *_: True
# By NAME: the members of a predicate besides those that all have, and what holds between it and its subject.
PREDICATE_RULES: dict[str, tuple[dict[str, Rule], Callable[..., bool]]] = {
    "run-open": (members(STATE + "run_no at"), called("frames.ndjson", lambda size: size == 1)),
    "run-head": (members(STATE + "at"), called("frames.ndjson", is_positive)),
    "run-seal": (members(
        STATE + "run_no opened_at sealed_at outcome completeness kinds payloads ledger previous?",
        payloads=counts("count", "erased", "missing"),
    ), called("frames.ndjson")),
    "key": (members("action role keyid spki at reason?", action=one_of("added", "revoked"), role=KEY_ROLES), of_key),
    "hold": (members("action matter reason? run? by with? at", action=one_of("set", "released")), of_run_or_tenant),
    "flag": (members("action flag incident? reason? run by at", action=one_of("set", "cleared")), of_run),
    "erasure": (members(STATE + "tier? tiers? commits? count method policy reason by at"), of_run_and_one("tier", "tiers")),
    "disposal": (members(
        "erasure scope count entries policy reason by at requested_at keys_destroyed_at? removed_at? final_at?"
        " backups_dead_at?", scope=one_of("payloads", "subject", "tier", "tenant", "expiry"),
    ), called("erasure-entries.txt")),
    "access": (members("run commits? scope? purpose role? by at"), of_run_and_one("scope")),
    "export": (members("run purpose by at payloads", payloads=counts(*STATES)), called("MANIFEST.sha256")),
    "policy": (members("policy version by at"), always),
    "query": (members("resource purpose by at"), called("query.json")),
    "release": (members("release decision evidence? by at"), always),
    "rewind": (members("published size root reason by at", published=list_of(is_told, 1)), of_run_or_tenant),
}

# ---- JSON: let in strictly, by the rules of json.md -------------------------------------------------------------
class NotJson(ValueError):
    """Why text was not let in, by the names of json.md. Of several faults it may be another than the first."""

def canonical(raw: bytes, limit: int, code: str, **rules: Rule) -> Json:
    """The object that these bytes spell canonically, with these members if there are rules; else `code`."""
    try:
        value = parse_json(raw, limit)
    except NotJson:
        raise Fault(code) from None
    check(rfc8785.dumps(value) == raw and (not rules or shape(value, **rules)), code)
    return value

def parse_json(raw: bytes, limit: int) -> Json:
    def refuse(reason: str) -> Any:
        raise NotJson(reason)
    def members(pairs: list[tuple[str, Any]]) -> Json:
        return dict(pairs) if len(dict(pairs)) == len(pairs) else refuse("duplicate_key")
    def integer(digits: str) -> int:
        return int(digits) if len(digits) <= 17 and abs(int(digits)) < 2**53 else refuse("integer_range")
    def fraction(digits: str) -> int | float:
        value = float(digits) if len(digits) <= FRAME else refuse("size")
        if abs(value) > 2**53 - 1:
            refuse("number_overflow" if value in (float("inf"), float("-inf")) else "integer_range")
        return int(value) if value.is_integer() else value
    if len(raw) > limit or raw.startswith(b"\xef\xbb\xbf"):
        refuse("size" if len(raw) > limit else "bom")
    hooks = {"parse_int": integer, "parse_float": fraction, "parse_constant": lambda _: refuse("syntax")}
    try:
        value = json.loads(raw.decode(), object_pairs_hook=members, **hooks)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        refuse({"UnicodeDecodeError": "utf8", "JSONDecodeError": "syntax"}.get(type(error).__name__, "depth"))
    if reason := unfit(value, 1):
        refuse(reason)
    if not isinstance(value, dict) or len(rfc8785.dumps(value)) > limit:
        refuse("size" if isinstance(value, dict) else "not_object")
    return value

# Noncharacters of all planes. Surrogates that found their other half are no longer two.
UNFIT = re.compile("[\ufdd0-\ufdef" + "".join(chr(p << 16 | 0xFFFE) + chr(p << 16 | 0xFFFF) for p in range(17)) + "]")
LONE = re.compile("[\ud800-\udfff]")

def unfit(value: Any, depth: int) -> str | None:
    """What Python's parser lets pass and we do not."""
    if isinstance(value, str):
        return "noncharacter" if UNFIT.search(value) else "lone_surrogate" if LONE.search(value) else None
    if depth > 32 and isinstance(value, (dict, list)):
        return "depth"
    inside = [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return next(filter(None, (unfit(item, depth + 1) for item in inside)), None)

# ---- Hashes, trees, signatures ----------------------------------------------------------------------------------
def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
def leaf_hash(data: bytes) -> bytes:
    return sha256(b"\0" + data)
def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right)
def genesis(tenant: str, run: str) -> bytes:
    return sha256(f"onrecord/genesis/1\n{tenant}\n{run}\n".encode())

def merkle_root(leaves: list[bytes]) -> bytes:
    """RFC 9162, 2.1.1: level by level, where one that is left over goes up as it is."""
    while len(leaves) > 1:
        pairs = [node_hash(leaves[i], leaves[i + 1]) for i in range(0, len(leaves) - 1, 2)]
        leaves = pairs + leaves[len(pairs) * 2 :]
    return leaves[0] if leaves else sha256(b"")

def inclusion_root(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes | None:
    """RFC 9162, 2.1.3.1, read backwards: the root that the path leads to, or None where its length is another."""
    if index >= size or (size == 1) != (not path):
        return None
    if size == 1:
        return leaf
    *rest, last = path
    k = 1 << (size - 1).bit_length() - 1
    below = inclusion_root(leaf, index, k, rest) if index < k else inclusion_root(leaf, index - k, size - k, rest)
    return below and (node_hash(below, last) if index < k else node_hash(last, below))

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
# All y of points of small order: 0, 1, -1, and those of order 8.
Y8 = 0x5FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
SMALL_ORDER = {0, 1, P - 1, Y8, P - Y8}

def y_of(point: bytes) -> int:
    return int.from_bytes(point, "little") % 2**255 % P
def is_point(key: bytes) -> bool:
    """Whether these bytes are a point of the curve, and none of small order."""
    y = y_of(key)
    return y not in SMALL_ORDER and pow((y * y - 1) * pow(D * y * y + 1, -1, P), (P - 1) // 2, P) == 1

def ed25519_verify(key: bytes, signature: bytes, message: bytes) -> bool:
    """Strictly. OpenSSL asks for a reduced scalar and for equality without cofactor; it does not ask whether
    the key and R are of small order, which is asked here."""
    if len(signature) != 64 or {y_of(key), y_of(signature[:32])} & SMALL_ORDER:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True

if __name__ == "__main__":
    sys.exit(main())
