//! `cargo xtask ci`: the checks that must pass before a change is merged, quick ones first.

use crate::run::{self, Result, cargo};
use crate::{licences, tests};

pub fn run() -> Result<()> {
    run::run(&mut cargo(&["fmt", "--all", "--check"]))?;
    licences::check()?;
    run::run(&mut cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    run::run(&mut cargo(&[
        "clippy",
        "--package=levity",
        "--no-default-features",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    run::run(doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    tests::run(&[])
}
