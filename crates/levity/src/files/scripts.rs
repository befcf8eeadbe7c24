//! Scripts: which files of a location an application runs, and which are never sent as files.

use levity_wire::cgi::{Split, split_script};
use levity_wire::path::file_name;

/// The scripts of a location.
#[derive(Debug, Clone)]
pub struct Scripts {
    /// The suffix of their names, with its leading dot.
    suffix: Option<Vec<u8>>,
    /// The script for paths without a file or script of their own; relative to the root.
    index: Option<Vec<u8>>,
    /// Index names that are scripts.
    in_directory: Vec<Vec<u8>>,
    /// How many of them precede the first index that is a file.
    before_files: usize,
    /// An application runs them.
    pub are_run: bool,
}

/// A script for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The path relative to the root, without a leading slash.
    pub name: Vec<u8>,
    /// PATH_INFO without its leading slash.
    pub info: Option<Vec<u8>>,
}

/// What is known about a path before scripts are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// It is a directory.
    Directory,
    /// There is no such file or directory.
    Missing,
    /// Nothing.
    Unknown,
}

/// The suffixes of compressed copies.
const CODING_SUFFIXES: [&[u8]; 3] = [b".gz", b".br", b".zst"];

impl Scripts {
    /// The scripts of a location with these `index` names; `None` when it has none.
    pub fn new(suffix: Option<&str>, script_index: Option<&str>, index: &[String]) -> Option<Self> {
        if suffix.is_none() && script_index.is_none() {
            return None;
        }
        let mut scripts = Self {
            suffix: suffix.map(|suffix| suffix.as_bytes().to_vec()),
            index: script_index.map(|name| name.as_bytes().to_vec()),
            in_directory: Vec::new(),
            before_files: 0,
            are_run: true,
        };
        // Without a suffix only the index script is run, whatever the directory.
        if suffix.is_some() {
            let of_path = script_index.map(|path| path.rsplit('/').next().unwrap_or(path));
            let index = index.iter().map(String::as_str);
            let is_source = |name: &&[u8]| scripts.is_source(name);
            let before_files = index.clone().map(str::as_bytes).take_while(is_source);
            scripts.before_files = before_files.count();
            let mut names: Vec<_> = index.chain(of_path).map(str::as_bytes).collect();
            names.retain(|name| scripts.is_source(name));
            scripts.in_directory = names.into_iter().map(<[u8]>::to_vec).collect();
        }
        Some(scripts)
    }

    /// For a location without script settings on a site that runs PHP elsewhere: scripts are neither run nor
    /// sent.
    pub fn guarded() -> Self {
        Self {
            suffix: Some(b".php".to_vec()),
            index: None,
            in_directory: Vec::new(),
            before_files: 0,
            are_run: false,
        }
    }

    /// Whether `path`, relative to the root, must not be sent as a file: it is a script, below a script, or a
    /// compressed copy of one. Case is ignored, because some file systems find `x.php` under `x.PHP`.
    pub fn is_source(&self, path: &[u8]) -> bool {
        let index = self.index.as_deref().unwrap_or_default();
        let suffix = self.suffix.as_deref().or(extension(index));
        let ends_so = |segment: &[u8]| suffix.is_some_and(|suffix| ends_with(segment, suffix));
        let is_index = !index.is_empty() && without_coding(path).eq_ignore_ascii_case(index);
        is_index
            || path
                .split(|&byte| byte == b'/')
                .any(|segment| ends_so(without_coding(segment)))
    }

    /// The scripts that may handle `path`, relative to the root, in order; the first that exists does.
    pub fn candidates(&self, path: &[u8], kind: PathKind) -> Vec<Script> {
        let split = |suffix: &Vec<u8>| {
            let script = split_script(path, Split::Suffix(suffix))?;
            Some(Script {
                name: script.name.to_vec(),
                info: script.info.map(<[u8]>::to_vec),
            })
        };
        let mut candidates: Vec<_> = self.suffix.iter().filter_map(split).collect();
        if kind != PathKind::Missing && (path.is_empty() || path.ends_with(b"/")) {
            candidates.extend(self.of_directory(path));
        }
        candidates.extend(self.index.iter().map(|index| Script {
            name: index.clone(),
            info: None,
        }));
        candidates
    }

    /// The scripts for the directory `path`, which is empty or ends with a slash.
    pub fn of_directory(&self, path: &[u8]) -> impl Iterator<Item = Script> {
        let names = self.in_directory.iter();
        names.map(move |name| Script {
            name: [path, name].concat(),
            info: None,
        })
    }

    /// The scripts for the directory `path` that precede its index files.
    pub fn before_files(&self, path: &[u8]) -> Vec<Script> {
        match path.is_empty() || path.ends_with(b"/") {
            true => self.of_directory(path).take(self.before_files).collect(),
            false => Vec::new(),
        }
    }
}

/// The name without the suffix of a precompressed file.
pub fn without_coding(name: &[u8]) -> &[u8] {
    let coding = CODING_SUFFIXES
        .into_iter()
        .find(|coding| ends_with(name, coding));
    &name[..name.len() - coding.map_or(0, <[u8]>::len)]
}

fn ends_with(name: &[u8], suffix: &[u8]) -> bool {
    let start = name.len().checked_sub(suffix.len());
    start.is_some_and(|start| name[start..].eq_ignore_ascii_case(suffix))
}

/// The extension of a path with its dot.
fn extension(path: &[u8]) -> Option<&[u8]> {
    let name = file_name(path);
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    Some(&name[dot..]).filter(|extension| extension.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripts(suffix: Option<&str>, script_index: Option<&str>, index: &[&str]) -> Scripts {
        let index: Vec<_> = index.iter().map(|name| (*name).to_owned()).collect();
        Scripts::new(suffix, script_index, &index).expect("scripts")
    }

    fn names(scripts: &Scripts, path: &str, kind: PathKind) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let candidates = scripts.candidates(path.as_bytes(), kind).into_iter();
        candidates
            .map(|script| match script.info {
                Some(info) => format!("{} + /{}", text(&script.name), text(&info)),
                None => text(&script.name),
            })
            .collect()
    }

    #[test]
    fn sources_are_never_files() {
        let scripts = scripts(Some(".php"), Some("index.php"), &[]);
        for path in [
            "x.php",
            "a/x.php",
            "x.PHP",
            "x.pHp",
            "x.php.gz",
            "x.php.BR",
            "x.Php.zst",
            "x.php/",
            "x.php/a.css",
            "a/x.php/b/c",
            "a/x.php.gz/b",
            ".php",
        ] {
            assert!(scripts.is_source(path.as_bytes()), "{path}");
        }
        for path in [
            "",
            "a/",
            "x.phps",
            "xphp",
            "php",
            "x.php5",
            "a.css",
            "x.gz",
            "x.php.txt",
        ] {
            assert!(!scripts.is_source(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn a_front_controller_guards_those_of_its_kind() {
        let by_extension = scripts(None, Some("public/index.php"), &[]);
        for path in ["public/index.php", "other.php", "a/Other.PHP/b"] {
            assert!(by_extension.is_source(path.as_bytes()), "{path}");
        }
        assert!(!by_extension.is_source(b"index.html"));
        let by_name = scripts(None, Some("bin/app"), &[]);
        assert!(by_name.is_source(b"bin/app") && by_name.is_source(b"bin/App.gz"));
        assert!(!by_name.is_source(b"app") && !by_name.is_source(b"bin/app.css"));
    }

    #[test]
    fn candidates_in_their_order() {
        let all = scripts(Some(".php"), Some("index.php"), &["index.html", "home.php"]);
        for (path, expected) in [
            ("", &["home.php", "index.php", "index.php"][..]),
            ("a/", &["a/home.php", "a/index.php", "index.php"]),
            ("a", &["index.php"]),
            ("a.php", &["a.php", "index.php"]),
            ("a.PHP", &["index.php"]),
            ("a.php/b/c", &["a.php + /b/c", "index.php"]),
        ] {
            assert_eq!(names(&all, path, PathKind::Unknown), expected, "{path}");
        }
        assert_eq!(names(&all, "a/", PathKind::Missing), ["index.php"]);
        for (index, before_files) in [
            (&["index.html", "index.php"][..], 0),
            (&["a.php", "b.php", "index.html", "c.php"], 2),
            (&["a.php"], 1),
            (&[], 0),
        ] {
            let before = scripts(Some(".php"), Some("index.php"), index).before_files;
            assert_eq!(before, before_files, "{index:?}");
        }
        let front = scripts(None, Some("index.php"), &["index.php"]);
        assert_eq!(front.before_files, 0);
        assert_eq!(names(&front, "a.php/", PathKind::Unknown), ["index.php"]);
        let suffix = scripts(Some(".php"), None, &["index.html"]);
        assert!(names(&suffix, "a/", PathKind::Unknown).is_empty());
    }
}
