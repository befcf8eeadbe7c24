//! All tests of the workspace, with the tools that some of them need.

use crate::python;
use crate::run::{self, Result, cargo};
use crate::tools::{self, Tool};

/// What tests start as programs of their own, and the libraries that those need.
const TOOLS: &[Tool] = &[
    Tool {
        program: "curl",
        package: "curl",
    },
    Tool {
        program: "wget",
        package: "wget",
    },
    Tool {
        program: "ss",
        package: "iproute2",
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
    Tool {
        program: "bindfs",
        package: "bindfs",
    },
    Tool {
        program: "haproxy",
        package: "haproxy",
    },
    Tool {
        program: "php-fpm*",
        package: "php-fpm",
    },
    Tool {
        program: "/usr/share/php/Symfony/Component/HttpFoundation/BinaryFileResponse.php",
        package: "php-symfony-http-foundation",
    },
    Tool {
        program: "/usr/lib/python3/dist-packages/pip/__init__.py",
        package: "python3-pip",
    },
    Tool {
        program: "gunicorn",
        package: "gunicorn",
    },
    Tool {
        program: "uvicorn",
        package: "uvicorn",
    },
    Tool {
        program: "/usr/lib/python3/dist-packages/websockets/__init__.py",
        package: "python3-websockets",
    },
    Tool {
        program: "uwsgi",
        package: "uwsgi-core",
    },
    Tool {
        program: "/usr/lib/uwsgi/plugins/python3_plugin.so",
        package: "uwsgi-plugin-python3",
    },
    Tool {
        program: "/usr/lib/python3/dist-packages/django/__init__.py",
        package: "python3-django",
    },
    Tool {
        program: "/usr/lib/python3/dist-packages/flask/__init__.py",
        package: "python3-flask",
    },
    Tool {
        program: "puma",
        package: "puma",
    },
    Tool {
        program: "/usr/share/rubygems-integration/all/specifications/rack-2*",
        package: "ruby-rack",
    },
];

/// What the slow tests need beyond that.
const TOOLS_FULL: &[Tool] = &[
    Tool {
        program: "java",
        package: "default-jre-headless",
    },
    Tool {
        program: "/usr/share/tomcat10/bin/bootstrap.jar",
        package: "tomcat10-common",
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
    tools::install(TOOLS)?;
    if full {
        tools::install(TOOLS_FULL)?;
    }
    python::install()?;
    let mut tests = cargo(&["test", "--workspace"]);
    tests.args(filter);
    if full {
        tests.args(["--", "--include-ignored"]);
    }
    run::run(&mut tests)
}
