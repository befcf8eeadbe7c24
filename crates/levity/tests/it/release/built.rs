//! Releases as they are published: built from the last commit, with optimisation across all crates.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use memchr::memmem;

use super::as_root::require_root;
use super::{succeeds, succeeds_within, workspace, xtask};
use crate::support::Tree;

/// One processor does most of the work of a build, and others may need it as well.
const BUILD_TIME_MAX: Duration = Duration::from_secs(7200);

/// Each instruction is a step of ptrace(2), and other tests need the processors as well.
const COUNT_TIME_MAX: Duration = Duration::from_secs(3600);

/// What `cargo xtask package` makes of a clone of this repository in `folder`, after commands of a shell.
#[track_caller]
fn build(folder: &Path, commands: &str) -> PathBuf {
    let script =
        format!("{commands}; git clone --quiet \"$0\" \"$1\"; cd \"$1\"; cargo xtask package");
    let [from, to] =
        [&workspace(), folder].map(|path| path.to_str().expect("a path in UTF-8").to_owned());
    succeeds_within(
        BUILD_TIME_MAX,
        "sh",
        &["-ec", &script, &from, &to],
        Path::new("/"),
    );
    folder.join("target/package")
}

/// The clone that most tests look at.
fn clone() -> &'static Path {
    static CLONE: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clone");
        let _ = fs::remove_dir_all(&folder);
        build(&folder, "umask 022; export TZ=UTC");
        folder
    });
    &CLONE
}

/// The program in the tarball of the release.
fn program(tree: &Tree) -> PathBuf {
    let unpack = "tar --strip-components=1 -xzf \"$0\"/target/package/*-linux.tar.gz";
    let clone = clone().to_str().expect("a path in UTF-8");
    succeeds("sh", &["-c", unpack, clone], tree.path());
    tree.at("bin/levity")
}

#[test]
#[ignore = "builds the release twice"]
fn two_builds_have_the_same_bytes() {
    let sums = |release: &Path| fs::read_to_string(release.join("SHA256SUMS")).expect("sums");
    let other = Tree::inside(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let home = other.folder("home");
    let commands = format!(
        "cp -R \"${{CARGO_HOME:-$HOME/.cargo}}/registry\" {home}; umask 077; export TZ=Asia/Tokyo CARGO_HOME={home}",
        home = home.display()
    );
    let other = build(&other.at("another/folder"), &commands);
    assert_eq!(sums(&clone().join("target/package")), sums(&other));
}

#[test]
#[ignore = "builds the release"]
fn no_path_of_the_machine_is_in_the_program() {
    let tree = Tree::new();
    let program = fs::read(program(&tree)).expect("a program");
    let cargo = env::home_dir().expect("a home").join(".cargo");
    for path in [clone(), &cargo] {
        let found = memmem::find(&program, path.as_os_str().as_encoded_bytes());
        let around = found.map(|at| String::from_utf8_lossy(&program[at..at + 120]));
        assert_eq!(around, None);
    }
}

const CONFIGURATION: &str = "[[listen]]
address = \"unix:/socket\"

[disk]
spool = \"/www\"

[log]
access = \"off\"

[[site]]
root = \"/www\"
";

/// Serves the folder as the root of all files, until a page is there.
const SERVE: &str = "chroot . /levity run /levity.toml 2>&1 &
    until curl --silent --fail --unix-socket socket http://localhost/; do kill -0 $!; sleep 0.1; done";

mod as_root {
    use super::*;

    #[test]
    #[ignore = "builds the release"]
    fn the_program_serves_where_nothing_else_is() {
        require_root();
        let tree = Tree::new();
        let program = program(&tree);
        let root = Tree::new();
        fs::copy(program, root.at("levity")).expect("copy");
        root.file("www/index.html", "a page");
        root.file("levity.toml", CONFIGURATION);
        // The server ends with the shell, which is the first process there.
        let own = ["--pid", "--fork", "--kill-child", "sh", "-ec", SERVE];
        let said = succeeds("unshare", &own, root.path());
        assert!(said.contains("a page"), "{said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
#[ignore = "builds the release"]
fn a_request_needs_no_more_instructions_than_recorded() {
    if env::consts::ARCH != "x86_64" {
        return;
    }
    let program = clone().join("target/x86_64-unknown-linux-gnu/dist/levity");
    let program = program.to_str().expect("a path in UTF-8");
    let check = ["instructions", "--check", "--binary", program];
    succeeds_within(COUNT_TIME_MAX, xtask(), &check, &workspace());
}
