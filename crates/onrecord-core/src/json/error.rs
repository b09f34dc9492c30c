use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

/// A key longer than this is not repeated in a pointer, which then ends at the object that holds it.
const POINTER_KEY_BYTES: usize = 256;

/// The rule that JSON breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Too long, as received or as canonical.
    Size,
    /// Not UTF-8.
    Utf8,
    /// Begins with a byte order mark.
    Bom,
    /// Not in the grammar of RFC 8259.
    Syntax,
    /// A key stands twice in an object, however each is escaped.
    DuplicateKey,
    /// An escaped surrogate without its other half.
    LoneSurrogate,
    /// A code point that Unicode reserves for internal use, raw or escaped: U+FDD0 to U+FDEF and all that end in FFFE or FFFF.
    Noncharacter,
    /// A number of a magnitude over 2^53 − 1.
    IntegerRange,
    /// A number with a point or exponent and no finite double.
    NumberOverflow,
    /// Nested too deep.
    Depth,
    /// The top value is not an object.
    NotObject,
}

impl Reason {
    /// The name in the golden vectors and in problems.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Utf8 => "utf8",
            Self::Bom => "bom",
            Self::Syntax => "syntax",
            Self::DuplicateKey => "duplicate_key",
            Self::LoneSurrogate => "lone_surrogate",
            Self::Noncharacter => "noncharacter",
            Self::IntegerRange => "integer_range",
            Self::NumberOverflow => "number_overflow",
            Self::Depth => "depth",
            Self::NotObject => "not_object",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::Size => {
                "the JSON is too long: make it shorter, or send large content as a payload"
            }
            Self::Utf8 => "the bytes are not UTF-8: encode the text as UTF-8",
            Self::Bom => "the JSON begins with a byte order mark: leave it out",
            Self::Syntax => "this is not JSON as RFC 8259 has it: send what a JSON library writes",
            Self::DuplicateKey => "the key stands twice in its object: send it once",
            Self::LoneSurrogate => {
                "half of a surrogate pair is not a character: send both halves, or the bytes in base64"
            }
            Self::Noncharacter => {
                "the string has a code point that is not for interchange: leave it out, or send the bytes in base64"
            }
            Self::IntegerRange => {
                "the number is beyond 2^53 - 1, where readers round it: send it as a string"
            }
            Self::NumberOverflow => "the number is too large for a double: send it as a string",
            Self::Depth => {
                "arrays and objects are nested too deep: flatten them, or send them as text"
            }
            Self::NotObject => "the JSON is not an object: send {…}",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Why JSON is refused, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// The rule.
    pub reason: Reason,
    /// Bytes before the fault; for a number, a string's character or a key the first of its bytes.
    pub offset: usize,
    /// RFC 6901 pointer to the value or member at fault, or to what holds it; empty for the whole.
    pub pointer: String,
}

impl JsonError {
    #[cold]
    pub(super) fn at(reason: Reason, offset: usize) -> Box<Self> {
        Box::new(Self {
            reason,
            offset,
            pointer: String::new(),
        })
    }

    /// The same fault, seen from the object or array that has it at `step`.
    #[cold]
    pub(super) fn within(mut self: Box<Self>, step: &str) -> Box<Self> {
        let inner = core::mem::take(&mut self.pointer);
        if step.len() <= POINTER_KEY_BYTES {
            self.pointer.push('/');
            for character in step.chars() {
                match character {
                    '~' => self.pointer.push_str("~0"),
                    '/' => self.pointer.push_str("~1"),
                    other => self.pointer.push(other),
                }
            }
            self.pointer.push_str(&inner);
        }
        self
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "at byte {}", self.offset)?;
        if !self.pointer.is_empty() {
            write!(formatter, " ({})", self.pointer)?;
        }
        write!(formatter, ": {}", self.reason.sentence())
    }
}

impl core::error::Error for JsonError {}

/// Why bytes are not canonical JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCanonical {
    /// They are not strict JSON at all.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// They are, but their canonical form is other bytes.
    #[error(
        "at byte {offset}: the canonical form has other bytes here: keep what was received as it is"
    )]
    Differs {
        /// Bytes that both have in common at the start.
        offset: usize,
    },
}
