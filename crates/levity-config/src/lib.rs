//! Levity's configuration: what its files may say, and how they become a [`Config`].
//!
//! [`load`] reads the files and reports everything that is wrong with them in one run. The table in `keys.rs` lists every
//! key; the reader, the suggestions and `docs/configuration.md` come from it.
//!
//! The files of a configuration (`files.rs`, `include.rs`) become one document, with the values of
//! references in its strings (`document.rs`). Spans count bytes of all files, so whatever reads
//! tables knows nothing of files, and each span has its file, line and folder (`source.rs`).
//! Messages pass through one place that takes values of variables out (`strings.rs`).
//!
//! What routes inherit is resolved here: each site and route is one [`Location`] with all values
//! that apply, and a route within a route is a route with two matchers that comes first.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![forbid(unsafe_code)]

mod absent_roots;
pub mod account;
pub mod acme;
pub mod address;
mod answer;
mod bypass;
mod cache_control;
#[cfg_attr(not(feature = "tls"), path = "absent_certificate_files.rs")]
pub mod certificate_files;
mod certificate_pair;
mod compress;
mod cors;
mod disk;
mod document;
mod error_pages;
mod expression;
mod features;
mod files;
mod foreign;
mod gates;
mod hashed_name;
mod headers;
mod hidden;
mod host;
pub mod in_unit;
mod include;
mod keys;
mod limits;
mod line;
mod listen;
mod listing_archive;
mod load;
mod location;
mod location_options;
mod log;
mod log_format;
mod mailbox;
#[cfg(test)]
mod manual;
mod matcher;
mod media_types;
mod model;
mod name_pattern;
mod named;
mod network;
mod on_disk;
mod origins;
mod own_names;
mod pattern;
mod pattern_index;
mod problem;
mod proxying;
mod rate_limit;
mod reader;
mod recognise;
mod reference;
mod resume;
mod root;
mod route;
mod schema;
mod section;
mod site;
mod source;
pub mod static_host;
mod strings;
mod substitute;
mod suggest;
pub mod swap;
mod syntax;
mod template;
#[cfg(test)]
mod tests;
pub mod tls;
mod token;
mod tries;
mod unknown;
mod upload;
pub mod upstream;
mod value;
mod variables;
mod vocabulary;

pub use absent_roots::AbsentRoots;
pub use cache_control::{CacheRule, Cached};
pub use compress::{CompressCoding, levels};
pub use cors::Cors;
pub use error_pages::Statuses;
pub use expression::Expression;
pub use features::Feature;
pub use files::Files;
pub use gates::{BasicAuth, ForwardAuth, Gates, Jwt, SignatureForm, SignedPart, SignedUrl};
pub use hashed_name::is_hashed;
pub use hidden::Hidden;
pub use host::host;
pub use keys::{engine, workers};
pub use limits::Limits;
pub use line::{Line, Note};
pub use listen::redirect_port;
pub use listing_archive::ArchiveForm;
pub use load::{
    AdminPlaces, load, load_admin, load_again, load_without_certificates, load_without_roots,
    parse, parse_beneath,
};
pub use location_options::{LocationDisk, LocationOptions, Symlinks};
pub use log_format::{LogField, LogPart, LogTemplate, LogValue};
pub use mailbox::{Mailbox, MailboxMode, MailboxProtocol, MailboxStore, StoreKind};
pub use matcher::{Matcher, When};
pub use media_types::MediaTypes;
pub use model::{
    AccessLog, Admin, Answer, Config, Disk, Etag, Fixed, Headers, Listen, Location, Log, LogFormat,
    LogTiming, PathHeaders, Redirect, Route, Server, Site, Watch,
};
pub use name_pattern::{NamePattern, hides, is_hidden};
pub use network::{AddressSet, Network, TrustedProxies};
pub use origins::Origins;
pub use own_names::OwnNames;
pub use pattern::Pattern;
pub use pattern_index::PatternIndex;
pub use problem::{Errors, Problem, printable};
pub use rate_limit::{Limited, Per, RATE_LIMITS_MAX, RateLimit};
pub use reader::NamedFile;
pub use reference::reference;
pub use resume::Resume;
pub use section::Secret;
pub use template::{Part, Template};
pub use tries::Try;
pub use upload::{Upload, UploadMethod};
pub use upstream::{Proxying, Rewrite, Upstream};
pub use variables::Variables;
