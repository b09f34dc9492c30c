// What Sigstore's verifier says of our envelopes: `node judge.mjs envelopes.json`, which judge.py wrote.
// Each is verified as the DSSE envelope of a bundle with a public key, and refused with another payload and under
// another key.
import { readFileSync } from "node:fs";
import { generateKeyPairSync } from "node:crypto";
import { bundleFromJSON } from "@sigstore/bundle";
import { crypto } from "@sigstore/core";
import { toSignedEntity, Verifier } from "@sigstore/verify";

const pem = (spki) => `-----BEGIN PUBLIC KEY-----\n${spki}\n-----END PUBLIC KEY-----\n`;

function check(envelope, spki) {
  const bundle = bundleFromJSON({
    mediaType: "application/vnd.dev.sigstore.bundle.v0.3+json",
    verificationMaterial: { publicKey: { hint: envelope.signatures[0].keyid }, tlogEntries: [] },
    dsseEnvelope: envelope,
  });
  const key = { publicKey: crypto.createPublicKey(pem(spki)), validFor: () => true };
  const material = {
    certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [], publicKey: () => key,
  };
  const none = { tlogThreshold: 0, ctlogThreshold: 0, tsaThreshold: 0 };
  new Verifier(material, none).verify(toSignedEntity(bundle));
}

function refused(what, envelope, spki) {
  try {
    check(envelope, spki);
  } catch (error) {
    if (error.code === "SIGNATURE_ERROR") return;
    throw error;
  }
  throw new Error(`@sigstore/verify takes an envelope ${what}`);
}

const cases = JSON.parse(readFileSync(process.argv[2], "utf8"));
if (cases.length === 0) throw new Error("no envelopes");
const stranger = generateKeyPairSync("ed25519").publicKey.export({ type: "spki", format: "der" }).toString("base64");
for (const { envelope: text, spki } of cases) {
  const envelope = JSON.parse(text);
  check(envelope, spki);
  const payload = Buffer.from(`${Buffer.from(envelope.payload, "base64")} `).toString("base64");
  refused("with another payload", { ...envelope, payload }, spki);
  refused("under another key", envelope, stranger);
}
console.log(`@sigstore/verify: ${cases.length} envelopes verified, and refused with another payload and another key`);
