//! Which files the strings name.

use super::*;

#[test]
fn files_come_in_the_order_of_the_patterns_and_their_bytes() {
    let folder = Folder::new(&format!(
        "include = [\"z.toml\", \"sites.d/*.toml\", \"a.toml\"]\n{}",
        site("main.test")
    ));
    for (name, host) in [
        ("a", "last"),
        ("z", "z"),
        ("sites.d/10", "10"),
        ("sites.d/9", "9"),
        ("sites.d/B", "b"),
        ("sites.d/a", "a"),
        ("sites.d/\u{e4}", "umlaut"),
    ] {
        folder.write(&format!("{name}.toml"), site(&format!("{host}.test")));
    }
    let expected = ["main", "z", "10", "9", "b", "a", "umlaut", "last"];
    assert_eq!(folder.hosts(), expected.map(|name| format!("{name}.test")));
    let config = folder.loaded();
    let names = config.files.names().take(3);
    let names: Vec<_> = names
        .map(|name| folder.relative(&name.to_string_lossy()))
        .collect();
    assert_eq!(names, ["levity.toml", "z.toml", "sites.d/10.toml"]);
    assert_eq!(folder.notes(), [""; 0]);
}

#[test]
fn only_names_with_the_end_count() {
    let folder = Folder::new("include = [\"sites.d/*\"]\n");
    folder.write("sites.d/a.toml", site("a.test"));
    for name in [
        ".b.toml",
        "c.toml~",
        "d.toml.bak",
        "e.toml.dpkg-new",
        "f.toml.swp",
        "g",
        "h.conf",
        "i.TOML",
    ] {
        folder.write(&format!("sites.d/{name}"), "nonsense");
    }
    assert_eq!(folder.hosts(), ["a.test"]);
}

#[test]
fn a_pattern_may_have_stars_in_each_part() {
    let folder = Folder::new("include = [\"./s?tes/*/*.toml\"]\n");
    folder.write("sites/b/x.toml", site("bx.test"));
    folder.write("sites/a/y.toml", site("ay.test"));
    folder.write("sites/.c/z.toml", "nonsense");
    folder.write("sites/d.toml", "nonsense");
    assert_eq!(folder.hosts(), ["ay.test", "bx.test"]);
}

#[test]
fn a_name_behind_a_star_need_not_be_in_each_folder() {
    let folder = Folder::new("include = [\"sub/*/site.toml\"]\n");
    folder.write("sub/a/site.toml", site("a.test"));
    folder.write("sub/b/other.toml", "nonsense");
    folder.write("sub/c/site.toml", site("c.test"));
    assert_eq!(folder.hosts(), ["a.test", "c.test"]);
    assert_eq!(folder.notes(), [""; 0]);
    // Somebody means it to be there.
    symlink("none", folder.at("sub/b/site.toml")).expect("a link");
    assert_eq!(
        folder.problems(),
        ["levity.toml:1:12 cannot read sub/b/site.toml: No such file or directory (os error 2)"]
    );
}

#[test]
fn folders_of_a_pattern_are_bounded() {
    let folder = Folder::new(&format!("include = [\"sub/*/site.toml\"]\n{SITE_ALONE}"));
    let add = |number: usize| {
        let path = folder.at(&format!("sub/{number}"));
        fs::create_dir_all(path).expect("a folder");
    };
    (0..FILES_MAX).for_each(add);
    assert_eq!(folder.loaded().sites.len(), 1);
    add(FILES_MAX);
    assert_eq!(
        folder.problems(),
        ["-:1:12 `sub/*/site.toml` looks into more than 4096 folders"]
    );
}

#[test]
fn a_name_has_to_be_there_and_a_pattern_not() {
    // What is absent may be in that file.
    let folder = Folder::new("include = [\"none.toml\"]\n");
    assert_eq!(
        folder.problems(),
        ["-:1:12 cannot read none.toml: No such file or directory (os error 2)"]
    );
    let notes = |pattern: &str| {
        let main = format!("include = [\"{pattern}\"]\n{SITE_ALONE}");
        folder.write("levity.toml", main);
        folder.notes()
    };
    for pattern in ["none.d/*.toml", "none.d/*/a.toml"] {
        let note = format!("line 1: no file matches `{pattern}`: there is no none.d");
        assert_eq!(notes(pattern), [note]);
    }
    // Nobody has put files there yet.
    folder.write("empty.d/sub/x", "");
    for pattern in [
        "*.none.toml",
        "empty.d/*.toml",
        "empty.d/*/a.toml",
        "empty.d/*/none/*.toml",
    ] {
        assert_eq!(notes(pattern), [""; 0], "{pattern}");
    }
}

#[test]
fn strings_that_name_no_file() {
    for (value, expected) in [
        ("[\"\"]", "-:1:12 `` is not the path of a file"),
        ("[\"/\"]", "-:1:12 `/` is not the path of a file"),
        ("[\"a/\"]", "-:1:12 `a/` is not the path of a file"),
        ("[\"*/\"]", "-:1:12 `*/` is not the path of a file"),
        ("[\"..\"]", "-:1:12 `..` is not the path of a file"),
        (
            "[\"a.toml\\u0000\"]",
            "-:1:12 `a.toml\u{0}` is not the path of a file",
        ),
        (
            "[\"a.conf\"]",
            "-:1:12 `a.conf` does not end in `.toml`: only such files are included",
        ),
        (
            "[\"*/a.conf\"]",
            "-:1:12 `*/a.conf` does not end in `.toml`: only such files are included",
        ),
        (
            "[\"a/*.conf\"]",
            "-:1:12 `a/*.conf` does not end in `.toml`: only such files are included",
        ),
        (
            "[\"~/a.toml\"]",
            "-:1:12 `~/a.toml` begins with `~`, which is not expanded: write the path in full",
        ),
        (
            "[\"a/**/*.toml\"]",
            "-:1:12 `a/**/*.toml` has `**`: `*` stands for text within one name; name each depth by itself, as in `a/*.toml` and \
             `a/*/*.toml`",
        ),
        (
            "[\"[ab].toml\"]",
            "-:1:12 `[ab].toml` has brackets, which stand for nothing here: `*` stands for any text within a name, `?` for one character",
        ),
        (
            "[\"{a,b}*.toml\"]",
            "-:1:12 `{a,b}*.toml` has brackets, which stand for nothing here: `*` stands for any text within a name, `?` for one \
             character",
        ),
        (
            "[\"levity.toml/*.toml\"]",
            "-:1:12 cannot list levity.toml: Not a directory (os error 20)",
        ),
        (
            "\"a.toml\"",
            "-:1:11 expected an array of strings, found string [write [\"a.toml\"]]",
        ),
        (
            "[1]",
            "-:1:12 expected a string, found integer [write \"1\"]",
        ),
    ] {
        let folder = Folder::new(&format!("include = {value}\n{SITE_ALONE}"));
        assert_eq!(folder.problems(), [expected], "{value}");
    }
}
