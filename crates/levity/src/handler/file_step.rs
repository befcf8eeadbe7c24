//! The handler of a step of `try` that looks for a file or a folder.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use levity_wire::http1::Method;

use super::chain::{Asked, Decision, Handler, Internal, OtherName, Waiting, Waits};
use super::files::{failed, is_folder_without_slash, refusal_of_file};
use super::{Handling, Outcome, explain};
use crate::explanation::{Explanation, Topic};
use crate::files::scripts::PathKind;
use crate::message::client::Client;
use crate::message::request::Request;
use crate::resolve::{Found, Named};
use crate::route::{Files, Location};

/// One step of a search for a file.
pub struct FileStep {
    /// Where it searches.
    pub files: Arc<Files>,
    /// What it searches for.
    pub candidate: Candidate,
}

/// What may lie beneath the root for a path.
pub enum Candidate {
    /// The file that the path names, or the index file of the folder.
    FileOrIndex,
    /// The file that the path names.
    File,
    /// The file whose name is the path with this suffix.
    WithSuffix(Vec<u8>),
    /// The folder that the path names, with its index file or as a list.
    Folder,
    /// The file of this path, whatever is requested. It begins with the prefix that is stripped from paths.
    At(Vec<u8>),
}

impl Candidate {
    /// What it is, in words.
    fn words(&self) -> Cow<'_, str> {
        match self {
            Self::FileOrIndex => "the file or index".into(),
            Self::File => "the file".into(),
            Self::WithSuffix(suffix) => {
                format!("the file with {}", String::from_utf8_lossy(suffix)).into()
            }
            Self::Folder => "the folder".into(),
            Self::At(path) => String::from_utf8_lossy(path),
        }
    }

    /// The path of the candidate for the requested `path`; `None` if there can be none.
    pub fn path<'a>(&'a self, path: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let names_folder = path.ends_with(b"/");
        match self {
            Self::FileOrIndex => Some(path.into()),
            Self::File => (!names_folder).then_some(path.into()),
            Self::WithSuffix(suffix) => (!names_folder).then(|| [path, suffix].concat().into()),
            Self::Folder if names_folder => Some(path.into()),
            Self::Folder => Some([path, b"/"].concat().into()),
            Self::At(path) => Some(path.into()),
        }
    }
}

impl Handler for FileStep {
    fn decide<'s>(&'s self, cx: &mut Handling<'s>, asked: Asked<'_, 's>) -> Decision<'s> {
        match cx.may_be_file(asked.request, asked.location(), self) {
            true => Decision::Wait(self),
            false => Decision::Now(Outcome::Next),
        }
    }

    fn explain(&self, outcome: &Outcome<'_>, _: &Client, explanation: &Explanation) {
        let (what, then) = (self.candidate.words(), explain::goes_on(outcome));
        explanation.add(Topic::Handler, format!("`try` of {what}{then}"));
    }

    fn behind_internal<'s>(&'s self, path: &'s [u8], _: &Request, _: &Client) -> Internal<'s> {
        match self.candidate.path(path) {
            Some(path) => Internal::FileIfAny(&self.files, path),
            None => Internal::Next,
        }
    }

    fn for_other_name(&self, asked: &Request, _: bool) -> OtherName {
        OtherName::End(refusal_of_file(asked, &self.files))
    }
}

impl Waits for FileStep {
    fn wait<'x, 's>(&'s self, cx: &'x mut Handling<'s>, asked: Asked<'x, 's>) -> Waiting<'x, 's> {
        Box::pin(cx.existing_file(asked.request, asked.location(), self))
    }
}

impl<'a> Handling<'a> {
    /// Whether a file may be the response to `request`.
    fn may_be_file(&self, request: &Request, location: &Location, step: &FileStep) -> bool {
        // An upstream may want the body.
        let may_have_body = location.proxy.is_none();
        let may_be_file = matches!(request.head.method, Method::Get | Method::Head)
            && (may_have_body || !request.has_body());
        let is_fixed = matches!(step.candidate, Candidate::At(_));
        self.script.is_none() && may_be_file && (is_fixed || !request.has_encoded_slash)
    }

    /// Serves the file or folder of a step of `try` if it exists; otherwise continues with the next handler.
    async fn existing_file(
        &mut self,
        request: &Request,
        location: &'a Location,
        step: &FileStep,
    ) -> Outcome<'a> {
        let Some(path) = step.candidate.path(&request.path) else {
            return Outcome::Next;
        };
        let key = request.key_of(&path);
        let named = Named {
            key: &key,
            asked: &path,
            path: step.files.beneath(&path),
        };
        if !step.files.shows(named.path) {
            self.explain_hidden(&step.files, named.path);
            return Outcome::Next;
        }
        if *path == *request.path
            && location.may_be_form(&request.path)
            && let Some(refusal) = Box::pin(self.refusal_of_originals(request, location)).await
        {
            return Outcome::Response(refusal);
        }
        let at = (location, &*step.files);
        let found = self.resolve(request, at, named).await;
        let outcome = self
            .outcome_of_step(request, (location, step), named, found)
            .await;
        let is_fixed = matches!(step.candidate, Candidate::At(_));
        self.served_key = key;
        self.sends_page =
            is_fixed && path != request.path && matches!(outcome, Outcome::Response(_));
        outcome
    }

    /// The path of the page of `try` that is sent in place of what `request` names, and the location of a request for that page, if
    /// it has the same files. How long the page may be kept is said there: the name that it stands in for may exist later.
    pub fn page_sent<'s>(
        &'s self,
        request: &'s Request,
        location: &'a Location,
    ) -> Option<(&'s [u8], &'a Location)> {
        if !self.sends_page {
            return None;
        }
        let page = request.path_of(&self.served_key);
        let of_page = self.rules(request, location).with_files_of(page);
        Some((page, of_page))
    }

    async fn outcome_of_step(
        &mut self,
        request: &Request,
        (location, step): (&'a Location, &FileStep),
        named: Named<'_>,
        found: io::Result<Found>,
    ) -> Outcome<'a> {
        let files = &*step.files;
        let is_folder = matches!(step.candidate, Candidate::Folder);
        let lacks_slash = is_folder && !request.names_directory();
        let kind = match found {
            Ok(Found::File(..)) if lacks_slash || is_folder_without_slash(request, named) => {
                return self.to_folder(request, location);
            }
            Ok(Found::File(cached, ready)) => {
                let found = (cached, ready);
                return match self.servable(request, (location, files), named, found) {
                    Ok(file) => {
                        let response = self.file_response(request, (files, named.path), file);
                        Outcome::Response(response.await)
                    }
                    Err(elsewhere) => elsewhere,
                };
            }
            Ok(Found::Directory(directory)) if is_folder && files.listing => {
                let folder = self.folder(request, (location, files), directory);
                return Box::pin(folder).await;
            }
            Ok(Found::Directory(_)) => PathKind::Directory,
            Err(error) => match failed(self.worker, files, request, &error) {
                response if response.status == 404 => PathKind::Missing,
                response => return Outcome::Response(response),
            },
        };
        match step.candidate {
            Candidate::File | Candidate::FileOrIndex => self.path_kind = kind,
            Candidate::Folder if kind == PathKind::Directory => self.path_kind = kind,
            _ => {}
        }
        Outcome::Next
    }
}
