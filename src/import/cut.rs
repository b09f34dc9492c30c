//! Where a content that is too long for one payload is cut: nowhere within a secret, nor between a secret and what tells
//! it, since payloads are redacted one by one.

use super::moved::RULES;
use crate::redact::{RuleSet, Shape};

/// Bytes on each side of a cut within which secrets are looked for. More than the longest key in PEM has.
pub const LOOK_BYTES: usize = 64 * 1024;
/// Bytes before a secret in which its name is.
const NAME_BYTES: usize = 96;
/// Places that are tried.
const TRIES: usize = 16;

/// The place to cut a content at, at most `most` bytes from its beginning, `most` itself where it is no longer. It
/// follows from the [`LOOK_BYTES`] behind that place, and from nothing that comes later.
pub fn place(content: &[u8], most: usize) -> usize {
    if content.len() <= most {
        return content.len();
    }
    let most_text = character(content, most);
    let Some(rules) = &*RULES else {
        return most_text;
    };
    let from = most.saturating_sub(LOOK_BYTES);
    let to = content.len().min(most + LOOK_BYTES);
    let line = |end: usize| {
        let ends = content[from..end].iter().rposition(|byte| *byte == b'\n');
        ends.map(|at| from + at + 1).filter(|at| *at > from)
    };
    let mut cut = line(most).unwrap_or(most_text);
    for _ in 0..TRIES {
        match crossing(rules, &content[from..to], cut - from) {
            None => return cut,
            Some(start) => {
                // The line before, which may have its name; if there is none, as far back as a name reaches.
                let back = (from + start).min(cut - 1);
                let name = back.saturating_sub(NAME_BYTES);
                cut = line(back).unwrap_or_else(|| character(content, name));
            }
        }
        if cut <= from {
            break;
        }
    }
    most_text
}

/// The end of the last whole character before a place.
fn character(content: &[u8], most: usize) -> usize {
    let begun = (0..4)
        .map(|back| most.saturating_sub(back))
        .find(|at| content.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80));
    let at = begun.unwrap_or(most);
    // Bytes that are no text are cut anywhere.
    match std::str::from_utf8(&content[at..content.len().min(at + 4)]) {
        Err(error) if error.valid_up_to() == 0 && error.error_len().is_some() => most,
        _ if at == 0 => most,
        _ => at,
    }
}

/// Where the first secret begins that is not found when a text is cut at a place.
fn crossing(rules: &RuleSet, text: &[u8], cut: usize) -> Option<usize> {
    let found = |text: &[u8], at: usize| {
        let found = rules.find(text, Shape::Text).into_iter();
        found.map(move |one| (at + one.start, at + one.end))
    };
    let (before, after) = text.split_at(cut);
    let apart: Vec<_> = found(before, 0).chain(found(after, cut)).collect();
    let mut whole = found(text, 0);
    whole.find_map(|one| (!apart.contains(&one)).then_some(one.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";
    const MOST: usize = 100_000;

    #[test]
    fn no_secret_is_cut_and_none_from_its_name() {
        let password = "DB_PASSWORD: 's3cr3t,pass9,x'";
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n",
            "aB3dE5fG7h\n".repeat(40)
        );
        let line = "aB3dE5fG7h\n";
        for (secret, value) in [(TOKEN, &TOKEN[..20]), (password, "s3cr3t"), (&pem, line)] {
            for lines in [true, false] {
                for before in (MOST - secret.len()..MOST + 2).step_by(37) {
                    let filler = if lines {
                        "all is well\n"
                    } else {
                        "all is well "
                    };
                    let mut text = filler.repeat(before / filler.len());
                    text.push_str(&" ".repeat(before - text.len()));
                    let whole = format!("{text}{secret}{}", filler.repeat(9_000));
                    let cut = place(whole.as_bytes(), MOST);
                    assert!(cut <= MOST && cut > MOST - LOOK_BYTES);
                    let (from, to) = (cut - 2_000, cut + 2_000);
                    // In either part on its own, all of it is found or none of it is there.
                    let rules = RULES.as_ref().unwrap();
                    let parts = [&whole.as_bytes()[from..cut], &whole.as_bytes()[cut..to]];
                    let kept = parts.map(|part| match rules.redact(part, Shape::Text) {
                        Some(redacted) => redacted.bytes,
                        None => part.to_vec(),
                    });
                    let kept = String::from_utf8(kept.concat()).unwrap();
                    assert!(!kept.contains(value), "{value} {lines} {before}: {cut}");
                    assert!(
                        kept.contains("[redacted:"),
                        "{value} {lines} {before}: {cut}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_has_no_secret_is_cut_at_lines_or_between_characters() {
        assert_eq!(place(b"short", MOST), 5);
        let text = format!("x{}", "ä".repeat(MOST));
        assert_eq!(place(text.as_bytes(), MOST), MOST - 1);
        let text = "a line\n".repeat(MOST);
        assert_eq!(place(text.as_bytes(), MOST), MOST / 7 * 7);
        for byte in [0xff, 0x80, 0xe2, 0xf0, 0] {
            let cut = place(&vec![byte; 3 * MOST], MOST);
            assert!(cut > MOST - 4 && cut <= MOST, "{byte:x}");
        }
    }
}
