use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::{fs, thread};

use super::*;

fn config(root: &Path, more: &str) -> Config {
    let root = root.display();
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n{more}[[site]]\nroot = \"{root}\"\nupload = {{ methods = [\"PUT\"] }}\n"
    );
    levity_config::parse(&text).expect("a configuration")
}

/// A folder with folders.
fn folders(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in names {
        fs::create_dir_all(folder.path().join(name)).expect("a folder");
    }
    folder
}

/// What `tried` gives on a thread that is confined to what the configuration needs. The threads of other tests go on as
/// they were.
fn confined<T: Send>(config: &Config, tried: impl FnOnce(&Confinement) -> T + Send) -> T {
    thread::scope(|scope| {
        let confined = scope.spawn(|| {
            // From now on the thread has a helper that is older than its confinement.
            patiently("/".as_ref(), |_| ()).expect("it responds");
            let rules = Rules::start(config).expect("a kernel with Landlock");
            tried(&Confinement {
                rules: Some(rules),
                may_start_programs: false,
            })
        });
        confined.join().expect("it ends")
    })
}

fn is_refused<T>(result: io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn a_thread_and_those_that_it_starts_write_only_where_they_may() {
    let (inside, outside) = (folders(&["www/a", "www/b"]), folders(&["x"]));
    let (www, out) = (inside.path().join("www"), outside.path().join("x"));
    fs::write(out.join("old"), "old").expect("written");
    confined(&config(&www, ""), |_| {
        fs::write(www.join("a/new"), "new").expect("written");
        fs::hard_link(www.join("a/new"), www.join("b/linked")).expect("linked to another folder");
        fs::rename(www.join("a/new"), www.join("b/moved")).expect("moved to another folder");
        fs::create_dir(www.join("c")).expect("made");
        fs::remove_dir(www.join("c")).expect("removed");
        fs::write("/dev/null", "x").expect("written");
        assert_eq!(fs::read(out.join("old")).expect("read"), b"old");
        let name = out.join("new");
        assert!(is_refused(fs::write(&name, "")));
        assert!(is_refused(
            fs::File::options().append(true).open(out.join("old"))
        ));
        assert!(is_refused(fs::create_dir(&name)));
        assert!(is_refused(fs::remove_file(out.join("old"))));
        assert!(is_refused(symlink("target", &name)));
        assert!(
            is_refused(symlink("target", www.join("link"))),
            "the server makes none"
        );
        assert!(fs::rename(www.join("b/moved"), &name).is_err());
        assert!(is_refused(Command::new("/bin/true").status()));
        let of_helper = {
            let name = name.clone();
            patiently("/".as_ref(), move |_| fs::write(name, ""))
        };
        assert!(is_refused(of_helper.expect("it responds")));
        let of_thread = thread::scope(|scope| scope.spawn(|| fs::write(&name, "")).join());
        assert!(is_refused(of_thread.expect("it ends")));
    });
}

#[test]
fn a_log_and_a_socket_open_their_folders_for_no_more_than_that() {
    let (inside, logs) = (folders(&["www", "run"]), folders(&["var/log"]));
    let at = |name: &str| logs.path().join("var/log").join(name);
    let run = inside.path().join("run");
    let more = format!(
        "[log]\naccess = \"{}\"\n[admin]\nlisten = \"unix:{}/admin\"\n",
        at("log").display(),
        run.display()
    );
    fs::write(at("kept"), "").expect("written");
    confined(&config(&inside.path().join("www"), &more), |_| {
        fs::write(at("log"), "line").expect("written");
        assert!(is_refused(fs::remove_file(at("kept"))));
        assert!(is_refused(fs::rename(at("log"), at("other"))));
        // Nothing is opened for a swap of the folder: what lies beside it is for others.
        assert!(is_refused(fs::write(logs.path().join("var/beside"), "x")));
        let socket = run.join("admin");
        std::os::unix::net::UnixListener::bind(&socket).expect("bound");
        fs::remove_file(&socket).expect("removed");
    });
}

/// By inode and not by name.
#[test]
fn a_reload_is_compared_as_the_kernel_does() {
    let (inside, outside) = (folders(&["www/a", "www/b"]), folders(&["x", "y"]));
    let (www, out) = (inside.path().join("www"), outside.path().join("x"));
    symlink(&out, www.join("away")).expect("a link");
    symlink(www.join("a"), out.join("back")).expect("a link");
    confined(&config(&www, ""), |confinement| {
        let permits = |root: PathBuf| confinement.permits(&config(&root, ""));
        for root in [
            www.clone(),
            www.join("a"),
            out.join("back"),
            inside.path().join("www/a/../b"),
        ] {
            permits(root).expect("permitted");
        }
        for root in [out.clone(), www.join("away"), PathBuf::from("/tmp")] {
            let refused = permits(root.clone()).expect_err("refused").to_string();
            let start = format!("{} is a new place to write to", root.display());
            assert!(refused.starts_with(&start), "{refused}");
            assert!(refused.ends_with("which needs a restart"), "{refused}");
        }
        // Other kinds of writing need other rights.
        let log = format!("[log]\naccess = \"{}/log\"\n", www.display());
        confinement.permits(&config(&www, &log)).expect("permitted");
        let hook = "[acme]\nchallenges = [\"dns-01\"]\n[acme.dns]\nhook = [\"/bin/true\"]\n";
        let refused = confinement
            .permits(&config(&www, hook))
            .expect_err("a program");
        assert!(
            refused.to_string().contains("`hook` of [acme.dns] is new"),
            "{refused}"
        );
    });
}

#[test]
fn without_rules_all_is_permitted() {
    let confinement = Confinement {
        rules: None,
        may_start_programs: true,
    };
    let config = config("/tmp".as_ref(), "");
    confinement.permits(&config).expect("permitted");
}

/// Whatever they are, they keep no other reload from being made.
#[test]
fn what_had_no_folder_at_the_start_is_refused_by_the_kernel_alone() {
    let inside = folders(&["www"]);
    let (www, gone) = (inside.path().join("www"), PathBuf::from("/none/there"));
    let more = format!("[admin]\ncontrol = \"unix:{}/control\"\n", gone.display());
    let config = config(&www, &more);
    confined(&config, |confinement| {
        let rules = confinement.rules.as_ref().expect("rules");
        assert_eq!(rules.missing, [gone.join("control")]);
        confinement.permits(&config).expect("permitted");
    });
}
