//! The filter language: text becomes a typed condition, or a reason with its place (grammar: `docs/queries.md`).

use crate::store::search::condition::{Comparison, Condition, Value};
use crate::store::search::field::{Field, FieldType};
use onrecord_core::timestamp::Timestamp;
use std::iter::Peekable;
use std::str::CharIndices;

/// Bytes of a filter.
const BYTES: usize = 4_096;
/// How deep `not` and parentheses may nest.
const DEPTH: usize = 16;
/// Values that a filter may compare with, all in all.
const VALUES: usize = 100;

/// Why a text is no filter, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {at}: {detail}")]
pub(crate) struct BadFilter {
    /// Which character of the text, from 1; one behind the last where the text ends too early.
    at: usize,
    /// What is wrong there, and what may stand there.
    detail: String,
}

impl BadFilter {
    /// Which character of the text, from 1.
    pub(crate) fn at(&self) -> usize {
        self.at
    }
}

/// Fields that filters may be about: each list with what stands before its names.
pub(super) type Fields = &'static [(&'static str, &'static [Field])];

/// Reads a filter about some fields.
pub(crate) fn parse(text: &str, fields: Fields) -> Result<Condition, BadFilter> {
    if text.len() > BYTES {
        return Err(BadFilter {
            at: 1,
            detail: format!(
                "a filter has at most {BYTES} bytes, this one has {}",
                text.len()
            ),
        });
    }
    let mut parser = Parser {
        text,
        tokens: tokens(text)?,
        next: 0,
        fields,
        depth: 0,
        values: 0,
    };
    let condition = parser.any()?.plain();
    match parser.peek() {
        Some(_) => Err(parser.expected("`and`, `or` or the end")),
        None => Ok(condition),
    }
}

/// A piece of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A name, a word of the language, a number or a time without quotes.
    Word(String),
    /// What stood in quotes.
    Quoted(String),
    Sign(&'static str),
}

/// Signs, the longer before those that they begin with.
const SIGNS: [&str; 9] = ["!=", "<=", ">=", "=", "<", ">", "(", ")", ","];

/// The tokens, each with the byte where it begins.
fn tokens(text: &str) -> Result<Vec<(usize, Token)>, BadFilter> {
    let mut tokens = Vec::new();
    let mut rest = text.char_indices().peekable();
    while let Some(&(at, character)) = rest.peek() {
        if character.is_ascii_whitespace() {
            rest.next();
        } else if character == '"' {
            rest.next();
            let quoted = quoted(&mut rest).ok_or_else(|| {
                let detail = "the quotation that begins here has no end; inside, \\\" is a quote and \\\\ a backslash";
                bad(text, at, detail)
            })?;
            tokens.push((at, Token::Quoted(quoted)));
        } else if in_word(character) {
            let mut word = String::new();
            while let Some((_, character)) = rest.next_if(|(_, character)| in_word(*character)) {
                word.push(character);
            }
            tokens.push((at, Token::Word(word)));
        } else {
            let sign = SIGNS.into_iter().find(|sign| text[at..].starts_with(sign));
            let sign = sign.ok_or_else(|| {
                let detail =
                    format!("{character:?} means nothing here; text stands in double quotes");
                bad(text, at, detail)
            })?;
            tokens.push((at, Token::Sign(sign)));
            rest.nth(sign.len() - 1);
        }
    }
    Ok(tokens)
}

fn in_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_.:-+".contains(character)
}

/// What stands up to the closing quote; `None` where it never closes, or a backslash is before anything else.
fn quoted(rest: &mut Peekable<CharIndices<'_>>) -> Option<String> {
    let mut quoted = String::new();
    loop {
        match rest.next()?.1 {
            '"' => return Some(quoted),
            '\\' => match rest.next()?.1 {
                character @ ('"' | '\\') => quoted.push(character),
                _ => return None,
            },
            character => quoted.push(character),
        }
    }
}

fn bad(text: &str, byte: usize, detail: impl Into<String>) -> BadFilter {
    BadFilter {
        at: text[..byte].chars().count() + 1,
        detail: detail.into(),
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(usize, Token)>,
    next: usize,
    fields: Fields,
    depth: usize,
    values: usize,
}

impl Parser<'_> {
    /// `all ("or" all)*`
    fn any(&mut self) -> Result<Condition, BadFilter> {
        let mut any = vec![self.all()?];
        while self.word("or") {
            any.push(self.all()?);
        }
        Ok(one_or(any, Condition::Any))
    }

    /// `one ("and" one)*`
    fn all(&mut self) -> Result<Condition, BadFilter> {
        let mut all = vec![self.one()?];
        while self.word("and") {
            all.push(self.one()?);
        }
        Ok(one_or(all, Condition::All))
    }

    /// `"not" one | "(" any ")" | test`
    fn one(&mut self) -> Result<Condition, BadFilter> {
        let negated = self.word("not");
        if !negated && !self.sign("(") {
            return self.test();
        }
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(self.wrong(format!(
                "more than {DEPTH} of `not` and parentheses inside each other"
            )));
        }
        let condition = if negated {
            Condition::Not(Box::new(self.one()?))
        } else {
            let condition = self.any()?;
            if !self.sign(")") {
                return Err(self.expected("`and`, `or` or the `)` of this `(`"));
            }
            condition
        };
        self.depth -= 1;
        Ok(condition)
    }

    /// `field sign value | field "begins" value | field "in" "(" value ("," value)* ")" | field "is" ["not"] "set"`
    fn test(&mut self) -> Result<Condition, BadFilter> {
        let field = self.field()?;
        if self.word("is") {
            let negated = self.word("not");
            if !self.word("set") {
                return Err(self.expected("`is set` or `is not set`"));
            }
            let present = Condition::Present(field);
            return Ok(if negated { not(present) } else { present });
        }
        if self.word("in") {
            return self.in_values(field);
        }
        if matches!(field.kind, FieldType::Text) && self.word("begins") {
            let value = self.value(field)?;
            return Ok(Condition::Is(field, Comparison::Begins, value));
        }
        let Some(Token::Sign(sign)) = self.peek().cloned() else {
            return Err(self.expected(&signs_of(field)));
        };
        let comparison = match sign {
            "=" | "!=" => Comparison::Equal,
            _ if !is_ordered(field) => return Err(self.expected(&signs_of(field))),
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return Err(self.expected(&signs_of(field))),
        };
        self.next += 1;
        let is = Condition::Is(field, comparison, self.value(field)?);
        Ok(if sign == "!=" { not(is) } else { is })
    }

    fn in_values(&mut self, field: &'static Field) -> Result<Condition, BadFilter> {
        if !self.sign("(") {
            return Err(self.expected("`(` and values after `in`"));
        }
        let mut values = vec![self.value(field)?];
        while self.sign(",") {
            values.push(self.value(field)?);
        }
        if !self.sign(")") {
            return Err(self.expected("`,` and another value, or `)`"));
        }
        Ok(Condition::In(field, values))
    }

    fn field(&mut self) -> Result<&'static Field, BadFilter> {
        let Some(Token::Word(name)) = self.peek().cloned() else {
            return Err(self.expected("a field, `not` or `(`"));
        };
        let named = |(prefix, fields): &(&str, &'static [Field])| {
            let name = name.strip_prefix(prefix)?;
            fields.iter().find(|field| field.name == name)
        };
        let field = self.fields.iter().find_map(named).ok_or_else(|| {
            let names = |(prefix, fields): &(&str, &'static [Field])| {
                let names = fields.iter().map(|field| format!("{prefix}{}", field.name));
                names.collect::<Vec<_>>().join(", ")
            };
            let names: Vec<_> = self.fields.iter().map(names).collect();
            self.wrong(format!(
                "there is no field {name:?} here; the fields are {}",
                names.join(", ")
            ))
        })?;
        self.next += 1;
        Ok(field)
    }

    fn value(&mut self, field: &Field) -> Result<Value, BadFilter> {
        self.values += 1;
        if self.values > VALUES {
            return Err(self.wrong(format!("a filter compares with at most {VALUES} values")));
        }
        let (text, quoted) = match self.peek() {
            Some(Token::Word(text)) => (text.clone(), false),
            Some(Token::Quoted(text)) => (text.clone(), true),
            _ => return Err(self.expected(&values_of(field))),
        };
        let value = match field.kind {
            // Without quotes a text would be taken for a name, or the other way round.
            FieldType::Text => quoted
                .then(|| text.clone())
                .filter(|text| !text.contains('\0'))
                .map(Value::Text),
            FieldType::Word(words) => words
                .contains(&text.as_str())
                .then(|| Value::Text(text.clone())),
            FieldType::Number => text
                .parse()
                .ok()
                .filter(|_| !quoted)
                .filter(|number| i64::try_from(*number).is_ok())
                .map(Value::Number),
            FieldType::Time => time(&text).map(Value::Time),
            FieldType::Run => text.parse().ok().map(Value::Run),
        };
        let value = value.ok_or_else(|| self.expected(&values_of(field)))?;
        self.next += 1;
        Ok(value)
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    /// Takes a word of the language, in small or capital letters, if it is next.
    fn word(&mut self, wanted: &str) -> bool {
        let found =
            matches!(self.peek(), Some(Token::Word(word)) if word.eq_ignore_ascii_case(wanted));
        self.next += usize::from(found);
        found
    }

    /// Takes a sign if it is next.
    fn sign(&mut self, wanted: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(sign)) if *sign == wanted);
        self.next += usize::from(found);
        found
    }

    /// What should have come next.
    fn expected(&self, what: &str) -> BadFilter {
        let found = match self.peek() {
            None => "the filter ends".to_owned(),
            Some(Token::Word(word)) => format!("found {word}"),
            Some(Token::Quoted(text)) => format!("found {text:?}"),
            Some(Token::Sign(sign)) => format!("found {sign}"),
        };
        self.wrong(format!("expected {what}; {found}"))
    }

    /// What is wrong with what comes next.
    fn wrong(&self, detail: String) -> BadFilter {
        let byte = self
            .tokens
            .get(self.next)
            .map_or(self.text.len(), |(at, _)| *at);
        bad(self.text, byte, detail)
    }
}

fn one_or(
    mut conditions: Vec<Condition>,
    several: impl Fn(Vec<Condition>) -> Condition,
) -> Condition {
    match conditions.len() {
        1 => conditions.remove(0),
        _ => several(conditions),
    }
}

fn not(condition: Condition) -> Condition {
    Condition::Not(Box::new(condition))
}

fn is_ordered(field: &Field) -> bool {
    matches!(field.kind, FieldType::Number | FieldType::Time)
}

fn signs_of(field: &Field) -> String {
    let signs = match field.kind {
        FieldType::Text => "=, !=, `in`, `begins` or `is set`",
        FieldType::Word(_) | FieldType::Run => "=, !=, `in` or `is set`",
        FieldType::Number | FieldType::Time => "=, !=, <, <=, >, >=, `in` or `is set`",
    };
    format!("{signs} after {}", field.name)
}

fn values_of(field: &Field) -> String {
    let name = field.name;
    match field.kind {
        FieldType::Text => format!("a text in double quotes for {name}"),
        FieldType::Word(words) => format!("one of {} for {name}", words.join(", ")),
        FieldType::Number => format!("a whole number from 0 for {name}"),
        FieldType::Run => format!("the id of a run for {name}, 26 digits and capital letters"),
        FieldType::Time => format!("a time for {name}, such as 2026-11-30T08:00:00Z or 2026-11-30"),
    }
}

/// A time in RFC 3339, or a date, which is its beginning in UTC.
pub(crate) fn time(text: &str) -> Option<Timestamp> {
    let time: Option<jiff::Timestamp> = text.parse().ok();
    let time = time.or_else(|| format!("{text}T00:00:00Z").parse().ok())?;
    Timestamp::from_micros(time.as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::search::field::RUN_FIELDS;

    fn read(text: &str) -> Result<Condition, BadFilter> {
        static FIELDS: Fields = &[("", RUN_FIELDS)];
        parse(text, FIELDS)
    }

    fn is(name: &str, comparison: Comparison, value: Value) -> Condition {
        let field = RUN_FIELDS.iter().find(|field| field.name == name).unwrap();
        Condition::Is(field, comparison, value)
    }

    #[test]
    fn and_binds_closer_than_or_and_not_closest() {
        use Comparison::{Equal, Greater};
        let agent = || is("agent", Equal, Value::Text("a \"b\" \\".to_owned()));
        let size = || is("size", Greater, Value::Number(3));
        let open = || is("status", Equal, Value::Text("open".to_owned()));
        for (text, expected) in [
            (r#"agent = "a \"b\" \\""#, agent()),
            (
                r#"agent="a \"b\" \\"AND size>3"#,
                Condition::All(vec![agent(), size()]),
            ),
            (
                r#"status = open or agent = "a \"b\" \\" and not size > 3"#,
                Condition::Any(vec![open(), Condition::All(vec![agent(), not(size())])]),
            ),
            (
                r#"(status = "open" or size > 3) and status != open"#,
                Condition::All(vec![Condition::Any(vec![open(), size()]), not(open())]),
            ),
        ] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn each_type_has_its_values() {
        let time = |text: &str| Value::Time(text.parse().unwrap());
        for (text, expected) in [
            (
                "opened_at >= 2026-11-30",
                is(
                    "opened_at",
                    Comparison::GreaterOrEqual,
                    time("2026-11-30T00:00:00.000000Z"),
                ),
            ),
            (
                "opened_at<\"2026-11-30T08:00:00+02:00\"",
                is(
                    "opened_at",
                    Comparison::Less,
                    time("2026-11-30T06:00:00.000000Z"),
                ),
            ),
            (
                "run_no <= 9007199254740993",
                is(
                    "run_no",
                    Comparison::LessOrEqual,
                    Value::Number(9_007_199_254_740_993),
                ),
            ),
            (
                r#"agent begins "über""#,
                is("agent", Comparison::Begins, Value::Text("über".to_owned())),
            ),
        ] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        let sealed = RUN_FIELDS
            .iter()
            .find(|field| field.name == "sealed_at")
            .unwrap();
        assert_eq!(read("sealed_at is set"), Ok(Condition::Present(sealed)));
        assert_eq!(
            read("sealed_at is not set"),
            Ok(not(Condition::Present(sealed)))
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let deep = format!("{}size = 1", "not ".repeat(DEPTH + 1));
        let many = format!("size in ({})", vec!["1"; VALUES + 1].join(","));
        let long = format!("agent = \"{}\"", "x".repeat(BYTES));
        for (text, at, detail) in [
            ("", 1, "expected a field"),
            ("agent", 6, "expected =, !=, `in`, `begins`"),
            ("agent = ", 9, "a text in double quotes"),
            ("agent = coder", 9, "a text in double quotes"),
            ("agent = \"x", 9, "has no end"),
            ("agent = \"x\\n\"", 9, "has no end"),
            ("agent = 'x'", 9, "text stands in double quotes"),
            (
                "agent = \"ü\" size = 1",
                13,
                "expected `and`, `or` or the end",
            ),
            ("agent = \"\0\"", 9, "a text in double quotes"),
            ("agent > \"x\"", 7, "expected =, !=, `in`, `begins`"),
            ("colour = \"x\"", 1, "the fields are run, run_no, agent"),
            ("\"agent\" = \"x\"", 1, "expected a field"),
            ("status = closed", 10, "one of open, ended, sealed"),
            ("status < open", 8, "expected =, !=, `in` or"),
            ("size = -1", 8, "a whole number from 0"),
            ("size = 1.5", 8, "a whole number from 0"),
            ("size = \"1\"", 8, "a whole number from 0"),
            ("size = 9223372036854775808", 8, "a whole number from 0"),
            ("opened_at > yesterday", 13, "a time for opened_at"),
            ("size begins 1", 6, "expected =, !=, <"),
            ("size in 1", 9, "`(` and values"),
            ("size in ()", 10, "a whole number"),
            ("size in (1 2)", 12, "`,` and another value"),
            ("size is 1", 9, "`is set`"),
            ("(size = 1", 10, "the `)` of this `(`"),
            ("size = 1)", 9, "or the end"),
            ("not", 4, "expected a field"),
            ("size = 1 and", 13, "expected a field"),
            ("size = 1; drop", 9, "means nothing here"),
            (&deep, 69, "more than 16"),
            (&many, 210, "at most 100 values"),
            (&long, 1, "at most 4096 bytes"),
        ] {
            let error = read(text).expect_err(text);
            assert!(
                error.at == at && error.detail.contains(detail),
                "{text:.40}: {error}"
            );
        }
    }
}
