//! The documentation, as far as a test can hold it to the code.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::support::certificates::{Authority, Key};
use crate::support::{Launch, Tree};

/// Made by `htpasswd -bnBC 4`: `secret`.
const USERS: &str = "ann:$2y$04$MoKKoQ5swkLbx1YRjQwMNeNLTLCQd61MP9T68vDeM5qpKwzjfEKsa\n";

/// The key of RFC 8037, A.2.
const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The files of a folder with that extension, also those further down.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
    found
}

/// The pages at the root of the workspace and those in `docs`.
fn pages() -> Vec<PathBuf> {
    let names = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
    ];
    let mut pages: Vec<_> = names.map(|name| workspace().join(name)).into();
    pages.extend(files(&workspace().join("docs"), "md"));
    pages
}

/// Blocks fenced as TOML, with the line that each begins on.
fn toml_blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (line, text) in page.lines().enumerate() {
        match (&mut open, text) {
            (None, "```toml") => open = Some((line + 2, String::new())),
            (Some(_), "```") => blocks.extend(open.take()),
            (Some((_, block)), text) => block.extend([text, "\n"]),
            (None, _) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

#[test]
fn every_configuration_is_valid() {
    let mut count = 0;
    for page in pages() {
        for (line, block) in toml_blocks(&text(&page)) {
            let problems = levity_config::parse(&block).err().unwrap_or_default();
            let file = PathBuf::from(format!("{} from line {line}", page.display()));
            let errors = levity_config::Errors {
                file,
                problems,
                is_silent: false,
            };
            assert!(errors.problems.is_empty(), "{}", errors.render(false));
            count += 1;
        }
    }
    assert!(count >= 8, "{count} blocks");
}

/// Each configuration of the pages for users is run as it stands, but for its addresses, and with its folders and files
/// beneath a temporary one.
#[test]
fn every_recipe_is_served() {
    let pages = files(&workspace().join("docs"), "md");
    let pages = pages.into_iter().chain([workspace().join("README.md")]);
    for page in pages.filter(|page| !page.ends_with("from-nginx.md")) {
        for (line, block) in toml_blocks(&text(&page)) {
            let at = format!("{} from line {line}", page.display());
            let tree = Tree::new();
            let server = Launch::run(&beneath(&tree, &block))
                .arguments(["--listen", "127.0.0.1:0"])
                .environment("CREDENTIALS_DIRECTORY", &credentials(&tree, &block))
                .try_start();
            let server = server.unwrap_or_else(|error| panic!("{at}: {error}"));
            let mut client = server.client();
            let answer = client.get("/");
            assert!(answer.status < 505, "{at}: {answer:?}");
        }
    }
}

/// The folder of the credentials that the configuration names.
fn credentials(tree: &Tree, block: &str) -> String {
    let names = block.split('"');
    for name in names.filter_map(|text| text.strip_prefix("credential:")) {
        tree.file(
            format!("credentials/{name}"),
            "0123456789abcdef0123456789abcdef\n",
        );
    }
    tree.at("credentials").display().to_string()
}

/// The configuration with its paths beneath `tree`, where everything is that it names.
fn beneath(tree: &Tree, block: &str) -> String {
    let admin = ["127.0.0.1:9180", "192.0.2.7:9180"];
    let mut config = admin.iter().fold(block.to_owned(), |config, address| {
        config.replace(address, "127.0.0.1:0")
    });
    for folder in ["/srv", "/var", "/etc", "/dev/shm"] {
        let own = format!("\"{}{folder}", tree.path().display());
        config = config.replace(&format!("\"{folder}"), &own);
    }
    let root = tree.path().display().to_string();
    config = config.replace("unix:/run", &format!("unix:{root}/run"));
    let named = config
        .split('"')
        .map(|text| text.trim_start_matches("unix:"));
    for path in named.filter(|text| text.starts_with(&root)) {
        let path = Path::new(path);
        let is_file = path.extension().is_some();
        let folder = if is_file { path.parent() } else { Some(path) };
        let folder = tree.folder(folder.expect("a folder"));
        fs::set_permissions(folder, Permissions::from_mode(0o777)).expect("chmod");
        match path.extension().and_then(OsStr::to_str) {
            Some("pem" | "key") => fs::write(path, certificate_and_key()).expect("written"),
            Some("new" | "old") => fs::write(path, [7; 80]).expect("written"),
            Some("sh") => {
                fs::write(path, "#!/bin/sh\n").expect("written");
                fs::set_permissions(path, Permissions::from_mode(0o755)).expect("chmod");
            }
            _ => {}
        }
    }
    tree.file("users", USERS);
    tree.file("key", "0123456789abcdef0123456789abcdef\n");
    tree.file("jwks.json", KEYS);
    for name in ["users", "key", "jwks.json"] {
        let own = format!("\"{}\"", tree.at(name).display());
        config = config.replace(&format!("= \"{name}\""), &format!("= {own}"));
    }
    config
}

/// What a file of certificates and one of keys may both be.
fn certificate_and_key() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let authority = Authority::new("authority");
        authority.certify("a", &["example.org"], Key::Ecdsa);
        ["a.pem", "a.key"]
            .map(|name| text(Path::new(&authority.file(name))))
            .concat()
    });
    &TEXT
}

/// Targets of links into this repository. Pictures are made by the benchmark and may be absent.
fn local_links(page: &str) -> Vec<&str> {
    let links = page.match_indices("](").filter_map(|(at, _)| {
        let label = page[..at].rfind('[')?;
        let is_picture = page[..label].ends_with('!');
        let target = page[at + 2..].split(')').next()?;
        (!is_picture && !target.contains("://")).then_some(target)
    });
    links.collect()
}

/// The anchors that a page's headings have, as forges make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let title = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_somewhere() {
    for page in pages() {
        let own = text(&page);
        for link in local_links(&own) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = page.parent().expect("a page lies in a folder");
            let target = if file.is_empty() {
                page.clone()
            } else {
                folder.join(file)
            };
            assert!(target.exists(), "{}: {link}", page.display());
            let found = anchor.is_empty() || anchors(&text(&target)).contains(anchor);
            assert!(found, "{}: no heading for {link}", page.display());
        }
    }
}

/// What a manifest depends on, for its code and for its tests, without our own crates.
fn dependencies(manifest: &Path) -> Vec<String> {
    let table: toml::Table = text(manifest).parse().expect("a manifest");
    let sections = ["dependencies", "dev-dependencies"];
    let of = |section| table.get(section).and_then(toml::Value::as_table);
    let names = sections
        .into_iter()
        .filter_map(of)
        .flat_map(|section| section.keys().cloned());
    names.filter(|name| !name.starts_with("levity")).collect()
}

#[test]
fn every_dependency_has_its_reason() {
    let contributing = text(&workspace().join("CONTRIBUTING.md"));
    let manifests =
        ["bench", "xtask", "fuzz"].map(|part| workspace().join(part).join("Cargo.toml"));
    let mut all = BTreeSet::new();
    for manifest in files(&workspace().join("crates"), "toml")
        .into_iter()
        .chain(manifests)
    {
        all.extend(dependencies(&manifest));
    }
    assert!(all.contains("tokio"), "{all:?}");
    for name in all {
        let row = format!("\n| `{name}` |");
        assert!(
            contributing.contains(&row),
            "{name} has no line in CONTRIBUTING.md"
        );
    }
}

/// Each engine has a row with its other names, and a section.
#[test]
fn every_engine_is_described() {
    let page = text(&workspace().join("docs/engines.md"));
    let offered = levity_disk::engine::ENGINES.iter();
    for engine in offered.filter(|engine| !engine.hidden) {
        let start = format!("| `{}` |", engine.name);
        let row = page.lines().find(|line| line.starts_with(&start));
        let row = row.unwrap_or_else(|| panic!("{} has no row", engine.name));
        for alias in engine.aliases {
            assert!(row.contains(&format!("`{alias}`")), "{row} lacks {alias}");
        }
        let heading = format!("## `{}`", engine.name);
        assert!(page.lines().any(|line| line == heading), "no {heading}");
    }
}
