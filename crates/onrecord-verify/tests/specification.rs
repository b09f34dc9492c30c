//! The specification names every code, and none that is not there.

#![allow(clippy::unwrap_used, reason = "a test that cannot read the page fails")]

use onrecord_verify::{Code, Status};

#[test]
fn every_code_stands_in_the_specification_with_its_status() {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/spec/verification.md"
    );
    let page = std::fs::read_to_string(page).unwrap();
    for code in Code::ALL {
        let word = format!("`{code}`");
        let graver = match code.status() {
            Status::Verified => continue,
            Status::Altered => {
                assert!(page.contains(&word), "{code}");
                continue;
            }
            other => other.exit_code(),
        };
        // Line ends do not matter.
        let text = page.replace('\n', " ");
        assert!(
            text.contains(&format!("{word} ({graver}")),
            "{code} ({graver})"
        );
    }
}
