//! Changed files of certificates in the log: a line for each kind of change, however many sites it is of.

use std::collections::BTreeMap;

use levity_telemetry::diagnostics;

/// What has come of a look at the files of all sites.
#[derive(Debug, Default)]
pub struct Changes {
    /// Whether files of the operator, or certificates of this machine, are used that were not before.
    pub is_given_anew: bool,
    /// Names whose new certificates by ACME are used.
    pub issued: Vec<String>,
    /// Sites whose files are again those that are used.
    pub restored: Vec<String>,
    /// Sites whose files are not used, by the reason.
    failed: BTreeMap<(Part, String), Vec<String>>,
}

/// Files of a site that are used or not used together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Certificates with their keys.
    Certificates,
    /// The authorities that sign certificates of clients.
    Clients,
}

impl Part {
    fn label(self) -> &'static str {
        match self {
            Self::Certificates => "certificates",
            Self::Clients => "authorities of clients",
        }
    }
}

impl Changes {
    /// This part of the files of `site` is not used.
    pub fn fails(&mut self, site: &str, part: Part, reason: &str) {
        let sites = self.failed.entry((part, reason.to_owned())).or_default();
        sites.push(site.to_owned());
    }

    /// Logs all.
    pub fn log(&self) {
        for line in self.lines() {
            diagnostics::log(format_args!("{line}"));
        }
    }

    fn lines(&self) -> Vec<String> {
        let failed = self.failed.iter().map(|((part, reason), sites)| {
            let (part, sites) = (part.label(), sites.join(", "));
            format!("changed {part} of {sites} are not used: {reason}; those from before stay")
        });
        let mut lines: Vec<_> = failed.collect();
        if !self.restored.is_empty() {
            let sites = self.restored.join(", ");
            lines.push(format!("the files of {sites} are those from before again"));
        }
        if self.is_given_anew {
            lines.push("certificates were read again".to_owned());
        }
        match &self.issued[..] {
            [] => {}
            [name] => lines.push(format!("the certificate for {name} is in use")),
            names => lines.push(format!("certificates for {} are in use", names.join(", "))),
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_all_sites() {
        let mut changes = Changes::default();
        assert!(changes.lines().is_empty());
        for site in ["a.test", "b.test"] {
            changes.fails(site, Part::Certificates, "/a.pem cannot be read");
        }
        changes.fails("a.test", Part::Clients, "/ca.pem cannot be read");
        changes.restored.push("c.test".to_owned());
        changes.is_given_anew = true;
        changes.issued = ["d.test", "e.test"].map(str::to_owned).to_vec();
        assert_eq!(
            changes.lines(),
            [
                "changed certificates of a.test, b.test are not used: /a.pem cannot be read; those from before stay",
                "changed authorities of clients of a.test are not used: /ca.pem cannot be read; those from before stay",
                "the files of c.test are those from before again",
                "certificates were read again",
                "certificates for d.test, e.test are in use",
            ]
        );
    }
}
