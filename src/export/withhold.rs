//! What an export leaves out.

use onrecord_core::frame::{Kind, check_name};

/// Which payloads are left out, however many rules say so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Withhold(Vec<Withheld>);

/// A rule: payloads that are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Withheld {
    All,
    Name(String),
    Tier(u8),
    Kind(Kind),
    /// Of the frames from the first place to the last.
    Frames(u64, u64),
}

impl Withhold {
    /// Everything.
    pub fn all() -> Self {
        Self(vec![Withheld::All])
    }

    /// Reads rules, separated by commas: `name:NAME`, `tier:TIER`, `kind:KIND` of frames, `frames:FIRST-LAST` by place,
    /// or `all`. The empty text is no rule.
    ///
    /// # Errors
    /// The rule that is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rules = text.split(',').filter(|rule| !rule.is_empty());
        let read = |rule: &str| Withheld::parse(rule).ok_or_else(|| rule.to_owned());
        rules.map(read).collect::<Result<_, _>>().map(Self)
    }

    /// The same, and these tiers.
    pub(super) fn and_tiers(mut self, tiers: impl Iterator<Item = u8>) -> Self {
        self.0.extend(tiers.map(Withheld::Tier));
        self
    }

    /// Whether nothing is left out.
    pub fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether everything is left out.
    pub fn is_all(&self) -> bool {
        self.0.contains(&Withheld::All)
    }

    /// Whether a payload is left out: its name and tier, and the kind and place of its frame.
    pub(super) fn covers(&self, kind: Kind, seq: u64, name: &str, tier: u8) -> bool {
        self.0.iter().any(|rule| match rule {
            Withheld::All => true,
            Withheld::Name(one) => one == name,
            Withheld::Tier(one) => *one == tier,
            Withheld::Kind(one) => *one == kind,
            Withheld::Frames(first, last) => (*first..=*last).contains(&seq),
        })
    }
}

impl Withheld {
    fn parse(rule: &str) -> Option<Self> {
        if rule == "all" {
            return Some(Self::All);
        }
        let (what, value) = rule.split_once(':')?;
        match what {
            "name" => check_name(value)
                .is_ok()
                .then(|| Self::Name(value.to_owned())),
            "tier" => value.parse().ok().filter(|tier| *tier <= 3).map(Self::Tier),
            "kind" => Kind::from_word(value).map(Self::Kind),
            "frames" => {
                let (first, last) = value.split_once('-')?;
                let (first, last) = (first.parse().ok()?, last.parse().ok()?);
                (first <= last).then_some(Self::Frames(first, last))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        let rules = Withhold::parse("name:prompt,tier:3,kind:tool_result,frames:4-6").unwrap();
        assert!(rules.covers(Kind::Turn, 0, "prompt", 0));
        assert!(rules.covers(Kind::Turn, 0, "x", 3));
        assert!(rules.covers(Kind::ToolResult, 0, "x", 0));
        assert!(rules.covers(Kind::Turn, 4, "x", 0) && rules.covers(Kind::Turn, 6, "x", 0));
        assert!(!rules.covers(Kind::Turn, 3, "x", 0) && !rules.covers(Kind::Turn, 7, "x", 0));
        assert!(Withhold::parse("").unwrap().is_nothing());
        assert!(Withhold::parse("all").unwrap().is_all());
    }

    #[test]
    fn what_is_no_rule_is_named() {
        for wrong in [
            "prompt",
            "name:",
            "name:Prompt",
            "tier:4",
            "tier:-1",
            "tier:x",
            "kind:nothing",
            "kind:",
            "frames:1",
            "frames:6-4",
            "frames:-",
            "frames:a-b",
            "ALL",
            "all:1",
        ] {
            assert_eq!(
                Withhold::parse(&format!("tier:1,{wrong}")),
                Err(wrong.to_owned())
            );
        }
    }
}
