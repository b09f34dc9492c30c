//! What the ledger says of a question over many runs.

use crate::frame::Actor;
use crate::timestamp::Timestamp;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// `query`: runs, frames or payload records were asked for over many runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Actor,
    /// Why.
    pub purpose: String,
    /// What was asked for, such as `runs`, `frames` or `payload-records`.
    pub resource: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Hash;
    use crate::frame::ActorType;
    use crate::statement::{Predicate, QUERY_SUBJECT, Signed, envelope};

    #[test]
    fn its_subject_is_the_text_of_the_question() {
        let query = Predicate::Query(Query {
            at: Timestamp::MIN,
            by: Actor {
                id: "p_0123456789abcdef".into(),
                keyid: None,
                kind: ActorType::Human,
            },
            purpose: "case-7".into(),
            resource: "frames".into(),
        });
        let (tenant, keyid) = ("t_7f3k9q2m4x8w".parse().unwrap(), Hash::of(&[b"key"]));
        for (subject, reads) in [(QUERY_SUBJECT, true), ("frames.ndjson", false)] {
            let payload = query.payload(&tenant, &keyid, subject, &Hash::of(&[b"{}"]));
            let bytes = envelope(&payload.unwrap(), &keyid, &[0; 64]);
            let read = Signed::parse(&bytes).unwrap().predicate();
            assert_eq!(read.is_ok(), reads, "{read:?}");
            assert!(!reads || read == Ok(Some(query.clone())));
        }
    }
}
