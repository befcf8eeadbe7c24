//! CGI/1.1 (RFC 3875) as [FastCGI](crate::fastcgi) and [SCGI](crate::scgi) carry it: the variables
//! of a request, the script that a path names, and the head of an application's answer.

mod environment;
mod response;
mod script;

pub use environment::{ENVIRONMENT_BYTES_MAX, Environment, Request};
pub use response::{ResponseHead, parse_response};
pub use script::{Script, Split, split_script};
