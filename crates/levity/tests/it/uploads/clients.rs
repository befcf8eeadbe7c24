//! Programs that people upload with.

use std::process::{Command, Output, Stdio};

use super::*;

fn curl(arguments: &[&str]) -> Output {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-w", "%{http_code}"]).args(arguments);
    curl.output().expect("curl")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn curl_uploads_and_continues() {
    let (root, own) = (writable(), Tree::new());
    let server = taking(root.path(), ALL).start();
    let body = content(9, 3_000_000);
    let file = own.file("file", &body).display().to_string();
    let url = format!("http://{}/file", server.address());
    assert_eq!(text(&curl(&["-T", &file, &url])), "201");
    assert_eq!(text(&curl(&["-T", &file, &url])), "204");
    assert!(fs::read(root.at("file")).expect("a file") == body);
    assert_eq!(text(&curl(&["-X", "DELETE", &url])), "204");
    // It is slow, so that it can be stopped on its way.
    let slow = ["--limit-rate", "500k", "-T", &file, &url];
    let mut child = Command::new("curl");
    child.arg("-sS").args(slow);
    let mut child = child.stderr(Stdio::null()).spawn().expect("curl");
    let sent = || {
        server
            .metrics(&server.own("admin"))
            .sum("levity_uploaded_bytes_total")
    };
    let before = sent();
    wait_until("a part has arrived", || sent() > before + 200_000.0);
    child.kill().expect("kill");
    child.wait().expect("wait");
    let asked = format!("Content-Range: bytes */{}", body.len());
    let offset = || {
        let asked = curl(&[
            "-D",
            "-",
            "-X",
            "PUT",
            "-H",
            &asked,
            "-H",
            "Content-Length: 0",
            &url,
        ]);
        let header = text(&asked);
        let line = header
            .lines()
            .find_map(|line| line.strip_prefix("Range: bytes=0-"));
        line.map(|last| last.trim().parse::<u64>().expect("a number") + 1)
    };
    wait_until("the part is kept", || offset().is_some());
    let offset = offset().expect("a part").to_string();
    assert_eq!(text(&curl(&["-C", &offset, "-T", &file, &url])), "201");
    assert!(fs::read(root.at("file")).expect("a file") == body);
}
