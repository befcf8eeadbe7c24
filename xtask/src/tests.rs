//! All tests of the workspace, with the tools that some of them need.

use crate::run::{self, Result, cargo};
use crate::tools::{self, Tool};

/// What tests start as programs of their own.
const TOOLS: [Tool; 7] = [
    Tool {
        program: "curl",
        package: "curl",
    },
    Tool {
        program: "wget",
        package: "wget",
    },
    Tool {
        program: "strace",
        package: "strace",
    },
    Tool {
        program: "chromium",
        package: "chromium",
    },
    Tool {
        program: "nbdkit",
        package: "nbdkit",
    },
    Tool {
        program: "nbdfuse",
        package: "libnbd-bin",
    },
    Tool {
        program: "fusermount3",
        package: "fuse3",
    },
];

/// `[--full] [FILTER]`. Prints nothing after the test runner's own summary.
pub fn run(words: &[&str]) -> Result<()> {
    let (full, filter) = match words {
        [] => (false, None),
        ["--full"] => (true, None),
        ["--full", filter] | [filter, "--full"] => (true, Some(filter)),
        [filter] if !filter.starts_with('-') => (false, Some(filter)),
        _ => return Err("usage: cargo xtask test [--full] [FILTER]".into()),
    };
    tools::install(&TOOLS)?;
    let mut tests = cargo(&["test", "--workspace"]);
    tests.args(filter);
    if full {
        tests.args(["--", "--include-ignored"]);
    }
    run::run(&mut tests)
}
