//! The rules of a run, of which a finding without a level has its level.

use std::collections::HashMap;

use serde::Deserialize;

use super::Level;

/// A rule, as far as it matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rule {
    /// Its name.
    #[serde(default)]
    pub id: String,
    default_configuration: Option<Configuration>,
}

#[derive(Deserialize)]
struct Configuration {
    level: Option<String>,
}

impl Rule {
    /// The level of its findings.
    pub(super) fn level(&self) -> Level {
        let configured = self.default_configuration.as_ref();
        let word = configured.and_then(|configured| configured.level.as_deref());
        word.and_then(Level::of).unwrap_or(Level::Warning)
    }
}

/// How a finding names its rule besides `ruleId` and `ruleIndex`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RuleReference {
    id: Option<String>,
    index: Option<i64>,
    tool_component: Option<ComponentReference>,
}

#[derive(Deserialize)]
struct ComponentReference {
    index: Option<i64>,
}

/// What a finding names its rule by.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct RuleName {
    id: Option<String>,
    index: Option<usize>,
    /// Which extension it is of; none where it is the tool's own.
    extension: Option<usize>,
}

impl RuleName {
    pub(super) fn new(id: Option<String>, index: Option<i64>, rule: Option<RuleReference>) -> Self {
        let at = |index: Option<i64>| index.and_then(|index| usize::try_from(index).ok());
        let (other, second, component) = match rule {
            Some(rule) => (rule.id, rule.index, rule.tool_component),
            None => (None, None, None),
        };
        Self {
            id: id.or(other),
            index: at(index).or(at(second)),
            extension: component.and_then(|component| at(component.index)),
        }
    }

    /// The id, where the finding has one.
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

/// Rules of a run: the tool's own first, then those of each of its extensions.
#[derive(Default)]
pub(super) struct Rules(Vec<Vec<Rule>>);

impl Rules {
    pub(super) fn new(own: Vec<Rule>, extensions: impl Iterator<Item = Vec<Rule>>) -> Self {
        Self(std::iter::once(own).chain(extensions).collect())
    }

    /// All by their name; of several with one name, the gravest.
    pub(super) fn by_id(&self) -> HashMap<&str, &Rule> {
        let mut found: HashMap<&str, &Rule> = HashMap::new();
        for rule in self.0.iter().flatten() {
            let known = found.entry(&rule.id).or_insert(rule);
            if rule.level() > known.level() {
                *known = rule;
            }
        }
        found
    }

    /// The rule: by its place, by its name, or by the beginning of a name such as `A1/b`.
    pub(super) fn find<'a>(
        &'a self,
        by_id: &HashMap<&str, &'a Rule>,
        name: &RuleName,
    ) -> Option<&'a Rule> {
        let of = self.0.get(name.extension.map_or(0, |number| number + 1));
        let id = name.id().unwrap_or("");
        let by_place = of.and_then(|of| of.get(name.index?));
        let mut ends = id.match_indices('/').rev();
        by_place
            .filter(|rule| id.is_empty() || id.starts_with(&rule.id))
            .or_else(|| by_id.get(id).copied())
            .or_else(|| ends.find_map(|(at, _)| by_id.get(&id[..at]).copied()))
    }
}
