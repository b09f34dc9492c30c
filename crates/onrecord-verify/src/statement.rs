//! Whose signature a statement has, and whether that key may speak for this tenant and ledger
//! (spec: `docs/spec/verification.md`, "Signers").

use crate::code::Code;
use crate::trust::Trust;
use onrecord_core::id::Origin;
use onrecord_core::statement::{BadStatement, Predicate, Signed};

/// What is known of a statement's signer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signer {
    /// Pinned for the tenant and ledger, and the signature is true.
    Trusted {
        /// Entries at this index and after do not count.
        until: Option<u64>,
    },
    /// In no `seal-key` line.
    Unknown,
    /// Pinned, but the signature or what it is pinned for is not so.
    False,
    /// There is no trust file.
    Unchecked,
}

/// A statement that could be read.
pub(crate) struct Statement {
    pub signed: Signed,
    pub signer: Signer,
    /// `None` where it is malformed or its name is not known.
    pub predicate: Option<Predicate>,
}

/// Reads an envelope and checks its signer. `origin` is the ledger that it comes from, for statements
/// that name none of their own; `bad` is the code of a false signature.
pub(crate) fn check(
    bytes: &[u8],
    trust: Option<&Trust>,
    origin: Option<&Origin>,
    bad: Code,
    emit: &mut dyn FnMut(Code, String),
) -> Option<Statement> {
    let signed = match Signed::parse(bytes) {
        Ok(signed) => signed,
        Err(error) => {
            emit(bad_statement(&error), error.to_string());
            return None;
        }
    };
    let signer = signer(&signed, trust, origin, bad, emit);
    let predicate = match signed.predicate() {
        Ok(predicate) => predicate,
        Err(error) => {
            emit(bad_statement(&error), error.to_string());
            None
        }
    };
    Some(Statement {
        signed,
        signer,
        predicate,
    })
}

fn bad_statement(error: &BadStatement) -> Code {
    match error {
        BadStatement::Malformed(_) => Code::Statement,
        BadStatement::Suite(_) => Code::Suite,
    }
}

fn signer(
    signed: &Signed,
    trust: Option<&Trust>,
    origin: Option<&Origin>,
    bad: Code,
    emit: &mut dyn FnMut(Code, String),
) -> Signer {
    let Some(trust) = trust else {
        return Signer::Unchecked;
    };
    let keyid = signed.keyid;
    let Some(pinned) = trust.seal_key(&keyid) else {
        emit(
            Code::SignerUnknown,
            format!(
                "the {} is signed by key {keyid}, which no seal-key line pins",
                signed.name
            ),
        );
        return Signer::Unknown;
    };
    if !pinned.key.verifies(&signed.pae(), &signed.sig) {
        emit(
            bad,
            format!("the {}'s signature is not that of key {keyid}", signed.name),
        );
        return Signer::False;
    }
    if pinned.tenant != signed.tenant {
        emit(
            bad,
            format!(
                "key {keyid} is pinned for tenant {}, the {} is {}'s",
                pinned.tenant, signed.name, signed.tenant
            ),
        );
        return Signer::False;
    }
    let own = signed.ledger();
    if let Some(origin) = own.as_ref().or(origin)
        && *origin != pinned.origin
    {
        emit(
            bad,
            format!(
                "key {keyid} is pinned for ledger {}, the {} is of {origin}",
                pinned.origin, signed.name
            ),
        );
        return Signer::False;
    }
    Signer::Trusted {
        until: pinned.until,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Case {
        name: String,
        envelope: String,
        code: String,
    }

    #[test]
    fn every_bad_statement_is_refused_in_the_seals_place() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors");
        let trust = std::fs::read_to_string(format!("{folder}/trust.txt")).unwrap();
        let trust = Trust::parse(&trust).unwrap();
        let cases = std::fs::read(format!("{folder}/statements/invalid.json")).unwrap();
        let cases: Vec<Case> = serde_json::from_slice(&cases).unwrap();
        assert!(!cases.is_empty());
        for case in cases {
            let mut check = crate::check::Check::new(Some(&trust));
            crate::seal::check_seal(&mut check, Some(case.envelope.as_bytes()));
            let report = check.finish();
            assert_eq!(
                report.verdict.code.as_str(),
                case.code,
                "{}: {}",
                case.name,
                report.verdict.detail
            );
        }
    }

    #[derive(serde::Deserialize)]
    struct Entry {
        name: String,
        envelope: String,
        code: Option<String>,
    }

    #[test]
    fn flags_queries_and_what_holds_say_besides_are_let_in_as_they_should_be() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors");
        let trust = std::fs::read_to_string(format!("{folder}/trust.txt")).unwrap();
        let trust = Trust::parse(&trust).unwrap();
        let cases = std::fs::read(format!("{folder}/statements/entries.json")).unwrap();
        let cases: Vec<Entry> = serde_json::from_slice(&cases).unwrap();
        assert!(cases.iter().any(|case| case.code.is_none()));
        for case in cases {
            let mut walk = crate::LedgerWalk::new("evidence.example/t/9d2v6c1p8h4z");
            let findings = walk.read(case.envelope.as_bytes(), Some(&trust));
            let found: Vec<&str> = findings.iter().map(|one| one.code.as_str()).collect();
            let expected = Vec::from_iter(case.code.as_deref());
            assert_eq!(found, expected, "{}: {findings:?}", case.name);
        }
    }
}
