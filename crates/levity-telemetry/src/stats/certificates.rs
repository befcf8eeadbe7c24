//! What a scrape reads of certificates.

/// The values of the certificates of sites at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFigures {
    /// Those that are known in advance; a name and a source occur once.
    pub certificates: Vec<CertificateFigure>,
    /// The number of those that clients have asked for; `None` if no site can have any.
    pub on_demand: Option<u64>,
}

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFigure {
    /// Its first name.
    pub name: String,
    /// Where it comes from, as a word.
    pub source: &'static str,
    /// The time until it ends; negative after that, and 0 if there is none.
    pub seconds_left: i64,
}
