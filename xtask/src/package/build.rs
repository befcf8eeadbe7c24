//! Builds the program: one file that needs no library of the machine, and a second one with its debug lines.
//!
//! It is glibc that is linked statically, and not musl: tests and benchmarks run with glibc, and its
//! `aio_read` has a bound. What a static glibc may not do is told to it by `levity_disk::use_own_name_services`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::archive;
use super::release::{EPOCH, Release};
use super::target::Target;
use super::tool::{alone, tool};
use crate::files;
use crate::run::{self, Result};

/// The file with the debug lines, as the program names it (`.gnu_debuglink`). A debugger and Levity's own backtraces find it beside
/// the program, in `.debug` there, and in `/usr/lib/debug`.
const DEBUG: &str = "levity.debug";

/// For a program that contains its C library. `getrandom` would look for the function of that library when it runs, not
/// find it, and open `/dev/urandom`, which a `chroot` may lack.
const STATIC: [&str; 2] = [
    "-Ctarget-feature=+crt-static",
    "--cfg=getrandom_backend=\"linux_getrandom\"",
];

/// Between two arguments in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\u{1f}";

/// Builds the program for `target` in the profile `dist`, the one that is measured.
///
/// # Errors
/// If the compiler has no standard library for the target, or if the build fails.
pub fn build(release: &Release, target: &Target) -> Result<PathBuf> {
    require_standard_library(target)?;
    // Only then are the folders of the sources there, whose names are replaced. It may need variables for the network.
    run::run(&mut run::cargo(&[
        "fetch",
        "--locked",
        "--target",
        target.triple,
    ]))?;
    let mut cargo = alone(run::cargo(&[
        "build",
        "--profile",
        "dist",
        "--locked",
        "--offline",
        "--package",
        "levity",
    ]));
    let replaced = replaced_paths()?;
    let variable = target.triple.replace('-', "_");
    let linker = format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase());
    cargo
        .args(["--target", target.triple])
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(&replaced))
        .env(format!("CFLAGS_{variable}"), c_flags(&replaced))
        .env(linker, target.tool("gcc"))
        .env("CARGO_INCREMENTAL", "0")
        .env(EPOCH, &release.epoch);
    run::run(&mut cargo)?;
    let folder = target_folder().join(target.triple);
    Ok(folder.join("dist/levity"))
}

/// The compiler that cargo uses.
pub fn rustc() -> Command {
    tool(env::var_os("RUSTC").unwrap_or("rustc".into()))
}

fn require_standard_library(target: &Target) -> Result<()> {
    let mut command = rustc();
    command.args(["--print", "target-libdir", "--target", target.triple]);
    let folder = run::output(&mut command)?;
    match Path::new(String::from_utf8_lossy(&folder).trim()).is_dir() {
        true => Ok(()),
        false => Err(format!(
            "the compiler has no standard library for {triple}: rustup target add {triple}",
            triple = target.triple
        )),
    }
}

/// Paths of this machine that would be in the program, each with what is there instead. A later one takes precedence.
fn replaced_paths() -> Result<Vec<(PathBuf, String)>> {
    let home = cargo_home()?;
    let mut paths = vec![
        (run::root(), "/levity".to_owned()),
        (target_folder(), "/levity/target".to_owned()),
        (home.clone(), "/cargo".to_owned()),
    ];
    // The name of each such folder is that of a registry.
    let sources = home.join("registry/src");
    if sources.is_dir() {
        let folders = files::entries(&sources)?;
        paths.extend(
            folders
                .into_iter()
                .map(|folder| (folder, "/cargo".to_owned())),
        );
    }
    Ok(paths)
}

fn cargo_home() -> Result<PathBuf> {
    let usual = || env::home_dir().map(|home| home.join(".cargo"));
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(usual);
    home.ok_or_else(|| "neither CARGO_HOME nor HOME is set".to_owned())
}

fn target_folder() -> PathBuf {
    let folder = env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
    run::root().join(folder)
}

/// The arguments for the compiler, as cargo takes them.
fn rust_flags(replaced: &[(PathBuf, String)]) -> OsString {
    let mut flags = OsString::from(STATIC.join(SEPARATOR));
    for (path, name) in replaced {
        flags.push(SEPARATOR);
        flags.push("--remap-path-prefix=");
        flags.push(path);
        flags.push(format!("={name}"));
    }
    flags
}

/// The arguments for the C compiler.
fn c_flags(replaced: &[(PathBuf, String)]) -> OsString {
    let mut flags = OsString::new();
    for (path, name) in replaced {
        flags.push("-ffile-prefix-map=");
        flags.push(path);
        flags.push(format!("={name} "));
    }
    flags
}

/// Copies the program without its debug lines, which become a file of the release.
pub fn stripped(release: &Release, target: &Target, built: &Path) -> Result<PathBuf> {
    let folder = release.work().join(target.processor);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let objcopy = || {
        let mut command = tool(target.tool("objcopy"));
        command.arg(built).current_dir(&folder);
        command
    };
    run::run(objcopy().arg(DEBUG).arg("--only-keep-debug"))?;
    let link = format!("--add-gnu-debuglink={DEBUG}");
    // A program that exists may name such a file already.
    let unlink = "--remove-section=.gnu_debuglink";
    run::run(objcopy().args(["levity", "--strip-all", unlink, &link]))?;
    let packed = archive::gzip(&folder.join(DEBUG))?;
    let to = release.output.join(release.file(target, "debug.gz"));
    fs::rename(&packed, &to).map_err(|error| format!("{}: {error}", to.display()))?;
    Ok(folder.join("levity"))
}
