//! Lists of boxes, for publishers.

use levity_mailbox::{Command, Info, Name};
use serde_json::{Value, json};

use super::super::Handling;
use super::json;
use crate::http::error::error;
use crate::http::response::Response;
use crate::mailboxes::set::MailboxSet;
use crate::message::request::Request;

/// The maximum number of boxes in one list.
const BOXES_MAX: usize = 1000;

impl Handling<'_> {
    /// The boxes of a set whose names follow `after`, which may be empty, in the order of names. Whoever may publish to all of
    /// them may see it: names can be secrets.
    pub(super) async fn list(
        &self,
        request: &Request,
        set: &MailboxSet,
        after: &str,
    ) -> Result<Response, Response> {
        self.check_publisher(request, set, "")?;
        let after = match after {
            "" => None,
            name => Some(
                Name::new(&set.of.name, name.as_bytes())
                    .ok_or_else(|| error(400, "`after` is no name of a mailbox"))?,
            ),
        };
        let mut boxes = Vec::new();
        for owner in 0..self.worker.mailboxes.owners() {
            let list = |reply| Command::List {
                set: set.of.name.clone(),
                after: after.clone(),
                count_max: BOXES_MAX,
                reply,
            };
            boxes.extend(self.ask_owner(set, owner, list).await?);
        }
        boxes.sort_by(|one, other| one.summary.name.cmp(&other.summary.name));
        let has_more = boxes.len() >= BOXES_MAX;
        boxes.truncate(BOXES_MAX);
        let last = boxes.last().filter(|_| has_more);
        let next = last.map(|last| last.summary.name.in_set().to_owned());
        let boxes: Vec<_> = boxes.iter().map(described).collect();
        Ok(json(200, &json!({"mailboxes": boxes, "next": next})))
    }
}

/// What is known of a box.
pub fn described(Info { summary, receivers }: &Info) -> Value {
    json!({
        "mailbox": summary.name.in_set(),
        "messages": summary.messages,
        "bytes": summary.bytes,
        "receivers_here": receivers,
    })
}
