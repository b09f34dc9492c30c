//! The files that a patch changes, as its headers name them.

use std::borrow::Cow;

use serde_json::Value;

/// A file that a patch changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::import) struct Change {
    /// Its path, as the patch has it.
    pub path: String,
    /// `create`, `update` or `delete`.
    pub change: &'static str,
    /// Where an updated file is moved to.
    pub moved_to: Option<String>,
}

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const HEADERS: [(&str, &str); 3] = [
    ("*** Add File: ", "create"),
    ("*** Update File: ", "update"),
    ("*** Delete File: ", "delete"),
];

/// The files that a call changes by a patch: a call of `apply_patch`, or of a shell that is told to run it.
/// `None` where the call has no patch.
pub(in crate::import) fn of_call(tool: Option<&str>, arguments: &Value) -> Option<Vec<Change>> {
    let mut texts = Vec::new();
    let parsed = match arguments {
        Value::String(text) if text.contains(BEGIN) => match serde_json::from_str(text) {
            Ok(value) => Cow::Owned(value),
            Err(_) => Cow::Borrowed(arguments),
        },
        other => Cow::Borrowed(other),
    };
    strings(&parsed, &mut texts);
    let named =
        tool == Some("apply_patch") || texts.iter().any(|text| text.contains("apply_patch"));
    let patch = texts.iter().find(|text| text.contains(BEGIN))?;
    named.then(|| of_patch(patch))
}

fn strings<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, found)),
        Value::Object(members) => members.values().for_each(|item| strings(item, found)),
        _ => {}
    }
}

fn of_patch(text: &str) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    let lines = text.lines().map(str::trim_end);
    // A shell has the patch in a quoted text that may begin on the line of the command.
    let lines = lines.skip_while(|line| !line.ends_with(BEGIN)).skip(1);
    for line in lines.take_while(|line| *line != END) {
        if let Some(to) = line.strip_prefix("*** Move to: ")
            && let Some(last) = changes.last_mut()
        {
            last.moved_to = Some(to.to_owned());
        }
        for (header, change) in HEADERS {
            if let Some(path) = line.strip_prefix(header) {
                changes.push(Change {
                    path: path.to_owned(),
                    change,
                    moved_to: None,
                });
            }
        }
    }
    changes
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests compare values")]
mod tests {
    use super::*;
    use serde_json::json;

    const PATCH: &str = "*** Begin Patch\n*** Add File: a.txt\n+*** Delete File: no.txt\n*** Update File: b c.txt\n*** Move to: d.txt\n@@\n-x\n+y\n*** Delete File: e.txt\n*** End Patch\n*** Add File: after.txt\n";

    fn paths(tool: Option<&str>, arguments: &Value) -> Option<Vec<String>> {
        let changes = of_call(tool, arguments)?;
        Some(changes.into_iter().map(|one| one.path).collect())
    }

    #[test]
    fn headers_name_the_files() {
        let change = |path: &str, change, moved: Option<&str>| Change {
            path: path.to_owned(),
            change,
            moved_to: moved.map(str::to_owned),
        };
        let expected = [
            change("a.txt", "create", None),
            change("b c.txt", "update", Some("d.txt")),
            change("e.txt", "delete", None),
        ];
        assert_eq!(
            of_call(Some("apply_patch"), &json!(PATCH)).unwrap(),
            expected
        );
    }

    #[test]
    fn a_patch_is_found_in_every_form_of_call() {
        let expected = Some(["a.txt", "b c.txt", "e.txt"].map(str::to_owned).to_vec());
        let quoted = json!({ "input": PATCH }).to_string();
        assert_eq!(paths(Some("apply_patch"), &json!(quoted)), expected);
        assert_eq!(
            paths(Some("apply_patch"), &json!({ "patch": PATCH })),
            expected
        );
        let shell = json!({"command": ["apply_patch", PATCH]}).to_string();
        assert_eq!(paths(Some("shell"), &json!(shell)), expected);
        let here = json!({"cmd": format!("cd x && apply_patch <<'EOF'\n{PATCH}EOF")});
        assert_eq!(paths(Some("exec_command"), &here), expected);
    }

    #[test]
    fn what_is_no_patch_names_no_files() {
        assert_eq!(paths(Some("shell"), &json!({"command": "ls"})), None);
        let mentioned = json!({"command": ["grep", "*** Begin Patch\n*** Add File: x"]});
        assert_eq!(paths(Some("shell"), &mentioned), None);
        assert_eq!(paths(Some("apply_patch"), &json!(null)), None);
        assert_eq!(
            paths(Some("apply_patch"), &json!("*** Begin Patch")),
            Some(vec![])
        );
    }
}
