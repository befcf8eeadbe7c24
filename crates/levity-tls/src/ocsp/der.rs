//! Reads DER (X.690), element by element.

use std::time::SystemTime;

use x509_parser::asn1_rs::{Any, Class, FromDer as _, Tag};

use crate::certificate::time;

/// What is read is not what it has to be.
#[derive(Debug)]
pub(super) struct Malformed;

/// What is left of a sequence of elements.
pub(super) struct Reader<'d>(&'d [u8]);

impl<'d> Reader<'d> {
    pub(super) fn new(der: &'d [u8]) -> Self {
        Self(der)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing may follow.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        self.is_empty().then_some(()).ok_or(Malformed)
    }

    fn any(&mut self) -> Result<Any<'d>, Malformed> {
        let (rest, any) = Any::from_der(self.0).map_err(|_| Malformed)?;
        self.0 = rest;
        Ok(any)
    }

    /// The next element with its tag and its length.
    pub(super) fn raw(&mut self) -> Result<&'d [u8], Malformed> {
        let before = self.0;
        self.any()?;
        Ok(&before[..before.len() - self.0.len()])
    }

    fn content(&mut self, tag: Tag) -> Result<&'d [u8], Malformed> {
        let any = self.any()?;
        let is_it = any.class() == Class::Universal && any.tag() == tag;
        is_it.then_some(any.data).ok_or(Malformed)
    }

    pub(super) fn sequence(&mut self) -> Result<Self, Malformed> {
        self.content(Tag::Sequence).map(Self)
    }

    pub(super) fn octet_string(&mut self) -> Result<&'d [u8], Malformed> {
        self.content(Tag::OctetString)
    }

    /// Its bytes, the highest first, the highest bit for the sign.
    pub(super) fn integer(&mut self) -> Result<&'d [u8], Malformed> {
        self.content(Tag::Integer)
    }

    /// Its bytes.
    pub(super) fn enumerated(&mut self) -> Result<&'d [u8], Malformed> {
        self.content(Tag::Enumerated)
    }

    /// Its bytes.
    pub(super) fn object_identifier(&mut self) -> Result<&'d [u8], Malformed> {
        self.content(Tag::Oid)
    }

    /// A `GeneralizedTime`.
    pub(super) fn time(&mut self) -> Result<SystemTime, Malformed> {
        let parsed = self.any()?.generalizedtime();
        let parsed = parsed.and_then(|parsed| parsed.utc_datetime());
        parsed
            .map(|parsed| time(parsed.unix_timestamp()))
            .map_err(|_| Malformed)
    }

    /// The content of the next element if its tag is `[number]`, which only this context explains.
    pub(super) fn tagged(&mut self, number: u32) -> Result<Option<&'d [u8]>, Malformed> {
        if self.is_empty() {
            return Ok(None);
        }
        let before = self.0;
        let any = self.any()?;
        let is_it = any.class() == Class::ContextSpecific && any.tag() == Tag(number);
        if !is_it {
            self.0 = before;
        }
        Ok(is_it.then_some(any.data))
    }
}
