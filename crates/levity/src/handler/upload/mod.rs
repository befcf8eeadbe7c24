//! Writes files: PUT, DELETE and MKCOL at locations with `upload`.
//!
//! What has to be looked at before a body is received is looked at by the request. The change itself belongs to a task of
//! its own: once it has begun, it is made whatever becomes of the client, and others wait for it.

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
use super::{Handling, Outcome};
use crate::http::error::{ALLOW, error};
use crate::http::response::{Body, Response};
use crate::message::request::Request;
use crate::route::{Location, Upload};

impl<'a> Handling<'a> {
    /// Answers requests that write; leaves all others to the handlers behind it.
    pub(super) async fn upload(
        &mut self,
        request: &Request,
        location: &'a Location,
        upload: &'a Arc<Upload>,
    ) -> Outcome<'a> {
        if matches!(request.head.method, Method::Get | Method::Head) {
            return Outcome::Next;
        }
        let method = written(request);
        let Some(method) = method.filter(|method| upload.permits(*method)) else {
            return match upload.has_proxy {
                true => Outcome::Next,
                false => {
                    self.explain_refusal("`methods` of `upload` does not have the method");
                    Outcome::Response(other_method(request, upload))
                }
            };
        };
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

/// The method of `request` if it may write here.
pub(super) fn written(request: &Request) -> Option<UploadMethod> {
    match request.method() {
        b"PUT" => Some(UploadMethod::Put),
        b"DELETE" => Some(UploadMethod::Delete),
        b"MKCOL" => Some(UploadMethod::Mkcol),
        _ => None,
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
