//! What stands for the handler of mailboxes in a build without them: there is no set for which it could be asked.

use std::sync::Arc;

use self::for_mailboxes::ForMailboxes;
use super::chain::{Asked, Decision, Handler};
use super::{Handling, Outcome};
use crate::explanation::Explanation;
use crate::http::response::Response;
use crate::mailboxes::set::MailboxSet;
use crate::message::client::Client;
use crate::message::request::Request;

/// Responses of applications that would say what to do with mailboxes.
pub mod for_mailboxes {
    use std::convert::Infallible;
    use std::sync::Arc;

    use crate::gateway::Fetched;
    use crate::upstream::proxy::Proxy;

    /// Such a response.
    pub struct ForMailboxes(Infallible);

    impl ForMailboxes {
        /// The response that was fetched by way of `proxy`, which has a set.
        pub fn new(_: Fetched, proxy: Arc<Proxy>) -> Self {
            let set = proxy.mailboxes.as_ref().expect("the proxy has mailboxes");
            match set.never {}
        }
    }
}

/// Where clients would use a set of mailboxes.
pub struct MailboxEndpoint {
    /// The set.
    pub set: Arc<MailboxSet>,
    /// What precedes the name of a box in paths.
    pub prefix: Vec<u8>,
}

impl Handler for MailboxEndpoint {
    fn decide<'s>(&'s self, _: &mut Handling<'s>, _: Asked<'_, 's>) -> Decision<'s> {
        match self.set.never {}
    }

    fn explain(&self, _: &Outcome<'_>, _: &Client, _: &Explanation) {
        match self.set.never {}
    }
}

impl Handling<'_> {
    /// Does what the response of an application says.
    pub(in crate::handler) async fn use_mailboxes(
        &mut self,
        _: &Request,
        set: &Arc<MailboxSet>,
        _: Box<ForMailboxes>,
    ) -> Response {
        match set.never {}
    }
}
