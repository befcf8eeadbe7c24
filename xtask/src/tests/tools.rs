//! What the tests need, and Debian has.

use crate::tools::Tool;

/// Programs that tests start, and the libraries of those.
pub const QUICK: &[Tool] = &[
    Tool {
        program: "curl",
        package: "curl",
    },
    Tool {
        program: "wget",
        package: "wget",
    },
    Tool {
        program: "aria2c",
        package: "aria2",
    },
    Tool {
        program: "openssl",
        package: "openssl",
    },
    Tool {
        program: "gnutls-cli",
        package: "gnutls-bin",
    },
    Tool {
        program: "h2load",
        package: "nghttp2-client",
    },
    Tool {
        program: "certutil",
        package: "libnss3-tools",
    },
    Tool {
        program: "zsync",
        package: "zsync",
    },
    Tool {
        program: "bsdtar",
        package: "libarchive-tools",
    },
    Tool {
        program: "unzip",
        package: "unzip",
    },
    Tool {
        program: "rclone",
        package: "rclone",
    },
    Tool {
        program: "lftp",
        package: "lftp",
    },
    Tool {
        program: "httpdirfs",
        package: "httpdirfs",
    },
    Tool {
        program: "/usr/lib/python3/dist-packages/bs4/__init__.py",
        package: "python3-bs4",
    },
    Tool {
        program: "/usr/lib/python3/dist-packages/html5lib/__init__.py",
        package: "python3-html5lib",
    },
    Tool {
        program: "/usr/lib/python3/dist-packages/requests/__init__.py",
        package: "python3-requests",
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
        program: "zstd",
        package: "zstd",
    },
    Tool {
        program: "brotli",
        package: "brotli",
    },
    Tool {
        program: "chromium",
        package: "chromium",
    },
    Tool {
        program: "node",
        package: "nodejs",
    },
    Tool {
        program: "npm",
        package: "npm",
    },
    Tool {
        program: "apt-ftparchive",
        package: "apt-utils",
    },
    Tool {
        program: "systemd-socket-activate",
        package: "systemd",
    },
    Tool {
        program: "dh",
        package: "debhelper",
    },
    Tool {
        program: "dpkg-architecture",
        package: "dpkg-dev",
    },
    Tool {
        program: "adduser",
        package: "adduser",
    },
    Tool {
        program: "/etc/ssl/certs/ca-certificates.crt",
        package: "ca-certificates",
    },
    Tool {
        program: "lintian",
        package: "lintian",
    },
    Tool {
        program: "mandoc",
        package: "mandoc",
    },
    Tool {
        program: "umoci",
        package: "umoci",
    },
    Tool {
        program: "crun",
        package: "crun",
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
        program: "nginx",
        package: "nginx",
    },
    Tool {
        program: "redis-server",
        package: "redis-server",
    },
    Tool {
        program: "named",
        package: "bind9",
    },
    Tool {
        program: "knotd",
        package: "knot",
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
    Tool {
        program: "apache2",
        package: "apache2-bin",
    },
    Tool {
        program: "/usr/lib/python3/dist-packages/brotli.py",
        package: "python3-brotli",
    },
    Tool {
        program: "/usr/lib/python3/dist-packages/zstandard/__init__.py",
        package: "python3-zstandard",
    },
];

/// Additional tools of the slow tests.
pub const FULL: &[Tool] = &[
    Tool {
        program: "javac",
        package: "default-jdk-headless",
    },
    Tool {
        program: "/usr/share/java/zstd-jni.jar",
        package: "libzstd-jni-java",
    },
    Tool {
        program: "go",
        package: "golang-go",
    },
    Tool {
        program: "/usr/share/gocode/src/github.com/andybalholm/brotli/reader.go",
        package: "golang-github-andybalholm-brotli-dev",
    },
    Tool {
        program: "/usr/share/gocode/src/github.com/klauspost/compress/zstd/decoder.go",
        package: "golang-github-klauspost-compress-dev",
    },
    Tool {
        program: "testssl",
        package: "testssl.sh",
    },
    Tool {
        program: "mariadbd",
        package: "mariadb-server-core",
    },
    Tool {
        program: "/usr/share/wordpress/wp-load.php",
        package: "wordpress",
    },
    Tool {
        program: "/usr/share/wordpress/wp-content/themes/twentytwentythree/style.css",
        package: "wordpress-theme-twentytwentythree",
    },
    Tool {
        program: "/usr/share/tomcat10/bin/bootstrap.jar",
        package: "tomcat10-common",
    },
];
