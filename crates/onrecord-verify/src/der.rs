//! DER, strictly (ITU-T X.690, 10): one spelling of each value, and nothing behind the end.

/// Tags of the types that time stamps and certificates are made of.
pub(crate) mod tag {
    pub const BOOLEAN: u8 = 0x01;
    pub const INTEGER: u8 = 0x02;
    pub const BIT_STRING: u8 = 0x03;
    pub const OCTET_STRING: u8 = 0x04;
    pub const OID: u8 = 0x06;
    pub const UTC_TIME: u8 = 0x17;
    pub const GENERALIZED_TIME: u8 = 0x18;
    pub const SEQUENCE: u8 = 0x30;
    pub const SET: u8 = 0x31;

    /// `[number]`, constructed.
    pub const fn context(number: u8) -> u8 {
        0xa0 | number
    }

    /// `[number]`, of a type that is not constructed.
    pub const fn context_primitive(number: u8) -> u8 {
        0x80 | number
    }
}

/// The bytes are no DER, or not of the structure that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the expected DER")]
pub(crate) struct BadDer;

/// An element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element<'a> {
    pub tag: u8,
    /// What it holds.
    pub content: &'a [u8],
    /// With tag and length.
    pub whole: &'a [u8],
}

/// What is left to be read of a sequence of elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next element, `None` at the end.
    pub fn element(&mut self) -> Result<Option<Element<'a>>, BadDer> {
        let Some((&tag, after)) = self.0.split_first() else {
            return Ok(None);
        };
        // Tags of several bytes occur nowhere in what we read.
        if tag & 0x1f == 0x1f {
            return Err(BadDer);
        }
        let (&first, after) = after.split_first().ok_or(BadDer)?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), after),
            0x81..=0x84 => {
                let (bytes, rest) = after
                    .split_at_checked(usize::from(first & 0x7f))
                    .ok_or(BadDer)?;
                let length = bytes
                    .iter()
                    .fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
                // The shortest way to write it is the only one.
                if bytes.first() == Some(&0) || length < 0x80 {
                    return Err(BadDer);
                }
                (length, rest)
            }
            // An indefinite length is BER, and no longer one fits here.
            _ => return Err(BadDer),
        };
        let (content, rest) = rest.split_at_checked(length).ok_or(BadDer)?;
        let whole = &self.0[..self.0.len() - rest.len()];
        self.0 = rest;
        Ok(Some(Element {
            tag,
            content,
            whole,
        }))
    }

    /// The next element, which has this tag.
    pub fn expect(&mut self, tag: u8) -> Result<Element<'a>, BadDer> {
        let element = self.element()?.ok_or(BadDer)?;
        if element.tag == tag {
            Ok(element)
        } else {
            Err(BadDer)
        }
    }

    /// The next element, if it has this tag.
    pub fn optional(&mut self, tag: u8) -> Result<Option<Element<'a>>, BadDer> {
        if self.0.first() == Some(&tag) {
            self.element()
        } else {
            Ok(None)
        }
    }

    /// What is in the next element, a sequence.
    pub fn sequence(&mut self) -> Result<Self, BadDer> {
        Ok(Self(self.expect(tag::SEQUENCE)?.content))
    }

    /// The next element, an object identifier, as its bytes.
    pub fn oid(&mut self) -> Result<&'a [u8], BadDer> {
        Ok(self.expect(tag::OID)?.content)
    }

    /// The next element, an integer: its shortest bytes.
    pub fn integer(&mut self) -> Result<&'a [u8], BadDer> {
        let bytes = self.expect(tag::INTEGER)?.content;
        match bytes {
            [] | [0, 0..=0x7f, ..] | [0xff, 0x80..=0xff, ..] => Err(BadDer),
            _ => Ok(bytes),
        }
    }

    /// An element, a boolean.
    pub fn boolean(element: Element<'_>) -> Result<bool, BadDer> {
        match element.content {
            [0] => Ok(false),
            [0xff] => Ok(true),
            _ => Err(BadDer),
        }
    }

    /// The bytes of the next element, a bit string of whole bytes.
    pub fn bits(&mut self) -> Result<&'a [u8], BadDer> {
        match self.expect(tag::BIT_STRING)?.content.split_first() {
            Some((0, bytes)) => Ok(bytes),
            _ => Err(BadDer),
        }
    }

    /// Nothing is left.
    pub fn end(&self) -> Result<(), BadDer> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(BadDer)
        }
    }
}

/// What a whole input, one element of this tag, holds.
pub(crate) fn only(bytes: &[u8], tag: u8) -> Result<Reader<'_>, BadDer> {
    let mut reader = Reader(bytes);
    let element = reader.expect(tag)?;
    reader.end()?;
    Ok(Reader(element.content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_is_read() {
        let mut reader = Reader(&[0x30, 0x03, 0x02, 0x01, 0x05]);
        let mut inner = reader.sequence().unwrap();
        assert_eq!(inner.integer(), Ok(&[5][..]));
        assert!(inner.end().is_ok() && reader.end().is_ok());
        let long = [&[0x04, 0x81, 0x80][..], &[7; 128]].concat();
        assert_eq!(
            Reader(&long).expect(tag::OCTET_STRING).unwrap().content,
            [7; 128]
        );
        for bad in [
            &[0x02][..],
            &[0x02, 0x01],
            &[0x02, 0x81, 0x01, 0x05],
            &[0x02, 0x82, 0x00, 0x81, 0x05],
            &[0x30, 0x80, 0x00, 0x00],
            &[0x02, 0x85, 1, 1, 1, 1, 1],
            &[0x1f, 0x01, 0x00],
            &[0x02, 0x02, 0x00, 0x05],
            &[0x02, 0x02, 0xff, 0x85],
            &[0x02, 0x00],
            &[0x04, 0x01, 0x05],
        ] {
            assert!(Reader(bad).integer().is_err(), "{bad:02x?}");
        }
        assert!(only(&[0x02, 0x01, 0x05, 0x00], tag::INTEGER).is_err());
    }
}
