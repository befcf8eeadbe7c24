//! `listing_archive`: the forms in which a folder is sent as one file.

use strum::{EnumString, IntoStaticStr, VariantNames};

use crate::section::Section;

const KEY: &str = "listing_archive";

/// A form of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum ArchiveForm {
    /// POSIX tar.
    Tar,
    /// Zip, without compression.
    Zip,
}

impl ArchiveForm {
    /// The name of the form, which is the extension of its files.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Reads the key.
pub(crate) fn forms(section: &Section<'_>, name: &str) -> Option<Vec<ArchiveForm>> {
    let mut forms = Vec::new();
    for given in section.names(name)? {
        let Some(form) = given.word(name, ArchiveForm::VARIANTS) else {
            continue;
        };
        match forms.contains(&form) {
            true => given.refuse(format!("`{}` is given twice", given.text)),
            false => forms.push(form),
        }
    }
    Some(forms)
}

/// Reports `forms` of the section that could be of no use: `may_list` is whether there are listings, or routes that may
/// have some.
pub(crate) fn check(section: &Section<'_>, forms: &[ArchiveForm], may_list: bool) {
    if section.has(KEY) && !forms.is_empty() && !may_list {
        section.report(KEY, "it needs `listing = true` here", None);
    }
}
