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
            "6:30 expected a string, found integer [write \"1\"]",
            "8:8 `root`: not a path",
            "9:10 host `a.b` is given twice [the first is on line 6]",
            "12:9 expected an array of strings, found string [write [\"x\"]]",
        ],
    );
}

#[test]
fn archives_are_of_listings() {
    assert_problems(
        "[[site]]\nroot = \"/\"\nlisting_archive = [\"tar\", \"Zip\", \"tar\", \"rar\"]\n\
         [[site]]\nhosts = [\"a\"]\nroot = \"/\"\nlisting_archive = [\"zip\"]\n[[site.route]]\npath = \"/a/*\"\nlisting = true\n\
         [[site.route]]\npath = \"/b/*\"\nlisting_archive = [\"tar\"]\n",
        &[
            "3:19 `listing_archive`: it needs `listing = true` here",
            "3:27 `Zip` is not a value of `listing_archive` [did you mean \"zip\"?]",
            "3:34 `tar` is given twice",
            "3:41 `rar` is not a value of `listing_archive` [did you mean \"tar\"?]",
            "13:19 `listing_archive`: it needs `listing = true` here",
        ],
    );
}

#[test]
fn patterns_of_names() {
    assert_problems(
        "[[site]]\nroot = \"/\"\nhide = [\"*.bak\", \"a/b\", \"\", \"..\", 1]\nshow = [\".a\", \"b\", \"*\", \"/.c\"]\n",
        &[
            "3:18 `a/b` has a slash [each name on the way to a file is compared by itself; for a path write a route]",
            "3:25 `` is not a file name",
            "3:29 `..` is not a file name",
            "3:35 expected a string, found integer [write \"1\"]",
            "4:15 `b` does not begin with a dot [other names are served unless `hide` names them]",
            "4:20 `*` does not begin with a dot [other names are served unless `hide` names them]",
            "4:25 `/.c` has a slash [each name on the way to a file is compared by itself; for a path write a route]",
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
            "10:8 `b` is not the path of a route [a path starts with `/`; `regex` takes a regular expression]",
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
            .location
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
            "11:5 expected a string, found integer [write \"1\"]",
        ],
    );
}

#[test]
fn codings_of_precompressed_files() {
    use Coding::{Brotli, Gzip, Zstd};
    let route = "[[site.route]]\npath = \"/a\"\nprecompressed = []\n[[site.route]]\npath = \"/b\"";
    let text = format!("{SITE}precompressed = [\"br\", \"zstd\", \"gzip\"]\n{route}");
    let site = &parse(&text).unwrap().sites[0];
    assert_eq!(site.location.options.precompressed, [Brotli, Zstd, Gzip]);
    assert!(site.routes[0].location.options.precompressed.is_empty());
    assert_eq!(site.routes[1].location.options, site.location.options);
}

#[test]
fn codings_and_types_of_compression() {
    let site = |keys: &str| parse(&format!("{SITE}{keys}")).unwrap().sites[0].clone();
    let options = site("").location.options;
    assert!(!options.compress);
    assert_eq!(options.compress_min_bytes, 256);
    let codings = |options: &LocationOptions| -> Vec<(&str, Option<u8>)> {
        let codings = options.compress_codings.iter();
        codings.map(|own| (own.coding.name(), own.level)).collect()
    };
    let defaults = [("zstd", None), ("br", None), ("gzip", None)];
    assert_eq!(codings(&options), defaults);
    let included = |options: &LocationOptions, name: &str| {
        let mut types = options.compress_types.iter();
        types.any(|types| types.include(name.as_bytes()))
    };
    assert!(included(&options, "text/html") && !included(&options, "image/png"));
    let route = "[[site.route]]\npath = \"/a\"\ncompress = false\n[[site.route]]\npath = \"/b\"";
    let keys = "compress = true\ncompress_codings = [\"gzip:9\", \"br:0\", \"zstd:19\"]\n\
                compress_types = [\"image/*\"]\ncompress_min_bytes = \"1KiB\"\n";
    let site = site(&format!("{keys}{route}"));
    let expected = [("gzip", Some(9)), ("br", Some(0)), ("zstd", Some(19))];
    assert_eq!(codings(&site.location.options), expected);
    assert!(
        included(&site.location.options, "image/png")
            && !included(&site.location.options, "text/html")
    );
    assert_eq!(site.location.options.compress_min_bytes, 1024);
    assert!(site.location.options.compress && !site.routes[0].location.options.compress);
    assert_eq!(site.routes[1].location.options, site.location.options);
}

#[test]
fn what_is_no_compression() {
    assert_problems(
        &format!(
            "{SITE}compress_codings = [\"gzip:0\", \"gzip:10\", \"br:12\", \"zstd:20\", \"br:\", \"lz4\", \"br\", \"br:1\"]"
        ),
        &[
            "3:21 the level of `gzip` must be from 1 to 9",
            "3:31 the level of `gzip` must be from 1 to 9",
            "3:42 the level of `br` must be from 0 to 11",
            "3:51 the level of `zstd` must be from 1 to 19",
            "3:62 the level of `br` must be from 0 to 11",
            "3:69 `lz4` is not a coding [one of \"zstd\", \"br\", \"gzip\", with a level as in \"br:5\"]",
            "3:82 `br` is given twice",
        ],
    );
    assert_problems(
        &format!("{SITE}compress_types = [\"html\"]"),
        &[
            "3:19 `html` is not a media type [such as \"text/css\", \"text/*\" or \"application/*+json\"]",
        ],
    );
}

#[test]
fn dictionaries_need_compression_and_a_folder() {
    let keys = "compress_dictionaries = true\n";
    let disk = "[disk]\nvariants = \"/var/cache/levity\"\n";
    let on = format!("{SITE}compress = true\n{keys}");
    let site = parse(&format!("{on}{disk}")).unwrap().sites[0].clone();
    assert!(site.location.options.compress_dictionaries);
    let problem = |line, lacking| format!("{line}:25 `compress_dictionaries`: it needs {lacking}");
    for (text, line, lacking) in [
        (on.clone(), 4, "`variants`, a folder, in `[disk]`"),
        (format!("{SITE}{keys}{disk}"), 3, "`compress = true` here"),
        (
            format!("{on}compress_codings = [\"gzip\"]\n{disk}"),
            4,
            "`zstd` or `br` in `compress_codings`",
        ),
        (
            format!("{on}substitute = {{ a = \"b\" }}\n{disk}"),
            4,
            "content that `substitute` does not change",
        ),
        (
            format!("{SITE}[[site.route]]\npath = \"/a\"\n{keys}{disk}"),
            5,
            "`compress = true` here",
        ),
    ] {
        assert_problems(&text, &[&problem(line, lacking)]);
    }
    // For the routes of a site.
    let route = "[[site.route]]\npath = \"/a\"\ncompress = true\n";
    let site = parse(&format!("{SITE}{keys}{route}{disk}")).unwrap().sites[0].clone();
    assert!(site.routes[0].location.options.compress_dictionaries);
    let off = "[[site.route]]\npath = \"/a\"\ncompress = false\n";
    parse(&format!("{on}{off}{disk}")).unwrap();
}

#[test]
fn variants_are_not_served() {
    let with = |variants: &str, root: &str| {
        format!("[disk]\nvariants = \"{variants}\"\n[[site]]\nroot = \"{root}\"\n")
    };
    let help = "[keep variants in a folder that is not served]";
    for (variants, root, message) in [
        ("/srv", "/srv/", "/srv/ is also `disk.variants`"),
        (
            "/srv/../srv/./b",
            "/srv/b",
            "/srv/b is also `disk.variants`",
        ),
        ("/srv/b", "/srv", "`disk.variants`, /srv/b, lies in /srv"),
        ("/srv/b/c", "/", "`disk.variants`, /srv/b/c, lies in /"),
        ("/srv", "/srv/b/c", "/srv/b/c lies in `disk.variants`, /srv"),
    ] {
        let problem = format!("4:8 `root`: {message} {help}");
        assert_problems(&with(variants, root), &[&problem]);
    }
    for (variants, root) in [
        ("/srv/bc", "/srv/b"),
        ("/srv/b", "/srv/bc"),
        ("/srv/a/../b", "/srv/a"),
    ] {
        parse(&with(variants, root)).unwrap();
    }
    let route = "[[site.route]]\npath = \"/a\"\nroot = \"/var/cache\"\n";
    let message = "`root`: `disk.variants`, /var/cache/levity, lies in /var/cache";
    assert_problems(
        &(with("/var/cache/levity", "/srv") + route),
        &[&format!("7:8 {message} {help}")],
    );
}

#[test]
fn compression_of_nothing() {
    for key in ["compress_codings", "compress_types"] {
        let column = key.len() + 4;
        let problem = |line| {
            let help = "leave it out, or write `compress = false`";
            format!("{line}:{column} `{key}`: nothing can be compressed [{help}]")
        };
        let empty = format!("{key} = []\n");
        let on = format!("{SITE}compress = true\n");
        assert_problems(&format!("{on}{empty}"), &[&problem(4)]);
        let route = "[[site.route]]\npath = \"/a\"\n";
        assert_problems(&format!("{on}{route}{empty}"), &[&problem(6)]);
        parse(&format!("{SITE}{empty}")).unwrap();
        parse(&format!("{on}{route}compress = false\n{empty}")).unwrap();
        // An element that is wrong is a problem of its own.
        let wrong = format!("{on}{key} = [\"a\"]\n");
        assert_eq!(messages(&wrong).len(), 1, "{wrong}");
    }
}

#[test]
fn other_names_of_codings() {
    for (name, coding) in [
        ("zst", "zstd"),
        ("zstandard", "zstd"),
        ("ZSTD", "zstd"),
        ("brotli", "br"),
        ("gz", "gzip"),
        ("gzp", "gzip"),
    ] {
        for (key, column) in [("compress_codings", 21), ("precompressed", 18)] {
            let problem =
                format!("3:{column} `{name}` is not a coding [did you mean \"{coding}\"?]");
            assert_problems(&format!("{SITE}{key} = [\"{name}\"]"), &[&problem]);
        }
    }
    assert_problems(
        &format!("{SITE}compress_codings = [\"brotli:5\"]"),
        &["3:21 `brotli` is not a coding [did you mean \"br:5\"?]"],
    );
    assert_problems(
        &format!("{SITE}precompressed = [\"br:5\"]"),
        &[
            "3:18 `br:5` is not a coding [write \"br\": it has no level, `levity precompress` makes the files]",
        ],
    );
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

#[test]
fn text_to_replace_is_inherited_as_a_whole() {
    let own = "[[site.route]]\npath = \"/a\"\nsubstitute = { c = \"d\" }\n";
    let none = "[[site.route]]\npath = \"/b\"\nsubstitute = {}\n";
    let absent = "[[site.route]]\npath = \"/c\"\nsubstitute_types = []\n";
    let text = format!("{SITE}[site.substitute]\na = \"b\"\n{own}{none}{absent}");
    let site = &parse(&text).unwrap().sites[0];
    let pair = |found: &str, put: &str| vec![(found.to_owned(), put.to_owned())];
    let options = |route: usize| &site.routes[route].location.options;
    assert_eq!(site.location.options.substitute, pair("a", "b"));
    assert_eq!(
        site.location.options.substitute_types,
        ["text/html".parse().unwrap()]
    );
    assert_eq!(options(0).substitute, pair("c", "d"));
    assert_eq!(options(1).substitute, []);
    assert_eq!(options(2).substitute, pair("a", "b"));
    assert!(options(2).substitute_types.is_empty());
}

#[test]
fn text_that_cannot_be_replaced() {
    let (found, put) = ("f".repeat(1024), "p".repeat(16 * 1024));
    parse(&format!("{SITE}substitute = {{ \"{found}\" = \"{put}\" }}")).unwrap();
    assert_problems(
        &format!(
            "{SITE}[site.substitute]\n\"\" = \"a\"\n{found}f = \"a\"\na = \"{put}p\"\nb = 1\n"
        ),
        &[
            "4:1 there is no text to find [write \"TEXT\" = \"REPLACEMENT\"]",
            "5:1 1025 bytes of text are more than 1024",
            "6:5 16385 bytes of text are more than 16384",
            "7:5 expected a string, found integer [write \"1\"]",
        ],
    );
    assert_problems(
        &format!("{SITE}substitute = \"s/a/b/\""),
        &["3:14 expected a table of strings, found string"],
    );
    let pairs = |count: usize| -> String {
        let pair = |number| format!("a{number} = \"b\"\n");
        (0..count).map(pair).collect()
    };
    parse(&format!("{SITE}[site.substitute]\n{}", pairs(64))).unwrap();
    assert_problems(
        &format!("{SITE}[site.substitute]\n{}", pairs(65)),
        &["3:1 `substitute`: 65 pairs are more than 64"],
    );
}

#[test]
fn types_in_which_text_is_replaced() {
    let help = "[such as \"text/css\", \"text/*\" or \"application/*+json\"]";
    assert_problems(
        &format!(
            "{SITE}substitute_types = [\"*/*\", \"text/*\", \"a/b+c\",\n\"html\",\n\"*\",\n\"*/css\",\n\"text/c*\",\n\
             \"text/css;charset=a\",\n\"text/\"]"
        ),
        &[
            &format!("4:1 `html` is not a media type {help}"),
            &format!("5:1 `*` is not a media type {help}"),
            &format!("6:1 `*/css` is not a media type {help}"),
            &format!("8:1 `text/css;charset=a` is not a media type {help}"),
            &format!("9:1 `text/` is not a media type {help}"),
        ],
    );
}
