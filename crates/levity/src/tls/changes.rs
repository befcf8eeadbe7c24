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
    failed: BTreeMap<((Part, Otherwise), String), Vec<String>>,
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

/// What is used in place of files that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Otherwise {
    /// What was there before.
    Before,
    /// Nothing, since nothing was there before.
    Nothing,
}

impl Changes {
    /// This part of the files of `site` is not used.
    pub fn fails(&mut self, site: &str, part: (Part, Otherwise), reason: &str) {
        let sites = self.failed.entry((part, reason.to_owned())).or_default();
        sites.push(site.to_owned());
    }

    /// Logs all.
    pub fn log(&self) {
        log(self.lines());
    }

    /// Logs what is not used.
    pub fn log_failed(&self) {
        log(self.failed().collect());
    }

    fn failed(&self) -> impl Iterator<Item = String> {
        let failed = self.failed.iter();
        failed.map(|(((part, otherwise), reason), sites)| {
            let (part, sites) = (part.label(), sites.join(", "));
            match otherwise {
                Otherwise::Before => {
                    format!("changed {part} of {sites} are not used: {reason}; those from before stay")
                }
                Otherwise::Nothing => format!(
                    "{part} of {sites} cannot be used: {reason}; handshakes are refused until they can"
                ),
            }
        })
    }

    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.failed().collect();
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

fn log(lines: Vec<String>) {
    for line in lines {
        diagnostics::log(format_args!("{line}"));
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
            let part = (Part::Certificates, Otherwise::Before);
            changes.fails(site, part, "/a.pem cannot be read");
        }
        let part = (Part::Clients, Otherwise::Nothing);
        changes.fails("a.test", part, "/ca.pem cannot be read");
        changes.restored.push("c.test".to_owned());
        changes.is_given_anew = true;
        changes.issued = ["d.test", "e.test"].map(str::to_owned).to_vec();
        assert_eq!(
            changes.lines(),
            [
                "changed certificates of a.test, b.test are not used: /a.pem cannot be read; those from before stay",
                "authorities of clients of a.test cannot be used: /ca.pem cannot be read; handshakes are refused until they can",
                "the files of c.test are those from before again",
                "certificates were read again",
                "certificates for d.test, e.test are in use",
            ]
        );
    }
}
