//! Pages in place of the text of an error.

use levity_telemetry::step::Step;

use super::Handling;
use crate::http::error::error;
use crate::http::response::{Body, Response};
use crate::message::fields::CONTENT_HEADERS;
use crate::message::request::Request;
use crate::resolve::servable::object::ServableFile;
use crate::resolve::{Found, Named};
use crate::respond;
use crate::route::{ErrorPages, Location};

/// Headers about content that is not that of the error.
const OF_OTHER_CONTENT: &[&str] = &["etag", "last-modified", "accept-ranges", "content-length"];

impl<'a> Handling<'a> {
    /// Gives `response`, an error, the page of its location, or the built-in one; for a call of gRPC its code. An error with
    /// a body of its own is left alone, except those of an upstream that the location replaces.
    pub async fn with_error_page(
        &mut self,
        request: &Request,
        location: Option<&'a Location>,
        mut response: Response,
    ) -> Response {
        let pages = location.and_then(|location| location.error_pages.as_ref());
        if let Some(pages) = pages
            && self.is_replaced(pages, &response)
        {
            response = without_content(response);
        }
        if !response.is_error_text {
            return response;
        }
        if respond::grpc::end_call(request, &mut response) {
            return response;
        }
        if let Some(pages) = pages
            && let Some(location) = location
            && let Some(page) = self
                .own_page(request, (location, pages), response.status)
                .await
        {
            return with_headers_of(response, page);
        }
        respond::error_page::choose_form(request, &mut response);
        response
    }

    /// Whether `response` is an upstream's error that is replaced.
    fn is_replaced(&self, pages: &ErrorPages, response: &Response) -> bool {
        let mut replaced = pages.replaced.iter();
        self.disk.trace.upstream().is_some()
            && !response.is_error_text
            && replaced.any(|statuses| statuses.include(response.status))
    }

    /// The page of the location for `status`, if it has one that can be sent.
    async fn own_page(
        &mut self,
        request: &Request,
        (location, pages): (&'a Location, &ErrorPages),
        status: u16,
    ) -> Option<Response> {
        let (files, path) = pages.page(status)?;
        let key = files.key_of(pages.location, path);
        let named = Named {
            key: &key,
            asked: path,
            path: files.beneath(path),
        };
        if !files.shows(named.path) {
            return None;
        }
        let found = self.resolve(request, (location, files), named).await;
        self.disk.trace.enter(Step::Respond);
        match found {
            // The operator has named it for errors: its own rules are for requests for it.
            Ok(Found::File(cached, ready)) => Some(respond::file::whole(
                ServableFile::named_on_purpose(cached, ready),
            )),
            Ok(Found::Directory(_)) => None,
            Err(error) => {
                pages.log_once(path, &error);
                None
            }
        }
    }
}

/// Replaces the content of an upstream's response by the text of an error.
fn without_content(response: Response) -> Response {
    if let Body::Stream { stream, .. } = response.body {
        stream.discard();
    }
    let mut text = error(response.status, "");
    // The application knows them, if there are any.
    for name in ["allow", "retry-after"] {
        text.fields.remove(name);
    }
    text.fields.extend_except(&response.fields, CONTENT_HEADERS);
    remove_foreign(&mut text);
    text.has_date = response.has_date;
    text.has_server = response.has_server;
    text.close = response.close;
    text
}

fn remove_foreign(response: &mut Response) {
    for name in OF_OTHER_CONTENT {
        response.fields.remove(name);
    }
}

/// The content of `page` with the status and the headers of `error`.
fn with_headers_of(error: Response, mut page: Response) -> Response {
    page.merge_base();
    remove_foreign(&mut page);
    page.fields.extend_except(&error.fields, CONTENT_HEADERS);
    page.status = error.status;
    page.close = error.close;
    page.has_date = error.has_date;
    page.has_server = error.has_server;
    page
}
