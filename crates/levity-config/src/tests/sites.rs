//! Sites and routes: what is wrong, where, and what to do.

use super::*;

#[test]
fn sites_need_a_root_and_hosts_of_their_own() {
    assert_problems(
        "",
        &["- no site is configured [add `[[site]]` with a `root`]"],
    );
    assert_problems(
        "[[site]]\n[[site]]\nroot = \"/\"\n[[site]]\nroot = \"/\"\nhosts = [\"A.b\", \"c:80\", \"*\", 1]\n\
         [[site]]\nroot = \"\"\nhosts = [\"a.B.\"]\n[[site]]\nroot = \"/\"\nhosts = \"x\"\n",
        &[
            "1:1 `root` is missing",
            "2:1 a second site without `hosts`, which would never be asked [the first is on line 1]",
            "6:17 `c:80` is not a host name [leave scheme and port out]",
            "6:25 `*` is not a host name [leave `hosts` out to answer any host]",
            "6:30 expected a string, found integer",
            "8:8 `root`: not a path",
            "9:10 host `a.b` is given twice [the first is on line 6]",
            "12:9 expected an array of strings, found string [write [\"x\"]]",
        ],
    );
}

#[test]
fn routes() {
    assert_problems(
        "[[site]]\nroot = \"/\"\nindex = [\"a/b\"]\n[[site.route]]\npath = \"/a/*\"\nstrip_prefix = \"/b\"\n\
         [[site.route]]\npath = \"/a/b\"\n[[site.route]]\npath = \"b\"\nlisting = 1\n[[site.route]]\nlisting = true\n\
         [[site.route]]\npath = \"/c\"\nstrip_prefix = \"/\"\n[[site.route]]\npath = \"/cd/*\"\nstrip_prefix = \"/c\"\n",
        &[
            "3:10 `a/b` is not a file name",
            "6:16 `strip_prefix`: the route's `path` does not start with it",
            "8:8 `path`: this route can never match [`/a/*` on line 5 matches first]",
            "10:8 `b` is not the path of a route [a path starts with `/`]",
            "11:11 expected `true` or `false`, found integer [write true]",
            "12:1 `path` is missing",
            "16:16 `/` takes no segment off a path [leave it out]",
            "19:16 `strip_prefix`: the route's `path` does not start with it",
        ],
    );
}

/// The routes of one site do not hide those of another.
#[test]
fn routes_belong_to_their_site() {
    let site = |host| {
        format!("[[site]]\nroot = \"/\"\nhosts = [\"{host}\"]\n[[site.route]]\npath = \"/*\"\n")
    };
    let config = parse(&(site("a") + &site("b"))).unwrap();
    assert_eq!(config.sites[1].routes.len(), 1);
}

#[test]
fn a_prefix_may_end_with_a_slash() {
    let text = format!("{SITE}[[site.route]]\npath = \"/a/b/*\"\nstrip_prefix = \"/a/\"\n");
    assert_eq!(
        parse(&text).unwrap().sites[0].routes[0]
            .strip_prefix
            .as_deref(),
        Some("/a")
    );
}

#[test]
fn headers() {
    assert_problems(
        &format!(
            "{SITE}[[site.route]]\npath = \"/\"\n[site.route.headers]\nremove = [\"b\", \"x y\", \"A\"]\n\
             [site.route.headers.set]\nB = \"1\"\na = \"\\n\"\nContent-Length = \"1\"\nc = 1\n"
        ),
        &[
            "6:11 `b` is given twice",
            "6:16 `x y` is not a header name",
            "6:23 `A` is given twice",
            "9:5 the value of `a` is not valid in a header [no control characters, and no space at either end]",
            "10:1 `Content-Length` is set by the server itself",
            "11:5 expected a string, found integer",
        ],
    );
}

#[test]
fn codings_of_precompressed_files() {
    use Coding::{Brotli, Gzip, Zstd};
    let route = "[[site.route]]\npath = \"/a\"\nprecompressed = []\n[[site.route]]\npath = \"/b\"";
    let text = format!("{SITE}precompressed = [\"br\", \"zstd\", \"gzip\"]\n{route}");
    let site = &parse(&text).unwrap().sites[0];
    assert_eq!(site.options.precompressed, [Brotli, Zstd, Gzip]);
    assert!(site.routes[0].options.precompressed.is_empty());
    assert_eq!(site.routes[1].options, site.options);
}

#[test]
fn what_is_no_coding() {
    assert_problems(
        &format!("{SITE}precompressed = [\"gzip\", \"deflate\", \"gzip\"]"),
        &[
            "3:26 `deflate` is not a coding [one of \"zstd\", \"br\", \"gzip\"]",
            "3:37 `gzip` is given twice",
        ],
    );
    assert_problems(
        &format!("{SITE}precompressed = \"gzip\""),
        &["3:17 expected an array of strings, found string [write [\"gzip\"]]"],
    );
    assert_problems(
        &format!("{SITE}[[site.route]]\npath = \"/a\"\nprecompressed = [\"\"]"),
        &["5:18 `` is not a coding [one of \"zstd\", \"br\", \"gzip\"]"],
    );
}
