//! CGI/1.1 (RFC 3875) as used by [FastCGI](crate::fastcgi) and [SCGI](crate::scgi): the variables
//! of a request, the split of a path into script and path info, and the headers of a response.

mod environment;
mod response;
mod script;

pub use environment::{ENVIRONMENT_BYTES_MAX, Environment, Request};
pub use response::{ResponseHead, parse_response};
pub use script::{Script, Split, split_script};
