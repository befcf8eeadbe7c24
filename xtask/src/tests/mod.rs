//! `cargo xtask test`: runs the tests of the workspace, after installing the tools that they need.

mod features;
mod libtest;
mod runner;
mod suite;
mod tools;

use std::env;
use std::num::NonZero;
use std::thread;

use crate::run::Result;
use crate::tools::{install, is_root};
use crate::{go, node, python};
use runner::Runner;

/// The variable with which the test runner is told how many tests run at the same time.
pub const THREADS: &str = "RUST_TEST_THREADS";

/// What is in the names of tests that only root can run: their module.
const AS_ROOT: &str = "as_root::";

/// Runs the tests: `[--full] [FILTER]`. The last line of the output is `N passed, M failed`.
pub fn run(words: &[&str]) -> Result<()> {
    let (full, filter) = match words {
        [] => (false, None),
        ["--full"] => (true, None),
        ["--full", filter] | [filter, "--full"] => (true, Some(*filter)),
        [filter] if !filter.starts_with('-') => (false, Some(*filter)),
        _ => return Err("usage: cargo xtask test [--full] [FILTER]".into()),
    };
    install(tools::QUICK)?;
    if full {
        install(tools::FULL)?;
    }
    python::install()?;
    go::install()?;
    node::install()?;
    let mut options = Vec::new();
    if full {
        options.push("--include-ignored");
    }
    if !is_root() {
        println!("not root: tests with `{AS_ROOT}` in their names are left out");
        options.extend(["--skip", AS_ROOT]);
    }
    let runner = Runner {
        filter,
        options: &options,
        threads: threads(),
    };
    runner.run(&suite::build()?)?;
    if full {
        runner.run(&suite::build_without_features()?)?;
        features::check_without_each()?;
    }
    Ok(())
}

/// How many tests of a program run at the same time: two for each processor, because most tests wait for most of their
/// time.
fn threads() -> String {
    env::var(THREADS).unwrap_or_else(|_| {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        (2 * processors).to_string()
    })
}
