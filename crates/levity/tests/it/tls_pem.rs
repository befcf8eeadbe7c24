//! Files with certificates and keys as OpenSSL, editors and shells leave them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use crate::clients::{curl, run};
use crate::support::{Launch, Tree};
use crate::tls::{LISTEN, site};

const LIMIT: Duration = Duration::from_secs(20);

/// Files that `openssl` has made: `root.pem`, `mid.pem`, which that has signed, `server.pem` for `a.test`, which `mid.pem` has signed,
/// and `ann.pem`, a client of `root.pem`. Each has its key in a file `.key`.
fn made() -> Tree {
    let folder = Tree::new();
    let openssl = |command: &str| {
        let words: Vec<_> = command.split(' ').collect();
        let made = run(LIMIT, "openssl", &words, folder.path());
        assert!(made.status.success(), "{command}: {made:?}");
    };
    let key = |name: &str| {
        format!(
            "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -subj /CN={name}"
        )
    };
    openssl(&format!("req -x509 {} -out root.pem", key("root")));
    for (name, by, extensions) in [
        ("mid", "root", "basicConstraints=critical,CA:true"),
        ("server", "mid", "subjectAltName=DNS:a.test"),
        ("ann", "root", "subjectAltName=DNS:ann.test"),
    ] {
        folder.file("extensions", extensions);
        openssl(&format!("req -new {} -out request", key(name)));
        openssl(&format!(
            "x509 -req -in request -CA {by}.pem -CAkey {by}.key -CAcreateserial -extfile extensions -days 9 -out {name}.pem"
        ));
        let readable = Permissions::from_mode(0o644);
        fs::set_permissions(folder.at(format!("{name}.key")), readable).expect("chmod");
    }
    openssl("x509 -in root.pem -trustout -setalias ours -out trusted.pem");
    folder
}

fn read(folder: &Tree, name: &str) -> String {
    fs::read_to_string(folder.at(name)).expect("a file of openssl")
}

/// A chain whose second certificate is lost is verified by nobody, and neither is a client of an authority that is.
#[test]
fn no_certificate_of_joined_files_is_lost() {
    let (folder, tree) = (made(), Tree::new());
    tree.file("index.html", "content");
    let of = |name: &str| read(&folder, name);
    let mark = '\u{feff}';
    folder.file(
        "chain",
        of("server.pem").trim_end().to_owned() + &of("mid.pem"),
    );
    folder.file(
        "key",
        format!("{mark}{}", of("server.key").replace('\n', "\r\n")),
    );
    let others = of("mid.pem");
    folder.file(
        "clients",
        format!("{mark}{}{}", others.trim_end(), of("trusted.pem")),
    );
    let path = |name: &str| folder.at(name).display().to_string();
    let table = format!(
        "[site.tls]\ncertificates = [{:?}]\nkeys = [{:?}]\nclient_authorities = {:?}\n",
        path("chain"),
        path("key"),
        path("clients")
    );
    let site = site("\"a.test\"", &tree, &table);
    let server = Launch::run(&format!("{LISTEN}{site}")).start();
    let address = server.address();
    let resolve = format!("a.test:{}:{}", address.port(), address.ip());
    let url = format!("https://a.test:{}/", address.port());
    let client = [
        "--cacert", "root.pem", "--cert", "ann.pem", "--key", "ann.key",
    ];
    let arguments = [&["--resolve", &resolve], &client[..], &[&url]].concat();
    assert_eq!(curl(&arguments, folder.path()), b"content");
}

#[test]
fn a_check_names_what_would_be_lost() {
    let (folder, tree) = (made(), Tree::new());
    let of = |name: &str| read(&folder, name);
    let lines = of("root.pem").lines().count();
    folder.file(
        "joined",
        of("root.pem") + "subject=CN = mid" + &of("mid.pem"),
    );
    folder.file(
        "cut",
        of("root.pem") + &of("mid.pem").replace("-----END", ""),
    );
    let listen = "[[listen]]\naddress = \"443\"\ntls = true\n";
    let checked = |name: &str| {
        let file = tree.at("levity.toml");
        let tables = format!(
            "[site.tls]\ncertificates = [{:?}]\nkeys = [{:?}]\nclient_authorities = {:?}\n",
            folder.at("server.pem"),
            folder.at("server.key"),
            folder.at(name)
        );
        fs::write(
            &file,
            format!("{listen}{}", site("\"a.test\"", &tree, &tables)),
        )
        .expect("written");
        let ran = Launch::levity(["check", "-c"]).arguments([&file]).ran();
        ran.stdout + &ran.stderr
    };
    let ok = checked("root.pem");
    assert!(ok.contains(": ok"), "{ok}");
    for (name, reason) in [
        ("joined", "what begins here is not at the start of the line"),
        ("cut", "`CERTIFICATE` begins here and does not end"),
    ] {
        let said = checked(name);
        let place = format!(
            "{}: line {}: {reason}",
            folder.at(name).display(),
            lines + 1
        );
        assert!(said.contains(&place), "{said}");
    }
}
