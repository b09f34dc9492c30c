#!/usr/bin/env python3
"""What other people's programs say of our envelopes and trees: `judge.py FOLDER FRESH…`.

DSSE is judged by securesystemslib, the tree by pymerkle. For the judges that are no Python it writes into FOLDER
`envelopes.json` and, for each ledger, `N/` with its files, `vkeys`, and `proofs.json`. FRESH are folders that
`fresh.py` filled; the golden vectors are always among what is judged.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymerkle
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

sys.path.insert(0, str(Path(__file__).parent.parent))
import verify  # noqa: E402 - only to take archives apart

VECTORS = Path(__file__).parent.parent.parent / "vectors"


def main() -> int:
    out, fresh = Path(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]]
    out.mkdir(parents=True, exist_ok=True)
    envelopes: list[dict[str, str]] = []
    for number, folder in enumerate([VECTORS, *fresh]):
        keys = seal_keys(folder / "trust.txt")
        bundles = [unpack(file) for file in sorted(folder.glob("*.tar" if number else "*/run-*.tar")) if file.name != "ledger.tar"]
        ledger = unpack(folder / ("ledger.tar" if number else "ledger/ledger.tar"))
        entries = entries_of(ledger)
        for envelope in [*(text for bundle in bundles for text in envelopes_of(bundle)), *map(bytes.decode, entries)]:
            keyid = json.loads(envelope)["signatures"][0]["keyid"]
            if keyid in keys:
                envelopes.append({"envelope": envelope, "spki": keys[keyid]})
        proofs = [proof for bundle in bundles for proof in proofs_of(bundle)]
        judge_ledger(ledger, entries, proofs)
        write_ledger(out / str(number), ledger, proofs, folder / "trust.txt")
    judge_envelopes(envelopes)
    judge_vectors()
    (out / "envelopes.json").write_text(json.dumps(envelopes))
    return 0


def refuse(what: str) -> None:
    sys.exit(f"judge.py: {what}")


def unpack(file: Path) -> dict[str, bytes]:
    return dict(verify.tar_members(file.read_bytes()))


def seal_keys(trust: Path) -> dict[str, str]:
    """SPKI in base64 by key id, of the trust file."""
    found = [line.split()[1] for line in trust.read_text().splitlines() if line.startswith("seal-key ")]
    return {verify.sha256(base64.b64decode(spki)).hex(): spki for spki in found}


def envelopes_of(bundle: dict[str, bytes]) -> Iterator[str]:
    for name in ("seal.dsse.json", "export.dsse.json"):
        if name in bundle:
            yield bundle[name].decode()
    yield from (json.loads(line)["entry"] for line in bundle["ledger.ndjson"].splitlines())


def proofs_of(bundle: dict[str, bytes]) -> Iterator[dict[str, Any]]:
    """Index, size, leaf, path and root of what the bundle says of the ledger."""
    pairs = [(json.loads(line)["entry"], json.loads(line)["proof"]) for line in bundle["ledger.ndjson"].splitlines()]
    if "seal.tlog-proof" in bundle:
        pairs.append((bundle["seal.dsse.json"].decode(), bundle["seal.tlog-proof"].decode()))
    for entry, proof in pairs:
        head, _, checkpoint = proof.partition("\n\n")
        origin, size, root = checkpoint.split("\n")[:3]
        index, *path = head.split("\n")[1:]
        yield {"origin": origin, "index": int(index.split()[1]), "size": int(size), "root": root, "path": path, "entry": entry}


def entries_of(ledger: dict[str, bytes]) -> list[bytes]:
    return [e for name, tile in ledger.items() if name.startswith("tile/entries/") for e in verify.split_entries(tile)]


def judge_envelopes(envelopes: list[dict[str, str]]) -> None:
    """securesystemslib takes each of them, and none with a bit more."""
    for case in envelopes:
        raw = base64.b64decode(case["spki"])
        keyid = verify.sha256(raw).hex()
        key = SSlibKey(keyid, "ed25519", "ed25519", {"public": raw[-32:].hex()})
        Envelope.from_dict(json.loads(case["envelope"])).verify([key], 1)
        other = Envelope.from_dict(json.loads(case["envelope"]))
        other.payload += b" "
        try:
            other.verify([key], 1)
        except VerificationError:
            continue
        refuse("securesystemslib takes an envelope with another payload")
    print(f"securesystemslib: {len(envelopes)} envelopes verified, and refused with another payload")


def judge_ledger(ledger: dict[str, bytes], entries: list[bytes], proofs: list[dict[str, Any]]) -> None:
    """pymerkle has the checkpoint's root, and the path of each proof."""
    tree = pymerkle.InmemoryTree()
    for entry in entries:
        tree.append_entry(entry)
    origin, size, root = ledger["checkpoint"].decode().split("\n")[:3]
    if len(entries) != int(size) or base64.b64encode(tree.get_root()).decode() != root:
        refuse("pymerkle has another root than the checkpoint")
    judged = 0
    for proof in proofs:
        if proof["origin"] == origin:
            theirs = tree.prove_inclusion(proof["index"] + 1, proof["size"])
            ours = [base64.b64decode(node) for node in proof["path"]]
            same = [tree.get_leaf(proof["index"] + 1), *ours] == theirs.path
            if not same or base64.b64encode(tree.get_root(proof["size"])).decode() != proof["root"]:
                refuse(f"pymerkle has another proof of entry {proof['index']} of {proof['size']}")
            judged += 1
    if not judged:
        refuse("no proof of the ledger was judged")
    print(f"pymerkle: the root of {len(entries)} entries and {judged} proofs are the same")


def judge_vectors() -> None:
    """`merkle/proofs.ndjson`: roots, inclusion paths, and that later roots are consistent with earlier ones."""
    tree, judged = pymerkle.InmemoryTree(), 0
    cases = [json.loads(line) for line in (VECTORS / "merkle/proofs.ndjson").read_text().splitlines()]
    for leaf in range(max(case.get("size", case.get("second", 0)) for case in cases)):
        tree.append_entry(b"%d" % leaf)
    roots = {case["size"]: bytes.fromhex(case["root"]) for case in cases if "root" in case}
    for case in cases:
        path = [bytes.fromhex(node) for node in case.get("path", [])]
        if "root" in case:
            good = tree.get_root(case["size"]) == roots[case["size"]]
        elif "index" in case:
            theirs = tree.prove_inclusion(case["index"] + 1, case["size"])
            good = theirs.path == [tree.get_leaf(case["index"] + 1), *path]
        elif 0 < case["first"] and {case["first"], case["second"]} <= roots.keys():
            theirs = tree.prove_consistency(case["first"], case["second"])
            pymerkle.verify_consistency(roots[case["first"]], roots[case["second"]], theirs)
            good = True
        else:
            continue
        judged += 1
        if not good:
            refuse(f"pymerkle differs: {case}")
    print(f"pymerkle: {judged} of merkle/proofs.ndjson are the same")


def write_ledger(folder: Path, ledger: dict[str, bytes], proofs: list[dict[str, Any]], trust: Path) -> None:
    for name, body in ledger.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
    vkeys = [line.split()[1] for line in trust.read_text().splitlines() if line.startswith("log ")]
    (folder / "vkeys").write_text("\n".join(vkeys) + "\n")
    (folder / "proofs.json").write_text(json.dumps(proofs))


if __name__ == "__main__":
    sys.exit(main())
