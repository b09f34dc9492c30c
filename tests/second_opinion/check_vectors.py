#!/usr/bin/env python3
"""Holds verify.py against every file of tests/vectors/ and says where it differs: exit code 1 if anywhere."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import verify

VECTORS = Path(__file__).parent.parent / "vectors"


def main() -> int:
    failed = 0
    for check in (archives, json_texts, numbers, frames, statements, trees, payloads, fingerprints, signatures):
        differences = list(check())
        failed += len(differences)
        print(f"{check.__name__}: {'ok' if not differences else 'DIFFERS'}")
        for difference in differences:
            print(f"  {difference}")
    return 1 if failed else 0


def archives() -> Iterator[str]:
    """Good and tampered bundles, turn proofs and ledgers."""
    for folder in (VECTORS, VECTORS / "tampered"):
        for case in load(folder / "expected.json"):
            trust = case.get("trust", "trust.txt")
            args = iter(case.get("args", []))
            given = {a[2:]: True if a == "--full" else VECTORS / next(args) for a in args}
            report = verify.verify_files(
                folder / case["file"],
                VECTORS / trust if trust else None,
                given.get("ledger"),
                given.get("receipts"),
                "full" in given,
            )
            expected = {key: case[key] for key in ("exit_code", "code", "first_bad_seq") if key in case}
            if report.verdict() != expected:
                yield f"{case['attack']} {case['file']} {case.get('args', '')}: {report.verdict()}, expected {expected}"


def json_texts() -> Iterator[str]:
    cases = load(VECTORS / "json/cases.json")
    for name, digest in cases["valid"].items():
        raw = (VECTORS / f"json/valid/{name}.in").read_bytes()
        canonical = rfc8785.dumps(verify.parse_json(raw, verify.FRAME))
        if canonical != (VECTORS / f"json/valid/{name}.out").read_bytes() or verify.leaf_hash(canonical).hex() != digest:
            yield name
    for name, reason in cases["invalid"].items():
        found = json_reason((VECTORS / f"json/invalid/{name}.in").read_bytes())
        if found != reason:
            yield f"{name}: {found}, expected {reason}"


def json_reason(raw: bytes) -> str | None:
    try:
        verify.parse_json(raw, verify.FRAME)
    except verify.NotJson as refused:
        return str(refused)
    return None


def numbers() -> Iterator[str]:
    for line in (VECTORS / "json/numbers.tsv").read_text().splitlines():
        spelling, expected = line.split("\t")
        raw = b'{"a":%s}' % spelling.encode()
        reason = json_reason(raw)
        found = f"!{reason}" if reason else rfc8785.dumps(verify.parse_json(raw, verify.FRAME))[5:-1].decode()
        if found != expected:
            yield f"{spelling[:40]}: {found}, expected {expected}"


def frames() -> Iterator[str]:
    for case in load(VECTORS / "frames/invalid.json"):
        chain, found = verify.Chain(), (None, None)
        try:
            for line in case["frames"]:
                chain.place(line.encode())
        except verify.Fault as fault:
            found = (fault.code, fault.seq)
        if found != (case["code"], case["first_bad_seq"]) or len(chain.frames) != len(case["frames"]) - 1:
            yield f"{case['name']}: {found}, expected {case['code']}, {case['first_bad_seq']}"


def statements() -> Iterator[str]:
    trust = verify.Trust.parse((VECTORS / "trust.txt").read_bytes())
    for case in load(VECTORS / "statements/invalid.json"):
        report = verify.Report()
        verify.check_seal(case["envelope"].encode(), trust, report)
        if report.verdict()["code"] != case["code"]:
            yield f"{case['name']}: {report.verdict()}, expected {case['code']}"
    for case in load(VECTORS / "statements/entries.json"):
        report = verify.Report()
        verify.read_entry(case["envelope"].encode(), "evidence.example/t/9d2v6c1p8h4z", trust, report)
        if report.verdict()["code"] != case.get("code", "verified"):
            yield f"{case['name']}: {report.verdict()}, expected {case.get('code')}"


def trees() -> Iterator[str]:
    leaves = [verify.leaf_hash(b"%d" % i) for i in range(2048)]
    for line in (VECTORS / "merkle/proofs.ndjson").read_text().splitlines():
        case = json.loads(line)
        path = [bytes.fromhex(node) for node in case.get("path", [])]
        if "root" in case:
            good = verify.merkle_root(leaves[: case["size"]]).hex() == case["root"]
        elif "index" in case:
            root = verify.merkle_root(leaves[: case["size"]])
            good = verify.inclusion_root(leaves[case["index"]], case["index"], case["size"], path) == root
        else:
            first, second = case["first"], case["second"]
            roots = verify.merkle_root(leaves[:first]), verify.merkle_root(leaves[:second])
            good = consistent(first, second, path, *roots)
        if not good:
            yield line
    for case in load(VECTORS / "merkle/invalid.json"):
        path = [bytes.fromhex(node) for node in case["path"]]
        if "index" in case:
            root = verify.inclusion_root(bytes.fromhex(case["leaf"]), case["index"], case["size"], path)
            good = root is not None and root.hex() == case["root"]
        else:
            good = consistent(
                case["first"], case["second"], path, bytes.fromhex(case["old"]), bytes.fromhex(case["new"])
            )
        if good:
            yield f"{case['name']}: taken, expected to be refused"


def consistent(first: int, second: int, path: list[bytes], old: bytes, new: bytes) -> bool:
    """RFC 9162, 2.1.4.2: whether the tree of `first` leaves is the beginning of that of `second`."""
    if first > second:
        return False
    if first == 0 or first == second:
        return not path and old == (verify.sha256(b"") if first == 0 else new)
    nodes = [old, *path] if first & (first - 1) == 0 else list(path)
    if not nodes:
        return False
    at, last = first - 1, second - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    left = right = nodes[0]
    for node in nodes[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            left, right = verify.node_hash(node, left), verify.node_hash(node, right)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            right = verify.node_hash(right, node)
        at, last = at >> 1, last >> 1
    return last == 0 and left == old and right == new


def hkdf(ikm: bytes, info: bytes, length: int) -> bytes:
    """HKDF-SHA256 of an empty salt, up to two blocks."""
    prk = hmac.digest(bytes(32), ikm, "sha256")
    first = hmac.digest(prk, info + b"\1", "sha256")
    return (first + hmac.digest(prk, first + info + b"\2", "sha256"))[:length]


def sealed_by(case: dict[str, Any], commit: bytes) -> tuple[AESGCM, bytes, bytes]:
    """Cipher, nonce and aad of a payload."""
    key = hkdf(bytes.fromhex(case["dek"]), b"onrecord/key/1\n" + commit, 44)
    aad = f"onrecord/aad/1\n{case['tenant']}\n{case['run']}\n{commit.hex()}\n{case['media']}".encode()
    return AESGCM(key[:32]), key[32:], aad


def payloads() -> Iterator[str]:
    cases = load(VECTORS / "payload/payloads.json")
    for case in cases["payloads"]:
        payload = bytes.fromhex(case["payload"]) if "payload" in case else bytes(i % 251 for i in range(case["length"]))
        salt = hkdf(bytes.fromhex(case["dek"]), b"onrecord/salt/1\n", 32)
        commit = verify.sha256(b"onrecord/payload/1\n" + salt + payload)
        cipher, nonce, aad = sealed_by(case, commit)
        size = verify.padded(len(payload))
        ciphertext = cipher.encrypt(nonce, (payload + b"\x80").ljust(size, b"\0"), aad)
        found = (salt.hex(), commit.hex(), size, hashlib.sha256(ciphertext).hexdigest())
        if found != (case["salt"], case["commit"], case["size"], case["ciphertext_sha256"]):
            yield f"{case['name']}: {found}"
    for case in cases["invalid"]:
        if opens(case):
            yield f"{case['name']}: opens, expected to be refused"


def opens(case: dict[str, Any]) -> bool:
    commit = bytes.fromhex(case["commit"])
    cipher, nonce, aad = sealed_by(case, commit)
    try:
        text = cipher.decrypt(nonce, bytes.fromhex(case["ciphertext"]), aad)
    except (InvalidTag, ValueError):
        return False
    payload, mark, zeros = text.rpartition(b"\x80")
    salt = hkdf(bytes.fromhex(case["dek"]), b"onrecord/salt/1\n", 32)
    whole = mark and not any(zeros) and len(text) == verify.padded(len(payload))
    return bool(whole) and verify.sha256(b"onrecord/payload/1\n" + salt + payload) == commit


def fingerprints() -> Iterator[str]:
    for case in load(VECTORS / "payload/payloads.json")["fingerprints"]:
        key = hkdf(bytes.fromhex(case["key"]), b"onrecord/fingerprint/1\n" + case["run"].encode(), 32)
        if hmac.digest(key, case["secret"].encode(), "sha256").hex() != case["fingerprint"]:
            yield case["secret"]


def signatures() -> Iterator[str]:
    for case in load(VECTORS / "ed25519.json"):
        key, signature, message = (bytes.fromhex(case[part]) for part in ("public", "signature", "message"))
        if verify.ed25519_verify(key, signature, message) != case["valid"]:
            yield f"case {case['case']}: {case['note']}"


def load(path: Path) -> Any:
    return json.loads(path.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
