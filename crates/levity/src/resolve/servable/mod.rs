//! What a request has found, to be sent or run. Only this module makes a [`ServableFile`] or a
//! [`RunnableScript`]: of what asks for no more than the location that was asked, or of what the
//! operator or an application has named on purpose.
//!
//! What is found by another name than the path (an index, a suffix or page of `try`, a script of a
//! path with PATH_INFO) is routed again for that name, by [`Rules`] (`route/rules.rs`). The
//! locations of a site have fingerprints (`compile/fingerprints.rs`): gates, refusals, `internal`,
//! what answers, which names and scripts, limits and uploads, each as a number that equal rules
//! share. If the location of the name asks for something that the one before does not, the request
//! goes on there as one for the name ([`Elsewhere`], which `exchange/` routes); the script that was
//! found keeps its PATH_INFO and REQUEST_URI ([`MovedScript`]). A location that asks for less
//! changes nothing: what the operator has set for the path that was asked for stays. A redirect
//! asks for nothing, since it often leads from the name of an index to its folder.
//!
//! The rules are compared at a lookup if the routes of the site look at paths only, and the cache
//! keeps the result ([`Led`]), so that a hit compares one byte; by each request if routes have
//! conditions; never if all locations have one fingerprint. A request for `a.js.gz` also passes
//! what refuses `a.js`, and one that writes `/a` what refuses `/a/`, and the other way round
//! (`handler/other_name.rs`). Listings leave out names of locations with other gates, READMEs and
//! archives all that asks for more: no application is asked there, and no limit charged. What an
//! application or the operator names (X-Accel-Redirect, `reroute`, `error_pages`) is where the
//! request is then; from there the rule holds.

pub mod object;

use std::borrow::Cow;
use std::rc::Rc;

use levity_disk::Ready;

use self::object::{RunnableScript, ServableFile};
use crate::files::cache::EntryRef;
use crate::files::proof::{Led, Proof};
use crate::files::scripts::Script;
use crate::message::request::Request;
use crate::route::{Files, Rules, Sought};

/// What was found belongs to another location, where the request goes on.
#[derive(Debug)]
pub struct Elsewhere {
    /// Its path.
    pub name: Vec<u8>,
    /// What is known of it if it is a script.
    pub script: Option<Box<MovedScript>>,
}

/// A script at the path to which a request was moved, with what that path does not say.
#[derive(Debug)]
pub struct MovedScript {
    name: Vec<u8>,
    info: Option<Vec<u8>>,
}

impl MovedScript {
    /// Whether `path` is that of the script.
    pub fn is_at(&self, path: &[u8]) -> bool {
        *self.name == *path
    }
}

/// The path of `led` in the folder, or the file, that is asked for at the path `asked`.
pub fn name_of<'n>(asked: &'n [u8], index: &[Vec<u8>], led: Led) -> Cow<'n, [u8]> {
    match led.index {
        Some(number) => in_folder(asked, &index[number]).into(),
        None => asked.into(),
    }
}

/// The path of `name` in the folder at the path `asked`, which need not have its slash.
pub fn in_folder(asked: &[u8], name: &[u8]) -> Vec<u8> {
    match asked.ends_with(b"/") {
        true => [asked, name].concat(),
        false => [asked, b"/", name].concat(),
    }
}

/// The file at the path `asked`, which `request` has found. `rules` gives those of the location that searched, which most cache hits
/// do not need, and `index` are the names that it has for the index of a folder.
///
/// # Errors
/// When it is another file than the request names, and asks for more.
pub fn servable<'s, 'r>(
    (cached, ready): (Rc<EntryRef>, Option<(u64, Ready)>),
    request: &Request,
    (asked, index): (&[u8], &[Vec<u8>]),
    rules: impl FnOnce() -> Rules<'s, 'r>,
) -> Result<ServableFile, Elsewhere> {
    if cached.led.proof != Proof::Same {
        let name = name_of(asked, index, cached.led);
        check(request, (&name, Sought::File), cached.led.proof, rules())
            .map_err(|name| Elsewhere { name, script: None })?;
    }
    Ok(ServableFile::new(cached, ready))
}

/// `script` among `files`, which `request` has found; `proof` is that of the lookup. `moved` is what has moved the request to its
/// path, if something has.
///
/// # Errors
/// As [`servable`].
pub fn runnable(
    script: Script,
    request: &Request,
    files: &Files,
    (proof, moved): (Proof, Option<&MovedScript>),
    rules: Rules<'_, '_>,
) -> Result<RunnableScript, Elsewhere> {
    let name = files.path_of(&request.path, &script.name);
    let moved = moved.filter(|moved| moved.is_at(&name));
    let is_moved = moved.is_some();
    match check(request, (&name, Sought::Script), proof, rules) {
        Ok(()) => {
            let script = Script {
                info: moved.map_or(script.info, |moved| moved.info.clone()),
                name: script.name,
            };
            Ok(RunnableScript::new(script, is_moved))
        }
        Err(name) => Err(Elsewhere {
            script: Some(Box::new(MovedScript {
                name: name.clone(),
                info: script.info,
            })),
            name,
        }),
    }
}

/// Checks that what lies at `name` asks for no more than the location that `request` has got to.
///
/// # Errors
/// The name, if it does.
fn check(
    request: &Request,
    (name, sought): (&[u8], Sought),
    proof: Proof,
    rules: Rules<'_, '_>,
) -> Result<(), Vec<u8>> {
    let is_same = match proof {
        Proof::Same => true,
        // Its rules are those that the request has got to by its path.
        _ if *name == *request.path => true,
        Proof::Other => false,
        Proof::PerRequest => rules.suffice_for(name, sought),
    };
    match is_same {
        true => Ok(()),
        false => Err(name.to_vec()),
    }
}
