//! Builds the servers and the benchmark in release mode and starts it.

use crate::run::{self, Result, cargo};
use crate::tools::{self, Tool};
use std::path::Path;
use std::process::Command;

/// The peers, and what the rig is made of.
const TOOLS: &[Tool] = &[
    Tool {
        program: "nginx",
        package: "nginx-light",
    },
    Tool {
        program: "lighttpd",
        package: "lighttpd",
    },
    Tool {
        program: "haproxy",
        package: "haproxy",
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
    Tool {
        program: "fio",
        package: "fio",
    },
    Tool {
        program: "strace",
        package: "strace",
    },
    Tool {
        program: "mkfs.ext4",
        package: "e2fsprogs",
    },
    Tool {
        program: "mkfs.btrfs",
        package: "btrfs-progs",
    },
    // The disk with heads is compiled when it starts; its header is looked for as if it were a program.
    Tool {
        program: "cc",
        package: "gcc",
    },
    Tool {
        program: "/usr/include/nbdkit-plugin.h",
        package: "nbdkit-plugin-dev",
    },
    Tool {
        program: "losetup",
        package: "mount",
    },
    Tool {
        program: "setpriv",
        package: "util-linux",
    },
    Tool {
        program: "taskset",
        package: "util-linux",
    },
];

/// `SCENARIO [OPTIONS]`, as `levity-bench run` takes them.
pub fn run(words: &[&str]) -> Result<()> {
    let help = words.is_empty() || words.iter().any(|word| ["-h", "--help"].contains(word));
    if !help {
        prepare()?;
    }
    let mut packages = vec!["build", "--release", "--package", "levity-bench"];
    packages.extend(["--package", "fcgi-stat-accel"]);
    if !help && !gives(words, "--levity") {
        packages.extend(["--package", "levity"]);
    }
    run::run(&mut cargo(&packages))?;
    let metadata = run::metadata()?;
    let target = metadata["target_directory"].as_str().unwrap_or("target");
    let words = if help { &["--help"] } else { words };
    run::run(&mut levity_bench(&Path::new(target).join("release"), words))
}

fn prepare() -> Result<()> {
    if !tools::is_root() {
        return Err(
            "a benchmark mounts disks, makes control groups and drops caches: run it as root"
                .into(),
        );
    }
    tools::install(TOOLS)
}

fn levity_bench(release: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(release.join("levity-bench"));
    command.arg("run").args(words).current_dir(run::root());
    if !gives(words, "--levity") && !words.contains(&"--help") {
        command.arg("--levity").arg(release.join("levity"));
    }
    if is_whole_table(words) {
        command.args(["--picture", "docs/huc.svg"]);
    }
    command
}

/// Only a run with every row may replace the picture in the documentation.
fn is_whole_table(words: &[&str]) -> bool {
    let has_picture = words.contains(&"huc") || words.contains(&"all");
    has_picture
        && !["--engines", "--peers", "--picture"]
            .iter()
            .any(|option| gives(words, option))
}

fn gives(words: &[&str], option: &str) -> bool {
    words.iter().any(|word| {
        word.strip_prefix(option)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_rows_leaves_the_picture_alone() {
        assert!(is_whole_table(&["huc", "--seconds", "2"]));
        assert!(!is_whole_table(&["huc", "--peers=lighttpd"]));
        assert!(!is_whole_table(&["w1"]));
    }
}
