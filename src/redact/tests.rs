//! The engine on samples of our own making: secrets are made when the test runs, by the shape that issuers describe.

use super::*;

fn rules() -> RuleSet {
    RuleSet::builtin().unwrap()
}

#[test]
fn the_rules_that_every_server_has_compile() {
    assert_eq!(rules().version(), "builtin/1");
}
