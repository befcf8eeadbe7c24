//! Notes about ways around gates: requests that get, without a gate, what a route or site guards.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::gates::Gates;
use crate::matcher::{Matcher, When};
use crate::model::{Location, Site};
use crate::name_pattern::hides;
use crate::pattern::Pattern;
use crate::reader::Reader;
use crate::root::resolved;
use crate::tries::Try;
use crate::upstream::Upstream;
use crate::upstream::read::Upstreams;

/// Notes each route and site with gates beside which there is a way to an upstream or to its files. May block.
pub(crate) fn note(sites: &[Site], upstreams: &Upstreams, reader: &Reader<'_>) {
    let mut locations = sites.iter().flat_map(Site::locations);
    if !locations.any(|location| is_guarded(&location.gates)) {
        return;
    }
    let mut folders = Folders {
        may_look_up: reader.base.is_some(),
        known: HashMap::new(),
    };
    let applications = applications(upstreams);
    let sites: Vec<Vec<Table<'_>>> = sites
        .iter()
        .map(|site| tables(site, &applications, &mut folders))
        .collect();
    let mappings = mappings(&sites);
    let mounts = mounts(&sites);
    let mut seen = HashSet::new();
    for secret in reader.secrets.borrow().iter() {
        let note = || served_secret(&secret.path, &sites, &mappings, folders.may_look_up);
        let is_new = seen.insert(&secret.path);
        if let Some(note) = is_new.then(note).flatten() {
            reader.note_at(secret.line, note);
        }
    }
    for (number, tables) in sites.iter().enumerate() {
        for guarded in tables.iter().filter(|table| table.guards()) {
            let name = name_without_slash(guarded, tables);
            let beneath = beneath_name(guarded, tables);
            let alias = alias(number, guarded, &sites, &mappings)
                .or_else(|| other_way(number, guarded, &sites, &mounts));
            for note in [name, beneath, alias].into_iter().flatten() {
                reader.note_at(guarded.line, note);
            }
        }
    }
}

fn is_guarded(gates: &Gates) -> bool {
    gates.adds_to(&Gates::default())
}

/// A route, or what a site has besides its routes.
struct Table<'a> {
    /// None for that of a site.
    matchers: &'a [Matcher],
    /// The paths of its requests, before other routes take theirs; `None` if no pattern says that.
    path: Option<Pattern>,
    location: &'a Location,
    line: usize,
    /// The folder of its files without links, if files answer.
    root: Option<Arc<Path>>,
    /// The one that may answer.
    application: Option<Application>,
}

impl Table<'_> {
    /// Whether clients have to pass gates here before they read.
    fn guards(&self) -> bool {
        let reads = |when: &When| {
            when.methods.is_empty() || when.methods.iter().any(|method| method == "GET")
        };
        let mut when = self.matchers.iter().map(|matcher| &matcher.when);
        !self.location.internal && is_guarded(&self.location.gates) && when.all(reads)
    }

    /// Whether the paths of its requests include those of `pattern`, before other routes take theirs.
    fn matches(&self, pattern: &Pattern) -> bool {
        let mut matchers = self.matchers.iter();
        matchers.all(|matcher| matcher.path.covers(pattern))
    }

    /// Whether clients get here without a gate as those of `guarded`. Which users a gate lets in is not compared: the
    /// operator may have reasons, and files of thousands of users would take long.
    fn lets_by(&self, guarded: &Self) -> bool {
        let mut when = self.matchers.iter().map(|matcher| &matcher.when);
        !self.location.internal
            && when.all(|when| when.clients.is_empty() && when.listen.is_empty())
            && guarded.location.gates.bound_more_than(&self.location.gates)
    }

    /// The upstream that requests may get to.
    fn upstream(&self) -> Option<&str> {
        upstream(self.location)
    }

    /// Whether clients get here without a gate of `guarded`, and no other gate is in its place.
    fn has_fewer_gates(&self, guarded: &Self) -> bool {
        self.lets_by(guarded) && !self.location.gates.adds_to(&guarded.location.gates)
    }

    /// Whether clients can get files by their names.
    fn sends_files(&self) -> bool {
        let tries = self.location.proxying.tries.as_deref();
        let has_names = tries.is_none_or(|tries| tries.contains(&Try::File));
        has_names && !self.location.gates.refuses_all()
    }

    /// Whether files or an upstream answer.
    fn serves(&self) -> bool {
        self.root.is_some() || self.upstream().is_some()
    }

    fn strip_prefix(&self) -> &str {
        self.location.strip_prefix.as_deref().unwrap_or_default()
    }

    /// Whether it serves the file or folder `beneath` its root.
    fn shows(&self, beneath: &Path) -> bool {
        let options = &self.location.options;
        let is_hidden = |name: &OsStr| hides(&options.hide, &options.show, name.as_encoded_bytes());
        !beneath.iter().any(is_hidden)
    }

    /// Whose files, in a note about this table.
    fn owner(&self) -> String {
        match self.matchers.last() {
            Some(matcher) => format!("`{}`", matcher.path),
            None => "this site".to_owned(),
        }
    }

    fn shown(&self) -> String {
        match self.matchers.last() {
            Some(matcher) => format!("the route `{}` on line {}", matcher.path, self.line),
            None => format!("the site on line {}", self.line),
        }
    }
}

/// The upstream that requests may get to.
fn upstream(location: &Location) -> Option<&str> {
    let tries = location.proxying.tries.as_deref();
    let is_asked = tries.is_none_or(|tries| tries.contains(&Try::Proxy));
    let name = location.proxying.proxy.as_deref();
    name.filter(|_| is_asked && location.answer.is_none())
}

/// The tables of a site, in the order in which they are asked.
fn tables<'a>(
    site: &'a Site,
    applications: &HashMap<&str, Application>,
    folders: &mut Folders<'a>,
) -> Vec<Table<'a>> {
    let routes = site.routes.iter().map(|route| {
        let line = route.line.unwrap_or(site.line);
        (route.matchers.as_slice(), &route.location, line)
    });
    let rest = (&[][..], &site.location, site.line);
    let table = |(matchers, location, line): (&'a [Matcher], &'a Location, usize)| {
        let is_asked = looks_for_path(location)
            && location.asks_files()
            && (location.answer.is_none() || location.files_first);
        let root = location.root.as_deref().filter(|_| is_asked);
        let application = upstream(location).and_then(|name| applications.get(name));
        Table {
            application: application.map(|one| one.with_scripts(location, folders)),
            matchers,
            path: narrowest(matchers),
            location,
            line,
            root: root.map(|root| folders.get(root)),
        }
    };
    routes.chain([rest]).map(table).collect()
}

/// Whether the path of a request names the file, unlike a fixed file for all requests.
fn looks_for_path(location: &Location) -> bool {
    let names = |one: &Try| matches!(one, Try::File | Try::FileWith(_) | Try::Directory);
    let tries = location.proxying.tries.as_deref();
    tries.is_none_or(|tries| tries.iter().any(names))
}

/// The pattern that all of `matchers` match, if one of them is it.
fn narrowest(matchers: &[Matcher]) -> Option<Pattern> {
    let covers_all = |one: &&Pattern| matchers.iter().all(|other| other.path.covers(one));
    match matchers {
        [] => Some(Pattern::Prefix("/".to_owned())),
        _ => {
            let mut paths = matchers.iter().rev().map(|matcher| &matcher.path);
            paths.find(covers_all).cloned()
        }
    }
}

/// Whether all requests for every path of `pattern` get to one of `tables`.
fn is_taken(tables: &[Table<'_>], pattern: &Pattern) -> bool {
    let takes_all = |table: &Table<'_>| {
        let mut matchers = table.matchers.iter();
        table.matches(pattern) && matchers.all(|one| one.when == When::default())
    };
    tables.iter().any(takes_all)
}

/// The note about the path `/X` beside a guarded `/X/*`, if it gets to an upstream without the gates: applications often
/// take it for `/X/`.
fn name_without_slash(guarded: &Table<'_>, tables: &[Table<'_>]) -> Option<String> {
    let Some(Pattern::Prefix(folder)) = &guarded.path else {
        return None;
    };
    let name = folder.strip_suffix('/').filter(|name| !name.is_empty())?;
    let path = Pattern::Exact(name.to_owned());
    let open = |(_, table): &(usize, &Table<'_>)| {
        table.matches(&path) && table.upstream().is_some() && table.lets_by(guarded)
    };
    let (number, open) = tables.iter().enumerate().find(open)?;
    if is_taken(&tables[..number], &path) {
        return None;
    }
    Some(format!(
        "`{folder}*` has gates that `{name}`, without the slash, has not: {} sends that path to the upstream `{}`; add a route \
         `{name}` with the same gates, or with `redirect = {{ to = \"{folder}\" }}`",
        open.shown(),
        open.upstream()?
    ))
}

/// The note about paths beneath a guarded `/X`, if they are served without the gates: in other servers `/X` stands for them,
/// too. A name with an extension is taken for that of a file, beneath which there is nothing.
fn beneath_name(guarded: &Table<'_>, tables: &[Table<'_>]) -> Option<String> {
    let Some(Pattern::Exact(name)) = &guarded.path else {
        return None;
    };
    let is_file = Path::new(name).extension().is_some();
    if name.ends_with('/') || is_file || !guarded.serves() {
        return None;
    }
    let folder = Pattern::Prefix(format!("{name}/"));
    // The comparison of paths goes first, as the cheapest.
    let open = |(_, table): &(usize, &Table<'_>)| {
        table.matches(&folder) && table.serves() && table.lets_by(guarded)
    };
    let (number, open) = tables.iter().enumerate().find(open)?;
    if is_taken(&tables[..number], &folder) {
        return None;
    }
    Some(format!(
        "`{name}` is that path alone, and paths beneath it do not have its gates: {} serves `{folder}`; guard `{folder}` too",
        open.shown()
    ))
}

/// The note about a file with secrets that clients can get.
fn served_secret(
    file: &Path,
    sites: &[Vec<Table<'_>>],
    mappings: &Mappings<'_>,
    may_look_up: bool,
) -> Option<String> {
    // By its name in the root, where it may be a link, and by that of its folder, since roots are known without links.
    let folder = resolved(file.parent()?, may_look_up);
    for name in [folder.join(file.file_name()?), resolved(file, false)] {
        for root in name.ancestors() {
            let beneath = name.strip_prefix(root).ok()?;
            for mapping in mappings.get(root).into_iter().flatten() {
                let path = Pattern::Exact(mapping.path_of(beneath)?);
                if let Some(open) = mapping.serving(sites, &path, beneath, Table::sends_files) {
                    return Some(format!(
                        "{} lies beneath a `root`: {} serves it at `{path}`; move it to a folder that is not served",
                        file.display(),
                        open.shown()
                    ));
                }
            }
        }
    }
    None
}

/// How tables lead from paths to files.
struct Mapping<'a> {
    /// The number of the site.
    site: usize,
    strip_prefix: &'a str,
    /// The numbers of the tables that lead so.
    tables: Vec<usize>,
}

/// The mappings to each root, each once.
type Mappings<'a> = HashMap<&'a Path, Vec<Mapping<'a>>>;

fn mappings<'a>(sites: &'a [Vec<Table<'_>>]) -> Mappings<'a> {
    let mut mappings = Mappings::new();
    for (site, tables) in sites.iter().enumerate() {
        for (number, table) in tables.iter().enumerate() {
            let Some(root) = table.root.as_deref().filter(|_| !table.location.internal) else {
                continue;
            };
            let of_root = mappings.entry(root).or_default();
            let strip_prefix = table.strip_prefix();
            let mut own = of_root.iter_mut().rev().take_while(|one| one.site == site);
            match own.find(|one| one.strip_prefix == strip_prefix) {
                Some(known) => known.tables.push(number),
                None => of_root.push(Mapping {
                    site,
                    strip_prefix,
                    tables: vec![number],
                }),
            }
        }
    }
    mappings
}

/// The note about other paths that lead, without the gates, to the files that `guarded` of the site of that number has.
fn alias(
    site: usize,
    guarded: &Table<'_>,
    sites: &[Vec<Table<'_>>],
    mappings: &Mappings<'_>,
) -> Option<String> {
    let (root, path) = (guarded.root.as_ref()?, guarded.path.as_ref()?);
    let files = files(root, guarded.strip_prefix(), path);
    for other_root in files.ancestors() {
        let beneath = files.strip_prefix(other_root).ok()?;
        for mapping in mappings.get(other_root).into_iter().flatten() {
            let is_same = other_root == &**root && mapping.strip_prefix == guarded.strip_prefix();
            let alias = match path {
                // How routes of one site go before each other is noted there.
                _ if is_same && mapping.site == site => continue,
                _ if is_same => path.clone(),
                Pattern::Exact(_) => Pattern::Exact(mapping.path_of(beneath)?),
                Pattern::Prefix(_) => Pattern::Prefix(mapping.folder_of(beneath)?),
                _ => continue,
            };
            if mapping.site == site && alias == *path {
                continue;
            }
            let open = mapping.serving(sites, &alias, beneath, |table| table.lets_by(guarded));
            if let Some(open) = open {
                return Some(format!(
                    "files of {} have gates here that they have not at `{alias}`, where {} serves the same files; give it \
                     the gates, or a `root` without these files",
                    guarded.owner(),
                    open.shown()
                ));
            }
        }
    }
    None
}

impl Mapping<'_> {
    /// The table that serves what is `beneath` the root at `path`, if `may_be` holds for it.
    fn serving<'s, 'a>(
        &self,
        sites: &'s [Vec<Table<'a>>],
        path: &Pattern,
        beneath: &Path,
        may_be: impl Fn(&Table<'a>) -> bool,
    ) -> Option<&'s Table<'a>> {
        let tables = &sites[self.site];
        let serves = |&number: &usize| {
            let table = &tables[number];
            let is_it = may_be(table) && table.matches(path) && table.shows(beneath);
            (is_it && !is_taken(&tables[..number], path)).then_some(table)
        };
        self.tables.iter().find_map(serves)
    }

    /// The path of the file `beneath` the root.
    fn path_of(&self, beneath: &Path) -> Option<String> {
        let beneath = beneath.to_str()?;
        Some(format!("{}/{beneath}", self.strip_prefix))
    }

    /// The path of the folder `beneath` the root.
    fn folder_of(&self, beneath: &Path) -> Option<String> {
        let path = self.path_of(beneath)?;
        Some(match path.ends_with('/') {
            true => path,
            false => format!("{path}/"),
        })
    }
}

/// The file of an exact path, or the folder of others. A pattern with stars or expressions may have files anywhere beneath the
/// root.
fn files(root: &Path, strip_prefix: &str, path: &Pattern) -> PathBuf {
    match path {
        Pattern::Exact(text) | Pattern::Prefix(text) => {
            let rest = text.strip_prefix(strip_prefix).unwrap_or(text);
            root.join(rest.trim_matches('/'))
        }
        _ => root.to_owned(),
    }
}

/// What answers to paths.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Application {
    /// The same for upstreams that have a backend in common.
    number: usize,
    /// Whether the folder says which scripts it runs.
    is_cgi: bool,
    /// That folder.
    scripts: Option<Arc<Path>>,
}

impl Application {
    /// As `location` asks it.
    fn with_scripts<'a>(&self, location: &'a Location, folders: &mut Folders<'a>) -> Self {
        let root = location.root.as_deref().filter(|_| self.is_cgi);
        Self {
            scripts: root.map(|root| folders.get(root)),
            ..self.clone()
        }
    }
}

/// The applications behind upstreams, by the names of these.
fn applications(upstreams: &Upstreams) -> HashMap<&str, Application> {
    // For each upstream an earlier one with a backend in common, or itself.
    let mut earlier: Vec<usize> = Vec::new();
    let first = |earlier: &[usize], mut number: usize| {
        while earlier[number] != number {
            number = earlier[number];
        }
        number
    };
    let mut of_backends = HashMap::new();
    for (number, upstream) in upstreams.iter().enumerate() {
        earlier.push(number);
        for backend in &upstream.to {
            let other = *of_backends.entry(&backend.at).or_insert(number);
            let (one, other) = (first(&earlier, number), first(&earlier, other));
            earlier[one.max(other)] = one.min(other);
            // Keeps the way to the first short.
            earlier[number] = one.min(other);
        }
    }
    let application = |(number, upstream): (usize, &'_ Upstream)| Application {
        number: first(&earlier, number),
        is_cgi: upstream.protocol.is_cgi(),
        scripts: None,
    };
    let names = upstreams.iter().map(|upstream| upstream.name.as_str());
    names
        .zip(upstreams.iter().enumerate().map(application))
        .collect()
}

/// The tables that lead to an application, each by its site and its number there, by the start of the paths that the
/// application gets from them.
type Mounts<'a> = HashMap<(&'a Application, &'a str), Vec<(usize, usize)>>;

fn mounts<'a>(sites: &'a [Vec<Table<'_>>]) -> Mounts<'a> {
    let mut mounts = Mounts::new();
    for (site, tables) in sites.iter().enumerate() {
        for (number, table) in tables.iter().enumerate() {
            let is_plain = |path: &&Pattern| matches!(path, Pattern::Exact(_) | Pattern::Prefix(_));
            let path = table.path.as_ref().filter(is_plain);
            if let (Some(application), Some(path)) = (&table.application, path) {
                let key = (application, inner_start(table, path));
                mounts.entry(key).or_default().push((site, number));
            }
        }
    }
    mounts
}

/// The start of the paths that the application gets from the table for those of `path`.
fn inner_start<'p>(table: &Table<'_>, path: &'p Pattern) -> &'p str {
    let start = path.start();
    match start.strip_prefix(table.strip_prefix()).unwrap_or(start) {
        "" => "/",
        rest => rest,
    }
}

/// How many tables [`other_way`] looks at for one that is guarded, with those before each of them: a bound on the time for files
/// with thousands of routes.
const LOOKS_MAX: usize = 100_000;

/// The note about another way, without the gates, to the application that `guarded` of the site of that number asks.
fn other_way(
    site: usize,
    guarded: &Table<'_>,
    sites: &[Vec<Table<'_>>],
    mounts: &Mounts<'_>,
) -> Option<String> {
    let (application, path) = (guarded.application.as_ref()?, guarded.path.as_ref()?);
    let mut matchers = guarded.matchers.iter();
    if !matchers.all(|matcher| matcher.when.clients.is_empty()) {
        return None;
    }
    let inner = inner_start(guarded, path);
    let slashes = inner.match_indices('/').map(|(at, _)| at + 1);
    let exact = Some(inner.len()).filter(|_| !inner.ends_with('/'));
    let candidates = slashes
        .chain(exact)
        .filter_map(|end| mounts.get(&(application, &inner[..end])))
        .flatten();
    let mut looks = LOOKS_MAX;
    for &(other_site, number) in candidates {
        looks = looks.checked_sub(number + 1)?;
        let tables = &sites[other_site];
        let open = &tables[number];
        let alias = match path {
            _ if open.strip_prefix() == guarded.strip_prefix() => path.clone(),
            Pattern::Exact(_) => Pattern::Exact(format!("{}{inner}", open.strip_prefix())),
            Pattern::Prefix(_) => Pattern::Prefix(format!("{}{inner}", open.strip_prefix())),
            _ => continue,
        };
        // How routes of one site go before each other is noted there.
        let is_other = other_site != site || alias != *path;
        if is_other
            && open.matches(&alias)
            && open.has_fewer_gates(guarded)
            && !is_taken(&tables[..number], &alias)
        {
            return Some(format!(
                "{} has gates that `{alias}` has not, where {} asks the same application, by the upstream `{}`; give it the \
                 gates, or make it `internal`",
                guarded.owner(),
                open.shown(),
                open.upstream()?
            ));
        }
    }
    None
}

/// Folders by their paths in the configuration.
struct Folders<'a> {
    /// As for [`resolved`].
    may_look_up: bool,
    known: HashMap<&'a Path, Arc<Path>>,
}

impl<'a> Folders<'a> {
    fn get(&mut self, path: &'a Path) -> Arc<Path> {
        let resolved = || resolved(path, self.may_look_up).into();
        self.known.entry(path).or_insert_with(resolved).clone()
    }
}
