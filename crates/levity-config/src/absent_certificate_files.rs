//! What stands for the files of certificates in a build without TLS. The configuration refuses all that names one.

use std::path::{Path, PathBuf};

use crate::certificate_pair::CertificateFiles;
use crate::section::Section;

/// Notes nothing.
pub(crate) fn note(_: &Section<'_>, _: &[CertificateFiles], _: &[String]) {}

/// Notes nothing.
pub(crate) fn note_hosts(_: &Section<'_>, _: &[String]) {}

/// Notes nothing.
pub(crate) fn note_trusted(_: &Section<'_>, _: &str, _: &Path, _: &str) {}

/// Notes nothing.
pub(crate) fn note_client_authorities(_: &Section<'_>, _: &Path) {}

/// Notes nothing.
pub(crate) fn note_ticket_keys(_: &Section<'_>, _: &[PathBuf]) {}

/// Notes nothing.
pub(crate) fn note_own(_: &Section<'_>, _: &CertificateFiles, _: &str) {}

/// Any name is as good as another.
pub(crate) fn can_be_for(_: &str) -> bool {
    true
}
