//! X.509 certificates, as far as time-stamping authorities need them (RFC 5280): read strictly, and what is critical and
//! not known is refused.

use crate::der::{BadDer, Element, Reader, only, tag};
use crate::time_stamp::generalized_time;
use onrecord_core::timestamp::Timestamp;
use rsa::BoxedUint;
use rsa::pkcs1v15::Pkcs1v15Sign;
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use std::ops::RangeInclusive;

/// Bits of an RSA modulus.
const RSA_BITS: RangeInclusive<usize> = 2_048..=8_192;
/// rsaEncryption, and the prefix of the names of RSA with a hash (RFC 8017, A.2).
const PKCS1: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
/// The prefix of SHA-2's names; one byte more says which.
const SHA2: [u8; 8] = [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];
/// id-ce, the prefix of the names of extensions.
const EXTENSION: [u8; 2] = [0x55, 0x1d];
/// id-kp-timeStamping.
const TIME_STAMPING: [u8; 8] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x08];
/// keyCertSign in the first byte of a key usage.
const CERT_SIGN: u8 = 0x04;

/// A hash of the SHA-2 family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sha {
    Sha256,
    Sha384,
    Sha512,
}

impl Sha {
    /// From an AlgorithmIdentifier's name, as digest algorithms have it.
    pub fn from_oid(oid: &[u8]) -> Option<Self> {
        match oid.strip_prefix(&SHA2)? {
            [1] => Some(Self::Sha256),
            [2] => Some(Self::Sha384),
            [3] => Some(Self::Sha512),
            _ => None,
        }
    }

    pub fn digest(self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(message).to_vec(),
            Self::Sha384 => Sha384::digest(message).to_vec(),
            Self::Sha512 => Sha512::digest(message).to_vec(),
        }
    }

    /// Of RSASSA-PKCS1-v1_5: the DER of DigestInfo up to the digest (RFC 8017, 9.2).
    fn padding(self) -> Pkcs1v15Sign {
        let (last, length) = match self {
            Self::Sha256 => (1, 32),
            Self::Sha384 => (2, 48),
            Self::Sha512 => (3, 64),
        };
        let mut prefix = vec![0x30, 17 + length, 0x30, 0x0d, 0x06, 0x09];
        prefix.extend_from_slice(&SHA2);
        prefix.extend_from_slice(&[last, 0x05, 0x00, 0x04, length]);
        Pkcs1v15Sign {
            hash_len: Some(usize::from(length)),
            prefix: prefix.into(),
        }
    }
}

/// How something is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with a hash that is named elsewhere.
    Rsa,
    /// With this one.
    RsaWith(Sha),
    /// Something that is not checked here.
    Other,
}

impl Algorithm {
    /// AlgorithmIdentifier ::= SEQUENCE { algorithm, parameters? }.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, BadDer> {
        let oid = reader.sequence()?.oid()?;
        Ok(match oid.strip_prefix(&PKCS1) {
            Some([1]) => Self::Rsa,
            Some([11]) => Self::RsaWith(Sha::Sha256),
            Some([12]) => Self::RsaWith(Sha::Sha384),
            Some([13]) => Self::RsaWith(Sha::Sha512),
            _ => Self::Other,
        })
    }
}

/// A public key that signatures are checked with.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    Rsa(rsa::PublicKey),
    /// Of an algorithm, or a length, that is not checked here.
    Other,
}

impl Key {
    /// SubjectPublicKeyInfo ::= SEQUENCE { algorithm, subjectPublicKey }.
    fn read(reader: &mut Reader<'_>) -> Result<Self, BadDer> {
        let mut spki = reader.sequence()?;
        let algorithm = Algorithm::read(&mut spki)?;
        let bits = spki.bits()?;
        spki.end()?;
        if algorithm != Algorithm::Rsa {
            return Ok(Self::Other);
        }
        let mut key = only(bits, tag::SEQUENCE)?;
        let mut number = || Ok(BoxedUint::from_be_slice_vartime(key.integer()?));
        let (modulus, exponent) = (number()?, number()?);
        key.end()?;
        // Shorter ones are no longer believed.
        let key = rsa::PublicKey::new_with_size_limits(modulus, exponent, RSA_BITS);
        Ok(key.map_or(Self::Other, Self::Rsa))
    }

    /// Whether a signature is true; `None` where the algorithm is not checked here.
    pub fn verifies(
        &self,
        algorithm: Algorithm,
        sha: Sha,
        message: &[u8],
        sig: &[u8],
    ) -> Option<bool> {
        let sha = match algorithm {
            Algorithm::RsaWith(sha) => sha,
            Algorithm::Rsa => sha,
            Algorithm::Other => return None,
        };
        match self {
            Self::Rsa(key) => Some(key.verify(sha.padding(), &sha.digest(message), sig).is_ok()),
            Self::Other => None,
        }
    }
}

/// A certificate.
#[derive(Clone, Debug)]
pub(crate) struct Certificate<'a> {
    /// All of it.
    pub whole: &'a [u8],
    /// What is signed.
    tbs: &'a [u8],
    pub serial: &'a [u8],
    /// Names, as they are spelled: two that are spelled otherwise are two.
    pub issuer: &'a [u8],
    pub subject: &'a [u8],
    not_before: Timestamp,
    not_after: Timestamp,
    pub key: Key,
    algorithm: Algorithm,
    sig: &'a [u8],
    /// Subject key identifier.
    pub key_identifier: Option<&'a [u8]>,
    /// From basic constraints: whether it certifies others, and how many may stand below it.
    is_ca: bool,
    path_length: Option<usize>,
    /// From key usage, where there is one.
    usage: Option<u8>,
    /// Whether it is for time stamps and nothing else, and says so critically.
    pub is_stamper: bool,
    /// Whether something is critical in it that is not known here.
    is_strange: bool,
}

impl<'a> Certificate<'a> {
    /// Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm, signatureValue }.
    pub fn read(bytes: &'a [u8]) -> Result<Self, BadDer> {
        let mut certificate = only(bytes, tag::SEQUENCE)?;
        let tbs = certificate.expect(tag::SEQUENCE)?;
        let algorithm = Algorithm::read(&mut certificate)?;
        let sig = certificate.bits()?;
        certificate.end()?;
        let mut body = Reader(tbs.content);
        body.optional(tag::context(0))?;
        let serial = body.integer()?;
        body.sequence()?;
        let issuer = body.expect(tag::SEQUENCE)?.whole;
        let mut validity = body.sequence()?;
        let (not_before, not_after) = (time(&mut validity)?, time(&mut validity)?);
        let subject = body.expect(tag::SEQUENCE)?.whole;
        let key = Key::read(&mut body)?;
        body.optional(tag::context_primitive(1))?;
        body.optional(tag::context_primitive(2))?;
        let mut read = Self {
            whole: bytes,
            tbs: tbs.whole,
            serial,
            issuer,
            subject,
            not_before,
            not_after,
            key,
            algorithm,
            sig,
            key_identifier: None,
            is_ca: false,
            path_length: None,
            usage: None,
            is_stamper: false,
            is_strange: false,
        };
        if let Some(extensions) = body.optional(tag::context(3))? {
            let mut list = only(extensions.content, tag::SEQUENCE)?;
            while let Some(extension) = list.element()? {
                read.extension(extension)?;
            }
        }
        body.end()?;
        Ok(read)
    }

    fn extension(&mut self, extension: Element<'a>) -> Result<(), BadDer> {
        if extension.tag != tag::SEQUENCE {
            return Err(BadDer);
        }
        let mut extension = Reader(extension.content);
        let oid = extension.oid()?;
        let is_critical = match extension.optional(tag::BOOLEAN)? {
            Some(flag) => Reader::boolean(flag)?,
            None => false,
        };
        let value = extension.expect(tag::OCTET_STRING)?.content;
        extension.end()?;
        match oid.strip_prefix(&EXTENSION) {
            Some([14]) => {
                let mut reader = Reader(value);
                self.key_identifier = Some(reader.expect(tag::OCTET_STRING)?.content);
                reader.end()?;
            }
            Some([15]) => {
                let mut reader = Reader(value);
                let bits = reader.expect(tag::BIT_STRING)?.content;
                reader.end()?;
                self.usage = Some(bits.get(1).copied().unwrap_or(0));
            }
            Some([19]) => {
                let mut constraints = only(value, tag::SEQUENCE)?;
                if let Some(flag) = constraints.optional(tag::BOOLEAN)? {
                    self.is_ca = Reader::boolean(flag)?;
                }
                if !constraints.0.is_empty() {
                    // A longer number than one byte limits nothing.
                    self.path_length = match constraints.integer()? {
                        [length] => Some(usize::from(*length)),
                        _ => None,
                    };
                }
                constraints.end()?;
            }
            Some([37]) => {
                let mut purposes = only(value, tag::SEQUENCE)?;
                let only_stamps = purposes.oid()? == TIME_STAMPING && purposes.0.is_empty();
                self.is_stamper = only_stamps && is_critical;
            }
            // Policies under which it was made: nobody here asks for one.
            Some([32]) => {}
            _ => self.is_strange |= is_critical,
        }
        Ok(())
    }

    /// What is wrong with it at a time, if anything is.
    pub fn fault_at(&self, time: Timestamp) -> Option<&'static str> {
        if self.is_strange {
            Some("a certificate has a critical extension that is not known here")
        } else if !(self.not_before..=self.not_after).contains(&time) {
            Some("a certificate was not valid at the stamp's time")
        } else {
            None
        }
    }

    /// Whether this one signed another, of which so many stand between it and the stamp; `None` where the algorithm is
    /// not checked here.
    pub fn signed(&self, other: &Certificate<'_>, between: usize) -> Option<bool> {
        let may_sign = self.is_ca
            && self.usage.is_none_or(|usage| usage & CERT_SIGN != 0)
            && self.path_length.is_none_or(|length| between <= length);
        if other.issuer != self.subject || !may_sign {
            return Some(false);
        }
        let Algorithm::RsaWith(sha) = other.algorithm else {
            return None;
        };
        self.key
            .verifies(other.algorithm, sha, other.tbs, other.sig)
    }
}

/// Time ::= CHOICE { utcTime, generalTime } (RFC 5280, 4.1.2.5).
fn time(reader: &mut Reader<'_>) -> Result<Timestamp, BadDer> {
    let element = reader.element()?.ok_or(BadDer)?;
    let read = match element.tag {
        tag::GENERALIZED_TIME => generalized_time(element.content),
        tag::UTC_TIME => {
            // Two digits of the year: 50 to 99 are of the last century.
            let century = match element.content.first() {
                Some(b'5'..=b'9') => b"19",
                _ => b"20",
            };
            generalized_time(&[century, element.content].concat())
        }
        _ => None,
    };
    read.ok_or(BadDer)
}
