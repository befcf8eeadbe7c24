//! Arrows between the files of a crate point one way: no file imports itself by way of others.
//!
//! Between crates cargo sees to that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, UseTree};

/// The path of a module within its crate; empty for the root.
type Module = Vec<String>;

/// Which modules each module names.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

#[test]
fn no_file_imports_itself_by_way_of_others() {
    for folder in entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates")) {
        let imports = imports(&folder.join("src"));
        let circles = circles(&imports, &imports.keys().cloned().collect());
        let circles: Vec<_> = circles.iter().map(|one| arrows(&imports, one)).collect();
        let name = folder.file_name().expect("a name").display();
        assert!(circles.is_empty(), "{name}:\n{}", circles.join("\n"));
    }
}

/// The parts of `http` that one version, and nothing else, is made of.
const VERSIONS: [&str; 2] = ["h1", "h2"];

/// Files that pair a listener or a test's client with a connection.
const KNOW_THE_CONNECTION: [&str; 2] = ["serve", "rig"];

#[test]
fn features_do_not_know_the_connection_of_the_client() {
    let first = |module: &Module| module.first().map_or("", String::as_str).to_owned();
    for (module, targets) in imports(&source_of_levity()) {
        let is_within = |module: &Module| {
            let version = module.get(1).filter(|_| first(module) == "http");
            version.is_some_and(|name| VERSIONS.contains(&name.as_str()))
        };
        let may = is_within(&module)
            || module.iter().eq(&["http"])
            || KNOW_THE_CONNECTION.contains(&first(&module).as_str());
        let found = targets.iter().find(|target| is_within(target));
        assert!(may || found.is_none(), "{module:?} names {found:?}");
    }
}

/// The maximum number of files and folders side by side in `levity`, without its root: what a reader can keep apart.
const ROOMS_MAX: usize = 26;

#[test]
fn few_rooms_lie_side_by_side() {
    let imports = imports(&source_of_levity());
    let rooms: BTreeSet<_> = imports.keys().filter_map(|module| module.first()).collect();
    assert!(rooms.len() <= ROOMS_MAX, "{} rooms: {rooms:?}", rooms.len());
}

#[test]
fn no_room_imports_itself_by_way_of_others() {
    let rooms = rooms(&imports(&source_of_levity()));
    let circles = circles(&rooms, &rooms.keys().cloned().collect());
    let circles: Vec<_> = circles.iter().map(|one| arrows(&rooms, one)).collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

#[test]
fn a_room_counts_for_all_that_is_in_it() {
    let imports: Imports = [("a::b", "c::d"), ("c::e", "a"), ("c::d", "c::e")]
        .map(|(from, to)| (module(from), BTreeSet::from([module(to)])))
        .into();
    let rooms = rooms(&imports);
    assert_eq!(circles(&rooms, &rooms.keys().cloned().collect()).len(), 1);
}

/// Which rooms each room names: a room is a file or folder directly beneath the root.
fn rooms(imports: &Imports) -> Imports {
    let room = |module: &Module| module.first().map(|name| vec![name.clone()]);
    let mut rooms = Imports::new();
    for (from, targets) in imports {
        let Some(from) = room(from) else { continue };
        let targets = targets.iter().filter_map(room).filter(|to| *to != from);
        rooms.entry(from.clone()).or_default().extend(targets);
    }
    rooms
}

fn source_of_levity() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/levity/src")
}

fn module(path: &str) -> Module {
    path.split("::").map(str::to_owned).collect()
}

#[test]
fn a_folder_may_import_its_children_and_they_it() {
    let imports = |pairs: &[(&str, &str)]| {
        let mut imports = Imports::new();
        for (from, to) in pairs {
            imports.entry(module(from)).or_default().insert(module(to));
            imports.entry(module(to)).or_default();
        }
        circles(&imports, &imports.keys().cloned().collect()).len()
    };
    assert_eq!(imports(&[("a", "b"), ("b", "c"), ("a", "c")]), 0);
    assert_eq!(imports(&[("a", "b"), ("b", "c"), ("c", "a")]), 1);
    assert_eq!(imports(&[("a", "a::b"), ("a::b", "a")]), 0);
    assert_eq!(
        imports(&[("a", "a::b"), ("a::b", "a::c"), ("a::c", "a")]),
        0
    );
    assert_eq!(
        imports(&[("a", "a::b"), ("a::b", "a::c"), ("a::c", "a::b")]),
        1
    );
    assert_eq!(imports(&[("a", "a::b"), ("a::b", "c"), ("c", "a")]), 1);
}

/// Sets of modules that each lead to all others of the set. A folder's own module may lead to those in the
/// folder, and they back to it.
fn circles(imports: &Imports, modules: &BTreeSet<Module>) -> Vec<BTreeSet<Module>> {
    let reach = |from: &Module| {
        let mut reached = BTreeSet::new();
        let mut next = vec![from.clone()];
        while let Some(module) = next.pop() {
            let more = imports[&module].intersection(modules);
            next.extend(more.filter(|one| reached.insert((*one).clone())).cloned());
        }
        reached
    };
    let reached: BTreeMap<_, _> = modules.iter().map(|one| (one, reach(one))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for module in modules {
        let leads_back = |other: &&Module| reached[*other].contains(module);
        let mut circle: BTreeSet<_> = reached[module].iter().filter(leads_back).cloned().collect();
        if circle.len() < 2 || !seen.insert(circle.clone()) {
            continue;
        }
        let folder = circle
            .iter()
            .find(|one| circle.iter().all(|other| other.starts_with(one)));
        match folder.cloned() {
            Some(folder) => {
                circle.remove(&folder);
                found.extend(circles(imports, &circle));
            }
            None => found.push(circle),
        }
    }
    found
}

fn arrows(imports: &Imports, circle: &BTreeSet<Module>) -> String {
    let line = |module: &Module| {
        let inside = imports[module].intersection(circle);
        let names: Vec<_> = inside.map(|one| one.join("::")).collect();
        format!("{} -> {}\n", module.join("::"), names.join(", "))
    };
    circle.iter().map(line).collect()
}

fn imports(source: &Path) -> Imports {
    let mut files = BTreeMap::new();
    parse_all(source, &mut Module::new(), &mut files);
    let names: BTreeMap<_, _> = files
        .iter()
        .map(|(module, file)| (module.clone(), Names::of(module, file, &files)))
        .collect();
    let of = |(module, own): (&Module, &Names)| {
        let targets = own.paths.iter().map(|path| target(path, &names));
        let targets = targets.filter(|target| target != module).collect();
        (module.clone(), targets)
    };
    names.iter().map(of).collect()
}

/// The module that has what `path` names, also where another one exports it.
fn target(path: &[String], names: &BTreeMap<Module, Names>) -> Module {
    let end = (0..=path.len())
        .rev()
        .find(|&end| names.contains_key(&path[..end]));
    let (module, rest) = path.split_at(end.expect("the root is a module"));
    let exported = rest
        .first()
        .and_then(|name| names[module].exports.get(name));
    match exported {
        Some(path) => target(path, names),
        None => module.to_vec(),
    }
}

fn parse_all(folder: &Path, module: &mut Module, files: &mut BTreeMap<Module, syn::File>) {
    for path in entries(folder) {
        let stem = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if stem == "tests" || stem == "main" {
            continue;
        }
        if path.is_dir() {
            module.push(stem);
            parse_all(&path, module, files);
            module.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let mut own = module.clone();
            own.extend((stem != "mod" && stem != "lib").then_some(stem));
            let source = fs::read_to_string(&path).expect("UTF-8");
            files.insert(own, syn::parse_file(&source).expect("Rust"));
        }
    }
}

/// What a module names of its own crate, as paths from the root.
#[derive(Default)]
struct Names {
    paths: BTreeSet<Vec<String>>,
    /// What others find here that is elsewhere.
    exports: BTreeMap<String, Vec<String>>,
    module: Module,
    children: BTreeSet<String>,
}

impl Names {
    fn of(module: &Module, file: &syn::File, files: &BTreeMap<Module, syn::File>) -> Names {
        let child = |other: &Module| match other.strip_prefix(module.as_slice()) {
            Some([child]) => Some(child.clone()),
            _ => None,
        };
        let mut names = Names {
            module: module.clone(),
            children: files.keys().filter_map(child).collect(),
            ..Names::default()
        };
        names.visit_file(file);
        names
    }

    /// From the root of the crate; `None` for what is in another crate.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([&self.module, rest].concat()),
            "super" => {
                let ups = path.iter().take_while(|name| *name == "super").count();
                let kept = self.module.len().checked_sub(ups)?;
                Some([&self.module[..kept], &path[ups..]].concat())
            }
            child if self.children.contains(child) => Some([&self.module, path].concat()),
            _ => None,
        }
    }

    fn add_use(&mut self, before: &[String], tree: &UseTree, is_export: bool) {
        let (name, exported) = match tree {
            UseTree::Group(group) => {
                return group
                    .items
                    .iter()
                    .for_each(|tree| self.add_use(before, tree, is_export));
            }
            UseTree::Path(path) => {
                let before = [before, &[path.ident.to_string()]].concat();
                return self.add_use(&before, &path.tree, is_export);
            }
            UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
            UseTree::Rename(rename) => (rename.ident.to_string(), rename.rename.to_string()),
            UseTree::Glob(_) => ("*".to_owned(), "*".to_owned()),
        };
        let Some(path) = self.absolute(&[before, &[name]].concat()) else {
            return;
        };
        if is_export {
            self.exports.insert(exported, path.clone());
        }
        self.paths.insert(path);
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_export = !matches!(item.vis, syn::Visibility::Inherited);
        self.add_use(&[], &item.tree, is_export);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path
            .segments
            .iter()
            .map(|one| one.ident.to_string())
            .collect();
        // A single name is in scope, and so in this file or named by a `use`.
        if names.len() > 1 {
            self.paths.extend(self.absolute(&names));
        }
        visit::visit_path(self, path);
    }
}

fn is_for_tests(attribute: &Attribute) -> bool {
    let list = attribute.meta.require_list();
    attribute.path().is_ident("cfg") && list.is_ok_and(|list| list.tokens.to_string() == "test")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}
