//! Writes files: PUT, DELETE and MKCOL at locations with `upload`.
//!
//! What has to be looked at before a body is received is looked at by the request. The change
//! itself belongs to a task of its own: once it has begun, it is made whatever becomes of the
//! client, and others wait for it.
//!
//! An upload goes to a file without a name in the root, a piece of 64 to 128 KiB at a time: the
//! next one is read from the client when the last one is written, so a slow disk holds up the
//! client and not memory. The task waits for the disk as long as it takes: a change whose result is
//! not known is never followed by another of that name (`stores/uploads/name_locks.rs`). On a disk
//! that does not answer such tasks never end, so there are at most 64 beneath a root: a request
//! waits for its turn, and looks at the name within its own time-out before it starts one. The task
//! looks the file up again, evaluates the conditions, and links the new file, or links it to a name
//! of the meantime and renames it over the old one. Before it replaces or removes a file it waits
//! until the tick of its change time is over (20 ms), because a new file may have the inode of one
//! that was removed, and with it its ETag. Then it notes the time of the change for the folder.

mod count;
mod name;
mod publish;
mod put;
mod remove;

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use levity_config::UploadMethod;
use levity_telemetry::stats::UploadResult;
use levity_telemetry::step::Step;
use levity_wire::http1::Method;
use tokio::sync::oneshot;
use tokio::time;

use self::name::{Name, Path};
use super::chain::{Asked, Decision, Handler, OtherName, Waiting, Waits};
use super::files::written;
use super::{Handling, Outcome};
use crate::explanation::{Explanation, Topic};
use crate::files::scripts::{self, Scripts};
use crate::http::error::{ALLOW, error};
use crate::http::response::{Body, Response};
use crate::message::client::Client;
use crate::message::request::Request;
use crate::route::{Files, Location};
use crate::stores::uploads::store::UploadStore;

/// What clients may write beneath the root of a location.
pub struct Upload {
    /// As configured.
    pub settings: levity_config::Upload,
    /// The files.
    pub files: Arc<Files>,
    /// What is known of the uploads beneath the root.
    pub store: Arc<UploadStore>,
    /// Other methods, and OPTIONS, are left to an upstream.
    pub has_proxy: bool,
    /// The scripts among these files at any location: whoever may write one could have it run.
    pub scripts: Vec<Scripts>,
}

impl Upload {
    /// The method of `request`, if it may write here.
    fn written(&self, request: &Request) -> Option<UploadMethod> {
        written(request).filter(|method| self.settings.methods.contains(method))
    }

    /// Whether `path`, relative to the root, may be that of an uploaded file: it is neither hidden nor a script anywhere, nor
    /// would it be sent in place of a file that must not be replaced.
    fn accepts(&self, path: &[u8]) -> bool {
        let is_form = !self.settings.overwrite
            && !self.files.precompressed.is_empty()
            && scripts::without_coding(path) != path;
        self.files.shows(path)
            && !is_form
            && !self.scripts.iter().any(|scripts| scripts.is_source(path))
    }
}

impl Handler for Arc<Upload> {
    fn decide<'s>(&'s self, cx: &mut Handling<'s>, asked: Asked<'_, 's>) -> Decision<'s> {
        if matches!(asked.request.head.method, Method::Get | Method::Head) {
            return Decision::Now(Outcome::Next);
        }
        match self.written(asked.request) {
            Some(_) => Decision::Wait(self),
            None if self.has_proxy => Decision::Now(Outcome::Next),
            None => {
                cx.explain_refusal("`methods` of `upload` does not have the method");
                other_method(asked.request, self).into()
            }
        }
    }

    fn explain(&self, outcome: &Outcome<'_>, _: &Client, explanation: &Explanation) {
        let text = match outcome {
            Outcome::Next => return,
            Outcome::Response(refused) if refused.status >= 400 => {
                format!("`upload` refuses with {}", refused.status)
            }
            _ => "`upload` takes it; the response depends on what is there, and nothing is written now"
                .to_owned(),
        };
        explanation.add(Topic::Handler, text);
    }

    /// A compressed form has to be written by the rules of its original, or it would be sent in place of what must not be replaced,
    /// or not be so large.
    fn for_other_name(&self, asked: &Request, has_same_uploads: bool) -> OtherName {
        if written(asked).is_none() {
            return OtherName::Pass;
        }
        if self.written(asked).is_none() {
            return OtherName::End(Some(error(405, "")));
        }
        let accepts = has_same_uploads && self.accepts(self.files.beneath(&asked.path));
        let refusal = || error(403, "nothing can be written by this name");
        OtherName::End((!accepts).then(refusal))
    }
}

impl Waits for Arc<Upload> {
    fn wait<'x, 's>(&'s self, cx: &'x mut Handling<'s>, asked: Asked<'x, 's>) -> Waiting<'x, 's> {
        let method = self.written(asked.request).expect("only what writes waits");
        Box::pin(cx.upload(asked.request, (asked.location(), self), method))
    }
}

impl<'a> Handling<'a> {
    /// Answers a request that writes.
    async fn upload(
        &mut self,
        request: &Request,
        (location, upload): (&'a Location, &'a Arc<Upload>),
        method: UploadMethod,
    ) -> Outcome<'a> {
        let response = self.write(request, (location, upload), method).await;
        let response = response.unwrap_or_else(|refusal| refusal);
        self.worker.core.stats.upload(result(method, &response));
        self.disk.trace.enter(Step::Respond);
        Outcome::Response(response)
    }

    async fn write(
        &mut self,
        request: &Request,
        (location, upload): (&'a Location, &Arc<Upload>),
        method: UploadMethod,
    ) -> Result<Response, Response> {
        let path = Path::of(request, upload)?;
        // A folder may be requested without its slash, and then gets to another route than what is in it; and a file with one.
        if let Some(refusal) = self.refusal_of_other_spelling(request, location).await {
            return Err(refusal);
        }
        if let Some(refusal) = self.refusal_of_originals(request, location).await {
            return Err(refusal);
        }
        if let Some(explanation) = &self.worker.explanation {
            let bytes = self
                .body
                .remaining()
                .filter(|_| method == UploadMethod::Put);
            if bytes.is_some_and(|bytes| bytes > upload.settings.max_file_bytes) {
                return Err(put::too_large());
            }
            explanation.leave_unanswered();
            return Ok(empty(204));
        }
        if method == UploadMethod::Delete {
            // It has no meaning (RFC 9110, 9.3.5).
            self.drop_body(false).await?;
        }
        self.disk.trace.enter(Step::Resolve);
        let disk = self.disk.detached(&self.worker.core);
        let name = Rc::new(Name::new(
            disk,
            upload,
            path,
            request,
            self.service.content_etags(),
        )?);
        match method {
            UploadMethod::Put => self.put(name).await,
            UploadMethod::Delete => {
                name.check_removal().await?;
                let remove = async move { name.remove().await };
                Ok(self.in_background(upload, remove).await)
            }
            UploadMethod::Mkcol if !self.body.is_complete() => {
                Err(error(415, "a body has no meaning here"))
            }
            UploadMethod::Mkcol => {
                name.check_new_folder().await?;
                let room = name.room_for_folder().await?;
                let make = async move { name.make_folder(room).await };
                Ok(self.in_background(upload, make).await)
            }
        }
    }

    /// Has `change` made by a task of its own, and waits for its response. The task begins when fewer than
    /// [`CHANGES_MAX`](crate::stores::uploads::store::CHANGES_MAX) are under way beneath the root: on a disk that does not
    /// answer it never ends. Until then only the request waits.
    async fn in_background(
        &self,
        upload: &Upload,
        change: impl Future<Output = Result<Response, Response>> + 'static,
    ) -> Response {
        let deadline = time::Instant::now() + self.service.config.limits.io_timeout;
        let turn = upload.store.changing.clone().acquire_owned();
        let Ok(Ok(turn)) = time::timeout_at(deadline, turn).await else {
            return error(503, "the disk is slow; nothing was changed");
        };
        let (sender, receiver) = oneshot::channel();
        self.worker.core.spawn_background(async move {
            let response = change.await.unwrap_or_else(|refusal| refusal);
            drop(turn);
            // An error means that the client was told that it takes too long.
            let _ = sender.send(response);
        });
        match time::timeout_at(deadline, receiver).await {
            Ok(Ok(response)) => response,
            _ => error(503, "the disk is slow; the change may still be made"),
        }
    }
}

/// The response to a method that does not write here and that files do not have either.
fn other_method(request: &Request, upload: &Upload) -> Response {
    let mut response = match request.method() {
        b"OPTIONS" => Response::new(204),
        _ => error(405, ""),
    };
    response.fields.set("Allow", &allow(upload));
    response
}

/// The value of Allow.
fn allow(upload: &Upload) -> Vec<u8> {
    let mut allow = ALLOW.to_vec();
    for method in &upload.settings.methods {
        allow.extend_from_slice(match method {
            UploadMethod::Put => b", PUT".as_slice(),
            UploadMethod::Delete => b", DELETE",
            UploadMethod::Mkcol => b", MKCOL",
        });
    }
    allow
}

/// A response without content.
fn empty(status: u16) -> Response {
    let mut response = Response::new(status);
    response.body = match status {
        204 => Body::None,
        _ => Body::Text(Vec::new()),
    };
    response
}

/// What is counted for a response.
fn result(method: UploadMethod, response: &Response) -> UploadResult {
    match (method, response.status) {
        (_, 201) => UploadResult::Created,
        (UploadMethod::Delete, 204) => UploadResult::Removed,
        (_, 204) => UploadResult::Replaced,
        (_, put::INCOMPLETE) => UploadResult::Part,
        (_, 507) => UploadResult::Full,
        (_, 500..) => UploadResult::Failed,
        // Of a body that did not arrive; no other of these closes the connection by itself.
        (_, 400 | 408) if response.close => UploadResult::Aborted,
        _ => UploadResult::Refused,
    }
}

#[cfg(test)]
mod tests;
