//! Whether the value beside a name is a secret: the more the name says, the less the value has to.

use super::check::{entropy, is_mixed, variety};
use super::rules::{RuleSet, Trust};

/// What stands for a secret that was taken out, by us.
pub(super) const PLACEHOLDER: &[u8] = b"[redacted:";
/// The fewest bytes of a value that a name of low trust makes a secret.
const LOW_BYTES: usize = 16;
/// How random such a value is, in bits a byte.
const LOW_ENTROPY: f32 = 3.0;
/// How much of a value is looked at.
const LOOK: usize = 256;

/// How a value stands beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    /// A string of a JSON document: the name is certainly its name.
    Member,
    /// In quotes, in a text.
    Quoted,
    /// Behind `=` without a space, as shells and `.env` files have it.
    Assigned,
    /// Anything else, such as prose.
    Bare,
}

/// Whether a value is a secret.
pub(super) fn is_secret(rules: &RuleSet, value: &[u8], trust: Trust, stands: Stands) -> bool {
    let value = &value[..value.len().min(LOOK)];
    let odd = |byte: &u8| {
        matches!(
            byte,
            b'!' | b'@' | b'#'..=b'&' | b'*' | b'+' | b'?' | b'^' | b'~'
        )
    };
    let made_up = || is_mixed(value) || value.iter().any(odd);
    // What rules most values out comes first: a text may be nothing but names.
    let looks_so = match (trust, stands) {
        (Trust::High, Stands::Member) => value.len() >= 4,
        (Trust::High, Stands::Quoted) => value.len() >= 6 && (value.len() >= 12 || made_up()),
        (Trust::High, Stands::Assigned) => value.len() >= 6 && made_up(),
        (Trust::Middle | Trust::Strict, Stands::Member | Stands::Quoted | Stands::Assigned) => {
            value.len() >= 6 && made_up() && variety(value) > 4 || is_random(value)
        }
        (Trust::High | Trust::Middle, Stands::Bare) => {
            value.len() >= 8 && is_mixed(value) && !is_word(value)
        }
        (Trust::Strict, Stands::Bare) => false,
        _ => is_random(value) && !(stands == Stands::Bare && is_word(value)),
    };
    if !looks_so {
        return false;
    }
    let spaces = value
        .iter()
        .filter(|byte| byte.is_ascii_whitespace())
        .count();
    if spaces > 0 && (stands != Stands::Member || !is_mixed(value) || spaces > 8) {
        return false;
    }
    !is_stand_in(rules, value) && !is_reference(value)
}

/// Whether a value was made by a machine to be unguessable.
pub(super) fn is_random(value: &[u8]) -> bool {
    value.len() >= LOW_BYTES && is_mixed(value) && entropy(value) >= LOW_ENTROPY && !is_name(value)
}

/// What stands where a secret would: `changeme`, `<your key>`, `****`, `$VARIABLE`, and our own placeholder.
pub(super) fn is_stand_in(rules: &RuleSet, value: &[u8]) -> bool {
    let value = value.trim_ascii();
    if value.len() < 3 || variety(value) < 2 || value.starts_with(PLACEHOLDER) {
        return true;
    }
    if matches!(value[0], b'<' | b'{' | b'[') || value.starts_with(b"%(") {
        return true;
    }
    // A variable of a shell or of a template.
    if value[0] == b'$'
        && value[1..]
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_{}():-.".contains(byte))
    {
        return true;
    }
    for inner in [
        &b"${"[..],
        b"{{",
        b"$(",
        b"***",
        b"xxxx",
        b"XXXX",
        b"...",
        b"\xe2\x80\xa6",
    ] {
        if value.windows(inner.len()).any(|window| window == inner) {
            return true;
        }
    }
    let word: String = value
        .iter()
        .filter(|byte| byte.is_ascii_alphanumeric())
        .map(|byte| char::from(byte.to_ascii_lowercase()))
        .collect();
    rules.never_values.contains(&word)
        || [
            "your",
            "insert",
            "replace",
            "enter",
            "redacted",
            "fake",
            "dummy",
            "placeholder",
        ]
        .iter()
        .any(|start| word.starts_with(start))
}

/// What says where a secret is, and is none: a call, an index, a path, an address, the name of a variable.
fn is_reference(value: &[u8]) -> bool {
    let first = value.first().copied().unwrap_or(b' ');
    value.contains(&b'(') && value.contains(&b')')
        || value.windows(3).any(|window| window == b"://")
        || value
            .windows(2)
            .any(|window| window == b"::" || window == b"->")
        || first == b'/'
        || value.starts_with(b"./")
        || value.starts_with(b"~/")
        || value.starts_with(b"../")
        || is_name(value)
}

/// `SOME_VARIABLE`, `settings.secret`, `a-kebab-name`: words, and nothing but words.
fn is_name(value: &[u8]) -> bool {
    let separated = value.iter().any(|byte| b"_.-".contains(byte));
    separated
        && value.split(|byte| b"_.-".contains(byte)).all(|word| {
            let letters = word.iter().take_while(|byte| byte.is_ascii_alphabetic());
            let letters = letters.count();
            let capitals = word[..letters]
                .iter()
                .skip(1)
                .filter(|byte| byte.is_ascii_uppercase());
            let capitals = capitals.count();
            // One word, perhaps numbered; or a few figures.
            word.len() - letters <= 2
                && word[letters..].iter().all(u8::is_ascii_digit)
                && (capitals == 0 || capitals + 1 == letters)
                || word.len() <= 4 && word.iter().all(u8::is_ascii_digit)
        })
}

/// An identifier of a program: `token1`, `userPassword2`.
fn is_word(value: &[u8]) -> bool {
    let letters = value
        .iter()
        .take_while(|byte| byte.is_ascii_alphabetic() || **byte == b'_');
    let letters = letters.count();
    letters > 0 && value.len() - letters <= 2 && value[letters..].iter().all(u8::is_ascii_digit)
}
