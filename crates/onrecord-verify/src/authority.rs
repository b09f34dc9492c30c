//! Whether a time stamp is by an authority that the reader pinned (spec: `docs/spec/verification.md`, "Time stamps";
//! RFC 3161, 2.4.2; RFC 5652, 5.4; RFC 5280, 6).

use crate::certificate::{Algorithm, Certificate, Sha};
use crate::der::{BadDer, Element, Reader, only, tag};
use crate::time_stamp::{self, TST_INFO, TimeStamp};

/// Certificates between the stamp's and a pinned one, at most.
const PATH: usize = 6;
/// Certificates that a stamp may bring along.
const CERTIFICATES: usize = 32;
/// pkcs-9 contentType and messageDigest, and S/MIME's signingCertificateV2, as DER has them.
const CONTENT_TYPE: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x03];
const MESSAGE_DIGEST: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x04];
const SIGNING_CERTIFICATE_V2: [u8; 11] = [
    0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x10, 0x02, 0x2f,
];

/// What is wrong with a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unproven {
    /// It is false.
    False(&'static str),
    /// Nobody who is pinned stands for it.
    Unknown,
    /// It is signed in a way that is not checked here.
    Unsupported,
}

impl From<BadDer> for Unproven {
    fn from(_: BadDer) -> Self {
        Self::False("its signature is not the DER of one")
    }
}

/// Whether a text is the base64-decoded DER of a certificate that can be pinned.
pub(crate) fn is_certificate(der: &[u8]) -> bool {
    Certificate::read(der).is_ok()
}

/// Checks the signature of a stamp, up to a certificate that is pinned.
pub(crate) fn check(stamp: &TimeStamp, pinned: &[Vec<u8>]) -> Result<(), Unproven> {
    let content = time_stamp::content(&stamp.signed_data)?;
    let mut signed = only(&stamp.signed_data, tag::SEQUENCE)?;
    signed.integer()?;
    signed.expect(tag::SET)?;
    signed.sequence()?;
    let brought = signed.optional(tag::context(0))?;
    signed.optional(tag::context(1))?;
    let signers = signed.expect(tag::SET)?;
    signed.end()?;
    let brought = certificates(brought)?;
    let pinned: Vec<Certificate<'_>> = pinned
        .iter()
        .filter_map(|one| Certificate::read(one).ok())
        .collect();
    let mut signers = Reader(signers.content);
    let signer = Signer::read(signers.sequence()?)?;
    // Exactly one (RFC 3161, 2.4.2).
    signers.end()?;
    let all = || pinned.iter().chain(&brought);
    let certificate = all().find(|one| signer.is(one)).ok_or(Unproven::Unknown)?;
    signer.check(certificate, content)?;
    if !certificate.is_stamper {
        return Err(Unproven::False(
            "it is signed with a certificate that is not for time stamps alone",
        ));
    }
    path(certificate, stamp, &pinned, &brought)
}

/// From the signer's certificate up to one that is pinned.
fn path(
    first: &Certificate<'_>,
    stamp: &TimeStamp,
    pinned: &[Certificate<'_>],
    brought: &[Certificate<'_>],
) -> Result<(), Unproven> {
    let (mut last, mut fault) = (first, None);
    for between in 0..=PATH {
        fault = fault.or(last.fault_at(stamp.time));
        if pinned.iter().any(|one| one.whole == last.whole) {
            return fault.map_or(Ok(()), |fault| Err(Unproven::False(fault)));
        }
        let mut unsupported = false;
        let issuer = pinned.iter().chain(brought).find(|one| {
            // A certificate that signed itself leads nowhere.
            let signed = (one.whole != last.whole).then(|| one.signed(last, between));
            unsupported |= signed == Some(None);
            signed == Some(Some(true))
        });
        match issuer {
            Some(issuer) => last = issuer,
            None if unsupported => return Err(Unproven::Unsupported),
            None => return Err(Unproven::Unknown),
        }
    }
    Err(Unproven::Unknown)
}

fn certificates(set: Option<Element<'_>>) -> Result<Vec<Certificate<'_>>, BadDer> {
    let mut found = Vec::new();
    let mut reader = Reader(set.map_or(&[][..], |set| set.content));
    while let Some(element) = reader.element()? {
        if found.len() == CERTIFICATES {
            return Err(BadDer);
        }
        // What is no certificate that we can read is none that stands for anything.
        found.extend(Certificate::read(element.whole).ok());
    }
    Ok(found)
}

/// SignerInfo ::= SEQUENCE { version, sid, digestAlgorithm, signedAttrs?, signatureAlgorithm, signature, … }.
struct Signer<'a> {
    /// Issuer and serial number, or a subject key identifier.
    identifier: Element<'a>,
    sha: Option<Sha>,
    attributes: Element<'a>,
    algorithm: Algorithm,
    sig: &'a [u8],
}

impl<'a> Signer<'a> {
    fn read(mut info: Reader<'a>) -> Result<Self, BadDer> {
        info.integer()?;
        let identifier = info.element()?.ok_or(BadDer)?;
        let sha = Sha::from_oid(info.sequence()?.oid()?);
        let attributes = info.expect(tag::context(0))?;
        let algorithm = Algorithm::read(&mut info)?;
        let sig = info.expect(tag::OCTET_STRING)?.content;
        info.optional(tag::context(1))?;
        info.end()?;
        Ok(Self {
            identifier,
            sha,
            attributes,
            algorithm,
            sig,
        })
    }

    /// Whether the certificate is the one that it names.
    fn is(&self, certificate: &Certificate<'_>) -> bool {
        let named = || {
            let mut reader = Reader(self.identifier.content);
            let issuer = reader.expect(tag::SEQUENCE)?.whole;
            Ok::<_, BadDer>((issuer, reader.integer()?))
        };
        match self.identifier.tag {
            tag::SEQUENCE => named().is_ok_and(|(issuer, serial)| {
                issuer == certificate.issuer && serial == certificate.serial
            }),
            other => {
                other == tag::context_primitive(0)
                    && certificate.key_identifier == Some(self.identifier.content)
            }
        }
    }

    /// Checks what is signed, and the signature.
    fn check(&self, certificate: &Certificate<'_>, content: &[u8]) -> Result<(), Unproven> {
        let sha = self.sha.ok_or(Unproven::Unsupported)?;
        let (mut kind, mut digest) = (None, None);
        let mut list = Reader(self.attributes.content);
        while let Some(attribute) = list.element()? {
            let mut attribute = Reader(attribute.content);
            let oid = attribute.oid()?;
            let mut values = Reader(attribute.expect(tag::SET)?.content);
            attribute.end()?;
            if oid == CONTENT_TYPE {
                kind = Some(values.oid()?);
            } else if oid == MESSAGE_DIGEST {
                digest = Some(values.expect(tag::OCTET_STRING)?.content);
            } else if oid == SIGNING_CERTIFICATE_V2 {
                check_binding(values, certificate)?;
            }
        }
        if kind != Some(TST_INFO) || digest != Some(sha.digest(content).as_slice()) {
            return Err(Unproven::False("its signature is over another time stamp"));
        }
        // What is signed is the set itself, and not its place in the SignerInfo (RFC 5652, 5.4).
        let mut message = self.attributes.whole.to_vec();
        if let Some(first) = message.first_mut() {
            *first = tag::SET;
        }
        match certificate
            .key
            .verifies(self.algorithm, sha, &message, self.sig)
        {
            Some(true) => Ok(()),
            Some(false) => Err(Unproven::False("its signature is false")),
            None => Err(Unproven::Unsupported),
        }
    }
}

/// SigningCertificateV2 (RFC 5035, 3): the first certificate named is the signer's.
fn check_binding(mut values: Reader<'_>, certificate: &Certificate<'_>) -> Result<(), Unproven> {
    let mut ids = values.sequence()?.sequence()?;
    let mut first = ids.sequence()?;
    // SHA-256 unless it says otherwise.
    let sha = match first.optional(tag::SEQUENCE)? {
        Some(algorithm) => Sha::from_oid(Reader(algorithm.content).oid()?),
        None => Some(Sha::Sha256),
    };
    let sha = sha.ok_or(Unproven::Unsupported)?;
    if first.expect(tag::OCTET_STRING)?.content == sha.digest(certificate.whole) {
        Ok(())
    } else {
        Err(Unproven::False(
            "it names another certificate than it is signed with",
        ))
    }
}
