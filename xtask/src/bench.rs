//! `cargo xtask bench`: builds Levity and the benchmark in release mode and runs the benchmark.

use crate::run::{self, Result, cargo};
use crate::tools::{self, Tool};
use std::path::Path;
use std::process::Command;

/// The peers and the tools of the rig.
const TOOLS: &[Tool] = &[
    Tool {
        program: "nginx",
        package: "nginx-light",
    },
    Tool {
        program: "lighttpd",
        package: "lighttpd",
    },
    // Modules of nginx and lighttpd are found like programs.
    Tool {
        program: "/usr/lib/nginx/modules/ngx_http_brotli_filter_module.so",
        package: "libnginx-mod-http-brotli-filter",
    },
    Tool {
        program: "/usr/lib/nginx/modules/ngx_nchan_module.so",
        package: "libnginx-mod-nchan",
    },
    Tool {
        program: "/usr/lib/lighttpd/mod_deflate.so",
        package: "lighttpd-mod-deflate",
    },
    Tool {
        program: "caddy",
        package: "caddy",
    },
    Tool {
        program: "h2load",
        package: "nghttp2-client",
    },
    Tool {
        program: "h2o",
        package: "h2o",
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
    // The plugin of the disk with heads is compiled at its start. The header is found like a program.
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

/// Builds what c4 measures.
const DURABLE_APPEND: [&str; 7] = [
    "build",
    "--profile",
    "dist",
    "--package",
    "levity-disk",
    "--example",
    "durable_append",
];

/// Runs `levity-bench run` with these words: `SCENARIO [OPTIONS]`.
pub fn run(words: &[&str]) -> Result<()> {
    let help = words.is_empty() || words.iter().any(|word| ["-h", "--help"].contains(word));
    if !help {
        prepare()?;
    }
    let mut packages = vec!["build", "--profile", "dist", "--package", "levity-bench"];
    packages.extend(["--package", "fcgi-stat-accel"]);
    if !help && !has_option(words, "--levity") {
        packages.extend(["--package", "levity"]);
    }
    run::run(&mut cargo(&packages))?;
    if !help {
        // Cargo builds either the programs of packages or an example.
        run::run(&mut cargo(&DURABLE_APPEND))?;
    }
    let metadata = run::metadata()?;
    let target = metadata["target_directory"].as_str().unwrap_or("target");
    let words = if help { &["--help"] } else { words };
    run::run(&mut levity_bench(&Path::new(target).join("dist"), words))
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
    if !has_option(words, "--levity") && !words.contains(&"--help") {
        command.arg("--levity").arg(release.join("levity"));
    }
    if is_whole_table(words) {
        command.args(["--picture", "docs/huc.svg"]);
    }
    command
}

/// Whether the run has every row: only then it may replace the picture in the documentation.
fn is_whole_table(words: &[&str]) -> bool {
    let has_picture = words.contains(&"picture") || words.contains(&"all");
    has_picture
        && !["--engines", "--peers", "--picture", "--quick"]
            .iter()
            .any(|option| has_option(words, option))
}

fn has_option(words: &[&str], option: &str) -> bool {
    words.iter().any(|word| {
        word.strip_prefix(option)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_with_all_rows_replaces_the_picture() {
        assert!(is_whole_table(&["picture", "--seconds", "2"]));
        assert!(!is_whole_table(&["picture", "--peers=lighttpd"]));
        assert!(!is_whole_table(&["huc"]));
        assert!(!is_whole_table(&["w1"]));
    }
}
