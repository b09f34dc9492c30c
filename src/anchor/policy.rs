//! Which witnesses are asked, and which of them are enough.

use onrecord_core::note::VerifierKey;
use onrecord_verify::{PublicKey, Trust};
use std::fmt::Write as _;

/// A policy: the lines `witness`, `group` and `quorum` of a trust file.
#[derive(Clone, Debug)]
pub struct Policy {
    trust: Trust,
    /// Whether those that answer are enough once the others had their time.
    is_patient: bool,
}

/// Why there is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    /// The text is none.
    #[error("{0}")]
    Text(String),
    /// A witness has no address.
    #[error("witness {0} has no address; give it as the last part of its line")]
    NoAddress(String),
    /// Nobody to be asked.
    #[error("no witness is named")]
    NoWitness,
    /// Not `URL=VKEY`.
    #[error("expected URL=VKEY, such as https://witness.example=witness.example/w1+3f5d39a7+BKaK…")]
    Pair,
}

impl Policy {
    /// A policy file: C2SP tlog-policy lines, with an address for each witness. `quorum` says which are enough.
    ///
    /// # Errors
    /// [`BadPolicy`].
    pub fn parse(text: &str) -> Result<Self, BadPolicy> {
        let trust = Trust::parse(text).map_err(|error| BadPolicy::Text(error.to_string()))?;
        if let Some((verifier, ..)) = trust.asked().find(|(.., url)| url.is_none()) {
            return Err(BadPolicy::NoAddress(verifier.name().to_owned()));
        }
        if trust.asked().next().is_none() {
            return Err(BadPolicy::NoWitness);
        }
        Ok(Self {
            trust,
            is_patient: false,
        })
    }

    /// Witnesses as `URL=VKEY`: all of them, or after a minute those that answered.
    ///
    /// # Errors
    /// [`BadPolicy`].
    pub fn of_all(pairs: &[String]) -> Result<Self, BadPolicy> {
        let mut text = String::new();
        let mut names = String::new();
        for (number, pair) in (1..).zip(pairs) {
            let (url, key) = pair.split_once('=').ok_or(BadPolicy::Pair)?;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "witness w{number} {key} {url}");
            let _ = write!(names, " w{number}");
        }
        let _ = writeln!(text, "group all all{names}\nquorum all");
        Ok(Self {
            is_patient: true,
            ..Self::parse(&text)?
        })
    }

    /// The witnesses in their order.
    pub(super) fn asked(&self) -> impl Iterator<Item = (&VerifierKey, &PublicKey, &str)> {
        let asked = self.trust.asked();
        asked.map(|(verifier, key, url)| (verifier, key, url.unwrap_or_default()))
    }

    /// Whether these are enough, by their places. `is_late` says that the others had their time.
    pub(super) fn is_met(&self, cosigned: &[usize], is_late: bool) -> bool {
        self.trust.quorum_met(|witness| cosigned.contains(&witness))
            || self.is_patient && is_late && !cosigned.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const W1: &str = "witness.example/w1+3f5d39a7+BKaKYv/Zvr81vI6YxCnujEsvRZdKZp2MI+Ns2kjLeKl8";
    const W2: &str = "witness.example/w2+f72117ff+BKzCMvNcKeO2dd/nBXT9eYPmJwEBoOQCBgoYYuL9eC07";

    #[test]
    fn pairs_ask_all_and_then_those_that_answered() {
        let pairs = [
            format!("http://a:1/=x{W1}").replace("=x", "="),
            format!("https://b={W2}"),
        ];
        let policy = Policy::of_all(&pairs).unwrap();
        let urls: Vec<&str> = policy.asked().map(|(.., url)| url).collect();
        assert_eq!(urls, ["http://a:1/", "https://b"]);
        assert!(policy.is_met(&[0, 1], false));
        assert!(!policy.is_met(&[1], false));
        assert!(policy.is_met(&[1], true));
        assert!(!policy.is_met(&[], true));
    }

    #[test]
    fn a_file_says_which_are_enough() {
        let lines = format!("witness a {W1} http://a\nwitness b {W2} http://b\n");
        let policy = Policy::parse(&format!("{lines}group any 1 a b\nquorum any\n")).unwrap();
        assert!(policy.is_met(&[1], false));
        let policy = Policy::parse(&format!("{lines}quorum a\n")).unwrap();
        assert!(!policy.is_met(&[1], true));
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        let refused = |text: &str| Policy::parse(text).unwrap_err().to_string();
        assert!(refused("quorum none\n").contains("no witness"));
        assert!(refused(&format!("witness a {W1}\nquorum a\n")).contains("no address"));
        assert!(refused(&format!("witness a {W1} http://a\n")).contains("quorum"));
        assert_eq!(
            Policy::of_all(&["x".to_owned()]).unwrap_err(),
            BadPolicy::Pair
        );
        assert!(Policy::of_all(&["http://a=x".to_owned()]).is_err());
    }
}
